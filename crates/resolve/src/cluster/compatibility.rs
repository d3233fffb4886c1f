//! Whether a bundle can be there among the others.

use std::collections::HashSet;

use olm_constraint::cel::Budget;
use olm_constraint::{Gvk, Present, Requirement, Subject};
use olm_fbc::Property;
use olm_fbc::property::TYPE_PACKAGE;
use semver::Version;
use serde_json::json;

use crate::blocker::Blocker;
use crate::cluster::platform::ClusterPlatform;
use crate::package::Candidate;

/// An extension that is installed, or on its way.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// What it provides; its name is that of the ClusterExtension.
    pub subject: Subject,
    /// What it requires.
    pub requirements: Vec<Requirement>,
}

impl Neighbour {
    /// An extension with a bundle of this package and recorded version, which has these properties.
    pub fn new(extension: &str, package: &str, version: &str, mut properties: Vec<Property>) -> Self {
        if !properties.iter().any(|property| property.kind == TYPE_PACKAGE) {
            let value = json!({"packageName": package, "version": version});
            properties.push(Property::new(TYPE_PACKAGE, value.to_string()));
        }
        Self {
            requirements: properties
                .iter()
                .filter_map(|property| Requirement::of_property(property)?.ok())
                .collect(),
            subject: Subject::new(extension, package, recorded_version(version), properties),
        }
    }
}

/// Whether a bundle can be there, from worse to better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Compatibility {
    /// It cannot.
    Incompatible,
    /// It can, but names something that the cluster lacks.
    Partial,
    /// It can.
    Full,
}

/// Whether other extensions are kept from being broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// They are.
    #[default]
    Protected,
    /// The user has said that they may be broken.
    MayBreak,
}

/// The known state of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterState<'a> {
    /// The other extensions.
    pub neighbours: &'a [Neighbour],
    /// The installed bundle of the extension itself.
    pub own: Option<&'a Neighbour>,
    /// The APIs that the cluster serves, whatever their origin; those that no bundle asks about may be left out.
    pub served: &'a HashSet<Gvk>,
    /// The cluster itself.
    pub platform: ClusterPlatform<'a>,
    /// Whether other extensions are kept from being broken.
    pub dependents: Dependents,
}

/// The APIs that the cluster serves without the extension itself: its own vanish when it is replaced or removed.
pub(crate) fn without_own(facts: &ClusterState<'_>) -> HashSet<Gvk> {
    let own = facts
        .own
        .map(|own| own.subject.apis.as_slice())
        .unwrap_or_default();
    let is_own = |api: &&Gvk| own.contains(api);
    facts.served.iter().filter(|api| !is_own(api)).cloned().collect()
}

/// Judges bundles of one extension.
pub(crate) struct CompatibilityCheck<'a> {
    facts: ClusterState<'a>,
    /// What there is without the extension.
    present: Present<'a>,
    /// What others require that holds, and that depends on the extension.
    sensitive: Vec<(&'a Neighbour, &'a Requirement)>,
}

