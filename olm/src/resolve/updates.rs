//! `olm updates`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use clap::Args;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::updates::AvailableBundle;
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_resolve::cluster::updates::{Updates, updates};
use olm_resolve::{Availability, Candidate, Catalog, Installed, Package, PackageAnswer, Request};
use serde_json::{Value, json};

use super::cluster::{Cluster, filter};
use super::source::package;
use super::version;
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::catalogs::{NamedFiles, files_of};
use crate::input::CatalogFiles;
use crate::output::table::table;
use crate::output::{CommandResult, ObjectFormat, Status, resource_name};
use crate::registry::RegistryArguments;

/// The text of an empty cell.
const NONE: &str = "-";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// ClusterExtensions to look at [default: all]
    #[arg(value_name = "EXTENSION")]
    extensions: Vec<String>,
    /// Catalog to choose from: the name of a ClusterCatalog, or a source as SOURCE or NAME=SOURCE; may be repeated.
    /// Priority, labels and availability are those of the ClusterCatalog NAME. Without any, the answer is what the
    /// status of each extension says
    #[arg(long = "catalog", value_name = "CATALOG")]
    catalogs: Vec<String>,
    #[command(flatten)]
    registry: RegistryArguments,
    /// ClusterCatalogs of extensions that select none, comma-separated: what operator-controller has as
    /// --default-catalogs
    #[arg(long, value_name = "CATALOGS", value_delimiter = ',', requires = "catalogs")]
    default_catalogs: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// A catalog that was opened.
struct OpenedCatalog {
    name: String,
    source: String,
    files: CatalogFiles,
    priority: i32,
    labels: BTreeMap<String, String>,
    availability: Availability,
}

/// The report about one extension.
#[derive(Debug, Default)]
struct Row {
    extension: String,
    installed: Option<String>,
    /// The bundle that it gets or would get.
    chosen: Option<AvailableBundle>,
    /// The reason why it gets none.
    refusal: Option<String>,
    /// The newest bundle.
    newest: Option<AvailableBundle>,
    /// The blockers of the newest bundle.
    obstacles: Vec<String>,
    held_back_by: Option<String>,
    /// The notes that are not in the table, one line each.
    notes: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let cluster = runtime.block_on(Cluster::reach(&arguments.cluster))?;
    let extensions = selected_extensions(&cluster, &arguments.extensions)?;
    let rows: Vec<Row> = if arguments.catalogs.is_empty() {
        extensions.into_iter().map(reported).collect()
    } else {
        let opened = open(arguments, &runtime.block_on(cluster.catalogs())?)?;
        let mut rows = Vec::new();
        for extension in extensions {
            let Some(filter) = filter(extension) else { continue };
            let packages: Vec<Option<Package>> = opened
                .iter()
                .map(|catalog| Ok(package(&catalog.files, &catalog.source, &filter.package_name)?.0))
                .collect::<anyhow::Result<_>>()?;
            let inventory =
                runtime.block_on(cluster.inventory(Some(extension), packages.iter().flatten()))?;
            let catalogs: Vec<Catalog<'_>> = opened
                .iter()
                .zip(&packages)
                .map(|(catalog, package)| catalog.view(package.as_ref()))
                .collect();
            let selector = cluster.selector(Some(extension), &arguments.default_catalogs);
            let request = Request::of(filter, selector.as_ref());
            let bundle = bundle(extension);
            let installed = bundle.map(|bundle| Installed {
                name: &bundle.name,
                version: &bundle.version,
                release: bundle.release.as_deref(),
            });
            let found = updates(&catalogs, &request, installed.as_ref(), &inventory.facts());
            let found =
                found.map_err(|refusal| anyhow!("{}: {}", extension.name(), refusal.on_command_line()))?;
            rows.push(computed(extension, found));
        }
        rows
    };
    let names = rows
        .iter()
        .map(|row| resource_name("clusterextension", &row.extension));
    let found: Value = rows.iter().map(json_of).collect();
    arguments.output.print(&found, names, || text(&rows))?;
    Ok(Status::Success)
}

