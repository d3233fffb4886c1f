//! The life of one package in one install mode.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use olm_classic::cluster::{items, text};
use olm_classic::install_plan::{Origin, bundle_steps};
use serde_json::{Value, json};

use super::Counts;
use super::read::{Bundle, Mode, Package, apis, definition};
use crate::objects::api;
use crate::world::{Lab, eventually};

/// Time limit of a step.
const LIMIT: Duration = Duration::from_secs(90);
/// Largest size of an InstallPlan, in bytes: the store takes 1.5 MiB.
const PLAN: usize = 600_000;
const OLM: &str = "operators.coreos.com/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The life of one package in one install mode.
pub(super) struct PackageLifecycle<'a> {
    lab: &'a Lab,
    mode: Mode,
    namespace: String,
    watched: [String; 2],
    plans: usize,
    /// The completed steps.
    pub(super) counts: Counts,
    /// The bundles that were installed.
    pub(super) bundles: BTreeSet<String>,
}

impl<'a> PackageLifecycle<'a> {
    pub(super) fn new(lab: &'a Lab, package: &Package, mode: Mode) -> Self {
        let namespace = format!("{}-{}", package.name, mode.to_string().to_lowercase());
        Self {
            lab,
            mode,
            watched: [format!("{namespace}-a"), format!("{namespace}-b")],
            namespace,
            plans: 0,
            counts: Counts::default(),
            bundles: BTreeSet::new(),
        }
    }

    /// Installs the first version, upgrades to each of the others, and deletes the last. Clears up in any case.
    pub(super) async fn run(&mut self, versions: &[&Bundle]) -> Result<()> {
        let outcome = self.live(versions).await;
        if outcome.is_err() {
            for version in versions {
                let csv = named(OLM, "ClusterServiceVersion", &self.namespace, &version.name);
                let csvs = api(&self.lab.client, &csv);
                // An error of the deletion is no news beside the outcome.
                let _ = csvs.delete(&version.name, &DeleteParams::default()).await;
            }
        }
        let cleared = self.clear(versions).await;
        outcome.and(cleared)
    }

    async fn live(&mut self, versions: &[&Bundle]) -> Result<()> {
        self.prepare(versions)?;
        let mut before: Option<&Bundle> = None;
        for version in versions {
            self.install(version, before)
                .await
                .with_context(|| format!("{} in {}", version.name, self.namespace))?;
            before = Some(version);
        }
        match before {
            Some(last) => self
                .delete(last)
                .await
                .with_context(|| format!("the end of {}", last.name)),
            None => Ok(()),
        }
    }

