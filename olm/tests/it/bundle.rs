//! `olm bundle` as users run it.

use crate::support::{ANNOTATIONS, CSV, Files, bundle, olm};
use serde_json::Value;

#[test]
fn a_sound_bundle_passes_in_silence() {
    let run = olm(&bundle().path(""), &["bundle", "validate", "."]);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "no faults found\n")
    );
}

#[test]
fn faults_and_what_cannot_be_installed_are_told_apart() {
    let csv = CSV.replace("      - name: greeter\n", "      - name: Greeter_\n");
    let dependencies =
        "dependencies:\n- {type: olm.package, value: {packageName: other, version: '>1.0.0'}}\n";
    let files = Files::new(&[
        ("manifests/csv.yaml", &csv),
        ("metadata/annotations.yaml", ANNOTATIONS),
        ("metadata/dependencies.yaml", dependencies),
    ]);
    let run = olm(&files.path(""), &["bundle", "validate", ".", "-o", "json"]);
    let report: Value = serde_json::from_str(&run.stdout).expect("the report is JSON");
    assert_eq!(
        (run.status, &report["passed"]),
        (1, &Value::Bool(false)),
        "{report:#}"
    );
    let contains = |list: &Value, text: &str| list[0].as_str().unwrap_or_default().contains(text);
    assert!(contains(&report["errors"], "Greeter_"), "{report:#}");
    assert!(contains(&report["warnings"], "other"), "{report:#}");
}

#[test]
fn a_directory_that_is_no_bundle_says_what_is_missing() {
    let run = olm(&Files::new(&[]).path(""), &["bundle", "validate", "."]);
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (1, "error: open metadata/annotations.yaml: file does not exist\n")
    );
}

#[test]
fn the_rendered_objects_can_be_applied() {
    let files = bundle();
    let run = olm(
        &files.path(""),
        &["bundle", "render", ".", "-n", "greetings", "-o", "json"],
    );
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let list: Value = serde_json::from_str(&run.stdout).expect("the objects are JSON");
    let items = list["items"].as_array().expect("there is a list");
    let deployment = items
        .iter()
        .find(|item| item["kind"] == "Deployment")
        .expect("there is a Deployment");
    assert_eq!(deployment["metadata"]["namespace"], "greetings");

    let yaml = olm(&files.path(""), &["bundle", "render", ".", "-n", "greetings"]).stdout;
    assert_eq!(yaml.matches("---\n").count(), items.len(), "{yaml}");
}

#[test]
fn the_namespace_to_watch_can_be_chosen() {
    let files = bundle();
    let watched = |arguments: &[&str]| {
        let run = olm(
            &files.path(""),
            &[&["bundle", "render", ".", "-n", "here", "-o", "json"], arguments].concat(),
        );
        let list: Value = serde_json::from_str(&run.stdout).expect("the objects are JSON");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let deployment = items
            .into_iter()
            .find(|item| item["kind"] == "Deployment")
            .unwrap_or_default();
        deployment["spec"]["template"]["metadata"]["annotations"]["olm.targetNamespaces"].clone()
    };
    assert_eq!(watched(&[]), "");
    assert_eq!(watched(&["--watch-namespace", "there"]), "there");
    std::fs::write(files.path("config.yaml"), "watchNamespace: elsewhere\n")
        .expect("the file can be written");
    assert_eq!(watched(&["--config", "config.yaml"]), "elsewhere");
}

#[test]
fn a_configuration_that_does_not_fit_is_refused() {
    let files = bundle();
    std::fs::write(files.path("config.yaml"), "wathcNamespace: elsewhere\n")
        .expect("the file can be written");
    let run = olm(
        &files.path(""),
        &["bundle", "render", ".", "-n", "here", "--config", "config.yaml"],
    );
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("wathcNamespace"), "{run:?}");
}
