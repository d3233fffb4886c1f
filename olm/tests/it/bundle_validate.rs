//! `olm bundle validate` as users run it.

use crate::support::{ANNOTATIONS, CSV, Files, bundle, olm};
use serde_json::Value;

#[test]
fn a_sound_bundle_passes_with_suggestions() {
    let run = olm(&bundle().path(""), &["bundle", "validate", "."]);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (
            0,
            "manifests/csv.yaml:1: warning: (greeter.v1.0.0) annotations not found [clusterserviceversion]\n  \
             hint: no API is provided, so nothing is missing; the annotation alm-examples: '[]' says so to tools\n\
             manifests/csv.yaml:1: warning: (greeter.v1.0.0) csv.Spec.minKubeVersion is not informed. It is recommended \
             you provide this information. Otherwise, it would mean that your operator project can be distributed and \
             installed in any cluster version available, which is not necessarily the case for all projects. \
             [clusterserviceversion]\n  hint: set spec.minKubeVersion, for example 1.30.0\n",
            ""
        )
    );
    let quiet = CSV
        .replace("metadata:\n", "metadata:\n  annotations: {alm-examples: '[]'}\n")
        .replace(
            "  version: 1.0.0\n",
            "  version: 1.0.0\n  minKubeVersion: 1.27.0\n",
        );
    let files = Files::new(&[
        ("manifests/csv.yaml", &quiet),
        ("metadata/annotations.yaml", ANNOTATIONS),
    ]);
    let run = olm(&files.path(""), &["bundle", "validate", "."]);
    assert_eq!(
        (run.status, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "no problems found\n")
    );
}

#[test]
fn examples_are_asked_for_where_there_is_an_api_to_show() {
    let check = |owned: &str, annotations: &str, expected: Option<&str>| {
        let csv = CSV
            .replace("metadata:\n", &format!("metadata:\n{annotations}"))
            .replace("  installModes:", &format!("{owned}  installModes:"));
        let files = Files::new(&[
            ("manifests/csv.yaml", &csv),
            ("metadata/annotations.yaml", ANNOTATIONS),
        ]);
        let run = olm(&files.path(""), &["bundle", "validate", "."]);
        let hint = run.stdout.lines().find(|line| line.contains("alm-examples"));
        assert_eq!(hint.map(str::trim), expected, "{}", run.stdout);
    };
    let owned = "  customresourcedefinitions: {owned: [{name: foos.x.example, version: v1, kind: Foo}]}\n";
    let nothing =
        "hint: no API is provided, so nothing is missing; the annotation alm-examples: '[]' says so to tools";
    let missing = "hint: add the annotation alm-examples with one example of each provided API";
    check("", "", Some(nothing));
    check("", "  annotations: {a: b}\n", Some(nothing));
    check("", "  annotations: {alm-examples: '[]'}\n", None);
    check(owned, "", Some(missing));
    check(owned, "  annotations: {a: b}\n", Some(missing));
    check(
        owned,
        "  annotations: {alm-examples: '[]'}\n",
        Some("hint: add an example of the API to the annotation alm-examples"),
    );
}

