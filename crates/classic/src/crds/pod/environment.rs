//! Variables in the environment of a container.

use olm_api::crd::schema::Schema;
use serde_json::json;

use crate::crds::words::{bare, quantity, switch, text};

pub(crate) fn variable() -> Schema {
    bare()
        .required("name", text())
        .property("value", text())
        .property("valueFrom", variable_source())
}

fn variable_source() -> Schema {
    bare()
        .property("configMapKeyRef", key_of_object())
        .property("fieldRef", field())
        .property("fileKeyRef", key_of_file())
        .property("resourceFieldRef", resource_field())
        .property("secretKeyRef", key_of_object())
}

pub(crate) fn variables() -> Schema {
    bare()
        .property("configMapRef", whole_object())
        .property("prefix", text())
        .property("secretRef", whole_object())
}

fn key_of_object() -> Schema {
    bare()
        .atomic_map()
        .required("key", text())
        .property("name", text().default_value(json!("")))
        .property("optional", switch())
}

fn key_of_file() -> Schema {
    bare()
        .atomic_map()
        .all_required(&["key", "path", "volumeName"], &text())
        .property("optional", switch().default_value(json!(false)))
}

pub(crate) fn field() -> Schema {
    bare()
        .atomic_map()
        .required("fieldPath", text())
        .property("apiVersion", text())
}

pub(crate) fn resource_field() -> Schema {
    bare()
        .atomic_map()
        .required("resource", text())
        .property("containerName", text())
        .property("divisor", quantity())
}

fn whole_object() -> Schema {
    bare()
        .atomic_map()
        .property("name", text().default_value(json!("")))
        .property("optional", switch())
}
