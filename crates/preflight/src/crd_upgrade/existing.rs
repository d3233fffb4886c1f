//! Whether the objects that the cluster has fit the schemas of a new definition.
//!
//! [`schema_checks`] selects the objects to check. The caller passes them to the [`SchemaChecks`] one by one;
//! [`SchemaChecks::findings`] returns the result. Faults that the old schema reports as well are not reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use olm_api::object::qualified_name;
use olm_api::text::{counted, first_of};
use serde_json::Value;

use super::budget::{Budget, Exhausted, Patterns};
use super::schema::{flatten, is_comparable};
use super::unhandled::canonical;
use super::validation::{SchemaViolation, violations};
use super::{Check, Finding, FindingLocation, version};

/// Different violations of one schema. Further ones are only counted.
const MAX_VIOLATIONS: usize = 50;
/// Objects named for each violation.
const NAMED: usize = 3;

/// The checks of the existing objects of one definition.
#[derive(Debug, Default)]
pub struct SchemaChecks {
    all: Vec<SchemaCheck>,
    patterns: Patterns,
}

/// Objects as one version shows them, and the schema that they must fit.
#[derive(Debug)]
struct SchemaCheck {
    /// The served version of the definition on the cluster by which to list the objects.
    listed_by: String,
    /// The version of the schema, or `OLD -> NEW`.
    label: String,
    before: Arc<Value>,
    after: Value,
    seen: usize,
    hits: BTreeMap<(String, String), Hits>,
    more: usize,
    /// Objects that exceed the budget.
    beyond: Hits,
}

#[derive(Debug, Default)]
struct Hits {
    count: usize,
    names: Vec<String>,
}

/// The checks before `new` replaces `old`, the definition on the cluster.
///
/// They cover versions that stay served with another schema, and versions that become served: the API server shows the
/// same objects as these versions unless a webhook converts them.
#[must_use]
pub fn schema_checks(old: &Value, new: &Value) -> SchemaChecks {
    let before = version::served_ascending(old);
    let mut found = SchemaChecks::default();
    for (name, schema) in &before {
        if let Some(after) = version::schema(new, name).filter(|after| canonical(after) != canonical(schema))
        {
            let schema = Arc::new((*schema).clone());
            found.ask(name, (*name).to_owned(), &schema, after);
        }
    }
    let Some((newest, schema)) = before.last().filter(|_| !version::is_converted(new)) else {
        return found;
    };
    let shared = Arc::new((*schema).clone());
    for (name, after) in version::served_ascending(new) {
        let is_new = !before.iter().any(|(known, _)| *known == name);
        if is_new && canonical(after) != canonical(schema) {
            found.ask(newest, format!("{newest} -> {name}"), &shared, after);
        }
    }
    found
}

impl SchemaChecks {
    fn ask(&mut self, listed_by: &str, label: String, before: &Arc<Value>, after: &Value) {
        self.all.push(SchemaCheck {
            listed_by: listed_by.to_owned(),
            label,
            before: Arc::clone(before),
            after: after.clone(),
            seen: 0,
            hits: BTreeMap::new(),
            more: 0,
            beyond: Hits::default(),
        });
    }

    /// The served versions of the definition on the cluster by which to list objects; empty without checks.
    #[must_use]
    pub fn versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = self.all.iter().map(|check| check.listed_by.clone()).collect();
        versions.dedup();
        versions
    }

    /// Checks one object as this version shows it, within a budget.
    pub fn check(&mut self, listed_by: &str, object: &Value) {
        let mut budget = Budget::of_one_object();
        let checks = self.all.iter_mut().filter(|one| one.listed_by == listed_by);
        for check in checks {
            check.run(object, &mut self.patterns, &mut budget);
        }
    }

    /// The violations of the objects.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.all.iter().flat_map(SchemaCheck::findings).collect()
    }

    /// The parts that could not be checked on the objects.
    #[must_use]
    pub fn unchecked(&self) -> Vec<String> {
        let rules = self.all.iter().filter_map(SchemaCheck::rules);
        rules
            .chain(self.all.iter().filter_map(SchemaCheck::beyond))
            .collect()
    }
}

