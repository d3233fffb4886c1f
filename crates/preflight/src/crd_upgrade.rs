//! Whether a changed custom resource definition breaks stored objects.
//!
//! [`compare`] compares the definition on the cluster with its replacement:
//!
//! - the definitions as a whole: removed fields and versions, a changed scope;
//! - each version with itself: stricter constraints;
//! - the served versions of the new definition with one another, because without a conversion webhook the API server
//!   returns the same stored object as each of them. Findings that the old definition already has are not reported.
//!
//! Findings come in a fixed order. [`check_all`] compares all objects that are going to be applied. [`existing`]
//! validates the existing objects against the new schemas. [`migration`] decides how stored versions may be removed,
//! and [`rollback`] whether definitions may return to an older revision.

mod budget;
pub mod existing;
pub mod migration;
mod policy;
mod property;
pub mod rollback;
mod schema;
mod unhandled;
mod validation;
mod version;

use std::collections::BTreeSet;
use std::fmt;

use olm_api::text::escape;
use serde_json::Value;

pub use policy::{Level, Policy, PolicyError};
use schema::{Node, flatten, is_comparable};
pub use version::RemovedField;

/// A check of a changed definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the checks")]
pub enum Check {
    ExistingFieldRemoval,
    Scope,
    StoredVersionRemoval,
    ServedVersionRemoval,
    Type,
    Default,
    Enum,
    Required,
    Minimum,
    MinItems,
    MinLength,
    MinProperties,
    Maximum,
    MaxItems,
    MaxLength,
    MaxProperties,
    Pattern,
    Nullable,
    OneOf,
    Description,
    Unhandled,
    ExistingObjects,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 22] = [
        Self::ExistingFieldRemoval,
        Self::Scope,
        Self::StoredVersionRemoval,
        Self::ServedVersionRemoval,
        Self::Type,
        Self::Default,
        Self::Enum,
        Self::Required,
        Self::Minimum,
        Self::MinItems,
        Self::MinLength,
        Self::MinProperties,
        Self::Maximum,
        Self::MaxItems,
        Self::MaxLength,
        Self::MaxProperties,
        Self::Pattern,
        Self::Nullable,
        Self::OneOf,
        Self::Description,
        Self::Unhandled,
        Self::ExistingObjects,
    ];

    /// The name in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExistingFieldRemoval => "existingFieldRemoval",
            Self::Scope => "scope",
            Self::StoredVersionRemoval => "storedVersionRemoval",
            Self::ServedVersionRemoval => "servedVersionRemoval",
            Self::Type => "type",
            Self::Default => "default",
            Self::Enum => "enum",
            Self::Required => "required",
            Self::Minimum => "minimum",
            Self::MinItems => "minItems",
            Self::MinLength => "minLength",
            Self::MinProperties => "minProperties",
            Self::Maximum => "maximum",
            Self::MaxItems => "maxItems",
            Self::MaxLength => "maxLength",
            Self::MaxProperties => "maxProperties",
            Self::Pattern => "pattern",
            Self::Nullable => "nullable",
            Self::OneOf => "oneOf",
            Self::Description => "description",
            Self::Unhandled => "unhandled",
            Self::ExistingObjects => "existingObjects",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The value is new.
    Addition,
    /// The value is gone.
    Removal,
    /// The value differs.
    Other,
}

/// The location of a finding in a definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLocation {
    /// The definition as a whole.
    Definition,
    /// A property in the schema of a version, or between two versions (`v1alpha1 -> v1`).
    Property {
        /// The version or the two versions.
        version: String,
        /// The path in the schema, `^.spec.field`.
        path: String,
    },
}

/// One unsafe change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The location in the definition.
    pub location: FindingLocation,
    /// The check that found it.
    pub check: Check,
    /// The message for users.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            FindingLocation::Definition => write!(formatter, "{}: {}", self.check, self.message),
            FindingLocation::Property { version, path } => {
                write!(formatter, "{version}: {path}: {}: {}", self.check, self.message)
            }
        }
    }
}

