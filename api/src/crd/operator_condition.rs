//! The schema of OperatorCondition, which OLM classic defines and operators of OLM v1 write too.

use serde_json::{Value, json};

use super::definition::{Columns, Kind, Scope, Version};
use super::meta::{condition, root};
use super::schema::{Schema, array, object, string};
use crate::names::operator_condition as names;

/// The CustomResourceDefinition. Unlike the one of the reference implementation, version v1 also has `spec.conditions`:
/// a client that writes v1 must not drop the operator's report that it cannot be upgraded.
pub fn definition() -> Value {
    let kind = Kind {
        group: names::GROUP,
        kind: names::KIND,
        short_names: &["condition"],
        scope: Scope::Namespaced,
        annotations: &[],
    };
    let version = |name, storage| Version {
        name,
        storage,
        columns: &Columns::NONE,
        root: schema(),
    };
    kind.definition([version("v1", false), version(names::VERSION, true)])
}

fn schema() -> Schema {
    let set = array("Conditions that the operator sets.", condition());
    // An administrator may omit the time.
    let overrides = condition().optional("lastTransitionTime");
    let spec = object("The conditions that the operator reports, and the overrides of administrators.")
        .property("conditions", set.clone())
        .property("deployments", array("Deployments of the operator.", string("")))
        .property(
            "overrides",
            array(
                "Conditions that an administrator sets in place of those of the operator.",
                overrides,
            ),
        )
        .property(
            "serviceAccounts",
            array(
                "Accounts of the operator, which may write the object.",
                string(""),
            ),
        );
    let status = object("The conditions in effect.").property("conditions", set);
    let description =
        "An OperatorCondition reports states of an operator, for example whether it can be upgraded.";
    root(description, spec, status).extension("required", json!(["metadata"]))
}
