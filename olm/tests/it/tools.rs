//! Tools for catalogs as users run them: list, diff, graph, template, build, search.

use crate::support::{ANNOTATIONS, CATALOG, CSV, Files, olm};
use serde_json::Value;

fn check(files: &Files, arguments: &[&str], status: i32, stdout: &str, stderr: &str) {
    let run = olm(&files.path(""), arguments);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (status, stdout, stderr),
        "{arguments:?}"
    );
}

fn catalog() -> Files {
    Files::new(&[("c/catalog.json", CATALOG)])
}

#[test]
fn a_catalog_begins_with_a_package() {
    let files = Files::new(&[("d.md", "Text"), ("i.svg", "<svg/>"), ("x", "words")]);
    check(
        &files,
        &[
            "catalog", "init", "foo", "-c", "stable", "-d", "d.md", "-i", "i.svg", "-o", "yaml",
        ],
        0,
        "---\ndefaultChannel: stable\ndescription: Text\nicon:\n  base64data: PHN2Zy8+\n  mediatype: image/svg+xml\nname: foo\n\
         schema: olm.package\n",
        "",
    );
    check(
        &files,
        &["catalog", "init", "foo", "-i", "x"],
        1,
        "",
        "error: detected invalid type of x: not an image\n",
    );
}

#[test]
fn packages_channels_and_bundles_are_listed() {
    let files = catalog();
    check(
        &files,
        &["catalog", "list", "packages", "c"],
        0,
        "NAME  DISPLAY NAME  DEFAULT CHANNEL\nfoo                 stable\n",
        "",
    );
    check(
        &files,
        &["catalog", "list", "channels", "c", "foo"],
        0,
        "PACKAGE  CHANNEL  HEAD\nfoo      fast     foo.v2.0.0\nfoo      stable   foo.v1.1.0\n",
        "",
    );
    check(
        &files,
        &["catalog", "list", "bundles", "c"],
        0,
        "PACKAGE  CHANNEL  BUNDLE      REPLACES    SKIPS  SKIP RANGE  IMAGE\n\
         foo      fast     foo.v2.0.0                                 reg.example/foo:2.0.0\n\
         foo      stable   foo.v1.0.0                                 reg.example/foo:1.0.0\n\
         foo      stable   foo.v1.1.0  foo.v1.0.0                     reg.example/foo:1.1.0\n",
        "",
    );
    check(
        &files,
        &["catalog", "list", "packages", "c", "-o", "yaml"],
        0,
        "- defaultChannel: stable\n  displayName: \"\"\n  name: foo\n",
        "",
    );
    check(
        &files,
        &["catalog", "list", "bundles", "c", "bar"],
        1,
        "",
        "error: package \"bar\" not found in c\nhint: `olm search --catalog SOURCE` shows what a catalog has\n",
    );
}

