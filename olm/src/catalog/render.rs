//! `olm catalog render`.

use clap::{Args, ValueEnum};
use olm_bundle::catalog::Entry;
use olm_fbc::Catalog;
use olm_fbc::migrate::{self, migrate};

use super::Form;
use crate::output::{Outcome, Verdict, print};
use crate::registry::RegistryArguments;
use crate::source::{Source, load, open};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalogs and bundles: files, directories, images in a registry or on disk, addresses of a running catalogd
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Form of the catalog
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    migrate: MigrateArguments,
    /// Reference of the image of a bundle that is a directory, with {package}, {name} and {version} in it
    #[arg(long, value_name = "REFERENCE")]
    image_ref_template: Option<String>,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// How far a catalog is brought to newer forms.
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateArguments {
    /// Bring the catalog to the newest form
    #[arg(long, conflicts_with = "migrate_level")]
    migrate: bool,
    /// Bring the catalog to this form
    #[arg(long, value_enum, value_name = "LEVEL")]
    migrate_level: Option<Level>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// As it is.
    None,
    /// One description of each bundle in the place of all its manifests.
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

/// The reference of a bundle's image. The words of the Go template that tools before this one took are understood too.
pub(crate) fn image_of(template: &str, entry: &Entry) -> String {
    let version = entry
        .bundle
        .version_release()
        .map(|version| version.version.to_string());
    let values = [
        ("package", "Package", entry.bundle.package.clone()),
        ("name", "Name", entry.bundle.name.clone()),
        ("version", "Version", version.unwrap_or_default()),
    ];
    values
        .iter()
        .fold(template.to_owned(), |text, (word, field, value)| {
            text.replace(&format!("{{{{.{field}}}}}"), value)
                .replace(&format!("{{{word}}}"), value)
        })
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut catalog = Catalog::default();
    for source in &arguments.sources {
        match &arguments.image_ref_template {
            Some(template) if std::path::Path::new(source).is_dir() => {
                match open(source, &arguments.registry)? {
                    Source::Bundle(mut bundle) => {
                        bundle.image = image_of(template, &bundle.entry()?);
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
    Ok(Verdict::Good)
}
