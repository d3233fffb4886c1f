//! `olm bundle validate`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use olm_api::text::escape;
use olm_author::lint::{self, Finding, Options, RuleSet, Severity, images, load};
use serde_json::{Value, json};

use crate::input::read;
use crate::output::table::table;
use crate::output::{CommandResult, ReportFormat, Status, note, print_json, print_text};
use crate::registry::RegistryArguments;
use crate::source::open_bundle;

/// The largest file of options that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Bundle: a directory with `manifests/` and `metadata/` in it, or an image in a registry or on disk
    #[arg(value_name = "SOURCE", required_unless_present = "select")]
    source: Option<String>,
    /// Further checks by name, repeatable; `all` is every check but `multiarch`, which queries the registry of each
    /// image; `list` prints the names and their meanings
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', requires_ifs = checks())]
    select: Vec<String>,
    /// Kubernetes version to check the bundle for, such as 1.30
    #[arg(long, value_name = "VERSION", default_value = "")]
    kubernetes_version: String,
    /// File with the allowed categories, instead of the standard ones: {"categories": […]}
    #[arg(long, value_name = "FILE", env = "OPERATOR_BUNDLE_CATEGORIES")]
    categories: Option<PathBuf>,
    /// Dockerfile of the bundle, for the check `community`
    #[arg(long, value_name = "FILE")]
    dockerfile: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// The names of checks, which need the bundle: only `list` does without.
fn checks() -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = RuleSet::ALL.iter().copied().map(RuleSet::name);
    names.chain(["all"]).map(|name| (name, "source"))
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    if arguments.select.iter().any(|name| name == "list") {
        let row = |rule_set: &RuleSet| {
            let default = if RuleSet::DEFAULT.contains(rule_set) {
                "yes"
            } else {
                ""
            };
            [rule_set.name(), default, rule_set.meaning()]
                .map(str::to_owned)
                .to_vec()
        };
        let rows: Vec<Vec<String>> = RuleSet::ALL.iter().map(row).collect();
        print_text(&table(&["NAME", "DEFAULT", "CHECKS"], &rows))?;
        return Ok(Status::Success);
    }
    let rule_sets = selected(&arguments.select)?;
    let Some(source) = &arguments.source else {
        bail!("name the bundle to check: `olm bundle validate SOURCE`");
    };
    let mut options = options(arguments)?;
    let bundle = open_bundle(source, &arguments.registry)?;
    if rule_sets.contains(&RuleSet::Platforms)
        && let Ok(manifests) = load(&bundle.files)
    {
        options.platforms = arguments.registry.platforms(images(&manifests))?;
    }
    let found = lint::bundle(&bundle.files, &bundle.labels, &rule_sets, &options);
    let passed = found.iter().all(|finding| finding.severity == Severity::Warning);
    match arguments.output {
        ReportFormat::Json => print_json(&report(&found, passed))?,
        ReportFormat::Text => {
            let mut text = String::new();
            for finding in &found {
                line(finding, &mut text);
            }
            print_text(&text)?;
            if text.is_empty() {
                note("no problems found");
            }
        }
    }
    Ok(if passed { Status::Success } else { Status::Failure })
}

fn selected(names: &[String]) -> anyhow::Result<BTreeSet<RuleSet>> {
    let mut rule_sets = BTreeSet::from(RuleSet::DEFAULT);
    for name in names {
        if name == "all" {
            let local = RuleSet::ALL.iter().filter(|one| **one != RuleSet::Platforms);
            rule_sets.extend(local);
        } else {
            let rule_set = RuleSet::named(name).with_context(|| {
                format!("unknown check {name:?}; run with `--select list` to see all names")
            })?;
            rule_sets.insert(rule_set);
        }
    }
    Ok(rule_sets)
}

fn options(arguments: &Arguments) -> anyhow::Result<Options> {
    let categories = match &arguments.categories {
        None => None,
        Some(path) => {
            let value: Value = serde_json::from_slice(&read(path, MAX_FILE)?)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let Some(categories) = value.get("categories").and_then(Value::as_array) else {
                bail!("{} has no list `categories`", path.display());
            };
            Some(
                categories
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            )
        }
    };
    let dockerfile = match &arguments.dockerfile {
        None => None,
        Some(path) => Some(String::from_utf8_lossy(&read(path, MAX_FILE)?).into_owned()),
    };
    Ok(Options {
        kubernetes_version: arguments.kubernetes_version.clone(),
        categories,
        dockerfile,
        ..Options::default()
    })
}

fn line(finding: &Finding, text: &mut String) {
    if let Some(file) = &finding.file {
        let _ = write!(text, "{}", escape(file));
        if let Some(line) = finding.line {
            let _ = write!(text, ":{line}");
        }
        text.push_str(": ");
    }
    let _ = writeln!(
        text,
        "{}: {} [{}]",
        finding.severity.name(),
        escape(&finding.message),
        finding.check
    );
    if let Some(hint) = &finding.hint {
        let _ = writeln!(text, "  hint: {hint}");
    }
}

fn report(found: &[Finding], passed: bool) -> Value {
    let messages = |wanted: Severity| -> Vec<&str> {
        let found = found.iter().filter(|finding| finding.severity == wanted);
        found.map(|finding| finding.message.as_str()).collect()
    };
    let findings: Vec<Value> = found
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.severity.name(),
                "check": finding.check,
                "message": finding.message,
                "hint": finding.hint,
                "file": finding.file,
                "line": finding.line,
            })
        })
        .collect();
    json!({
        "passed": passed,
        "errors": messages(Severity::Error),
        "warnings": messages(Severity::Warning),
        "findings": findings,
    })
}