#[test]
fn a_diff_names_gains_and_losses() {
    let new = CATALOG
        .replace(r#","replaces":"foo.v1.0.0""#, "")
        .replace("foo:2.0.0", "foo:2.0.0-fixed")
        + r#"{"schema":"olm.deprecations","package":"foo","entries":[{"reference":{"schema":"olm.package"},"message":"gone"}]}"#;
    let files = Files::new(&[("old.json", CATALOG), ("new.json", &new)]);
    let text = "~ package foo\n  ~ channel stable\n    ~ head \"foo.v1.1.0\" -> none\n    - update foo.v1.0.0 -> foo.v1.1.0  [breaking]\n  \
                ~ bundle foo.v2.0.0: image  [breaking]\n  ~ deprecation of package none -> \"gone\"\n";
    let breaking = "2 changes are breaking\n";
    check(
        &files,
        &["catalog", "diff", "old.json", "new.json"],
        0,
        text,
        "2 changes are breaking\nhint: set --fail-on breaking to exit with status 1\n",
    );
    let breaks = ["catalog", "diff", "old.json", "new.json", "--fail-on", "breaking"];
    check(&files, &breaks, 1, text, breaking);
    check(
        &files,
        &["catalog", "diff", "old.json", "old.json", "--fail-on", "any"],
        0,
        "",
        "no differences\n",
    );
    let run = olm(
        &files.path(""),
        &["catalog", "diff", "old.json", "new.json", "-o", "json"],
    );
    let report: Value = serde_json::from_str(&run.stdout).expect("the report is JSON");
    assert_eq!(report["breaking"].as_array().map(Vec::len), Some(2), "{report:#}");
}

#[test]
fn update_graphs_are_drawn() {
    let files = catalog();
    let run = olm(&files.path(""), &["catalog", "graph", "c", "-c", "stable"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    for expected in [
        "graph LR\n",
        "subgraph p0[\"foo\"]",
        "p0c0n0[\"foo.v1.1.0\"]",
        "p0c0n1 -->|replaces| p0c0n0",
    ] {
        assert!(run.stdout.contains(expected), "{}", run.stdout);
    }
    let run = olm(&files.path(""), &["catalog", "graph", "c", "foo", "-o", "svg"]);
    assert!(
        run.stdout.starts_with("<svg ") && run.stdout.contains(">1.1.0 (head)<"),
        "{}",
        run.stdout
    );
    check(
        &files,
        &["catalog", "graph", "c", "bar"],
        1,
        "",
        "error: package \"bar\" not found in c\nhint: `olm search --catalog SOURCE` shows what a catalog has\n",
    );
}

fn bundle_files(version: &str) -> [(String, String); 2] {
    [
        (
            format!("b{version}/manifests/csv.yaml"),
            CSV.replace("greeter.v1.0.0", &format!("greeter.v{version}"))
                .replace("  version: 1.0.0", &format!("  version: {version}")),
        ),
        (
            format!("b{version}/metadata/annotations.yaml"),
            ANNOTATIONS.to_owned(),
        ),
    ]
}

fn bundles(more: &[(&str, &str)]) -> Files {
    let owned: Vec<(String, String)> = ["1.0.0", "1.1.0"]
        .iter()
        .flat_map(|version| bundle_files(version))
        .collect();
    let all: Vec<(&str, &str)> = owned
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .chain(more.iter().copied())
        .collect();
    Files::new(&all)
}

#[test]
fn a_template_is_rendered_from_the_bundles_that_it_names() {
    let template = "schema: olm.semver\nstable: {bundles: [{image: b1.0.0}, {image: b1.1.0}]}\n";
    let files = bundles(&[("t.yaml", template)]);
    let run = olm(
        &files.path(""),
        &["catalog", "template", "semver", "t.yaml", "-o", "jsonl"],
    );
    assert_eq!(run.status, 0);
    assert!(
        run.stderr
            .starts_with("warning: bundles from directories have no image")
            && run.stderr.contains(": greeter.v1.0.0, greeter.v1.1.0\nhint: ")
            && run.stderr.contains("--image-ref-template"),
        "{}",
        run.stderr
    );
    let template = "r.example/{package}:v{version}";
    let arguments = ["catalog", "template", "semver", "t.yaml", "-o", "jsonl"];
    let named = olm(
        &files.path(""),
        &[&arguments[..], &["--image-ref-template", template]].concat(),
    );
    assert_eq!((named.status, named.stderr.as_str()), (0, ""));
    assert!(
        named.stdout.contains(r#""image":"r.example/greeter:v1.1.0""#),
        "{}",
        named.stdout
    );
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        lines.get(..3),
        Some(
            &[
                r#"{"defaultChannel":"stable-v1.1","name":"greeter","schema":"olm.package"}"#,
                r#"{"entries":[{"name":"greeter.v1.0.0"}],"name":"stable-v1.0","package":"greeter","schema":"olm.channel"}"#,
                r#"{"entries":[{"name":"greeter.v1.1.0","replaces":"greeter.v1.0.0"}],"name":"stable-v1.1","package":"greeter","schema":"olm.channel"}"#,
            ][..]
        )
    );
    check(
        &files,
        &["catalog", "template", "basic", "t.yaml"],
        1,
        "",
        "error: t.yaml has the schema olm.semver, not olm.template.basic\n",
    );
}

#[test]
fn a_catalog_becomes_a_template() {
    let files = Files::new(&[(
        "c.yaml",
        "---\nschema: olm.package\nname: p\ndefaultChannel: c\n---\nschema: olm.bundle\nname: b\npackage: p\nimage: reg.example/b\n",
    )]);
    check(
        &files,
        &["catalog", "convert-template", "basic", "c.yaml"],
        0,
        "---\nentries:\n- defaultChannel: c\n  name: p\n  schema: olm.package\n- image: reg.example/b\n  schema: olm.bundle\nschema: \
         olm.template.basic\n",
        "",
    );
}

#[test]
fn a_catalog_is_composed_of_others() {
    let composition = "name: community-operators\nrepo: quay.io/community-operators/catalog\ntag: latest\nreferences:\n\
                       - {name: etcd-operator, image: etcd.json}\n- {name: prometheus-operator, image: prometheus.json}\n";
    let package = |name: &str| CATALOG.replace("\"foo", &format!("\"{name}"));
    let files = Files::new(&[
        ("catalog.yaml", composition),
        ("etcd.json", &package("etcd")),
        ("prometheus.json", &package("prometheus")),
    ]);
    let run = olm(&files.path(""), &["catalog", "build", "-f", "catalog.yaml"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .starts_with("quay.io/community-operators/catalog:latest sha256:"),
        "{}",
        run.stdout
    );
    for (part, name) in [("etcd-operator", "etcd"), ("prometheus-operator", "prometheus")] {
        let rendered = files.path(&format!("community-operators/{part}/index.yaml"));
        let text = std::fs::read_to_string(rendered).expect("the part is rendered");
        assert!(
            text.starts_with(&format!("---\ndefaultChannel: stable\nname: {name}\n")),
            "{text}"
        );
    }
    // The output is an image again, with both packages, and it is reproducible.
    let listed = olm(
        &files.path(""),
        &[
            "catalog",
            "list",
            "packages",
            "community-operators.tar",
            "-o",
            "json",
        ],
    );
    let packages: Value = serde_json::from_str(&listed.stdout).expect("the list is JSON");
    let names: Vec<&str> = packages
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|package| package["name"].as_str())
        .collect();
    assert_eq!(names, ["etcd", "prometheus"], "{}", listed.stderr);
    let again = olm(&files.path(""), &["catalog", "build", "-f", "catalog.yaml"]);
    assert_eq!(again.stdout, run.stdout);
}

#[test]
fn a_token_is_never_sent_unencrypted() {
    let files = Files::new(&[("token", "secret\n")]);
    let run = olm(
        &files.path(""),
        &[
            "catalog",
            "render",
            "http://127.0.0.1:9/catalogs/a",
            "--token-file",
            "token",
        ],
    );
    assert!(run.status == 1 && run.stderr.contains("use https"), "{run:?}");
}

#[test]
fn other_files_in_the_directory_of_a_composition_are_reported() {
    let files = Files::new(&[
        (
            "c.yaml",
            "name: community.v2\nrepo: r.example/x\nreferences: [{name: foo, image: foo.json}]\n",
        ),
        ("foo.json", CATALOG),
        ("community.v2/gone/index.json", ""),
    ]);
    let run = olm(&files.path(""), &["catalog", "build", "-f", "c.yaml"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("gone becomes part of the catalog") && !run.stderr.contains("foo becomes"),
        "{}",
        run.stderr
    );
    assert!(files.path("community.v2.tar").is_file(), "{}", run.stderr);
}

#[test]
fn a_composition_names_plain_directories() {
    let files = Files::new(&[(
        "c.yaml",
        "name: ../up\nrepo: r/x\nreferences: [{name: a, image: a}]\n",
    )]);
    check(
        &files,
        &["catalog", "build", "-f", "c.yaml"],
        1,
        "",
        "error: \"../up\" cannot be the name of a directory\n",
    );
}

#[test]
fn a_dockerfile_stands_beside_the_catalog_and_is_never_overwritten() {
    let files = catalog();
    let run = olm(&files.path(""), &["catalog", "dockerfile", "c", "-l", "a=b"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let text = std::fs::read_to_string(files.path("c.Dockerfile")).expect("it is written");
    assert_eq!(
        text,
        "FROM scratch\nADD c /configs\nLABEL operators.operatorframework.io.index.configs.v1=/configs\nLABEL a=\"b\"\n"
    );
    let again = olm(&files.path(""), &["catalog", "dockerfile", "c"]);
    assert_eq!(again.status, 1);
    assert!(
        again
            .stderr
            .ends_with("c.Dockerfile exists and is not overwritten\nhint: remove it, or build with the one that is there\n"),
        "{}",
        again.stderr
    );
}

#[test]
fn packages_are_found_by_all_words() {
    let described = CATALOG.replace(
        r#"{"type":"olm.package","value":{"packageName":"foo","version":"1.1.0"}}"#,
        r#"{"type":"olm.package","value":{"packageName":"foo","version":"1.1.0"}},
           {"type":"olm.gvk","value":{"group":"g.example","kind":"Widget","version":"v1"}},
           {"type":"olm.csv.metadata","value":{"displayName":"Foo Operator","keywords":["fast"],"annotations":{"categories":"Database, Storage"}}}"#,
    );
    let files = Files::new(&[("c.json", &described)]);
    let found = "CATALOG  PACKAGE  DISPLAY NAME  VERSION  DEFAULT CHANNEL\nc        foo      Foo Operator  2.0.0    stable\n";
    for words in [&["foo"][..], &["FAST", "storage"][..], &["widget"][..]] {
        let arguments = [&["search", "--catalog", "c.json"][..], words].concat();
        check(&files, &arguments, 0, found, "");
    }
    check(
        &files,
        &["search", "--catalog", "c.json", "fast", "slow"],
        1,
        "",
        "error: no package has all of these words\n",
    );
    let near = described.replace("\"foo\"", "\"greeter\"");
    let files_near = Files::new(&[("c.json", &near)]);
    check(
        &files_near,
        &["search", "--catalog", "c.json", "greter"],
        1,
        "",
        "error: no package has all of these words\nhint: did you mean \"greeter\"?\n",
    );
    for arguments in [
        &["show", "greter", "--catalog", "c.json"][..],
        &["catalog", "list", "bundles", "c", "greter"],
        &["catalog", "graph", "c", "greter"],
    ] {
        let files = Files::new(&[("c.json", &near), ("c/c.json", &near)]);
        check(
            &files,
            arguments,
            1,
            "",
            "error: package \"greter\" not found in c\nhint: did you mean \"greeter\"?\n",
        );
    }
    check(
        &files,
        &["show", "foo", "--catalog", "mine=c.json"],
        0,
        "package     foo\ncatalog     mine\nname        Foo Operator\nversion     2.0.0\ndefault     stable\n\
         channels    fast (foo.v2.0.0), stable (foo.v1.1.0)\nkeywords    fast\ncategories  Database, Storage\n\
         apis        g.example/v1/Widget\n\n\
         VERSION  BUNDLE      CHANNELS          PUBLISHED  DEPRECATED\n\
         2.0.0    foo.v2.0.0  fast              -          -\n\
         1.1.0    foo.v1.1.0  stable (default)  -          -\n\
         1.0.0    foo.v1.0.0  stable (default)  -          -\n",
        "",
    );
}

#[test]
fn an_argument_that_is_neither_file_nor_image_is_refused() {
    check(
        &Files::new(&[]),
        &["catalog", "validate", "nothing"],
        1,
        "",
        "error: \"nothing\" is not a file or directory; an image reference needs a registry\n\
         hint: `olm show PACKAGE --catalog NAME` reads a ClusterCatalog\n",
    );
}
