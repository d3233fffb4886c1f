//! `olm uninstall`: deletes a ClusterExtension, after it shows which objects the deletion removes, keeps and waits for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use olm_api::ClusterExtension;
use olm_api::names::{self, label};
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_migrate::objects::content::objects;
use olm_plan::change::ObjectName;
use olm_plan::uninstall::{CustomResources, Dependent, StoredObjects, UninstallPlan, uninstall};
use olm_preflight::crd_upgrade::{definition_name, resource};
use olm_resolve::{Blocker, broken_by_removal};
use olm_rollout::policy::{Policy, Uninstall};
use serde_json::{Value, json};

use super::access::ClusterArguments;
use super::change::MANAGER;
use super::change::ask::agreed;
use super::change::wait::{Goal, WaitArguments, wait};
use super::cluster::{Cluster, active};
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
                  account.\n\nExamples:\n  olm uninstall greeter --dry-run\n  olm uninstall greeter --yes --wait\n  olm uninstall \
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

    fn annotation(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::KeepCrds => "keep-crds",
            Self::Orphan => "orphan",
        }
    }
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
    arguments.output.print(&plan, [name], || text(&plan))?;
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
    if ended == Status::Success {
        note(&format!(
            "hint: its account and namespace stay, and must while OLM removes the objects; afterwards \
             `kubectl delete clusterroles,clusterrolebindings,roles,rolebindings -A -l {}={name}` deletes the roles that \
             were made for it",
            label::RIGHTS_OF
        ));
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
            let annotations = json!({names::user::UNINSTALL: kept.annotation()});
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

fn object_label(id: &ObjectName) -> String {
    let id = &id.0;
    if id.namespace.is_empty() {
        format!("{} {}", id.kind, id.name)
    } else {
        format!("{} {}/{}", id.kind, id.namespace, id.name)
    }
}

fn text(plan: &UninstallPlan) -> String {
    let mut text = format!(
        "uninstalling {} removes {} object(s) and leaves {}\n",
        plan.extension,
        plan.removed.len(),
        plan.left.len()
    );
    for (title, sign, list) in [
        ("Removed", '-', &plan.removed),
        ("Kept on the cluster", ' ', &plan.left),
    ] {
        if !list.is_empty() {
            let _ = write!(text, "\n{title}:\n");
        }
        for id in list {
            let _ = writeln!(text, "{sign} {}", object_label(id));
        }
    }
    if !plan.custom_resources.is_empty() {
        text.push_str("\nCustom resources:\n");
    }
    for kind in &plan.custom_resources {
        let count = kind
            .objects
            .map_or("an unknown number".to_owned(), |count| count.to_string());
        let (sign, effect) = if kind.left {
            (' ', "left")
        } else {
            ('-', "deleted")
        };
        let _ = writeln!(text, "{sign} {}: {count} {effect}", kind.definition);
        for finalizer in &kind.finalizers {
            let _ = writeln!(
                text,
                "    ! {} of them wait for the finalizer {}, which only the operator removes: {}",
                finalizer.objects,
                finalizer.name,
                finalizer.examples.join(", ")
            );
        }
        if let Some(note) = &kind.note {
            let _ = writeln!(text, "    ! {note}");
        }
    }
    if !plan.dependents.is_empty() {
        text.push_str("\nOther extensions depend on it, so that it is not removed:\n");
    }
    for dependent in &plan.dependents {
        let _ = writeln!(text, "! {}: {}", dependent.extension, dependent.reason);
    }
    text
}
