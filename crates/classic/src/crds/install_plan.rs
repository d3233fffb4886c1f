//! The schema of InstallPlan.

use olm_api::crd::definition::{Column, Columns, Scope};
use olm_api::crd::meta::root;
use olm_api::crd::schema::{Schema, array, boolean, integer, object, string};
use serde_json::{Value, json};

use super::words::{bare, list, reference, switch, text, texts, time};
use super::{kind, stored};
use crate::names;

pub(super) fn definition() -> Value {
    let columns = Columns {
        always: &[
            Column {
                name: "CSV",
                kind: "string",
                path: ".spec.clusterServiceVersionNames[0]",
            },
            Column {
                name: "Approval",
                kind: "string",
                path: ".spec.approval",
            },
            Column {
                name: "Approved",
                kind: "boolean",
                path: ".spec.approved",
            },
        ],
        wide: &[],
    };
    let description = "An InstallPlan lists the objects that install or upgrade operators of a namespace, and waits for an approval where one is needed.";
    let root = root(description, spec(), status()).extension("required", json!(["metadata", "spec"]));
    kind(names::INSTALL_PLAN_KIND, &["ip"], Scope::Namespaced)
        .definition([stored("v1alpha1", &columns, root)])
}

fn spec() -> Schema {
    object("What is installed, and whether it may be.")
        .required(
            "approval",
            string("Manual: the plan waits until it is approved. Otherwise it does not."),
        )
        .required("approved", boolean("Whether the plan may be carried out."))
        .required(
            "clusterServiceVersionNames",
            array("The ClusterServiceVersions that are installed.", text()),
        )
        .property(
            "generation",
            integer("The number of the plan in its namespace.", ""),
        )
        .properties(&["source", "sourceNamespace"], &text())
}

fn status() -> Schema {
    object("How far the plan is.")
        .required("catalogSources", texts())
        .required(
            "phase",
            string("Planning, RequiresApproval, Installing, Complete or Failed."),
        )
        .property("attenuatedServiceAccountRef", reference())
        .property("bundleLookups", list(lookup()))
        .property(
            "conditions",
            list(condition().properties(&["status", "type"], &text())),
        )
        .property("message", text())
        .property("plan", array("The objects, in order.", step()))
        .property("startTime", time())
}

fn condition() -> Schema {
    bare()
        .properties(&["lastTransitionTime", "lastUpdateTime"], &time())
        .properties(&["message", "reason"], &text())
}

/// A bundle that is fetched.
fn lookup() -> Schema {
    bare()
        .all_required(&["identifier", "path", "replaces"], &text())
        .required("catalogSourceRef", reference())
        .property(
            "conditions",
            list(condition().all_required(&["status", "type"], &text())),
        )
        .property("properties", text())
}

fn step() -> Schema {
    let names = [
        "group",
        "kind",
        "name",
        "sourceName",
        "sourceNamespace",
        "version",
    ];
    let resource = bare().all_required(&names, &text()).property("manifest", text());
    bare()
        .all_required(&["resolving", "status"], &text())
        .required("resource", resource)
        .property("optional", switch())
}
