//! Whether a bundle is compatible with the other extensions.

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

/// An extension that is installed or rolling out.
#[derive(Clone, Debug)]
pub struct InstalledExtension {
    /// The package of the extension and the APIs that it provides. The name is that of the ClusterExtension.
    pub subject: Subject,
    /// The requirements.
    pub requirements: Vec<Requirement>,
}

impl InstalledExtension {
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

/// The compatibility of a bundle with the cluster, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Compatibility {
    /// The bundle is forbidden.
    Incompatible,
    /// The bundle is allowed, but the cluster lacks something that it names.
    Partial,
    /// The bundle has no blockers.
    Full,
}

/// Whether other extensions are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// A bundle that breaks them is forbidden.
    #[default]
    Protected,
    /// The user allows it to break them.
    MayBreak,
}

/// The known state of the cluster and its extensions.
#[derive(Clone, Copy, Debug)]
pub struct ClusterState<'a> {
    /// The other extensions.
    pub others: &'a [InstalledExtension],
    /// The installed bundle of the extension itself.
    pub own: Option<&'a InstalledExtension>,
    /// The APIs that the cluster serves, from any source. Those that no bundle mentions may be left out.
    pub served: &'a HashSet<Gvk>,
    /// The cluster itself.
    pub platform: ClusterPlatform<'a>,
    /// Whether other extensions are protected.
    pub dependents: Dependents,
}

/// The APIs that the cluster serves without the extension itself, because its own vanish when it is replaced or
/// removed.
pub(crate) fn without_own(facts: &ClusterState<'_>) -> HashSet<Gvk> {
    let own = facts
        .own
        .map(|own| own.subject.apis.as_slice())
        .unwrap_or_default();
    let is_own = |api: &&Gvk| own.contains(api);
    facts.served.iter().filter(|api| !is_own(api)).cloned().collect()
}

/// The check of bundles of one extension.
pub(crate) struct CompatibilityCheck<'a> {
    facts: ClusterState<'a>,
    /// Everything that is installed, without the extension.
    present: Present<'a>,
    /// Requirements of others that are met and depend on the extension.
    sensitive: Vec<(&'a InstalledExtension, &'a Requirement)>,
}

impl<'a> CompatibilityCheck<'a> {
    /// `served` is the result of [`without_own`].
    pub(crate) fn new(facts: ClusterState<'a>, served: &'a HashSet<Gvk>) -> Self {
        let subjects = facts.others.iter().map(|other| &other.subject);
        let mut present = Present::new(subjects, served, Budget::default());
        let all = || {
            let others = facts.others.iter();
            others.flat_map(|other| other.requirements.iter().map(move |one| (other, one)))
        };
        let mut sensitive = Vec::new();
        if facts.dependents == Dependents::Protected && all().next().is_some() {
            present.look_at(facts.own.map(|own| &own.subject));
            // Each requirement has its own budget: an expensive one must not remove the protection of the next.
            let holds = |present: &Present<'_>, one: &Requirement| {
                present.renew(Budget::default());
                one.holds(present) == Ok(true)
            };
            let satisfied: Vec<_> = all().filter(|(_, one)| holds(&present, one)).collect();
            present.look_at(None);
            // A requirement that is met without the extension and excludes nothing is met with any bundle of it.
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

    /// Whether the bundle is allowed. It is called for thousands of bundles, so it gives no reasons.
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

    /// The compatibility with the cluster itself.
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

    /// The blockers of the bundle.
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

    /// The dependents whose requirements are not met without the extension.
    pub(crate) fn broken_by_removal(&mut self) -> Vec<Blocker> {
        self.present.look_at(None);
        self.broken()
    }

    fn broken(&self) -> Vec<Blocker> {
        let broken = self.sensitive.iter().filter_map(|(other, requirement)| {
            let explanation = requirement.explain(&self.present)?;
            Some(Blocker::Dependent {
                extension: other.subject.name.clone(),
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

/// The reasons why requirements in a bundle's own files are not met with it; `subject` is the bundle.
pub fn unmet(requirements: &[Requirement], subject: &Subject, facts: &ClusterState<'_>) -> Vec<Blocker> {
    let served = without_own(facts);
    let subjects = facts.others.iter().map(|other| &other.subject);
    let present = Present::new(subjects, &served, Budget::default()).with(subject);
    requirements
        .iter()
        .filter_map(|one| missing(one, &present))
        .collect()
}

/// The dependents whose requirements would not be met if the extension were removed.
pub fn broken_by_removal(facts: &ClusterState<'_>) -> Vec<Blocker> {
    let served = without_own(facts);
    CompatibilityCheck::new(*facts, &served).broken_by_removal()
}

/// The version in a recorded text. Its build metadata may be a release.
pub fn recorded_version(text: &str) -> Option<Version> {
    olm_version::blang::parse_version(text).ok()
}
