//! Releases of the reference's Helm runtime.

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use olm_api::conditions;
use olm_api::names::{annotation, label, user};
use olm_test::extensions::{SOON, await_gone, await_progressing, await_version, extensions, merge};
use olm_test::world::World;
use serde_json::{Value, json};

use crate::reference::{Installed, name};
use crate::{
    NAME, extension, greeter, live, pods, rendered, seen, sets, settled, unchanged, uninstall, upgrade,
    written,
};

pub(crate) async fn releases_of_helm_become_revisions(world: &mut World, image: &str) -> Result<()> {
    world.operator_controller.stop().await?;
    let objects = rendered("1.0.0")?;
    let extension = extension(world, false).await?;
    let installed = greeter(&extension, image, &objects)?;
    installed.by_helm(world).await?;
    installed.write_status(world).await?;
    world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "broken"},
        "spec": {"namespace": NAME, "source": {"sourceType": "Catalog", "catalog": {"packageName": "broken"}}},
    })])?;
    let broken = extensions(world).get("broken").await?;
    let broken = Installed {
        name: "broken",
        uid: broken.metadata.uid.as_deref().context("a UID")?,
        ..installed
    };
    broken.store(world, 1, "deployed", b"no release").await?;
    broken.write_status(world).await?;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stranded", "namespace": NAME}, "data": {"key": "value"},
    });
    stranded_by_helm(world, &config, image).await?;
    settled(world, &objects).await?;
    let (before, running) = (seen(world, &objects).await?, pods(world).await?);
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    let world = &*world;
    let stranded = objects_that_no_account_took_over_are_left_behind(world, &config).await;

    an_unreadable_object_is_reported_and_not_adopted(world).await?;
    stranded.context("leaving behind what no account has taken over")?;

    // Without an account nothing changes.
    await_progressing(world, NAME, conditions::reason::BLOCKED, "no service account").await?;
    still_installed(world, NAME).await?;
    let found = sets(world).await?;
    let [set] = &found[..] else {
        panic!("there are {} revisions", found.len())
    };
    ensure!(set.name() == "greeter-1" && set.spec.revision == 1);
    ensure!(set.label(label::MIGRATED_FROM_HELM) == Some("true"));
    ensure!(set.annotation(annotation::BUNDLE_NAME) == Some("greeter.v1.0.0"));
    let succeeded =
        conditions::find(set.conditions(), conditions::SUCCEEDED).context("it counts as complete")?;
    ensure!(succeeded.message == "Revision succeeded - migrated from Helm release");
    unchanged(&before, &seen(world, &objects).await?)?;

    // With one, the revision takes the objects over, and no other revision is created.
    merge(
        world,
        NAME,
        json!({"spec": {"serviceAccount": {"name": "greeter-installer"}}}),
    )
    .await?;
    await_version(world, NAME, "1.0.0").await?;
    for object in &objects {
        world
            .eventually(&format!("{} is taken over", name(object)), SOON, async || {
                let live = live(world, object).await?;
                let owners = live["metadata"]["ownerReferences"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                ensure!(
                    owners.len() == 1 && owners[0]["name"] == "greeter-1",
                    "{owners:?}"
                );
                let text = live["metadata"].to_string();
                ensure!(
                    !text.contains("meta.helm.sh") && !text.contains("\"Helm\""),
                    "{text}"
                );
                ensure!(live["metadata"]["labels"][label::MANAGED_BY] == label::MANAGED_BY_OLM);
                Ok(Some(()))
            })
            .await?;
    }
    unchanged(&written(before), &written(seen(world, &objects).await?))?;
    ensure!(pods(world).await? == running, "Pods were restarted");
    ensure!(sets(world).await?.len() == 1, "another revision was made");
    upgrade(world, &objects).await?;
    uninstall(world, &objects).await
}

/// No object is reported as gone, and Kubernetes does not collect the objects that must stay.
async fn an_unreadable_object_is_reported_and_not_adopted(world: &World) -> Result<()> {
    let blocked = conditions::reason::BLOCKED;
    await_progressing(
        world,
        "broken",
        blocked,
        "restore the Secrets of the release, or delete them",
    )
    .await?;
    still_installed(world, "broken").await?;
    // An immediate deletion would let Kubernetes collect the objects that must stay.
    let leave = |value: Value| json!({"metadata": {"annotations": {user::UNINSTALL: value}}});
    merge(world, "broken", leave("orphan".into())).await?;
    extensions(world)
        .delete("broken", &DeleteParams::default())
        .await?;
    await_progressing(world, "broken", blocked, "--cascade=orphan").await?;
    merge(world, "broken", leave(Value::Null)).await?;
    await_gone(world, "broken").await
}

/// A release of one object, of an extension that names no account and is to leave its objects behind.
async fn stranded_by_helm(world: &World, config: &Value, image: &str) -> Result<()> {
    world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "stranded", "annotations": {user::UNINSTALL: "orphan"}},
        "spec": {"namespace": NAME, "source": {"sourceType": "Catalog", "catalog": {"packageName": "stranded"}}},
    })])?;
    let extension = extensions(world).get("stranded").await?;
    let installed = Installed {
        name: "stranded",
        uid: extension.metadata.uid.as_deref().context("a UID")?,
        package: "stranded",
        version: "1.0.0",
        image,
        objects: std::slice::from_ref(config),
    };
    installed.by_helm(world).await?;
    installed.write_status(world).await
}

/// The objects belong to the extension itself, and Kubernetes would delete them with it.
async fn objects_that_no_account_took_over_are_left_behind(world: &World, config: &Value) -> Result<()> {
    let blocked = conditions::reason::BLOCKED;
    await_progressing(world, "stranded", blocked, "no service account").await?;
    extensions(world)
        .delete("stranded", &DeleteParams::default())
        .await?;
    await_progressing(world, "stranded", blocked, "--cascade=orphan").await?;
    for what in ["clusterextension/stranded", "clusterobjectset/stranded-1"] {
        // The set may be gone when the extension is.
        let how = ["--cascade=orphan", "--ignore-not-found", "--timeout=60s"];
        world.kubectl(&[["delete", what].as_slice(), &how].concat())?;
    }
    await_gone(world, "stranded").await?;
    live(world, config).await.map(drop)
}

/// Checks that the status reports the installed bundle.
async fn still_installed(world: &World, name: &str) -> Result<()> {
    let extension = extensions(world).get(name).await?;
    let status = extension.status.clone().unwrap_or_default();
    let text = serde_json::to_string(&status)?;
    ensure!(
        conditions::is_true(extension.conditions(), conditions::INSTALLED),
        "{text}"
    );
    ensure!(
        status
            .install
            .is_some_and(|install| install.bundle.name == "greeter.v1.0.0"),
        "{text}"
    );
    Ok(())
}
