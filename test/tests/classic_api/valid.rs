//! Objects that the server takes, and what it fills in.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{SERVER, csv, object, with};

/// The server stores each object with these values at these pointers.
fn stored(cases: Vec<(Value, Vec<(&str, Value)>)>) -> Result<()> {
    SERVER.with(async |server| {
        for (object, expected) in cases {
            let named = || format!("{} {}", object["kind"], object["metadata"]["name"]);
            let found = server.dry_run(&object).await.with_context(named)?;
            for (pointer, value) in expected {
                let found = found.pointer(pointer).unwrap_or(&Value::Null);
                ensure!(*found == value, "{}: {pointer} is {found}, not {value}", named());
            }
        }
        Ok(())
    })
}

#[test]
fn deployments_of_an_operator_are_stored_whole_and_with_defaults() -> Result<()> {
    let template = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "later": {"field": true}},
        "spec": {
            "serviceAccountName": "greeter",
            "containers": [{
                "name": "greeter", "image": "i", "args": ["--serve"],
                "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}}],
                "resources": {"requests": {"cpu": "10m", "memory": 1024}},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
                "readinessProbe": {"grpc": {"port": 50051}},
                "securityContext": {"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}},
            }],
            "imagePullSecrets": [{"name": "pull"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "volumes": [
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"resources": {"requests": {"storage": "1Gi"}}},
                }}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"name": "r", "rbd": {"image": "i", "monitors": ["m"]}},
            ],
            "noSuchField": true,
        },
    });
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let spec = json!({"replicas": 1, "selector": selector, "strategy": strategy, "template": template});
    let deployment = json!({"name": "greeter", "label": {"l": "m"}, "spec": spec});
    let given = with(
        csv("whole"),
        "/spec/install/spec/deployments",
        json!([deployment]),
    );
    // All but what the server fills in or drops is stored as it is given.
    let mut expected = deployment;
    for (pointer, value) in [
        ("/spec/template/spec/containers/0/ports/0/protocol", json!("TCP")),
        (
            "/spec/template/spec/containers/0/readinessProbe/grpc/service",
            json!(""),
        ),
        (
            "/spec/template/spec/volumes/2/rbd/keyring",
            json!("/etc/ceph/keyring"),
        ),
        ("/spec/template/spec/volumes/2/rbd/pool", json!("rbd")),
        ("/spec/template/spec/volumes/2/rbd/user", json!("admin")),
        ("/spec/template/spec/noSuchField", Value::Null),
    ] {
        expected = with(expected, pointer, value);
    }
    stored(vec![(
        given,
        vec![("/spec/install/spec/deployments/0", expected)],
    )])
}

#[test]
fn what_the_reference_takes_is_taken() -> Result<()> {
    let webhook = json!({
        "generateName": "v.kb.io", "type": "ConversionWebhook", "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "targetPort": "https", "conversionCRDs": ["greetings.olm.example"],
    });
    let descriptor = json!({"path": "size", "x-descriptors": ["urn:x"], "value": "MQ=="});
    let owned = json!({
        "name": "greetings.olm.example", "version": "v1", "kind": "Greeting", "specDescriptors": [descriptor],
    });
    let of = |spec: &str, value: Value| with(csv("taken"), spec, value);
    let group = |version: &str, content: Value| object(version, "OperatorGroup", "taken", content);
    let source = |spec: Value| object("v1alpha1", "CatalogSource", "taken", json!({"spec": spec}));
    let subscription = |config: Value| {
        let spec = json!({
            "name": "p", "source": "c", "sourceNamespace": "olm", "installPlanApproval": "Whenever", "config": config,
        });
        object("v1alpha1", "Subscription", "taken", json!({"spec": spec}))
    };
    let default = json!({"upgradeStrategy": "Default"});
    stored(vec![
        (of("/spec/version", json!("")), vec![("/spec/version", json!(""))]),
        (of("/spec/release", json!("0.a-1.10")), vec![]),
        (
            of("/spec/installModes", json!([{"type": "Some", "supported": true}])),
            vec![],
        ),
        (
            of("/spec/webhookdefinitions", json!([webhook])),
            vec![("/spec/webhookdefinitions/0/containerPort", json!(443))],
        ),
        (
            of("/spec/customresourcedefinitions", json!({"owned": [owned]})),
            vec![("/spec/customresourcedefinitions/owned/0", owned.clone())],
        ),
        (group("v1", json!({})), vec![("/spec", default.clone())]),
        (group("v1", json!({"spec": {}})), vec![("/spec", default)]),
        (
            group("v1alpha2", json!({"spec": {"targetNamespaces": ["a"]}})),
            vec![("/spec", json!({"targetNamespaces": ["a"]}))],
        ),
        (object("v1", "OLMConfig", "taken", json!({})), vec![]),
        (
            object(
                "v1",
                "OLMConfig",
                "taken",
                json!({"spec": {"features": {"packageServerSyncInterval": "1.5h30m"}}}),
            ),
            vec![("/spec/features/packageServerSyncInterval", json!("1.5h30m"))],
        ),
        (object("v1", "Operator", "p.n", json!({})), vec![]),
        // Tools make a CatalogSource first and say later where the catalog is.
        (
            source(json!({"sourceType": ""})),
            vec![("/spec/sourceType", json!(""))],
        ),
        (
            source(
                json!({"sourceType": "grpc", "image": "i", "priority": -100, "grpcPodConfig": {
                "memoryTarget": "30Mi", "securityContextConfig": "restricted", "nodeSelector": {"a": "b"},
                "extractContent": {"catalogDir": "/configs", "cacheDir": "/tmp/cache"},
                "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 120}],
            }, "updateStrategy": {"registryPoll": {"interval": "10m"}}}),
            ),
            vec![
                ("/spec/grpcPodConfig/tolerations/0/tolerationSeconds", json!(120)),
                ("/spec/updateStrategy/registryPoll/interval", json!("10m")),
            ],
        ),
        (
            subscription(json!({
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"key": "k"}}}],
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "resources": {"limits": {"memory": "1Gi"}},
                "volumes": [{"name": "v", "configMap": {"name": "c"}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "affinity": {}, "annotations": {"a": "b"},
            })),
            vec![
                ("/spec/installPlanApproval", json!("Whenever")),
                (
                    "/spec/config/env/0/valueFrom/secretKeyRef",
                    json!({"key": "k", "name": ""}),
                ),
                ("/spec/config/affinity", json!({})),
            ],
        ),
    ])
}
