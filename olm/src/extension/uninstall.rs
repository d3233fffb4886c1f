//! `olm uninstall`: deletes a ClusterExtension, after it shows which objects the deletion removes, keeps and waits for.

mod stays;
mod text;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use olm_api::ClusterExtension;
use olm_api::names;
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_migrate::objects::content::objects;
use olm_plan::uninstall::{CustomResources, Dependent, StoredObjects, UninstallPlan, uninstall};
use olm_preflight::crd_upgrade::{definition_name, resource};
use olm_resolve::{Blocker, broken_by_removal};
use olm_rollout::policy::{Policy, Uninstall};
use serde::Serialize;
use serde_json::{Value, json};

use self::stays::Remains;
use self::text::text;
use super::access::ClusterArguments;
use super::change::MANAGER;
use super::change::ask::agreed;
use super::change::wait::{Goal, WaitArguments, wait};
use super::cluster::{Cluster, active, newest_active};
use super::lookup::revisions;
use crate::output::{CommandResult, ObjectFormat, Status, note, resource_name};
use crate::resolve;

/// The maximum number of objects of one kind that are checked for finalizers.
const MAX_OBJECTS: usize = 10_000;
/// Bytes of their metadata.
const MAX_BYTES: u64 = 64 << 20;
/// The time limit for the objects of one kind.
const MAX_TIME: Duration = Duration::from_mins(1);

#[derive(Debug, Args)]
#[command(
    after_help = format!("Which objects stay is decided by the annotation {} of the ClusterExtension, which --policy sets. \
                  Finalizers are those of custom resources that only the operator removes, which is gone by then.\n\nThe \
                  service account, its roles and the namespace stay: OLM removes the objects with the rights of the \
                  account. The command prints what removes them afterwards.\n\nExamples:\n  olm uninstall greeter --dry-run\n  olm uninstall greeter --yes --wait\n  olm uninstall \
                  greeter --policy keep-crds\n\nExit status: 0 on success, 1 when other extensions depend on this one, you decline or \
                  the command fails; with --wait 4 when a person must change something, 5 when the time is \
                  over.", names::user::UNINSTALL)
)]
pub(crate) struct Arguments {
    /// ClusterExtension to uninstall
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Objects that stay on the cluster [default: the annotation of the ClusterExtension]
    #[arg(long, value_enum)]
    policy: Option<KeptObjects>,
    /// Delete without a question
    #[arg(short, long)]
    yes: bool,
    /// Show what would happen and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: WaitArguments,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// The objects that a deletion keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeptObjects {
    /// Nothing.
    Delete,
    /// CRDs and their custom resources.
    KeepCrds,
    /// Everything.
    Orphan,
}

impl KeptObjects {
    fn policy(self) -> Uninstall {
        match self {
            Self::Delete => Uninstall::Delete,
            Self::KeepCrds => Uninstall::KeepCrds,
            Self::Orphan => Uninstall::Orphan,
        }
    }
}

/// The value of the annotation for a policy.
fn annotation(policy: Uninstall) -> &'static str {
    match policy {
        Uninstall::Delete => "delete",
        Uninstall::KeepCrds => "keep-crds",
        Uninstall::Orphan => "orphan",
    }
}

/// The effects of a deletion, and what stays besides the objects of the extension.
#[derive(Serialize)]
struct Removal {
    #[serde(flatten)]
    plan: UninstallPlan,
    stays: Remains,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let extension = cluster.extension(&arguments.extension)?;
    let policy = match arguments.policy {
        Some(kept) => kept.policy(),
        None => Policy::read(|key| extension.annotation(key))?.uninstall,
    };
    let sets = cluster.runtime.block_on(revisions(&cluster.client, &extension))?;
    let mut held = Vec::new();
    for set in active(&sets) {
        let found = objects(&cluster.client, set, &arguments.system_namespace);
        held.extend(cluster.runtime.block_on(found)?);
    }
    let mut stored = BTreeMap::new();
    for name in held.iter().filter_map(definition_name) {
        if !stored.contains_key(name) {
            stored.insert(name.to_owned(), custom_resources(&cluster, name)?);
        }
    }
    let dependents = match policy {
        Uninstall::Orphan => Vec::new(),
        Uninstall::Delete | Uninstall::KeepCrds => dependents(arguments, &cluster, policy)?,
    };
    let held: Vec<&Value> = held.iter().collect();
    let plan = uninstall(extension.name(), policy, &held, &stored, dependents);
    let name = resource_name("clusterextension", extension.name());
    let stays = Remains::read(&cluster, &extension, newest_active(&sets));
    let removal = Removal { plan, stays };
    let Removal { plan, stays } = &removal;
    arguments
        .output
        .print(&removal, [name], || text(plan, stays, annotation(policy)))?;
    if !plan.dependents.is_empty()
        && extension.annotation(names::user::ALLOW_BREAK_DEPENDENTS) != Some("true")
    {
        return Ok(Status::Failure);
    }
    if arguments.dry_run {
        return Ok(Status::Success);
    }
    let name = extension.name();
    if !agreed(&format!("Delete ClusterExtension {name}?"), arguments.yes)? {
        return Ok(Status::Failure);
    }
    delete(&cluster, &extension, arguments.policy)?;
    note(&format!("clusterextension/{name} is being deleted"));
    let ended = if arguments.wait.wait {
        wait(&cluster, &arguments.wait, &extension, Goal::Gone)?
    } else {
        Status::Success
    };
    let is_named = arguments.output == ObjectFormat::Table && !stays.commands(name).is_empty();
    if ended == Status::Success && is_named {
        note("hint: the commands above remove what stays and nothing else uses");
    }
    Ok(ended)
}

