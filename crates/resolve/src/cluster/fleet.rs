//! The effect of another content of a catalog on clusters, computed from their records.
//!
//! A [`ClusterRecord`] describes a cluster. A [`Planner`] knows the content of catalogs and makes the choices of
//! operator-controller for every cluster, extension by extension, until nothing changes. Choices with equal inputs are
//! computed once.

mod facts;
mod record;
mod report;
mod together;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use olm_api::cluster_extension::BundleMetadata;
use olm_constraint::Gvk;

use self::facts::{InternedState, Interner, PackageApis, RelevantFacts};
pub use self::record::{
    CatalogRecord, ClusterRecord, ExtensionRecord, InstalledRecord, PropertyRecord, RecordError,
};
pub use self::report::{Change, ClusterPlan, ExtensionPlan, Step};
use crate::cluster::updates::updates;
use crate::package::{Candidate, Package, ReleaseField};
use crate::request::{Installed, Request, UpgradeConstraintPolicy};
use crate::selector::Selector;
use crate::{Availability, Blocker, Catalog, Edge, PackageAnswer};

/// The maximum number of rounds through the extensions of a cluster. Each round changes at least one of them.
const MOST_ROUNDS: usize = 100;

/// A catalog whose content is known.
#[derive(Debug)]
pub struct KnownCatalog {
    /// The name of the ClusterCatalog.
    pub name: String,
    /// The packages, by name. Those that no cluster uses may be left out.
    pub packages: HashMap<String, Package>,
}

/// Plans for clusters, one after the other.
pub struct Planner<'a> {
    /// The catalogs. The first is the one that changes.
    catalogs: &'a [KnownCatalog],
    about: HashMap<&'a str, PackageApis>,
    nothing: PackageApis,
    interner: Interner,
    made: HashMap<Key, Rc<BundleChoice>>,
    asked: usize,
}

/// The inputs of a choice.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    package: String,
    version: Option<String>,
    channels: Vec<String>,
    is_bound: bool,
    /// The catalogs, with their priorities.
    catalogs: Vec<(usize, i32)>,
    installed: Option<(String, String, Option<String>)>,
    facts: RelevantFacts,
}

/// The index of a bundle: that of its catalog, and its own in the package.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BundleIndex {
    catalog: usize,
    bundle: usize,
}

/// The bundle chosen for an extension.
struct BundleChoice {
    /// The chosen bundle and the edge to it, or the reason why there is none.
    chosen: Result<(BundleIndex, Option<Edge>), String>,
    /// The newest bundle, if it is newer than the chosen one.
    newest: Option<BundleIndex>,
    /// The reasons why the newest bundle is not chosen, as class and text.
    obstacles: Vec<(&'static str, String)>,
    /// Whether a newer bundle would be chosen if other extensions were updated too.
    depends_on_others: bool,
}

/// The state of an extension during planning.
struct Member<'r> {
    record: &'r ExtensionRecord,
    selector: Option<Selector>,
    /// The known catalogs that it admits.
    admitted: Vec<usize>,
    /// The unknown catalogs of the cluster that it admits.
    unknown: Vec<&'r str>,
    is_affected: bool,
    installed: Option<BundleMetadata>,
    /// The installed bundle, as others see it.
    there: Option<InternedState>,
    steps: Vec<Step>,
}

/// The state of a cluster during planning.
struct State<'r> {
    record: &'r ClusterRecord,
    /// The record of each known catalog on the cluster, if it has it.
    catalogs: Vec<Option<&'r CatalogRecord>>,
    members: Vec<Member<'r>>,
    /// The APIs that updates have added.
    added: HashSet<Gvk>,
}

impl Member<'_> {
    fn may_move(&self) -> bool {
        self.is_affected && !self.record.paused
    }

    fn installed(&self) -> Option<Installed<'_>> {
        self.installed.as_ref().map(|bundle| Installed {
            name: &bundle.name,
            version: &bundle.version,
            release: bundle.release.as_deref(),
        })
    }

    fn request(&self) -> Request<'_> {
        Request::of(&self.record.catalog, self.selector.as_ref())
    }
}

impl<'a> Planner<'a> {
    /// A planner for these catalogs. The first is the one that changes.
    pub fn new(catalogs: &'a [KnownCatalog]) -> Self {
        let mut by_package: HashMap<&str, Vec<&Package>> = HashMap::new();
        for (name, package) in catalogs.iter().flat_map(|catalog| &catalog.packages) {
            by_package.entry(name).or_default().push(package);
        }
        let about = by_package.into_iter();
        Self {
            about: about.map(|(name, all)| (name, PackageApis::new(&all))).collect(),
            nothing: PackageApis::default(),
            catalogs,
            interner: Interner::default(),
            made: HashMap::new(),
            asked: 0,
        }
    }

