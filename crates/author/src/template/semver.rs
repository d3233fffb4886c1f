//! Bundles whose versions determine the channels and their edges.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use olm_fbc::Bundle;
use olm_fbc::catalog::Catalog;
use olm_fbc::decode::{Decode, ShapeError, decode, members};
use olm_fbc::property::TYPE_PACKAGE;
use olm_fbc::{Channel, ChannelEntry};
use olm_fbc::{Icon, Package};
use olm_version::{Version, blang, quoted};

use super::{Bundles, TemplateError, rendered};

/// The maturity of a channel; the order is that of stability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Archetype {
    /// `candidate`.
    Candidate,
    /// `fast`.
    Fast,
    /// `stable`.
    Stable,
}

impl Archetype {
    /// All archetypes, the least stable first.
    pub const ALL: [Self; 3] = [Self::Candidate, Self::Fast, Self::Stable];

    /// The name, with which the names of its channels begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Fast => "fast",
            Self::Stable => "stable",
        }
    }
}

/// The common version part of the bundles in a channel; the order is that of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The major version: `stable-v1`.
    Major,
    /// The major and the minor version: `stable-v1.2`.
    Minor,
}

impl Stream {
    /// The name, as templates write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Major => "major",
            Self::Minor => "minor",
        }
    }

    fn channel(self, archetype: Archetype, version: &Version) -> String {
        let prefix = archetype.name();
        match self {
            Self::Major => format!("{prefix}-v{}", version.major),
            Self::Minor => format!("{prefix}-v{}.{}", version.major, version.minor),
        }
    }
}

/// A template of the kind [`Kind::Semver`](super::Kind::Semver).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    /// The kinds of channels to create; at least one.
    pub streams: BTreeSet<Stream>,
    /// The preferred kind of the default channel, if both kinds are possible.
    pub preference: Stream,
    /// The images of the bundles in each archetype.
    pub images: BTreeMap<Archetype, Vec<String>>,
}

#[derive(Default)]
struct Strict<T>(T);

#[derive(Default)]
struct SemverTemplate {
    major: bool,
    minor: bool,
    preference: String,
    images: BTreeMap<Archetype, Vec<String>>,
}

fn unknown<T>(key: &str) -> Result<T, ShapeError> {
    Err(ShapeError::new(format!(
        "is not a field here (unknown field {})",
        quoted(key)
    )))
}

impl Decode for Strict<String> {
    /// `{image}`.
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut image = String::new();
        members(raw, |key, value| match key {
            "image" => decode(value).map(|value| image = value),
            other => unknown(other),
        })?;
        Ok(Self(image))
    }
}

impl Decode for Strict<Vec<String>> {
    /// `{bundles: [{image}]}`.
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut bundles: Vec<Strict<String>> = Vec::new();
        members(raw, |key, value| match key {
            "bundles" => decode(value).map(|value| bundles = value),
            other => unknown(other),
        })?;
        Ok(Self(bundles.into_iter().map(|bundle| bundle.0).collect()))
    }
}

impl Decode for SemverTemplate {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut document = Self::default();
        members(raw, |key, value| {
            match key {
                "schema" => decode::<String>(value).map(drop)?,
                "generatemajorchannels" => document.major = decode(value)?,
                "generateminorchannels" => document.minor = decode(value)?,
                "defaultchanneltypepreference" => document.preference = decode(value)?,
                other => {
                    let Some(archetype) = Archetype::ALL
                        .into_iter()
                        .find(|archetype| archetype.name() == other)
                    else {
                        return unknown(other);
                    };
                    let Strict(images) = decode(value)?;
                    document.images.insert(archetype, images);
                }
            }
            Ok(())
        })?;
        Ok(document)
    }
}

impl Semver {
    pub(super) fn from_json(json: &str) -> Result<Self, TemplateError> {
        let document: SemverTemplate = decode(json).map_err(TemplateError::Shape)?;
        let mut streams = BTreeSet::new();
        if document.major {
            streams.insert(Stream::Major);
        }
        if document.minor || !document.major {
            streams.insert(Stream::Minor);
        }
        let asked = match document.preference.as_str() {
            "" => None,
            "minor" => Some(Stream::Minor),
            "major" => Some(Stream::Major),
            other => return Err(TemplateError::UnknownPreference(other.to_owned())),
        };
        if let Some(stream) = asked
            && !streams.contains(&stream)
        {
            return Err(TemplateError::Preference(stream.name()));
        }
        let preference = asked.or_else(|| streams.last().copied()).unwrap_or(Stream::Minor);
        Ok(Self {
            streams,
            preference,
            images: document.images,
        })
    }

    pub(super) fn images(&self) -> Vec<&str> {
        self.images.values().flatten().map(String::as_str).collect()
    }

