//! What one catalog says about one package, prepared for any number of requests.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use olm_constraint::{Gvk, Known, Requirement, RequirementError, Subject};
use olm_fbc::decode::ShapeError;
use olm_fbc::property::{
    TYPE_BUNDLE_OBJECT, TYPE_CONSTRAINT, TYPE_CSV_METADATA, TYPE_GVK_REQUIRED, TYPE_PACKAGE,
    TYPE_PACKAGE_REQUIRED,
};
use olm_fbc::{Blob, Bundle, Channel, Deprecations, Property, SCHEMA_BUNDLE};
use olm_version::blang::{Range, RangeError};
use olm_version::{BuildMetadata, VersionRelease, VersionReleaseError, quoted};

use crate::choose::compare_versions;
use crate::platform::Platform;

/// Whether the field `release` of a bundle's `olm.package` property counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReleaseField {
    /// It counts where it is given; elsewhere the build metadata of the version says the release.
    #[default]
    Counts,
    /// It does not; the build metadata of the version says the release.
    Ignored,
}

/// Why the version of a bundle is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionFault {
    /// The bundle does not say which package and version it is.
    #[error("no package property found in bundle {}", quoted(.0))]
    NoProperty(String),
    /// The value of the property has the wrong shape.
    #[error("error unmarshalling package property: {0}")]
    Shape(ShapeError),
    /// The version is no semantic version.
    #[error("{0}")]
    Version(olm_version::blang::VersionError),
    /// The version or the release, which are given apart, cannot be read.
    #[error("{0}")]
    Explicit(VersionReleaseError),
}

/// A bundle that may be installed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The bundle's name.
    pub name: String,
    /// The reference of the bundle image.
    pub image: String,
    /// The version and release, or why they are not known.
    pub version: Result<VersionRelease, VersionFault>,
    /// The properties but for the manifests and the descriptive metadata that catalogs carry along.
    pub properties: Vec<Property>,
    /// Whether the catalog deprecates this bundle (not its channel or package).
    pub is_deprecated: bool,
    /// The package.
    pub package: String,
    /// What it requires of other bundles (requirement 3.54).
    pub requirements: Vec<Arc<Declared>>,
    /// What it asks of the cluster itself.
    pub platform: Option<Box<Platform>>,
    subject: OnceLock<Subject>,
}

/// A requirement as it is declared, read when it first matters. Bundles of a package that declare the same share it.
#[derive(Debug)]
pub struct Declared {
    /// The type of the property.
    pub kind: String,
    /// The JSON text of its value.
    pub text: String,
    known: Arc<Known>,
    read: OnceLock<Result<Requirement, RequirementError>>,
}

impl Declared {
    fn new(property: &Property, known: &Arc<Known>) -> Self {
        Self {
            kind: property.kind.clone(),
            text: property.value.to_string(),
            known: Arc::clone(known),
            read: OnceLock::new(),
        }
    }

    /// The requirement, or what is wrong with it.
    pub fn read(&self) -> Result<&Requirement, &RequirementError> {
        let read = || Requirement::of_dependency_knowing(&self.kind, &self.text, &self.known);
        self.read.get_or_init(read).as_ref()
    }
}

/// A channel with its edges.
#[derive(Clone, Debug)]
pub(crate) struct PreparedChannel {
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry>,
}

/// What one channel says about one bundle.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) replaces: Option<String>,
    pub(crate) skips: Vec<String>,
    pub(crate) skip_range: Option<Result<Range, RangeError>>,
}

/// What one catalog says about one package.
#[derive(Clone, Debug, Default)]
pub struct Package {
    candidates: Vec<Candidate>,
    channels: Vec<PreparedChannel>,
    deprecations: Option<Deprecations>,
}

impl Package {
    /// Prepares the blobs of one package. Versions and ranges are read here, once.
    pub fn new(blobs: impl IntoIterator<Item = Blob>, releases: ReleaseField) -> Self {
        let mut package = Self::default();
        let mut declared = AllDeclared::default();
        for blob in blobs {
            match blob {
                Blob::Bundle(bundle) => package
                    .candidates
                    .push(candidate(bundle, releases, &mut declared)),
                Blob::Channel(channel) => package.channels.push(prepare(channel)),
                Blob::Deprecations(deprecations) => match &mut package.deprecations {
                    None => package.deprecations = Some(deprecations),
                    Some(first) => {
                        let entries = std::mem::take(&mut first.entries).into_vec();
                        let more = deprecations.entries.into_vec();
                        first.entries = entries.into_iter().chain(more).collect::<Vec<_>>().into();
                    }
                },
                Blob::Package(_) | Blob::Other => {}
            }
        }
        if let Some(deprecations) = &package.deprecations {
            let entries = deprecations.entries.iter().map(|entry| &entry.reference);
            let names: HashSet<&str> = entries
                .filter(|reference| reference.schema == SCHEMA_BUNDLE)
                .map(|reference| reference.name.as_str())
                .collect();
            for candidate in &mut package.candidates {
                candidate.is_deprecated = names.contains(candidate.name.as_str());
            }
        }
        package
    }

