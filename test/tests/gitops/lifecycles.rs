//! The lives of extensions.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::names::user;
use olm_test::extensions::{SOON, await_gone, catalog, extensions, patch_source};
use olm_test::world::World;
use serde_json::json;

use super::{Change, annotate, apply, apply_changed, lifecycle, publish, rest, says};

const SAME: Change = |_, _, text| text;

/// The packages of the lifecycles and how their bundles differ from the sample operator's.
pub(crate) const PACKAGES: &[(&str, Change)] = &[
    ("installed", SAME),
    ("upgraded", SAME),
    ("without-rights", SAME),
    ("unsafe-crd", |version, _, text| match version {
        "1.0.1" => text.replace("required: [name]", "required: [name, salutation]"),
        _ => text,
    }),
    ("dependent", |_, path, text| match path {
        "metadata/dependencies.yaml" => json!({ "dependencies": [
            { "type": "olm.package", "value": { "packageName": "needed", "version": ">=1.0.0" } },
        ] })
        .to_string(),
        _ => text,
    }),
    ("needed", SAME),
    // 1.0.1 runs nowhere until a node has its label.
    ("stuck", |version, _, text| {
        let place = "                serviceAccountName: ";
        match version {
            "1.0.1" => text.replace(
                place,
                &format!("                nodeSelector: {{gitops-stuck: \"no\"}}\n{place}"),
            ),
            _ => text,
        }
    }),
    ("paused", SAME),
    ("rolled-back", SAME),
    ("drifted", SAME),
    ("uninstalled", SAME),
    ("adopted", SAME),
    ("approved", SAME),
];

