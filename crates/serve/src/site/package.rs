//! The content of the pages of a package, from the stored catalog.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::ops::Range;

use olm_api::text::first_of;
use olm_fbc::base64_text::decode;
use olm_fbc::graph::head;
use olm_fbc::property::{TYPE_BUNDLE_OBJECT, TYPE_CSV_METADATA, TYPE_PACKAGE};
use olm_fbc::{
    Bundle, Catalog, Channel, Deprecations, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS,
    SCHEMA_PACKAGE,
};
use olm_version::VersionRelease;

use super::release::Release;
use crate::package_summary::first_paragraph;
use crate::store::{Filter, Snapshot};

/// Bundles that are shown, and bytes that are read for it.
const BUNDLES: usize = 1_000;
const BYTES: u64 = 32 << 20;
/// Channels that a row names.
const NAMED: usize = 4;

/// The content of the pages of a package.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(super) catalog: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) has_icon: bool,
    /// The input of its update graph: the default channel first. The bundles have no properties except package and
    /// version.
    pub(super) parts: Catalog,
    /// The newest first.
    pub(super) bundles: Vec<Row>,
    pub(super) omitted: bool,
    /// The newest bundle, or the requested one.
    pub(super) release: Release,
    /// The time when the catalog first had this content.
    pub(super) modified: jiff::Timestamp,
}

/// A bundle among the versions.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) version: Option<VersionRelease>,
    /// The creation time, as the publisher wrote it.
    pub(super) created: String,
}

impl Row {
    /// The version, otherwise its name.
    pub(super) fn title(&self) -> String {
        self.version
            .as_ref()
            .map_or_else(|| self.name.clone(), ToString::to_string)
    }

    /// The day of its creation.
    pub(super) fn day(&self) -> &str {
        day(&self.created)
    }
}

/// The day of a time, as publishers write it.
pub(super) fn day(created: &str) -> &str {
    created.get(..10).unwrap_or(created)
}

/// The icon of a package that the catalog has and browsers may show: its media type and bytes.
pub(crate) fn icon(snapshot: &Snapshot, name: &str) -> io::Result<Option<(&'static str, Vec<u8>)>> {
    let definition = definition(snapshot, name)?;
    Ok(definition.and_then(|package| crate::icon::content(&package.icon?)))
}

impl Package {
    /// Reads a package from a catalog, with its newest bundle or the named one; `None` if there is none.
    pub(crate) fn read(snapshot: &Snapshot, name: &str, bundle: Option<&str>) -> io::Result<Option<Self>> {
        let Some(definition) = definition(snapshot, name)? else {
            return Ok(None);
        };
        let mut read = Self {
            catalog: snapshot.record().catalog.clone(),
            has_icon: definition.icon.as_ref().is_some_and(crate::icon::is_shown),
            modified: snapshot.record().modified,
            description: definition.description,
            name: definition.name,
            ..Self::default()
        };
        read.parts.packages.push(olm_fbc::Package {
            name: read.name.clone(),
            default_channel: definition.default_channel,
            ..olm_fbc::Package::default()
        });
        let channels = lines(snapshot, SCHEMA_CHANNEL, Some(name), None)?;
        read.parts.channels = channels
            .iter()
            .filter_map(|line| Channel::from_json(line).ok())
            .collect();
        let deprecations = lines(snapshot, SCHEMA_DEPRECATIONS, Some(name), None)?;
        read.parts.deprecations = deprecations
            .iter()
            .filter_map(|line| Deprecations::from_json(line).ok())
            .collect();
        let newest = read.read_bundles(snapshot)?;
        read.order_channels();
        let shown = match bundle {
            None => newest.map(|range| snapshot.read(range)).transpose()?,
            Some(bundle) => {
                let found = lines(snapshot, SCHEMA_BUNDLE, Some(name), Some(bundle))?;
                match found.into_iter().next() {
                    Some(line) => Some(line.into_bytes()),
                    None => return Ok(None),
                }
            }
        };
        let shown = shown.as_deref().and_then(|line| std::str::from_utf8(line).ok());
        if let Some(bundle) = shown.and_then(|line| Bundle::from_json(line).ok()) {
            read.release = Release::of(&bundle);
        }
        Ok(Some(read))
    }

