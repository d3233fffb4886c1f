//! The error page.

use http::StatusCode;
use maud::{Markup, html};

use super::layout::page;

/// The error page; `package` is the requested one, if the path names one, for the search field.
pub(crate) fn error(status: StatusCode, why: &str, package: Option<&str>) -> Markup {
    let title = status.canonical_reason().unwrap_or("Error");
    let content = html! {
        h1 { (title) }
        p { (why) }
        p {
            @if package.is_some() { "Search for it in all catalogs with the field above, or see " } @else { "See " }
            a href="/" { "all packages" } "."
        }
    };
    page(title, package.unwrap_or_default(), &content)
}
