//! Preparations before a bundle is chosen: finalizers, Helm releases, revisions of the reference implementation. Pure;
//! planning again afterwards plans nothing.

use std::collections::BTreeSet;

use olm_api::cluster_extension::BundleMetadata;
use olm_api::cluster_object_set::{CollisionProtection, LifecycleState};
use olm_api::conditions::{self, SUCCEEDED};
use olm_api::names::{annotation, finalizer, label, migration};
use olm_api::{ClusterExtension, ClusterObjectSet};

use super::action::Action;
use super::revision::{Creation, DesiredRevision, PlanError, create, inherit, inherit_pause};
use crate::extension::context::helm::HelmError;
use crate::extension::context::release::{Entry, Release};
use crate::extension::failure::{Severity, StageError};
use crate::extension::observe::Observed;
use crate::extension::revisions::{ConflictingSets, Revisions};
use olm_cluster::identity::AccountName;
use olm_plan::phases::{CommonMetadata, PhasesError, phases};
use olm_rollout::engine::rollout::Writes;
use olm_rollout::policy::Policy;
use olm_rollout::status::is_archived;
use serde_json::Value;

/// Clients look for both, so both are kept. One run removes both.
pub(crate) const FINALIZERS: [&str; 2] = [
    finalizer::CLEANUP_UNPACK_CACHE,
    finalizer::CLEANUP_CONTENT_MANAGER_CACHE,
];