/// Opens the catalogs that are named; `settings` are those of the cluster.
fn open(arguments: &Arguments, settings: &[ClusterCatalog]) -> anyhow::Result<Vec<OpenedCatalog>> {
    let mut opened: Vec<OpenedCatalog> = Vec::new();
    for NamedFiles { name, origin, files } in
        files_of(&arguments.catalogs, &arguments.registry, &arguments.cluster)?
    {
        let known = settings.iter().find(|catalog| catalog.name() == name);
        let mut labels = known
            .and_then(|catalog| catalog.metadata.labels.clone())
            .unwrap_or_default();
        labels.insert(olm_api::names::label::METADATA_NAME.to_owned(), name.clone());
        let is_off =
            known.is_some_and(|catalog| catalog.spec.availability_mode == AvailabilityMode::Unavailable);
        opened.push(OpenedCatalog {
            files,
            source: origin,
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
    Ok(opened)
}

impl OpenedCatalog {
    /// The catalog in the form for resolution.
    fn view<'a>(&'a self, package: Option<&'a Package>) -> Catalog<'a> {
        Catalog {
            name: &self.name,
            priority: self.priority,
            labels: &self.labels,
            availability: self.availability,
            answer: package.map_or(PackageAnswer::Absent, PackageAnswer::Package),
        }
    }
}

/// The extensions of these names, or all.
fn selected_extensions<'a>(
    cluster: &'a Cluster,
    names: &[String],
) -> anyhow::Result<Vec<&'a ClusterExtension>> {
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

/// The bundle that is installed.
fn bundle(extension: &ClusterExtension) -> Option<&BundleMetadata> {
    let install = extension.status.as_ref()?.install.as_ref();
    install.map(|install| &install.bundle)
}

/// The updates in the status of an extension.
fn reported(extension: &ClusterExtension) -> Row {
    let installed = bundle(extension);
    let row = Row {
        extension: extension.name().to_owned(),
        installed: installed.map(|bundle| bundle.version.clone()),
        ..Row::default()
    };
    let Some(updates) = extension
        .status
        .as_ref()
        .and_then(|status| status.updates.clone())
    else {
        let unknown = "its status does not say which bundles there are; name the catalogs by --catalog";
        return Row {
            refusal: Some(unknown.to_owned()),
            notes: vec![unknown.to_owned()],
            ..row
        };
    };
    let notes: Vec<String> = updates.message.lines().map(str::to_owned).collect();
    let is_unknown = updates.newest.is_none() && updates.held_back_by.is_some();
    let current = installed.filter(|_| updates.next.is_none() && !is_unknown);
    let current = current.map(|bundle| AvailableBundle::new(bundle, ""));
    Row {
        newest: updates
            .newest
            .or_else(|| updates.next.clone())
            .or_else(|| current.clone()),
        chosen: updates.next.or(current),
        obstacles: notes.clone(),
        held_back_by: updates.held_back_by,
        notes,
        ..row
    }
}

/// The updates computed from catalogs.
fn computed(extension: &ClusterExtension, found: Updates<'_>) -> Row {
    let named = |bundle: &Candidate, catalog: &str| AvailableBundle {
        name: bundle.name.clone(),
        version: version(bundle).unwrap_or_default(),
        catalog: catalog.to_owned(),
        ..AvailableBundle::default()
    };
    let mut notes = Vec::new();
    let (chosen, refusal) = match found.chosen {
        Ok(chosen) => (Some(named(chosen.bundle, chosen.catalog)), None),
        Err(refusal) => {
            let why = refusal.reason().to_string();
            notes.push(format!("nothing would be chosen: {why}"));
            (None, Some(why))
        }
    };
    let newest = found.newest.as_ref();
    notes.extend(newest.map(ToString::to_string));
    let obstacles = newest
        .map(|newest| newest.obstacles.as_slice())
        .unwrap_or_default();
    Row {
        extension: extension.name().to_owned(),
        installed: bundle(extension).map(|bundle| bundle.version.clone()),
        newest: newest
            .map(|newest| named(newest.bundle, newest.catalog))
            .or_else(|| chosen.clone()),
        held_back_by: obstacles.first().map(|first| first.held_back_by().to_owned()),
        obstacles: obstacles.iter().map(ToString::to_string).collect(),
        chosen,
        refusal,
        notes,
    }
}

fn text(rows: &[Row]) -> String {
    let mut notes = String::new();
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            for note in &row.notes {
                let _ = writeln!(notes, "{}: {note}", row.extension);
            }
            let version =
                |bundle: &Option<AvailableBundle>| bundle.as_ref().map(|bundle| bundle.version.clone());
            let update = version(&row.chosen).filter(|version| row.installed.as_ref() != Some(version));
            let cell = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
            vec![
                row.extension.clone(),
                cell(row.installed.clone()),
                cell(update),
                cell(version(&row.newest)),
                cell(row.held_back_by.clone()),
            ]
        })
        .collect();
    let head = ["NAME", "INSTALLED", "NEXT", "NEWEST", "HELD BACK BY"];
    format!("{}{notes}", table(&head, &lines))
}

