//! What there is on the cluster when a bundle is chosen: the other extensions, which APIs are served, the cluster itself.
//! Only what somebody asks about is looked for: a bundle that requires nothing costs no request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use olm_api::names::{annotation, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_constraint::{Gvk, Requirement, Subject};
use olm_fbc::Property;
use olm_fbc::property::{
    TYPE_CONSTRAINT, TYPE_GVK, TYPE_GVK_REQUIRED, TYPE_MAX_OPENSHIFT_VERSION, TYPE_PACKAGE,
    TYPE_PACKAGE_REQUIRED,
};
use olm_resolve::blocker::listed;
use olm_resolve::{
    ClusterPlatform, ClusterState, Dependents, Neighbour, Package, Platform, broken_by_removal,
    recorded_version,
};
use semver::Version;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError};
use crate::extension::revisions::{BundleIdentity, Revisions};
use olm_rollout::policy::Uninstall;

/// Types of properties that the bundle's own files say better than a catalog.
pub(crate) const OWN: [&str; 3] = [TYPE_PACKAGE, TYPE_GVK, TYPE_MAX_OPENSHIFT_VERSION];
/// How many APIs are asked for in one run; those of newer bundles first.
const MOST_APIS: usize = 200;
/// Types of properties that require something.
pub(crate) const REQUIRED: [&str; 3] = [TYPE_PACKAGE_REQUIRED, TYPE_GVK_REQUIRED, TYPE_CONSTRAINT];
/// Why it is not known what there is on the cluster.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The cluster does not say which kinds it serves.
    #[error("cannot find out which kinds the cluster serves")]
    Discover(#[source] kube::Error),
    /// The cluster does not say its version.
    #[error("cannot find out the version of the cluster")]
    Version(#[source] kube::Error),
    /// The annotation has a value that means nothing.
    #[error("annotation {key}: {0:?} is neither \"true\" nor \"false\"", key = user::ALLOW_BREAK_DEPENDENTS)]
    Annotation(String),
}

impl StageError for InventoryError {
    fn severity(&self) -> Severity {
        match self {
            Self::Discover(_) | Self::Version(_) => Severity::Transient,
            Self::Annotation(_) => Severity::Terminal,
        }
    }

    fn reason(&self) -> &'static str {
        self.severity().retrying_unless_terminal()
    }
}

/// What bundles ask about.
#[derive(Debug, Default)]
struct Questions {
    apis: HashSet<Gvk>,
    requires: bool,
    version: bool,
    architectures: bool,
}

impl Questions {
    fn of_packages<'a>(packages: impl Iterator<Item = &'a Package>) -> Self {
        let mut questions = Self::default();
        for package in packages {
            let asks = |package: &Package| {
                let mut candidates = package.candidates().iter();
                candidates.any(|candidate| !candidate.requirements.is_empty() || candidate.platform.is_some())
            };
            if !asks(package) {
                continue;
            }
            for candidate in package.newest_first() {
                questions.requires |= !candidate.requirements.is_empty();
                questions.platform(candidate.platform.as_deref());
                questions.apis(candidate.apis_in_question());
            }
        }
        questions
    }

    fn platform(&mut self, platform: Option<&Platform>) {
        if let Some(platform) = platform {
            self.version |= platform.kubernetes.is_some();
            self.architectures |= !platform.architectures.is_empty();
            self.apis(platform.apis.iter());
        }
    }

    /// Adds what is asked about, as far as it is not too much: each may cost a request, and catalogs name what they like.
    fn apis<'a>(&mut self, apis: impl Iterator<Item = &'a Gvk>) {
        for api in apis {
            if self.apis.len() >= MOST_APIS {
                return;
            }
            if !self.apis.contains(api) {
                self.apis.insert(api.clone());
            }
        }
    }
}

/// What there is on the cluster, as far as somebody asks about it.
#[derive(Debug, Default)]
pub struct Inventory {
    neighbours: Vec<Neighbour>,
    own: Option<Neighbour>,
    served: HashSet<Gvk>,
    version: Option<Version>,
    architectures: Vec<String>,
    dependents: Dependents,
}

impl Inventory {
    /// The facts as resolution takes them.
    pub fn facts(&self) -> ClusterState<'_> {
        ClusterState {
            neighbours: &self.neighbours,
            own: self.own.as_ref(),
            served: &self.served,
            platform: ClusterPlatform {
                kubernetes: self.version.as_ref(),
                architectures: &self.architectures,
            },
            dependents: self.dependents,
        }
    }

    /// The ClusterExtensions that are there.
    pub fn neighbours(&self) -> &[Neighbour] {
        &self.neighbours
    }
}

/// What is known of the cluster as far as these packages ask about it.
pub async fn gather<'a>(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    packages: impl Iterator<Item = &'a Package>,
) -> Result<Inventory, InventoryError> {
    find_out(context, extension, revisions, Questions::of_packages(packages)).await
}

/// What there is of what a bundle's own files require and ask of the cluster.
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
    let mut questions = Questions {
        apis: requirements.iter().flat_map(Requirement::apis).cloned().collect(),
        requires: !requirements.is_empty(),
        ..Questions::default()
    };
    questions.platform(platform);
    find_out(context, extension, revisions, questions).await
}

/// What there is of what a bundle asks of the cluster itself.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn of_platform(context: &Context, platform: &Platform) -> Result<Inventory, InventoryError> {
    let mut questions = Questions::default();
    questions.platform(Some(platform));
    let mut inventory = Inventory::default();
    ask(context, questions, &mut inventory).await?;
    Ok(inventory)
}

