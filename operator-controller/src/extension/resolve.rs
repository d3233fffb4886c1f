//! The bundle that the extension gets: reads the catalogs, [`olm_resolve`] decides.

pub(crate) mod admission;
pub(crate) mod catalogs;
pub(crate) mod inventory;
pub(crate) mod joint_search;
pub(crate) mod proposals;
pub(crate) mod target;
pub(crate) mod updates;
pub(crate) mod upgrade_gate;

use std::sync::Arc;

use futures::future::join_all;
use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::reason;
use olm_api::names::property::MAX_OPENSHIFT_VERSION;
use olm_api::updates::held_back;
use olm_api::{ClusterCatalog, PendingChange};
use olm_resolve::cluster::inventory::REQUIRED;
use olm_resolve::deprecation::{Messages, messages};
use olm_resolve::fallback::{Fallback, without_catalogs};
use olm_resolve::{
    Blocker, Candidate, Catalog, ClusterState, Package, PackageAnswer, Reason, Refusal, Request,
};
use serde_json::Value;

use self::admission::{Admission, admitted};
use self::catalogs::{AskedCatalog, address};
use self::inventory::OWN;
use self::joint_search::JointSearchResult;
use self::target::identity;
pub(crate) use self::target::{Origin, Resolution, Resolved, Target};
use self::updates::{HeldBack, Updates};
use super::context::Context;
use super::failure::{Severity, StageError, StageFailure};
use super::observe::Observed;
use super::revisions::{BundleIdentity, Revisions, as_installed, is_on_track};

/// The most bytes of further properties that are recorded in an annotation.
const MOST_RECORDED: usize = 16 << 10;

/// The reason why there is no target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
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
                // The request may contain a typo, or ask for something that does not exist yet. This is not an error of
                // the controller. A change of a catalog starts another run at once.
                Reason::Blocked { .. } | Reason::NoBundle(_) | Reason::Version { .. } => Severity::Waiting,
                // A catalog may answer at any time.
                Reason::Catalog { .. } | Reason::Installed(_) => Severity::Transient,
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.reason().to_string(),
            Self::NoPackage => self.to_string(),
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => refusal.explanation(),
            Self::NoPackage => None,
        }
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => HeldBack::from(refusal).by,
            Self::NoPackage => held_back::CONFIGURATION,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NoPackage => reason::BLOCKED,
            Self::Refused(_) => reason::RETRYING,
        }
    }
}

/// Chooses the bundle of an extension. Its operator may hold an upgrade back.
pub(crate) async fn resolve(context: &Context, observed: &Observed) -> Resolution {
    let resolution = choose(context, observed).await;
    if observed.settings.is_err() {
        return resolution;
    }
    upgrade_gate::enforce(context, &observed.extension, &observed.revisions, resolution).await
}

/// Reads the selected catalogs and chooses. While no catalog answers, the newest active revision stays the target if it
/// still matches the spec, so that an upgrade is not reverted. An installed bundle is not installed again when the
/// catalog changes the content of its version.
async fn choose(context: &Context, observed: &Observed) -> Resolution {
    let (extension, revisions) = (&observed.extension, &observed.revisions);
    let Some(filter) = &extension.spec.source.catalog else {
        return refused(ResolveError::NoPackage.into(), None, None);
    };
    let installed = revisions.installed();
    let (admission, asked) = admitted(context, filter, installed).await;
    let gone = admission.gone(asked.iter().map(|asked| &*asked.catalog));
    // A catalog that is gone may come back.
    let vanished = if gone.is_some() {
        Vec::new()
    } else {
        let selector = admission.selector();
        let request = Request::of(filter, selector.as_ref());
        let changes = context.pending_changes(extension.name());
        vanished(revisions, changes, &asked, &request)
    };
    let resolution = decide(context, observed, filter, (&admission, gone), &asked).await;
    Resolution {
        vanished,
        ..resolution
    }
}

/// The PendingChanges whose bundle no selected catalog has; none if one of them does not answer or is unavailable. A
/// bundle of a revision needs no catalog: its configuration may change.
fn vanished(
    revisions: &Revisions,
    changes: Vec<Arc<PendingChange>>,
    asked: &[AskedCatalog],
    request: &Request<'_>,
) -> Vec<Arc<PendingChange>> {
    let is_answer =
        |asked: &AskedCatalog| matches!(asked.answer, PackageAnswer::Package(_) | PackageAnswer::Absent);
    if changes.is_empty()
        || !asked.iter().any(is_answer)
        || asked.iter().any(|asked| asked.is_silent(request))
    {
        return Vec::new();
    }
    let ours = [revisions.installed(), revisions.newest_active()];
    let ours: Vec<BundleIdentity> = ours.into_iter().flatten().map(BundleIdentity::of).collect();
    let packages = asked.iter().filter_map(AskedCatalog::package);
    let bundles: Vec<&Candidate> = packages.flat_map(Package::candidates).collect();
    let is_gone = |change: &Arc<PendingChange>| {
        !ours.iter().any(|bundle| change.is_of(&bundle.metadata.name))
            && !bundles.iter().any(|bundle| change.is_of(&bundle.name))
    };
    changes.into_iter().filter(is_gone).collect()
}

