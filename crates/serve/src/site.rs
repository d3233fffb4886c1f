//! Pages for people: rendered here, without scripts and without anything from elsewhere.
//!
//! Whatever a catalog says is hostile until it is escaped: the templates escape every value, descriptions lose their HTML
//! and every address that is not of the web, and the browser is told to run nothing.

mod home;
mod layout;
mod markdown;
mod package;
mod refusal;

pub(crate) use home::home;
pub(crate) use package::{Package, package};
pub(crate) use refusal::refusal;

use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};

/// The media type of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// How pages look.
pub(crate) const STYLE: &str = include_str!("site/style.css");

/// A description as HTML.
pub(crate) fn description(text: &str) -> String {
    markdown::render(text).0
}

/// Tells browsers to run nothing, load nothing from elsewhere, and show this in no frame.
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

/// Where the page of a package lies.
fn package_path(catalog: &str, package: &str) -> String {
    format!(
        "{}{}/{}",
        crate::answer::PACKAGE_PAGES,
        catalog,
        olm_api::serving::percent_encode(package)
    )
}
