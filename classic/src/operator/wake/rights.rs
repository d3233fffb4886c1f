//! ClusterServiceVersions that wait for a change of a role or a binding.

use std::collections::BTreeSet;

use olm_classic::cluster::{items, text};
use serde_json::Value;

use super::{Wake, has_gone_without_rights, names_account};

impl Wake<'_> {
    /// ClusterServiceVersions whose accounts get rights by a role or binding, and those that lack rights to be
    /// installed.
    pub(super) fn of_rights(&mut self, kind: &str, object: &Value) {
        let accounts = if kind.ends_with("Binding") {
            subjects(object)
        } else {
            self.bound(kind, object)
        };
        for (namespace, account) in accounts {
            self.csvs(Some(&namespace), |csv| names_account(csv, &account));
        }
        let namespace = text(object, "/metadata/namespace");
        let place = Some(namespace).filter(|namespace| !namespace.is_empty());
        if place.is_none() {
            self.csvs(None, has_gone_without_rights);
        } else {
            self.csvs(place, has_gone_without_rights);
        }
    }

    /// The accounts that bindings give a role.
    fn bound(&self, kind: &str, role: &Value) -> BTreeSet<(String, String)> {
        let name = text(role, "/metadata/name");
        let namespace = text(role, "/metadata/namespace");
        let is_of = |binding: &&Value| {
            text(binding, "/roleRef/kind") == kind && text(binding, "/roleRef/name") == name
        };
        let global = self
            .cluster
            .of_kind("ClusterRoleBinding")
            .filter(|_| namespace.is_empty());
        let local = self
            .cluster
            .of_kind("RoleBinding")
            .filter(|binding| namespace.is_empty() || text(binding, "/metadata/namespace") == namespace);
        global.chain(local).filter(is_of).flat_map(subjects).collect()
    }
}

/// The service accounts of a binding, as namespace and name.
fn subjects(binding: &Value) -> BTreeSet<(String, String)> {
    let place = text(binding, "/metadata/namespace");
    let account = |subject: &Value| match text(subject, "/kind") {
        "ServiceAccount" => {
            let namespace = match text(subject, "/namespace") {
                "" => place,
                namespace => namespace,
            };
            Some((namespace.to_owned(), text(subject, "/name").to_owned()))
        }
        "User" => {
            let account = text(subject, "/name").strip_prefix("system:serviceaccount:")?;
            let (namespace, name) = account.split_once(':')?;
            Some((namespace.to_owned(), name.to_owned()))
        }
        _ => None,
    };
    items(binding, "/subjects").filter_map(account).collect()
}
