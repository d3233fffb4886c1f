//! Bundles and package manifests as catalogs show them.
#![expect(
    clippy::expect_used,
    reason = "outside of the test functions too, a test fails where it stands"
)]

use std::collections::BTreeMap;

use olm_author::catalog_entry::{assemble, entry};
use olm_author::lint;
use olm_author::package_manifest::{PackageManifest, convert};
use olm_bundle::BundleFiles;
use olm_fbc::Catalog;
use olm_fbc::property::TYPE_BUNDLE_OBJECT;

fn files(files: &[(&str, &str)]) -> BundleFiles {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

fn csv(name: &str, version: &str, owned: &[&str], rest: &str) -> String {
    let owned: Vec<String> = owned
        .iter()
        .map(|kind| {
            format!(
                "{{name: {}s.etcd.example.com, version: v1, kind: {kind}}}",
                kind.to_lowercase()
            )
        })
        .collect();
    format!(
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {{name: {name}.v{version}}}\n\
         spec:\n  version: {version}\n  description: About {version}\n  customresourcedefinitions:\n    owned: [{}]\n{rest}",
        owned.join(", ")
    )
}

fn crd(kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.etcd.example.com}}\n\
         spec:\n  group: etcd.example.com\n  scope: Namespaced\n  names: {{kind: {kind}, plural: {plural}}}\n  \
         versions: [{{name: v1, served: true, storage: true}}]\n"
    )
}

/// A directory of package manifests without the versions named.
fn etcd(without: &[&str]) -> BundleFiles {
    let mut directory = files(&[(
        "etcd.package.yaml",
        "packageName: etcd\nchannels:\n- {name: alpha, currentCSV: etcdoperator.v0.9.2}\n- {name: beta, currentCSV: \
         etcdoperator.v0.9.0}\n- {name: stable, currentCSV: etcdoperator.v0.9.2}\ndefaultChannel: alpha\n",
    )]);
    for (version, replaced, kinds) in [
        ("0.6.1", "", &["EtcdCluster"][..]),
        (
            "0.9.0",
            "0.6.1",
            &["EtcdBackup", "EtcdCluster", "EtcdRestore"][..],
        ),
        (
            "0.9.2",
            "0.9.0",
            &["EtcdBackup", "EtcdCluster", "EtcdRestore"][..],
        ),
    ] {
        if without.contains(&version) {
            continue;
        }
        let rest = if replaced.is_empty() {
            String::new()
        } else {
            format!("  replaces: etcdoperator.v{replaced}\n")
        };
        let text = csv("etcdoperator", version, kinds, &rest);
        directory.insert(
            format!("{version}/etcdoperator.clusterserviceversion.yaml"),
            text.into_bytes(),
        );
        for kind in kinds {
            directory.insert(format!("{version}/{kind}.crd.yaml"), crd(kind).into_bytes());
        }
    }
    directory
}

