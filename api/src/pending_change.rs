//! PendingChange: a change of an extension that waits for an approval, and the approval.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use olm_text::escape;
use serde::{Deserialize, Serialize};

use crate::conditions::prefix;

crate::kind::kind! {
    /// A change of an extension that a user approves or rejects. operator-controller creates it.
    PendingChange, "pendingchanges", PendingChangeSpec, PendingChangeStatus
}

/// Hexadecimal digits of the digest in the name of a PendingChange.
const NAME_DIGITS: usize = 12;

/// The name of the PendingChange of an extension and a digest.
pub fn name(extension: &str, digest: &str) -> String {
    let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
    let digits: String = digits.chars().take(NAME_DIGITS).collect();
    format!("{extension}-{digits}")
}

/// The change, which never alters, and the decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingChangeSpec {
    /// The name of the ClusterExtension.
    pub extension: String,
    /// The UID: another one of its name needs an approval of its own.
    #[serde(rename = "extensionUID")]
    pub extension_uid: String,
    /// The digest of the plan to approve, as `olm plan` prints it.
    pub digest: String,
    /// The version of the newest revision, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The version to install.
    pub to: String,
    /// The bundle to install.
    pub bundle: String,
    /// The image, by digest.
    pub image: String,
    /// The account that applies it, `NAMESPACE/NAME`.
    pub account: String,
    /// The kind of change: `Install`, `Content`, `Patch`, `Minor` or `Major`.
    pub class: String,
    /// Whether the bundle grants rights that it did not grant before.
    pub widens_rights: bool,
    /// The severity of the changes of definitions: `None`, `Safe` or `Breaking`.
    pub definitions: String,
    /// The effects of the change, a line each.
    pub summary: Vec<String>,
    /// The decision; none until a user decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// A decision and its author. An admission policy holds the approver equal to the user who writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    /// Approved or rejected.
    pub verdict: DecisionOutcome,
    /// The user who decided, as the API server knows them.
    pub approver: String,
    /// The reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The outcome of a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecisionOutcome {
    /// The change may begin.
    Approved,
    /// The change may not begin.
    #[default]
    Rejected,
}

/// The state of the change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingChangeStatus {
    /// The generation of the object that the conditions are about; -1, by the schema's default, before the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions. [`APPLIED`] is the state of the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The condition of a PendingChange: whether the change has been applied.
pub const APPLIED: &str = "Applied";

/// The longest text of a field, in bytes.
const MAX_TEXT: usize = 1024;

/// A text of a bundle as the fields of a PendingChange hold it.
pub fn text(text: &str) -> String {
    prefix(&escape(text), MAX_TEXT).to_owned()
}

impl PendingChange {
    /// Whether it leads to the bundle of this name.
    pub fn is_of(&self, bundle: &str) -> bool {
        self.spec.bundle == text(bundle)
    }

    /// Whether the change is no longer wanted, so that an approval has no effect.
    pub fn is_void(&self) -> bool {
        crate::conditions::find(self.conditions(), APPLIED)
            .is_some_and(|applied| applied.reason == crate::conditions::reason::VOID)
    }

    /// Whether the change has been made.
    pub fn is_applied(&self) -> bool {
        crate::conditions::is_true(self.conditions(), APPLIED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_extension_and_digest() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        assert_eq!(name("ext", &digest), "ext-0123456789ab");
        let longest = "a".repeat(crate::names::MAX_EXTENSION_NAME as usize);
        assert!(name(&longest, &digest).len() <= 253);
    }
}
