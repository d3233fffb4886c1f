//! The worked examples of the requirements about catalogs, each as one test.

use std::collections::BTreeSet;

use olm_fbc::check::Severity;
use olm_fbc::meta::{limits, metas};
use olm_fbc::{CatalogReport, Checker, Ignore, walk_order};

/// Checks a catalog as it would be read from a directory.
fn report(files: &[(&str, &str)]) -> CatalogReport {
    let mut ignore = Ignore::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".indexignore")) {
        ignore.add(path, text);
    }
    let mut files: Vec<_> = files
        .iter()
        .filter(|(path, _)| !ignore.is_ignored(path))
        .collect();
    files.sort_by(|left, right| walk_order(left.0, right.0));
    let mut checker = Checker::new();
    for (path, text) in files {
        for meta in metas(text.as_bytes(), &limits()) {
            match meta {
                Ok(meta) => checker.add(path, &meta),
                Err(error) => checker.add_failure(path, &error),
            }
        }
    }
    checker.finish()
}

/// Checks one file and compares the names of the broken rules.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let report = report(&[("catalog.yaml", text)]);
    let found: BTreeSet<&str> = report.errors().map(|finding| finding.rule.id()).collect();
    assert_eq!(found, expected.iter().copied().collect(), "{text}\n{report:#?}");
    assert_eq!(report.is_valid(), expected.is_empty());
}

const PACKAGE: &str = "schema: olm.package\nname: foo\ndefaultChannel: stable\n---\n";
const CHANNEL: &str = "schema: olm.channel\npackage: foo\nname: stable\nentries: [{name: foo.v1.0.0}]\n---\n";
const BUNDLE: &str = "schema: olm.bundle\npackage: foo\nname: foo.v1.0.0\nimage: reg.example/foo:1\nproperties:\n\
                      - {type: olm.package, value: {packageName: foo, version: 1.0.0}}\n";

fn valid() -> String {
    format!("{PACKAGE}{CHANNEL}{BUNDLE}")
}

/// A catalog of one package whose channel has these entries, with a bundle for each of them.
fn with_entries(entries: &[(&str, &str)]) -> String {
    let lines: Vec<String> = entries
        .iter()
        .map(|(name, edges)| format!("- {{name: {name}{edges}}}\n"))
        .collect();
    let names: BTreeSet<&str> = entries.iter().map(|(name, _)| *name).collect();
    let bundles: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let bundle = BUNDLE.replace("foo.v1.0.0", name);
            format!(
                "---\n{}",
                bundle.replace("version: 1.0.0", &format!("version: 1.0.{index}"))
            )
        })
        .collect();
    let channel = "schema: olm.channel\npackage: foo\nname: stable\nentries:\n";
    format!("{PACKAGE}{channel}{}{}", lines.concat(), bundles.concat())
}

#[test]
fn every_file_is_read_unless_ignored() {
    let ignore = "**/*\n!*.json\n!*.yaml\n**/objects/*.json\n**/objects/*.yaml\n";
    let mut ignored = Ignore::new();
    ignored.add("packageB/.indexignore", ignore);
    let paths = [
        "packageA/index.yaml",
        "packageB/.indexignore",
        "packageB/index.yaml",
        "packageB/objects/packageB.v0.1.0.clusterserviceversion.yaml",
        "packageC/index.json",
        "packageC/deprecations.yaml",
    ];
    let loaded: Vec<&str> = paths
        .into_iter()
        .filter(|path| !ignored.is_ignored(path))
        .collect();
    assert_eq!(
        loaded,
        [
            "packageA/index.yaml",
            "packageB/index.yaml",
            "packageC/index.json",
            "packageC/deprecations.yaml"
        ]
    );
}

