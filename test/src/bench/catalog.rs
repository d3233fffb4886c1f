//! A generated catalog with the shape of a large real one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The size of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The number of packages; the first has the most bundles.
    pub packages: u64,
    /// Bundles of the first package.
    pub most_bundles: u64,
    /// Bundles of every package at least.
    pub least_bundles: u64,
    /// The length of a description in words; descriptions come with the package and with each bundle.
    pub words: u64,
    /// The length of an icon in bytes of base64.
    pub icon: u64,
}

impl Default for Shape {
    /// About 370 packages, 560 channels, 4,500 bundles, 45 MB.
    fn default() -> Self {
        Self {
            packages: 370,
            most_bundles: 180,
            least_bundles: 4,
            words: 900,
            icon: 17_000,
        }
    }
}

impl Shape {
    /// About this many megabytes: more or fewer packages of the same kind.
    pub fn of_megabytes(megabytes: u64) -> Self {
        let default = Self::default();
        Self {
            packages: (megabytes * default.packages / 47).max(2),
            ..default
        }
    }
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    fn letters(&mut self, count: u64, alphabet: &[u8]) -> String {
        (0..count)
            .filter_map(|_| {
                let at = usize::try_from(self.below(alphabet.len() as u64)).ok()?;
                alphabet.get(at).map(|letter| char::from(*letter))
            })
            .collect()
    }

    fn text(&mut self, words: u64, vocabulary: &[String]) -> String {
        let mut text = String::new();
        for _ in 0..words {
            let at = usize::try_from(self.below(vocabulary.len() as u64)).unwrap_or_default();
            text.push_str(vocabulary.get(at).map_or("", String::as_str));
            text.push(if self.below(12) == 0 { '\n' } else { ' ' });
        }
        text
    }
}

/// The catalog as lines of JSON.
pub fn generate(shape: &Shape) -> String {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let vocabulary: Vec<String> = (0..3000)
        .map(|_| {
            let length = 3 + numbers.below(9);
            numbers.letters(length, b"abcdefghijklmnopqrstuvwxyz")
        })
        .collect();
    let mut out = String::new();
    for at in 0..shape.packages {
        for blob in package(shape, at, &mut numbers, &vocabulary) {
            out.push_str(&blob.to_string());
            out.push('\n');
        }
    }
    out
}

/// Few packages have many bundles, most have few.
fn bundles_of(shape: &Shape, at: u64) -> u64 {
    const ONE: u64 = 1 << 20;
    let share = (shape.packages - at) * ONE / shape.packages.max(1);
    let steep = (0..20).fold(ONE, |product, _| product * share / ONE);
    shape.least_bundles + (shape.most_bundles - shape.least_bundles) * steep / ONE
}

fn package(shape: &Shape, at: u64, numbers: &mut Numbers, vocabulary: &[String]) -> Vec<Value> {
    const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let name = format!("operator-{at:03}");
    let description = numbers.text(shape.words, vocabulary);
    // Base64 comes in fours.
    // It begins as images of its kind do.
    let mut icon = numbers.letters(shape.icon / 4 * 4, BASE64);
    icon.replace_range(..8, "iVBORw0K");
    let mut blobs = vec![json!({
        "schema": "olm.package",
        "name": name,
        "defaultChannel": "stable",
        "description": numbers.text(shape.words / 2, vocabulary),
        "icon": { "base64data": icon, "mediatype": "image/png" },
    })];
    let count = bundles_of(shape, at);
    let entries: Vec<Value> = (0..count)
        .map(|version| match version.checked_sub(1) {
            None => json!({ "name": format!("{name}.v1.{version}.0") }),
            Some(before) => json!({
                "name": format!("{name}.v1.{version}.0"),
                "replaces": format!("{name}.v1.{before}.0"),
                "skipRange": format!(">=1.0.0 <1.{version}.0"),
            }),
        })
        .collect();
    let channels = if at.is_multiple_of(2) {
        &["stable", "candidate"][..]
    } else {
        &["stable"]
    };
    for channel in channels {
        blobs.push(json!({ "schema": "olm.channel", "package": name, "name": channel, "entries": entries }));
    }
    for version in 0..count {
        let mut properties = vec![json!({
            "type": "olm.package",
            "value": { "packageName": name, "version": format!("1.{version}.0") },
        })];
        properties.extend((0..5).map(|kind| {
            let value = json!({ "group": format!("{name}.example.org"), "kind": format!("Kind{kind}"), "version": "v1" });
            json!({ "type": "olm.gvk", "value": value })
        }));
        properties.push(json!({
            "type": "olm.csv.metadata",
            "value": {
                "annotations": { "capabilities": "Seamless Upgrades", "createdAt": format!("2026-01-01T00:00:{:02}Z", version % 60) },
                "description": description,
                "displayName": name,
                "installModes": [{ "type": "AllNamespaces", "supported": true }],
                "keywords": ["generated"],
                "provider": { "name": "nobody" },
            },
        }));
        let digest = numbers.letters(64, b"0123456789abcdef");
        blobs.push(json!({
            "schema": "olm.bundle",
            "package": name,
            "name": format!("{name}.v1.{version}.0"),
            "image": format!("registry.example.org/bundles/{name}@sha256:{digest}"),
            "properties": properties,
            "relatedImages": [{
                "name": "operator",
                "image": format!("registry.example.org/operators/{name}@sha256:{digest}"),
            }],
        }));
    }
    blobs
}

/// The package whose size is closest to the one measured with the reference implementation, and its bytes.
pub(super) fn a_package(blobs: &str) -> Option<(String, usize)> {
    const WANTED: usize = 343_000;
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    for line in blobs.lines() {
        let blob: Value = serde_json::from_str(line).ok()?;
        if let Some(package) = blob["package"].as_str() {
            *sizes.entry(package.to_owned()).or_default() += line.len() + 1;
        }
    }
    sizes.into_iter().min_by_key(|(_, size)| size.abs_diff(WANTED))
}

/// The content of a catalog as text.
pub(super) fn describe(blobs: &str) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for blob in blobs
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let schema = blob["schema"].as_str().unwrap_or("no schema").to_owned();
        *counts.entry(schema).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(schema, count)| format!("{count} {schema}"))
        .collect();
    format!("{} MB, {}", blobs.len() / 1_000_000, counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Shape = Shape {
        packages: 6,
        most_bundles: 9,
        least_bundles: 2,
        words: 20,
        icon: 40,
    };

    #[test]
    fn a_generated_catalog_is_valid_and_always_the_same() {
        let text = generate(&SMALL);
        assert_eq!(text, generate(&SMALL));
        let mut checker = olm_fbc::Checker::new();
        for meta in olm_fbc::metas(text.as_bytes(), &olm_fbc::meta::limits()) {
            checker.add("catalog.json", &meta.unwrap());
        }
        let report = checker.finish();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }

    #[test]
    fn the_first_package_has_the_most_bundles() {
        let counts: Vec<u64> = (0..SMALL.packages).map(|at| bundles_of(&SMALL, at)).collect();
        assert_eq!(counts, [9, 2, 2, 2, 2, 2]);
        // All are small, so the closest one is the largest.
        let blobs = generate(&SMALL);
        let (name, size) = a_package(&blobs).unwrap();
        assert_eq!(name, "operator-000");
        assert!(size < blobs.len() && size > blobs.len() / 6);
    }
}
