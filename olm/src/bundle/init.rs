//! `olm bundle init`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use olm_author::draft::{Definition, Draft, draft};
use olm_image::Reference;

use crate::hint::Hint;
use crate::input::{MAX_BUNDLE_FILE, read};
use crate::output::{CommandResult, Status, note, print};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the bundle; created if it does not exist
    directory: PathBuf,
    /// Name of the package, `my-operator` for example
    #[arg(long)]
    name: String,
    /// Version of the bundle, `0.1.0` for example
    #[arg(long)]
    version: String,
    /// Image of the operator, `registry.example/my-operator:v0.1.0` for example
    #[arg(long)]
    image: String,
    /// File with a custom resource definition that the operator provides; may be repeated
    #[arg(long = "crd", value_name = "FILE")]
    definitions: Vec<PathBuf>,
    /// Channel that the bundle is in; may be repeated
    #[arg(
        short = 'c',
        long = "channel",
        value_name = "CHANNEL",
        default_value = "stable"
    )]
    channels: Vec<String>,
    /// Default channel of the package [default: the first channel]
    #[arg(long, value_name = "CHANNEL")]
    default_channel: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    Reference::parse_familiar(&arguments.image).with_context(|| {
        format!(
            "{:?} is not an image reference; write for example registry.example/my-operator:v0.1.0",
            arguments.image
        )
    })?;
    let mut definitions = Vec::new();
    for path in &arguments.definitions {
        let definition = Definition::read(&read(path, MAX_BUNDLE_FILE)?);
        definitions.push(definition.with_context(|| format!("cannot take {}", path.display()))?);
    }
    let first = arguments.channels.first().map(String::as_str).unwrap_or_default();
    let files = draft(&Draft {
        name: &arguments.name,
        version: &arguments.version,
        image: &arguments.image,
        channels: &arguments.channels,
        default_channel: arguments.default_channel.as_deref().unwrap_or(first),
        definitions: &definitions,
    })?;
    let home = &arguments.directory;
    for part in ["manifests", "metadata"] {
        let there = home.join(part);
        if there.symlink_metadata().is_ok() {
            let error = anyhow!("{} exists already, and nothing is overwritten", there.display());
            let hint =
                "name a directory without manifests and metadata in it, or change the files that are there";
            return Err(error.context(Hint(hint.to_owned())));
        }
    }
    let mut written = String::new();
    for (path, content) in &files {
        let path = home.join(path);
        let Some(parent) = path.parent() else {
            bail!("{} is in no directory", path.display());
        };
        let failed = || format!("cannot write {}", path.display());
        fs::create_dir_all(parent).with_context(failed)?;
        fs::write(&path, content).with_context(failed)?;
        let _ = writeln!(written, "{}", path.display());
    }
    print(&written)?;
    let (shown, name, version) = (home.display(), &arguments.name, &arguments.version);
    note(&format!(
        "next: `olm bundle validate {shown}`, then `olm bundle push {shown} REGISTRY/{name}-bundle:v{version}`"
    ));
    Ok(Status::Success)
}
