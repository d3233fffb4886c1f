//! The versions of a package, newest first.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;

use olm_api::object::{list, text};
use olm_api::text::{escape, first_of};
use olm_fbc::property::{TYPE_CONSTRAINT, TYPE_GVK_REQUIRED, TYPE_PACKAGE_REQUIRED};
use olm_fbc::{Bundle, Catalog, Channel, ChannelEntry, SCHEMA_BUNDLE};
use olm_version::{BuildMetadata, VersionRelease};
use serde_json::{Value, json};

use super::publisher::Publisher;
use super::{apis, described};
use crate::output::table::table;

/// The number of versions in a table that is not asked for all.
const SHOWN: usize = 20;
/// The number of channels in a row of the table.
const CHANNELS: usize = 4;
/// The text of an empty cell.
const NONE: &str = "-";

/// A bundle of a package, with what the catalog says about it.
pub(super) struct PackageVersion<'c> {
    bundle: &'c Bundle,
    /// `None` if the bundle does not say it, or not as a version.
    version: Option<VersionRelease>,
    /// The channels with their entries for the bundle: the default channel first, then by name.
    entries: Vec<(&'c Channel, &'c ChannelEntry)>,
    default_channel: &'c str,
    /// The message of its deprecation.
    deprecation: Option<&'c str>,
    /// The metadata of the bundle's ClusterServiceVersion.
    metadata: Value,
}

/// The versions of a package, newest first. Those that cannot be read come last, by the names of their bundles.
pub(super) fn versions<'c>(catalog: &'c Catalog, package: &str) -> Vec<PackageVersion<'c>> {
    let mut found = catalog.packages.iter().filter(|found| found.name == package);
    let default_channel = found.next().map_or("", |found| found.default_channel.as_str());
    let mut entries: HashMap<&str, Vec<(&Channel, &ChannelEntry)>> = HashMap::new();
    for channel in catalog
        .channels
        .iter()
        .filter(|channel| channel.package == package)
    {
        for entry in &channel.entries {
            entries.entry(&entry.name).or_default().push((channel, entry));
        }
    }
    let deprecations = catalog
        .deprecations
        .iter()
        .filter(|found| found.package == package);
    let deprecated: HashMap<&str, &str> = deprecations
        .flat_map(|found| &found.entries)
        .filter(|entry| entry.reference.schema == SCHEMA_BUNDLE)
        .map(|entry| (entry.reference.name.as_str(), entry.message.as_str()))
        .collect();
    let bundles = catalog.bundles.iter().filter(|bundle| bundle.package == package);
    let mut versions: Vec<PackageVersion<'_>> = bundles
        .map(|bundle| {
            let mut entries = entries.get(bundle.name.as_str()).cloned().unwrap_or_default();
            entries.sort_by_key(|(channel, _)| (channel.name != default_channel, &channel.name));
            entries.dedup_by_key(|(channel, _)| &channel.name);
            PackageVersion {
                bundle,
                version: bundle.version_release().ok(),
                entries,
                default_channel,
                deprecation: deprecated.get(bundle.name.as_str()).copied(),
                metadata: described(bundle),
            }
        })
        .collect();
    versions.sort_by(|left, right| {
        let newer = match (&left.version, &right.version) {
            (Some(left), Some(right)) => right.compare(left),
            (left, right) => right.is_some().cmp(&left.is_some()),
        };
        newer.then_with(|| left.bundle.name.cmp(&right.bundle.name))
    });
    versions
}

