//! Which bundle the extension gets: the catalogs are asked, [`olm_resolve`] decides.

pub mod inventory;
pub mod proposals;
pub mod upgrade_gate;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter, UpgradeConstraintPolicy};
use olm_api::conditions::{SERVING, is_true, reason};
use olm_api::names::label;
use olm_api::{ClusterCatalog, ClusterExtension, LabelSelector};
use olm_fbc::property::{TYPE_GVK, TYPE_MAX_OPENSHIFT_VERSION, TYPE_PACKAGE};
use olm_platform::log::chain;
use olm_resolve::catalog::is_asked;
use olm_resolve::deprecation::{Messages, messages};
use olm_resolve::hindrance::listed;
use olm_resolve::keep::{Kept, while_unresolved};
use olm_resolve::{
    Availability, Candidate, Catalog, Content, Facts, Hindrance, Installed, Package, Reason, Refusal,
    Request, Selector, SelectorRequirement,
};
use serde_json::Value;

use crate::catalogs::Place;
use crate::extension::context::{Context, Gates};
use crate::extension::failure::{Failure, Severity, StageError};
use crate::extension::observe::revisions::{BundleIdentity, Revisions, is_well};
use crate::extension::resolve::proposals::{Companion, Together};

/// Types of properties that the bundle's own files say better than a catalog.
pub(crate) const OWN: [&str; 3] = [TYPE_PACKAGE, TYPE_GVK, TYPE_MAX_OPENSHIFT_VERSION];
/// Bytes of further properties that are recorded; an annotation has room for more, but not for anything.
const MOST_TOLD: usize = 16 << 10;

/// The bundle that is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The bundle.
    pub bundle: BundleIdentity,
    /// Why this one.
    pub origin: Origin,
    /// The catalog that offers it; empty when none was asked.
    pub catalog: String,
    /// What the catalog says that the bundle requires: the types and values of properties.
    pub declared: Vec<(String, Value)>,
    /// Others without whose own installation or update this one must not happen.
    pub companions: Vec<Companion>,
}

/// Why a bundle is to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A catalog offers it.
    Catalog,
    /// It is there already, and no catalog answers or the catalogs offer the same version.
    Installed,
}

/// What resolution came to.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The bundle that is to be there.
    pub target: Result<Target, Failure>,
    /// What the catalogs say against what is used; nothing when none answered.
    pub deprecations: Option<Messages>,
    /// What is to be told although there is a target.
    pub problem: Option<Failure>,
    /// Which newer bundle is held back, and why.
    pub held: Option<String>,
}

/// Why there is no target.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No bundle fits.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The spec names no package.
    #[error("spec.source.catalog is missing: there is nothing to install")]
    NoPackage,
}

impl StageError for ResolveError {
    fn severity(&self) -> Severity {
        match self {
            Self::NoPackage => Severity::Terminal,
            Self::Refused(refusal) => match refusal.reason() {
                Reason::Selector(_) | Reason::Range { .. } => Severity::Terminal,
                // What is asked for may be misspelled, or not there yet: no fault of ours that would be an error. A catalog
                // that offers something else brings the extension back at once.
                Reason::Held { .. } | Reason::NoBundle(_) | Reason::Version { .. } => Severity::Waiting,
                // A catalog may answer at any time.
                Reason::Catalog { .. } | Reason::Installed(_) => Severity::Transient,
            },
        }
    }

    fn reason(&self) -> &'static str {
        if self.severity() == Severity::Terminal {
            reason::BLOCKED
        } else {
            reason::RETRYING
        }
    }
}

/// A catalog and what it answered.
#[derive(Clone)]
pub(crate) struct Asked {
    catalog: Arc<ClusterCatalog>,
    labels: BTreeMap<String, String>,
    availability: Availability,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    NotAsked,
    Absent,
    Package(Arc<Package>),
    Failed(String),
}

