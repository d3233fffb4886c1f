//! The blobs of one package in one catalog, prepared for any number of requests.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use olm_constraint::{Gvk, ParseCache, Requirement, RequirementError, Subject};
use olm_fbc::decode::ShapeError;
use olm_fbc::property::{
    TYPE_BUNDLE_OBJECT, TYPE_CONSTRAINT, TYPE_CSV_METADATA, TYPE_GVK, TYPE_GVK_REQUIRED, TYPE_PACKAGE,
    TYPE_PACKAGE_REQUIRED,
};
use olm_fbc::{Blob, Bundle, Channel, Deprecations, Property, SCHEMA_BUNDLE};
use olm_version::blang::{Range, RangeError};
use olm_version::{BuildMetadata, VersionRelease, VersionReleaseError, quoted};

use crate::cluster::platform::Platform;

/// Whether the field `release` of a bundle's `olm.package` property is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReleaseField {
    /// The field is used if present; otherwise the release is the build metadata of the version.
    #[default]
    Counts,
    /// The field is ignored; the release is the build metadata of the version.
    Ignored,
}

/// The reason why the version of a bundle is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionFault {
    /// The bundle has no property with its package and version.
    #[error("no package property found in bundle {}", quoted(.0))]
    NoProperty(String),
    /// The value of the property has the wrong shape.
    #[error("error unmarshalling package property: {0}")]
    Shape(ShapeError),
    /// The version is not a semantic version.
    #[error("{0}")]
    Version(olm_version::blang::VersionError),
    /// The version or the release, which are separate fields, cannot be read.
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
    /// The version and release, or the reason why they are unknown.
    pub version: Result<VersionRelease, VersionFault>,
    /// The properties without manifests and descriptive metadata, which some catalogs include.
    pub properties: Vec<Property>,
    /// Whether the catalog deprecates this bundle (not its channel or package).
    pub is_deprecated: bool,
    /// The package.
    pub package: String,
    /// The requirements.
    pub requirements: Vec<Arc<DeclaredRequirement>>,
    /// The requirements on the cluster itself.
    pub platform: Option<Box<Platform>>,
    subject: OnceLock<Subject>,
}

/// A declared requirement. It is parsed when it is first needed, and shared by all bundles of a package that declare
/// the same.
#[derive(Debug)]
pub struct DeclaredRequirement {
    /// The type of the property.
    pub kind: String,
    /// The JSON text of its value.
    pub text: String,
    known: Arc<ParseCache>,
    read: OnceLock<Result<Requirement, RequirementError>>,
}

impl DeclaredRequirement {
    fn new(property: &Property, known: &Arc<ParseCache>) -> Self {
        Self {
            kind: property.kind.clone(),
            text: property.value.to_string(),
            known: Arc::clone(known),
            read: OnceLock::new(),
        }
    }

    /// The requirement, or the reason why it is invalid.
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

/// An entry for a bundle in a channel.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) replaces: Option<String>,
    pub(crate) skips: Vec<String>,
    pub(crate) skip_range: Option<Result<Range, RangeError>>,
}

/// A package in a catalog.
#[derive(Clone, Debug, Default)]
pub struct Package {
    candidates: Vec<Candidate>,
    channels: Vec<PreparedChannel>,
    deprecations: Option<Deprecations>,
    default_channel: Option<String>,
    bytes: usize,
}

/// The most memory for the blobs of one package, in bytes.
pub const MAX_PACKAGE_BYTES: usize = 32 << 20;
/// The longest value of an unknown property, in bytes. Longer values are dropped.
const MAX_OTHER_PROPERTY_BYTES: usize = 64 << 10;
/// The memory of a blob, property, channel entry or name without its text, in bytes.
const ITEM_BYTES: usize = 128;

/// The memory of a parsed range for each byte of its text: `1.x` becomes two comparisons of 48 bytes.
const RANGE_FACTOR: usize = 32;

/// The blobs of a package take more memory than [`MAX_PACKAGE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the package takes more than {} MiB", MAX_PACKAGE_BYTES >> 20)]
pub struct PackageTooLarge;

/// A [`Package`] under construction. Of each blob it keeps only the parts that resolution needs.
#[derive(Debug)]
pub struct PackageBuilder {
    package: Package,
    releases: ReleaseField,
    declared: AllDeclared,
    bytes: usize,
    is_empty: bool,
}

impl PackageBuilder {
    /// A package without blobs.
    pub fn new(releases: ReleaseField) -> Self {
        Self {
            package: Package::default(),
            releases,
            declared: AllDeclared::default(),
            bytes: 0,
            is_empty: true,
        }
    }

