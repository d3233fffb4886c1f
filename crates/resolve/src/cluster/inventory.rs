//! The facts of a cluster that the choice among the bundles of some packages needs.
//!
//! [`Questions`] say what bundles ask about: a bundle that requires nothing costs no request. Whoever reaches the cluster
//! answers them in an [`Inventory`].

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

use crate::cluster::compatibility::{ClusterState, Dependents, Neighbour};
use crate::cluster::platform::{ClusterPlatform, Platform};
use crate::package::Package;

/// How many APIs are asked for at once; those of newer bundles first.
const MOST_APIS: usize = 200;
/// Types of properties that require something.
pub const REQUIRED: [&str; 3] = [TYPE_PACKAGE_REQUIRED, TYPE_GVK_REQUIRED, TYPE_CONSTRAINT];

/// The annotations of a revision that record properties.
const RECORDS: [&str; 2] = [annotation::PROPERTIES, annotation::FURTHER_PROPERTIES];

/// What bundles ask about.
#[derive(Debug, Default)]
pub struct Questions {
    /// The APIs that the cluster may serve.
    pub apis: HashSet<Gvk>,
    /// Whether the other extensions matter.
    pub requires: bool,
    /// Whether the version of Kubernetes does.
    pub version: bool,
    /// Whether the architectures of the nodes do.
    pub architectures: bool,
}

impl Questions {
    /// What the bundles of packages ask about.
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

    /// What a bundle's own files ask about.
    pub fn of_bundle(requirements: &[Requirement], platform: Option<&Platform>) -> Self {
        let mut questions = Self {
            apis: requirements.iter().flat_map(Requirement::apis).cloned().collect(),
            requires: !requirements.is_empty(),
            ..Self::default()
        };
        questions.platform(platform);
        questions
    }

    /// Adds what the extensions that are there require.
    pub fn of_neighbours(&mut self, neighbours: &[Neighbour]) {
        let required = neighbours.iter().flat_map(|neighbour| &neighbour.requirements);
        self.apis.extend(required.flat_map(Requirement::apis).cloned());
    }

    fn platform(&mut self, platform: Option<&Platform>) {
        if let Some(platform) = platform {
            self.version |= platform.kubernetes.is_some();
            self.architectures |= !platform.architectures.is_empty();
            self.apis(platform.apis.iter());
        }
    }

    /// Adds what is asked about, as far as it is not too much: each may cost a request, and catalogs name what they like.
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

/// What there is on a cluster, as far as a bundle asks about it.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The other extensions.
    pub neighbours: Vec<Neighbour>,
    /// The installed bundle of the extension itself.
    pub own: Option<Neighbour>,
    /// The APIs that are served.
    pub served: HashSet<Gvk>,
    /// The version of Kubernetes.
    pub kubernetes: Option<Version>,
    /// The architectures of the nodes; none when they are not known.
    pub architectures: Vec<String>,
    /// Whether other extensions are kept from being broken.
    pub dependents: Dependents,
}

impl Inventory {
    /// The facts as resolution takes them.
    pub fn facts(&self) -> ClusterState<'_> {
        ClusterState {
            neighbours: &self.neighbours,
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

/// The annotation [`user::ALLOW_BREAK_DEPENDENTS`] has a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key}: {0:?} is neither \"true\" nor \"false\"", key = user::ALLOW_BREAK_DEPENDENTS)]
pub struct DependentsError(String);

/// Whether an extension may break those that depend on it.
///
/// # Errors
/// Its annotation has a value that means nothing.
pub fn dependents(extension: &ClusterExtension) -> Result<Dependents, DependentsError> {
    match extension.annotation(user::ALLOW_BREAK_DEPENDENTS) {
        None | Some("false") => Ok(Dependents::Protected),
        Some("true") => Ok(Dependents::MayBreak),
        Some(other) => Err(DependentsError(other.to_owned())),
    }
}

/// Whether the bundle of a revision requires something. Only text is looked at.
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

/// The properties that a revision records.
fn recorded(set: &ClusterObjectSet) -> Vec<Recorded<'_>> {
    let texts = RECORDS.iter().filter_map(|key| set.annotation(key));
    let lists = texts.map(|text| serde_json::from_str::<Vec<Recorded<'_>>>(text).unwrap_or_default());
    lists.flatten().collect()
}

/// What a revision records of its bundle: the types and values of properties.
pub fn declared(set: &ClusterObjectSet) -> Vec<(String, Value)> {
    let value = |property: Recorded<'_>| {
        let value = serde_json::from_str(property.value.get()).unwrap_or_default();
        (property.kind, value)
    };
    recorded(set).into_iter().map(value).collect()
}

/// The extension as its revision records it.
pub fn neighbour(extension: &str, set: &ClusterObjectSet) -> Neighbour {
    let package = set.annotation(annotation::PACKAGE_NAME).unwrap_or_default();
    let version = set.annotation(annotation::BUNDLE_VERSION).unwrap_or_default();
    let properties = recorded(set).into_iter();
    let properties = properties.map(|property| Property::new(property.kind, property.value.get()));
    Neighbour::new(extension, package, version, properties.collect())
}