    pub(super) fn render(&self, bundles: &Bundles) -> Result<Catalog, TemplateError> {
        let mut catalog = Catalog::default();
        let mut by_image: HashMap<&str, Bundle> = HashMap::new();
        for image in self.images() {
            if by_image.contains_key(image) {
                continue;
            }
            let found = rendered(image, bundles).map_err(|error| TemplateError::Bundle {
                image: image.to_owned(),
                error,
            })?;
            let [bundle] = found else {
                return Err(TemplateError::BundleCount {
                    image: image.to_owned(),
                    count: found.len(),
                });
            };
            by_image.insert(image, bundle.clone());
            catalog.bundles.push(bundle.clone());
        }
        if catalog.bundles.is_empty() {
            return Err(TemplateError::NoBundles);
        }
        let (package, versions) = self.versions(&by_image)?;
        let generated = generate(&package, &self.streams, self.preference, &versions);
        let mut package = Package {
            name: package,
            default_channel: generated.default_channel,
            ..Package::default()
        };
        let head = generated
            .channels
            .iter()
            .find(|channel| channel.name == package.default_channel)
            .and_then(|channel| channel.entries.last());
        let head = head.and_then(|entry| catalog.bundles.iter().find(|bundle| bundle.name == entry.name));
        if let Some(head) = head {
            describe(&mut package, head);
        }
        catalog.packages.push(package);
        catalog.channels = generated.channels;
        Ok(catalog)
    }

    /// The package of all bundles, and their versions.
    fn versions(&self, by_image: &HashMap<&str, Bundle>) -> Result<(String, Versions), VersionsError> {
        let mut package: Option<String> = None;
        let mut versions = Versions::new();
        for (archetype, images) in &self.images {
            let mut of_archetype = BTreeMap::new();
            for bundle in images.iter().filter_map(|image| by_image.get(image.as_str())) {
                let (named, version) = package_and_version(bundle)?;
                match &package {
                    Some(package) if *package != named => {
                        return Err(VersionsError::OtherPackage {
                            bundle: bundle.name.clone(),
                            package: package.clone(),
                            named,
                        });
                    }
                    _ => package = Some(named),
                }
                if of_archetype.insert(bundle.name.clone(), version).is_some() {
                    return Err(VersionsError::Duplicate(bundle.name.clone()));
                }
            }
            check_versions(&of_archetype)?;
            versions.insert(*archetype, of_archetype);
        }
        Ok((package.unwrap_or_default(), versions))
    }
}

fn package_and_version(bundle: &Bundle) -> Result<(String, Version), VersionsError> {
    let mut properties = bundle
        .properties
        .iter()
        .filter(|property| property.kind == TYPE_PACKAGE);
    let (Some(property), None) = (properties.next(), properties.next()) else {
        return Err(VersionsError::Property(bundle.name.clone()));
    };
    let property = property.package().map_err(|error| VersionsError::Shape {
        bundle: bundle.name.clone(),
        error,
    })?;
    let version = blang::parse_version(&property.version).map_err(|error| VersionsError::Version {
        bundle: bundle.name.clone(),
        version: property.version.clone(),
        error,
    })?;
    Ok((property.package_name, version))
}

/// The bundles of each archetype with their versions.
pub type Versions = BTreeMap<Archetype, BTreeMap<String, Version>>;

/// The reason why bundles do not make channels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionsError {
    /// A bundle does not have exactly one property with its package and version.
    #[error("bundle {} must have exactly 1 \"olm.package\" property", quoted(.0))]
    Property(String),
    /// That property has the wrong shape.
    #[error("parse properties for bundle {}: {error}", quoted(.bundle))]
    Shape {
        /// The bundle.
        bundle: String,
        /// The fault.
        error: ShapeError,
    },
    /// A version is invalid.
    #[error("bundle {} has invalid version {}: {error}", quoted(.bundle), quoted(.version))]
    Version {
        /// The bundle.
        bundle: String,
        /// The text.
        version: String,
        /// The fault.
        error: blang::VersionError,
    },
    /// The bundles are of several packages.
    #[error(
        "bundle {} belongs to package {}, not to {} as the bundles before it",
        quoted(.bundle), quoted(.named), quoted(.package)
    )]
    OtherPackage {
        /// The bundle.
        bundle: String,
        /// The package.
        named: String,
        /// The package of the others.
        package: String,
    },
    /// An archetype names a bundle twice.
    #[error("duplicate bundle name {}", quoted(.0))]
    Duplicate(String),
    /// Versions that have no order.
    #[error(
        "encountered bundle versions which differ only by build metadata, which cannot be ordered: {}",
        .0.join(", ")
    )]
    BuildMetadata(Vec<String>),
}

/// Rejects versions that differ only in their build metadata.
///
/// # Errors
/// All bundles that share a version with another one.
pub fn check_versions(versions: &BTreeMap<String, Version>) -> Result<(), VersionsError> {
    let mut by_version: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (bundle, version) in versions {
        let text = version.to_string();
        let plain = text.split('+').next().unwrap_or_default().to_owned();
        by_version
            .entry(plain)
            .or_default()
            .push(format!("{bundle} ({text})"));
    }
    let clashes: Vec<String> = by_version
        .into_values()
        .filter(|bundles| bundles.len() > 1)
        .flatten()
        .collect();
    if clashes.is_empty() {
        Ok(())
    } else {
        Err(VersionsError::BuildMetadata(clashes))
    }
}