/// The reason why a Helm release cannot become a revision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdoptError {
    /// The release is malformed.
    #[error(transparent)]
    Release(#[from] HelmError),
    /// The objects do not fit into phases.
    #[error("migrating storage")]
    Phases(#[from] PhasesError),
    /// The objects do not fit into a revision.
    #[error("migrating storage")]
    Plan(#[from] PlanError),
}

impl StageError for AdoptError {
    fn severity(&self) -> Severity {
        match self {
            Self::Release(error) => error.severity(),
            Self::Phases(error) => error.severity(),
            Self::Plan(error) => error.severity(),
        }
    }
}

/// Sets the finalizers if the extension lacks one.
pub(crate) fn finalizers(extension: &ClusterExtension) -> Option<Action> {
    let mut list = extension.metadata.finalizers.clone().unwrap_or_default();
    let missing: Vec<&str> = FINALIZERS
        .into_iter()
        .filter(|name| !list.iter().any(|present| present == name))
        .collect();
    list.extend(missing.iter().map(|name| (*name).to_owned()));
    (!missing.is_empty()).then_some(Action::SetFinalizers(list))
}

/// Plans the preparations.
///
/// # Errors
/// The Helm release cannot become a revision.
pub(crate) fn prepare(
    observed: &Observed,
    others: &ConflictingSets,
    system_namespace: &str,
) -> Result<Vec<Action>, AdoptError> {
    if let Some((entry, release)) = &observed.release {
        let creation = adopt(&observed.extension, entry, release, others, system_namespace)?;
        return Ok(vec![Action::AdoptRelease(creation)]);
    }
    let sets = observed.revisions.all().iter();
    let incomplete = sets.filter(|set| is_incomplete(set)).cloned();
    let mut actions: Vec<Action> = incomplete.map(Action::CompleteAdopted).collect();
    if let Ok(settings) = &observed.settings {
        actions.extend(name_account(&settings.account, &observed.revisions));
    }
    if actions.is_empty() {
        actions = inherited(observed);
    }
    Ok(actions)
}

/// Copies options of the extension to active revisions, even if its bundle cannot be installed. If other options are
/// invalid, only the pause is copied. When a bundle can be chosen, a pause ends after that, see [`resumed`].
fn inherited(observed: &Observed) -> Vec<Action> {
    let extension = &observed.extension;
    let patch = |set: &ClusterObjectSet| match observed.settings {
        Ok(_) if is_resumed(extension, set) => None,
        Ok(_) => inherit(extension, set),
        Err(_) => inherit_pause(extension, set),
    };
    patched(observed.revisions.active(), patch)
}

/// Resumes active revisions whose extension is no longer paused. This happens after the bundle was tried: the old
/// version must not restore objects that a user deleted for another version.
pub(crate) fn resumed(extension: &ClusterExtension, revisions: &Revisions) -> Vec<Action> {
    let patch = |set: &ClusterObjectSet| {
        is_resumed(extension, set)
            .then(|| inherit(extension, set))
            .flatten()
    };
    patched(revisions.active(), patch)
}

/// Whether a revision is paused and should not be.
fn is_resumed(extension: &ClusterExtension, set: &ClusterObjectSet) -> bool {
    let is = |writes, found: Result<Writes, _>| found.is_ok_and(|found: Writes| found == writes);
    is(Writes::Paused, Policy::writes(|key| set.annotation(key)))
        && is(Writes::Allowed, Policy::writes(|key| extension.annotation(key)))
}

fn patched<'a>(
    sets: impl Iterator<Item = &'a ClusterObjectSet>,
    patch: impl Fn(&ClusterObjectSet) -> Option<Value>,
) -> Vec<Action> {
    let action = |set: &ClusterObjectSet| {
        Some(Action::PatchRevision {
            name: set.name().to_owned(),
            patch: patch(set)?,
        })
    };
    sets.filter_map(action).collect()
}

/// Whether an active revision was created from objects of the Helm runtime or of OLM classic, and does not count as
/// complete yet.
fn is_incomplete(set: &ClusterObjectSet) -> bool {
    (set.label(label::MIGRATED_FROM_HELM).is_some() || set.annotation(migration::SUBSCRIPTION).is_some())
        && set.spec.lifecycle_state == LifecycleState::Active
        && !set.is_deleting()
        && !conditions::is_true(set.conditions(), SUCCEEDED)
}

/// Records the extension's account in active revisions of the reference implementation, which name none.
pub(crate) fn name_account(account: &AccountName, revisions: &Revisions) -> Vec<Action> {
    let is_unnamed = |set: &ClusterObjectSet| {
        set.annotation(annotation::SERVICE_ACCOUNT).is_none()
            && (set.spec.lifecycle_state == LifecycleState::Active || !is_archived(set.conditions()))
    };
    let unnamed = revisions.all().iter().filter(|set| is_unnamed(set));
    unnamed
        .map(|set| Action::NameAccount {
            account: account.clone(),
            set: set.clone(),
        })
        .collect()
}

/// Plans the first revision from a Helm release.
fn adopt(
    extension: &ClusterExtension,
    entry: &Entry,
    release: &Release,
    others: &ConflictingSets,
    system_namespace: &str,
) -> Result<Creation, AdoptError> {
    let install = extension
        .status
        .as_ref()
        .and_then(|status| status.install.as_ref());
    let installed: Option<&BundleMetadata> = install.map(|install| &install.bundle);
    let catalog = extension.spec.source.catalog.as_ref();
    let package = catalog.map(|catalog| catalog.package_name.as_str());
    let bundle = release
        .bundle(installed, package.unwrap_or_default())
        .map_err(|source| HelmError::Release {
            name: entry.secret.clone(),
            source,
        })?;
    let marks = CommonMetadata {
        extension: extension.name(),
        package: &bundle.package,
        version: &bundle.metadata.version,
    };
    let groups = phases(release.objects.clone(), marks)?;
    let wanted = DesiredRevision {
        extension,
        // Set once it is known. The installed objects work without it.
        account: None,
        bundle: &bundle,
        catalog: "",
        properties: None,
        further_properties: None,
        certificates: None,
        operator_condition: None,
        roles_named_after: None,
        config_digest: None,
        verified: None,
        groups: &groups,
        // The extension owns the objects, except those that the bundle keeps, which have no owner.
        adopt: CollisionProtection::IfNoController,
        system_namespace,
    };
    let mut creation = create(&wanted, &Revisions::default(), others)?;
    let labels = creation.set.metadata.labels.get_or_insert_default();
    labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
    Ok(creation)
}

/// Plans the deletion of OperatorConditions of former bundles, when bundles have changed. `kept` are those that were
/// needed at the last cleanup.
pub(crate) fn tidy(revisions: &Revisions, kept: Option<&BTreeSet<String>>) -> Option<Action> {
    let needed = revisions.operator_conditions();
    (!needed.is_empty() && kept != Some(&needed)).then_some(Action::RemoveOperatorConditions { needed })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::cluster_extension::ClusterExtensionSpec;
    use olm_api::conditions::Status;
    use olm_api::names::user;
    use serde_json::{Value, json};

    use super::*;
    use crate::extension::failure::StageFailure;
    use crate::extension::observe::ExtensionSettings;
    use crate::extension::observe::options::Options;
    use crate::extension::revisions::tests::revision;

    fn account() -> AccountName {
        AccountName {
            namespace: "n".to_owned(),
            name: "a".to_owned(),
        }
    }

    fn observed(sets: Vec<ClusterObjectSet>) -> Observed {
        Observed {
            extension: Arc::new(ClusterExtension::new("ext", ClusterExtensionSpec::default())),
            revisions: Revisions::new(sets.into_iter().map(Arc::new).collect()),
            release: None,
            settings: Ok(ExtensionSettings {
                account: account(),
                options: Options::default(),
            }),
        }
    }

    #[test]
    fn finalizers_are_set_once() {
        let mut extension = ClusterExtension::new("ext", ClusterExtensionSpec::default());
        extension.metadata.finalizers = Some(vec!["other".to_owned()]);
        let Some(Action::SetFinalizers(list)) = finalizers(&extension) else {
            panic!("they are missing");
        };
        assert_eq!(list, ["other", FINALIZERS[0], FINALIZERS[1]]);
        extension.metadata.finalizers = Some(list);
        assert!(finalizers(&extension).is_none());
    }

    #[test]
    fn a_revision_without_an_account_gets_it_once_and_planning_again_is_empty() {
        let mut set = (*revision(1, &[(SUCCEEDED, Status::True, "")])).clone();
        set.metadata
            .annotations
            .get_or_insert_default()
            .remove(annotation::SERVICE_ACCOUNT);
        let actions = prepare(&observed(vec![set.clone()]), &ConflictingSets::default(), "olm").unwrap();
        assert!(matches!(&actions[..], [Action::NameAccount { account: named, .. }] if *named == account()));
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::SERVICE_ACCOUNT.to_owned(), "n/a".to_owned());
        assert!(
            prepare(&observed(vec![set]), &ConflictingSets::default(), "olm")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_helm_release_becomes_a_revision_that_is_then_completed_and_nothing_more() {
        let mut observed = observed(Vec::new());
        let release = Release {
            labels: [
                (annotation::BUNDLE_NAME.to_owned(), "pkg.v1".to_owned()),
                (annotation::BUNDLE_VERSION.to_owned(), "1.0.0".to_owned()),
            ]
            .into(),
            objects: vec![
                serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            ],
        };
        observed.release = Some((Entry::default(), release));
        let actions = prepare(&observed, &ConflictingSets::default(), "olm").unwrap();
        let [Action::AdoptRelease(creation)] = &actions[..] else {
            panic!("{actions:?}");
        };
        let mut set = (*creation.set).clone();
        assert_eq!(
            (set.name(), set.label(label::MIGRATED_FROM_HELM)),
            ("ext-1", Some("true"))
        );
        observed.release = None;
        observed.settings = Err(StageFailure::from(PlanError::Name("x".to_owned())));
        observed.revisions = Revisions::new(vec![Arc::new(set.clone())]);
        let actions = prepare(&observed, &ConflictingSets::default(), "olm").unwrap();
        assert!(
            matches!(&actions[..], [Action::CompleteAdopted(_)]),
            "{actions:?}"
        );
        set.status = (*revision(1, &[(SUCCEEDED, Status::True, "")])).clone().status;
        observed.revisions = Revisions::new(vec![Arc::new(set)]);
        assert!(
            prepare(&observed, &ConflictingSets::default(), "olm")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_pause_reaches_and_leaves_every_active_revision_once_whatever_else_is_wrong() {
        let with_pause = |set: &ClusterObjectSet, value: Option<&str>| {
            let mut set = set.clone();
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.remove(user::PAUSED);
            annotations.insert(annotation::SERVICE_ACCOUNT.to_owned(), "n/a".to_owned());
            annotations.extend(value.map(|value| (user::PAUSED.to_owned(), value.to_owned())));
            set
        };
        let set = (*revision(1, &[])).clone();
        let blocked = || StageFailure::from(PlanError::Name("x".to_owned()));
        for (asked, present, inherited, inherited_though_blocked) in [
            (Some("true"), None, Some(json!("true")), Some(json!("true"))),
            (None, Some("true"), Some(Value::Null), Some(Value::Null)),
            (
                Some("false"),
                Some("true"),
                Some(json!("false")),
                Some(json!("false")),
            ),
            // Drift of the installed version is repaired while a value is invalid.
            (Some("yes"), Some("true"), Some(json!("yes")), Some(Value::Null)),
            (Some("true"), Some("true"), None, None),
            (None, None, None, None),
        ] {
            for (settings_fail, expected) in [(false, inherited), (true, inherited_though_blocked)] {
                let mut observed = observed(vec![with_pause(&set, present)]);
                let mut extension = (*observed.extension).clone();
                extension.metadata.annotations =
                    asked.map(|value| [(user::PAUSED.to_owned(), value.to_owned())].into());
                observed.extension = Arc::new(extension);
                if settings_fail {
                    observed.settings = Err(blocked());
                }
                let mut actions = prepare(&observed, &ConflictingSets::default(), "olm").unwrap();
                if !settings_fail {
                    let lifted = resumed(&observed.extension, &observed.revisions);
                    assert!(actions.is_empty() || lifted.is_empty(), "{asked:?} {present:?}");
                    actions.extend(lifted);
                }
                let annotations = |action: &Action| match action {
                    Action::PatchRevision { patch, .. } => {
                        patch["metadata"]["annotations"][user::PAUSED].clone()
                    }
                    other => panic!("{other:?}"),
                };
                let found: Vec<Value> = actions.iter().map(annotations).collect();
                assert_eq!(
                    found,
                    Vec::from_iter(expected),
                    "{asked:?} {present:?} {settings_fail}"
                );
            }
        }
    }

    #[test]
    fn operator_conditions_are_tidied_when_the_needed_ones_change() {
        let mut set = (*revision(1, &[])).clone();
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::OPERATOR_CONDITION.to_owned(), "pkg.v1".to_owned());
        let revisions = Revisions::new(vec![Arc::new(set)]);
        let Some(Action::RemoveOperatorConditions { needed }) = tidy(&revisions, None) else {
            panic!("nothing is planned");
        };
        assert!(tidy(&revisions, Some(&needed)).is_none());
        assert!(tidy(&Revisions::default(), None).is_none());
    }
}
