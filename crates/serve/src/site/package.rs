//! The page of a package.

use std::collections::HashMap;
use std::io;

use maud::{Markup, PreEscaped, html};
use olm_fbc::graph::{PackageGraph, svg};
use olm_fbc::property::TYPE_PACKAGE;
use olm_fbc::{
    Bundle, Catalog, Channel, Deprecations, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS,
    SCHEMA_PACKAGE,
};
use serde_json::Value;

use super::layout::page;
use super::markdown;
use crate::package_summary::CsvMetadata;
use crate::store::{Filter, Snapshot};

/// Bundles that are shown, and bytes that are read for it.
const BUNDLES: usize = 1_000;
const BYTES: u64 = 32 << 20;
/// Bundles and updates that the picture of the update graph shows.
const DRAWN: usize = 10_000;
/// The largest icon that is shown, in letters of its base64 form.
const ICON: usize = 256 << 10;
/// The most letters in a cell that lists names.
const CELL: usize = 1_000;

/// Everything that its page shows of a package.
#[derive(Debug, Default)]
pub(crate) struct Package {
    catalog: String,
    definition: olm_fbc::Package,
    /// What its update graph follows from. The bundles have no properties but package and version.
    parts: Catalog,
    bundles: Vec<Row>,
    omitted: bool,
    metadata: CsvMetadata,
    permissions: Vec<Rule>,
}

/// A bundle in the table of versions.
#[derive(Debug)]
struct Row {
    name: String,
    version: Option<olm_version::VersionRelease>,
    image: String,
}

/// What a bundle's program may do in the whole cluster.
#[derive(Debug)]
struct Rule {
    groups: String,
    resources: String,
    verbs: String,
}

impl Package {
    /// Reads a package out of a catalog; nothing when it has none of that name.
    pub(crate) fn read(snapshot: &Snapshot, name: &str) -> io::Result<Option<Self>> {
        let first = |schema: &str, package: Option<&str>, name: Option<&str>| -> io::Result<Vec<String>> {
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
        };
        let Some(definition) = first(SCHEMA_PACKAGE, None, Some(name))?
            .iter()
            .find_map(|line| olm_fbc::Package::from_json(line).ok())
        else {
            return Ok(None);
        };
        let mut read = Self {
            catalog: snapshot.record().catalog.clone(),
            definition,
            ..Self::default()
        };
        read.parts.packages.push(olm_fbc::Package {
            name: read.definition.name.clone(),
            default_channel: read.definition.default_channel.clone(),
            ..olm_fbc::Package::default()
        });
        let channels = first(SCHEMA_CHANNEL, Some(name), None)?;
        read.parts.channels = channels
            .iter()
            .filter_map(|line| Channel::from_json(line).ok())
            .collect();
        let deprecations = first(SCHEMA_DEPRECATIONS, Some(name), None)?;
        read.parts.deprecations = deprecations
            .iter()
            .filter_map(|line| Deprecations::from_json(line).ok())
            .collect();
        read.read_bundles(snapshot, name)?;
        Ok(Some(read))
    }

