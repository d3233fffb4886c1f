//! `olm fleet`.

mod text;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use olm_resolve::cluster::fleet::{Change, ClusterPlan, ClusterRecord, KnownCatalog, Planner};
use olm_yaml::{Limits, documents};
use serde::Serialize;

use super::source::packages;
use crate::hint::Hint;
use crate::input;
use crate::output::{CHANGES, CommandResult, ObjectFormat, Status, note};
use crate::registry::RegistryArguments;
use crate::source::{named_source, open_catalog};

/// The largest file of inventories that is read, in bytes.
const MAX_FILE: u64 = 256 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the changes that new content of a catalog causes on clusters
    Plan(Arguments),
}

impl Command {
    pub(crate) fn run(self) -> CommandResult {
        match self {
            Self::Plan(arguments) => plan(&arguments),
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = format!("The choice is that of operator-controller: range, channels, update edges, requirements, platform, catalogs and \
                  priorities, until nothing changes any more. Permissions of accounts, approvals and operators that block \
                  their own upgrade are not part of an inventory.\n\nCHANGE is Install, Update, Stay, NoBundle where no \
                  bundle fits any more, or OtherCatalog. HELD BACK BY says why the newest version is not chosen.\n\nExit status: \
                  0 when the plan is printed; with --exit-code 1 when an extension would find no bundle, else {CHANGES} when \
                  something would change.\n\nExamples:\n  olm fleet plan samples=./catalog inventories/\n  olm fleet plan \
                  samples=registry.example/catalogs/samples:v2 east.yaml west.yaml -o json")
)]
pub(crate) struct Arguments {
    /// The new content: a file, directory, image, or address of a running catalogd. NAME is the ClusterCatalog whose
    /// content it becomes
    #[arg(value_name = "[NAME=]CATALOG")]
    catalog: String,
    /// Files that `olm inventory` wrote, or directories of such files; `-` is standard input
    #[arg(required = true, value_name = "INVENTORY")]
    inventories: Vec<PathBuf>,
    /// Content of another ClusterCatalog, which stays as it is; may be repeated. Without it, extensions that take their
    /// bundle from it are not planned
    #[arg(long = "with", value_name = "[NAME=]CATALOG")]
    others: Vec<String>,
    /// Show extensions that stay as they are, too
    #[arg(long)]
    all: bool,
    /// Output format; json and yaml hold all extensions, name those of the table as CLUSTER/EXTENSION
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    /// Exit with status 3 when something would change, 1 when an extension would find no bundle
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// The changes on all clusters.
#[derive(Debug, Serialize)]
struct FleetPlan {
    /// The ClusterCatalog whose content is new.
    catalog: String,
    summary: Summary,
    clusters: Vec<ClusterPlan>,
}

/// The number of extensions by change.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    clusters: usize,
    /// Clusters on which an extension is installed or updated.
    clusters_that_change: usize,
    extensions: usize,
    changes: BTreeMap<Change, usize>,
    held_back_by: BTreeMap<&'static str, usize>,
}

impl Summary {
    fn of(plans: &[ClusterPlan]) -> Self {
        let mut summary = Self {
            clusters: plans.len(),
            ..Self::default()
        };
        for plan in plans {
            let mut moves = false;
            for extension in &plan.extensions {
                summary.extensions += 1;
                *summary.changes.entry(extension.change).or_default() += 1;
                if let Some(by) = extension.held_back_by {
                    *summary.held_back_by.entry(by).or_default() += 1;
                }
                moves |= !extension.updates.is_empty();
            }
            summary.clusters_that_change += usize::from(moves);
        }
        summary
    }

