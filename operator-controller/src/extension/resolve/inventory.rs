//! What is known of the cluster when a bundle is chosen: the other extensions, which APIs are served, the cluster
//! itself. Only what somebody asks about is looked for: a bundle that requires nothing costs no request.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use olm_api::conditions::reason;
use olm_api::names::{annotation, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::Bundle;
use olm_constraint::{Gvk, Requirement, RequirementError, Subject};
use olm_fbc::Property;
use olm_fbc::property::{TYPE_CONSTRAINT, TYPE_GVK_REQUIRED, TYPE_PACKAGE, TYPE_PACKAGE_REQUIRED};
use olm_resolve::hindrance::listed;
use olm_resolve::{
    Dependents, Facts, Ground, Hindrance, Neighbour, Package, Platform, Refusal, broken_by_removal,
    recorded_version, refuse, unmet,
};
use olm_version::blang::parse_tolerant;
use semver::Version;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError};
use crate::extension::observe::revisions::{BundleIdentity, Revisions};
use crate::extension::resolve::proposals;
use crate::extension::resolve::{OWN, Target};
use crate::object_set::policy::Uninstall;

/// For how long what is known of the cluster itself is not asked again.
const FRESH: Duration = Duration::from_mins(5);
/// For how long a bundle that lacks nothing is not asked about again.
const CONTENT: Duration = Duration::from_hours(1);
/// How many APIs are asked for in one run; those of newer bundles first.
const MOST_APIS: usize = 200;
/// How many nodes one answer tells of.
const NODES: u32 = 500;
/// Types of properties that require something.
pub(crate) const REQUIRED: [&str; 3] = [TYPE_PACKAGE_REQUIRED, TYPE_GVK_REQUIRED, TYPE_CONSTRAINT];
/// The label that says a node's architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Why the facts are not known, or a bundle cannot be there.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The cluster does not say which kinds it serves.
    #[error("cannot find out which kinds the cluster serves")]
    Discover(#[source] kube::Error),
    /// The cluster does not say its version.
    #[error("cannot find out the version of the cluster")]
    Version(#[source] kube::Error),
    /// The annotation has a value that means nothing.
    #[error("annotation {key}: {0:?} is neither \"true\" nor \"false\"", key = user::ALLOW_BREAK_DEPENDENTS)]
    Annotation(String),
    /// The bundle's own files require what its catalog does not tell, and that is not sound.
    #[error("what the bundle requires by {kind} is not sound")]
    Unsound {
        /// The type.
        kind: String,
        /// What is wrong.
        #[source]
        fault: Box<RequirementError>,
    },
    /// The bundle's own files require what its catalog does not tell, and that is not there.
    #[error(transparent)]
    Held(Refusal),
}

impl StageError for FactsError {
    fn severity(&self) -> Severity {
        match self {
            Self::Discover(_) | Self::Version(_) => Severity::Transient,
            Self::Annotation(_) | Self::Unsound { .. } => Severity::Terminal,
            Self::Held(_) => Severity::Waiting,
        }
    }

    fn reason(&self) -> &'static str {
        match self.severity() {
            Severity::Terminal => reason::BLOCKED,
            Severity::Waiting | Severity::Transient | Severity::Unfinished => reason::RETRYING,
        }
    }
}

