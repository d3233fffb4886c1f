//! The revisions of an extension: which one is installed, which are rolling out.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_api::cluster_extension::{BundleMetadata, controlling_extension};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{self, PROGRESSING, SUCCEEDED, reason};
use olm_api::names::{annotation, label, migration};
use olm_api::{ClusterExtension, ClusterObjectSet};
pub use olm_plan::BundleIdentity;
pub(crate) use olm_plan::bundle::roles_named_after;
use olm_resolve::Installed;

use crate::object_set::records::{FOREGROUND, ORPHAN, has_finalizer};
use olm_cluster::identity::AccountName;

/// An extension's ClusterObjectSets, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Revisions {
    sets: Vec<Arc<ClusterObjectSet>>,
}

impl Revisions {
    /// The revisions in these sets, which may have any order.
    pub fn new(mut sets: Vec<Arc<ClusterObjectSet>>) -> Self {
        sets.sort_by(|a, b| (a.spec.revision, a.name()).cmp(&(b.spec.revision, b.name())));
        Self { sets }
    }

    /// All revisions, oldest first.
    pub fn all(&self) -> &[Arc<ClusterObjectSet>] {
        &self.sets
    }

    /// The OperatorConditions of active revisions, including those that are being deleted.
    pub fn operator_conditions(&self) -> BTreeSet<String> {
        self.sets
            .iter()
            .filter(|set| set.spec.lifecycle_state == LifecycleState::Active)
            .filter_map(|set| set.annotation(annotation::OPERATOR_CONDITION))
            .map(str::to_owned)
            .collect()
    }

    /// The newest revision in any state.
    pub fn latest(&self) -> Option<&ClusterObjectSet> {
        self.sets.last().map(AsRef::as_ref)
    }

    /// The newest active revision that was complete and names its bundle.
    pub fn installed(&self) -> Option<&ClusterObjectSet> {
        self.active()
            .filter(|set| succeeded(set) && BundleIdentity::of(set).can_be_reported())
            .last()
    }

    /// The newest active revision that was complete but names no valid bundle, because a user created it. It does not
    /// count as installed.
    pub fn of_no_bundle(&self) -> Option<&ClusterObjectSet> {
        self.active()
            .filter(|set| succeeded(set) && !BundleIdentity::of(set).can_be_reported())
            .last()
    }

    /// Active revisions that were never complete, oldest first.
    pub fn rolling(&self) -> impl Iterator<Item = &ClusterObjectSet> {
        self.active().filter(|set| !succeeded(set))
    }

    /// The newest active revision, if it is not complete yet and replaces a complete one.
    pub fn on_its_way(&self) -> Option<&ClusterObjectSet> {
        self.installed()?;
        self.newest_active().filter(|set| !succeeded(set))
    }

    /// The newest active revision, complete or not: the present or the next state of the extension.
    pub fn newest_active(&self) -> Option<&ClusterObjectSet> {
        self.active().last()
    }

    /// The newest revision that is not archived, including one that is being deleted: its objects still exist.
    pub fn newest_standing(&self) -> Option<&ClusterObjectSet> {
        let is_standing = |set: &&ClusterObjectSet| set.spec.lifecycle_state == LifecycleState::Active;
        self.sets.iter().map(AsRef::as_ref).rfind(is_standing)
    }

    /// Active revisions, complete or not, oldest first.
    pub fn active(&self) -> impl Iterator<Item = &ClusterObjectSet> {
        let wanted = |set: &&ClusterObjectSet| {
            set.spec.lifecycle_state == LifecycleState::Active && !set.is_deleting()
        };
        self.sets.iter().map(AsRef::as_ref).filter(wanted)
    }
}

/// The digest of `spec.config`; `None` if absent.
pub(crate) fn config_digest(extension: &ClusterExtension) -> Option<String> {
    let config = extension.spec.config.as_ref()?.inline.as_ref()?;
    Some(olm_plan::digest(config))
}

/// Whether two records name the same bundle. OLM classic knows no releases: one is the build metadata of the version.
fn is_same_bundle(made: &BundleMetadata, wanted: &BundleMetadata) -> bool {
    let version = |bundle| as_installed(bundle).version_release();
    made == wanted
        || made.name == wanted.name
            && matches!((version(made), version(wanted)), (Ok(made), Ok(wanted)) if made == wanted)
}

