//! The existing bundles and APIs, and the requirements that they meet.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use olm_fbc::property::{Gvk, Property, TYPE_GVK};
use semver::Version;

use crate::cel::{Budget, EvalError, Value};
use crate::requirement::{Clause, Requirement, SimpleRequirement, Term};

/// An existing or possible bundle.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The name for users: that of its ClusterExtension.
    pub name: String,
    /// The package.
    pub package: String,
    /// The version, if known.
    pub version: Option<Version>,
    /// The APIs that it provides.
    pub apis: Vec<Gvk>,
    properties: Properties,
}

/// Properties, prepared for rules on first use.
#[derive(Clone, Debug)]
struct Properties {
    list: Vec<Property>,
    value: OnceLock<Value>,
}

impl Subject {
    /// A bundle with these properties; those of type `olm.gvk` are the APIs that it provides.
    pub fn new(
        name: impl Into<String>,
        package: impl Into<String>,
        version: Option<Version>,
        properties: Vec<Property>,
    ) -> Self {
        let provided = properties.iter().filter(|property| property.kind == TYPE_GVK);
        Self {
            name: name.into(),
            package: package.into(),
            version,
            apis: provided.filter_map(|property| property.gvk().ok()).collect(),
            properties: Properties {
                list: properties,
                value: OnceLock::new(),
            },
        }
    }

    /// The properties in the form for rules. A value that is not JSON is `null`.
    fn value(&self) -> &Value {
        self.properties.value.get_or_init(|| {
            let list = self.properties.list.iter();
            Value::properties(list.map(|property| (property.kind.as_str(), &*property.value)))
        })
    }
}

/// It is unknown whether a requirement is met: rules took too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rules of the constraints take too many steps")]
pub struct Undecided;

/// The existing bundles, and the APIs that the cluster serves without them.
#[derive(Debug)]
pub struct Present<'a> {
    subjects: Vec<&'a Subject>,
    by_api: HashMap<&'a Gvk, Vec<&'a Subject>>,
    by_package: HashMap<&'a str, Vec<&'a Subject>>,
    served: &'a HashSet<Gvk>,
    /// The bundle that counts as existing, too.
    candidate: Option<&'a Subject>,
    budget: Cell<Budget>,
    /// The first of the bundles that satisfies a rule, by the rule's text: versions of one package have the same rules.
    by_rule: RefCell<HashMap<String, Option<&'a Subject>>>,
}

impl<'a> Present<'a> {
    /// A set of these bundles and APIs.
    pub fn new(
        subjects: impl IntoIterator<Item = &'a Subject>,
        served: &'a HashSet<Gvk>,
        budget: Budget,
    ) -> Self {
        let mut present = Self {
            subjects: subjects.into_iter().collect(),
            by_api: HashMap::new(),
            by_package: HashMap::new(),
            served,
            candidate: None,
            budget: Cell::new(budget),
            by_rule: RefCell::default(),
        };
        for subject in &present.subjects {
            for api in &subject.apis {
                present.by_api.entry(api).or_default().push(subject);
            }
            present
                .by_package
                .entry(&subject.package)
                .or_default()
                .push(subject);
        }
        present
    }

    /// The same with one more bundle.
    #[must_use]
    pub fn with(mut self, candidate: &'a Subject) -> Self {
        self.candidate = Some(candidate);
        self
    }

    /// Treats another bundle as existing.
    pub fn look_at(&mut self, candidate: Option<&'a Subject>) {
        self.candidate = candidate;
    }

    /// Sets the budget of the next evaluation.
    pub fn renew(&self, budget: Budget) {
        self.budget.set(budget);
    }

    /// The remaining budget.
    pub fn left(&self) -> Budget {
        self.budget.get()
    }

