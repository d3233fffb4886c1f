//! The facts of packages, collected blob by blob.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use olm_fbc::property::{TYPE_BUNDLE_OBJECT, TYPE_CSV_METADATA, TYPE_GVK};
use olm_fbc::{
    Bundle, Catalog, Channel, Deprecations, Package, Property, SCHEMA_BUNDLE, SCHEMA_CHANNEL,
    SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE,
};

use super::{Api, CsvMetadata, PackageSummary};
use crate::icon;

/// The longest text of a summary, in characters; only the page of the package shows a longer description.
const LONGEST: usize = 500;
/// The maximum numbers of channels, APIs, keywords and categories of a package that are kept.
const MOST: usize = 500;
/// The memory limit for all summaries of a catalog during their collection, in bytes; the rest is left out.
const BUDGET: usize = 24 << 20;
/// The memory of a text without its bytes, and of a package without its texts.
const OVERHEAD: usize = 64;

/// Collects the facts of packages blob by blob.
#[derive(Debug)]
pub(crate) struct Collector {
    packages: BTreeMap<String, Collected>,
    /// The rest of [`BUDGET`].
    left: usize,
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            packages: BTreeMap::new(),
            left: BUDGET,
        }
    }
}

#[derive(Debug, Default)]
struct Collected {
    facts: PackageSummary,
    latest: Option<olm_version::VersionRelease>,
    /// The highest version whose bundle has metadata, and the range of that bundle in the content.
    described: Option<(olm_version::VersionRelease, Range<u64>)>,
}

impl Collector {
    /// Adds a blob and its range. A blob that cannot be read adds nothing.
    pub(crate) fn add(&mut self, schema: &str, json: &str, at: Range<u64>) {
        match schema {
            SCHEMA_PACKAGE => Package::from_json(json)
                .ok()
                .map(|package| self.package(&package)),
            SCHEMA_CHANNEL => Channel::from_json(json).ok().map(|channel| self.channel(channel)),
            SCHEMA_BUNDLE => Bundle::from_json(json)
                .ok()
                .map(|bundle| self.bundle(&bundle, at)),
            SCHEMA_DEPRECATIONS => Deprecations::from_json(json)
                .ok()
                .map(|deprecations| self.deprecations(&deprecations)),
            _ => None,
        };
    }

    /// Reads the summary of each package from its newest bundle with metadata, after all blobs are known. Reading each
    /// bundle on the way would take far longer if bundles contain their manifests. `read` returns the bytes of a range;
    /// `go_on` may cancel the work.
    pub(crate) fn describe(
        &mut self,
        read: impl Fn(Range<u64>) -> io::Result<Vec<u8>>,
        go_on: &impl Fn() -> bool,
    ) -> io::Result<()> {
        for (name, range) in self.take_described().into_iter().take_while(|_| go_on()) {
            let line = read(range)?;
            let bundle = std::str::from_utf8(&line).ok().map(Bundle::from_json);
            let metadata = bundle.and_then(Result::ok).as_ref().and_then(CsvMetadata::of);
            if let Some(metadata) = metadata {
                self.note(&name, |known| known.facts.describe(&metadata));
            }
        }
        Ok(())
    }

    /// The packages of a catalog that is in memory, by name.
    pub(crate) fn summaries(catalog: &Catalog) -> Vec<PackageSummary> {
        let mut collector = Self::default();
        for package in &catalog.packages {
            collector.package(package);
        }
        for channel in &catalog.channels {
            collector.channel(channel.clone());
        }
        // In this test, the range of a bundle is its index in the list.
        for (at, bundle) in (0..).zip(&catalog.bundles) {
            collector.bundle(bundle, at..at + 1);
        }
        for deprecations in &catalog.deprecations {
            collector.deprecations(deprecations);
        }
        let described: Vec<(String, Range<u64>)> = collector.take_described();
        for (name, range) in described {
            let bundle = usize::try_from(range.start)
                .ok()
                .and_then(|at| catalog.bundles.get(at));
            if let Some(metadata) = bundle.and_then(CsvMetadata::of) {
                collector.note(&name, |known| known.facts.describe(&metadata));
            }
        }
        collector.finish().collect()
    }

