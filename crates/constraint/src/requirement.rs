//! Valid requirements.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use olm_fbc::decode::ShapeError;
use olm_fbc::property::{Gvk, Property, TYPE_CONSTRAINT, TYPE_GVK_REQUIRED, TYPE_PACKAGE_REQUIRED};
use olm_version::blang::{Range, RangeError};
use olm_version::quoted;
use parking_lot::Mutex;

use crate::cel::{CompileError, Program};
use crate::constraint::{Compound, Constraint, PackageConstraint, ParseError};

/// Types of `metadata/dependencies.yaml` and the property types with the same meaning.
const DEPENDENCY_TYPES: [(&str, &str); 3] = [
    ("olm.package", TYPE_PACKAGE_REQUIRED),
    ("olm.gvk", TYPE_GVK_REQUIRED),
    ("olm.constraint", TYPE_CONSTRAINT),
];

/// The type of an older dependency: a bundle must have a property of this type with the same value. As a property it
/// requires nothing.
const LABEL: &str = "olm.label";

/// The reason why a requirement cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// The value does not have the shape of its type.
    #[error("{0}")]
    Shape(ShapeError),
    /// The value is not a constraint.
    #[error("{0}")]
    Constraint(ParseError),
    /// A constraint without any of its keys.
    #[error(
        "The CEL field is missing, and so are all, any, not, package and gvk: a constraint has exactly one of them"
    )]
    Nothing,
    /// A constraint with several keys.
    #[error("a constraint has exactly one of all, any, not, cel, package and gvk, not {}", .0.join(" and "))]
    Several(Vec<&'static str>),
    /// An empty `all`, `any` or `not`.
    #[error("{0} lists no constraints")]
    Empty(&'static str),
    /// A package without a name.
    #[error("Package name is empty")]
    NoPackage,
    /// A package without a range of versions.
    #[error("Package version is empty")]
    NoVersion,
    /// The range of versions cannot be read.
    #[error("Invalid semver format version {}: {fault}", quoted(.range))]
    Range {
        /// The range.
        range: String,
        /// The fault of the range.
        fault: RangeError,
    },
    /// An API without a version.
    #[error("API Version is empty")]
    NoApiVersion,
    /// An API without a kind.
    #[error("API Kind is empty")]
    NoApiKind,
    /// A rule without text.
    #[error("The CEL expression is missing")]
    NoRule,
    /// The rule cannot be used.
    #[error("Invalid CEL expression: {0}")]
    Cel(CompileError),
    /// A label without text.
    #[error("Label information is missing")]
    NoLabel,
    /// The type is not known.
    #[error("couldn't parse dependency of type {0}")]
    Type(String),
}

/// Parsed rules and ranges by their text. The versions of a package share most of them.
#[derive(Debug, Default)]
pub struct ParseCache {
    programs: Shared<Program>,
    ranges: Shared<Arc<Range>>,
}

#[derive(Debug)]
struct Shared<T> {
    by_text: Mutex<HashMap<Box<str>, T>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self {
            by_text: Mutex::default(),
        }
    }
}

impl<T: Clone> Shared<T> {
    /// The parsed text, from the cache if it is there.
    fn read<E>(&self, text: &str, read: impl FnOnce(&str) -> Result<T, E>) -> Result<T, E> {
        let known = self.by_text.lock().get(text).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = read(text)?;
        self.by_text.lock().insert(text.into(), found.clone());
        Ok(found)
    }
}

/// A requirement of a bundle.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// The type of the property that declares it.
    pub kind: String,
    /// The JSON text of its declaration.
    pub text: String,
    pub(crate) rule: Clause,
}

/// A requirement or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    /// The author's message; empty when there is none.
    pub(crate) message: String,
    pub(crate) term: Term,
}

#[derive(Clone, Debug)]
pub(crate) enum Term {
    Simple(SimpleRequirement),
    All(Vec<Clause>),
    Any(Vec<Clause>),
    Not(Vec<Clause>),
}

/// A requirement that a single bundle, or the cluster, can meet: a package, an API or a property.
#[derive(Clone, Debug)]
pub enum SimpleRequirement {
    /// A package in a range of versions.
    Package {
        /// The package.
        name: String,
        /// The range.
        range: Arc<Range>,
        /// The range as written.
        text: String,
    },
    /// An API.
    Api(Gvk),
    /// A bundle whose properties satisfy a rule.
    Cel {
        /// The rule.
        program: Program,
        /// The rule as written.
        text: String,
    },
}

