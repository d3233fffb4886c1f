//! A catalog, and bundles that substitute for others in it.

use std::collections::{HashMap, HashSet};

use olm_fbc::Bundle;
use olm_fbc::catalog::Catalog;
use olm_fbc::decode::{RawText, decode};
use olm_fbc::{Channel, ChannelEntry};
use olm_version::{VersionRelease, quoted};

use super::{Bundles, TemplateError, load, rendered};
use crate::lint;

#[derive(Default)]
struct SubstitutesTemplate {
    entries: Vec<RawText>,
    substitutions: Vec<Substitute>,
}
olm_fbc::decode_object!(SubstitutesTemplate { "entries" => entries, "substitutions" => substitutions });

/// A bundle that substitutes for another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Substitute {
    /// The image of the new bundle.
    pub name: String,
    /// The name of the bundle that it substitutes for.
    pub base: String,
}
olm_fbc::decode_object!(Substitute { "name" => name, "base" => base });

/// A template of the kind [`Kind::Substitutes`](super::Kind::Substitutes).
#[derive(Debug, Clone)]
pub struct Substitutes {
    catalog: Catalog,
    substitutions: Vec<Substitute>,
}

/// The reason why a substitution is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubstitutionError {
    /// Two bundles would substitute for the same one.
    #[error("cannot reuse the same substitution base {}", quoted(.0))]
    BaseTwice(String),
    /// One bundle would substitute for two.
    #[error(
        "cannot reuse the same substitution {} for different bases ({} and {})",
        quoted(.name), quoted(.first), quoted(.second)
    )]
    NameTwice {
        /// The image.
        name: String,
        /// The bundle that it substitutes for already.
        first: String,
        /// The other one.
        second: String,
    },
    /// One substitution is faulty by itself.
    #[error("error processing substitution {} -> {}: {fault}", quoted(.base), quoted(.name))]
    One {
        /// The bundle to substitute for.
        base: String,
        /// The image.
        name: String,
        /// The fault.
        fault: Box<SubstitutionFault>,
    },
}

/// The fault of one substitution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubstitutionFault {
    /// The substitution has no image.
    #[error("substitution name cannot be empty")]
    NoName,
    /// The substitution has no base.
    #[error("substitution base cannot be empty")]
    NoBase,
    /// A bundle cannot substitute for itself.
    #[error("substitution name and base cannot be the same")]
    Same,
    /// The image could not be rendered.
    #[error("failed to render bundle image reference {}: {error}", quoted(.image))]
    Render {
        image: String,
        /// The reason.
        error: String,
    },
    /// The image contains no bundle.
    #[error("rendered bundle image reference {} contains no bundles", quoted(.0))]
    Empty(String),
    /// A version cannot be read.
    #[error("failed to get VersionRelease for {what} bundle {}: {error}", quoted(.bundle))]
    Version {
        /// `base` or `substitute`.
        what: &'static str,
        bundle: String,
        error: Box<olm_fbc::BundleVersionError>,
    },
    /// The bundle to substitute for is not in the catalog.
    #[error("base bundle {} does not exist in catalog", quoted(.0))]
    NoSuchBase(String),
    /// The new bundle is not newer.
    #[error("base bundle {} is not less than substitute bundle {}", quoted(.base), quoted(.name))]
    NotNewer {
        /// The bundle to substitute for.
        base: String,
        /// The image.
        name: String,
    },
    /// The catalog that results is not valid; one line for each fault.
    #[error("resulting config is not valid FBC: {0}")]
    Result(String),
}

impl Substitutes {
    pub(super) fn from_json(json: &str) -> Result<Self, TemplateError> {
        let document: SubstitutesTemplate = decode(json).map_err(TemplateError::Shape)?;
        Ok(Self {
            catalog: load(&document.entries)?,
            substitutions: document.substitutions,
        })
    }

    pub(super) fn images(&self) -> Vec<&str> {
        let named = self.substitutions.iter();
        named
            .filter(|substitute| !substitute.name.is_empty() && substitute.name != substitute.base)
            .map(|substitute| substitute.name.as_str())
            .collect()
    }

