//! The overlays for clusters that move over: with their own rules, and guarded.

use anyhow::Result;
use olm_api::names;
use olm_test::world::{Lab, repository};
use serde_json::{Value, json};

use crate::actor::{Actor, Wanted};

fn extension(namespace: &str, account: Option<&str>) -> Value {
    let mut extension = json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterExtension", "metadata": { "name": "hers" },
        "spec": { "namespace": namespace, "source": { "sourceType": "Catalog", "catalog": { "packageName": "p" } } },
    });
    if let Some(account) = account {
        extension["spec"]["serviceAccount"] = json!({ "name": account });
    }
    extension
}

fn set() -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterObjectSet", "metadata": { "name": "hers-1" },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })
}

/// The policy of a cluster during the migration about the writers of objects.
fn own_policy() -> [Value; 2] {
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": "own" },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [names::GROUP], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["clusterextensions"],
                }] },
                "validations": [{
                    "expression": "object.spec.namespace == 'teams' || request.userInfo.username != 'alice'",
                    "message": "alice installs into teams only", "reason": "Forbidden",
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": "own" }, "spec": { "policyName": "own", "validationActions": ["Deny"] },
        }),
    ]
}

/// Applies the admission policies of an overlay.
fn policies(lab: &Lab, overlay: &str) -> Result<()> {
    let folder = repository()
        .join("manifests/overlays")
        .join(overlay)
        .display()
        .to_string();
    let text = lab.kubectl(&["kustomize", &folder])?;
    let policies: Vec<&str> = text
        .split("\n---\n")
        .filter(|object| {
            object
                .lines()
                .any(|line| line.starts_with("kind: ValidatingAdmissionPolicy"))
        })
        .collect();
    let file = lab.folder().join("policies.yaml");
    std::fs::write(&file, policies.join("\n---\n"))?;
    lab.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        &file.display().to_string(),
    ])
    .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_default_account_the_clusters_own_policies_decide_and_guarded_the_right_to_the_account()
-> Result<()> {
    let lab = Lab::with_manifests("manifests/base").await?;
    let writer = json!([{
        "apiGroups": [names::GROUP], "resources": ["clusterextensions", "clusterobjectsets"],
        "verbs": ["get", "list", "create", "update", "patch", "delete"],
    }]);
    let alice = Actor::with(&lab, "alice", writer)?;
    let named = extension("teams", Some("installer"));
    alice
        .until("the base is in force", Wanted::Refused, |alice| {
            alice.ask(&["create"], Some(&named))
        })
        .await?;

    policies(&lab, "default-account")?;
    lab.apply(&own_policy())?;
    alice
        .until(
            "naming an account is as free as before",
            Wanted::Allowed,
            |alice| alice.ask(&["create"], Some(&named)),
        )
        .await?;
    alice
        .until("the cluster's own policy is in force", Wanted::Refused, |alice| {
            alice.ask(&["create"], Some(&extension("kube-system", None)))
        })
        .await?;
    let create = |object: &Value| alice.ask(&["create"], Some(object));
    alice.allowed("no account is named", create(&extension("teams", None)))?;
    let elsewhere = create(&extension("kube-system", Some("installer")));
    alice.refused("elsewhere", "alice installs into teams only", elsewhere)?;
    alice.refused("a set", "verb impersonate", create(&set()))?;

    policies(&lab, "default-account-guarded")?;
    alice
        .until("the guard is in force", Wanted::Refused, |alice| {
            alice.ask(&["create"], Some(&extension("teams", None)))
        })
        .await?;
    let none = alice.ask(&["create"], Some(&extension("teams", None)));
    alice.refused("no account is named", "verb impersonate", none)?;
    let refused = alice.ask(&["create"], Some(&named));
    alice.refused("an account is named", "verb impersonate", refused)?;
    // A user who may use an account can continue, with that account only.
    let impersonate = json!([
        { "apiGroups": [names::GROUP], "resources": ["clusterextensions"], "verbs": ["create"] },
        {
            "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"],
            "resourceNames": ["olm-default-installer"],
        },
    ]);
    let carol = Actor::with(&lab, "carol", impersonate)?;
    carol
        .until("she may use the default account", Wanted::Allowed, |carol| {
            carol.ask(&["create"], Some(&extension("teams", None)))
        })
        .await?;
    let other = carol.ask(&["create"], Some(&named));
    carol.refused("another account is named", "verb impersonate", other)
}
