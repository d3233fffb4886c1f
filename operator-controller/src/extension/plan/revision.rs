//! Which revision is written, given those that exist. Pure: planning again on the result keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use olm_api::cluster_extension::controlling_extension;
use olm_api::cluster_object_set::{ClusterObjectSetSpec, CollisionProtection, LifecycleState, Phase};
use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, annotation, label, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::CertificateProvider;
use serde_json::{Map, Value, json};

use crate::extension::bundle::phases::{Group, probes};
use crate::extension::failure::{Severity, StageError};
use crate::extension::plan::content::{ContentError, ContentSecret, pack};
use crate::extension::revisions::{BundleIdentity, Others, Revisions};
use olm_cluster::identity::AccountName;

/// How many revisions stay when a new one is made.
const KEPT: usize = 5;

/// Annotations of a ClusterExtension that its revisions carry too, since they decide how objects are applied and taken
/// down.
const INHERITED: [&str; 3] = [user::UNINSTALL, user::MISSING_KINDS, user::PAUSED];
/// Annotations that a revision made here may carry.
const OURS: [&str; 9] = [
    annotation::PACKAGE_NAME,
    annotation::BUNDLE_NAME,
    annotation::BUNDLE_VERSION,
    annotation::BUNDLE_RELEASE,
    annotation::BUNDLE_REFERENCE,
    annotation::PROPERTIES,
    annotation::SERVICE_ACCOUNT,
    annotation::CERTIFICATE_PROVIDER,
    annotation::OPERATOR_CONDITION,
];

/// What a revision is to hold.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Whose revision it is.
    pub extension: &'a ClusterExtension,
    /// Under which account it is applied, when that is known.
    pub account: Option<&'a AccountName>,
    /// The bundle it is made from.
    pub bundle: &'a BundleIdentity,
    /// The bundle's properties, a JSON list.
    pub properties: Option<&'a str>,
    /// Who provides its certificates, when it needs any.
    pub certificates: Option<CertificateProvider>,
    /// The name of the OperatorCondition that the operator reads.
    pub operator_condition: Option<&'a str>,
    /// The objects.
    pub groups: &'a [Group],
    /// Which existing objects it may take over.
    pub adopt: CollisionProtection,
    /// Where the Secrets with the objects lie.
    pub system_namespace: &'a str,
}

/// What happens to the revisions.
#[derive(Debug, Clone, PartialEq)]
pub enum RevisionPlan {
    /// The newest revision is the wanted one.
    Keep {
        /// The Secrets it refers to.
        secrets: Vec<ContentSecret>,
    },
    /// The newest revision holds the wanted objects; its metadata changes.
    Patch {
        /// The revision's name.
        name: String,
        /// The merge patch. It insists on the revision that was seen.
        patch: Box<Value>,
        /// The Secrets it refers to.
        secrets: Vec<ContentSecret>,
    },
    /// A new revision.
    Create(Creation),
}

/// A new revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Creation {
    /// The revision.
    pub set: Box<ClusterObjectSet>,
    /// The Secrets it refers to.
    pub secrets: Vec<ContentSecret>,
    /// Archived revisions that are removed first.
    pub remove: Vec<Arc<ClusterObjectSet>>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The revision's name does not fit a label.
    #[error(
        "the ClusterExtension's name is too long: its revision {0:?} has to fit the {max} characters of a label",
        max = label::MAX_VALUE
    )]
    Name(String),
    /// The content does not fit Secrets.
    #[error(transparent)]
    Pack(#[from] ContentError),
}

impl StageError for PlanError {
    fn severity(&self) -> Severity {
        Severity::Terminal
    }
}

