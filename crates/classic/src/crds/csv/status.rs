//! The status of a ClusterServiceVersion.

use olm_api::crd::schema::{Schema, array, object, string};

use crate::crds::words::{bare, list, named, text, time};

pub(super) fn status() -> Schema {
    let instance = named().property("namespace", text());
    let pending = bare()
        .all_required(&["group", "kind"], &text())
        .required("instances", list(instance));
    step(object("The state of the installation."))
        .properties(&["certsLastUpdated", "certsRotateAt"], &time())
        .property("cleanup", bare().property("pendingDeletion", list(pending)))
        .property(
            "conditions",
            array("The last phases, oldest first.", step(bare())),
        )
        .property(
            "requirementStatus",
            array("What the operator requires.", requirement()),
        )
}

/// A phase and what led to it.
fn step(schema: Schema) -> Schema {
    schema
        .property(
            "phase",
            string("Pending, InstallReady, Installing, Succeeded, Failed, Unknown, Replacing or Deleting."),
        )
        .property("reason", string("The reason, in CamelCase."))
        .property("message", string("The reason as text."))
        .properties(&["lastTransitionTime", "lastUpdateTime"], &time())
}

fn requirement() -> Schema {
    let kind = ["group", "kind", "version"];
    let dependent = bare()
        .all_required(&kind, &text())
        .required("status", text())
        .properties(&["message", "uuid"], &text());
    bare()
        .all_required(&kind, &text())
        .all_required(&["message", "name", "status"], &text())
        .property("dependents", list(dependent))
        .property("uuid", text())
}
