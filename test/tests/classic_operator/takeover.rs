//! The objects of a cluster that the Go implementation runs are taken over as they are.
//!
//! `reference/operator.yaml` has them, with names, labels, owners and hashes as that implementation writes them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Zoned;
use kube::api::{ListParams, PostParams};
use olm_classic::hash;
use olm_classic::install::rbac::rbac;
use olm_classic::install::{spec_hash, webhook_hash};
use olm_platform::tls::issue::{Issued, Lifetimes, Renew, issue};
use olm_test::cluster::webhook::AllowingWebhook;
use olm_test::objects::api;
use olm_test::world::{eventually, free_address};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::rest::{end, quiet, requests};
use crate::stage::{CLUSTER, Stage, named};

/// The objects in the namespace `%PLACE%`.
const OBJECTS: &str = include_str!("reference/operator.yaml");
const VERSION: &str = "backups.v1";

/// One operator of the Go implementation.
struct Operator<'a> {
    stage: &'a Stage,
    mode: &'static str,
    place: String,
    words: BTreeMap<&'static str, String>,
    /// The created objects, as they are in the cluster then.
    made: Vec<Value>,
}

impl<'a> Operator<'a> {
    fn new(stage: &'a Stage, mode: &'static str, port: u16, issued: &Issued) -> Result<Self> {
        let place = format!("kept-{mode}");
        let authority = issued.trusted();
        let targets: Vec<String> = match mode {
            "own" => vec![place.clone()],
            "single" => vec![format!("{place}-a")],
            "multi" => vec![format!("{place}-a"), format!("{place}-b")],
            _ => vec![String::new()],
        };
        let rules = json!([{
            "apiGroups": [format!("{place}.example")], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["backups"],
        }]);
        let deployment = format!("{place}-operator");
        let admission = json!({
            "type": "ValidatingAdmissionWebhook", "generateName": format!("v.{place}.example"),
            "deploymentName": deployment, "containerPort": 443, "targetPort": 443, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "webhookPath": "/validate", "rules": rules,
        });
        let conversion = json!({
            "type": "ConversionWebhook", "generateName": format!("c.{place}.example"), "deploymentName": deployment,
            "containerPort": 443, "targetPort": 443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "webhookPath": "/convert", "conversionCRDs": [format!("backups.{place}.example")],
        });
        let webhooks = match mode {
            "own" | "single" => vec![admission.clone()],
            "all" => vec![conversion],
            _ => Vec::new(),
        };
        let served = json!({"owned": [{
            "name": "pans", "group": format!("served.{place}.example"), "version": "v1", "kind": "Pan",
            "deploymentName": deployment, "containerPort": port,
        }]});
        let modes = [
            "OwnNamespace",
            "SingleNamespace",
            "MultiNamespace",
            "AllNamespaces",
        ];
        let is_supported = |kind: &str| (mode == "all") == (kind == "AllNamespaces");
        let modes = modes.map(|kind| json!({"type": kind, "supported": is_supported(kind)}));
        let coded = |text: &str| STANDARD.encode(text);
        let words = [
            ("ALONGSIDE", hash::fnv(&format!("{place}/{VERSION}"))),
            (
                "APISERVICES",
                if mode == "multi" { served } else { json!({}) }.to_string(),
            ),
            ("AUTHORITYHASH", hex::encode(Sha256::digest(&authority))),
            ("AUTHORITY", coded(&authority)),
            ("CERTIFICATE", coded(issued.certificate())),
            ("PRIVATEKEY", coded(issued.key())),
            ("DUE", format!("{}T00:00:00Z", issued.expires().yesterday()?)),
            ("HOOKHASH", webhook_hash(&admission)),
            ("INSTALLMODES", json!(modes).to_string()),
            ("JOINED", json!(targets.join(",")).to_string()),
            ("PLACE", place.clone()),
            ("PORT", port.to_string()),
            ("SELECTED", json!(targets).to_string()),
            (
                "TARGETS",
                if mode == "all" {
                    "null".to_owned()
                } else {
                    json!(targets).to_string()
                },
            ),
            ("WEBHOOKS", json!(webhooks).to_string()),
        ];
        Ok(Self {
            stage,
            mode,
            place,
            words: words.into(),
            made: Vec::new(),
        })
    }

    fn targets(&self) -> Vec<String> {
        let selected: Vec<String> = serde_json::from_str(&self.words["SELECTED"]).unwrap_or_default();
        selected
            .into_iter()
            .filter(|name| !name.is_empty() && *name != self.place)
            .collect()
    }

