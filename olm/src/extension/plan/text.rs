//! A plan as text: the summary, then the details.

use std::fmt::Write as _;

use olm_api::text::counted;
use olm_plan::ChangePlan;
use olm_plan::definitions::{Class, Effect};
use olm_plan::fields::FieldChange;
use olm_plan::rights::{Grant, RightsChange};
use olm_preflight::permissions::describe;
use serde_json::Value;

/// Fields of one object that are shown.
const MAX_FIELDS: usize = 20;
/// The longest value that is shown, in characters.
const MAX_VALUE: usize = 120;

/// The plan as text.
pub(super) fn text(plan: &ChangePlan) -> String {
    let mut text = summary(plan);
    if plan.is_empty() {
        text.push_str("\nNothing changes.\n");
    } else {
        changes(plan, &mut text);
    }
    lines("Refused images", &plan.observed.refused_images, &mut text);
    lines("Notes", &plan.observed.notes, &mut text);
    let _ = write!(text, "\nDigest: {}\n", plan.digest);
    text
}

fn changes(plan: &ChangePlan, text: &mut String) {
    objects(plan, text);
    rights("Rights that the bundle grants", &plan.rights, text);
    if let Some(account_rights) = &plan.account_rights
        && plan.installed.is_some()
    {
        let title = format!("Rights that service account {} needs", plan.account);
        rights(&title, account_rights, text);
    }
    missing(plan, text);
    definitions(plan, text);
    images(plan, text);
}

fn summary(plan: &ChangePlan) -> String {
    let wanted = &plan.wanted;
    let from = plan
        .installed
        .as_ref()
        .map_or("nothing".to_owned(), |installed| installed.version.clone());
    let mut text = format!(
        "{}: {from} -> {} ({})\n",
        plan.extension, wanted.version, wanted.name
    );
    for (what, value) in [("image", &wanted.image), ("catalog", &plan.catalog)] {
        if !value.is_empty() {
            let _ = writeln!(text, "{what:<9}{value}");
        }
    }
    let observed = &plan.observed;
    for verified in observed.verified.iter().chain(&observed.verified_images) {
        let _ = writeln!(text, "verified {verified}");
    }
    if let Some(before) = plan
        .installed_account
        .as_ref()
        .filter(|before| **before != plan.account)
    {
        let _ = writeln!(text, "account  {before} -> {}", plan.account);
    }
    if !plan.passed.is_empty() {
        let _ = writeln!(text, "passed   {}", plan.passed.join(", "));
    }
    let objects = &plan.objects;
    let _ = writeln!(
        text,
        "objects  {} added, {} changed, {} removed, {} unchanged",
        objects.added.len(),
        objects.changed.len(),
        objects.removed.len(),
        objects.unchanged
    );
    let counts = |change: &RightsChange| match (change.gained.is_empty(), change.lost.is_empty()) {
        (true, true) => "unchanged",
        (false, true) => "wider",
        (true, false) => "narrower",
        (false, false) => "wider and narrower",
    };
    let _ = writeln!(text, "rights   {}", counts(&plan.rights));
    let class = match plan.definitions_class {
        Class::None => "unchanged",
        Class::Safe => "safe",
        Class::Breaking => "breaking",
    };
    let _ = writeln!(text, "crds     {class}");
    text
}

fn objects(plan: &ChangePlan, text: &mut String) {
    let objects = &plan.objects;
    if objects.added.is_empty()
        && objects.changed.is_empty()
        && objects.removed.is_empty()
        && objects.left.is_empty()
    {
        return;
    }
    text.push_str("\nObjects:\n");
    for added in &objects.added {
        let _ = writeln!(text, "+ {}", added.id);
    }
    for changed in &objects.changed {
        let _ = writeln!(text, "~ {}", changed.id);
        for field in changed.fields.iter().take(MAX_FIELDS) {
            let _ = writeln!(text, "    {}", difference(field));
        }
        let more = changed.fields.len().saturating_sub(MAX_FIELDS);
        if more > 0 {
            let _ = writeln!(text, "    and {more} more fields; -o yaml shows all");
        }
    }
    for removed in &objects.removed {
        let _ = writeln!(text, "- {removed}");
    }
    for left in &objects.left {
        let _ = writeln!(text, "  {left} (no longer in the bundle, stays on the cluster)");
    }
}

/// `path: before -> after`, or only the added or removed value.
fn difference(field: &FieldChange) -> String {
    let FieldChange { path, before, after } = field;
    match (before, after) {
        (Some(before), Some(after)) => format!("~ {path}: {} -> {}", short(before), short(after)),
        (Some(before), None) => format!("- {path}: {}", short(before)),
        (None, Some(after)) => format!("+ {path}: {}", short(after)),
        (None, None) => path.to_string(),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MAX_VALUE {
        return text;
    }
    let start: String = text.chars().take(MAX_VALUE).collect();
    format!("{start}…")
}

fn grants(sign: char, grants: &[Grant], text: &mut String) {
    for grant in grants {
        for rule in &grant.rules {
            let rule = describe(rule, grant.namespace.as_deref());
            let _ = writeln!(text, "{sign} {}: {rule}", grant.subject);
        }
        let place = grant
            .namespace
            .as_ref()
            .map_or(String::new(), |namespace| format!(" in namespace {namespace}"));
        for role in &grant.roles {
            let _ = writeln!(text, "{sign} {}: all of {role}{place}", grant.subject);
        }
    }
}

fn rights(title: &str, change: &RightsChange, text: &mut String) {
    if change.gained.is_empty() && change.lost.is_empty() {
        return;
    }
    let _ = write!(text, "\n{title}:\n");
    grants('+', &change.gained, text);
    grants('-', &change.lost, text);
}

fn missing(plan: &ChangePlan, text: &mut String) {
    let lacks = plan.observed.missing_rights.as_deref().unwrap_or_default();
    if lacks.is_empty() {
        return;
    }
    let _ = write!(text, "\nService account {} lacks:\n", plan.account);
    grants('!', lacks, text);
}

fn definitions(plan: &ChangePlan, text: &mut String) {
    if plan.definitions.is_empty() {
        return;
    }
    text.push_str("\nCustom resource definitions:\n");
    for definition in &plan.definitions {
        let sign = match definition.effect {
            Effect::Added => '+',
            Effect::Changed => '~',
            Effect::Deleted => '-',
            Effect::Left => ' ',
        };
        let objects = definition
            .objects
            .map_or(String::new(), |count| format!(" ({})", counted(count, "object")));
        let effect = match definition.effect {
            Effect::Deleted => ", deleted with all objects of its kind",
            Effect::Left => ", stays on the cluster",
            Effect::Added | Effect::Changed => "",
        };
        let _ = writeln!(text, "{sign} {}{objects}{effect}", definition.name);
        for finding in &definition.findings {
            let _ = writeln!(text, "    ! {finding}");
        }
    }
    if !plan.observed.findings.is_empty() {
        text.push_str("Compared with the definitions on the cluster:\n");
        for finding in &plan.observed.findings {
            let _ = writeln!(text, "    ! {finding}");
        }
    }
}

fn lines(title: &str, lines: &[String], text: &mut String) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(text, "\n{title}:\n");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn images(plan: &ChangePlan, text: &mut String) {
    let images = &plan.images;
    if images.added.is_empty() && images.removed.is_empty() && images.kept.is_empty() {
        return;
    }
    text.push_str("\nImages:\n");
    for (sign, list) in [('+', &images.added), ('-', &images.removed), (' ', &images.kept)] {
        for image in list {
            let _ = writeln!(text, "{sign} {image}");
        }
    }
}
