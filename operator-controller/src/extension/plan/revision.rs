//! The revision to write, given the existing ones. Pure: planning again on the result keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use olm_api::cluster_extension::controlling_extension;
use olm_api::cluster_object_set::{ClusterObjectSetSpec, CollisionProtection, LifecycleState, Phase};
use olm_api::conditions::reason;
use olm_api::names::{CLUSTER_EXTENSION, annotation, label, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::CertificateProvider;
use serde_json::{Map, Value, json};

use crate::extension::failure::{Severity, StageError};
use crate::extension::revisions::{BundleIdentity, ConflictingSets, Revisions};
use olm_cluster::identity::AccountName;
use olm_plan::pack::{ContentSecret, PackError, pack};
use olm_plan::phases::{Group, probes};
use olm_rollout::policy::Policy;

/// The number of revisions that are kept when a new one is created.
const KEPT: usize = 5;

/// Annotations of a ClusterExtension that are copied to its revisions, because they affect how objects are applied and
/// torn down.
const INHERITED: [&str; 3] = [user::UNINSTALL, user::MISSING_KINDS, user::PAUSED];
/// Annotations that OLM sets on a revision.
const OURS: [&str; 13] = [
    annotation::PACKAGE_NAME,
    annotation::BUNDLE_NAME,
    annotation::BUNDLE_VERSION,
    annotation::BUNDLE_RELEASE,
    annotation::BUNDLE_REFERENCE,
    annotation::CATALOG,
    annotation::PROPERTIES,
    annotation::FURTHER_PROPERTIES,
    annotation::SERVICE_ACCOUNT,
    annotation::CERTIFICATE_PROVIDER,
    annotation::OPERATOR_CONDITION,
    annotation::ROLES_NAMED_AFTER,
    annotation::CONFIG_DIGEST,
];

/// The desired content of a revision.
#[derive(Debug, Clone, Copy)]
pub struct DesiredRevision<'a> {
    /// The extension of the revision.
    pub extension: &'a ClusterExtension,
    /// The account that applies it, if known.
    pub account: Option<&'a AccountName>,
    /// The bundle of the revision.
    pub bundle: &'a BundleIdentity,
    /// The catalog of the bundle; empty if unknown.
    pub catalog: &'a str,
    /// The properties in the bundle's files, a JSON list.
    pub properties: Option<&'a str>,
    /// Further properties, see [`annotation::FURTHER_PROPERTIES`].
    pub further_properties: Option<&'a str>,
    /// The provider of its certificates, if it needs any.
    pub certificates: Option<CertificateProvider>,
    /// The name of the OperatorCondition that the operator reads.
    pub operator_condition: Option<&'a str>,
    /// The bundle after which its roles are named, if it is another one.
    pub roles_named_after: Option<&'a str>,
    /// The digest of the configuration, if there is one.
    pub config_digest: Option<&'a str>,
    /// By whom its image is signed and which rules ask for that, if any does. A revision keeps it from its creation.
    pub verified: Option<&'a str>,
    /// The objects.
    pub groups: &'a [Group],
    /// The existing objects that it may take over.
    pub adopt: CollisionProtection,
    /// The namespace of the Secrets with the objects.
    pub system_namespace: &'a str,
}

/// The change of the revisions.
#[derive(Debug, Clone, PartialEq)]
pub enum RevisionPlan {
    /// The newest revision is the wanted one.
    Keep {
        /// The Secrets it refers to.
        secrets: Vec<ContentSecret>,
    },
    /// The newest revision has the wanted objects; only its metadata changes.
    Patch {
        /// The revision's name.
        name: String,
        /// The merge patch. It requires the revision that was seen.
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
    /// Archived revisions to delete first.
    pub remove: Vec<Arc<ClusterObjectSet>>,
}

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The revision's name does not fit into a label.
    #[error(
        "the ClusterExtension's name is too long: its revision {0:?} has to fit the {max} characters of a label",
        max = label::MAX_VALUE
    )]
    Name(String),
    /// The content does not fit into Secrets.
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl StageError for PlanError {
    fn severity(&self) -> Severity {
        Severity::Terminal
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }
}

