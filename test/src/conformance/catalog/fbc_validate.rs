//! `fbc-validate`: the rules of whole catalogs and of single channels.
//!
//! The reference implementation stops at the first fault of a catalog, or returns a tree of the faults of its second
//! stage. Ours reports all faults, so each recorded fault must be among our findings, with the same object.

use olm_fbc::check::{CatalogFinding, CatalogReport, Rule, Stage};
use olm_fbc::meta::{limits, metas};
use olm_fbc::{Channel, ChannelEntry, Checker, graph};
use serde_json::Value;

use super::fbc_load::catalog_files::{self, contract};
use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let expect = case.get("expect").unwrap_or(&Value::Null);
    match case.get("kind").and_then(Value::as_str) {
        Some("head") => {
            let entries = entries(case);
            compare_graph(expect, graph::head(&entries).map(|entry| entry.name.clone()))
        }
        Some("replaces_chain") => compare_graph(
            expect,
            graph::replaces_chain(&entries(case)).map(|_| String::new()),
        ),
        _ => whole_catalog(case, expect),
    }
}

fn entries(case: &Value) -> Vec<ChannelEntry> {
    let channel = serde_json::json!({ "entries": case.get("entries") });
    Channel::from_json(&channel.to_string())
        .map(|channel| channel.entries.into_vec())
        .unwrap_or_default()
}

fn compare_graph(expect: &Value, found: Result<String, graph::GraphError>) -> Outcome {
    let text = |key: &str| {
        expect
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    match found {
        Ok(head) => Outcome::compare("ok", &is_ok(expect), &true)
            .and(|| Outcome::compare("head", &text("head"), &head)),
        Err(error) => Outcome::compare("ok", &is_ok(expect), &false)
            .and(|| Outcome::compare("error", &text("error"), &error.to_string())),
    }
}

fn is_ok(expect: &Value) -> bool {
    expect.get("ok").and_then(Value::as_bool).unwrap_or_default()
}

fn whole_catalog(case: &Value, expect: &Value) -> Outcome {
    let mut checker = Checker::new();
    for (path, text) in catalog_files::read(case.get("files")) {
        for meta in metas(text.as_bytes(), &limits()) {
            match meta {
                Ok(meta) => checker.add(&path, &meta),
                Err(error) => checker.add_failure(&path, &error),
            }
        }
    }
    let report = checker.finish();
    // The deviations name rules that the requirements add to those of the reference.
    let stricter = |rule: Rule| expect.get(rule.id()).and_then(Value::as_str) == Some("stricter");
    let counted: Vec<&CatalogFinding> = report
        .errors()
        .filter(|finding| !stricter(finding.rule))
        .collect();
    if is_ok(expect) {
        let found: Vec<&str> = counted.iter().map(|finding| finding.message.as_str()).collect();
        return Outcome::compare("the findings", &Vec::new(), &found);
    }
    let stage = match expect.get("stage").and_then(Value::as_str) {
        Some("load") => Stage::Load,
        _ => Stage::Validate,
    };
    if !report.errors().any(|finding| finding.rule.stage() == stage) {
        return Outcome::Fail(format!("no finding of stage {stage:?} among {}", shown(&report)));
    }
    let Some(error) = expect.get("error").and_then(Value::as_str) else {
        return texts(expect).into_iter().fold(Outcome::Pass, |outcome, text| {
            outcome.and(|| contains(&report, &text))
        });
    };
    let quirks = expect.get("quirks").and_then(Value::as_str) == Some("mended");
    leaves(error).into_iter().fold(Outcome::Pass, |outcome, leaf| {
        outcome.and(|| leaf.check(&report, quirks))
    })
}

/// The texts that must be among the findings if the whole error is not recorded.
fn texts(expect: &Value) -> Vec<String> {
    let lines = expect
        .get("error_lines_unordered")
        .or_else(|| expect.get("error_contains"));
    match lines {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(lines)) => {
            let lines = lines.iter().filter_map(Value::as_str);
            lines
                .filter(|line| Leaf::heading(line).is_none() && *line != "invalid index:")
                .map(str::to_owned)
                .collect()
        }
        _ => Vec::new(),
    }
}

fn contains(report: &CatalogReport, text: &str) -> Outcome {
    let text = contract(text);
    if report.errors().any(|finding| finding.message.contains(text)) {
        Outcome::Pass
    } else {
        Outcome::Fail(format!("expected {text:?} among {}", shown(report)))
    }
}

