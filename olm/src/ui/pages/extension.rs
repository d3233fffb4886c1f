//! The pages of one extension: its state, and its plan.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use maud::{Markup, html};
use olm_api::conditions::find;
use olm_api::pending_change::{APPLIED, DecisionOutcome};
use olm_api::{PendingChange, Time};
use olm_serve::design::{badge, block, symbol};

use super::{Menu, Origin, UNSEARCHED, ago, page, state_badge, table, words};
use crate::extension::look::events::last_seen;
use crate::extension::look::explain::Explanation;
use crate::extension::look::{NONE, age};
use crate::ui::read::{Details, Plan, State, fault};

/// Bundles of catalogs that are shown.
const MAX_CANDIDATES: usize = 15;
/// Events that are shown.
const MAX_EVENTS: usize = 30;

/// The page of an extension.
pub(in crate::ui) fn extension(origin: Origin<'_>, of: &Details) -> Markup {
    let (one, found) = (&of.extension, &of.explanation);
    let state = State::of(one);
    let content = html! {
        div class="page" {
            (crumbs(&[("/", "Extensions")], one.name()))
            div class="hero" {
                div {
                    h1 { (one.name()) " " (state_badge(state)) @if let Some(version) = &found.installed { " " (badge("version", version)) } }
                    p class="about" { span { (symbol("package")) (found.package) } span { (symbol("cube")) "Namespace " (found.namespace) } }
                }
            }
            (notice(of, state))
            div class="columns" {
                div class="text" {
                    @if !found.steps.is_empty() { (steps(found)) }
                    @for change in &of.waiting { (waiting(one.name(), change)) }
                    (updates(one.name(), found))
                    @if !found.candidates.is_empty() { (candidates(found)) }
                    (history(found, origin.now))
                    (conditions(of))
                    (happened(&of.events, origin.now))
                }
                (facts(of, origin.now))
            }
        }
    };
    page(origin, one.name(), Menu::Extensions, UNSEARCHED, &content)
}

fn crumbs(way: &[(&str, &str)], here: &str) -> Markup {
    html! {
        nav class="crumbs" aria-label="Where this page is" {
            ol {
                @for (address, text) in way { li { a href=(address) { (text) } } }
                li aria-current="page" { (here) }
            }
        }
    }
}

/// The reason why the extension is not ready, and the Pods that cause it.
fn notice(of: &Details, state: State) -> Markup {
    let class = if state == State::Blocked { "bad" } else { "wait" };
    html! {
        @if let Some((reason, message)) = fault(&of.extension) {
            div class={ "notice " (class) } { (symbol("warning")) p { strong { (reason) } ": " (words(message)) } }
        }
        @for cause in &of.explanation.pods { div class="notice bad" { (symbol("cube")) p { (words(cause)) } } }
        @for note in of.notes.iter().chain(&of.explanation.notes) { div class="notice warn" { (symbol("warning")) p { (words(note)) } } }
    }
}

fn steps(of: &Explanation) -> Markup {
    html! {
        section id="steps" {
            h2 { "What to do" }
            ol class="steps" { @for step in &of.steps { li { (words(step)) } } }
        }
    }
}

/// A change that waits.
fn waiting(name: &str, change: &PendingChange) -> Markup {
    let spec = &change.spec;
    let state = find(change.conditions(), APPLIED);
    let from = spec.from.as_deref().unwrap_or("nothing");
    html! {
        section {
            h2 { "Change waits: " (from) " to " (spec.to) }
            p class="badges" {
                (badge("", &spec.class))
                @if spec.widens_rights { (badge("warn", "widens rights")) }
                @if spec.definitions == "Breaking" { (badge("bad", "breaking CRD change")) }
            }
            @if let Some(state) = state { p { (words(&state.message)) } }
            @if let Some(decision) = &spec.decision {
                p {
                    @match decision.verdict { DecisionOutcome::Approved => "Approved", DecisionOutcome::Rejected => "Rejected" }
                    " by " strong { (decision.approver) }
                    @if !decision.note.is_empty() { ": " (decision.note) }
                }
            }
            ul class="prose" { @for line in &spec.summary { li { (line) } } }
            p { a class="button" href={ "/extensions/" (name) "/plan" } { "Show the plan" } }
            (block("Command to approve the change", &approval("approve", name, &spec.digest)))
            (block("Command to reject the change", &approval("reject", name, &spec.digest)))
        }
    }
}

