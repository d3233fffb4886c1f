//! Commands that change a ClusterExtension, and their common parts: the patch, the confirmation, the wait.

pub(crate) mod ask;
pub(crate) mod pause;
pub(crate) mod pin;
pub(crate) mod upgrade;
pub(crate) mod wait;

use anyhow::{Context as _, bail};
use clap::Args;
use kube::api::{Api, Patch, PatchParams};
use olm_api::ClusterExtension;
use serde::Serialize;
use serde_json::{Value, json};

use self::wait::{Goal, WaitArguments};
use super::cluster::Cluster;
use crate::output::{CommandResult, ObjectFormat, Status, resource_name};

/// The field manager of changes.
pub(crate) const MANAGER: &str = "olm";
/// The resource of a ClusterExtension, as kubectl names it.
pub(crate) const RESOURCE: &str = "clusterextension";

/// The options of a change.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChangeArguments {
    /// Change nothing; the API server checks the change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Output format: a line, or the changed object
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: ObjectFormat,
}

/// Changes a ClusterExtension and reports it with the verb `done`, such as `paused`.
pub(crate) fn change(
    cluster: &Cluster,
    arguments: &ChangeArguments,
    seen: &ClusterExtension,
    mut patch: Value,
    done: &str,
) -> anyhow::Result<ClusterExtension> {
    let name = seen.name();
    if seen.is_deleting() {
        bail!("ClusterExtension {name:?} is being deleted");
    }
    // Another object may have taken the name meanwhile.
    if let Some(metadata) = patch.as_object_mut().and_then(|patch| {
        patch
            .entry("metadata")
            .or_insert_with(|| json!({}))
            .as_object_mut()
    }) {
        metadata.insert("uid".to_owned(), json!(seen.metadata.uid));
    }
    let params = PatchParams {
        dry_run: arguments.dry_run,
        ..PatchParams::apply(MANAGER)
    };
    let api: Api<ClusterExtension> = Api::all(cluster.client.clone());
    let changed = cluster
        .runtime
        .block_on(api.patch(name, &params, &Patch::Merge(&patch)));
    let changed = changed.with_context(|| format!("cannot change ClusterExtension {name:?}"))?;
    report(arguments, RESOURCE, name, &changed, done)?;
    Ok(changed)
}

/// Changes a ClusterExtension like [`change`], and waits for the result if the command line requests it.
pub(crate) fn change_and_wait(
    cluster: &Cluster,
    arguments: &ChangeArguments,
    waits: &WaitArguments,
    seen: &ClusterExtension,
    patch: Value,
    done: &str,
) -> CommandResult {
    let changed = change(cluster, arguments, seen, patch, done)?;
    wait_for(cluster, arguments, waits, &changed)
}

/// Waits for the result of a change if the command line requests it.
pub(crate) fn wait_for(
    cluster: &Cluster,
    arguments: &ChangeArguments,
    waits: &WaitArguments,
    changed: &ClusterExtension,
) -> CommandResult {
    if !waits.wait || arguments.dry_run {
        return Ok(Status::Success);
    }
    wait::wait(cluster, waits, changed, Goal::Ready(changed.generation()))
}

/// Prints the change of an object of this resource and name.
pub(crate) fn report(
    arguments: &ChangeArguments,
    resource: &str,
    name: &str,
    changed: &impl Serialize,
    done: &str,
) -> anyhow::Result<()> {
    let rehearsed = if arguments.dry_run { " (dry run)" } else { "" };
    let line = || format!("{resource}/{name} {done}{rehearsed}\n");
    arguments
        .output
        .print(changed, [resource_name(resource, name)], line)
}

/// A merge patch of `spec.source.catalog`.
fn of_source(fields: &Value) -> Value {
    json!({"spec": {"source": {"catalog": fields}}})
}
