//! `olm updates`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use clap::Args;
use olm_api::ClusterExtension;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_resolve::cluster::updates::{Updates, updates};
use olm_resolve::{Availability, Catalog, Content, Installed, Package, Request};
use serde_json::{Value, json};

use super::cluster::{Cluster, filter};
use super::{package, version};
use crate::input::CatalogFiles;
use crate::output::{Outcome, ReportFormat, Status, print_json, print_text};
use crate::registry::RegistryArguments;
use crate::source::{named_source, open_catalog};
use crate::table::table;

/// What stands for nothing in a table.
const NONE: &str = "-";

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Arguments {
    /// ClusterExtensions to look at [default: all]
    #[arg(value_name = "EXTENSION")]
    extensions: Vec<String>,
    /// Catalog to choose from: a file, directory, image, or address of a running catalogd, as SOURCE or NAME=SOURCE; may be
    /// repeated. Priority, labels and availability are those of the ClusterCatalog NAME
    #[arg(long = "catalog", required = true, value_name = "[NAME=]SOURCE")]
    catalogs: Vec<String>,
    #[command(flatten)]
    registry: RegistryArguments,
    /// Path to the kubeconfig file [default: $KUBECONFIG, then that of kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
}

/// A catalog that was opened.
struct Opened {
    name: String,
    source: String,
    files: CatalogFiles,
    priority: i32,
    labels: BTreeMap<String, String>,
    availability: Availability,
}

/// What is reported of one extension.
#[derive(Debug)]
struct Row {
    extension: String,
    installed: Option<String>,
    /// Bundle, version and catalog.
    chosen: Result<[String; 3], String>,
    newest: Option<([String; 3], Vec<String>)>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let cluster = runtime.block_on(Cluster::reach(arguments.kubeconfig.as_deref()))?;
    let settings = runtime.block_on(cluster.catalogs())?;
    let mut opened: Vec<Opened> = Vec::new();
    for argument in &arguments.catalogs {
        let (name, source) = named_source(argument)?;
        if opened.iter().any(|other| other.name == name) {
            bail!("two catalogs are named {name:?}; use NAME=SOURCE to give each its own name");
        }
        let files = open_catalog(&source, &arguments.registry)?;
        let known = settings.iter().find(|catalog| catalog.name() == name);
        let mut labels = known
            .and_then(|catalog| catalog.metadata.labels.clone())
            .unwrap_or_default();
        labels.insert(olm_api::names::label::METADATA_NAME.to_owned(), name.clone());
        let is_off =
            known.is_some_and(|catalog| catalog.spec.availability_mode == AvailabilityMode::Unavailable);
        opened.push(Opened {
            files,
            source,
            priority: known.map_or(0, |catalog| catalog.spec.priority),
            labels,
            availability: if is_off {
                Availability::Unavailable
            } else {
                Availability::Available
            },
            name,
        });
    }
    let mut rows = Vec::new();
    for extension in wanted(&cluster, &arguments.extensions)? {
        let Some(filter) = filter(extension) else { continue };
        let packages: Vec<Option<Package>> = opened
            .iter()
            .map(|catalog| Ok(package(&catalog.files, &catalog.source, &filter.package_name)?.0))
            .collect::<anyhow::Result<_>>()?;
        let inventory = runtime.block_on(cluster.inventory(Some(extension), packages.iter().flatten()))?;
        let catalogs: Vec<Catalog<'_>> = opened
            .iter()
            .zip(&packages)
            .map(|(catalog, package)| Catalog {
                name: &catalog.name,
                priority: catalog.priority,
                labels: &catalog.labels,
                availability: catalog.availability,
                content: package.as_ref().map_or(Content::Absent, Content::Package),
            })
            .collect();
        let selector = cluster.selector(extension);
        let request = Request::of(filter, selector.as_ref());
        let bundle = extension
            .status
            .as_ref()
            .and_then(|status| status.install.as_ref());
        let bundle = bundle.map(|install| &install.bundle);
        let installed = bundle.map(|bundle| Installed {
            name: &bundle.name,
            version: &bundle.version,
            release: bundle.release.as_deref(),
        });
        let found = updates(&catalogs, &request, installed.as_ref(), &inventory.facts());
        let found =
            found.map_err(|refusal| anyhow!("{}: {}", extension.name(), refusal.on_command_line()))?;
        rows.push(row(extension, bundle.map(|bundle| bundle.version.clone()), found));
    }
    match arguments.output {
        ReportFormat::Text => print_text(&text(&rows))?,
        ReportFormat::Json => print_json(&rows.iter().map(json_of).collect())?,
    }
    Ok(Status::Success)
}

