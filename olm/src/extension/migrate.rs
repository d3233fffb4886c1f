//! `olm migrate`: from a Subscription of OLM classic to a ClusterExtension, and back until the first upgrade.

mod text;

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::names::{SYSTEM_NAMESPACE, annotation, migration, operator_condition, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_migrate::assess::{self, Assessment, assess};
use olm_migrate::check::{Choices, Finding, Request};
use olm_migrate::context::MoveContext;
use olm_migrate::facts::{self, Case, ClassicObjects, find, restore, successor};
use olm_migrate::needs::{groups, in_order};
use olm_migrate::{back, read, steps};
use serde_json::Value;

use crate::extension::access::{ClusterArguments, unserved};
use crate::extension::change::ask::agreed;
use crate::extension::change::wait::{Goal, WaitArguments, wait};
use crate::extension::change::{MANAGER, RESOURCE};
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
                  --acknowledge. Operators that need each other move in one call. --back gives a moved operator to OLM classic \
                  again; this is possible until its first upgrade.\n\nExamples:\n  olm migrate --all --dry-run\n  olm migrate greeter -n operators \
                  --dry-run -o yaml\n  olm migrate greeter -n operators --service-account greeter-installer --yes \
                  --wait\n  olm migrate greeter -n operators --back --yes\n\nExit status: 0 when everything can move or has moved, 1 when something is blocked or the \
                  command fails."
)]
pub(crate) struct Arguments {
    /// Subscriptions to move: NAME in --namespace, or NAMESPACE/NAME
    #[arg(value_name = "SUBSCRIPTION", value_parser = NonEmptyStringValueParser::new(),
        required_unless_present = "all", conflicts_with = "all")]
    subscriptions: Vec<String>,
    /// Namespace of the Subscriptions
    #[arg(short, long, value_name = "NAME", required_unless_present = "all")]
    namespace: Option<String>,
    /// All Subscriptions of the cluster, or of --namespace; those that cannot move stay
    #[arg(long)]
    all: bool,
    /// Show what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Return moved operators to OLM classic; SUBSCRIPTION is the former Subscription
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
    fn choices(&self, selected: &[String]) -> Choices {
        Choices {
            account: self.service_account.clone(),
            acknowledged: self.acknowledge.iter().cloned().collect::<BTreeSet<_>>(),
            together: selected.iter().cloned().collect(),
            request: Request::Command,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    if arguments.subscriptions.len() > 1 && arguments.extension.is_some() {
        bail!("--extension names the ClusterExtension of one Subscription, not of several");
    }
    let cluster = Cluster::reach(&arguments.cluster)?;
    let facts = cluster.runtime.block_on(read::facts(&cluster.client));
    let mut facts = facts.map_err(unserved)?;
    restore(&mut facts);
    let selected = selected(arguments, &facts);
    if arguments.back {
        return give_back(arguments, &cluster, &facts, &selected);
    }
    let begun = if arguments.dry_run {
        Vec::new()
    } else {
        begun(arguments, &cluster, &facts, &selected)?
    };
    let is_new = |key: &&String| begun.iter().all(|(known, _)| known != *key);
    let new: Vec<&String> = selected.iter().filter(is_new).collect();
    let assessed = assessed(arguments, &cluster, &facts, &selected, &new)?;
    if assessed.is_empty() && begun.is_empty() {
        return Ok(Status::Success);
    }
    if !assessed.is_empty() {
        show(arguments.output, &assessed)?;
    }
    let can_all_move = assessed.iter().all(Assessment::can_move);
    let status = if can_all_move {
        Status::Success
    } else {
        Status::Failure
    };
    if arguments.dry_run || !(can_all_move || arguments.all) {
        return Ok(status);
    }
    let movable: Vec<&Assessment> = assessed.iter().filter(|one| one.can_move()).collect();
    let question = match movable[..] {
        [] => None,
        [one] => Some(format!(
            "Move Subscription {} to ClusterExtension {}?",
            one.key(),
            one.extension.name()
        )),
        _ => Some(format!(
            "Move {} Subscriptions to ClusterExtensions?",
            movable.len()
        )),
    };
    if let Some(question) = question
        && !agreed(&question, arguments.yes)?
    {
        return Ok(Status::Failure);
    }
    let moved = move_all(arguments, &cluster, &facts, &movable, begun)?;
    Ok(match moved {
        Status::Success => status,
        failed => failed,
    })
}

/// The keys of the chosen Subscriptions, `NAMESPACE/NAME`.
fn selected(arguments: &Arguments, facts: &ClassicObjects) -> Vec<String> {
    let place = arguments.namespace.as_deref();
    if !arguments.all {
        let place = place.unwrap_or_default();
        let key = |name: &String| {
            if name.contains('/') {
                name.clone()
            } else {
                format!("{place}/{name}")
            }
        };
        let names = arguments.subscriptions.iter().map(key);
        let mut seen = BTreeSet::new();
        return names.filter(|key| seen.insert(key.clone())).collect();
    }
    let within = |key: &String| {
        place.is_none_or(|place| {
            key.split_once('/')
                .is_some_and(|(namespace, _)| namespace == place)
        })
    };
    let present = facts.subscriptions.iter();
    let present = present.map(|object| format!("{}/{}", facts::namespace(object), facts::name(object)));
    // Those whose Subscription is gone already may not be at their end.
    let moving = facts.extensions.iter();
    let moving = moving.filter(|extension| extension.annotation(user::PAUSED) == Some("true"));
    let moving = moving.filter_map(|extension| extension.annotation(migration::SUBSCRIPTION));
    let all: BTreeSet<String> = present.chain(moving.map(str::to_owned)).collect();
    all.into_iter().filter(within).collect()
}

/// The user's rights for everything, and notes about every step.
fn move_context<'a>(arguments: &'a Arguments, cluster: &Cluster) -> MoveContext<'a> {
    MoveContext {
        own: cluster.client.clone(),
        content: cluster.client.clone(),
        manager: MANAGER,
        system_namespace: &arguments.system_namespace,
        request: Request::Command,
        on_step: &note,
    }
}

