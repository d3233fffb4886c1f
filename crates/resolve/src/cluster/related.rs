//! The other extensions that an update may include, computed before their packages are read from catalogs.

use std::collections::HashSet;

use olm_constraint::{Gvk, Requirement, Subject};

use crate::cluster::compatibility::InstalledExtension;
use crate::package::Package;

/// The most bundles of one package that are examined, newest first.
const LOOKED_AT: usize = 50;

/// The requirements of some extensions, and the APIs that they provide.
#[derive(Debug, Default)]
pub struct Relations {
    asked: PackagesAndApis,
    there: PackagesAndApis,
}

#[derive(Debug, Default)]
struct PackagesAndApis {
    packages: HashSet<String>,
    apis: HashSet<Gvk>,
}

impl Relations {
    /// Adds the requirements of the bundles of a package, and the APIs that they provide.
    pub fn add_package(&mut self, package: &Package) {
        for candidate in package.newest_first().into_iter().take(LOOKED_AT) {
            self.has(candidate.subject());
            let requirements = candidate.requirements.iter();
            for requirement in requirements.filter_map(|declared| declared.read().ok()) {
                self.asks(requirement);
            }
        }
    }

    /// Adds the requirements of an installed extension, and the APIs that it provides.
    pub fn add(&mut self, other: &InstalledExtension) {
        self.has(&other.subject);
        for requirement in &other.requirements {
            self.asks(requirement);
        }
    }

    /// Whether an extension of a package, with this installed bundle, requires something that is provided, or provides
    /// something that is required.
    pub fn reach(&self, package: &str, installed: Option<&InstalledExtension>) -> bool {
        let has = |other: &InstalledExtension| {
            let mut apis = other.subject.apis.iter();
            apis.any(|api| self.asked.apis.contains(api))
        };
        let asks = |other: &InstalledExtension| {
            let mut requirements = other.requirements.iter();
            requirements.any(|one| {
                one.packages()
                    .any(|package| self.there.packages.contains(package))
                    || one.apis().any(|api| self.there.apis.contains(api))
            })
        };
        self.asked.packages.contains(package) || installed.is_some_and(|other| has(other) || asks(other))
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
