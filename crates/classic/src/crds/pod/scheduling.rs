//! Scheduling of a Pod: fields that select its nodes.

use olm_api::crd::meta::label_selector;
use olm_api::crd::schema::Schema;

use crate::crds::words::{atomic_list, atomic_texts, bare, int32, int64, text};

pub(crate) fn affinity() -> Schema {
    bare()
        .property("nodeAffinity", node_affinity())
        .property("podAffinity", pod_affinity())
        .property("podAntiAffinity", pod_affinity())
}

fn node_affinity() -> Schema {
    bare()
        .property(
            "preferredDuringSchedulingIgnoredDuringExecution",
            atomic_list(preferred_node_term()),
        )
        .property("requiredDuringSchedulingIgnoredDuringExecution", node_selector())
}

fn node_selector() -> Schema {
    bare()
        .atomic_map()
        .required("nodeSelectorTerms", atomic_list(node_term()))
}

fn node_term() -> Schema {
    bare().atomic_map().properties(
        &["matchExpressions", "matchFields"],
        &atomic_list(node_requirement()),
    )
}

fn node_requirement() -> Schema {
    bare()
        .all_required(&["key", "operator"], &text())
        .property("values", atomic_texts())
}

fn preferred_node_term() -> Schema {
    bare()
        .required("preference", node_term())
        .required("weight", int32())
}

fn pod_affinity() -> Schema {
    bare()
        .property(
            "preferredDuringSchedulingIgnoredDuringExecution",
            atomic_list(weighted_pod_term()),
        )
        .property(
            "requiredDuringSchedulingIgnoredDuringExecution",
            atomic_list(pod_term()),
        )
}

fn pod_term() -> Schema {
    bare()
        .required("topologyKey", text())
        .properties(&["labelSelector", "namespaceSelector"], &label_selector(""))
        .properties(
            &["matchLabelKeys", "mismatchLabelKeys", "namespaces"],
            &atomic_texts(),
        )
}

fn weighted_pod_term() -> Schema {
    bare()
        .required("podAffinityTerm", pod_term())
        .required("weight", int32())
}

pub(crate) fn toleration() -> Schema {
    bare()
        .properties(&["effect", "key", "operator", "value"], &text())
        .property("tolerationSeconds", int64())
}

pub(crate) fn spread() -> Schema {
    bare()
        .required("maxSkew", int32())
        .all_required(&["topologyKey", "whenUnsatisfiable"], &text())
        .property("labelSelector", label_selector(""))
        .property("matchLabelKeys", atomic_texts())
        .property("minDomains", int32())
        .properties(&["nodeAffinityPolicy", "nodeTaintsPolicy"], &text())
}
