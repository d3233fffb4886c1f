//! Work after a change: everything that waits for the changed object is reconciled.

use std::collections::BTreeSet;

use olm_classic::cluster::{Cluster, items, label, text};
use olm_classic::csv::component::{KIND, Shown, lacks_label_of, named_by, operator_name};
use olm_classic::names;
use olm_classic::subscription::is_paused;
use serde_json::Value;

use super::work::{Name, Work};
use crate::objects::store::Change;

mod definitions;
mod rights;

/// Urgency of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Not before its time when it failed: the change may be its own.
    Patient,
    /// After a moment in which more changes of that kind follow, and not before its time when it failed.
    Later,
    /// At once.
    Now,
}

/// Work with its urgency.
pub type Tasks = BTreeSet<(Work, Urgency)>;

/// Work after a change. `cluster` has the objects after it.
pub fn tasks(change: &Change, cluster: &Cluster) -> Tasks {
    let mut wake = Wake {
        cluster,
        tasks: Tasks::new(),
    };
    wake.components(change);
    if change.kind == names::CRD_KIND {
        wake.of_definition(change);
    }
    for version in versions(change) {
        wake.owners(version);
        wake.by_kind(change, version);
    }
    if let Some(now) = change.now.as_deref() {
        wake.unlabelled(now);
    }
    wake.tasks
}

/// Work at the start.
pub fn all(cluster: &Cluster) -> Tasks {
    let mut tasks = Tasks::new();
    for csv in cluster.of_kind(names::CSV_KIND) {
        let name = Name::of(csv);
        let works = [
            Work::Csv(name.clone()),
            Work::Copies(name.clone()),
            Work::Owned(name.clone()),
            Work::Condition(name),
        ];
        tasks.extend(works.map(|work| (work, Urgency::Now)));
    }
    let mut add = |work| tasks.insert((work, Urgency::Now));
    for group in cluster.of_kind(names::OPERATOR_GROUP_KIND) {
        add(Work::Group(Name::of(group)));
    }
    for namespace in cluster.of_kind("Namespace") {
        add(Work::Namespace(text(namespace, "/metadata/name").to_owned()));
    }
    for subscription in cluster.of_kind(names::SUBSCRIPTION_KIND) {
        add(Work::Subscription(Name::of(subscription)));
    }
    for operator in cluster.of_kind(KIND) {
        add(Work::Component(text(operator, "/metadata/name").to_owned()));
    }
    for config in cluster.of_kind("OLMConfig") {
        add(Work::Config(text(config, "/metadata/name").to_owned()));
    }
    // APIServices of ClusterServiceVersions that were deleted while the program did not run.
    for service in cluster.of_kind(names::API_SERVICE_KIND) {
        if label(service, names::OWNER_KIND_LABEL) == names::CSV_KIND {
            add(Work::Csv(labelled_owner(service)));
        }
    }
    // Roles of OperatorGroups, likewise.
    for role in cluster.of_kind("ClusterRole") {
        if label(role, names::OWNER_KIND_LABEL) == names::OPERATOR_GROUP_KIND {
            add(Work::Group(labelled_owner(role)));
        }
    }
    tasks
}

/// The object before and after a change.
fn versions(change: &Change) -> impl Iterator<Item = &Value> {
    [change.before.as_deref(), change.now.as_deref()]
        .into_iter()
        .flatten()
}

/// Whether a change makes this of an object another one. Its creation and its deletion always do.
fn differs<'a, T: PartialEq>(change: &'a Change, part: impl Fn(&'a Value) -> T) -> bool {
    change.before.as_deref().map(&part) != change.now.as_deref().map(&part)
}

struct Wake<'a> {
    cluster: &'a Cluster,
    tasks: Tasks,
}

