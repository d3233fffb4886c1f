//! Users who can write a ClusterCatalog decide what extensions install.

use anyhow::{Result, ensure};
use olm_api::names;
use serde_json::{Value, json};

use crate::actor::{Actor, Wanted};
use crate::{LAB, RBAC};

const POLICY: &str = "needs the verb publish on it";

fn catalog(name: &str) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterCatalog", "metadata": { "name": name },
        "spec": { "priority": 1000, "source": { "type": "Image", "image": { "ref": "registry.invalid/catalog:v1" } } },
    })
}

#[test]
fn a_catalog_is_written_by_those_who_may_publish_it_and_nobody_else() -> Result<()> {
    LAB.with(async |lab| {
        lab.apply(&[catalog("trusted"), catalog("other")])?;
        let everything_but_publish = json!([{
            "apiGroups": [names::GROUP], "resources": ["clustercatalogs", "clustercatalogs/status"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        }]);
        let mallory = Actor::with(lab, "mallory", everything_but_publish)?;
        mallory
            .until("the role and the policy count", Wanted::Refused, |mallory| {
                let answer = mallory.ask(&["create"], Some(&catalog("hers")))?;
                ensure!(format!("{answer:?}").contains(POLICY), "{answer:?}");
                Ok(answer)
            })
            .await?;
        let trusted = ["clustercatalog", "trusted"];
        let status = ["clustercatalog", "trusted", "--subresource=status"];
        let annotation = |key: &str| json!({ "metadata": { "annotations": { key: "x" } } });
        for (what, object, patch) in [
            (
                "the image",
                &trusted[..],
                json!({ "spec": { "source": { "image": { "ref": "evil.invalid/catalog:v1" } } } }),
            ),
            ("the priority", &trusted, json!({ "spec": { "priority": 2000 } })),
            (
                "a label that an extension selects by",
                &trusted,
                json!({ "metadata": { "labels": { "tier": "gold" } } }),
            ),
            (
                "the template",
                &trusted,
                annotation(names::user::CATALOG_IMAGE_TEMPLATE),
            ),
            ("an annotation of ours", &trusted, annotation(names::user::POLL)),
            (
                "where it is served",
                &status,
                json!({ "status": { "urls": { "base": "https://evil.invalid/catalogs/trusted" } } }),
            ),
        ] {
            mallory.refused(what, POLICY, mallory.patch(object, &patch))?;
        }
        mallory.allowed(
            "another annotation",
            mallory.patch(&trusted, &annotation("example.com/note")),
        )?;
        mallory.allowed(
            "deletion",
            mallory.ask(&["delete", "clustercatalog", "trusted"], None),
        )?;

        // The right may be given for one catalog.
        lab.apply(&[
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": { "name": "publish-trusted" },
            "rules": [{
                "apiGroups": [names::GROUP], "resources": ["clustercatalogs"], "resourceNames": ["trusted"],
                "verbs": ["publish"],
            }],
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": "publish-trusted" },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "publish-trusted" },
            "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "mallory" }],
        }),
    ])?;
        let priority = json!({ "spec": { "priority": 3 } });
        mallory
            .until("the right counts", Wanted::Allowed, |actor| {
                actor.patch(&trusted, &priority)
            })
            .await?;
        let other = mallory.patch(&["clustercatalog", "other"], &priority);
        mallory.refused("another catalog", POLICY, other)?;

        // catalogd writes status and its label.
        let account = format!(
            "system:serviceaccount:{}:catalogd-controller-manager",
            names::SYSTEM_NAMESPACE
        );
        let catalogd = Actor::new(lab, &account);
        let label = json!({ "metadata": { "labels": { names::label::METADATA_NAME: "trusted" } } });
        catalogd.allowed("its label", catalogd.patch(&trusted, &label))?;
        let base = "https://catalogd-service.olmv1-system.svc/catalogs/trusted";
        let url = json!({ "status": { "urls": { "base": base } } });
        catalogd.allowed("where it is served", catalogd.patch(&status, &url))
    })
}

#[test]
fn editors_of_the_cluster_write_extensions_and_read_catalogs() -> Result<()> {
    LAB.with(async |lab| {
        lab.kubectl(&[
            "create",
            "clusterrolebinding",
            "ed",
            "--clusterrole=edit",
            "--user=ed",
        ])?;
        let may = |verb: &str, resource: &str| -> bool {
            let resource = format!("{resource}.{}", names::GROUP);
            lab.kubectl(&["auth", "can-i", verb, &resource, "--as=ed"])
                .is_ok()
        };
        // The role is put together by a controller.
        olm_test::world::eventually("the role is aggregated", crate::SOON, async || {
            Ok(may("create", "clusterextensions").then_some(()))
        })
        .await?;
        ensure!(may("list", "clustercatalogs"), "editors see catalogs");
        for verb in ["create", "update", "patch", "delete", "publish"] {
            ensure!(!may(verb, "clustercatalogs"), "editors may {verb} catalogs");
        }
        Ok(())
    })
}

#[test]
fn a_priority_beyond_its_bounds_is_refused_by_the_api_server() -> Result<()> {
    LAB.with(async |lab| {
        for (priority, is_allowed) in [
            (i64::from(i32::MIN), true),
            (i64::from(i32::MAX), true),
            (i64::from(i32::MIN) - 1, false),
            (i64::from(i32::MAX) + 1, false),
        ] {
            let name = "preferred";
            let mut wanted = olm_test::extensions::catalog(name, "registry.invalid/catalog:v1");
            wanted["spec"]["priority"] = json!(priority);
            let applied = lab.apply(&[wanted]);
            ensure!(applied.is_ok() == is_allowed, "{priority}: {applied:?}");
            if let Err(refused) = applied {
                ensure!(format!("{refused:#}").contains("spec.priority"), "{refused:#}");
            } else {
                lab.kubectl(&["delete", "clustercatalog", name])?;
            }
        }
        Ok(())
    })
}