    /// Adds a blob. Versions and ranges are parsed here, once.
    ///
    /// # Errors
    /// When the package becomes too large; the blob is not added.
    pub fn add(&mut self, blob: Blob) -> Result<(), PackageTooLarge> {
        self.is_empty = false;
        match blob {
            Blob::Bundle(bundle) => {
                let candidate = candidate(bundle, self.releases, &mut self.declared);
                self.spend(candidate.bytes())?;
                self.package.candidates.push(candidate);
            }
            Blob::Channel(channel) => {
                let entries = channel.entries.iter().map(|entry| {
                    let skips = entry.skips.iter().map(|name| ITEM_BYTES + name.len());
                    let replaces = entry.replaces().map_or(0, str::len);
                    let range = RANGE_FACTOR * entry.skip_range().map_or(0, str::len);
                    ITEM_BYTES + entry.name.len() + replaces + range + skips.sum::<usize>()
                });
                self.spend(ITEM_BYTES + entries.sum::<usize>())?;
                self.package.channels.push(prepare(channel));
            }
            Blob::Deprecations(deprecations) => {
                let entries = deprecations.entries.iter();
                let bytes =
                    entries.map(|entry| ITEM_BYTES + entry.reference.name.len() + entry.message.len());
                self.spend(ITEM_BYTES + bytes.sum::<usize>())?;
                match &mut self.package.deprecations {
                    None => self.package.deprecations = Some(deprecations),
                    Some(first) => {
                        let entries = std::mem::take(&mut first.entries).into_vec();
                        let more = deprecations.entries.into_vec();
                        first.entries = entries.into_iter().chain(more).collect::<Vec<_>>().into();
                    }
                }
            }
            Blob::Package(package) => {
                self.spend(package.default_channel.len())?;
                self.package.default_channel = Some(package.default_channel);
            }
            Blob::Other => {}
        }
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), PackageTooLarge> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_PACKAGE_BYTES {
            return Err(PackageTooLarge);
        }
        Ok(())
    }

    /// The package; `None` when it has no blobs.
    pub fn finish(self) -> Option<Package> {
        let package = Package {
            bytes: self.bytes,
            ..self.package
        };
        (!self.is_empty).then(|| package.with_deprecated_bundles())
    }
}

impl Package {
    /// Prepares the blobs of one package.
    ///
    /// # Errors
    /// When they take too much memory.
    pub fn new(
        blobs: impl IntoIterator<Item = Blob>,
        releases: ReleaseField,
    ) -> Result<Self, PackageTooLarge> {
        let mut builder = PackageBuilder::new(releases);
        blobs.into_iter().try_for_each(|blob| builder.add(blob))?;
        Ok(builder.finish().unwrap_or_default())
    }

    /// Marks the bundles that the catalog deprecates.
    fn with_deprecated_bundles(mut self) -> Self {
        let package = &mut self;
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
        self
    }

    /// The approximate memory, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bundles, in the order of the catalog.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The bundles, highest version and release first; those without a readable version last.
    pub fn newest_first(&self) -> Vec<&Candidate> {
        let mut candidates: Vec<_> = self.candidates.iter().collect();
        candidates.sort_by(|left, right| right.compare_versions(left));
        candidates
    }

    /// The names of the channels, in the order of the catalog.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(|channel| channel.name.as_str())
    }

    /// The name of the default channel, if the catalog names one.
    pub fn default_channel(&self) -> Option<&str> {
        self.default_channel.as_deref().filter(|name| !name.is_empty())
    }

    /// The names of the channels that hold a bundle.
    pub(crate) fn channels_of(&self, bundle: &str) -> impl Iterator<Item = &str> {
        let holds =
            move |channel: &&PreparedChannel| channel.entries.iter().any(|entry| entry.name == bundle);
        self.channels
            .iter()
            .filter(holds)
            .map(|channel| channel.name.as_str())
    }

    /// The deprecations in the package.
    pub fn deprecations(&self) -> Option<&Deprecations> {
        self.deprecations.as_ref()
    }

    pub(crate) fn prepared_channels(&self) -> &[PreparedChannel] {
        &self.channels
    }
}

impl Candidate {
    /// Compares version and release; a bundle without a readable version is lowest.
    pub(crate) fn compare_versions(&self, other: &Self) -> Ordering {
        match (&self.version, &other.version) {
            (Ok(left), Ok(right)) => left.compare(right),
            (left, right) => left.is_ok().cmp(&right.is_ok()),
        }
    }

