//! `olm resolve`.

pub(crate) mod cluster;
pub(crate) mod fleet;
pub(crate) mod inventory;
mod source;
pub(crate) mod updates;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use olm_api::ClusterExtension;
use olm_api::text::escape;
use olm_resolve::cluster::inventory::Inventory;
use olm_resolve::{
    BlockedBundle, Candidate, Catalog, DeclaredRequirement, Edge, Installed, Package, Request, Resolution,
    Selector, UpgradeConstraintPolicy, deprecation,
};
use serde_json::{Value, json};

use self::cluster::Cluster;
pub(crate) use self::source::Source;
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::Cluster as ServingCluster;
use crate::extension::cluster::catalogs::{no_catalog, sources_of};
use crate::output::{CommandResult, ObjectFormat, Status, note};
use crate::registry::RegistryArguments;
use crate::source::warn_of_missing_image;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Package to install
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    package: String,
    /// Catalog to choose from: the name of a ClusterCatalog, or a source as SOURCE or NAME=SOURCE; may be repeated
    /// [default: with --cluster, the catalogs from which the extension may choose]
    #[arg(long = "catalog", required_unless_present = "cluster", value_name = "CATALOG")]
    catalogs: Vec<String>,
    #[command(flatten)]
    registry: RegistryArguments,
    /// Priority of a catalog; a higher one wins [default: 0]
    #[arg(long = "priority", value_name = "NAME=NUMBER", value_parser = priority, allow_hyphen_values = true)]
    priorities: Vec<(String, i32)>,
    /// Version or range of versions, as in `spec.source.catalog.version`
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    version: Option<String>,
    /// Channel to stay in; may be repeated
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Whether updates must follow the edges of the catalog [default: CatalogProvided]
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// Bundle that is installed; its version is looked up in the catalogs when it is not given
    #[arg(long, value_name = "BUNDLE[@VERSION]")]
    installed: Option<String>,
    /// Choose as operator-controller does on the cluster: bundles whose requirements it meets. Take missing options from
    /// the ClusterExtension of the package
    #[arg(long)]
    cluster: bool,
    /// ClusterCatalogs of extensions that select none, comma-separated: what operator-controller has as
    /// --default-catalogs
    #[arg(long, value_name = "CATALOGS", value_delimiter = ',', requires = "cluster")]
    default_catalogs: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    access: ClusterArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// Only a bundle that an edge leads to may follow the installed one.
    #[value(name = "CatalogProvided")]
    CatalogProvided,
    /// Any bundle may.
    #[value(name = "SelfCertified")]
    SelfCertified,
}

fn priority(text: &str) -> Result<(String, i32), String> {
    let (name, number) = text.split_once('=').ok_or("write NAME=NUMBER")?;
    let number = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number of 32 bits"))?;
    Ok((name.to_owned(), number))
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let reached = arguments
        .cluster
        .then(|| Reached::new(&arguments.access))
        .transpose()?;
    let sources = sources(arguments, reached.as_ref())?;
    let catalogs: Vec<Catalog<'_>> = sources.iter().map(Source::view).collect();
    let context = reached
        .as_ref()
        .map(|reached| on_cluster(arguments, reached, &sources))
        .transpose()?;
    let asked = Requested::of(arguments, context.as_ref(), &sources)?;
    let request = asked.request(&arguments.package);
    let bundle = asked.installed();
    let resolution = match &context {
        Some(context) => {
            olm_resolve::resolve_in(&catalogs, &request, bundle.as_ref(), &context.inventory.facts())
        }
        None => olm_resolve::resolve(&catalogs, &request, bundle.as_ref()),
    };
    match resolution {
        Ok(resolution) => {
            if resolution.bundle.image.is_empty() {
                warn_of_missing_image(&resolution.bundle.name);
            }
            let bundle = Some(resolution.bundle.name.as_str());
            let messages = deprecation::messages(resolution.package, &asked.channels, bundle);
            if context.is_none() && !resolution.bundle.requirements.is_empty() {
                note("what the bundle requires is not checked; --cluster checks it on a cluster");
            }
            arguments
                .output
                .print(&json(&resolution, &messages), bundle.map(str::to_owned), || {
                    text(&resolution, &messages)
                })?;
            Ok(Status::Success)
        }
        Err(mut refusal) => {
            refusal.suggest(sources.iter().flat_map(|source| {
                let names = source.names.iter();
                names.map(|name| (source.name.as_str(), name.as_str()))
            }));
            let refusal = refusal.on_command_line();
            match arguments.output {
                ObjectFormat::Table | ObjectFormat::Name => note(&format!("refused: {refusal}")),
                format @ (ObjectFormat::Json | ObjectFormat::Yaml) => {
                    let answer = json!({
                        "resolved": false,
                        "reason": refusal.reason().to_string(),
                        "findings": refusal.findings(),
                        "hints": refusal.hints().collect::<Vec<_>>(),
                    });
                    format.print(&answer, None, String::new)?;
                }
            }
            Ok(Status::Failure)
        }
    }
}

