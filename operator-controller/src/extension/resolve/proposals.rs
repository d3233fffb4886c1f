//! What helps when a bundle is held: others that move along, or something that provides what is missing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use olm_api::conditions::{PROGRESSING, find, reason};
use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, label, user};
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_constraint::Wanted;
use olm_constraint::cel::Budget;
use olm_resolve::providers::{Offer, Provider, providers};
use olm_resolve::ties::Ties;
use olm_resolve::together::{Effort, GivenUp, Mover, options, together as solve};
use olm_resolve::{Candidate, Catalog, Installed, Neighbour, Package, Reason, Refusal, Request, Resolution};

use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError};
use crate::extension::observe::revisions::{BundleIdentity, Revisions};
use crate::extension::resolve::inventory::{self, Gathered};
use crate::extension::resolve::{Asked, as_installed, ask, place, request, selector};

/// How many missing things proposals are made for.
const MOST_WANTED: usize = 3;
/// How many proposals are made for one.
const MOST_PROPOSALS: usize = 3;
/// How many other extensions are asked whether they move along.
const MOST_MOVERS: usize = 50;

/// Another extension that is installed or updated along, and the bundle that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Companion {
    /// The ClusterExtension.
    pub extension: String,
    /// The bundle.
    pub bundle: String,
}

/// What comes of looking for others that move along.
pub(crate) enum Together<'a> {
    /// This bundle, when these move along.
    Goes(Box<Resolution<'a>>, Vec<Companion>),
    /// It would go, if somebody were not kept from it: who.
    Kept(String),
    /// Nobody knows.
    Unknown(GivenUp),
    /// Nothing.
    No,
}

/// The bundle to update to when others are updated along; each of them comes to the same answer (requirement 5.41).
pub(crate) async fn together<'a>(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    asked: &'a [Asked],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
) -> Together<'a> {
    let answers = ask_others(context, extension, request.package, asked, installed).await;
    // What the others would get asks about the cluster, too.
    let packages = asked.iter().chain(answers.iter().flat_map(|other| &other.asked));
    let gathered =
        inventory::gather(context, extension, revisions, packages.filter_map(Asked::package)).await;
    let Ok(gathered) = gathered else {
        return Together::No;
    };
    let puzzle = Puzzle {
        own: Member {
            extension: Arc::new(extension.clone()),
            present: revisions.installed().map(BundleIdentity::of),
            asked: asked.to_vec(),
            kept: None,
        },
        others: answers,
        gathered,
    };
    // It may take seconds, during which nobody else is to wait.
    let solving = tokio::task::spawn_blocking(move || {
        let solved = puzzle.solve(&mut Effort::default());
        (puzzle.gathered, solved)
    });
    let Ok((gathered, solved)) = solving.await else {
        return Together::No;
    };
    match solved {
        Ok(Solved::Goes(name, along)) => {
            let catalogs: Vec<Catalog<'a>> = asked.iter().map(Asked::view).collect();
            let updates = options(&catalogs, request, installed, &gathered.facts()).unwrap_or_default();
            let found = updates.into_iter().find(|option| option.bundle.name == name);
            found.map_or(Together::No, |found| Together::Goes(Box::new(found), along))
        }
        Ok(Solved::Kept(who)) => Together::Kept(who),
        Ok(Solved::No) => Together::No,
        Err(given_up) => {
            tracing::warn!(extension = extension.name(), "{given_up}");
            Together::Unknown(given_up)
        }
    }
}

/// The extensions that may move along, by name, with what their catalogs say. Those come first that requirements tie to
/// the extension, or to others that come first.
async fn ask_others(
    context: &Context,
    extension: &ClusterExtension,
    package: &str,
    asked: &[Asked],
    installed: Option<&Installed<'_>>,
) -> Vec<Member> {
    let mut others = context.extensions.state();
    // What is there is not moved for a first installation: nobody asked for that.
    let is_asked = |other: &ClusterExtension| {
        other.name() != extension.name()
            && may_move(other, package)
            && (installed.is_some() || context.revisions(other.name()).installed().is_none())
    };
    others.retain(|other| is_asked(other));
    others.sort_unstable_by(|left, right| left.name().cmp(right.name()));
    let mut waiting: Vec<(Arc<ClusterExtension>, Option<Neighbour>)> = others
        .into_iter()
        .map(|other| (Arc::clone(&other), inventory::installed(context, other.name())))
        .collect();
    let mut ties = Ties::default();
    if let Some(own) = inventory::installed(context, extension.name()) {
        ties.add(&own);
    }
    for package in asked.iter().filter_map(Asked::package) {
        ties.add_package(package);
    }
    let mut answers = Vec::new();
    while answers.len() < MOST_MOVERS && !waiting.is_empty() {
        let is_near = |(other, there): &(Arc<ClusterExtension>, Option<Neighbour>)| {
            let catalog = other.spec.source.catalog.as_ref();
            catalog.is_some_and(|catalog| ties.reach(&catalog.package_name, there.as_ref()))
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
                    ties.add(there);
                }
                for package in member.asked.iter().filter_map(Asked::package) {
                    ties.add_package(package);
                }
            }
            answers.push(member);
        }
    }
    // Everybody looks at them in the same order.
    answers.sort_unstable_by(|left, right| left.extension.name().cmp(right.extension.name()));
    answers
}

