//! The differences between two catalogs, for users of the old one.

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Bundle;
use olm_fbc::Package;
use olm_fbc::catalog::Catalog;
use olm_fbc::graph;
use olm_fbc::property::{TYPE_BUNDLE_OBJECT, TYPE_CSV_METADATA};
use olm_fbc::{Channel, ChannelEntry};
use olm_fbc::{SCHEMA_BUNDLE, SCHEMA_CHANNEL};
use olm_version::{Version, blang};
use serde::Serialize;

use crate::write;

/// The field of a bundle whose metadata moved from the property `olm.bundle.object` to `olm.csv.metadata` or back.
pub const METADATA_FORM: &str = "form of the metadata";
/// The field of a bundle with its properties.
const PROPERTIES: &str = "properties";

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The object is new.
    Added,
    /// The object is removed.
    Removed,
    /// The object is in both catalogs.
    Changed,
}

/// A value and its replacement; none if there was or is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replaced {
    /// The old value.
    pub old: Option<String>,
    /// The new value.
    pub new: Option<String>,
}

/// The changes of a new catalog. Equal parts are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// The packages, by name.
    pub packages: Vec<PackageDiff>,
}

/// The changes of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageDiff {
    /// The package.
    pub name: String,
    /// The change of the package as a whole.
    pub change: Change,
    /// The default channel, if it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_channel: Option<Replaced>,
    /// Changed fields of the package itself: `description`, `icon`, `properties`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<&'static str>,
    /// The channels, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelDiff>,
    /// The bundles, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<BundleDiff>,
    /// The deprecations: package, channels, bundles, each by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deprecations: Vec<DeprecationDiff>,
}

/// The changes of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelDiff {
    /// The channel.
    pub name: String,
    /// The change of the channel as a whole.
    pub change: Change,
    /// The head, if it changes; none if the channel has no single head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Replaced>,
    /// Bundles that are new in the channel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries_added: Vec<String>,
    /// Bundles that are gone from the channel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries_removed: Vec<String>,
    /// Updates that become possible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges_won: Vec<Update>,
    /// Updates that are no longer possible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges_lost: Vec<Update>,
}

/// A possible update.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Update {
    /// The present bundle.
    pub from: String,
    /// The bundle after the update.
    pub to: String,
}

/// The changes of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BundleDiff {
    /// The bundle.
    pub name: String,
    /// The change of the bundle as a whole.
    pub change: Change,
    /// Changed fields, although a published bundle never changes: `image`, `properties`, `relatedImages`. Also
    /// [`METADATA_FORM`], which does not affect users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<&'static str>,
    /// The types of the properties that changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
}

/// The changes of a deprecation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeprecationDiff {
    /// `olm.package`, `olm.channel` or `olm.bundle`.
    pub schema: String,
    /// The channel or bundle; empty for the package.
    pub name: String,
    /// The message.
    pub message: Replaced,
}

impl BundleDiff {
    /// Whether users lose the object, or get different content.
    pub fn is_breaking(&self) -> bool {
        match self.change {
            Change::Added => false,
            Change::Removed => true,
            Change::Changed => self.fields.iter().any(|field| *field != METADATA_FORM),
        }
    }

    /// The changed fields for people: `image, properties (olm.gvk)`; empty if there are none.
    pub fn changed_fields(&self) -> String {
        let fields = self.fields.iter().map(|field| match *field {
            PROPERTIES => format!("{PROPERTIES} ({})", self.properties.join(", ")),
            field => field.to_owned(),
        });
        fields.collect::<Vec<_>>().join(", ")
    }
}

impl PackageDiff {
    /// Whether a bundle is added or removed as a whole, so that its entries in channels need not be listed.
    pub fn has_whole(&self, bundle: &str) -> bool {
        let mut bundles = self.bundles.iter();
        bundles.any(|one| one.name == bundle && one.change != Change::Changed)
    }

    /// Whether an update is lost because one of its bundles is removed.
    pub fn is_implied(&self, update: &Update) -> bool {
        let mut gone = self.bundles.iter().filter(|one| one.change == Change::Removed);
        gone.any(|bundle| bundle.name == update.from || bundle.name == update.to)
    }
}