/// A cluster, and the runtime of its requests.
struct Reached {
    runtime: tokio::runtime::Runtime,
    cluster: Cluster,
}

impl Reached {
    fn new(access: &ClusterArguments) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let cluster = runtime.block_on(Cluster::reach(access))?;
        Ok(Self { runtime, cluster })
    }

    /// The extension of the package, and the catalogs from which it may choose.
    fn extension(&self, arguments: &Arguments) -> (Option<&ClusterExtension>, Option<Selector>) {
        let extension = self.cluster.extension(&arguments.package);
        let selector = self.cluster.selector(extension, &arguments.default_catalogs);
        (extension, selector)
    }
}

/// The state of the cluster, and the extension that requests the package.
struct OnCluster {
    extension: Option<ClusterExtension>,
    selector: Option<Selector>,
    inventory: Inventory,
}

fn on_cluster(arguments: &Arguments, reached: &Reached, sources: &[Source]) -> anyhow::Result<OnCluster> {
    let (extension, selector) = reached.extension(arguments);
    let packages = sources.iter().filter_map(|source| source.package.as_ref());
    let inventory = reached.cluster.inventory(extension, packages);
    Ok(OnCluster {
        inventory: reached.runtime.block_on(inventory)?,
        extension: extension.cloned(),
        selector,
    })
}

/// The request: from the command line, otherwise from the extension of the package.
struct Requested<'s> {
    /// The catalogs that the extension may choose from.
    selector: Option<&'s Selector>,
    version: Option<String>,
    channels: Vec<String>,
    policy: UpgradeConstraintPolicy,
    /// Name, version and release.
    installed: Option<(String, String, Option<String>)>,
}

impl<'s> Requested<'s> {
    fn of(arguments: &Arguments, context: Option<&'s OnCluster>, sources: &[Source]) -> anyhow::Result<Self> {
        let extension = context.and_then(|context| context.extension.as_ref());
        let filter = extension.and_then(cluster::filter);
        let installed = match &arguments.installed {
            Some(text) => {
                let (name, version) = installed(text, sources)?;
                Some((name, version, None))
            }
            None => extension
                .and_then(|extension| extension.status.as_ref()?.install.as_ref())
                .map(|install| &install.bundle)
                .map(|bundle| {
                    (
                        bundle.name.clone(),
                        bundle.version.clone(),
                        bundle.release.clone(),
                    )
                }),
        };
        let channels = match (arguments.channels.as_slice(), filter) {
            ([], Some(filter)) => filter.channels.clone(),
            (given, _) => given.to_vec(),
        };
        let asked_version = filter.and_then(|filter| filter.version.clone());
        Ok(Self {
            selector: context.and_then(|context| context.selector.as_ref()),
            version: arguments
                .version
                .clone()
                .or(asked_version)
                .filter(|version| !version.is_empty()),
            channels,
            policy: match arguments.policy {
                Some(Policy::CatalogProvided) => UpgradeConstraintPolicy::CatalogProvided,
                Some(Policy::SelfCertified) => UpgradeConstraintPolicy::SelfCertified,
                None => filter
                    .map(|filter| Request::of(filter, None).policy)
                    .unwrap_or_default(),
            },
            installed,
        })
    }

    fn request<'a>(&'a self, package: &'a str) -> Request<'a> {
        Request {
            package,
            version: self.version.as_deref(),
            channels: &self.channels,
            selector: self.selector,
            policy: self.policy,
        }
    }

    fn installed(&self) -> Option<Installed<'_>> {
        let (name, version, release) = self.installed.as_ref()?;
        Some(Installed {
            name,
            version,
            release: release.as_deref(),
        })
    }
}

