//! `olm resolve` as users run it.

use crate::support::{CATALOG, Files, olm};
use serde_json::Value;

fn resolve(files: &Files, arguments: &[&str]) -> (i32, Value) {
    let run = olm(
        &files.path(""),
        &[&["resolve", "foo", "-o", "json"], arguments].concat(),
    );
    let answer = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("no answer: {run:?}"));
    (run.status, answer)
}

#[track_caller]
fn check(arguments: &[&str], bundle: &str, edge: Option<&str>) {
    let files = Files::new(&[("cat/catalog.json", CATALOG)]);
    let (status, answer) = resolve(&files, &[&["--catalog", "cat"], arguments].concat());
    assert_eq!(
        (status, &answer["bundle"]),
        (0, &Value::from(bundle)),
        "{answer:#}"
    );
    assert_eq!(
        answer["edge"],
        edge.map_or(Value::Null, Value::from),
        "{answer:#}"
    );
}

#[test]
fn the_best_bundle_that_all_filters_allow_is_chosen() {
    check(&[], "foo.v2.0.0", None);
    check(&["--channel", "stable"], "foo.v1.1.0", None);
    check(&["--version", "1.0.x"], "foo.v1.0.0", None);
}

#[test]
fn the_answer_is_yaml_or_a_name_on_request() {
    let files = Files::new(&[("cat/catalog.json", CATALOG)]);
    let printed = |format: &str, range: &str| {
        let catalog = ["resolve", "foo", "--catalog", "cat", "--version", range];
        olm(&files.path(""), &[&catalog[..], &["-o", format]].concat())
    };
    assert_eq!(printed("name", "1.0.x").stdout, "foo.v1.0.0\n");
    assert!(printed("yaml", "1.0.x").stdout.contains("\nresolved: true\n"));
    assert_eq!(printed("text", "1.0.x").stdout, printed("table", "1.0.x").stdout);
    let refused = printed("yaml", ">=3.0.0");
    assert!(
        refused.status == 1 && refused.stdout.contains("resolved: false\n"),
        "{refused:?}"
    );
    let refused = printed("name", ">=3.0.0");
    assert!(
        refused.stdout.is_empty() && refused.stderr.starts_with("refused: "),
        "{refused:?}"
    );
}

#[test]
fn a_bundle_without_an_image_is_reported() {
    let image = "\"image\":\"reg.example/foo:1.0.0\"";
    assert!(CATALOG.contains(image));
    let catalog = CATALOG.replace(image, "\"image\":\"\"");
    let files = Files::new(&[("cat/catalog.json", &catalog)]);
    let warnings = |range: &str| {
        let run = olm(
            &files.path(""),
            &["resolve", "foo", "--catalog", "cat", "--version", range],
        );
        assert_eq!(run.status, 0, "{run:?}");
        run.stderr
    };
    assert_eq!(
        warnings("1.0.0"),
        "warning: foo.v1.0.0 has no image in the catalog and cannot be installed\n"
    );
    assert_eq!(warnings("2.0.0"), "");
}

#[test]
fn the_installed_bundle_is_followed_along_edges() {
    check(&["--installed", "foo.v1.0.0"], "foo.v1.1.0", Some("replaces"));
    check(
        &["--installed", "foo.v1.1.0@1.1.0"],
        "foo.v1.1.0",
        Some("current"),
    );
    check(
        &["--installed", "foo.v1.0.0", "--policy", "SelfCertified"],
        "foo.v2.0.0",
        None,
    );
}

#[test]
fn the_catalog_of_higher_priority_wins() {
    let files = Files::new(&[("one.json", CATALOG), ("two.json", CATALOG)]);
    let catalogs = ["--catalog", "one.json", "--catalog", "b=two.json"];
    let (status, answer) = resolve(&files, &[&catalogs[..], &["--priority", "b=1"]].concat());
    assert_eq!((status, &answer["catalog"]), (0, &Value::from("b")), "{answer:#}");
    let (status, answer) = resolve(&files, &catalogs);
    assert_eq!(
        (status, &answer["resolved"]),
        (1, &Value::Bool(false)),
        "{answer:#}"
    );
}

#[test]
fn a_refusal_explains_itself() {
    let files = Files::new(&[("cat.json", CATALOG)]);
    let run = olm(
        &files.path(""),
        &["resolve", "foo", "--catalog", "cat.json", "--version", ">=3.0.0"],
    );
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(
        run.stderr
            .starts_with("refused: no bundles found for package \"foo\" matching version \">=3.0.0\"\n"),
        "{run:?}"
    );
    let (status, answer) = resolve(&files, &["--catalog", "cat.json", "--version", ">=3.0.0"]);
    assert_eq!(status, 1);
    assert!(
        answer["findings"]
            .as_array()
            .is_some_and(|findings| !findings.is_empty()),
        "{answer:#}"
    );
}