/// Asks the selected catalogs and chooses. While none of them answers, the newest revision that is wanted stays the
/// target if it is still what the spec asks for: an upgrade under way is not turned back (requirement 1.25). What is
/// installed is not installed again when the catalog changes the content of its version (requirement 2.70).
pub async fn resolve(context: &Context, extension: &ClusterExtension, revisions: &Revisions) -> Resolution {
    let Some(filter) = &extension.spec.source.catalog else {
        return refused(ResolveError::NoPackage.into(), None);
    };
    let selector = filter.selector.as_ref().map(selector);
    let request = request(filter, selector.as_ref());
    let present = revisions.installed().map(BundleIdentity::of);
    let present_name = present.as_ref().map(|bundle| bundle.metadata.name.as_str());
    let current = present.as_ref().map(|bundle| as_installed(&bundle.metadata));
    let asked = ask(context, &request).await;
    let catalogs: Vec<Catalog<'_>> = asked.iter().map(Asked::view).collect();
    let gathered = inventory::gather(
        context,
        extension,
        revisions,
        asked.iter().filter_map(Asked::package),
    )
    .await;
    let gathered = match gathered {
        Ok(gathered) => gathered,
        Err(error) => {
            let deprecations = all_messages(&asked, &filter.channels, present_name);
            return refused(error.into(), deprecations);
        }
    };
    let facts = gathered.facts();
    let mut outcome = olm_resolve::resolve_in(&catalogs, &request, current.as_ref(), &facts);
    let (mut companions, mut kept) = (Vec::new(), None);
    if is_held(&outcome) {
        match proposals::together(context, extension, revisions, &asked, &request, current.as_ref()).await {
            Together::Goes(moving, along) => {
                outcome = Ok(*moving);
                companions = along;
            }
            Together::Kept(who) => kept = Some(who),
            Together::Unknown(why) => kept = Some(why.to_string()),
            Together::No => {}
        }
    }
    match outcome {
        Ok(found) => {
            let mut resolution = chosen(context, filter, &found, present);
            if let Ok(target) = &mut resolution.target {
                target.companions = companions;
            }
            if let (Some(held), Some(who)) = (&mut resolution.held, kept) {
                *held = format!("{held}; {who}");
            }
            resolution
        }
        Err(mut refusal) => {
            let deprecations = all_messages(&asked, &filter.channels, present_name);
            let follows = follows(revisions, &catalogs, &request, &facts);
            if follows.is_some() && revisions.on_its_way().is_some_and(is_well) {
                refusal.clear_hints();
            } else {
                proposals::propose(context, extension, &mut refusal, &gathered).await;
            }
            for hint in kept.into_iter().chain(follows) {
                refusal.hint(hint);
            }
            if revisions.newest_active().is_none() {
                suggest(context, &asked, &request, &mut refusal).await;
            }
            let silent = matches!(refusal.reason(), Reason::Catalog { .. });
            let failure = Failure::from(ResolveError::Refused(refusal));
            let newest = revisions
                .newest_active()
                .map(BundleIdentity::of)
                .or(present.clone());
            let keep = newest
                .as_ref()
                .map(|bundle| as_installed(&bundle.metadata))
                .is_some_and(|newest| while_unresolved(&catalogs, &request, &newest) == Kept::Yes);
            match newest.filter(|_| keep && failure.severity != Severity::Terminal) {
                Some(bundle) => {
                    let declared_before = revisions
                        .newest_active()
                        .map(inventory::declared)
                        .unwrap_or_default();
                    let target = Ok(Target {
                        bundle,
                        origin: Origin::Installed,
                        catalog: String::new(),
                        declared: declared_before,
                        companions: Vec::new(),
                    });
                    Resolution {
                        target,
                        deprecations,
                        problem: silent.then_some(failure),
                        held: None,
                    }
                }
                None => refused(failure, deprecations),
            }
        }
    }
}

