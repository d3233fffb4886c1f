//! The page that says why there is no other.

use http::StatusCode;
use maud::{Markup, html};

use super::layout::page;

/// The page in the place of one that there is not; `package` is what was looked for, where that is known.
pub(crate) fn refusal(status: StatusCode, why: &str, package: Option<&str>) -> Markup {
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
