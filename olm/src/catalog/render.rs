//! `olm catalog render`.

use clap::{Args, ValueEnum};
use olm_author::catalog_entry::Entry;
use olm_author::migrate::{self, migrate};
use olm_fbc::Catalog;
use olm_image::Reference;

use super::CatalogFormat;
use crate::output::{CommandResult, Status, print};
use crate::registry::RegistryArguments;
use crate::source::{Source, load, open};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalogs and bundles: files, directories, images in a registry or on disk, addresses of a running catalogd
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: CatalogFormat,
    #[command(flatten)]
    migrate: MigrateArguments,
    /// Reference of the image of a bundle that is a directory, with {package}, {name} and {version} in it
    #[arg(long, value_name = "REFERENCE", value_parser = image_template)]
    image_ref_template: Option<String>,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// The level to which a catalog is migrated.
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateArguments {
    /// Migrate the catalog to the newest format
    #[arg(long, conflicts_with = "migrate_level")]
    migrate: bool,
    /// Migrate the catalog to this format
    #[arg(long, value_enum, value_name = "LEVEL")]
    migrate_level: Option<Level>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// As it is.
    None,
    /// olm.csv.metadata instead of olm.bundle.object.
    BundleObjectToCsvMetadata,
}

impl MigrateArguments {
    pub(crate) fn apply(&self, catalog: &mut Catalog) {
        let level = match self.migrate_level {
            Some(Level::BundleObjectToCsvMetadata) => migrate::Level::BundleObjectToCsvMetadata,
            None if self.migrate => migrate::Level::BundleObjectToCsvMetadata,
            Some(Level::None) | None => migrate::Level::None,
        };
        migrate(catalog, level);
    }
}

/// The placeholders in a template: the word, and the field of the Go template that earlier tools used.
const WORDS: [(&str, &str); 3] = [("package", "Package"), ("name", "Name"), ("version", "Version")];

/// A template with known placeholders that result in references; an empty one is allowed, too.
pub(crate) fn image_template(text: &str) -> Result<String, String> {
    let sample = fill(text, ["package", "name", "1.0.0"]);
    if sample.contains(['{', '}']) {
        return Err("{package}, {name} and {version} are all that may stand in braces".to_owned());
    }
    if !sample.is_empty() {
        Reference::parse_familiar(&sample)
            .map_err(|fault| format!("{sample:?} is not an image reference: {fault}"))?;
    }
    Ok(text.to_owned())
}

fn fill(template: &str, values: [&str; 3]) -> String {
    WORDS
        .iter()
        .zip(values)
        .fold(template.to_owned(), |text, ((word, field), value)| {
            text.replace(&format!("{{{{.{field}}}}}"), value)
                .replace(&format!("{{{word}}}"), value)
        })
}

/// The reference of a bundle's image.
pub(crate) fn image_of(template: &str, entry: &Entry) -> String {
    let version = entry
        .bundle
        .version_release()
        .map(|version| version.version.to_string());
    let version = version.unwrap_or_default();
    fill(template, [&entry.bundle.package, &entry.bundle.name, &version])
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let mut catalog = Catalog::default();
    for source in &arguments.sources {
        match &arguments.image_ref_template {
            Some(template) if std::path::Path::new(source).is_dir() => {
                match open(source, &arguments.registry)? {
                    Source::Bundle(mut bundle) => {
                        bundle.name_image(|entry| image_of(template, entry))?;
                        catalog.bundles.push(bundle.entry()?.bundle);
                    }
                    Source::Catalog(_) => load(source, &arguments.registry, &mut catalog)?,
                }
            }
            _ => load(source, &arguments.registry, &mut catalog)?,
        }
    }
    arguments.migrate.apply(&mut catalog);
    print(&arguments.output.write(&catalog))?;
    Ok(Status::Success)
}
