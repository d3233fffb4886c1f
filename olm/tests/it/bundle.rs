//! `olm bundle` as users run it; `olm bundle validate` is in bundle_validate.rs.

use serde_json::Value;

use crate::support::{ANNOTATIONS, CSV, Files, bundle, olm};

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

    // Objects are shown in spite of missing requirements.
    let dependencies =
        "dependencies:\n- {type: olm.package, value: {packageName: other, version: '>1.0.0'}}\n";
    let files = Files::new(&[
        ("manifests/csv.yaml", CSV),
        ("metadata/annotations.yaml", ANNOTATIONS),
        ("metadata/dependencies.yaml", dependencies),
    ]);
    let run = olm(&files.path(""), &["bundle", "render", ".", "-n", "greetings"]);
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (0, "note: the bundle requires package other (>1.0.0)\n")
    );
    assert_eq!(run.stdout, yaml);
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
    assert!(
        run.stderr.contains("wathcNamespace")
            && !run.stderr.contains("ClusterExtension")
            && run
                .stderr
                .contains("\nhint: the namespace to watch is given by --watch-namespace"),
        "{run:?}"
    );
}

#[test]
fn bundles_are_converted_to_a_catalog() {
    let files = bundle();
    let run = olm(
        &files.path(""),
        &[
            "bundle",
            "convert",
            ".",
            "--image-ref-template",
            "reg.example/{package}:v{version}",
            "-o",
            "jsonl",
            "--migrate",
        ],
    );
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(
        run.stdout,
        concat!(
            r#"{"defaultChannel":"stable","name":"greeter","schema":"olm.package"}"#,
            "\n",
            r#"{"entries":[{"name":"greeter.v1.0.0"}],"name":"stable","package":"greeter","schema":"olm.channel"}"#,
            "\n",
            r#"{"image":"reg.example/greeter:v1.0.0","name":"greeter.v1.0.0","package":"greeter","properties":["#,
            r#"{"type":"olm.package","value":{"packageName":"greeter","version":"1.0.0"}},"#,
            r#"{"type":"olm.csv.metadata","value":{"apiServiceDefinitions":{},"crdDescriptions":{},"displayName":"Greeter","#,
            r#""installModes":[{"supported":true,"type":"AllNamespaces"},{"supported":true,"type":"OwnNamespace"},"#,
            r#"{"supported":true,"type":"SingleNamespace"},{"supported":false,"type":"MultiNamespace"}],"provider":{}}}],"#,
            r#""relatedImages":[{"image":"reg.example/greeter:1.0.0","name":""},{"image":"reg.example/greeter:v1.0.0","name":""}],"#,
            r#""schema":"olm.bundle"}"#,
            "\n",
        )
    );
}

#[test]
fn a_bundle_that_is_begun_passes_and_is_never_overwritten() {
    let definition = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.x.example}
spec:
  group: x.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
    let files = Files::new(&[("widgets.yaml", definition), ("other.yaml", "kind: Other\n")]);
    let here = files.path("");
    let init = |more: &[&str]| {
        let common = ["bundle", "init", "new", "--name", "widgets"];
        olm(&here, &[&common, more].concat())
    };
    let image = "registry.example/widgets:v0.1.0";
    for (arguments, expected) in [
        (
            &["--version", "one", "--image", image][..],
            "error: invalid version \"one\"",
        ),
        (&["--version", "one", "--image", image], "for example 0.1.0"),
        (
            &["--version", "0.1.0", "--image", "A B"],
            "for example registry.example/my-operator:v0.1.0",
        ),
        (
            &["--version", "0.1.0", "--image", image, "--crd", "other.yaml"],
            "error: cannot take other.yaml: not a CustomResourceDefinition",
        ),
        (
            &[
                "--version",
                "0.1.0",
                "--image",
                image,
                "--default-channel",
                "beta",
            ],
            "add --channel beta",
        ),
    ] {
        let run = init(arguments);
        assert!(run.status == 1 && run.stderr.contains(expected), "{run:?}");
        assert!(!files.path("new").exists(), "{arguments:?}");
    }
    let good = ["--version", "0.1.0", "--image", image, "--crd", "widgets.yaml"];
    let run = init(&good);
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (
            0,
            "new/manifests/widgets.clusterserviceversion.yaml\nnew/manifests/widgets.x.example.yaml\n\
             new/metadata/annotations.yaml\n"
        ),
        "{run:?}"
    );
    assert!(
        run.stderr
            .contains("olm bundle push new REGISTRY/widgets-bundle:v0.1.0"),
        "{run:?}"
    );
    let run = olm(&here, &["bundle", "validate", "new"]);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "no problems found\n")
    );
    let run = olm(&here, &["bundle", "render", "new", "-n", "widgets"]);
    assert_eq!(run.status, 0, "{run:?}");
    let before = std::fs::read(files.path("new/metadata/annotations.yaml")).expect("it is there");
    let run = init(&["--version", "0.2.0", "--image", image]);
    assert!(
        run.status == 1
            && run.stderr.contains(
                "error: new/manifests exists already, and nothing is overwritten\nhint: name a directory"
            ),
        "{run:?}"
    );
    let after = std::fs::read(files.path("new/metadata/annotations.yaml")).expect("it is there");
    assert_eq!(before, after);
}

