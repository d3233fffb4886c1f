//! The findings of a set of rules, in the texts of operator tooling.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use olm_fbc::check::Severity;

/// One finding of a set of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFinding {
    /// The kind of the finding, by its name in tooling: `CSVFileNotValid`.
    pub kind: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The faulty field, if any.
    pub field: Option<String>,
    /// The faulty value or object, if any; may be empty.
    pub value: Option<String>,
    /// The fault.
    pub detail: String,
    /// The position of the faulty object in the manifests, if any.
    pub object: Option<usize>,
    /// The remedy, unless the finding implies it.
    pub hint: Option<&'static str>,
}

impl RuleFinding {
    pub(super) fn new(severity: Severity, kind: &'static str, value: Option<String>, detail: String) -> Self {
        Self {
            kind,
            severity,
            field: None,
            value,
            detail,
            object: None,
            hint: None,
        }
    }

    /// About the ClusterServiceVersion of this name.
    pub(super) fn csv(severity: Severity, name: &str, detail: impl fmt::Display) -> Self {
        let value = Some(String::new());
        Self::new(severity, "CSVFileNotValid", value, format!("({name}) {detail}"))
    }

    /// About the bundle or an object of this name.
    pub(super) fn failed(severity: Severity, name: &str, detail: impl Into<String>) -> Self {
        Self::new(severity, "ValidationFailed", Some(name.to_owned()), detail.into())
    }

    pub(super) fn bundle(severity: Severity, value: &str, detail: impl Into<String>) -> Self {
        Self::new(severity, "BundleNotValid", Some(value.to_owned()), detail.into())
    }

    pub(super) fn at(mut self, object: usize) -> Self {
        self.object = Some(object);
        self
    }

    pub(super) fn hinted(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

impl fmt::Display for RuleFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field, value, detail, ..
        } = self;
        formatter.write_str(match self.severity {
            Severity::Error => "Error: ",
            Severity::Warning => "Warning: ",
        })?;
        match (field, value) {
            (Some(field), Some(value)) => write!(formatter, "Field {field}, Value {value}: {detail}"),
            (Some(field), None) => write!(formatter, "Field {field}: {detail}"),
            (None, Some(value)) => write!(formatter, "Value {value}: {detail}"),
            (None, None) => write!(formatter, ": {detail}"),
        }
    }
}

/// Options of the sets of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The Kubernetes version that the bundle is for, `1.25` for example; empty when any.
    pub kubernetes_version: String,
    /// The categories that are allowed instead of the standard ones.
    pub categories: Option<BTreeSet<String>>,
    /// The Dockerfile of the bundle, for `community`.
    pub dockerfile: Option<String>,
    /// For `multiarch`: the platforms of each image, such as `linux/amd64`, or the reason why they are unknown. Other
    /// images are not checked.
    pub platforms: BTreeMap<String, Result<BTreeSet<String>, String>>,
}
