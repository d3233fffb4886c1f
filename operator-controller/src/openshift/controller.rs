//! The controller of the gate: reads ClusterVersion and revisions, writes one condition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _, core::PartialObjectMeta};
use olm_api::ClusterExtension;
use olm_api::conditions::{UPGRADEABLE, whole_seconds};
use olm_api::names::CLUSTER_OPERATOR;
use olm_bundle::openshift::{ClusterVersionError, MinorVersion};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::verdict::{InstalledRevision, UpgradeableCondition, verdict};
use crate::object_set::store::Sets;

const GROUP: &str = "config.openshift.io";
/// The only object of kind ClusterVersion.
const CLUSTER_VERSION: &str = "version";
/// The CRD that identifies an OpenShift cluster.
const DEFINITION: &str = "clusterversions.config.openshift.io";
/// The interval at which the condition is checked for changes by others.
const PAUSE: Duration = Duration::from_mins(1);
/// The pause after a failure, such as a concurrent write.
const RETRY: Duration = Duration::from_secs(5);
/// The time for which changes are collected, so that many revisions start one run.
const GATHER: Duration = Duration::from_secs(1);

/// The reason why the condition could not be written. Every cause is transient.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GateError {
    /// The API server did not answer a request.
    #[error("cannot {action}")]
    Api {
        /// The request.
        action: &'static str,
        /// The answer.
        source: kube::Error,
    },
    /// The version of the cluster is unknown.
    #[error("ClusterVersion `version` does not say which version is desired")]
    NoVersion,
    /// The cluster's version cannot be read.
    #[error(transparent)]
    Version(#[from] ClusterVersionError),
}

fn api(action: &'static str) -> impl FnOnce(kube::Error) -> GateError {
    move |source| GateError::Api { action, source }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural)
}

/// The installed bundles, as the watches last saw them.
#[derive(Clone)]
pub(crate) struct Installed {
    /// All ClusterExtensions.
    pub extensions: Store<ClusterExtension>,
    /// All ClusterObjectSets.
    pub sets: Arc<Sets>,
}

impl Installed {
    fn revisions(&self) -> Vec<InstalledRevision> {
        let extensions = self.extensions.state();
        let names: HashMap<&str, &str> = extensions
            .iter()
            .filter_map(|extension| Some((extension.metadata.uid.as_deref()?, extension.name())))
            .collect();
        let name = |uid: &str| names.get(uid).copied();
        let sets = self.sets.state();
        sets.iter()
            .filter_map(|set| InstalledRevision::of(set, name))
            .collect()
    }
}

/// Runs the gate while the cluster serves ClusterVersions, until `stop` is cancelled. `changed` is notified when a
/// revision changes.
pub(crate) async fn follow(
    client: Client,
    installed: Installed,
    changed: Arc<Notify>,
    stop: CancellationToken,
) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={DEFINITION}"));
    let mut events = watcher(definitions, config).default_backoff().boxed();
    let stages = async {
        loop {
            until(&mut events, Presence::Present).await;
            tracing::info!("ClusterVersion exists: reporting whether OpenShift may be updated");
            tokio::select! {
                () = run(&client, &installed, &changed) => {}
                () = until(&mut events, Presence::Absent) => tracing::info!("ClusterVersion is gone"),
            }
        }
    };
    tokio::select! { () = stop.cancelled() => {}, () = stages => {} }
}

/// Whether the CRD exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Present,
    Absent,
}

/// Waits until the only watched object exists, or does not.
async fn until<K, E>(events: &mut (impl Stream<Item = Result<Event<K>, E>> + Unpin), wanted: Presence) {
    let mut listed = Presence::Absent;
    while let Some(event) = events.next().await {
        let found = match event {
            Ok(Event::Init) => {
                listed = Presence::Absent;
                continue;
            }
            Ok(Event::InitApply(_)) => {
                listed = Presence::Present;
                continue;
            }
            Ok(Event::InitDone) => listed,
            Ok(Event::Apply(_)) => Presence::Present,
            Ok(Event::Delete(_)) => Presence::Absent,
            // The watch retries.
            Err(_) => continue,
        };
        if found == wanted {
            return;
        }
    }
    // A watch never ends.
    std::future::pending::<()>().await;
}

/// Keeps the condition up to date.
async fn run(client: &Client, installed: &Installed, changed: &Notify) {
    let versions: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("ClusterVersion", "clusterversions"));
    let config = watcher::Config::default().fields(&format!("metadata.name={CLUSTER_VERSION}"));
    let mut events = watcher(versions, config)
        .default_backoff()
        .applied_objects()
        .boxed();
    let mut cluster: Option<DynamicObject> = None;
    loop {
        let mut pause = PAUSE;
        if let Some(version) = &cluster
            && let Err(error) = evaluate(client, version, installed).await
        {
            pause = RETRY;
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot report whether the cluster may be updated"
            );
        }
        tokio::select! {
            event = events.try_next() => match event {
                Ok(Some(version)) => cluster = Some(version),
                Ok(None) => return,
                Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "watch of ClusterVersion is interrupted"),
            },
            () = changed.notified() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn evaluate(client: &Client, version: &DynamicObject, installed: &Installed) -> Result<(), GateError> {
    let desired = version
        .data
        .pointer("/status/desired/version")
        .and_then(Value::as_str)
        .ok_or(GateError::NoVersion)?;
    let cluster = MinorVersion::of_cluster(desired)?;
    write(client, &verdict(cluster, &installed.revisions())).await
}

