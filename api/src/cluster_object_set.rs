//! ClusterObjectSet: one revision of an extension's objects, applied in phases.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

crate::kind::kind! {
    /// One revision: a set of objects that is applied phase by phase, watched, and archived by its successor.
    ClusterObjectSet, "clusterobjectsets", ClusterObjectSetSpec, ClusterObjectSetStatus
}

/// The objects and how they are rolled out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterObjectSetSpec {
    /// `Archived` removes the objects and is final.
    pub lifecycle_state: LifecycleState,
    /// The revision's number, from 1; among revisions of one owner the higher is the newer.
    pub revision: i64,
    /// The phases in order; immutable once they are set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Minutes after which a rollout that is not complete is reported as failed; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_minutes: Option<i32>,
    /// The conditions under which an object is ready, so that the next phase may begin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub progression_probes: Vec<ProgressionProbe>,
    /// The treatment of existing objects; phases and objects may override it.
    pub collision_protection: CollisionProtection,
}

/// Whether a revision is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifecycleState {
    /// Applied and kept.
    #[default]
    Active,
    /// Removed in reverse order, except objects that a newer revision owns.
    Archived,
}

/// The treatment of existing objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollisionProtection {
    /// Never change them.
    #[default]
    Prevent,
    /// Adopt those without a controller.
    IfNoController,
    /// Adopt all.
    None,
}

/// Objects that are applied together after the phases before are complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phase {
    /// A DNS-1123 label, unique in the set.
    pub name: String,
    /// At most 50.
    pub objects: Vec<PhaseObject>,
    /// Overrides the set's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_protection: Option<CollisionProtection>,
}

/// One object: exactly one of `object` and `ref` is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PhaseObject {
    /// The object itself; a map, so that no field is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Map<String, Value>>,
    /// The place of the object.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<ObjectReference>,
    /// Overrides the phase's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_protection: Option<CollisionProtection>,
}

/// A key of an immutable Secret that contains an object as JSON, possibly gzipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    /// The Secret's name.
    pub name: String,
    /// The Secret's namespace; empty: the namespace the managers run in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The key in its data.
    pub key: String,
}

/// The conditions under which the selected objects are ready.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressionProbe {
    /// The objects that are probed.
    pub selector: ProbeSelector,
    /// The assertions, which must all hold.
    pub assertions: Vec<Assertion>,
}

/// The ways to select objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectorType {
    /// Selection by API group and kind.
    #[default]
    GroupKind,
    /// Selection by labels.
    Label,
}

/// The objects of a probe: a union over `type`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeSelector {
    /// The member that is set.
    #[serde(rename = "type")]
    pub selector_type: SelectorType,
    /// Present exactly when `type` is `GroupKind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_kind: Option<GroupKind>,
    /// Present exactly when `type` is `Label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelSelector>,
}

/// An API group, empty for the core group, and a kind in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupKind {
    /// The API group; empty: core.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// The kinds of assertion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AssertionType {
    /// A status condition has a value.
    #[default]
    ConditionEqual,
    /// Two fields are equal.
    FieldsEqual,
    /// A field has a value.
    FieldValue,
}

/// An assertion: a union over `type`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assertion {
    /// The member that is set.
    #[serde(rename = "type")]
    pub assertion_type: AssertionType,
    /// Present exactly when `type` is `ConditionEqual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_equal: Option<ConditionEqual>,
    /// Present exactly when `type` is `FieldsEqual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields_equal: Option<FieldsEqual>,
    /// Present exactly when `type` is `FieldValue`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_value: Option<FieldValue>,
}

/// A status condition must have this value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConditionEqual {
    /// The condition's type.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True` or `False`.
    pub status: String,
}

/// Two fields, as paths separated by dots, which must be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldsEqual {
    /// The first path.
    pub field_a: String,
    /// The other.
    pub field_b: String,
}

/// A field, as a path separated by dots, must have this value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldValue {
    /// The path.
    pub field_path: String,
    /// The value, compared as text.
    pub value: String,
}

/// The state of the set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterObjectSetStatus {
    /// The generation of the object that the conditions are about; -1, by the schema's default, before the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// See [`crate::conditions`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The content of each phase when it was first read; written once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed_phases: Vec<ObservedPhase>,
}

/// The content of a phase when it was first read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObservedPhase {
    /// The phase's name.
    pub name: String,
    /// `sha256:` and the digest of its objects in hexadecimal.
    pub digest: String,
}