impl PackageVersion<'_> {
    /// Whether it is the wanted version; a wanted version without a release is that of every release.
    pub(super) fn is(&self, wanted: &VersionRelease) -> bool {
        self.version.as_ref().is_some_and(|version| {
            version.version.cmp_precedence(&wanted.version) == Ordering::Equal
                && (wanted.release.is_none() || version.release == wanted.release)
        })
    }

    /// The name of the bundle.
    pub(super) fn name(&self) -> &str {
        &self.bundle.name
    }

    fn version(&self) -> String {
        let version = self.version.as_ref().map(ToString::to_string);
        version.unwrap_or_else(|| NONE.to_owned())
    }

    /// The names of the channels, the default one marked.
    fn channels(&self) -> impl ExactSizeIterator<Item = String> {
        self.entries.iter().map(|(channel, _)| {
            let mark = if channel.name == self.default_channel {
                " (default)"
            } else {
                ""
            };
            format!("{}{mark}", channel.name)
        })
    }

    /// The time of publication, as the author wrote it.
    fn created(&self) -> &str {
        text(&self.metadata, "/annotations/createdAt")
    }

    /// The facts for programs that each version of a package has in a list.
    pub(super) fn summary(&self) -> Value {
        let channels = self.entries.iter().map(|(channel, _)| channel.name.as_str());
        json!({
            "version": self.version.as_ref().map(ToString::to_string),
            "bundle": self.bundle.name,
            "image": self.bundle.image,
            "channels": channels.collect::<Vec<_>>(),
            "createdAt": Some(self.created()).filter(|created| !created.is_empty()),
            "deprecation": self.deprecation,
        })
    }

    /// All facts about the version for programs, with the package and the catalog.
    pub(super) fn json(&self, catalog: &str) -> Value {
        let entries = self.entries.iter().map(|(channel, entry)| {
            json!({
                "channel": channel.name,
                "replaces": entry.replaces(),
                "skips": entry.skips.iter().collect::<Vec<_>>(),
                "skipRange": entry.skip_range(),
            })
        });
        let requires = self
            .requires()
            .map(|(kind, value)| json!({"type": kind, "value": value}));
        let images = self.bundle.related_images.iter();
        let images = images.map(|related| json!({"name": related.name, "image": related.image}));
        let mut all = json!({
            "catalog": catalog,
            "package": self.bundle.package,
            "displayName": text(&self.metadata, "/displayName"),
            "description": text(&self.metadata, "/description"),
            "edges": entries.collect::<Vec<_>>(),
            "minKubeVersion": text(&self.metadata, "/minKubeVersion"),
            "installModes": self.install_modes(),
            "keywords": self.keywords(),
            "apis": apis(self.bundle),
            "requires": requires.collect::<Vec<_>>(),
            "relatedImages": images.collect::<Vec<_>>(),
        });
        if let (Some(all), Value::Object(summary)) = (all.as_object_mut(), self.summary()) {
            all.extend(summary);
            all.extend(Publisher::of(&self.metadata).json());
        }
        all
    }

    /// All facts about the version for people.
    pub(super) fn text(&self, catalog: &str) -> String {
        let publisher = Publisher::of(&self.metadata);
        let mut lines = vec![
            ("package", self.bundle.package.clone()),
            ("catalog", catalog.to_owned()),
            ("name", text(&self.metadata, "/displayName").to_owned()),
            ("provider", publisher.provider().to_owned()),
            ("version", self.version()),
            ("bundle", self.bundle.name.clone()),
            ("image", self.bundle.image.clone()),
            ("channels", self.channels().collect::<Vec<_>>().join(", ")),
        ];
        lines.extend(self.entries.iter().filter_map(|(channel, entry)| {
            let replaces = entry.replaces().map(|name| format!("replaces {name}"));
            let skips = (!entry.skips.is_empty()).then(|| format!("skips {}", entry.skips.join(", ")));
            let range = entry
                .skip_range()
                .map(|range| format!("skips the range {range:?}"));
            let edges: Vec<String> = replaces.into_iter().chain(skips).chain(range).collect();
            (!edges.is_empty()).then(|| ("edges", format!("{}: {}", channel.name, edges.join("; "))))
        }));
        lines.extend([
            ("published", self.created().to_owned()),
            ("kubernetes", minimum(text(&self.metadata, "/minKubeVersion"))),
            ("modes", self.install_modes().join(", ")),
            ("keywords", self.keywords().join(", ")),
            ("apis", apis(self.bundle).join(", ")),
        ]);
        lines.extend(publisher.lines());
        let requires = self.requires();
        lines.extend(requires.map(|(kind, value)| ("requires", format!("{kind} {value}"))));
        lines.push((
            "deprecated",
            self.deprecation.unwrap_or_default().trim_end().to_owned(),
        ));
        let mut shown = String::new();
        for (what, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(shown, "{what:<12}{}", escape(value));
        }
        let description = text(&self.metadata, "/description");
        if !description.is_empty() {
            let _ = writeln!(shown, "\n{}", description.trim_end());
        }
        shown
    }

    /// The supported install modes.
    fn install_modes(&self) -> Vec<&str> {
        let modes = list(&self.metadata, "/installModes").iter();
        let supported = modes.filter(|mode| mode.get("supported") == Some(&Value::Bool(true)));
        supported.map(|mode| text(mode, "/type")).collect()
    }

    fn keywords(&self) -> Vec<&str> {
        let words = list(&self.metadata, "/keywords").iter();
        words.filter_map(Value::as_str).collect()
    }

    /// The types and the values of the requirements.
    fn requires(&self) -> impl Iterator<Item = (&str, Value)> {
        let kinds = [TYPE_PACKAGE_REQUIRED, TYPE_GVK_REQUIRED, TYPE_CONSTRAINT];
        let properties = self.bundle.properties.iter();
        let required = properties.filter(move |property| kinds.contains(&property.kind.as_str()));
        required.map(|property| {
            // A value that is not JSON is shown as text.
            let value = serde_json::from_str(&property.value);
            let value = value.unwrap_or_else(|_| Value::from(&*property.value));
            (property.kind.as_str(), value)
        })
    }
}

/// The oldest version of Kubernetes, in words.
fn minimum(version: &str) -> String {
    if version.is_empty() {
        String::new()
    } else {
        format!("{version} or newer")
    }
}

