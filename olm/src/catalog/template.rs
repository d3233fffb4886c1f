//! `olm catalog template` and `olm catalog convert-template`.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use olm_author::template::{Bundles, Kind, Template, TemplateError, convert as to_template};
use olm_fbc::graph::{PackageGraph, mermaid};
use olm_fbc::similar::nearest;
use olm_fbc::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

use super::CatalogFormat;
use super::render::{MigrateArguments, image_of, image_template};
use crate::hint::Hint;
use crate::input::read;
use crate::output::{CommandResult, Status, note, print};
use crate::registry::RegistryArguments;
use crate::source::{MalformedBlobs, load_catalog, open_bundle};

/// The largest template that is read, in bytes.
const MAX_TEMPLATE: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Required kind of template
    #[arg(value_enum)]
    kind: KindName,
    /// File with the template; `-` is standard input
    #[arg(default_value = "-")]
    file: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: TemplateFormat,
    #[command(flatten)]
    migrate: MigrateArguments,
    /// Reference of the image of a bundle that is a directory, with {package}, {name} and {version} in it
    #[arg(long, value_name = "REFERENCE", default_value = "", value_parser = image_template)]
    image_ref_template: String,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindName {
    /// The kind that the template names.
    Any,
    /// A catalog with image references in place of bundles.
    Basic,
    /// Bundles from whose versions channels follow.
    Semver,
    /// A catalog with bundles that replace others.
    Substitutes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum TemplateFormat {
    /// A stream of indented JSON objects.
    #[default]
    Json,
    /// One line of JSON for each object.
    Jsonl,
    /// YAML documents.
    Yaml,
    /// The update graphs as a flowchart.
    Mermaid,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let text = if arguments.file == "-" {
        let mut text = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_TEMPLATE + 1)
            .read_to_end(&mut text)?;
        if text.len() as u64 > MAX_TEMPLATE {
            bail!("the template is larger than {MAX_TEMPLATE} bytes");
        }
        text
    } else {
        read(Path::new(&arguments.file), MAX_TEMPLATE)?
    };
    let template = Template::parse(&text).map_err(|error| unusable(error, &arguments.file))?;
    let wanted = match arguments.kind {
        KindName::Any => template.kind(),
        KindName::Basic => Kind::Basic,
        KindName::Semver => Kind::Semver,
        KindName::Substitutes => Kind::Substitutes,
    };
    if template.kind() != wanted {
        bail!(
            "{} has the schema {}, not {}",
            arguments.file,
            template.kind().schema(),
            wanted.schema()
        );
    }
    let mut catalog = template.render(&bundles(&template, arguments)?)?;
    let without: Vec<&str> = catalog
        .bundles
        .iter()
        .filter(|bundle| bundle.image.is_empty())
        .map(|bundle| bundle.name.as_str())
        .collect();
    if !without.is_empty() {
        note(&format!(
            "warning: bundles from directories have no image, so that `olm catalog validate` refuses the catalog: {}\n\
             hint: say where their images will be by --image-ref-template, or push them by `olm bundle push` and name the \
             images in the template",
            without.join(", ")
        ));
    }
    arguments.migrate.apply(&mut catalog);
    print(&match arguments.output {
        TemplateFormat::Json => CatalogFormat::Json.write(&catalog),
        TemplateFormat::Jsonl => CatalogFormat::Jsonl.write(&catalog),
        TemplateFormat::Yaml => CatalogFormat::Yaml.write(&catalog),
        TemplateFormat::Mermaid => {
            let packages = catalog.packages.iter();
            let graphs: Vec<PackageGraph> = packages
                .filter_map(|package| PackageGraph::new(&catalog, &package.name))
                .collect();
            mermaid(&graphs)
        }
    })?;
    Ok(Status::Success)
}

fn unusable(error: TemplateError, file: &str) -> anyhow::Error {
    let schema = match &error {
        TemplateError::UnknownSchema(schema) => schema.as_str(),
        _ => "",
    };
    let meant = nearest(schema, Kind::ALL.map(Kind::schema));
    let hint = if matches!(schema, SCHEMA_PACKAGE | SCHEMA_CHANNEL | SCHEMA_BUNDLE) {
        "this is a catalog already; `olm catalog convert-template` makes a template of one".to_owned()
    } else if let Some(meant) = meant {
        format!("did you mean {meant}?")
    } else {
        let schemas = Kind::ALL.map(Kind::schema).join(", ");
        format!("a template is one object with one of the schemas {schemas}")
    };
    anyhow::Error::new(error)
        .context(format!("cannot use {file}"))
        .context(Hint(hint))
}

/// The content of the bundle images of the template. The error lists all images that cannot be fetched.
fn bundles(template: &Template, arguments: &Arguments) -> anyhow::Result<Bundles> {
    let mut bundles = Bundles::new();
    let mut faults = Vec::new();
    for image in template.images() {
        let found = open_bundle(image, &arguments.registry).and_then(|mut bundle| {
            bundle.name_image(|entry| image_of(&arguments.image_ref_template, entry))?;
            Ok(vec![bundle.entry()?.bundle])
        });
        if let Err(error) = &found {
            faults.push(format!("{image}: {error:#}"));
        }
        bundles.insert(image.to_owned(), found.map_err(|error| format!("{error:#}")));
    }
    match faults.as_slice() {
        [] | [_] => Ok(bundles),
        several => bail!(
            "{} bundles cannot be rendered:\n{}",
            several.len(),
            several.join("\n")
        ),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// Kind of the template
    #[arg(value_enum)]
    kind: ConvertKind,
    /// Catalog: a file, directory, image, or the address of a running catalogd
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: TemplateForm,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ConvertKind {
    /// Bundles become nothing but their images.
    Basic,
    /// The catalog as it is, without substitutions yet.
    Substitutes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum TemplateForm {
    /// YAML.
    #[default]
    Yaml,
    /// Indented JSON.
    Json,
}

pub(crate) fn convert(arguments: &ConvertArguments) -> CommandResult {
    let catalog = load_catalog(&arguments.source, &arguments.registry, MalformedBlobs::Refused)?;
    let text = match arguments.kind {
        ConvertKind::Basic => to_template::basic(&catalog),
        ConvertKind::Substitutes => to_template::substitutes(&catalog),
    };
    let value: serde_json::Value = serde_json::from_str(&text).context("the template nests too deep")?;
    print(&match arguments.output {
        TemplateForm::Yaml => format!("---\n{}", olm_yaml::to_yaml(&value)),
        TemplateForm::Json => format!("{value:#}\n"),
    })?;
    Ok(Status::Success)
}
