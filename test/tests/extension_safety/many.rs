//! More objects than fit a phase, changed more often than revisions are kept.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::ListParams;
use olm_api::ClusterObjectSet;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{self, label};
use olm_test::extensions::{SOON, administrator, await_version, extensions, patch_source, revisions};
use olm_test::world::World;
use serde_json::{Value, json};

use super::CLUSTER;
use super::install;

/// One more than fits in a phase.
const MAPS: usize = 51;
/// Enough changes to remove the first revisions.
const CHANGES: usize = 7;
/// Archived revisions that are kept.
const KEPT: i64 = 5;

/// The files of a bundle that has so many objects.
pub(crate) fn maps() -> Vec<(String, Value)> {
    let map = |number: usize| {
        let name = format!("many-objects-{number:02}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "shelf": name },
        });
        (format!("manifests/{name}.yaml"), object)
    };
    (0..MAPS).map(map).collect()
}

/// UID and controller of each live object, by name.
async fn live(world: &World) -> Result<BTreeMap<String, (String, String)>> {
    let listed = Api::<ConfigMap>::namespaced(world.client.clone(), "many-objects")
        .list(&ListParams::default())
        .await?;
    let ours = listed
        .items
        .into_iter()
        .filter_map(|map| map.metadata.name.clone().map(|name| (name, map)))
        .filter(|(name, map)| name.starts_with("many-objects-") && map.metadata.deletion_timestamp.is_none());
    Ok(ours
        .map(|(name, map)| {
            let owners = map.metadata.owner_references.unwrap_or_default();
            let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
            let controller = controller.map(|owner| owner.name).unwrap_or_default();
            (name, (map.metadata.uid.unwrap_or_default(), controller))
        })
        .collect())
}

fn uids(live: &BTreeMap<String, (String, String)>) -> Vec<&str> {
    live.values().map(|(uid, _)| uid.as_str()).collect()
}

#[test]
fn phases_are_split_and_five_archived_revisions_are_kept() -> Result<()> {
    CLUSTER.with(async |world| {
        world.apply(&administrator("many-objects", "many-objects-installer"))?;
        install(world, "many-objects", "1.0.0").await?;
        let before = live(world).await?;
        ensure!(before.len() == MAPS, "{before:?}");
        for change in 1..=CHANGES {
            let version = if change % 2 == 0 { "1.0.0" } else { "1.0.1" };
            let source = json!({ "version": version, "upgradeConstraintPolicy": "SelfCertified" });
            patch_source(world, "many-objects", source).await?;
            await_version(world, "many-objects", version).await?;
        }
        let labelled = ListParams::default().labels(&format!("{}=many-objects", label::OWNER_NAME));
        let newest = world
            .eventually("five archived revisions are kept", SOON, async || {
                let mut sets = revisions(world).list(&labelled).await?.items;
                sets.sort_by_key(|set| set.spec.revision);
                let states: Vec<_> = sets
                    .iter()
                    .map(|set| (set.spec.revision, set.spec.lifecycle_state))
                    .collect();
                let newest = sets.pop().context("no revision is left")?;
                let last = newest.spec.revision;
                let expected: Vec<_> = (last - KEPT..last)
                    .map(|number| (number, LifecycleState::Archived))
                    .chain([(last, LifecycleState::Active)])
                    .collect();
                ensure!(states == expected && last > KEPT + 2, "{states:?}");
                Ok(Some(newest))
            })
            .await?;
        the_phase_is_split(&newest)?;
        let after = live(world).await?;
        ensure!(
            uids(&after) == uids(&before),
            "an object was made anew: {after:?}"
        );
        let is_ours = |(_, controller): &(String, String)| controller == newest.name();
        ensure!(after.values().all(is_ours), "{after:?}");
        let status = extensions(world)
            .get("many-objects")
            .await?
            .status
            .unwrap_or_default();
        let active: Vec<&str> = status
            .active_revisions
            .iter()
            .map(|revision| revision.name.as_str())
            .collect();
        ensure!(active == [newest.name()], "{active:?}");
        let secrets = Api::<Secret>::namespaced(world.client.clone(), names::SYSTEM_NAMESPACE);
        world
            .eventually("the content of removed revisions is gone", SOON, async || {
                let left = secrets.list_metadata(&labelled).await?.items;
                let revision = |secret: &kube::core::PartialObjectMeta<Secret>| {
                    let labels = secret.metadata.labels.as_ref()?;
                    let (_, number) = labels.get(label::REVISION_NAME)?.rsplit_once('-')?;
                    number.parse::<i64>().ok()
                };
                let numbers: Vec<Option<i64>> = left.iter().map(revision).collect();
                let kept = newest.spec.revision - KEPT;
                let is_kept = |number: &Option<i64>| number.is_some_and(|number| number >= kept);
                ensure!(numbers.iter().all(is_kept), "{numbers:?}");
                Ok(Some(()))
            })
            .await
    })
}

fn the_phase_is_split(set: &ClusterObjectSet) -> Result<()> {
    let sizes: Vec<(&str, usize)> = set
        .spec
        .phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.objects.len()))
        .filter(|(name, _)| name.starts_with("configuration"))
        .collect();
    let expected = [("configuration", MAPS - 1), ("configuration-2", 1)];
    ensure!(sizes == expected, "{sizes:?}");
    Ok(())
}