impl Diff {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty()
    }

    /// The breaking changes: removed packages, channels, bundles and updates, and bundles with changed content. One
    /// line each. An object that is removed together with another one is not repeated.
    pub fn breaking(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for package in &self.packages {
            let of = &package.name;
            if package.change == Change::Removed {
                lines.push(format!("package {of} is gone"));
                continue;
            }
            for channel in &package.channels {
                let name = &channel.name;
                if channel.change == Change::Removed {
                    lines.push(format!("package {of}: channel {name} is gone"));
                    continue;
                }
                let lost = channel.edges_lost.iter();
                let lost = lost.filter(|update| !package.is_implied(update));
                lines.extend(lost.map(|update| {
                    format!(
                        "package {of}, channel {name}: {} no longer updates to {}",
                        update.from, update.to
                    )
                }));
            }
            for bundle in package.bundles.iter().filter(|bundle| bundle.is_breaking()) {
                let name = &bundle.name;
                match bundle.change {
                    Change::Added => {}
                    Change::Removed => lines.push(format!("package {of}: bundle {name} is gone")),
                    Change::Changed => lines.push(format!(
                        "package {of}: the content of bundle {name} changed ({})",
                        bundle.changed_fields()
                    )),
                }
            }
        }
        lines
    }
}

/// The parts of a catalog that belong to one package.
#[derive(Default)]
struct Parts<'a> {
    package: Option<&'a Package>,
    channels: BTreeMap<&'a str, &'a Channel>,
    bundles: BTreeMap<&'a str, &'a Bundle>,
    deprecations: BTreeMap<(&'a str, &'a str), &'a str>,
}

fn by_package(catalog: &Catalog) -> BTreeMap<&str, Parts<'_>> {
    let mut parts: BTreeMap<&str, Parts<'_>> = BTreeMap::new();
    for package in &catalog.packages {
        parts.entry(&package.name).or_default().package = Some(package);
    }
    for channel in &catalog.channels {
        let part = parts.entry(&channel.package).or_default();
        part.channels.insert(&channel.name, channel);
    }
    for bundle in &catalog.bundles {
        let part = parts.entry(&bundle.package).or_default();
        part.bundles.insert(&bundle.name, bundle);
    }
    for deprecations in &catalog.deprecations {
        let part = parts.entry(&deprecations.package).or_default();
        for entry in &deprecations.entries {
            let reference = &entry.reference;
            part.deprecations
                .insert((&reference.schema, &reference.name), &entry.message);
        }
    }
    parts
}

/// Every key of both maps, with its value in each.
fn pairs<'a, K: Ord + Copy, V>(
    old: &'a BTreeMap<K, V>,
    new: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, Option<&'a V>, Option<&'a V>)> {
    let keys: BTreeSet<K> = old.keys().chain(new.keys()).copied().collect();
    keys.into_iter().map(|key| (key, old.get(&key), new.get(&key)))
}

fn change<T>(old: Option<&T>, new: Option<&T>) -> Change {
    match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::Changed,
    }
}

/// The changes between the catalogs `old` and `new`, for users of `old`.
pub fn diff(old: &Catalog, new: &Catalog) -> Diff {
    let (old, new) = (by_package(old), by_package(new));
    let nothing = Parts::default();
    let packages = pairs(&old, &new).filter_map(|(name, old, new)| {
        let change = change(old, new);
        let found = package(name, change, old.unwrap_or(&nothing), new.unwrap_or(&nothing));
        (change != Change::Changed || !found.says_nothing()).then_some(found)
    });
    Diff {
        packages: packages.collect(),
    }
}

impl PackageDiff {
    fn says_nothing(&self) -> bool {
        self.default_channel.is_none()
            && self.fields.is_empty()
            && self.channels.is_empty()
            && self.bundles.is_empty()
            && self.deprecations.is_empty()
    }
}

