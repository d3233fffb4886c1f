//! The causes of unready workloads in a revision that rolls out, read with few requests.
//!
//! The workload is read under the account. Its Pods and events are read with the controller's own right to list them,
//! because an account with the least rights may not, and every user of OLM needs the cause. Only the Pods that belong
//! to the workload count: a wide selector shows no other Pod.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use olm_cluster::apply::Target;
use olm_rollout::{
    cause::{Pods, WorkloadState, is_pod_of, is_workload, selector, sentence},
    engine::rollout::NotReady,
};
use serde_json::Value;

use super::super::{acting::Actor, context::Context, state::SetState};

/// The time for which a workload may be unready before the controller reads the cause.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before an unready workload is read again.
pub(super) const AGAIN: Duration = Duration::from_secs(15);
/// The time for which an answer is cached.
const FRESH: Duration = Duration::from_secs(10);
/// The most workloads that are read.
const WORKLOADS: usize = 3;
/// The most Pods and events of a workload that are read.
const READ: u32 = 100;
/// The most Pods of a workload that are looked at.
const LOOKED_AT: usize = 20;

/// Whether one of the objects is a workload.
pub(super) fn concerns(not_ready: &[NotReady]) -> bool {
    workloads(not_ready).next().is_some()
}

fn workloads(not_ready: &[NotReady]) -> impl Iterator<Item = &NotReady> {
    not_ready
        .iter()
        .filter(|object| is_workload(&object.id.group, &object.id.kind))
}

/// A line for each unready workload, with the cause as far as it may be read.
pub(super) async fn causes(
    context: &Context,
    set_state: &mut SetState,
    actor: &Actor,
    not_ready: &[NotReady],
) -> Vec<String> {
    if let Some((at, lines)) = set_state
        .rollout
        .causes
        .as_ref()
        .filter(|(at, _)| at.elapsed() < FRESH)
    {
        tracing::trace!(?at, "the causes are known");
        return lines.clone();
    }
    let mut lines = Vec::new();
    for object in workloads(not_ready).take(WORKLOADS) {
        lines.extend(cause(context, actor, object).await);
    }
    set_state.rollout.causes = Some((Instant::now(), lines.clone()));
    lines
}

async fn cause(context: &Context, actor: &Actor, object: &NotReady) -> Option<String> {
    let id = &object.id;
    let resource = context
        .discovery
        .find(&id.group, &id.version, &id.kind)
        .await
        .ok()??;
    let target = Target {
        client: &actor.client,
        resource: &resource,
        namespace: &id.namespace,
        name: &id.name,
    };
    let workload = target.read().await.ok()??;
    let own = &context.own;
    let mut listed = Vec::new();
    let pods = match selector(&workload) {
        None => Pods::Unknown,
        Some(selector) => {
            let resource = ApiResource::erase::<Pod>(&());
            let wanted = ListParams::default().labels(&selector);
            match list(own, &id.namespace, &resource, wanted).await {
                Ok(found) => {
                    let is_all = u32::try_from(found.len()).is_ok_and(|found| found < READ);
                    let ours = found.into_iter().filter(|pod| is_pod_of(&workload, pod));
                    listed.extend(ours.take(LOOKED_AT));
                    if listed.is_empty() && !is_all {
                        Pods::Unknown
                    } else {
                        Pods::Known(&listed)
                    }
                }
                Err(kube::Error::Api(status)) if status.code == 403 => Pods::Hidden,
                Err(_) => Pods::Unknown,
            }
        }
    };
    // The conditions of a Deployment contain the error of its Pods; for other kinds, only events do.
    let uid = workload.pointer("/metadata/uid").and_then(Value::as_str);
    let events = match uid.filter(|_| id.kind != "Deployment") {
        Some(uid) => {
            let about = format!("involvedObject.uid={uid},type=Warning");
            let resource = ApiResource::erase::<Event>(&());
            let wanted = ListParams::default().fields(&about);
            list(own, &id.namespace, &resource, wanted).await.ok()
        }
        None => None,
    };
    Some(sentence(&WorkloadState {
        workload: &workload,
        pods,
        events: events.as_deref().unwrap_or_default(),
    }))
}

/// Some objects.
async fn list(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    wanted: ListParams,
) -> Result<Vec<Value>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let found = api.list(&wanted.limit(READ)).await.inspect_err(|error| {
        let error = error as &dyn std::error::Error;
        tracing::debug!(
            namespace,
            kind = resource.kind,
            error,
            "cannot look for the cause"
        );
    })?;
    let values = found.items.into_iter().map(serde_json::to_value);
    Ok(values.filter_map(Result::ok).collect())
}
