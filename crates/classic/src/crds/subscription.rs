//! The schema of Subscription.

use olm_api::crd::definition::{Column, Columns, Scope};
use olm_api::crd::meta::{label_selector, root};
use olm_api::crd::schema::{Schema, array, integer, object, string};
use serde_json::{Value, json};

use super::pod::scheduling::{affinity, toleration};
use super::pod::{container, environment, volume};
use super::words::{bare, list, reference, switch, text, text_map, time};
use super::{kind, stored};
use crate::names;

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "Package",
                kind: "string",
                path: ".spec.name",
            },
            Column {
                name: "Source",
                kind: "string",
                path: ".spec.source",
            },
            Column {
                name: "Channel",
                kind: "string",
                path: ".spec.channel",
            },
        ],
        wide: &[],
    };
    let description = "A Subscription installs an operator from a catalog and keeps it up to date.";
    let root = root(description, spec(), status()).extension("required", json!(["metadata", "spec"]));
    kind(names::SUBSCRIPTION_KIND, &["sub", "subs"], Scope::Namespaced)
        .definition([stored("v1alpha1", &columns, root)])
}

fn spec() -> Schema {
    object("What is installed.")
        .required("name", string("The package of the operator."))
        .required("source", string("The CatalogSource with the package."))
        .required("sourceNamespace", string("The namespace of the CatalogSource."))
        .property(
            "channel",
            string("The channel of the package. Without it, the default channel comes first."),
        )
        .property("config", config())
        .property(
            "installPlanApproval",
            string("Manual: each InstallPlan waits until it is approved. Otherwise it does not."),
        )
        .property(
            "startingCSV",
            string("The ClusterServiceVersion that is installed first."),
        )
}

fn config() -> Schema {
    object("What is changed in the Deployments of the operator.")
        .property("affinity", affinity())
        .property("annotations", text_map())
        .property("env", list(environment::variable()))
        .property("envFrom", list(environment::variables()))
        .property("nodeSelector", text_map())
        .property("resources", container::resources())
        .property("selector", label_selector("It has no effect."))
        .property("tolerations", list(toleration()))
        .property("volumeMounts", list(container::volume_mount()))
        .property("volumes", list(volume::volume()))
}

fn status() -> Schema {
    let health = bare()
        .required("catalogSourceRef", reference())
        .required("healthy", switch())
        .required("lastUpdated", time());
    let condition = bare()
        .all_required(&["status", "type"], &text())
        .properties(&["lastHeartbeatTime", "lastTransitionTime"], &time())
        .properties(&["message", "reason"], &text());
    object("What is installed, and what comes next.")
        .required("lastUpdated", time())
        .property(
            "catalogHealth",
            array("The catalogs that the resolution reads.", health),
        )
        .property(
            "conditions",
            array("What holds the Subscription back.", condition),
        )
        .property(
            "currentCSV",
            string("The ClusterServiceVersion of the newest InstallPlan."),
        )
        .property(
            "installPlanGeneration",
            integer("The number of the newest InstallPlan.", ""),
        )
        .property("installPlanRef", reference())
        .property(
            "installedCSV",
            string("The ClusterServiceVersion that is installed."),
        )
        .property(
            "installplan",
            bare().all_required(&["apiVersion", "kind", "name", "uuid"], &text()),
        )
        .property("reason", text())
        .property("state", string("UpgradePending, AtLatestKnown or UpgradeFailed."))
}
