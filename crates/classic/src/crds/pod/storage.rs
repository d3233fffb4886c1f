//! Volumes on storage of each kind.

use olm_api::crd::schema::Schema;
use serde_json::json;

use crate::crds::words::{atomic_texts, bare, int32, local_reference, switch, text, text_map};

pub(crate) fn aws_elastic_block_store() -> Schema {
    bare()
        .required("volumeID", text())
        .property("fsType", text())
        .property("partition", int32())
        .property("readOnly", switch())
}

pub(crate) fn azure_disk() -> Schema {
    bare()
        .all_required(&["diskName", "diskURI"], &text())
        .property("cachingMode", text())
        .property("fsType", text().default_value(json!("ext4")))
        .property("kind", text())
        .property("readOnly", switch().default_value(json!(false)))
}

pub(crate) fn azure_file() -> Schema {
    bare()
        .all_required(&["secretName", "shareName"], &text())
        .property("readOnly", switch())
}

pub(crate) fn csi() -> Schema {
    bare()
        .required("driver", text())
        .property("fsType", text())
        .property("nodePublishSecretRef", local_reference())
        .property("readOnly", switch())
        .property("volumeAttributes", text_map())
}

pub(crate) fn ceph_fs() -> Schema {
    bare()
        .required("monitors", atomic_texts())
        .properties(&["path", "secretFile", "user"], &text())
        .property("readOnly", switch())
        .property("secretRef", local_reference())
}

pub(crate) fn cinder() -> Schema {
    bare()
        .required("volumeID", text())
        .property("fsType", text())
        .property("readOnly", switch())
        .property("secretRef", local_reference())
}

pub(crate) fn fibre_channel() -> Schema {
    bare()
        .property("fsType", text())
        .property("lun", int32())
        .property("readOnly", switch())
        .properties(&["targetWWNs", "wwids"], &atomic_texts())
}

pub(crate) fn flex_volume() -> Schema {
    bare()
        .required("driver", text())
        .property("fsType", text())
        .property("options", text_map())
        .property("readOnly", switch())
        .property("secretRef", local_reference())
}

pub(crate) fn flocker() -> Schema {
    bare().properties(&["datasetName", "datasetUUID"], &text())
}

pub(crate) fn gce_persistent_disk() -> Schema {
    bare()
        .required("pdName", text())
        .property("fsType", text())
        .property("partition", int32())
        .property("readOnly", switch())
}

pub(crate) fn git_repo() -> Schema {
    bare()
        .required("repository", text())
        .properties(&["directory", "revision"], &text())
}

pub(crate) fn glusterfs() -> Schema {
    bare()
        .all_required(&["endpoints", "path"], &text())
        .property("readOnly", switch())
}

pub(crate) fn host_path() -> Schema {
    bare().required("path", text()).property("type", text())
}

pub(crate) fn iscsi() -> Schema {
    bare()
        .all_required(&["iqn", "targetPortal"], &text())
        .required("lun", int32())
        .properties(&["chapAuthDiscovery", "chapAuthSession", "readOnly"], &switch())
        .properties(&["fsType", "initiatorName"], &text())
        .property("iscsiInterface", text().default_value(json!("default")))
        .property("portals", atomic_texts())
        .property("secretRef", local_reference())
}

pub(crate) fn image() -> Schema {
    bare().properties(&["pullPolicy", "reference"], &text())
}

pub(crate) fn nfs() -> Schema {
    bare()
        .all_required(&["path", "server"], &text())
        .property("readOnly", switch())
}

pub(crate) fn persistent_volume_claim() -> Schema {
    bare()
        .required("claimName", text())
        .property("readOnly", switch())
}

pub(crate) fn photon_persistent_disk() -> Schema {
    bare().required("pdID", text()).property("fsType", text())
}

pub(crate) fn portworx() -> Schema {
    bare()
        .required("volumeID", text())
        .property("fsType", text())
        .property("readOnly", switch())
}

pub(crate) fn quobyte() -> Schema {
    bare()
        .all_required(&["registry", "volume"], &text())
        .properties(&["group", "tenant", "user"], &text())
        .property("readOnly", switch())
}

pub(crate) fn rbd() -> Schema {
    bare()
        .required("image", text())
        .required("monitors", atomic_texts())
        .property("fsType", text())
        .property("keyring", text().default_value(json!("/etc/ceph/keyring")))
        .property("pool", text().default_value(json!("rbd")))
        .property("readOnly", switch())
        .property("secretRef", local_reference())
        .property("user", text().default_value(json!("admin")))
}

pub(crate) fn scale_io() -> Schema {
    bare()
        .all_required(&["gateway", "system"], &text())
        .required("secretRef", local_reference())
        .property("fsType", text().default_value(json!("xfs")))
        .properties(&["protectionDomain", "storagePool", "volumeName"], &text())
        .properties(&["readOnly", "sslEnabled"], &switch())
        .property("storageMode", text().default_value(json!("ThinProvisioned")))
}

pub(crate) fn storage_os() -> Schema {
    bare()
        .properties(&["fsType", "volumeName", "volumeNamespace"], &text())
        .property("readOnly", switch())
        .property("secretRef", local_reference())
}

pub(crate) fn vsphere() -> Schema {
    bare()
        .required("volumePath", text())
        .properties(&["fsType", "storagePolicyID", "storagePolicyName"], &text())
}
