//! Common parts of the tests of teardowns.

use kube::Client;
use olm_api::cluster_object_set::CollisionProtection;
use olm_cluster::discover::Discovery;
use olm_cluster::fake::Log;
use olm_cluster::watch::Coverage;
use olm_rollout::content::{ContentObject, ContentPhase, RevisionContent};
use olm_rollout::engine::teardown::{RetainedObjects, TeardownEnd};
use olm_rollout::outline::{Outline, Owner};
use olm_rollout::phases::Phases;
use serde_json::Value;

use super::Executor;
use crate::object_set::state::SetState;

/// The outline of a set of `us` with one object in each phase.
pub(super) fn outline(phases: Vec<(&str, Value)>) -> Outline {
    let phase = |(name, object): (&str, Value)| ContentPhase {
        name: name.to_owned(),
        objects: vec![ContentObject {
            object,
            collision_protection: CollisionProtection::Prevent,
        }],
        ..ContentPhase::default()
    };
    let phases = phases.into_iter().map(phase).collect();
    let owner = Owner {
        uid: "us".to_owned(),
        ..Owner::default()
    };
    Phases::of(&RevisionContent { phases }).outline(owner, Vec::new())
}

/// Tears the objects down. Returns the end and the paths of deletions.
pub(super) async fn take_down(
    client: &Client,
    log: &Log,
    outline: &Outline,
    retained: RetainedObjects,
) -> (TeardownEnd, Vec<String>) {
    let (discovery, coverage) = (Discovery::new(client.clone()), Coverage::default());
    let mut set_state = SetState::default();
    let mut executor = Executor::new(client, &discovery, &coverage, outline, &mut set_state);
    let end = executor.take_down(retained).await;
    let log = log.lock().unwrap();
    let deleted = log.iter().filter_map(|request| request.strip_prefix("DELETE "));
    (end, deleted.map(str::to_owned).collect())
}