#[test]
fn a_refusal_suggests_similar_names() {
    let files = Files::new(&[("cat.json", &CATALOG.replace("\"foo", "\"greeter"))]);
    let check = |arguments: &[&str], hint: &str| {
        let run = olm(
            &files.path(""),
            &[&["resolve", "--catalog", "cat.json"], arguments].concat(),
        );
        assert_eq!(run.status, 1, "{run:?}");
        let hints: Vec<&str> = run
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("hint: "))
            .collect();
        assert_eq!(hints, [hint], "{run:?}");
    };
    check(&["Greeter"], "did you mean \"greeter\" of catalog \"cat\"?");
    check(&["greter"], "did you mean \"greeter\" of catalog \"cat\"?");
    check(
        &["other"],
        "check the name of the package: `olm search`, for a source with `--catalog SOURCE`, shows what the catalogs have",
    );
    check(
        &["greeter", "--channel", "stable", "--version", "2.x"],
        "greeter.v2.0.0 fits the version range, but is in another channel: add --channel \"fast\"",
    );
}

#[test]
fn people_get_the_answer_as_text() {
    let deprecations = "{\"schema\":\"olm.deprecations\",\"package\":\"foo\",\"entries\":[{\"reference\":{\"schema\":\
                        \"olm.package\"},\"message\":\"Use bar.\"}]}";
    let files = Files::new(&[
        ("cat.json", CATALOG),
        ("old.json", &format!("{CATALOG}{deprecations}")),
    ]);
    let run = olm(
        &files.path(""),
        &[
            "resolve",
            "foo",
            "--catalog",
            "old.json",
            "--installed",
            "foo.v1.0.0",
        ],
    );
    assert_eq!(
        run.stdout,
        "bundle    foo.v1.1.0\nversion   1.1.0\nimage     reg.example/foo:1.1.0\ncatalog   old\nchannels  stable\n\
         edge      replaces\ndeprecated: Use bar.\n",
        "{run:?}"
    );
}

#[test]
fn the_installed_bundle_has_a_version() {
    let files = Files::new(&[("cat.json", CATALOG)]);
    let run = olm(
        &files.path(""),
        &[
            "resolve",
            "foo",
            "--catalog",
            "cat.json",
            "--installed",
            "foo.v0.9.0",
        ],
    );
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            1,
            "error: cannot find the version of foo.v0.9.0 in a catalog; use foo.v0.9.0@VERSION\n"
        )
    );
}

/// The output contains the requirements of the chosen bundle.
#[test]
fn requirements_of_the_chosen_bundle_are_shown() {
    let check = |property: &str, lines: &[&str], expected: Value| {
        let last = r#""version":"2.0.0"}}]"#;
        let more = format!(r#""version":"2.0.0"}}}},{property}]"#);
        let files = Files::new(&[("cat.json", &CATALOG.replace(last, &more))]);
        let run = olm(&files.path(""), &["resolve", "foo", "--catalog", "cat.json"]);
        let (_, shown) = run.stdout.split_once("edge      none\n").unwrap_or_default();
        let shown: Vec<&str> = shown.lines().collect();
        assert_eq!((run.status, &shown[..]), (0, lines), "{run:?}");
        let (_, answer) = resolve(&files, &["--catalog", "cat.json"]);
        assert_eq!(
            answer.get("requires"),
            Some(&expected).filter(|expected| !expected.is_null())
        );
    };
    check(r#"{"type":"color","value":"red"}"#, &[], Value::Null);
    check(
        r#"{"type":"olm.gvk.required","value":{"group":"g.example", "version":"v1","kind":"K"}}"#,
        &[r#"requires  olm.gvk.required {"group":"g.example","kind":"K","version":"v1"}"#],
        serde_json::json!([{
            "type": "olm.gvk.required", "value": {"group": "g.example", "version": "v1", "kind": "K"}, "fault": null,
        }]),
    );
    check(
        r#"{"type":"olm.package.required","value":{"packageName":"bar","versionRange":"^1"}}"#,
        &[
            r#"requires  olm.package.required {"packageName":"bar","versionRange":"^1"}"#,
            "          which cannot be satisfied: Invalid semver format version \"^1\": Could not parse Range \"^1\": Could not parse comparator \"^\" in \"^1\"",
        ],
        serde_json::json!([{
            "type": "olm.package.required", "value": {"packageName": "bar", "versionRange": "^1"},
            "fault": "Invalid semver format version \"^1\": Could not parse Range \"^1\": Could not parse comparator \"^\" in \"^1\"",
        }]),
    );
}
