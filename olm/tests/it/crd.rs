//! `olm crd` as users run it.

use serde_json::Value;

use crate::support::{Files, olm};

fn definition(schema: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: greetings.example.com}}\n\
         spec:\n  group: example.com\n  scope: Namespaced\n  names: {{plural: greetings, kind: Greeting}}\n  \
         versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {schema}}}\n"
    )
}

fn files() -> Files {
    let old = definition("{type: object, properties: {a: {type: string}}}");
    let new = definition("{type: object, properties: {a: {type: string, pattern: x}, b: {type: string}}}");
    let other = old.replace("greetings", "backups");
    Files::new(&[
        ("old.yaml", &format!("{old}---\n{other}")),
        ("new/manifests/crd.yaml", &new),
        ("new/metadata/annotations.yaml", "annotations: {}\n"),
        ("plain/crd.yaml", &old),
        ("none/map.yaml", "kind: ConfigMap\n"),
    ])
}

#[test]
fn everything_that_is_found_is_said_and_the_policy_decides() {
    let files = files();
    let pattern = "v1: ^.a: pattern: pattern added : \"\" -> \"x\"";
    let removed = "backups.example.com is not in NEW: it is removed with all objects of its kind\n";
    let run = olm(&files.path(""), &["crd", "check", "old.yaml", "new"]);
    assert_eq!(
        (run.status, run.stdout, run.stderr.as_str()),
        (
            1,
            format!("{removed}greetings.example.com may not be replaced\n  error: {pattern}\n"),
            "1 finding blocks the change\n"
        )
    );
    let run = olm(
        &files.path(""),
        &["crd", "check", "old.yaml", "new", "--policy", "pattern=Warn"],
    );
    assert_eq!(
        (run.status, run.stdout),
        (
            0,
            format!("{removed}greetings.example.com may be replaced, with warnings\n  warning: {pattern}\n")
        )
    );
    let run = olm(
        &files.path(""),
        &["crd", "check", "old.yaml", "new", "-o", "json"],
    );
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        report.pointer("/definitions/1/findings/0/check"),
        Some(&Value::from("pattern"))
    );
    let run = olm(&files.path(""), &["crd", "check", "plain", "plain/crd.yaml"]);
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (0, "greetings.example.com may be replaced\n")
    );
}

#[test]
fn definitions_that_cannot_be_compared_are_an_error() {
    let files = files();
    for (arguments, status, part) in [
        (
            &["old.yaml"][..],
            1,
            "name two sources, OLD and NEW, or one source and --cluster",
        ),
        (
            &["old.yaml", "none"],
            1,
            "\"none\" has no custom resource definition",
        ),
        (&["old.yaml", "absent"], 1, "is not a file or directory"),
        (
            &["old.yaml", "new", "--policy", "patern=Off"],
            2,
            "there is no check \"patern\"",
        ),
        (&["old.yaml", "new", "--kubeconfig", "x"], 2, "--cluster"),
    ] {
        let arguments = [&["crd", "check"][..], arguments].concat();
        let run = olm(&files.path(""), &arguments);
        assert!(
            run.status == status && run.stderr.contains(part),
            "{arguments:?} {run:?}"
        );
    }
}
