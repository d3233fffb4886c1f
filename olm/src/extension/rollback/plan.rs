//! The source and target revision of a rollback, and the patch of the ClusterExtension. Pure.

use std::collections::BTreeSet;

use olm_api::cluster_extension::{CrdUpgradeSafetyEnforcement, UpgradeConstraintPolicy};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::{SUCCEEDED, is_true};
use olm_api::names::{annotation, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_preflight::crd_upgrade::Check;
use serde_json::{Map, Value, json};

/// The source and target revision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RollbackPlan<'a> {
    /// The newest that is wanted.
    pub(crate) present: &'a ClusterObjectSet,
    /// The one to go back to.
    pub(crate) target: &'a ClusterObjectSet,
}

/// Error that prevents a rollback.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RollbackError {
    #[error("ClusterExtension {0:?} is being deleted")]
    Deleting(String),
    #[error(
        "ClusterExtension {0:?} is paused by the annotation {key}; remove it first: {command}",
        key = user::PAUSED,
        command = annotate(Annotated::Extension(.0), user::PAUSED, None)
    )]
    Paused(String),
    #[error("ClusterExtension {0:?} has no revision: nothing was installed")]
    NothingInstalled(String),
    #[error("{name:?} has no earlier revision with another version than {version}")]
    NothingKept { name: String, version: String },
    #[error("revision {wanted} of {name:?} not found; earlier revisions: {kept}")]
    NotKept { name: String, wanted: i64, kept: String },
    #[error("revision {wanted} has version {version}, like the current one")]
    SameVersion { wanted: i64, version: String },
}

/// The version of the bundle that a revision was made from.
pub(crate) fn bundle_version(set: &ClusterObjectSet) -> &str {
    set.annotation(annotation::BUNDLE_VERSION).unwrap_or_default()
}

/// The rollback to a revision, or to the newest with another version than the present one.
pub(crate) fn plan_rollback<'a>(
    extension: &ClusterExtension,
    sets: &'a [ClusterObjectSet],
    wanted: Option<i64>,
) -> Result<RollbackPlan<'a>, RollbackError> {
    let name = || extension.name().to_owned();
    if extension.is_deleting() {
        return Err(RollbackError::Deleting(name()));
    }
    if extension.annotation(user::PAUSED) == Some("true") {
        return Err(RollbackError::Paused(name()));
    }
    let mut there: Vec<&ClusterObjectSet> = sets.iter().filter(|set| !set.is_deleting()).collect();
    there.sort_by_key(|set| set.spec.revision);
    let present = there
        .iter()
        .rfind(|set| set.spec.lifecycle_state == LifecycleState::Active)
        .ok_or_else(|| RollbackError::NothingInstalled(name()))?;
    let version = bundle_version(present);
    let earlier = there
        .iter()
        .filter(|set| set.spec.revision < present.spec.revision && !bundle_version(set).is_empty());
    let Some(wanted) = wanted else {
        let others = || earlier.clone().rev().filter(|set| bundle_version(set) != version);
        // A revision that was never complete may be the cause of the rollback.
        let complete = others().find(|set| is_true(set.conditions(), SUCCEEDED));
        let target = complete.or_else(|| others().next());
        let target = target.ok_or_else(|| RollbackError::NothingKept {
            name: name(),
            version: version.to_owned(),
        })?;
        return Ok(RollbackPlan { present, target });
    };
    let Some(target) = earlier.clone().find(|set| set.spec.revision == wanted) else {
        let kept: Vec<String> = earlier
            .map(|set| format!("{} ({})", set.spec.revision, bundle_version(set)))
            .collect();
        return Err(RollbackError::NotKept {
            name: name(),
            wanted,
            kept: if kept.is_empty() {
                "none".to_owned()
            } else {
                kept.join(", ")
            },
        });
    };
    if bundle_version(target) == version {
        return Err(RollbackError::SameVersion {
            wanted,
            version: version.to_owned(),
        });
    }
    Ok(RollbackPlan { present, target })
}

/// Whether an extension still matches the computed rollback: the user's settings, the installed bundle and the active
/// revisions. Conditions and finalizers may differ.
pub(crate) fn is_same(seen: &ClusterExtension, current: &ClusterExtension) -> bool {
    let decided = |extension: &ClusterExtension| {
        let metadata = &extension.metadata;
        (
            metadata.uid.clone(),
            metadata.annotations.clone().unwrap_or_default(),
            extension.is_deleting(),
        )
    };
    let rolled_out = |extension: &ClusterExtension| {
        let status = extension.status.clone().unwrap_or_default();
        let names = status.active_revisions.into_iter().map(|revision| revision.name);
        (status.install, names.collect::<Vec<_>>())
    };
    seen.spec == current.spec && decided(seen) == decided(current) && rolled_out(seen) == rolled_out(current)
}

/// The place of the catalog filter in a patch.
const SOURCE: &str = "/spec/source/catalog";