    pub(super) fn render(&self, bundles: &Bundles) -> Result<Catalog, TemplateError> {
        let mut catalog = self.catalog.clone();
        faults(&catalog).map_err(TemplateError::Catalog)?;
        let mut bases: HashSet<&str> = HashSet::new();
        let mut names: HashMap<&str, &str> = HashMap::new();
        for Substitute { name, base } in &self.substitutions {
            if !bases.insert(base) {
                return Err(SubstitutionError::BaseTwice(base.clone()).into());
            }
            if let Some(first) = names.insert(name, base) {
                return Err(SubstitutionError::NameTwice {
                    name: name.clone(),
                    first: first.to_owned(),
                    second: base.clone(),
                }
                .into());
            }
            substitute(&mut catalog, name, base, bundles).map_err(|fault| SubstitutionError::One {
                base: base.clone(),
                name: name.clone(),
                fault: Box::new(fault),
            })?;
        }
        Ok(catalog)
    }
}

/// The faults of a catalog, one line each.
fn faults(catalog: &Catalog) -> Result<(), String> {
    let report = lint::catalog(catalog);
    if report.is_valid() {
        return Ok(());
    }
    let faults: Vec<String> = report
        .errors()
        .map(|finding| format!("{}: {}", finding.object, finding.message))
        .collect();
    Err(faults.join("\n"))
}

fn substitute(
    catalog: &mut Catalog,
    name: &str,
    base: &str,
    bundles: &Bundles,
) -> Result<(), SubstitutionFault> {
    match (name, base) {
        ("", _) => return Err(SubstitutionFault::NoName),
        (_, "") => return Err(SubstitutionFault::NoBase),
        (name, base) if name == base => return Err(SubstitutionFault::Same),
        _ => {}
    }
    let found = rendered(name, bundles).map_err(|error| SubstitutionFault::Render {
        image: name.to_owned(),
        error,
    })?;
    let new = found
        .first()
        .ok_or_else(|| SubstitutionFault::Empty(name.to_owned()))?;
    let new_version = version(new, "substitute", name)?;
    let old = catalog
        .bundles
        .iter()
        .find(|bundle| bundle.name == base)
        .ok_or_else(|| SubstitutionFault::NoSuchBase(base.to_owned()))?;
    if version(old, "base", base)?.compare(&new_version).is_ge() {
        return Err(SubstitutionFault::NotNewer {
            base: base.to_owned(),
            name: name.to_owned(),
        });
    }
    for channel in &mut catalog.channels {
        take_place(channel, base, &new.name);
    }
    catalog.bundles.push(new.clone());
    faults(catalog).map_err(SubstitutionFault::Result)
}

fn version(bundle: &Bundle, what: &'static str, name: &str) -> Result<VersionRelease, SubstitutionFault> {
    bundle
        .version_release()
        .map_err(|error| SubstitutionFault::Version {
            what,
            bundle: name.to_owned(),
            error: Box::new(error),
        })
}

/// Moves the edges of `base` to a new entry `new`, which skips `base`. Entries that replace `base` now replace `new`.
fn take_place(channel: &mut Channel, base: &str, new: &str) {
    let mut entries = std::mem::take(&mut channel.entries).into_vec();
    let mut added = Vec::new();
    for entry in entries.iter_mut().filter(|entry| entry.name == base) {
        let mut skips = std::mem::take(&mut entry.skips).into_vec();
        skips.push(base.to_owned());
        added.push(ChannelEntry {
            name: new.to_owned(),
            replaces: entry.replaces.take(),
            skips: skips.into(),
            skip_range: entry.skip_range.take(),
        });
    }
    for entry in &mut entries {
        let mut skips = std::mem::take(&mut entry.skips).into_vec();
        if entry.replaces() == Some(base) {
            entry.replaces = Some(new.to_owned());
            skips.push(base.to_owned());
        } else if skips.iter().any(|skipped| skipped == base) {
            skips.retain(|skipped| skipped != base);
            skips.push(new.to_owned());
        }
        entry.skips = skips.into();
    }
    entries.extend(added);
    channel.entries = entries.into();
}
