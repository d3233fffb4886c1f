//! Approvals: the users who may give them, and the changes that they cover.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::PendingChange;
use olm_api::conditions::find;
use olm_api::names::annotation;
use olm_api::pending_change::APPLIED;
use olm_test::extensions::{
    SOON, await_version, extensions, installed_version, merge, patch_source, revisions,
};
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{
    CLUSTER, apply, change, changes, held_back_by, install_and_update, own_name, policy, publish, ready,
};

/// Runs `olm` and returns its output; an error has its message.
pub(super) fn olm(world: &World, arguments: &[&str]) -> Result<String> {
    let run = Command::new(binary("olm")?)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .output()?;
    if !run.status.success() {
        bail!("{}", String::from_utf8_lossy(&run.stderr));
    }
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// The digest that `olm plan` prints.
fn planned_digest(world: &World, name: &str) -> Result<String> {
    let authorities = world.authorities().display().to_string();
    let printed = olm(world, &["plan", name, "--ca-dir", &authorities, "-o", "json"])?;
    let plan: Value = serde_json::from_str(&printed)?;
    Ok(plan["digest"].as_str().context("a digest")?.to_owned())
}

/// Decides as a user, by the API alone.
fn decide(world: &World, user: &str, change: &PendingChange, decision: &Value) -> Result<()> {
    let patch = json!({ "spec": { "decision": decision } }).to_string();
    world
        .kubectl(&[
            "patch",
            "pendingchange",
            change.metadata.name.as_deref().unwrap_or_default(),
            "--type=merge",
            "-p",
            &patch,
            "--as",
            user,
        ])
        .map(drop)
}

#[test]
fn an_update_waits_for_an_approval_while_the_installed_version_is_kept() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "awaited";
        install_and_update(world, name, &json!({ "approval": { "patch": "Manual" } })).await?;
        let pending = change(world, name, "1.0.1", "AwaitingApproval").await?;
        let extension = ready(world, name, "True", "Healthy", "olm approve awaited").await?;
        ensure!(
            held_back_by(&extension) == Some("Approval"),
            "{:?}",
            extension.status
        );
        ensure!(
            pending.spec.digest == planned_digest(world, name)?,
            "{:?}",
            pending.spec
        );
        ensure!(
            pending.spec.class == "Patch" && pending.spec.from.as_deref() == Some("1.0.0"),
            "{:?}",
            pending.spec
        );
        // Drift is repaired meanwhile.
        let deployments = Api::<Deployment>::namespaced(world.client.clone(), name);
        let operator = format!("{name}-operator");
        deployments.delete(&operator, &DeleteParams::default()).await?;
        world
            .eventually("the Deployment is back", SOON, async || {
                Ok(deployments.get_opt(&operator).await?.map(drop))
            })
            .await?;
        let printed = olm(world, &["approve", name, "--yes", "--note", "tested", "--wait"])?;
        ensure!(
            printed.contains(&pending.spec.digest) && printed.contains("approved by"),
            "{printed}"
        );
        let extension = extensions(world).get(name).await?;
        ensure!(installed_version(&extension) == Some("1.0.1"), "{extension:?}");
        let applied = change(world, name, "1.0.1", "Succeeded").await?;
        let approver = applied.spec.decision.context("a decision")?.approver;
        let set = revisions(world).get(&format!("{name}-2")).await?;
        ensure!(set.annotation(annotation::CHANGE_DIGEST) == Some(pending.spec.digest.as_str()));
        ensure!(set.annotation(annotation::APPROVED_BY) == Some(approver.as_str()));
        let history = olm(world, &["history", name])?;
        ensure!(history.contains(&approver), "{history}");
        let refused = olm(world, &["approve", name, "--yes"]);
        ensure!(
            refused.is_err_and(|error| error
                .to_string()
                .contains("no change of ClusterExtension \"awaited\" waits")),
            "an approval is used once"
        );
        Ok(())
    })
}

