//! Extensions that the reference installed, and objects made by hand, are taken over where they are: nothing is made anew, no
//! Pod restarts. One cluster for all.

#![expect(clippy::panic, reason = "a test that cannot go on fails")]

mod reference;

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{annotation, label, user};
use olm_api::{ClusterExtension, ClusterObjectSet, conditions};
use olm_bundle::{Request, prepare};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, merge, patch_source, revisions,
};
use olm_test::objects::api;
use olm_test::samples;
use olm_test::world::{Options, World, binary, repository};
use reference::{Installed, SYSTEM, name};
use serde_json::{Value, json};

const NAME: &str = "greeter";
const VERSIONS: [&str; 3] = ["1.0.0", "1.0.1", "1.1.0"];
/// An environment variable that later versions do not have.
const OLD: &str = "OLD";

/// The files of a version.
fn files(version: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = samples::bundle(version, "sample-operator:v1");
    if version == "1.0.0" {
        for content in files.values_mut() {
            let first = "- name: OPERATOR_VERSION";
            let more =
                format!("- name: {OLD}\n                        value: set\n                      {first}");
            *content = String::from_utf8_lossy(content)
                .replace(first, &more)
                .into_bytes();
        }
    }
    files
}

/// The objects of a version as everybody renders them.
fn rendered(version: &str) -> Result<Vec<Value>> {
    Ok(prepare(&files(version), &BTreeMap::new(), &Request::new(NAME))?
        .rendered
        .into_objects())
}

/// What must not change while an object is taken over.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    uid: String,
    spec: Value,
    /// Unknown where others write the status.
    resource_version: Option<String>,
}

async fn live(world: &World, object: &Value) -> Result<Value> {
    let live = api(&world.client, object).get(name(object)).await;
    let live = live.with_context(|| format!("{} {}", object["kind"], name(object)))?;
    Ok(serde_json::to_value(live)?)
}

async fn seen(world: &World, objects: &[Value]) -> Result<BTreeMap<String, Seen>> {
    let mut all = BTreeMap::new();
    for object in objects {
        let live = live(world, object).await?;
        let text = |key: &str| live["metadata"][key].as_str().unwrap_or_default().to_owned();
        let seen = Seen {
            uid: text("uid"),
            spec: live["spec"].clone(),
            resource_version: Some(text("resourceVersion")).filter(|_| object["kind"] != "Deployment"),
        };
        all.insert(format!("{} {}", object["kind"], name(object)), seen);
    }
    Ok(all)
}

/// The same objects, but written.
fn written(seen: BTreeMap<String, Seen>) -> BTreeMap<String, Seen> {
    let plain = |seen: Seen| Seen {
        resource_version: None,
        ..seen
    };
    seen.into_iter().map(|(key, seen)| (key, plain(seen))).collect()
}

/// That nothing of what was seen differs.
fn unchanged(before: &BTreeMap<String, Seen>, after: &BTreeMap<String, Seen>) -> Result<()> {
    let changed: Vec<String> = before
        .iter()
        .filter(|(key, seen)| after.get(*key) != Some(seen))
        .map(|(key, seen)| format!("{key} was {seen:?}, is {:?}", after.get(key)))
        .collect();
    ensure!(changed.is_empty(), "{}", changed.join("\n"));
    Ok(())
}

async fn pods(world: &World) -> Result<Vec<Option<String>>> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAME);
    let listed = pods.list(&ListParams::default()).await?;
    let mut uids: Vec<_> = listed.items.into_iter().map(|pod| pod.metadata.uid).collect();
    uids.sort();
    Ok(uids)
}

/// Waits until the objects that the reference made have come to rest.
async fn settled(world: &World, objects: &[Value]) -> Result<()> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let crd = objects
        .iter()
        .find(|object| object["kind"] == "CustomResourceDefinition");
    for (object, condition) in [(deployment, "Available"), (crd, "Established")] {
        let object = object.context("the sample has both")?;
        world
            .eventually(&format!("{} is {condition}", name(object)), SOON, async || {
                let live = live(world, object).await?;
                let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
                let is_there = conditions
                    .into_iter()
                    .flatten()
                    .any(|found| found["type"] == condition && found["status"] == "True");
                Ok(is_there.then_some(()))
            })
            .await?;
    }
    Ok(())
}

