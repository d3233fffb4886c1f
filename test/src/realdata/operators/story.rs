//! The life of one package in one install mode.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_classic::cluster::{items, text};
use olm_classic::install_plan::{Origin, bundle_steps};
use serde_json::{Value, json};

use super::Counts;
use super::place::{LIMIT, OLM, Place, named, shown};
use super::read::{Bundle, Mode, Package};
use crate::objects::{self, api};
use crate::world::{Lab, eventually};

/// Largest size of an InstallPlan, in bytes: the store takes 1.5 MiB.
const PLAN: usize = 600_000;

/// The life of one package in one install mode.
pub(super) struct PackageLifecycle<'a> {
    lab: &'a Lab,
    place: Place<'a>,
    plans: usize,
    /// The completed steps.
    pub(super) counts: Counts,
    /// The bundles that were installed.
    pub(super) bundles: BTreeSet<String>,
}

impl<'a> PackageLifecycle<'a> {
    pub(super) fn new(lab: &'a Lab, package: &Package, mode: Mode) -> Self {
        Self {
            lab,
            place: Place::new(lab, &package.name, mode),
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
                let csv = named(OLM, "ClusterServiceVersion", &self.place.namespace, &version.name);
                let csvs = api(&self.lab.client, &csv);
                // An error of the deletion is no news beside the outcome.
                let _ = csvs.delete(&version.name, &DeleteParams::default()).await;
            }
        }
        let cleared = self.place.clear(versions).await;
        outcome.and(cleared)
    }

    async fn live(&mut self, versions: &[&Bundle]) -> Result<()> {
        self.place.prepare(versions)?;
        let mut before: Option<&Bundle> = None;
        for version in versions {
            self.install(version, before)
                .await
                .with_context(|| format!("{} in {}", version.name, self.place.namespace))?;
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

    async fn install(&mut self, version: &Bundle, before: Option<&Bundle>) -> Result<()> {
        let replaces = before.map(|before| before.name.clone());
        self.plan(version, replaces.unwrap_or_default()).await?;
        if let Some(before) = before {
            self.make_way(version, before).await?;
        }
        let csv = named(OLM, "ClusterServiceVersion", &self.place.namespace, &version.name);
        let mut last = Value::Null;
        let found = eventually("it is Succeeded", LIMIT, async || {
            last = objects::find(&self.lab.client, &csv).await?.unwrap_or_default();
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
                self.place
                    .goes(&named(
                        OLM,
                        "ClusterServiceVersion",
                        &self.place.namespace,
                        &before.name,
                    ))
                    .await?;
                self.place.nothing_of(&before.name).await?;
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
            let csv = named(OLM, "ClusterServiceVersion", &self.place.namespace, &version.name);
            let refusal = format!("cannot update Deployment {name}: its selector cannot change");
            eventually(
                "the status says that the selector cannot change",
                LIMIT,
                async || {
                    let found = objects::find(&self.lab.client, &csv).await?.unwrap_or_default();
                    Ok(text(&found, "/status/message").contains(&refusal).then_some(()))
                },
            )
            .await?;
            let object = named("apps/v1", "Deployment", &self.place.namespace, name);
            api(&self.lab.client, &object)
                .delete(name, &DeleteParams::default())
                .await?;
        }
        Ok(())
    }

    /// Writes InstallPlans with the steps of the bundle, definitions first, and waits until they are carried out.
    async fn plan(&mut self, version: &Bundle, replaces: String) -> Result<()> {
        let origin = Origin {
            namespace: self.place.namespace.clone(),
            replaces,
            catalog: "real".to_owned(),
            catalog_namespace: self.place.namespace.clone(),
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
        let mut plan = named(OLM, "InstallPlan", &self.place.namespace, &name);
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
        let mut targets: Vec<&str> = match self.place.mode {
            Mode::OwnNamespace => vec![&self.place.namespace],
            Mode::SingleNamespace => vec![&self.place.watched[0]],
            Mode::MultiNamespace => self.place.watched.iter().map(String::as_str).collect(),
            Mode::AllNamespaces => vec![""],
        };
        targets.sort_unstable();
        for deployment in items(&version.csv, "/spec/install/spec/deployments") {
            let name = text(deployment, "/name");
            let object = named("apps/v1", "Deployment", &self.place.namespace, name);
            let found = objects::find(&self.lab.client, &object).await?;
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
        let expected = match self.place.mode {
            Mode::OwnNamespace | Mode::AllNamespaces => &[],
            Mode::SingleNamespace => &self.place.watched[..1],
            Mode::MultiNamespace => &self.place.watched[..],
        };
        for namespace in expected {
            let copy = named(OLM, "ClusterServiceVersion", namespace, &version.name);
            eventually("the copy says Succeeded", LIMIT, async || {
                let found = objects::find(&self.lab.client, &copy).await?.unwrap_or_default();
                Ok((found["status"]["phase"] == "Succeeded").then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn delete(&mut self, last: &Bundle) -> Result<()> {
        let csv = named(OLM, "ClusterServiceVersion", &self.place.namespace, &last.name);
        api(&self.lab.client, &csv)
            .delete(&last.name, &DeleteParams::default())
            .await?;
        self.place.goes(&csv).await?;
        self.place.nothing_of(&last.name).await?;
        for namespace in &self.place.namespaces() {
            self.is_empty(namespace).await?;
        }
        self.counts.deleted += 1;
        Ok(())
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
}
