//! Maps paths to resources.

use std::borrow::Cow;

use http::Method;
use olm_api::serving::{
    CATALOG_LIST_PATH, Endpoint, FBC_SCHEMA_PATH, OPENAPI_PATH, SEARCH_PATH, parse_path, percent_encode,
};

use super::Endpoints;
use super::problem::Detail;
use super::query::{Plus, percent_decode};
use crate::site::PACKAGE_PAGES;

/// The resource of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// An endpoint of a catalog, whose name may be invalid.
    Catalog { catalog: String, endpoint: Endpoint },
    /// The list of all catalogs.
    Catalogs,
    /// The search over all catalogs.
    Search,
    /// The first page for people.
    Home,
    /// A page of a package; the name of the catalog may be invalid.
    Package {
        catalog: String,
        package: String,
        page: PackagePage,
    },
    /// The style sheet of the pages.
    Style,
    /// The icon of the pages.
    Favicon,
    /// The OpenAPI description.
    OpenApi,
    /// The JSON Schema of file-based catalogs.
    FbcSchema,
    /// An address that is spelled differently, or that stands for another: its path, and its query if it has one.
    Elsewhere(String),
    /// There is no such resource.
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PackagePage {
    /// The page.
    About,
    /// The page with all its versions.
    Versions,
    /// The page of the version with that bundle.
    Version(String),
    /// The feed of its versions.
    Feed,
    Icon,
}

impl Route {
    /// The label in logs and metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Catalog {
                endpoint: Endpoint::All,
                ..
            } => "all",
            Self::Catalog {
                endpoint: Endpoint::Metas,
                ..
            } => "metas",
            Self::Catalog {
                endpoint: Endpoint::Graphql,
                ..
            } => "graphql",
            Self::Catalogs => "catalogs",
            Self::Search => "search",
            Self::Home | Self::Package { .. } | Self::Style | Self::Favicon => "site",
            Self::OpenApi | Self::FbcSchema => "description",
            Self::Elsewhere(_) | Self::Unknown => "other",
        }
    }

    /// The methods that it knows.
    pub(crate) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Catalog {
                endpoint: Endpoint::Graphql,
                ..
            } => &[Method::POST],
            _ => &[Method::GET, Method::HEAD],
        }
    }

    /// Whether the page is for people with a browser.
    pub(crate) fn is_for_people(&self) -> bool {
        matches!(self, Self::Home | Self::Package { .. } | Self::Unknown)
    }

    /// The requested package.
    pub(crate) fn package(&self) -> Option<&str> {
        match self {
            Self::Package { package, .. } => Some(package),
            _ => None,
        }
    }

    /// Whether its errors are always problem details.
    pub(crate) fn detail(&self) -> Detail {
        match self {
            Self::Catalog { .. } | Self::Elsewhere(_) | Self::Unknown => Detail::OnRequest,
            _ => Detail::Always,
        }
    }
}

/// The route of an escaped path.
pub(crate) fn find(path: &str, endpoints: Endpoints) -> Route {
    let clean = clean(path);
    if clean != path {
        return Route::Elsewhere(clean);
    }
    let path = plain(path);
    let path = path.as_ref();
    match path {
        CATALOG_LIST_PATH => return Route::Catalogs,
        SEARCH_PATH => return Route::Search,
        OPENAPI_PATH => return Route::OpenApi,
        FBC_SCHEMA_PATH => return Route::FbcSchema,
        "/" => return Route::Home,
        "/packages" | PACKAGE_PAGES => return Route::Elsewhere("/".to_owned()),
        "/style.css" => return Route::Style,
        "/icon.svg" => return Route::Favicon,
        _ => {}
    }
    if let Some(rest) = path.strip_prefix(PACKAGE_PAGES) {
        let found = package(rest).or_else(|| beside_package(rest));
        return found.unwrap_or(Route::Unknown);
    }
    let Some((catalog, endpoint)) = parse_path(path) else {
        return Route::Unknown;
    };
    let on = match endpoint {
        Endpoint::All => true,
        Endpoint::Metas => endpoints.metas,
        Endpoint::Graphql => endpoints.graphql,
    };
    match percent_decode(catalog, Plus::IsPlus) {
        Some(catalog) if on => Route::Catalog { catalog, endpoint },
        _ => Route::Unknown,
    }
}

/// The page of a package from the rest of the path; its segments may contain escaped slashes.
fn package(rest: &str) -> Option<Route> {
    let mut segments = rest.split('/');
    let text = |segment: &str| percent_decode(segment, Plus::IsPlus).filter(|text| !text.is_empty());
    let catalog = text(segments.next()?)?;
    let package = text(segments.next()?)?;
    let page = match (segments.next(), segments.next(), segments.next()) {
        (None, ..) => PackagePage::About,
        (Some("versions"), None, _) => PackagePage::Versions,
        (Some("versions"), Some(bundle), None) => PackagePage::Version(text(bundle)?),
        (Some("feed.xml"), None, _) => PackagePage::Feed,
        (Some("icon"), None, _) => PackagePage::Icon,
        _ => return None,
    };
    Some(Route::Package {
        catalog,
        package,
        page,
    })
}