fn package(name: &str, change: Change, old: &Parts<'_>, new: &Parts<'_>) -> PackageDiff {
    let default = |parts: &Parts<'_>| parts.package.map(|package| package.default_channel.clone());
    let mut fields = Vec::new();
    if let (Some(old), Some(new)) = (old.package, new.package) {
        let icons = (old.icon.as_ref(), new.icon.as_ref());
        for (differs, field) in [
            (old.description != new.description, "description"),
            (icons.0 != icons.1, "icon"),
            (old.properties != new.properties, "properties"),
        ] {
            if differs {
                fields.push(field);
            }
        }
    }
    let versions = versions(old, new);
    let channels = pairs(&old.channels, &new.channels)
        .filter_map(|(name, old, new)| channel(name, old.copied(), new.copied(), &versions));
    let bundles = pairs(&old.bundles, &new.bundles)
        .filter_map(|(name, old, new)| bundle(name, old.copied(), new.copied()));
    let deprecations = pairs(&old.deprecations, &new.deprecations)
        .filter(|(_, old, new)| old != new)
        .map(|((schema, name), old, new)| DeprecationDiff {
            schema: schema.to_owned(),
            name: name.to_owned(),
            message: Replaced {
                old: old.map(|message| (*message).to_owned()),
                new: new.map(|message| (*message).to_owned()),
            },
        });
    let mut deprecations: Vec<DeprecationDiff> = deprecations.collect();
    deprecations.sort_by_key(|found| match found.schema.as_str() {
        SCHEMA_CHANNEL => 1,
        SCHEMA_BUNDLE => 2,
        _ => 0,
    });
    PackageDiff {
        name: name.to_owned(),
        change,
        default_channel: replaced(default(old), default(new)),
        fields,
        channels: channels.collect(),
        bundles: bundles.collect(),
        deprecations,
    }
}

fn replaced(old: Option<String>, new: Option<String>) -> Option<Replaced> {
    (old != new).then_some(Replaced { old, new })
}

/// The versions of the bundles of both catalogs; those of the new one count.
fn versions<'a>(old: &Parts<'a>, new: &Parts<'a>) -> BTreeMap<&'a str, Version> {
    let both = old.bundles.iter().chain(&new.bundles);
    both.filter_map(|(name, bundle)| Some((*name, bundle.version_release().ok()?.version)))
        .collect()
}

fn channel(
    name: &str,
    old: Option<&Channel>,
    new: Option<&Channel>,
    versions: &BTreeMap<&str, Version>,
) -> Option<ChannelDiff> {
    let entries = |channel: Option<&Channel>| -> Vec<ChannelEntry> {
        channel.map_or_else(Vec::new, |channel| channel.entries.to_vec())
    };
    let (before, after) = (entries(old), entries(new));
    let names = |entries: &[ChannelEntry]| -> BTreeSet<String> {
        entries.iter().map(|entry| entry.name.clone()).collect()
    };
    let (names_before, names_after) = (names(&before), names(&after));
    // Users with an installed bundle of the old channel need the updates of the new one, and vice versa.
    let installed: BTreeSet<&str> = names_before.union(&names_after).map(String::as_str).collect();
    let (updates_before, updates_after) = (
        updates(&before, &installed, versions),
        updates(&after, &installed, versions),
    );
    let head = |entries: &[ChannelEntry]| graph::head(entries).ok().map(|head| head.name.clone());
    let less = |left: &BTreeSet<String>, right: &BTreeSet<String>| left.difference(right).cloned().collect();
    let found = ChannelDiff {
        name: name.to_owned(),
        change: change(old, new),
        head: replaced(head(&before), head(&after)),
        entries_added: less(&names_after, &names_before),
        entries_removed: less(&names_before, &names_after),
        edges_won: updates_after.difference(&updates_before).cloned().collect(),
        edges_lost: updates_before.difference(&updates_after).cloned().collect(),
    };
    let says_nothing = found.change == Change::Changed
        && found.head.is_none()
        && found.entries_added.is_empty()
        && found.entries_removed.is_empty()
        && found.edges_won.is_empty()
        && found.edges_lost.is_empty();
    (!says_nothing).then_some(found)
}