    /// Reads the bundles one by one; of the newest, what it says of itself is kept.
    fn read_bundles(&mut self, snapshot: &Snapshot, name: &str) -> io::Result<()> {
        let mut left = BYTES;
        let mut newest: Option<olm_version::VersionRelease> = None;
        let bundles = snapshot.index().iter();
        for blob in bundles.filter(|blob| blob.schema == SCHEMA_BUNDLE && blob.package == name) {
            left = left.saturating_sub(blob.range.end - blob.range.start);
            if left == 0 || self.bundles.len() == BUNDLES {
                self.omitted = true;
                break;
            }
            let text = String::from_utf8(snapshot.read(blob.range)?).unwrap_or_default();
            let Ok(bundle) = Bundle::from_json(&text) else {
                continue;
            };
            let version = bundle.version_release().ok();
            if version.as_ref().is_some_and(|version| {
                newest
                    .as_ref()
                    .is_none_or(|newest| version.compare(newest).is_gt())
            }) {
                newest.clone_from(&version);
                self.metadata = CsvMetadata::of(&bundle).unwrap_or_default();
                self.permissions = permissions(&bundle);
            }
            self.bundles.push(Row {
                name: bundle.name.clone(),
                version,
                image: bundle.image.clone(),
            });
            self.parts.bundles.push(light(bundle));
        }
        self.bundles.sort_by(|a, b| match (&a.version, &b.version) {
            (Some(a), Some(b)) => b.compare(a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        Ok(())
    }

    /// Why this is deprecated: the package without a name, one of its channels or bundles with one.
    fn deprecated(&self, schema: &str, name: Option<&str>) -> Option<&str> {
        let entries = self.parts.deprecations.iter().flat_map(|d| d.entries.iter());
        let mut of = entries.filter(|entry| {
            let named = Some(entry.reference.name.as_str()).filter(|name| !name.is_empty());
            entry.reference.schema == schema && named == name
        });
        of.next().map(|entry| entry.message.as_str())
    }

    /// The icon as an address that holds it, if it is a picture.
    fn icon(&self) -> Option<String> {
        let icon = self.definition.icon.as_ref()?;
        let known = ["image/png", "image/jpeg", "image/gif", "image/svg+xml"];
        let media = known.into_iter().find(|known| *known == icon.media_type)?;
        let data = icon.base64_data.as_deref().unwrap_or_default();
        let data: String = data.split_whitespace().collect();
        let plain = data.len() <= ICON
            && data
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='));
        plain.then(|| format!("data:{media};base64,{data}"))
    }

    /// An object that installs the package, ready to apply.
    fn extension(&self) -> String {
        // JSON strings are YAML strings whatever they hold.
        let quoted = |text: &str| Value::from(text).to_string();
        let name = quoted(&self.definition.name);
        let suggested = self
            .metadata
            .annotation("operatorframework.io/suggested-namespace");
        let namespace = if suggested.is_empty() {
            name.clone()
        } else {
            quoted(suggested)
        };
        let account = quoted(&format!("{}-installer", self.definition.name));
        format!(
            "apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  namespace: {namespace}\n  serviceAccount:\n    \
             name: {account}\n  source:\n    sourceType: Catalog\n    catalog:\n      packageName: {name}\n      channels: \
             [{channel}]\n      selector:\n        matchLabels:\n          {label}: {catalog}\n",
            api = olm_api::names::API_VERSION,
            kind = olm_api::names::CLUSTER_EXTENSION,
            channel = quoted(&self.definition.default_channel),
            label = olm_api::names::label::METADATA_NAME,
            catalog = quoted(&self.catalog),
        )
    }
}

/// A bundle without what makes it large.
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

/// The picture of the update graph.
fn graph(of: &Package) -> Markup {
    let Some(graph) = PackageGraph::within(&of.parts, &of.definition.name, DRAWN) else {
        return html! {};
    };
    html! {
        section {
            h2 { "Updates" }
            @if !graph.channels.is_empty() {
                // The picture escapes what it shows.
                div class="graph" { (PreEscaped(svg(&graph))) }
            }
            @if graph.omitted > 0 {
                p { (graph.omitted) " channels are too large to be drawn here; " code { "olm catalog graph" } " draws them." }
            }
        }
    }
}

/// The rules that the newest bundle's `ClusterServiceVersion` asks for, where the catalog holds it.
fn permissions(bundle: &Bundle) -> Vec<Rule> {
    let objects = bundle.objects().unwrap_or_default();
    let objects = objects
        .iter()
        .filter_map(|json| serde_json::from_slice::<Value>(json).ok());
    let csv = objects
        .into_iter()
        .find(|object| object.get("kind").and_then(Value::as_str) == Some("ClusterServiceVersion"));
    let list = |rule: &Value, key: &str| {
        let items = rule.get(key).and_then(Value::as_array).into_iter().flatten();
        let items: Vec<&str> = items
            .filter_map(Value::as_str)
            .map(|item| if item.is_empty() { "core" } else { item })
            .collect();
        items.join(", ")
    };
    let accounts = csv
        .as_ref()
        .and_then(|csv| csv.pointer("/spec/install/spec/clusterPermissions"));
    let accounts = accounts.and_then(Value::as_array).into_iter().flatten();
    accounts
        .filter_map(|account| account.get("rules").and_then(Value::as_array))
        .flatten()
        .take(BUNDLES)
        .map(|rule| Rule {
            groups: list(rule, "apiGroups"),
            resources: match list(rule, "resources") {
                none if none.is_empty() => list(rule, "nonResourceURLs"),
                resources => resources,
            },
            verbs: list(rule, "verbs"),
        })
        .collect()
}

/// The page.
pub(crate) fn package(of: &Package) -> Markup {
    let name = &of.definition.name;
    let metadata = &of.metadata;
    let title = Some(&metadata.display_name)
        .filter(|n| !n.is_empty())
        .unwrap_or(name);
    let description = Some(&metadata.description)
        .filter(|text| !text.is_empty())
        .unwrap_or(&of.definition.description);
    let marks = Marks::of(of);
    let content = html! {
        @if let Some(icon) = of.icon() { img class="icon" src=(icon) alt=""; }
        h1 { (title) }
        p class="about" {
            code { (name) } " in catalog " (of.catalog)
            @if !metadata.provider.name.is_empty() { ", by " (metadata.provider.name) }
        }
        @if let Some(why) = of.deprecated(SCHEMA_PACKAGE, None) { p class="deprecated" { "Deprecated: " (why) } }
        section { (markdown::render(description)) }
        section {
            h2 { "Install" }
            p { "The service account needs the permissions of the installer; the ClusterExtension's conditions list the missing ones." }
            pre { code { (of.extension()) } }
        }
        section {
            h2 { "Channels" }
            ul {
                @for channel in &of.parts.channels {
                    li {
                        (channel.name)
                        @if channel.name == of.definition.default_channel { " (default)" }
                        @if let Ok(head) = olm_fbc::graph::head(&channel.entries) { ": " code { (head.name) } }
                        @if let Some(why) = of.deprecated(SCHEMA_CHANNEL, Some(&channel.name)) {
                            p class="deprecated" { "Deprecated: " (why) }
                        }
                    }
                }
            }
        }
        (graph(of))
        section {
            h2 { "Versions" }
            table {
                thead { tr { th scope="col" { "Version" } th scope="col" { "Bundle" } th scope="col" { "Channels" } th scope="col" { "Image" } } }
                tbody { @for row in &of.bundles { (version(&marks, row)) } }
            }
            @if of.omitted { p { "There are more versions than this page shows." } }
        }
        @if !of.permissions.is_empty() {
            section {
                h2 { "Permissions of the newest version in the whole cluster" }
                table {
                    thead { tr { th scope="col" { "API groups" } th scope="col" { "Resources" } th scope="col" { "Verbs" } } }
                    tbody {
                        @for rule in &of.permissions { tr { td { (rule.groups) } td { (rule.resources) } td { (rule.verbs) } } }
                    }
                }
            }
        }
    };
    page(title, "", &content)
}

/// The channels that hold each bundle, and why bundles are deprecated: a table has many rows, and a channel many entries.
#[derive(Default)]
struct Marks<'of> {
    channels: HashMap<&'of str, Vec<&'of str>>,
    deprecated: HashMap<&'of str, &'of str>,
}

impl<'of> Marks<'of> {
    fn of(of: &'of Package) -> Self {
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

    /// The names of the channels that hold a bundle, as many as have room in a row.
    fn channels(&self, bundle: &str) -> String {
        let mut text = String::new();
        for name in self.channels.get(bundle).into_iter().flatten() {
            if text.len() + name.len() > CELL {
                return text + "…";
            }
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(name);
        }
        text
    }
}

fn version(marks: &Marks<'_>, row: &Row) -> Markup {
    html! {
        tr {
            td class="version" { @if let Some(version) = &row.version { (version.version) } }
            td class="name" {
                (row.name)
                @if let Some(why) = marks.deprecated.get(row.name.as_str()) {
                    p class="deprecated" { "Deprecated: " (why) }
                }
            }
            td { (marks.channels(&row.name)) }
            td class="image" { code { (row.image) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_fbc::ChannelEntry;

    use super::*;

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
                    channel(&"c".repeat(CELL), &["p.v2", "p.v3"]),
                    channel("d", &["p.v2"]),
                ],
                ..Catalog::default()
            },
            ..Package::default()
        };
        let marks = Marks::of(&package);
        let check = |bundle: &str, expected: &str| assert_eq!(marks.channels(bundle), expected, "{bundle}");
        check("p.v1", "a");
        check("p.v2", "a, b…");
        check("p.v3", &"c".repeat(CELL));
        check("p.v4", "");
    }
}
