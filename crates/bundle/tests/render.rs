//! What bundles are rendered to.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeMap;

use olm_bundle::{BundleFiles, CertificateProvider, Prepared, Refusal, Request, prepare};
use serde_json::{Value, json};
use support::{fixture, with};

fn rendered(
    files: &BundleFiles,
    config: Option<&Value>,
    certificates: Option<CertificateProvider>,
) -> Vec<Value> {
    attempt(files, config, certificates)
        .expect("a sound bundle")
        .rendered
        .into_objects()
}

fn attempt(
    files: &BundleFiles,
    config: Option<&Value>,
    certificates: Option<CertificateProvider>,
) -> Result<Prepared, Refusal> {
    prepare(
        files,
        &BTreeMap::new(),
        &Request {
            config,
            certificates,
            ..Request::new("kitchen")
        },
    )
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let object = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "{kind} {name} twice");
    object
}

#[test]
fn an_operator_that_watches_all_namespaces() {
    insta::assert_yaml_snapshot!(rendered(&fixture("kettle"), None, None));
}

#[test]
fn an_operator_that_watches_its_own_namespace_has_roles_there() {
    let objects = rendered(
        &fixture("kettle"),
        Some(&json!({"watchNamespace": "kitchen"})),
        None,
    );
    let keys: Vec<String> = objects
        .iter()
        .map(|object| {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or("-")
                    .to_owned()
            };
            format!(
                "{} {} {}",
                text("/kind"),
                text("/metadata/namespace"),
                text("/metadata/name")
            )
        })
        .collect();
    insta::assert_yaml_snapshot!(keys);
}

#[test]
fn an_operator_that_watches_another_namespace_has_roles_there_for_its_account_here() {
    let objects = rendered(
        &fixture("kettle"),
        Some(&json!({"watchNamespace": "pantry"})),
        None,
    );
    let roles: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "Role" || object["kind"] == "RoleBinding")
        .collect();
    assert_eq!(roles.len(), 4);
    for role in roles {
        assert_eq!(role["metadata"]["namespace"], "pantry");
    }
    let deployment = find(&objects, "Deployment", "kettle.operator");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["olm.targetNamespaces"], "pantry");
    assert_eq!(annotations["olm.operatorNamespace"], "kitchen");
}

#[test]
fn cert_manager_certifies_webhooks() {
    insta::assert_yaml_snapshot!(rendered(
        &fixture("sieve"),
        None,
        Some(CertificateProvider::CertManager)
    ));
}

#[test]
fn the_openshift_service_ca_certifies_webhooks() {
    let objects = rendered(
        &fixture("sieve"),
        None,
        Some(CertificateProvider::OpenShiftServiceCa),
    );
    let annotated: Vec<Value> = objects
        .iter()
        .map(|object| json!([object["kind"], object["metadata"]["annotations"]]))
        .filter(|pair| !pair[1].is_null())
        .collect();
    insta::assert_yaml_snapshot!(annotated);
}

#[test]
fn an_account_that_the_bundle_brings_too_is_one_object_with_what_both_say() {
    let objects = rendered(&fixture("kettle"), None, None);
    assert_eq!(
        find(&objects, "ServiceAccount", "kettle"),
        &json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "kettle", "namespace": "kitchen", "labels": {"team": "tea"}},
            "imagePullSecrets": [{"name": "pull"}],
        })
    );
}

#[test]
fn a_service_that_the_bundle_brings_too_serves_the_webhooks() {
    let objects = rendered(&fixture("sieve"), None, Some(CertificateProvider::CertManager));
    let service = find(&objects, "Service", "sieve-service");
    assert_eq!(service["metadata"]["labels"], json!({"app": "sieve"}));
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(
        service["spec"]["ports"],
        json!([
            {"name": "443", "port": 443, "targetPort": 9443},
            {"name": "8443", "port": 8443, "targetPort": 8443},
            {"name": "9090", "port": 9090, "targetPort": "webhook"},
        ])
    );
}