/// Plans how the newest revision becomes the wanted one.
///
/// # Errors
/// The objects fit no revision.
pub fn plan(wanted: &Wanted<'_>, revisions: &Revisions, others: &Others) -> Result<RevisionPlan, PlanError> {
    if let Some(latest) = revisions.latest() {
        let packed = pack(latest.name(), wanted.system_namespace, wanted.groups)?;
        let same = revision(wanted, latest.name(), latest.spec.revision, packed.phases);
        if holds_the_same(latest, &same) {
            let secrets = packed.secrets;
            return Ok(if says_the_same(latest, &same) {
                RevisionPlan::Keep { secrets }
            } else {
                RevisionPlan::Patch {
                    name: latest.name().to_owned(),
                    patch: Box::new(change(latest, &same)),
                    secrets,
                }
            });
        }
    }
    create(wanted, revisions, others).map(RevisionPlan::Create)
}

/// Plans a new revision.
///
/// # Errors
/// The objects fit no revision.
pub(crate) fn create(
    wanted: &Wanted<'_>,
    revisions: &Revisions,
    others: &Others,
) -> Result<Creation, PlanError> {
    let number = free_number(wanted.extension, revisions, others);
    let name = format!("{}-{number}", wanted.extension.name());
    if name.len() > label::MAX_VALUE {
        return Err(PlanError::Name(name));
    }
    let packed = pack(&name, wanted.system_namespace, wanted.groups)?;
    Ok(Creation {
        set: Box::new(revision(wanted, &name, number, packed.phases)),
        secrets: packed.secrets,
        remove: superfluous(revisions),
    })
}

/// The number after the newest revision's whose name nothing else has.
fn free_number(extension: &ClusterExtension, revisions: &Revisions, others: &Others) -> i64 {
    let newest = revisions.latest().map_or(0, |latest| latest.spec.revision);
    let mut number = newest.max(others.highest).saturating_add(1);
    while number < i64::MAX && others.names.contains(&format!("{}-{number}", extension.name())) {
        number += 1;
    }
    number
}

/// Archived revisions before the newest few.
fn superfluous(revisions: &Revisions) -> Vec<Arc<ClusterObjectSet>> {
    let count = revisions.all().len().saturating_sub(KEPT);
    let archived = |set: &&Arc<ClusterObjectSet>| {
        set.spec.lifecycle_state == LifecycleState::Archived && !set.is_deleting()
    };
    revisions
        .all()
        .iter()
        .take(count)
        .filter(archived)
        .cloned()
        .collect()
}

/// Whether what never changes in a revision is as wanted.
fn holds_the_same(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    has_the_content(latest, wanted)
        && latest.annotation(annotation::SERVICE_ACCOUNT) == wanted.annotation(annotation::SERVICE_ACCOUNT)
}

fn has_the_content(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    !latest.is_deleting()
        && latest.spec.lifecycle_state == LifecycleState::Active
        && latest.spec.phases == wanted.spec.phases
        && protects_the_same(latest, wanted)
}

/// Whether a revision takes over what is wanted. One that was made from a release of the Helm runtime may take more, to
/// have what is its own, and is not replaced for that alone.
fn protects_the_same(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    let migrated = latest.label(label::MIGRATED_FROM_HELM).is_some();
    latest.spec.collision_protection == wanted.spec.collision_protection
        || (migrated && wanted.spec.collision_protection == CollisionProtection::Prevent)
}

/// Whether a revision found under the name of a new one is that revision, made by a run that did not see the end of it. One
/// made from a release of the Helm runtime is made without an account and given one by then.
pub fn is_made(found: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    controlling_extension(&found.metadata) == controlling_extension(&wanted.metadata)
        && found.spec.revision == wanted.spec.revision
        && if wanted.label(label::MIGRATED_FROM_HELM).is_some() {
            has_the_content(found, wanted)
        } else {
            holds_the_same(found, wanted)
        }
}