/// The updates between installed bundles and the bundles that the entries allow.
fn updates(
    entries: &[ChannelEntry],
    installed: &BTreeSet<&str>,
    versions: &BTreeMap<&str, Version>,
) -> BTreeSet<Update> {
    let mut updates = BTreeSet::new();
    for entry in entries {
        let mut add = |from: &str| {
            updates.insert(Update {
                from: from.to_owned(),
                to: entry.name.clone(),
            });
        };
        entry.replaces().into_iter().for_each(&mut add);
        entry.skips.iter().map(String::as_str).for_each(&mut add);
        let range = entry
            .skip_range()
            .and_then(|range| blang::Range::parse(range).ok());
        if let Some(range) = range {
            installed
                .iter()
                .filter(|name| **name != entry.name)
                .filter(|name| {
                    versions
                        .get(**name)
                        .is_some_and(|version| range.contains(version))
                })
                .for_each(|name| add(name));
        }
    }
    updates
}

fn bundle(name: &str, old: Option<&Bundle>, new: Option<&Bundle>) -> Option<BundleDiff> {
    let (mut fields, mut properties) = (Vec::new(), Vec::new());
    if let (Some(old), Some(new)) = (old, new) {
        let images = |bundle: &Bundle| -> BTreeSet<(String, String)> {
            let images = bundle.related_images.iter();
            images
                .map(|related| (related.name.clone(), related.image.clone()))
                .collect()
        };
        let is_moved = match (carried(old), carried(new)) {
            (Some(old), Some(new)) => old != new,
            _ => false,
        };
        properties = changed_properties(old, new, is_moved);
        for (differs, field) in [
            (old.image != new.image, "image"),
            (!properties.is_empty(), PROPERTIES),
            (images(old) != images(new), "relatedImages"),
            (is_moved, METADATA_FORM),
        ] {
            if differs {
                fields.push(field);
            }
        }
        if fields.is_empty() {
            return None;
        }
    }
    Some(BundleDiff {
        name: name.to_owned(),
        change: change(old, new),
        fields,
        properties,
    })
}

/// The property with the metadata of a bundle, if it is only one of the two.
fn carried(bundle: &Bundle) -> Option<&'static str> {
    let has = |kind: &str| bundle.properties.iter().any(|property| property.kind == kind);
    match (has(TYPE_BUNDLE_OBJECT), has(TYPE_CSV_METADATA)) {
        (true, false) => Some(TYPE_BUNDLE_OBJECT),
        (false, true) => Some(TYPE_CSV_METADATA),
        _ => None,
    }
}

/// The types of the properties that differ; without the metadata if its form changes.
fn changed_properties(old: &Bundle, new: &Bundle, is_moved: bool) -> Vec<String> {
    let (old, new) = (properties(old), properties(new));
    let kinds: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let differ = kinds.into_iter().filter(|kind| old.get(kind) != new.get(kind));
    differ
        .filter(|kind| !is_moved || ![TYPE_BUNDLE_OBJECT, TYPE_CSV_METADATA].contains(kind))
        .map(str::to_owned)
        .collect()
}