/// Everything that it takes to find out who moves along.
struct Puzzle {
    own: Member,
    others: Vec<Member>,
    gathered: Gathered,
}

/// What comes of a [`Puzzle`]: see [`Together`].
enum Solved {
    Goes(String, Vec<Companion>),
    Kept(String),
    No,
}

impl Puzzle {
    /// Who moves along, at no more than this effort over all that is tried.
    fn solve(&self, effort: &mut Effort) -> Result<Solved, GivenUp> {
        let facts = self.gathered.facts();
        let Some(own) = self.own.mover(&facts) else {
            return Ok(Solved::No);
        };
        let movers: Vec<(Mover<'_>, Option<&String>)> = self
            .others
            .iter()
            .filter_map(|other| Some((other.mover(&facts)?, other.kept.as_ref())))
            .collect();
        let free = movers.iter().filter(|(_, kept)| kept.is_none());
        let free: Vec<Mover<'_>> = free.map(|(mover, _)| mover.clone()).collect();
        if let Some((found, along)) = solve(&own, &free, &facts, effort)? {
            if along.is_empty() {
                // It goes by itself, which is known already, and with it what is held back.
                return Ok(Solved::No);
            }
            let along = along.iter().map(|(extension, bundle)| Companion {
                extension: (*extension).to_owned(),
                bundle: bundle.name.clone(),
            });
            return Ok(Solved::Goes(found.bundle.name.clone(), along.collect()));
        }
        if free.len() == movers.len() {
            return Ok(Solved::No);
        }
        let all: Vec<Mover<'_>> = movers.iter().map(|(mover, _)| mover.clone()).collect();
        let Some((found, along)) = solve(&own, &all, &facts, effort)? else {
            return Ok(Solved::No);
        };
        let who = movers.iter().filter_map(|(mover, kept)| {
            let (bundle, why) = (along.get(mover.extension)?, (*kept)?);
            Some(format!(
                "{} of ClusterExtension {}, which {why}",
                bundle.name, mover.extension
            ))
        });
        let who: Vec<String> = who.collect();
        Ok(Solved::Kept(format!(
            "{} goes together with {}",
            found.bundle.name,
            who.join(" and with ")
        )))
    }
}

/// Whether another extension may be updated, or installed, along with one of a package, if nothing keeps it from that.
fn may_move(other: &ClusterExtension, package: &str) -> bool {
    let theirs = other.spec.source.catalog.as_ref();
    let is_rival = theirs.is_none_or(|catalog| catalog.package_name == package);
    !other.is_deleting() && !is_rival
}

/// What keeps another extension from being installed or updated until somebody changes something.
fn kept(context: &Context, extension: &ClusterExtension, other: &ClusterExtension) -> Option<String> {
    let is_blocked =
        find(other.conditions(), PROGRESSING).is_some_and(|found| found.reason == reason::BLOCKED);
    let own = context.remember(extension.name()).kept;
    let waits = waits_for(extension.name(), own.is_some(), other.name());
    if other.annotation(user::PAUSED) == Some("true") {
        Some("is paused".to_owned())
    } else if let Some(why) = context.remember(other.name()).kept.filter(|_| waits) {
        Some(format!("cannot go: {why}"))
    } else {
        is_blocked.then(|| "is blocked".to_owned())
    }
}

/// Whether an extension waits for another one that cannot go. Of several that cannot, the first by name goes on trying:
/// would each wait for the others, none would be seen to be kept any more, and all would try again, for ever.
fn waits_for(own: &str, is_kept: bool, other: &str) -> bool {
    !is_kept || other < own
}

/// Some of those that go along with a bundle cannot go yet.
#[derive(Debug, thiserror::Error)]
#[error("it goes together with {}; nobody goes before all can", .0.join(" and "))]
pub struct NotReady(Vec<String>);

impl StageError for NotReady {
    fn severity(&self) -> Severity {
        Severity::Waiting
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }
}

/// Whether everybody who goes along has been let through as far as this extension, or has gone already: nobody is to be
/// left behind with what then lacks what it requires.
///
/// # Errors
/// When somebody has not.
pub(crate) fn all_ready(context: &Context, companions: &[Companion]) -> Result<(), NotReady> {
    let is_ready = |companion: &Companion| {
        let revisions = context.revisions(&companion.extension);
        let newest = revisions.newest_active().map(BundleIdentity::of);
        newest.is_some_and(|newest| newest.metadata.name == companion.bundle)
            || context.remember(&companion.extension).ready.as_ref() == Some(&companion.bundle)
    };
    let missing: Vec<String> = companions
        .iter()
        .filter(|companion| !is_ready(companion))
        .map(|companion| format!("{} of ClusterExtension {}", companion.bundle, companion.extension))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(NotReady(missing))
    }
}

