//! `olm show`.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::text::escape;
use serde_json::Value;

use super::versions::{PackageVersion, rows, versions, wanted};
use super::{PackageMetadata, Sources, names, package};
use crate::extension::cluster::catalogs::WholeCatalog;
use crate::hint::Hint;
use crate::output::{CommandResult, ObjectFormat, Status};
use crate::source::no_package;

#[derive(Debug, Args)]
#[command(
    after_help = "The table lists the 20 newest versions; -o json and yaml list all. PUBLISHED is the day that the author of the \
                  bundle gives.\n\nExamples:\n  olm show greeter\n  olm show greeter --all-versions\n  olm show greeter --version \
                  1.1.0\n  olm show greeter --catalog ./catalog"
)]
pub(crate) struct ShowArguments {
    /// Package to show
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    package: String,
    /// Show this version alone: its image, update edges, requirements and description
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// List all versions in the table
    #[arg(long, conflicts_with = "version")]
    all_versions: bool,
    #[command(flatten)]
    sources: Sources,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
}

pub(crate) fn show(arguments: &ShowArguments) -> CommandResult {
    let catalogs = arguments.sources.load()?;
    let found: Vec<(&WholeCatalog, PackageMetadata)> = catalogs
        .iter()
        .filter_map(|catalog| Some((catalog, package(&catalog.catalog, &arguments.package)?)))
        .collect();
    if found.is_empty() {
        let searched = searched(catalogs.iter());
        return Err(no_package(&arguments.package, &searched, names(&catalogs)));
    }
    match &arguments.version {
        Some(version) => show_version(arguments, version, &found),
        None => show_package(arguments, &found),
    }
}

/// The names of the catalogs.
fn searched<'c>(catalogs: impl Iterator<Item = &'c WholeCatalog>) -> String {
    let names: Vec<&str> = catalogs.map(|catalog| catalog.name.as_str()).collect();
    names.join(", ")
}

fn show_package(arguments: &ShowArguments, found: &[(&WholeCatalog, PackageMetadata)]) -> CommandResult {
    let values: Vec<Value> = found
        .iter()
        .map(|(catalog, package)| {
            let versions = versions(&catalog.catalog, &package.name);
            let mut value = package.json(&catalog.name);
            if let Some(value) = value.as_object_mut() {
                let versions = versions.iter().map(PackageVersion::summary);
                value.insert("versions".to_owned(), versions.collect());
            }
            value
        })
        .collect();
    let packages = found.iter().map(|(_, package)| package.name.clone());
    arguments.output.print(&values, packages, || {
        let texts: Vec<String> = found
            .iter()
            .map(|(catalog, package)| {
                let versions = versions(&catalog.catalog, &package.name);
                text(&catalog.name, package, &rows(&versions, arguments.all_versions))
            })
            .collect();
        texts.join("\n")
    })?;
    Ok(Status::Success)
}

fn show_version(
    arguments: &ShowArguments,
    version: &str,
    found: &[(&WholeCatalog, PackageMetadata)],
) -> CommandResult {
    let package = &arguments.package;
    let unlike = || Hint(format!("`olm show {package} --all-versions` lists the versions"));
    let Some(wanted) = wanted(version) else {
        return Err(anyhow!("{version:?} is not a version").context(unlike()));
    };
    let shown: Vec<(&str, PackageVersion<'_>)> = found
        .iter()
        .flat_map(|(catalog, _)| {
            let versions = versions(&catalog.catalog, package).into_iter();
            let wanted = versions.filter(|version| version.is(&wanted));
            wanted.map(|version| (catalog.name.as_str(), version))
        })
        .collect();
    if shown.is_empty() {
        let searched = searched(found.iter().map(|(catalog, _)| *catalog));
        let error = anyhow!("package {package:?} has no version {version} in {searched}");
        return Err(error.context(unlike()));
    }
    let values = shown.iter().map(|(catalog, version)| version.json(catalog));
    let values: Vec<Value> = values.collect();
    let bundles = shown.iter().map(|(_, version)| version.name().to_owned());
    arguments.output.print(&values, bundles, || {
        let texts: Vec<String> = shown
            .iter()
            .map(|(catalog, version)| version.text(catalog))
            .collect();
        texts.join("\n")
    })?;
    Ok(Status::Success)
}

/// The facts about a package, then the table of its versions, then its description.
fn text(catalog: &str, package: &PackageMetadata, versions: &str) -> String {
    let mut text = String::new();
    let channels: Vec<String> = package
        .channels
        .iter()
        .map(|(name, head)| format!("{name} ({head})"))
        .collect();
    let facts = [
        ("package", package.name.clone()),
        ("catalog", catalog.to_owned()),
        ("name", package.display_name.clone()),
        ("provider", package.publisher.provider().to_owned()),
        ("version", package.version.clone()),
        ("default", package.default_channel.clone()),
        ("channels", channels.join(", ")),
        ("keywords", package.keywords.join(", ")),
        ("categories", package.categories.join(", ")),
        ("apis", package.apis.join(", ")),
    ];
    for (what, value) in facts.into_iter().chain(package.publisher.lines()) {
        if !value.is_empty() {
            let _ = writeln!(text, "{what:<12}{}", escape(&value));
        }
    }
    for message in &package.deprecated {
        let _ = writeln!(text, "deprecated  {}", escape(message.trim_end()));
    }
    let _ = write!(text, "\n{versions}");
    if !package.description.is_empty() {
        let _ = writeln!(text, "\n{}", package.description.trim_end());
    }
    text
}