/// An API as `group/version Kind`.
pub fn api_text(api: &Gvk) -> String {
    let separator = if api.group.is_empty() { "" } else { "/" };
    format!("{}{separator}{} {}", api.group, api.version, api.kind)
}

impl fmt::Display for SimpleRequirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Package { name, text, .. } => write!(formatter, "package {name} ({text})"),
            Self::Api(api) => write!(formatter, "API {}", api_text(api)),
            Self::Cel { text, .. } => write!(formatter, "a bundle for which {text}"),
        }
    }
}

impl Requirement {
    /// The requirement in a property of a bundle; `None` if its type requires nothing.
    pub fn of_property(property: &Property) -> Option<Result<Self, RequirementError>> {
        Self::of_value(&property.kind, &property.value, &ParseCache::default())
    }

    fn of_value(kind: &str, value: &str, known: &ParseCache) -> Option<Result<Self, RequirementError>> {
        let property = || Property::new(kind, value);
        let rule = match kind {
            TYPE_PACKAGE_REQUIRED => property()
                .package_required_in_any_spelling()
                .map_err(RequirementError::Shape)
                .and_then(|required| {
                    let constraint = PackageConstraint {
                        package_name: required.package_name,
                        version_range: required.version_range,
                    };
                    package(constraint, known)
                })
                .map(Clause::plain),
            TYPE_GVK_REQUIRED => property()
                .gvk()
                .map_err(RequirementError::Shape)
                .and_then(api)
                .map(Clause::plain),
            TYPE_CONSTRAINT => Constraint::parse(value)
                .map_err(RequirementError::Constraint)
                .and_then(|constraint| rule(constraint, known)),
            _ => return None,
        };
        Some(rule.map(|rule| Self {
            kind: kind.to_owned(),
            text: value.to_owned(),
            rule,
        }))
    }

    /// The requirement in an entry of `metadata/dependencies.yaml`; `value` is its value as JSON text.
    ///
    /// # Errors
    /// When the type is unknown or the value is invalid.
    pub fn of_dependency(kind: &str, value: &str) -> Result<Self, RequirementError> {
        Self::of_dependency_knowing(kind, value, &ParseCache::default())
    }

    /// The same with a cache, to which it adds the parsed parts.
    ///
    /// # Errors
    /// As [`Self::of_dependency`].
    pub fn of_dependency_knowing(
        kind: &str,
        value: &str,
        known: &ParseCache,
    ) -> Result<Self, RequirementError> {
        let found = DEPENDENCY_TYPES
            .iter()
            .find(|(dependency, property)| *dependency == kind || *property == kind);
        let unknown = || RequirementError::Type(kind.to_owned());
        if kind == LABEL {
            return Ok(Self {
                kind: kind.to_owned(),
                text: value.to_owned(),
                rule: Clause::plain(label(value)?),
            });
        }
        let (_, property) = found.ok_or_else(unknown)?;
        Self::of_value(property, value, known).ok_or_else(unknown)?
    }

    /// The APIs in it, including excluded ones.
    pub fn apis(&self) -> impl Iterator<Item = &Gvk> {
        self.rules().filter_map(|rule| match &rule.term {
            Term::Simple(SimpleRequirement::Api(api)) => Some(api),
            _ => None,
        })
    }

    /// The packages in it, including excluded ones.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.rules().filter_map(|rule| match &rule.term {
            Term::Simple(SimpleRequirement::Package { name, .. }) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether a rule evaluates the properties of bundles, so that any bundle may affect it.
    pub fn has_rule(&self) -> bool {
        self.rules()
            .any(|rule| matches!(rule.term, Term::Simple(SimpleRequirement::Cel { .. })))
    }

    /// Whether more bundles can make it unmet.
    pub fn excludes(&self) -> bool {
        self.rules().any(|rule| matches!(rule.term, Term::Not(_)))
    }