    fn prepare(&self, versions: &[&Bundle]) -> Result<()> {
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

    fn namespaces(&self) -> Vec<&str> {
        let watched = match self.mode {
            Mode::OwnNamespace | Mode::AllNamespaces => 0,
            Mode::SingleNamespace => 1,
            Mode::MultiNamespace => 2,
        };
        let watched = self.watched.iter().take(watched).map(String::as_str);
        std::iter::once(self.namespace.as_str()).chain(watched).collect()
    }

    async fn install(&mut self, version: &Bundle, before: Option<&Bundle>) -> Result<()> {
        let replaces = before.map(|before| before.name.clone());
        self.plan(version, replaces.unwrap_or_default()).await?;
        if let Some(before) = before {
            self.make_way(version, before).await?;
        }
        let csv = named(OLM, "ClusterServiceVersion", &self.namespace, &version.name);
        let mut last = Value::Null;
        let found = eventually("it is Succeeded", LIMIT, async || {
            last = self.get(&csv).await?.unwrap_or_default();
            let is_done =
                last["status"]["phase"] == "Succeeded" && last["status"]["reason"] == "InstallSucceeded";
            Ok(is_done.then(|| last.clone()))
        })
        .await;
        let found = found.with_context(|| shown(&last))?;
        self.check(&found, version).await?;
        match before {
            None => self.counts.installed += 1,
            Some(before) => {
                self.goes(&named(
                    OLM,
                    "ClusterServiceVersion",
                    &self.namespace,
                    &before.name,
                ))
                .await?;
                self.nothing_of(&before.name).await?;
                self.counts.upgraded += 1;
            }
        }
        self.bundles.insert(version.name.clone());
        Ok(())
    }

    /// No API server lets the selector of a Deployment change: the status says so, and people delete the Deployment.
    async fn make_way(&self, version: &Bundle, before: &Bundle) -> Result<()> {
        let selector = |bundle: &Bundle, name: &str| {
            let mut deployments = items(&bundle.csv, "/spec/install/spec/deployments");
            let found = deployments.find(|found| text(found, "/name") == name);
            found.and_then(|found| found.pointer("/spec/selector").cloned())
        };
        for deployment in items(&version.csv, "/spec/install/spec/deployments") {
            let name = text(deployment, "/name");
            if selector(before, name).is_none_or(|old| Some(old) == selector(version, name)) {
                continue;
            }
            let csv = named(OLM, "ClusterServiceVersion", &self.namespace, &version.name);
            let refusal = format!("cannot update Deployment {name}: its selector cannot change");
            eventually(
                "the status says that the selector cannot change",
                LIMIT,
                async || {
                    let found = self.get(&csv).await?.unwrap_or_default();
                    Ok(text(&found, "/status/message").contains(&refusal).then_some(()))
                },
            )
            .await?;
            let object = named("apps/v1", "Deployment", &self.namespace, name);
            api(&self.lab.client, &object)
                .delete(name, &DeleteParams::default())
                .await?;
        }
        Ok(())
    }

    /// Writes InstallPlans with the steps of the bundle, definitions first, and waits until they are carried out.
    async fn plan(&mut self, version: &Bundle, replaces: String) -> Result<()> {
        let origin = Origin {
            namespace: self.namespace.clone(),
            replaces,
            catalog: "real".to_owned(),
            catalog_namespace: self.namespace.clone(),
        };
        let mut steps: Vec<Value> = bundle_steps(&version.content, &origin)?
            .iter()
            .map(olm_classic::install_plan::Step::to_value)
            .collect();
        steps.sort_by_key(|step| text(step, "/resource/kind") != "CustomResourceDefinition");
        let mut parts: Vec<(usize, Vec<Value>)> = Vec::new();
        for step in steps {
            let size = step.to_string().len();
            match parts.last_mut() {
                Some((sum, part)) if *sum + size <= PLAN => {
                    *sum += size;
                    part.push(step);
                }
                _ => parts.push((size, vec![step])),
            }
        }
        for (_, steps) in parts {
            self.carry_out(version, &steps).await?;
        }
        Ok(())
    }

    async fn carry_out(&mut self, version: &Bundle, steps: &[Value]) -> Result<()> {
        self.plans += 1;
        let name = format!("install-{}", self.plans);
        let mut plan = named(OLM, "InstallPlan", &self.namespace, &name);
        plan["spec"] = json!({
            "approval": "Automatic", "approved": true, "clusterServiceVersionNames": [version.name],
        });
        let plans = api(&self.lab.client, &plan);
        plans
            .create(&PostParams::default(), &serde_json::from_value(plan)?)
            .await?;
        let status = json!({"status": {"phase": "Installing", "catalogSources": [], "plan": steps}});
        plans
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        let mut last = Value::Null;
        let done = eventually("the InstallPlan is complete", LIMIT, async || {
            last = serde_json::to_value(plans.get(&name).await?)?;
            match text(&last, "/status/phase") {
                "Complete" => Ok(Some(Ok(()))),
                "Failed" => Ok(Some(Err(anyhow::anyhow!(
                    "{}",
                    text(&last, "/status/message").to_owned()
                )))),
                _ => Ok(None),
            }
        })
        .await;
        done.with_context(|| text(&last, "/status/message").to_owned())?
    }

    /// The ClusterServiceVersion says that all requirements are met, and its Deployments are as OLM writes them.
    async fn check(&self, csv: &Value, version: &Bundle) -> Result<()> {
        for row in items(csv, "/status/requirementStatus") {
            ensure!(
                ["Present", "DeploymentFound"].contains(&text(row, "/status")),
                "a requirement is not met: {row}"
            );
        }
        let mut targets: Vec<&str> = match self.mode {
            Mode::OwnNamespace => vec![&self.namespace],
            Mode::SingleNamespace => vec![&self.watched[0]],
            Mode::MultiNamespace => self.watched.iter().map(String::as_str).collect(),
            Mode::AllNamespaces => vec![""],
        };
        targets.sort_unstable();
        for deployment in items(&version.csv, "/spec/install/spec/deployments") {
            let name = text(deployment, "/name");
            let found = self
                .get(&named("apps/v1", "Deployment", &self.namespace, name))
                .await?;
            let found = found.with_context(|| format!("there is no Deployment {name}"))?;
            let owner = &found["metadata"]["ownerReferences"];
            ensure!(
                owner[0]["uid"] == csv["metadata"]["uid"] && owner[1].is_null(),
                "owners {owner}"
            );
            ensure!(
                found["metadata"]["labels"]["olm.owner"] == version.name.as_str(),
                "another owner label"
            );
            let annotations = &found["spec"]["template"]["metadata"]["annotations"];
            ensure!(
                annotations["olm.targetNamespaces"] == targets.join(","),
                "it watches {}",
                annotations["olm.targetNamespaces"]
            );
        }
        let expected = match self.mode {
            Mode::OwnNamespace | Mode::AllNamespaces => &[],
            Mode::SingleNamespace => &self.watched[..1],
            Mode::MultiNamespace => &self.watched[..],
        };
        for namespace in expected {
            let copy = named(OLM, "ClusterServiceVersion", namespace, &version.name);
            eventually("the copy says Succeeded", LIMIT, async || {
                let found = self.get(&copy).await?.unwrap_or_default();
                Ok((found["status"]["phase"] == "Succeeded").then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn delete(&mut self, last: &Bundle) -> Result<()> {
        let csv = named(OLM, "ClusterServiceVersion", &self.namespace, &last.name);
        api(&self.lab.client, &csv)
            .delete(&last.name, &DeleteParams::default())
            .await?;
        self.goes(&csv).await?;
        self.nothing_of(&last.name).await?;
        for namespace in &self.namespaces() {
            self.is_empty(namespace).await?;
        }
        self.counts.deleted += 1;
        Ok(())
    }

    /// Waits until no object names the ClusterServiceVersion as its owner in its labels.
    async fn nothing_of(&self, name: &str) -> Result<()> {
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

    /// Waits until a namespace holds nothing that an operator has brought.
    async fn is_empty(&self, namespace: &str) -> Result<()> {
        const COPY: &str = "clusterserviceversion.operators.coreos.com/";
        const KINDS: &str = "deployments,services,secrets,configmaps,serviceaccounts,roles,rolebindings,csv,\
                             operatorconditions,servicemonitors,prometheusrules,poddisruptionbudgets,networkpolicies";
        const OF_NAMESPACE: &[&str] = &["configmap/kube-root-ca.crt", "serviceaccount/default"];
        let arguments = ["get", KINDS, "-n", namespace, "-o", "name", "--ignore-not-found"];
        let names: Vec<&str> = self.bundles.iter().map(String::as_str).collect();
        eventually("the namespace is empty", LIMIT, async || {
            let listed = self.lab.kubectl(&arguments)?;
            let is_ours = |line: &&str| match line.strip_prefix(COPY) {
                // Others are for all namespaces.
                Some(version) => names.contains(&version),
                None => !OF_NAMESPACE.contains(line),
            };
            let left: Vec<&str> = listed.lines().filter(is_ours).collect();
            if left.is_empty() {
                return Ok(Some(()));
            }
            bail!("{left:?} is left in {namespace}")
        })
        .await
    }

    /// Deletes definitions and namespaces, which stay by design, and waits until all is gone.
    async fn clear(&self, versions: &[&Bundle]) -> Result<()> {
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

    async fn get(&self, object: &Value) -> Result<Option<Value>> {
        let found = api(&self.lab.client, object)
            .get_opt(text(object, "/metadata/name"))
            .await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    async fn goes(&self, object: &Value) -> Result<()> {
        let what = format!(
            "{} {} is gone",
            text(object, "/kind"),
            text(object, "/metadata/name")
        );
        let mut last = Value::Null;
        let gone = eventually(&what, LIMIT, async || {
            let found = self.get(object).await?;
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
fn shown(object: &Value) -> String {
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

fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}