#[test]
fn a_file_that_is_no_catalog_fails_the_load() {
    let readme = "# Notes\n\nPlain words about the catalog.\n";
    let found = report(&[("a/catalog.yaml", &valid()), ("a/README.md", readme)]);
    assert_eq!(found.findings.len(), 1, "{found:#?}");
    assert_eq!(found.findings[0].rule.id(), "syntax");
    assert_eq!(
        found.findings[0].place.as_ref().map(|place| &*place.file),
        Some("a/README.md")
    );
    assert!(
        report(&[
            ("a/catalog.yaml", &valid()),
            ("README.md", readme),
            (".indexignore", "*.md\n")
        ])
        .is_valid()
    );
}

#[test]
fn catalogs_compose_unless_they_share_a_package() {
    let other = valid().replace("foo", "bar");
    assert!(report(&[("catalogA/index.yaml", &valid()), ("catalogB/index.yaml", &other)]).is_valid());
    let found = report(&[
        ("catalogA/index.yaml", &valid()),
        ("catalogB/index.yaml", &valid()),
    ]);
    let shown: Vec<String> = found
        .findings
        .iter()
        .map(|finding| format!("{} {}", finding.place.as_ref().expect("a place"), finding.message))
        .collect();
    assert_eq!(
        shown,
        [
            "catalogB/index.yaml:1 duplicate package \"foo\"",
            "catalogB/index.yaml:5 package \"foo\" has duplicate channel \"stable\"",
            "catalogB/index.yaml:10 package \"foo\" has duplicate bundle \"foo.v1.0.0\"",
        ]
    );
}

#[test]
fn every_blob_has_a_schema_and_sound_properties() {
    let blob = |text: &str, expected: &[&str]| check(&format!("{}---\n{text}\n", valid()), expected);
    blob("{schema: \"\"}", &["schema"]);
    blob("{name: x}", &["schema"]);
    blob("{schema: my.example.com/v1, package: \"\"}", &["blob-package"]);
    blob("{schema: my.example.com/v1, foo: 1}", &[]);
    let property = |text: &str, expected: &[&str]| check(&format!("{}- {text}\n", valid()), expected);
    property("{type: \"\", value: 1}", &["property-type"]);
    property("{type: t}", &["property-value"]);
    property("{type: t, value: null}", &["property-null"]);
    property("{type: t, value: false}", &[]);
}

#[test]
fn a_package_is_described_once_and_has_channels_and_bundles() {
    check(&valid(), &[]);
    check(
        &format!("{CHANNEL}{BUNDLE}"),
        &["bundle-package-unknown", "channel-package"],
    );
    check(&format!("{PACKAGE}{}", valid()), &["package-duplicate"]);
    check(
        &format!("{PACKAGE}{BUNDLE}"),
        &[
            "bundle-orphan",
            "default-channel-unknown",
            "package-without-channel",
        ],
    );
    check(
        &format!("{PACKAGE}{CHANNEL}"),
        &["entry-bundle", "package-without-bundle"],
    );
    check(
        &valid().replace("defaultChannel: stable", "defaultChannel: \"\""),
        &["default-channel"],
    );
}

#[test]
fn a_channel_with_several_heads_is_refused() {
    check(&with_entries(&[("a", ""), ("b", "")]), &["channel-graph"]);
}

#[test]
fn a_channel_whose_entries_replace_each_other_is_refused() {
    check(
        &with_entries(&[("v1", ", replaces: v2"), ("v2", ", replaces: v1")]),
        &["channel-graph"],
    );
}

#[test]
fn the_replaced_bundle_need_not_be_there() {
    check(&with_entries(&[("foo.v1.0.1", ", replaces: foo.v1.0.0")]), &[]);
}

#[test]
fn a_bundle_is_once_in_a_channel() {
    check(&with_entries(&[("a", ""), ("a", "")]), &["entry-duplicate"]);
    let other = CHANNEL.replace("name: stable", "name: candidate");
    check(&format!("{other}{}", valid()), &[]);
}