/// Channels as `name: entry<replaced`, sorted.
fn channels(catalog: &Catalog) -> Vec<String> {
    let mut lines: Vec<String> = catalog
        .channels
        .iter()
        .map(|channel| {
            let entries: Vec<String> = channel
                .entries
                .iter()
                .map(|entry| match entry.replaces() {
                    Some(replaced) => format!("{}<{replaced}", entry.name),
                    None => entry.name.clone(),
                })
                .collect();
            format!("{}: {}", channel.name, entries.join(" "))
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_directory_of_package_manifests_becomes_a_catalog() {
    let image = |entry: &olm_author::catalog_entry::Entry| format!("reg.example/{}", entry.bundle.name);
    let converted = convert(&etcd(&[]), &image).expect("the directory is sound");
    assert_eq!(
        channels(&converted.catalog),
        [
            "alpha: etcdoperator.v0.6.1 etcdoperator.v0.9.0<etcdoperator.v0.6.1 etcdoperator.v0.9.2<etcdoperator.v0.9.0",
            "beta: etcdoperator.v0.6.1 etcdoperator.v0.9.0<etcdoperator.v0.6.1",
            "stable: etcdoperator.v0.6.1 etcdoperator.v0.9.0<etcdoperator.v0.6.1 etcdoperator.v0.9.2<etcdoperator.v0.9.0",
        ]
    );
    let package = converted.catalog.packages.first().expect("there is a package");
    assert_eq!(
        (
            package.name.as_str(),
            package.default_channel.as_str(),
            package.description.as_str()
        ),
        ("etcd", "alpha", "About 0.9.2")
    );
    assert!(lint::catalog(&converted.catalog).is_valid());
}

#[test]
fn a_missing_version_is_reported_for_each_entry_that_needs_it() {
    let faults = convert(&etcd(&["0.9.0"]), &|_| String::new()).expect_err("a version is missing");
    assert_eq!(
        faults,
        [
            "channel \"beta\": currentCSV \"etcdoperator.v0.9.0\" is not in the package",
            "etcdoperator.v0.9.2 replaces etcdoperator.v0.9.0, which is not in the package",
        ]
    );
}

#[test]
fn an_owned_definition_is_in_the_directory_of_its_version() {
    let mut directory = etcd(&[]);
    directory.remove("0.9.2/EtcdBackup.crd.yaml");
    let faults = convert(&directory, &|_| String::new()).expect_err("a definition is missing");
    assert!(
        faults
            .iter()
            .any(|fault| fault.starts_with("0.9.2: ") && fault.contains("EtcdBackup")),
        "{faults:?}"
    );
}

#[test]
fn channels_have_heads_of_their_own() {
    let manifest = olm_yaml::to_json(
        "packageName: example\nchannels:\n- {name: alpha, currentCSV: example.v0.1.2}\n- {name: beta, currentCSV: \
         example.v0.1.3}\ndefaultChannel: alpha\n",
    )
    .expect("the manifest is YAML");
    let manifest = PackageManifest::read(&manifest).expect("it is a package manifest");
    let directory = files(&[
        ("p.package.yaml", &{
            "packageName: example\nchannels:\n- {name: alpha, currentCSV: example.v0.1.2}\n- {name: beta, currentCSV: \
             example.v0.1.3}\ndefaultChannel: alpha\n"
                .to_owned()
        }),
        ("0.1.2/csv.yaml", &csv("example", "0.1.2", &[], "")),
        (
            "0.1.3/csv.yaml",
            &csv("example", "0.1.3", &[], "  replaces: example.v0.1.2\n"),
        ),
    ]);
    assert_eq!(manifest.default_channel(), "alpha");
    assert_eq!(manifest.faults(), Vec::<String>::new());
    let converted = convert(&directory, &|_| String::new()).expect("the directory is sound");
    assert_eq!(
        channels(&converted.catalog),
        [
            "alpha: example.v0.1.2",
            "beta: example.v0.1.2 example.v0.1.3<example.v0.1.2"
        ]
    );
}

#[test]
fn a_package_manifest_says_all_that_is_wrong_with_it() {
    for (text, expected) in [
        ("packageName: a\n", &["channels empty"][..]),
        (
            "channels: [{name: a, currentCSV: x}, {name: a}]\n",
            &[
                "packageName empty",
                "default channel is empty but more than one channel exists",
                "channel \"a\" currentCSV is empty",
                "duplicate package manifest channel name \"a\"",
            ][..],
        ),
        (
            "packageName: a\nchannels: [{name: a, currentCSV: x}]\ndefaultChannel: b\n",
            &["default channel \"b\" not found in the list of declared channels"][..],
        ),
    ] {
        let document = olm_yaml::to_json(text).expect("the text is YAML");
        let manifest = PackageManifest::read(&document).expect("it is a package manifest");
        assert_eq!(manifest.faults(), expected, "{text}");
    }
}

const ANNOTATIONS: &str = "annotations:\n  operators.operatorframework.io.bundle.package.v1: etcd\n  \
                           operators.operatorframework.io.bundle.channels.v1: 'beta, stable'\n  \
                           operators.operatorframework.io.bundle.channel.default.v1: stable\n";

/// The properties of a bundle as `type value`, manifests aside.
fn properties(more: &[(&str, &str)]) -> Vec<String> {
    let mut all = files(&[
        ("manifests/csv.yaml", &csv("etcd", "1.0.0", &["EtcdCluster"], "")),
        ("manifests/crd.yaml", &crd("EtcdCluster")),
        ("metadata/annotations.yaml", ANNOTATIONS),
    ]);
    all.extend(files(more));
    let entry = entry(&all, &BTreeMap::new(), "reg.example/etcd:1").expect("the bundle is one");
    entry
        .bundle
        .properties
        .iter()
        .filter(|property| property.kind != TYPE_BUNDLE_OBJECT)
        .map(|property| format!("{} {}", property.kind, property.value))
        .collect()
}

const OWN: [&str; 2] = [
    r#"olm.gvk {"group":"etcd.example.com","kind":"EtcdCluster","version":"v1"}"#,
    r#"olm.package {"packageName":"etcd","version":"1.0.0"}"#,
];

#[test]
fn properties_of_the_file_become_properties_of_the_bundle() {
    let found = properties(&[(
        "metadata/properties.yaml",
        "properties:\n- type: olm.kubeversion\n  value: {version: \"1.16.0\"}\n",
    )]);
    assert_eq!(found, [OWN[0], r#"olm.kubeversion {"version":"1.16.0"}"#, OWN[1]]);
}

#[test]
fn properties_may_be_wrapped() {
    let found = properties(&[(
        "metadata/properties.yaml",
        "properties:\n- property: {type: color, value: red}\n- property: {type: shape, value: square}\n- property:\n    \
         type: olm.gvk\n    value: {group: olm.coreos.io, version: v1alpha1, kind: myresource}\n",
    )]);
    assert_eq!(
        found,
        [
            r#"color "red""#,
            OWN[0],
            r#"olm.gvk {"group":"olm.coreos.io","kind":"myresource","version":"v1alpha1"}"#,
            OWN[1],
            r#"shape "square""#,
        ]
    );
}

#[test]
fn dependencies_become_required_properties() {
    let found = properties(&[(
        "metadata/dependencies.yaml",
        "dependencies:\n- type: olm.package\n  value: {packageName: prometheus, version: '>0.27.0'}\n- type: olm.gvk\n  \
         value: {group: etcd.database.coreos.com, kind: EtcdCluster, version: v1beta2}\n- type: olm.constraint\n  \
         value: {failureMessage: m, cel: {rule: 'true'}}\n",
    )]);
    assert_eq!(
        found,
        [
            r#"olm.constraint {"cel":{"rule":"true"},"failureMessage":"m"}"#,
            OWN[0],
            r#"olm.gvk.required {"group":"etcd.database.coreos.com","kind":"EtcdCluster","version":"v1beta2"}"#,
            OWN[1],
            r#"olm.package.required {"packageName":"prometheus","versionRange":">0.27.0"}"#,
        ]
    );
}

#[test]
fn a_package_is_required_in_the_spelling_of_catalogs() {
    for value in [
        "{packageName: prometheus, version: '>0.27.0'}",
        "{name: prometheus, versionRange: '>0.27.0'}",
        "{packageName: prometheus, versionRange: '>0.27.0'}",
    ] {
        let file = format!("dependencies: [{{type: olm.package, value: {value}}}]");
        let found = properties(&[("metadata/dependencies.yaml", &file)]);
        let required = r#"olm.package.required {"packageName":"prometheus","versionRange":">0.27.0"}"#;
        assert!(
            found.iter().any(|property| property == required),
            "{value}: {found:?}"
        );
    }
}

#[test]
fn requirements_in_another_shape_are_refused_and_not_lost() {
    for (key, listed, expected) in [
        (
            "dependencies",
            "type: olm.gvk, value: EtcdCluster",
            "dependency of type olm.gvk: ",
        ),
        (
            "dependencies",
            "type: olm.gvk",
            "dependency of type olm.gvk has no value",
        ),
        (
            "dependencies",
            "type: olm.package, value: null",
            "dependency of type olm.package has no value",
        ),
        (
            "dependencies",
            "type: olm.constraint, all: {}",
            "dependency of type olm.constraint has no value",
        ),
        (
            "properties",
            "type: olm.constraint",
            "property of type \"olm.constraint\" has no value",
        ),
        (
            "properties",
            "type: olm.gvk.required",
            "property of type \"olm.gvk.required\" has no value",
        ),
    ] {
        let file = format!("metadata/{key}.yaml");
        let all = files(&[
            ("manifests/csv.yaml", &csv("etcd", "1.0.0", &[], "")),
            ("metadata/annotations.yaml", ANNOTATIONS),
            (&file, &format!("{key}: [{{{listed}}}]")),
        ]);
        let error = entry(&all, &BTreeMap::new(), "reg.example/etcd:1").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("{file}: {expected}")), "{message}");
    }
}

#[test]
fn a_property_without_a_value_is_left_out_and_reported() {
    let annotated = csv("etcd", "1.0.0", &[], "").replace(
        "etcd.v1.0.0}",
        "etcd.v1.0.0, annotations: {olm.properties: '[{\"type\":\"shape\",\"value\":null},{\"type\":\"olm.package\"}]'}}",
    );
    let all = files(&[
        ("manifests/csv.yaml", &annotated),
        ("metadata/annotations.yaml", ANNOTATIONS),
        (
            "metadata/properties.yaml",
            "properties: [{type: image, name: a}, {type: color, value: red}, {type: olm.gvk}]",
        ),
    ]);
    let entry = entry(&all, &BTreeMap::new(), "reg.example/etcd:1").expect("the bundle is one");
    let left_out =
        |place: &str, kind: &str| format!("{place}: skipped a property of type \"{kind}\" without a value");
    assert_eq!(
        entry.warnings,
        [
            left_out("metadata/properties.yaml", "image"),
            left_out("metadata/properties.yaml", "olm.gvk"),
            left_out("annotation olm.properties", "shape"),
            left_out("annotation olm.properties", "olm.package"),
        ]
    );
    let properties = entry.bundle.properties.iter();
    let kinds: Vec<&str> = properties.map(|property| property.kind.as_str()).collect();
    assert_eq!(kinds, ["color", "olm.package", TYPE_BUNDLE_OBJECT]);
    assert!(lint::catalog(&assemble(&[entry])).is_valid());
}

#[test]
fn the_default_channel_of_a_package_is_one_of_its_channels() {
    for (default, expected) in [
        ("stable", "stable"),
        ("beta", "beta"),
        ("other", "beta"),
        ("''", "beta"),
    ] {
        let annotations = ANNOTATIONS.replace("v1: stable", &format!("v1: {default}"));
        let all = files(&[
            ("manifests/csv.yaml", &csv("etcd", "1.0.0", &[], "")),
            ("metadata/annotations.yaml", &annotations),
        ]);
        let entry = entry(&all, &BTreeMap::new(), "reg.example/etcd:1").expect("the bundle is one");
        let catalog = assemble(&[entry]);
        let package = catalog.packages.first().expect("there is a package");
        assert_eq!(package.default_channel, expected, "{default}");
        assert!(lint::catalog(&catalog).is_valid(), "{default}");
    }
}

#[test]
fn bundles_become_a_catalog_with_their_channels_and_edges() {
    let entries = [("1.0.0", ""), ("1.1.0", "  replaces: etcd.v1.0.0\n")].map(|(version, rest)| {
        let all = files(&[
            ("manifests/csv.yaml", &csv("etcd", version, &[], rest)),
            ("metadata/annotations.yaml", ANNOTATIONS),
        ]);
        entry(&all, &BTreeMap::new(), "reg.example/etcd:1").expect("the bundle is one")
    });
    let catalog = assemble(&entries);
    assert_eq!(
        channels(&catalog),
        [
            "beta: etcd.v1.0.0 etcd.v1.1.0<etcd.v1.0.0",
            "stable: etcd.v1.0.0 etcd.v1.1.0<etcd.v1.0.0"
        ]
    );
    let package = catalog.packages.first().expect("there is a package");
    assert_eq!(
        (package.default_channel.as_str(), package.description.as_str()),
        ("stable", "About 1.1.0")
    );
    assert!(lint::catalog(&catalog).is_valid());
}

#[test]
fn an_image_without_a_bundle_says_why() {
    let good = csv("etcd", "1.0.0", &["EtcdCluster"], "");
    let definition = crd("EtcdCluster");
    for (given, expected) in [
        (vec![], "no bundle objects found"),
        (
            vec![("manifests/crd.yaml", definition.as_str())],
            "no csv in bundle",
        ),
        (
            vec![("manifests/a.yaml", good.as_str()), ("manifests/b.yaml", &good)],
            "a bundle has exactly one ClusterServiceVersion, found 2: etcd.v1.0.0, etcd.v1.0.0",
        ),
        (
            vec![("manifests/a.yaml", &good)],
            "error checking provided apis in bundle etcd.v1.0.0: couldn't find etcd.example.com/v1/EtcdCluster (etcdclusters) \
             in bundle. found: nothing",
        ),
        (
            vec![("manifests/a.yaml", &good), ("manifests/crd.yaml", &definition)],
            "Could not find annotations file",
        ),
    ] {
        let error = entry(&files(&given), &BTreeMap::new(), "").expect_err("it is not a bundle");
        assert_eq!(error.to_string(), expected);
    }
}
