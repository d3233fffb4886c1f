//! Rendered objects.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeMap;

use olm_bundle::{BundleFiles, CertificateProvider, PrepareError, Prepared, Request, prepare};
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
) -> Result<Prepared, PrepareError> {
    prepare(
        files,
        &BTreeMap::new(),
        &Request {
            config,
            certificates,
            ..Request::new("samples")
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
    insta::assert_yaml_snapshot!(rendered(&fixture("backup"), None, None));
}

#[test]
fn an_operator_that_watches_its_own_namespace_has_roles_there() {
    let objects = rendered(
        &fixture("backup"),
        Some(&json!({"watchNamespace": "samples"})),
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
        &fixture("backup"),
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
    let deployment = find(&objects, "Deployment", "backup.operator");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["olm.targetNamespaces"], "pantry");
    assert_eq!(annotations["olm.operatorNamespace"], "samples");
}

/// The reference implementation hashes the permission as written, and names the default account.
#[test]
fn a_permission_without_an_account_is_for_the_default_one_under_the_name_of_the_reference() {
    let files = with(
        fixture("backup"),
        "manifests/backup.clusterserviceversion.yaml",
        "serviceAccountName: default",
        "serviceAccountName: ''",
    );
    let objects = rendered(&files, None, None);
    let name = "backup.v1.2.0-defa-1h3uh4wc1ml7963pdm025i1z7sdue2jbvobins1aoup7";
    find(&objects, "ClusterRole", name);
    let binding = find(&objects, "ClusterRoleBinding", name);
    assert_eq!(binding["subjects"][0]["name"], "default");
    let mut accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount");
    assert!(accounts.all(|account| account["metadata"]["name"] == "backup"));
}

#[test]
fn cert_manager_certifies_webhooks() {
    insta::assert_yaml_snapshot!(rendered(
        &fixture("router"),
        None,
        Some(CertificateProvider::CertManager)
    ));
}

#[test]
fn the_openshift_service_ca_certifies_webhooks() {
    let objects = rendered(
        &fixture("router"),
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
fn an_account_that_the_bundle_brings_too_is_merged() {
    let objects = rendered(&fixture("backup"), None, None);
    assert_eq!(
        find(&objects, "ServiceAccount", "backup"),
        &json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "backup", "namespace": "samples", "labels": {"team": "tea"}},
            "imagePullSecrets": [{"name": "pull"}],
        })
    );
}

#[test]
fn a_service_that_the_bundle_brings_too_serves_the_webhooks() {
    let objects = rendered(&fixture("router"), None, Some(CertificateProvider::CertManager));
    let service = find(&objects, "Service", "router-service");
    assert_eq!(service["metadata"]["labels"], json!({"app": "router"}));
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(
        service["spec"]["ports"],
        json!([
            {"name": "443", "port": 443, "targetPort": 9443},
            {"name": "8443", "port": 8443, "targetPort": 8443},
            {"name": "9090", "port": 9090, "targetPort": "webhook"},
        ])
    );
    // The bundle's own Service defines the target port of a webhook without one.
    let files = with(
        fixture("router"),
        "manifests/service.yaml",
        "port: 80",
        "port: 8443, targetPort: 7443",
    );
    let objects = rendered(&files, None, Some(CertificateProvider::CertManager));
    assert_eq!(
        find(&objects, "Service", "router-service")["spec"]["ports"][1],
        json!({"name": "8443", "port": 8443, "targetPort": 7443})
    );
}

#[test]
fn two_different_objects_of_one_name_are_refused() {
    let mut files = fixture("backup");
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
    let mut expected = rendered(&fixture("backup"), None, None);
    let mut files = fixture("backup");
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
    let objects = rendered(&fixture("backup"), Some(&config), None);
    let deployment = find(&objects, "Deployment", "backup.operator");
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

/// Properties of any type, flat or wrapped, after those of the ClusterServiceVersion.
#[test]
fn properties_are_merged() {
    let prepared = attempt(&fixture("backup"), None, None).expect("a sound bundle");
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

/// The annotations of the worked example.
#[test]
fn annotations_describe_the_bundle() {
    let annotations = "annotations:\n  \
        operators.operatorframework.io.bundle.mediatype.v1: \"registry+v1\"\n  \
        operators.operatorframework.io.bundle.manifests.v1: \"manifests/\"\n  \
        operators.operatorframework.io.bundle.metadata.v1: \"metadata/\"\n  \
        operators.operatorframework.io.bundle.package.v1: \"test-operator\"\n  \
        operators.operatorframework.io.bundle.channels.v1: \"beta,stable\"\n  \
        operators.operatorframework.io.bundle.channel.default.v1: \"stable\"\n";
    let mut files = fixture("backup");
    files.insert("metadata/annotations.yaml".to_owned(), annotations.into());
    let bundle = olm_bundle::parse(&files, &BTreeMap::new()).expect("a sound bundle");
    let said = bundle.annotations();
    assert_eq!(said.media_type(), Some("registry+v1"));
    assert_eq!(bundle.package(), "test-operator");
    assert_eq!(said.channels().collect::<Vec<_>>(), ["beta", "stable"]);
    assert_eq!(said.default_channel(), Some("stable"));
}

/// annotations.yaml has precedence over the labels of the image, which complete it.
#[test]
fn annotations_beat_labels() {
    let label = |key: &str| format!("operators.operatorframework.io.bundle.{key}");
    let labels = BTreeMap::from([
        (label("package.v1"), "teapot".to_owned()),
        (label("channel.default.v1"), "edge".to_owned()),
    ]);
    let files = fixture("backup");
    let bundle = olm_bundle::parse(&files, &labels).expect("a sound bundle");
    assert_eq!(bundle.package(), "backup");
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

#[test]
fn our_own_certificates_are_asked_for_by_annotations() {
    let objects = rendered(&fixture("router"), None, Some(CertificateProvider::SelfSigned));
    let annotation = |kind: &str, name: &str, key: &str| {
        find(&objects, kind, name)["metadata"]["annotations"][format!("olm.operatorframework.io/{key}")]
            .clone()
    };
    assert_eq!(
        annotation("Service", "router-service", "serving-certificate"),
        "router-service-cert"
    );
    for (kind, name) in [
        ("ValidatingWebhookConfiguration", "vrouter.samples.example.com"),
        ("MutatingWebhookConfiguration", "mrouter.samples.example.com"),
        ("CustomResourceDefinition", "routers.samples.example.com"),
    ] {
        assert_eq!(
            annotation(kind, name, "authority-from"),
            "samples/router-service-cert",
            "{kind}"
        );
    }
    let text = Value::from(objects).to_string();
    assert!(
        !text.contains("caBundle") && !text.contains("cert-manager"),
        "{text}"
    );
}

#[test]
fn providers_are_read_as_they_are_written() {
    for provider in [
        CertificateProvider::CertManager,
        CertificateProvider::OpenShiftServiceCa,
        CertificateProvider::SelfSigned,
    ] {
        assert_eq!(provider.to_string().parse(), Ok(provider));
    }
    assert!("unknown".parse::<CertificateProvider>().is_err());
}

/// The bundle `router` with an aggregated API in addition to its webhooks.
fn with_api(deployment: &str) -> BundleFiles {
    let apis = format!(
        "apiservicedefinitions:\n    owned:\n      - {{name: sifts, group: flour.example.com, version: v1, kind: Sift, \
         deploymentName: {deployment}, containerPort: 5443}}\n  webhookdefinitions:"
    );
    with(
        fixture("router"),
        "manifests/csv.yaml",
        "webhookdefinitions:",
        &apis,
    )
}

#[test]
fn an_aggregated_api_is_registered_served_and_may_ask_who_calls() {
    let objects = rendered(&with_api("router"), None, Some(CertificateProvider::SelfSigned));
    let registration = find(&objects, "APIService", "v1.flour.example.com");
    assert_eq!(
        registration["spec"],
        json!({
            "group": "flour.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
            "service": {"namespace": "samples", "name": "router-service", "port": 5443},
        })
    );
    assert_eq!(
        registration["metadata"]["annotations"]["olm.operatorframework.io/authority-from"],
        "samples/router-service-cert"
    );
    let ports = find(&objects, "Service", "router-service")["spec"]["ports"].clone();
    assert_eq!(
        ports[1],
        json!({"name": "5443", "port": 5443, "targetPort": 5443})
    );
    let subjects = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "samples"}]);
    for (kind, name, role) in [
        (
            "ClusterRoleBinding",
            "router-service-auth-delegator",
            "system:auth-delegator",
        ),
        (
            "RoleBinding",
            "router-service-auth-reader",
            "extension-apiserver-authentication-reader",
        ),
    ] {
        let binding = find(&objects, kind, name);
        assert_eq!(binding["subjects"], subjects);
        assert_eq!(binding["roleRef"]["name"], role);
    }
}

#[test]
fn an_aggregated_api_without_its_deployment_is_refused() {
    let refusal = attempt(&with_api("colander"), None, Some(CertificateProvider::SelfSigned))
        .expect_err("nothing serves it");
    assert_eq!(
        refusal.to_string(),
        "api service 'v1.flour.example.com' references non-existent deployment 'colander'"
    );
    let refusal = attempt(&with_api("router"), None, None).expect_err("there is no certificate provider");
    assert_eq!(refusal.kind(), "api-services");
}

#[test]
fn init_containers_read_certificates_where_the_bundle_says_so() {
    let files = with(
        fixture("router"),
        "manifests/csv.yaml",
        "{name: serving, mountPath: /old}",
        "{name: serving, mountPath: /tmp/k8s-webhook-server/serving-certs}",
    );
    let objects = rendered(&files, None, Some(CertificateProvider::SelfSigned));
    let pod = &find(&objects, "Deployment", "router")["spec"]["template"]["spec"];
    assert_eq!(
        pod["initContainers"][0]["volumeMounts"],
        json!([
            {"name": "webhook-cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
            {"name": "scratch", "mountPath": "/scratch"},
        ])
    );
    assert_eq!(
        pod["containers"][0]["volumeMounts"],
        json!([
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "webhook-cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
            {"name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates"},
        ])
    );
}

#[test]
fn an_operator_gets_the_name_of_its_condition() {
    let render = |name| {
        let request = Request {
            operator_condition: name,
            ..Request::new("samples")
        };
        let prepared = prepare(&fixture("backup"), &BTreeMap::new(), &request).expect("a sound bundle");
        let objects = prepared.rendered.into_objects();
        let containers =
            find(&objects, "Deployment", "backup.operator")["spec"]["template"]["spec"]["containers"].clone();
        let environments = containers.as_array().expect("containers").iter();
        environments
            .map(|container| {
                container["env"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|entry| entry["name"] == "OPERATOR_CONDITION_NAME")
                    .map(|entry| entry["value"].clone())
                    .collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        render(Some("backup.v1.2.0")),
        vec![vec![json!("backup.v1.2.0")]; 2]
    );
    assert_eq!(render(None), vec![Vec::<Value>::new(); 2]);
}

/// The pod of a deployment whose operator has an OperatorCondition.
fn pod_with_condition(files: &BundleFiles, deployment: &str, config: Option<&Value>) -> Value {
    let request = Request {
        operator_condition: Some("condition"),
        certificates: Some(CertificateProvider::SelfSigned),
        config,
        ..Request::new("samples")
    };
    let prepared = prepare(files, &BTreeMap::new(), &request).expect("a sound bundle");
    find(prepared.rendered.objects(), "Deployment", deployment)["spec"]["template"]["spec"].clone()
}

#[test]
fn init_containers_are_changed_like_others_unless_they_were_taken_over() {
    let config = json!({"deploymentConfig": {
        "env": [{"name": "TEA", "value": "green"}],
        "resources": {"limits": {"cpu": "1"}},
    }});
    let pod = pod_with_condition(&fixture("backup"), "backup.operator", Some(&config));
    for container in [&pod["initContainers"][0], &pod["containers"][0]] {
        let environment = container["env"].as_array().expect("variables");
        assert!(
            environment.contains(&json!({"name": "TEA", "value": "green"})),
            "{container}"
        );
        assert_eq!(container["resources"], json!({"limits": {"cpu": "1"}}));
    }
    let pod = pod_with_condition(&fixture("router"), "router", None);
    for container in [&pod["initContainers"][0], &pod["containers"][0]] {
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        for name in ["webhook-cert", "apiservice-cert"] {
            assert_eq!(
                mounts.iter().filter(|mount| mount["name"] == name).count(),
                1,
                "{container}"
            );
        }
    }
}

#[test]
fn of_variables_of_one_name_the_last_is_kept() {
    let config = json!({"deploymentConfig": {"env": [
        {"name": "TEA", "value": "green"}, {"name": "CUP", "value": "1"}, {"name": "TEA", "value": "black"},
    ]}});
    let pod = pod_with_condition(&fixture("backup"), "backup.operator", Some(&config));
    let environment = pod["containers"][0]["env"].as_array().expect("variables");
    let mut teas = environment.iter().filter(|entry| entry["name"] == "TEA");
    assert_eq!(teas.next(), Some(&json!({"name": "TEA", "value": "black"})));
    assert_eq!(teas.next(), None);
    assert!(environment.contains(&json!({"name": "CUP", "value": "1"})));
}

#[test]
fn a_certificate_has_no_common_name_that_cert_manager_refuses() {
    for (namespace, expected) in [("n".repeat(49), true), ("n".repeat(50), false)] {
        let request = Request {
            certificates: Some(CertificateProvider::CertManager),
            ..Request::new(&namespace)
        };
        let prepared = prepare(&fixture("router"), &BTreeMap::new(), &request).expect("a sound bundle");
        let objects = prepared.rendered.into_objects();
        let certificate = objects.iter().find(|object| object["kind"] == "Certificate");
        let specification = &certificate.expect("a certificate")["spec"];
        // `router-service.` and the namespace.
        let host = format!("router-service.{namespace}");
        assert_eq!(host.len() <= 64, expected);
        assert_eq!(
            specification.get("commonName").is_some(),
            expected,
            "{specification}"
        );
        assert_eq!(specification["dnsNames"][0], host);
    }
}

#[test]
fn services_have_names_that_services_can_have() {
    use olm_bundle::names::service_name;
    for (deployment, expected) in [
        ("router.operator", "router-operator-service".to_owned()),
        (&"a".repeat(55), format!("{}-service", "a".repeat(55))),
        (&"a".repeat(56), format!("{}-service", "a".repeat(55))),
        (&"a".repeat(70), format!("{}-service", "a".repeat(55))),
        ("3routers", "s-3routers-service".to_owned()),
    ] {
        assert_eq!(service_name(deployment), expected);
        assert!(expected.len() <= 63);
    }
}

#[test]
fn one_volume_is_mounted_at_every_path_that_the_user_names() {
    let mounts = json!([{"name": "tea", "mountPath": "/one"}, {"name": "tea", "mountPath": "/two"}]);
    let config = json!({"deploymentConfig": {
        "volumes": [{"name": "tea", "emptyDir": {}}],
        "volumeMounts": mounts,
    }});
    for existing in ["", "volumeMounts: [{name: tea, mountPath: /old}]"] {
        let files = with(
            fixture("backup"),
            "manifests/backup.clusterserviceversion.yaml",
            "name: sidecar",
            &format!("name: sidecar\n                    {existing}"),
        );
        let objects = rendered(&files, Some(&config), None);
        let pod = &find(&objects, "Deployment", "backup.operator")["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][1]["volumeMounts"], mounts, "{existing}");
    }
}
