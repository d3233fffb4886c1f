//! The schema of CatalogSource.

use olm_api::crd::definition::{Column, Columns, Scope};
use olm_api::crd::meta::{condition, root};
use olm_api::crd::schema::{Schema, array, choice, integer, object, string};
use serde_json::{Value, json};

use super::pod::scheduling::{affinity, toleration};
use super::words::{bare, list, quantity, text, text_map, time};
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
                name: "Type",
                kind: "string",
                path: ".spec.sourceType",
            },
            Column {
                name: "Publisher",
                kind: "string",
                path: ".spec.publisher",
            },
            Column {
                name: "Age",
                kind: "date",
                path: ".metadata.creationTimestamp",
            },
        ],
        wide: &[],
    };
    let description = "A CatalogSource is a catalog of operators that Subscriptions can name.";
    let root = root(description, spec(), status()).extension("required", json!(["metadata", "spec"]));
    kind(names::CATALOG_SOURCE_KIND, &["catsrc"], Scope::Namespaced)
        .definition([stored("v1alpha1", &columns, root)])
}

fn spec() -> Schema {
    let poll = object("Whether and when a newer image is looked for.").property(
        "interval",
        string("How long to wait, in hours, minutes and seconds: 10m, 1h30m."),
    );
    object("Where the catalog comes from, and how it ranks.")
        .required("sourceType", string("grpc, internal or configmap."))
        .property(
            "address",
            string("The address of a registry, as HOST:PORT. Only for the type grpc."),
        )
        .property(
            "configMap",
            string("The ConfigMap with the catalog. Only for the types internal and configmap."),
        )
        .property("description", text())
        .property("displayName", text())
        .property("grpcPodConfig", pod_config())
        .property("icon", bare().all_required(&["base64data", "mediatype"], &text()))
        .property("image", string("The image with the catalog. Only for the type grpc."))
        .property(
            "priority",
            integer("Of several catalogs with an operator that is needed, the one with the highest number counts.", ""),
        )
        .property("publisher", text())
        .property(
            "secrets",
            array("Secrets with the credentials of registries, in the same namespace.", text()),
        )
        .property("updateStrategy", bare().property("registryPoll", poll))
}

fn pod_config() -> Schema {
    let extract = object("Take the catalog out of the image and serve it with another program.")
        .required(
            "catalogDir",
            string("The directory of the catalog in the image, before the one that its label names."),
        )
        .property("cacheDir", string("The folder with the cache."));
    object("How the Pod of the catalog runs, where it has one.")
        .property("affinity", affinity())
        .property("extractContent", extract)
        .property("memoryTarget", quantity())
        .property("nodeSelector", text_map())
        .property("priorityClassName", text())
        .property(
            "securityContextConfig",
            choice(
                "restricted: the Pod meets the restricted Pod Security Standard. legacy: it does not.",
                &["legacy", "restricted"],
            ),
        )
        .property("tolerations", list(toleration()))
}

fn status() -> Schema {
    let config_map = bare()
        .all_required(&["name", "namespace"], &text())
        .property("lastUpdateTime", time())
        .properties(&["resourceVersion", "uid"], &text());
    let connection = bare()
        .required(
            "lastObservedState",
            string("IDLE, CONNECTING, READY, TRANSIENT_FAILURE or SHUTDOWN."),
        )
        .property("address", text())
        .property("lastConnect", time());
    let service = bare()
        .property("createdAt", time())
        .properties(&["port", "protocol", "serviceName", "serviceNamespace"], &text());
    object("The state of the catalog.")
        .property(
            "conditions",
            array("Whether the template of the image is filled in.", condition()).map_list(&["type"]),
        )
        .property("configMapReference", config_map)
        .property("connectionState", connection)
        .property("latestImageRegistryPoll", time())
        .property("message", string("The problem."))
        .property("reason", string("The problem, in CamelCase."))
        .property("registryService", service)
}
