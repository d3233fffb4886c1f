//! `olm pause` and `olm resume`.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::names::user;
use serde_json::json;

use super::wait::WaitArguments;
use super::{ChangeArguments, change, change_and_wait};
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::Cluster;
use crate::output::{CommandResult, Status};

#[derive(Debug, Args)]
#[command(after_help = format!("Sets the annotation {} of the ClusterExtension. A paused extension gets no new revision, and \
                         its drift stays; the operator itself keeps running.\n\nExamples:\n  olm pause greeter", user::PAUSED))]
pub(crate) struct PauseArguments {
    /// ClusterExtension to pause
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Args)]
#[command(after_help = format!("Removes the annotation {} of the ClusterExtension. OLM then repairs drift: it overwrites changes \
                         to fields that the bundle sets.\n\nExamples:\n  olm resume greeter --wait", user::PAUSED))]
pub(crate) struct ResumeArguments {
    /// ClusterExtension to resume
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn pause(arguments: &PauseArguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let extension = cluster.extension(&arguments.extension)?;
    let done = match extension.annotation(user::PAUSED) {
        Some("true") => "is paused already",
        _ => "paused",
    };
    let patch = json!({"metadata": {"annotations": {user::PAUSED: "true"}}});
    change(&cluster, &arguments.change, &extension, patch, done)?;
    Ok(Status::Success)
}

pub(crate) fn resume(arguments: &ResumeArguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let extension = cluster.extension(&arguments.extension)?;
    let done = match extension.annotation(user::PAUSED) {
        None => "is not paused",
        Some(_) => "resumed",
    };
    let patch = json!({"metadata": {"annotations": {user::PAUSED: null}}});
    change_and_wait(
        &cluster,
        &arguments.change,
        &arguments.wait,
        &extension,
        patch,
        done,
    )
}