/// Moves Subscriptions without blockers, and ends moves that have begun. Operators that need each other are all
/// recorded and paused before the first one is handed over.
fn move_all(
    arguments: &Arguments,
    cluster: &Cluster,
    facts: &ClassicObjects,
    movable: &[&Assessment],
    begun: Vec<(String, StartedMove)>,
) -> CommandResult {
    let mut begun = begun;
    let keys = begun.iter().map(|(key, _)| key.clone());
    let keys: Vec<String> = keys.chain(movable.iter().map(|one| one.key())).collect();
    let mut status = Status::Success;
    for group in in_order(facts, &keys) {
        for one in movable.iter().filter(|one| group.contains(&one.key())) {
            begun.push((one.key(), begin(arguments, cluster, facts, one)?));
        }
        let of_group = group.iter().filter_map(|key| {
            let at = begun.iter().position(|(known, _)| known == key)?;
            Some(begun.swap_remove(at).1)
        });
        for (extension, set) in of_group.collect::<Vec<_>>() {
            if let Status::Failure = finish(arguments, cluster, &extension, &set)? {
                status = Status::Failure;
            }
        }
    }
    Ok(status)
}

/// Records the objects of a Subscription and pauses it.
fn begin(
    arguments: &Arguments,
    cluster: &Cluster,
    facts: &ClassicObjects,
    one: &Assessment,
) -> anyhow::Result<StartedMove> {
    let Some(subscription) = find(&facts.subscriptions, &one.namespace, &one.name) else {
        bail!("Subscription {} is gone", one.key());
    };
    let case = Case { facts, subscription };
    cluster.runtime.block_on(steps::begin(
        &move_context(arguments, cluster),
        case,
        &one.extension,
    ))
}

/// MoveContext the objects of a recorded Subscription over, and waits if asked to.
fn finish(
    arguments: &Arguments,
    cluster: &Cluster,
    extension: &ClusterExtension,
    set: &ClusterObjectSet,
) -> CommandResult {
    let context = move_context(arguments, cluster);
    cluster
        .runtime
        .block_on(steps::finish(&context, extension, set))?;
    waited(arguments, cluster, extension)
}

/// Gives moved operators back to OLM classic.
fn give_back(
    arguments: &Arguments,
    cluster: &Cluster,
    facts: &ClassicObjects,
    selected: &[String],
) -> CommandResult {
    let context = move_context(arguments, cluster);
    let mut prepared = Vec::new();
    for key in selected {
        let found = back::prepare(&context, facts, key, selected);
        match cluster.runtime.block_on(found)? {
            Some(found) => prepared.push((key, found)),
            None => note(&format!("Subscription {key} is with OLM classic: nothing to do")),
        }
    }
    if prepared.is_empty() {
        return Ok(Status::Success);
    }
    show_way_back(arguments.output, &prepared)?;
    if prepared.iter().any(|(_, one)| !one.findings.is_empty()) {
        return Ok(Status::Failure);
    }
    let question = match &prepared[..] {
        [(key, _)] => format!("Give the operator back to Subscription {key}?"),
        several => format!("Give {} operators back to their Subscriptions?", several.len()),
    };
    if arguments.dry_run {
        return Ok(Status::Success);
    }
    if !agreed(&question, arguments.yes)? {
        return Ok(Status::Failure);
    }
    let returns = prepared.into_iter().map(|(_, one)| one).collect();
    cluster.runtime.block_on(back::go(&context, returns))?;
    Ok(Status::Success)
}