/// An extension, and what the catalogs say about its package.
struct Member {
    extension: Arc<ClusterExtension>,
    present: Option<BundleIdentity>,
    asked: Vec<Asked>,
    /// What keeps it from moving.
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
        let selector = filter.selector.as_ref().map(selector);
        let asked = ask(context, &request(&filter, selector.as_ref())).await;
        let kept = kept(context, own, &other);
        Some(Self {
            extension: other,
            present,
            asked,
            kept,
        })
    }

    /// The bundles that it may get; nothing when its catalogs do not tell.
    fn mover(&self, facts: &olm_resolve::Facts<'_>) -> Option<Mover<'_>> {
        let views: Vec<Catalog<'_>> = self.asked.iter().map(Asked::view).collect();
        let filter = self.extension.spec.source.catalog.as_ref()?;
        let selector = filter.selector.as_ref().map(selector);
        let asked = request(filter, selector.as_ref());
        let present = self.present.as_ref().map(|bundle| as_installed(&bundle.metadata));
        Some(Mover {
            extension: self.extension.name(),
            options: options(&views, &asked, present.as_ref(), facts).ok()?,
        })
    }
}

/// A package of a catalog that may help.
struct Found {
    catalog: Arc<ClusterCatalog>,
    name: String,
    package: Arc<Package>,
    default_channel: Option<String>,
}

/// Adds to a refusal what would provide what is missing, and the ClusterExtension for it. Nothing is installed unasked.
pub(crate) async fn propose(
    context: &Context,
    extension: &ClusterExtension,
    refusal: &mut Refusal,
    gathered: &Gathered,
) {
    let own_catalog = match refusal.reason() {
        Reason::Held { catalog, .. } => catalog.clone(),
        _ => return,
    };
    let own_package = extension.spec.source.catalog.as_ref();
    let own_package = own_package.map(|catalog| catalog.package_name.as_str());
    let facts = gathered.facts();
    let mut attachments = Vec::new();
    let mut proposed: Vec<Candidate> = Vec::new();
    let mut budget = Budget::default();
    let wanted: Vec<Wanted> = refusal.wanted().iter().take(MOST_WANTED).cloned().collect();
    for wanted in &wanted {
        // What is proposed already may be all that it takes.
        if proposed
            .iter()
            .any(|bundle| wanted.is_provided_by(bundle.subject(), &mut budget) == Ok(true))
        {
            continue;
        }
        let found = search(context, wanted).await;
        let offers: Vec<Offer<'_>> = found.iter().map(Found::offer).collect();
        let mut proposals = providers(wanted, &offers, Some(&own_catalog), &facts, &mut budget);
        proposals.retain(|proposal| Some(proposal.package) != own_package);
        if proposals.is_empty() {
            refusal.hint(format!("no catalog has anything that provides {wanted}"));
        }
        for (index, proposal) in proposals.iter().take(MOST_PROPOSALS).enumerate() {
            let there = gathered
                .neighbours()
                .iter()
                .find(|neighbour| neighbour.subject.package == proposal.package);
            let on_its_way = asks_for(context, extension, proposal.package).filter(|_| there.is_none());
            let alternative = if index == 0 { "" } else { "or " };
            let how = match (there, &on_its_way) {
                (Some(neighbour), _) => format!("update ClusterExtension {} to", neighbour.subject.name),
                (None, Some(other)) => format!("ClusterExtension {} has to come as far as", other.name()),
                (None, None) => "install".to_owned(),
            };
            refusal.hint(format!(
                "{alternative}{how} {} of package {} from channel {} of catalog {}: it provides {wanted}",
                proposal.bundle.name, proposal.package, proposal.channel, proposal.catalog
            ));
            if index == 0 {
                let is_known = proposed.iter().any(|bundle| bundle.package == proposal.package);
                if there.is_none() && on_its_way.is_none() && !is_known {
                    attachments.push(manifest(extension, proposal));
                }
                proposed.push(proposal.bundle.clone());
            }
        }
    }
    if !attachments.is_empty() {
        refusal.attach(attachments.join("---\n"));
    }
}