#[test]
fn further_checks_are_selected_by_name() {
    let files = bundle();
    let run = olm(
        &files.path(""),
        &["bundle", "validate", ".", "--select", "operatorhub/v2"],
    );
    assert_eq!(run.status, 1);
    assert!(
        run.stdout.contains(
            "manifests/csv.yaml:1: error: (greeter.v1.0.0) csv.Spec.Provider.Name not specified [operatorhub/v2]"
        ),
        "{}",
        run.stdout
    );
    let run = olm(
        &files.path(""),
        &["bundle", "validate", ".", "--select", "beauty"],
    );
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            1,
            "error: unknown check \"beauty\"; run with `--select list` to see all names\n"
        )
    );
    for arguments in [
        &["bundle", "validate"][..],
        &["bundle", "validate", "--select", "icons"],
    ] {
        let run = olm(&files.path(""), arguments);
        assert_eq!(run.status, 2, "{}", run.stderr);
        assert!(run.stderr.contains("\n  <SOURCE>\n"), "{}", run.stderr);
    }
    let run = olm(&files.path(""), &["bundle", "validate", "--select", "list"]);
    assert!(
        run.stdout
            .contains("\nicons                  yes      Whether the icons are pictures.\n")
            && run
                .stdout
                .contains("\ngood-practices                  Recommendations.\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn faults_and_bundles_that_cannot_be_installed_are_distinguished() {
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
    let contains = |list: &Value, text: &str| {
        let messages = list.as_array().into_iter().flatten();
        messages
            .filter_map(Value::as_str)
            .any(|message| message.contains(text))
    };
    assert!(contains(&report["errors"], "Greeter_"), "{report:#}");
    assert!(contains(&report["warnings"], "other"), "{report:#}");
}

#[test]
fn constraints_are_checked_wherever_they_are_written() {
    let long = format!("{{failureMessage: {}, all: {{}}}}", "m".repeat(65 << 10));
    let check = |value: &str, expected: Option<&str>| {
        let entry = format!("- {{type: olm.constraint, value: {value}}}\n");
        for (path, key) in [
            ("metadata/dependencies.yaml", "dependencies"),
            ("metadata/properties.yaml", "properties"),
        ] {
            let files = Files::new(&[
                ("manifests/csv.yaml", CSV),
                ("metadata/annotations.yaml", ANNOTATIONS),
                (path, &format!("{key}:\n{entry}")),
            ]);
            let run = olm(&files.path(""), &["bundle", "validate", "."]);
            match expected {
                None => assert_eq!(run.status, 0, "{path} {value}: {}", run.stdout),
                Some(text) => assert!(
                    run.status == 1 && run.stdout.contains(text),
                    "{path}: {}",
                    run.stdout
                ),
            }
        }
    };
    check("{package: {packageName: p, versionRange: '>=1.0.0'}}", None);
    check("{package: {name: p, version: '>=1.0.0'}}", None);
    check(
        "{all: {constraints: [{gvk: {group: g, version: v1, kind: K}}]}}",
        None,
    );
    check("{cel: {rule: 'properties.exists(p, p.type == \"a\")'}}", None);
    check(
        "{package: {name: p, version: '^1'}}",
        Some("invalid requirement of type olm.constraint: Invalid semver format version"),
    );
    check(
        "{cel: {rule: 'properties.exists('}}",
        Some("Invalid CEL expression"),
    );
    check(
        "{package: {name: p, version: '1.0.0'}, cel: {rule: 'true'}}",
        Some("exactly one of"),
    );
    check("{failureMessage: m}", Some("The CEL field is missing"));
    check(&long, Some("greater than max constraint size 65536 bytes"));
}

#[test]
fn an_icon_that_is_not_shown_is_reported() {
    let check = |icon: &str, expected: Option<&str>| {
        let csv = CSV.replace(
            "  version: 1.0.0\n",
            &format!("  version: 1.0.0\n  icon: [{icon}]\n"),
        );
        let files = Files::new(&[
            ("manifests/csv.yaml", &csv),
            ("metadata/annotations.yaml", ANNOTATIONS),
        ]);
        let run = olm(&files.path(""), &["bundle", "validate", "."]);
        let found = run.stdout.lines().find(|line| line.contains("[icons]"));
        assert_eq!(run.status, 0, "{}", run.stdout);
        match expected {
            None => assert_eq!(found, None, "{icon}"),
            Some(text) => assert!(
                found.is_some_and(|line| line.contains(text)),
                "{icon}: {}",
                run.stdout
            ),
        }
    };
    check("{base64data: PHN2Zy8+, mediatype: image/svg+xml}", None);
    check(
        "{base64data: PHN2Zy8+, mediatype: image/png}",
        Some("its data is image/svg+xml"),
    );
    check("{base64data: PHN2Zy8+}", Some("has no media type"));
    check(
        "{base64data: aGVsbG8=, mediatype: image/png}",
        Some("is not an image"),
    );
    check("{mediatype: image/png}", Some("has no data"));
    check("{base64data: '%', mediatype: image/png}", Some("must be base64"));
}

#[test]
fn a_directory_that_is_no_bundle_is_refused_with_the_missing_files() {
    let files = Files::new(&[("manifests/csv.yaml", CSV), ("metadata/other.yaml", "a: 1\n")]);
    let run = olm(&files.path(""), &["bundle", "validate", "."]);
    assert_eq!(run.status, 1);
    for expected in [
        "error: Could not find annotations file [format]\n",
        "error: open metadata/annotations.yaml: file does not exist [install]\n",
    ] {
        assert!(run.stdout.contains(expected), "{}", run.stdout);
    }
    let run = olm(&Files::new(&[]).path(""), &["bundle", "validate", "."]);
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            1,
            "error: \".\" is not a bundle: it lacks the directories manifests and metadata\n\
             hint: of a bundle, name the directory that holds both directories; `olm catalog validate` and `olm catalog \
             list` are for catalogs\n"
        )
    );
}

