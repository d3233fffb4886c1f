//! The programs, catalog-operator behind a proxy, and packages under ever new names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::FutureExt as _;
use olm_test::classic::{ACCOUNT, prepare};
use olm_test::faults::{Call, Plan, Proxy};
use olm_test::world::{Lab, Manager};
use serde_json::{Value, json};

use super::end;
use super::workloads::{Step, Workload};

/// Time limit for a run to end as it does undisturbed.
const LIMIT: Duration = Duration::from_secs(120);
/// Time without writes after which a run counts as over.
const STILL: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);
const V1ALPHA1: &str = "operators.coreos.com/v1alpha1";

pub(crate) struct Stage {
    lab: Lab,
    proxy: Proxy,
    catalog: Manager,
    _operator: Manager,
    count: usize,
}

impl Stage {
    pub(crate) async fn start() -> Result<Self> {
        let lab = Lab::empty().await?;
        prepare(&lab)?;
        let proxy = Proxy::start(&lab.cluster, Arc::new(|_| async {}.boxed())).await?;
        let account = format!("--classic-account={ACCOUNT}");
        let cache = format!("--cache-dir={}", lab.folder().join("catalogs").display());
        let arguments = vec![account.clone(), cache];
        let mut catalog = Manager::classic(&lab, "catalog-operator", "catalog-operator", arguments).await?;
        catalog.go_through(proxy.url())?;
        let mut operator = Manager::classic(&lab, "olm-operator", "olm-operator", vec![account]).await?;
        for program in [&mut catalog, &mut operator] {
            program.start(&lab.cluster)?;
            program.ready().await?;
        }
        Ok(Self {
            lab,
            proxy,
            catalog,
            _operator: operator,
            count: 0,
        })
    }

    /// A name that no run had before, all of one length.
    pub(crate) fn name(&mut self) -> String {
        self.count += 1;
        format!("fault-{:04}", self.count)
    }

    /// Runs a workload without faults: how many mutating calls it takes, and its end.
    pub(crate) async fn undisturbed(&mut self, workload: &Workload) -> Result<(usize, Value)> {
        let name = self.name();
        self.proxy.follow(Plan::default());
        self.take(workload.before, &name).await?;
        self.silence(&name).await?;
        self.proxy.follow(Plan::undisturbed(&name));
        self.take(workload.steps, &name).await?;
        self.silence(&name).await?;
        let (calls, _) = self.proxy.progress();
        let end = end::of(&self.lab, &name)?;
        self.remove(&name)?;
        Ok((calls, end))
    }

    /// Runs a workload with a fault and compares the end.
    pub(crate) async fn disturbed(
        &mut self,
        workload: &Workload,
        name: &str,
        plan: Plan,
        wanted: &Value,
    ) -> Result<()> {
        self.proxy.follow(Plan::default());
        self.take(workload.before, name).await?;
        self.silence(name).await?;
        self.proxy.follow(plan);
        let taken = self.take(workload.steps, name).await;
        let ended = match taken {
            Ok(()) => self.ends(name, wanted).await,
            Err(error) => Err(error),
        };
        let calls: Vec<String> = self.proxy.calls(name).iter().map(Call::line).collect();
        self.proxy.follow(Plan::default());
        self.revive()?;
        self.remove(name)?;
        ended.with_context(|| format!("calls:\n{}\nlog:\n{}", calls.join("\n"), self.catalog.log_end()))
    }

