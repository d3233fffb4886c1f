//! `olm bundle push`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use olm_bundle::parse;
use olm_image::LayerBuilder;

use crate::hint::Hint;
use crate::input::{MAX_BUNDLE_FILE, bundle_files, read};
use crate::output::{CommandResult, Status};
use crate::registry::{RegistryArguments, astray, data_image};

use super::faults_shown;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the bundle, with `manifests/` and `metadata/` in it
    directory: PathBuf,
    /// Reference of the image, for example `registry.example/bundles/mine:v1.0.0`
    reference: String,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let files = bundle_files(&arguments.directory)?;
    if files.is_empty() {
        let error = anyhow!(
            "{:?} is not a bundle: it has neither of the directories manifests and metadata",
            arguments.directory.display().to_string()
        );
        return Err(error.context(Hint("a catalog is pushed by `olm catalog push`".to_owned())));
    }
    let shown = arguments.directory.display();
    parse(&files, &BTreeMap::new())
        .with_context(|| format!("{shown} is not a bundle that can be installed"))
        .with_context(|| faults_shown(&shown.to_string()))?;
    let mut layer = LayerBuilder::new();
    for part in ["manifests", "metadata", "tests"] {
        let directory = arguments.directory.join(part);
        if directory.is_dir() {
            layer.tree(&format!("/{part}"), &directory)?;
            // An installation does not need the scorecard tests.
            if part != "tests"
                && let Some(link) = astray(&layer, part, &directory).into_iter().next()
            {
                bail!(link.message);
            }
        }
    }
    let image = data_image(layer, labels(&arguments.directory)?)?;
    arguments.registry.push(&arguments.reference, &image)?;
    Ok(Status::Success)
}

/// The annotations of the bundle, which its image repeats as labels.
fn labels(directory: &std::path::Path) -> anyhow::Result<Vec<(String, String)>> {
    let path = directory.join("metadata/annotations.yaml");
    let annotations = olm_yaml::to_json(read(&path, MAX_BUNDLE_FILE)?)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let annotations = annotations
        .get("annotations")
        .and_then(serde_json::Value::as_object);
    Ok(annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect())
}
