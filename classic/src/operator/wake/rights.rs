//! ClusterServiceVersions that wait for a change of a role or a binding.

use std::collections::BTreeSet;

use olm_classic::cluster::{items, text};
use olm_classic::names;
use serde_json::Value;

use super::super::work::{Name, Work};
use super::{Urgency, Wake, has_gone_without_rights, is_served_by, names_account};

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

    /// ClusterServiceVersions that own the API of a role by which users get at it.
    pub(super) fn of_api_role(&mut self, role: &Value) {
        let labels = role.pointer("/metadata/labels").and_then(Value::as_object);
        let is_of_api = labels.is_some_and(|labels| {
            labels
                .keys()
                .any(|key| key.starts_with(names::GROUP_AGGREGATION_PREFIX))
        });
        if !is_of_api {
            return;
        }
        let cluster = self.cluster;
        for owner in items(role, "/metadata/ownerReferences") {
            let name = text(owner, "/name");
            let kind = text(owner, "/kind");
            let owns = |csv: &&Value| {
                // The Go implementation writes the kind in lower case.
                if kind.eq_ignore_ascii_case(names::CRD_KIND) {
                    items(csv, "/spec/customresourcedefinitions/owned").any(|api| text(api, "/name") == name)
                } else {
                    kind.eq_ignore_ascii_case(names::API_SERVICE_KIND)
                        && items(csv, "/spec/apiservicedefinitions/owned").any(|api| is_served_by(api, name))
                }
            };
            let owning = cluster.of_kind(names::CSV_KIND).filter(owns).map(Name::of);
            self.tasks
                .extend(owning.map(|name| (Work::Csv(name), Urgency::Patient)));
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
