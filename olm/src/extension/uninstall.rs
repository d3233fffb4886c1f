//! `olm uninstall --dry-run`: what a deletion of a ClusterExtension takes away, keeps and waits for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::names;
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_plan::change::ObjectName;
use olm_plan::uninstall::{CustomResources, Dependent, Stored, UninstallPlan, uninstall};
use olm_preflight::crd_upgrade::{definition_name, resource};
use olm_resolve::{Blocker, broken_by_removal};
use olm_rollout::policy::{Policy, Uninstall};
use serde_json::Value;

use super::cluster::{Cluster, active};
use super::rollback::{objects, revisions};
use crate::output::{Format, Outcome, Status};
use crate::resolve;

/// Objects of one kind that are looked at for finalizers.
const MAX_OBJECTS: usize = 10_000;
/// Bytes of their metadata.
const MAX_BYTES: u64 = 64 << 20;
/// How long the objects of one kind may take.
const MAX_TIME: Duration = Duration::from_mins(1);

#[derive(Debug, Args)]
#[command(
    after_help = format!("Which objects stay is decided by the annotation {} of the ClusterExtension: delete, keep-crds or \
                  orphan. Finalizers are those of custom resources that only the operator removes, which is gone by \
                  then.\n\nTo uninstall: kubectl delete clusterextension NAME\n\nExit status: 0 when the deletion can \
                  begin, 1 when other extensions depend on this one.", names::user::UNINSTALL)
)]
pub(crate) struct Arguments {
    /// ClusterExtension to look at
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Change nothing; required, because kubectl deletes a ClusterExtension
    #[arg(long, required = true)]
    dry_run: bool,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Path to the kubeconfig file [default: $KUBECONFIG, then that of kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = names::SYSTEM_NAMESPACE)]
    system_namespace: String,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let cluster = Cluster::reach(arguments.kubeconfig.as_deref())?;
    let extension = cluster.extension(&arguments.extension)?;
    let policy = Policy::read(|key| extension.annotation(key))?.uninstall;
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
    arguments.output.print(&plan, || text(&plan))?;
    Ok(if plan.dependents.is_empty() {
        Status::Success
    } else {
        Status::Failure
    })
}

/// What there is of a kind.
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
    let mut seen = Stored::default();
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
                Ok(page) => page.iter().for_each(|object| seen.see(object)),
                Err(end) => return end,
            }
        }
    });
    found.finalizers = seen.finalizers();
    found.note = match end {
        End::Complete => None,
        End::Spent(what) => Some(format!("not all objects were looked at: too much {what}")),
        End::Failed(failure) => Some(format!("cannot list the objects: {}", failure.message)),
    };
    Ok(found)
}

/// The extensions whose requirements would no longer hold.
fn dependents(arguments: &Arguments, cluster: &Cluster, policy: Uninstall) -> anyhow::Result<Vec<Dependent>> {
    let mut inventory = cluster.runtime.block_on(async {
        let known = resolve::cluster::Cluster::reach(arguments.kubeconfig.as_deref()).await?;
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

fn named(id: &ObjectName) -> String {
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
        ("Left on the cluster", ' ', &plan.left),
    ] {
        if !list.is_empty() {
            let _ = write!(text, "\n{title}:\n");
        }
        for id in list {
            let _ = writeln!(text, "{sign} {}", named(id));
        }
    }
    if !plan.custom_resources.is_empty() {
        text.push_str("\nCustom resources:\n");
    }
    for kind in &plan.custom_resources {
        let count = kind
            .objects
            .map_or("an unknown number".to_owned(), |count| count.to_string());
        let (sign, fate) = if kind.left {
            (' ', "left")
        } else {
            ('-', "deleted")
        };
        let _ = writeln!(text, "{sign} {}: {count} {fate}", kind.definition);
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
