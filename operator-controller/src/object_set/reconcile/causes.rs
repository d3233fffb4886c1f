//! The causes of unready workloads in a revision that rolls out. They are read under the account, with few requests.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use olm_cluster::{
    apply::Target,
    identity::AccountName,
    permissions::{Viewer, right},
};
use olm_rollout::{
    cause::{Pods, WorkloadState, is_workload, selector, sentence},
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
const LOOKED_AT: u32 = 20;

/// Whether one of the objects is a workload.
pub(super) fn concerns(not_ready: &[NotReady]) -> bool {
    workloads(not_ready).next().is_some()
}

fn workloads(not_ready: &[NotReady]) -> impl Iterator<Item = &NotReady> {
    not_ready
        .iter()
        .filter(|object| is_workload(&object.id.group, &object.id.kind))
}

/// A line for each unready workload, with the cause as far as the account may read it.
pub(super) async fn causes(
    context: &Context,
    memory: &mut SetState,
    actor: &Actor,
    not_ready: &[NotReady],
) -> Vec<String> {
    if let Some((at, lines)) = memory
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
    memory.rollout.causes = Some((Instant::now(), lines.clone()));
    lines
}

async fn cause(context: &Context, actor: &Actor, object: &NotReady) -> Option<String> {
    let Actor { account, client } = actor;
    let id = &object.id;
    let resource = context
        .discovery
        .find(&id.group, &id.version, &id.kind)
        .await
        .ok()??;
    let target = Target {
        client,
        resource: &resource,
        namespace: &id.namespace,
        name: &id.name,
    };
    let workload = target.read().await.ok()??;
    let listed;
    let pods = match selector(&workload) {
        None => Pods::Unknown,
        Some(_) if !may_list(context, account, client, "pods", &id.namespace).await => Pods::Hidden,
        Some(selector) => {
            let resource = ApiResource::erase::<Pod>(&());
            let wanted = ListParams::default().labels(&selector);
            match list(client, &id.namespace, &resource, wanted).await {
                Some(found) => {
                    listed = found;
                    Pods::Known(&listed)
                }
                None => Pods::Unknown,
            }
        }
    };
    // The conditions of a Deployment contain the error of its Pods; for other kinds, only events do.
    let events =
        if id.kind != "Deployment" && may_list(context, account, client, "events", &id.namespace).await {
            let about = format!(
                "involvedObject.kind={},involvedObject.name={},type=Warning",
                id.kind, id.name
            );
            let resource = ApiResource::erase::<Event>(&());
            list(
                client,
                &id.namespace,
                &resource,
                ListParams::default().fields(&about),
            )
            .await
        } else {
            None
        };
    Some(sentence(&WorkloadState {
        workload: &workload,
        pods,
        events: events.as_deref().unwrap_or_default(),
    }))
}

async fn may_list(
    context: &Context,
    account: &AccountName,
    client: &Client,
    resource: &str,
    namespace: &str,
) -> bool {
    let viewer = Viewer::Account(account.clone());
    let list = right("list", "", resource, namespace);
    context
        .reviews
        .may(client, &viewer, &list)
        .await
        .unwrap_or_default()
}

/// Some objects; `None` if the server does not answer.
async fn list(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    wanted: ListParams,
) -> Option<Vec<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    match api.list(&wanted.limit(LOOKED_AT)).await {
        Ok(found) => found
            .items
            .into_iter()
            .map(|object| serde_json::to_value(object).ok())
            .collect(),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(
                namespace,
                kind = resource.kind,
                error,
                "cannot look for the cause"
            );
            None
        }
    }
}
