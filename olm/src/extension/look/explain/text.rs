//! An explanation for people.

use std::fmt::Write as _;

use olm_api::text::counted;

use super::Explanation;
use crate::output::table::table;

/// The number of candidates besides the chosen one.
const MAX_ROWS: usize = 10;

/// Lines of the message of `Ready` that are shown: the roles that it may hold come last.
const MAX_LINES: usize = 12;

/// The explanation as text.
pub(super) fn text(explanation: &Explanation) -> String {
    let mut text = head(explanation);
    why(explanation, &mut text);
    if let Some(verified) = &explanation.verified {
        let _ = write!(
            text,
            "\nSignatures: Verified={} since {}\n{}",
            verified.status,
            verified.since,
            indented(&verified.message)
        );
    }
    choice(explanation, &mut text);
    if !explanation.pods.is_empty() {
        text.push_str("\nPods:\n");
        for line in &explanation.pods {
            text.push_str(&indented(line));
        }
    }
    revisions(explanation, &mut text);
    for (title, lines) in [("What to do", &explanation.steps), ("Notes", &explanation.notes)] {
        if !lines.is_empty() {
            let _ = write!(text, "\n{title}:\n");
        }
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    }
    text
}

fn head(explanation: &Explanation) -> String {
    let state = if explanation.is_ready {
        "ready"
    } else {
        "not ready"
    };
    let mut text = format!("{} is {state} ({})\n", explanation.extension, explanation.reason);
    let or = |text: &Option<String>, none: &str| text.clone().unwrap_or_else(|| none.to_owned());
    for (what, value) in [
        ("package", explanation.package.clone()),
        ("installed", or(&explanation.installed, "nothing")),
        ("wanted", or(&explanation.version, "every version")),
        ("channels", explanation.channels.join(", ")),
        ("namespace", explanation.namespace.clone()),
    ] {
        if !value.is_empty() {
            let _ = writeln!(text, "{what:<11}{value}");
        }
    }
    text
}

/// The message of `Ready`, and the reason for holding back the newest version if that adds information.
fn why(explanation: &Explanation, text: &mut String) {
    let updates = explanation.updates.as_ref();
    let held = updates.and_then(|updates| updates.held_back_by.as_deref());
    let message: Vec<&str> = explanation.message.lines().collect();
    let shown = message.get(..MAX_LINES).unwrap_or(&message);
    let _ = write!(text, "\nWhy:\n{}", indented(&shown.join("\n")));
    let more = message.len() - shown.len();
    if more > 0 {
        let _ = writeln!(text, "  and {}; -o yaml shows all", counted(more, "more line"));
    }
    let (Some(updates), Some(by)) = (updates, held) else {
        return;
    };
    let bundle = updates.next.as_ref().or(updates.newest.as_ref());
    let version = bundle.map_or("the newest version", |bundle| bundle.version.as_str());
    let _ = write!(text, "\nHeld back: {version} ({by})\n");
    if !is_repeated(&updates.message, &explanation.message) {
        text.push_str(&indented(&updates.message));
    }
}

/// Whether a text, which may be truncated, begins like the other one.
fn is_repeated(text: &str, other: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    other.starts_with(line.trim_end_matches('…'))
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut indented, line| {
        let _ = writeln!(indented, "  {line}");
        indented
    })
}

fn choice(explanation: &Explanation, text: &mut String) {
    let choice = &explanation.choice;
    match (&choice.bundle, &choice.catalog, &choice.refusal) {
        (Some(bundle), Some(catalog), _) => {
            let _ = write!(
                text,
                "\nChoice: {bundle} of catalog {catalog}\n  {}\n",
                choice.rule
            );
        }
        (_, _, Some(refusal)) => {
            text.push_str("\nChoice: none\n");
            if !is_repeated(refusal, &explanation.message) {
                text.push_str(&indented(refusal));
            }
        }
        _ => {}
    }
    if explanation.candidates.is_empty() {
        return;
    }
    let shown = explanation
        .candidates
        .iter()
        .enumerate()
        .filter(|(index, row)| *index < MAX_ROWS || row.is_chosen);
    let rows: Vec<Vec<String>> = shown
        .map(|(_, row)| {
            let why = match (row.is_chosen, row.excluded_by.as_slice()) {
                (true, _) => "chosen".to_owned(),
                (false, []) if choice.bundle.is_some() => "older than the chosen one".to_owned(),
                (false, []) => "fits".to_owned(),
                (false, why) => why.join("; "),
            };
            vec![row.version.clone(), row.bundle.clone(), row.catalog.clone(), why]
        })
        .collect();
    let left = explanation.candidates.len().saturating_sub(rows.len());
    let _ = write!(
        text,
        "\nCandidates:\n{}",
        table(&["VERSION", "BUNDLE", "CATALOG", "RESULT"], &rows)
    );
    if left > 0 {
        let _ = writeln!(text, "and {left} more; -o json shows all");
    }
}