#[test]
fn an_unreadable_file_of_a_bundle_is_reported_once_with_its_place() {
    let files = Files::new(&[
        ("manifests/csv.yaml", "kind: [\n"),
        ("metadata/annotations.yaml", ANNOTATIONS),
    ]);
    let run = olm(&files.path(""), &["bundle", "validate", "."]);
    assert_eq!(run.status, 1);
    let line = run.stdout.lines().find(|line| line.contains("csv.yaml"));
    let line = line.unwrap_or_else(|| panic!("{run:?}"));
    assert_eq!(line.matches("line ").count(), 1, "{line}");
}

#[test]
fn content_that_no_catalog_accepts_is_reported() {
    let check = |file: &str, from: &str, to: &str, expected: Option<&str>| {
        let mut given = [
            ("manifests/csv.yaml", CSV.to_owned()),
            ("metadata/annotations.yaml", ANNOTATIONS.to_owned()),
            ("metadata/properties.yaml", "properties: []\n".to_owned()),
        ];
        for (path, text) in &mut given {
            if path.ends_with(file) {
                assert!(text.contains(from), "{from}");
                *text = text.replacen(from, to, 1);
            }
        }
        let files = Files::new(&given.each_ref().map(|(path, text)| (*path, text.as_str())));
        let run = olm(&files.path(""), &["bundle", "validate", "."]);
        let found: Vec<&str> = run
            .stdout
            .lines()
            .filter(|line| line.ends_with("[publish]"))
            .collect();
        assert_eq!(run.status, 0, "{to}: {}", run.stdout);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{to}: {found:?}");
        for (line, expected) in found.iter().zip(expected) {
            assert!(
                line.starts_with("warning: ") && line.contains(expected),
                "{to}: {line}"
            );
        }
    };
    let version = |text: &str, expected| check("csv.yaml", "version: 1.0.0\n", text, expected);
    version("version: 1.0.0\n", None);
    version("version: 1.0.0-rc.1+2\n", None);
    version("version: '1.0'\n", Some("spec.version is none: "));
    version("version: v1.0.0\n", Some("spec.version is none: "));
    version("maturity: alpha\n", Some("spec.version is missing; "));
    let range = |text: &str, expected| {
        let annotations = format!("metadata:\n  annotations: {{olm.skipRange: '{text}'}}\n");
        check("csv.yaml", "metadata:\n", &annotations, expected);
    };
    range(">=1.0.0 <1.2.0", None);
    range("", None);
    range(
        ">=v1.9.0 <v1.11.1",
        Some("olm.skipRange \">=v1.9.0 <v1.11.1\" is not a version range"),
    );
    let channel = |text: &str, expected| {
        let key = "operators.operatorframework.io.bundle.channel.default.v1";
        check(
            "annotations.yaml",
            "annotations:\n",
            &format!("annotations:\n  {key}: {text}\n"),
            expected,
        );
    };
    channel("stable", None);
    channel(
        "fast",
        Some("the default channel \"fast\" is not among the bundle's channels (stable)"),
    );
    let maximum = |values: &[&str], expected| {
        let property = |value: &&str| format!("- {{type: olm.maxOpenShiftVersion, value: {value}}}\n");
        let properties: String = values.iter().map(property).collect();
        check("properties.yaml", " []\n", &format!("\n{properties}"), expected);
    };
    maximum(&["'4.18'"], None);
    maximum(&["4.18"], None);
    maximum(
        &["'4'"],
        Some("olm.maxOpenShiftVersion: \"4\" is not of the form MAJOR.MINOR"),
    );
    maximum(
        &["null"],
        Some("olm.maxOpenShiftVersion: null is neither a version in quotes nor a number"),
    );
    maximum(
        &["'4.18'", "'4.18'"],
        Some("more than one olm.maxOpenShiftVersion"),
    );
}