    fn take_described(&mut self) -> Vec<(String, Range<u64>)> {
        let packages = self.packages.iter_mut();
        packages
            .filter_map(|(name, known)| Some((name.clone(), known.described.take()?.1)))
            .collect()
    }

    /// The packages by name. Facts of packages that the catalog does not define are left out.
    pub(crate) fn finish(self) -> impl Iterator<Item = PackageSummary> {
        self.packages.into_values().filter_map(|known| {
            let facts = known.facts;
            (!facts.name.is_empty()).then_some(facts)
        })
    }

    /// Adds to the summary of a package within the budget; ignores overlong names.
    fn note(&mut self, package: &str, add: impl FnOnce(&mut Collected)) {
        if !is_short(package) || self.left == 0 {
            return;
        }
        let before = self.packages.get(package).map_or(0, |known| known.facts.memory());
        let known = self.packages.entry(package.to_owned()).or_default();
        add(known);
        self.left = (self.left + before).saturating_sub(known.facts.memory());
    }

    fn package(&mut self, package: &Package) {
        self.note(&package.name, |Collected { facts, .. }| {
            facts.name.clone_from(&package.name);
            facts.default_channel = short(&package.default_channel);
            facts.icon = package.icon.as_ref().is_some_and(icon::is_shown);
            if facts.summary.is_empty() {
                facts.summary = first_paragraph(&package.description);
            }
        });
    }

    fn channel(&mut self, channel: Channel) {
        let Channel { package, name, .. } = channel;
        self.note(&package, |Collected { facts, .. }| {
            if facts.channels.len() < MOST && is_short(&name) {
                facts.channels.insert(name);
            }
        });
    }

    fn bundle(&mut self, bundle: &Bundle, at: Range<u64>) {
        self.note(&bundle.package, |known| known.see(bundle, at));
    }

    fn deprecations(&mut self, deprecations: &Deprecations) {
        let of_package = |entry: &&olm_fbc::DeprecationEntry| entry.reference.schema == SCHEMA_PACKAGE;
        if let Some(entry) = deprecations.entries.iter().find(of_package) {
            self.note(&deprecations.package, |known| {
                known.facts.deprecated = short(&entry.message);
            });
        }
    }
}

impl Collected {
    fn see(&mut self, bundle: &Bundle, at: Range<u64>) {
        self.facts.bundles += 1;
        for gvk in bundle.properties.iter().filter(|p| p.kind == TYPE_GVK) {
            if let Ok(gvk) = gvk.gvk()
                && self.facts.provided_apis.len() < MOST
                && [&gvk.group, &gvk.version, &gvk.kind]
                    .into_iter()
                    .all(|part| is_short(part))
            {
                self.facts.provided_apis.insert(Api {
                    group: gvk.group,
                    version: gvk.version,
                    kind: gvk.kind,
                });
            }
        }
        let Ok(version) = bundle.version_release() else {
            return;
        };
        let is_newer = |known: Option<&olm_version::VersionRelease>| {
            known.is_none_or(|known| known.compare(&version).is_lt())
        };
        let describes =
            |property: &Property| [TYPE_CSV_METADATA, TYPE_BUNDLE_OBJECT].contains(&property.kind.as_str());
        if is_newer(self.described.as_ref().map(|(version, _)| version))
            && bundle.properties.iter().any(describes)
        {
            self.described = Some((version.clone(), at));
        }
        if is_newer(self.latest.as_ref()) {
            self.facts.latest_version = short(&version.to_string());
            self.latest = Some(version);
        }
    }
}

impl PackageSummary {
    /// Reads the summary from the newest bundle.
    fn describe(&mut self, metadata: &CsvMetadata) {
        let list = |words: &mut dyn Iterator<Item = &str>| words.take(MOST).map(short).collect();
        let summary = metadata.annotation("description");
        if !summary.is_empty() {
            self.summary = short(summary);
        }
        self.categories = list(&mut metadata.listed("categories"));
        self.display_name = short(metadata.text("/displayName"));
        self.provider = short(metadata.text("/provider/name"));
        self.keywords = list(&mut metadata.items("/keywords").filter_map(|word| word.as_str()));
        self.install_modes = list(&mut metadata.install_modes());
        self.capability = short(metadata.annotation("capabilities"));
        self.created = day(metadata.annotation("createdAt")).unwrap_or_default();
    }

