//! Probes of containers, and what is done when one starts or stops.

use olm_api::crd::schema::Schema;
use serde_json::json;

use crate::crds::words::{
    atomic_list, atomic_texts, bare, int_or_string, int32, int64, name_and_value, text,
};

pub(crate) fn probe() -> Schema {
    bare()
        .property("exec", exec())
        .properties(
            &[
                "failureThreshold",
                "initialDelaySeconds",
                "periodSeconds",
                "successThreshold",
                "timeoutSeconds",
            ],
            &int32(),
        )
        .property("grpc", grpc())
        .property("httpGet", http_get())
        .property("tcpSocket", tcp_socket())
        .property("terminationGracePeriodSeconds", int64())
}

pub(crate) fn lifecycle() -> Schema {
    bare()
        .properties(&["postStart", "preStop"], &handler())
        .property("stopSignal", text())
}

fn handler() -> Schema {
    bare()
        .property("exec", exec())
        .property("httpGet", http_get())
        .property("sleep", sleep())
        .property("tcpSocket", tcp_socket())
}

fn exec() -> Schema {
    bare().property("command", atomic_texts())
}

fn grpc() -> Schema {
    bare()
        .required("port", int32())
        .property("service", text().default_value(json!("")))
}

fn http_get() -> Schema {
    bare()
        .required("port", int_or_string())
        .properties(&["host", "path", "scheme"], &text())
        .property("httpHeaders", atomic_list(name_and_value()))
}

fn tcp_socket() -> Schema {
    bare().required("port", int_or_string()).property("host", text())
}

fn sleep() -> Schema {
    bare().required("seconds", int64())
}