impl<'a> CompatibilityCheck<'a> {
    /// `served` is what [`without_own`] gives.
    pub(crate) fn new(facts: ClusterState<'a>, served: &'a HashSet<Gvk>) -> Self {
        let subjects = facts.neighbours.iter().map(|neighbour| &neighbour.subject);
        let mut present = Present::new(subjects, served, Budget::default());
        let all = || {
            let neighbours = facts.neighbours.iter();
            neighbours.flat_map(|neighbour| neighbour.requirements.iter().map(move |one| (neighbour, one)))
        };
        let mut sensitive = Vec::new();
        if facts.dependents == Dependents::Protected && all().next().is_some() {
            present.look_at(facts.own.map(|own| &own.subject));
            // Each has a budget of its own: one that is expensive must not take the protection from those after it.
            let holds = |present: &Present<'_>, one: &Requirement| {
                present.renew(Budget::default());
                one.holds(present) == Ok(true)
            };
            let satisfied: Vec<_> = all().filter(|(_, one)| holds(&present, one)).collect();
            present.look_at(None);
            // What holds without the extension, and excludes nothing, holds with any bundle of it.
            let depends = |one: &Requirement| one.excludes() || !holds(&present, one);
            sensitive = satisfied.into_iter().filter(|(_, one)| depends(one)).collect();
            present.renew(Budget::default());
        }
        Self {
            facts,
            present,
            sensitive,
        }
    }

    /// Whether the bundle can be there. Asked of thousands, it says nothing else.
    pub(crate) fn admits(&mut self, candidate: &'a Candidate) -> Compatibility {
        let compatibility = self.platform_compatibility(candidate);
        if compatibility == Compatibility::Incompatible
            || (candidate.requirements.is_empty() && self.sensitive.is_empty())
        {
            return compatibility;
        }
        self.present.look_at(Some(candidate.subject()));
        let holds = |requirement: &Requirement| requirement.holds(&self.present) == Ok(true);
        let is_admitted = candidate
            .requirements
            .iter()
            .all(|one| one.read().is_ok_and(holds))
            && self.sensitive.iter().all(|(_, requirement)| holds(requirement));
        if is_admitted {
            compatibility
        } else {
            Compatibility::Incompatible
        }
    }

    /// What the cluster itself says about the bundle.
    pub(crate) fn platform_compatibility(&self, candidate: &Candidate) -> Compatibility {
        let Some(platform) = &candidate.platform else {
            return Compatibility::Full;
        };
        let found = platform.blockers(self.facts.platform, self.facts.served);
        if found.iter().any(Blocker::forbids) {
            Compatibility::Incompatible
        } else if found.is_empty() {
            Compatibility::Full
        } else {
            Compatibility::Partial
        }
    }

    /// Why the bundle cannot be there; nothing when it can.
    pub(crate) fn blockers(&mut self, candidate: &'a Candidate) -> Vec<Blocker> {
        let mut found = Vec::new();
        if let Some(platform) = &candidate.platform {
            found.extend(platform.blockers(self.facts.platform, self.facts.served));
        }
        if candidate.requirements.is_empty() && self.sensitive.is_empty() {
            return found;
        }
        self.present.look_at(Some(candidate.subject()));
        for declared in &candidate.requirements {
            match declared.read() {
                Err(fault) => found.push(Blocker::Unsound {
                    property: declared.kind.clone(),
                    fault: fault.clone(),
                }),
                Ok(requirement) => found.extend(missing(requirement, &self.present)),
            }
        }
        found.extend(self.broken());
        found
    }

    /// The dependents whose requirements would no longer hold without the extension.
    pub(crate) fn broken_by_removal(&mut self) -> Vec<Blocker> {
        self.present.look_at(None);
        self.broken()
    }

    fn broken(&self) -> Vec<Blocker> {
        let broken = self.sensitive.iter().filter_map(|(neighbour, requirement)| {
            let explanation = requirement.explain(&self.present)?;
            Some(Blocker::Dependent {
                extension: neighbour.subject.name.clone(),
                text: explanation.text,
            })
        });
        broken.collect()
    }
}

fn missing(requirement: &Requirement, present: &Present<'_>) -> Option<Blocker> {
    let explanation = requirement.explain(present)?;
    Some(Blocker::Missing {
        text: explanation.text,
        wanted: explanation.wanted.into_iter().cloned().collect(),
    })
}

/// Why requirements that a bundle's own files declare do not hold with it; `subject` is the bundle.
pub fn unmet(requirements: &[Requirement], subject: &Subject, facts: &ClusterState<'_>) -> Vec<Blocker> {
    let served = without_own(facts);
    let subjects = facts.neighbours.iter().map(|neighbour| &neighbour.subject);
    let present = Present::new(subjects, &served, Budget::default()).with(subject);
    requirements
        .iter()
        .filter_map(|one| missing(one, &present))
        .collect()
}

/// The dependents whose requirements would no longer hold if the extension were removed.
pub fn broken_by_removal(facts: &ClusterState<'_>) -> Vec<Blocker> {
    let served = without_own(facts);
    CompatibilityCheck::new(*facts, &served).broken_by_removal()
}

/// The version in a recorded text, whose build metadata may be a release.
pub fn recorded_version(text: &str) -> Option<Version> {
    olm_version::blang::parse_version(text).ok()
}
