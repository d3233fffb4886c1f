//! The assessments of Subscriptions as text. Pure.

use std::fmt::Write as _;

use olm_migrate::assess::Assessment;
use olm_migrate::check::Severity;
use olm_migrate::facts::{name, namespace, text as text_of};
use olm_migrate::objects::backup::Record;

use crate::output::table::table;

/// A table of the Subscriptions, and below it the findings and changes of each.
pub(crate) fn text(assessed: &[Assessment]) -> String {
    let rows: Vec<Vec<String>> = assessed
        .iter()
        .map(|one| {
            let count = |severity| {
                one.findings
                    .iter()
                    .filter(|found| found.severity == severity)
                    .count()
            };
            let (blocks, asks) = (count(Severity::Blocks), count(Severity::Acknowledge));
            let answer = match (blocks, asks) {
                (0, 0) => "yes".to_owned(),
                (0, asks) => format!("after {asks} to acknowledge"),
                (blocks, _) => format!("no, {blocks} to fix"),
            };
            vec![
                one.namespace.clone(),
                one.name.clone(),
                one.package.clone(),
                one.version.clone(),
                answer,
                one.extension.name().to_owned(),
            ]
        })
        .collect();
    let heads = [
        "NAMESPACE",
        "SUBSCRIPTION",
        "PACKAGE",
        "INSTALLED",
        "CAN MOVE",
        "CLUSTEREXTENSION",
    ];
    let mut text = table(&heads, &rows);
    for one in assessed {
        let _ = writeln!(text, "\n{}", one.key());
        if !one.moves_with.is_empty() {
            let _ = writeln!(text, "  moves together with {}", one.moves_with.join(", "));
        }
        for finding in &one.findings {
            let weight = match finding.severity {
                Severity::Blocks => "blocked",
                Severity::Acknowledge => "to acknowledge",
                Severity::Acknowledged => "acknowledged",
            };
            let _ = writeln!(text, "  {weight} ({}): {}", finding.check, finding.message);
            if finding.severity != Severity::Acknowledged {
                let _ = writeln!(text, "    {}", finding.fix);
            }
        }
        for change in &one.changes {
            let _ = writeln!(text, "  {} -> {}", change.from, change.to);
        }
    }
    text
}

/// The objects that go back to OLM classic, and the findings that block it.
pub(crate) fn way_back(record: &Record, findings: &[String]) -> String {
    let mut text = format!(
        "Subscription {}/{}: ClusterServiceVersion {} with {} objects\n",
        namespace(&record.subscription),
        name(&record.subscription),
        name(&record.version),
        record.objects.len()
    );
    for kept in &record.objects {
        let _ = writeln!(
            text,
            "  {} {}",
            text_of(&kept.object, "/kind"),
            name(&kept.object)
        );
    }
    for finding in findings {
        let _ = writeln!(text, "  blocked: {finding}");
    }
    text
}
