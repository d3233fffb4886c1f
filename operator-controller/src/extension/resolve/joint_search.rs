//! Extensions that need each other's next bundle: which of them change in the same step.

use std::sync::Arc;

use olm_api::ClusterExtension;
use olm_api::conditions::{PROGRESSING, find, reason};
use olm_api::names::user;
use olm_resolve::cluster::inventory::Inventory;
use olm_resolve::cluster::joint_update::{
    BudgetExceeded, Participant, SearchBudget, joint_update as solve, options,
};
use olm_resolve::cluster::related::Relations;
use olm_resolve::{Catalog, Installed, InstalledExtension, Request, Resolution, Selector};

use super::admission::admitted;
use super::catalogs::AskedCatalog;
use super::inventory;
use crate::extension::context::Context;
use crate::extension::context::joint_updates::JointChange;
use crate::extension::revisions::{BundleIdentity, Revisions, as_installed};

/// The most other extensions that may be updated along.
const MOST_MOVERS: usize = 50;

pub(crate) enum JointSearchResult<'a> {
    /// This bundle, if these are updated along.
    Goes(Box<Resolution<'a>>, Vec<JointChange>),
    /// None, because another extension cannot change.
    Kept(String),
    Unknown(BudgetExceeded),
    /// None.
    No,
}

/// The bundle of a joint update. All of its extensions find the same one.
pub(crate) async fn search<'a>(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    asked: &'a [AskedCatalog],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
) -> JointSearchResult<'a> {
    let answers = ask_others(context, extension, request.package, asked, installed).await;
    // The bundles of the others have requirements on the cluster, too.
    let packages = asked.iter().chain(answers.iter().flat_map(|other| &other.asked));
    let gathered = inventory::gather(
        context,
        extension,
        revisions,
        packages.filter_map(AskedCatalog::package),
    )
    .await;
    let Ok(gathered) = gathered else {
        return JointSearchResult::No;
    };
    let search = JointSearch {
        own: Member {
            extension: Arc::new(extension.clone()),
            present: revisions.installed().map(BundleIdentity::of),
            selector: request.selector.cloned(),
            asked: asked.to_vec(),
            kept: None,
        },
        others: answers,
        gathered,
    };
    // This may take seconds and must not delay other extensions.
    let solving = tokio::task::spawn_blocking(move || {
        let solved = search.solve(&mut SearchBudget::default());
        (search.gathered, solved)
    });
    let Ok((gathered, solved)) = solving.await else {
        return JointSearchResult::No;
    };
    match solved {
        Ok(SearchResult::Goes(name, along)) => {
            let catalogs: Vec<Catalog<'a>> = asked.iter().map(AskedCatalog::view).collect();
            let updates = options(&catalogs, request, installed, &gathered.facts()).unwrap_or_default();
            let found = updates.into_iter().find(|option| option.bundle.name == name);
            found.map_or(JointSearchResult::No, |found| {
                JointSearchResult::Goes(Box::new(found), along)
            })
        }
        Ok(SearchResult::Kept(who)) => JointSearchResult::Kept(who),
        Ok(SearchResult::No) => JointSearchResult::No,
        Err(given_up) => {
            tracing::warn!(extension = extension.name(), "{given_up}");
            JointSearchResult::Unknown(given_up)
        }
    }
}

/// The extensions that may be updated along, by name, with the answers of their catalogs. Those that requirements
/// connect with the extension come first.
async fn ask_others(
    context: &Context,
    extension: &ClusterExtension,
    package: &str,
    asked: &[AskedCatalog],
    installed: Option<&Installed<'_>>,
) -> Vec<Member> {
    let mut others = context.extensions.state();
    // A first installation does not change installed extensions, because no user asked for that.
    let is_asked = |other: &ClusterExtension| {
        other.name() != extension.name()
            && may_move(other, package)
            && (installed.is_some() || context.revisions(other.name()).installed().is_none())
    };
    others.retain(|other| is_asked(other));
    others.sort_unstable_by(|left, right| left.name().cmp(right.name()));
    let mut waiting: Vec<(Arc<ClusterExtension>, Option<InstalledExtension>)> = others
        .into_iter()
        .map(|other| (Arc::clone(&other), inventory::installed(context, other.name())))
        .collect();
    let mut relations = Relations::default();
    if let Some(own) = inventory::installed(context, extension.name()) {
        relations.add(&own);
    }
    for package in asked.iter().filter_map(AskedCatalog::package) {
        relations.add_package(package);
    }
    let mut answers = Vec::new();
    while answers.len() < MOST_MOVERS && !waiting.is_empty() {
        let is_near = |(other, there): &(Arc<ClusterExtension>, Option<InstalledExtension>)| {
            let catalog = other.spec.source.catalog.as_ref();
            catalog.is_some_and(|catalog| relations.reach(&catalog.package_name, there.as_ref()))
        };
        let near = waiting.iter().position(is_near);
        let (other, there) = waiting.remove(near.unwrap_or(0));
        let present = context
            .revisions(other.name())
            .installed()
            .map(BundleIdentity::of);
        if let Some(member) = Member::ask(context, extension, other, present).await {
            if near.is_some() {
                if let Some(there) = &there {
                    relations.add(there);
                }
                for package in member.asked.iter().filter_map(AskedCatalog::package) {
                    relations.add_package(package);
                }
            }
            answers.push(member);
        }
    }
    // All extensions use the same order.
    answers.sort_unstable_by(|left, right| left.extension.name().cmp(right.extension.name()));
    answers
}