/// The catalogs of the command line, otherwise those of the cluster from which the extension may choose.
fn sources(arguments: &Arguments, reached: Option<&Reached>) -> anyhow::Result<Vec<Source>> {
    let (registry, package) = (&arguments.registry, arguments.package.as_str());
    let mut sources = match reached.filter(|_| arguments.catalogs.is_empty()) {
        Some(reached) => {
            let (_, selector) = reached.extension(arguments);
            let serving = ServingCluster::reach(&arguments.access)?;
            serving.catalogs(registry, package, selector.as_ref())?
        }
        None => sources_of(&arguments.catalogs, registry, &arguments.access, package)?,
    };
    if sources.is_empty() {
        return Err(no_catalog());
    }
    for source in &mut sources {
        let mut set = arguments.priorities.iter();
        if let Some((_, number)) = set.find(|(name, _)| *name == source.name) {
            source.priority = *number;
        }
    }
    if let Some((name, _)) = arguments
        .priorities
        .iter()
        .find(|(name, _)| !sources.iter().any(|source| source.name == *name))
    {
        bail!("cannot set the priority of catalog {name:?}: no such catalog");
    }
    Ok(sources)
}

/// The name and the version of the installed bundle.
fn installed(text: &str, sources: &[Source]) -> anyhow::Result<(String, String)> {
    if let Some((name, version)) = text.split_once('@') {
        return Ok((name.to_owned(), version.to_owned()));
    }
    let candidates = sources
        .iter()
        .filter_map(|source| source.package.as_ref())
        .flat_map(Package::candidates);
    let candidate = candidates
        .filter(|candidate| candidate.name == text)
        .find_map(version)
        .with_context(|| format!("cannot find the version of {text} in a catalog; use {text}@VERSION"))?;
    Ok((text.to_owned(), candidate))
}

fn version(candidate: &Candidate) -> Option<String> {
    candidate.version.as_ref().ok().map(ToString::to_string)
}

fn edge(edge: Option<Edge>) -> Option<&'static str> {
    edge.map(Edge::name)
}

fn text(resolution: &Resolution<'_>, messages: &deprecation::Messages) -> String {
    let mut text = String::new();
    let bundle = resolution.bundle;
    for (what, value) in [
        ("bundle", bundle.name.clone()),
        ("version", version(bundle).unwrap_or_default()),
        ("image", bundle.image.clone()),
        ("catalog", resolution.catalog.to_owned()),
        ("channels", resolution.channels.join(", ")),
        ("edge", edge(resolution.edge).unwrap_or("none").to_owned()),
    ] {
        let _ = writeln!(text, "{what:<10}{}", escape(&value));
    }
    for needed in &bundle.requirements {
        let _ = writeln!(text, "{:<10}{} {}", "requires", needed.kind, value(needed));
        if let Err(fault) = needed.read() {
            let _ = writeln!(text, "{:<10}which cannot be satisfied: {fault}", "");
        }
    }
    for line in resolution.held().iter().flat_map(|held| held.lines()) {
        let _ = writeln!(text, "{line}");
    }
    for message in messages.all() {
        let _ = writeln!(text, "deprecated: {}", escape(message.trim_end()));
    }
    text
}

/// The requirement, on one line.
fn value(needed: &DeclaredRequirement) -> Value {
    // A value that is not JSON is shown as text.
    serde_json::from_str(&needed.text).unwrap_or_else(|_| needed.text.as_str().into())
}

fn json(resolution: &Resolution<'_>, messages: &deprecation::Messages) -> Value {
    let mut answer = json!({
        "resolved": true,
        "bundle": resolution.bundle.name,
        "version": version(resolution.bundle),
        "image": resolution.bundle.image,
        "catalog": resolution.catalog,
        "channels": resolution.channels,
        "edge": edge(resolution.edge),
        "deprecations": {
            "package": messages.package,
            "channels": messages.channels,
            "bundle": messages.bundle,
        },
    });
    let requires = |needed: &Arc<DeclaredRequirement>| {
        let fault = needed.read().err().map(ToString::to_string);
        json!({"type": needed.kind, "value": value(needed), "fault": fault})
    };
    let requires: Vec<Value> = resolution.bundle.requirements.iter().map(requires).collect();
    let held = |blocked: &BlockedBundle<'_>| {
        let reasons: Vec<String> = blocked.blockers.iter().map(ToString::to_string).collect();
        json!({"bundle": blocked.bundle.name, "catalog": blocked.catalog, "reasons": reasons})
    };
    let held: Vec<Value> = resolution.blocked.iter().map(held).collect();
    if let Some(answer) = answer.as_object_mut() {
        for (key, list) in [("requires", requires), ("heldBack", held)] {
            if !list.is_empty() {
                answer.insert(key.to_owned(), list.into());
            }
        }
    }
    answer
}