impl Wake<'_> {
    fn add(&mut self, work: Work) {
        self.tasks.insert((work, Urgency::Now));
    }

    fn later(&mut self, work: Work) {
        self.tasks.insert((work, Urgency::Later));
    }

    fn csv(&mut self, csv: &Value) {
        self.add(Work::Csv(Name::of(csv)));
    }

    fn copies(&mut self, originals: Vec<Name>) {
        let works = originals.into_iter().map(Work::Copies);
        self.tasks.extend(works.map(|work| (work, Urgency::Now)));
    }

    /// ClusterServiceVersions of a namespace, or of the whole cluster, for which `is_meant` says so.
    fn csvs(&mut self, namespace: Option<&str>, is_meant: impl Fn(&Value) -> bool) {
        let cluster = self.cluster;
        match namespace {
            Some(namespace) => {
                for csv in cluster
                    .in_namespace(names::CSV_KIND, namespace)
                    .filter(|csv| is_meant(csv))
                {
                    self.csv(csv);
                }
            }
            None => {
                for csv in cluster.of_kind(names::CSV_KIND).filter(|csv| is_meant(csv)) {
                    self.csv(csv);
                }
            }
        }
    }

    fn groups(&mut self, is_meant: impl Fn(&Value) -> bool) {
        for group in self.cluster.of_kind(names::OPERATOR_GROUP_KIND) {
            if is_meant(group) {
                self.add(Work::Group(Name::of(group)));
            }
        }
    }

    /// The ClusterServiceVersion or OperatorGroup that owns an object.
    fn owners(&mut self, object: &Value) {
        let namespace = text(object, "/metadata/namespace");
        let owners = items(object, "/metadata/ownerReferences");
        let referenced = owners
            .filter(|owner| text(owner, "/kind") == names::CSV_KIND)
            .map(|owner| Work::Csv(Name::new(namespace, text(owner, "/name"))));
        let labelled = match label(object, names::OWNER_KIND_LABEL) {
            names::CSV_KIND => Some(Work::Csv(labelled_owner(object))),
            names::OPERATOR_GROUP_KIND => Some(Work::Group(labelled_owner(object))),
            _ => None,
        };
        let works = referenced.chain(labelled);
        self.tasks.extend(works.map(|work| (work, Urgency::Patient)));
        for owner in items(object, "/metadata/ownerReferences") {
            if text(owner, "/kind") == names::OPERATOR_CONDITION_KIND {
                self.add(Work::Condition(Name::new(namespace, text(owner, "/name"))));
            }
        }
    }

    /// The ClusterServiceVersions that own an object and whose labels it lacks.
    fn unlabelled(&mut self, object: &Value) {
        let namespace = text(object, "/metadata/namespace");
        let owners = items(object, "/metadata/ownerReferences");
        let referenced = owners
            .filter(|owner| text(owner, "/kind") == names::CSV_KIND)
            .map(|owner| Name::new(namespace, text(owner, "/name")));
        let is_labelled = label(object, names::OWNER_KIND_LABEL) == names::CSV_KIND;
        let labelled = is_labelled.then(|| labelled_owner(object));
        for name in referenced.chain(labelled) {
            let owner = self.cluster.get(names::CSV_KIND, &name.namespace, &name.name);
            if owner.is_some_and(|owner| lacks_label_of(object, owner)) {
                self.add(Work::Owned(name));
            }
        }
    }

    /// The Operators that show an object, unless they show the same as before.
    fn components(&mut self, change: &Change) {
        let [before, now] =
            [&change.before, &change.now].map(|version| version.as_deref().and_then(Shown::of));
        if before == now {
            return;
        }
        let operators = [before, now].into_iter().flatten();
        let operators = operators.flat_map(|shown| shown.operators).map(Work::Component);
        self.tasks.extend(operators.map(|work| (work, Urgency::Later)));
    }

    fn by_kind(&mut self, change: &Change, object: &Value) {
        let name = text(object, "/metadata/name");
        let namespace = text(object, "/metadata/namespace");
        match change.kind {
            names::CSV_KIND => self.of_csv(change, object),
            names::OPERATOR_GROUP_KIND => self.of_group(object),
            names::OPERATOR_CONDITION_KIND => {
                self.add(Work::Condition(Name::new(namespace, name)));
                self.csvs(Some(namespace), |csv| {
                    text(csv, "/spec/replaces") == name || text(csv, "/metadata/name") == name
                });
            }
            names::SUBSCRIPTION_KIND => {
                self.later(Work::Subscription(Name::new(namespace, name)));
                let installed = text(object, "/status/installedCSV");
                // The rest of its status is about catalogs and plans.
                if !installed.is_empty() && differs(change, settings) {
                    let installed = Name::new(namespace, installed);
                    self.add(Work::Csv(installed.clone()));
                    self.add(Work::Owned(installed));
                }
            }
            "Namespace" => self.of_namespace(name),
            KIND => self.later(Work::Component(name.to_owned())),
            "OLMConfig" => {
                self.add(Work::Config(name.to_owned()));
                let copied: Vec<Name> = self.cluster.of_kind(names::CSV_KIND).map(Name::of).collect();
                self.copies(copied);
            }
            "ServiceAccount" => {
                self.groups(|group| {
                    text(group, "/metadata/namespace") == namespace
                        && text(group, "/spec/serviceAccountName") == name
                });
                self.csvs(Some(namespace), |csv| {
                    names_account(csv, name) || has_gone_without_rights(csv)
                });
            }
            names::API_SERVICE_KIND => self.csvs(None, |csv| {
                has_api(csv, "apiservicedefinitions", |api| is_served_by(api, name))
            }),
            "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => {
                self.of_rights(change.kind, object);
                self.of_api_role(object);
            }
            names::INSTALL_PLAN_KIND => self.of_plan(object),
            names::PROXY_KIND => self.csvs(None, |_| true),
            _ => {}
        }
    }

    fn of_csv(&mut self, change: &Change, csv: &Value) {
        let namespace = text(csv, "/metadata/namespace");
        let own = Name::of(csv);
        // A status of its own is no news to it. What others change is: a deletion does not wait for the next attempt.
        let is_asked = differs(change, asked);
        let urgency = if is_asked { Urgency::Now } else { Urgency::Patient };
        self.tasks.insert((Work::Csv(own.clone()), urgency));
        self.add(Work::Copies(own.clone()));
        self.add(Work::Condition(own.clone()));
        if differs(change, labelling) {
            self.add(Work::Owned(own.clone()));
        }
        for subscription in self.cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace) {
            if text(subscription, "/status/installedCSV") == own.name {
                self.later(Work::Subscription(Name::of(subscription)));
            }
        }
        if is_asked || differs(change, phase) {
            self.groups(|group| text(group, "/metadata/namespace") == namespace);
        }
        if !differs(change, state) {
            return;
        }
        // Those before and behind it in the chain, and those that may be in conflict with it.
        let (name, replaces) = (own.name.as_str(), text(csv, "/spec/replaces"));
        self.csvs(Some(namespace), |other| {
            let other_name = text(other, "/metadata/name");
            other_name != name
                && (other_name == replaces
                    || text(other, "/spec/replaces") == name
                    || text(other, "/status/phase") != "Succeeded")
        });
    }

    fn of_group(&mut self, group: &Value) {
        let namespace = text(group, "/metadata/namespace");
        self.groups(|other| text(other, "/metadata/namespace") == namespace);
        self.add(Work::Group(Name::of(group)));
        self.csvs(Some(namespace), |_| true);
        let members: Vec<Name> = self
            .cluster
            .in_namespace(names::CSV_KIND, namespace)
            .map(Name::of)
            .collect();
        self.copies(members);
        self.csvs(None, |csv| {
            matches!(
                text(csv, "/status/reason"),
                "InterOperatorGroupOwnerConflict" | "CannotModifyStaticOperatorGroupProvidedAPIs"
            )
        });
        for selected in items(group, "/status/namespaces").filter_map(Value::as_str) {
            if !selected.is_empty() {
                self.add(Work::Namespace(selected.to_owned()));
            }
        }
    }

    /// The Subscriptions whose InstallPlan it is, or whose label it carries.
    fn of_plan(&mut self, plan: &Value) {
        let (namespace, name) = (text(plan, "/metadata/namespace"), text(plan, "/metadata/name"));
        let operators = named_by(plan);
        let is_meant = |subscription: &&Value| {
            text(subscription, "/status/installPlanRef/name") == name
                || operators.contains(&operator_name(text(subscription, "/spec/name"), namespace))
        };
        let cluster = self.cluster;
        for subscription in cluster
            .in_namespace(names::SUBSCRIPTION_KIND, namespace)
            .filter(is_meant)
        {
            self.later(Work::Subscription(Name::of(subscription)));
        }
    }

    fn of_namespace(&mut self, name: &str) {
        self.add(Work::Namespace(name.to_owned()));
        self.groups(|group| {
            group
                .pointer("/spec/selector")
                .is_some_and(|found| !found.is_null())
        });
        // Members whose copies belong there, or do no longer.
        let selecting: BTreeSet<&str> = self
            .cluster
            .of_kind(names::OPERATOR_GROUP_KIND)
            .filter(|group| {
                items(group, "/status/namespaces")
                    .filter_map(Value::as_str)
                    .any(|selected| selected.is_empty() || selected == name)
            })
            .map(|group| text(group, "/metadata/namespace"))
            .collect();
        let copied: Vec<Name> = selecting
            .into_iter()
            .flat_map(|namespace| self.cluster.in_namespace(names::CSV_KIND, namespace))
            .map(Name::of)
            .collect();
        self.copies(copied);
    }
}