    /// Reads the bundles one by one, and returns the range of the newest.
    fn read_bundles(&mut self, snapshot: &Snapshot) -> io::Result<Option<Range<u64>>> {
        let mut left = BYTES;
        let mut newest: Option<(VersionRelease, Range<u64>)> = None;
        let bundles = snapshot.index().iter();
        for blob in bundles.filter(|blob| blob.schema == SCHEMA_BUNDLE && blob.package == self.name) {
            left = left.saturating_sub(blob.range.end - blob.range.start);
            if left == 0 || self.bundles.len() == BUNDLES {
                self.omitted = true;
                break;
            }
            let text = String::from_utf8(snapshot.read(blob.range.clone())?).unwrap_or_default();
            let Ok(bundle) = Bundle::from_json(&text) else {
                continue;
            };
            let version = bundle.version_release().ok();
            if let Some(version) = &version
                && newest
                    .as_ref()
                    .is_none_or(|(newest, _)| version.compare(newest).is_gt())
            {
                newest = Some((version.clone(), blob.range));
            }
            self.bundles.push(Row {
                name: bundle.name.clone(),
                version,
                created: created(&bundle),
            });
            self.parts.bundles.push(light(bundle));
        }
        self.bundles.sort_by(|a, b| match (&a.version, &b.version) {
            (Some(a), Some(b)) => b.compare(a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        Ok(newest.map(|(_, range)| range))
    }

    /// Orders the channels: the default one first, then by the version of their heads, the newest first.
    fn order_channels(&mut self) {
        let default = self.default_channel().to_owned();
        let versions = self.bundles.iter();
        let versions: HashMap<&str, &VersionRelease> = versions
            .filter_map(|row| Some((row.name.as_str(), row.version.as_ref()?)))
            .collect();
        let with_head = |channel: Channel| {
            let newest = head(&channel.entries).ok();
            let newest = newest.and_then(|entry| versions.get(entry.name.as_str()));
            (newest.copied(), channel)
        };
        let channels = std::mem::take(&mut self.parts.channels).into_iter();
        let mut channels: Vec<(Option<&VersionRelease>, Channel)> = channels.map(with_head).collect();
        channels.sort_by(|(a, left), (b, right)| {
            let by_head = match (a, b) {
                (Some(a), Some(b)) => b.compare(a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
            (left.name != default)
                .cmp(&(right.name != default))
                .then(by_head)
                .then_with(|| left.name.cmp(&right.name))
        });
        self.parts.channels = channels.into_iter().map(|(_, channel)| channel).collect();
    }

    pub(super) fn default_channel(&self) -> &str {
        let mut definitions = self.parts.packages.iter();
        definitions.next().map_or("", |package| &package.default_channel)
    }

    /// The name for people.
    pub(super) fn title(&self) -> &str {
        let shown = self.release.metadata.text("/displayName");
        if shown.is_empty() { &self.name } else { shown }
    }

    /// The summary of one or two sentences, as the search shows it.
    pub(super) fn summary(&self) -> String {
        match self.release.metadata.annotation("description") {
            "" => first_paragraph(&self.description),
            summary => summary.to_owned(),
        }
    }

    /// The reason why this is deprecated: the package without a name, one of its channels or bundles with one.
    pub(super) fn deprecated(&self, schema: &str, name: Option<&str>) -> Option<&str> {
        let entries = self.parts.deprecations.iter().flat_map(|d| d.entries.iter());
        let mut of = entries.filter(|entry| {
            let named = Some(entry.reference.name.as_str()).filter(|name| !name.is_empty());
            entry.reference.schema == schema && named == name
        });
        of.next().map(|entry| entry.message.as_str())
    }

    /// The bundle of that name among the versions.
    pub(super) fn row(&self, bundle: &str) -> Option<&Row> {
        self.bundles.iter().find(|row| row.name == bundle)
    }
}

/// The lines of the blobs that a filter selects, as far as they are read.
fn lines(
    snapshot: &Snapshot,
    schema: &str,
    package: Option<&str>,
    name: Option<&str>,
) -> io::Result<Vec<String>> {
    let filter = Filter {
        schema: Some(schema.to_owned()),
        package: package.map(ToOwned::to_owned),
        name: name.map(ToOwned::to_owned),
    };
    let (ranges, _) = snapshot.page(&filter, 0, BUNDLES);
    let mut left = BYTES;
    let mut lines = Vec::new();
    for range in ranges {
        left = left.saturating_sub(range.end - range.start);
        if left == 0 {
            break;
        }
        let text = String::from_utf8(snapshot.read(range)?).unwrap_or_default();
        lines.extend(text.lines().map(ToOwned::to_owned));
    }
    Ok(lines)
}

fn definition(snapshot: &Snapshot, name: &str) -> io::Result<Option<olm_fbc::Package>> {
    let found = lines(snapshot, SCHEMA_PACKAGE, None, Some(name))?;
    Ok(found
        .iter()
        .find_map(|line| olm_fbc::Package::from_json(line).ok()))
}

/// The creation time in the metadata of a bundle, otherwise in its manifests. A text search finds it, because parsing
/// them all would take longer than the rest of the page.
fn created(bundle: &Bundle) -> String {
    let values = |kind: &'static str| bundle.properties.iter().filter(move |p| p.kind == kind);
    match values(TYPE_CSV_METADATA).next() {
        Some(metadata) => created_in(&metadata.value),
        None => values(TYPE_BUNDLE_OBJECT)
            .find_map(|object| created_in_csv(&object.value))
            .unwrap_or_default(),
    }
}

/// The creation time in a JSON text; empty if there is none.
fn created_in(text: &str) -> String {
    const KEY: &str = "\"createdAt\":";
    let rest = text.split_once(KEY).map_or("", |(_, rest)| rest);
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let created = values.next().and_then(Result::ok).unwrap_or_default();
    created.chars().take(64).collect()
}

/// The creation time in a manifest, the value of an `olm.bundle.object`; `None` if it is no `ClusterServiceVersion`.
fn created_in_csv(value: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Manifest<'a> {
        #[serde(borrow)]
        data: Cow<'a, str>,
    }
    /// Where manifests name their kind, in characters of base64.
    const BEGINNING: usize = 256;
    const KIND: &[u8] = b"\"kind\":";
    const CSV: &[u8] = b"\"ClusterServiceVersion\"";
    let Manifest { data } = serde_json::from_str(value).ok()?;
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|at| at == part);
    // Definitions are large, so they are not decoded.
    let start = data.get(..BEGINNING).and_then(|text| decode(text).ok());
    if start.is_some_and(|start| has(&start, KIND) && !has(&start, CSV)) {
        return None;
    }
    let manifest = String::from_utf8(decode(&data).ok()?).ok()?;
    let is_csv = manifest.contains("\"ClusterServiceVersion\"");
    is_csv.then(|| created_in(&manifest))
}

/// A bundle without its large parts.
fn light(bundle: Bundle) -> Bundle {
    let properties = bundle.properties.into_vec().into_iter();
    let named: Vec<_> = properties
        .filter(|property| property.kind == TYPE_PACKAGE)
        .collect();
    Bundle {
        name: bundle.name,
        package: bundle.package,
        properties: named.into(),
        ..Bundle::default()
    }
}

/// The channels of each bundle, and the reasons for the deprecation of bundles, indexed because tables and channels are
/// long.
#[derive(Default)]
pub(super) struct BundleMarks<'of> {
    channels: HashMap<&'of str, Vec<&'of str>>,
    pub(super) deprecated: HashMap<&'of str, &'of str>,
}

impl<'of> BundleMarks<'of> {
    pub(super) fn of(of: &'of Package) -> Self {
        let mut marks = Self::default();
        for channel in &of.parts.channels {
            for entry in &channel.entries {
                let channels = marks.channels.entry(&entry.name).or_default();
                if channels.last() != Some(&channel.name.as_str()) {
                    channels.push(&channel.name);
                }
            }
        }
        let entries = of.parts.deprecations.iter().flat_map(|d| d.entries.iter());
        for entry in entries.filter(|entry| entry.reference.schema == SCHEMA_BUNDLE) {
            marks
                .deprecated
                .entry(&entry.reference.name)
                .or_insert(&entry.message);
        }
        marks
    }

    /// The names of a bundle's channels, as many as fit in a row.
    pub(super) fn channels(&self, bundle: &str) -> String {
        let all = self.channels.get(bundle).map(Vec::as_slice).unwrap_or_default();
        first_of(all.iter(), NAMED)
    }
}

#[cfg(test)]
mod tests {
    use olm_fbc::ChannelEntry;

    use super::*;

    #[test]
    fn creation_times_are_read_from_metadata_and_from_manifests() {
        let check = |properties: &[olm_fbc::Property], expected: &str| {
            let bundle = Bundle {
                properties: properties.to_vec().into(),
                ..Bundle::default()
            };
            assert_eq!(created(&bundle), expected, "{properties:?}");
        };
        let object = |text: &str| olm_fbc::Property::for_object(text.as_bytes());
        let metadata = |text: &str| olm_fbc::Property::new(TYPE_CSV_METADATA, text);
        let definition = object(r#"{"kind":"CustomResourceDefinition","spec":{"createdAt":"2001-01-01"}}"#);
        let long = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{}"}},"createdAt":"2001-01-01"}}"#,
            "x".repeat(500)
        );
        let csv = r#"{"kind":"ClusterServiceVersion","metadata":{"annotations":{"alm-examples":"[{\"createdAt\":\"1999-01-01\"}]","createdAt": "2023-05-06T07:08:09Z"}}}"#;
        let late = format!(
            r#"{{"metadata":{{"annotations":{{"a":"{}","createdAt":"2024-01-02"}}}},"kind":"ClusterServiceVersion"}}"#,
            "x".repeat(500)
        );
        check(&[definition, object(&long), object(csv)], "2023-05-06T07:08:09Z");
        check(&[object(&late)], "2024-01-02");
        check(
            &[
                object(csv),
                metadata(r#"{"annotations":{"createdAt":"2022-02-02"}}"#),
            ],
            "2022-02-02",
        );
        check(
            &[
                object("{}"),
                olm_fbc::Property::new(TYPE_BUNDLE_OBJECT, r#"{"data":"%"}"#),
            ],
            "",
        );
        check(&[], "");
    }

    #[test]
    fn the_default_channel_is_first_and_the_others_follow_by_their_newest_version() {
        let channel = |name: &str, bundle: &str| Channel {
            name: name.to_owned(),
            entries: vec![ChannelEntry {
                name: bundle.to_owned(),
                ..ChannelEntry::default()
            }]
            .into(),
            ..Channel::default()
        };
        let row = |name: &str, version: &str| Row {
            name: name.to_owned(),
            version: VersionRelease::parse(version, olm_version::BuildMetadata::Ignored).ok(),
            ..Row::default()
        };
        let mut package = Package {
            bundles: vec![row("p.v10", "0.10.0"), row("p.v9", "0.9.0"), row("p.v2", "0.2.0")],
            parts: Catalog {
                packages: vec![olm_fbc::Package {
                    default_channel: "stable".to_owned(),
                    ..olm_fbc::Package::default()
                }],
                channels: vec![
                    channel("0.2", "p.v2"),
                    channel("0.10", "p.v10"),
                    channel("broken", "p.v0"),
                    channel("stable", "p.v9"),
                    channel("0.9", "p.v9"),
                ],
                ..Catalog::default()
            },
            ..Package::default()
        };
        package.order_channels();
        let names: Vec<&str> = package.parts.channels.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["stable", "0.10", "0.9", "0.2", "broken"]);
    }

    #[test]
    fn rows_name_their_channels_as_far_as_there_is_room() {
        let channel = |name: &str, bundles: &[&str]| {
            let entry = |bundle: &&str| ChannelEntry {
                name: (*bundle).to_owned(),
                ..ChannelEntry::default()
            };
            Channel {
                name: name.to_owned(),
                entries: bundles.iter().map(entry).collect::<Vec<_>>().into(),
                ..Channel::default()
            }
        };
        let package = Package {
            parts: Catalog {
                channels: vec![
                    channel("a", &["p.v1", "p.v1", "p.v2"]),
                    channel("b", &["p.v2"]),
                    channel("c", &["p.v2", "p.v3"]),
                    channel("d", &["p.v2"]),
                    channel("e", &["p.v2"]),
                    channel("f", &["p.v2"]),
                ],
                ..Catalog::default()
            },
            ..Package::default()
        };
        let marks = BundleMarks::of(&package);
        let check = |bundle: &str, expected: &str| assert_eq!(marks.channels(bundle), expected, "{bundle}");
        check("p.v1", "a");
        check("p.v2", "a, b, c, d and 2 more");
        check("p.v3", "c");
        check("p.v4", "");
    }
}
