//! The dependencies of a bundle on other bundles.

use std::fmt;

use serde_json::Value;

use super::members::{member, plain_text};
use super::properties::Property;
use crate::csv::ApiDescription;

/// Property types that declare a dependency.
pub const DEPENDENCY_PROPERTIES: [&str; 3] = ["olm.package.required", "olm.gvk.required", "olm.constraint"];

/// The place of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredIn {
    /// A property of the bundle.
    Property,
    /// An entry of `metadata/dependencies.yaml`.
    DependenciesFile,
    /// A required API of the ClusterServiceVersion.
    ClusterServiceVersion,
}

/// A dependency of a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Dependency {
    /// The place of the declaration.
    pub declared_in: DeclaredIn,
    /// The type: `olm.package`, `olm.gvk.required`, `olm.constraint`, …
    pub kind: String,
    /// The value, by type.
    pub value: Value,
}

impl Dependency {
    /// The type of the equivalent property in a catalog.
    #[must_use]
    pub fn property_kind(&self) -> &str {
        match self.kind.as_str() {
            "olm.package" => "olm.package.required",
            "olm.gvk" => "olm.gvk.required",
            other => other,
        }
    }

    /// The value of that property. A package has the spelling of catalogs.
    #[must_use]
    pub fn property_value(&self) -> Value {
        match (self.kind.as_str(), self.package(), self.range()) {
            ("olm.package", Some(package), Some(range)) => {
                serde_json::json!({"packageName": package, "versionRange": range})
            }
            _ => self.value.clone(),
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }

    fn package(&self) -> Option<&str> {
        self.text("packageName").or_else(|| self.text("name"))
    }

    fn range(&self) -> Option<&str> {
        self.text("versionRange").or_else(|| self.text("version"))
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(message) = self.text("failureMessage") {
            return write!(formatter, "{message}");
        }
        if let Some(package) = self.package() {
            let range = self.range().unwrap_or("any version");
            return write!(formatter, "package {package} ({range})");
        }
        match (self.text("kind"), self.text("version")) {
            (Some(kind), Some(version)) => {
                let group = self.text("group").filter(|group| !group.is_empty());
                write!(
                    formatter,
                    "API {kind} {}{}{version}",
                    group.unwrap_or_default(),
                    group.map_or("", |_| "/")
                )
            }
            _ => write!(formatter, "{}", self.value),
        }
    }
}

/// `metadata/dependencies.yaml` is not a list of dependencies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DependencyError {
    /// `dependencies` is not a list.
    #[error("the dependencies are not a list")]
    NotAList,
    /// An entry is not a mapping, or has no type.
    #[error("dependency {0} has no type")]
    NoType(usize),
}

/// The entries of a parsed `metadata/dependencies.yaml`.
pub fn from_file(document: &Value) -> Result<Vec<Dependency>, DependencyError> {
    let list = match document {
        Value::Null => return Ok(Vec::new()),
        Value::Object(fields) => member(fields, "dependencies"),
        _ => return Err(DependencyError::NotAList),
    };
    let entries = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(DependencyError::NotAList),
    };
    let read = |(entry, position): (&Value, usize)| {
        let entry = entry.as_object().ok_or(DependencyError::NoType(position))?;
        let kind = plain_text(member(entry, "type")).filter(|kind| !kind.is_empty());
        let kind = kind.ok_or(DependencyError::NoType(position))?;
        let value = member(entry, "value").cloned().unwrap_or_default();
        Ok(Dependency {
            declared_in: DeclaredIn::DependenciesFile,
            kind,
            value,
        })
    };
    entries.iter().zip(1..).map(read).collect()
}

/// The dependencies among a bundle's properties.
pub(crate) fn from_properties(properties: &[Property]) -> impl Iterator<Item = Dependency> + '_ {
    let declares = |property: &&Property| DEPENDENCY_PROPERTIES.contains(&property.kind.as_str());
    properties.iter().filter(declares).map(|property| Dependency {
        declared_in: DeclaredIn::Property,
        kind: property.kind.clone(),
        value: property.value.clone(),
    })
}

/// The required APIs of a ClusterServiceVersion. Catalogs have them as `olm.gvk.required`.
pub(crate) fn from_required_apis(required: &[ApiDescription]) -> impl Iterator<Item = Dependency> + '_ {
    required.iter().map(|api| {
        let group = match api.name.split_once('.') {
            Some((_, group)) if api.group.is_empty() => group,
            _ => api.group.as_str(),
        };
        Dependency {
            declared_in: DeclaredIn::ClusterServiceVersion,
            kind: "olm.gvk.required".to_owned(),
            value: serde_json::json!({"group": group, "version": api.version, "kind": api.kind}),
        }
    })
}
