//! The catalogs of a cluster, and those from which a request may choose.

use std::collections::BTreeMap;

use crate::package::Package;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;

/// The most bytes of names in a command, unless a single name is longer.
const MAX_NAMES: usize = 200;

/// A catalog's `spec.availabilityMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// The catalog supplies bundles.
    #[default]
    Available,
    /// The catalog is switched off.
    Unavailable,
}

/// The answer of a catalog about a package: `P` is the package, `E` the error, each borrowed or owned.
#[derive(Clone, Copy, Debug)]
pub enum PackageAnswer<P, E> {
    /// There is no answer because the catalog is not selected or is switched off.
    NotAsked,
    /// The catalog does not have the package.
    Absent,
    /// The content of the package.
    Package(P),
    /// The catalog did not answer, with the error.
    Failed(E),
}

/// A catalog of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Catalog<'a> {
    /// The name of the `ClusterCatalog`.
    pub name: &'a str,
    /// `spec.priority`; higher wins.
    pub priority: i32,
    /// The labels for selectors, including the one with the catalog's name.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether the catalog supplies bundles.
    pub availability: Availability,
    /// The answer.
    pub answer: PackageAnswer<&'a Package, &'a str>,
}

/// A catalog that supplies bundles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected<'a> {
    pub(crate) name: &'a str,
    pub(crate) priority: i32,
    pub(crate) package: &'a Package,
}

/// Whether the package must be read from a catalog with these labels.
///
/// # Errors
/// When the request's selector is invalid.
pub fn is_asked(
    labels: &BTreeMap<String, String>,
    availability: Availability,
    request: &Request<'_>,
) -> Result<bool, Refusal> {
    let selected = match request.selector {
        None => true,
        Some(selector) => {
            selector
                .validate()
                .map_err(|fault| Refusal::new(Reason::Selector(fault)))?;
            selector.matches(labels)
        }
    };
    Ok(selected && availability == Availability::Available)
}

/// The selected catalogs that have the package.
///
/// If a selected catalog does not answer, the request waits: without the catalog, the outcome could silently change.
pub(crate) fn select<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
) -> Result<Vec<Selected<'a>>, Refusal> {
    if let Some(selector) = request.selector {
        selector
            .validate()
            .map_err(|fault| Refusal::new(Reason::Selector(fault)))?;
    }
    let mut selected = Vec::new();
    let mut silent = Vec::new();
    for catalog in catalogs {
        if !is_asked(catalog.labels, catalog.availability, request)? {
            continue;
        }
        match catalog.answer {
            PackageAnswer::Package(package) => {
                selected.push(Selected {
                    name: catalog.name,
                    priority: catalog.priority,
                    package,
                });
            }
            PackageAnswer::Absent => {}
            PackageAnswer::Failed(fault) => silent.push((catalog.name, fault)),
            PackageAnswer::NotAsked => silent.push((catalog.name, "the catalog was not asked")),
        }
    }
    silent.sort_unstable();
    let Some((first, fault)) = silent.first() else {
        return Ok(selected);
    };
    let mut refusal = Refusal::new(Reason::Catalog {
        package: request.package.to_owned(),
        catalog: (*first).to_owned(),
        fault: (*fault).to_owned(),
    });
    for (name, fault) in silent.iter().skip(1) {
        let catalog = format!("catalog {}", olm_version::quoted(name));
        // Some faults name the catalog themselves.
        refusal.add(if fault.starts_with(&catalog) {
            (*fault).to_owned()
        } else {
            format!("{catalog} does not answer either: {fault}")
        });
    }
    refusal.hint(format!(
        "`kubectl describe clustercatalog {first}` says why; wait until it is served, or leave it out by \
         spec.source.catalog.selector or by availabilityMode: Unavailable of the ClusterCatalog"
    ));
    refusal.hint(leaving_out(silent.iter().map(|(name, _)| *name)));
    Err(refusal)
}

/// The command that excludes catalogs from every resolution, with as many names as fit in a line.
fn leaving_out<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut shown = String::new();
    for name in names {
        if !shown.is_empty() && shown.len() + name.len() > MAX_NAMES {
            break;
        }
        shown.push(' ');
        shown.push_str(name);
    }
    format!(
        "to continue without, for every extension: kubectl patch clustercatalog{shown} --type merge -p \
         '{{\"spec\":{{\"availabilityMode\":\"Unavailable\"}}}}'"
    )
}
