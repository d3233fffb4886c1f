//! Which other extensions an update may involve, computed before any catalog is asked about them.

use std::collections::HashSet;

use olm_constraint::{Gvk, Requirement, Subject};

use crate::cluster::compatibility::Neighbour;
use crate::package::Package;

/// How many bundles of one package are looked at, newest first.
const LOOKED_AT: usize = 50;

/// What some extensions require, and what they provide.
#[derive(Debug, Default)]
pub struct Relations {
    asked: Things,
    there: Things,
}

#[derive(Debug, Default)]
struct Things {
    packages: HashSet<String>,
    apis: HashSet<Gvk>,
}

impl Relations {
    /// Adds what bundles of a package ask for and have.
    pub fn add_package(&mut self, package: &Package) {
        for candidate in package.newest_first().into_iter().take(LOOKED_AT) {
            self.has(candidate.subject());
            let requirements = candidate.requirements.iter();
            for requirement in requirements.filter_map(|declared| declared.read().ok()) {
                self.asks(requirement);
            }
        }
    }

    /// Adds what an extension that is there asks for and has.
    pub fn add(&mut self, neighbour: &Neighbour) {
        self.has(&neighbour.subject);
        for requirement in &neighbour.requirements {
            self.asks(requirement);
        }
    }

    /// Whether an extension of this package, of which this is installed, asks for what is there, or has what is asked for.
    pub fn reach(&self, package: &str, installed: Option<&Neighbour>) -> bool {
        let has = |neighbour: &Neighbour| {
            let mut apis = neighbour.subject.apis.iter();
            apis.any(|api| self.asked.apis.contains(api))
        };
        let asks = |neighbour: &Neighbour| {
            let mut requirements = neighbour.requirements.iter();
            requirements.any(|one| {
                one.packages()
                    .any(|package| self.there.packages.contains(package))
                    || one.apis().any(|api| self.there.apis.contains(api))
            })
        };
        self.asked.packages.contains(package)
            || installed.is_some_and(|neighbour| has(neighbour) || asks(neighbour))
    }

    fn has(&mut self, subject: &Subject) {
        self.there.packages.insert(subject.package.clone());
        self.there.apis.extend(subject.apis.iter().cloned());
    }

    fn asks(&mut self, requirement: &Requirement) {
        let packages = requirement.packages().map(str::to_owned);
        self.asked.packages.extend(packages);
        self.asked.apis.extend(requirement.apis().cloned());
    }
}