impl SchemaCheck {
    fn run(&mut self, object: &Value, patterns: &mut Patterns, budget: &mut Budget) {
        self.seen += 1;
        let Ok(violations) = self.violations(object, patterns, budget) else {
            return self.beyond.add(object);
        };
        for violation in violations {
            if self.hits.len() >= MAX_VIOLATIONS && !self.hits.contains_key(&violation) {
                self.more += 1;
                continue;
            }
            self.hits.entry(violation).or_default().add(object);
        }
    }

    /// The paths and messages of violations that the old schema does not have.
    fn violations(
        &self,
        object: &Value,
        patterns: &mut Patterns,
        budget: &mut Budget,
    ) -> Result<BTreeSet<(String, String)>, Exhausted> {
        let found = violations(object, &self.after, patterns, budget)?;
        if found.is_empty() {
            return Ok(BTreeSet::new());
        }
        let known: BTreeSet<(String, &str)> = violations(object, &self.before, patterns, budget)?
            .into_iter()
            .map(|violation| (violation.instance, violation.keyword))
            .collect();
        let is_new =
            |violation: &SchemaViolation| !known.contains(&(violation.instance.clone(), violation.keyword));
        let new = found.into_iter().filter(is_new);
        Ok(new.map(|violation| (violation.path, violation.message)).collect())
    }

    /// The violations of the objects.
    fn findings(&self) -> Vec<Finding> {
        let finding = |path: &str, message: String| Finding {
            location: FindingLocation::Property {
                version: self.label.clone(),
                path: path.to_owned(),
            },
            check: Check::ExistingObjects,
            message,
        };
        let mut findings: Vec<Finding> = self
            .hits
            .iter()
            .map(|((path, message), hits)| finding(path, describe(message, hits)))
            .collect();
        if self.more > 0 {
            findings.push(finding("^", format!("{} more of such findings", self.more)));
        }
        findings
    }

    /// The new formats and CEL rules of the schema, which cannot be checked on objects here.
    fn rules(&self) -> Option<String> {
        if !is_comparable([&*self.before, &self.after].into_iter()) {
            return Some(format!(
                "{}: the schemas are too large to be compared",
                self.label
            ));
        }
        let rules = |schema: &Value| -> BTreeSet<(String, String)> {
            let keywords = ["format", "x-kubernetes-validations"];
            let nodes = flatten(schema);
            let rules = nodes.values().flat_map(|node| {
                let found = keywords.map(|keyword| node.schema.get(keyword).map(Value::to_string));
                found.into_iter().flatten().map(|rule| (node.path.clone(), rule))
            });
            rules.collect()
        };
        let (before, after) = (rules(&self.before), rules(&self.after));
        let mut paths: Vec<&str> = after.difference(&before).map(|(path, _)| path.as_str()).collect();
        paths.dedup();
        (self.seen > 0 && !paths.is_empty()).then(|| {
            format!(
                "{}: new formats and rules were not evaluated on existing objects: {}",
                self.label,
                first_of(paths.iter(), NAMED)
            )
        })
    }

    fn beyond(&self) -> Option<String> {
        (self.beyond.count > 0).then(|| {
            format!(
                "{}: objects that exceed the limits were not validated against the schema: {}",
                self.label,
                self.beyond.named()
            )
        })
    }
}

impl Hits {
    fn add(&mut self, object: &Value) {
        self.count += 1;
        if self.names.len() < NAMED {
            self.names.push(qualified_name(object));
        }
    }

    fn named(&self) -> String {
        let names = self.names.join(", ");
        match self.count.saturating_sub(self.names.len()) {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }
}

fn describe(message: &str, hits: &Hits) -> String {
    format!(
        "{} would be invalid, since the value {message}: {}",
        counted(hits.count, "existing object"),
        hits.named()
    )
}