/// The extension's namespace and account, and the extension itself as the reference keeps it.
async fn extension(world: &World, account: bool) -> Result<ClusterExtension> {
    let text = std::fs::read_to_string(repository().join("manifests/samples/greeter.yaml"))?;
    let (before, _) = text
        .rsplit_once("---")
        .context("the extension is the last object")?;
    let path = world.folder().join("account.yaml");
    std::fs::write(&path, before)?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    let mut extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": NAME, "finalizers": [
            "olm.operatorframework.io/cleanup-unpack-cache", "olm.operatorframework.io/cleanup-contentmanager-cache",
        ]},
        "spec": {"namespace": NAME, "source": {"sourceType": "Catalog", "catalog": {
            "packageName": NAME, "channels": ["stable"], "version": "1.0.0",
        }}},
    });
    if account {
        extension["spec"]["serviceAccount"] = json!({"name": "greeter-installer"});
    }
    world.apply(&[extension])?;
    Ok(extensions(world).get(NAME).await?)
}

/// The first version of the sample as the reference has installed it.
fn greeter<'a>(
    extension: &'a ClusterExtension,
    image: &'a str,
    objects: &'a [Value],
) -> Result<Installed<'a>> {
    Ok(Installed {
        name: NAME,
        uid: extension.metadata.uid.as_deref().context("a UID")?,
        package: NAME,
        version: "1.0.0",
        image,
        objects,
    })
}

async fn sets(world: &World) -> Result<Vec<ClusterObjectSet>> {
    let mut sets = revisions(world).list(&ListParams::default()).await?.items;
    sets.sort_by_key(|set| set.spec.revision);
    Ok(sets)
}

/// An upgrade changes the same objects; what the new version leaves out is gone.
async fn upgrade(world: &World, objects: &[Value]) -> Result<()> {
    let before = seen(world, objects).await?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("the sample has a Deployment")?;
    ensure!(live(world, deployment).await?.to_string().contains(OLD));
    patch_source(
        world,
        NAME,
        json!({"version": "1.1.0", "upgradeConstraintPolicy": "SelfCertified"}),
    )
    .await?;
    await_version(world, NAME, "1.1.0").await?;
    let after = live(world, deployment).await?;
    let before = &before[&format!("{} {}", deployment["kind"], name(deployment))];
    ensure!(
        after["metadata"]["uid"].as_str() == Some(before.uid.as_str()),
        "the Deployment was made anew"
    );
    ensure!(
        !after["spec"].to_string().contains(OLD),
        "what the new version leaves out is still there: {after}"
    );
    let sets = sets(world).await?;
    let numbers: Vec<i64> = sets.iter().map(|set| set.spec.revision).collect();
    ensure!(numbers == [1, 2], "revisions {numbers:?}");
    Ok(())
}