#[test]
fn an_entry_has_a_bundle() {
    check(
        &valid().replace(
            "{name: foo.v1.0.0}",
            "{name: foo.v1.0.0}, {name: x, replaces: foo.v1.0.0}",
        ),
        &["entry-bundle"],
    );
    // In whichever channel, not only in the last one.
    let earlier = "schema: olm.channel\npackage: foo\nname: alpha\nentries: [{name: x}]\n---\n";
    check(&format!("{PACKAGE}{earlier}{CHANNEL}{BUNDLE}"), &["entry-bundle"]);
}

#[test]
fn edges_are_not_empty() {
    check(&with_entries(&[("a", ", skips: [\"\"]")]), &["entry-skip"]);
    check(&with_entries(&[("a", ", replaces: \"\"")]), &["entry-edge"]);
    check(&with_entries(&[("a", ", skipRange: \"\"")]), &["entry-edge"]);
}

#[test]
fn each_fault_of_a_bundle_is_reported() {
    let replaced = |from: &str, to: &str, expected: &[&str]| {
        assert!(valid().contains(from), "{from}");
        check(&valid().replace(from, to), expected);
    };
    let property = "- {type: olm.package, value: {packageName: foo, version: 1.0.0}}\n";
    replaced(property, "- {type: x, value: 1}\n", &["package-property"]);
    replaced(property, &property.repeat(2), &["package-property"]);
    replaced(
        "packageName: foo",
        "packageName: other",
        &["package-property-name"],
    );
    for version in ["\"1.0\"", "v1"] {
        replaced("version: 1.0.0", &format!("version: {version}"), &["version"]);
    }
    for version in ["1.0.0-rc.1", "1.0.0+build"] {
        replaced("version: 1.0.0", &format!("version: {version}"), &[]);
    }
    replaced("image: reg.example/foo:1", "image: \"\"", &["bundle-image"]);
    let with = |text: &str, expected: &[&str]| check(&format!("{}{text}", valid()), expected);
    with(
        "- {type: olm.gvk, value: {group: g.example, version: v1, kind: K}}\n",
        &[],
    );
    with(
        "- {type: olm.gvk, value: {group: g.example, version: v1}}\n",
        &["gvk"],
    );
    with(
        "- {type: olm.gvk.required, value: {group: g.example, kind: K}}\n",
        &["gvk-required"],
    );
    with(
        "- {type: olm.package.required, value: {packageName: p, versionRange: abc}}\n",
        &["package-required"],
    );
    with(
        "- {type: olm.package.required, value: {packageName: p, versionRange: '>=1.0.0 <2.0.0'}}\n",
        &[],
    );
    with(
        "- {type: olm.csv.metadata, value: {annotations: null}}\n",
        &["property-value"],
    );
    with("- {type: olm.csv.metadata, value: 3}\n", &["property-value"]);
    with(
        "- {type: olm.csv.metadata, value: {keywords: [a], labels: {}}}\n",
        &[],
    );
    with("relatedImages: [{name: x}]\n", &["related-image"]);
    with(
        "relatedImages: [{name: ' ', image: 'quay.io/a/b:v1'}]\n",
        &["related-image"],
    );
    with("relatedImages: [{name: '', image: 'quay.io/a/b:v1'}]\n", &[]);
}

#[test]
fn a_package_a_channel_and_a_bundle_can_be_deprecated() {
    let deprecations = "---\nschema: olm.deprecations\npackage: foo\nentries:\n\
                        - {reference: {schema: olm.package}, message: gone}\n\
                        - {reference: {schema: olm.channel, name: stable}, message: gone}\n\
                        - {reference: {schema: olm.bundle, name: foo.v1.0.0}, message: gone}\n";
    check(&format!("{}{deprecations}", valid()), &[]);
}

