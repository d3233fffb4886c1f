//! The sample extension is lost with all its objects and restored from a backup. Then it is created again, as GitOps
//! tools do. The workload keeps running.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use olm_api::conditions;
use olm_api::names::{self, label};
use serde_json::{Map, Value, json};

use super::{SOON, Story};
use crate::world::eventually;

/// The garbage collector looks for new kinds every 30 s and waits as long for their lists, before it orphans anything.
const PATIENCE: &str = "--timeout=180s";
const MANAGER: &str = "operator-controller-controller-manager";
/// The kinds in the backup, in the order in which Velero restores them: first those that others need, then the others
/// by name. The second value is the namespace. Of cluster-scoped kinds, only objects with the name of the sample are
/// included.
const KINDS: &[(&str, Option<&str>)] = &[
    ("customresourcedefinitions.apiextensions.k8s.io", None),
    ("namespaces", None),
    ("serviceaccounts", Some("greeter")),
    ("secrets", Some(names::SYSTEM_NAMESPACE)),
    ("secrets", Some("greeter")),
    ("configmaps", Some("greeter")),
    ("pods", Some("greeter")),
    ("replicasets.apps", Some("greeter")),
    ("services", Some("greeter")),
    ("clusterextensions.olm.operatorframework.io", None),
    ("clusterobjectsets.olm.operatorframework.io", None),
    ("clusterrolebindings.rbac.authorization.k8s.io", None),
    ("clusterroles.rbac.authorization.k8s.io", None),
    ("deployments.apps", Some("greeter")),
    ("greetings.samples.olm.example", Some("greeter")),
    ("operatorconditions.operators.coreos.com", Some("greeter")),
    ("rolebindings.rbac.authorization.k8s.io", Some("greeter")),
    ("roles.rbac.authorization.k8s.io", Some("greeter")),
];
/// The metadata fields that Velero removes from every object, and kubectl from its output.
const RESET: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// How long the restored objects stay the same before they count as settled.
const QUIET: Duration = Duration::from_secs(3);
/// The objects that Kubernetes creates in every namespace.
const BROUGHT: &[&str] = &["default", "kube-root-ca.crt"];