/// Chooses, given the answers of the catalogs. The home catalog of the installed bundle may be gone.
async fn decide(
    context: &Context,
    observed: &Observed,
    filter: &CatalogFilter,
    (admission, gone): (&Admission, Option<String>),
    asked: &[AskedCatalog],
) -> Resolution {
    let (extension, revisions) = (&observed.extension, &observed.revisions);
    let present = revisions.installed().map(BundleIdentity::of);
    let present_name = present.as_ref().map(|bundle| bundle.metadata.name.as_str());
    let current = present.as_ref().map(|bundle| as_installed(&bundle.metadata));
    let selector = admission.selector();
    let request = Request::of(filter, selector.as_ref());
    let recorded = admission.recorded(revisions.newest_active());
    let catalogs: Vec<Catalog<'_>> = asked.iter().map(AskedCatalog::view).collect();
    let gathered = inventory::gather(
        context,
        extension,
        revisions,
        asked.iter().filter_map(AskedCatalog::package),
    )
    .await;
    let gathered = match gathered {
        Ok(gathered) => gathered,
        Err(error) => {
            let deprecations = all_messages(asked, &filter.channels, present_name);
            return refused(error.into(), deprecations, None);
        }
    };
    let facts = gathered.facts();
    let mut outcome = olm_resolve::resolve_in(&catalogs, &request, current.as_ref(), &facts);
    let (mut companions, mut kept) = (Vec::new(), None);
    if is_held(&outcome) {
        match joint_search::search(context, extension, revisions, asked, &request, current.as_ref()).await {
            JointSearchResult::Goes(moving, along) => {
                outcome = Ok(*moving);
                companions = along;
            }
            JointSearchResult::Kept(who) => kept = Some(who),
            JointSearchResult::Unknown(why) => kept = Some(why.to_string()),
            JointSearchResult::No => {}
        }
    }
    let updates = gone.clone().map_or_else(
        || {
            let metadata = present.as_ref().map(|bundle| &bundle.metadata);
            let identified = |bundle: &Candidate| identity(request.package, bundle, context.gates).metadata;
            let outcome = outcome.as_ref();
            updates::updates(&catalogs, &request, metadata, &facts, outcome, identified)
        },
        |gone| Err(HeldBack::by_catalog(gone)),
    );
    match outcome {
        Ok(found) => {
            let mut resolution = chosen(context, filter, &found, present, updates);
            if let Ok(target) = &mut resolution.target {
                target.companions = companions;
            }
            if let (Some(held), Some(who)) = (&mut resolution.held, kept) {
                *held = format!("{held}; {who}");
            }
            resolution.held = joined_lines(resolution.held, gone);
            resolution
        }
        Err(mut refusal) => {
            let deprecations = all_messages(asked, &filter.channels, present_name);
            let follows = follows(revisions, &catalogs, &request, &facts);
            if follows.is_some() && revisions.on_its_way().is_some_and(is_on_track) {
                refusal.clear_hints();
            } else {
                proposals::propose(context, extension, &mut refusal, &gathered).await;
            }
            for hint in kept.into_iter().chain(follows).chain(admission.hint()) {
                refusal.hint(hint);
            }
            if revisions.newest_active().is_none() {
                suggest(context, asked, &request, &mut refusal).await;
            }
            let silent = matches!(refusal.reason(), Reason::Catalog { .. });
            let failure = StageFailure::from(ResolveError::Refused(refusal));
            let newest = revisions.newest_active().map(BundleIdentity::of);
            let newest = newest.or(present.clone());
            let keep = newest
                .as_ref()
                .is_some_and(|newest| is_kept(newest, &catalogs, &request));
            match newest.filter(|_| keep && failure.severity != Severity::Terminal) {
                Some(bundle) => Resolution {
                    target: Ok(installed_target(revisions, bundle, recorded)),
                    deprecations,
                    problem: None,
                    silent: silent.then_some(failure),
                    held: gone,
                    updates,
                    vanished: Vec::new(),
                },
                None => refused(failure, deprecations, Some(updates)),
            }
        }
    }
}

/// Whether the newest revision stays the target while no catalog answers.
fn is_kept(newest: &BundleIdentity, catalogs: &[Catalog<'_>], request: &Request<'_>) -> bool {
    without_catalogs(catalogs, request, &as_installed(&newest.metadata)) == Fallback::KeepInstalled
}

/// Both texts, a line each.
fn joined_lines(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}\n{second}")),
        (first, second) => first.or(second),
    }
}