/// The unsafe changes when the definition `new` replaces `old`.
#[must_use]
pub fn compare(old: &Value, new: &Value, policy: &Policy) -> Vec<Finding> {
    let schemas = |definition| version::schemas(definition).map(|(_, schema)| schema);
    if ![old, new]
        .into_iter()
        .all(|definition| is_comparable(schemas(definition)))
    {
        let too_large = Finding {
            location: FindingLocation::Definition,
            check: Check::Unhandled,
            message: "the schemas are too large to be compared".to_owned(),
        };
        return Vec::from([too_large]);
    }
    let mut findings = version::definition_findings(old, new);
    findings.retain(|finding| policy.reports(finding.check, Change::Removal));
    for (name, schema) in version::schemas(old) {
        if let Some(replacement) = version::schema(new, name) {
            findings.extend(schema_findings(name, schema, replacement, policy));
        }
    }
    findings.extend(served_findings(old, new, policy));
    findings
}

/// The unsafe changes of one node of a schema, apart from its properties and items.
#[must_use]
pub fn compare_node(old: &Value, new: &Value, policy: &Policy) -> Vec<(Check, String)> {
    let mut found = property::findings(old, new);
    found.retain(|(check, change, _)| policy.reports(*check, *change));
    // A removed or added node has no further findings.
    found.dedup_by_key(|(check, ..)| *check);
    found
        .into_iter()
        .map(|(check, _, message)| (check, message))
        .collect()
}

fn schema_findings(version: &str, old: &Value, new: &Value, policy: &Policy) -> Vec<Finding> {
    let replacements = flatten(new);
    let nothing = Value::Null;
    let mut findings = Vec::new();
    for (location, Node { path, schema }) in flatten(old) {
        let replacement = replacements.get(&location).map_or(&nothing, |node| node.schema);
        for (check, message) in compare_node(schema, replacement, policy) {
            let location = FindingLocation::Property {
                version: version.to_owned(),
                path: path.clone(),
            };
            findings.push(Finding {
                location,
                check,
                message,
            });
        }
    }
    findings
}

/// Findings between the served versions of the new definition that did not exist between those of the old one.
fn served_findings(old: &Value, new: &Value, policy: &Policy) -> Vec<Finding> {
    if version::is_converted(new) {
        return Vec::new();
    }
    let known: BTreeSet<Finding> = served_pairs(old, policy).into_iter().collect();
    served_pairs(new, policy)
        .into_iter()
        .filter(|finding| !known.contains(finding))
        .collect()
}

fn served_pairs(definition: &Value, policy: &Policy) -> Vec<Finding> {
    let served = version::served_ascending(definition);
    let mut findings = Vec::new();
    for (index, (older, old)) in served.iter().enumerate() {
        for (newer, new) in served.iter().skip(index + 1) {
            findings.extend(schema_findings(&format!("{older} -> {newer}"), old, new, policy));
        }
    }
    findings
}

/// A definition that cannot be replaced, or whose findings are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// The change breaks stored objects.
    #[error("validating upgrade for CRD {definition:?}: {}", lines(.findings))]
    Change {
        /// The definition's name.
        definition: String,
        /// The findings.
        findings: Vec<Finding>,
    },
    /// The definition on the cluster could not be read.
    #[error("getting existing resource for CRD {definition:?}: {reason}")]
    Unknown {
        /// The definition's name.
        definition: String,
        /// The error of the read.
        reason: String,
    },
}

