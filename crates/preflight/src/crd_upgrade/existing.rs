//! Whether the objects that the cluster has fit the schemas of a new definition (requirement 5.30).
//!
//! [`questions`] says which objects are to be looked at; whoever has a cluster shows them to each [`Question`] one by
//! one; [`Question::findings`] are what came of it. What an object has that the old schema refused already is not
//! reported.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fit::{Patterns, faults};
use super::schema::{flatten, is_comparable};
use super::unhandled::canonical;
use super::{Check, Finding, Place, version};

/// Different faults of one schema beyond which further ones are only counted.
const MAX_FAULTS: usize = 50;
/// Objects that are named for each fault.
const NAMED: usize = 3;

/// Objects as one version shows them, and the schema that they are to fit.
#[derive(Debug)]
pub struct Question<'a> {
    /// The served version of the definition on the cluster by which the objects are to be listed.
    pub listed_by: &'a str,
    /// The version whose schema they are to fit, or `OLD -> NEW`.
    label: String,
    before: &'a Value,
    after: &'a Value,
    seen: usize,
    hits: BTreeMap<(String, String), Hits>,
    more: usize,
    patterns: Patterns,
}

#[derive(Debug, Default)]
struct Hits {
    count: usize,
    names: Vec<String>,
}

/// What is to be looked at before `old`, the definition on the cluster, is replaced by `new`.
///
/// Those are the versions that stay served and whose schema changes; and the versions that come to be served, as which
/// the API server will show the same objects unless a webhook converts them.
#[must_use]
pub fn questions<'a>(old: &'a Value, new: &'a Value) -> Vec<Question<'a>> {
    let before = version::served_ascending(old);
    let mut found = Vec::new();
    for (name, schema) in &before {
        if let Some(after) = version::schema(new, name).filter(|after| canonical(after) != canonical(schema))
        {
            found.push(Question::new(name, (*name).to_owned(), schema, after));
        }
    }
    let Some((newest, schema)) = before.last().filter(|_| !version::is_converted(new)) else {
        return found;
    };
    for (name, after) in version::served_ascending(new) {
        let is_new = !before.iter().any(|(known, _)| *known == name);
        if is_new && canonical(after) != canonical(schema) {
            found.push(Question::new(
                newest,
                format!("{newest} -> {name}"),
                schema,
                after,
            ));
        }
    }
    found
}

impl<'a> Question<'a> {
    fn new(listed_by: &'a str, label: String, before: &'a Value, after: &'a Value) -> Self {
        Self {
            listed_by,
            label,
            before,
            after,
            seen: 0,
            hits: BTreeMap::new(),
            more: 0,
            patterns: Patterns::default(),
        }
    }

    /// Looks at one object.
    pub fn look(&mut self, object: &Value) {
        self.seen += 1;
        let found = faults(object, self.after, &mut self.patterns);
        if found.is_empty() {
            return;
        }
        let known: BTreeSet<(String, &str)> = faults(object, self.before, &mut self.patterns)
            .into_iter()
            .map(|fault| (fault.instance, fault.keyword))
            .collect();
        let new = found
            .into_iter()
            .filter(|fault| !known.contains(&(fault.instance.clone(), fault.keyword)));
        let told: BTreeSet<(String, String)> = new.map(|fault| (fault.path, fault.message)).collect();
        for fault in told {
            if self.hits.len() >= MAX_FAULTS && !self.hits.contains_key(&fault) {
                self.more += 1;
                continue;
            }
            let hits = self.hits.entry(fault).or_default();
            hits.count += 1;
            if hits.names.len() < NAMED {
                hits.names.push(name(object));
            }
        }
    }

    /// How many objects were looked at.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// What the objects have that the schema refuses.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let finding = |path: &str, message: String| Finding {
            place: Place::Property {
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

    /// What of the schema is new and cannot be held against objects here: formats and rules in CEL.
    #[must_use]
    pub fn unlooked(&self) -> Option<String> {
        if !is_comparable([self.before, self.after].into_iter()) {
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
        let (before, after) = (rules(self.before), rules(self.after));
        let mut paths: Vec<&str> = after.difference(&before).map(|(path, _)| path.as_str()).collect();
        paths.dedup();
        (self.seen > 0 && !paths.is_empty()).then(|| {
            let more = match paths.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            paths.truncate(NAMED);
            format!(
                "{}: new formats and rules were not held against existing objects: {}{more}",
                self.label,
                paths.join(", ")
            )
        })
    }
}

fn describe(message: &str, hits: &Hits) -> String {
    let more = match hits.count.saturating_sub(hits.names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = hits.names.join(", ");
    format!(
        "{} existing object(s) would be invalid, since the value {message}: {names}{more}",
        hits.count
    )
}

/// `NAMESPACE/NAME`, or the name alone.
fn name(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match text("/metadata/namespace") {
        "" => text("/metadata/name").to_owned(),
        namespace => format!("{namespace}/{}", text("/metadata/name")),
    }
}