fn approval(verb: &str, name: &str, digest: &str) -> String {
    format!("olm {verb} {name} --digest {digest}")
}

fn updates(name: &str, of: &Explanation) -> Markup {
    let updates = of.updates.as_ref();
    let bundle = |text: &str, found: Option<&olm_api::updates::AvailableBundle>| {
        html! {
            @if let Some(found) = found { p { (text) " " (badge("version", &found.version)) " " span class="mono quiet" { (found.name) } } }
        }
    };
    html! {
        section id="updates" {
            h2 { "Updates" }
            @match updates {
                Some(updates) => {
                    (bundle("Chosen next:", updates.next.as_ref()))
                    (bundle("Newest:", updates.newest.as_ref()))
                    @if let Some(held) = &updates.held_back_by { p { "Held back by " (badge("warn", held)) } }
                    @if !updates.message.is_empty() { p { (words(&updates.message)) } }
                    @if updates.next.is_none() && updates.newest.is_none() { p class="quiet" { "There is no newer version." } }
                },
                None => p class="quiet" { "It is not known yet whether there are updates." },
            }
            @if !of.choice.rule.is_empty() { p class="quiet" { "The catalogs give " (of.choice.bundle.as_deref().unwrap_or(NONE)) ": " (of.choice.rule) "." } }
            @if let Some(refusal) = &of.choice.refusal { p class="why" { (words(refusal)) } }
            p { a class="button" href={ "/extensions/" (name) "/plan" } { "Plan the next change" } }
        }
    }
}

fn candidates(of: &Explanation) -> Markup {
    let shown = of.candidates.get(..MAX_CANDIDATES).unwrap_or(&of.candidates);
    html! {
        section id="candidates" {
            h2 { "Bundles of the catalogs " span class="number" { (of.candidates.len()) } }
            (table("Bundles of the catalogs", &["Version", "Bundle", "Catalog", "Excluded by"], shown, |row| html! {
                td class="mono nowrap" { (row.version) @if row.is_chosen { " " (badge("good", "chosen")) } }
                td class="mono nowrap" { (row.bundle) }
                td { (row.catalog) }
                td class="wide" { @for reason in &row.excluded_by { div class="why" { (reason) } } }
            }))
            @if of.candidates.len() > shown.len() { p { code { "olm explain " (of.extension) } " lists all." } }
        }
    }
}

fn history(of: &Explanation, now: Timestamp) -> Markup {
    html! {
        section id="history" {
            h2 { "History " span class="number" { (of.revisions.len()) } }
            @if of.revisions.is_empty() { p class="quiet" { "There is no revision yet." } }
            @else {
                (table("History", &["Revision", "Version", "Created", "Available", "Approved by", "State"], &of.revisions, |entry| html! {
                    td { (entry.revision) }
                    td class="mono" { (entry.bundle.version) }
                    td class="nowrap" { (ago(entry.created.as_ref(), now)) }
                    td class="nowrap" { (ago(entry.available.as_ref(), now)) }
                    td { (entry.approver.as_deref().unwrap_or(NONE)) }
                    td { (entry.state.text()) }
                }))
            }
        }
    }
}

fn conditions(of: &Details) -> Markup {
    html! {
        section id="conditions" {
            h2 { "Conditions" }
            (table("Conditions", &["Type", "Status", "Reason", "Message"], of.extension.conditions(), |condition| html! {
                td { (condition.type_) }
                td { (condition.status) }
                td { (condition.reason) }
                td class="wide" { (words(&condition.message)) }
            }))
        }
    }
}

