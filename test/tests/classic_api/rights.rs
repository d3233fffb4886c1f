//! The rights of the programs, as the shipped manifests give them.

use anyhow::{Context as _, Result, bail, ensure};
use olm_test::world::kubectl;
use serde_json::{Value, json};

use crate::{SERVER, Server};

const OPERATOR: &str = "system:serviceaccount:olm:olm-operator";
const CATALOG: &str = "system:serviceaccount:olm:catalog-operator";

/// Answer of the server when the user creates the object, which is not stored.
fn create(server: &Server, user: &str, object: &Value) -> Result<String> {
    let user = format!("--as={user}");
    let arguments = ["create", "--dry-run=server", "-f", "-", user.as_str()];
    kubectl(&server.cluster, &arguments, Some(&object.to_string()))
}

/// The user may create each object, or may not for a reason with these words.
fn check(server: &Server, user: &str, cases: &[(Value, Option<&str>)]) -> Result<()> {
    for (object, refusal) in cases {
        let named = format!("{} {}", object["kind"], object["metadata"]["name"]);
        match (create(server, user, object), refusal) {
            (Ok(_), None) => {}
            (Ok(_), Some(words)) => bail!("{user} creates {named}: {words}"),
            (Err(error), None) => return Err(error.context(format!("{user} cannot create {named}"))),
            (Err(error), Some(words)) => {
                let said = format!("{error:#}");
                ensure!(said.contains(words), "{named}: {said}, not {words}");
            }
        }
    }
    Ok(())
}

fn role(kind: &str, labels: &Value, content: &Value) -> Value {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "r", "labels": labels},
    });
    if kind != "ClusterRole" {
        role["metadata"]["namespace"] = json!("operators");
    }
    if let (Some(role), Some(content)) = (role.as_object_mut(), content.as_object()) {
        role.extend(content.clone());
    }
    role
}

/// An object that belongs to the CatalogSource `my.catalog`.
fn owned(api_version: &str, kind: &str, name: &str, labels: &Value, content: &Value) -> Value {
    let owner = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "name": "my.catalog", "uid": "u",
    });
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {
        "name": name, "namespace": "operators", "labels": labels, "ownerReferences": [owner],
    }});
    if let (Some(object), Some(content)) = (object.as_object_mut(), content.as_object()) {
        object.extend(content.clone());
    }
    object
}

fn rules(group: &str, resource: &str, verb: &str) -> Value {
    json!({"rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]})
}

#[test]
fn olm_operator_writes_roles_for_apis_of_operators_only() -> Result<()> {
    SERVER.with(async |server| {
        let managed = || json!({"olm.managed": "true"});
        let admin = || json!({"olm.managed": "true", "rbac.authorization.k8s.io/aggregate-to-admin": "true"});
        let gathers = |key: &str| {
            let selector = json!({"matchLabels": {key: "true"}});
            json!({"aggregationRule": {"clusterRoleSelectors": [selector]}})
        };
        let unlabelled = role("ClusterRole", &json!({}), &json!({"rules": []}));
        let gathered = "gather no rights";
        let definition = json!({"rules": [{
            "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"],
            "resourceNames": ["greetings.samples.olm.example"],
        }]});
        let condition = json!({"rules": [{
            "apiGroups": ["operators.coreos.com"], "resources": ["operatorconditions"], "resourceNames": ["c.v1"],
            "verbs": ["get", "update", "patch"],
        }]});
        // The role of an OperatorCondition, under another name than the binding's.
        let mut other = role("Role", &managed(), &condition);
        other["metadata"]["name"] = json!("other");
        server.create(&other).await?;
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "other"});
        let subjects = json!([{"kind": "ServiceAccount", "name": "a"}]);
        let binding = role("RoleBinding", &managed(), &json!({"roleRef": reference, "subjects": subjects}));
        let mut named = binding.clone();
        named["metadata"]["name"] = json!("other");
        let mut foreign = named.clone();
        foreign["subjects"][0]["namespace"] = json!("kube-system");
        check(server, OPERATOR, &[
            (unlabelled, Some("that it labels as managed")),
            // Roles of OperatorGroups and of APIs.
            (role("ClusterRole", &managed(), &gathers("olm.opgroup.permissions/aggregate-to-1-admin")), None),
            (role("ClusterRole", &admin(), &rules("samples.olm.example", "greetings", "*")), None),
            (role("ClusterRole", &admin(), &definition), None),
            // Lifted ones have the rules that the operator asks for; their bindings are made under an account.
            (role("ClusterRole", &managed(), &rules("", "secrets", "get")), None),
            (role("ClusterRole", &managed(), &gathers("rbac.authorization.k8s.io/aggregate-to-view")), Some(gathered)),
            (role("ClusterRole", &admin(), &rules("", "secrets", "get")), Some(gathered)),
            (role("ClusterRole", &admin(), &rules("*", "*", "*")), Some(gathered)),
            (role("ClusterRole", &admin(), &rules("rbac.authorization.k8s.io", "roles", "bind")), Some(gathered)),
            (role("Role", &managed(), &condition), None),
            (role("Role", &managed(), &rules("", "pods", "get")), Some("for named OperatorConditions only")),
            (named, None),
            (binding, Some("the Role of the same name")),
            (foreign, Some("accounts of the same namespace only")),
        ])?;
        // A role of the cluster.
        let user = format!("--as={OPERATOR}");
        let arguments = ["label", "clusterrole", "view", "olm.managed=true", "--dry-run=server", user.as_str()];
        let changed = kubectl(&server.cluster, &arguments, None).err().context("it changes the role view")?;
        let changed = format!("{changed:#}");
        ensure!(changed.contains("changes no roles but those of OLM"), "{changed}");
        Ok(())
    })
}

