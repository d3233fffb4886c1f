//! The namespaces of an operator in one install mode, with what others bring to the cluster before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, ListParams};
use olm_classic::cluster::{items, text};
use serde_json::{Value, json};

use super::read::{Bundle, Mode, apis, definition};
use crate::objects::{self, api};
use crate::world::{Lab, eventually};

/// Time limit of a step, on a busy machine.
pub(in crate::realdata) const LIMIT: Duration = Duration::from_mins(3);
/// API version of OLM classic.
pub(in crate::realdata) const OLM: &str = "operators.coreos.com/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The namespaces of one package in one install mode.
pub(in crate::realdata) struct Place<'a> {
    lab: &'a Lab,
    pub(in crate::realdata) mode: Mode,
    /// The namespace of the operator.
    pub(in crate::realdata) namespace: String,
    /// Other namespaces that it can watch.
    pub(in crate::realdata) watched: [String; 2],
}

impl<'a> Place<'a> {
    pub(in crate::realdata) fn new(lab: &'a Lab, package: &str, mode: Mode) -> Self {
        let namespace = format!("{package}-{}", mode.to_string().to_lowercase());
        Self {
            lab,
            mode,
            watched: [format!("{namespace}-a"), format!("{namespace}-b")],
            namespace,
        }
    }

    /// Makes the namespaces, the OperatorGroup, and what these bundles need of others.
    pub(in crate::realdata) fn prepare(&self, versions: &[&Bundle]) -> Result<()> {
        let namespaces = self.namespaces();
        let mut objects: Vec<Value> = namespaces
            .iter()
            .map(|name| named("v1", "Namespace", "", name))
            .collect();
        let mut group = named(
            "operators.coreos.com/v1",
            "OperatorGroup",
            &self.namespace,
            "group",
        );
        group["spec"] = match self.mode {
            Mode::OwnNamespace => json!({"targetNamespaces": [self.namespace]}),
            Mode::SingleNamespace => json!({"targetNamespaces": self.watched[..1]}),
            Mode::MultiNamespace => json!({"targetNamespaces": self.watched}),
            Mode::AllNamespaces => json!({}),
        };
        objects.push(group);
        // As the operators that it depends on bring them.
        let required: BTreeMap<&str, &Value> = versions
            .iter()
            .flat_map(|version| items(&version.csv, "/spec/customresourcedefinitions/required"))
            .map(|api| (text(api, "/name"), api))
            .collect();
        for (name, api) in required {
            let (plural, group) = name.split_once('.').unwrap_or((name, ""));
            objects.push(definition(
                group,
                plural,
                text(api, "/kind"),
                text(api, "/version"),
                "Namespaced",
            ));
        }
        objects.extend(priorities(versions));
        objects.extend(natives(versions));
        self.lab.apply(&objects)
    }

    /// The namespace of the operator, then those that it watches.
    pub(in crate::realdata) fn namespaces(&self) -> Vec<&str> {
        let watched = match self.mode {
            Mode::OwnNamespace | Mode::AllNamespaces => 0,
            Mode::SingleNamespace => 1,
            Mode::MultiNamespace => 2,
        };
        let watched = self.watched.iter().take(watched).map(String::as_str);
        std::iter::once(self.namespace.as_str()).chain(watched).collect()
    }

