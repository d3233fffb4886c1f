//! `olm bundle validate`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use olm_bundle::remarks::remarks;
use olm_bundle::validators::{LoadFault, Options, Severity, Validator, images, load};
use olm_bundle::{BundleFiles, ParseError, Scopes, Support, Webhooks, format, parse, publish, validate};
use olm_platform::log::chain;
use serde_json::{Value, json};

use crate::input::read;
use crate::output::{Outcome, Report, Verdict, note, print, print_json, tell};
use crate::registry::RegistryArguments;
use crate::source::{BundleSource, open_bundle};

/// The largest file of options that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Bundle: a directory with `manifests/` and `metadata/` in it, or an image in a registry or on disk
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Further checks, by name; `all` is all but `multiarch`, which asks registries for each image; `list` names them; may
    /// be repeated
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    select: Vec<String>,
    /// Kubernetes version that the bundle is for, 1.27 for example
    #[arg(long, value_name = "VERSION", default_value = "")]
    kubernetes_version: String,
    /// File with the categories to allow in the place of the standard ones: {"categories": […]}
    #[arg(long, value_name = "FILE", env = "OPERATOR_BUNDLE_CATEGORIES")]
    categories: Option<PathBuf>,
    /// Dockerfile of the bundle, for the checks named `community`
    #[arg(long, value_name = "FILE")]
    dockerfile: Option<PathBuf>,
    /// Form of the report
    #[arg(short, long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    file: Option<String>,
    line: Option<usize>,
    severity: Severity,
    /// The name of the check: a validator, `format`, `install` or `publish`.
    check: &'static str,
    message: String,
    hint: Option<Cow<'static, str>>,
}

