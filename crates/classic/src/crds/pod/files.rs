//! Volumes with files that Kubernetes writes.

use olm_api::crd::meta::label_selector;
use olm_api::crd::schema::Schema;
use serde_json::json;

use super::environment;
use crate::crds::words::{atomic_list, bare, int32, int64, switch, text, text_map};

pub(crate) fn config_map() -> Schema {
    bare()
        .atomic_map()
        .property("defaultMode", int32())
        .property("items", atomic_list(key_to_path()))
        .property("name", text().default_value(json!("")))
        .property("optional", switch())
}

pub(crate) fn secret() -> Schema {
    bare()
        .property("defaultMode", int32())
        .property("items", atomic_list(key_to_path()))
        .property("optional", switch())
        .property("secretName", text())
}

fn key_to_path() -> Schema {
    bare()
        .all_required(&["key", "path"], &text())
        .property("mode", int32())
}

pub(crate) fn downward_api() -> Schema {
    bare()
        .property("defaultMode", int32())
        .property("items", atomic_list(downward_api_file()))
}

fn downward_api_file() -> Schema {
    bare()
        .required("path", text())
        .property("fieldRef", environment::field())
        .property("mode", int32())
        .property("resourceFieldRef", environment::resource_field())
}

pub(crate) fn projected() -> Schema {
    bare()
        .property("defaultMode", int32())
        .property("sources", atomic_list(projection()))
}

fn projection() -> Schema {
    bare()
        .property("clusterTrustBundle", trust_bundle())
        .property("configMap", object_items())
        .property("downwardAPI", downward_api_items())
        .property("podCertificate", pod_certificate())
        .property("secret", object_items())
        .property("serviceAccountToken", account_token())
}

fn trust_bundle() -> Schema {
    bare()
        .required("path", text())
        .property("labelSelector", label_selector(""))
        .properties(&["name", "signerName"], &text())
        .property("optional", switch())
}

fn object_items() -> Schema {
    bare()
        .atomic_map()
        .property("items", atomic_list(key_to_path()))
        .property("name", text().default_value(json!("")))
        .property("optional", switch())
}

fn downward_api_items() -> Schema {
    bare().property("items", atomic_list(downward_api_file()))
}

fn pod_certificate() -> Schema {
    bare()
        .all_required(&["keyType", "signerName"], &text())
        .properties(
            &["certificateChainPath", "credentialBundlePath", "keyPath"],
            &text(),
        )
        .property("maxExpirationSeconds", int32())
        .property("userAnnotations", text_map())
}

fn account_token() -> Schema {
    bare()
        .required("path", text())
        .property("audience", text())
        .property("expirationSeconds", int64())
}