/// Sets the condition and leaves everything else unchanged. The whole status is written with the resourceVersion at
/// which it was read, so that a concurrent write of another condition is not lost.
async fn write(client: &Client, verdict: &UpgradeableCondition) -> Result<(), GateError> {
    let operators: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("ClusterOperator", "clusteroperators"));
    let present = operators
        .get_opt(CLUSTER_OPERATOR)
        .await
        .map_err(api("read ClusterOperator `olm`"))?;
    let mut operator = if let Some(operator) = present {
        operator
    } else {
        let mut new = DynamicObject::new(CLUSTER_OPERATOR, &resource("ClusterOperator", "clusteroperators"));
        new.data = json!({"spec": {}});
        operators
            .create(&PostParams::default(), &new)
            .await
            .map_err(api("create ClusterOperator `olm`"))?
    };
    if !set(&mut operator.data, verdict, Timestamp::now()) {
        return Ok(());
    }
    let name = operator.name_any();
    operators
        .replace_status(&name, &PostParams::default(), &operator)
        .await
        .map_err(api("write the status of ClusterOperator `olm`"))?;
    tracing::info!(
        status = verdict.status.as_str(),
        reason = verdict.reason,
        "reported whether the cluster may be updated"
    );
    Ok(())
}

/// Sets the condition in the object; returns false if it is unchanged. The transition time changes only with the
/// status.
fn set(operator: &mut Value, verdict: &UpgradeableCondition, now: Timestamp) -> bool {
    let mut condition = json!({
        "type": UPGRADEABLE,
        "status": verdict.status.as_str(),
        "reason": verdict.reason,
        "message": olm_api::conditions::bounded_message(&verdict.message),
        "lastTransitionTime": whole_seconds(now),
    });
    let Value::Object(root) = operator else {
        return false;
    };
    let status = root.entry("status").or_insert_with(|| json!({}));
    let Value::Object(status) = status else {
        return false;
    };
    let Value::Array(conditions) = status.entry("conditions").or_insert_with(|| json!([])) else {
        return false;
    };
    let Some(present) = conditions
        .iter_mut()
        .find(|c| c.get("type") == Some(&json!(UPGRADEABLE)))
    else {
        conditions.push(condition);
        return true;
    };
    if present.get("status") == condition.get("status")
        && let Some(time) = present.get("lastTransitionTime").cloned()
        && let Some(own) = condition.get_mut("lastTransitionTime")
    {
        *own = time;
    }
    let differs = *present != condition;
    *present = condition;
    differs
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, stream};
    use olm_api::conditions::Status;

    use super::*;

    #[tokio::test]
    async fn a_definition_is_seen_to_come_and_go_over_interrupted_watches() {
        use Event::{Apply, Delete, Init, InitApply, InitDone};
        let check = async |events: Vec<Result<Event<u8>, ()>>, wanted, seen| {
            let mut events = stream::iter(events);
            let found = until(&mut events, wanted).now_or_never().is_some();
            assert_eq!(found, seen, "{wanted:?}");
        };
        let (present, absent) = (Presence::Present, Presence::Absent);
        check(vec![Ok(Init), Ok(InitDone)], present, false).await;
        check(vec![Ok(Init), Ok(InitApply(1)), Ok(InitDone)], present, true).await;
        check(vec![Ok(Init), Ok(InitDone), Err(()), Ok(Apply(1))], present, true).await;
        check(vec![Ok(Apply(1)), Ok(Delete(1))], absent, true).await;
        check(vec![Ok(Init), Ok(InitApply(1)), Ok(InitDone)], absent, false).await;
        check(vec![Err(()), Ok(Init), Ok(InitDone)], absent, true).await;
    }

    #[test]
    fn only_our_condition_is_written_and_its_time_moves_with_its_status() {
        let mut operator =
            json!({"spec": {}, "status": {"conditions": [{"type": "Available", "status": "True"}], "x": 1}});
        let mut verdict = UpgradeableCondition {
            status: Status::False,
            reason: "A",
            message: "a".to_owned(),
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(set(&mut operator, &verdict, at(1)));
        assert!(!set(&mut operator, &verdict, at(2)));
        verdict.message = "b".to_owned();
        assert!(set(&mut operator, &verdict, at(3)));
        assert_eq!(
            operator["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:01Z"
        );
        verdict.status = Status::True;
        assert!(set(&mut operator, &verdict, at(4)));
        assert_eq!(
            operator["status"]["conditions"][1]["lastTransitionTime"],
            "1970-01-01T00:00:04Z"
        );
        assert_eq!(
            operator["status"]["conditions"][0],
            json!({"type": "Available", "status": "True"})
        );
        assert_eq!(operator["status"]["x"], 1);
    }
}