    /// The approximate memory of the summary, in bytes.
    fn memory(&self) -> usize {
        let apis = self.provided_apis.iter();
        let apis = apis.flat_map(|api| [&api.group, &api.version, &api.kind]);
        let texts = [
            &self.name,
            &self.display_name,
            &self.summary,
            &self.provider,
            &self.default_channel,
            &self.latest_version,
            &self.deprecated,
            &self.capability,
            &self.created,
        ];
        let lists = self.keywords.iter().chain(&self.categories);
        let lists = lists.chain(&self.install_modes).chain(&self.channels);
        let texts = texts.into_iter().chain(lists).chain(apis);
        8 * OVERHEAD + texts.map(|text| OVERHEAD + text.len()).sum::<usize>()
    }
}

/// Whether a name is kept. A longer one must not be truncated, because it would not be the same name.
fn is_short(name: &str) -> bool {
    name.len() <= LONGEST
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The day of a time, as publishers write it; `None` if it is no date.
fn day(time: &str) -> Option<String> {
    let day: jiff::civil::Date = time.get(..10)?.parse().ok()?;
    Some(day.to_string())
}

/// The summary of a package whose bundles have none: the first paragraph of its description that is no heading.
pub(crate) fn first_paragraph(text: &str) -> String {
    let lines = text
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'));
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join("\n");
    let shown = short(&paragraph);
    if shown.len() < paragraph.len() {
        format!("{shown}…")
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_summary_is_the_first_paragraph_that_is_no_heading() {
        for (text, expected) in [
            ("One.\n\nTwo.", "One."),
            ("\n## About\r\n\r\nOne\r\nmore.\r\n\r\nTwo.", "One\nmore."),
            ("# About", ""),
            ("", ""),
        ] {
            assert_eq!(first_paragraph(text), expected, "{text:?}");
        }
        let long = first_paragraph(&"x".repeat(LONGEST + 1));
        assert_eq!(long.chars().count(), LONGEST + 1);
        assert!(long.ends_with('…'), "{long}");
    }

    fn facts(blobs: &[(&str, &str)]) -> Vec<PackageSummary> {
        let mut collector = Collector::default();
        for (at, (schema, json)) in (0..).zip(blobs) {
            collector.add(schema, json, at..at + 1);
        }
        // In this test, the range of a blob is its index in the list.
        let read = |range: Range<u64>| Ok(blobs[usize::try_from(range.start).unwrap()].1.into());
        collector.describe(read, &|| true).unwrap();
        collector.finish().collect()
    }

    fn bundle(version: &str, kind: &str, display: &str) -> String {
        format!(
            r#"{{"schema":"olm.bundle","package":"p","name":"p.v{version}","image":"i","properties":[
                {{"type":"olm.package","value":{{"packageName":"p","version":"{version}"}}}},
                {{"type":"olm.gvk","value":{{"group":"g","version":"v1","kind":"{kind}"}}}},
                {{"type":"olm.csv.metadata","value":{{"displayName":"{display}","keywords":["a","b"],
                  "provider":{{"name":"Us"}},"annotations":{{"categories":"Database, Storage","description":"Short."}}}}}}]}}"#
        )
    }

    #[test]
    fn overlong_names_are_left_out() {
        let long = "n".repeat(LONGEST + 1);
        let package =
            |name: &str| format!(r#"{{"schema":"olm.package","name":"{name}","defaultChannel":"{long}"}}"#);
        let channel =
            |name: &str| format!(r#"{{"schema":"olm.channel","package":"p","name":"{name}","entries":[]}}"#);
        let found = facts(&[
            ("olm.package", &package("p")),
            ("olm.package", &package(&long)),
            ("olm.channel", &channel("stable")),
            ("olm.channel", &channel(&long)),
            ("olm.bundle", &bundle("1.0.0", &long, "One")),
        ]);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!(found.name, "p");
        assert_eq!(found.default_channel.len(), LONGEST);
        assert_eq!(found.channels, BTreeSet::from(["stable".to_owned()]));
        assert_eq!((found.bundles, found.provided_apis.len()), (1, 0));
    }

    #[test]
    fn hostile_catalogs_take_no_more_than_the_budget() {
        let apis: Vec<String> = (0..MOST)
            .map(|number| {
                let text = format!("{number}{}", "g".repeat(LONGEST - 3));
                format!(
                    r#"{{"type":"olm.gvk","value":{{"group":"{text}","version":"{text}","kind":"{text}"}}}}"#
                )
            })
            .collect();
        let mut collector = Collector::default();
        for package in 0..100 {
            let definition =
                format!(r#"{{"schema":"olm.package","name":"p{package}","defaultChannel":"c"}}"#);
            let bundle = format!(
                r#"{{"schema":"olm.bundle","package":"p{package}","name":"b","image":"i","properties":[{}]}}"#,
                apis.join(",")
            );
            collector.add("olm.package", &definition, 0..1);
            collector.add("olm.bundle", &bundle, 0..1);
        }
        let memory: usize = collector
            .packages
            .values()
            .map(|known| known.facts.memory())
            .sum();
        assert!(memory > BUDGET && memory < BUDGET + (2 << 20), "{memory}");
    }

    #[test]
    fn the_highest_version_speaks_for_the_package() {
        let (old, new) = (
            bundle("1.9.0", "Old", "Old name"),
            bundle("1.10.0", "New", "New name"),
        );
        let package =
            r#"{"schema":"olm.package","name":"p","defaultChannel":"c","description":"Long.\n\nMore."}"#;
        let channel = r#"{"schema":"olm.channel","package":"p","name":"c","entries":[]}"#;
        let deprecated = r#"{"schema":"olm.deprecations","package":"p","entries":[
            {"reference":{"schema":"olm.bundle","name":"x"},"message":"no"},
            {"reference":{"schema":"olm.package"},"message":"Use q."}]}"#;
        for bundles in [[&new, &old], [&old, &new]] {
            let found = facts(&[
                ("olm.bundle", bundles[0]),
                ("olm.package", package),
                ("olm.channel", channel),
                ("olm.bundle", bundles[1]),
                ("olm.deprecations", deprecated),
                ("olm.bundle", "[]"),
                (
                    "olm.channel",
                    r#"{"package":"undefined","name":"c","entries":[]}"#,
                ),
            ]);
            let [facts] = found.as_slice() else {
                panic!("one package: {found:?}");
            };
            assert_eq!(
                (
                    facts.display_name.as_str(),
                    facts.latest_version.as_str(),
                    facts.bundles
                ),
                ("New name", "1.10.0", 2)
            );
            assert_eq!(
                (facts.summary.as_str(), facts.deprecated.as_str()),
                ("Short.", "Use q.")
            );
            assert_eq!(facts.categories, ["Database", "Storage"]);
            assert_eq!(facts.provided_apis.len(), 2);
            assert_eq!(facts.channels, BTreeSet::from(["c".to_owned()]));
        }
    }

    #[test]
    fn a_day_is_read_from_what_publishers_write() {
        for (text, expected) in [
            ("2026-01-21", Some("2026-01-21")),
            ("2026-01-21T10:00:00Z", Some("2026-01-21")),
            ("2026-01-21 10:00:00", Some("2026-01-21")),
            ("2026-13-21", None),
            ("January 2026", None),
            ("", None),
        ] {
            assert_eq!(day(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_package_without_metadata_is_summed_up_by_its_description() {
        let found = facts(&[(
            "olm.package",
            r#"{"schema":"olm.package","name":"p","defaultChannel":"c","description":"Long.\n\nMore."}"#,
        )]);
        assert_eq!(found[0].summary, "Long.");
    }
}
