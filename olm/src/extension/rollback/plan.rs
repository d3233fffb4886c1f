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
pub(super) const SOURCE: &str = "/spec/source/catalog";

/// A merge patch that pins the extension to a version and allows findings of these checks of definitions. It requires
/// the extension that was read. The version may be in another channel than the present one, so channels are ignored
/// while it is pinned. The patch records how to restore the present settings.
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
    let mut annotations = Map::new();
    if let Some(policy) = policy(extension, passing) {
        annotations.insert(user::CRD_POLICY.to_owned(), policy.into());
    }
    // After a second rollback the settings before the first are restored.
    let mut restoration = restoration_of(extension).unwrap_or_else(|| settings(extension));
    if annotations.contains_key(user::CRD_POLICY)
        && let Some(Value::Object(restored)) = restoration.pointer_mut("/metadata/annotations")
    {
        let before = extension.annotation(user::CRD_POLICY);
        restored.entry(user::CRD_POLICY).or_insert_with(|| json!(before));
    }
    annotations.insert(
        annotation::BEFORE_ROLLBACK.to_owned(),
        restoration.to_string().into(),
    );
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), annotations.into());
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

/// A merge patch that restores the settings of the source, which a pin changes.
fn settings(extension: &ClusterExtension) -> Value {
    let source = extension.spec.source.catalog.as_ref();
    let version = source.and_then(|source| source.version.clone());
    let policy = source
        .map(|source| source.upgrade_constraint_policy)
        .unwrap_or_default();
    let mut settings = json!({
        "metadata": {"annotations": {annotation::BEFORE_ROLLBACK: null}},
        "spec": {"source": {"catalog": {"version": version, "upgradeConstraintPolicy": policy}}},
    });
    let channels = channels(extension);
    if !channels.is_empty()
        && let Some(Value::Object(source)) = settings.pointer_mut(SOURCE)
    {
        source.insert("channels".to_owned(), json!(channels));
    }
    settings
}

/// A merge patch that restores the settings before a rollback; `None` if the extension is not pinned by one. Whoever may
/// write the annotation chooses the values, so that only the settings that a rollback changes are taken from it.
pub(crate) fn restoration_of(extension: &ClusterExtension) -> Option<Value> {
    let recorded: Value = serde_json::from_str(extension.annotation(annotation::BEFORE_ROLLBACK)?).ok()?;
    let mut source = Map::new();
    for key in ["version", "upgradeConstraintPolicy", "channels"] {
        if let Some(value) = recorded.pointer(&format!("{SOURCE}/{key}")) {
            source.insert(key.to_owned(), value.clone());
        }
    }
    let mut annotations = Map::from_iter([(annotation::BEFORE_ROLLBACK.to_owned(), Value::Null)]);
    let recorded = recorded.pointer("/metadata/annotations");
    if let Some(policy) = recorded.and_then(|recorded| recorded.get(user::CRD_POLICY)) {
        annotations.insert(user::CRD_POLICY.to_owned(), policy.clone());
    }
    Some(json!({
        "metadata": {"annotations": annotations},
        "spec": {"source": {"catalog": source}},
    }))
}

/// The channels in the spec.
pub(super) fn channels(extension: &ClusterExtension) -> &[String] {
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

    /// The extension after its pin.
    fn after(given: &ClusterExtension, pin: &Value) -> ClusterExtension {
        let mut pinned = given.clone();
        let annotations = pinned.metadata.annotations.get_or_insert_default();
        for (key, value) in pin["metadata"]["annotations"].as_object().unwrap() {
            annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        pinned
    }

    #[test]
    fn a_pin_is_exact_and_unpin_restores_the_range() {
        let given = extension(&[]);
        assert_eq!(restoration_of(&given), None);
        let pin = pin(&given, "1.0.0", &BTreeSet::new());
        assert_eq!(pin["metadata"]["resourceVersion"], "7");
        assert_eq!(
            pin["spec"],
            json!({"source": {"catalog": {"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"}}})
        );
        assert_eq!(
            restoration_of(&after(&given, &pin)),
            Some(json!({
                "metadata": {"annotations": {annotation::BEFORE_ROLLBACK: null}},
                "spec": {"source": {"catalog": {"version": "1.x", "upgradeConstraintPolicy": "CatalogProvided"}}},
            }))
        );
    }

    #[test]
    fn channels_do_not_choose_while_a_version_is_pinned() {
        let mut given = extension(&[]);
        let source = given.spec.source.catalog.as_mut().unwrap();
        source.channels = vec!["stable".to_owned()];
        let pin = pin(&given, "1.0.0", &BTreeSet::new());
        let channels = |patch: &Value| patch.pointer("/spec/source/catalog/channels").cloned();
        assert_eq!(channels(&pin), Some(Value::Null));
        let restoration = restoration_of(&after(&given, &pin)).unwrap();
        assert_eq!(channels(&restoration), Some(json!(["stable"])));
    }

    #[test]
    fn a_second_rollback_restores_what_was_before_the_first() {
        let mut given = extension(&[(user::CRD_POLICY, "enum=Off")]);
        given = after(&given, &pin(&given, "1.0.0", &BTreeSet::new()));
        given.spec.source.catalog.as_mut().unwrap().version = Some("1.0.0".to_owned());
        let second = pin(&given, "0.9.0", &BTreeSet::from([Check::Type]));
        let restoration = restoration_of(&after(&given, &second)).unwrap();
        assert_eq!(restoration["spec"]["source"]["catalog"]["version"], "1.x");
        assert_eq!(
            restoration["metadata"]["annotations"][user::CRD_POLICY],
            "enum=Off"
        );
    }

    #[test]
    fn a_record_restores_no_other_settings() {
        let record = json!({
            "metadata": {"annotations": {"other": "1"}, "finalizers": []},
            "spec": {"serviceAccount": {"name": "admin"}, "source": {"catalog": {"packageName": "evil", "version": "1.x"}}},
        });
        let restoration = restoration_of(&extension(&[(annotation::BEFORE_ROLLBACK, &record.to_string())]));
        assert_eq!(
            restoration,
            Some(json!({
                "metadata": {"annotations": {annotation::BEFORE_ROLLBACK: null}},
                "spec": {"source": {"catalog": {"version": "1.x"}}},
            }))
        );
        assert_eq!(
            restoration_of(&extension(&[(annotation::BEFORE_ROLLBACK, "; no JSON")])),
            None
        );
    }

    #[test]
    fn checks_that_would_stop_it_are_let_pass_until_the_pin_is_removed() {
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
            let pin = pin(&given, "1.0.0", &passing);
            assert_eq!(pin["metadata"]["annotations"][user::CRD_POLICY], expected);
            let restoration = restoration_of(&after(&given, &pin)).unwrap();
            let restored = restoration["metadata"]["annotations"].as_object().unwrap();
            assert_eq!(restored.get(user::CRD_POLICY), Some(&json!(before)));
        }
        let mut unchecked = extension(&[]);
        unchecked.spec.install = Some(InstallConfig {
            preflight: Some(PreflightConfig {
                crd_upgrade_safety: Some(CrdUpgradeSafety {
                    enforcement: CrdUpgradeSafetyEnforcement::None,
                }),
            }),
        });
        let pin = pin(&unchecked, "1.0.0", &passing);
        assert_eq!(pin["metadata"]["annotations"].get(user::CRD_POLICY), None);
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