/// Where what is asked for is an update of what is on its way: that it is.
fn follows(
    revisions: &Revisions,
    catalogs: &[Catalog<'_>],
    request: &Request<'_>,
    facts: &Facts<'_>,
) -> Option<String> {
    let set = revisions.on_its_way()?;
    let bundle = BundleIdentity::of(set).metadata;
    let found = olm_resolve::resolve_in(catalogs, request, Some(&as_installed(&bundle)), facts).ok()?;
    (found.bundle.name != bundle.name).then(|| {
        format!(
            "{} is on its way as {}, and {} is an update of it: that is tried once {0} is complete; to change how {0} is \
             installed, ask for its version meanwhile",
            bundle.name,
            set.name(),
            found.bundle.name
        )
    })
}

/// What follows from a choice.
fn chosen(
    context: &Context,
    filter: &CatalogFilter,
    found: &olm_resolve::Resolution<'_>,
    present: Option<BundleIdentity>,
) -> Resolution {
    let present_name = present.as_ref().map(|bundle| bundle.metadata.name.as_str());
    let held = found
        .held
        .first()
        .map(|held| format!("{} is held back: {}", held.bundle.name, listed(&held.hindrances)));
    let declared = declared(found.bundle);
    let none = olm_fbc::Deprecations::default();
    let deprecations = messages(
        found.deprecations.unwrap_or(&none),
        &filter.channels,
        present_name,
    );
    let bundle = identity(&filter.package_name, found.bundle, context.gates);
    let there = present.filter(|present| present.metadata == bundle.metadata);
    let origin = match there {
        Some(_) => Origin::Installed,
        None => Origin::Catalog,
    };
    let target = Ok(Target {
        bundle: there.unwrap_or(bundle),
        origin,
        catalog: found.catalog.to_owned(),
        declared,
        companions: Vec::new(),
    });
    Resolution {
        target,
        deprecations: Some(deprecations),
        problem: None,
        held,
    }
}

fn refused(failure: Failure, deprecations: Option<Messages>) -> Resolution {
    Resolution {
        target: Err(failure),
        deprecations,
        problem: None,
        held: None,
    }
}

/// Names the package that is probably meant where no catalog has the one that is asked for.
async fn suggest(context: &Context, asked: &[Asked], request: &Request<'_>, refusal: &mut Refusal) {
    if !refusal.is_of_unknown_package() {
        return;
    }
    let absent = asked
        .iter()
        .filter(|asked| matches!(asked.answer, Answer::Absent));
    let alike = absent.map(|asked| alike(context, &asked.catalog, request.package));
    let alike = join_all(alike.collect::<Vec<_>>()).await;
    let names = alike.iter().flatten();
    refusal.suggest(names.map(|(catalog, name)| (*catalog, name.as_str())));
}

/// The package of the catalog that is called most like this one. What cannot be asked is no loss: it is a hint.
async fn alike<'a>(
    context: &Context,
    catalog: &'a ClusterCatalog,
    package: &str,
) -> Option<(&'a str, String)> {
    let place = place(catalog).ok()?;
    let found = context.catalogs.alike(place, package).await;
    let name = found.ok().flatten()?;
    Some((catalog.name(), name))
}

/// Whether a bundle would be chosen if others were there or moved along.
fn is_held(outcome: &Result<olm_resolve::Resolution<'_>, Refusal>) -> bool {
    match outcome {
        Ok(found) => {
            let mut hindrances = found.held.iter().flat_map(|held| &held.hindrances);
            hindrances.any(Hindrance::is_about_others)
        }
        Err(refusal) => matches!(refusal.reason(), Reason::Held { .. }),
    }
}

/// What the catalog says of a bundle that has to be known once it is installed: what it requires, and what others may
/// require of it, as far as that is short.
fn declared(bundle: &Candidate) -> Vec<(String, Value)> {
    let mut room = MOST_TOLD;
    let told = bundle.properties.iter().filter(|one| {
        let kind = one.kind.as_str();
        if inventory::REQUIRED.contains(&kind) {
            return true;
        }
        let is_told = !OWN.contains(&kind) && one.value.len() <= room;
        room -= if is_told { one.value.len() } else { 0 };
        is_told
    });
    let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
    told.map(|one| (one.kind.clone(), value(&one.value))).collect()
}

