//! Discovery of the API: groups, resources, schemas, for kube-apiserver, kubectl and other clients.

use axum::response::Response;
use http::StatusCode;
use olm_classic::names;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::answer::{self, answer};
use super::request::VERSION;

/// The media type of all groups with their resources.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The name of the type in schemas.
const SCHEMA: &str = "com.coreos.operators.packages.v1.PackageManifest";
/// The schema of a PackageManifest.
const PACKAGE_MANIFEST: &str = include_str!("package-manifest.json");
/// Verbs of the PackageManifest API.
const VERBS: [&str; 3] = ["get", "list", "watch"];
/// The singular, for command lines.
const SINGULAR: &str = "packagemanifest";
/// The part of a package with its picture.
const ICON: &str = "packagemanifests/icon";

fn version_of_group() -> Value {
    json!({"groupVersion": names::PACKAGE_API_VERSION, "version": VERSION})
}

/// The groups.
pub(super) fn groups() -> Response {
    let version = version_of_group();
    let groups = json!({
        "kind": "APIGroupList", "apiVersion": "v1",
        "groups": [{"name": names::PACKAGE_GROUP, "versions": [version], "preferredVersion": version}],
    });
    answer::json(groups.to_string())
}

/// The group.
pub(super) fn group() -> Response {
    let version = version_of_group();
    let group = json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": names::PACKAGE_GROUP, "versions": [version],
        "preferredVersion": version,
    });
    answer::json(group.to_string())
}

/// The resources of the group.
pub(super) fn resources() -> Response {
    let kind = names::PACKAGE_MANIFEST_KIND;
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": names::PACKAGE_API_VERSION,
        "resources": [
            {
                "name": names::PACKAGE_MANIFESTS, "singularName": SINGULAR, "namespaced": true, "kind": kind,
                "verbs": VERBS,
            },
            {"name": ICON, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"]},
        ],
    });
    answer::json(list.to_string())
}

/// All groups with their resources.
pub(super) fn aggregated() -> Response {
    let kind = json!({
        "group": names::PACKAGE_GROUP, "version": VERSION, "kind": names::PACKAGE_MANIFEST_KIND,
    });
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{
            "metadata": {"name": names::PACKAGE_GROUP, "creationTimestamp": null},
            "versions": [{
                "version": VERSION, "freshness": "Current",
                "resources": [{
                    "resource": names::PACKAGE_MANIFESTS, "responseKind": kind, "scope": "Namespaced",
                    "singularResource": SINGULAR, "verbs": VERBS,
                    "subresources": [{"subresource": "icon", "responseKind": kind, "verbs": ["get"]}],
                }],
            }],
        }],
    });
    answer(StatusCode::OK, AGGREGATED, list.to_string())
}

/// The version of the program.
pub(super) fn version() -> Response {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    answer::json(json!({"major": major, "minor": minor, "gitVersion": version}).to_string())
}

fn schema() -> Value {
    serde_json::from_str(PACKAGE_MANIFEST).unwrap_or_else(|_| json!({"type": "object"}))
}

fn info() -> Value {
    json!({"title": "OLM classic packages", "version": concat!("v", env!("CARGO_PKG_VERSION"))})
}

/// The paths of the API, each with the kind of its answer.
fn operations(answer: &Value) -> Value {
    let base = format!("/apis/{}", names::PACKAGE_API_VERSION);
    let plural = names::PACKAGE_MANIFESTS;
    let kind =
        json!({"group": names::PACKAGE_GROUP, "kind": names::PACKAGE_MANIFEST_KIND, "version": VERSION});
    let in_path = |name: &str| json!({"name": name, "in": "path", "required": true, "type": "string", "schema": {"type": "string"}});
    let get = |id: &str, action: &str| {
        json!({
            "operationId": id, "responses": {"200": answer}, "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        })
    };
    json!({
        (format!("{base}/{plural}")): {"get": get("listPackageManifestForAllNamespaces", "list")},
        (format!("{base}/namespaces/{{namespace}}/{plural}")): {
            "parameters": [in_path("namespace")], "get": get("listNamespacedPackageManifest", "list"),
        },
        (format!("{base}/namespaces/{{namespace}}/{plural}/{{name}}")): {
            "parameters": [in_path("namespace"), in_path("name")], "get": get("readNamespacedPackageManifest", "get"),
        },
    })
}

/// A copy without a field in all parameters: each version of OpenAPI has its own for the type.
fn without(mut paths: Value, field: &str) -> Value {
    let paths_of = paths.as_object_mut().into_iter().flatten();
    let lists = paths_of.filter_map(|(_, path)| path.get_mut("parameters")?.as_array_mut());
    for parameter in lists.flatten().filter_map(Value::as_object_mut) {
        parameter.remove(field);
    }
    paths
}

/// Schema and paths as OpenAPI 2.
pub(super) fn openapi_2() -> Response {
    let paths = without(operations(&json!({"description": "OK"})), "schema");
    let document = json!({
        "swagger": "2.0", "info": info(), "paths": paths, "definitions": {SCHEMA: schema()},
    });
    answer::json(document.to_string())
}

fn openapi_3_document() -> String {
    let paths = without(operations(&json!({"description": "OK"})), "type");
    let document = json!({
        "openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": {SCHEMA: schema()}},
    });
    document.to_string()
}

/// Schema and paths as OpenAPI 3.
pub(super) fn openapi_3_group() -> Response {
    answer::json(openapi_3_document())
}

/// The path of the document, and its hash.
pub(super) fn openapi_3() -> Response {
    let hash = hex::encode_upper(Sha256::digest(openapi_3_document()));
    let path = format!("apis/{}", names::PACKAGE_API_VERSION);
    let url = format!("/openapi/v3/{path}?hash={hash}");
    answer::json(json!({"paths": {path: {"serverRelativeURL": url}}}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_describes_what_is_served() {
        let schema = schema();
        assert_eq!(
            schema["x-kubernetes-group-version-kind"][0]["group"],
            names::PACKAGE_GROUP
        );
        let channel = &schema["properties"]["status"]["properties"]["channels"]["items"]["properties"];
        assert_eq!(
            channel["currentCSVDesc"]["properties"]["installModes"]["type"],
            "array"
        );
    }

    #[test]
    fn each_version_of_openapi_has_its_own_parameters() {
        let paths = operations(&json!({}));
        let parameter = |paths: &Value| {
            let paths = paths.as_object().unwrap();
            paths.values().next_back().unwrap()["parameters"][0].clone()
        };
        let (second, third) = (without(paths.clone(), "schema"), without(paths, "type"));
        assert_eq!(
            parameter(&second),
            json!({"name": "namespace", "in": "path", "required": true, "type": "string"})
        );
        assert_eq!(parameter(&third)["schema"], json!({"type": "string"}));
        assert_eq!(parameter(&third).get("type"), None);
    }
}