/// Deletes the extension that was read, not another one with the same name.
fn delete(cluster: &Cluster, extension: &ClusterExtension, kept: Option<KeptObjects>) -> anyhow::Result<()> {
    let name = extension.name();
    let api: Api<ClusterExtension> = Api::all(cluster.client.clone());
    let uid = extension.metadata.uid.clone();
    cluster.runtime.block_on(async {
        if let Some(kept) = kept {
            let annotations = json!({names::user::UNINSTALL: annotation(kept.policy())});
            let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
            let params = PatchParams::apply(MANAGER);
            let set = api.patch(name, &params, &Patch::Merge(&patch)).await;
            set.with_context(|| format!("cannot change ClusterExtension {name:?}"))?;
        }
        let params = DeleteParams::background().preconditions(Preconditions {
            uid,
            resource_version: None,
        });
        let deleted = api.delete(name, &params).await;
        deleted.with_context(|| format!("cannot delete ClusterExtension {name:?}"))?;
        Ok(())
    })
}

/// The objects of a kind.
fn custom_resources(cluster: &Cluster, definition: &str) -> anyhow::Result<CustomResources> {
    let mut found = CustomResources::default();
    let live = cluster.definition(definition)?;
    let Some((group, version, plural)) = live.as_ref().and_then(resource) else {
        found.objects = Some(0);
        return Ok(found);
    };
    let collection = Collection {
        group,
        version,
        plural,
    };
    let mut seen = StoredObjects::default();
    let end = cluster.runtime.block_on(async {
        found.objects = collection.count(&cluster.client).await.ok();
        let budget = Budget {
            objects: MAX_OBJECTS,
            bytes: MAX_BYTES,
            until: Instant::now() + MAX_TIME,
        };
        let mut pages = collection.read(&cluster.client, Detail::Metadata, budget);
        loop {
            match pages.page().await {
                Ok(page) => page.iter().for_each(|object| seen.count(object)),
                Err(end) => return end,
            }
        }
    });
    found.finalizers = seen.finalizers();
    found.note = match end {
        End::Complete => None,
        End::Spent(what) => Some(format!(
            "not all objects were checked: the limit on the {what} is exceeded"
        )),
        End::Failed(failure) => Some(format!("cannot list the objects: {}", failure.message)),
    };
    Ok(found)
}

/// The extensions whose requirements would no longer be met.
fn dependents(arguments: &Arguments, cluster: &Cluster, policy: Uninstall) -> anyhow::Result<Vec<Dependent>> {
    let mut inventory = cluster.runtime.block_on(async {
        let known = resolve::cluster::Cluster::reach(&arguments.cluster).await?;
        let own = known.named(&arguments.extension);
        known.inventory(own, std::iter::empty()).await
    })?;
    if policy == Uninstall::KeepCrds
        && let Some(own) = &mut inventory.own
    {
        // They stay, and are served without the extension.
        inventory.served.extend(own.subject.apis.drain(..));
    }
    let broken = broken_by_removal(&inventory.facts());
    let dependents = broken.into_iter().filter_map(|blocker| match blocker {
        Blocker::Dependent { extension, text } => Some(Dependent {
            extension,
            reason: text,
        }),
        _ => None,
    });
    Ok(dependents.collect())
}
