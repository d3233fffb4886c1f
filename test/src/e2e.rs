//! `olm-test e2e`: the managers as Pods on a real node, from the shipped manifests.
//!
//! One scenario in steps. Each step is reported like a test, and the steps after a failed one count as failed, too.

mod backup;
mod classic;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use olm_api::{ClusterExtension, conditions, names};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Mode};
use crate::images;
use crate::samples;
use crate::world::{Lab, eventually, repository};

const SOON: Duration = Duration::from_mins(2);
const MANAGERS: &[&str] = &[
    "catalogd-controller-manager",
    "operator-controller-controller-manager",
];
/// The binding that gives the sample's account all rights.
const EVERYTHING: &str = "greeter-installer-may-do-everything";
const STEPS: &[&str] = &[
    "the managers become available from the shipped manifests",
    "an extension is installed and its operator works",
    "the extension is upgraded",
    "a broken object is repaired",
    "both managers restart and go on",
    "the extension is lost and restored from a backup, then made again, and its operator continues",
    "an operator holds its own upgrade back",
    "the API server calls webhooks of all kinds and an aggregated API, before and after their certificate is renewed",
    "the extension is removed and nothing is left",
];
/// The further steps with `--classic`.
const CLASSIC_STEPS: &[&str] = &[
    "the programs of OLM classic become available from the shipped manifests",
    "a Subscription installs the operator, which works, and its package is listed",
    "the Subscription is removed, and of the operator only its data is left",
];

/// The steps to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// The steps of OLM v1.
    V1,
    /// These, then those of OLM classic.
    WithClassic,
}

/// Runs the scenario with the images in `archives` (from `make images`). Returns whether all steps passed.
///
/// # Errors
/// When the cluster does not start.
pub fn run(archives: &Path, steps: Steps) -> Result<bool> {
    let starting = tokio::runtime::Runtime::new()?;
    let cluster = starting.block_on(Cluster::start(Mode::Node))?;
    drop(starting);
    for entry in
        std::fs::read_dir(archives).with_context(|| format!("no images in {}", archives.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            cluster.load(&path)?;
        }
    }
    let folder = tempfile::tempdir()?;
    let source = images::Source {
        programs: None,
        tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    cluster.load(&images::write_archive(folder.path(), "sample-operator", &source)?)?;
    // Threads that start from here on are in the node's network.
    cluster.enter()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(story(cluster, steps))
}

async fn story(cluster: Cluster, chosen: Steps) -> Result<bool> {
    olm_platform::crypto::install();
    let story = Story {
        lab: Lab::over(cluster).await?,
        before: BTreeSet::new(),
    };
    let mut out = std::io::stdout();
    let more: &[&str] = match chosen {
        Steps::V1 => &[],
        Steps::WithClassic => CLASSIC_STEPS,
    };
    let steps: Vec<&str> = STEPS.iter().chain(more).copied().collect();
    writeln!(out, "\nrunning {} tests", steps.len())?;
    let mut story = story;
    let mut passed = 0;
    let mut failure = None;
    for step in &steps {
        if failure.is_some() {
            writeln!(out, "test {step} ... FAILED: an earlier step failed")?;
            continue;
        }
        let begin = Instant::now();
        let outcome = story.step(step).await;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                passed += 1;
                writeln!(out, "test {step} ... ok ({seconds:.1} s)")?;
            }
            Err(error) => {
                story.show_managers()?;
                writeln!(out, "test {step} ... FAILED ({seconds:.1} s)")?;
                failure = Some(format!("{step}: {error:#}"));
            }
        }
    }
    // Last, where it is found in a log that was cut.
    if let Some(failure) = &failure {
        writeln!(out, "\n{failure}")?;
    }
    writeln!(out, "\n{passed} passed, {} failed", steps.len() - passed)?;
    Ok(failure.is_none())
}

struct Story {
    lab: Lab,
    before: BTreeSet<String>,
}

impl Story {
    async fn step(&mut self, step: &str) -> Result<()> {
        let mut known = STEPS.iter().chain(CLASSIC_STEPS);
        match known.position(|known| *known == step) {
            Some(0) => self.deploy().await,
            Some(1) => self.install().await,
            Some(2) => self.upgrade().await,
            Some(3) => self.repair().await,
            Some(4) => self.restart().await,
            Some(5) => self.restore().await,
            Some(6) => self.hold_back().await,
            Some(7) => self.call_webhook().await,
            Some(8) => self.uninstall().await,
            Some(9) => self.deploy_classic().await,
            Some(10) => self.subscribe().await,
            Some(11) => self.unsubscribe().await,
            _ => bail!("no such step"),
        }
    }

