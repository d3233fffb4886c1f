//! `olm explain`: the state of an extension, its blockers with causes, and the remedy.

mod pods;
mod steps;
mod text;

use anyhow::anyhow;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::ClusterExtension;
use olm_api::conditions::{READY, VERIFIED, find};
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::{UpdatesStatus, held_back};
use olm_plan::history::{Entry, history};
use olm_resolve::Candidate;
use serde::Serialize;

use crate::extension::access::ClusterArguments;
use crate::extension::choose::{Origin, ResolutionInput};
use crate::extension::cluster::{Cluster, newest_active};
use crate::extension::lookup::revisions;
use crate::output::{CommandResult, ObjectFormat, Status, resource_name};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
#[command(
    after_help = "The answer combines the conditions and status.updates of the ClusterExtension, its revisions, the Pods of its \
                  workloads that are not ready, and the choice of a bundle, made again from the catalogs of the \
                  cluster.\n\nExamples:\n  olm explain greeter\n  olm explain greeter -o json\n\nExit status: 0 when the extension is \
                  ready, 1 when it is not or the command fails."
)]
pub(crate) struct Arguments {
    /// ClusterExtension to explain
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// The facts about an extension.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    pub(crate) extension: String,
    pub(crate) package: String,
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    pub(crate) channels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) installed: Option<String>,
    pub(crate) is_ready: bool,
    /// The reason of `Ready`.
    pub(crate) reason: String,
    /// The message of `Ready`.
    pub(crate) message: String,
    /// What the signature policy says about the installed image, if a rule asks for a signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verified: Option<VerifiedCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updates: Option<UpdatesStatus>,
    pub(crate) choice: CatalogChoice,
    pub(crate) candidates: Vec<Row>,
    pub(crate) revisions: Vec<Entry>,
    /// A sentence for each workload whose Pods are not all available.
    pub(crate) pods: Vec<String>,
    /// Notes about unknown facts.
    pub(crate) notes: Vec<String>,
    /// The steps that the user should take.
    pub(crate) steps: Vec<String>,
}

/// The condition `Verified`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerifiedCondition {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    pub(crate) message: String,
    /// The time since which the status is this one.
    pub(crate) since: String,
}

/// The present choice from the catalogs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CatalogChoice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) catalog: Option<String>,
    /// The rule that chose it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) rule: String,
    /// The reason why no bundle fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
}

/// A bundle of the catalogs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) bundle: String,
    pub(crate) version: String,
    pub(crate) catalog: String,
    pub(crate) is_chosen: bool,
    /// The reasons that exclude it; empty for the chosen one and those that rank below it.
    pub(crate) excluded_by: Vec<String>,
    /// Whether no update edge leads to it from the installed one.
    #[serde(skip)]
    pub(crate) lacks_edge: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let extension = cluster.extension(&arguments.extension)?;
    let explanation = explain(&cluster, &extension, &arguments.registry, &arguments.cluster)?;
    let name = resource_name("clusterextension", extension.name());
    arguments
        .output
        .print(&explanation, [name], || text::text(&explanation))?;
    Ok(if explanation.is_ready {
        Status::Success
    } else {
        Status::Failure
    })
}

/// Gathers the facts about an extension. A note reports each unknown fact.
pub(crate) fn explain(
    cluster: &Cluster,
    extension: &ClusterExtension,
    registry: &RegistryArguments,
    access: &ClusterArguments,
) -> anyhow::Result<Explanation> {
    let sets = cluster.runtime.block_on(revisions(&cluster.client, extension))?;
    let origin = Origin {
        catalogs: &[],
        registry,
        access,
    };
    let mut explanation = of_status(extension);
    explanation.revisions = history(&sets);
    match ResolutionInput::gather(cluster, origin, extension, newest_active(&sets)) {
        Ok(choice) => choosing(&mut explanation, &choice)?,
        Err(error) => explanation
            .notes
            .push(format!("cannot choose a bundle again: {error:#}")),
    }
    if !explanation.is_ready {
        let workloads = cluster
            .runtime
            .block_on(pods::causes(&cluster.client, extension, &sets));
        match workloads {
            Ok(causes) => explanation.pods = causes,
            Err(error) => explanation
                .notes
                .push(format!("cannot look at the Pods: {error:#}")),
        }
    }
    explanation.steps = steps::steps(extension, &explanation);
    Ok(explanation)
}

fn of_status(extension: &ClusterExtension) -> Explanation {
    let filter = extension.spec.source.catalog.clone().unwrap_or_default();
    let status = extension.status.clone().unwrap_or_default();
    let ready = find(extension.conditions(), READY);
    let verified = find(extension.conditions(), VERIFIED).map(|verified| VerifiedCondition {
        status: verified.status.clone(),
        message: verified.message.clone(),
        since: verified.last_transition_time.0.to_string(),
    });
    Explanation {
        extension: extension.name().to_owned(),
        package: filter.package_name,
        namespace: extension.spec.namespace.clone(),
        version: filter.version.filter(|version| !version.is_empty()),
        channels: filter.channels,
        installed: status.install.map(|install| install.bundle.version),
        is_ready: verdict(extension.conditions()) == Some(Verdict::Ready) && !extension.is_deleting(),
        reason: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.reason.clone()),
        message: ready.map_or_else(
            || "operator-controller has not reconciled it yet".to_owned(),
            |ready| ready.message.clone(),
        ),
        verified,
        updates: status.updates,
        choice: CatalogChoice::default(),
        candidates: Vec::new(),
        revisions: Vec::new(),
        pods: Vec::new(),
        notes: Vec::new(),
        steps: Vec::new(),
    }
}

/// Adds the present choice from the catalogs.
fn choosing(explanation: &mut Explanation, choice: &ResolutionInput) -> anyhow::Result<()> {
    explanation.choice = match choice.resolve() {
        Ok(chosen) => CatalogChoice {
            rule: steps::rule(explanation, &chosen),
            bundle: Some(chosen.bundle.metadata.name),
            version: Some(chosen.bundle.metadata.version),
            catalog: Some(chosen.catalog),
            refusal: None,
        },
        Err(refusal) => CatalogChoice {
            refusal: Some(refusal.to_string()),
            ..CatalogChoice::default()
        },
    };
    explanation.candidates = choice
        .consider(|found| {
            let rows = found.into_iter().map(|one| Row {
                bundle: one.bundle.name.clone(),
                version: version(one.bundle),
                catalog: one.catalog.to_owned(),
                is_chosen: one.is_chosen,
                lacks_edge: one
                    .obstacles
                    .iter()
                    .any(|obstacle| obstacle.held_back_by() == held_back::EDGE),
                excluded_by: one.obstacles.iter().map(ToString::to_string).collect(),
            });
            rows.collect()
        })
        .map_err(|error| anyhow!("{error:#}"))?;
    Ok(())
}

fn version(candidate: &Candidate) -> String {
    match &candidate.version {
        Ok(version) => version.to_string(),
        Err(_) => "unreadable".to_owned(),
    }
}