/// A bundle that is recorded as installed, as resolution wants it.
pub(crate) fn as_installed(bundle: &BundleMetadata) -> Installed<'_> {
    Installed {
        name: &bundle.name,
        version: &bundle.version,
        release: bundle.release.as_deref(),
    }
}

pub(crate) fn request<'a>(filter: &'a CatalogFilter, selector: Option<&'a Selector>) -> Request<'a> {
    Request {
        package: &filter.package_name,
        version: filter.version.as_deref().filter(|version| !version.is_empty()),
        channels: &filter.channels,
        selector,
        policy: match filter.upgrade_constraint_policy {
            UpgradeConstraintPolicy::CatalogProvided => olm_resolve::UpgradeConstraintPolicy::CatalogProvided,
            UpgradeConstraintPolicy::SelfCertified => olm_resolve::UpgradeConstraintPolicy::SelfCertified,
        },
    }
}

pub(crate) fn selector(selector: &LabelSelector) -> Selector {
    let expressions = selector.match_expressions.iter().flatten();
    Selector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions: expressions
            .map(|e| SelectorRequirement {
                key: e.key.clone(),
                operator: e.operator.clone(),
                values: e.values.clone().unwrap_or_default(),
            })
            .collect(),
    }
}

/// Asks every selected catalog, all at once.
pub(crate) async fn ask(context: &Context, request: &Request<'_>) -> Vec<Asked> {
    let catalogs = context.cluster_catalogs.state();
    join_all(
        catalogs
            .into_iter()
            .map(|catalog| ask_one(context, request, catalog))
            .collect::<Vec<_>>(),
    )
    .await
}

async fn ask_one(context: &Context, request: &Request<'_>, catalog: Arc<ClusterCatalog>) -> Asked {
    let mut labels = catalog.metadata.labels.clone().unwrap_or_default();
    // Selectors see the label even before catalogd has set it.
    labels.insert(label::METADATA_NAME.to_owned(), catalog.name().to_owned());
    let availability = match catalog.spec.availability_mode {
        AvailabilityMode::Available => Availability::Available,
        AvailabilityMode::Unavailable => Availability::Unavailable,
    };
    let answer = match is_asked(&labels, availability, request) {
        Ok(true) => answer(context, &catalog, request.package).await,
        Ok(false) | Err(_) => Answer::NotAsked,
    };
    Asked {
        catalog,
        labels,
        availability,
        answer,
    }
}

async fn answer(context: &Context, catalog: &ClusterCatalog, package: &str) -> Answer {
    let place = match place(catalog) {
        Ok(place) => place,
        Err(problem) => return Answer::Failed(problem),
    };
    match context.catalogs.package(place, package).await {
        Ok(Some(package)) => Answer::Package(package),
        Ok(None) => Answer::Absent,
        Err(error) => Answer::Failed(chain(&error)),
    }
}

/// Where a catalog is served, or why it is not.
pub(crate) fn place(catalog: &ClusterCatalog) -> Result<Place<'_>, String> {
    let name = catalog.name();
    if !is_true(catalog.conditions(), SERVING) {
        return Err(format!("catalog {name:?} is not being served"));
    }
    let status = catalog.status.as_ref();
    let base = status
        .and_then(|status| status.urls.as_ref())
        .map(|urls| urls.base.as_str());
    let resolved = status.and_then(|status| status.resolved_source.as_ref());
    let base = base.ok_or_else(|| format!("catalog {name:?} has a nil status.urls value"))?;
    let resolved =
        resolved.ok_or_else(|| format!("catalog {name:?} has a nil status.resolvedSource value"))?;
    let image = resolved.image.as_ref();
    let image =
        image.ok_or_else(|| format!("catalog {name:?} has a nil status.resolvedSource.image value"))?;
    Ok(Place {
        name,
        base,
        reference: &image.reference,
    })
}