#[test]
fn two_different_objects_of_one_name_are_refused() {
    let mut files = fixture("kettle");
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: twice}}\ndata: {{a: {value}}}\n")
            .into_bytes()
    };
    files.insert("manifests/a.yaml".to_owned(), map("one"));
    files.insert("manifests/b.yaml".to_owned(), map("one"));
    find(&rendered(&files, None, None), "ConfigMap", "twice");
    files.insert("manifests/b.yaml".to_owned(), map("two"));
    let refusal = attempt(&files, None, None).expect_err("which one is meant?");
    assert_eq!(refusal.kind(), "object-conflict");
    assert_eq!(
        refusal.to_string(),
        "bundle contains ConfigMap \"twice\" more than once, with different content"
    );
}

#[test]
fn the_name_of_a_file_changes_no_object() {
    let key = |object: &Value| object.to_string();
    let mut expected = rendered(&fixture("kettle"), None, None);
    let mut files = fixture("kettle");
    let manifest = files.remove("manifests/more.yaml").expect("the file");
    files.insert("manifests/0.yaml".to_owned(), manifest);
    let mut actual = rendered(&files, None, None);
    expected.sort_by_key(key);
    actual.sort_by_key(key);
    assert_eq!(expected, actual);
}

#[test]
fn users_change_the_deployments() {
    let config = json!({"deploymentConfig": {
        "env": [{"name": "WATCH_NAMESPACE", "value": "given"}, {"name": "TEA", "value": "green"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "annotations": {"capabilities": "kept", "added": "yes"},
    }});
    let objects = rendered(&fixture("kettle"), Some(&config), None);
    let deployment = find(&objects, "Deployment", "kettle.operator");
    let pod = &deployment["spec"]["template"]["spec"];
    let env = json!([{"name": "WATCH_NAMESPACE", "value": "given"}, {"name": "TEA", "value": "green"}]);
    assert_eq!(pod["containers"][0]["env"], env);
    assert_eq!(pod["containers"][1]["env"], env);
    assert_eq!(pod["initContainers"][0]["env"], Value::Null);
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert_eq!(deployment["metadata"]["annotations"]["added"], "yes");
    assert_eq!(
        deployment["spec"]["template"]["metadata"]["annotations"]["capabilities"],
        "Deep Insights"
    );
}

/// T-3E-01 and T-3E-02: properties of any type, flat or wrapped, after those of the ClusterServiceVersion.
#[test]
fn t_3e_01_and_02_properties_are_merged() {
    let prepared = attempt(&fixture("kettle"), None, None).expect("a sound bundle");
    assert_eq!(
        prepared.bundle.properties_text(),
        Some(
            "[{\"type\":\"first\",\"value\":{\"b\":1,\"a\":2}},\
             {\"type\":\"olm.kubeversion\",\"value\":{\"version\":\"1.16.0\"}},\
             {\"type\":\"color\",\"value\":\"\\u003cred\\u003e\"},\
             {\"type\":\"unsaid\",\"value\":null}]"
        )
    );
}

/// T-3B-01 and T-3B-02: what annotations.yaml says, and that it beats the labels of the image.
#[test]
fn t_3b_01_and_02_annotations_beat_labels() {
    let label = |key: &str| format!("operators.operatorframework.io.bundle.{key}");
    let labels = BTreeMap::from([
        (label("package.v1"), "teapot".to_owned()),
        (label("channel.default.v1"), "edge".to_owned()),
    ]);
    let files = fixture("kettle");
    let bundle = olm_bundle::parse(&files, &labels).expect("a sound bundle");
    assert_eq!(bundle.package(), "kettle");
    assert_eq!(
        bundle.annotations().channels().collect::<Vec<_>>(),
        ["beta", "stable"]
    );
    assert_eq!(bundle.annotations().default_channel(), Some("stable"));
    assert_eq!(bundle.annotations().media_type(), Some("registry+v1"));
    let path = "metadata/annotations.yaml";
    let files = with(
        files,
        path,
        "operators.operatorframework.io.bundle.channel.default.v1: stable",
        "x: y",
    );
    let bundle = olm_bundle::parse(&files, &labels).expect("a sound bundle");
    assert_eq!(bundle.annotations().default_channel(), Some("edge"));
}