/// A row for each version; without `all`, of the newest versions only.
pub(super) fn rows(versions: &[PackageVersion<'_>], all: bool) -> String {
    let most = if all { versions.len() } else { SHOWN };
    let cell = |text: &str| if text.is_empty() { NONE } else { text }.to_owned();
    let rows: Vec<Vec<String>> = versions
        .iter()
        .take(most)
        .map(|version| {
            let channels = version.channels();
            vec![
                version.version(),
                version.bundle.name.clone(),
                cell(&first_of(channels, CHANNELS)),
                cell(day(version.created())),
                if version.deprecation.is_some() {
                    "yes"
                } else {
                    NONE
                }
                .to_owned(),
            ]
        })
        .collect();
    let heads = ["VERSION", "BUNDLE", "CHANNELS", "PUBLISHED", "DEPRECATED"];
    let mut text = table(&heads, &rows);
    let more = versions.len().saturating_sub(most);
    if more > 0 {
        let _ = writeln!(text, "{more} older versions: set --all-versions");
    }
    text
}

/// The day of a time, which authors write in several forms.
fn day(time: &str) -> &str {
    time.get(..10).unwrap_or(time)
}

/// A version as users write it, with or without a release.
pub(super) fn wanted(text: &str) -> Option<VersionRelease> {
    VersionRelease::parse(text, BuildMetadata::Release).ok()
}

#[cfg(test)]
mod tests {
    use olm_fbc::catalog::Catalog;

    use super::*;

    /// A package with the versions 1.0.0 to 1.0.N, the last of them in two channels.
    fn catalog(count: usize) -> Catalog {
        let names: Vec<String> = (0..count).map(|patch| format!("p.v1.0.{patch}")).collect();
        let bundles = names.iter().enumerate().map(|(patch, name)| {
            let properties = json!([
                {"type": "olm.package", "value": {"packageName": "p", "version": format!("1.0.{patch}")}},
                {"type": "olm.csv.metadata", "value": {
                    "annotations": {"createdAt": "2026-01-02T03:04:05Z"}, "minKubeVersion": "1.30.0",
                    "installModes": [
                        {"type": "OwnNamespace", "supported": false}, {"type": "AllNamespaces", "supported": true},
                    ],
                }},
            ]);
            let text = json!({"name": name, "package": "p", "image": "i:1", "properties": properties}).to_string();
            Bundle::from_json(&text).unwrap()
        });
        let channel = |name: &str, entries: &[String]| {
            let entries: Vec<Value> = entries.iter().map(|name| json!({"name": name})).collect();
            let text = json!({"name": name, "package": "p", "entries": entries}).to_string();
            Channel::from_json(&text).unwrap()
        };
        let deprecations = json!({"package": "p", "entries": [
            {"reference": {"schema": "olm.bundle", "name": "p.v1.0.0"}, "message": "too old"},
        ]});
        let package = json!({"name": "p", "defaultChannel": "stable"});
        Catalog {
            packages: vec![olm_fbc::Package::from_json(&package.to_string()).unwrap()],
            channels: vec![channel("fast", &names[count - 1..]), channel("stable", &names)],
            deprecations: vec![olm_fbc::Deprecations::from_json(&deprecations.to_string()).unwrap()],
            bundles: bundles.collect(),
            ..Catalog::default()
        }
    }

    #[test]
    fn the_table_has_the_newest_versions_with_channels_day_and_deprecation() {
        let catalog = catalog(2);
        assert_eq!(
            rows(&versions(&catalog, "p"), false),
            "VERSION  BUNDLE    CHANNELS                PUBLISHED   DEPRECATED\n\
             1.0.1    p.v1.0.1  stable (default), fast  2026-01-02  -\n\
             1.0.0    p.v1.0.0  stable (default)        2026-01-02  yes\n"
        );
    }

    #[test]
    fn older_versions_are_counted_or_listed() {
        let catalog = catalog(SHOWN + 2);
        let found = versions(&catalog, "p");
        let shown = rows(&found, false);
        assert_eq!(shown.lines().count(), SHOWN + 2, "{shown}");
        assert!(
            shown.ends_with("\n2 older versions: set --all-versions\n"),
            "{shown}"
        );
        let all = rows(&found, true);
        assert!(
            all.lines().count() == SHOWN + 3 && !all.contains("older"),
            "{all}"
        );
    }

    #[test]
    fn a_version_is_found_with_or_without_its_release() {
        let catalog = catalog(2);
        let found = versions(&catalog, "p");
        let is = |text: &str| {
            let wanted = wanted(text).unwrap();
            found.iter().filter(|version| version.is(&wanted)).count()
        };
        assert_eq!([is("1.0.1"), is("1.0.1+2"), is("1.0.2")], [1, 0, 0]);
        assert_eq!(wanted("1.x"), None);
    }
}