    /// Makes everything, as the Go implementation has left it.
    async fn make(&mut self) -> Result<()> {
        self.stage.namespace(&self.place)?;
        for target in self.targets() {
            self.stage.namespace(&target)?;
        }
        for document in OBJECTS.split("\n---\n") {
            let mut text = document.to_owned();
            for (word, value) in &self.words {
                text = text.replace(&format!("%{word}%"), value);
            }
            let mut object = olm_yaml::to_json(&text)?;
            let modes = object.as_object_mut().and_then(|object| object.remove("modes"));
            if modes.is_some_and(|modes| {
                !modes
                    .as_array()
                    .is_some_and(|modes| modes.contains(&json!(self.mode)))
            }) {
                continue;
            }
            self.adapt(&mut object);
            let made = self.create(object).await?;
            let uid = made["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            match made["kind"].as_str().unwrap_or_default() {
                "OperatorGroup" => {
                    self.words.insert("GROUPUID", uid.clone());
                    self.label_namespaces(&uid).await?;
                }
                "ClusterServiceVersion" => {
                    self.words.insert("CSVUID", uid);
                    self.rights(&made).await?;
                }
                "OperatorCondition" => {
                    self.words.insert("CONDITIONUID", uid);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn adapt(&self, object: &mut Value) {
        match object["kind"].as_str().unwrap_or_default() {
            "Deployment" => {
                object["metadata"]["labels"]["olm.deployment-spec-hash"] = json!(spec_hash(&object["spec"]));
            }
            // No proxy leads from the API server to Pods: the Service leads to this process.
            "Service" if self.mode == "multi" => {
                object["spec"]["type"] = json!("ExternalName");
                object["spec"]["externalName"] = json!("localhost");
            }
            _ => {}
        }
    }

    async fn create(&mut self, object: Value) -> Result<Value> {
        let by = PostParams {
            field_manager: Some("olm".to_owned()),
            ..PostParams::default()
        };
        let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let objects = api(&self.stage.lab.client, &object);
        let mut made = objects
            .create(&by, &serde_json::from_value(object.clone())?)
            .await
            .context(what)?;
        if let Some(status) = object.get("status") {
            made.data["status"] = status.clone();
            let name = made.metadata.name.clone().unwrap_or_default();
            made = objects.replace_status(&name, &by, &made).await?;
        }
        let made = serde_json::to_value(made)?;
        self.made.push(made.clone());
        Ok(made)
    }

    async fn label_namespaces(&self, uid: &str) -> Result<()> {
        if self.mode == "all" {
            return Ok(());
        }
        let targets = self.targets();
        let own = (self.mode == "own").then(|| self.place.clone());
        for target in targets.into_iter().chain(own) {
            let label = json!({"metadata": {"labels": {format!("olm.operatorgroup.uid/{uid}"): ""}}});
            self.stage
                .patch(&named("v1", "Namespace", "", &target), &label)
                .await?;
        }
        Ok(())
    }

    /// The roles and bindings of the accounts, and those in the namespaces that the operator watches.
    async fn rights(&mut self, csv: &Value) -> Result<()> {
        let rights = rbac(csv)?.remove("backup").context("there are no rights")?;
        let mut of_namespace = Vec::new();
        for mut object in [rights.roles, rights.role_bindings].concat() {
            object["metadata"]["labels"]["olm.managed"] = json!("true");
            of_namespace.push(object.clone());
            self.create(object).await?;
        }
        for mut object in [rights.cluster_roles, rights.cluster_role_bindings].concat() {
            object["metadata"]["labels"]["olm.managed"] = json!("true");
            // Manifests in plans have one; the API server drops it.
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
            self.create(object).await?;
        }
        if self.mode == "all" {
            for object in of_namespace {
                self.create(lifted(object)).await?;
            }
            return Ok(());
        }
        for target in self.targets() {
            let copy = self.copy(csv, &target).await?;
            for mut object in of_namespace.clone() {
                object["metadata"]["namespace"] = json!(target);
                object["metadata"]["labels"]["olm.copiedFrom"] = json!(self.place);
                object["metadata"]["ownerReferences"][0]["uid"] = copy["metadata"]["uid"].clone();
                self.create(object).await?;
            }
        }
        Ok(())
    }

    async fn copy(&mut self, csv: &Value, target: &str) -> Result<Value> {
        let mut copy = named(
            "operators.coreos.com/v1alpha1",
            "ClusterServiceVersion",
            target,
            VERSION,
        );
        copy["spec"] = csv["spec"].clone();
        copy["status"] = csv["status"].clone();
        copy["status"]["reason"] = json!("Copied");
        copy["status"]["message"] = json!(format!(
            "The operator is running in {} but is managing this namespace",
            self.place
        ));
        copy["metadata"]["labels"] = json!({"olm.managed": "true", "olm.copiedFrom": self.place});
        let mut annotations = csv["metadata"]["annotations"].clone();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.remove("olm.targetNamespaces");
        }
        copy["metadata"]["annotations"] = annotations;
        self.create(copy).await
    }
}

/// A role or binding of a namespace as one for the whole cluster.
fn lifted(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    object["kind"] = json!(format!("Cluster{kind}"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
        metadata.remove("ownerReferences");
    }
    if kind == "Role" {
        let rule = json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"]});
        if let Some(rules) = object["rules"].as_array_mut() {
            rules.push(rule);
        }
    } else {
        object["roleRef"]["kind"] = json!("ClusterRole");
    }
    object
}

fn certificate(place: &str) -> Result<Issued> {
    let lifetimes = Lifetimes {
        authority: 730,
        authority_renew: 1,
        serving: 730,
        serving_renew: 1,
    };
    let host = format!("{place}-operator-service.{place}");
    let hosts = [
        host.clone(),
        format!("{host}.svc"),
        format!("{host}.svc.cluster.local"),
    ];
    Ok(issue(None, Renew::Both, &hosts, lifetimes, Zoned::now().date())?)
}

/// Versions and UIDs of objects, by kind, namespace and name.
async fn versions(stage: &Stage, objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let mut versions = BTreeMap::new();
    for object in objects {
        let metadata = &object["metadata"];
        let key = format!(
            "{} {} {}",
            object["kind"], metadata["namespace"], metadata["name"]
        );
        let found = stage
            .get(object)
            .await?
            .with_context(|| format!("{key} is gone"))?;
        let found = &found["metadata"];
        versions.insert(
            key,
            json!([found["uid"], found["resourceVersion"], found["generation"]]),
        );
    }
    Ok(versions)
}

async fn pods(stage: &Stage, places: &[String]) -> Result<Vec<Value>> {
    let mut pods = Vec::new();
    for place in places {
        let found = api(&stage.lab.client, &named("v1", "Pod", place, ""))
            .list(&ListParams::default())
            .await?;
        pods.extend(found.items.into_iter().map(|pod| json!(pod.metadata.uid)));
    }
    Ok(pods)
}

#[test]
fn operators_of_the_go_implementation_go_on_without_a_write() -> Result<()> {
    CLUSTER.alone(async |stage| {
        // The first run writes the status of the groups that come with OLM.
        quiet(stage).await?;
        stage.operator.stop().await?;
        let outcome = taken_over(stage).await;
        stage.operator.start(&stage.lab.cluster)?;
        outcome
    })
}

async fn taken_over(stage: &mut Stage) -> Result<()> {
    let port: u16 = free_address()?.rsplit(':').next().context("no port")?.parse()?;
    let (mut made, mut places, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for mode in ["own", "single", "multi", "all"] {
        let issued = certificate(&format!("kept-{mode}"))?;
        if mode == "multi" {
            servers.push(AllowingWebhook::start(port, issued.certificate(), issued.key()).await?);
        }
        let port = if mode == "multi" { port } else { 443 };
        let mut operator = Operator::new(stage, mode, port, &issued)?;
        operator
            .make()
            .await
            .with_context(|| format!("cannot make the objects for {mode}"))?;
        places.push(operator.place.clone());
        made.append(&mut operator.made);
    }
    for place in &places {
        let live = named("apps/v1", "Deployment", place, &format!("{place}-operator"));
        stage
            .becomes("the Deployment runs", &live, |found| {
                found["status"]["availableReplicas"] == 1
            })
            .await?;
    }
    let registration = named(
        "apiregistration.k8s.io/v1",
        "APIService",
        "",
        "v1.served.kept-multi.example",
    );
    stage
        .becomes("the aggregated API is available", &registration, |found| {
            found["status"]["conditions"][0]["status"] == "True"
        })
        .await?;
    let is_content = |object: &&Value| object["kind"] != "OperatorGroup";
    let content: Vec<Value> = made.iter().filter(is_content).cloned().collect();
    let before = eventually("nothing changes", Duration::from_secs(60), async || {
        let first = versions(stage, &content).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let second = versions(stage, &content).await?;
        Ok((first == second).then_some(second))
    })
    .await?;
    let running = pods(stage, &places).await?;
    let start = end(stage)?;
    stage.operator.start(&stage.lab.cluster)?;
    stage.operator.ready().await?;
    quiet(stage).await?;
    for place in &places {
        let csv = stage.csv(place, VERSION).await?.context("it is gone")?;
        ensure!(
            csv["status"]["lastTransitionTime"] == "2026-01-01T00:01:00Z"
                && csv["status"]["phase"] == "Succeeded",
            "{place}: {}",
            csv["status"]
        );
    }
    let after = versions(stage, &content).await?;
    let changed: Vec<_> = before
        .iter()
        .filter(|(key, version)| after.get(*key) != Some(version))
        .collect();
    let writes: Vec<String> = requests(stage, start)?
        .into_keys()
        .filter(|what| !what.starts_with("get ") && !what.starts_with("list "))
        // Roles for people and copies for namespaces that were not there; the versions above cover those that were.
        .filter(|what| {
            let made = ["/clusterroles", "/clusterserviceversions", "/olmconfigs"];
            !made.iter().any(|part| what.contains(part))
        })
        .collect();
    ensure!(
        changed.is_empty() && writes.is_empty(),
        "changed {changed:#?}, written {writes:#?}"
    );
    ensure!(pods(stage, &places).await? == running, "Pods were restarted");
    for place in &places {
        let csv = named(
            "operators.coreos.com/v1alpha1",
            "ClusterServiceVersion",
            place,
            VERSION,
        );
        stage.delete(&csv).await?;
        stage.goes(&csv).await?;
    }
    drop(servers);
    stage.goes(&registration).await
}
