//! The facts of a cluster that affect a choice, and the possible states of extensions, each stored once.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use olm_constraint::{Gvk, Requirement};
use olm_version::blang::parse_tolerant;

use super::{BundleIndex, ExtensionRecord, Member, State};
use crate::cluster::compatibility::{Dependents, InstalledExtension};
use crate::cluster::inventory::{Inventory, Questions};
use crate::package::{Candidate, Package};

/// The state of an extension. Equal states have the same number.
#[derive(Clone)]
pub(super) struct InternedState {
    number: usize,
    pub(super) installed: Rc<InstalledExtension>,
}

/// Stores equal states once.
#[derive(Default)]
pub(super) struct Interner(HashMap<String, InternedState>);

impl Interner {
    /// The installed bundle in a record.
    pub(super) fn recorded(&mut self, record: &ExtensionRecord) -> Option<InternedState> {
        let installed = record.installed.as_ref()?;
        let properties = serde_json::to_string(&installed.properties).unwrap_or_default();
        let (name, package) = (&record.name, &record.catalog.package_name);
        let key = format!("{name}\0{package}\0{}\0{properties}", installed.bundle.version);
        self.known(key, || record.installed_extension())
    }

    /// The state with a chosen bundle.
    pub(super) fn chosen(
        &mut self,
        record: &ExtensionRecord,
        bundle: &Candidate,
        bundle_index: BundleIndex,
    ) -> InternedState {
        let (name, package) = (&record.name, &record.catalog.package_name);
        let key = format!(
            "{name}\0{package}\0\0{} {}",
            bundle_index.catalog, bundle_index.bundle
        );
        let version = bundle.recorded(crate::ReleaseField::Counts).version;
        let made = || InstalledExtension::new(name, package, &version, bundle.properties.clone());
        let number = self.0.len();
        let fresh = || InternedState {
            number,
            installed: Rc::new(made()),
        };
        self.0.entry(key).or_insert_with(fresh).clone()
    }

    fn known(
        &mut self,
        key: String,
        make: impl FnOnce() -> Option<InstalledExtension>,
    ) -> Option<InternedState> {
        if let Some(known) = self.0.get(&key) {
            return Some(known.clone());
        }
        let known = InternedState {
            number: self.0.len(),
            installed: Rc::new(make()?),
        };
        self.0.insert(key, known.clone());
        Some(known)
    }
}

/// The facts of a cluster that affect a choice among the bundles of some packages.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct RelevantFacts {
    kubernetes: Option<String>,
    architectures: Vec<String>,
    /// The APIs that are mentioned and served, sorted.
    served: Vec<Gvk>,
    /// The numbers of the other relevant extensions.
    others: Vec<usize>,
    /// The number of the installed bundle of this extension, if it is relevant.
    own: Option<usize>,
    may_break: bool,
}

/// The packages and APIs that the bundles of a package mention.
#[derive(Default)]
pub(super) struct ReferencedApis {
    packages: HashSet<String>,
    apis: HashSet<Gvk>,
    by_rule: bool,
}

impl ReferencedApis {
    fn add(&mut self, requirement: &Requirement) {
        self.packages.extend(requirement.packages().map(str::to_owned));
        self.apis.extend(requirement.apis().cloned());
        self.by_rule |= requirement.has_rule();
    }

    fn is_nothing(&self) -> bool {
        !self.by_rule && self.packages.is_empty() && self.apis.is_empty()
    }

    fn covers(&self, other: &InstalledExtension) -> bool {
        self.by_rule
            || self.packages.contains(&other.subject.package)
            || other.subject.apis.iter().any(|api| self.apis.contains(api))
    }
}

/// The requirements of the bundles of a package, and the APIs that they provide.
#[derive(Default)]
pub(super) struct PackageApis {
    pub(super) questions: Questions,
    referenced: ReferencedApis,
    provided: HashSet<Gvk>,
}