#[test]
fn fields_that_do_not_fit_a_deployment_are_reported() {
    let check = |from: &str, to: &str, expected: (i32, &str)| {
        assert!(CSV.contains(from), "{from}");
        let files = Files::new(&[
            ("manifests/csv.yaml", CSV.replace(from, to).as_str()),
            ("metadata/annotations.yaml", ANNOTATIONS),
        ]);
        let run = olm(&files.path(""), &["bundle", "validate", "."]);
        let found: Vec<&str> = run
            .stdout
            .lines()
            .filter(|line| line.contains("Deployment \"greeter\""))
            .collect();
        assert_eq!(
            (run.status, found.join("\n").as_str()),
            expected,
            "{}",
            run.stdout
        );
    };
    check("replicas: 1", "replicas: 2", (0, ""));
    check(
        "replicas: 1",
        "replicaz: 1",
        (
            0,
            "manifests/csv.yaml:1: warning: Deployment \"greeter\": unknown field replicaz is ignored [install]",
        ),
    );
    check(
        "replicas: 1",
        "replicas: one",
        (
            1,
            "manifests/csv.yaml:1: error: Deployment \"greeter\": the API server refuses spec.replicas: invalid type: \
             string \"one\", expected a whole number [install]",
        ),
    );
}

/// Validates the bundle with one text for another and with more files.
fn reports(from: &str, to: &str, more: &[(&str, &str)], status: i32, expected: &[&str]) {
    assert!(CSV.contains(from), "{from}");
    let csv = CSV.replacen(from, to, 1);
    let mut files = vec![
        ("manifests/csv.yaml", csv.as_str()),
        ("metadata/annotations.yaml", ANNOTATIONS),
    ];
    files.extend(more);
    let files = Files::new(&files);
    let run = olm(&files.path(""), &["bundle", "validate", "."]);
    assert_eq!(run.status, status, "{}", run.stdout);
    for line in expected {
        assert!(run.stdout.contains(line), "{line}\n{}", run.stdout);
    }
}

/// Faults that pass the recorded validators but prevent or change the installation, each with its place, reason and
/// remedy.
#[test]
fn content_that_would_be_installed_differently_is_reported() {
    for (version, expected) in [
        (
            "version: 1.0",
            "spec.version must be a string, not a number [install]\n  hint: quote the value",
        ),
        (
            "version: ''",
            "spec.version: \"\" is not a version, such as 1.2.3 [install]\n  hint: correct the value",
        ),
    ] {
        reports(
            "version: 1.0.0",
            version,
            &[],
            1,
            &[&format!("manifests/csv.yaml:1: error: {expected}")],
        );
    }
    let image = "image: 'reg.example/greeter:1.0.0'";
    reports(
        image,
        &format!("{image}, resources: {{limits: {{cpu: lots}}}}"),
        &[],
        1,
        &[
            "manifests/csv.yaml:1: error: Deployment \"greeter\": the API server refuses \
             spec.template.spec.containers[0].resources.limits.cpu: \"lots\" is not a quantity, such as 500m, 2 or 128Mi \
             [install]\n  hint: correct the value",
        ],
    );
    reports(
        image,
        &format!("{image}, env: [{{name: A, value: a}}, {{name: A, value: b}}]"),
        &[],
        0,
        &[
            "manifests/csv.yaml:1: warning: Deployment \"greeter\": container \"greeter\" sets the variable \"A\" more \
             than once; the last one counts [install]\n  hint: keep one of them",
        ],
    );
    reports(
        "serviceAccountName",
        "serviceAcountName",
        &[],
        0,
        &["unknown field template.spec.serviceAcountName is ignored [install]\n  hint: "],
    );
    reports(
        "labels: {app: greeter}",
        "labels: {app: other}",
        &[],
        1,
        &[
            "manifests/csv.yaml:1: error: Deployment \"greeter\": the API server refuses spec.selector: the template has no \
             label app: \"greeter\" [install]\n  hint: add the labels of spec.selector.matchLabels",
        ],
    );
    reports(
        "replicas: 1",
        "replicas: -1",
        &[],
        1,
        &["error: Deployment \"greeter\": the API server refuses spec.replicas: -1 is below zero [install]"],
    );
    reports(
        "image: 'reg.example/greeter:1.0.0'",
        "image: 'reg.example/greeter:1.0.0', resources: {limits: {cpu: much, memory: lots}}",
        &[],
        1,
        &[
            ".limits.cpu: \"much\" is not a quantity",
            ".limits.memory: \"lots\" is not a quantity",
        ],
    );
    reports(
        "spec:\n",
        "spec:\n  colour: red\n",
        &[],
        0,
        &[
            "manifests/csv.yaml:1: warning: unknown field spec.colour of the ClusterServiceVersion is ignored [install]",
            "  hint: remove it, or correct its name or position",
        ],
    );
    reports(
        "spec:\n",
        "spec:\n  maintaners: []\n",
        &[],
        0,
        &[
            "unknown field spec.maintaners of the ClusterServiceVersion is ignored [install]\n  hint: did you mean \"maintainers\"?",
        ],
    );
}

