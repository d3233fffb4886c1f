//! Schemas of the types that Kubernetes defines for all kinds.

use super::schema::{Schema, array, choice, integer, object, string};

/// The root of a kind's schema.
pub fn root(description: &str, spec: Schema, status: Schema) -> Schema {
    object(description)
        .property(
            "apiVersion",
            string("The version of the schema that this object is written in."),
        )
        .property("kind", string("The kind of this object."))
        .property("metadata", Schema::bare_object())
        .property("spec", spec)
        .property("status", status)
}

/// A condition.
pub fn condition() -> Schema {
    let qualified = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    object("One aspect of the object's state.")
        .required(
            "lastTransitionTime",
            string("When the status last changed.").format("date-time"),
        )
        .required(
            "message",
            string("Details for a reader; may be empty.").max_length(32_768),
        )
        .property(
            "observedGeneration",
            integer(
                "The generation of the object that this condition describes.",
                "int64",
            )
            .minimum(0),
        )
        .required(
            "reason",
            string("The reason for the last change, in CamelCase.")
                .length(1, 1024)
                .pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        )
        .required(
            "status",
            choice("Whether it holds.", &["True", "False", "Unknown"]),
        )
        .required("type", string("The aspect.").max_length(316).pattern(qualified))
}

/// A label selector as Kubernetes defines it.
pub fn label_selector(description: &str) -> Schema {
    let expression = object("A requirement on one label.")
        .required("key", string("The label."))
        .required("operator", string("In, NotIn, Exists or DoesNotExist."))
        .property(
            "values",
            array("The values for In and NotIn; absent for the others.", string("")).list_type("atomic"),
        );
    object(description)
        .property(
            "matchExpressions",
            array("Requirements that must all hold.", expression).list_type("atomic"),
        )
        .property(
            "matchLabels",
            Schema::string_map("Labels that must all have these values."),
        )
        .atomic_map()
}
