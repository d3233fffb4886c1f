//! The error page.

use http::StatusCode;
use maud::{Markup, html};

use super::home::near_packages;
use super::layout::{Frame, page};

/// The error page; `package` is the requested one, if the path names one, for the search field, and `near` are those that
/// it may stand for.
pub(crate) fn error(
    status: StatusCode,
    why: &str,
    package: Option<&str>,
    near: &[(String, String)],
) -> Markup {
    let title = status.canonical_reason().unwrap_or("Error");
    let content = html! {
        div class="page empty" {
            p class="code" { (status.as_u16()) }
            h1 { (title) }
            p { (quoted(&sentence(why))) }
            (near_packages(near))
            p {
                @if package.is_some() { "Search for it in all catalogs with the field above, or see " } @else { "See " }
                a href="/" { "all packages" } "."
            }
        }
    };
    let frame = Frame {
        title,
        words: package.unwrap_or_default(),
        ..Frame::default()
    };
    page(&frame, &content)
}

/// An error as a sentence.
fn sentence(why: &str) -> String {
    let mut letters = why.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let end = if why.ends_with('.') { "" } else { "." };
    first.chain(letters).chain(end.chars()).collect()
}

/// A text with its names in backticks as HTML.
fn quoted(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
