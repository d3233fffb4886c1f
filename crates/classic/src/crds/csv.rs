//! The schema of ClusterServiceVersion.

mod apis;
mod install;
mod status;
mod webhooks;

use olm_api::crd::definition::{Column, Columns, Scope};
use olm_api::crd::meta::{label_selector, root};
use olm_api::crd::schema::{Schema, array, object, string};
use serde_json::{Value, json};

use super::words::{bare, list, named, switch, text, text_map, texts};
use super::{kind, stored};
use crate::names;

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "Display",
                kind: "string",
                path: ".spec.displayName",
            },
            Column {
                name: "Version",
                kind: "string",
                path: ".spec.version",
            },
            Column {
                name: "Release",
                kind: "string",
                path: ".spec.release",
            },
            Column {
                name: "Replaces",
                kind: "string",
                path: ".spec.replaces",
            },
            Column {
                name: "Phase",
                kind: "string",
                path: ".status.phase",
            },
        ],
        wide: &[],
    };
    let description = "A ClusterServiceVersion is a version of an operator: what it requires, what it provides, and how it is installed.";
    let root = root(description, spec(), status::status()).extension("required", json!(["metadata", "spec"]));
    kind(names::CSV_KIND, &["csv", "csvs"], Scope::Namespaced)
        .definition([stored("v1alpha1", &columns, root)])
}

fn spec() -> Schema {
    let cleanup = object("It has no effect.").required("enabled", switch());
    let modes = array(
        "Which namespaces the operator can watch.",
        bare().required("type", text()).required("supported", switch()),
    );
    object("The operator.")
        .required("displayName", string("The name that is shown."))
        .required("install", install::install())
        .property("annotations", text_map())
        .property("apiservicedefinitions", apis::api_services())
        .property("cleanup", cleanup)
        .property("customresourcedefinitions", apis::custom_resources())
        .properties(&["description", "maturity"], &text())
        .property(
            "icon",
            list(bare().all_required(&["base64data", "mediatype"], &text())),
        )
        .property("installModes", modes)
        .property("keywords", texts())
        .property("labels", text_map())
        .property("links", list(bare().properties(&["name", "url"], &text())))
        .property(
            "maintainers",
            list(bare().properties(&["email", "name"], &text())),
        )
        .property(
            "minKubeVersion",
            string("The oldest version of Kubernetes that is supported."),
        )
        .property("nativeAPIs", list(apis::group_version_kind()))
        .property("provider", bare().properties(&["name", "url"], &text()))
        .property("relatedImages", list(named().required("image", text())))
        .property("release", release())
        .property(
            "replaces",
            string("The ClusterServiceVersion that this one replaces."),
        )
        .property("selector", label_selector(""))
        .property("skips", texts())
        .property("version", string("The semantic version."))
        .property("webhookdefinitions", list(webhooks::webhook()))
}

fn release() -> Schema {
    string("Tells builds of the same version apart.")
        .max_length(20)
        .rule(
            r"self.matches('^[0-9A-Za-z-]+(\\.[0-9A-Za-z-]+)*$')",
            "release version must be composed of dot-separated identifiers containing only alphanumerics and hyphens",
        )
        .rule(
            "!self.split('.').exists(x, x.matches('^0[0-9]+$'))",
            "numeric identifiers in release version must not have leading zeros",
        )
}
