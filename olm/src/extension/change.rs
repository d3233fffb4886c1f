//! Commands that change a ClusterExtension, and their common parts: the patch, the confirmation, the wait.

pub(crate) mod ask;
pub(crate) mod pause;
pub(crate) mod pin;
pub(crate) mod upgrade;
pub(crate) mod wait;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use kube::api::{Api, Patch, PatchParams};
use olm_api::{ClusterExtension, names};
use serde_json::{Value, json};

use self::wait::{Goal, WaitArguments};
use super::cluster::Cluster;
use crate::output::{CommandResult, Status, print, print_json, print_text};

/// The field manager of changes.
pub(crate) const MANAGER: &str = "olm";
/// The resource of a ClusterExtension, as kubectl names it.
const RESOURCE: &str = "clusterextension";

/// The output format of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChangeFormat {
    /// For people.
    #[default]
    Text,
    /// The object, for programs.
    Json,
    /// The object, for both.
    Yaml,
    /// Kind and name alone.
    Name,
}

/// The options of a change.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChangeArguments {
    /// Change nothing; the API server checks the change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Output format: text, or the changed object
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: ChangeFormat,
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
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let api: Api<ClusterExtension> = Api::all(cluster.client.clone());
    let changed = cluster
        .runtime
        .block_on(api.patch(name, &params, &Patch::Merge(&patch)));
    let changed = changed.with_context(|| format!("cannot change ClusterExtension {name:?}"))?;
    report(arguments, &changed, done)?;
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
    if waits.wait && !arguments.dry_run {
        return wait::wait(cluster, waits, &changed, Goal::Ready(changed.generation()));
    }
    Ok(Status::Success)
}

/// Prints the change of an object.
pub(crate) fn report(
    arguments: &ChangeArguments,
    changed: &ClusterExtension,
    done: &str,
) -> anyhow::Result<()> {
    let name = changed.name();
    match arguments.output {
        ChangeFormat::Text => {
            let rehearsed = if arguments.dry_run { " (dry run)" } else { "" };
            print_text(&format!("{RESOURCE}/{name} {done}{rehearsed}\n"))
        }
        ChangeFormat::Json => print_json(&serde_json::to_value(changed)?),
        ChangeFormat::Yaml => print(&olm_yaml::to_yaml(&serde_json::to_value(changed)?)),
        ChangeFormat::Name => print_text(&format!("{RESOURCE}.{}/{name}\n", names::GROUP)),
    }
}

/// A merge patch of `spec.source.catalog`.
fn of_source(fields: &Value) -> Value {
    json!({"spec": {"source": {"catalog": fields}}})
}
