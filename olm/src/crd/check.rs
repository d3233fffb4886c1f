//! `olm crd check`.

use std::fmt::Write as _;

use anyhow::bail;
use clap::Args;
use olm_api::text::counted;
use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::crd_upgrade::{Change, Check, Finding, FindingLocation, Policy, compare};
use serde_json::{Value, json};

use super::definitions::{Definitions, read_definitions};
use super::live::{Cluster, ObjectFindings};
use crate::extension::access::ClusterArguments;
use crate::output::{CommandResult, ReportFormat, Status, note, print_json, print_text};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
#[command(override_usage = "olm crd check [OPTIONS] OLD NEW\n       olm crd check [OPTIONS] --cluster NEW")]
pub(crate) struct Arguments {
    /// Old definitions, unless --cluster is set, and new ones: a file or directory of YAML or JSON, or a bundle
    #[arg(value_name = "SOURCE", required = true, num_args = 1..=2)]
    sources: Vec<String>,
    /// Take the definitions that are in use from the cluster, with their stored versions, and look at all objects of
    /// their kinds
    #[arg(long)]
    cluster: bool,
    /// Path to the kubeconfig file [default: $KUBECONFIG, then that of kubectl]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
    /// Effect of findings, as in the annotation crd-policy: CHECK=Error, Warn or Off, separated by commas
    #[arg(long, value_name = "POLICY", value_parser = Policy::parse)]
    policy: Option<Policy>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

impl Arguments {
    fn access(&self) -> ClusterArguments {
        ClusterArguments {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

/// The findings about one definition.
struct CheckedDefinition {
    name: String,
    change: DefinitionChange,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    notes: Vec<String>,
}

/// The presence of a definition before and after.
enum DefinitionChange {
    Added,
    Removed,
    Replaced,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let (old, new) = match (arguments.sources.as_slice(), arguments.cluster) {
        ([new], true) => (None, new),
        ([old, new], false) => (Some(old), new),
        (_, true) => {
            bail!("--cluster takes one source: the new definitions")
        }
        (_, false) => bail!("name two sources, OLD and NEW, or one source and --cluster"),
    };
    let new = read_definitions(new, &arguments.registry)?;
    let policy = arguments.policy.clone().unwrap_or_default();
    let (old, live) = if let Some(old) = old {
        let old = read_definitions(old, &arguments.registry)?;
        let live = old.keys().map(|_| ObjectFindings::default()).collect();
        (old, live)
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(ask(arguments, &new, &policy))?
    };
    let found = report(&old, &new, &policy, live);
    match arguments.output {
        ReportFormat::Text => print_text(&text(&found))?,
        ReportFormat::Json => print_json(&json(&found))?,
    }
    let faults: usize = found.iter().map(|one| one.errors.len()).sum();
    if faults == 0 {
        return Ok(Status::Success);
    }
    let verb = if faults == 1 { "blocks" } else { "block" };
    note(&format!("{} {verb} the change", counted(faults, "finding")));
    Ok(Status::Failure)
}

/// The definitions of the cluster, and the parts of their objects that the new ones refuse, in the same order.
async fn ask(
    arguments: &Arguments,
    new: &Definitions,
    policy: &Policy,
) -> anyhow::Result<(Definitions, Vec<ObjectFindings>)> {
    let cluster = Cluster::reach(&arguments.access()).await?;
    let old = cluster.definitions(new).await?;
    let mut live = Vec::new();
    for (name, old) in &old {
        live.push(match new.get(name) {
            Some(new) if policy.reports(Check::ExistingObjects, Change::Other) => {
                cluster.check_objects(old, new).await?
            }
            _ => ObjectFindings::default(),
        });
    }
    Ok((old, live))
}

fn report(
    old: &Definitions,
    new: &Definitions,
    policy: &Policy,
    live: Vec<ObjectFindings>,
) -> Vec<CheckedDefinition> {
    let mut found = Vec::new();
    for ((name, before), live) in old.iter().zip(live) {
        found.push(match new.get(name) {
            Some(after) => replaced(name, before, after, policy, live),
            None => alone(name, DefinitionChange::Removed),
        });
    }
    let added = new.keys().filter(|name| !old.contains_key(*name));
    found.extend(added.map(|name| alone(name, DefinitionChange::Added)));
    found.sort_by(|left, right| left.name.cmp(&right.name));
    found
}

fn alone(name: &str, change: DefinitionChange) -> CheckedDefinition {
    CheckedDefinition {
        name: name.to_owned(),
        change,
        errors: Vec::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
    }
}

fn replaced(
    name: &str,
    old: &Value,
    new: &Value,
    policy: &Policy,
    live: ObjectFindings,
) -> CheckedDefinition {
    let mut findings = compare(old, new, policy);
    let mut notes = live.notes;
    match migration(old, new) {
        Migration::Needless => {}
        Migration::Possible(rewrite) => {
            findings.retain(|finding| finding.check != Check::StoredVersionRemoval);
            notes.push(format!(
                "objects may still be stored as {}: operator-controller migrates them to {} and updates status.storedVersions, for which the account needs list and patch on {}.{} and patch on \
                 customresourcedefinitions/status",
                rewrite.gone.join(", "),
                rewrite.storage,
                rewrite.plural,
                rewrite.group
            ));
        }
        Migration::Impossible { reason, .. } => notes.push(reason),
    }
    findings.extend(live.findings);
    let (warnings, errors) = findings
        .into_iter()
        .partition(|finding| policy.warn.contains(&finding.check));
    CheckedDefinition {
        name: name.to_owned(),
        change: DefinitionChange::Replaced,
        errors,
        warnings,
        notes,
    }
}

fn text(found: &[CheckedDefinition]) -> String {
    let mut text = String::new();
    for one in found {
        let is_safe = one.errors.is_empty() && one.warnings.is_empty();
        let outcome = match one.change {
            DefinitionChange::Added => "is new",
            DefinitionChange::Removed => "is not in NEW: it is removed with all objects of its kind",
            DefinitionChange::Replaced if is_safe => "may be replaced",
            DefinitionChange::Replaced if one.errors.is_empty() => "may be replaced, with warnings",
            DefinitionChange::Replaced => "may not be replaced",
        };
        let _ = writeln!(text, "{} {outcome}", one.name);
        for (level, findings) in [("error", &one.errors), ("warning", &one.warnings)] {
            for finding in findings {
                let _ = writeln!(text, "  {level}: {finding}");
            }
        }
        for note in &one.notes {
            let _ = writeln!(text, "  note: {note}");
        }
    }
    text
}

fn json(found: &[CheckedDefinition]) -> Value {
    let finding = |level: &str, finding: &Finding| {
        let (version, path) = match &finding.location {
            FindingLocation::Definition => (Value::Null, Value::Null),
            FindingLocation::Property { version, path } => (json!(version), json!(path)),
        };
        json!({
            "level": level,
            "check": finding.check.as_str(),
            "version": version,
            "path": path,
            "message": finding.message,
        })
    };
    let definitions = found.iter().map(|one| {
        let errors = one.errors.iter().map(|found| finding("Error", found));
        let warnings = one.warnings.iter().map(|found| finding("Warn", found));
        json!({
            "name": one.name,
            "change": match one.change {
                DefinitionChange::Added => "added",
                DefinitionChange::Removed => "removed",
                DefinitionChange::Replaced => "replaced",
            },
            "findings": errors.chain(warnings).collect::<Vec<_>>(),
            "notes": one.notes,
        })
    });
    json!({ "definitions": definitions.collect::<Vec<_>>() })
}