/// A merge patch that pins the extension to a version and allows findings of these checks of definitions. It requires
/// the extension that was read. The version may be in another channel than the present one, so channels are ignored
/// while it is pinned.
pub(crate) fn pin(extension: &ClusterExtension, version: &str, passing: &BTreeSet<Check>) -> Value {
    let mut patch = json!({
        "metadata": {"resourceVersion": extension.metadata.resource_version},
        "spec": {"source": {"catalog": {
            "version": version, "upgradeConstraintPolicy": UpgradeConstraintPolicy::SelfCertified,
        }}},
    });
    if !channels(extension).is_empty()
        && let Some(Value::Object(source)) = patch.pointer_mut(SOURCE)
    {
        source.insert("channels".to_owned(), Value::Null);
    }
    if let Some(policy) = policy(extension, passing)
        && let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("annotations".to_owned(), json!({ user::CRD_POLICY: policy }));
    }
    patch
}

/// The policy for definitions that allows findings of these checks; `None` if it needs no change.
fn policy(extension: &ClusterExtension, passing: &BTreeSet<Check>) -> Option<String> {
    let install = extension.spec.install.as_ref();
    let safety = install.and_then(|install| install.preflight.as_ref()?.crd_upgrade_safety.as_ref());
    let checked = safety.is_none_or(|safety| safety.enforcement != CrdUpgradeSafetyEnforcement::None);
    if passing.is_empty() || !checked {
        return None;
    }
    let names: BTreeSet<&str> = passing.iter().map(|check| check.as_str()).collect();
    let present = extension.annotation(user::CRD_POLICY).unwrap_or_default();
    let others = present.split(',').map(str::trim).filter(|entry| {
        let name = entry.split_once('=').map_or(*entry, |(name, _)| name);
        !entry.is_empty() && !names.contains(name)
    });
    let entries: Vec<String> = others
        .map(str::to_owned)
        .chain(names.iter().map(|name| format!("{name}=Warn")))
        .collect();
    Some(entries.join(","))
}

/// A merge patch that reverts a pin.
pub(crate) fn lift(extension: &ClusterExtension, pin: &Value) -> Value {
    let source = extension.spec.source.catalog.as_ref();
    let version = source.and_then(|source| source.version.clone());
    let policy = source
        .map(|source| source.upgrade_constraint_policy)
        .unwrap_or_default();
    let mut lift = Map::new();
    if pin.pointer("/metadata/annotations").is_some() {
        let before = extension.annotation(user::CRD_POLICY);
        lift.insert(
            "metadata".to_owned(),
            json!({"annotations": {user::CRD_POLICY: before}}),
        );
    }
    lift.insert(
        "spec".to_owned(),
        json!({"source": {"catalog": {"version": version, "upgradeConstraintPolicy": policy}}}),
    );
    let mut lift = Value::Object(lift);
    let channels = channels(extension);
    if !channels.is_empty()
        && let Some(Value::Object(source)) = lift.pointer_mut(SOURCE)
    {
        source.insert("channels".to_owned(), json!(channels));
    }
    lift
}