/// The properties by type, as texts that do not depend on order or spelling.
fn properties(bundle: &Bundle) -> BTreeMap<&str, Vec<String>> {
    let mut properties: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for property in &bundle.properties {
        let known = properties.entry(&property.kind).or_default();
        known.push(write::property(property));
    }
    for texts in properties.values_mut() {
        texts.sort();
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::{Change, Diff, diff};
    use olm_fbc::{Catalog, meta::limits};

    const BASE: &str = r#"{"schema":"olm.package","name":"x","defaultChannel":"stable"}
        {"schema":"olm.channel","package":"x","name":"stable","entries":[{"name":"x.v1"},{"name":"x.v2","replaces":"x.v1"}]}
        {"schema":"olm.bundle","package":"x","name":"x.v1","image":"i1",
         "properties":[{"type":"olm.package","value":{"packageName":"x","version":"1.0.0"}}]}
        {"schema":"olm.bundle","package":"x","name":"x.v2","image":"i2",
         "properties":[{"type":"olm.package","value":{"packageName":"x","version":"2.0.0"}}]}"#;

    fn catalog(text: &str) -> Catalog {
        let mut catalog = Catalog::default();
        catalog
            .load(text.as_bytes(), &limits())
            .expect("the catalog loads");
        catalog
    }

    fn between(replacements: &[(&str, &str)]) -> Diff {
        let new = replacements.iter().fold(BASE.to_owned(), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        diff(&catalog(BASE), &catalog(&new))
    }

    fn check(replacements: &[(&str, &str)], expected: &str, breaking: &[&str]) {
        let diff = between(replacements);
        let text = serde_json::to_string(&diff.packages).expect("a diff is JSON");
        assert_eq!(text, expected, "{replacements:?}");
        assert_eq!(diff.breaking(), breaking, "{replacements:?}");
    }

    #[test]
    fn equal_catalogs_do_not_differ() {
        let diff = between(&[(
            r#"{"packageName":"x","version":"1.0.0"}"#,
            r#"{"version":"1.0.0","packageName":"x"}"#,
        )]);
        assert!(diff.is_empty(), "{diff:?}");
    }

    #[test]
    fn updates_are_won_and_lost() {
        check(
            &[(r#","replaces":"x.v1""#, r#","skipRange":">=1.0.0 <2.0.0""#)],
            r#"[{"name":"x","change":"changed","channels":[{"name":"stable","change":"changed","head":{"old":"x.v2","new":null}}]}]"#,
            &[],
        );
        check(
            &[(r#","replaces":"x.v1""#, "")],
            r#"[{"name":"x","change":"changed","channels":[{"name":"stable","change":"changed","head":{"old":"x.v2","new":null},"edgesLost":[{"from":"x.v1","to":"x.v2"}]}]}]"#,
            &["package x, channel stable: x.v1 no longer updates to x.v2"],
        );
    }

    #[test]
    fn published_bundles_do_not_change() {
        check(
            &[(r#""image":"i2""#, r#""image":"i3""#)],
            r#"[{"name":"x","change":"changed","bundles":[{"name":"x.v2","change":"changed","fields":["image"]}]}]"#,
            &["package x: the content of bundle x.v2 changed (image)"],
        );
    }

    #[test]
    fn metadata_in_another_form_breaks_nothing() {
        let property = |kind: &str, value: &str| {
            let last = r#""version":"2.0.0"}}]"#;
            let more = format!(r#""version":"2.0.0"}}}},{{"type":"{kind}","value":{value}}}]"#);
            catalog(&BASE.replace(last, &more))
        };
        let objects = property("olm.bundle.object", r#"{"data":"e30="}"#);
        let metadata = property("olm.csv.metadata", r#"{"displayName":"X"}"#);
        for (old, new) in [(&objects, &metadata), (&metadata, &objects)] {
            let diff = diff(old, new);
            assert_eq!(diff.packages[0].bundles[0].fields, [super::METADATA_FORM]);
            assert_eq!(diff.breaking(), [""; 0]);
        }
        let other = property("olm.csv.metadata", r#"{"displayName":"Y"}"#);
        assert_eq!(
            diff(&metadata, &other).breaking(),
            ["package x: the content of bundle x.v2 changed (properties (olm.csv.metadata))"]
        );
    }

    #[test]
    fn what_goes_with_a_bundle_is_not_reported_again() {
        let (start, _) = BASE.split_once(r#",{"name":"x.v2""#).unwrap_or_default();
        let (bundles, _) = BASE
            .split_once("\n        {\"schema\":\"olm.bundle\",\"package\":\"x\",\"name\":\"x.v2\"")
            .unwrap_or_default();
        let (_, first) = bundles.split_once("]}\n").unwrap_or_default();
        let shorter = format!("{start}]}}\n{first}");
        let diff = diff(&catalog(BASE), &catalog(&shorter));
        assert_eq!(diff.breaking(), ["package x: bundle x.v2 is gone"]);
    }

    #[test]
    fn a_removed_package_is_reported_with_all_that_goes_with_it() {
        let diff = diff(&catalog(BASE), &Catalog::default());
        assert_eq!(diff.packages.len(), 1);
        assert_eq!(diff.packages[0].change, Change::Removed);
        assert_eq!(diff.packages[0].bundles.len(), 2);
        assert_eq!(diff.breaking(), ["package x is gone"]);
    }
}
