//! `olm catalog diff`.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use olm_api::text::counted;
use olm_author::diff::{Change, ChannelDiff, Diff, PackageDiff, Replaced, diff};
use serde_json::json;

use crate::output::{CommandResult, ReportFormat, Status, note, print_json, print_text};
use crate::registry::RegistryArguments;
use crate::source::{MalformedBlobs, load_catalog};

#[derive(Debug, Args)]
#[command(
    after_help = "Each change is listed once: + is new, - is gone, ~ is different. What takes something away from users, or changes a \
                  published bundle, is marked [breaking]. A bundle whose metadata moves from olm.bundle.object to \
                  olm.csv.metadata is not.\n\nExamples:\n  olm catalog diff registry.example/catalogs/mine:v1 ./catalog\n  olm \
                  catalog diff old.yaml new.yaml --fail-on breaking"
)]
pub(crate) struct Arguments {
    /// Catalog that is in use: a file, directory, image, or the address of a running catalogd
    #[arg(value_name = "OLD")]
    old: String,
    /// Catalog that takes its place
    #[arg(value_name = "NEW")]
    new: String,
    /// Differences that end the program with status 1
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

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    // Omitted content shows no difference: a gate must not pass it.
    let malformed = match arguments.fail_on {
        FailOn::Nothing => MalformedBlobs::LeftOut,
        FailOn::Breaking | FailOn::Any => MalformedBlobs::Refused,
    };
    let old = load_catalog(&arguments.old, &arguments.registry, malformed)?;
    let new = load_catalog(&arguments.new, &arguments.registry, malformed)?;
    let diff = diff(&old, &new);
    let breaking = diff.breaking();
    match arguments.output {
        ReportFormat::Json => print_json(&json!({ "packages": diff.packages, "breaking": breaking }))?,
        ReportFormat::Text => {
            print_text(&text(&diff))?;
            if diff.is_empty() {
                note("no differences");
            }
            match breaking.len() {
                0 => {}
                1 => note("1 change is breaking"),
                number => note(&format!("{number} changes are breaking")),
            }
            if arguments.fail_on == FailOn::Nothing && !breaking.is_empty() {
                note("hint: set --fail-on breaking to exit with status 1");
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

/// The end of a line about a breaking change.
const BREAKING: &str = "  [breaking]";

fn breaking(is_breaking: bool) -> &'static str {
    if is_breaking { BREAKING } else { "" }
}

/// Each change once: changes that result from an added or removed package, channel or bundle are not repeated.
fn package_text(package: &PackageDiff, text: &mut String) {
    let (sign, name) = (mark(package.change), &package.name);
    if package.change != Change::Changed {
        let _ = writeln!(
            text,
            "{sign} package {name}: {}, {}{}",
            counted(package.channels.len(), "channel"),
            counted(package.bundles.len(), "bundle"),
            breaking(package.change == Change::Removed)
        );
        return;
    }
    let _ = writeln!(text, "{sign} package {name}");
    if let Some(channel) = &package.default_channel {
        let _ = writeln!(text, "  ~ default channel {}", replaced(channel));
    }
    for field in &package.fields {
        let _ = writeln!(text, "  ~ {field}");
    }
    for channel in &package.channels {
        channel_text(package, channel, text);
    }
    for bundle in &package.bundles {
        let fields = if bundle.fields.is_empty() {
            String::new()
        } else {
            format!(": {}", bundle.changed_fields())
        };
        let (sign, end) = (mark(bundle.change), breaking(bundle.is_breaking()));
        let _ = writeln!(text, "  {sign} bundle {}{fields}{end}", bundle.name);
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

fn channel_text(package: &PackageDiff, channel: &ChannelDiff, text: &mut String) {
    let (sign, name) = (mark(channel.change), &channel.name);
    if channel.change != Change::Changed {
        let entries = channel.entries_added.len() + channel.entries_removed.len();
        let end = breaking(channel.change == Change::Removed);
        let _ = writeln!(
            text,
            "  {sign} channel {name}: {}{end}",
            counted(entries, "bundle")
        );
        return;
    }
    let _ = writeln!(text, "  {sign} channel {name}");
    if let Some(head) = &channel.head {
        let _ = writeln!(text, "    ~ head {}", replaced(head));
    }
    for (sign, entries) in [('+', &channel.entries_added), ('-', &channel.entries_removed)] {
        for entry in entries.iter().filter(|entry| !package.has_whole(entry)) {
            let _ = writeln!(text, "    {sign} entry {entry}");
        }
    }
    for update in &channel.edges_won {
        let _ = writeln!(text, "    + update {} -> {}", update.from, update.to);
    }
    let lost = channel.edges_lost.iter();
    for update in lost.filter(|update| !package.is_implied(update)) {
        let _ = writeln!(text, "    - update {} -> {}{BREAKING}", update.from, update.to);
    }
}
