//! `olm pin` and `olm unpin`.

use anyhow::anyhow;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::ClusterExtension;
use serde_json::{Value, json};

use super::upgrade::{is_exact, is_not_rolled_back};
use super::wait::WaitArguments;
use super::{ChangeArguments, change_and_wait, of_source};
use crate::extension::access::ClusterArguments;
use crate::extension::choose::{Origin, ResolutionInput};
use crate::extension::cluster::{Cluster, newest_active};
use crate::extension::lookup::revisions;
use crate::extension::rollback::plan::restoration_of;
use crate::hint::Hint;
use crate::output::{CommandResult, Status, note};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
#[command(
    after_help = "Sets spec.source.catalog.version to one version. For another version than the installed one the catalogs \
                  are asked first: nothing changes when no update edge leads to it. After `olm rollback`, `olm unpin` comes \
                  first.\n\nExamples:\n  olm pin greeter\n  olm pin \
                  greeter 1.1.0 --wait\n\nExit status: 0 on success, 1 when no bundle fits or the command fails; with --wait 4 \
                  when a person must change something, 5 when the time is over."
)]
pub(crate) struct PinArguments {
    /// ClusterExtension to pin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Version to pin it to [default: the installed one]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    version: Option<String>,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Removes spec.source.catalog.version, or sets the range that the extension follows from then on. After `olm \
                  rollback` it restores the settings that the rollback changed.\n\nExamples:\n  \
                  olm unpin greeter\n  olm unpin greeter --version 1.x"
)]
pub(crate) struct UnpinArguments {
    /// ClusterExtension to unpin
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Range of versions to follow [default: every version]
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    version: Option<String>,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn pin(arguments: &PinArguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let present = cluster.extension(&arguments.extension)?;
    let name = present.name();
    let status = present.status.as_ref();
    let installed = status.and_then(|status| status.install.as_ref());
    let installed = installed.map(|install| install.bundle.version.as_str());
    let Some(version) = arguments.version.as_deref().or(installed) else {
        let error = anyhow!("ClusterExtension {name:?} has nothing installed");
        return Err(error.context(Hint("name the version to pin it to".to_owned())));
    };
    if !is_exact(version) {
        let error = anyhow!("{version:?} is not a version");
        return Err(error.context(Hint(format!(
            "run `olm upgrade {name} --version RANGE` for a range of versions"
        ))));
    }
    if installed != Some(version) {
        is_not_rolled_back(&present)?;
        if !is_offered(arguments, &cluster, &present, version)? {
            return Ok(Status::Failure);
        }
    }
    let done = match installed {
        Some(installed) if installed != version => format!("pinned to {version}; it is at {installed}"),
        _ => format!("pinned to {version}"),
    };
    let patch = of_source(&json!({"version": version}));
    change_and_wait(
        &cluster,
        &arguments.change,
        &arguments.wait,
        &present,
        patch,
        &done,
    )
}

/// Whether the catalogs have that version for the extension; prints the reason if not.
fn is_offered(
    arguments: &PinArguments,
    cluster: &Cluster,
    present: &ClusterExtension,
    version: &str,
) -> anyhow::Result<bool> {
    let sets = cluster.runtime.block_on(revisions(&cluster.client, present))?;
    let origin = Origin {
        catalogs: &[],
        registry: &arguments.registry,
        access: &arguments.cluster,
    };
    let choice = ResolutionInput::gather(cluster, origin, present, newest_active(&sets))?;
    let outcome = choice.with_version(Some(version.to_owned())).resolve();
    if let Err(refusal) = &outcome {
        note(&format!("refused: {refusal}"));
    }
    Ok(outcome.is_ok())
}

pub(crate) fn unpin(arguments: &UnpinArguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let present = cluster.extension(&arguments.extension)?;
    let filter = present.spec.source.catalog.as_ref();
    let before = filter
        .and_then(|filter| filter.version.as_deref())
        .unwrap_or_default();
    let restored = restoration_of(&present);
    // A rollback is undone also where somebody has set a range meanwhile.
    if !is_exact(before) && restored.is_none() {
        let error = anyhow!(
            "ClusterExtension {:?} is not pinned: its version range is {before:?}",
            present.name()
        );
        return Err(error.context(Hint(format!(
            "run `olm upgrade {} --version RANGE` to set another range",
            present.name()
        ))));
    }
    let mut patch = of_source(&json!({"version": arguments.version}));
    let is_rolled_back = restored.is_some();
    if let Some(restored) = restored {
        patch = restored;
        if let (Some(range), Some(version)) = (
            &arguments.version,
            patch.pointer_mut("/spec/source/catalog/version"),
        ) {
            *version = json!(range);
        }
    }
    let range = patch
        .pointer("/spec/source/catalog/version")
        .and_then(Value::as_str);
    let mut done = match range.filter(|range| !range.is_empty()) {
        Some(range) => format!("unpinned from {before}; it follows {range:?}"),
        None => format!("unpinned from {before}; it follows every version"),
    };
    if is_rolled_back {
        done.push_str("; channels, upgradeConstraintPolicy and crd-policy are those before the rollback");
    }
    change_and_wait(
        &cluster,
        &arguments.change,
        &arguments.wait,
        &present,
        patch,
        &done,
    )
}
