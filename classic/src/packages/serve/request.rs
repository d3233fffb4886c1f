//! Parts of a request, from its method, path and query.

use axum::extract::Query;
use http::{Method, Uri};
use olm_classic::names;
use olm_platform::delegated::{AccessRequest, AccessTarget};

/// Prefix of the paths of the API.
const GROUPS: &str = "apis";
/// The version of the API.
pub(super) const VERSION: &str = "v1";
/// The part of a package with its picture.
const ICON: &str = "icon";

/// Resource or document that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Path {
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group,
    /// `/apis/GROUP/VERSION`.
    Resources,
    /// The packages of a namespace; empty is all.
    Packages { namespace: String },
    /// A package.
    Package { namespace: String, name: String },
    /// The picture of a package.
    Icon { namespace: String, name: String },
    /// `/openapi/v2`.
    OpenApi2,
    /// `/openapi/v3`.
    OpenApi3,
    /// `/openapi/v3/apis/GROUP/VERSION`.
    OpenApi3Group,
    /// `/healthz`, `/livez`: the process runs.
    Live,
    /// `/readyz`.
    Ready,
    /// `/version`.
    Version,
    /// Another one.
    Unknown,
}

impl Path {
    /// Reads a path.
    pub(super) fn read(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let packages = |namespace: &str, rest: &[&str]| {
            let namespace = namespace.to_owned();
            match rest {
                [] => Self::Packages { namespace },
                [name] => Self::Package {
                    namespace,
                    name: (*name).to_owned(),
                },
                [name, part] if *part == ICON => Self::Icon {
                    namespace,
                    name: (*name).to_owned(),
                },
                _ => Self::Unknown,
            }
        };
        match parts.as_slice() {
            [apis] if *apis == GROUPS => Self::Groups,
            ["openapi", "v2"] => Self::OpenApi2,
            ["openapi", "v3"] => Self::OpenApi3,
            ["openapi", "v3", apis, group, version] if is_ours(apis, group, version) => Self::OpenApi3Group,
            ["healthz" | "livez", ..] => Self::Live,
            ["readyz", ..] => Self::Ready,
            ["version"] => Self::Version,
            [apis, group] if *apis == GROUPS && *group == names::PACKAGE_GROUP => Self::Group,
            [apis, group, version, rest @ ..] if is_ours(apis, group, version) => match rest {
                [] => Self::Resources,
                ["namespaces", namespace, plural, rest @ ..] if *plural == names::PACKAGE_MANIFESTS => {
                    packages(namespace, rest)
                }
                [plural] if *plural == names::PACKAGE_MANIFESTS => packages("", &[]),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// Namespace, name and part of the resource; nothing for a path that names none.
    fn resource(&self) -> Option<(&str, &str, &'static str)> {
        match self {
            Self::Packages { namespace } => Some((namespace, "", "")),
            Self::Package { namespace, name } => Some((namespace, name, "")),
            Self::Icon { namespace, name } => Some((namespace, name, ICON)),
            _ => None,
        }
    }

    /// Whether everybody may ask for it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Live | Self::Ready)
    }
}

fn is_ours(apis: &str, group: &str, version: &str) -> bool {
    apis == GROUPS && group == names::PACKAGE_GROUP && version == VERSION
}

/// The query of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) is_watch: bool,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) resource_version: String,
    pub(super) sends_bookmarks: bool,
    pub(super) sends_initial_events: bool,
    pub(super) timeout_seconds: Option<u64>,
    /// The part of the objects that tables include.
    pub(super) include_object: String,
}

impl Options {
    /// Reads a query. Unknown options are ignored.
    pub(super) fn read(uri: &Uri) -> Self {
        let mut options = Self::default();
        let is_true = |value: &str| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True");
        let query = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|query| query.0);
        for (key, value) in query.unwrap_or_default() {
            match key.as_str() {
                "watch" => options.is_watch = is_true(&value) || value.is_empty(),
                "labelSelector" => options.label_selector = value,
                "fieldSelector" => options.field_selector = value,
                "resourceVersion" => options.resource_version = value,
                "allowWatchBookmarks" => options.sends_bookmarks = is_true(&value),
                "sendInitialEvents" => options.sends_initial_events = is_true(&value),
                "timeoutSeconds" => options.timeout_seconds = value.parse().ok(),
                "includeObject" => options.include_object = value,
                _ => {}
            }
        }
        options
    }
}

