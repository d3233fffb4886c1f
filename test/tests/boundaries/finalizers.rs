//! Finalizers decide which objects an uninstallation keeps.

use anyhow::{Result, ensure};
use olm_api::names::{self, annotation, finalizer, user};
use serde_json::{Value, json};

use crate::LAB;
use crate::actor::{Actor, Wanted};

const POLICY: &str = "needs the verb impersonate on it";

fn set(name: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterObjectSet",
        "metadata": {
            "name": name, "finalizers": finalizers,
            "annotations": { annotation::SERVICE_ACCOUNT: "attack/strong", annotation::PROPERTIES: "[]" },
        },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })
}

fn extension(name: &str, uninstall: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterExtension",
        "metadata": { "name": name, "finalizers": finalizers, "annotations": { user::UNINSTALL: uninstall } },
        "spec": {
            "namespace": "attack", "serviceAccount": { "name": "strong" },
            "source": { "sourceType": "Catalog", "catalog": { "packageName": "none-such" } },
        },
    })
}

fn finalizers(list: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": list } })
}

#[test]
fn finalizers_and_properties_are_changed_by_those_who_may_use_the_account() -> Result<()> {
    LAB.with(async |lab| {
        let (orphan, teardown) = ("orphan", finalizer::TEARDOWN);
        lab.apply(&[
            set("victim-1", &[teardown, orphan]),
            set("victim-2", &[teardown]),
            extension("victim", "delete", &[finalizer::CLEANUP_UNPACK_CACHE]),
        ])?;
        let writer = json!([{
            "apiGroups": [names::GROUP], "resources": ["clusterextensions", "clusterobjectsets"],
            "verbs": ["get", "list", "create", "update", "patch", "delete"],
        }]);
        let finn = Actor::with(lab, "finn", writer)?;
        let victim = ["clusterobjectset", "victim-1"];
        finn.until("the role and the policy count", Wanted::Refused, |finn| {
            let answer = finn.patch(&victim, &finalizers(&[orphan]))?;
            ensure!(format!("{answer:?}").contains(POLICY), "{answer:?}");
            Ok(answer)
        })
        .await?;
        for (what, list) in [
            ("all are taken off", &[][..]),
            ("orphan is taken off", &[teardown]),
            (
                "a deletion in the foreground takes the place of orphan",
                &[teardown, "foregroundDeletion"],
            ),
        ] {
            finn.refused(what, POLICY, finn.patch(&victim, &finalizers(list)))?;
        }
        let preset = finalizers(&[teardown, "foregroundDeletion"]);
        let answer = finn.patch(&["clusterobjectset", "victim-2"], &preset);
        finn.refused("a deletion in the foreground is preset", POLICY, answer)?;
        let more = finalizers(&[teardown, orphan, "example.com/wait"]);
        finn.allowed("a finalizer of somebody else", finn.patch(&victim, &more))?;
        let stripped = finn.patch(&["clusterextension", "victim"], &finalizers(&[]));
        finn.refused("those of an extension are taken off", POLICY, stripped)?;
        let properties = json!({ "metadata": { "annotations": { annotation::PROPERTIES: "[1]" } } });
        finn.refused(
            "the bundle's properties",
            POLICY,
            finn.patch(&victim, &properties),
        )?;

        // Kubernetes' garbage collector may complete its work.
        let collector = Actor::new(lab, "system:serviceaccount:kube-system:generic-garbage-collector");
        let done = collector.patch(&victim, &finalizers(&[teardown]));
        collector.allowed("objects are orphaned", done)?;
        let stripped = collector.patch(&victim, &finalizers(&[orphan]));
        collector.refused("ours are taken off", POLICY, stripped)
    })
}

#[test]
fn a_finalizer_cannot_force_a_foreground_deletion_of_kept_objects() -> Result<()> {
    LAB.with(async |lab| {
        const POLICY: &str = "the finalizer foregroundDeletion takes";
        let admin = Actor::new(lab, "admin");
        lab.kubectl(&[
            "create",
            "clusterrolebinding",
            "admin",
            "--clusterrole=cluster-admin",
            "--user=admin",
        ])?;
        lab.apply(&[
            extension("kept", "keep-crds", &[]),
            extension("preset", "delete", &["foregroundDeletion"]),
        ])?;
        let patch = finalizers(&["foregroundDeletion"]);
        admin
            .until("the policy counts", Wanted::Refused, |admin| {
                let answer = admin.patch(&["clusterextension", "kept"], &patch)?;
                ensure!(format!("{answer:?}").contains(POLICY), "{answer:?}");
                Ok(answer)
            })
            .await?;
        for uninstall in ["keep-crds", "orphan"] {
            let born = extension("born", uninstall, &["foregroundDeletion"]);
            admin.refused(
                "it is created with it",
                POLICY,
                admin.ask(&["create"], Some(&born)),
            )?;
            let later = json!({ "metadata": { "annotations": { user::UNINSTALL: uninstall } } });
            let answer = admin.patch(&["clusterextension", "preset"], &later);
            admin.refused("it has it before", POLICY, answer)?;
        }
        let born = extension("born", "delete", &["foregroundDeletion"]);
        admin.allowed("nothing is to be left", admin.ask(&["create"], Some(&born)))?;
        let answer = admin.ask(&["delete", "clusterextension", "kept"], None);
        admin.allowed("a deletion in the background", answer)
    })
}
