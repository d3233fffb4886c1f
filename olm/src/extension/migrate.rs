//! `olm migrate`: from a Subscription of OLM classic to a ClusterExtension, and back until the first upgrade.

mod assess;
mod back;
mod backup;
mod certificates;
mod check;
mod content;
mod course;
mod facts;
mod inventory;
mod mapping;
mod read;
mod record;
mod reduce;
mod text;

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::names::{SYSTEM_NAMESPACE, migration, operator_condition, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use serde_json::Value;

use self::assess::{Assessment, assess};
use self::check::Choices;
use self::facts::{Case, ClassicObjects, find, successor};
use crate::extension::access::ClusterArguments;
use crate::extension::change::RESOURCE;
use crate::extension::change::ask::agreed;
use crate::extension::change::wait::{Goal, WaitArguments, wait};
use crate::extension::cluster::Cluster;
use crate::hint::Hint;
use crate::output::{
    CommandResult, ObjectFormat, Status, note, print, print_json, print_text, resource_name,
};

#[derive(Debug, Args)]
#[command(
    after_help = "Reads Subscriptions, ClusterServiceVersions, OperatorGroups, InstallPlans, CatalogSources and \
                  OperatorConditions of OLM classic and says for each Subscription whether a ClusterExtension can take its \
                  place, what blocks it and what changes. A finding that may be acknowledged is passed over with \
                  --acknowledge. --back gives a moved operator to OLM classic again; this is possible until its first \
                  upgrade.\n\nExamples:\n  olm migrate --all --dry-run\n  olm migrate greeter -n operators \
                  --dry-run -o yaml\n  olm migrate greeter -n operators --service-account greeter-installer --yes \
                  --wait\n  olm migrate greeter -n operators --back --yes\n\nExit status: 0 when everything can move or has moved, 1 when something is blocked or the \
                  command fails."
)]
pub(crate) struct Arguments {
    /// Subscription to move
    #[arg(value_parser = NonEmptyStringValueParser::new(), required_unless_present = "all", conflicts_with = "all")]
    subscription: Option<String>,
    /// Namespace of the Subscription
    #[arg(short, long, value_name = "NAME", required_unless_present = "all")]
    namespace: Option<String>,
    /// All Subscriptions of the cluster, or of --namespace
    #[arg(long)]
    all: bool,
    /// Show what would happen and change nothing
    #[arg(long, required_if_eq("all", "true"))]
    dry_run: bool,
    /// Return a moved operator to OLM classic; SUBSCRIPTION is its former Subscription
    #[arg(long, conflicts_with_all = ["all", "extension", "service_account", "acknowledge", "wait"])]
    back: bool,
    /// Move without a question
    #[arg(short, long)]
    yes: bool,
    /// Name of the ClusterExtension [default: that of the Subscription]
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    extension: Option<String>,
    /// Account of the ClusterExtension [default: that of the OperatorGroup]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Check whose findings do not block the move
    #[arg(long, value_name = "CHECK")]
    acknowledge: Vec<String>,
    /// Output format; yaml prints the manifests
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

impl Arguments {
    fn choices(&self) -> Choices {
        Choices {
            account: self.service_account.clone(),
            acknowledged: self.acknowledge.iter().cloned().collect::<BTreeSet<_>>(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let mut facts = cluster.runtime.block_on(read::facts(&cluster.client))?;
    restore(&mut facts);
    if arguments.back {
        return give_back(arguments, &cluster, &facts);
    }
    if !arguments.dry_run
        && let Some((extension, set)) = begun(arguments, &cluster, &facts)?
    {
        return finish(arguments, &cluster, &extension, &set);
    }
    let assessed = assessed(arguments, &facts)?;
    if assessed.is_empty() {
        return Ok(Status::Success);
    }
    show(arguments.output, &assessed)?;
    if !assessed.iter().all(Assessment::can_move) {
        return Ok(Status::Failure);
    }
    let ([one], false) = (&assessed[..], arguments.dry_run) else {
        return Ok(Status::Success);
    };
    let key = one.key();
    let question = format!(
        "Move Subscription {key} to ClusterExtension {}?",
        one.extension.name()
    );
    if !agreed(&question, arguments.yes)? {
        return Ok(Status::Failure);
    }
    let Some(subscription) = find(&facts.subscriptions, &one.namespace, &one.name) else {
        bail!("Subscription {key} is gone");
    };
    let case = Case {
        facts: &facts,
        subscription,
    };
    let (extension, set) = cluster.runtime.block_on(course::begin(
        &cluster.client,
        case,
        &one.extension,
        &arguments.system_namespace,
    ))?;
    finish(arguments, &cluster, &extension, &set)
}

/// Hands the objects of a recorded Subscription over, and waits if asked to.
fn finish(
    arguments: &Arguments,
    cluster: &Cluster,
    extension: &ClusterExtension,
    set: &ClusterObjectSet,
) -> CommandResult {
    let finished = course::finish(&cluster.client, extension, set, &arguments.system_namespace);
    cluster.runtime.block_on(finished)?;
    waited(arguments, cluster, extension)
}

/// Gives a moved operator back to OLM classic.
fn give_back(arguments: &Arguments, cluster: &Cluster, facts: &ClassicObjects) -> CommandResult {
    let (Some(name), Some(place)) = (&arguments.subscription, &arguments.namespace) else {
        bail!("--back takes a Subscription and its namespace");
    };
    let prepared = cluster
        .runtime
        .block_on(back::prepare(&cluster.client, facts, place, name))?;
    let Some(prepared) = prepared else {
        note(&format!(
            "Subscription {place}/{name} is with OLM classic: nothing to do"
        ));
        return Ok(Status::Success);
    };
    match arguments.output {
        ObjectFormat::Table => print_text(&text::way_back(&prepared.record, &prepared.findings))?,
        ObjectFormat::Name => print_text(&format!("subscription.{}/{name}\n", operator_condition::GROUP))?,
        ObjectFormat::Json => print_json(&serde_json::json!({
            "subscription": format!("{place}/{name}"), "blocked": prepared.findings,
            "objects": prepared.record.objects.iter().map(|kept| &kept.object).collect::<Vec<_>>(),
        }))?,
        ObjectFormat::Yaml => {
            let documents = [&prepared.record.version, &prepared.record.subscription].map(olm_yaml::to_yaml);
            print(&documents.join("---\n"))?;
            for finding in &prepared.findings {
                note(&format!("warning: blocked: {finding}"));
            }
        }
    }
    if !prepared.findings.is_empty() {
        return Ok(Status::Failure);
    }
    let question = format!("Give the operator back to Subscription {place}/{name}?");
    if arguments.dry_run {
        return Ok(Status::Success);
    }
    if !agreed(&question, arguments.yes)? {
        return Ok(Status::Failure);
    }
    cluster.runtime.block_on(back::go(&cluster.client, prepared))?;
    Ok(Status::Success)
}

/// Waits for the ClusterExtension if the command line requests it.
fn waited(arguments: &Arguments, cluster: &Cluster, extension: &ClusterExtension) -> CommandResult {
    if !arguments.wait.wait {
        return Ok(Status::Success);
    }
    wait(
        cluster,
        &arguments.wait,
        extension,
        Goal::Ready(extension.generation()),
    )
}

/// Restores the earlier spec of Subscriptions whose migration has begun.
fn restore(facts: &mut ClassicObjects) {
    let extensions = std::mem::take(&mut facts.extensions);
    for subscription in &mut facts.subscriptions {
        let key = format!("{}/{}", facts::namespace(subscription), facts::name(subscription));
        let made =
            |extension: &&ClusterExtension| extension.annotation(migration::SUBSCRIPTION) == Some(&key);
        let spec = extensions.iter().find(made);
        let spec = spec.and_then(|extension| extension.annotation(migration::SUBSCRIPTION_BACKUP));
        let spec: Option<Value> = spec.and_then(|spec| serde_json::from_str(spec).ok());
        if let (Some(spec), Some(subscription)) = (spec, subscription.as_object_mut()) {
            subscription.insert("spec".to_owned(), spec);
        }
    }
    facts.extensions = extensions;
}

/// A move that was begun and is not at its end.
fn begun(
    arguments: &Arguments,
    cluster: &Cluster,
    facts: &ClassicObjects,
) -> anyhow::Result<Option<(ClusterExtension, ClusterObjectSet)>> {
    let (Some(name), Some(place)) = (&arguments.subscription, &arguments.namespace) else {
        return Ok(None);
    };
    let Some(extension) = successor(facts, &format!("{place}/{name}")) else {
        return Ok(None);
    };
    let is_paused = extension.annotation(user::PAUSED) == Some("true");
    if !is_paused {
        if find(&facts.subscriptions, place, name).is_some() {
            let error = anyhow!(
                "ClusterExtension {:?} has begun to install what Subscription {place}/{name} installs",
                extension.name()
            );
            return Err(error.context(Hint(format!(
                "run `olm pause {}` and this command again",
                extension.name()
            ))));
        }
        return Ok(None);
    }
    let set = cluster
        .runtime
        .block_on(course::begun(&cluster.client, extension))?;
    Ok(set.map(|set| (extension.clone(), set)))
}

/// The assessments of the selected Subscriptions; prints a note if there are none.
fn assessed(arguments: &Arguments, facts: &ClassicObjects) -> anyhow::Result<Vec<Assessment>> {
    let choices = arguments.choices();
    let place = arguments.namespace.as_deref();
    let Some(name) = &arguments.subscription else {
        let meant = facts
            .subscriptions
            .iter()
            .filter(|object| place.is_none_or(|place| facts::namespace(object) == place));
        let names = assess::names(facts);
        let found: Vec<Assessment> = meant
            .map(|subscription| {
                let case = Case { facts, subscription };
                assess(case, names.get(&case.key()).map_or("", String::as_str), &choices)
            })
            .collect();
        if found.is_empty() {
            note("there is no Subscription: nothing to do");
        }
        return Ok(found);
    };
    let place = place.unwrap_or_default();
    let Some(subscription) = find(&facts.subscriptions, place, name) else {
        let Some(successor) = successor(facts, &format!("{place}/{name}")) else {
            let error = anyhow!("Subscription {name:?} not found in namespace {place:?}");
            return Err(error.context(Hint("`olm migrate --all --dry-run` lists them".to_owned())));
        };
        note(&format!(
            "Subscription {place}/{name} has become ClusterExtension {:?}: nothing to do",
            successor.name()
        ));
        return Ok(Vec::new());
    };
    if facts::text(subscription, "/spec/name").is_empty() {
        bail!("Subscription {place}/{name} names no package");
    }
    let case = Case { facts, subscription };
    let made = case.successor().map(|made| made.name().to_owned());
    let extension = arguments
        .extension
        .clone()
        .or(made)
        .unwrap_or_else(|| name.clone());
    Ok(vec![assess(case, &extension, &choices)])
}

/// Prints the findings and the changes of each Subscription.
fn show(form: ObjectFormat, assessed: &[Assessment]) -> anyhow::Result<()> {
    match form {
        ObjectFormat::Table => print_text(&text::text(assessed)),
        ObjectFormat::Name => {
            let names = assessed.iter();
            let names = names.map(|one| resource_name(RESOURCE, one.extension.name()) + "\n");
            print_text(&names.collect::<String>())
        }
        ObjectFormat::Json => print_json(&serde_json::json!({ "subscriptions": assessed })),
        ObjectFormat::Yaml => {
            let manifests: Vec<&Value> = assessed.iter().flat_map(|one| &one.manifests).collect();
            let mut documents: Vec<String> = Vec::new();
            for manifest in manifests {
                let document = olm_yaml::to_yaml(manifest);
                if !documents.contains(&document) {
                    documents.push(document);
                }
            }
            for one in assessed.iter().filter(|one| !one.can_move()) {
                note(&format!(
                    "warning: Subscription {} is blocked: do not apply its ClusterExtension yet",
                    one.key()
                ));
            }
            print(&documents.join("---\n"))
        }
    }
}
