//! `olm catalog list`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use olm_api::text::escape_json;
use olm_fbc::Catalog;
use serde_json::{Value, json};

use crate::output::table::table;
use crate::output::{CommandResult, Status, print};
use crate::registry::RegistryArguments;
use crate::search::packages;
use crate::source::{MalformedBlobs, load_catalog, no_package};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Content of the list
    #[arg(value_enum)]
    what: ListedSchema,
    /// Catalog: a file, directory, image, or the address of a running catalogd
    #[arg(value_name = "SOURCE")]
    source: String,
    /// List this package only
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    package: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: CatalogListFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListedSchema {
    /// Packages with their default channels.
    Packages,
    /// Channels with their heads.
    Channels,
    /// Bundles with their place in each channel.
    Bundles,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum CatalogListFormat {
    /// Columns.
    #[default]
    Table,
    /// A list of JSON objects.
    Json,
    /// A YAML list.
    Yaml,
}

type Rows = Vec<Vec<String>>;

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let catalog = load_catalog(&arguments.source, &arguments.registry, MalformedBlobs::LeftOut)?;
    if let Some(package) = &arguments.package
        && !catalog.packages.iter().any(|found| found.name == *package)
    {
        let known = catalog.packages.iter().map(|package| package.name.as_str());
        return Err(no_package(package, &arguments.source, known));
    }
    let wanted = |package: &str| {
        arguments
            .package
            .as_deref()
            .is_none_or(|wanted| wanted == package)
    };
    let (heads, rows): (&[&str], Rows) = match arguments.what {
        ListedSchema::Packages => (
            &["NAME", "DISPLAY NAME", "DEFAULT CHANNEL"],
            package_rows(&catalog, &wanted),
        ),
        ListedSchema::Channels => (&["PACKAGE", "CHANNEL", "HEAD"], channel_rows(&catalog, &wanted)),
        ListedSchema::Bundles => (
            &[
                "PACKAGE",
                "CHANNEL",
                "BUNDLE",
                "REPLACES",
                "SKIPS",
                "SKIP RANGE",
                "IMAGE",
            ],
            bundle_rows(&catalog, &wanted),
        ),
    };
    print(&match arguments.output {
        CatalogListFormat::Table => table(heads, &rows),
        CatalogListFormat::Json => escape_json(&format!("{:#}\n", objects(heads, &rows))).into_owned(),
        CatalogListFormat::Yaml => olm_yaml::to_yaml(&objects(heads, &rows)),
    })?;
    Ok(Status::Success)
}

fn objects(heads: &[&str], rows: &[Vec<String>]) -> Value {
    let key = |head: &str| {
        let mut words = head.split(' ').map(str::to_lowercase);
        let first = words.next().unwrap_or_default();
        words.fold(first, |key, word| {
            let mut letters = word.chars();
            let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
            key + &initial.into_iter().chain(letters).collect::<String>()
        })
    };
    rows.iter()
        .map(|row| {
            let fields = heads.iter().zip(row).map(|(head, cell)| (key(head), json!(cell)));
            Value::Object(fields.collect())
        })
        .collect()
}

fn package_rows(catalog: &Catalog, wanted: &dyn Fn(&str) -> bool) -> Rows {
    packages(catalog)
        .into_iter()
        .filter(|package| wanted(&package.name))
        .map(|package| vec![package.name, package.display_name, package.default_channel])
        .collect()
}

fn channel_rows(catalog: &Catalog, wanted: &dyn Fn(&str) -> bool) -> Rows {
    let packages = packages(catalog)
        .into_iter()
        .filter(|package| wanted(&package.name));
    packages
        .flat_map(|package| {
            let name = package.name;
            package
                .channels
                .into_iter()
                .map(move |(channel, head)| vec![name.clone(), channel, head])
        })
        .collect()
}

fn bundle_rows(catalog: &Catalog, wanted: &dyn Fn(&str) -> bool) -> Rows {
    let mut rows: Rows = Vec::new();
    for channel in catalog.channels.iter().filter(|channel| wanted(&channel.package)) {
        for entry in &channel.entries {
            let bundle = catalog
                .bundles
                .iter()
                .find(|bundle| bundle.package == channel.package && bundle.name == entry.name);
            rows.push(vec![
                channel.package.clone(),
                channel.name.clone(),
                entry.name.clone(),
                entry.replaces().unwrap_or_default().to_owned(),
                entry.skips.join(","),
                entry.skip_range().unwrap_or_default().to_owned(),
                bundle.map(|bundle| bundle.image.clone()).unwrap_or_default(),
            ]);
        }
    }
    rows.sort();
    rows
}