    /// The number of requested choices, and of computed ones.
    pub fn choices(&self) -> (usize, usize) {
        (self.asked, self.made.len())
    }

    /// The plan for the extensions of a cluster.
    pub fn plan(&mut self, record: &ClusterRecord) -> ClusterPlan {
        let mut state = self.start(record);
        for _ in 0..MOST_ROUNDS {
            let mut is_changed = false;
            for index in 0..state.members.len() {
                is_changed |= self.advance(&mut state, index);
            }
            if !is_changed {
                break;
            }
        }
        let indices = 0..state.members.len();
        let extensions = indices.filter_map(|index| self.report(&state, index));
        ClusterPlan {
            cluster: record.cluster.clone(),
            extensions: extensions.collect(),
        }
    }

    fn start<'r>(&mut self, record: &'r ClusterRecord) -> State<'r> {
        let known = |name: &str| self.catalogs.iter().position(|catalog| catalog.name == name);
        let mut catalogs = vec![None; self.catalogs.len()];
        for catalog in &record.catalogs {
            if let Some(place) = known(&catalog.name).and_then(|index| catalogs.get_mut(index)) {
                *place = Some(catalog);
            }
        }
        let mut members: Vec<Member<'r>> = Vec::new();
        for extension in &record.extensions {
            let filter = &extension.catalog;
            let home = extension.installed.as_ref();
            let home = home.map(|installed| installed.catalog.as_deref());
            let selector = Selector::admitted(filter.selector.as_ref(), home, &record.default_catalogs);
            // The choice reports an invalid selector.
            let valid = selector.as_ref().filter(|selector| selector.validate().is_ok());
            let (mut admitted, mut unknown) = (Vec::new(), Vec::new());
            for catalog in record.catalogs.iter().filter(|catalog| !catalog.unavailable) {
                if valid.is_some_and(|selector| !selector.matches(&catalog.labels)) {
                    continue;
                }
                match known(&catalog.name) {
                    Some(index) => admitted.push(index),
                    None => unknown.push(catalog.name.as_str()),
                }
            }
            admitted.sort_unstable();
            let package = &filter.package_name;
            let has = |index: &usize| {
                let catalog = self.catalogs.get(*index);
                catalog.is_some_and(|catalog| catalog.packages.contains_key(package))
            };
            members.push(Member {
                is_affected: admitted.iter().any(has) || (admitted.contains(&0) && unknown.is_empty()),
                record: extension,
                selector,
                admitted,
                unknown,
                installed: extension
                    .installed
                    .as_ref()
                    .map(|installed| installed.bundle.clone()),
                there: self.interner.recorded(extension),
                steps: Vec::new(),
            });
        }
        members.sort_by(|left, right| left.record.name.cmp(&right.record.name));
        State {
            record,
            catalogs,
            members,
            added: HashSet::new(),
        }
    }

    /// Makes the next change of an extension as operator-controller would. Returns whether there was one.
    fn advance(&mut self, state: &mut State<'_>, index: usize) -> bool {
        let Some(member) = state.members.get(index).filter(|member| member.may_move()) else {
            return false;
        };
        let choice = self.choice(state, member);
        if choice.depends_on_others
            && let Some((own, along)) = self.together(state, index)
        {
            let names: Vec<(usize, String)> = std::iter::once((index, own))
                .chain(along.iter().copied())
                .filter_map(|(index, _)| Some((index, state.members.get(index)?.record.name.clone())))
                .collect();
            for (index, bundle_index) in std::iter::once((index, own)).chain(along) {
                let others = names.iter().filter(|(other, _)| *other != index);
                let others = others.map(|(_, name)| name.clone()).collect();
                self.step(state, index, bundle_index, None, others);
            }
            return true;
        }
        match choice.chosen {
            Ok((bundle_index, edge)) => self.step(state, index, bundle_index, edge, Vec::new()),
            Err(_) => false,
        }
    }

    /// Moves an extension to a bundle. Returns whether it had another one.
    fn step(
        &mut self,
        state: &mut State<'_>,
        index: usize,
        bundle_index: BundleIndex,
        edge: Option<Edge>,
        together_with: Vec<String>,
    ) -> bool {
        let Some(member) = state.members.get_mut(index) else {
            return false;
        };
        let Some((catalog, candidate)) = self.found(&member.record.catalog.package_name, bundle_index) else {
            return false;
        };
        let bundle = candidate.recorded(ReleaseField::Counts);
        if member.installed.as_ref() == Some(&bundle) {
            return false;
        }
        member.there = Some(self.interner.chosen(member.record, candidate, bundle_index));
        state.added.extend(candidate.subject().apis.iter().cloned());
        member.steps.push(Step {
            bundle: bundle.clone(),
            catalog: catalog.to_owned(),
            edge: edge.map(Edge::name),
            together_with,
        });
        member.installed = Some(bundle);
        true
    }

    /// The name of the catalog, and the bundle.
    fn found(&self, package: &str, bundle_index: BundleIndex) -> Option<(&'a str, &'a Candidate)> {
        let catalog = self.catalogs.get(bundle_index.catalog)?;
        let package = catalog.packages.get(package)?;
        Some((&catalog.name, package.candidates().get(bundle_index.bundle)?))
    }

    /// The catalogs that an extension admits.
    fn views<'v>(&self, state: &State<'v>, member: &Member<'_>) -> Vec<Catalog<'v>>
    where
        'a: 'v,
    {
        let view = |index: &usize| {
            let (known, on_cluster) = (self.catalogs.get(*index)?, state.catalogs.get(*index)?.as_ref()?);
            let package = known.packages.get(&member.record.catalog.package_name);
            Some(Catalog {
                name: &known.name,
                priority: on_cluster.priority,
                labels: &on_cluster.labels,
                availability: Availability::Available,
                answer: package.map_or(PackageAnswer::Absent, PackageAnswer::Package),
            })
        };
        member.admitted.iter().filter_map(view).collect()
    }

    /// The choice for an extension now.
    fn choice(&mut self, state: &State<'_>, member: &Member<'_>) -> Rc<BundleChoice> {
        self.asked += 1;
        let filter = &member.record.catalog;
        let about = self.about.get(filter.package_name.as_str());
        let facts = RelevantFacts::of(state, member, about.unwrap_or(&self.nothing));
        let request = member.request();
        let catalogs = member.admitted.iter().filter_map(|index| {
            let on_cluster = state.catalogs.get(*index)?.as_ref()?;
            Some((*index, on_cluster.priority))
        });
        let key = Key {
            package: filter.package_name.clone(),
            version: request.version.map(str::to_owned),
            channels: filter.channels.clone(),
            is_bound: request.policy == UpgradeConstraintPolicy::CatalogProvided,
            catalogs: catalogs.collect(),
            installed: member
                .installed
                .clone()
                .map(|bundle| (bundle.name, bundle.version, bundle.release)),
            facts,
        };
        if let Some(made) = self.made.get(&key) {
            return Rc::clone(made);
        }
        let made = Rc::new(self.choose(state, member, &key.facts));
        self.made.insert(key, Rc::clone(&made));
        made
    }

    fn choose(&self, state: &State<'_>, member: &Member<'_>, facts: &RelevantFacts) -> BundleChoice {
        let inventory = facts.inventory(state, member);
        let catalogs = self.views(state, member);
        let refused = |why: String| BundleChoice {
            chosen: Err(why),
            newest: None,
            obstacles: Vec::new(),
            depends_on_others: false,
        };
        let request = member.request();
        let found = updates(
            &catalogs,
            &request,
            member.installed().as_ref(),
            &inventory.facts(),
        );
        let found = match found {
            Ok(found) => found,
            Err(refusal) => return refused(refusal.reason().to_string()),
        };
        let package = &member.record.catalog.package_name;
        let bundle_index = |catalog: &str, bundle: &Candidate| self.bundle_index(package, catalog, bundle);
        let (chosen, depends_on_others) = match &found.chosen {
            Ok(chosen) => {
                let bundle_index = bundle_index(chosen.catalog, chosen.bundle).ok_or_else(String::new);
                let mut blockers = chosen.held_in_catalog().flat_map(|blocked| &blocked.blockers);
                let depends = blockers.any(Blocker::is_about_others);
                (
                    bundle_index.map(|bundle_index| (bundle_index, chosen.edge)),
                    depends,
                )
            }
            Err(refusal) => {
                let is_blocked = matches!(refusal.reason(), crate::Reason::Blocked { .. });
                (Err(refusal.reason().to_string()), is_blocked)
            }
        };
        let newest = found.newest.as_ref();
        BundleChoice {
            chosen,
            newest: newest.and_then(|newest| bundle_index(newest.catalog, newest.bundle)),
            obstacles: newest
                .map(|newest| newest.obstacles.as_slice())
                .unwrap_or_default()
                .iter()
                .map(|obstacle| (obstacle.held_back_by(), obstacle.to_string()))
                .collect(),
            depends_on_others,
        }
    }

    fn bundle_index(&self, package: &str, catalog: &str, bundle: &Candidate) -> Option<BundleIndex> {
        let index = self.catalogs.iter().position(|known| known.name == catalog)?;
        let package = self.catalogs.get(index)?.packages.get(package)?;
        let mut candidates = package.candidates().iter();
        let bundle = candidates.position(|candidate| std::ptr::eq(candidate, bundle))?;
        Some(BundleIndex {
            catalog: index,
            bundle,
        })
    }
}