/// Another extension that asks for a package.
fn asks_for(context: &Context, extension: &ClusterExtension, package: &str) -> Option<Arc<ClusterExtension>> {
    let asks = |other: &ClusterExtension| {
        let theirs = other.spec.source.catalog.as_ref();
        other.name() != extension.name()
            && !other.is_deleting()
            && theirs.is_some_and(|catalog| catalog.package_name == package)
    };
    context.extensions.state().into_iter().find(|other| asks(other))
}

async fn search(context: &Context, wanted: &Wanted) -> Vec<Found> {
    let mut found = Vec::new();
    for catalog in context.cluster_catalogs.state() {
        let Ok(place) = place(&catalog) else { continue };
        let names: BTreeSet<String> = match context.catalogs.providing(place, wanted).await {
            Ok(names) => names.into_iter().collect(),
            Err(error) => {
                tracing::debug!(
                    catalog = catalog.name(),
                    error = &error as &dyn std::error::Error,
                    "cannot look for what is missing"
                );
                continue;
            }
        };
        for name in names {
            if let Ok(Some(package)) = context.catalogs.package(place, &name).await {
                found.push(Found {
                    default_channel: context
                        .catalogs
                        .default_channel(place, &name)
                        .await
                        .ok()
                        .flatten(),
                    catalog: Arc::clone(&catalog),
                    name,
                    package,
                });
            }
        }
    }
    found
}

impl Found {
    fn offer(&self) -> Offer<'_> {
        Offer {
            catalog: self.catalog.name(),
            priority: self.catalog.spec.priority,
            name: &self.name,
            package: &self.package,
            default_channel: self.default_channel.as_deref(),
        }
    }
}

/// A ClusterExtension for what is missing, ready to be applied: in the namespace and under the account of the extension
/// that needs it.
fn manifest(extension: &ClusterExtension, proposal: &Provider<'_>) -> String {
    let spec = &extension.spec;
    let mut text = format!(
        "apiVersion: {API_VERSION}\nkind: {CLUSTER_EXTENSION}\nmetadata:\n  name: {}\nspec:\n  namespace: {}\n",
        scalar(proposal.package),
        spec.namespace
    );
    if let Some(account) = &spec.service_account {
        let _ = writeln!(text, "  serviceAccount:\n    name: {}", account.name);
    }
    let _ = write!(
        text,
        "  source:\n    sourceType: Catalog\n    catalog:\n      packageName: {}\n      channels: [{}]\n",
        scalar(proposal.package),
        scalar(proposal.channel)
    );
    if !proposal.is_newest
        && let Ok(version) = &proposal.bundle.version
    {
        let _ = writeln!(text, "      version: \"{}\"", version.version);
    }
    let _ = writeln!(
        text,
        "      selector:\n        matchLabels:\n          {}: {}",
        label::METADATA_NAME,
        proposal.catalog
    );
    text
}

/// A name as a value in YAML that is this text and nothing else: catalogs choose their names, and people apply what
/// they are shown.
fn scalar(name: &str) -> Cow<'_, str> {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_'))
        && !WORDS.contains(&name.to_ascii_lowercase().as_str());
    if is_plain {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(serde_json::Value::from(name).to_string())
    }
}

/// Words that a reader of YAML may take for something else than text.
const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_that_cannot_go_come_to_rest_though_they_look_at_each_other_at_the_same_time() {
        let names = ["a", "b", "c"];
        let round = |before: [bool; 3], may: [bool; 3]| {
            let tries = |own: usize| {
                let waits = |other: usize| {
                    other != own && before[other] && waits_for(names[own], before[own], names[other])
                };
                !(0..3).any(waits)
            };
            [0, 1, 2].map(|own| tries(own) && !may[own])
        };
        for bits in 0..8 {
            let may = [1, 2, 4].map(|bit| bits & bit != 0);
            let mut kept = [false; 3];
            for _ in 0..4 {
                kept = round(kept, may);
            }
            assert_eq!(kept, round(kept, may), "{may:?}");
            assert_eq!(
                kept.contains(&true),
                may.contains(&false),
                "somebody says why: {may:?}"
            );
        }
    }

    #[test]
    fn a_name_from_a_catalog_is_one_value_in_the_proposed_manifest() {
        for (name, shown) in [
            ("stable-1.x", "stable-1.x"),
            ("4.18", "\"4.18\""),
            ("no", "\"no\""),
            (
                "x]\n---\nkind: ClusterRoleBinding",
                "\"x]\\n---\\nkind: ClusterRoleBinding\"",
            ),
        ] {
            assert_eq!(scalar(name), shown);
        }
    }
}
