//! The schema of Operator.

use olm_api::crd::definition::{Columns, Scope};
use olm_api::crd::meta::{label_selector, root};
use olm_api::crd::schema::{Schema, array, object};
use serde_json::Value;

use super::words::{bare, reference, text, time};
use super::{kind, stored};
use crate::names;

pub(super) fn definition() -> Value {
    let item = reference().property("conditions", array("Conditions of the object.", condition()));
    let components = object("The objects that make up the operator.")
        .required("labelSelector", label_selector("Selects them by their labels."))
        .property("refs", array("The objects found.", item));
    let status = object("The objects found.").property("components", components);
    let root = root("An Operator lists the objects of an operator.", bare(), status);
    kind(names::OPERATOR_KIND, &[], Scope::Cluster).definition([stored("v1", &Columns::NONE, root)])
}

/// A condition of any kind of object.
fn condition() -> Schema {
    bare()
        .all_required(&["status", "type"], &text())
        .properties(&["lastTransitionTime", "lastUpdateTime"], &time())
        .properties(&["message", "reason"], &text())
}
