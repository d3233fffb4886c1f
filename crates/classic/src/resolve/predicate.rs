//! Requirements of a bundle on another one. One bundle must satisfy the whole of a constraint, also of a compound one.

use olm_constraint::cel::{Budget, Program, Value as CelValue};
use olm_constraint::{Constraint, PackageConstraint};
use olm_fbc::Gvk;
use olm_version::blang::{Range, parse_version};
use olm_version::quoted;
use serde_json::Value;

use super::entry::{Entry, gvk};
use crate::cluster::text;
use crate::registry::TypedValue;

/// Greatest nesting depth of constraints.
const MOST_DEPTH: usize = 64;

/// A requirement that an entry satisfies or not.
#[derive(Debug, Clone)]
pub(super) enum Predicate {
    /// It provides the API.
    Gvk(Gvk),
    /// It is of the package, with a version in the range as it is written.
    Package(String, String, Range),
    /// It has the label.
    Label(String),
    /// All of these hold.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// None of these holds.
    Not(Vec<Self>),
    /// The rule holds; with its text and message.
    Cel(Program, String, String),
}

/// Requirements in the properties of an entry.
///
/// # Errors
/// When a requirement cannot be read.
pub(super) fn requirements(entry: &Entry) -> Result<Vec<Predicate>, String> {
    let found = entry.properties.iter().map(requirement);
    found.filter_map(Result::transpose).collect()
}

fn requirement(property: &TypedValue) -> Result<Option<Predicate>, String> {
    let value = || serde_json::from_str::<Value>(&property.value).map_err(|error| error.to_string());
    Ok(Some(match property.kind.as_str() {
        "olm.gvk.required" => Predicate::Gvk(gvk(&value()?)),
        "olm.package.required" => {
            let value = value()?;
            package(text(&value, "/packageName"), text(&value, "/versionRange"))?
        }
        "olm.label.required" => Predicate::Label(text(&value()?, "/label").to_owned()),
        "olm.constraint" => {
            let constraint = Constraint::parse(&property.value)
                .map_err(|error| format!("parse olm.constraint: {error}"))?;
            of_constraint(&constraint, 0)
                .map_err(|error| format!("convert olm.constraint to resolver predicate: {error}"))?
        }
        _ => return Ok(None),
    }))
}

fn package(name: &str, range: &str) -> Result<Predicate, String> {
    let parsed = Range::parse(range).map_err(|error| error.to_string())?;
    Ok(Predicate::Package(name.to_owned(), range.to_owned(), parsed))
}

fn of_constraint(constraint: &Constraint, depth: usize) -> Result<Predicate, String> {
    if depth > MOST_DEPTH {
        return Err("constraint is nested too deep".to_owned());
    }
    let parts = |compound: &olm_constraint::Compound| -> Result<Vec<Predicate>, String> {
        let constraints = compound.constraints.as_deref().unwrap_or_default();
        constraints
            .iter()
            .map(|part| of_constraint(part, depth + 1))
            .collect()
    };
    if let Some(gvk) = &constraint.gvk {
        Ok(Predicate::Gvk(gvk.clone()))
    } else if let Some(PackageConstraint {
        package_name,
        version_range,
    }) = &constraint.package
    {
        package(package_name, version_range)
    } else if let Some(compound) = &constraint.all {
        parts(compound).map(Predicate::All)
    } else if let Some(compound) = &constraint.any {
        parts(compound).map(Predicate::Any)
    } else if let Some(compound) = &constraint.not {
        parts(compound).map(Predicate::Not)
    } else if let Some(cel) = &constraint.cel {
        let program = Program::compile(&cel.rule).map_err(|error| error.to_string())?;
        Ok(Predicate::Cel(
            program,
            cel.rule.clone(),
            constraint.failure_message.clone(),
        ))
    } else {
        Err("constraint is empty".to_owned())
    }
}

impl Predicate {
    /// Whether an entry satisfies it. A rule that cannot be evaluated does not hold.
    pub(super) fn holds(&self, entry: &Entry) -> bool {
        match self {
            Self::Gvk(gvk) => entry.gvks().contains(gvk),
            Self::Package(name, _, range) => {
                let is_inside =
                    |version: &str| parse_version(version).is_ok_and(|version| range.contains(&version));
                let of_entry = entry.version.as_ref();
                entry.is_of(name)
                    && (of_entry.is_some_and(|version| range.contains(version))
                        || entry.packages().iter().any(|(_, version)| is_inside(version)))
            }
            Self::Label(label) => entry.labels().contains(label),
            Self::All(parts) => parts.iter().all(|part| part.holds(entry)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(entry)),
            Self::Not(parts) => !parts.iter().any(|part| part.holds(entry)),
            Self::Cel(program, _, _) => {
                let properties = entry.properties.iter();
                let properties =
                    CelValue::properties(properties.map(|found| (found.kind.as_str(), found.value.as_str())));
                program
                    .evaluate(&properties, &mut Budget::default())
                    .unwrap_or(false)
            }
        }
    }

    /// The text that a failure shows.
    pub(super) fn text(&self) -> String {
        let joined = |parts: &[Self], word: &str| {
            let texts: Vec<String> = parts.iter().map(Self::text).collect();
            texts.join(word)
        };
        match self {
            Self::Gvk(Gvk { group, version, kind }) => {
                format!("providing an API with group: {group}, version: {version}, kind: {kind}")
            }
            Self::Package(name, range, _) => {
                format!("with package: {name} and with version in range: {range}")
            }
            Self::Label(label) => format!("with label: {label}"),
            Self::All(parts) => joined(parts, " and "),
            Self::Not(parts) => joined(parts, " and not "),
            Self::Any(parts) => joined(parts, " or "),
            Self::Cel(_, rule, message) => format!(
                "with constraint: {} and message: {}",
                quoted(rule),
                quoted(message)
            ),
        }
    }
}
