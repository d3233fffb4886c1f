//! The facts about a cluster that affect the choice among the bundles of some packages.
//!
//! [`Questions`] are the facts that bundles mention, so a bundle without requirements costs no request. The caller
//! reads the facts from the cluster into an [`Inventory`].

use std::collections::HashSet;

use olm_api::names::{annotation, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_constraint::{Gvk, Requirement};
use olm_fbc::Property;
use olm_fbc::property::{TYPE_CONSTRAINT, TYPE_GVK_REQUIRED, TYPE_PACKAGE_REQUIRED};
use semver::Version;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cluster::compatibility::{ClusterState, Dependents, InstalledExtension};
use crate::cluster::platform::{ClusterPlatform, Platform};
use crate::package::Package;

/// The maximum number of APIs to look up at once, those of newer bundles first.
const MOST_APIS: usize = 200;
/// Types of properties that are requirements.
pub const REQUIRED: [&str; 3] = [TYPE_PACKAGE_REQUIRED, TYPE_GVK_REQUIRED, TYPE_CONSTRAINT];

/// The annotations of a revision with properties.
const RECORDS: [&str; 2] = [annotation::PROPERTIES, annotation::FURTHER_PROPERTIES];

/// The facts that bundles mention.
#[derive(Debug, Default)]
pub struct Questions {
    /// The APIs that the cluster may serve.
    pub apis: HashSet<Gvk>,
    /// Whether the other extensions are needed.
    pub requires: bool,
    /// Whether the version of Kubernetes is needed.
    pub version: bool,
    /// Whether the architectures of the nodes are needed.
    pub architectures: bool,
}

impl Questions {
    /// The facts that the bundles of packages mention.
    pub fn of_packages<'a>(packages: impl Iterator<Item = &'a Package>) -> Self {
        let mut questions = Self::default();
        for package in packages {
            let asks = |package: &Package| {
                let mut candidates = package.candidates().iter();
                candidates.any(|candidate| !candidate.requirements.is_empty() || candidate.platform.is_some())
            };
            if !asks(package) {
                continue;
            }
            for candidate in package.newest_first() {
                questions.requires |= !candidate.requirements.is_empty();
                questions.platform(candidate.platform.as_deref());
                questions.apis(candidate.apis_in_question());
            }
        }
        questions
    }

    /// The facts that a bundle's own files mention.
    pub fn of_bundle(requirements: &[Requirement], platform: Option<&Platform>) -> Self {
        let mut questions = Self {
            apis: requirements.iter().flat_map(Requirement::apis).cloned().collect(),
            requires: !requirements.is_empty(),
            ..Self::default()
        };
        questions.platform(platform);
        questions
    }

    /// Adds the facts that the requirements of installed extensions mention.
    pub fn of_installed(&mut self, others: &[InstalledExtension]) {
        let required = others.iter().flat_map(|other| &other.requirements);
        self.apis.extend(required.flat_map(Requirement::apis).cloned());
    }

    fn platform(&mut self, platform: Option<&Platform>) {
        if let Some(platform) = platform {
            self.version |= platform.kubernetes.is_some();
            self.architectures |= !platform.architectures.is_empty();
            self.apis(platform.apis.iter());
        }
    }

    /// Adds APIs up to a limit: each may cost a request, and catalogs may name any number.
    fn apis<'a>(&mut self, apis: impl Iterator<Item = &'a Gvk>) {
        for api in apis {
            if self.apis.len() >= MOST_APIS {
                return;
            }
            if !self.apis.contains(api) {
                self.apis.insert(api.clone());
            }
        }
    }
}

/// The facts about a cluster that bundles mention.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The other extensions.
    pub others: Vec<InstalledExtension>,
    /// The installed bundle of the extension itself.
    pub own: Option<InstalledExtension>,
    /// The APIs that are served.
    pub served: HashSet<Gvk>,
    /// The version of Kubernetes.
    pub kubernetes: Option<Version>,
    /// The architectures of the nodes; empty if unknown.
    pub architectures: Vec<String>,
    /// Whether other extensions are protected.
    pub dependents: Dependents,
}

impl Inventory {
    /// The facts in the form of resolution.
    pub fn facts(&self) -> ClusterState<'_> {
        ClusterState {
            others: &self.others,
            own: self.own.as_ref(),
            served: &self.served,
            platform: ClusterPlatform {
                kubernetes: self.kubernetes.as_ref(),
                architectures: &self.architectures,
            },
            dependents: self.dependents,
        }
    }
}

/// The annotation [`user::ALLOW_BREAK_DEPENDENTS`] has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key}: {0:?} is neither \"true\" nor \"false\"", key = user::ALLOW_BREAK_DEPENDENTS)]
pub struct DependentsError(String);

/// Whether an extension may break its dependents.
///
/// # Errors
/// Its annotation has an invalid value.
pub fn dependents(extension: &ClusterExtension) -> Result<Dependents, DependentsError> {
    match extension.annotation(user::ALLOW_BREAK_DEPENDENTS) {
        None | Some("false") => Ok(Dependents::Protected),
        Some("true") => Ok(Dependents::MayBreak),
        Some(other) => Err(DependentsError(other.to_owned())),
    }
}

/// Whether the bundle of a revision has requirements. Only searches the text.
pub fn requires(set: &ClusterObjectSet) -> bool {
    let mut texts = RECORDS.iter().filter_map(|key| set.annotation(key));
    texts.any(|text| REQUIRED.iter().any(|kind| text.contains(kind)))
}

#[derive(Deserialize)]
struct Recorded<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// The properties in the annotations of a revision.
fn recorded(set: &ClusterObjectSet) -> Vec<Recorded<'_>> {
    let texts = RECORDS.iter().filter_map(|key| set.annotation(key));
    let lists = texts.map(|text| serde_json::from_str::<Vec<Recorded<'_>>>(text).unwrap_or_default());
    lists.flatten().collect()
}

/// The types and values of the properties of a revision's bundle.
pub fn declared(set: &ClusterObjectSet) -> Vec<(String, Value)> {
    let value = |property: Recorded<'_>| {
        let value = serde_json::from_str(property.value.get()).unwrap_or_default();
        (property.kind, value)
    };
    recorded(set).into_iter().map(value).collect()
}

/// The extension with the properties of its revision.
pub fn installed_extension(extension: &str, set: &ClusterObjectSet) -> InstalledExtension {
    let package = set.annotation(annotation::PACKAGE_NAME).unwrap_or_default();
    let version = set.annotation(annotation::BUNDLE_VERSION).unwrap_or_default();
    let properties = recorded(set).into_iter();
    let properties = properties.map(|property| Property::new(property.kind, property.value.get()));
    InstalledExtension::new(extension, package, version, properties.collect())
}