#[test]
fn converting_tells_of_bundles_without_an_image() {
    let run = olm(&bundle().path(""), &["bundle", "convert", ".", "-o", "jsonl"]);
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            0,
            "warning: greeter.v1.0.0 has no image in the catalog and cannot be installed\nhint: push the bundle and \
             convert its image, or say where it is going to be by --image-ref-template \
             REGISTRY/{package}-bundle:v{version}\n"
        )
    );
    assert!(run.stdout.contains("\"image\":\"\""), "{run:?}");
}

#[test]
fn converting_reports_lost_parts_once() {
    let default = "annotations:\n  operators.operatorframework.io.bundle.channel.default.v1: fast\n";
    let files = Files::new(&[
        ("manifests/csv.yaml", CSV),
        (
            "metadata/annotations.yaml",
            &ANNOTATIONS.replace("annotations:\n", default),
        ),
        (
            "metadata/properties.yaml",
            "properties: [{type: relatedImage, name: a}]\n",
        ),
    ]);
    let run = olm(
        &files.path(""),
        &[
            "bundle",
            "convert",
            ".",
            "-o",
            "jsonl",
            "--image-ref-template",
            "reg.example/{package}:v{version}",
        ],
    );
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            0,
            "warning: metadata/properties.yaml: skipped a property of type \"relatedImage\" without a value\n\
             warning: the default channel that greeter.v1.0.0 names, \"fast\", is none of the channels of package \
             \"greeter\": the default channel is \"stable\"\n"
        )
    );
    std::fs::write(files.path("catalog.jsonl"), run.stdout).expect("the file can be written");
    let run = olm(&files.path(""), &["catalog", "validate", "catalog.jsonl"]);
    assert_eq!(run.status, 0, "{run:?}");
}

#[test]
fn a_misspelled_word_in_the_reference_of_an_image_is_refused() {
    for verb in [&["bundle", "convert"] as &[&str], &["catalog", "render"]] {
        let run = |template: &str| {
            let arguments = [verb, &[".", "--image-ref-template", template]].concat();
            olm(&bundle().path(""), &arguments)
        };
        let refused = run("reg.example/{pakage}:v{version}");
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(
            refused
                .stderr
                .contains("{package}, {name} and {version} are all that may stand in braces"),
            "{refused:?}"
        );
        let none = run("reg.example/A B:{version}");
        assert!(
            none.status == 2
                && none
                    .stderr
                    .contains("\"reg.example/A B:1.0.0\" is not an image reference"),
            "{none:?}"
        );
        for template in [
            "reg.example/{package}:v{version}",
            "reg.example/{{.Package}}:v{{.Version}}",
        ] {
            let taken = run(template);
            assert_eq!(taken.status, 0, "{taken:?}");
            assert!(taken.stdout.contains("reg.example/greeter:v1.0.0"), "{taken:?}");
        }
    }
}