    /// The rule and all rules in it.
    fn rules(&self) -> impl Iterator<Item = &Clause> {
        let mut open = vec![&self.rule];
        std::iter::from_fn(move || {
            let rule = open.pop()?;
            if let Term::All(rules) | Term::Any(rules) | Term::Not(rules) = &rule.term {
                open.extend(rules);
            }
            Some(rule)
        })
    }
}

/// The fault of a property that declares a requirement; `None` if it is valid, or of another type.
#[must_use]
pub fn fault(property: &Property) -> Option<String> {
    Requirement::of_property(property)?
        .err()
        .map(|error| error.to_string())
}

impl Clause {
    fn plain(wanted: SimpleRequirement) -> Self {
        Self {
            message: String::new(),
            term: Term::Simple(wanted),
        }
    }
}

fn package(constraint: PackageConstraint, known: &ParseCache) -> Result<SimpleRequirement, RequirementError> {
    let (name, text) = (constraint.package_name, constraint.version_range);
    if name.is_empty() {
        return Err(RequirementError::NoPackage);
    }
    if text.is_empty() {
        return Err(RequirementError::NoVersion);
    }
    match known.ranges.read(&text, |text| Range::parse(text).map(Arc::new)) {
        Ok(range) => Ok(SimpleRequirement::Package { name, range, text }),
        Err(fault) => Err(RequirementError::Range { range: text, fault }),
    }
}

fn api(api: Gvk) -> Result<SimpleRequirement, RequirementError> {
    if api.version.is_empty() {
        Err(RequirementError::NoApiVersion)
    } else if api.kind.is_empty() {
        Err(RequirementError::NoApiKind)
    } else {
        Ok(SimpleRequirement::Api(api))
    }
}

fn label(value: &str) -> Result<SimpleRequirement, RequirementError> {
    let value: serde_json::Value = serde_json::from_str(value).unwrap_or_default();
    let label = value.get("label").and_then(serde_json::Value::as_str);
    let label = label
        .filter(|label| !label.is_empty())
        .ok_or(RequirementError::NoLabel)?;
    // The text of a string in JSON is that of one in CEL, too.
    let label = serde_json::Value::from(label);
    let text = format!("properties.exists(p, p.type == \"{LABEL}\" && p.value.label == {label})");
    let program = Program::compile(&text).map_err(RequirementError::Cel)?;
    Ok(SimpleRequirement::Cel { program, text })
}

/// Converts a constraint. The recursion is as deep as the constraint, whose depth the parser limits.
fn rule(constraint: Constraint, known: &ParseCache) -> Result<Clause, RequirementError> {
    let given = [
        ("all", constraint.all.is_some()),
        ("any", constraint.any.is_some()),
        ("not", constraint.not.is_some()),
        ("cel", constraint.cel.is_some()),
        ("package", constraint.package.is_some()),
        ("gvk", constraint.gvk.is_some()),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    if given.clone().nth(1).is_some() {
        return Err(RequirementError::Several(given.map(|(key, _)| key).collect()));
    }
    let term = if let Some(list) = constraint.all {
        Term::All(rules("all", list, known)?)
    } else if let Some(list) = constraint.any {
        Term::Any(rules("any", list, known)?)
    } else if let Some(list) = constraint.not {
        Term::Not(rules("not", list, known)?)
    } else if let Some(cel) = constraint.cel {
        if cel.rule.is_empty() {
            return Err(RequirementError::NoRule);
        }
        let program = known.programs.read(&cel.rule, Program::compile);
        let program = program.map_err(RequirementError::Cel)?;
        Term::Simple(SimpleRequirement::Cel {
            program,
            text: cel.rule,
        })
    } else if let Some(constraint) = constraint.package {
        Term::Simple(package(constraint, known)?)
    } else if let Some(gvk) = constraint.gvk {
        Term::Simple(api(gvk)?)
    } else {
        return Err(RequirementError::Nothing);
    };
    Ok(Clause {
        message: constraint.failure_message,
        term,
    })
}

fn rules(key: &'static str, list: Compound, known: &ParseCache) -> Result<Vec<Clause>, RequirementError> {
    let list = list.constraints.unwrap_or_default();
    if list.is_empty() {
        return Err(RequirementError::Empty(key));
    }
    list.into_iter()
        .map(|constraint| rule(constraint, known))
        .collect()
}