    async fn deploy(&mut self) -> Result<()> {
        let lab = &self.lab;
        let authority = std::fs::read_to_string(lab.authorities().join("ca.crt"))?;
        lab.apply(&[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": names::SYSTEM_NAMESPACE } }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "registry-ca", "namespace": names::SYSTEM_NAMESPACE },
                "data": { "ca.crt": authority },
            }),
        ])?;
        let overlay = repository().join("test/e2e").display().to_string();
        lab.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", &overlay])?;
        for manager in MANAGERS {
            self.available(names::SYSTEM_NAMESPACE, manager).await?;
        }
        Ok(())
    }

    async fn install(&mut self) -> Result<()> {
        let catalog = self
            .lab
            .publish_greeter(
                &[samples::VERSIONS, &[samples::WITH_ALL_WEBHOOKS]].concat(),
                samples::OPERATOR_IMAGE,
            )
            .await?;
        self.lab.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterCatalog",
            "metadata": { "name": "samples" },
            "spec": { "source": { "type": "Image", "image": { "ref": catalog } } },
        })])?;
        eventually("the catalog is served", SOON, async || {
            let catalogs = Api::<olm_api::ClusterCatalog>::all(self.lab.client.clone());
            let catalog = catalogs.get("samples").await?;
            if conditions::is_true(catalog.conditions(), conditions::SERVING) {
                return Ok(Some(()));
            }
            bail!("status is {}", serde_json::to_string(&catalog.status)?)
        })
        .await?;
        // Namespace, account and rights outlive the extension, so they are created before the list is taken.
        self.lab
            .apply_without_extension("manifests/samples/greeter.yaml")?;
        self.before = everything_before(&self.lab).await?;
        self.lab.apply_file("manifests/samples/greeter.yaml")?;
        self.at_version("1.0.1").await?;
        self.available("greeter", "greeter-operator").await?;
        self.greets("Ada", None, "Hello, Ada!", "1.0.1").await
    }

    async fn upgrade(&mut self) -> Result<()> {
        let patch = json!({ "spec": { "source": { "catalog": { "version": "1.x" } } } });
        self.extensions()
            .patch("greeter", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.at_version("1.1.0").await?;
        self.available("greeter", "greeter-operator").await?;
        self.greets("Grace", Some("Good day"), "Good day, Grace!", "1.1.0")
            .await
    }

    async fn repair(&mut self) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.lab.client.clone(), "greeter");
        let broken = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "operator", "image": "nowhere.invalid/broken:v1" }] } } } });
        deployments
            .patch(
                "greeter-operator",
                &PatchParams::default(),
                &Patch::Strategic(&broken),
            )
            .await?;
        eventually("the image is repaired", SOON, async || {
            let deployment = deployments.get("greeter-operator").await?;
            let image = deployment
                .spec
                .and_then(|spec| spec.template.spec)
                .and_then(|pod| pod.containers.into_iter().next())
                .and_then(|container| container.image);
            Ok((image.as_deref() == Some(samples::OPERATOR_IMAGE)).then_some(()))
        })
        .await?;
        self.available("greeter", "greeter-operator").await?;
        self.lab.kubectl(&[
            "delete",
            "clusterrolebinding",
            "-l",
            "olm.operatorframework.io/owner-name=greeter",
        ])?;
        eventually("the deleted binding is back", SOON, async || {
            let found = self.lab.kubectl(&[
                "get",
                "clusterrolebinding",
                "-o",
                "name",
                "-l",
                "olm.operatorframework.io/owner-name=greeter",
            ])?;
            Ok((!found.trim().is_empty()).then_some(()))
        })
        .await
    }

    async fn restart(&mut self) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.lab.client.clone(), names::SYSTEM_NAMESPACE);
        let old: BTreeSet<String> = pods
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .filter_map(|pod| pod.metadata.name)
            .collect();
        for manager in MANAGERS {
            self.lab.kubectl(&[
                "rollout",
                "restart",
                "deployment",
                manager,
                "-n",
                names::SYSTEM_NAMESPACE,
            ])?;
        }
        for manager in MANAGERS {
            self.lab.kubectl(&[
                "rollout",
                "status",
                "deployment",
                manager,
                "-n",
                names::SYSTEM_NAMESPACE,
                "--timeout=150s",
            ])?;
        }
        eventually("the old Pods are gone", SOON, async || {
            let now = pods.list(&ListParams::default()).await?.items;
            let left = now
                .iter()
                .filter_map(|pod| pod.metadata.name.as_ref())
                .any(|name| old.contains(name));
            Ok((!left).then_some(()))
        })
        .await?;
        // The new operator works: it creates a deleted object again.
        let deployments = Api::<Deployment>::namespaced(self.lab.client.clone(), "greeter");
        deployments
            .delete("greeter-operator", &DeleteParams::default())
            .await?;
        eventually("the deleted Deployment is back", SOON, async || {
            let found = deployments.get_opt("greeter-operator").await?;
            Ok(found
                .filter(|deployment| deployment.metadata.deletion_timestamp.is_none())
                .map(drop))
        })
        .await?;
        self.available("greeter", "greeter-operator").await?;
        self.at_version("1.1.0").await
    }

    async fn hold_back(&mut self) -> Result<()> {
        let label = |value: &str| {
            self.lab.kubectl(&[
                "label",
                "greetings.samples.olm.example",
                "grace",
                "-n",
                "greeter",
                "--overwrite",
                &format!("samples.olm.example/hold-upgrade{value}"),
            ])
        };
        label("=true")?;
        // The account that the sample is installed with has no rights for an aggregated API and its rights.
        self.lab.apply(&[json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": EVERYTHING },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "greeter-installer", "namespace": "greeter" }],
        })])?;
        eventually("the operator says that it is not upgradeable", SOON, async || {
            let status = self.lab.kubectl(&[
                "get",
                "operatorconditions.operators.coreos.com",
                "greeter.v1.1.0",
                "-n",
                "greeter",
                "-o",
                "jsonpath={.spec.conditions[?(@.type==\"Upgradeable\")].status}",
            ])?;
            Ok((status == "False").then_some(()))
        })
        .await?;
        let patch = json!({ "spec": { "source": { "catalog": {
            "channels": ["checked"], "version": samples::WITH_ALL_WEBHOOKS,
        } } } });
        self.extensions()
            .patch("greeter", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        eventually("the status has the reason", SOON, async || {
            let extension = self.extensions().get("greeter").await?;
            let progressing = conditions::find(extension.conditions(), conditions::READY);
            let message = progressing.map(|found| found.message.clone()).unwrap_or_default();
            let is_reported = message.contains("the operator blocks the upgrade")
                && message.contains("still greeting grace");
            if is_reported {
                return Ok(Some(()));
            }
            bail!("it says {message:?}")
        })
        .await?;
        let extension = self.extensions().get("greeter").await?;
        let installed = extension.status.and_then(|status| status.install);
        ensure!(
            installed.is_some_and(|install| install.bundle.version == "1.1.0"),
            "it was upgraded nevertheless"
        );
        label("-")?;
        self.at_version(samples::WITH_ALL_WEBHOOKS).await?;
        self.available("greeter", "greeter-operator").await
    }

    async fn call_webhook(&mut self) -> Result<()> {
        self.refuses_nobody("with the first certificate").await?;
        self.greets("Linus", None, "Welcome, Linus!", samples::WITH_ALL_WEBHOOKS)
            .await?;
        self.converts_and_serves("Linus", "with the first certificate")
            .await?;
        let secrets = Api::<Secret>::namespaced(self.lab.client.clone(), "greeter");
        let name = "greeter-operator-service-cert";
        let data = |secret: Secret, key: &str| {
            let bytes = secret.data.and_then(|mut data| data.remove(key));
            String::from_utf8_lossy(&bytes.unwrap_or_default().0).into_owned()
        };
        let before = data(secrets.get(name).await?, "ca.crt");
        ensure!(!before.is_empty(), "the Secret holds no authority");
        secrets.delete(name, &DeleteParams::default()).await?;
        let both = eventually("the Secret is made anew", SOON, async || {
            let now = secrets.get_opt(name).await?.map(|secret| data(secret, "ca.crt"));
            Ok(now.filter(|now| *now != before && now.ends_with(&before)))
        })
        .await?;
        let configurations = Api::<ValidatingWebhookConfiguration>::all(self.lab.client.clone());
        eventually("the API server trusts both authorities", SOON, async || {
            let found = configurations.get("greetings.samples.olm.example").await?;
            let webhook = found.webhooks.and_then(|list| list.into_iter().next());
            let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle);
            Ok(bundle.filter(|bundle| bundle.0 == both.as_bytes()).map(drop))
        })
        .await?;
        // The Pod still serves the old certificate; a new Pod serves the new one.
        self.refuses_nobody("with the old certificate").await?;
        self.converts_and_serves("Linus", "with the old certificate")
            .await?;
        self.lab.kubectl(&[
            "delete",
            "pods",
            "-n",
            "greeter",
            "-l",
            "app.kubernetes.io/name=greeter",
            "--wait",
        ])?;
        self.available("greeter", "greeter-operator").await?;
        self.refuses_nobody("with the new certificate").await?;
        self.greets("Barbara", None, "Welcome, Barbara!", samples::WITH_ALL_WEBHOOKS)
            .await?;
        self.converts_and_serves("Barbara", "with the new certificate")
            .await
    }

    /// Waits until a greeting can be read in the version that it was written in, and the operator's own API answers.
    async fn converts_and_serves(&self, name: &str, when: &str) -> Result<()> {
        let greeting = format!(
            "/apis/samples.olm.example/v1beta1/namespaces/greeter/greetings/{}",
            name.to_lowercase()
        );
        let read = |path: &str| -> Result<Value> {
            Ok(serde_json::from_str(&self.lab.kubectl(&["get", "--raw", path])?)?)
        };
        eventually(&format!("a greeting is converted {when}"), SOON, async || {
            let converted = read(&greeting)?;
            ensure!(converted["spec"]["who"] == name, "it is {converted}");
            Ok(Some(()))
        })
        .await?;
        eventually(&format!("the aggregated API answers {when}"), SOON, async || {
            let salutation = read("/apis/served.samples.olm.example/v1/salutations/first")?;
            ensure!(salutation["text"] == "Welcome", "it is {salutation}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the webhook answers, and checks the answer.
    async fn refuses_nobody(&self, when: &str) -> Result<()> {
        let nobody = json!({
            "apiVersion": "samples.olm.example/v1", "kind": "Greeting",
            "metadata": { "name": "nobody", "namespace": "greeter" }, "spec": { "name": "Nobody" },
        });
        eventually(&format!("nobody is refused {when}"), SOON, async || {
            match self.lab.apply(std::slice::from_ref(&nobody)) {
                Err(refused) if format!("{refused:#}").contains("nobody is not greeted") => Ok(Some(())),
                Err(other) => Err(other),
                Ok(()) => bail!("nobody was taken"),
            }
        })
        .await
    }

    async fn uninstall(&mut self) -> Result<()> {
        self.lab.kubectl(&[
            "delete",
            "greetings.samples.olm.example",
            "--all",
            "-n",
            "greeter",
        ])?;
        self.extensions()
            .delete("greeter", &DeleteParams::default())
            .await?;
        self.gone().await?;
        let note = self.lab.kubectl(&[
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=greeter,reason=Uninstalling",
            "-o",
            "jsonpath={.items[*].message}",
        ])?;
        ensure!(
            note.contains(": 0 greetings.samples.olm.example"),
            "the event says {note:?}"
        );
        self.lab.kubectl(&["delete", "clusterrolebinding", EVERYTHING])?;
        eventually("nothing is left", SOON, async || {
            let after = self.everything()?;
            let left: Vec<_> = after
                .difference(&self.before)
                .filter(|name| !name.contains("greeting-"))
                .collect();
            let lost: Vec<_> = self.before.difference(&after).collect();
            if left.is_empty() && lost.is_empty() {
                return Ok(Some(()));
            }
            bail!("left {left:?}, lost {lost:?}")
        })
        .await
    }

    fn extensions(&self) -> Api<ClusterExtension> {
        Api::all(self.lab.client.clone())
    }

    async fn gone(&self) -> Result<()> {
        eventually("the extension is gone", SOON, async || {
            Ok(self
                .extensions()
                .get_opt("greeter")
                .await?
                .is_none()
                .then_some(()))
        })
        .await
    }

    async fn at_version(&self, version: &str) -> Result<()> {
        eventually(&format!("greeter is at {version}"), SOON, async || {
            let extension = self.extensions().get("greeter").await?;
            let status = extension.status.clone().unwrap_or_default();
            let installed = status
                .install
                .as_ref()
                .is_some_and(|install| install.bundle.version == version);
            let settled = conditions::find(extension.conditions(), conditions::PROGRESSING)
                .is_some_and(|progressing| progressing.reason == conditions::reason::SUCCEEDED);
            if installed && settled && conditions::is_true(extension.conditions(), conditions::INSTALLED) {
                return Ok(Some(()));
            }
            bail!("status is {}", serde_json::to_string(&status)?)
        })
        .await
    }

    /// Waits until every replica of a Deployment's newest revision serves.
    async fn available(&self, namespace: &str, name: &str) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.lab.client.clone(), namespace);
        eventually(&format!("{namespace}/{name} is available"), SOON, async || {
            let deployment = deployments.get(name).await?;
            let wanted = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.replicas)
                .unwrap_or(1);
            let status = deployment.status.clone().unwrap_or_default();
            let current = status.observed_generation == deployment.metadata.generation;
            if current && status.updated_replicas == Some(wanted) && status.available_replicas == Some(wanted)
            {
                return Ok(Some(()));
            }
            bail!("status is {}", serde_json::to_string(&status)?)
        })
        .await
    }

    /// Creates a greeting, and checks the operator's answer.
    async fn greets(&self, name: &str, salutation: Option<&str>, message: &str, version: &str) -> Result<()> {
        let object = name.to_lowercase();
        let mut spec = json!({ "name": name });
        if let (Some(salutation), Some(spec)) = (salutation, spec.as_object_mut()) {
            spec.insert("salutation".to_owned(), json!(salutation));
        }
        self.lab.apply(&[json!({
            "apiVersion": "samples.olm.example/v1", "kind": "Greeting",
            "metadata": { "name": object, "namespace": "greeter" }, "spec": spec,
        })])?;
        let maps = Api::<ConfigMap>::namespaced(self.lab.client.clone(), "greeter");
        let data = eventually(&format!("{name} is greeted by {version}"), SOON, async || {
            let map = maps.get_opt(&format!("greeting-{object}")).await?;
            let data = map.and_then(|map| map.data).unwrap_or_default();
            Ok((data.get("operatorVersion").map(String::as_str) == Some(version)).then_some(data))
        })
        .await?;
        ensure!(
            data.get("message").map(String::as_str) == Some(message),
            "the greeting is {data:?}"
        );
        Ok(())
    }

    /// The names of all objects that can be listed, except transient ones.
    fn everything(&self) -> Result<BTreeSet<String>> {
        everything(&self.lab)
    }

    fn show_managers(&self) -> Result<()> {
        let mut out = std::io::stdout();
        for arguments in [
            vec!["get", "pods", "-A", "-o", "wide"],
            vec![
                "logs",
                "-n",
                "olm",
                "-l",
                "app.kubernetes.io/part-of=olm-classic",
                "--tail=60",
                "--prefix",
            ],
            vec!["get", "events", "-A", "--sort-by=.lastTimestamp"],
            vec![
                "logs",
                "-n",
                names::SYSTEM_NAMESPACE,
                "-l",
                "control-plane=catalogd-controller-manager",
                "--tail=60",
                "--prefix",
            ],
            vec![
                "logs",
                "-n",
                names::SYSTEM_NAMESPACE,
                "-l",
                "control-plane=operator-controller-controller-manager",
                "--tail=60",
                "--prefix",
            ],
        ] {
            let said = self
                .lab
                .kubectl(&arguments)
                .unwrap_or_else(|error| format!("{error:#}"));
            writeln!(out, "--- kubectl {}\n{said}", arguments.join(" "))?;
        }
        Ok(())
    }
}

