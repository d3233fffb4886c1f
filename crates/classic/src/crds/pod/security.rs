//! Security contexts of a Pod and its containers.

use olm_api::crd::schema::Schema;

use crate::crds::words::{atomic_list, atomic_texts, bare, int64, name_and_value, switch, text};

pub(crate) fn of_pod() -> Schema {
    bare()
        .property("appArmorProfile", profile())
        .properties(&["fsGroup", "runAsGroup", "runAsUser"], &int64())
        .properties(
            &[
                "fsGroupChangePolicy",
                "seLinuxChangePolicy",
                "supplementalGroupsPolicy",
            ],
            &text(),
        )
        .property("runAsNonRoot", switch())
        .property("seLinuxOptions", se_linux())
        .property("seccompProfile", profile())
        .property("supplementalGroups", atomic_list(int64()))
        .property("sysctls", atomic_list(name_and_value()))
        .property("windowsOptions", windows())
}

pub(crate) fn of_container() -> Schema {
    bare()
        .properties(
            &[
                "allowPrivilegeEscalation",
                "privileged",
                "readOnlyRootFilesystem",
                "runAsNonRoot",
            ],
            &switch(),
        )
        .property("appArmorProfile", profile())
        .property("capabilities", capabilities())
        .property("procMount", text())
        .properties(&["runAsGroup", "runAsUser"], &int64())
        .property("seLinuxOptions", se_linux())
        .property("seccompProfile", profile())
        .property("windowsOptions", windows())
}

fn profile() -> Schema {
    bare()
        .required("type", text())
        .property("localhostProfile", text())
}

fn se_linux() -> Schema {
    bare().properties(&["level", "role", "type", "user"], &text())
}

fn windows() -> Schema {
    bare()
        .properties(
            &["gmsaCredentialSpec", "gmsaCredentialSpecName", "runAsUserName"],
            &text(),
        )
        .property("hostProcess", switch())
}

fn capabilities() -> Schema {
    bare().properties(&["add", "drop"], &atomic_texts())
}
