//! `olm runbook`.

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::output::table::table;
use crate::output::{CommandResult, Status, print};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  olm runbook\n  olm runbook OLMRolloutStuck")]
pub(crate) struct Arguments {
    /// Name of the alert [default: list all]
    #[arg(value_parser = PossibleValuesParser::new(RUNBOOKS.map(|(alert, _)| alert)), hide_possible_values = true)]
    alert: Option<String>,
}

/// An alert and its page of the documentation.
macro_rules! runbook {
    ($alert:literal) => {
        (
            $alert,
            include_str!(concat!("../../../../docs/runbooks/", $alert, ".md")),
        )
    };
}

/// The alerts with their pages, the most urgent first, as in the documentation.
const RUNBOOKS: [(&str, &str); 15] = [
    runbook!("OLMCatalogdDown"),
    runbook!("OLMOperatorControllerDown"),
    runbook!("OLMExtensionUnavailable"),
    runbook!("OLMLeaderMissing"),
    runbook!("OLMExtensionBlocked"),
    runbook!("OLMExtensionNotReady"),
    runbook!("OLMRolloutStuck"),
    runbook!("OLMDeletionStuck"),
    runbook!("OLMCatalogNotServed"),
    runbook!("OLMCatalogNotUpdated"),
    runbook!("OLMReconcileErrors"),
    runbook!("OLMReconcilePanics"),
    runbook!("OLMCertificateUnusable"),
    runbook!("OLMUpdateHeldBack"),
    runbook!("OLMExtensionDeprecated"),
];

/// Prints the page about an alert, or the list of alerts.
pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    match &arguments.alert {
        Some(alert) => {
            for (_, page) in RUNBOOKS.iter().filter(|(name, _)| name == alert) {
                print(&on_terminal(page))?;
            }
        }
        None => print(&table(
            &["ALERT", "MEANING"],
            &RUNBOOKS.map(|(name, page)| vec![name.to_owned(), meaning(page)]),
        ))?,
    }
    Ok(Status::Success)
}

/// The page with links that name files from the root of the repository.
fn on_terminal(page: &str) -> String {
    page.replace("](../", "](docs/")
}

/// The first sentence of the meaning of an alert.
fn meaning(page: &str) -> String {
    let text = page.split("## Meaning").nth(1).unwrap_or_default();
    let paragraph = text.trim_start().split("\n\n").next().unwrap_or_default();
    let line = paragraph.replace('\n', " ");
    let sentence = line
        .split_once(". ")
        .map_or(line.as_str(), |(sentence, _)| sentence);
    sentence.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{RUNBOOKS, meaning, on_terminal};

    #[test]
    fn every_runbook_of_the_documentation_is_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks");
        let pages: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let known: BTreeSet<String> = RUNBOOKS.iter().map(|(alert, _)| format!("{alert}.md")).collect();
        assert_eq!(known, pages);
    }

    #[test]
    fn every_runbook_has_a_meaning() {
        for (alert, page) in RUNBOOKS {
            let meaning = meaning(page);
            assert!(
                meaning.len() > 20 && !meaning.contains('\n'),
                "{alert}: {meaning:?}"
            );
        }
    }

    #[test]
    fn links_name_files_of_the_repository() {
        assert_eq!(
            on_terminal("[Remove](../how-to/remove.md)"),
            "[Remove](docs/how-to/remove.md)"
        );
    }
}
