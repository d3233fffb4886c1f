//! The move of one bundle, there and back.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::ListParams;
use olm_api::names;
use olm_classic::cluster::{items, text};
use serde_json::{Value, json};
use tokio::process::Command;

use super::seen::{Kinds, Operator, Seen};
use super::{ACCOUNT, CATALOG};
use crate::classic::becomes;
use crate::extensions::{administrator, await_version, revisions};
use crate::objects;
use crate::realdata::operators::place::{LIMIT, OLM, Place, named, shown};
use crate::realdata::operators::read::{Bundle, Package};
use crate::world::{CLASSIC_NAMESPACE, World, binary, eventually};

/// The time for both OLMs to do what they still want to do.
const CALM: Duration = Duration::from_secs(3);

/// How a move ended.
pub(super) enum Outcome {
    /// There and back.
    Moved {
        there: Duration,
        back: Duration,
        /// The number of objects.
        objects: usize,
        /// The number of Pods.
        pods: usize,
    },
    /// `olm migrate` refuses it: the checks that block it, with their messages.
    Refused(Vec<[String; 2]>),
}

/// The move of one bundle in one install mode.
pub(super) struct Move<'a> {
    pub(super) world: &'a World,
    pub(super) kinds: &'a Kinds,
    pub(super) package: &'a Package,
    pub(super) bundle: &'a Bundle,
    pub(super) place: Place<'a>,
    /// The package in the catalog, which may have another name than its folder.
    pub(super) name: &'a str,
}

