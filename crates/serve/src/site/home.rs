//! The first page: the search over all catalogs.

use maud::{Markup, html};

use super::layout::page;
use super::package_path;
use crate::search_page::{SearchPage, SearchResult};

/// The page with what was found, and how to go on.
pub(crate) fn home(words: &str, query: &str, found: &SearchPage, catalogs: usize) -> Markup {
    let content = html! {
        h1 { "Packages" }
        p {
            (found.total) @if found.total == 1 { " package" } @else { " packages" }
            " in " (catalogs) @if catalogs == 1 { " catalog" } @else { " catalogs" } "."
        }
        @if found.items.is_empty() { (nothing(words, found, catalogs)) }
        ul class="packages" {
            @for found in &found.items { li { (entry(found)) } }
        }
        @if let Some(next) = &found.next {
            p { a rel="next" href={ "/?" (query) "&cursor=" (next) } { "More" } }
        }
    };
    page("Packages", words, &content)
}

/// Why there is nothing, and where to go from there.
fn nothing(words: &str, found: &SearchPage, catalogs: usize) -> Markup {
    html! {
        @if catalogs == 0 {
            p { "No catalog is served yet: this page fills as soon as the first one is unpacked." }
        } @else {
            p {
                @if words.is_empty() { "No package is like that." }
                @else { "No package has all of these words in its name, summary, provider or keywords: " (words) "." }
            }
            @if !found.near.is_empty() {
                p { "Did you mean" }
                ul {
                    @for (catalog, package) in &found.near {
                        li { a href=(package_path(catalog, package)) { (package) } ", in catalog " (catalog) }
                    }
                }
            }
            p { a href="/" { "All packages" } }
        }
    }
}

fn entry(found: &SearchResult) -> Markup {
    let facts = &found.facts;
    html! {
        h2 {
            a href=(package_path(&found.catalog, &facts.name)) {
                @if facts.display_name.is_empty() { (facts.name) } @else { (facts.display_name) }
            }
        }
        p class="about" {
            code { (facts.name) } " " (facts.latest_version)
            @if !facts.provider.is_empty() { " by " (facts.provider) }
            ", in catalog " (found.catalog)
            @if !facts.categories.is_empty() { ". " (facts.categories.join(", ")) }
        }
        @if !facts.deprecated.is_empty() { p class="deprecated" { "Deprecated: " (facts.deprecated) } }
        @if !facts.summary.is_empty() { p { (facts.summary) } }
    }
}