#[test]
fn unknown_install_modes_and_data_that_are_no_strings_are_reported() {
    reports(
        "AllNamespaces",
        "AllNamespace",
        &[],
        0,
        &[
            "warning: spec.installModes[0].type: unknown install mode \"AllNamespace\" [install]\n  hint: did you mean \"AllNamespaces\"?",
        ],
    );
    // Without another mode the bundle is never installed.
    reports(
        "  - {type: AllNamespaces, supported: true}\n  - {type: OwnNamespace, supported: true}\n  - {type: SingleNamespace, \
         supported: true}\n",
        "  - {type: Everywhere, supported: true}\n",
        &[],
        1,
        &[
            "error: spec.installModes[0].type: unknown install mode \"Everywhere\" [install]\n  hint: there are \
             AllNamespaces, MultiNamespace, OwnNamespace, SingleNamespace",
        ],
    );
    let data =
        |kind: &str, data: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\n{data}\n");
    reports(
        "spec:\n",
        "spec:\n",
        &[
            ("manifests/map.yaml", &data("ConfigMap", "data: {a: 5, b: '5'}")),
            ("manifests/secret.yaml", &data("Secret", "stringData: {a: true}")),
            (
                "manifests/token.yaml",
                &data("Secret", "data: {a: 'in the clear', b: YQ==}"),
            ),
        ],
        1,
        &[
            "manifests/map.yaml:1: error: ConfigMap \"x\": the API server refuses data.a, which must be a string, not a \
             number [install]\n  hint: quote the value",
            "manifests/secret.yaml:1: error: Secret \"x\": the API server refuses stringData.a, which must be a string, \
             not a boolean [install]",
            "manifests/token.yaml:1: error: Secret \"x\": the API server refuses data.a, which is not base64 [install]\n  hint: \
             encode the value, or move it to stringData",
        ],
    );
}

/// The printed example, with `all` beside `value`, and the corrected one.
#[test]
fn the_printed_example_is_refused_and_the_corrected_one_is_sound() {
    let file = |indent: &str| {
        let rules = [
            "all:",
            "  constraints:",
            "  - failureMessage: Package blue is needed for...",
            "    package: {name: blue, versionRange: '>=1.0.0'}",
            "  - failureMessage: Cannot be required for Red because...",
            "    not:",
            "      constraints:",
            "      - gvk: {group: greens.example.com, version: v1alpha1, kind: greens}",
        ];
        let rules = rules.map(|line| format!("{indent}{line}\n")).concat();
        format!("dependencies:\n- type: olm.constraint\n  value:\n{rules}")
    };
    for (indent, status) in [("  ", 1), ("    ", 0)] {
        let files = Files::new(&[
            ("manifests/csv.yaml", CSV),
            ("metadata/annotations.yaml", ANNOTATIONS),
            ("metadata/dependencies.yaml", &file(indent)),
        ]);
        let run = olm(&files.path(""), &["bundle", "validate", "."]);
        assert_eq!(run.status, status, "{}", run.stdout);
        let is_refused = run
            .stdout
            .contains("invalid requirement of type olm.constraint: The CEL field is missing");
        assert_eq!(is_refused, status == 1, "{}", run.stdout);
    }
}

#[test]
fn a_webhook_of_an_unknown_type_is_reported() {
    for (kind, expected) in [
        ("ValidatingAdmissionWebhook", None),
        (
            "ValidatingWebhook",
            Some("error: webhook \"v.x.example\" has the unknown type \"ValidatingWebhook\""),
        ),
        (
            "''",
            Some("error: webhook \"v.x.example\" has the unknown type \"\""),
        ),
    ] {
        let webhook = format!(
            "  webhookdefinitions: [{{type: {kind}, generateName: v.x.example, deploymentName: greeter, \
             admissionReviewVersions: [v1], sideEffects: None}}]\n  install:\n"
        );
        let files = Files::new(&[
            ("manifests/csv.yaml", &CSV.replace("  install:\n", &webhook)),
            ("metadata/annotations.yaml", ANNOTATIONS),
        ]);
        let run = olm(&files.path(""), &["bundle", "validate", "."]);
        let found = run
            .stdout
            .lines()
            .find(|line| line.contains("has the unknown type"));
        assert_eq!(found.is_some(), expected.is_some(), "{kind}: {}", run.stdout);
        assert_eq!(
            run.status,
            i32::from(expected.is_some()),
            "{kind}: {}",
            run.stdout
        );
        for (line, expected) in found.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }
}