fn lines(findings: &[Finding]) -> String {
    let lines = findings
        .iter()
        .map(|finding| escape(&finding.to_string()).into_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// The findings in order, one a line. Lines beyond `limit` bytes are counted.
#[must_use]
pub fn summary(found: &[Unsafe], limit: usize) -> String {
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    within(&all.join("\n"), limit)
}

/// The first lines of a text that fit `limit` bytes, at least one. The others are counted.
#[must_use]
pub fn within(all: &str, limit: usize) -> String {
    let mut text = String::new();
    let mut lines = all.lines();
    while let Some(line) = lines.next() {
        if !text.is_empty() && text.len() + line.len() > limit {
            return format!("{text}\nand {} more", lines.count() + 1);
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
    text
}

/// The name of a custom resource definition; `None` for other objects.
#[must_use]
pub fn definition_name(object: &Value) -> Option<&str> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    (text("/kind") == Some("CustomResourceDefinition")
        && text("/apiVersion") == Some("apiextensions.k8s.io/v1"))
    .then(|| text("/metadata/name").unwrap_or_default())
}

/// Group, a served version and plural, to list the objects of a definition; `None` when no version is served.
#[must_use]
pub fn resource(definition: &Value) -> Option<(&str, &str, &str)> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
    let mut served = version::served_names(definition);
    let served = served
        .find(|name| version::storage(definition) == Some(*name))
        .or_else(|| version::served_names(definition).next())?;
    Some((text("/spec/group")?, served, text("/spec/names/plural")?))
}

/// Compares every custom resource definition among `objects` with the one on the cluster, if any.
///
/// `existing` returns the definition with a name on the cluster, `None` if there is none, or the error of the read.
pub fn check_all<'o, 'a>(
    objects: impl IntoIterator<Item = &'o Value>,
    policy: &Policy,
    existing: impl Fn(&str) -> Result<Option<&'a Value>, String>,
) -> Vec<Unsafe> {
    let mut found = Vec::new();
    for object in objects {
        let Some(name) = definition_name(object) else {
            continue;
        };
        let definition = name.to_owned();
        match existing(&definition) {
            Ok(None) => {}
            Err(reason) => found.push(Unsafe::Unknown { definition, reason }),
            Ok(Some(old)) => {
                let findings = compare(old, object, policy);
                if !findings.is_empty() {
                    found.push(Unsafe::Change { definition, findings });
                }
            }
        }
    }
    found
}

/// Adds findings of another check about one definition, if the policy reports them.
pub fn add(found: &mut Vec<Unsafe>, name: &str, more: Vec<Finding>, policy: &Policy) {
    let mut more = more;
    more.retain(|finding| policy.reports(finding.check, Change::Other));
    if more.is_empty() {
        return;
    }
    let known = found.iter_mut().find_map(|one| match one {
        Unsafe::Change { definition, findings } if definition == name => Some(findings),
        _ => None,
    });
    match known {
        Some(findings) => findings.extend(more),
        None => found.push(Unsafe::Change {
            definition: name.to_owned(),
            findings: more,
        }),
    }
}

/// Removes the findings of a check about one definition that a planned action fixes.
pub fn settle(found: &mut Vec<Unsafe>, name: &str, check: Check) {
    found.retain_mut(|one| match one {
        Unsafe::Change { definition, findings } if definition == name => {
            findings.retain(|finding| finding.check != check);
            !findings.is_empty()
        }
        _ => true,
    });
}

/// Splits findings into errors, which stop the change, and warnings. A definition that cannot be read is an error.
#[must_use]
pub fn weigh(found: Vec<Unsafe>, policy: &Policy) -> (Vec<Unsafe>, Vec<Unsafe>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for one in found {
        match one {
            Unsafe::Unknown { .. } => errors.push(one),
            Unsafe::Change { definition, findings } => {
                let (warned, stopping): (Vec<_>, Vec<_>) = findings
                    .into_iter()
                    .partition(|finding| policy.warn.contains(&finding.check));
                for (findings, list) in [(stopping, &mut errors), (warned, &mut warnings)] {
                    if !findings.is_empty() {
                        let definition = definition.clone();
                        list.push(Unsafe::Change { definition, findings });
                    }
                }
            }
        }
    }
    (errors, warnings)
}