/// Access review of this request by the API server. `named` is the name that a list selects.
pub(super) fn ask(
    method: &Method,
    path: &Path,
    uri: &Uri,
    options: &Options,
    named: Option<&str>,
) -> AccessRequest {
    let Some((namespace, name, subresource)) = path.resource() else {
        let verb = match *method {
            Method::POST => "post",
            Method::PUT => "put",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "get",
        };
        return AccessRequest {
            verb,
            target: AccessTarget::Path(uri.path().to_owned()),
        };
    };
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ if !name.is_empty() => "get",
        _ if options.is_watch => "watch",
        _ => "list",
    };
    let name = if name.is_empty() {
        named.unwrap_or_default()
    } else {
        name
    };
    AccessRequest {
        verb,
        target: AccessTarget::Resource {
            group: names::PACKAGE_GROUP,
            version: VERSION,
            resource: names::PACKAGE_MANIFESTS,
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/apis/packages.operators.coreos.com/v1";

    #[test]
    fn every_path_of_the_api_is_known_and_no_other() {
        let in_n = |name: &str| ("n".to_owned(), name.to_owned());
        let (namespace, name) = in_n("p");
        let package = Path::Package {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        for (path, expected) in [
            ("/apis", Path::Groups),
            ("/apis/packages.operators.coreos.com/", Path::Group),
            (BASE, Path::Resources),
            (
                "/openapi/v3/apis/packages.operators.coreos.com/v1",
                Path::OpenApi3Group,
            ),
            ("/readyz", Path::Ready),
            ("/apis/other", Path::Unknown),
            ("/", Path::Unknown),
        ] {
            assert_eq!(Path::read(path), expected, "{path}");
        }
        for (rest, expected) in [
            (
                "/packagemanifests",
                Path::Packages {
                    namespace: String::new(),
                },
            ),
            (
                "/namespaces/n/packagemanifests",
                Path::Packages {
                    namespace: "n".to_owned(),
                },
            ),
            ("/namespaces/n/packagemanifests/p", package),
            (
                "/namespaces/n/packagemanifests/p/icon",
                Path::Icon { namespace, name },
            ),
            ("/namespaces/n/packagemanifests/p/status", Path::Unknown),
            ("/packagemanifests/p", Path::Unknown),
            ("/namespaces/n", Path::Unknown),
        ] {
            assert_eq!(Path::read(&format!("{BASE}{rest}")), expected, "{rest}");
        }
    }

    #[test]
    fn rights_are_asked_for_verb_namespace_name_and_part() {
        let check = |method: Method, uri: &str, expected: &str| {
            let uri: Uri = format!("{BASE}{uri}").parse().unwrap();
            let (path, options) = (Path::read(uri.path()), Options::read(&uri));
            let ask = ask(&method, &path, &uri, &options, None);
            let AccessTarget::Resource {
                subresource,
                namespace,
                name,
                ..
            } = ask.target
            else {
                panic!("a resource");
            };
            assert_eq!(format!("{} {namespace}/{name}/{subresource}", ask.verb), expected);
        };
        check(Method::GET, "/packagemanifests", "list //");
        check(Method::GET, "/packagemanifests?watch=true", "watch //");
        check(Method::GET, "/namespaces/n/packagemanifests/p", "get n/p/");
        check(
            Method::HEAD,
            "/namespaces/n/packagemanifests/p/icon",
            "get n/p/icon",
        );
        check(Method::POST, "/namespaces/n/packagemanifests", "create n//");
        check(
            Method::DELETE,
            "/namespaces/n/packagemanifests",
            "deletecollection n//",
        );
        let uri: Uri = "/version".parse().unwrap();
        let found = ask(&Method::GET, &Path::Version, &uri, &Options::default(), None);
        assert_eq!(found.target, AccessTarget::Path("/version".to_owned()));
    }

    #[test]
    fn options_are_decoded() {
        let uri: Uri = "/x?labelSelector=a%20in%20%28b%2Cc%29&watch=1&timeoutSeconds=7&limit=500"
            .parse()
            .unwrap();
        let options = Options::read(&uri);
        assert_eq!(options.label_selector, "a in (b,c)");
        assert_eq!((options.is_watch, options.timeout_seconds), (true, Some(7)));
    }
}
