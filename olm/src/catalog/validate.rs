//! `olm catalog validate`.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use clap::Args;
use olm_api::text::{counted, escape};
use olm_author::lint::{CatalogLint, Severity};
use olm_fbc::check::{BlobLocation, Object, Rule};
use olm_fbc::{CatalogFinding, CatalogReport};
use serde_json::{Value, json};

use crate::input::CatalogFiles;
use crate::output::{self, CommandResult, Status, note, print_json, print_text};
use crate::registry::RegistryArguments;
use crate::source::open_catalog;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalog: a file, directory, image in a registry or on disk, or the address of a running catalogd
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: output::ReportFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let report = check(&open_catalog(&arguments.source, &arguments.registry)?)?;
    match arguments.output {
        output::ReportFormat::Text => {
            print_text(&text(&report))?;
            note(&summary(&report));
        }
        output::ReportFormat::Json => print_json(&json(&report))?,
    }
    Ok(if report.is_valid() {
        Status::Success
    } else {
        Status::Failure
    })
}

/// Checks all files.
pub(crate) fn check(files: &CatalogFiles) -> anyhow::Result<CatalogReport> {
    let mut lint = CatalogLint::new();
    files.each(|file, meta| {
        match meta {
            Ok(meta) => lint.add(file, &meta),
            Err(error) => lint.add_failure(file, &error),
        }
        ControlFlow::Continue(())
    })?;
    let mut report = lint.finish();
    for finding in &mut report.findings {
        if finding.rule == Rule::CatalogEmpty {
            finding.message = files.emptiness();
        }
    }
    let repeated = files.repeated_keys()?;
    if !repeated.is_empty() {
        report
            .findings
            .extend(repeated.into_iter().map(|(file, line, key)| CatalogFinding {
                rule: Rule::KeyRepeated,
                object: Object::default(),
                place: Some(BlobLocation {
                    file: file.into(),
                    line,
                }),
                message: format!("duplicate key {key:?}: the last value counts"),
            }));
        report.sort();
    }
    Ok(report)
}

/// One line for a finding.
fn line(finding: &CatalogFinding) -> String {
    let mut line = String::new();
    if let Some(place) = &finding.place {
        let _ = write!(line, "{place}: ");
    }
    let _ = write!(
        line,
        "{}: {} [{}]",
        finding.rule.severity().name(),
        finding.message,
        finding.rule.id()
    );
    line
}

fn text(report: &CatalogReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let _ = writeln!(text, "{}", escape(&line(finding)));
        let object = escape(&finding.object.to_string()).into_owned();
        if !object.is_empty() {
            let _ = writeln!(text, "  {object}");
        }
        if let Some(hint) = finding.rule.hint() {
            let _ = writeln!(text, "  hint: {hint}");
        }
    }
    if report.omitted > 0 {
        let _ = writeln!(text, "and {} more", report.omitted);
    }
    text
}

/// The number of findings, in one line.
pub(crate) fn summary(report: &CatalogReport) -> String {
    let errors = report.errors().count() + report.omitted;
    let warnings = report
        .findings
        .iter()
        .filter(|finding| finding.rule.severity() == Severity::Warning)
        .count();
    match (errors, warnings) {
        (0, 0) => "no problems found".to_owned(),
        (0, warnings) => format!("valid, with {}", counted(warnings, "warning")),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")),
    }
}

fn json(report: &CatalogReport) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.rule.severity().name(),
                "rule": finding.rule.id(),
                "message": finding.message,
                "hint": finding.rule.hint(),
                "package": given(&finding.object.package),
                "channel": given(&finding.object.channel),
                "bundle": given(&finding.object.bundle),
                "file": finding.place.as_ref().map(|place| place.file.to_string()),
                "line": finding.place.as_ref().map(|place| place.line),
            })
        })
        .collect();
    let messages: Vec<String> = report.errors().map(line).collect();
    let error = if report.is_valid() {
        Value::Null
    } else {
        json!({ "message": messages.join("\n") })
    };
    json!({ "passed": report.is_valid(), "error": error, "findings": findings, "omitted": report.omitted })
}

fn given(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}
