//! An OperatorGroup as it is on the wire: the fields that the rules read.

use olm_resolve::Selector;
use serde::Deserialize;
use serde_json::Value;

use crate::csv::{Metadata, null_is_default};

/// An OperatorGroup.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct OperatorGroup {
    /// Name, UID, annotations.
    pub metadata: Metadata,
    /// The spec, written by a user.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: OperatorGroupSpec,
    /// The status, written by OLM.
    #[serde(deserialize_with = "null_is_default")]
    pub status: OperatorGroupStatus,
}

/// Spec of an OperatorGroup.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OperatorGroupSpec {
    /// The namespaces, by label; only where none is named.
    pub selector: Option<Selector>,
    /// The namespaces, by name.
    #[serde(deserialize_with = "null_is_default")]
    pub target_namespaces: Vec<String>,
    /// The account that members are installed with; empty for OLM's own.
    pub service_account_name: String,
    /// Whether OLM leaves the annotation `olm.providedAPIs` alone.
    #[serde(rename = "staticProvidedAPIs")]
    pub static_provided_apis: bool,
    /// `Default` or `TechPreviewUnsafeFailForward`.
    pub upgrade_strategy: String,
}

/// Status of an OperatorGroup.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OperatorGroupStatus {
    /// The namespaces; `None` before the first pass.
    pub namespaces: Option<Vec<String>>,
    /// The account that members are installed with, as it is written.
    pub service_account_ref: Option<Value>,
    /// Conditions as they are written.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Value>,
}

impl OperatorGroup {
    /// The fields that the rules read of an object on the wire.
    ///
    /// # Errors
    /// When a field has another type.
    pub fn read(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    /// The namespaces in its status.
    pub fn namespaces(&self) -> &[String] {
        self.status.namespaces.as_deref().unwrap_or_default()
    }

    /// The value of the annotation `olm.targetNamespaces` of its members: the namespaces, sorted.
    pub fn targets_annotation(&self) -> String {
        let mut sorted = self.namespaces().to_vec();
        sorted.sort();
        sorted.join(",")
    }
}