impl Asked {
    pub(crate) fn package(&self) -> Option<&Package> {
        match &self.answer {
            Answer::Package(package) => Some(package),
            _ => None,
        }
    }

    pub(crate) fn view(&self) -> Catalog<'_> {
        Catalog {
            name: self.catalog.name(),
            priority: self.catalog.spec.priority,
            labels: &self.labels,
            availability: self.availability,
            content: match &self.answer {
                Answer::NotAsked => Content::NotAsked,
                Answer::Absent => Content::Absent,
                Answer::Package(package) => Content::Package(package),
                Answer::Failed(problem) => Content::Failed(problem),
            },
        }
    }
}

fn identity(package: &str, bundle: &Candidate, gates: Gates) -> BundleIdentity {
    // Resolution refuses a bundle without a readable version.
    let (version, release) = match &bundle.version {
        Ok(version) if gates.releases => (
            version.version.to_string(),
            version
                .release
                .as_ref()
                .map(|release| release.as_str().to_owned()),
        ),
        Ok(version) => (version.to_string(), None),
        Err(_) => (String::new(), None),
    };
    BundleIdentity {
        package: package.to_owned(),
        metadata: BundleMetadata {
            name: bundle.name.clone(),
            version,
            release,
        },
        image: bundle.image.clone(),
    }
}

/// What all catalogs that answered say; nothing when none has the package.
fn all_messages(asked: &[Asked], channels: &[String], installed: Option<&str>) -> Option<Messages> {
    let mut all: Option<Messages> = None;
    for asked in asked {
        let Answer::Package(package) = &asked.answer else {
            continue;
        };
        let all = all.get_or_insert_default();
        let Some(deprecations) = package.deprecations() else {
            continue;
        };
        let found = messages(deprecations, channels, installed);
        for (list, more) in [
            (&mut all.package, found.package),
            (&mut all.channels, found.channels),
            (&mut all.bundle, found.bundle),
        ] {
            for message in more {
                if !list.contains(&message) {
                    list.push(message);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_catalog::{
        CatalogUrls, ClusterCatalogSpec, ClusterCatalogStatus, ResolvedCatalogSource, ResolvedImageSource,
        SourceType,
    };
    use olm_api::conditions::{Report, Status, set_condition};

    use super::*;

    #[test]
    fn a_catalog_has_a_place_only_while_it_is_served() {
        let mut catalog = ClusterCatalog::new("c", ClusterCatalogSpec::default());
        assert_eq!(place(&catalog).unwrap_err(), r#"catalog "c" is not being served"#);
        let mut status = ClusterCatalogStatus::default();
        let report = Report {
            condition_type: SERVING,
            status: Status::True,
            reason: "Available",
            message: "",
            observed_generation: 1,
        };
        set_condition(&mut status.conditions, report, jiff::Timestamp::UNIX_EPOCH);
        catalog.status = Some(status);
        assert_eq!(
            place(&catalog).unwrap_err(),
            r#"catalog "c" has a nil status.urls value"#
        );
        if let Some(status) = &mut catalog.status {
            status.urls = Some(CatalogUrls {
                base: "https://h/catalogs/c".to_owned(),
            });
            status.resolved_source = Some(ResolvedCatalogSource {
                source_type: SourceType::Image,
                image: Some(ResolvedImageSource {
                    reference: "r@sha256:0".to_owned(),
                }),
            });
        }
        assert_eq!(
            place(&catalog).unwrap(),
            Place {
                name: "c",
                base: "https://h/catalogs/c",
                reference: "r@sha256:0"
            }
        );
    }

    #[test]
    fn an_explicitly_empty_version_is_no_restriction() {
        let filter = CatalogFilter {
            version: Some(String::new()),
            ..CatalogFilter::default()
        };
        assert_eq!(request(&filter, None).version, None);
    }
}
