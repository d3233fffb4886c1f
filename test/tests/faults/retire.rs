//! Completed runs: nothing is written about them any more. They are removed completely while the next ones run.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use olm_api::ChangePolicy;
use olm_api::names::{label, user};
use olm_test::extensions::{extensions, merge};
use olm_test::faults::Call;
use olm_test::objects;
use serde_json::json;

use super::run::{Done, catalogs, is_gone};
use super::stage::Stage;

/// The time for which nothing may be written.
const SILENCE: Duration = Duration::from_secs(5);
/// The time limit of a removal.
const LIMIT: Duration = Duration::from_secs(90);

/// A run that is over.
pub(crate) struct Retired {
    pub(crate) workload: &'static str,
    pub(crate) point: String,
    done: Done,
    /// The start of its removal.
    removing: Option<Instant>,
    problems: Vec<String>,
}

/// The progress of a retirement.
pub(crate) enum Progress {
    Waiting,
    /// The retirement is over, with these problems.
    Over(Vec<String>),
}

impl Retired {
    pub(crate) fn new(workload: &'static str, point: String, done: Done) -> Self {
        Self {
            workload,
            point,
            done,
            removing: None,
            problems: Vec::new(),
        }
    }

    /// Goes on, without waiting.
    pub(crate) async fn go_on(&mut self, stage: &Stage) -> Result<Progress> {
        let name = self.done.name.clone();
        let Some(since) = self.removing else {
            if self.done.since.elapsed() < SILENCE {
                return Ok(Progress::Waiting);
            }
            let calls = stage.proxies().map(|proxy| proxy.calls(&name)).concat();
            let late: Vec<Call> = calls
                .into_iter()
                .filter(|call| !call.dry_run && call.at > self.done.since)
                .collect();
            remove(stage, &name).await?;
            self.removing = Some(Instant::now());
            let late = late.iter().map(Call::line);
            let late = late.map(|line| format!("written after everything was done: {line}"));
            self.problems.extend(late);
            return Ok(Progress::Waiting);
        };
        if !is_gone(&stage.world, &name).await? {
            if since.elapsed() < LIMIT {
                return Ok(Progress::Waiting);
            }
            let extension = extensions(&stage.world).get_opt(&name).await?;
            let status = serde_json::to_string(&extension.and_then(|extension| extension.status))?;
            self.problems.push(format!("it cannot be removed: {status}"));
            return Ok(Progress::Over(std::mem::take(&mut self.problems)));
        }
        let left = sweep(stage, &name).await?;
        for proxy in stage.proxies() {
            proxy.forget(&name);
        }
        // Objects that a user orphaned were meant to remain.
        if !self.workload.starts_with("uninstall") {
            let left = left.into_iter().map(|object| format!("left behind: {object}"));
            self.problems.extend(left);
        }
        Ok(Progress::Over(std::mem::take(&mut self.problems)))
    }

    /// Waits for the end.
    pub(crate) async fn end(&mut self, stage: &mut Stage) -> Result<Vec<String>> {
        let limit = Instant::now() + 2 * LIMIT;
        loop {
            stage.revive()?;
            if let Progress::Over(problems) = self.go_on(stage).await? {
                return Ok(problems);
            }
            if Instant::now() > limit {
                bail!("{} of {} is not removed", self.point, self.workload);
            }
            stage.pause(Duration::from_millis(200)).await;
        }
    }
}

/// Has the extension removed with all its objects.
async fn remove(stage: &Stage, name: &str) -> Result<()> {
    let all = extensions(&stage.world);
    if all.get_opt(name).await?.is_some() {
        let policy = json!({ "metadata": { "annotations": { user::UNINSTALL: null } } });
        merge(&stage.world, name, policy).await?;
        gone_is_fine(all.delete(name, &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Removes the remaining objects of a run. Returns those that its extension should have removed.
async fn sweep(stage: &Stage, name: &str) -> Result<Vec<String>> {
    let world = &stage.world;
    let mut left = Vec::new();
    for (api_version, kind) in [
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ] {
        let api: Api<DynamicObject> =
            objects::api(&world.client, &json!({ "apiVersion": api_version, "kind": kind }));
        for object in api.list(&ListParams::default()).await? {
            let own = object.metadata.name.clone().unwrap_or_default();
            if !own.contains(name) {
                continue;
            }
            let labels = object.metadata.labels.unwrap_or_default();
            if labels.get(label::OWNER_NAME).is_some_and(|owner| owner == name)
                && object.metadata.deletion_timestamp.is_none()
            {
                left.push(format!("{kind} {own}"));
            }
            gone_is_fine(api.delete(&own, &DeleteParams::default()).await)?;
        }
    }
    gone_is_fine(catalogs(world).delete(name, &DeleteParams::default()).await)?;
    let policies: Api<ChangePolicy> = Api::all(world.client.clone());
    gone_is_fine(policies.delete(name, &DeleteParams::default()).await)?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    gone_is_fine(namespaces.delete(name, &DeleteParams::default()).await)?;
    Ok(left)
}

fn gone_is_fine<T>(deleted: Result<T, kube::Error>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}
