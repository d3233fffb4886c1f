//! `olm history`: the revisions of a ClusterExtension and how each ended.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::Time;
use olm_plan::history::{Entry, history};

use super::access::ClusterArguments;
use super::cluster::Cluster;
use super::lookup::revisions;
use crate::output::table::table;
use crate::output::{CommandResult, ObjectFormat, Status, resource_name};

/// The text of an empty cell.
const NONE: &str = "-";

#[derive(Debug, Args)]
#[command(
    after_help = "The history is that of the ClusterObjectSets that the cluster keeps: those that are active and the newest \
                        archived ones. AVAILABLE is when all of a revision was available for the first time."
)]
pub(crate) struct Arguments {
    /// ClusterExtension to look at
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let extension = cluster.extension(&arguments.extension)?;
    let sets = cluster.runtime.block_on(revisions(&cluster.client, &extension))?;
    let entries = history(&sets);
    let names = entries
        .iter()
        .map(|entry| resource_name("clusterobjectset", &entry.name));
    arguments.output.print(&entries, names, || text(&entries))?;
    Ok(Status::Success)
}

fn text(entries: &[Entry]) -> String {
    let cell = |text: &str| {
        Some(text)
            .filter(|text| !text.is_empty())
            .unwrap_or(NONE)
            .to_owned()
    };
    let time = |time: &Option<Time>| time.as_ref().map_or(NONE.to_owned(), |time| time.0.to_string());
    // Most clusters have no approvals.
    let has_approvals = entries.iter().any(|entry| entry.approver.is_some());
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let state = match &entry.successor {
                Some(next) => format!(
                    "{}, followed by revision {} ({})",
                    entry.state.text(),
                    next.revision,
                    next.version
                ),
                None => entry.state.text().to_owned(),
            };
            let approver = entry.approver.as_deref().unwrap_or_default();
            let mut row = Vec::from([
                entry.revision.to_string(),
                cell(&entry.bundle.version),
                cell(&entry.bundle.name),
                time(&entry.created),
                time(&entry.available),
                time(&entry.ended),
            ]);
            row.extend(has_approvals.then(|| cell(approver)));
            row.push(state);
            row
        })
        .collect();
    let mut columns = vec!["REVISION", "VERSION", "BUNDLE", "CREATED", "AVAILABLE", "ENDED"];
    columns.extend(has_approvals.then_some("APPROVED BY"));
    columns.push("STATE");
    table(&columns, &rows)
}