#[test]
fn catalog_operator_writes_what_belongs_to_catalog_sources_only() -> Result<()> {
    SERVER.with(async |server| {
        let ports = json!({"spec": {"ports": [{"name": "grpc", "port": 50051}]}});
        let service = owned("v1", "Service", "my-catalog", &json!({}), &ports);
        let mut foreign = service.clone();
        foreign["metadata"]["ownerReferences"] = json!([]);
        let slice = |service: &str| {
            let labels = json!({"kubernetes.io/service-name": service});
            let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
            let content = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": []});
            owned(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                "my-catalog",
                &labels,
                &content,
            )
        };
        let account = owned("v1", "ServiceAccount", "another.catalog", &json!({}), &json!({}));
        check(
            server,
            CATALOG,
            &[
                (foreign, Some("what belongs to a CatalogSource")),
                (service, None),
                (account, None),
                (slice("my-catalog"), None),
                (slice("another"), Some("the Services of CatalogSources only")),
            ],
        )?;
        let user = format!("--as={CATALOG}");
        let arguments = [
            "delete",
            "service",
            "kubernetes",
            "-n=default",
            "--dry-run=server",
            user.as_str(),
        ];
        let deleted = kubectl(&server.cluster, &arguments, None)
            .err()
            .context("it deletes a Service")?;
        let deleted = format!("{deleted:#}");
        ensure!(deleted.contains("changes nothing but what belongs"), "{deleted}");
        Ok(())
    })
}