/// Nothing of the extension is left.
async fn uninstall(world: &World, objects: &[Value]) -> Result<()> {
    extensions(world).delete(NAME, &DeleteParams::default()).await?;
    await_gone(world, NAME).await?;
    ensure!(sets(world).await?.is_empty(), "a revision is left");
    for object in objects {
        let left = api(&world.client, object).get_opt(name(object)).await?;
        ensure!(left.is_none(), "{} {} is left", object["kind"], name(object));
    }
    world
        .eventually("the records are gone", SOON, async || {
            let secrets: Api<Secret> = Api::namespaced(world.client.clone(), SYSTEM);
            let left = secrets.list_metadata(&ListParams::default()).await?.items;
            let ours = |name: &String| name.contains(NAME);
            let names: Vec<String> = left
                .into_iter()
                .filter_map(|s| s.metadata.name)
                .filter(ours)
                .collect();
            ensure!(names.is_empty(), "{names:?}");
            Ok(Some(()))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_reference_installed_and_what_was_made_by_hand_is_taken_over_where_it_is() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    let mut images = BTreeMap::new();
    for version in VERSIONS {
        let image = world
            .push_bundle(&format!("greeter-bundle:v{version}"), &files(version))
            .await?;
        images.insert(version, image);
    }
    let blobs = samples::catalog(&VERSIONS, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    let reference = world.push_catalog("greeter-catalog:latest", &blobs).await?;
    world.apply(&[catalog("samples", &reference)])?;
    let image = &images["1.0.0"];
    revisions_of_the_reference_go_on(&mut world, image)
        .await
        .context("Boxcutter")?;
    an_upgrade_that_the_reference_began_is_finished(&mut world, [image, &images["1.1.0"]])
        .await
        .context("Boxcutter, in the middle of an upgrade")?;
    releases_of_helm_become_revisions(&mut world, image)
        .await
        .context("Helm")?;
    objects_made_by_hand_are_taken_over_when_the_user_says_so(&world)
        .await
        .context("by hand")
}

async fn revisions_of_the_reference_go_on(world: &mut World, image: &str) -> Result<()> {
    world.operator_controller.stop().await?;
    let objects = rendered("1.0.0")?;
    let extension = extension(world, true).await?;
    let installed = greeter(&extension, image, &objects)?;
    installed.by_boxcutter(world).await?;
    installed.write_status(world).await?;
    settled(world, &objects).await?;
    let (before, running, [set]) = (seen(world, &objects).await?, pods(world).await?, {
        let sets = sets(world).await?;
        <[ClusterObjectSet; 1]>::try_from(sets).map_err(|sets| anyhow::anyhow!("{} sets", sets.len()))?
    });
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    let world = &*world;
    await_version(world, NAME, "1.0.0").await?;
    world
        .eventually("the revision goes on", SOON, async || {
            let found = sets(world).await?;
            let [found] = &found[..] else {
                anyhow::bail!("there are {} revisions", found.len())
            };
            ensure!(found.metadata.uid == set.metadata.uid, "it is another one");
            ensure!(found.spec.phases == set.spec.phases);
            let status = serde_json::to_string(&found.status)?;
            let progressing = conditions::find(found.conditions(), conditions::PROGRESSING);
            ensure!(
                progressing.is_some_and(|it| it.reason == conditions::reason::SUCCEEDED),
                "{status}"
            );
            let account = found.annotation(annotation::SERVICE_ACCOUNT);
            ensure!(account == Some("greeter/greeter-installer"), "{account:?}");
            Ok(Some(()))
        })
        .await?;
    unchanged(&before, &seen(world, &objects).await?)?;
    ensure!(pods(world).await? == running, "Pods were restarted");
    upgrade(world, &objects).await?;
    uninstall(world, &objects).await
}

async fn an_upgrade_that_the_reference_began_is_finished(world: &mut World, images: [&str; 2]) -> Result<()> {
    world.operator_controller.stop().await?;
    let (objects, later) = (rendered("1.0.0")?, rendered("1.1.0")?);
    let extension = extension(world, true).await?;
    let first = greeter(&extension, images[0], &objects)?;
    first.by_boxcutter(world).await?;
    first.write_status(world).await?;
    settled(world, &objects).await?;
    patch_source(
        world,
        NAME,
        json!({"version": "1.1.0", "upgradeConstraintPolicy": "SelfCertified"}),
    )
    .await?;
    let made = revisions(world).get("greeter-1").await?;
    let second = Installed {
        version: "1.1.0",
        image: images[1],
        objects: &later,
        ..first
    };
    // The definition is at the new version, the Deployment is not.
    let uid = made.metadata.uid.as_deref().context("a UID")?;
    second
        .begins_by_boxcutter(world, uid, reference::UP_TO_DEFINITIONS)
        .await?;
    let (before, made) = (seen(world, &objects).await?, sets(world).await?);
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    let world = &*world;
    await_version(world, NAME, "1.1.0").await?;
    world
        .eventually(
            "the earlier revision is archived, and no other is made",
            SOON,
            async || {
                let found = sets(world).await?;
                let states: Vec<_> = found
                    .iter()
                    .map(|set| (set.metadata.uid.clone(), set.spec.lifecycle_state))
                    .collect();
                let uids: Vec<_> = made.iter().map(|set| set.metadata.uid.clone()).collect();
                let expected: Vec<_> = uids
                    .into_iter()
                    .zip([LifecycleState::Archived, LifecycleState::Active])
                    .collect();
                ensure!(states == expected, "{states:?} is not {expected:?}");
                ensure!(
                    found
                        .iter()
                        .zip(&made)
                        .all(|(found, made)| found.spec.phases == made.spec.phases)
                );
                Ok(Some(()))
            },
        )
        .await?;
    // Roles have other names in each version.
    let after = seen(world, &later).await?;
    let mut kept: Vec<&str> = Vec::new();
    for (key, now) in &after {
        if let Some(before) = before.get(key) {
            ensure!(before.uid == now.uid, "{key} was made anew");
            kept.extend(key.split_whitespace().next());
        }
    }
    let expected = ["CustomResourceDefinition", "Deployment", "ServiceAccount"];
    ensure!(
        kept.iter().map(|kind| kind.trim_matches('"')).eq(expected),
        "{kept:?}"
    );
    let deployment = later.iter().find(|object| object["kind"] == "Deployment");
    let live = live(world, deployment.context("the sample has a Deployment")?).await?;
    ensure!(!live["spec"].to_string().contains(OLD), "{live}");
    ensure!(
        live["metadata"]["ownerReferences"][0]["name"] == "greeter-2",
        "{live}"
    );
    uninstall(world, &later).await
}

async fn releases_of_helm_become_revisions(world: &mut World, image: &str) -> Result<()> {
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
    let stranded = what_no_account_has_taken_over_is_left_behind(world, &config).await;

    what_cannot_be_read_is_told_and_not_taken_along(world).await?;
    stranded.context("leaving behind what no account has taken over")?;

    // Without an account all stays as it is.
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

    // With one the objects become the revision's, and no other revision is made.
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

/// Nothing is said to be gone, and what is to be left behind is not left to Kubernetes.
async fn what_cannot_be_read_is_told_and_not_taken_along(world: &World) -> Result<()> {
    let blocked = conditions::reason::BLOCKED;
    await_progressing(
        world,
        "broken",
        blocked,
        "restore the Secrets of the release, or delete them",
    )
    .await?;
    still_installed(world, "broken").await?;
    // Deleted as it is, Kubernetes would collect what is to be left behind.
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
async fn what_no_account_has_taken_over_is_left_behind(world: &World, config: &Value) -> Result<()> {
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

/// The status says of a bundle that is there that it is.
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

async fn objects_made_by_hand_are_taken_over_when_the_user_says_so(world: &World) -> Result<()> {
    let mut objects = rendered("1.0.0")?;
    objects.retain(|object| object["kind"] == "ServiceAccount");
    world.apply(&objects)?;
    let before = seen(world, &objects).await?;
    extension(world, true).await?;
    let collision = "revision object collisions";
    await_progressing(world, NAME, conditions::reason::RETRYING, collision).await?;
    unchanged(&before, &seen(world, &objects).await?)?;
    merge(
        world,
        NAME,
        json!({"metadata": {"annotations": {user::ADOPT: "unowned"}}}),
    )
    .await?;
    await_version(world, NAME, "1.0.0").await?;
    unchanged(&written(before), &written(seen(world, &objects).await?))?;
    a_rollback_says_what_is_lost_before_it_goes_back(world)
        .await
        .context("rollback")?;
    uninstall(world, &objects).await
}

/// Runs `olm rollback greeter`; says whether it went well and what it printed.
fn rollback(world: &World, arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(binary("olm")?)
        .args(["rollback", NAME, "--kubeconfig"])
        .arg(world.cluster.kubeconfig())
        .args(arguments)
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

async fn a_rollback_says_what_is_lost_before_it_goes_back(world: &World) -> Result<()> {
    let refused = |arguments: &[&str], part: &str| {
        let (done, text) = rollback(world, arguments)?;
        ensure!(!done && text.contains(part), "{arguments:?}: {text}");
        anyhow::Ok(())
    };
    refused(
        &[],
        "refused: no earlier revision of \"greeter\" with another version than 1.0.0 is kept",
    )?;
    patch_source(
        world,
        NAME,
        json!({"version": "1.1.0", "upgradeConstraintPolicy": "SelfCertified"}),
    )
    .await?;
    await_version(world, NAME, "1.1.0").await?;
    patch_source(
        world,
        NAME,
        json!({"version": "1.x", "upgradeConstraintPolicy": "CatalogProvided"}),
    )
    .await?;

    // The definition of 1.1.0 has a field more.
    refused(
        &["--to-revision", "7"],
        "kept before the present one are: 1 (1.0.0), 2 (1.0.0)",
    )?;
    let loss =
        "CRD \"greetings.samples.olm.example\" loses when it goes back: existingFieldRemoval: removed field";
    refused(&[], loss)?;
    refused(&[], "--accept-data-loss")?;
    let before = extensions(world).get(NAME).await?;
    let (done, text) = rollback(world, &["--accept-data-loss", "--dry-run"])?;
    ensure!(done && text.contains("nothing was changed"), "{text}");
    ensure!(extensions(world).get(NAME).await?.spec == before.spec);

    let (done, text) = rollback(world, &["--accept-data-loss"])?;
    ensure!(
        done && text.contains("greeter is at 1.1.0 (revision 3) and goes back to 1.0.0 (revision 2)"),
        "{text}"
    );
    await_version(world, NAME, "1.0.0").await?;
    let archived = LifecycleState::Archived;
    let expected = [
        (1, archived),
        (2, archived),
        (3, archived),
        (4, LifecycleState::Active),
    ];
    world
        .eventually("what is no longer wanted is archived", SOON, async || {
            let sets = sets(world).await?;
            let states: Vec<(i64, LifecycleState)> = sets
                .iter()
                .map(|set| (set.spec.revision, set.spec.lifecycle_state))
                .collect();
            ensure!(states == expected, "{states:?}");
            Ok(Some(()))
        })
        .await?;

    // What it says about the pin lifts it.
    let (_, patch) = text
        .split_once("--type merge -p '")
        .context("how the pin is lifted")?;
    let patch = patch.split('\'').next().unwrap_or_default();
    merge(world, NAME, serde_json::from_str(patch)?).await?;
    await_version(world, NAME, "1.1.0").await?;
    let after = extensions(world).get(NAME).await?;
    ensure!(after.spec == before.spec && after.annotation(user::CRD_POLICY).is_none());
    Ok(())
}
