//! HTML pages, rendered here without scripts and external assets.
//!
//! Catalog content is hostile until escaped: the templates escape every value, descriptions lose their HTML and all links
//! but those to the web, and the content security policy forbids scripts.

mod error;
mod home;
mod layout;
mod markdown;
mod package;

pub(crate) use error::error;
pub(crate) use home::home;
pub(crate) use package::{Package, package};

use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};

/// The media type of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// The path below which the pages of packages lie.
pub(crate) const PACKAGE_PAGES: &str = "/packages/";
/// The style sheet of the pages.
pub(crate) const STYLE: &str = include_str!("site/style.css");

/// A description as HTML.
pub(crate) fn description(text: &str) -> String {
    markdown::render(text).0
}

/// Sets the headers by which browsers run no script, load nothing from elsewhere, and show the page in no frame.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; \
             frame-ancestors 'none'",
        ),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// The path of a package's page.
fn package_path(catalog: &str, package: &str) -> String {
    format!(
        "{}{}/{}",
        PACKAGE_PAGES,
        catalog,
        olm_api::serving::percent_encode(package)
    )
}
