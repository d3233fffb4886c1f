//! `olm bundle convert`.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::Args;
use olm_author::catalog_entry::{Entry, assemble};
use olm_author::package_manifest;
use olm_fbc::Catalog;

use super::faults_shown;
use crate::catalog::{CatalogFormat, MigrateArguments, image_of, image_template};
use crate::hint::Hint;
use crate::output::{CommandResult, Status, note, print};
use crate::registry::RegistryArguments;
use crate::source::{all_files, open_bundle, warn_of_missing_image};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Bundles (directories and images), or directories of package manifests
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Reference of the image of a bundle that is a directory, with {package}, {name} and {version} in it
    #[arg(long, value_name = "REFERENCE", default_value = "", value_parser = image_template)]
    image_ref_template: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = CatalogFormat::Yaml)]
    output: CatalogFormat,
    #[command(flatten)]
    migrate: MigrateArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let mut entries: Vec<Entry> = Vec::new();
    let mut catalog = Catalog::default();
    let image = |entry: &Entry| image_of(&arguments.image_ref_template, entry);
    for source in &arguments.sources {
        let path = Path::new(source);
        let is_bundle = path.join("manifests").is_dir();
        if path.is_dir() && !is_bundle && !path.join("oci-layout").is_file() {
            match package_manifest::convert(&all_files(path)?, &image) {
                Ok(converted) => {
                    converted
                        .warnings
                        .iter()
                        .for_each(|warning| note(&format!("warning: {warning}")));
                    add(&mut catalog, converted.catalog);
                }
                Err(faults) => {
                    let error = anyhow!("{source} cannot be converted: {}", faults.join("; "));
                    return Err(error.context(Hint(
                        "a bundle is a directory with manifests and metadata in it; package manifests are a file \
                         PACKAGE.package.yaml beside a directory for each version"
                            .to_owned(),
                    )));
                }
            }
            continue;
        }
        let converted = || -> anyhow::Result<Entry> {
            let mut bundle = open_bundle(source, &arguments.registry)?;
            let named = bundle.name_image(image).and_then(|()| bundle.entry());
            named.with_context(|| faults_shown(source))
        };
        entries.push(converted().with_context(|| format!("cannot convert {source:?}"))?);
    }
    let assembled = assemble(&entries);
    for entry in &entries {
        other_default_channel(entry, &assembled);
    }
    add(&mut catalog, assembled);
    arguments.migrate.apply(&mut catalog);
    print(&arguments.output.write(&catalog))?;
    let without: Vec<&str> = catalog
        .bundles
        .iter()
        .filter(|bundle| bundle.image.is_empty())
        .map(|bundle| bundle.name.as_str())
        .collect();
    without.iter().copied().for_each(warn_of_missing_image);
    if !without.is_empty() {
        note(
            "hint: push the bundle and convert its image, or say where it is going to be by --image-ref-template \
             REGISTRY/{package}-bundle:v{version}",
        );
    }
    Ok(Status::Success)
}

/// Warns when the default channel that the bundle names is no channel of its package.
fn other_default_channel(entry: &Entry, catalog: &Catalog) {
    let Some(named) = &entry.default_channel else {
        return;
    };
    let package = &entry.bundle.package;
    let mut channels = catalog.channels.iter();
    if channels.any(|channel| channel.package == *package && channel.name == *named) {
        return;
    }
    let taken = catalog.packages.iter().find(|one| one.name == *package);
    let taken = taken.map_or("", |package| &package.default_channel);
    note(&format!(
        "warning: the default channel that {} names, {named:?}, is none of the channels of package {package:?}: the \
         default channel is {taken:?}",
        entry.bundle.name
    ));
}

fn add(catalog: &mut Catalog, more: Catalog) {
    catalog.packages.extend(more.packages);
    catalog.channels.extend(more.channels);
    catalog.bundles.extend(more.bundles);
}