/// The page that a path near those of packages stands for: the search in a catalog, or a page without a slash at its end.
fn beside_package(rest: &str) -> Option<Route> {
    let path = rest.strip_suffix('/').unwrap_or(rest);
    if !path.contains('/') {
        let catalog = percent_decode(path, Plus::IsPlus)?;
        return Some(Route::Elsewhere(format!(
            "/?catalog={}",
            percent_encode(&catalog)
        )));
    }
    package(path).map(|_| Route::Elsewhere(format!("{PACKAGE_PAGES}{path}")))
}

/// The path, with segments unescaped whose characters need no escapes.
fn plain(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let segments = path.split('/').map(|segment| {
        let text = percent_decode(segment, Plus::IsPlus);
        text.filter(|text| text.bytes().all(is_plain))
            .map_or(Cow::Borrowed(segment), Cow::Owned)
    });
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

/// The path without empty, `.` and `..` segments; a final slash stays.
fn clean(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    let mut clean = segments
        .iter()
        .fold(String::with_capacity(path.len()), |clean, segment| {
            clean + "/" + segment
        });
    if clean.is_empty() || path.ends_with('/') {
        clean.push('/');
    }
    clean
}

/// The text with HTML escapes.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_one_thing() {
        let metas = |catalog: &str| Route::Catalog {
            catalog: catalog.to_owned(),
            endpoint: Endpoint::Metas,
        };
        let check =
            |path: &str, expected: Route| assert_eq!(find(path, Endpoints::default()), expected, "{path}");
        check("/catalogs/cat/api/v1/metas", metas("cat"));
        check("/catalogs/..%2fcat/api/v1/metas", metas("../cat"));
        check("/catalogs/c+t/api/v1/metas", metas("c+t"));
        check("/%63atalogs/c%61t/%61pi/v1/met%61s", metas("cat"));
        check("/catalogs/%2e%2e/api/v1/metas", metas(".."));
        check("/catalog%73", Route::Catalogs);
        check("/api/v1/se%61rch", Route::Search);
        check(
            "/catalogs/cat//api/v1/metas",
            Route::Elsewhere("/catalogs/cat/api/v1/metas".to_owned()),
        );
        check(
            "/catalogs/x/../cat/./api/v1/metas",
            Route::Elsewhere("/catalogs/cat/api/v1/metas".to_owned()),
        );
        check("/../..", Route::Elsewhere("/".to_owned()));
        check("//catalogs/", Route::Elsewhere("/catalogs/".to_owned()));
        check("/catalogs", Route::Catalogs);
        check("/api/v1/search", Route::Search);
        check("/", Route::Home);
        for (path, page) in [
            ("/packages/cat/a%2fb", PackagePage::About),
            ("/packages/cat/a%2fb/versions", PackagePage::Versions),
            (
                "/packages/cat/a%2fb/versions/a%2fb",
                PackagePage::Version("a/b".to_owned()),
            ),
            ("/packages/cat/a%2fb/feed.xml", PackagePage::Feed),
            ("/packages/cat/a%2fb/icon", PackagePage::Icon),
        ] {
            let (catalog, package) = ("cat".to_owned(), "a/b".to_owned());
            check(
                path,
                Route::Package {
                    catalog,
                    package,
                    page,
                },
            );
        }
        for (path, target) in [
            ("/packages", "/"),
            ("/packages/", "/"),
            ("/packages/cat", "/?catalog=cat"),
            ("/packages/c%26t/", "/?catalog=c%26t"),
            ("/packages/cat/a/", "/packages/cat/a"),
            ("/packages/cat/a%2fb/versions/", "/packages/cat/a%2fb/versions"),
        ] {
            check(path, Route::Elsewhere(target.to_owned()));
        }
        for path in [
            "/packages/cat/a/b",
            "/packages/cat/a/b/",
            "/packages/cat/a/versions/b/c",
            "/packages/cat/a/icon/b",
            "/all",
            "/catalogs/",
            "/catalogs/cat/api/v1/metas/",
            "/catalogs/%/api/v1/all",
            "/catalogs/cat/api%2fv1/all",
            "/catalogs/cat/api/v1/a%6",
            "/catalogs/%2e%2e/catalogs/cat/api/v1/all",
        ] {
            check(path, Route::Unknown);
        }
        assert_eq!(
            find(
                "/catalogs/cat/api/v1/metas",
                Endpoints {
                    metas: false,
                    ..Endpoints::default()
                }
            ),
            Route::Unknown
        );
        assert_eq!(
            find(
                "/catalogs/cat/api/v1/graphql",
                Endpoints {
                    graphql: false,
                    ..Endpoints::default()
                }
            ),
            Route::Unknown
        );
    }
}