/// The inputs of the search.
struct JointSearch {
    own: Member,
    others: Vec<Member>,
    gathered: Inventory,
}

/// The result of a [`JointSearch`]: see [`JointSearchResult`].
enum SearchResult {
    Goes(String, Vec<JointChange>),
    Kept(String),
    No,
}

impl JointSearch {
    /// The extensions that are updated along, within the budget for all attempts.
    fn solve(&self, budget: &mut SearchBudget) -> Result<SearchResult, BudgetExceeded> {
        let facts = self.gathered.facts();
        let Some(own) = self.own.participant(&facts) else {
            return Ok(SearchResult::No);
        };
        let participants: Vec<(Participant<'_>, Option<&String>)> = self
            .others
            .iter()
            .filter_map(|other| Some((other.participant(&facts)?, other.kept.as_ref())))
            .collect();
        let free = participants.iter().filter(|(_, kept)| kept.is_none());
        let free: Vec<Participant<'_>> = free.map(|(participant, _)| participant.clone()).collect();
        if let Some((found, along)) = solve(&own, &free, &facts, budget)? {
            if along.is_empty() {
                // The bundle that is possible alone and the blockers are already known.
                return Ok(SearchResult::No);
            }
            let along = along.iter().map(|(extension, bundle)| JointChange {
                extension: (*extension).to_owned(),
                bundle: bundle.name.clone(),
            });
            return Ok(SearchResult::Goes(found.bundle.name.clone(), along.collect()));
        }
        if free.len() == participants.len() {
            return Ok(SearchResult::No);
        }
        let all: Vec<Participant<'_>> = participants
            .iter()
            .map(|(participant, _)| participant.clone())
            .collect();
        let Some((found, along)) = solve(&own, &all, &facts, budget)? else {
            return Ok(SearchResult::No);
        };
        let who = participants.iter().filter_map(|(participant, kept)| {
            let (bundle, why) = (along.get(participant.extension)?, (*kept)?);
            Some(format!(
                "{} of ClusterExtension {}, which {why}",
                bundle.name, participant.extension
            ))
        });
        let who: Vec<String> = who.collect();
        Ok(SearchResult::Kept(format!(
            "{} updates together with {}",
            found.bundle.name,
            who.join(" and with ")
        )))
    }
}

/// Whether another extension may be updated or installed along with one of a package, unless something blocks it.
fn may_move(other: &ClusterExtension, package: &str) -> bool {
    let theirs = other.spec.source.catalog.as_ref();
    let is_rival = theirs.is_none_or(|catalog| catalog.package_name == package);
    !other.is_deleting() && !is_rival
}

/// The blocker of another extension until a user acts.
fn kept(context: &Context, extension: &ClusterExtension, other: &ClusterExtension) -> Option<String> {
    let is_blocked =
        find(other.conditions(), PROGRESSING).is_some_and(|found| found.reason == reason::BLOCKED);
    if other.annotation(user::PAUSED) == Some("true") {
        Some("is paused".to_owned())
    } else if let Some(why) = context.joint_updates.blocker(extension.name(), other.name()) {
        Some(format!("cannot update: {why}"))
    } else {
        is_blocked.then(|| "is blocked".to_owned())
    }
}

/// An extension and the answers of its catalogs about its package.
struct Member {
    extension: Arc<ClusterExtension>,
    present: Option<BundleIdentity>,
    /// The selector of its catalogs.
    selector: Option<Selector>,
    asked: Vec<AskedCatalog>,
    /// The blocker.
    kept: Option<String>,
}

impl Member {
    async fn ask(
        context: &Context,
        own: &ClusterExtension,
        other: Arc<ClusterExtension>,
        present: Option<BundleIdentity>,
    ) -> Option<Self> {
        let filter = other.spec.source.catalog.clone()?;
        let revisions = context.revisions(other.name());
        let (admission, asked) = admitted(context, &filter, revisions.installed()).await;
        let kept = kept(context, own, &other);
        Some(Self {
            extension: other,
            present,
            selector: admission.selector(),
            asked,
            kept,
        })
    }

    /// The bundles that it may get; `None` if its catalogs do not answer.
    fn participant(&self, facts: &olm_resolve::ClusterState<'_>) -> Option<Participant<'_>> {
        let views: Vec<Catalog<'_>> = self.asked.iter().map(AskedCatalog::view).collect();
        let filter = self.extension.spec.source.catalog.as_ref()?;
        let asked = Request::of(filter, self.selector.as_ref());
        let present = self.present.as_ref().map(|bundle| as_installed(&bundle.metadata));
        Some(Participant {
            extension: self.extension.name(),
            options: options(&views, &asked, present.as_ref(), facts).ok()?,
        })
    }
}