    /// Waits until no object names the ClusterServiceVersion as its owner in its labels.
    pub(in crate::realdata) async fn nothing_of(&self, name: &str) -> Result<()> {
        const KINDS: &[(&str, &str)] = &[
            ("apps/v1", "Deployment"),
            (RBAC, "Role"),
            (RBAC, "RoleBinding"),
            (RBAC, "ClusterRole"),
            (RBAC, "ClusterRoleBinding"),
            ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
            (
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
            ),
            ("console.openshift.io/v1", "ConsolePlugin"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
        ];
        let mut selector = format!("olm.owner.namespace={}", self.namespace);
        // Longer names are no label.
        if name.len() <= 63 {
            selector.push_str(&format!(",olm.owner={name}"));
        }
        let list = ListParams::default().labels(&selector);
        eventually("nothing of it is left", LIMIT, async || {
            let mut left = Vec::new();
            for (version, kind) in KINDS {
                let found = api(&self.lab.client, &named(version, kind, "", ""))
                    .list(&list)
                    .await?;
                left.extend(
                    found
                        .items
                        .into_iter()
                        .map(|found| format!("{kind} {}", found.metadata.name.unwrap_or_default())),
                );
            }
            if left.is_empty() {
                return Ok(Some(()));
            }
            bail!("{left:?} is left")
        })
        .await
    }

    /// Deletes definitions and namespaces, which stay by design, and waits until all is gone.
    pub(in crate::realdata) async fn clear(&self, versions: &[&Bundle]) -> Result<()> {
        let named_definition =
            |name: &str| named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name);
        let apis = versions.iter().flat_map(|version| apis(&version.csv));
        let apis = apis.map(|api| named_definition(text(api, "/name")));
        let namespaces = self
            .namespaces()
            .into_iter()
            .map(|name| named("v1", "Namespace", "", name));
        let brought = versions
            .iter()
            .flat_map(|version| &version.content.objects)
            .filter_map(|object| {
                let object: Value = serde_json::from_str(object).ok()?;
                let is_definition = text(&object, "/kind") == "CustomResourceDefinition";
                is_definition.then(|| named_definition(text(&object, "/metadata/name")))
            });
        let others = priorities(versions).into_iter().chain(natives(versions));
        let objects: Vec<Value> = apis.chain(brought).chain(namespaces).chain(others).collect();
        for object in &objects {
            let name = text(object, "/metadata/name");
            match api(&self.lab.client, object)
                .delete(name, &DeleteParams::default())
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => drop(done?),
            }
        }
        for object in &objects {
            self.goes(object).await?;
        }
        Ok(())
    }

    /// Waits until an object is gone.
    pub(in crate::realdata) async fn goes(&self, object: &Value) -> Result<()> {
        let what = format!(
            "{} {} is gone",
            text(object, "/kind"),
            text(object, "/metadata/name")
        );
        let mut last = Value::Null;
        let gone = eventually(&what, LIMIT, async || {
            let found = objects::find(&self.lab.client, object).await?;
            let is_gone = found.is_none();
            last = found.unwrap_or_default();
            Ok(is_gone.then_some(()))
        })
        .await;
        gone.with_context(|| shown(&last))
    }
}

/// The kinds of other platforms that the bundles need.
fn natives(versions: &[&Bundle]) -> Vec<Value> {
    let apis = versions
        .iter()
        .flat_map(|version| items(&version.csv, "/spec/nativeAPIs"));
    let foreign = apis.filter(|api| {
        let group = text(api, "/group");
        group.contains('.') && !group.ends_with(".k8s.io")
    });
    let known: BTreeMap<String, Value> = foreign
        .map(|api| {
            let (group, kind) = (text(api, "/group"), text(api, "/kind"));
            let plural = format!("{}s", kind.to_lowercase());
            let definition = definition(group, &plural, kind, text(api, "/version"), "Namespaced");
            (format!("{plural}.{group}"), definition)
        })
        .collect();
    known.into_values().collect()
}

/// The priorities of Pods that no bundle of the package brings.
fn priorities(versions: &[&Bundle]) -> Vec<Value> {
    const CLASS: &str = "PriorityClass";
    let deployments = versions
        .iter()
        .flat_map(|version| items(&version.csv, "/spec/install/spec/deployments"));
    let named_by = deployments.map(|deployment| text(deployment, "/spec/template/spec/priorityClassName"));
    let brought = versions.iter().flat_map(|version| &version.content.objects);
    let brought: BTreeSet<String> = brought
        .filter_map(|object| serde_json::from_str::<Value>(object).ok())
        .filter(|object| text(object, "/kind") == CLASS)
        .map(|object| text(&object, "/metadata/name").to_owned())
        .collect();
    let missing: BTreeSet<&str> = named_by
        .filter(|name| !name.is_empty() && !name.starts_with("system-") && !brought.contains(*name))
        .collect();
    missing
        .into_iter()
        .map(|name| {
            let mut class = named("scheduling.k8s.io/v1", CLASS, "", name);
            class["value"] = json!(1000);
            class
        })
        .collect()
}

/// State of an object for messages.
pub(in crate::realdata) fn shown(object: &Value) -> String {
    let unmet: Vec<&Value> = items(object, "/status/requirementStatus")
        .filter(|row| !["Present", "DeploymentFound"].contains(&text(row, "/status")))
        .collect();
    let conditions: Vec<String> = items(object, "/status/conditions")
        .map(|one| {
            format!(
                "{}/{} {}",
                text(one, "/phase"),
                text(one, "/reason"),
                text(one, "/message")
            )
        })
        .collect();
    format!(
        "{}/{} {:?}\nunmet {unmet:?}\nhistory {conditions:#?}",
        text(object, "/status/phase"),
        text(object, "/status/reason"),
        text(object, "/status/message")
    )
}

/// An object with its names only.
pub(in crate::realdata) fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}
