//! Which revision is to be written, given those that exist. Pure; planning again on the result writes nothing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use olm_api::cluster_object_set::{ClusterObjectSetSpec, CollisionProtection, LifecycleState, Phase};
use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, annotation, label, user};
use olm_api::{ClusterExtension, ClusterObjectSet};

use super::failure::{Severity, StageError};
use super::pack::{PackError, Parcel, pack};
use super::phases::{Group, probes};
use super::revisions::{BundleIdentity, Revisions};
use crate::cluster::identity::AccountName;

/// How many revisions stay when a new one is made.
const KEPT: usize = 5;
/// The longest value of a label; a revision's name is one.
const LABEL_LENGTH: usize = 63;

/// Annotations of a ClusterExtension that its revisions carry too, since they decide how objects are applied and taken
/// down.
const INHERITED: [&str; 4] = [user::UNINSTALL, user::MISSING_KINDS, user::PAUSED, user::ADOPT];
/// Annotations that a revision made here may carry.
const OURS: [&str; 7] = [
    annotation::PACKAGE_NAME,
    annotation::BUNDLE_NAME,
    annotation::BUNDLE_VERSION,
    annotation::BUNDLE_RELEASE,
    annotation::BUNDLE_REFERENCE,
    annotation::PROPERTIES,
    annotation::SERVICE_ACCOUNT,
];

/// What a revision is to hold.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Whose revision it is.
    pub extension: &'a ClusterExtension,
    /// Under which account it is applied.
    pub account: &'a AccountName,
    /// The bundle it is made from.
    pub bundle: &'a BundleIdentity,
    /// The bundle's properties, a JSON list.
    pub properties: Option<&'a str>,
    /// The objects.
    pub groups: &'a [Group],
    /// Where the Secrets with the objects lie.
    pub system_namespace: &'a str,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// The newest revision is the wanted one.
    Keep,
    /// The newest revision holds the wanted objects; what else it says is to be written over.
    Patch(Box<ClusterObjectSet>),
    /// A new revision.
    Create {
        /// The revision.
        set: Box<ClusterObjectSet>,
        /// The Secrets it refers to.
        parcels: Vec<Parcel>,
        /// Names of archived revisions to be removed before.
        remove: Vec<String>,
    },
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The revision's name does not fit a label.
    #[error(
        "the ClusterExtension's name is too long: its revision {0:?} has to fit the {LABEL_LENGTH} characters of a label"
    )]
    Name(String),
    /// The content does not fit Secrets.
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl StageError for PlanError {
    fn severity(&self) -> Severity {
        Severity::Terminal
    }
}

/// What is to be done so that the newest revision is the wanted one.
pub fn plan(wanted: &Wanted<'_>, revisions: &Revisions) -> Result<Plan, PlanError> {
    if let Some(latest) = revisions.latest() {
        let packed = pack(latest.name(), wanted.system_namespace, wanted.groups)?;
        let same = revision(wanted, latest.name(), latest.spec.revision, packed.phases);
        if holds_the_same(latest, &same) {
            return Ok(if says_the_same(latest, &same) {
                Plan::Keep
            } else {
                Plan::Patch(Box::new(same))
            });
        }
    }
    let number = revisions.latest().map_or(1, |latest| latest.spec.revision + 1);
    let name = format!("{}-{number}", wanted.extension.name());
    if name.len() > LABEL_LENGTH {
        return Err(PlanError::Name(name));
    }
    let packed = pack(&name, wanted.system_namespace, wanted.groups)?;
    let set = revision(wanted, &name, number, packed.phases);
    Ok(Plan::Create {
        set: Box::new(set),
        parcels: packed.parcels,
        remove: superfluous(revisions),
    })
}

/// Archived revisions before the newest few.
fn superfluous(revisions: &Revisions) -> Vec<String> {
    let count = revisions.all().len().saturating_sub(KEPT);
    let archived = |set: &&std::sync::Arc<ClusterObjectSet>| {
        set.spec.lifecycle_state == LifecycleState::Archived && !set.is_deleting()
    };
    revisions
        .all()
        .iter()
        .take(count)
        .filter(archived)
        .map(|set| set.name().to_owned())
        .collect()
}

