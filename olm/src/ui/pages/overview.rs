//! The lists: extensions and catalogs.

use jiff::Timestamp;
use maud::{Markup, html};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::conditions::{READY, find};
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_serve::design::{badge, symbol};

use super::{Menu, Origin, UNSEARCHED, ago, page, state_badge, table};
use crate::extension::look::{MAX_LINE, NONE, first_line};
use crate::ui::read::{Query, State, fault};

/// The overview of all extensions.
pub(in crate::ui) fn extensions(origin: Origin<'_>, query: &Query, all: &[ClusterExtension]) -> Markup {
    let found: Vec<&ClusterExtension> = all.iter().filter(|one| query.takes(one)).collect();
    let in_state = |state: State| found.iter().filter(|one| State::of(one) == state).count();
    let shown: Vec<&ClusterExtension> = found
        .iter()
        .copied()
        .filter(|one| query.state.is_none_or(|state| State::of(one) == state))
        .collect();
    let content = html! {
        div class="page" id="results" {
            div class="headline" {
                h1 { "Extensions" }
                span class="count" { strong { (shown.len()) } " of " (all.len()) }
            }
            nav class="chips" aria-label="States" {
                (chip(query, None, "All", found.len()))
                @for state in State::ALL {
                    @let count = in_state(state);
                    @if count > 0 || query.state == Some(state) { (chip(query, Some(state), state.text(), count)) }
                }
            }
            @if all.is_empty() {
                div class="empty" {
                    (symbol("package"))
                    p { "There is no ClusterExtension. " code { "olm search WORD" } " finds packages, " code { "olm install PACKAGE" } " installs one." }
                }
            } @else if shown.is_empty() {
                div class="empty" { (symbol("search")) p { "No extension fits. " a href="/" { "Show all" } } }
            } @else {
                section {
                    (table("Extensions", &["Extension", "State", "Installed", "Asked for", "Update", "Problem"], &shown, |one| row(one)))
                }
            }
        }
    };
    let state: Vec<(&'static str, &str)> = query
        .state
        .map(|state| ("state", state.key()))
        .into_iter()
        .collect();
    page(
        origin,
        "Extensions",
        Menu::Extensions,
        (&query.words, &state),
        &content,
    )
}

fn chip(query: &Query, state: Option<State>, text: &str, count: usize) -> Markup {
    let mut pairs = Vec::new();
    if !query.words.is_empty() {
        pairs.push(("q", query.words.as_str()));
    }
    pairs.extend(state.map(|state| ("state", state.key())));
    let address = reqwest::Url::parse_with_params("http://localhost/", &pairs);
    let address = address.map_or("/".to_owned(), |address| {
        format!(
            "/{}",
            address
                .query()
                .map(|query| format!("?{query}"))
                .unwrap_or_default()
        )
    });
    let current = (query.state == state).then_some("true");
    html! {
        a href=(address) class=(if current.is_some() { "" } else { "plain" }) aria-current=[current] {
            (text) " " span class="number" { (count) }
        }
    }
}

fn row(one: &ClusterExtension) -> Markup {
    let status = one.status.as_ref();
    let filter = one.spec.source.catalog.as_ref();
    let package = filter
        .map(|filter| filter.package_name.as_str())
        .unwrap_or_default();
    let installed = status.and_then(|status| status.install.as_ref());
    let updates = status.and_then(|status| status.updates.as_ref());
    // What holds back an update is about the next one, if there is one.
    let update = updates.and_then(|updates| updates.next.as_ref().or(updates.newest.as_ref()));
    let held = updates.and_then(|updates| updates.held_back_by.as_deref());
    let asked = filter.and_then(|filter| filter.version.as_deref());
    let state = State::of(one);
    html! {
        td {
            a href={ "/extensions/" (one.name()) } { strong { (one.name()) } }
            @if package != one.name() { div class="quiet mono" { (package) } }
        }
        td class="nowrap" { (state_badge(state)) }
        td class="mono" { (installed.map_or(NONE, |install| install.bundle.version.as_str())) }
        td class="mono" { (asked.filter(|asked| !asked.is_empty()).unwrap_or("any")) }
        td class="nowrap" {
            @match update {
                Some(update) => {
                    (badge("version", &update.version))
                    @if let Some(held) = held { " " span class="quiet" { "held back by " (held) } }
                },
                None => (NONE),
            }
        }
        td class="wide" {
            @if let Some((_, message)) = fault(one) { p class="why" { (first_line(message, MAX_LINE)) } }
        }
    }
}

/// The list of catalogs.
pub(in crate::ui) fn catalogs(origin: Origin<'_>, all: &[ClusterCatalog]) -> Markup {
    let content = html! {
        div class="page" {
            div class="headline" {
                h1 { "Catalogs" }
                span class="count" { strong { (all.len()) } }
            }
            @if all.is_empty() {
                div class="empty" { (symbol("layers")) p { "There is no ClusterCatalog." } }
            } @else {
                section {
                    (table("Catalogs", &["Catalog", "State", "Image", "Priority", "Unpacked", "Problem"], all, |one| catalog(one, origin.now)))
                }
            }
        }
    };
    page(origin, "Catalogs", Menu::Catalogs, UNSEARCHED, &content)
}

fn catalog(one: &ClusterCatalog, now: Timestamp) -> Markup {
    let status = one.status.as_ref();
    let image = one
        .spec
        .source
        .image
        .as_ref()
        .map(|image| image.reference.as_str());
    let resolved = status.and_then(|status| status.resolved_source.as_ref()?.image.as_ref());
    let unpacked = status.and_then(|status| status.last_unpacked.as_ref());
    let ready = find(one.conditions(), READY);
    let is_ready = ready.is_some_and(|ready| ready.status == "True");
    let state = match ready {
        _ if one.spec.availability_mode == AvailabilityMode::Unavailable => badge("warn", "Unavailable"),
        Some(_) if is_ready => badge("good", "Ready"),
        Some(ready) => badge("bad", &ready.reason),
        None => badge("", "Progressing"),
    };
    html! {
        td { strong { (one.name()) } }
        td class="nowrap" { (state) }
        td class="mono wide" {
            (image.unwrap_or(NONE))
            @if let Some(resolved) = resolved { div class="quiet" { (resolved.reference) } }
        }
        td class="right" { (one.spec.priority) }
        td class="nowrap" { (ago(unpacked, now)) }
        td class="wide" {
            @if let Some(ready) = ready.filter(|_| !is_ready) { p class="why" { (first_line(&ready.message, MAX_LINE)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin<'_> = Origin {
        server: "s",
        now: Timestamp::UNIX_EPOCH,
    };

    #[test]
    fn names_and_messages_of_the_cluster_are_escaped() {
        let mut one = ClusterExtension::new("a", olm_api::cluster_extension::ClusterExtensionSpec::default());
        let readiness = olm_api::readiness::Readiness {
            verdict: olm_api::readiness::Verdict::Stalled,
            reason: "Blocked",
            message: "<img src=x onerror=alert(1)>",
            observed_generation: 1,
        };
        let status = one.status.get_or_insert_default();
        olm_api::readiness::set_readiness(&mut status.conditions, readiness, jiff::Timestamp::UNIX_EPOCH);
        let text = extensions(ORIGIN, &Query::default(), &[one]).0;
        assert!(text.contains("&lt;img src=x"), "{text}");
        assert!(text.contains("href=\"/?state=blocked\""), "{text}");
        assert!(text.contains("<strong>1</strong> of 1"), "{text}");
    }

    #[test]
    fn the_next_update_is_held_back_not_the_newest_version() {
        let bundle = |version: &str| olm_api::updates::AvailableBundle {
            version: version.to_owned(),
            ..olm_api::updates::AvailableBundle::default()
        };
        let mut one = ClusterExtension::new("a", olm_api::cluster_extension::ClusterExtensionSpec::default());
        one.status.get_or_insert_default().updates = Some(olm_api::updates::UpdatesStatus {
            next: Some(bundle("1.1.0")),
            newest: Some(bundle("2.0.0")),
            held_back_by: Some(olm_api::updates::held_back::APPROVAL.to_owned()),
            ..olm_api::updates::UpdatesStatus::default()
        });
        let text = extensions(ORIGIN, &Query::default(), &[one]).0;
        assert!(text.contains("held back by Approval"), "{text}");
        assert!(text.contains("1.1.0") && !text.contains("2.0.0"), "{text}");
    }

    #[test]
    fn a_state_without_extensions_has_no_link() {
        let text = extensions(ORIGIN, &Query::parse("q=x&state=paused"), &[]).0;
        assert!(text.contains("href=\"/?q=x&amp;state=paused\""), "{text}");
        assert!(!text.contains("state=ready"), "{text}");
        let kept = "<input type=\"hidden\" name=\"state\" value=\"paused\">";
        assert!(text.contains(kept), "a search keeps the state: {text}");
    }
}