fn shown(report: &CatalogReport) -> String {
    report
        .errors()
        .map(|finding| format!("[{}] {}", finding.object, finding.message))
        .collect::<Vec<_>>()
        .join("; ")
}

/// One fault in the tree of the reference implementation.
#[derive(Debug, Default, Clone)]
struct Leaf {
    package: Option<String>,
    channel: Option<String>,
    bundle: Option<String>,
    message: String,
}

/// The faults in a tree, or the one fault that the text is.
fn leaves(error: &str) -> Vec<Leaf> {
    let Some(tree) = error.strip_prefix("invalid index:\n") else {
        return vec![Leaf {
            message: error.to_owned(),
            ..Leaf::default()
        }];
    };
    let mut path: Vec<(usize, &'static str, String)> = Vec::new();
    let mut leaves = Vec::new();
    for line in tree.lines() {
        let text = line.trim_start_matches(['│', '├', '└', '─', ' ', '\u{a0}']);
        let depth = line.chars().count() - text.chars().count();
        path.retain(|(above, ..)| *above < depth);
        match Leaf::heading(text) {
            Some((kind, name)) => path.push((depth, kind, name)),
            None => leaves.push(Leaf {
                package: named(&path, "package"),
                channel: named(&path, "channel"),
                bundle: named(&path, "bundle"),
                message: text.to_owned(),
            }),
        }
    }
    leaves
}

fn named(path: &[(usize, &'static str, String)], kind: &str) -> Option<String> {
    path.iter()
        .find(|(_, other, _)| *other == kind)
        .map(|(.., name)| name.clone())
}

impl Leaf {
    /// `invalid channel "stable":` heads the faults of that channel.
    fn heading(line: &str) -> Option<(&'static str, String)> {
        let line = line.strip_suffix(':').unwrap_or(line);
        ["package", "channel", "bundle"].into_iter().find_map(|kind| {
            let name = line
                .strip_prefix("invalid ")?
                .strip_prefix(kind)?
                .strip_prefix(" \"")?
                .strip_suffix('"')?;
            Some((kind, name.to_owned()))
        })
    }

    fn check(&self, report: &CatalogReport, quirks_mended: bool) -> Outcome {
        let message = contract(&self.message);
        let same = |expected: &Option<String>, found: &str| {
            // Our finding may be about a bundle in all its channels.
            found.is_empty() || expected.as_deref().is_none_or(|expected| expected == found)
        };
        // Ours shows the beginning only of a long object that has no schema.
        let schemaless =
            |text: &str| text.starts_with("object '") && text.ends_with("' is missing root schema field");
        let found = report.errors().any(|finding| {
            (finding.message.starts_with(message)
                || (schemaless(&self.message) && schemaless(&finding.message)))
                && same(&self.package, &finding.object.package)
                && same(&self.channel, &finding.object.channel)
                && self
                    .bundle
                    .as_deref()
                    .is_none_or(|bundle| bundle == finding.object.bundle)
        });
        if found || (quirks_mended && self.is_mended(report)) {
            return Outcome::Pass;
        }
        Outcome::Fail(format!("expected {self:?} among {}", shown(report)))
    }

    /// Whether ours reports a fault directly that the reference implementation reports only by its consequences.
    fn is_mended(&self, report: &CatalogReport) -> bool {
        let says = |rule: Rule, text: &str| {
            report
                .errors()
                .any(|finding| finding.rule == rule && finding.message.contains(text))
        };
        match (&self.channel, &self.bundle) {
            // A default channel that does not exist is shown as an empty one.
            (Some(channel), None) => {
                self.message == "channel must contain at least one bundle"
                    && says(Rule::DefaultChannelUnknown, &format!("{channel:?}"))
            }
            // Entries without bundles are shown as bundles of one and the same version.
            (None, None) => {
                self.message
                    .starts_with("duplicate versions found in bundles: [{0.0.0: [")
                    && says(Rule::EntryBundle, "")
            }
            // An entry without a bundle is shown as a bundle without content.
            (Some(_), Some(bundle)) => {
                [
                    "must be exactly one property with type \"olm.package\"",
                    "bundle image must be set",
                ]
                .contains(&self.message.as_str())
                    && says(Rule::EntryBundle, bundle)
            }
            _ => false,
        }
    }
}
