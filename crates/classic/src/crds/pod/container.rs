//! Containers.

use olm_api::crd::schema::Schema;
use serde_json::json;

use super::{environment, probe, security};
use crate::crds::words::{atomic_list, atomic_texts, bare, int32, list, quantities, switch, text};

pub(crate) fn container() -> Schema {
    bare()
        .required("name", text())
        .properties(&["args", "command"], &atomic_texts())
        .property("env", list(environment::variable()).map_list(&["name"]))
        .property("envFrom", atomic_list(environment::variables()))
        .properties(
            &[
                "image",
                "imagePullPolicy",
                "restartPolicy",
                "terminationMessagePath",
                "terminationMessagePolicy",
                "workingDir",
            ],
            &text(),
        )
        .property("lifecycle", probe::lifecycle())
        .properties(
            &["livenessProbe", "readinessProbe", "startupProbe"],
            &probe::probe(),
        )
        .property("ports", list(port()).map_list(&["containerPort", "protocol"]))
        .property("resizePolicy", atomic_list(resize_policy()))
        .property("resources", resources())
        .property("restartPolicyRules", atomic_list(restart_rule()))
        .property("securityContext", security::of_container())
        .properties(&["stdin", "stdinOnce", "tty"], &switch())
        .property("volumeDevices", list(volume_device()).map_list(&["devicePath"]))
        .property("volumeMounts", list(volume_mount()).map_list(&["mountPath"]))
}

pub(crate) fn ephemeral_container() -> Schema {
    container().property("targetContainerName", text())
}

fn port() -> Schema {
    bare()
        .required("containerPort", int32())
        .properties(&["hostIP", "name"], &text())
        .property("hostPort", int32())
        .property("protocol", text().default_value(json!("TCP")))
}

fn resize_policy() -> Schema {
    bare().all_required(&["resourceName", "restartPolicy"], &text())
}

fn restart_rule() -> Schema {
    bare()
        .required("action", text())
        .property("exitCodes", exit_codes())
}

fn exit_codes() -> Schema {
    bare()
        .required("operator", text())
        .property("values", list(int32()).list_type("set"))
}

pub(crate) fn resources() -> Schema {
    bare()
        .property("claims", list(claim()).map_list(&["name"]))
        .properties(&["limits", "requests"], &quantities())
}

fn claim() -> Schema {
    bare().required("name", text()).property("request", text())
}

fn volume_device() -> Schema {
    bare().all_required(&["devicePath", "name"], &text())
}

pub(crate) fn volume_mount() -> Schema {
    bare()
        .all_required(&["mountPath", "name"], &text())
        .properties(
            &["mountPropagation", "recursiveReadOnly", "subPath", "subPathExpr"],
            &text(),
        )
        .property("readOnly", switch())
}
