//! The catalogs of a cluster, and those of them that a request may choose from.

use std::collections::BTreeMap;

use crate::package::Package;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;

/// The most bytes of names in a command, but for a single name.
const MAX_NAMES: usize = 200;

/// A catalog's `spec.availabilityMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// Bundles may come from it.
    #[default]
    Available,
    /// It is switched off.
    Unavailable,
}

/// What a catalog answered about the package.
#[derive(Clone, Copy, Debug, Default)]
pub enum Content<'a> {
    /// It was not asked, because it is not selected or switched off.
    #[default]
    NotAsked,
    /// It does not have the package.
    Absent,
    /// What it says about the package.
    Package(&'a Package),
    /// It did not answer; the text says why.
    Failed(&'a str),
}

/// A catalog of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Catalog<'a> {
    /// The name of the `ClusterCatalog`.
    pub name: &'a str,
    /// `spec.priority`; higher wins.
    pub priority: i32,
    /// The labels as selectors see them, the one with the catalog's name among them.
    pub labels: &'a BTreeMap<String, String>,
    /// Whether it may be used.
    pub availability: Availability,
    /// What it answered.
    pub content: Content<'a>,
}

/// A catalog that supplies bundles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected<'a> {
    pub(crate) name: &'a str,
    pub(crate) priority: i32,
    pub(crate) package: &'a Package,
}

/// Whether a catalog with these labels has to be asked for the package at all.
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
/// A selected catalog that does not answer is a reason to wait: without it the outcome could silently become
/// another one.
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
        match catalog.content {
            Content::Package(package) => {
                selected.push(Selected {
                    name: catalog.name,
                    priority: catalog.priority,
                    package,
                });
            }
            Content::Absent => {}
            Content::Failed(fault) => silent.push((catalog.name, fault)),
            Content::NotAsked => silent.push((catalog.name, "the catalog was not asked")),
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

/// The command that leaves catalogs out of every resolution, as many as have room in a line.
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
        "to go on without, for every extension: kubectl patch clustercatalog{shown} --type merge -p \
         '{{\"spec\":{{\"availabilityMode\":\"Unavailable\"}}}}'"
    )
}