/// The channels of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The channels, by name.
    pub channels: Vec<Channel>,
    /// The name of the most stable one; empty if there is none.
    pub default_channel: String,
}

/// One bundle in one channel.
struct ChannelBundle<'a> {
    archetype: Archetype,
    stream: Stream,
    version: &'a Version,
    bundle: &'a str,
}

/// The channels of a package and the edges in them.
///
/// The last bundle of each minor version replaces the last one of the minor version before it, within a major
/// version, an archetype and a kind of channel, and skips every older bundle of that major version. The default
/// channel is the most stable one, of these the one with the highest version, of these one of the preferred kind.
pub fn generate(
    package: &str,
    streams: &BTreeSet<Stream>,
    preference: Stream,
    versions: &Versions,
) -> Generated {
    let mut placed: Vec<ChannelBundle<'_>> = Vec::new();
    for (archetype, bundles) in versions {
        for (bundle, version) in bundles {
            placed.extend(streams.iter().map(|stream| ChannelBundle {
                archetype: *archetype,
                stream: *stream,
                version,
                bundle,
            }));
        }
    }
    placed.sort_by(|left, right| {
        (left.archetype, left.stream)
            .cmp(&(right.archetype, right.stream))
            .then_with(|| left.version.cmp_precedence(right.version))
            .then_with(|| left.bundle.cmp(right.bundle))
    });
    let default_channel = default_channel(&placed, preference);
    let mut channels: BTreeMap<String, Vec<ChannelEntry>> = BTreeMap::new();
    let mut replaced: Option<&str> = None;
    let mut skipped: BTreeSet<&str> = BTreeSet::new();
    let mut rest = placed.iter().peekable();
    while let Some(here) = rest.next() {
        let (same_major, same_minor) = match rest.peek() {
            None => (false, false),
            Some(next) => {
                let same = next.archetype == here.archetype
                    && next.stream == here.stream
                    && next.version.major == here.version.major;
                (same, same && next.version.minor == here.version.minor)
            }
        };
        let mut entry = ChannelEntry {
            name: here.bundle.to_owned(),
            ..ChannelEntry::default()
        };
        if !same_minor {
            entry.replaces = replaced.map(str::to_owned);
            let skips: Vec<String> = skipped
                .iter()
                .filter(|name| replaced != Some(**name))
                .map(|name| (*name).to_owned())
                .collect();
            if !skips.is_empty() {
                entry.skips = skips.into();
            }
        }
        if same_major {
            if !same_minor {
                replaced = Some(here.bundle);
            }
            skipped.insert(here.bundle);
        } else {
            replaced = None;
            skipped.clear();
        }
        let name = here.stream.channel(here.archetype, here.version);
        channels.entry(name).or_default().push(entry);
    }
    let channels = channels.into_iter().map(|(name, entries)| Channel {
        name,
        package: package.to_owned(),
        entries: entries.into(),
        ..Channel::default()
    });
    Generated {
        channels: channels.collect(),
        default_channel,
    }
}

/// The most stable channel. A channel counts with the lowest version in it.
fn default_channel(placed: &[ChannelBundle<'_>], preference: Stream) -> String {
    let mut first_of: HashMap<String, &ChannelBundle<'_>> = HashMap::new();
    for here in placed {
        let name = here.stream.channel(here.archetype, here.version);
        first_of.entry(name).or_insert(here);
    }
    let best = first_of.into_iter().max_by(|(_, left), (_, right)| {
        left.archetype
            .cmp(&right.archetype)
            .then_with(|| left.version.cmp_precedence(right.version))
            .then_with(|| (left.stream == preference).cmp(&(right.stream == preference)))
            .then_with(|| left.stream.cmp(&right.stream))
    });
    best.map(|(name, _)| name).unwrap_or_default()
}

#[derive(Default)]
struct Manifest {
    kind: String,
    spec: ManifestSpec,
}
olm_fbc::decode_object!(Manifest { "kind" => kind, "spec" => spec });

#[derive(Default)]
struct ManifestSpec {
    description: String,
    icon: Vec<Icon>,
}
olm_fbc::decode_object!(ManifestSpec { "description" => description, "icon" => icon });

/// Takes description and icon of the package from the `ClusterServiceVersion` that the bundle carries.
fn describe(package: &mut Package, head: &Bundle) {
    let objects = head.objects().unwrap_or_default();
    let manifest = objects.iter().find_map(|object| {
        let value = olm_yaml::to_json(object).ok()?;
        let manifest = decode::<Manifest>(&value.to_string()).ok()?;
        Some(manifest).filter(|manifest| manifest.kind == "ClusterServiceVersion")
    });
    if let Some(manifest) = manifest {
        package.description = manifest.spec.description;
        let icons = manifest.spec.icon;
        // If one icon cannot be decoded, the package gets none.
        if icons.iter().all(|icon| icon.data().is_ok()) {
            package.icon = icons.into_iter().next();
        }
    }
}