#[test]
fn tools_are_right_about_an_installation() -> Result<()> {
    lifecycle("installed", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_an_upgrade() -> Result<()> {
    lifecycle("upgraded", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_missing_rights() -> Result<()> {
    lifecycle("without-rights", async |world, name| {
        let right = "resources: [customresourcedefinitions]";
        apply_changed(world, name, "1.0.0", |text| {
            text.replace(right, "resources: [nothing]")
        })?;
        rest(world, name, "Failed").await?;
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_an_unsafe_crd() -> Result<()> {
    lifecycle("unsafe-crd", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        rest(world, name, "Failed").await?;
        annotate(world, name, user::CRD_POLICY, Some("required=Warn")).await?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_a_missing_dependency() -> Result<()> {
    lifecycle("dependent", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Failed").await?;
        apply(world, "needed", "1.0.0")?;
        rest(world, "needed", "Current").await?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_a_catalog_without_the_version() -> Result<()> {
    lifecycle("awaited", async |world, name| {
        let blobs = publish(world, name, &["1.0.0"], SAME).await?;
        let first = world.push_catalog("awaited-catalog:v1", &blobs).await?;
        world.apply(&[catalog(name, &first)])?;
        apply(world, name, "1.0.1")?;
        rest(world, name, "Failed").await?;
        let blobs = publish(world, name, &["1.0.0", "1.0.1"], SAME).await?;
        let second = world.push_catalog("awaited-catalog:v2", &blobs).await?;
        world.apply(&[catalog(name, &second)])?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_a_catalog_that_is_switched_off_and_removed() -> Result<()> {
    lifecycle("outlasting", async |world, name| {
        let blobs = publish(world, name, &["1.0.0", "1.0.1"], SAME).await?;
        let reference = world.push_catalog("outlasting-catalog:v1", &blobs).await?;
        let serve = |mode: &str| {
            let mut object = catalog(name, &reference);
            object["spec"]["availabilityMode"] = json!(mode);
            world.apply(&[object])
        };
        serve("Available")?;
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        serve("Unavailable")?;
        let gone = "--for=condition=Serving=False";
        world.kubectl(&["wait", gone, "--timeout=60s", &format!("ccat/{name}")])?;
        // The operator keeps running, and an update waits.
        annotate(world, name, "example.com/looked-at", Some("again")).await?;
        rest(world, name, "Current").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        rest(world, name, "Failed").await?;
        serve("Available")?;
        rest(world, name, "Current").await?;
        world.kubectl(&["delete", "ccat", name])?;
        says(world, name, "Current", "does not exist").await
    })
}

#[test]
fn tools_are_right_about_a_stuck_rollout() -> Result<()> {
    lifecycle("stuck", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        world
            .eventually("the rollout of 1.0.1 begins", SOON, async || {
                let extension = extensions(world).get(name).await?;
                let active = extension.status.map_or(0, |status| status.active_revisions.len());
                Ok((active == 2).then_some(()))
            })
            .await?;
        rest(world, name, "InProgress").await?;
        columns(world, "cext", name, "False", "RollingOut").await?;
        world.kubectl(&["label", "nodes", "--all", "gitops-stuck=no"])?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_a_paused_extension() -> Result<()> {
    lifecycle("paused", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        annotate(world, name, user::PAUSED, Some("true")).await?;
        rest(world, name, "Failed").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        let paused = rest(world, name, "Failed").await?;
        let said = olm_test::gitops::ask(&[paused])?;
        ensure!(
            said.iter().all(|said| said.argo.status == "Suspended"),
            "{said:?}"
        );
        annotate(world, name, user::PAUSED, None).await?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_changes_that_need_an_approval() -> Result<()> {
    lifecycle("approved", async |world, name| {
        let policy = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ChangePolicy", "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": { "gitops": name } }, "approval": { "default": "Manual" } },
        });
        world.apply(&[policy])?;
        let approve = || {
            let olm = olm_test::world::binary("olm")?;
            let run = std::process::Command::new(olm)
                .args(["approve", name, "--yes", "--kubeconfig"])
                .arg(world.cluster.kubeconfig())
                .output()?;
            ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            anyhow::Ok(())
        };
        let kind = "kind: ClusterExtension\nmetadata:\n";
        let labelled = format!("{kind}  labels: {{gitops: {name}}}\n");
        apply_changed(world, name, "1.0.0", |text| text.replace(kind, &labelled))?;
        says(world, name, "Failed", "it needs an approval").await?;
        approve()?;
        rest(world, name, "Current").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        let waiting = rest(world, name, "Failed").await?;
        let said = olm_test::gitops::ask(&[waiting])?;
        ensure!(
            said.iter().all(|said| said.argo.status == "Suspended"),
            "{said:?}"
        );
        approve()?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_a_rollback() -> Result<()> {
    lifecycle("rolled-back", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        rest(world, name, "Current").await?;
        // Without an edge back the change is refused.
        patch_source(world, name, json!({ "version": "1.0.0" })).await?;
        rest(world, name, "Failed").await?;
        patch_source(world, name, json!({ "upgradeConstraintPolicy": "SelfCertified" })).await?;
        rest(world, name, "Current").await.map(drop)
    })
}

#[test]
fn tools_are_right_about_drift() -> Result<()> {
    lifecycle("drifted", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        let deployments = Api::<Deployment>::namespaced(world.client.clone(), name);
        let operator = format!("{name}-operator");
        let drift = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
        deployments
            .patch(&operator, &PatchParams::default(), &drift)
            .await?;
        repaired(world, name, None).await?;
        let uid = deployments.get(&operator).await?.metadata.uid;
        deployments.delete(&operator, &DeleteParams::default()).await?;
        repaired(world, name, uid.as_deref()).await?;
        rest(world, name, "Current").await.map(drop)
    })
}

/// Waits until the Deployment has one replica again, and another UID.
async fn repaired(world: &World, name: &str, gone: Option<&str>) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), name);
    world
        .eventually("the Deployment is as it was", SOON, async || {
            let found = deployments
                .get_opt(&format!("{name}-operator"))
                .await?
                .context("it is gone")?;
            let is_new = found.metadata.uid.as_deref() != gone;
            let ready = found.status.and_then(|status| status.available_replicas) == Some(1);
            Ok((is_new && ready && found.spec.and_then(|spec| spec.replicas) == Some(1)).then_some(()))
        })
        .await
}

#[test]
fn tools_are_right_about_an_uninstallation() -> Result<()> {
    lifecycle("uninstalled", async |world, name| {
        apply(world, name, "1.0.0")?;
        rest(world, name, "Current").await?;
        extensions(world).delete(name, &DeleteParams::default()).await?;
        await_gone(world, name).await
    })
}

#[test]
fn tools_are_right_about_an_adoption() -> Result<()> {
    lifecycle("adopted", async |world, name| {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": format!("{name}-operator"), "namespace": name },
        });
        world.apply(&[namespace, account])?;
        apply(world, name, "1.0.0")?;
        rest(world, name, "Failed").await?;
        annotate(world, name, user::ADOPT, Some("unowned")).await?;
        rest(world, name, "Current").await.map(drop)
    })
}

/// Waits until `kubectl get` shows these words in the columns READY and STATUS.
async fn columns(world: &World, kind: &str, name: &str, ready: &str, status: &str) -> Result<()> {
    world
        .eventually(&format!("{ready} {status}"), SOON, async || {
            let row = world.kubectl(&["get", kind, name, "--no-headers"])?;
            let words: Vec<&str> = row.split_whitespace().collect();
            ensure!(words.windows(2).any(|two| two == [ready, status]), "{row}");
            Ok(Some(()))
        })
        .await
}

#[test]
fn kubectl_columns_tell_the_states_apart_and_describe_shows_events() -> Result<()> {
    lifecycle("shown", async |world, name| {
        let blobs = publish(world, name, &["1.0.0"], SAME).await?;
        let deprecation = json!({ "schema": "olm.deprecations", "package": name, "entries": [
            { "reference": { "schema": "olm.package" }, "message": "use another" },
        ] });
        let missing = format!("{}/shown-catalog:none", world.registry()?);
        world.apply(&[catalog(name, &missing)])?;
        columns(world, "ccat", name, "False", "Retrying").await?;
        let reference = world.push_catalog("shown-catalog:v1", &blobs).await?;
        world.apply(&[catalog(name, &reference)])?;
        apply(world, name, "1.0.1")?;
        columns(world, "cext", name, "False", "Blocked").await?;
        patch_source(world, name, json!({ "version": "1.0.0" })).await?;
        columns(world, "cext", name, "True", "Healthy").await?;
        annotate(world, name, user::PAUSED, Some("true")).await?;
        columns(world, "cext", name, "False", "Paused").await?;
        annotate(world, name, user::PAUSED, None).await?;
        columns(world, "cext", name, "True", "Healthy").await?;
        let blobs = format!("{blobs}\n{deprecation}\n");
        let reference = world.push_catalog("shown-catalog:v2", &blobs).await?;
        world.apply(&[catalog(name, &reference)])?;
        columns(world, "cext", name, "True", "Deprecated").await?;
        columns(world, "ccat", name, "True", "Healthy").await?;
        columns(world, "cos", &format!("{name}-1"), "True", "Healthy").await?;
        let sets = world.kubectl(&["get", "cos", &format!("{name}-1"), "--no-headers"])?;
        let sets: Vec<&str> = sets.split_whitespace().collect();
        ensure!(
            sets.windows(2).any(|two| two == ["1.0.0", "1"]),
            "version and revision: {sets:?}"
        );
        let all = world.kubectl(&["get", "olm", "-o", "name"])?;
        for object in ["clusterextension", "clustercatalog", "clusterobjectset"] {
            let object = format!("{object}.olm.operatorframework.io/{name}");
            ensure!(all.contains(&object), "{all} lacks {object}");
        }
        let described = world.kubectl(&["describe", "clusterextension", name])?;
        let (_, events) = described.split_once("Events:").context("no events")?;
        ensure!(
            events.contains("Installed") && events.contains(&format!("{name}.v1.0.0")),
            "{described}"
        );
        Ok(())
    })
}