#[test]
fn pods_of_catalogs_get_no_rights_but_those_on_their_catalog() -> Result<()> {
    SERVER.with(async |server| {
        const RBAC: &str = "rbac.authorization.k8s.io/v1";
        let none = || json!({});
        // Nothing makes the accounts that a namespace has by default.
        for name in ["default", "my.catalog"] {
            let account = json!({"name": name, "namespace": "operators"});
            server
                .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}))
                .await?;
        }
        let pod = |account: &str| {
            let security = json!({"allowPrivilegeEscalation": false});
            let container = json!({"name": "registry-server", "image": "i", "securityContext": security});
            let spec = json!({"serviceAccountName": account, "containers": [container]});
            owned("v1", "Pod", "my-catalog-abcde", &none(), &json!({"spec": spec}))
        };
        let role = |name: &str, resource: &str| {
            let rule =
                json!({"apiGroups": [""], "resources": [resource], "resourceNames": ["c"], "verbs": ["get"]});
            owned(RBAC, "Role", name, &none(), &json!({"rules": [rule]}))
        };
        for name in ["my.catalog-configmap-reader", "another"] {
            server.create(&role(name, "configmaps")).await?;
        }
        let binding = |role: &str| {
            let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
            let subjects = json!([{"kind": "ServiceAccount", "name": "my.catalog-configmap-server"}]);
            owned(
                RBAC,
                "RoleBinding",
                "b",
                &none(),
                &json!({"roleRef": reference, "subjects": subjects}),
            )
        };
        let policy = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
        let policy = owned(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "my.catalog-grpc-server",
            &none(),
            &policy,
        );
        let mut foreign = policy.clone();
        foreign["metadata"]["ownerReferences"] = json!([]);
        check(
            server,
            CATALOG,
            &[
                (
                    pod("default"),
                    Some("no accounts but those of their CatalogSources"),
                ),
                (pod("my.catalog"), None),
                (policy, None),
                (foreign, Some("what belongs to a CatalogSource")),
                (role("r", "configmaps"), None),
                (role("r", "secrets"), Some("Roles for one ConfigMap only")),
                (binding("my.catalog-configmap-reader"), None),
                (binding("another"), Some("binds the Roles of CatalogSources")),
            ],
        )?;
        Ok(())
    })
}

#[test]
fn config_maps_with_catalogs_get_an_owner_and_keep_their_content() -> Result<()> {
    SERVER.with(async |server| {
        let map = json!({"name": "c", "namespace": "operators"});
        server
            .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": map}))
            .await?;
        let user = format!("--as={CATALOG}");
        let patch = |content: &str| {
            let content = format!("--patch={content}");
            let object = [
                "patch",
                "configmap",
                "c",
                "-n=operators",
                "--type=merge",
                "--dry-run=server",
            ];
            kubectl(
                &server.cluster,
                &[&object[..], &[content.as_str(), user.as_str()]].concat(),
                None,
            )
        };
        let owners =
            owned("v1", "ConfigMap", "c", &json!({}), &json!({}))["metadata"]["ownerReferences"].clone();
        patch(&json!({"metadata": {"ownerReferences": owners}}).to_string())?;
        let content = json!({"metadata": {"ownerReferences": owners}, "data": {"a": "b"}});
        let changed = patch(&content.to_string())
            .err()
            .context("it changes the content")?;
        let changed = format!("{changed:#}");
        ensure!(changed.contains("changes no content of ConfigMaps"), "{changed}");
        let arguments = [
            "delete",
            "configmap",
            "c",
            "-n=operators",
            "--dry-run=server",
            user.as_str(),
        ];
        let deleted = kubectl(&server.cluster, &arguments, None)
            .err()
            .context("it deletes a ConfigMap")?;
        let deleted = format!("{deleted:#}");
        ensure!(deleted.contains("changes nothing but what belongs"), "{deleted}");
        Ok(())
    })
}

#[test]
fn the_programs_have_no_rights_on_content_of_bundles() -> Result<()> {
    SERVER.with(async |server| {
        let may = |user: &str, verb: &str, resource: &str| {
            let user = format!("--as={user}");
            let arguments = ["auth", "can-i", verb, resource, "--all-namespaces", user.as_str()];
            kubectl(&server.cluster, &arguments, None).is_ok()
        };
        for user in [OPERATOR, CATALOG] {
            ensure!(may(user, "list", "secrets"), "{user} reads no Secrets");
            for (verb, resource) in [
                ("create", "deployments.apps"),
                ("create", "secrets"),
                ("update", "secrets"),
                ("create", "configmaps"),
                ("create", "customresourcedefinitions.apiextensions.k8s.io"),
                ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
                ("bind", "clusterroles.rbac.authorization.k8s.io"),
                (
                    "create",
                    "validatingwebhookconfigurations.admissionregistration.k8s.io",
                ),
                ("impersonate", "users"),
            ] {
                ensure!(!may(user, verb, resource), "{user}: {verb} {resource}");
            }
        }
        Ok(())
    })
}