    fn has(&self, change: Change) -> bool {
        self.changes.contains_key(&change)
    }
}

fn plan(arguments: &Arguments) -> CommandResult {
    let records = records(&arguments.inventories)?;
    let catalogs = catalogs(arguments, &records)?;
    let changed = catalogs.first().map(|catalog| catalog.name.clone());
    let changed = changed.unwrap_or_default();
    let mut planner = Planner::new(&catalogs);
    let clusters: Vec<ClusterPlan> = records.iter().map(|record| planner.plan(record)).collect();
    let plan = FleetPlan {
        summary: Summary::of(&clusters),
        catalog: changed,
        clusters,
    };
    let names = text::shown(&plan, arguments.all);
    let names = names.map(|(cluster, extension)| format!("{cluster}/{}", extension.extension));
    arguments
        .output
        .print(&plan, names, || text::text(&plan, arguments.all))?;
    Ok(match arguments.exit_code {
        true if plan.summary.has(Change::NoBundle) => Status::Failure,
        true if plan.summary.clusters_that_change > 0 => Status::Changes,
        _ => Status::Success,
    })
}

/// The clusters, by name.
fn records(paths: &[PathBuf]) -> anyhow::Result<Vec<ClusterRecord>> {
    let mut found: Vec<ClusterRecord> = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in input::walk(path)? {
                let kind = file.path.extension().and_then(|kind| kind.to_str());
                if matches!(kind, Some("yaml" | "yml" | "json")) {
                    found.extend(in_file(&file.path)?);
                }
            }
        } else {
            found.extend(in_file(path)?);
        }
    }
    found.sort_by(|left, right| left.cluster.cmp(&right.cluster));
    let mut names = HashSet::new();
    if let Some(twice) = found.iter().find(|record| !names.insert(&record.cluster)) {
        let error = anyhow!("two inventories are of a cluster {:?}", twice.cluster);
        return Err(error.context(Hint(
            "`olm inventory --name NAME` names the cluster; name each file once".to_owned(),
        )));
    }
    if found.is_empty() {
        let error = anyhow!("cannot find an inventory in the named files");
        return Err(error.context(Hint("`olm inventory` writes one".to_owned())));
    }
    Ok(found)
}

fn in_file(path: &Path) -> anyhow::Result<Vec<ClusterRecord>> {
    let shown = path.display();
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(MAX_FILE).read_to_end(&mut bytes)?;
        bytes
    } else {
        input::read(path, MAX_FILE)?
    };
    let mut found = Vec::new();
    for document in documents(BufReader::new(bytes.as_slice()), &Limits::default()) {
        let document = document.with_context(|| format!("cannot read {shown}"))?;
        let line = document.line;
        let value = document.into_value()?;
        if !value.is_null() {
            let record = ClusterRecord::read(value);
            found.push(record.with_context(|| format!("{shown}:{line} is not an inventory"))?);
        }
    }
    Ok(found)
}

/// The content of the catalogs about the packages of the clusters; first the one that changes.
fn catalogs(arguments: &Arguments, records: &[ClusterRecord]) -> anyhow::Result<Vec<KnownCatalog>> {
    let extensions = records.iter().flat_map(|record| &record.extensions);
    let wanted: HashSet<&str> = extensions
        .map(|extension| extension.catalog.package_name.as_str())
        .collect();
    let listed = records.iter().flat_map(|record| &record.catalogs);
    let there: BTreeSet<&str> = listed.map(|catalog| catalog.name.as_str()).collect();
    let mut found: Vec<KnownCatalog> = Vec::new();
    for argument in std::iter::once(&arguments.catalog).chain(&arguments.others) {
        let (name, source) = named_source(argument)?;
        if !there.contains(name.as_str()) {
            let error = anyhow!("no inventory has a ClusterCatalog {name:?}");
            let names: Vec<&str> = there.into_iter().collect();
            return Err(error.context(Hint(format!(
                "write NAME={source}; the inventories have {}",
                names.join(", ")
            ))));
        }
        if found.iter().any(|other| other.name == name) {
            bail!("two catalogs are named {name:?}; use NAME=SOURCE to give each its own name");
        }
        let lacking = records
            .iter()
            .filter(|record| !record.catalogs.iter().any(|catalog| catalog.name == name));
        let lacking: Vec<&str> = lacking.map(|record| record.cluster.as_str()).collect();
        if let Some(first) = lacking.first() {
            note(&format!(
                "warning: {} of {} clusters have no ClusterCatalog {name:?}, {first:?} among them",
                lacking.len(),
                records.len()
            ));
        }
        let files = open_catalog(&source, &arguments.registry)?;
        let (packages, _) = packages(&files, &source, |package| wanted.contains(package))
            .with_context(|| format!("cannot read the catalog {source:?}"))?;
        found.push(KnownCatalog { name, packages });
    }
    Ok(found)
}
