//! The specification of a Deployment with its Pods, as Kubernetes 1.36 defines it. It has no descriptions: those of
//! Kubernetes would fill most of the definition.
//!
//! Objects of operators keep their fields only as far as the schema has them. A test compares it with that of the API
//! server.

pub(crate) mod container;
pub(crate) mod environment;
mod files;
mod probe;
pub(crate) mod scheduling;
mod security;
mod storage;
pub(crate) mod volume;

use olm_api::crd::meta::label_selector;
use olm_api::crd::schema::Schema;
use serde_json::json;

use crate::crds::words::{
    atomic_list, atomic_texts, bare, int_or_string, int32, int64, list, local_reference, named,
    optional_name_and_value, quantities, switch, text, text_map,
};

/// The specification of a Deployment.
pub(crate) fn deployment() -> Schema {
    bare()
        .required("selector", label_selector(""))
        .required("template", template())
        .properties(
            &[
                "minReadySeconds",
                "progressDeadlineSeconds",
                "replicas",
                "revisionHistoryLimit",
            ],
            &int32(),
        )
        .property("paused", switch())
        .property("strategy", strategy())
}

fn strategy() -> Schema {
    bare()
        .property("rollingUpdate", rolling_update())
        .property("type", text())
}

fn rolling_update() -> Schema {
    bare().properties(&["maxSurge", "maxUnavailable"], &int_or_string())
}

fn template() -> Schema {
    bare().property("metadata", bare().open()).property("spec", pod())
}

fn pod() -> Schema {
    bare()
        .required("containers", list(container::container()).map_list(&["name"]))
        .properties(
            &["activeDeadlineSeconds", "terminationGracePeriodSeconds"],
            &int64(),
        )
        .property("affinity", scheduling::affinity())
        .properties(
            &[
                "automountServiceAccountToken",
                "enableServiceLinks",
                "hostIPC",
                "hostNetwork",
                "hostPID",
                "hostUsers",
                "setHostnameAsFQDN",
                "shareProcessNamespace",
            ],
            &switch(),
        )
        .property("dnsConfig", dns())
        .properties(
            &[
                "dnsPolicy",
                "hostname",
                "hostnameOverride",
                "nodeName",
                "preemptionPolicy",
                "priorityClassName",
                "restartPolicy",
                "runtimeClassName",
                "schedulerName",
                "serviceAccount",
                "serviceAccountName",
                "subdomain",
            ],
            &text(),
        )
        .property(
            "ephemeralContainers",
            list(container::ephemeral_container()).map_list(&["name"]),
        )
        .property("hostAliases", list(host_alias()).map_list(&["ip"]))
        .property("imagePullSecrets", list(local_reference()).map_list(&["name"]))
        .property("initContainers", list(container::container()).map_list(&["name"]))
        .property("nodeSelector", text_map().atomic_map())
        .property("os", named())
        .property("overhead", quantities())
        .property("priority", int32())
        .property("readinessGates", atomic_list(readiness_gate()))
        .property("resourceClaims", list(resource_claim()).map_list(&["name"]))
        .property("resources", container::resources())
        .property("schedulingGates", list(named()).map_list(&["name"]))
        .property("schedulingGroup", scheduling_group())
        .property("securityContext", security::of_pod())
        .property("tolerations", atomic_list(scheduling::toleration()))
        .property(
            "topologySpreadConstraints",
            list(scheduling::spread()).map_list(&["topologyKey", "whenUnsatisfiable"]),
        )
        .property("volumes", list(volume::volume()).map_list(&["name"]))
}

fn host_alias() -> Schema {
    bare()
        .required("ip", text().default_value(json!("")))
        .property("hostnames", atomic_texts())
}

fn dns() -> Schema {
    bare()
        .properties(&["nameservers", "searches"], &atomic_texts())
        .property("options", atomic_list(optional_name_and_value()))
}

fn readiness_gate() -> Schema {
    bare().required("conditionType", text())
}

fn resource_claim() -> Schema {
    bare()
        .required("name", text())
        .properties(&["resourceClaimName", "resourceClaimTemplateName"], &text())
}

fn scheduling_group() -> Schema {
    bare().property("podGroupName", text())
}