impl Story {
    /// All objects of the sample are lost and restored in Velero's order while operator-controller is scaled to zero.
    pub(super) async fn restore(&mut self) -> Result<()> {
        let backup = self.back_up()?;
        self.scale(0).await?;
        self.lose(&backup)?;
        for objects in &backup {
            self.bring_back(objects)?;
        }
        self.available("greeter", "greeter-operator").await?;
        let before = self.settled().await?;
        self.scale(1).await?;
        self.available(names::SYSTEM_NAMESPACE, MANAGER).await?;
        self.taken_over(&before).await?;
        self.greets("Margaret", None, "Hello, Margaret!", "1.1.0").await?;

        // Made again from the user's repository.
        let wanted = backup
            .iter()
            .flatten()
            .find(|object| object["kind"] == "ClusterExtension");
        let mut wanted = wanted.context("there is no extension in the backup")?.clone();
        if let Some(metadata) = wanted["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
        self.lab.kubectl(&[
            "delete",
            "clusterextension",
            "greeter",
            "--cascade=orphan",
            PATIENCE,
        ])?;
        let orphaned = self.running().await?;
        ensure!(orphaned == before, "of\n{before}the orphaned is\n{orphaned}");
        self.lab.apply(&[wanted])?;
        self.taken_over(&before).await
    }

    /// The content of a backup, kind by kind. Like Velero, it leaves out objects that are being deleted.
    fn back_up(&self) -> Result<Vec<Vec<Value>>> {
        let mut backup = Vec::new();
        for (kind, namespace) in KINDS {
            let mut arguments = vec!["get", *kind, "-o", "json"];
            if let Some(namespace) = namespace {
                arguments.extend(["-n", *namespace]);
            }
            let found: Value = serde_json::from_str(&self.lab.kubectl(&arguments)?)?;
            let mut objects = found["items"].as_array().cloned().unwrap_or_default();
            objects.retain(|object| {
                object["metadata"]["deletionTimestamp"].is_null() && is_of_the_sample(object, *namespace)
            });
            objects.iter_mut().for_each(reset);
            backup.push(objects);
        }
        ensure!(
            backup.iter().flatten().count() > 15,
            "the backup holds {backup:?}"
        );
        Ok(backup)
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        let system = names::SYSTEM_NAMESPACE;
        let replicas_wanted = format!("--replicas={replicas}");
        self.lab
            .kubectl(&["scale", "deployment", MANAGER, "-n", system, &replicas_wanted])?;
        let selector = format!("control-plane={MANAGER}");
        eventually("the managers are as many", SOON, async || {
            let pods = self
                .lab
                .kubectl(&["get", "pods", "-n", system, "-l", &selector, "-o", "name"])?;
            Ok((pods.lines().count() == replicas).then_some(()))
        })
        .await
    }

    /// Removes all objects that a lost cluster does not have.
    fn lose(&self, backup: &[Vec<Value>]) -> Result<()> {
        let none = r#"{"metadata":{"finalizers":null}}"#;
        let gone = [
            "clusterextension",
            "clusterobjectset",
            "secret",
            "customresourcedefinition",
            "clusterrolebinding",
            "clusterrole",
            "namespace",
        ];
        for kind in gone {
            let of_kind = backup.iter().flatten().filter(|object| {
                let is_inside = object["metadata"]["namespace"] == "greeter";
                !is_inside
                    && object["kind"]
                        .as_str()
                        .is_some_and(|found| found.eq_ignore_ascii_case(kind))
            });
            let found: Vec<&str> = of_kind
                .filter_map(|object| object["metadata"]["name"].as_str())
                .collect();
            ensure!(!found.is_empty(), "there is no {kind} to lose");
            if matches!(kind, "clusterextension" | "clusterobjectset") {
                for name in &found {
                    self.lab
                        .kubectl(&["patch", kind, name, "--type=merge", "-p", none])?;
                }
            }
            let system = ["delete", kind, "-n", names::SYSTEM_NAMESPACE, "--cascade=orphan"];
            let plain = ["delete", kind, PATIENCE];
            let delete: &[&str] =
                if kind == "secret" || kind.starts_with("clusterobject") || kind.starts_with("clusterext") {
                    &system
                } else {
                    &plain
                };
            self.lab.kubectl(&[delete, &found].concat())?;
        }
        Ok(())
    }

    /// Creates objects as they are in the backup.
    fn bring_back(&self, objects: &[Value]) -> Result<()> {
        let Some(first) = objects.first() else {
            return Ok(());
        };
        let file = self.lab.folder().join("backup.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        std::fs::write(&file, list.to_string())?;
        self.lab.kubectl(&["create", "-f", &file.display().to_string()])?;
        if first["kind"] == "CustomResourceDefinition" {
            let name = first["metadata"]["name"].as_str().unwrap_or_default();
            self.lab.kubectl(&[
                "wait",
                "--for=condition=Established",
                "--timeout=30s",
                &format!("crd/{name}"),
            ])?;
        }
        Ok(())
    }

    /// [`Story::running`] when nothing of it changes any more: a ReplicaSet that does not yet see the restored Pod
    /// creates another one and deletes one of the two.
    async fn settled(&self) -> Result<String> {
        let mut last = String::new();
        eventually("the restored objects no longer change", SOON, async || {
            let now = self.running().await?;
            if now == last {
                return Ok(Some(now));
            }
            let changed = format!("of\n{last}there is\n{now}");
            last = now;
            tokio::time::sleep(QUIET).await;
            bail!("{changed}")
        })
        .await
    }

    /// Every object of the sample that runs or lets it run: kind, name, UID, generation, restarts. A Pod that is being
    /// deleted has its time of deletion, too.
    async fn running(&self) -> Result<String> {
        let kinds = "pods,replicasets,deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,customresourcedefinitions,operatorconditions.operators.coreos.com,greetings.samples.olm.example";
        let line = "{.kind} {.metadata.name} {.metadata.uid} {.metadata.generation} {.status.containerStatuses[*].restartCount} {.metadata.deletionTimestamp}";
        let lines = format!("jsonpath={{range .items[*]}}{line}{{\"\\n\"}}{{end}}");
        // A kind that was brought back is served a little before discovery lists it.
        let all = eventually("the kinds of the sample are listed", SOON, async || {
            self.lab.kubectl(&["get", kinds, "-A", "-o", &lines]).map(Some)
        })
        .await?;
        let of_sample = all
            .lines()
            .filter(|line| line.split(' ').nth(1).is_some_and(named));
        // The operator continues to write its own condition.
        let kept = |line: &str| match line.strip_prefix("OperatorCondition ") {
            Some(_) => line.split(' ').take(3).collect::<Vec<_>>().join(" "),
            None => line.to_owned(),
        };
        Ok(of_sample.fold(String::new(), |text, line| text + &kept(line) + "\n"))
    }

    /// Waits until the extension is installed and ready again, and checks that the workload was not replaced.
    async fn taken_over(&self, before: &str) -> Result<()> {
        self.at_version("1.1.0").await?;
        eventually("the extension is ready", SOON, async || {
            let extension = self.extensions().get("greeter").await?;
            if conditions::is_true(extension.conditions(), conditions::READY) {
                return Ok(Some(()));
            }
            bail!("status is {}", serde_json::to_string(&extension.status)?)
        })
        .await?;
        let after = self.running().await?;
        ensure!(after == before, "of\n{before}there is\n{after}");
        let (owner, left) = self.owners_of_revisions()?;
        let extension = self.extensions().get("greeter").await?;
        ensure!(
            owner == extension.metadata.uid,
            "the owner is {owner:?}, not {extension:?}"
        );
        // Archived revisions have no objects and no owner.
        for name in left {
            self.lab
                .kubectl(&["delete", "clusterobjectset", &name, PATIENCE])?;
        }
        Ok(())
    }
}

impl Story {
    /// The UID of the owner of the active revision, and the archived revisions without an owner.
    fn owners_of_revisions(&self) -> Result<(Option<String>, Vec<String>)> {
        let owned = format!("{}=greeter", label::OWNER_NAME);
        let sets = self
            .lab
            .kubectl(&["get", "clusterobjectsets", "-l", &owned, "-o", "json"])?;
        let sets: Value = serde_json::from_str(&sets)?;
        let (mut owner, mut left) = (None, Vec::new());
        for set in sets["items"].as_array().into_iter().flatten() {
            let uid = set["metadata"]["ownerReferences"][0]["uid"].as_str();
            if set["spec"]["lifecycleState"] == "Active" {
                ensure!(owner.is_none(), "two revisions are active: {sets}");
                owner = uid.map(str::to_owned);
            } else if uid.is_none() {
                left.extend(set["metadata"]["name"].as_str().map(str::to_owned));
            }
        }
        Ok((owner, left))
    }
}

/// Whether an object has the name of the sample, or belongs to it.
fn named(name: &str) -> bool {
    name.starts_with("greet")
}

fn is_of_the_sample(object: &Value, namespace: Option<&str>) -> bool {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    match namespace {
        Some("greeter") => !BROUGHT.contains(&name),
        Some(_) => metadata["labels"][label::OWNER_NAME] == "greeter",
        None => named(name),
    }
}

/// Converts an object to its form after a restore by Velero: without status, owners and fields of the API server, with
/// Velero's labels.
fn reset(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !RESET.contains(&key.as_str()));
        let labels = metadata.entry("labels").or_insert_with(|| Map::new().into());
        labels["velero.io/backup-name"] = json!("nightly");
        labels["velero.io/restore-name"] = json!("nightly-1");
    }
    let taken: &[&str] = match object["kind"].as_str() {
        Some("Pod") => &["nodeName", "priority"],
        Some("Service") => &["clusterIP", "clusterIPs"],
        _ => &[],
    };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !taken.contains(&key.as_str()));
    }
}