/// Whether a revision has the objects that OLM classic rendered for this bundle and these settings. Then it stays: the
/// same bundle rendered here has other names and annotations, and would restart the operator without need.
pub(crate) fn is_of_classic(
    set: &ClusterObjectSet,
    extension: &ClusterExtension,
    bundle: &BundleIdentity,
    account: &AccountName,
) -> bool {
    let made = BundleIdentity::of(set);
    set.annotation(migration::SUBSCRIPTION).is_some()
        && set.spec.lifecycle_state == LifecycleState::Active
        && !set.is_deleting()
        && made.package == bundle.package
        && is_same_bundle(&made.metadata, &bundle.metadata)
        && set.annotation(annotation::SERVICE_ACCOUNT) == Some(account.to_string().as_str())
        && set.annotation(annotation::CONFIG_DIGEST) == config_digest(extension).as_deref()
}

/// Sets that are not revisions of an extension but have a possible name or number of its next one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConflictingSets {
    /// Names with the prefix of the extension.
    pub names: BTreeSet<String>,
    /// The highest number of sets that an earlier extension of the same name left under the same account. A new
    /// revision takes over from them only with a higher number.
    pub highest: i64,
    /// The sets that it left.
    pub left: Vec<Arc<ClusterObjectSet>>,
}

impl ConflictingSets {
    /// The newest set that an earlier extension of this name left under this account, or that was restored.
    pub fn left_behind(&self, extension: &str, account: &AccountName) -> Option<&ClusterObjectSet> {
        let ours = self
            .left
            .iter()
            .filter(|set| is_left_behind(set, extension, account));
        ours.max_by_key(|set| set.spec.revision).map(AsRef::as_ref)
    }
}

/// Whether an earlier extension of this name left a set that no extension controls. Any user can write the label; only
/// users who may act as the account can name it.
pub fn is_left_behind(set: &ClusterObjectSet, extension: &str, account: &AccountName) -> bool {
    controlling_extension(&set.metadata).is_none()
        && set.label(label::OWNER_NAME) == Some(extension)
        && set.annotation(annotation::SERVICE_ACCOUNT) == Some(account.to_string().as_str())
}

/// Whether something blocks a revision.
pub fn is_blocked(set: &ClusterObjectSet) -> bool {
    conditions::find(set.conditions(), PROGRESSING)
        .is_some_and(|condition| matches!(condition.reason.as_str(), reason::RETRYING | reason::BLOCKED))
}

/// Whether a revision is neither blocked nor past its deadline.
pub fn is_on_track(set: &ClusterObjectSet) -> bool {
    !is_blocked(set)
        && conditions::find(set.conditions(), PROGRESSING).is_none_or(|condition| condition.status == "True")
}

/// Whether a revision reports that its deletion is not done yet.
pub fn removing(set: &ClusterObjectSet) -> bool {
    set.is_deleting()
        && (is_blocked(set)
            || conditions::find(set.conditions(), PROGRESSING)
                .is_some_and(|condition| condition.reason == reason::REMOVING))
}

/// Whether a user deletes an active revision in the background: the deletion neither orphans its objects nor lets
/// Kubernetes collect them at once.
pub fn is_being_replaced(latest: &ClusterObjectSet) -> bool {
    latest.is_deleting()
        && latest.spec.lifecycle_state == LifecycleState::Active
        && !has_finalizer(latest, ORPHAN)
        && !has_finalizer(latest, FOREGROUND)
}