fn revisions(explanation: &Explanation, text: &mut String) {
    if explanation.revisions.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = explanation
        .revisions
        .iter()
        .map(|entry| {
            vec![
                entry.name.clone(),
                entry.bundle.version.clone(),
                entry.state.text().to_owned(),
            ]
        })
        .collect();
    let _ = write!(
        text,
        "\nRevisions:\n{}",
        table(&["NAME", "VERSION", "STATE"], &rows)
    );
}

#[cfg(test)]
mod tests {
    use olm_api::updates::{AvailableBundle, UpdatesStatus, held_back};

    use super::super::{CatalogChoice, Row, VerifiedCondition};
    use super::*;

    fn row(version: &str, is_chosen: bool, excluded_by: &[&str]) -> Row {
        Row {
            bundle: format!("greeter.v{version}"),
            version: version.to_owned(),
            catalog: "one".to_owned(),
            is_chosen,
            excluded_by: excluded_by.iter().map(|&why| why.to_owned()).collect(),
            lacks_edge: false,
        }
    }

    #[test]
    fn an_explanation_repeats_nothing() {
        assert!(is_repeated("no rights: a…", "no rights: a, b\nroles"));
        assert!(!is_repeated("no edge", "no rights"));
    }

    #[test]
    fn an_explanation_begins_with_the_state_and_ends_with_advice() {
        let explanation = Explanation {
            extension: "greeter".to_owned(),
            package: "greeter".to_owned(),
            namespace: "greeter-system".to_owned(),
            version: Some("1.x".to_owned()),
            channels: Vec::new(),
            installed: Some("1.0.0".to_owned()),
            is_ready: false,
            reason: "Blocked".to_owned(),
            message: "it waits\nfor rights".to_owned(),
            verified: Some(VerifiedCondition {
                status: "True".to_owned(),
                message: "it is signed".to_owned(),
                since: "2026-01-01T00:00:00Z".to_owned(),
            }),
            updates: Some(UpdatesStatus {
                next: Some(AvailableBundle {
                    version: "1.1.0".to_owned(),
                    ..AvailableBundle::default()
                }),
                held_back_by: Some(held_back::RIGHTS.to_owned()),
                message: "no rights".to_owned(),
                ..UpdatesStatus::default()
            }),
            choice: CatalogChoice {
                bundle: Some("greeter.v1.1.0".to_owned()),
                catalog: Some("one".to_owned()),
                rule: "the newest".to_owned(),
                ..CatalogChoice::default()
            },
            candidates: vec![
                row("2.0.0", false, &["it is outside"]),
                row("1.1.0", true, &[]),
                row("1.0.0", false, &[]),
            ],
            revisions: Vec::new(),
            pods: vec!["Deployment greeter-system/greeter has 0 of 1 Pods available".to_owned()],
            notes: Vec::new(),
            steps: vec!["act".to_owned()],
        };
        assert_eq!(
            text(&explanation),
            "greeter is not ready (Blocked)\npackage    greeter\ninstalled  1.0.0\nwanted     1.x\n\
             namespace  greeter-system\n\n\
             Why:\n  it waits\n  for rights\n\n\
             Held back: 1.1.0 (Rights)\n  no rights\n\nSignatures: Verified=True since 2026-01-01T00:00:00Z\n  it is signed\n\n\
             Choice: greeter.v1.1.0 of catalog one\n  the newest\n\nCandidates:\n\
             VERSION  BUNDLE          CATALOG  RESULT\n\
             2.0.0    greeter.v2.0.0  one      it is outside\n\
             1.1.0    greeter.v1.1.0  one      chosen\n\
             1.0.0    greeter.v1.0.0  one      older than the chosen one\n\n\
             Pods:\n  Deployment greeter-system/greeter has 0 of 1 Pods available\n\nWhat to do:\n- act\n"
        );
    }
}
