//! HTML pages, rendered here without external assets. They work without scripts; one small script of our own searches
//! while one types and copies commands.
//!
//! Catalog content is hostile until escaped: the templates escape every value, descriptions lose their HTML and all
//! links but those to the web, icons are answered as pictures in a sandbox, and the content security policy allows no
//! script but ours, by its digest.

mod details;
mod error;
mod facets;
mod feed;
mod graph;
mod home;
mod icons;
mod install;
mod layout;
mod markdown;
mod package;
mod package_page;
mod query_parameters;
mod release;
mod version_page;

use std::sync::LazyLock;

pub use icons::symbol;
pub use install::block;
pub use layout::{Document, badge, document, search};

pub(crate) use error::error;
pub(crate) use feed::feed;
pub(crate) use home::home;
pub(crate) use package::{Package, icon};
pub(crate) use package_page::{package, versions};
pub(crate) use query_parameters::QueryParameters;
pub(crate) use version_page::version;

use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

/// The media type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
/// The media type of a feed.
pub(crate) const ATOM: &str = "application/atom+xml; charset=utf-8";
/// The prefix of the paths of packages' pages.
pub(crate) const PACKAGE_PAGES: &str = "/packages/";
/// The style sheet of the pages.
pub const STYLE: &str = include_str!("site/style.css");
/// The icon of the site.
pub const FAVICON: &str = include_str!("site/icon.svg");
/// The script of the pages.
const SCRIPT: &str = include_str!("site/script.js");

/// The content security policy of pages: one script, by its digest, and nothing from other origins.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = olm_fbc::base64_text::encode(&Sha256::digest(SCRIPT));
    format!(
        "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'sha256-{digest}'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
});
/// The content security policy of icons: a browser that opens one directly runs no script in it.
const ICON_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'";

/// A description as HTML.
pub(crate) fn description(text: &str) -> String {
    markdown::render(text).0
}

/// Sets the headers that allow only our script, load nothing from other origins, and forbid frames.
pub fn protect(headers: &mut HeaderMap) {
    restrict(headers, &POLICY);
}

/// Sets the headers that allow browsers only to display an icon.
pub(crate) fn protect_icon(headers: &mut HeaderMap) {
    restrict(headers, ICON_POLICY);
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
}

fn restrict(headers: &mut HeaderMap, policy: &str) {
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
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

/// The path of a version's page.
fn version_path(catalog: &str, package: &str, bundle: &str) -> String {
    let package = package_path(catalog, package);
    format!("{package}/versions/{}", olm_api::serving::percent_encode(bundle))
}
