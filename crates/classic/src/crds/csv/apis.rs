//! The APIs that an operator provides or requires.

use olm_api::crd::schema::{Schema, array, integer, object, string};

use crate::crds::words::{bare, list, named, text, texts};

/// A kind in a version of a group.
pub(super) fn group_version_kind() -> Schema {
    bare().all_required(&["group", "kind", "version"], &text())
}

/// Custom resources.
pub(super) fn custom_resources() -> Schema {
    let item = described(named())
        .required("kind", text())
        .required("version", text());
    owned_and_required("Custom resources.", item)
}

/// Aggregated APIs.
pub(super) fn api_services() -> Schema {
    let item = described(group_version_kind())
        .required("name", string("The plural."))
        .property("containerPort", integer("The port of the server.", "int32"))
        .property("deploymentName", string("The Deployment that serves the API."));
    owned_and_required("Aggregated APIs.", item)
}

fn owned_and_required(description: &str, item: Schema) -> Schema {
    object(description)
        .property("owned", array("Those that the operator provides.", item.clone()))
        .property(
            "required",
            array("Those that another operator must provide.", item),
        )
}

/// Texts and fields that a user interface shows of an API.
fn described(api: Schema) -> Schema {
    let value = text().format("byte");
    let descriptor = bare()
        .required("path", text())
        .properties(&["description", "displayName"], &text())
        .property("value", value)
        .property("x-descriptors", texts());
    api.properties(&["description", "displayName"], &text())
        .property(
            "resources",
            list(bare().all_required(&["kind", "name", "version"], &text())),
        )
        .properties(
            &["actionDescriptors", "specDescriptors", "statusDescriptors"],
            &list(descriptor),
        )
}