#[test]
fn only_those_who_may_approve_decide_and_under_their_own_name() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "guarded";
        install_and_update(world, name, &json!({ "approval": { "default": "Manual", "install": "Automatic" } })).await?;
        let pending = change(world, name, "1.0.1", "AwaitingApproval").await?;
        let role = |role: &str, user: &str| {
            let role = format!("--clusterrole={role}");
            let user_flag = format!("--user={user}");
            world.kubectl(&["create", "clusterrolebinding", &format!("{name}-{user}"), &role, &user_flag])
        };
        role("olm-changes-approve", "jane")?;
        // All rights on these kinds, except the verb that decides.
        world.apply(&[json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "guarded-writer" },
            "rules": [{
                "apiGroups": ["olm.operatorframework.io"], "resources": ["pendingchanges", "pendingchanges/status"],
                "verbs": ["get", "list", "create", "update", "patch", "delete"],
            }],
        })])?;
        role("guarded-writer", "joe")?;
        let refused = |outcome: Result<()>, part: &str| {
            let message = outcome.err().map(|error| format!("{error:#}")).unwrap_or_default();
            ensure!(message.contains(part), "{part}: {message:?}");
            Ok(())
        };
        let approved = |approver: &str| json!({ "verdict": "Approved", "approver": approver });
        refused(decide(world, "joe", &pending, &approved("joe")), "needs the verb approve on it")?;
        refused(decide(world, "joe", &pending, &approved("jane")), "needs the verb approve on it")?;
        refused(decide(world, "jane", &pending, &approved("joe")), "cannot decide in the name of joe")?;
        // An approved change cannot be edited, not even with its approval.
        let digest = json!({ "spec": { "digest": format!("sha256:{}", "0".repeat(64)) } });
        let patched = changes(world)
            .patch(pending.name(), &PatchParams::default(), &Patch::Merge(&digest))
            .await;
        refused(patched.map(drop).map_err(Into::into), "digest is immutable")?;
        // Only the controller creates one and writes its status.
        let mut forged = serde_json::to_value(&pending)?;
        forged["metadata"] = json!({ "name": "guarded-forged" });
        forged["spec"]["decision"] = approved("joe");
        let file = world.folder().join("forged.json");
        std::fs::write(&file, forged.to_string())?;
        let file = file.display().to_string();
        refused(
            world.kubectl(&["create", "--as", "joe", "-f", &file]).map(drop),
            "only operator-controller creates PendingChanges",
        )?;
        let status = json!({ "status": { "conditions": [] } });
        let patch = status.to_string();
        refused(
            world
                .kubectl(&[
                    "patch", "pendingchange", pending.name(), "--subresource=status", "--type=merge", "-p", &patch, "--as",
                    "joe",
                ])
                .map(drop),
            "only operator-controller writes the status",
        )?;
        let present = changes(world).get(pending.name()).await?;
        ensure!(present.spec.decision.is_none(), "{:?}", present.spec);
        decide(world, "jane", &pending, &approved("jane"))?;
        await_version(world, name, "1.0.1").await.map(drop)
    })
}

#[test]
fn a_rejected_change_says_who_rejected_it_and_may_be_approved_later() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "rejected";
        publish(world, name, &["1.0.0", "1.0.1"]).await?;
        policy(world, name, &json!({ "approval": { "default": "Manual" } }))?;
        apply(world, name, "1.0.0")?;
        // Without the approval nothing is installed yet, which does not match the spec.
        ready(
            world,
            name,
            "False",
            "AwaitingApproval",
            "the installation of 1.0.0 waits",
        )
        .await?;
        change(world, name, "1.0.0", "AwaitingApproval").await?;
        olm(
            world,
            &["reject", name, "--yes", "--note", "not before the audit"],
        )?;
        ready(
            world,
            name,
            "False",
            "Rejected",
            "rejected it: not before the audit",
        )
        .await?;
        olm(world, &["approve", name, "--yes"])?;
        await_version(world, name, "1.0.0").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        let extension = ready(world, name, "False", "AwaitingApproval", "from 1.0.0 to 1.0.1").await?;
        ensure!(
            held_back_by(&extension) == Some("Approval"),
            "{:?}",
            extension.status
        );
        Ok(())
    })
}

/// Waits until a change is void because its bundle is gone.
async fn says_that_it_is_gone(world: &World, change: &str) -> Result<()> {
    world
        .eventually("the change says that its bundle is gone", SOON, async || {
            let found = changes(world).get(change).await?;
            let applied = find(found.conditions(), APPLIED).context("no condition Applied")?;
            let bundle = &found.spec.bundle;
            let expected = format!("no selected catalog has bundle {bundle:?} any more");
            ensure!(
                applied.reason == "Void" && applied.message == expected,
                "{applied:?}"
            );
            Ok(Some(()))
        })
        .await
}

/// A range admits the installed version, so nothing else tells that the waiting one is gone.
#[test]
fn a_change_within_a_range_is_void_when_its_bundle_is_gone_from_the_catalog() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "ranged";
        publish(world, name, &["1.0.0"]).await?;
        policy(world, name, &json!({ "approval": { "patch": "Manual" } }))?;
        apply(world, name, "1.x")?;
        await_version(world, name, "1.0.0").await?;
        publish(world, name, &["1.0.0", "1.0.1"]).await?;
        let pending = change(world, name, "1.0.1", "AwaitingApproval").await?;
        publish(world, name, &["1.0.0"]).await?;
        says_that_it_is_gone(world, pending.name()).await?;
        await_version(world, name, "1.0.0").await?;
        let refused = olm(world, &["approve", name, "--yes"]);
        ensure!(refused.is_err(), "{refused:?}");
        Ok(())
    })
}

