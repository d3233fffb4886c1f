//! Configurations that do not fit.

use super::*;

#[test]
fn an_own_namespace_is_added_where_it_is_required_and_allowed() {
    use olm_bundle::InstallMode::{self, AllNamespaces, MultiNamespace, OwnNamespace, SingleNamespace};
    let check = |modes: &[InstallMode], config: Option<Value>, expected: Option<Value>| {
        let modes = modes.iter().copied().collect();
        let found = olm_bundle::config::with_own_namespace(&modes, config.as_ref(), "samples");
        assert_eq!(found, expected, "{modes} {config:?}");
    };
    let own = json!({"watchNamespace": "samples"});
    check(&[OwnNamespace], None, Some(own.clone()));
    check(
        &[OwnNamespace, SingleNamespace],
        Some(json!({"watchNamespace": null})),
        Some(own),
    );
    let with = json!({"deploymentConfig": {}, "watchNamespace": "samples"});
    check(&[OwnNamespace], Some(json!({"deploymentConfig": {}})), Some(with));
    for modes in [
        &[AllNamespaces, OwnNamespace][..],
        &[SingleNamespace],
        &[MultiNamespace],
    ] {
        check(modes, None, None);
    }
    check(&[OwnNamespace], Some(json!({"watchNamespace": "other"})), None);
    check(&[OwnNamespace], Some(json!("text")), None);
}

#[test]
fn configurations_that_do_not_fit_are_explained() {
    let check = |config: Value, deployment_configuration, message: &str| {
        let request = Request {
            config: Some(&config),
            deployment_configuration,
            ..Request::new("samples")
        };
        let message = format!("invalid ClusterExtension configuration: invalid configuration: {message}");
        check_request(&fixture("backup"), &request, "config", &message);
    };
    let allowed = DeploymentConfiguration::Allowed;
    check(
        json!({"colour": "red"}),
        allowed,
        "unknown field \"colour\"\nThere are: watchNamespace, deploymentConfig",
    );
    check(json!([]), allowed, "invalid type: got array, want object");
    check(
        json!({"deploymentConfig": {"env": [{"value": 1}]}}),
        allowed,
        "multiple errors found:\n  - required field \"name\" is missing\n  - invalid type for field \
         \"deploymentConfig.env.0.value\": got number, want string",
    );
    check(
        json!({"deploymentConfig": {"volumes": [{"name": "v", "hostPath": {}}]}}),
        allowed,
        "required field \"path\" is missing",
    );
    check(
        json!({"deploymentConfig": {"volumes": [{"name": "v", "secret": {"secretName": 5}}]}}),
        allowed,
        "invalid type for field \"deploymentConfig.volumes.0.secret.secretName\": got number, want string",
    );
    check(
        json!({"deploymentConfig": {"selector": {}}, "watchNamespace": "UP"}),
        allowed,
        "multiple errors found:\n  - unknown field \"selector\"\n  - invalid value for field \"watchNamespace\"\n  - \
         invalid type for field \"watchNamespace\": got string, want null\n  - field \"watchNamespace\" must match \
         pattern \"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$\"\nThere are: affinity, annotations, env, envFrom, nodeSelector, \
         resources, tolerations, volumeMounts, volumes",
    );
    check(
        json!({"deploymentConfig": {}}),
        DeploymentConfiguration::Unknown,
        "unknown field \"deploymentConfig\"\nThere are: watchNamespace",
    );
    check(
        json!({"deploymentConfig": {"volumeMount": []}}),
        allowed,
        "unknown field \"volumeMount\"\nDid you mean \"volumeMounts\"?",
    );
    check(
        json!({"watchNamespaces": "a"}),
        allowed,
        "unknown field \"watchNamespaces\"\nDid you mean \"watchNamespace\"?",
    );
    let everywhere = ["OwnNamespace", "SingleNamespace"]
        .iter()
        .fold(fixture("backup"), |files, mode| {
            let (from, to) = (
                format!("{mode}, supported: true"),
                format!("{mode}, supported: false"),
            );
            with(files, CSV, &from, &to)
        });
    let config = json!({"watchNamespace": "a"});
    let request = Request {
        config: Some(&config),
        ..Request::new("samples")
    };
    check_request(
        &everywhere,
        &request,
        "config",
        "invalid ClusterExtension configuration: invalid configuration: unknown field \"watchNamespace\"\nThe bundle \
         supports AllNamespaces: there is no namespace to choose, remove the field",
    );
    let nowhere_else = with(
        fixture("backup"),
        CSV,
        "AllNamespaces, supported: true",
        "AllNamespaces, supported: false",
    );
    check_request(
        &nowhere_else,
        &Request::new("samples"),
        "config",
        "invalid ClusterExtension configuration: invalid configuration: required field \"watchNamespace\" is missing\nThe \
         bundle supports OwnNamespace SingleNamespace: name the namespace to watch as watchNamespace, for a \
         ClusterExtension in spec.config.inline",
    );
}

#[test]
fn deployment_configurations_are_read_as_kubernetes_reads_them() {
    let prepared = |config: Value| {
        let config = json!({"deploymentConfig": config});
        let request = Request {
            config: Some(&config),
            ..Request::new("samples")
        };
        prepare(&fixture("backup"), &BTreeMap::new(), &request)
    };
    let refusal = prepared(json!({"resources": {"limits": {"cpu": "lots", "memory": "1Gi"}}}));
    assert_eq!(
        refusal
            .err()
            .map(|refusal| refusal.to_string())
            .unwrap_or_default(),
        "invalid ClusterExtension configuration: invalid deploymentConfig: failed to unmarshal deploymentConfig: \
         resources.limits.cpu: \"lots\" is not a quantity, such as 500m, 2 or 128Mi",
    );
    let prepared = prepared(json!({
        "env": [{"name": "A", "valeu": "b"}],
        "resources": {"limits": {"cpu": 1.5, "memory": " 1Gi"}},
        "affinity": {"nodeAffinity": {"odd": 1}},
    }));
    let prepared = prepared.expect("it can be installed");
    assert_eq!(prepared.ignored, ["env[0].valeu", "affinity.nodeAffinity.odd"]);
    let rendered = serde_json::to_string(prepared.rendered.objects()).expect("they are JSON");
    assert!(
        !rendered.contains("valeu") && !rendered.contains("odd"),
        "{rendered}"
    );
}