/// The owner that the labels of an object name.
fn labelled_owner(object: &Value) -> Name {
    Name::new(
        label(object, names::OWNER_NAMESPACE_LABEL),
        label(object, names::OWNER_LABEL),
    )
}

/// Parts of an object on which other work depends.
type Parts<'a> = [Option<&'a Value>; 4];

fn parts<'a>(object: &'a Value, pointers: [&str; 4]) -> Parts<'a> {
    pointers.map(|pointer| object.pointer(pointer))
}

/// The parts of a ClusterServiceVersion that people and other programs change: all but its status.
fn asked(csv: &Value) -> Parts<'_> {
    parts(
        csv,
        [
            "/metadata/generation",
            "/metadata/deletionTimestamp",
            "/metadata/annotations",
            "/metadata/labels",
        ],
    )
}

fn phase(csv: &Value) -> &str {
    text(csv, "/status/phase")
}

/// The parts of a ClusterServiceVersion that others in its namespace look at.
fn state(csv: &Value) -> Parts<'_> {
    parts(
        csv,
        [
            "/status/phase",
            "/status/reason",
            "/metadata/generation",
            "/metadata/deletionTimestamp",
        ],
    )
}

/// The parts of a ClusterServiceVersion on which it depends which objects get which labels, and whether they can.
fn labelling(csv: &Value) -> (&str, BTreeSet<String>, Vec<&str>, bool, &str) {
    let owned = items(csv, "/spec/customresourcedefinitions/owned");
    (
        text(csv, "/metadata/uid"),
        named_by(csv),
        owned.map(|api| text(api, "/name")).collect(),
        is_paused(csv),
        // With its phase the account may have changed that writes the labels.
        phase(csv),
    )
}

