//! The objects of a revision that may be left when it cannot be torn down, as far as the controller itself can see.

use std::{collections::BTreeMap, time::Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use olm_api::ClusterObjectSet;
use olm_cluster::{discover::Scope, identity::is_name, watch::Freshness};
use olm_rollout::{object::ObjectId, outline::Outline};

use crate::object_set::{context::Context, rights, state::SetState};

/// The objects that may be left when the account cannot be used, as far as the controller can see: without those in
/// deleted namespaces, and without those that a watch does not show as ours.
pub(super) async fn left(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &SetState,
    outline: &Outline,
) -> Vec<ObjectId> {
    let coverage = rights::watch(context, set.name(), None, outline, Freshness::Live)
        .await
        .unwrap_or_default();
    let asked = Instant::now();
    let mut namespaces = Namespaces::default();
    let mut left = Vec::new();
    for position in outline
        .all_positions()
        .filter(|position| !set_state.teardown.gone.contains(position))
    {
        let id = outline.id(position);
        let found = context
            .discovery
            .find_since(&id.group, &id.version, &id.kind, asked);
        match found.await {
            Ok(None) => continue,
            Ok(Some(resource)) => {
                if coverage.owns(set.name(), &resource, &id.namespace, &id.name) == Some(false) {
                    continue;
                }
                if resource.scope == Scope::Namespaced && !namespaces.has(context, &id.namespace).await {
                    continue;
                }
            }
            Err(error) => tracing::debug!(%error, object = %id, "cannot discover whether its kind is served"),
        }
        left.push(id);
    }
    left
}

/// The existing namespaces. Each is read once.
#[derive(Default)]
struct Namespaces(BTreeMap<String, bool>);

impl Namespaces {
    /// Whether a namespace may exist.
    async fn has(&mut self, context: &Context, namespace: &str) -> bool {
        if let Some(known) = self.0.get(namespace) {
            return *known;
        }
        let api: Api<Namespace> = Api::all(context.own.clone());
        let found = !is_name(namespace) || !matches!(api.get_metadata_opt(namespace).await, Ok(None));
        self.0.insert(namespace.to_owned(), found);
        found
    }
}
