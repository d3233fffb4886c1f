//! `olm catalog push`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use olm_fbc::check::Stage;
use olm_image::LayerBuilder;

use super::validate::{check, summary};
use crate::input::CatalogFiles;
use crate::output::{Outcome, Verdict, note};
use crate::registry::{RegistryArguments, data_image};

/// The label that says where in the image the catalog is.
const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// Where we put it.
const CONFIGS_DIRECTORY: &str = "/configs";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the catalog
    directory: PathBuf,
    /// Reference of the image, for example `registry.example/catalogs/mine:latest`
    reference: String,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let report = check(&CatalogFiles::open_directory(&arguments.directory)?)?;
    if let Some(finding) = report
        .errors()
        .find(|finding| finding.rule.stage() == Stage::Load)
    {
        let place = finding
            .place
            .as_ref()
            .map(|place| format!("{place}: "))
            .unwrap_or_default();
        bail!("the catalog cannot be loaded: {place}{}", finding.message);
    }
    if !report.is_valid() {
        note(&format!(
            "warning: the catalog is not valid ({}); see `olm catalog validate`",
            summary(&report)
        ));
    }
    let mut layer = LayerBuilder::new();
    layer.tree(CONFIGS_DIRECTORY, &arguments.directory)?;
    let image = data_image(layer, [(CONFIGS_LABEL.to_owned(), CONFIGS_DIRECTORY.to_owned())])?;
    arguments.registry.push(&arguments.reference, &image)?;
    Ok(Verdict::Good)
}
