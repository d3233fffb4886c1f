//! Volumes.

use olm_api::crd::meta::label_selector;
use olm_api::crd::schema::Schema;

use super::{files, storage};
use crate::crds::words::{atomic_texts, bare, quantities, quantity, text};

pub(crate) fn volume() -> Schema {
    bare()
        .required("name", text())
        .property("awsElasticBlockStore", storage::aws_elastic_block_store())
        .property("azureDisk", storage::azure_disk())
        .property("azureFile", storage::azure_file())
        .property("cephfs", storage::ceph_fs())
        .property("cinder", storage::cinder())
        .property("configMap", files::config_map())
        .property("csi", storage::csi())
        .property("downwardAPI", files::downward_api())
        .property("emptyDir", empty_dir())
        .property("ephemeral", ephemeral())
        .property("fc", storage::fibre_channel())
        .property("flexVolume", storage::flex_volume())
        .property("flocker", storage::flocker())
        .property("gcePersistentDisk", storage::gce_persistent_disk())
        .property("gitRepo", storage::git_repo())
        .property("glusterfs", storage::glusterfs())
        .property("hostPath", storage::host_path())
        .property("image", storage::image())
        .property("iscsi", storage::iscsi())
        .property("nfs", storage::nfs())
        .property("persistentVolumeClaim", storage::persistent_volume_claim())
        .property("photonPersistentDisk", storage::photon_persistent_disk())
        .property("portworxVolume", storage::portworx())
        .property("projected", files::projected())
        .property("quobyte", storage::quobyte())
        .property("rbd", storage::rbd())
        .property("scaleIO", storage::scale_io())
        .property("secret", files::secret())
        .property("storageos", storage::storage_os())
        .property("vsphereVolume", storage::vsphere())
}

fn empty_dir() -> Schema {
    bare()
        .property("medium", text())
        .property("sizeLimit", quantity())
}

fn ephemeral() -> Schema {
    bare().property("volumeClaimTemplate", claim_template())
}

fn claim_template() -> Schema {
    bare()
        .required("spec", claim_spec())
        .property("metadata", bare().open())
}

fn claim_spec() -> Schema {
    bare()
        .property("accessModes", atomic_texts())
        .property("dataSource", typed_reference())
        .property("dataSourceRef", namespaced_reference())
        .property("resources", claim_resources())
        .property("selector", label_selector(""))
        .properties(
            &[
                "storageClassName",
                "volumeAttributesClassName",
                "volumeMode",
                "volumeName",
            ],
            &text(),
        )
}

fn claim_resources() -> Schema {
    bare().properties(&["limits", "requests"], &quantities())
}

fn typed_reference() -> Schema {
    bare()
        .atomic_map()
        .all_required(&["kind", "name"], &text())
        .property("apiGroup", text())
}

fn namespaced_reference() -> Schema {
    bare()
        .all_required(&["kind", "name"], &text())
        .properties(&["apiGroup", "namespace"], &text())
}