impl Move<'_> {
    /// Installs the bundle by OLM classic, moves it there and back, and uninstalls it. Clears up in any case.
    pub(super) async fn run(&self) -> Result<Outcome> {
        let outcome = self.moves().await;
        let cleared = self.clear().await;
        let outcome = outcome?;
        cleared.context("the end")?;
        Ok(outcome)
    }

    async fn moves(&self) -> Result<Outcome> {
        let (version, subscription) = (self.version(), self.subscription());
        self.install().await?;
        let operator = Operator {
            namespaces: self.place.namespaces(),
            version: &self.bundle.name,
            extension: self.name,
            brought: &self.package.names,
        };
        tokio::time::sleep(CALM).await;
        let first = Seen::now(self.kinds, &operator).await?;
        let acknowledged = match self.findings().await? {
            Findings::Blocked(checks) => {
                // The refusal is the answer: nothing was written.
                first.unwritten_since(self.kinds, &operator).await?;
                return Ok(Outcome::Refused(checks));
            }
            Findings::Asked(checks) => checks,
        };

        let mut arguments = vec!["--service-account", ACCOUNT, "--yes", "--wait", "--timeout=2m"];
        arguments.extend(acknowledged.iter().flat_map(|check| ["--acknowledge", check]));
        let begin = Instant::now();
        if let Err(error) = self.migrate(&arguments).await {
            // Refused before the first write.
            let subscription = objects::find(&self.world.client, &subscription).await?;
            let extension = objects::find(&self.world.client, &self.extension()).await?;
            let is_paused = subscription
                .is_none_or(|found| found["metadata"]["annotations"][names::user::PAUSED].is_string());
            let said = format!("{error:#}");
            let refusal = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
            let Some(refusal) = refusal.filter(|_| extension.is_none() && !is_paused) else {
                return Err(error);
            };
            first.unwritten_since(self.kinds, &operator).await?;
            return Ok(Outcome::Refused(vec![["inventory", refusal].map(str::to_owned)]));
        }
        let there = begin.elapsed();
        await_version(self.world, self.name, self.number()).await?;
        tokio::time::sleep(CALM).await;
        first
            .unwritten_since(self.kinds, &operator)
            .await
            .context("the move")?;
        for object in [&version, &subscription] {
            let left = objects::find(&self.world.client, object).await?;
            ensure!(left.is_none(), "{} is left", text(object, "/kind"));
        }
        self.one_revision().await?;
        let second = Seen::now(self.kinds, &operator).await?;

        let begin = Instant::now();
        self.migrate(&["--back", "--yes"]).await?;
        let back = begin.elapsed();
        self.rests().await.context("after the way back")?;
        tokio::time::sleep(CALM).await;
        let third = Seen::now(self.kinds, &operator).await?;
        second
            .unwritten_since(self.kinds, &operator)
            .await
            .context("the way back")?;
        first.is(&third).context("after the way back")?;
        let left = objects::find(&self.world.client, &self.extension()).await?;
        ensure!(left.is_none(), "the ClusterExtension is left");
        Ok(Outcome::Moved {
            there,
            back,
            objects: first.count(),
            pods: first.pods(),
        })
    }

    fn version(&self) -> Value {
        named(
            OLM,
            "ClusterServiceVersion",
            &self.place.namespace,
            &self.bundle.name,
        )
    }

    fn subscription(&self) -> Value {
        let mut subscription = named(OLM, "Subscription", &self.place.namespace, self.name);
        subscription["spec"] = json!({
            "name": self.name, "channel": self.bundle.name, "source": CATALOG,
            "sourceNamespace": CLASSIC_NAMESPACE,
        });
        subscription
    }

    fn extension(&self) -> Value {
        named(names::API_VERSION, names::CLUSTER_EXTENSION, "", self.name)
    }

    fn number(&self) -> &str {
        text(&self.bundle.csv, "/spec/version")
    }

    async fn install(&self) -> Result<()> {
        self.place.prepare(&[self.bundle])?;
        let mut objects = administrator(&self.place.namespace, ACCOUNT).to_vec();
        objects.push(self.subscription());
        self.world.apply(&objects)?;
        self.rests().await.context("by OLM classic")
    }

    /// Waits until OLM classic is done with the operator.
    async fn rests(&self) -> Result<()> {
        let client = &self.world.client;
        let what = "the Subscription is AtLatestKnown";
        let state = |found: &Value| text(found, "/status/state") == "AtLatestKnown";
        becomes(client, what, LIMIT, &self.subscription(), state).await?;
        let mut last = Value::Null;
        let done = eventually("the ClusterServiceVersion is Succeeded", LIMIT, async || {
            last = objects::find(client, &self.version()).await?.unwrap_or_default();
            let is_done = text(&last, "/status/phase") == "Succeeded";
            Ok((is_done && self.runs().await?).then_some(()))
        })
        .await;
        done.with_context(|| shown(&last))
    }

    /// Whether all Deployments of the operator have all their Pods.
    async fn runs(&self) -> Result<bool> {
        for deployment in items(&self.bundle.csv, "/spec/install/spec/deployments") {
            let name = text(deployment, "/name");
            let object = named("apps/v1", "Deployment", &self.place.namespace, name);
            let found = objects::find(&self.world.client, &object)
                .await?
                .unwrap_or_default();
            let status = &found["status"];
            let wanted = found["spec"]["replicas"].as_i64();
            if status["readyReplicas"].as_i64().unwrap_or_default() != wanted.unwrap_or_default()
                || status["observedGeneration"] != found["metadata"]["generation"]
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What `olm migrate` says before it writes.
    async fn findings(&self) -> Result<Findings> {
        let arguments = ["--service-account", ACCOUNT, "--dry-run", "-o", "json"];
        let (_, printed, said) = self.olm(&arguments).await?;
        let report: Value =
            serde_json::from_str(&printed).with_context(|| format!("no report: {printed}{said}"))?;
        let of = |severity: &str| -> Vec<[String; 2]> {
            items(&report, "/subscriptions/0/findings")
                .filter(|found| text(found, "/severity") == severity)
                .map(|found| ["/check", "/message"].map(|part| text(found, part).to_owned()))
                .collect()
        };
        let blocked = of("blocks");
        if !blocked.is_empty() {
            return Ok(Findings::Blocked(blocked));
        }
        let asked = of("acknowledge").into_iter().map(|[check, _]| check);
        Ok(Findings::Asked(asked.collect()))
    }

    async fn migrate(&self, arguments: &[&str]) -> Result<()> {
        let (is_done, printed, said) = self.olm(arguments).await?;
        ensure!(
            is_done,
            "olm migrate {} fails:\n{printed}{said}",
            arguments.join(" ")
        );
        Ok(())
    }

    /// Runs `olm migrate`; returns whether it succeeded, and what it wrote to both outputs.
    async fn olm(&self, arguments: &[&str]) -> Result<(bool, String, String)> {
        let ran = Command::new(binary("olm")?)
            .args(["migrate", self.name, "-n", &self.place.namespace, "--kubeconfig"])
            .arg(self.world.cluster.kubeconfig())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ran = tokio::time::timeout(LIMIT * 2, ran).await;
        let ran = ran.context("olm migrate does not end")??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((ran.status.success(), text(&ran.stdout), text(&ran.stderr)))
    }

    /// The move has made the first revision, and operator-controller none after it.
    async fn one_revision(&self) -> Result<()> {
        let of_extension = format!("{}={}", names::label::OWNER_NAME, self.name);
        let found = revisions(self.world)
            .list(&ListParams::default().labels(&of_extension))
            .await?;
        let names: Vec<String> = found.into_iter().filter_map(|set| set.metadata.name).collect();
        let expected = format!("{}-1", self.name);
        ensure!(names == [expected], "the revisions are {names:?}");
        Ok(())
    }

    /// Uninstalls the operator from whichever OLM has it.
    async fn clear(&self) -> Result<()> {
        let binding = named(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "",
            &format!("{}-{ACCOUNT}", self.place.namespace),
        );
        for object in [&self.extension(), &self.subscription(), &self.version(), &binding] {
            match objects::delete(&self.world.client, object).await {
                Err(error) if !is_gone(&error) => bail!(error),
                _ => self.place.goes(object).await?,
            }
        }
        self.place.nothing_of(&self.bundle.name).await?;
        self.place.clear(&[self.bundle]).await
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}

/// What `olm migrate` says before it writes.
enum Findings {
    /// Checks that block the move, with their messages.
    Blocked(Vec<[String; 2]>),
    /// Checks to acknowledge.
    Asked(Vec<String>),
}