/// A merge patch that makes a revision say what is wanted, if it is still the one that was seen.
fn change(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> Value {
    let texts = |keys: &[&str], value: fn(&ClusterObjectSet, &str) -> Option<String>| -> Value {
        let entry = |key: &&str| {
            (
                (*key).to_owned(),
                value(wanted, key).map_or(Value::Null, Value::String),
            )
        };
        keys.iter().map(entry).collect::<Map<_, _>>().into()
    };
    let mut owners = latest.metadata.owner_references.clone().unwrap_or_default();
    for owner in wanted.metadata.owner_references.iter().flatten() {
        owners.retain(|present| present.uid != owner.uid);
        owners.push(owner.clone());
    }
    let keys: Vec<&str> = OURS.iter().chain(&INHERITED).copied().collect();
    json!({
        "metadata": {
            "uid": latest.metadata.uid,
            "resourceVersion": latest.metadata.resource_version,
            "labels": texts(&[label::OWNER_KIND, label::OWNER_NAME], |set, key| set.label(key).map(str::to_owned)),
            "annotations": texts(&keys, |set, key| set.annotation(key).map(str::to_owned)),
            "ownerReferences": owners,
        },
        "spec": {
            "progressDeadlineMinutes": wanted.spec.progress_deadline_minutes,
            "progressionProbes": wanted.spec.progression_probes,
        },
    })
}

/// A merge patch by which a revision inherits what decides how its objects are kept and taken down, if it is still the
/// one that was seen; nothing when it has it.
pub fn inherit(extension: &ClusterExtension, set: &ClusterObjectSet) -> Option<Value> {
    let mut differing: Map<String, Value> = INHERITED
        .iter()
        .filter(|key| extension.annotation(key) != set.annotation(key))
        .map(|key| {
            let value = extension.annotation(key).map(str::to_owned);
            ((*key).to_owned(), value.map_or(Value::Null, Value::String))
        })
        .collect();
    if extension.is_deleting() && set.annotation(annotation::UNINSTALLING).is_none() {
        differing.insert(annotation::UNINSTALLING.to_owned(), json!("true"));
    }
    (!differing.is_empty()).then(|| {
        json!({"metadata": {
            "uid": set.metadata.uid,
            "resourceVersion": set.metadata.resource_version,
            "annotations": differing,
        }})
    })
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
        progression_probes: probes(wanted.groups),
        collision_protection: wanted.adopt,
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
    let account = wanted.account.map(ToString::to_string);
    let mut annotations = BTreeMap::from(
        [
            (annotation::PACKAGE_NAME, wanted.bundle.package.as_str()),
            (annotation::BUNDLE_NAME, metadata.name.as_str()),
            (annotation::BUNDLE_VERSION, metadata.version.as_str()),
            (annotation::BUNDLE_REFERENCE, wanted.bundle.image.as_str()),
        ]
        .map(text),
    );
    let certificates = wanted.certificates.map(|provider| provider.to_string());
    let optional = [
        (annotation::SERVICE_ACCOUNT, account.as_deref()),
        (annotation::CERTIFICATE_PROVIDER, certificates.as_deref()),
        (annotation::OPERATOR_CONDITION, wanted.operator_condition),
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
    use super::*;

    struct Case {
        extension: ClusterExtension,
        account: AccountName,
        bundle: BundleIdentity,
        certificates: Option<CertificateProvider>,
        groups: Vec<Group>,
        adopt: CollisionProtection,
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
                certificates: None,
                groups,
                adopt: CollisionProtection::Prevent,
            }
        }

        fn plan(&self, sets: &[ClusterObjectSet]) -> RevisionPlan {
            self.plan_beside(sets, &Others::default())
        }

        fn plan_beside(&self, sets: &[ClusterObjectSet], others: &Others) -> RevisionPlan {
            let wanted = Wanted {
                extension: &self.extension,
                account: Some(&self.account),
                bundle: &self.bundle,
                properties: Some("[]"),
                certificates: self.certificates,
                operator_condition: Some("pkg.v1"),
                groups: &self.groups,
                adopt: self.adopt,
                system_namespace: "system",
            };
            plan(
                &wanted,
                &Revisions::new(sets.iter().cloned().map(Arc::new).collect()),
                others,
            )
            .unwrap()
        }

        fn keeps(&self, latest: &ClusterObjectSet) {
            let plan = self.plan(std::slice::from_ref(latest));
            assert!(
                matches!(&plan, RevisionPlan::Keep { secrets } if secrets.len() == 1),
                "{plan:?}"
            );
        }

        fn patched(&self, latest: &ClusterObjectSet) -> ClusterObjectSet {
            match self.plan(std::slice::from_ref(latest)) {
                RevisionPlan::Patch { name, patch, .. } => {
                    assert_eq!(name, latest.name());
                    applied(latest, &patch)
                }
                other => panic!("{other:?}"),
            }
        }

        fn create(&self, sets: &[ClusterObjectSet]) -> ClusterObjectSet {
            match self.plan(sets) {
                RevisionPlan::Create(creation) => *creation.set,
                other => panic!("{other:?}"),
            }
        }
    }

    /// What the API server makes of a merge patch.
    fn applied(set: &ClusterObjectSet, patch: &Value) -> ClusterObjectSet {
        fn merge(target: &mut Value, patch: &Value) {
            let Value::Object(patch) = patch else {
                *target = patch.clone();
                return;
            };
            if !target.is_object() {
                *target = json!({});
            }
            for (key, value) in patch {
                if value.is_null() {
                    target.as_object_mut().unwrap().remove(key);
                } else {
                    merge(&mut target[key], value);
                }
            }
        }
        assert_eq!(patch["metadata"]["uid"], json!(set.metadata.uid));
        assert_eq!(
            patch["metadata"]["resourceVersion"],
            json!(set.metadata.resource_version)
        );
        let mut value = serde_json::to_value(set).unwrap();
        merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn planning_on_the_result_writes_nothing() {
        let case = Case::new();
        let first = case.create(&[]);
        assert_eq!((first.name(), first.spec.revision), ("ext-1", 1));
        assert_eq!(first.annotation(annotation::SERVICE_ACCOUNT), Some("ns/acc"));
        assert_eq!(first.annotation(annotation::BUNDLE_RELEASE), None);
        case.keeps(&first);
    }

    #[test]
    fn other_content_or_another_account_is_a_new_revision() {
        let mut case = Case::new();
        let first = case.create(&[]);
        case.groups[0].objects[0] = json!({"a": 2});
        let second = case.create(std::slice::from_ref(&first));
        assert_eq!((second.name(), second.spec.revision), ("ext-2", 2));
        case.account.name = "other".to_owned();
        let third = case.create(&[first.clone(), second.clone()]);
        assert_eq!(third.spec.revision, 3);
        case.adopt = CollisionProtection::IfNoController;
        let fourth = case.create(&[first, second, third]);
        assert_eq!(
            (fourth.spec.revision, fourth.spec.collision_protection),
            (4, CollisionProtection::IfNoController)
        );
    }

    #[test]
    fn a_revision_from_a_helm_release_is_not_replaced_for_its_weaker_protection_alone() {
        let mut case = Case::new();
        case.adopt = CollisionProtection::IfNoController;
        let mut first = case.create(&[]);
        case.adopt = CollisionProtection::Prevent;
        assert_eq!(case.create(std::slice::from_ref(&first)).spec.revision, 2);
        let labels = first.metadata.labels.get_or_insert_default();
        labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
        case.keeps(&first);
        case.adopt = CollisionProtection::None;
        assert_eq!(case.create(&[first]).spec.revision, 2);
    }

    #[test]
    fn what_may_change_is_changed_in_place() {
        let mut case = Case::new();
        let mut first = case.create(&[]);
        first.metadata.uid = Some("u".to_owned());
        first.metadata.resource_version = Some("7".to_owned());
        case.extension.spec.progress_deadline_minutes = Some(10);
        case.extension.metadata.annotations = Some([(user::PAUSED.to_owned(), "true".to_owned())].into());
        let patched = case.patched(&first);
        assert_eq!(patched.spec.progress_deadline_minutes, Some(10));
        assert_eq!(patched.annotation(user::PAUSED), Some("true"));
        case.keeps(&patched);
        case.extension.spec.progress_deadline_minutes = None;
        case.extension.metadata.annotations = None;
        let back = case.patched(&patched);
        assert_eq!(
            (back.spec.progress_deadline_minutes, back.annotation(user::PAUSED)),
            (None, None)
        );
        case.keeps(&back);
    }

    #[test]
    fn what_decides_about_removal_is_inherited_whatever_else_changed() {
        let mut case = Case::new();
        let first = case.create(&[]);
        assert_eq!(inherit(&case.extension, &first), None);
        case.extension.metadata.annotations =
            Some([(user::UNINSTALL.to_owned(), "orphan".to_owned())].into());
        let patch = inherit(&case.extension, &first).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({user::UNINSTALL: "orphan"})
        );
        let patched = applied(&first, &patch);
        assert_eq!(inherit(&case.extension, &patched), None);
        case.extension.metadata.annotations = None;
        assert_eq!(
            inherit(&case.extension, &patched).unwrap()["metadata"]["annotations"],
            json!({user::UNINSTALL: null})
        );
        case.extension.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
        );
        let patch = inherit(&case.extension, &first).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({annotation::UNINSTALLING: "true"})
        );
        assert_eq!(inherit(&case.extension, &applied(&first, &patch)), None);
    }

    #[test]
    fn a_name_that_something_else_has_and_numbers_left_behind_are_passed_over() {
        let case = Case::new();
        let mut others = Others::default();
        others.names.extend(["ext-1", "ext-2"].map(str::to_owned));
        let number = |others: &Others, sets: &[ClusterObjectSet]| match case.plan_beside(sets, others) {
            RevisionPlan::Create(Creation { set, .. }) => (set.name().to_owned(), set.spec.revision),
            other => panic!("{other:?}"),
        };
        assert_eq!(number(&others, &[]), ("ext-3".to_owned(), 3));
        others.highest = 7;
        assert_eq!(number(&others, &[]), ("ext-8".to_owned(), 8));
        others.highest = i64::MAX;
        assert_eq!(number(&others, &[]).1, i64::MAX);
    }

    #[test]
    fn a_revision_is_recognised_that_an_interrupted_run_made() {
        let mut case = Case::new();
        let first = case.create(&[]);
        assert!(is_made(&first, &first));
        let mut named = first.clone();
        let annotations = named.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::SERVICE_ACCOUNT.to_owned(), "n/later".to_owned());
        assert!(!is_made(&named, &first));
        let mut migrated = first.clone();
        let labels = migrated.metadata.labels.get_or_insert_default();
        labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
        assert!(is_made(&named, &migrated));
        let mut foreign = first.clone();
        foreign.metadata.owner_references = None;
        assert!(!is_made(&foreign, &first));
        case.groups[0].objects[0] = json!({"a": 2});
        assert!(!is_made(&case.create(&[]), &first));
    }

    #[test]
    fn who_provides_certificates_and_what_the_operator_is_told_stand_on_the_revision() {
        let mut case = Case::new();
        let first = case.create(&[]);
        assert_eq!(first.annotation(annotation::CERTIFICATE_PROVIDER), None);
        assert_eq!(first.annotation(annotation::OPERATOR_CONDITION), Some("pkg.v1"));
        case.certificates = Some(CertificateProvider::SelfSigned);
        let patched = case.patched(&first);
        assert_eq!(
            patched.annotation(annotation::CERTIFICATE_PROVIDER),
            Some("self-signed")
        );
        case.keeps(&patched);
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
        let RevisionPlan::Create(Creation { set, remove, .. }) = case.plan(&sets) else {
            panic!()
        };
        assert_eq!(set.spec.revision, 9);
        let names: Vec<&str> = remove.iter().map(|set| set.name()).collect();
        assert_eq!(names, ["ext-1", "ext-3"]);
    }

    #[test]
    fn a_name_that_does_not_fit_a_label_is_refused() {
        let mut case = Case::new();
        case.extension.metadata.name = Some("x".repeat(62));
        let wanted = Wanted {
            extension: &case.extension,
            account: Some(&case.account),
            bundle: &case.bundle,
            properties: None,
            certificates: None,
            operator_condition: None,
            groups: &[],
            adopt: CollisionProtection::Prevent,
            system_namespace: "system",
        };
        assert!(matches!(
            plan(&wanted, &Revisions::default(), &Others::default()),
            Err(PlanError::Name(_))
        ));
    }
}
