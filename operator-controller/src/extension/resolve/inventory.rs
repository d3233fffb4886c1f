//! The facts of the cluster for the choice of a bundle: the other extensions, the served APIs, the cluster itself. Only
//! facts that bundles mention are read, so a bundle without requirements costs no request.

use std::sync::Arc;
use std::time::Instant;

use olm_api::names::user;
use olm_api::updates::held_back;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_constraint::Requirement;
use olm_fbc::property::{TYPE_GVK, TYPE_PACKAGE};
use olm_resolve::blocker::listed;
use olm_resolve::cluster::inventory::{
    DependentsError, Inventory, Questions, dependents, installed_extension, requires,
};
use olm_resolve::{Dependents, InstalledExtension, Package, Platform, broken_by_removal};

use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError, retrying_unless_terminal};
use crate::extension::revisions::Revisions;
use olm_rollout::policy::Uninstall;

/// Types of properties for which the bundle's own files have precedence over a catalog.
pub(crate) const OWN: [&str; 2] = [TYPE_PACKAGE, TYPE_GVK];
/// The reason why the facts are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InventoryError {
    /// The kinds or the version of the cluster are unknown.
    #[error("cannot {0}")]
    Cluster(&'static str, #[source] kube::Error),
    /// The annotation has an invalid value.
    #[error(transparent)]
    Annotation(#[from] DependentsError),
}

impl StageError for InventoryError {
    fn severity(&self) -> Severity {
        match self {
            Self::Cluster(..) => Severity::Transient,
            Self::Annotation(_) => Severity::Terminal,
        }
    }

    fn reason(&self) -> &'static str {
        retrying_unless_terminal(self.severity())
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Cluster(..) => held_back::OTHER,
            Self::Annotation(_) => held_back::CONFIGURATION,
        }
    }
}

/// The facts about the cluster that the choice among these packages needs.
pub(crate) async fn gather<'a>(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    packages: impl Iterator<Item = &'a Package>,
) -> Result<Inventory, InventoryError> {
    inventory_for(context, extension, revisions, Questions::of_packages(packages)).await
}

/// The facts that a bundle's own files mention.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn of_bundle(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    requirements: &[Requirement],
    platform: Option<&Platform>,
) -> Result<Inventory, InventoryError> {
    let questions = Questions::of_bundle(requirements, platform);
    inventory_for(context, extension, revisions, questions).await
}

/// The facts about the cluster itself that a bundle mentions.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn of_platform(context: &Context, platform: &Platform) -> Result<Inventory, InventoryError> {
    let questions = Questions::of_bundle(&[], Some(platform));
    let mut inventory = Inventory::default();
    ask(context, questions, &mut inventory).await?;
    Ok(inventory)
}

async fn inventory_for(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    mut questions: Questions,
) -> Result<Inventory, InventoryError> {
    let mut inventory = Inventory {
        dependents: dependents(extension)?,
        ..Inventory::default()
    };
    if questions.requires || any_requires(context) {
        inventory.own = present(revisions).map(|set| installed_extension(extension.name(), set));
        inventory.others = others(context, extension);
        questions.of_installed(&inventory.others);
    }
    ask(context, questions, &mut inventory).await?;
    Ok(inventory)
}

/// Reads the facts about the cluster itself.
async fn ask(
    context: &Context,
    questions: Questions,
    inventory: &mut Inventory,
) -> Result<(), InventoryError> {
    let asked = Instant::now();
    for api in questions.apis {
        let found = context
            .discovery
            .find_since(&api.group, &api.version, &api.kind, asked)
            .await;
        if found
            .map_err(|error| InventoryError::Cluster("discover the kinds that the cluster serves", error))?
            .is_some()
        {
            inventory.served.insert(api);
        }
    }
    if questions.version {
        let version = context.cluster.version().await;
        inventory.kubernetes =
            version.map_err(|error| InventoryError::Cluster("read the version of the cluster", error))?;
    }
    if questions.architectures {
        inventory.architectures = context.cluster.architectures().await;
    }
    Ok(())
}

/// Whether any revision has requirements.
fn any_requires(context: &Context) -> bool {
    context.sets.state().iter().any(|set| requires(set))
}

/// The other installed extensions, without those that are being deleted or were never complete.
fn others(context: &Context, extension: &ClusterExtension) -> Vec<InstalledExtension> {
    let mut others = context.extensions.state();
    others.retain(|other| other.name() != extension.name() && !other.is_deleting());
    others.sort_unstable_by(|left, right| left.name().cmp(right.name()));
    let installed = |other: &Arc<ClusterExtension>| installed(context, other.name());
    others.iter().filter_map(installed).collect()
}

/// The installed bundle of another extension.
pub(crate) fn installed(context: &Context, extension: &str) -> Option<InstalledExtension> {
    present(&context.revisions(extension)).map(|set| installed_extension(extension, set))
}

/// The revision that counts as installed: the newest active one, once any was complete.
fn present(revisions: &Revisions) -> Option<&ClusterObjectSet> {
    revisions.installed().and_then(|_| revisions.newest_active())
}

/// The recorded properties of a revision's bundle without those for which its own files have precedence.
pub(crate) fn declared(set: &ClusterObjectSet) -> Vec<(String, serde_json::Value)> {
    let mut declared = olm_resolve::cluster::inventory::declared(set);
    declared.retain(|(kind, _)| !OWN.contains(&kind.as_str()));
    declared
}

/// The reason why an extension may not be uninstalled: others depend on it. `None` if it may be uninstalled.
///
/// # Errors
/// The cluster did not answer, or the user's override is invalid.
pub(crate) async fn needed_by_others(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    uninstall: Uninstall,
) -> Result<Option<String>, InventoryError> {
    if uninstall == Uninstall::Orphan {
        return Ok(None);
    }
    // The requirements of an unreadable revision are unknown, and a deleted CRD takes all its objects along.
    let unreadable = context
        .sets
        .unreadable_of_others(extension.metadata.uid.as_deref());
    if let Some(unreadable) =
        unreadable.filter(|_| dependents(extension).is_ok_and(|d| matches!(d, Dependents::Protected)))
    {
        return Ok(Some(format!(
            "not uninstalled: {unreadable}; whether it depends on this extension is unknown"
        )));
    }
    if !any_requires(context) {
        return Ok(None);
    }
    let mut inventory = inventory_for(context, extension, revisions, Questions::default()).await?;
    if uninstall == Uninstall::KeepCrds
        && let Some(own) = &mut inventory.own
    {
        // They stay, and are served without the extension.
        inventory.served.extend(own.subject.apis.drain(..));
    }
    let broken = broken_by_removal(&inventory.facts());
    Ok((!broken.is_empty()).then(|| {
        format!(
            "not uninstalled, because others depend on it: {}; update or uninstall them first, or set the annotation {}: \"true\" to continue anyway",
            listed(&broken),
            user::ALLOW_BREAK_DEPENDENTS
        )
    }))
}