fn happened(events: &[Event], now: Timestamp) -> Markup {
    let shown = events.get(..MAX_EVENTS).unwrap_or(events);
    html! {
        section id="events" {
            h2 { "Events " span class="number" { (events.len()) } }
            @if events.is_empty() { p class="quiet" { "The API server keeps no event about it." } }
            @else {
                (table("Events", &["Seen", "Reason", "Message"], shown, |event| html! {
                    td class="nowrap" { (ago(last_seen(event).map(Time).as_ref(), now)) }
                    td { @if event.type_.as_deref() == Some("Warning") { (badge("warn", event.reason.as_deref().unwrap_or(NONE))) } @else { (event.reason.as_deref().unwrap_or(NONE)) } }
                    td class="wide" { (words(event.message.as_deref().unwrap_or(NONE))) }
                }))
            }
        }
    }
}

fn facts(of: &Details, now: Timestamp) -> Markup {
    let (one, found) = (&of.extension, &of.explanation);
    let filter = one.spec.source.catalog.clone().unwrap_or_default();
    let fact = |name: &str, value: &str| {
        html! { @if !value.is_empty() { div { dt { (name) } dd { (value) } } } }
    };
    html! {
        aside class="facts" aria-label="Facts" {
            dl {
                (fact("Package", &found.package))
                (fact("Asked for", found.version.as_deref().unwrap_or("any version")))
                (fact("Channels", &found.channels.join(", ")))
                (fact("Upgrade constraints", &format!("{:?}", filter.upgrade_constraint_policy)))
                (fact("Catalog", found.choice.catalog.as_deref().unwrap_or_default()))
                (fact("Namespace", &found.namespace))
                (fact("Service account", one.spec.service_account.as_ref().map_or("", |account| account.name.as_str())))
                (fact("Age", &age(one.metadata.creation_timestamp.as_ref(), now)))
            }
        }
    }
}

/// A plan, each of whose lines has the class of its sign.
fn coloured(text: &str) -> Markup {
    let class = |line: &str| match line.split_once(' ').map(|(sign, _)| sign) {
        Some("+") => Some("added"),
        Some("-") => Some("removed"),
        Some("~") => Some("changed"),
        _ => None,
    };
    html! {
        @for line in text.split_inclusive('\n') {
            @match class(line) {
                Some(class) => span class=(class) { (line) },
                None => (line),
            }
        }
    }
}

/// The page of a plan.
pub(in crate::ui) fn plan(origin: Origin<'_>, name: &str, plan: &Plan) -> Markup {
    let way = format!("/extensions/{name}");
    let content = html! {
        div class="page" {
            (crumbs(&[("/", "Extensions"), (&way, name)], "Plan"))
            h1 { "Plan of " (name) }
            @match plan {
                Plan::Refused(why) => div class="notice bad" { (symbol("warning")) p { strong { "No bundle fits" } ": " (words(why)) } },
                Plan::Made { text, digest, is_empty, waits } => {
                    @if *waits {
                        section {
                            h2 { "This change waits for a decision" }
                            (block("Command to approve the change", &approval("approve", name, digest)))
                            (block("Command to reject the change", &approval("reject", name, digest)))
                        }
                    } @else if *is_empty {
                        div class="notice wait" { (symbol("shield")) p { "Nothing changes." } }
                    }
                    section { h2 { "Changes" } pre tabindex="0" { code { (coloured(text)) } } }
                },
            }
        }
    };
    page(
        origin,
        &format!("Plan of {name}"),
        Menu::Extensions,
        UNSEARCHED,
        &content,
    )
}

#[cfg(test)]
mod tests {
    use super::coloured;

    #[test]
    fn the_lines_of_a_plan_have_the_class_of_their_sign() {
        assert_eq!(
            coloured("Objects:\n+ Role a\n- Role <b>\n~ Role c\n    x\n").0,
            "Objects:\n<span class=\"added\">+ Role a\n</span><span class=\"removed\">- Role &lt;b&gt;\n</span>\
             <span class=\"changed\">~ Role c\n</span>    x\n"
        );
    }
}
