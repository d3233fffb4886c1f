//! `olm catalog dockerfile`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;

use crate::hint::Hint;
use crate::input;
use crate::output::{CommandResult, Status, note};
use crate::source::CONFIGS_LABEL;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the catalog
    directory: PathBuf,
    /// Image to build on
    #[arg(short = 'i', long, default_value = "scratch", value_name = "IMAGE")]
    base_image: String,
    /// Image with `opm`, for a catalog that also serves itself over gRPC as earlier versions of OLM want it
    #[arg(short, long, value_name = "IMAGE")]
    builder_image: Option<String>,
    /// Further label of the image; may be repeated
    #[arg(
        short = 'l',
        long = "extra-labels",
        value_name = "KEY=VALUE",
        value_delimiter = ','
    )]
    labels: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let directory = &arguments.directory;
    input::directory(directory, input::CATALOG_DIRECTORY)?;
    if arguments.builder_image.as_deref() == Some("scratch") {
        bail!("the builder image holds opm: it cannot be \"scratch\"");
    }
    let absolute = directory
        .canonicalize()
        .with_context(|| format!("cannot read {}", directory.display()))?;
    let (Some(parent), Some(name)) = (
        absolute.parent(),
        absolute.file_name().and_then(|name| name.to_str()),
    ) else {
        bail!(
            "cannot place a Dockerfile beside {}: it has no parent directory",
            directory.display()
        );
    };
    let text = dockerfile(name, arguments)?;
    let path = parent.join(format!("{name}.Dockerfile"));
    write(&path, &text)?;
    note(&format!(
        "wrote {}; build it in {}",
        path.display(),
        parent.display()
    ));
    Ok(Status::Success)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).open(path);
    if opened
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
    {
        let error = anyhow!("{} exists and is not overwritten", path.display());
        return Err(error.context(Hint("remove it, or build with the one that is there".to_owned())));
    }
    let mut file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

fn dockerfile(directory: &str, arguments: &Arguments) -> anyhow::Result<String> {
    let mut text = String::new();
    if let Some(builder) = &arguments.builder_image {
        let _ = write!(
            text,
            "FROM {builder} AS builder\nADD {directory} /configs\n\
             RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]\n\n"
        );
    }
    let _ = writeln!(text, "FROM {}", arguments.base_image);
    if arguments.builder_image.is_some() {
        if arguments.base_image != "scratch" {
            text.push_str(
                "ENTRYPOINT [\"/bin/opm\"]\nCMD [\"serve\", \"/configs\", \"--cache-dir=/tmp/cache\"]\n",
            );
        }
        text.push_str("COPY --from=builder /configs /configs\nCOPY --from=builder /tmp/cache /tmp/cache\n");
    } else {
        let _ = writeln!(text, "ADD {directory} /configs");
    }
    let _ = writeln!(text, "LABEL {CONFIGS_LABEL}=/configs");
    for label in &arguments.labels {
        match label.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                let _ = writeln!(text, "LABEL {key}={value:?}");
            }
            _ => bail!("invalid label {label:?}: write KEY=VALUE"),
        }
    }
    Ok(text)
}