async fn find_out(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    mut questions: Questions,
) -> Result<Inventory, InventoryError> {
    let mut inventory = Inventory {
        dependents: dependents(extension)?,
        ..Inventory::default()
    };
    if questions.requires || somebody_requires(context) {
        inventory.own = present(revisions).map(|set| neighbour(extension.name(), set));
        inventory.neighbours = neighbours(context, extension);
        let required = inventory
            .neighbours
            .iter()
            .flat_map(|neighbour| &neighbour.requirements);
        questions
            .apis
            .extend(required.flat_map(Requirement::apis).cloned());
    }
    ask(context, questions, &mut inventory).await?;
    Ok(inventory)
}

/// Asks the cluster itself.
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
        if found.map_err(InventoryError::Discover)?.is_some() {
            inventory.served.insert(api);
        }
    }
    if questions.version {
        inventory.version = context.cluster.version().await.map_err(InventoryError::Version)?;
    }
    if questions.architectures {
        inventory.architectures = context.cluster.architectures().await;
    }
    Ok(())
}

fn dependents(extension: &ClusterExtension) -> Result<Dependents, InventoryError> {
    match extension.annotation(user::ALLOW_BREAK_DEPENDENTS) {
        None | Some("false") => Ok(Dependents::Protected),
        Some("true") => Ok(Dependents::MayBreak),
        Some(other) => Err(InventoryError::Annotation(other.to_owned())),
    }
}

/// Whether any revision requires something. Only text is looked at.
fn somebody_requires(context: &Context) -> bool {
    let requires = |set: &Arc<ClusterObjectSet>| {
        let text = set.annotation(annotation::PROPERTIES).unwrap_or_default();
        REQUIRED.iter().any(|kind| text.contains(kind))
    };
    context.sets.state().iter().any(requires)
}

/// The other extensions that are there. One that is being deleted is not, nor is one that was never complete.
fn neighbours(context: &Context, extension: &ClusterExtension) -> Vec<Neighbour> {
    let mut others = context.extensions.state();
    others.retain(|other| other.name() != extension.name() && !other.is_deleting());
    others.sort_unstable_by(|left, right| left.name().cmp(right.name()));
    let installed = |other: &Arc<ClusterExtension>| installed(context, other.name());
    others.iter().filter_map(installed).collect()
}

/// What is there of another extension.
pub(crate) fn installed(context: &Context, extension: &str) -> Option<Neighbour> {
    present(&context.revisions(extension)).map(|set| neighbour(extension, set))
}

/// What is there of an extension: once something was complete, the newest that is wanted.
fn present(revisions: &Revisions) -> Option<&ClusterObjectSet> {
    revisions.installed().and_then(|_| revisions.newest_active())
}

#[derive(Deserialize)]
struct Recorded<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// The properties that a revision records.
fn recorded(set: &ClusterObjectSet) -> Vec<Recorded<'_>> {
    let text = set.annotation(annotation::PROPERTIES).unwrap_or("[]");
    serde_json::from_str(text).unwrap_or_default()
}

/// What a revision records of its bundle that the bundle's own files do not say better: the types and values of properties.
pub fn declared(set: &ClusterObjectSet) -> Vec<(String, serde_json::Value)> {
    let value = |property: Recorded<'_>| {
        let value = serde_json::from_str(property.value.get()).unwrap_or_default();
        (property.kind, value)
    };
    let further = recorded(set).into_iter();
    let further = further.filter(|property| !OWN.contains(&property.kind.as_str()));
    further.map(value).collect()
}

fn neighbour(extension: &str, set: &ClusterObjectSet) -> Neighbour {
    let bundle = BundleIdentity::of(set);
    let mut properties: Vec<Property> = recorded(set)
        .into_iter()
        .map(|property| Property::new(property.kind, property.value.get()))
        .collect();
    if !properties.iter().any(|property| property.kind == TYPE_PACKAGE) {
        let value = serde_json::json!({"packageName": bundle.package, "version": bundle.metadata.version});
        properties.push(Property::new(TYPE_PACKAGE, value.to_string()));
    }
    Neighbour {
        requirements: properties
            .iter()
            .filter_map(|property| Requirement::of_property(property)?.ok())
            .collect(),
        subject: Subject::new(
            extension,
            bundle.package,
            recorded_version(&bundle.metadata.version),
            properties,
        ),
    }
}

/// Why an extension may not be uninstalled: others depend on it. Nothing when it may.
///
/// # Errors
/// When the cluster cannot be asked, or the user's override means nothing.
pub async fn needed_by_others(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    uninstall: Uninstall,
) -> Result<Option<String>, InventoryError> {
    if uninstall == Uninstall::Orphan {
        return Ok(None);
    }
    // What an unreadable revision requires is unknown, and a removed CRD takes all its objects along.
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
    if !somebody_requires(context) {
        return Ok(None);
    }
    let mut inventory = find_out(context, extension, revisions, Questions::default()).await?;
    if uninstall == Uninstall::KeepCrds
        && let Some(own) = &mut inventory.own
    {
        // They stay, and are served without the extension.
        inventory.served.extend(own.subject.apis.drain(..));
    }
    let broken = broken_by_removal(&inventory.facts());
    Ok((!broken.is_empty()).then(|| {
        format!(
            "not uninstalled, since others depend on it: {}; update or uninstall them first, or allow that they break \
             by the annotation {}: \"true\"",
            listed(&broken),
            user::ALLOW_BREAK_DEPENDENTS
        )
    }))
}