/// What was found out of the cluster itself, and when.
#[derive(Debug, Default)]
pub struct Known {
    version: Mutex<Option<(Instant, Version)>>,
    architectures: Mutex<Option<(Instant, Vec<String>)>>,
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

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct Gathered {
    neighbours: Vec<Neighbour>,
    own: Option<Neighbour>,
    served: HashSet<Gvk>,
    version: Option<Version>,
    architectures: Vec<String>,
    dependents: Dependents,
}

impl Gathered {
    /// The facts as resolution takes them.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            neighbours: &self.neighbours,
            own: self.own.as_ref(),
            served: &self.served,
            ground: Ground {
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
) -> Result<Gathered, FactsError> {
    find_out(context, extension, revisions, Questions::of_packages(packages)).await
}

async fn find_out(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    mut questions: Questions,
) -> Result<Gathered, FactsError> {
    let mut gathered = Gathered {
        dependents: dependents(extension)?,
        ..Gathered::default()
    };
    if questions.requires || somebody_requires(context) {
        gathered.own = present(revisions).map(|set| neighbour(extension.name(), set));
        gathered.neighbours = neighbours(context, extension);
        let required = gathered
            .neighbours
            .iter()
            .flat_map(|neighbour| &neighbour.requirements);
        questions
            .apis
            .extend(required.flat_map(Requirement::apis).cloned());
    }
    ask(context, questions, &mut gathered).await?;
    Ok(gathered)
}

/// Asks the cluster itself.
async fn ask(context: &Context, questions: Questions, gathered: &mut Gathered) -> Result<(), FactsError> {
    let asked = Instant::now();
    for api in questions.apis {
        let found = context
            .discovery
            .find_since(&api.group, &api.version, &api.kind, asked)
            .await;
        if found.map_err(FactsError::Discover)?.is_some() {
            gathered.served.insert(api);
        }
    }
    if questions.version {
        gathered.version = version(&context.known, &context.client).await?;
    }
    if questions.architectures {
        gathered.architectures = architectures(&context.known, &context.client).await;
    }
    Ok(())
}

fn dependents(extension: &ClusterExtension) -> Result<Dependents, FactsError> {
    match extension.annotation(user::ALLOW_BREAK_DEPENDENTS) {
        None | Some("false") => Ok(Dependents::Protected),
        Some("true") => Ok(Dependents::MayBreak),
        Some(other) => Err(FactsError::Annotation(other.to_owned())),
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
    let told = recorded(set).into_iter();
    let told = told.filter(|property| !OWN.contains(&property.kind.as_str()));
    told.map(value).collect()
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

async fn version(known: &Known, client: &Client) -> Result<Option<Version>, FactsError> {
    let mut kept = known.version.lock().await;
    if let Some((_, version)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
        return Ok(Some(version.clone()));
    }
    let info = client.apiserver_version().await.map_err(FactsError::Version)?;
    let version = parse_tolerant(&info.git_version).ok();
    *kept = version.clone().map(|version| (Instant::now(), version));
    Ok(version)
}

/// The architectures of the nodes; none when they may not be read.
async fn architectures(known: &Known, client: &Client) -> Vec<String> {
    let mut kept = known.architectures.lock().await;
    if let Some((_, found)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
        return found.clone();
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let mut found = BTreeSet::new();
    let mut page = ListParams::default().limit(NODES);
    loop {
        match nodes.list_metadata(&page).await {
            Ok(list) => {
                let labels = list.items.iter().filter_map(|node| node.metadata.labels.as_ref());
                found.extend(labels.filter_map(|labels| labels.get(ARCHITECTURE).cloned()));
                match list.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => break,
                }
            }
            Err(error) => {
                // Unknown now, and asked again the next time.
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot read the nodes");
                return Vec::new();
            }
        }
    }
    let found: Vec<String> = found.into_iter().collect();
    *kept = Some((Instant::now(), found.clone()));
    found
}

/// Whether a bundle can be there, as far as its own files ask for more than its catalog told.
///
/// # Errors
/// When it cannot, or the cluster cannot be asked.
pub async fn admit(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    target: &Target,
    bundle: &Bundle,
) -> Result<(), FactsError> {
    let mut requirements = Vec::new();
    for dependency in bundle.dependencies() {
        let (kind, value) = (dependency.property_kind(), dependency.property_value());
        if target.declared.iter().any(|(k, v)| k == kind && *v == value) {
            continue;
        }
        let requirement = Requirement::of_dependency(kind, &value.to_string());
        requirements.push(requirement.map_err(|fault| FactsError::Unsound {
            kind: kind.to_owned(),
            fault: Box::new(fault),
        })?);
    }
    let platform = platform(bundle);
    if requirements.is_empty() && platform.is_none() {
        return Ok(());
    }
    let mut questions = Questions {
        apis: requirements.iter().flat_map(Requirement::apis).cloned().collect(),
        requires: !requirements.is_empty(),
        ..Questions::default()
    };
    questions.platform(platform.as_ref());
    let gathered = find_out(context, extension, revisions, questions).await?;
    let facts = gathered.facts();
    let properties = bundle.provided_properties().into_iter();
    let subject = Subject::new(
        bundle.name(),
        bundle.package(),
        recorded_version(&target.bundle.metadata.version),
        properties
            .map(|property| Property::new(property.kind, property.value.to_string()))
            .collect(),
    );
    let mut found: Vec<Hindrance> = platform
        .map(|platform| platform.hindrances(facts.ground, facts.served))
        .unwrap_or_default();
    found.retain(Hindrance::forbids);
    found.extend(unmet(&requirements, &subject, &facts));
    if found.is_empty() {
        return Ok(());
    }
    let mut refusal = refuse(bundle.name(), &target.catalog, &found);
    proposals::propose(context, extension, &mut refusal, &gathered).await;
    Err(FactsError::Held(refusal))
}

/// What a bundle's own files ask of the cluster itself; nothing when they ask for nothing.
pub fn platform(bundle: &Bundle) -> Option<Platform> {
    let csv = bundle.csv();
    let apis = csv.spec.native_apis.iter().map(|api| Gvk {
        group: api.group.clone(),
        version: api.version.clone(),
        kind: api.kind.clone(),
    });
    let labels = csv
        .metadata
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    Platform::new(Some(&csv.spec.min_kube_version), apis.collect(), labels)
}

/// What was found in the way of an installed bundle, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubts {
    asked: Instant,
    of: Arc<Platform>,
    found: Option<String>,
}

impl Doubts {
    /// Whether that is still true of what a bundle asks of the cluster. What is lacking may come soon.
    fn stand(&self, platform: &Arc<Platform>, age: Duration) -> bool {
        let fresh = if self.found.is_some() { FRESH } else { CONTENT };
        Arc::ptr_eq(&self.of, platform) && age < fresh
    }
}

/// What an installed bundle names and the cluster lacks; nothing when it lacks nothing, or cannot be asked now. While
/// nothing changes, it is seldom asked again.
pub async fn doubts(context: &Context, extension: &ClusterExtension) -> Option<String> {
    let memory = context.remember(extension.name());
    let platform = memory.platform?;
    let known = memory
        .doubts
        .filter(|known| known.stand(&platform, known.asked.elapsed()));
    if let Some(known) = known {
        return known.found;
    }
    let mut questions = Questions::default();
    questions.platform(Some(&platform));
    let mut gathered = Gathered::default();
    ask(context, questions, &mut gathered).await.ok()?;
    let facts = gathered.facts();
    let found = platform.hindrances(facts.ground, facts.served);
    let found =
        (!found.is_empty()).then(|| format!("The bundle may not work on this cluster: {}", listed(&found)));
    let doubts = Doubts {
        asked: Instant::now(),
        of: platform,
        found: found.clone(),
    };
    context.memorise(extension.name(), |memory| memory.doubts = Some(doubts));
    found
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
) -> Result<Option<String>, FactsError> {
    if uninstall == Uninstall::Orphan || !somebody_requires(context) {
        return Ok(None);
    }
    let mut gathered = find_out(context, extension, revisions, Questions::default()).await?;
    if uninstall == Uninstall::KeepCrds
        && let Some(own) = &mut gathered.own
    {
        // They stay, and are served without the extension.
        gathered.served.extend(own.subject.apis.drain(..));
    }
    let broken = broken_by_removal(&gathered.facts());
    Ok((!broken.is_empty()).then(|| {
        format!(
            "not uninstalled, since others depend on it: {}; update or uninstall them first, or allow that they break \
             by the annotation {}: \"true\"",
            listed(&broken),
            user::ALLOW_BREAK_DEPENDENTS
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_lacks_nothing_is_seldom_asked_about_again() {
        let [of, other] = [(); 2].map(|()| Arc::new(Platform::default()));
        for (found, age, expected) in [
            (None, FRESH, true),
            (None, CONTENT, false),
            (Some("no such API"), FRESH, false),
            (Some("no such API"), FRESH / 2, true),
        ] {
            let doubts = Doubts {
                asked: Instant::now(),
                of: Arc::clone(&of),
                found: found.map(str::to_owned),
            };
            assert_eq!(doubts.stand(&of, age), expected, "{found:?} {age:?}");
            assert!(!doubts.stand(&other, Duration::ZERO));
        }
    }
}
