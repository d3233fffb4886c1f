//! Schemas of a few words without a description.

use olm_api::crd::schema::{self, Schema, array, boolean, integer, string};
use serde_json::json;

/// Pattern of a quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// An object.
pub(super) fn bare() -> Schema {
    Schema::bare_object()
}

/// A text.
pub(super) fn text() -> Schema {
    string("")
}

/// Yes or no.
pub(super) fn switch() -> Schema {
    boolean("")
}

/// A number of 32 bits.
pub(super) fn int32() -> Schema {
    integer("", "int32")
}

/// A number of 64 bits.
pub(super) fn int64() -> Schema {
    integer("", "int64")
}

/// A point in time.
pub(super) fn time() -> Schema {
    text().format("date-time")
}

/// A number or a text, such as a port or a percentage.
pub(super) fn int_or_string() -> Schema {
    schema::int_or_string("")
}

/// An amount of a resource.
pub(super) fn quantity() -> Schema {
    int_or_string().pattern(QUANTITY)
}

/// Amounts by resource.
pub(super) fn quantities() -> Schema {
    bare().extension("additionalProperties", quantity().into_value())
}

/// A map from text to text.
pub(super) fn text_map() -> Schema {
    Schema::string_map("")
}

/// A list.
pub(super) fn list(items: Schema) -> Schema {
    array("", items)
}

/// A list that server-side apply takes as a whole.
pub(super) fn atomic_list(items: Schema) -> Schema {
    list(items).list_type("atomic")
}

/// A list of texts.
pub(super) fn texts() -> Schema {
    list(text())
}

/// A list of texts that server-side apply takes as a whole.
pub(super) fn atomic_texts() -> Schema {
    atomic_list(text())
}

/// An object with a name.
pub(super) fn named() -> Schema {
    bare().required("name", text())
}

/// A name and its value.
pub(super) fn name_and_value() -> Schema {
    named().required("value", text())
}

/// A name and its value; either may be absent.
pub(super) fn optional_name_and_value() -> Schema {
    bare().properties(&["name", "value"], &text())
}

/// The name of an object in the same namespace.
pub(super) fn local_reference() -> Schema {
    bare()
        .atomic_map()
        .property("name", text().default_value(json!("")))
}

/// A reference to an object.
pub(super) fn reference() -> Schema {
    const FIELDS: [&str; 7] = [
        "apiVersion",
        "fieldPath",
        "kind",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    bare().atomic_map().properties(&FIELDS, &text())
}
