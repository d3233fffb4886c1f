//! The first page: the search over all catalogs.

use maud::{Markup, html};

use super::icons::IconSize;
use super::layout::{Frame, badge, page};
use super::query_parameters::QueryParameters;
use super::{facets, icons, package_path};
use crate::search_page::{Facet, SearchPage, SearchResult};

/// The page with the results and the links to further pages.
pub(crate) fn home(parameters: &QueryParameters, found: &SearchPage, catalogs: usize) -> Markup {
    let words = parameters.get("q");
    let content = html! {
        div class="page home" {
            (facets::aside(parameters, &found.facets))
            div id="results" {
                div class="headline" {
                    h1 { @if words.is_empty() { "Packages" } @else { "Results for “" (words) "”" } }
                    p class="count" role="status" {
                        strong { (found.total) } @if found.total == 1 { " package" } @else { " packages" }
                        " in " (catalogs) @if catalogs == 1 { " catalog" } @else { " catalogs" }
                    }
                    @if found.total > 1 { (orders(parameters)) }
                    a class="button small open-filters" href="#filters" { (icons::symbol("filter")) "Filters" }
                }
                (chips(parameters))
                @if found.items.is_empty() { (nothing(words, found, catalogs)) }
                @else {
                    ul class="cards" { @for found in &found.items { li { (card(found, catalogs > 1)) } } }
                }
                (paging(parameters, found))
            }
        }
    };
    let searched = format!("{words} · Packages");
    let frame = Frame {
        title: if words.is_empty() { "Packages" } else { &searched },
        words,
        kept: parameters.without("q").collect(),
        feed: None,
    };
    page(&frame, &content)
}

/// Links to the orders of the results.
fn orders(parameters: &QueryParameters) -> Markup {
    let is_by_date = parameters.get("sort") == "created";
    let first = if parameters.get("q").is_empty() {
        "Name"
    } else {
        "Relevance"
    };
    html! {
        p class="orders" aria-label="Order" {
            @for (title, value, is_set) in [(first, None, !is_by_date), ("Newest", Some("created"), is_by_date)] {
                @if is_set { strong aria-current="true" { (title) } }
                @else { a href=(parameters.with("sort", value)) { (title) } }
            }
        }
    }
}

/// The set filters, each with a link that removes it.
fn chips(parameters: &QueryParameters) -> Markup {
    let keys = Facet::ALL.map(Facet::parameter).into_iter();
    let set: Vec<(&str, &str)> = keys
        .chain(["keyword", "name"])
        .map(|key| (key, parameters.get(key)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    html! {
        @if !set.is_empty() {
            ul class="chips" aria-label="Filters that are set" {
                @for (key, value) in &set {
                    li {
                        a href=(parameters.with(facets::known(key), None)) {
                            span { (facets::title(key)) ": " strong { (facets::shown(key, value)) } }
                            (icons::symbol("close")) span class="hidden" { "Remove" }
                        }
                    }
                }
                @if set.len() > 1 { li { a class="plain" href=(parameters.only(&["q", "sort"])) { "Clear all" } } }
            }
        }
    }
}

/// The reason why nothing was found, with suggestions.
fn nothing(words: &str, found: &SearchPage, catalogs: usize) -> Markup {
    html! {
        div class="empty" {
            (icons::symbol("package"))
            @if catalogs == 0 {
                p { "No catalog is served yet: this page fills as soon as the first one is unpacked." }
            } @else if words.is_empty() {
                p { "No package matches the filters." }
            } @else {
                p { "No package has all of these words in its name, summary, provider, keywords, categories or APIs: " (words) "." }
            }
            (near_packages(&found.near))
            @if catalogs > 0 { p { a class="button" href="/" { "All packages" } } }
        }
    }
}

/// A package; with its catalog if there are several.
fn card(found: &SearchResult, several: bool) -> Markup {
    let facts = &found.facts;
    let path = package_path(&found.catalog, &facts.name);
    let title = if facts.display_name.is_empty() {
        &facts.name
    } else {
        &facts.display_name
    };
    let icon = facts.icon.then(|| format!("{path}/icon"));
    html! {
        article class="card" {
            div class="card-head" {
                (icons::of_package(icon.as_deref(), title, IconSize::Card))
                div {
                    h2 { a href=(path) { (title) } }
                    @if facts.provider.is_empty() || !is_slug(&facts.name, title) {
                        p class="by" title=(facts.name) { code { (facts.name) } }
                    }
                    @if !facts.provider.is_empty() { p class="by" title=(facts.provider) { (facts.provider) } }
                }
            }
            @if !facts.summary.is_empty() { p class="summary" { (facts.summary) } }
            p class="card-foot" {
                @if !facts.latest_version.is_empty() { (badge("version", &facts.latest_version)) }
                @if !facts.deprecated.is_empty() { (badge("warn", "deprecated")) }
                @if !facts.created.is_empty() { time class="quiet" title="Published" { (facts.created) } }
                // With a date and a catalog there is no room for it.
                @if let Some(category) = facts.categories.first() && (facts.created.is_empty() || !several) {
                    span class="quiet" { (category) }
                }
                @if several { span class="quiet catalog" { (icons::symbol("layers")) span { (found.catalog) } } }
            }
        }
    }
}

/// Whether a name says the same as a title, in lower case and with hyphens.
fn is_slug(name: &str, title: &str) -> bool {
    let letters = |text: &str| -> String {
        let letters = text.chars().filter(|letter| letter.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect()
    };
    letters(name) == letters(title)
}

/// Links to the pages before and after.
fn paging(parameters: &QueryParameters, found: &SearchPage) -> Markup {
    let page = found.start.checked_div(found.limit).unwrap_or(0) + 1;
    let pages = found.total.div_ceil(found.limit.max(1));
    let before = found.start.saturating_sub(found.limit);
    let back = (found.start > 0).then(|| {
        let cursor = (before > 0).then(|| before.to_string());
        parameters.with("cursor", cursor.as_deref())
    });
    html! {
        @if back.is_some() || found.next.is_some() {
            nav class="paging" aria-label="Pages" {
                @match &back {
                    Some(back) => a class="button" rel="prev" href=(back) { "Previous" },
                    None => span class="button off" { "Previous" },
                }
                span { "Page " (page) " of " (pages) }
                @match &found.next {
                    Some(next) => a class="button" rel="next" href=(parameters.with("cursor", Some(next))) { "Next" },
                    None => span class="button off" { "Next" },
                }
            }
        }
    }
}

/// The packages that a name may stand for, each after its catalog.
pub(super) fn near_packages(near: &[(String, String)]) -> Markup {
    html! {
        @if !near.is_empty() {
            p { "Did you mean" }
            ul class="near" {
                @for (catalog, package) in near {
                    li { a href=(package_path(catalog, package)) { (package) } span { " in " (catalog) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_repeats_the_title_is_not_shown_again() {
        for (name, title, expected) in [
            ("anchor-database", "Anchor Database", true),
            ("cert-manager", "cert-manager", true),
            (
                "ack-s3-controller",
                "AWS Controllers for Kubernetes - Amazon S3",
                false,
            ),
        ] {
            assert_eq!(is_slug(name, title), expected, "{name}");
        }
    }
}
