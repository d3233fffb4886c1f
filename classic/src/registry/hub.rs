//! The default catalogs of OpenShift, where an OperatorHub asks for them, and OperatorSources, which are not served.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use olm_classic::catalog_source::{MARKETPLACE, default_sources};
use olm_classic::cluster::text;
use olm_classic::names;
use olm_platform::events::Notice;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::controller::Context;
use crate::base::reference;
use crate::objects::store::Change;
use crate::objects::write::Actor;

/// The apiVersion of the configuration of OpenShift.
const CONFIGURATION: &str = "config.openshift.io/v1";
/// The name of the one OperatorHub.
const HUB: &str = "cluster";
/// Interval of requests for the version of OpenShift.
const LOOK_TIME: Duration = Duration::from_mins(5);
/// Reason why an OperatorSource does nothing, with a hint.
const ADVICE: &str = "OperatorSources are not served: application registries are gone. Create a CatalogSource with the image of \
                      a catalog in its place, and delete this object";

/// Keeps the default catalogs and refuses OperatorSources, where their kinds are served.
pub(super) async fn run(context: &Context) {
    let hub = OptionalKind {
        definition: "operatorhubs.config.openshift.io",
        kind: resource("config.openshift.io", "v1", "OperatorHub", "operatorhubs"),
        filter: Config::default().fields("metadata.name=cluster"),
    };
    let sources = OptionalKind {
        definition: "operatorsources.operators.coreos.com",
        kind: resource(names::GROUP, "v1", "OperatorSource", "operatorsources"),
        filter: Config::default(),
    };
    tokio::join!(
        hub.follow(context, async |context, hub| {
            if text(hub, "/metadata/name") == HUB
                && let Err(failure) = settle(context, hub).await
                && failure.kind != FailureKind::Conflict
            {
                tracing::warn!(
                    error = failure.message,
                    "cannot keep the default catalogs; retrying"
                );
            }
        }),
        sources.follow(context, async |context, source| refuse(context, source)),
    );
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// A kind that is not served everywhere.
struct OptionalKind {
    /// The name of its CustomResourceDefinition.
    definition: &'static str,
    kind: ApiResource,
    filter: Config,
}

impl OptionalKind {
    /// Calls `work` for each object that is there or changes, while the kind is served; and again when a default
    /// catalog changes or time has passed.
    async fn follow(&self, context: &Context, work: impl AsyncFn(&Context, &Value)) {
        let mut changes = context.base.store.subscribe();
        loop {
            while !self.is_served(context) {
                if changes.recv().await.is_none() {
                    return;
                }
            }
            self.watch(context, &mut changes, &work).await;
        }
    }

    fn is_served(&self, context: &Context) -> bool {
        let cluster = context.base.store.snapshot();
        cluster.get(names::CRD_KIND, "", self.definition).is_some()
    }

    async fn watch(
        &self,
        context: &Context,
        changes: &mut UnboundedReceiver<Change>,
        work: &impl AsyncFn(&Context, &Value),
    ) {
        let api: Api<DynamicObject> = Api::all_with(context.writer().own().clone(), &self.kind);
        let mut events = pin!(watcher(api, self.filter.clone()).default_backoff());
        let mut last = None;
        loop {
            let look = tokio::time::sleep(LOOK_TIME);
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Apply(object) | Event::InitApply(object))) => {
                        last = self.value(&object);
                    }
                    Some(Ok(Event::Delete(_))) => last = None,
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => {
                        tracing::debug!(%error, kind = self.kind.kind, "a watch is interrupted");
                        continue;
                    }
                    None => return,
                },
                change = changes.recv() => match change {
                    Some(change) if is_of_marketplace(&change) => {}
                    Some(change) if change.now.is_none() && !self.is_served(context) => return,
                    Some(_) => continue,
                    None => return,
                },
                () = look => {}
            }
            if let Some(object) = &last {
                work(context, object).await;
            }
        }
    }

    fn value(&self, object: &DynamicObject) -> Option<Value> {
        let mut object = serde_json::to_value(object).ok()?;
        let fields = object.as_object_mut()?;
        fields.insert("apiVersion".to_owned(), self.kind.api_version.as_str().into());
        fields.insert("kind".to_owned(), self.kind.kind.as_str().into());
        Some(object)
    }
}

/// Whether a change is one of a CatalogSource among the default catalogs.
fn is_of_marketplace(change: &Change) -> bool {
    change.kind == names::CATALOG_SOURCE_KIND && text(change.object(), "/metadata/namespace") == MARKETPLACE
}

/// Writes and deletes default catalogs, then the status of the OperatorHub. Where the marketplace operator runs, that
/// is its work.
async fn settle(context: &Context, hub: &Value) -> Result<(), RequestFailure> {
    let writer = context.writer();
    let kind = ("apps/v1", names::DEPLOYMENT_KIND);
    let other = writer
        .read(&Actor::Own, kind, MARKETPLACE, "marketplace-operator")
        .await?;
    if other.is_some_and(|found| found.pointer("/spec/replicas") != Some(&Value::from(0))) {
        tracing::debug!("the marketplace operator keeps the default catalogs");
        return Ok(());
    }
    let kind = (CONFIGURATION, "ClusterVersion");
    let version = match writer.read(&Actor::Own, kind, "", "version").await {
        Ok(found) => found.map_or_else(String::new, |found| {
            text(&found, "/status/desired/version").to_owned()
        }),
        Err(failure) if failure.kind == FailureKind::UnknownKind => String::new(),
        Err(failure) => return Err(failure),
    };
    let decision = default_sources(hub, &version, &context.base.store.snapshot());
    for source in &decision.deleted {
        tracing::info!(
            name = text(source, "/metadata/name"),
            "a default catalog is disabled"
        );
        writer.delete(&Actor::Own, source).await?;
    }
    for source in &decision.written {
        tracing::info!(name = text(source, "/metadata/name"), "writes a default catalog");
        writer.write(&Actor::Own, source).await?;
    }
    if hub.get("status") != Some(&decision.status) {
        let mut wanted = hub.clone();
        if let Some(fields) = wanted.as_object_mut() {
            fields.insert("status".to_owned(), decision.status);
        }
        writer.write_status(&wanted).await?;
    }
    Ok(())
}

/// Publishes an event with the alternative to an OperatorSource.
fn refuse(context: &Context, source: &Value) {
    let notice = Notice {
        is_fault: true,
        reason: "OperatorSourceNotServed".to_owned(),
        note: ADVICE.to_owned(),
    };
    context.base.events.publish(reference(source), vec![notice]);
}