/// [`everything`] before the first extension, with the objects that the leading controller creates for all extensions.
///
/// # Errors
/// When the cluster does not answer, or the controller does not lead.
pub async fn everything_before(lab: &Lab) -> Result<BTreeSet<String>> {
    const BROUGHT: &[&str] = &[
        "customresourcedefinition.apiextensions.k8s.io/operatorconditions.operators.coreos.com",
        "apiservice.apiregistration.k8s.io/v1.operators.coreos.com",
        "apiservice.apiregistration.k8s.io/v2.operators.coreos.com",
    ];
    eventually("the controller has brought its kind", SOON, async || {
        let before = everything(lab)?;
        let missing = BROUGHT.iter().find(|name| !before.contains(**name));
        match missing {
            None => Ok(Some(before)),
            Some(name) => bail!("{name} is missing"),
        }
    })
    .await
}

/// The names of all objects in a cluster that can be listed, except transient ones.
///
/// # Errors
/// When the cluster does not answer.
pub fn everything(lab: &Lab) -> Result<BTreeSet<String>> {
    const TRANSIENT: &[&str] = &[
        "events",
        "events.events.k8s.io",
        "leases.coordination.k8s.io",
        "endpoints",
        "endpointslices.discovery.k8s.io",
        "pods",
        "replicasets.apps",
    ];
    let kinds = lab.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !TRANSIENT.contains(kind)).collect();
    let listed = lab.kubectl(&["get", &kinds.join(","), "-A", "-o", "name", "--ignore-not-found"])?;
    Ok(listed.lines().map(str::to_owned).collect())
}