impl Found {
    fn new(severity: Severity, check: &'static str, message: String) -> Self {
        Self {
            file: None,
            line: None,
            severity,
            check,
            message,
            hint: None,
        }
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.select.iter().any(|name| name == "list") {
        let names: Vec<&str> = Validator::ALL.iter().map(|validator| validator.name()).collect();
        print(&format!("{}\n", names.join("\n")))?;
        return Ok(Verdict::Good);
    }
    let validators = selected(&arguments.select)?;
    let mut options = options(arguments)?;
    let bundle = open_bundle(&arguments.source, &arguments.registry)?;
    if validators.contains(&Validator::Platforms)
        && let Ok(manifests) = load(&bundle.files)
    {
        options.platforms = arguments.registry.platforms(images(&manifests))?;
    }
    let mut found = form(&bundle.files);
    found.extend(authoring(&bundle.files, &validators, &options));
    // What is said already of a file is not said again of what follows from it.
    let said = found.clone();
    let is_new = |fault: &Found| {
        !said.iter().any(|one| {
            let (one_says, says) = (&one.message, &fault.message);
            one.check == "format" && (says.ends_with(one_says) || one_says.ends_with(says))
        })
    };
    found.extend(installing(&bundle).into_iter().filter(is_new));
    found.sort();
    found.dedup_by(|left, right| left.message == right.message && left.severity == right.severity);
    let passed = found.iter().all(|fault| fault.severity == Severity::Warning);
    match arguments.output {
        Report::Json => print_json(&report(&found, passed))?,
        Report::Text => {
            let mut text = String::new();
            for fault in &found {
                line(fault, &mut text);
            }
            tell(&text)?;
            if text.is_empty() {
                note("no faults found");
            }
        }
    }
    Ok(if passed { Verdict::Good } else { Verdict::Bad })
}

fn selected(names: &[String]) -> anyhow::Result<BTreeSet<Validator>> {
    let mut validators = BTreeSet::from(Validator::DEFAULT);
    for name in names {
        if name == "all" {
            let local = Validator::ALL.iter().filter(|one| **one != Validator::Platforms);
            validators.extend(local);
        } else {
            let validator = Validator::named(name).with_context(|| {
                format!("there are no checks named {name:?}; `--select list` names those that there are")
            })?;
            validators.insert(validator);
        }
    }
    Ok(validators)
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

/// What is not where it has to be.
fn form(files: &BundleFiles) -> Vec<Found> {
    format::faults(files)
        .into_iter()
        .map(|fault| Found {
            file: fault.file,
            ..Found::new(Severity::Error, "format", fault.message)
        })
        .collect()
}

/// What authors are told.
fn authoring(files: &BundleFiles, validators: &BTreeSet<Validator>, options: &Options) -> Vec<Found> {
    let manifests = match load(files) {
        Ok(manifests) => manifests,
        Err(faults) => {
            let unreadable = |fault: LoadFault| Found {
                file: fault.file().map(str::to_owned),
                ..Found::new(Severity::Error, "format", fault.to_string())
            };
            return faults.into_iter().map(unreadable).collect();
        }
    };
    let mut found = Vec::new();
    for validator in validators {
        for problem in validator.run(&manifests, options) {
            let object = problem.object.and_then(|at| manifests.objects.get(at));
            let text = problem.to_string();
            let message = text
                .split_once(": ")
                .map_or(text.as_str(), |(_, message)| message);
            found.push(Found {
                file: object.map(|object| object.file.clone()),
                line: object.map(|object| object.line),
                hint: problem.hint().map(Cow::Borrowed),
                ..Found::new(
                    problem.severity,
                    validator.name(),
                    message.trim_start_matches("Value : ").to_owned(),
                )
            });
        }
    }
    found
}

/// What keeps the bundle from being installed by us, or from being published.
fn installing(bundle: &BundleSource) -> Vec<Found> {
    let error = |message: String| Found::new(Severity::Error, "install", message);
    let mut found: Vec<Found> = remarks(&bundle.files)
        .into_iter()
        .map(|remark| Found {
            file: Some(remark.file),
            line: Some(remark.line),
            hint: Some(Cow::Owned(remark.hint)),
            ..Found::new(remark.severity, "install", remark.message)
        })
        .collect();
    let is_error = |fault: &Found| fault.severity == Severity::Error;
    found.extend(match parse(&bundle.files, &bundle.labels) {
        // The remarks name each of its faults.
        Err(ParseError::ClusterServiceVersion(_)) if found.iter().any(is_error) => Vec::new(),
        Err(fault) => vec![error(chain(&fault))],
        Ok(parsed) => {
            let support = Support {
                webhooks: Webhooks::Served,
                scopes: Scopes::Any,
                ..Support::default()
            };
            let unsupported = parsed.check_support(&support);
            let unsupported = unsupported
                .iter()
                .map(|found| Found::new(Severity::Warning, "install", found.to_string()));
            let unsound = validate::validate(&parsed)
                .into_iter()
                .map(|finding| error(finding.message));
            let requirements = parsed.all_properties().into_iter().filter_map(|property| {
                let value = property.value.to_string();
                let fault = olm_constraint::fault(&olm_fbc::Property::new(property.kind.as_str(), value))?;
                Some(error(format!(
                    "what it requires by {} is not sound: {fault}",
                    property.kind
                )))
            });
            let nameless = parsed
                .properties()
                .iter()
                .filter(|property| property.kind.is_empty());
            let nameless = nameless.map(|property| {
                let message = format!("nobody reads a property without a type: {}", property.value);
                Found::new(Severity::Warning, "install", message)
            });
            let webhooks = parsed.csv().spec.webhook_definitions.iter();
            let unknown = webhooks
                .filter(|webhook| webhook.kind().is_none())
                .map(|webhook| {
                    error(format!(
                        "webhook {:?} is of type {:?}, which nobody knows, and is not installed: write \
                     ValidatingAdmissionWebhook, MutatingAdmissionWebhook or ConversionWebhook",
                        webhook.generate_name, webhook.type_name
                    ))
                });
            let doubts = publish::doubts(&parsed).into_iter();
            let doubts = doubts.map(|doubt| Found::new(Severity::Warning, "publish", doubt));
            unsound
                .chain(requirements)
                .chain(unknown)
                .chain(nameless)
                .chain(unsupported)
                .chain(doubts)
                .collect()
        }
    });
    found
}

fn line(fault: &Found, text: &mut String) {
    if let Some(file) = &fault.file {
        let _ = write!(text, "{file}");
        if let Some(line) = fault.line {
            let _ = write!(text, ":{line}");
        }
        text.push_str(": ");
    }
    let _ = writeln!(
        text,
        "{}: {} [{}]",
        severity(fault.severity),
        fault.message,
        fault.check
    );
    if let Some(hint) = &fault.hint {
        let _ = writeln!(text, "  hint: {hint}");
    }
}

fn report(found: &[Found], passed: bool) -> Value {
    let messages = |wanted: Severity| -> Vec<&str> {
        let found = found.iter().filter(|fault| fault.severity == wanted);
        found.map(|fault| fault.message.as_str()).collect()
    };
    let findings: Vec<Value> = found
        .iter()
        .map(|fault| {
            json!({
                "severity": severity(fault.severity),
                "check": fault.check,
                "message": fault.message,
                "hint": fault.hint,
                "file": fault.file,
                "line": fault.line,
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