/// Prints what goes back to OLM classic.
fn show_way_back(form: ObjectFormat, prepared: &[(&String, back::Return)]) -> anyhow::Result<()> {
    match form {
        ObjectFormat::Table => {
            let texts = prepared.iter();
            let texts: Vec<String> = texts
                .map(|(_, one)| text::way_back(&one.record, &one.findings))
                .collect();
            print_text(&texts.join("\n"))
        }
        ObjectFormat::Name => {
            let names = prepared
                .iter()
                .map(|(_, one)| facts::name(&one.record.subscription));
            let names = names.map(|name| format!("subscription.{}/{name}\n", operator_condition::GROUP));
            print_text(&names.collect::<String>())
        }
        ObjectFormat::Json => {
            let all: Vec<Value> = prepared
                .iter()
                .map(|(key, one)| {
                    serde_json::json!({
                        "subscription": key, "blocked": one.findings,
                        "objects": one.record.objects.iter().map(|kept| &kept.object).collect::<Vec<_>>(),
                    })
                })
                .collect();
            match &all[..] {
                [one] => print_json(one),
                several => print_json(&serde_json::json!({ "subscriptions": several })),
            }
        }
        ObjectFormat::Yaml => {
            let objects = prepared
                .iter()
                .flat_map(|(_, one)| [&one.record.version, &one.record.subscription]);
            let documents: Vec<String> = objects.map(olm_yaml::to_yaml).collect();
            print(&documents.join("---\n"))?;
            for finding in prepared.iter().flat_map(|(_, one)| &one.findings) {
                note(&format!("warning: blocked: {finding}"));
            }
            Ok(())
        }
    }
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

/// The ClusterExtension of a move that has begun, and its revision.
type StartedMove = (ClusterExtension, ClusterObjectSet);

/// The moves of chosen Subscriptions that have begun and are not at their end, by `NAMESPACE/NAME`.
fn begun(
    arguments: &Arguments,
    cluster: &Cluster,
    facts: &ClassicObjects,
    selected: &[String],
) -> anyhow::Result<Vec<(String, StartedMove)>> {
    let mut begun = Vec::new();
    for key in selected {
        let (place, name) = key.split_once('/').unwrap_or_default();
        let Some(extension) = successor(facts, key) else {
            continue;
        };
        // Beside its Subscription, it blocks the move, as the checks say.
        if extension.annotation(user::PAUSED) != Some("true") {
            continue;
        }
        let set = cluster
            .runtime
            .block_on(steps::begun(&cluster.client, extension))?;
        let Some(set) = set else { continue };
        let version = set.annotation(annotation::BUNDLE_NAME).unwrap_or_default();
        let is_subscribed = find(&facts.subscriptions, place, name).is_some();
        if arguments.all && !is_subscribed && find(&facts.versions, place, version).is_none() {
            note(&format!(
                "Subscription {key} has become ClusterExtension {0:?}, which is paused: `olm resume {0}` resumes it",
                extension.name()
            ));
            continue;
        }
        begun.push((key.clone(), (extension.clone(), set)));
    }
    Ok(begun)
}

/// The assessments of the Subscriptions that have not begun to move; prints a note if there are none.
fn assessed(
    arguments: &Arguments,
    cluster: &Cluster,
    facts: &ClassicObjects,
    selected: &[String],
    new: &[&String],
) -> anyhow::Result<Vec<Assessment>> {
    let choices = arguments.choices(selected);
    let names = assess::names(facts);
    let mut found = Vec::new();
    for key in new {
        let (place, name) = key.split_once('/').unwrap_or_default();
        let Some(subscription) = find(&facts.subscriptions, place, name) else {
            let Some(successor) = successor(facts, key) else {
                let error = anyhow!("Subscription {name:?} not found in namespace {place:?}");
                return Err(error.context(Hint("`olm migrate --all --dry-run` lists them".to_owned())));
            };
            if !arguments.all {
                note(&format!(
                    "Subscription {key} has become ClusterExtension {:?}: nothing to do",
                    successor.name()
                ));
            }
            continue;
        };
        if !arguments.all && facts::text(subscription, "/spec/name").is_empty() {
            bail!("Subscription {key} names no package");
        }
        let case = Case { facts, subscription };
        let made = case.successor().map(|made| made.name().to_owned());
        let default = if arguments.all || selected.len() > 1 {
            names.get(*key).cloned().unwrap_or_default()
        } else {
            name.to_owned()
        };
        let extension = arguments.extension.clone().or(made).unwrap_or(default);
        let mut one = assess(case, &extension, &choices);
        if case.version().is_some() {
            one.add(refusals(arguments, cluster, case, &one.extension)?);
        }
        found.push(one);
    }
    if arguments.all && selected.is_empty() {
        note("there is no Subscription: nothing to do");
    }
    assess::bind(&mut found, &groups(facts));
    Ok(found)
}

/// The findings for which the move would refuse the objects of the operator.
fn refusals(
    arguments: &Arguments,
    cluster: &Cluster,
    case: Case<'_>,
    extension: &ClusterExtension,
) -> anyhow::Result<Vec<Finding>> {
    let context = move_context(arguments, cluster);
    let found = cluster
        .runtime
        .block_on(steps::findings(&context, case, extension));
    let error = match found {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    let Some(right) = steps::missing_right(&error) else {
        return Err(error);
    };
    let message = format!("{error}: {right}");
    let fix = "run the command with the right to read the objects of the operator";
    Ok(vec![Finding::blocking("objects", message, fix)])
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