/// The bundle of the newest active revision as the target, if no catalog offers another one.
fn installed_target(revisions: &Revisions, bundle: BundleIdentity, catalog: String) -> Target {
    let declared = revisions.newest_active().map(inventory::declared);
    Target {
        bundle,
        origin: Origin::Installed,
        catalog,
        declared: declared.unwrap_or_default(),
        companions: Vec::new(),
    }
}

/// The bundle that is rolling out, if the request is an update of it.
fn follows(
    revisions: &Revisions,
    catalogs: &[Catalog<'_>],
    request: &Request<'_>,
    facts: &ClusterState<'_>,
) -> Option<String> {
    let set = revisions.on_its_way()?;
    let bundle = BundleIdentity::of(set).metadata;
    let found = olm_resolve::resolve_in(catalogs, request, Some(&as_installed(&bundle)), facts).ok()?;
    (found.bundle.name != bundle.name).then(|| {
        format!(
            "{0} is rolling out as {1}. {2} is an update of it and follows when {0} is complete. To change {0} now, set \
             spec.source.catalog.version to its version",
            bundle.name,
            set.name(),
            found.bundle.name
        )
    })
}

/// The resolution with a chosen bundle.
fn chosen(
    context: &Context,
    filter: &CatalogFilter,
    found: &olm_resolve::Resolution<'_>,
    present: Option<BundleIdentity>,
    updates: Result<Updates, HeldBack>,
) -> Resolution {
    let present_name = present.as_ref().map(|bundle| bundle.metadata.name.as_str());
    let held = found.held();
    let declared = declared(found.bundle);
    let deprecations = messages(found.package, &filter.channels, present_name);
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
        silent: None,
        held,
        updates,
        vanished: Vec::new(),
    }
}

/// The resolution without a bundle. Unless updates are known, the failure is the reason.
fn refused(
    failure: StageFailure,
    deprecations: Option<Messages>,
    updates: Option<Result<Updates, HeldBack>>,
) -> Resolution {
    let unknown = || {
        Err(HeldBack {
            by: failure.held_back_by,
            message: failure.message.clone(),
        })
    };
    Resolution {
        updates: updates.unwrap_or_else(unknown),
        target: Err(failure),
        deprecations,
        problem: None,
        silent: None,
        held: None,
        vanished: Vec::new(),
    }
}

/// Suggests the package that the user probably means if no catalog has the requested one.
async fn suggest(context: &Context, asked: &[AskedCatalog], request: &Request<'_>, refusal: &mut Refusal) {
    if !refusal.is_of_unknown_package() {
        return;
    }
    let absent = asked
        .iter()
        .filter(|asked| matches!(asked.answer, PackageAnswer::Absent));
    let similar = absent.map(|asked| similar_package(context, &asked.catalog, request.package));
    let similar = join_all(similar.collect::<Vec<_>>()).await;
    let names = similar.iter().flatten();
    refusal.suggest(names.map(|(catalog, name)| (*catalog, name.as_str())));
}

/// The package of the catalog with the most similar name. Errors are ignored, because this is only a hint.
async fn similar_package<'a>(
    context: &Context,
    catalog: &'a ClusterCatalog,
    package: &str,
) -> Option<(&'a str, String)> {
    let address = address(catalog).ok()?;
    let found = context.catalogs.similar_package(address, package).await;
    let name = found.ok().flatten()?;
    Some((catalog.name(), name))
}

/// Whether a bundle would be chosen if other extensions existed or were updated too.
fn is_held(outcome: &Result<olm_resolve::Resolution<'_>, Refusal>) -> bool {
    match outcome {
        Ok(found) => {
            let mut blockers = found.held_in_catalog().flat_map(|blocked| &blocked.blockers);
            blockers.any(Blocker::is_about_others)
        }
        Err(refusal) => matches!(refusal.reason(), Reason::Blocked { .. }),
    }
}

/// The properties of a bundle that must be known after its installation: its requirements, and the properties that
/// others may require, up to a limit.
fn declared(bundle: &Candidate) -> Vec<(String, Value)> {
    let mut room = MOST_RECORDED;
    let declared = bundle.properties.iter().filter(|one| {
        let kind = one.kind.as_str();
        if REQUIRED.contains(&kind) || kind == MAX_OPENSHIFT_VERSION {
            return true;
        }
        let is_short = !OWN.contains(&kind) && one.value.len() <= room;
        room -= if is_short { one.value.len() } else { 0 };
        is_short
    });
    let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
    declared
        .map(|one| (one.kind.clone(), value(&one.value)))
        .collect()
}

/// The deprecations in all catalogs that answered; `None` if none has the package.
fn all_messages(asked: &[AskedCatalog], channels: &[String], installed: Option<&str>) -> Option<Messages> {
    let mut all: Option<Messages> = None;
    for asked in asked {
        let PackageAnswer::Package(package) = &asked.answer else {
            continue;
        };
        let all = all.get_or_insert_default();
        let found = messages(package, channels, installed);
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
