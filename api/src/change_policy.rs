//! ChangePolicy: which changes of extensions need an approval, and when changes may begin.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::{Deserialize, Serialize};

crate::kind::kind! {
    /// Rules for the changes of the extensions that it selects.
    ChangePolicy, "changepolicies", ChangePolicySpec, ChangePolicyStatus
}

/// The rules. If several policies select an extension, all of them apply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangePolicySpec {
    /// Selects ClusterExtensions by their labels; empty: all.
    pub selector: LabelSelector,
    /// The rules for approvals.
    pub approval: ApprovalRules,
    /// The windows in which changes may begin; empty: always.
    pub windows: Vec<WindowSpec>,
    /// Whether no change begins at all.
    pub freeze: bool,
}

/// The changes that need an approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalRules {
    /// Applies to every kind of change that is not named.
    pub default: ApprovalMode,
    /// The mode for a first installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<ApprovalMode>,
    /// The mode for another patch version, and for other content of the same version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<ApprovalMode>,
    /// The mode for another minor version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<ApprovalMode>,
    /// The mode for another major version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<ApprovalMode>,
    /// The mode for a change after which the bundle grants rights that it did not grant before, whatever its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub widened_rights: Option<ApprovalMode>,
}

/// Whether a change waits for an approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApprovalMode {
    /// The change needs no approval.
    #[default]
    Automatic,
    /// The change waits for an approval.
    Manual,
}

/// A recurring window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowSpec {
    /// The time at which it opens: minute, hour, day of the month, month and day of the week, in cron format.
    pub schedule: String,
    /// The time for which it stays open, in hours and minutes: `4h`, `90m`, `1h30m`.
    pub duration: String,
    /// The IANA name of the time zone of the schedule; `UTC` by the schema's default.
    pub time_zone: String,
}

/// Whether the policy can be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangePolicyStatus {
    /// The generation of the object that the conditions are about; -1, by the schema's default, before the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// See [`crate::conditions`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