/// Whether what never changes in a revision is as wanted.
fn holds_the_same(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    !latest.is_deleting()
        && latest.spec.lifecycle_state == LifecycleState::Active
        && latest.spec.phases == wanted.spec.phases
        && latest.spec.collision_protection == wanted.spec.collision_protection
        && latest.annotation(annotation::SERVICE_ACCOUNT) == wanted.annotation(annotation::SERVICE_ACCOUNT)
}

/// Whether what may change in a revision is as wanted.
fn says_the_same(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    let label = |key: &&str| latest.label(key) == wanted.label(key);
    let annotation = |key: &&str| latest.annotation(key) == wanted.annotation(key);
    let owners = |set: &ClusterObjectSet| set.metadata.owner_references.clone().unwrap_or_default();
    latest.spec.progression_probes == wanted.spec.progression_probes
        && latest.spec.progress_deadline_minutes == wanted.spec.progress_deadline_minutes
        && [label::OWNER_KIND, label::OWNER_NAME].iter().all(label)
        && OURS.iter().chain(&INHERITED).all(annotation)
        && owners(wanted).iter().all(|owner| owners(latest).contains(owner))
}

fn revision(wanted: &Wanted<'_>, name: &str, number: i64, phases: Vec<Phase>) -> ClusterObjectSet {
    let extension = wanted.extension;
    let spec = ClusterObjectSetSpec {
        lifecycle_state: LifecycleState::Active,
        revision: number,
        phases,
        progress_deadline_minutes: extension
            .spec
            .progress_deadline_minutes
            .filter(|minutes| *minutes > 0),
        progression_probes: probes(),
        collision_protection: CollisionProtection::Prevent,
    };
    let mut set = ClusterObjectSet::new(name, spec);
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    set.metadata.labels = Some(BTreeMap::from(
        [
            (label::OWNER_KIND, CLUSTER_EXTENSION),
            (label::OWNER_NAME, extension.name()),
        ]
        .map(text),
    ));
    let metadata = &wanted.bundle.metadata;
    let account = wanted.account.to_string();
    let mut annotations = BTreeMap::from(
        [
            (annotation::PACKAGE_NAME, wanted.bundle.package.as_str()),
            (annotation::BUNDLE_NAME, metadata.name.as_str()),
            (annotation::BUNDLE_VERSION, metadata.version.as_str()),
            (annotation::BUNDLE_REFERENCE, wanted.bundle.image.as_str()),
            (annotation::SERVICE_ACCOUNT, account.as_str()),
        ]
        .map(text),
    );
    let optional = [
        (annotation::BUNDLE_RELEASE, metadata.release.as_deref()),
        (annotation::PROPERTIES, wanted.properties),
    ];
    let inherited = INHERITED.map(|key| (key, extension.annotation(key)));
    annotations.extend(
        optional
            .into_iter()
            .chain(inherited)
            .filter_map(|(key, value)| Some(text((key, value?)))),
    );
    set.metadata.annotations = Some(annotations);
    set.metadata.owner_references = Some(vec![OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: CLUSTER_EXTENSION.to_owned(),
        name: extension.name().to_owned(),
        uid: extension.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    set
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    struct Case {
        extension: ClusterExtension,
        account: AccountName,
        bundle: BundleIdentity,
        groups: Vec<Group>,
    }

    impl Case {
        fn new() -> Self {
            let mut extension =
                ClusterExtension::new("ext", olm_api::cluster_extension::ClusterExtensionSpec::default());
            extension.metadata.uid = Some("uid".to_owned());
            let mut bundle = BundleIdentity {
                package: "pkg".to_owned(),
                image: "reg/i".to_owned(),
                ..BundleIdentity::default()
            };
            bundle.metadata.name = "pkg.v1".to_owned();
            bundle.metadata.version = "1.0.0".to_owned();
            let groups = vec![Group {
                name: "deploy".to_owned(),
                objects: vec![json!({"a": 1})],
            }];
            Self {
                extension,
                account: "ns/acc".parse().unwrap(),
                bundle,
                groups,
            }
        }

        fn plan(&self, sets: &[ClusterObjectSet]) -> Plan {
            let wanted = Wanted {
                extension: &self.extension,
                account: &self.account,
                bundle: &self.bundle,
                properties: Some("[]"),
                groups: &self.groups,
                system_namespace: "system",
            };
            plan(
                &wanted,
                &Revisions::new(sets.iter().cloned().map(Arc::new).collect()),
            )
            .unwrap()
        }

        fn create(&self, sets: &[ClusterObjectSet]) -> ClusterObjectSet {
            match self.plan(sets) {
                Plan::Create { set, .. } => *set,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn planning_on_the_result_writes_nothing() {
        let case = Case::new();
        let first = case.create(&[]);
        assert_eq!((first.name(), first.spec.revision), ("ext-1", 1));
        assert_eq!(first.annotation(annotation::SERVICE_ACCOUNT), Some("ns/acc"));
        assert_eq!(first.annotation(annotation::BUNDLE_RELEASE), None);
        assert_eq!(case.plan(&[first]), Plan::Keep);
    }

    #[test]
    fn other_content_or_another_account_is_a_new_revision() {
        let mut case = Case::new();
        let first = case.create(&[]);
        case.groups[0].objects[0] = json!({"a": 2});
        let second = case.create(std::slice::from_ref(&first));
        assert_eq!((second.name(), second.spec.revision), ("ext-2", 2));
        case.account.name = "other".to_owned();
        assert_eq!(case.create(&[first, second]).spec.revision, 3);
    }

    #[test]
    fn what_may_change_is_changed_in_place() {
        let mut case = Case::new();
        let first = case.create(&[]);
        case.extension.spec.progress_deadline_minutes = Some(10);
        case.extension.metadata.annotations = Some([(user::PAUSED.to_owned(), "true".to_owned())].into());
        let Plan::Patch(patch) = case.plan(std::slice::from_ref(&first)) else {
            panic!()
        };
        assert_eq!(
            (patch.name(), patch.spec.progress_deadline_minutes),
            ("ext-1", Some(10))
        );
        assert_eq!(patch.annotation(user::PAUSED), Some("true"));
        assert_eq!(case.plan(&[*patch]), Plan::Keep);
    }

    #[test]
    fn an_archived_or_deleted_revision_is_not_brought_back() {
        let case = Case::new();
        let mut first = case.create(&[]);
        first.spec.lifecycle_state = LifecycleState::Archived;
        assert_eq!(case.create(&[first.clone()]).spec.revision, 2);
        first.spec.lifecycle_state = LifecycleState::Active;
        first.metadata.deletion_timestamp = Some(olm_api::Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(case.create(&[first]).spec.revision, 2);
    }

    #[test]
    fn the_newest_five_revisions_stay() {
        let case = Case::new();
        let sets: Vec<ClusterObjectSet> = (1..=8)
            .map(|number| {
                let mut set = case.create(&[]);
                set.metadata.name = Some(format!("ext-{number}"));
                set.spec.revision = number;
                set.spec.lifecycle_state = if number == 2 {
                    LifecycleState::Active
                } else {
                    LifecycleState::Archived
                };
                set
            })
            .collect();
        let Plan::Create { set, remove, .. } = case.plan(&sets) else {
            panic!()
        };
        assert_eq!(set.spec.revision, 9);
        assert_eq!(remove, ["ext-1", "ext-3"]);
    }

    #[test]
    fn a_name_that_does_not_fit_a_label_is_refused() {
        let mut case = Case::new();
        case.extension.metadata.name = Some("x".repeat(62));
        let wanted = Wanted {
            extension: &case.extension,
            account: &case.account,
            bundle: &case.bundle,
            properties: None,
            groups: &[],
            system_namespace: "system",
        };
        assert!(matches!(
            plan(&wanted, &Revisions::default()),
            Err(PlanError::Name(_))
        ));
    }
}