fn json_of(row: &Row) -> Value {
    let bundle = |bundle: &AvailableBundle| json!({"bundle": bundle.name, "version": bundle.version, "catalog": bundle.catalog});
    // The chosen bundle is not repeated.
    let beyond = row
        .newest
        .as_ref()
        .filter(|newest| row.chosen.as_ref() != Some(newest));
    json!({
        "extension": row.extension,
        "installed": row.installed,
        "chosen": row.chosen.as_ref().map(bundle),
        "refusal": row.refusal,
        "newest": beyond.map(|newest| {
            let mut answer = bundle(newest);
            if let Some(answer) = answer.as_object_mut() {
                answer.insert("obstacles".to_owned(), json!(row.obstacles));
            }
            answer
        }),
        "heldBackBy": row.held_back_by,
    })
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{ClusterExtensionSpec, InstallStatus};
    use olm_api::updates::{UpdatesStatus, held_back};

    use super::*;

    fn greeter(version: &str) -> AvailableBundle {
        AvailableBundle {
            name: format!("greeter.v{version}"),
            version: version.to_owned(),
            catalog: "one".to_owned(),
            ..AvailableBundle::default()
        }
    }

    #[test]
    fn a_table_shows_the_chosen_version_and_the_obstacle_of_the_newest() {
        let rows = [
            Row {
                extension: "held".to_owned(),
                installed: Some("1.0.0".to_owned()),
                chosen: Some(greeter("1.1.0")),
                newest: Some(greeter("2.0.0")),
                held_back_by: Some(held_back::RANGE.to_owned()),
                notes: vec!["greeter.v2.0.0 of catalog one is not chosen: a; b".to_owned()],
                ..Row::default()
            },
            Row {
                extension: "newest".to_owned(),
                installed: Some("1.1.0".to_owned()),
                chosen: Some(greeter("1.1.0")),
                newest: Some(greeter("1.1.0")),
                ..Row::default()
            },
            Row {
                extension: "refused".to_owned(),
                notes: vec!["nothing would be chosen: no bundles".to_owned()],
                ..Row::default()
            },
        ];
        assert_eq!(
            text(&rows),
            "NAME     INSTALLED  NEXT   NEWEST  HELD BACK BY\n\
             held     1.0.0      1.1.0  2.0.0   Range\n\
             newest   1.1.0      -      1.1.0   -\n\
             refused  -          -      -       -\n\
             held: greeter.v2.0.0 of catalog one is not chosen: a; b\n\
             refused: nothing would be chosen: no bundles\n"
        );
    }

    #[test]
    fn without_catalogs_a_row_comes_from_the_status() {
        let shown = |installed: Option<&str>, updates: Option<UpdatesStatus>| {
            let mut extension = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
            let status = extension.status.get_or_insert_default();
            status.install = installed.map(|version| InstallStatus {
                bundle: greeter(version).metadata(),
            });
            status.updates = updates;
            let text = text(&[reported(&extension)]);
            let row = text.lines().nth(1).unwrap_or_default();
            let words: Vec<&str> = row.split_whitespace().collect();
            (
                words.join(" "),
                text.lines().nth(2).unwrap_or_default().to_owned(),
            )
        };
        let unknown =
            "greeter: its status does not say which bundles there are; name the catalogs by --catalog";
        assert_eq!(
            shown(None, None),
            ("greeter - - - -".to_owned(), unknown.to_owned())
        );
        let nothing_newer = shown(Some("1.0.0"), Some(UpdatesStatus::default()));
        assert_eq!(
            nothing_newer,
            ("greeter 1.0.0 - 1.0.0 -".to_owned(), String::new())
        );
        let held = UpdatesStatus {
            next: Some(greeter("1.1.0")),
            newest: Some(greeter("2.0.0")),
            held_back_by: Some(held_back::RIGHTS.to_owned()),
            message: "no rights\nno edge".to_owned(),
        };
        let (row, note) = shown(Some("1.0.0"), Some(held));
        assert_eq!(
            (row.as_str(), note.as_str()),
            ("greeter 1.0.0 1.1.0 2.0.0 Rights", "greeter: no rights")
        );
        let silent = UpdatesStatus {
            held_back_by: Some(held_back::CATALOG.to_owned()),
            message: "gone".to_owned(),
            ..UpdatesStatus::default()
        };
        let (row, note) = shown(Some("1.0.0"), Some(silent));
        assert_eq!(
            (row.as_str(), note.as_str()),
            ("greeter 1.0.0 - - Catalog", "greeter: gone")
        );
    }
}