    /// Waits until the end is as wanted.
    async fn ends(&mut self, name: &str, wanted: &Value) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.silence(name).await?;
            let end = end::of(&self.lab, name)?;
            if end == *wanted {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "it ends as\n{end:#}\nand not as\n{wanted:#}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts the program again when it died.
    fn revive(&mut self) -> Result<()> {
        if self.proxy.has_crashed() {
            self.catalog.kill();
            self.proxy.recover();
            self.catalog.start(&self.lab.cluster)?;
        }
        Ok(())
    }

    async fn silence(&mut self, name: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.revive()?;
            let last = self.proxy.last_change(name);
            if last.is_none_or(|last| last.elapsed() >= STILL) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} is written again and again");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Takes the steps, each when the one before it is done.
    async fn take(&mut self, steps: &[Step], name: &str) -> Result<()> {
        for step in steps {
            self.begin(step, name)
                .await
                .with_context(|| format!("{step:?}"))?;
            let deadline = Instant::now() + LIMIT;
            while !self.is_done(step, name).with_context(|| format!("{step:?}"))? {
                self.revive()?;
                if Instant::now() > deadline {
                    let found =
                        self.lab
                            .kubectl(&["get", "subscriptions,installplans", "-n", name, "-o", "yaml"]);
                    bail!("{step:?} is not done after {} s\n{}", LIMIT.as_secs(), found?);
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, step: &Step, name: &str) -> Result<()> {
        match step {
            Step::Offer(versions) => {
                let source = self.source(name, versions).await?;
                self.lab.apply(&[
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
                    json!({
                        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
                        "metadata": {"namespace": name, "name": "group"}, "spec": {},
                    }),
                    source,
                ])
            }
            Step::Newer(versions) => {
                let source = self.source(name, versions).await?;
                self.lab.apply(&[source])
            }
            Step::Subscribe(is_manual) => {
                let approval = if *is_manual { "Manual" } else { "Automatic" };
                self.lab.apply(&[json!({
                    "apiVersion": V1ALPHA1, "kind": "Subscription", "metadata": {"namespace": name, "name": name},
                    "spec": {
                        "name": name, "source": "catalog", "sourceNamespace": name, "channel": "stable",
                        "installPlanApproval": approval,
                    },
                })])
            }
            Step::Approve => {
                let plan = self.shown("subscription", name, name, ".status.installPlanRef.name")?;
                let patch = r#"--patch={"spec":{"approved":true}}"#;
                let arguments = ["patch", "installplan", &plan, "-n", name, "--type=merge", patch];
                self.lab.kubectl(&arguments).map(drop)
            }
            Step::Waits | Step::Installed(_) => Ok(()),
        }
    }

    fn is_done(&self, step: &Step, name: &str) -> Result<bool> {
        Ok(match step {
            Step::Offer(_) | Step::Subscribe(_) | Step::Approve => true,
            // The new content is served where the old one is.
            Step::Newer(_) => {
                self.shown(
                    "catalogsource",
                    "catalog",
                    name,
                    ".status.connectionState.lastObservedState",
                )? == "READY"
            }
            Step::Waits => {
                let plan = self.shown("subscription", name, name, ".status.installPlanRef.name")?;
                !plan.is_empty()
                    && self.shown("installplan", &plan, name, ".status.phase")? == "RequiresApproval"
            }
            Step::Installed(version) => {
                let version = format!("{name}.v{version}");
                let phases = self.shown("csv", "", name, ".items[*].metadata.name")?;
                phases.split(' ').any(|found| found == version)
                    && self.shown("csv", &version, name, ".status.phase")? == "Succeeded"
            }
        })
    }

    /// A field of an object of the namespace; of all objects where the name is empty.
    fn shown(&self, kind: &str, object: &str, namespace: &str, field: &str) -> Result<String> {
        let form = format!("-o=jsonpath={{{field}}}");
        let mut arguments = vec!["get", kind];
        if !object.is_empty() {
            arguments.push(object);
        }
        arguments.extend(["-n", namespace, "--ignore-not-found", &form]);
        self.lab.kubectl(&arguments)
    }

    async fn source(&self, name: &str, versions: &[&str]) -> Result<Value> {
        let blobs = self
            .lab
            .push_bundles(name, versions, "operator.example/operator:v1")
            .await?;
        let tag = format!("{name}-catalog:v{}", versions.len());
        let image = self.lab.push_catalog(&tag, &blobs).await?;
        Ok(json!({
            "apiVersion": V1ALPHA1, "kind": "CatalogSource", "metadata": {"namespace": name, "name": "catalog"},
            "spec": {"sourceType": "grpc", "image": image},
        }))
    }

    /// Removes the objects of a run: later runs list them all.
    fn remove(&self, name: &str) -> Result<()> {
        self.lab.kubectl(&[
            "delete",
            "subscriptions,csv,catalogsources",
            "--all",
            "-n",
            name,
            "--wait=false",
        ])?;
        self.lab
            .kubectl(&["delete", "namespace", name, "--wait=false"])
            .map(drop)
    }
}