#[test]
fn an_approval_holds_for_exactly_the_plan_that_was_shown() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "bound";
        install_and_update(world, name, &json!({ "approval": { "patch": "Manual" } })).await?;
        let first = change(world, name, "1.0.1", "AwaitingApproval").await?;
        // The same version with another configuration is another change.
        let config = |level: &str| {
            json!({ "spec": { "config": { "configType": "Inline", "inline": {
                "deploymentConfig": { "env": [{ "name": "LEVEL", "value": level }] },
            } } } })
        };
        merge(world, name, config("debug")).await?;
        let void = change(world, name, "1.0.1", "Void").await?;
        ensure!(void.metadata.uid == first.metadata.uid, "{void:?}");
        let second = change(world, name, "1.0.1", "AwaitingApproval").await?;
        ensure!(second.spec.digest != first.spec.digest, "{second:?}");
        ready(world, name, "False", "AwaitingApproval", "").await?;
        // An approval of a void change has no effect, even if the extension wants the change again.
        let user = &own_name(world)?;
        let refused = olm(world, &["approve", name, "--digest", &first.spec.digest]);
        ensure!(refused.is_err(), "{refused:?}");
        let decision = json!({ "spec": { "decision": { "verdict": "Approved", "approver": user } } });
        changes(world)
            .patch(first.name(), &PatchParams::default(), &Patch::Merge(&decision))
            .await?;
        merge(world, name, json!({ "spec": { "config": null } })).await?;
        world
            .eventually("the change with the configuration is void", SOON, async || {
                let second = changes(world).get(second.name()).await?;
                Ok(second.is_void().then_some(()))
            })
            .await?;
        let again = change(world, name, "1.0.1", "AwaitingApproval").await?;
        ensure!(
            again.spec.digest == first.spec.digest && again.metadata.uid != first.metadata.uid,
            "{again:?}"
        );
        ensure!(again.spec.decision.is_none(), "{again:?}");
        // A change to a version that is gone from the catalog says so, and cannot be approved.
        publish(world, name, &["1.0.0"]).await?;
        says_that_it_is_gone(world, again.name()).await?;
        let refused = olm(world, &["approve", name, "--yes"]);
        ensure!(refused.is_err(), "{refused:?}");
        let set = revisions(world).get_opt(&format!("{name}-2")).await?;
        ensure!(set.is_none(), "{set:?}");
        Ok(())
    })
}

#[test]
fn a_deleted_revision_makes_no_first_installation_of_an_update() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "deleted";
        let rules = json!({ "approval": { "default": "Manual", "install": "Automatic" } });
        install_and_update(world, name, &rules).await?;
        change(world, name, "1.0.1", "AwaitingApproval").await?;
        // The revision stays as long as another finalizer is on it.
        let first = format!("{name}-1");
        let hold = json!({ "metadata": { "finalizers": ["example.com/hold", "olm.operatorframework.io/teardown"] } });
        let sets = revisions(world);
        sets.patch(&first, &PatchParams::default(), &Patch::Merge(&hold))
            .await?;
        sets.delete(&first, &DeleteParams::default()).await?;
        let pending = world
            .eventually("the change that replaces it waits", SOON, async || {
                let extension = olm_test::extensions::extensions(world).get(name).await?;
                let annotated = merge(world, name, json!({ "metadata": { "annotations": { "example.com/look": "again" } } }));
                annotated.await?;
                let pending = changes(world).list(&kube::api::ListParams::default()).await?;
                let mut ours = pending.items.into_iter().filter(|change| {
                    Some(&change.spec.extension_uid) == extension.metadata.uid.as_ref()
                        && !change.is_void()
                        && !change.is_applied()
                });
                Ok(ours.next_back())
            })
            .await?;
        ensure!(pending.spec.class != "Install", "{pending:?}");
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let next = sets.get_opt(&format!("{name}-2")).await?;
        ensure!(next.is_none(), "{next:?}");
        let release = json!({ "metadata": { "finalizers": ["olm.operatorframework.io/teardown"] } });
        sets.patch(&first, &PatchParams::default(), &Patch::Merge(&release))
            .await
            .map(drop)
            .map_err(Into::into)
    })
}