fn channels(extension: &ClusterExtension) -> &[String] {
    let source = extension.spec.source.catalog.as_ref();
    source.map_or(&[], |source| source.channels.as_slice())
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{
        CatalogFilter, ClusterExtensionSpec, CrdUpgradeSafety, InstallConfig, PreflightConfig, SourceConfig,
    };
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;

    fn extension(annotations: &[(&str, &str)]) -> ClusterExtension {
        let source = CatalogFilter {
            package_name: "pkg".to_owned(),
            version: Some("1.x".to_owned()),
            ..CatalogFilter::default()
        };
        let spec = ClusterExtensionSpec {
            source: SourceConfig {
                catalog: Some(source),
                ..SourceConfig::default()
            },
            ..ClusterExtensionSpec::default()
        };
        let mut extension = ClusterExtension::new("ext", spec);
        extension.metadata.resource_version = Some("7".to_owned());
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        extension.metadata.annotations = Some(annotations.iter().map(owned).collect());
        extension
    }

    fn set(revision: i64, version: &str, state: LifecycleState) -> ClusterObjectSet {
        let spec = ClusterObjectSetSpec {
            revision,
            lifecycle_state: state,
            ..ClusterObjectSetSpec::default()
        };
        let mut set = ClusterObjectSet::new(&format!("ext-{revision}"), spec);
        set.metadata.annotations = Some([(annotation::BUNDLE_VERSION.to_owned(), version.to_owned())].into());
        set
    }

    #[test]
    fn the_way_back_leads_to_another_version_that_is_kept() {
        use LifecycleState::{Active, Archived};
        let check = |sets: &[ClusterObjectSet], wanted: Option<i64>, expected: Result<i64, &str>| {
            let found = plan_rollback(&extension(&[]), sets, wanted);
            let found = found
                .map(|plan| plan.target.spec.revision)
                .map_err(|refusal| refusal.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        let kept = [
            set(4, "1.1.0", Active),
            set(1, "0.9.0", Archived),
            set(2, "1.0.0", Archived),
            set(3, "1.1.0", Archived),
        ];
        check(&kept, None, Ok(2));
        check(&kept, Some(1), Ok(1));
        check(
            &kept,
            Some(3),
            Err("revision 3 has version 1.1.0, like the current one"),
        );
        check(
            &kept,
            Some(4),
            Err("revision 4 of \"ext\" not found; earlier revisions: 1 (0.9.0), 2 (1.0.0), 3 (1.1.0)"),
        );
        // A revision that was complete has precedence.
        let mut complete = set(1, "1.0.0", Archived);
        let status = json!({"conditions": [{"type": SUCCEEDED, "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        complete.status = Some(serde_json::from_value(status).unwrap());
        check(
            &[complete, set(2, "2.0.0", Archived), set(3, "1.1.0", Active)],
            None,
            Ok(1),
        );
        // A revision that was never complete is left out, too.
        check(&[set(1, "1.0.0", Active), set(2, "1.1.0", Active)], None, Ok(1));
        check(
            &[set(4, "1.1.0", Active)],
            None,
            Err("\"ext\" has no earlier revision with another version than 1.1.0"),
        );
        check(
            &[set(1, "1.0.0", Archived)],
            None,
            Err("ClusterExtension \"ext\" has no revision: nothing was installed"),
        );
        assert_eq!(
            plan_rollback(&extension(&[(user::PAUSED, "true")]), &kept, None),
            Err(RollbackError::Paused("ext".to_owned()))
        );
    }

    #[test]
    fn a_pin_is_exact_and_unpin_restores_the_range() {
        let given = extension(&[]);
        let pinned = pin(&given, "1.0.0", &BTreeSet::new());
        assert_eq!(
            pinned,
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"source": {"catalog": {
                "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"}}}})
        );
        assert_eq!(
            lift(&given, &pinned),
            json!({"spec": {"source": {"catalog": {
                "version": "1.x", "upgradeConstraintPolicy": "CatalogProvided"}}}})
        );
    }

    #[test]
    fn channels_do_not_choose_while_a_version_is_pinned() {
        let mut given = extension(&[]);
        let source = given.spec.source.catalog.as_mut().unwrap();
        source.channels = vec!["stable".to_owned()];
        let pinned = pin(&given, "1.0.0", &BTreeSet::new());
        let there = |patch: &Value| patch.pointer("/spec/source/catalog/channels").cloned();
        assert_eq!(there(&pinned), Some(Value::Null));
        assert_eq!(there(&lift(&given, &pinned)), Some(json!(["stable"])));
    }

    #[test]
    fn checks_that_would_stop_it_are_let_pass_until_the_pin_is_lifted() {
        let passing = BTreeSet::from([Check::ExistingFieldRemoval, Check::Type]);
        for (before, expected) in [
            (None, "existingFieldRemoval=Warn,type=Warn"),
            (
                Some("enum=Off, type=Error"),
                "enum=Off,existingFieldRemoval=Warn,type=Warn",
            ),
        ] {
            let annotations: Vec<(&str, &str)> =
                before.iter().map(|text| (user::CRD_POLICY, *text)).collect();
            let given = extension(&annotations);
            let pinned = pin(&given, "1.0.0", &passing);
            assert_eq!(
                pinned["metadata"]["annotations"],
                json!({ user::CRD_POLICY: expected })
            );
            assert_eq!(
                lift(&given, &pinned)["metadata"]["annotations"],
                json!({ user::CRD_POLICY: before })
            );
        }
        let mut unchecked = extension(&[]);
        unchecked.spec.install = Some(InstallConfig {
            preflight: Some(PreflightConfig {
                crd_upgrade_safety: Some(CrdUpgradeSafety {
                    enforcement: CrdUpgradeSafetyEnforcement::None,
                }),
            }),
        });
        assert_eq!(
            pin(&unchecked, "1.0.0", &passing)["metadata"].get("annotations"),
            None
        );
    }

    #[test]
    fn an_extension_is_the_same_until_somebody_decides_or_a_revision_rolls_out() {
        let seen = extension(&[("a", "b")]);
        let mut written = seen.clone();
        written.metadata.resource_version = Some("8".to_owned());
        written.metadata.finalizers = Some(vec!["f".to_owned()]);
        written.status = Some(serde_json::from_value(json!({"conditions": []})).unwrap());
        assert!(is_same(&seen, &written));

        let change = |change: &dyn Fn(&mut ClusterExtension)| {
            let mut changed = seen.clone();
            change(&mut changed);
            is_same(&seen, &changed)
        };
        assert!(!change(&|changed| changed.spec.namespace = "other".to_owned()));
        assert!(!change(&|changed| changed.metadata.uid = Some("other".to_owned())));
        assert!(!change(&|changed| changed.metadata.annotations = None));
        assert!(!change(&|changed| {
            changed.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }));
        for status in [
            json!({"install": {"bundle": {"name": "a.v1", "version": "1.0.0"}}}),
            json!({"activeRevisions": [{"name": "ext-5"}]}),
        ] {
            assert!(!change(
                &|changed| changed.status = serde_json::from_value(status.clone()).unwrap()
            ));
        }
    }
}
