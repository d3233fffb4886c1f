//! A plan for many clusters as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use olm_api::text::{counted, escape, first_of};
use olm_resolve::cluster::fleet::{Change, ExtensionPlan, Step};

use super::FleetPlan;
use crate::output::table::table;

/// The text of an empty cell.
const NONE: &str = "-";
/// The number of clusters that are listed for a reason.
const NAMED: usize = 3;

/// The extensions that change or are held back, or all of them, with their clusters.
pub(super) fn shown(plan: &FleetPlan, is_everything: bool) -> impl Iterator<Item = (&str, &ExtensionPlan)> {
    let clusters = plan.clusters.iter();
    let extensions = clusters.flat_map(|cluster| {
        let extensions = cluster.extensions.iter();
        extensions.map(|extension| (cluster.cluster.as_str(), extension))
    });
    extensions.filter(move |(_, extension)| {
        let is_quiet =
            matches!(extension.change, Change::Stay | Change::OtherCatalog) && extension.newest.is_none();
        is_everything || !is_quiet
    })
}

/// The extensions that change or are held back, the reasons, and the counts.
pub(super) fn text(plan: &FleetPlan, is_everything: bool) -> String {
    let mut rows = Vec::new();
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (cluster, extension) in shown(plan, is_everything) {
        for reason in notes(extension) {
            reasons.entry(reason).or_default().push(cluster);
        }
        rows.push(row(cluster, extension));
    }
    let mut text = String::new();
    if !rows.is_empty() {
        let heads = [
            "CLUSTER",
            "EXTENSION",
            "CHANGE",
            "INSTALLED",
            "NEXT",
            "NEWEST",
            "HELD BACK BY",
        ];
        text.push_str(&table(&heads, &rows));
        text.push('\n');
    }
    for (reason, clusters) in &reasons {
        let _ = writeln!(text, "{reason} ({})", named(clusters));
    }
    if !reasons.is_empty() {
        text.push('\n');
    }
    summary(plan, &mut text);
    text
}

fn row(cluster: &str, extension: &ExtensionPlan) -> Vec<String> {
    let cell = |text: Option<&str>| text.unwrap_or(NONE).to_owned();
    let version = |step: &Step| step.bundle.version.clone();
    let steps: Vec<String> = extension.updates.iter().map(version).collect();
    vec![
        cluster.to_owned(),
        extension.extension.clone(),
        word(extension.change).to_owned(),
        cell(extension.installed.as_deref()),
        cell(Some(steps.join(", ").as_str()).filter(|steps| !steps.is_empty())),
        extension
            .newest
            .as_ref()
            .or(extension.updates.last())
            .map_or_else(|| cell(extension.installed.as_deref()), version),
        cell(extension.held_back_by),
    ]
}

const fn word(change: Change) -> &'static str {
    match change {
        Change::Install => "Install",
        Change::Update => "Update",
        Change::Stay => "Stay",
        Change::NoBundle => "NoBundle",
        Change::OtherCatalog => "OtherCatalog",
    }
}

/// The notes that are not in the row of an extension.
fn notes(extension: &ExtensionPlan) -> Vec<String> {
    let name = escape(&extension.extension);
    let mut notes = Vec::new();
    let why = extension.reasons.iter().map(|reason| escape(reason).into_owned());
    let why: Vec<String> = why.collect();
    match &extension.newest {
        Some(newest) if !why.is_empty() => {
            let bundle = escape(&newest.bundle.name);
            notes.push(format!("{name}: {bundle} is not chosen: {}", why.join("; ")));
        }
        _ => notes.extend(why.iter().map(|why| format!("{name}: {why}"))),
    }
    for step in extension
        .updates
        .iter()
        .filter(|step| !step.together_with.is_empty())
    {
        notes.push(format!(
            "{name}: {} updates together with {}",
            escape(&step.bundle.name),
            escape(&step.together_with.join(", "))
        ));
    }
    if !extension.unknown_catalogs.is_empty() && extension.change != Change::OtherCatalog {
        notes.push(format!(
            "{name}: it may choose from other catalogs too: {}; name their content by --with",
            escape(&extension.unknown_catalogs.join(", "))
        ));
    }
    notes
}

/// `on a, b`, `on a, b, c and 4 more`.
fn named(clusters: &[&str]) -> String {
    format!("on {}", first_of(clusters.iter().map(|name| escape(name)), NAMED))
}

fn summary(plan: &FleetPlan, text: &mut String) {
    let summary = &plan.summary;
    let of = |change| summary.changes.get(&change).copied().unwrap_or_default();
    let _ = writeln!(
        text,
        "{} of {} would change: {}, {}; {} stay, {} without a bundle, {} from other catalogs",
        summary.clusters_that_change,
        counted(summary.clusters, "cluster"),
        counted(of(Change::Install), "install"),
        counted(of(Change::Update), "update"),
        of(Change::Stay),
        of(Change::NoBundle),
        of(Change::OtherCatalog),
    );
    if !summary.held_back_by.is_empty() {
        let by = summary.held_back_by.iter();
        let by: Vec<String> = by.map(|(by, number)| format!("{number} by {by}")).collect();
        let _ = writeln!(text, "held back from the newest version: {}", by.join(", "));
    }
}
