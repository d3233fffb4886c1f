//! `olm catalog diff`.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use olm_author::diff::{Change, Diff, PackageDiff, Replaced, diff};
use serde_json::json;

use crate::output::{Outcome, ReportFormat, Status, note, print_json, print_text};
use crate::registry::RegistryArguments;
use crate::source::{Unshaped, load_catalog};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalog that is in use: a file, directory, image, or the address of a running catalogd
    #[arg(value_name = "OLD")]
    old: String,
    /// Catalog that takes its place
    #[arg(value_name = "NEW")]
    new: String,
    /// Which differences end the program with status 1
    #[arg(long, value_enum, default_value_t)]
    fail_on: FailOn,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// None.
    #[default]
    Nothing,
    /// Those that take something away from users, or change the content of a published bundle.
    Breaking,
    /// All.
    Any,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    // Omitted content shows no difference: a gate must not let it pass.
    let unshaped = match arguments.fail_on {
        FailOn::Nothing => Unshaped::LeftOut,
        FailOn::Breaking | FailOn::Any => Unshaped::Refused,
    };
    let old = load_catalog(&arguments.old, &arguments.registry, unshaped)?;
    let new = load_catalog(&arguments.new, &arguments.registry, unshaped)?;
    let diff = diff(&old, &new);
    let breaking = diff.breaking();
    match arguments.output {
        ReportFormat::Json => print_json(&json!({ "packages": diff.packages, "breaking": breaking }))?,
        ReportFormat::Text => {
            print_text(&text(&diff))?;
            if diff.is_empty() {
                note("no differences");
            }
            for line in &breaking {
                note(&format!("breaking: {line}"));
            }
        }
    }
    let fails = match arguments.fail_on {
        FailOn::Nothing => false,
        FailOn::Breaking => !breaking.is_empty(),
        FailOn::Any => !diff.is_empty(),
    };
    Ok(if fails { Status::Failure } else { Status::Success })
}

fn mark(change: Change) -> char {
    match change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Changed => '~',
    }
}

fn replaced(replaced: &Replaced) -> String {
    let shown = |value: &Option<String>| {
        value
            .as_deref()
            .map_or_else(|| "none".to_owned(), |value| format!("{value:?}"))
    };
    format!("{} -> {}", shown(&replaced.old), shown(&replaced.new))
}

fn text(diff: &Diff) -> String {
    let mut text = String::new();
    for package in &diff.packages {
        package_text(package, &mut text);
    }
    text
}

fn package_text(package: &PackageDiff, text: &mut String) {
    let _ = writeln!(text, "{} package {}", mark(package.change), package.name);
    if let Some(channel) = &package.default_channel {
        let _ = writeln!(text, "  ~ default channel {}", replaced(channel));
    }
    for field in &package.fields {
        let _ = writeln!(text, "  ~ {field}");
    }
    for channel in &package.channels {
        let _ = writeln!(text, "  {} channel {}", mark(channel.change), channel.name);
        if let Some(head) = &channel.head {
            let _ = writeln!(text, "    ~ head {}", replaced(head));
        }
        for (sign, entries) in [('+', &channel.entries_added), ('-', &channel.entries_removed)] {
            for entry in entries {
                let _ = writeln!(text, "    {sign} entry {entry}");
            }
        }
        for (sign, updates) in [('+', &channel.edges_won), ('-', &channel.edges_lost)] {
            for update in updates {
                let _ = writeln!(text, "    {sign} update {} -> {}", update.from, update.to);
            }
        }
    }
    for bundle in &package.bundles {
        let fields = if bundle.fields.is_empty() {
            String::new()
        } else {
            format!(": {}", bundle.fields.join(", "))
        };
        let _ = writeln!(text, "  {} bundle {}{fields}", mark(bundle.change), bundle.name);
    }
    for deprecation in &package.deprecations {
        let name = if deprecation.name.is_empty() {
            String::new()
        } else {
            format!(" {}", deprecation.name)
        };
        let _ = writeln!(
            text,
            "  ~ deprecation of {}{name} {}",
            deprecation.schema.trim_start_matches("olm."),
            replaced(&deprecation.message)
        );
    }
}
