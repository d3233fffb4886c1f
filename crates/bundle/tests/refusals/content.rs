//! The files, kinds and formats of bundles.

use super::*;

/// No ClusterServiceVersion, two of them, an owned definition that is missing, no channel.
#[test]
fn each_fault_of_a_bundle_has_its_own_message() {
    let backup = || fixture("backup");
    check(
        &minus(backup(), CSV),
        "no-csv",
        "no ClusterServiceVersion found in \"manifests\"",
    );
    let other =
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: other}\n";
    check(
        &plus(backup(), "manifests/z.yaml", other),
        "several-csvs",
        "a bundle has exactly one ClusterServiceVersion, found 2: backup.v1.2.0, other",
    );
    check(
        &minus(backup(), "manifests/backups.crd.yaml"),
        "invalid",
        "cluster service definition references owned custom resource definition 'backups.samples.example.com' not \
         found in bundle",
    );
    // A channel matters only to publishers of a catalog: the lint reports that it is missing.
    let files = with(
        backup(),
        ANNOTATIONS,
        "operators.operatorframework.io.bundle.channels.v1: beta, stable",
        "a: b",
    );
    assert!(prepare(&files, &BTreeMap::new(), &Request::new("samples")).is_ok());
}

/// A bundle of another format, declared in its annotations or only in its labels.
#[test]
fn another_media_type_is_refused() {
    for (media_type, name) in [
        ("helm+v0", "Helm charts"),
        ("application/vnd.cncf.helm.config.v1+json", "Helm charts"),
        ("plain+v0", "bundles of plain manifests"),
        ("registry+v2", "bundles of media type \"registry+v2\""),
    ] {
        let message = format!("{name} are not supported, only bundles of media type \"registry+v1\" are");
        check(
            &with(fixture("backup"), ANNOTATIONS, "registry+v1", media_type),
            "media-type",
            &message,
        );
        let label = "operators.operatorframework.io.bundle.mediatype.v1".to_owned();
        let refusal = prepare(
            &BundleFiles::new(),
            &BTreeMap::from([(label, media_type.to_owned())]),
            &Request::new("samples"),
        );
        assert_eq!(refusal.err().map(|refusal| refusal.to_string()), Some(message));
    }
}

#[test]
fn an_artifact_that_says_nothing_else_is_refused_by_its_type() {
    let refusal = |files: &BundleFiles, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let labels = labels_of(&labels, Some("application/vnd.cncf.helm.config.v1+json"), files);
        let prepared = prepare(files, &labels, &Request::new("samples"));
        prepared
            .err()
            .map(|refusal| refusal.to_string())
            .unwrap_or_default()
    };
    let none = BundleFiles::new();
    assert!(refusal(&none, &[]).starts_with("Helm charts are not supported"));
    let label = ("operators.operatorframework.io.bundle.mediatype.v1", "plain+v0");
    assert!(refusal(&none, &[label]).starts_with("bundles of plain manifests are not supported"));
    // However it was pushed, a bundle is one.
    assert_eq!(refusal(&fixture("backup"), &[]), "");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let backup = || fixture("backup");
    check(
        &minus(backup(), ANNOTATIONS),
        "file-missing",
        "open metadata/annotations.yaml: file does not exist",
    );
    check(
        &backup()
            .into_iter()
            .filter(|(path, _)| path == ANNOTATIONS)
            .collect(),
        "file-missing",
        "open manifests: file does not exist",
    );
    check(
        &plus(backup(), ANNOTATIONS, "- a"),
        "annotations-unreadable",
        "metadata/annotations.yaml is not a mapping of annotations",
    );
    check(
        &plus(backup(), "manifests/more/deep.yaml", "a: b"),
        "subdirectory",
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \
         \"manifests/more\"",
    );
    check(
        &plus(backup(), "manifests/z.yaml", "---\na: b\n"),
        "manifest-unreadable",
        "error parsing objects in \"manifests/z.yaml\": the object of line 2 has no kind",
    );
    check(
        &plus(backup(), "manifests/z.yaml", "kind: Role\nmetadata: {name: x}\n"),
        "manifest-unreadable",
        "error parsing objects in \"manifests/z.yaml\": the object of line 1 (Role \"x\") has no apiVersion",
    );
    check(
        &plus(
            backup(),
            "metadata/properties.yaml",
            "properties: [{type: [a], value: 1}]",
        ),
        "properties-unreadable",
        "failed to unmarshal metadata/properties.yaml: the type of property 1 is not a text",
    );
    check(
        &plus(backup(), "metadata/properties.yaml", "- {type: a, value: 1}"),
        "properties-unreadable",
        "failed to unmarshal metadata/properties.yaml: the properties are not a list",
    );
    check(
        &plus(
            backup(),
            "metadata/dependencies.yaml",
            "- {type: olm.package, value: {packageName: a, version: 1.0.0}}",
        ),
        "dependencies-unreadable",
        "metadata/dependencies.yaml cannot be read: the dependencies are not a list",
    );
    for (from, to, fault) in [
        (
            "app: backup\n          spec",
            "app: [backup]\n          spec",
            "spec.install.spec.deployments[0].label.app must be a string, not a list",
        ),
        (
            "metadata:\n",
            "metadata:\n  labels: {a: b, team: 5}\n",
            "metadata.labels.team must be a string, not a number",
        ),
    ] {
        let text = String::from_utf8(backup().remove(CSV).expect("it is there")).expect("it is text");
        let files = plus(backup(), CSV, &text.replacen(from, to, 1));
        let message = format!("the ClusterServiceVersion cannot be read: {fault}");
        check(&files, "csv-unreadable", &message);
    }
}

#[test]
fn kinds_that_a_bundle_may_not_bring_are_named() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: boil}\n";
    check(
        &plus(fixture("backup"), "manifests/z.yaml", job),
        "invalid",
        "unsupported resource \"boil\" with kind \"Job\"",
    );
}

#[test]
fn definitions_for_an_api_that_is_gone_are_named() {
    let path = "manifests/backups.crd.yaml";
    check(
        &with(
            fixture("backup"),
            path,
            "apiextensions.k8s.io/v1",
            "apiextensions.k8s.io/v1beta1",
        ),
        "definition-version",
        "unsupported bundle: custom resource definition \"backups.samples.example.com\" is of \
         apiextensions.k8s.io/v1beta1, which Kubernetes serves no longer: only apiextensions.k8s.io/v1 can be applied",
    );
}
