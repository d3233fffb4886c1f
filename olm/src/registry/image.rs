//! `olm image`: images as they are.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use olm_image::{Limits, LocalImage, Platform};

use super::RegistryArguments;
use crate::output::{CommandResult, Status};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Push an OCI archive or layout to a registry
    Push(PushArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Pushes the image unchanged and prints its reference by digest.\n\nExamples:\n  olm image push catalogd.tar \
                  registry.example/olmv1/catalogd:v0.1.0"
)]
pub(crate) struct PushArguments {
    /// Archive or directory in OCI layout
    archive: PathBuf,
    /// Reference of the image, for example `registry.example/olmv1/catalogd:v0.1.0`
    reference: String,
    #[command(flatten)]
    registry: RegistryArguments,
}

impl Command {
    pub(crate) fn run(&self) -> CommandResult {
        match self {
            Self::Push(arguments) => push(arguments),
        }
    }
}

fn push(arguments: &PushArguments) -> CommandResult {
    let archive = &arguments.archive;
    let image = LocalImage::open(archive, &Platform::host(), &Limits::catalog())
        .and_then(|image| image.to_built())
        .with_context(|| format!("cannot read the image in {}", archive.display()))?;
    arguments.registry.push(&arguments.reference, &image)?;
    Ok(Status::Success)
}
