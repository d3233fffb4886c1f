//! `olm bundle validate`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use olm_bundle::{Scopes, Support, Webhooks, parse, validate};
use serde_json::json;

use crate::input::bundle_files;
use crate::output::{Outcome, Report, Verdict, note, print, print_json};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the bundle, with `manifests/` and `metadata/` in it
    directory: PathBuf,
    /// Form of the report
    #[arg(short, long, value_enum, default_value_t)]
    output: Report,
}

/// What is wrong with a bundle, and what of it cannot be installed by us.
struct Found {
    errors: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let files = bundle_files(&arguments.directory)?;
    let found = match parse(&files, &BTreeMap::new()) {
        Ok(bundle) => {
            let support = Support {
                webhooks: Webhooks::Served,
                scopes: Scopes::Any,
                ..Support::default()
            };
            Found {
                errors: validate::validate(&bundle)
                    .into_iter()
                    .map(|finding| finding.message)
                    .collect(),
                warnings: bundle
                    .check_support(&support)
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            }
        }
        Err(error) => {
            let error = anyhow::Error::new(error);
            Found {
                errors: vec![format!("{error:#}")],
                warnings: Vec::new(),
            }
        }
    };
    let passed = found.errors.is_empty();
    match arguments.output {
        Report::Json => {
            print_json(&json!({ "passed": passed, "errors": found.errors, "warnings": found.warnings }))?;
        }
        Report::Text => {
            let mut text = String::new();
            for (severity, messages) in [("error", &found.errors), ("warning", &found.warnings)] {
                for message in messages {
                    let _ = writeln!(text, "{severity}: {message}");
                }
            }
            print(&text)?;
            if text.is_empty() {
                note("no faults found");
            }
        }
    }
    Ok(if passed { Verdict::Good } else { Verdict::Bad })
}