    /// The bundles, in the order of the catalog.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The bundles, highest version and release first; those without a readable version last.
    pub fn newest_first(&self) -> Vec<&Candidate> {
        let mut candidates: Vec<_> = self.candidates.iter().collect();
        candidates.sort_by(|left, right| compare_versions(right, left));
        candidates
    }

    /// The names of the channels, in the order of the catalog.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(|channel| channel.name.as_str())
    }

    /// What the catalog says is deprecated in the package.
    pub fn deprecations(&self) -> Option<&Deprecations> {
        self.deprecations.as_ref()
    }

    pub(crate) fn prepared_channels(&self) -> &[PreparedChannel] {
        &self.channels
    }
}

impl Candidate {
    /// The bundle as what is required sees it.
    pub fn subject(&self) -> &Subject {
        self.subject.get_or_init(|| {
            let version = self.version.as_ref().ok().map(|version| version.version.clone());
            Subject::new(&self.name, &self.package, version, self.properties.clone())
        })
    }

    /// The APIs that it speaks of: those that it requires, excludes, or asks of the cluster.
    pub fn apis_in_question(&self) -> impl Iterator<Item = &Gvk> {
        let required = self
            .requirements
            .iter()
            .filter_map(|declared| declared.read().ok());
        let asked = self.platform.iter().flat_map(|platform| &platform.apis);
        required.flat_map(Requirement::apis).chain(asked)
    }
}

/// What bundles of a package have declared so far.
#[derive(Default)]
struct AllDeclared {
    by_text: HashMap<(String, Box<str>), Arc<Declared>>,
    known: Arc<Known>,
}

fn candidate(bundle: Bundle, releases: ReleaseField, all: &mut AllDeclared) -> Candidate {
    let is_described = |property: &Property| property.kind == TYPE_CSV_METADATA;
    let carried = if bundle.properties.iter().any(is_described) {
        None
    } else {
        bundle.csv_metadata()
    };
    let mut properties = bundle.properties.into_vec();
    let metadata = properties.iter().filter(|property| is_described(property));
    let mut metadata = metadata
        .map(|property| &*property.value)
        .chain(carried.as_deref());
    let platform = metadata.find_map(Platform::of_metadata);
    properties.retain(|property| !matches!(property.kind.as_str(), TYPE_BUNDLE_OBJECT | TYPE_CSV_METADATA));
    let declares = |property: &&Property| {
        matches!(
            property.kind.as_str(),
            TYPE_PACKAGE_REQUIRED | TYPE_GVK_REQUIRED | TYPE_CONSTRAINT
        )
    };
    let requirements = properties.iter().filter(declares).map(|property| {
        let key = (property.kind.clone(), property.value.clone());
        Arc::clone(
            all.by_text
                .entry(key)
                .or_insert_with(|| Arc::new(Declared::new(property, &all.known))),
        )
    });
    Candidate {
        version: version(&bundle.name, &properties, releases),
        requirements: requirements.collect(),
        name: bundle.name,
        package: bundle.package,
        image: bundle.image,
        properties,
        platform: platform.map(Box::new),
        is_deprecated: false,
        subject: OnceLock::new(),
    }
}

/// The version that the first `olm.package` property says.
fn version(
    bundle: &str,
    properties: &[Property],
    releases: ReleaseField,
) -> Result<VersionRelease, VersionFault> {
    let property = properties
        .iter()
        .find(|property| property.kind == TYPE_PACKAGE)
        .ok_or_else(|| VersionFault::NoProperty(bundle.to_owned()))?;
    let package = property.package().map_err(VersionFault::Shape)?;
    // An empty release that is given is not the same as none.
    let is_explicit =
        releases == ReleaseField::Counts && (!package.release.is_empty() || names_release(property));
    if is_explicit {
        VersionRelease::explicit(&package.version, &package.release).map_err(VersionFault::Explicit)
    } else {
        VersionRelease::parse(&package.version, BuildMetadata::Release).map_err(|fault| match fault {
            VersionReleaseError::Version { fault, .. } => VersionFault::Version(fault),
            fault @ VersionReleaseError::Release { .. } => VersionFault::Explicit(fault),
        })
    }
}

/// Whether the value of a property has the key `release`, in whatever case, with something else than null.
fn names_release(property: &Property) -> bool {
    // Most properties do not, and are not worth reading twice.
    if !property
        .value
        .as_bytes()
        .windows(7)
        .any(|word| word.eq_ignore_ascii_case(b"release"))
    {
        return false;
    }
    let Ok(serde_json::Value::Object(members)) = serde_json::from_str(&property.value) else {
        return false;
    };
    members
        .iter()
        .any(|(key, value)| key.eq_ignore_ascii_case("release") && !value.is_null())
}

fn prepare(channel: Channel) -> PreparedChannel {
    let entries = channel.entries.into_vec().into_iter().map(|entry| Entry {
        replaces: entry.replaces().map(str::to_owned),
        skip_range: entry.skip_range().map(Range::parse),
        name: entry.name,
        skips: entry.skips.into_vec(),
    });
    PreparedChannel {
        name: channel.name,
        entries: entries.collect(),
    }
}