    /// The approximate memory, in bytes.
    fn bytes(&self) -> usize {
        let texts = [&self.name, &self.package, &self.image].map(String::len);
        let properties = self.properties.iter();
        let properties = properties.map(|one| ITEM_BYTES + one.kind.len() + one.value.len());
        let requirements = self.requirements.iter().map(|one| ITEM_BYTES + one.text.len());
        let platform = self.platform.as_ref().map_or(0, |platform| {
            (platform.apis.len() + platform.architectures.len()) * ITEM_BYTES
        });
        ITEM_BYTES
            + texts.iter().sum::<usize>()
            + properties.sum::<usize>()
            + requirements.sum::<usize>()
            + platform
    }

    /// The bundle in the form of requirements.
    pub fn subject(&self) -> &Subject {
        self.subject.get_or_init(|| {
            let version = self.version.as_ref().ok().map(|version| version.version.clone());
            Subject::new(&self.name, &self.package, version, self.properties.clone())
        })
    }

    /// The APIs that it mentions: those that it requires, excludes, or needs from the cluster.
    pub fn apis_in_question(&self) -> impl Iterator<Item = &Gvk> {
        let required = self
            .requirements
            .iter()
            .filter_map(|declared| declared.read().ok());
        let asked = self.platform.iter().flat_map(|platform| &platform.apis);
        required.flat_map(Requirement::apis).chain(asked)
    }
}

/// The requirements that bundles of a package have declared so far.
#[derive(Debug, Default)]
struct AllDeclared {
    by_text: HashMap<(String, Box<str>), Arc<DeclaredRequirement>>,
    known: Arc<ParseCache>,
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
    properties.retain(|property| match property.kind.as_str() {
        TYPE_BUNDLE_OBJECT | TYPE_CSV_METADATA => false,
        TYPE_PACKAGE | TYPE_GVK | TYPE_PACKAGE_REQUIRED | TYPE_GVK_REQUIRED | TYPE_CONSTRAINT => true,
        _ => property.value.len() <= MAX_OTHER_PROPERTY_BYTES,
    });
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
                .or_insert_with(|| Arc::new(DeclaredRequirement::new(property, &all.known))),
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

/// The version in the first `olm.package` property.
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
    // An empty release differs from an absent one.
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

/// Whether the value of a property has a key `release`, in any case, that is not null.
fn names_release(property: &Property) -> bool {
    // Most properties do not have it, so parsing them twice is avoided.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(properties: &str) -> Blob {
        let json = format!(
            r#"{{"schema":"olm.bundle","package":"p","name":"b","image":"i","properties":[{properties}]}}"#
        );
        Blob::from_json(SCHEMA_BUNDLE, &json).unwrap()
    }

    #[test]
    fn long_properties_of_unknown_types_are_dropped() {
        let long = "x".repeat(MAX_OTHER_PROPERTY_BYTES);
        let properties = format!(r#"{{"type":"mine","value":"{long}"}},{{"type":"mine","value":"short"}}"#);
        let package = Package::new([bundle(&properties)], ReleaseField::Counts).unwrap();
        let kept: Vec<&str> = package.candidates()[0]
            .properties
            .iter()
            .map(|one| &*one.value)
            .collect();
        assert_eq!(kept, ["\"short\""]);
    }

    #[test]
    fn a_package_has_a_bound_of_memory() {
        let mut builder = PackageBuilder::new(ReleaseField::Counts);
        let constraint = format!(
            r#"{{"type":"olm.constraint","value":"{}"}}"#,
            "x".repeat(10 << 20)
        );
        // The value counts as a property and as a requirement.
        assert_eq!(builder.add(bundle(&constraint)), Ok(()));
        assert_eq!(builder.add(bundle(&constraint)), Err(PackageTooLarge));
        let entries = vec![r#"{"name":""}"#; MAX_PACKAGE_BYTES / ITEM_BYTES].join(",");
        let channel = format!(r#"{{"schema":"olm.channel","package":"p","name":"c","entries":[{entries}]}}"#);
        let channel = Blob::from_json("olm.channel", &channel).unwrap();
        assert_eq!(
            Package::new([channel], ReleaseField::Counts).err(),
            Some(PackageTooLarge)
        );
    }

    #[test]
    fn a_range_counts_by_its_size_once_parsed() {
        let channel =
            r#"{"schema":"olm.channel","package":"p","name":"c","entries":[{"name":"a","skipRange":"1.x"}]}"#;
        let channel = Blob::from_json("olm.channel", channel).unwrap();
        let package = Package::new([channel], ReleaseField::Counts).unwrap();
        assert_eq!(package.bytes(), 2 * ITEM_BYTES + 1 + 3 * RANGE_FACTOR);
    }
}