/// The active revisions that are being deleted, and the blockers of their deletion.
pub fn deletion_report(revisions: &Revisions) -> Option<String> {
    let wanted = |set: &&Arc<ClusterObjectSet>| set.spec.lifecycle_state == LifecycleState::Active;
    let deleted = revisions
        .all()
        .iter()
        .filter(|set| set.is_deleting())
        .filter(wanted);
    let lines: Vec<String> = deleted
        .map(|set| {
            let failure = conditions::find(set.conditions(), PROGRESSING).filter(|_| is_blocked(set));
            let failure = failure.map_or(String::new(), |found| format!(": {}", found.message));
            format!("the ClusterObjectSet {} is being deleted{failure}", set.name())
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn succeeded(set: &ClusterObjectSet) -> bool {
    conditions::is_true(set.conditions(), SUCCEEDED)
}

/// A recorded installed bundle in the form of resolution.
pub(crate) fn as_installed(bundle: &BundleMetadata) -> Installed<'_> {
    Installed {
        name: &bundle.name,
        version: &bundle.version,
        release: bundle.release.as_deref(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use olm_api::cluster_object_set::{ClusterObjectSetSpec, ClusterObjectSetStatus};
    use olm_api::conditions::{Report, Status, reason, set_condition};
    use olm_api::names;

    use super::*;

    /// A revision for the tests of this folder.
    pub(crate) fn revision(number: i64, reports: &[(&str, Status, &str)]) -> Arc<ClusterObjectSet> {
        let mut set = ClusterObjectSet::new(
            &format!("ext-{number}"),
            ClusterObjectSetSpec {
                revision: number,
                ..ClusterObjectSetSpec::default()
            },
        );
        let annotations = [
            (annotation::PACKAGE_NAME, "pkg".to_owned()),
            (annotation::BUNDLE_NAME, format!("pkg.v{number}")),
            (annotation::BUNDLE_VERSION, format!("{number}.0.0")),
            (annotation::BUNDLE_REFERENCE, format!("reg/pkg:v{number}")),
        ];
        set.metadata.annotations = Some(annotations.map(|(k, v)| (k.to_owned(), v)).into());
        let mut status = ClusterObjectSetStatus::default();
        for (condition_type, state, message) in reports {
            let reason = if message.is_empty() {
                reason::SUCCEEDED
            } else {
                reason::RETRYING
            };
            let report = Report {
                condition_type,
                status: *state,
                reason,
                message,
                observed_generation: 1,
            };
            set_condition(&mut status.conditions, report, Timestamp::UNIX_EPOCH);
        }
        set.status = Some(status);
        Arc::new(set)
    }

    #[test]
    fn a_release_may_be_recorded_apart_or_in_the_version() {
        let bundle = |name: &str, version: &str, release: Option<&str>| BundleMetadata {
            name: name.to_owned(),
            version: version.to_owned(),
            release: release.map(str::to_owned),
        };
        let folded = bundle("a", "1.0.0+x7", None);
        assert!(is_same_bundle(&folded, &folded));
        assert!(is_same_bundle(&folded, &bundle("a", "1.0.0", Some("x7"))));
        for other in [
            bundle("a", "1.0.0", Some("x8")),
            bundle("a", "1.0.0", None),
            bundle("b", "1.0.0", Some("x7")),
            bundle("a", "", None),
        ] {
            assert!(!is_same_bundle(&folded, &other), "{other:?}");
        }
    }

    #[test]
    fn revisions_of_an_earlier_extension_are_known_by_name_and_account() {
        let account: AccountName = "ns/installer".parse().unwrap();
        let left = |name: &str, works_as: Option<&str>, owner: Option<&str>| {
            let mut set = (*revision(1, &[])).clone();
            set.metadata.labels = Some([(label::OWNER_NAME.to_owned(), name.to_owned())].into());
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations
                .extend(works_as.map(|name| (annotation::SERVICE_ACCOUNT.to_owned(), name.to_owned())));
            set.metadata.owner_references = owner.map(|uid| {
                vec![OwnerReference {
                    api_version: names::API_VERSION.to_owned(),
                    kind: names::CLUSTER_EXTENSION.to_owned(),
                    uid: uid.to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            });
            set
        };
        for (set, expected) in [
            (left("ext", Some("ns/installer"), None), true),
            (left("other", Some("ns/installer"), None), false),
            (left("ext", Some("ns/other"), None), false),
            (left("ext", None, None), false),
            (left("ext", Some("ns/installer"), Some("uid")), false),
        ] {
            assert_eq!(is_left_behind(&set, "ext", &account), expected, "{set:?}");
        }
    }

    #[test]
    fn the_newest_complete_revision_is_installed_and_the_others_are_rolling() {
        let done = [(SUCCEEDED, Status::True, "")];
        let mut archived = (*revision(4, &done)).clone();
        archived.spec.lifecycle_state = LifecycleState::Archived;
        let revisions = Revisions::new(vec![
            revision(3, &[]),
            Arc::new(archived),
            revision(2, &done),
            revision(1, &done),
        ]);
        assert_eq!(revisions.installed().unwrap().name(), "ext-2");
        assert_eq!(
            revisions
                .rolling()
                .map(ClusterObjectSet::name)
                .collect::<Vec<_>>(),
            ["ext-3"]
        );
        assert_eq!(revisions.latest().unwrap().name(), "ext-4");
        assert_eq!(revisions.on_its_way().unwrap().name(), "ext-3");
        let overtaken = Revisions::new(vec![revision(1, &[]), revision(2, &done)]);
        assert!(overtaken.on_its_way().is_none());
        let first = Revisions::new(vec![revision(1, &[])]);
        assert!(first.on_its_way().is_none());
        assert!(Revisions::default().installed().is_none());
    }

    #[test]
    fn a_revision_is_on_track_unless_it_is_blocked_or_given_up() {
        let given_up = |status| {
            let mut set = (*revision(1, &[(PROGRESSING, status, "")])).clone();
            for condition in &mut set.status.get_or_insert_default().conditions {
                condition.reason = reason::PROGRESS_DEADLINE_EXCEEDED.to_owned();
            }
            set
        };
        assert!(is_on_track(&revision(1, &[])));
        assert!(is_on_track(&revision(1, &[(PROGRESSING, Status::True, "")])));
        assert!(!is_on_track(&revision(
            1,
            &[(PROGRESSING, Status::True, "no right")]
        )));
        assert!(!is_on_track(&given_up(Status::False)));
    }

    #[test]
    fn a_wanted_revision_that_is_deleted_is_reported_with_its_failure() {
        let deleted = |number, reports: &[_], state| {
            let mut set = (*revision(number, reports)).clone();
            set.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
            set.spec.lifecycle_state = state;
            Arc::new(set)
        };
        let stuck = [(PROGRESSING, Status::True, "no right")];
        let revisions = Revisions::new(vec![
            deleted(1, &stuck, LifecycleState::Archived),
            deleted(2, &stuck, LifecycleState::Active),
            deleted(3, &[], LifecycleState::Active),
            revision(4, &stuck),
        ]);
        assert_eq!(
            deletion_report(&revisions).unwrap(),
            "the ClusterObjectSet ext-2 is being deleted: no right\nthe ClusterObjectSet ext-3 is being deleted"
        );
        assert_eq!(deletion_report(&Revisions::new(vec![revision(4, &stuck)])), None);
    }

    #[test]
    fn a_revision_that_names_no_bundle_installs_nothing() {
        let made = |name: Option<&str>, version: Option<&str>, release: Option<&str>| {
            let mut set = (*revision(2, &[(SUCCEEDED, Status::True, "")])).clone();
            let annotations = set.metadata.annotations.get_or_insert_default();
            for (key, value) in [
                (annotation::BUNDLE_NAME, name),
                (annotation::BUNDLE_VERSION, version),
                (annotation::BUNDLE_RELEASE, release),
            ] {
                annotations.remove(key);
                annotations.extend(value.map(|value| (key.to_owned(), value.to_owned())));
            }
            Arc::new(set)
        };
        for (name, version, release, expected) in [
            (Some("pkg.v2"), Some("2.0.0"), None, true),
            (Some("pkg.v2"), Some("2.0.0"), Some(""), true),
            (Some("pkg.v2"), Some("2.0.0"), Some("1.alpha"), true),
            (None, None, None, false),
            (Some("pkg.v2"), None, None, false),
            (None, Some("2.0.0"), None, false),
            (Some("Pkg_v2"), Some("2.0.0"), None, true),
            (Some("pkg.v2"), Some("v2"), None, false),
            (Some("pkg.v2"), Some("2.0.0"), Some("1_2"), false),
            (
                Some("pkg.v2"),
                Some("2.0.0"),
                Some("123456789012345678901"),
                false,
            ),
        ] {
            let earlier = revision(1, &[(SUCCEEDED, Status::True, "")]);
            let revisions = Revisions::new(vec![earlier, made(name, version, release)]);
            let installed = if expected { "ext-2" } else { "ext-1" };
            let set = revisions.installed().unwrap();
            assert_eq!(set.name(), installed, "{name:?} {version:?} {release:?}");
            assert_eq!(revisions.of_no_bundle().is_none(), expected);
            assert_eq!(revisions.rolling().count(), 0);
        }
    }
}