/// The parts of a Subscription on which the ClusterServiceVersion depends that it has installed.
fn settings(subscription: &Value) -> Parts<'_> {
    parts(
        subscription,
        [
            "/metadata/generation",
            "/metadata/annotations",
            "/metadata/labels",
            "/status/installedCSV",
        ],
    )
}

/// Whether a ClusterServiceVersion brings or needs such an API.
fn has_api(csv: &Value, definitions: &str, is_meant: impl Fn(&Value) -> bool) -> bool {
    ["owned", "required"]
        .iter()
        .any(|key| items(csv, &format!("/spec/{definitions}/{key}")).any(&is_meant))
}

/// Whether the APIService of this name serves an aggregated API.
fn is_served_by(api: &Value, service: &str) -> bool {
    format!("{}.{}", text(api, "/version"), text(api, "/group")) == service
}

/// Whether a ClusterServiceVersion gives rights to this account.
fn names_account(csv: &Value, account: &str) -> bool {
    ["permissions", "clusterPermissions"].iter().any(|key| {
        items(csv, &format!("/spec/install/spec/{key}"))
            .any(|entry| text(entry, "/serviceAccountName") == account)
    })
}

/// Whether a ClusterServiceVersion waits for the rights of the account that installs it.
fn has_gone_without_rights(csv: &Value) -> bool {
    text(csv, "/status/reason") == "InstallComponentFailedNoRetry"
}

#[cfg(test)]
mod tests;
