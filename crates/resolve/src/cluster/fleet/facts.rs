//! What of a cluster decides on a choice, and what there would be of extensions, each kept once.

use std::collections::HashMap;
use std::rc::Rc;

use olm_constraint::{Gvk, Requirement};
use olm_version::blang::parse_tolerant;

use super::{ExtensionRecord, Member, Place, State};
use crate::cluster::compatibility::{Dependents, Neighbour};
use crate::cluster::inventory::{Inventory, Questions};
use crate::package::Candidate;

/// What there is of an extension; equal ones have the same number.
#[derive(Clone)]
pub(super) struct Known {
    number: usize,
    pub(super) neighbour: Rc<Neighbour>,
}

/// Keeps equal extensions once.
#[derive(Default)]
pub(super) struct Interner(HashMap<String, Known>);

impl Interner {
    /// What is installed according to a record.
    pub(super) fn recorded(&mut self, record: &ExtensionRecord) -> Option<Known> {
        let installed = record.installed.as_ref()?;
        let properties = serde_json::to_string(&installed.properties).unwrap_or_default();
        let (name, package) = (&record.name, &record.catalog.package_name);
        let key = format!("{name}\0{package}\0{}\0{properties}", installed.bundle.version);
        self.known(key, || record.neighbour())
    }

    /// What there would be with a chosen bundle.
    pub(super) fn chosen(&mut self, record: &ExtensionRecord, bundle: &Candidate, place: Place) -> Known {
        let (name, package) = (&record.name, &record.catalog.package_name);
        let key = format!("{name}\0{package}\0\0{} {}", place.catalog, place.bundle);
        let version = bundle.recorded(crate::ReleaseField::Counts).version;
        let made = || Neighbour::new(name, package, &version, bundle.properties.clone());
        let number = self.0.len();
        let fresh = || Known {
            number,
            neighbour: Rc::new(made()),
        };
        self.0.entry(key).or_insert_with(fresh).clone()
    }

    fn known(&mut self, key: String, make: impl FnOnce() -> Option<Neighbour>) -> Option<Known> {
        if let Some(known) = self.0.get(&key) {
            return Some(known.clone());
        }
        let known = Known {
            number: self.0.len(),
            neighbour: Rc::new(make()?),
        };
        self.0.insert(key, known.clone());
        Some(known)
    }
}

/// What of a cluster decides on a choice among the bundles of some packages.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Facts {
    kubernetes: Option<String>,
    architectures: Vec<String>,
    /// The APIs that are asked about and served, sorted.
    served: Vec<Gvk>,
    /// The numbers of the other extensions, and of what is installed of this one, if they matter.
    neighbours: Option<(Vec<usize>, Option<usize>)>,
    may_break: bool,
}

impl Facts {
    /// Those that matter to an extension whose packages ask these questions.
    pub(super) fn of(state: &State<'_>, member: &Member<'_>, questions: &Questions) -> Self {
        let others = || {
            let others = state.members.iter();
            let others = others.filter(|other| other.record.name != member.record.name);
            others.filter_map(|other| other.there.as_ref())
        };
        let there = state.members.iter().filter_map(|one| one.there.as_ref());
        let asks = |known: &Known| !known.neighbour.requirements.is_empty();
        let matter = questions.requires || there.clone().any(asks);
        let required = others().flat_map(|known| &known.neighbour.requirements);
        let apis = required.filter(|_| matter).flat_map(Requirement::apis);
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
            neighbours: matter.then(|| {
                let own = member.there.as_ref().map(|known| known.number);
                (others().map(|known| known.number).collect(), own)
            }),
            may_break: member.record.may_break_dependents,
        }
    }

    /// The same as resolution takes it.
    pub(super) fn inventory(&self, state: &State<'_>, member: &Member<'_>) -> Inventory {
        let mut inventory = Inventory {
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
            ..Inventory::default()
        };
        if self.neighbours.is_some() {
            let others = state.members.iter();
            let others = others.filter(|other| other.record.name != member.record.name);
            let there = |one: &Member<'_>| one.there.as_ref().map(|known| (*known.neighbour).clone());
            inventory.neighbours = others.filter_map(there).collect();
            inventory.own = there(member);
        }
        inventory
    }
}