impl PackageApis {
    pub(super) fn new(packages: &[&Package]) -> Self {
        let mut about = Self {
            questions: Questions::of_packages(packages.iter().copied()),
            ..Self::default()
        };
        for candidate in packages.iter().flat_map(|package| package.candidates()) {
            about.provided.extend(candidate.subject().apis.iter().cloned());
            let requirements = candidate.requirements.iter();
            for requirement in requirements.filter_map(|declared| declared.read().ok()) {
                about.referenced.add(requirement);
            }
        }
        about
    }
}

impl RelevantFacts {
    /// The facts that affect the choice for an extension among bundles with these references. Extensions are irrelevant
    /// unless they depend on it, or it or one of its dependents requires them.
    pub(super) fn of(state: &State<'_>, member: &Member<'_>, about: &PackageApis) -> Self {
        let own = member.there.as_ref();
        let depends = |requirement: &Requirement| {
            requirement.has_rule()
                || requirement
                    .packages()
                    .any(|package| *package == member.record.catalog.package_name)
                || requirement.apis().any(|api| {
                    about.provided.contains(api)
                        || own.is_some_and(|own| own.installed.subject.apis.contains(api))
                })
        };
        let mut referenced = ReferencedApis::default();
        let mut chosen: Vec<(&InternedState, bool)> = Vec::new();
        for known in others(state, member) {
            let depends = known.installed.requirements.iter().any(depends);
            if depends {
                known
                    .installed
                    .requirements
                    .iter()
                    .for_each(|one| referenced.add(one));
            }
            chosen.push((known, depends));
        }
        let matters = !referenced.is_nothing() || !about.referenced.is_nothing();
        chosen.retain(|(known, depends)| {
            *depends || referenced.covers(&known.installed) || about.referenced.covers(&known.installed)
        });
        let chosen: Vec<&InternedState> = chosen.into_iter().map(|(known, _)| known).collect();
        Self::with(state, member, &about.questions, &chosen, matters)
    }

    /// All facts without those of an extension.
    pub(super) fn whole(state: &State<'_>, member: &Member<'_>, questions: &Questions) -> Self {
        let all: Vec<&InternedState> = others(state, member).collect();
        Self::with(state, member, questions, &all, true)
    }

    fn with(
        state: &State<'_>,
        member: &Member<'_>,
        questions: &Questions,
        others: &[&InternedState],
        matters: bool,
    ) -> Self {
        let required = others.iter().flat_map(|known| &known.installed.requirements);
        let apis = required.flat_map(Requirement::apis);
        let mut served: Vec<&Gvk> = questions.apis.iter().chain(apis).collect();
        served.sort_unstable();
        served.dedup();
        served.retain(|api| state.added.contains(*api) || state.record.serves(api));
        Self {
            kubernetes: questions.version.then(|| state.record.kubernetes.clone()),
            architectures: if questions.architectures {
                state.record.architectures.clone()
            } else {
                Vec::new()
            },
            served: served.into_iter().cloned().collect(),
            others: others.iter().map(|known| known.number).collect(),
            own: member.there.as_ref().map(|own| own.number).filter(|_| matters),
            may_break: member.record.may_break_dependents,
        }
    }

    /// The facts in the form of resolution.
    pub(super) fn inventory(&self, state: &State<'_>, member: &Member<'_>) -> Inventory {
        let there = others(state, member).filter(|known| self.others.contains(&known.number));
        let own = member.there.as_ref().filter(|own| self.own == Some(own.number));
        Inventory {
            others: there.map(|known| (*known.installed).clone()).collect(),
            own: own.map(|own| (*own.installed).clone()),
            served: self.served.iter().cloned().collect(),
            kubernetes: self
                .kubernetes
                .as_deref()
                .and_then(|text| parse_tolerant(text).ok()),
            architectures: self.architectures.clone(),
            dependents: if self.may_break {
                Dependents::MayBreak
            } else {
                Dependents::Protected
            },
        }
    }
}

/// The states of the other extensions.
fn others<'s>(state: &'s State<'_>, member: &Member<'_>) -> impl Iterator<Item = &'s InternedState> {
    let name = member.record.name.clone();
    let others = state.members.iter();
    let others = others.filter(move |other| other.record.name != name);
    others.filter_map(|other| other.there.as_ref())
}
