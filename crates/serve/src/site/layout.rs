//! The common parts of all pages.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{SCRIPT, icons};

/// The frame of a page.
#[derive(Debug, Default)]
pub(super) struct Frame<'of> {
    /// The title in the browser.
    pub(super) title: &'of str,
    /// The text in the search field.
    pub(super) words: &'of str,
    /// Parameters that a search keeps.
    pub(super) kept: Vec<(&'static str, &'of str)>,
    /// The address of the page's feed.
    pub(super) feed: Option<String>,
}

/// The frame of any page.
#[derive(Debug)]
pub struct Document<'of> {
    /// The title of the page.
    pub title: &'of str,
    /// The name of the site.
    pub site: &'of str,
    /// The content of the head besides the style.
    pub head: Markup,
    /// The content of the header besides the name of the site.
    pub header: Markup,
    /// The links of the footer.
    pub footer: Markup,
}

/// A whole page. Style and icon are at `/style.css` and `/icon.svg`.
pub fn document(document: &Document<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (document.title) " · " (document.site) }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                (document.head)
            }
            body {
                a class="skip" href="#content" { "Skip to content" }
                (icons::sprite())
                header class="top" {
                    div class="bar" {
                        a class="brand" href="/" { (icons::mark()) span { (document.site) } }
                        (document.header)
                    }
                }
                main id="content" tabindex="-1" { (content) }
                footer class="bottom" { div class="bar" { (document.footer) } }
                // Fixed text: the content security policy names its digest.
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// A page of a catalog with its content.
pub(super) fn page(frame: &Frame<'_>, content: &Markup) -> Markup {
    let around = Document {
        title: frame.title,
        site: "OLM catalogs",
        head: html! {
            @if let Some(feed) = &frame.feed {
                link rel="alternate" type="application/atom+xml" title="New versions" href=(feed);
            }
        },
        header: search("Search packages", frame.words, &frame.kept),
        footer: html! {
            span { "Served by Operator Lifecycle Manager" }
            nav aria-label="API" {
                a href="/openapi.json" { "API description" }
                a href="/catalogs" { "Catalogs as JSON" }
                a href="/api/v1/search" { "Packages as JSON" }
            }
        },
    };
    document(&around, content)
}

/// The search field of a header. `kept` are parameters that a search keeps.
pub fn search(label: &str, words: &str, kept: &[(&'static str, &str)]) -> Markup {
    html! {
        form class="search" role="search" action="/" {
            label class="hidden" for="q" { (label) }
            (icons::symbol("search"))
            input id="q" type="search" name="q" value=(words) placeholder=(label) autocomplete="off"
                spellcheck="false" maxlength="200";
            @for (key, value) in kept { input type="hidden" name=(key) value=(value); }
            button { "Search" }
        }
    }
}

/// The badge of a state; `class` determines its colour.
pub fn badge(class: &str, text: &str) -> Markup {
    html! { span class={ "badge " (class) } { (text) } }
}

/// The notice about a deprecation.
pub(super) fn deprecated(why: &str) -> Markup {
    html! {
        div class="notice warn" {
            (icons::symbol("warning"))
            p { strong { "Deprecated" } @if !why.is_empty() { ": " (why) } }
        }
    }
}