    /// The bundles of a package.
    pub(crate) fn of_package(&self, package: &str) -> impl Iterator<Item = &'a Subject> {
        let others = self
            .by_package
            .get(package)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let candidate = self.candidate.filter(|candidate| candidate.package == package);
        others.iter().copied().chain(candidate)
    }

    /// Whether the cluster serves the API without any of the bundles.
    pub(crate) fn is_served(&self, api: &Gvk) -> bool {
        self.served.contains(api)
    }

    /// The first bundle that provides the wanted package, API or property.
    pub(crate) fn provider(&self, wanted: &SimpleRequirement) -> Result<Option<&'a Subject>, Undecided> {
        match wanted {
            SimpleRequirement::Package { name, range, .. } => {
                let fits = |subject: &&Subject| {
                    subject
                        .version
                        .as_ref()
                        .is_some_and(|version| range.contains(version))
                };
                Ok(self.of_package(name).find(fits))
            }
            SimpleRequirement::Api(api) => {
                let candidate = self.candidate.filter(|candidate| candidate.apis.contains(api));
                let others = self
                    .by_api
                    .get(api)
                    .and_then(|subjects| subjects.first().copied());
                Ok(others.or(candidate))
            }
            SimpleRequirement::Cel { text, .. } => {
                let known = self.by_rule.borrow().get(text).copied();
                let found = if let Some(found) = known {
                    found
                } else {
                    let found = self.first_of(self.subjects.iter().copied(), wanted)?;
                    self.by_rule.borrow_mut().insert(text.clone(), found);
                    found
                };
                match found {
                    Some(found) => Ok(Some(found)),
                    None => self.first_of(self.candidate, wanted),
                }
            }
        }
    }

    fn first_of(
        &self,
        subjects: impl IntoIterator<Item = &'a Subject>,
        wanted: &SimpleRequirement,
    ) -> Result<Option<&'a Subject>, Undecided> {
        for subject in subjects {
            if self.satisfies(subject, wanted)? {
                return Ok(Some(subject));
            }
        }
        Ok(None)
    }

    /// Whether a bundle satisfies the rule. A rule that cannot be evaluated over a bundle is not satisfied by it.
    fn satisfies(&self, subject: &Subject, wanted: &SimpleRequirement) -> Result<bool, Undecided> {
        let mut budget = self.budget.get();
        let outcome = wanted.is_provided_by(subject, &mut budget);
        self.budget.set(budget);
        outcome
    }

    /// Whether a clause is met. The recursion is as deep as the constraint, whose depth the parser limits.
    pub(crate) fn holds(&self, rule: &Clause) -> Result<bool, Undecided> {
        match &rule.term {
            Term::Simple(wanted) => {
                let is_served = matches!(wanted, SimpleRequirement::Api(api) if self.is_served(api));
                Ok(is_served || self.provider(wanted)?.is_some())
            }
            Term::All(rules) => {
                for rule in rules {
                    if !self.holds(rule)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Term::Any(rules) => self.holds_any(rules),
            Term::Not(rules) => Ok(!self.holds_any(rules)?),
        }
    }

    fn holds_any(&self, rules: &[Clause]) -> Result<bool, Undecided> {
        for rule in rules {
            if self.holds(rule)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl SimpleRequirement {
    /// Whether a bundle provides it. A rule whose evaluation fails over a bundle is not satisfied by it.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub fn is_provided_by(&self, subject: &Subject, budget: &mut Budget) -> Result<bool, Undecided> {
        match self {
            Self::Package { name, range, .. } => {
                let fits = subject
                    .version
                    .as_ref()
                    .is_some_and(|version| range.contains(version));
                Ok(subject.package == *name && fits)
            }
            Self::Api(api) => Ok(subject.apis.contains(api)),
            Self::Cel { program, .. } => match program.evaluate(subject.value(), budget) {
                Ok(value) => Ok(value),
                Err(EvalError::Failed(_)) => Ok(false),
                Err(EvalError::Exhausted) => Err(Undecided),
            },
        }
    }
}

impl Requirement {
    /// Whether the existing bundles and APIs meet it.
    ///
    /// # Errors
    /// When that takes too many steps.
    pub fn holds(&self, present: &Present<'_>) -> Result<bool, Undecided> {
        present.holds(&self.rule)
    }
}
