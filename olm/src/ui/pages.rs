//! The pages as HTML, in the design of the catalog pages. All text from the cluster is escaped.

mod extension;
mod overview;

pub(super) use extension::{extension, plan};
pub(super) use overview::{catalogs, extensions};

use jiff::Timestamp;
use maud::{Markup, html};
use olm_api::Time;
use olm_serve::design::{Document, badge, document, search, symbol};

use super::read::State;
use crate::extension::look::{NONE, age};

/// The name of the site.
const SITE: &str = "OLM cluster";

/// The entry of the menu for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Menu {
    Extensions,
    Catalogs,
}

/// The source of what a page shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'of> {
    /// The address of the API server.
    pub(super) server: &'of str,
    /// The time when the page was made.
    pub(super) now: Timestamp,
}

/// The search field of a page: its words, and the parameters that a search keeps.
type Searched<'of> = (&'of str, &'of [(&'static str, &'of str)]);

/// The search field of a page without results.
const UNSEARCHED: Searched<'_> = ("", &[]);

/// A whole page.
fn page(
    origin: Origin<'_>,
    title: &str,
    menu: Menu,
    (words, kept): Searched<'_>,
    content: &Markup,
) -> Markup {
    let entry = |of: Menu, address: &str, text: &str| {
        let current = (of == menu).then_some("page");
        html! { a href=(address) aria-current=[current] { (text) } }
    };
    let around = Document {
        title,
        site: SITE,
        head: Markup::default(),
        header: html! {
            nav class="menu" aria-label="Pages" {
                (entry(Menu::Extensions, "/", "Extensions"))
                (entry(Menu::Catalogs, "/catalogs", "Catalogs"))
            }
            (search("Search extensions", words, kept))
        },
        footer: html! {
            span {
                "Read from " span class="mono" { (origin.server) } " at " (origin.now.strftime("%H:%M:%S")) " UTC "
                a href="" { "Reload" }
            }
            span { "These pages change nothing" }
        },
    };
    document(&around, content)
}

/// The page of an address that leads nowhere.
pub(super) fn missing(origin: Origin<'_>) -> Markup {
    let content = html! {
        div class="page empty" {
            p class="code" { "404" }
            h1 { "Not found" }
            p { "The cluster has no such object, or it was deleted." }
            p { a class="button" href="/" { "All extensions" } }
        }
    };
    page(origin, "Not found", Menu::Extensions, UNSEARCHED, &content)
}

/// The page instead of one that failed.
pub(super) fn failed(origin: Origin<'_>, error: &str) -> Markup {
    let content = html! {
        div class="page" {
            h1 { "The cluster cannot be read" }
            div class="notice bad" { (symbol("warning")) p { (error) } }
        }
    };
    page(origin, "Error", Menu::Extensions, UNSEARCHED, &content)
}

/// The mark of a state.
fn state_badge(state: State) -> Markup {
    let class = match state {
        State::Ready => "good",
        State::Blocked => "bad",
        State::Waiting | State::Paused => "warn",
        State::Progressing | State::Deleting => "",
    };
    badge(class, state.text())
}

/// How long ago a time was; the time itself is its title.
fn ago(time: Option<&Time>, now: Timestamp) -> Markup {
    html! {
        @match time {
            Some(time) => time datetime=(time.0) title=(time.0) { (age(Some(time), now)) " ago" },
            None => (NONE),
        }
    }
}

/// Text with its parts in backticks as code.
fn words(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A table with its headings in the first row.
fn table<T>(label: &str, heads: &[&str], rows: &[T], cells: impl Fn(&T) -> Markup) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for row in rows { tr { (cells(row)) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_a_text_are_code_and_all_else_is_escaped() {
        let text = words("`olm get <x>` shows <b>").0;
        assert_eq!(text, "<code>olm get &lt;x&gt;</code> shows &lt;b&gt;");
    }

    #[test]
    fn an_error_is_shown_as_text() {
        let origin = Origin {
            server: "https://api.example",
            now: Timestamp::UNIX_EPOCH,
        };
        let page = failed(origin, "<script>alert(1)</script>").0;
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
        assert!(page.contains("https://api.example"));
        assert!(
            page.contains(" at 00:00:00 UTC <a href=\"\">Reload</a>"),
            "{page}"
        );
    }

    #[test]
    fn times_are_ages_with_the_time_as_title() {
        let time = Time(Timestamp::UNIX_EPOCH);
        let now = Timestamp::from_second(7200).unwrap();
        assert_eq!(
            ago(Some(&time), now).0,
            "<time datetime=\"1970-01-01T00:00:00Z\" title=\"1970-01-01T00:00:00Z\">2h ago</time>"
        );
        assert_eq!(ago(None, now).0, NONE);
    }
}
