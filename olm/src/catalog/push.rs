//! `olm catalog push`.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use olm_fbc::check::{Rule, Stage};
use olm_image::{BuiltImage, LayerBuilder};

use super::validate::{check, summary};
use crate::hint::Hint;
use crate::input::{self, CATALOG_DIRECTORY, CatalogFiles};
use crate::output::{CommandResult, Status, note};
use crate::registry::{RegistryArguments, astray, data_image};
use crate::source::{CONFIGS_LABEL, faults_shown};

/// The directory of the catalog in an image.
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

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let image = image(&arguments.directory)?;
    arguments.registry.push(&arguments.reference, &image)?;
    Ok(Status::Success)
}

/// An image of the catalog in a directory. A catalog with an object that does not match its schema is refused, because
/// other tools refuse it as a whole, and so is one with a link that leads outside the image. Other faults cause a
/// warning.
pub(crate) fn image(directory: &Path) -> anyhow::Result<BuiltImage> {
    input::directory(directory, CATALOG_DIRECTORY)?;
    let mut layer = LayerBuilder::new();
    layer.tree(CONFIGS_DIRECTORY, directory)?;
    let files = CatalogFiles::open_but(directory, astray(&layer, CONFIGS_DIRECTORY, directory))?;
    let report = check(&files)?;
    if let Some(finding) = report
        .errors()
        .find(|finding| finding.rule.stage() == Stage::Load)
    {
        let place = finding
            .place
            .as_ref()
            .map(|place| format!("{place}: "))
            .unwrap_or_default();
        let error = anyhow!("the catalog cannot be loaded: {place}{}", finding.message);
        return Err(if directory.join("manifests").is_dir() {
            error.context(Hint("this looks like a bundle: `olm bundle push`".to_owned()))
        } else {
            error.context(faults_shown(&directory.display().to_string()))
        });
    }
    let is_empty = report
        .findings
        .iter()
        .any(|finding| finding.rule == Rule::CatalogEmpty);
    if is_empty {
        files.warn_of_emptiness(&directory.display().to_string());
    } else if !report.is_valid() {
        note(&format!(
            "warning: the catalog is not valid ({}); see `olm catalog validate {}`",
            summary(&report),
            directory.display()
        ));
    } else if !report.findings.is_empty() {
        note(&format!(
            "warning: the catalog is {}; see `olm catalog validate {}`",
            summary(&report),
            directory.display()
        ));
    }
    labelled(layer)
}

/// An image of a catalog that exists elsewhere, as JSON lines. Its faults do not matter: the source is served with them.
pub(crate) fn copied_image(text: String) -> anyhow::Result<BuiltImage> {
    let mut layer = LayerBuilder::new();
    layer.bytes(&format!("{CONFIGS_DIRECTORY}/catalog.json"), text, 0o644)?;
    labelled(layer)
}

fn labelled(layer: LayerBuilder) -> anyhow::Result<BuiltImage> {
    data_image(layer, [(CONFIGS_LABEL.to_owned(), CONFIGS_DIRECTORY.to_owned())])
}
