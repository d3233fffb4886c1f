//! Install strategy of a ClusterServiceVersion.

use olm_api::crd::schema::{Schema, array, object, string};

use crate::crds::pod;
use crate::crds::words::{atomic_texts, bare, list, named, text, text_map};

/// The install strategy.
pub(super) fn install() -> Schema {
    let deployment = named()
        .required("spec", pod::deployment())
        .property("label", text_map());
    let spec = object("What is installed.")
        .required(
            "deployments",
            array("The Deployments of the operator.", deployment),
        )
        .property(
            "clusterPermissions",
            array("Rights of service accounts in all namespaces.", permission()),
        )
        .property(
            "permissions",
            array(
                "Rights of service accounts in the namespaces that the operator watches.",
                permission(),
            ),
        );
    object("How the operator is installed.")
        .required("strategy", string("The only strategy is deployment."))
        .property("spec", spec)
}

fn permission() -> Schema {
    let rule = bare().required("verbs", atomic_texts()).properties(
        &["apiGroups", "nonResourceURLs", "resourceNames", "resources"],
        &atomic_texts(),
    );
    bare()
        .required("rules", list(rule))
        .required("serviceAccountName", text())
}