/// Plans the change from the newest revision to the wanted one. An extension without revisions takes over the newest
/// one that an earlier extension of its name left under the same account, or that was restored, if its content is
/// exactly the wanted one.
///
/// # Errors
/// The objects do not fit into a revision.
pub fn plan(
    wanted: &DesiredRevision<'_>,
    revisions: &Revisions,
    others: &ConflictingSets,
) -> Result<RevisionPlan, PlanError> {
    let left = wanted
        .account
        .and_then(|account| others.left_behind(wanted.extension.name(), account));
    if let Some(latest) = revisions.latest().or(left) {
        let packed = pack(latest.name(), wanted.system_namespace, wanted.groups)?;
        let same = revision(wanted, latest.name(), latest.spec.revision, packed.phases);
        if holds_the_same(latest, &same) {
            let secrets = packed.secrets;
            return Ok(if says_the_same(latest, &same) {
                RevisionPlan::Keep { secrets }
            } else {
                let mut patch = change(latest, &same);
                let annotations = patch.pointer_mut("/metadata/annotations");
                let annotations = annotations.and_then(Value::as_object_mut);
                if let Some(annotations) = annotations.filter(|_| revisions.latest().is_none()) {
                    annotations.insert(annotation::RESTORED.to_owned(), "true".into());
                }
                RevisionPlan::Patch {
                    name: latest.name().to_owned(),
                    patch: Box::new(patch),
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
/// The objects do not fit into a revision.
pub(crate) fn create(
    wanted: &DesiredRevision<'_>,
    revisions: &Revisions,
    others: &ConflictingSets,
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

/// The first number after the newest revision whose name is free.
fn free_number(extension: &ClusterExtension, revisions: &Revisions, others: &ConflictingSets) -> i64 {
    let newest = revisions.latest().map_or(0, |latest| latest.spec.revision);
    let mut number = newest.max(others.highest).saturating_add(1);
    while number < i64::MAX && others.names.contains(&format!("{}-{number}", extension.name())) {
        number += 1;
    }
    number
}

/// Archived revisions beyond those to keep.
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

/// Whether the immutable part of a revision is as wanted.
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

/// Whether the collision protection of a revision is as wanted. A revision from a Helm release may take over more, to
/// get its own objects, and is not replaced for that alone.
fn protects_the_same(latest: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    let migrated = latest.label(label::MIGRATED_FROM_HELM).is_some();
    latest.spec.collision_protection == wanted.spec.collision_protection
        || (migrated && wanted.spec.collision_protection == CollisionProtection::Prevent)
}

/// Whether an existing revision with the name of a new one is that revision, created by an interrupted run. One from a
/// Helm release is created without an account, which is set later.
pub fn is_same_revision(found: &ClusterObjectSet, wanted: &ClusterObjectSet) -> bool {
    controlling_extension(&found.metadata) == controlling_extension(&wanted.metadata)
        && found.spec.revision == wanted.spec.revision
        && if wanted.label(label::MIGRATED_FROM_HELM).is_some() {
            has_the_content(found, wanted)
        } else {
            holds_the_same(found, wanted)
        }
}

/// A merge patch from a revision to the wanted one. It requires the revision that was seen.
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
    let mut keys: Vec<&str> = OURS.iter().chain(&INHERITED).copied().collect();
    let reference = annotation::BUNDLE_REFERENCE;
    if latest.annotation(reference) != wanted.annotation(reference) {
        // The signer of another image.
        keys.push(annotation::BUNDLE_VERIFIED);
    }
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

/// A merge patch that copies the options of the teardown to a revision; `None` if it has them. It requires the revision
/// that was read.
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
    annotated(set, &differing)
}

/// A merge patch that pauses or resumes a revision as its extension says, whatever its other annotations are; `None` if
/// it is as wanted. An invalid value does not pause.
pub fn inherit_pause(extension: &ClusterExtension, set: &ClusterObjectSet) -> Option<Value> {
    let is_known = Policy::writes(|key| extension.annotation(key)).is_ok();
    let wanted = extension.annotation(user::PAUSED).filter(|_| is_known);
    let differing =
        (wanted != set.annotation(user::PAUSED)).then(|| (user::PAUSED.to_owned(), json!(wanted)));
    annotated(set, &differing.into_iter().collect())
}

/// A merge patch of annotations of a revision. It requires the revision that was seen.
fn annotated(set: &ClusterObjectSet, annotations: &Map<String, Value>) -> Option<Value> {
    (!annotations.is_empty()).then(|| {
        json!({"metadata": {
            "uid": set.metadata.uid,
            "resourceVersion": set.metadata.resource_version,
            "annotations": annotations,
        }})
    })
}

/// Whether the mutable part of a revision is as wanted.
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

fn revision(wanted: &DesiredRevision<'_>, name: &str, number: i64, phases: Vec<Phase>) -> ClusterObjectSet {
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
        (annotation::ROLES_NAMED_AFTER, wanted.roles_named_after),
        (annotation::CONFIG_DIGEST, wanted.config_digest),
        (annotation::BUNDLE_RELEASE, metadata.release.as_deref()),
        (annotation::PROPERTIES, wanted.properties),
        (
            annotation::CATALOG,
            Some(wanted.catalog).filter(|catalog| !catalog.is_empty()),
        ),
        (annotation::FURTHER_PROPERTIES, wanted.further_properties),
        (annotation::BUNDLE_VERIFIED, wanted.verified),
    ];
    let inherited = INHERITED.map(|key| (key, extension.annotation(key)));
    annotations.extend(
        optional
            .into_iter()
            .chain(inherited)
            .filter_map(|(key, value)| Some(text((key, value?)))),
    );
    set.metadata.annotations = Some(annotations);
    set.metadata.owner_references = Some(vec![extension.controller_reference()]);
    set
}

#[cfg(test)]
mod tests;
