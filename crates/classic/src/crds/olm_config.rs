//! The schema of OLMConfig.

use olm_api::crd::definition::{Columns, Scope};
use olm_api::crd::meta::{condition, root};
use olm_api::crd::schema::{array, boolean, object, string};
use serde_json::{Value, json};

use super::{kind, stored};
use crate::names;

pub(super) fn definition() -> Value {
    let features = object("Features that can be changed.")
        .property(
            "disableCopiedCSVs",
            boolean(
                "Whether ClusterServiceVersions that all namespaces can use are not copied to each of them.",
            ),
        )
        .property(
            "packageServerSyncInterval",
            string(
                "How often PackageManifests are read anew, in hours, minutes and seconds: 12h, 90m, 1h30m.",
            )
            .pattern(r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"),
        );
    let spec = object("The configuration.").property("features", features);
    let status = object("What is in effect.").property(
        "conditions",
        array(
            "DisabledCopiedCSVs: whether copies are switched off, and none is left.",
            condition(),
        ),
    );
    let description = "An OLMConfig configures OLM. Only the object with the name cluster counts.";
    let root = root(description, spec, status).extension("required", json!(["metadata"]));
    kind(names::OLM_CONFIG_KIND, &[], Scope::Cluster).definition([stored("v1", &Columns::NONE, root)])
}