/// The extensions of these names, or all.
fn wanted<'a>(cluster: &'a Cluster, names: &[String]) -> anyhow::Result<Vec<&'a ClusterExtension>> {
    let mut found: Vec<&ClusterExtension> = cluster
        .extensions()
        .iter()
        .filter(|one| !one.is_deleting())
        .collect();
    if let Some(unknown) = names
        .iter()
        .find(|name| !found.iter().any(|one| one.name() == name.as_str()))
    {
        bail!("ClusterExtension {unknown:?} not found");
    }
    found.retain(|one| names.is_empty() || names.iter().any(|name| name == one.name()));
    found.sort_by(|left, right| left.name().cmp(right.name()));
    Ok(found)
}

fn row(extension: &ClusterExtension, installed: Option<String>, found: Updates<'_>) -> Row {
    let named = |bundle: &olm_resolve::Candidate, catalog: &str| {
        [
            bundle.name.clone(),
            version(bundle).unwrap_or_default(),
            catalog.to_owned(),
        ]
    };
    Row {
        extension: extension.name().to_owned(),
        installed,
        chosen: match found.chosen {
            Ok(chosen) => Ok(named(chosen.bundle, chosen.catalog)),
            Err(refusal) => Err(refusal.reason().to_string()),
        },
        newest: found.newest.map(|newest| {
            let why = newest.obstacles.iter().map(ToString::to_string).collect();
            (named(newest.bundle, newest.catalog), why)
        }),
    }
}

fn text(rows: &[Row]) -> String {
    let mut notes = String::new();
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let chosen = row.chosen.as_ref().ok().map(|[_, version, _]| version.clone());
            let update = chosen.filter(|version| row.installed.as_ref() != Some(version));
            let newest = row.newest.as_ref().map(|([_, version, _], _)| version.clone());
            if let Err(why) = &row.chosen {
                let _ = writeln!(notes, "{}: nothing would be chosen: {why}", row.extension);
            }
            if let Some(([bundle, _, catalog], why)) = &row.newest {
                let _ = writeln!(
                    notes,
                    "{}: {bundle} of catalog {catalog} is not chosen: {}",
                    row.extension,
                    why.join("; ")
                );
            }
            let cell = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
            let newest = newest.or_else(|| row.chosen.as_ref().ok().map(|[_, version, _]| version.clone()));
            vec![
                row.extension.clone(),
                cell(row.installed.clone()),
                cell(update),
                cell(newest),
            ]
        })
        .collect();
    format!(
        "{}{notes}",
        table(&["NAME", "INSTALLED", "UPDATE", "NEWEST"], &lines)
    )
}

fn json_of(row: &Row) -> Value {
    let bundle = |[name, version, catalog]: &[String; 3]| json!({"bundle": name, "version": version, "catalog": catalog});
    json!({
        "extension": row.extension,
        "installed": row.installed,
        "chosen": row.chosen.as_ref().ok().map(bundle),
        "refusal": row.chosen.as_ref().err(),
        "newest": row.newest.as_ref().map(|(newest, why)| {
            let mut answer = bundle(newest);
            if let Some(answer) = answer.as_object_mut() {
                answer.insert("obstacles".to_owned(), json!(why));
            }
            answer
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_would_be_chosen_and_what_stands_in_the_way_of_the_newest() {
        let bundle = |version: &str| [format!("pot.v{version}"), version.to_owned(), "one".to_owned()];
        let rows = [
            Row {
                extension: "held".to_owned(),
                installed: Some("1.0.0".to_owned()),
                chosen: Ok(bundle("1.1.0")),
                newest: Some((bundle("2.0.0"), vec!["a".to_owned(), "b".to_owned()])),
            },
            Row {
                extension: "newest".to_owned(),
                installed: Some("1.1.0".to_owned()),
                chosen: Ok(bundle("1.1.0")),
                newest: None,
            },
            Row {
                extension: "refused".to_owned(),
                installed: None,
                chosen: Err("no bundles".to_owned()),
                newest: None,
            },
        ];
        assert_eq!(
            text(&rows),
            "NAME     INSTALLED  UPDATE  NEWEST\n\
             held     1.0.0      1.1.0   2.0.0\n\
             newest   1.1.0      -       1.1.0\n\
             refused  -          -       -\n\
             held: pot.v2.0.0 of catalog one is not chosen: a; b\n\
             refused: nothing would be chosen: no bundles\n"
        );
    }
}