#[test]
fn each_fault_of_deprecations_is_reported() {
    let with = |head: &str, entry: &str, expected: &[&str]| {
        let text = format!(
            "{}---\nschema: olm.deprecations\n{head}entries: [{entry}]\n",
            valid()
        );
        check(&text, expected);
    };
    let sound = "{reference: {schema: olm.package}, message: gone}";
    with("package: foo\nname: x\n", sound, &["deprecation-name"]);
    with(
        "package: foo\n",
        "{reference: {schema: olm.package, name: foo}, message: gone}",
        &["deprecation-reference"],
    );
    with(
        "package: foo\n",
        "{reference: {schema: olm.channel}, message: gone}",
        &["deprecation-reference"],
    );
    with(
        "package: foo\n",
        "{reference: {schema: olm.bundle}, message: gone}",
        &["deprecation-reference"],
    );
    with(
        "package: foo\n",
        "{reference: {schema: olm.package}, message: \"\"}",
        &["deprecation-message"],
    );
    with(
        "package: foo\n",
        "{reference: {schema: olm.thing, name: x}, message: gone}",
        &["deprecation-reference"],
    );
    with("", sound, &["deprecation-package"]);
    with("package: bar\n", sound, &["deprecation-package"]);
    let twice = format!("{sound}]\n---\nschema: olm.deprecations\npackage: foo\nentries: [{sound}");
    with("package: foo\n", &twice, &["deprecation-duplicate"]);
}

#[test]
fn deprecations_without_entries_are_worth_a_warning() {
    let found = report(&[(
        "c.yaml",
        &format!("{}---\nschema: olm.deprecations\npackage: foo\n", valid()),
    )]);
    assert!(found.is_valid());
    let rules: Vec<_> = found
        .findings
        .iter()
        .map(|finding| (finding.rule.severity(), finding.rule.id()))
        .collect();
    assert_eq!(rules, [(Severity::Warning, "deprecation-empty")]);
}

#[test]
fn every_fault_is_found_at_once_and_each_has_its_place() {
    let text = "schema: olm.package\nname: Foo.bar\n---\nschema: olm.channel\npackage: nobody\n---\nschema: olm.bundle\n\
                name: b\nimage: UPPER/case\n---\n{schema: olm.package, name: []}\n";
    let found = report(&[
        ("one.yaml", text),
        ("two.json", "{\"schema\":\"olm.bundle\",\"image\":7}"),
    ]);
    let shown: Vec<String> = found
        .findings
        .iter()
        .map(|finding| {
            format!(
                "{} {}",
                finding.place.as_ref().expect("a place"),
                finding.rule.id()
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "one.yaml:1 package-label",
            "one.yaml:1 default-channel",
            "one.yaml:1 package-without-channel",
            "one.yaml:1 package-without-bundle",
            "one.yaml:4 channel-package",
            "one.yaml:4 channel-name",
            "one.yaml:4 channel-empty",
            "one.yaml:7 bundle-package",
            "one.yaml:7 image-reference",
            "one.yaml:7 package-property",
            "one.yaml:11 syntax",
            "two.json:1 shape",
        ]
    );
}

#[test]
fn an_unreadable_blob_does_not_fault_its_package() {
    check(
        &valid().replace("entries: [{name: foo.v1.0.0}]", "entries: {}"),
        &["shape"],
    );
    check(
        &valid().replace("image: reg.example/foo:1", "image: [1]"),
        &["shape"],
    );
    check(
        &valid().replace("defaultChannel: stable", "defaultChannel: 5"),
        &["shape"],
    );
}

#[test]
fn one_version_is_in_a_package_once() {
    let text = with_entries(&[("a", ""), ("b", ", replaces: a")]).replace("version: 1.0.1", "version: 1.0.0");
    let found = report(&[("c.yaml", &text)]);
    let messages: Vec<&str> = found.errors().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages,
        ["duplicate versions found in bundles: [{1.0.0: [a, b]}]"]
    );
}

#[test]
fn a_flood_of_faults_is_counted_and_not_kept() {
    let text = "{\"schema\":\"olm.bundle\"}\n".repeat(8_000);
    let found = report(&[("c.json", &text)]);
    assert_eq!(found.findings.len(), olm_fbc::check::MAX_FINDINGS);
    assert!(found.omitted > 0 && !found.is_valid());
}
