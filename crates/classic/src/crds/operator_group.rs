//! The schema of OperatorGroup.

use olm_api::crd::definition::{Columns, Scope, Version};
use olm_api::crd::meta::{condition, label_selector, root};
use olm_api::crd::schema::{Schema, array, boolean, choice, object, string};
use serde_json::{Value, json};

use super::words::{reference, texts, time};
use super::{kind, stored};
use crate::names;

const DESCRIPTION: &str =
    "An OperatorGroup selects the namespaces that the operators of its own namespace watch.";

pub(super) fn definition() -> Value {
    let description = "Whether an operator whose installation failed may be replaced. Default: it may not. TechPreviewUnsafeFailForward: it may.";
    let strategy =
        choice(description, &["Default", "TechPreviewUnsafeFailForward"]).default_value(json!("Default"));
    let namespaces = texts().list_type("set");
    let spec = spec(&namespaces)
        .property("upgradeStrategy", strategy)
        .default_value(json!({"upgradeStrategy": "Default"}));
    let status = status(&namespaces).property(
        "conditions",
        array("The problems of the OperatorGroup.", condition()),
    );
    let current = root(DESCRIPTION, spec, status).extension("required", json!(["metadata"]));
    let former = root(DESCRIPTION, self::spec(&texts()), self::status(&texts()))
        .extension("required", json!(["metadata"]));
    let former = Version {
        name: "v1alpha2",
        storage: false,
        columns: &Columns::NONE,
        root: former,
    };
    kind(names::OPERATOR_GROUP_KIND, &["og"], Scope::Namespaced)
        .definition([stored("v1", &Columns::NONE, current), former])
}

fn spec(namespaces: &Schema) -> Schema {
    object("Which namespaces, and under which account.")
        .property(
            "selector",
            label_selector("Selects namespaces by their labels, where targetNamespaces is empty. Without both, all namespaces are selected."),
        )
        .property(
            "serviceAccountName",
            string("The service account in this namespace under which operators are installed."),
        )
        .property(
            "staticProvidedAPIs",
            boolean("Whether the annotation with the provided APIs is left as it is."),
        )
        .property("targetNamespaces", namespaces.clone())
}

fn status(namespaces: &Schema) -> Schema {
    object("What is selected.")
        .required("lastUpdated", time())
        .property("namespaces", namespaces.clone())
        .property("serviceAccountRef", reference())
}
