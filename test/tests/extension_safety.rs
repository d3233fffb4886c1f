//! Changes that are not safe, on real parts: refused before anything is written, told, and possible when the user says so.
//! One cluster for all.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::conditions::{self, reason};
use olm_api::names::{self, label, user};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, installed_version, merge,
    patch_source, revisions,
};
use olm_test::samples;
use olm_test::world::{Options, World, repository};
use serde_json::{Value, json};

/// The sample operator under another name, with kinds of its own.
fn renamed(text: &str, name: &str) -> String {
    text.replace("greeter", name)
        .replace("samples.olm.example", &format!("{name}.olm.example"))
}

/// Publishes versions of the sample operator under another name, each file changed; gives the catalog's blobs.
async fn publish(
    world: &World,
    name: &str,
    versions: &[&str],
    change: impl Fn(&str, String) -> String,
) -> Result<String> {
    let mut images = BTreeMap::new();
    for version in versions {
        let files = samples::bundle(version, "sample-operator:v1")
            .into_iter()
            .map(|(path, content)| {
                let text = change(version, renamed(&String::from_utf8_lossy(&content), name));
                (path, text.into_bytes())
            })
            .collect();
        let image = world
            .push_bundle(&format!("{name}-bundle:v{version}"), &files)
            .await?;
        images.insert(*version, image);
    }
    let blobs = samples::catalog(versions, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    Ok(renamed(&blobs, name))
}

/// The extension's file, with its namespace, account and rights.
fn file(world: &World, name: &str, version: &str) -> Result<String> {
    let text = std::fs::read_to_string(repository().join("manifests/samples/greeter.yaml"))?;
    let path = world.folder().join(format!("{name}.yaml"));
    std::fs::write(&path, renamed(&text, name).replace("1.0.x", version))?;
    Ok(path.display().to_string())
}

async fn install(world: &World, name: &str, version: &str) -> Result<()> {
    world.kubectl(&["apply", "--server-side", "-f", &file(world, name, version)?])?;
    await_version(world, name, version).await.map(drop)
}

async fn annotate(world: &World, name: &str, key: &str, value: Option<&str>) -> Result<()> {
    merge(
        world,
        name,
        json!({ "metadata": { "annotations": { key: value } } }),
    )
    .await
}

fn definition(world: &World, name: &str) -> Result<Option<Value>> {
    let text = world.kubectl(&[
        "get",
        "crd",
        &format!("greetings.{name}.olm.example"),
        "-o",
        "json",
        "--ignore-not-found",
    ])?;
    Ok(if text.trim().is_empty() {
        None
    } else {
        Some(serde_json::from_str(&text)?)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_safe_is_refused_told_and_done_when_the_user_says_so() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let same = |_: &str, text: String| text;
    let mut blobs = publish(&world, "kettle", &["1.0.0", "1.0.1", "1.1.0"], kettle).await?;
    for name in ["pot", "pan"] {
        blobs.push_str(&publish(&world, name, &["1.0.0"], same).await?);
    }
    blobs.push_str(&publish(&world, "cup", &["1.0.0", "1.0.1"], same).await?);
    let reference = world.push_catalog("safety-catalog:latest", &blobs).await?;
    world.apply(&[catalog("samples", &reference)])?;
    let done = tokio::join!(
        definitions_that_break_what_is_stored(&world),
        a_deletion_without_account_is_explained_and_orphaning_ends_it(&world),
        a_deletion_goes_on_when_the_account_is_back(&world),
        lost_content_is_made_again_and_annotations_are_obeyed(&world),
        an_account_is_named_only_by_those_who_may_impersonate_it(&world),
    );
    done.0.context("definitions")?;
    done.1.context("orphaning")?;
    done.2.context("the account is back")?;
    done.3.context("content and annotations")?;
    done.4.context("accounts")
}

/// 1.0.1 replaces the stored version, 1.1.0 makes a field required.
fn kettle(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text
            .replace("- name: v1\n      served", "- name: v2\n      served")
            .replace("version: v1\n        kind", "version: v2\n        kind"),
        "1.1.0" => text.replace("required: [name]", "required: [name, salutation]"),
        _ => text,
    }
}

async fn definitions_that_break_what_is_stored(world: &World) -> Result<()> {
    install(world, "kettle", "1.0.0").await?;
    for (version, part) in [
        (
            "1.0.1",
            "validating upgrade for CRD \"greetings.kettle.olm.example\": storedVersionRemoval: stored versions removed : [v1]",
        ),
        (
            "1.1.0",
            "validating upgrade for CRD \"greetings.kettle.olm.example\": v1: ^.spec: required: new required fields: [salutation]",
        ),
    ] {
        patch_source(world, "kettle", json!({ "version": version })).await?;
        await_progressing(world, "kettle", reason::RETRYING, part).await?;
        let extension = extensions(world).get("kettle").await?;
        ensure!(installed_version(&extension) == Some("1.0.0"));
        ensure!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
        ensure!(
            revisions(world).get_opt("kettle-2").await?.is_none(),
            "nothing is written"
        );
    }
    // A check by itself.
    annotate(world, "kettle", user::CRD_POLICY, Some("require=Warn")).await?;
    await_progressing(world, "kettle", reason::BLOCKED, "there is no check \"require\"").await?;
    annotate(world, "kettle", user::CRD_POLICY, Some("required=Warn")).await?;
    await_version(world, "kettle", "1.1.0").await?;
    // Back, which removes a field; all checks at once.
    let back = json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" });
    patch_source(world, "kettle", back).await?;
    await_progressing(
        world,
        "kettle",
        reason::RETRYING,
        "existingFieldRemoval: removed field : v1.^.spec.salutation",
    )
    .await?;
    let none = json!({ "crdUpgradeSafety": { "enforcement": "None" } });
    merge(
        world,
        "kettle",
        json!({ "spec": { "install": { "preflight": none } } }),
    )
    .await?;
    await_version(world, "kettle", "1.0.0").await.map(drop)
}

/// Takes the rights, the account, its namespace and the extension away.
async fn remove_with_account(world: &World, name: &str) -> Result<()> {
    let installer = format!("{name}-installer");
    world.kubectl(&["delete", "clusterrolebinding,clusterrole", &installer])?;
    world.kubectl(&["delete", "serviceaccount", &installer, "-n", name])?;
    world.kubectl(&["delete", "namespace", name, "--wait=false"])?;
    extensions(world).delete(name, &DeleteParams::default()).await?;
    let message = await_progressing(world, name, reason::RETRYING, "does not exist").await?;
    for part in [
        "cannot remove the objects of this revision",
        "object(s) may be left: ",
        &format!("service account {name}/{installer}"),
        user::UNINSTALL,
    ] {
        ensure!(message.contains(part), "{part:?} is not in {message}");
    }
    ensure!(definition(world, name)?.is_some(), "it cannot have been removed");
    Ok(())
}

async fn a_deletion_without_account_is_explained_and_orphaning_ends_it(world: &World) -> Result<()> {
    install(world, "pot", "1.0.0").await?;
    remove_with_account(world, "pot").await?;
    annotate(world, "pot", user::UNINSTALL, Some("leave")).await?;
    await_progressing(world, "pot", reason::BLOCKED, "unknown value \"leave\"").await?;
    annotate(world, "pot", user::UNINSTALL, Some("orphan")).await?;
    await_gone(world, "pot").await?;
    let left = definition(world, "pot")?.context("the definition is left")?;
    ensure!(left.pointer("/metadata/ownerReferences").is_none(), "{left}");
    ensure!(left.pointer("/metadata/deletionTimestamp").is_none(), "{left}");
    ensure!(revisions(world).get_opt("pot-1").await?.is_none());
    Ok(())
}

async fn a_deletion_goes_on_when_the_account_is_back(world: &World) -> Result<()> {
    install(world, "pan", "1.0.0").await?;
    // Only a label says that it belongs to the extension: it is not in the way.
    world.apply(&[json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterObjectSet",
        "metadata": { "name": "not-of-pan", "labels": { label::OWNER_NAME: "pan" } },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })])?;
    remove_with_account(world, "pan").await?;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(world.client.clone());
    world
        .eventually("the namespace is gone", SOON, async || {
            Ok(namespaces.get_opt("pan").await?.is_none().then_some(()))
        })
        .await?;
    let text = std::fs::read_to_string(file(world, "pan", "1.0.0")?)?;
    let extension = text.rfind("---").context("the extension comes last")?;
    let path = world.folder().join("pan-account.yaml");
    std::fs::write(&path, text.get(..extension).unwrap_or_default())?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    await_gone(world, "pan").await?;
    ensure!(definition(world, "pan")?.is_none(), "nothing is left");
    ensure!(revisions(world).get_opt("not-of-pan").await?.is_some());
    Ok(())
}

async fn lost_content_is_made_again_and_annotations_are_obeyed(world: &World) -> Result<()> {
    install(world, "cup", "1.0.0").await?;
    let secrets = Api::<Secret>::namespaced(world.client.clone(), names::SYSTEM_NAMESPACE);
    let content = ListParams::default().labels(&format!("{}=cup-1", label::REVISION_NAME));
    let before: Vec<_> = secrets
        .list(&content)
        .await?
        .items
        .into_iter()
        .map(|s| s.data)
        .collect();
    ensure!(!before.is_empty());
    secrets
        .delete_collection(&DeleteParams::default(), &content)
        .await?;
    // Its content is needed now.
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), "cup");
    deployments
        .delete("cup-operator", &DeleteParams::default())
        .await?;
    world
        .eventually(
            "the lost content and the deleted Deployment are back",
            SOON,
            async || {
                let present = deployments.get_opt("cup-operator").await?;
                let there = present.is_some_and(|found| found.metadata.deletion_timestamp.is_none());
                let after: Vec<_> = secrets.list(&content).await?.items;
                let owned = after
                    .iter()
                    .all(|secret| secret.metadata.owner_references.is_some());
                let after: Vec<_> = after.into_iter().map(|s| s.data).collect();
                Ok((there && owned && after == before).then_some(()))
            },
        )
        .await?;
    // A name that something else has is passed over.
    world.apply(&[json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterObjectSet",
        "metadata": { "name": "cup-2" },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })])?;
    for (key, part) in [
        (user::ADOPT, "(known are never, unowned, all)"),
        (user::UPGRADEABLE_OVERRIDE, "(known are true, false)"),
    ] {
        annotate(world, "cup", key, Some("perhaps")).await?;
        let message = await_progressing(world, "cup", reason::BLOCKED, part).await?;
        ensure!(message.contains(key), "{message}");
        annotate(world, "cup", key, None).await?;
    }
    annotate(world, "cup", user::PAUSED, Some("true")).await?;
    patch_source(world, "cup", json!({ "version": "1.0.1" })).await?;
    await_progressing(world, "cup", reason::BLOCKED, user::PAUSED).await?;
    world
        .eventually("the revision stands still, too", SOON, async || {
            let set = revisions(world).get("cup-1").await?;
            Ok((set.annotation(user::PAUSED) == Some("true")).then_some(()))
        })
        .await?;
    ensure!(installed_version(&extensions(world).get("cup").await?) == Some("1.0.0"));
    annotate(world, "cup", user::PAUSED, None).await?;
    await_version(world, "cup", "1.0.1").await?;
    let set = revisions(world).get("cup-3").await?;
    ensure!(set.label(label::OWNER_NAME) == Some("cup"));
    Ok(())
}

/// A ClusterExtension and a ClusterObjectSet as somebody writes them.
fn written(extension: &str, account: Option<&str>, owner: Option<Value>) -> [Value; 2] {
    let mut one = json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterExtension",
        "metadata": { "name": extension },
        "spec": {
            "namespace": "attack",
            "source": { "sourceType": "Catalog", "catalog": { "packageName": "none-such" } },
        },
    });
    let mut two = json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterObjectSet",
        "metadata": { "name": format!("{extension}-1") },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    });
    if let Some(account) = account {
        one["spec"]["serviceAccount"] = json!({ "name": account });
        two["metadata"]["annotations"] =
            json!({ names::annotation::SERVICE_ACCOUNT: format!("attack/{account}") });
    }
    if let Some(owner) = owner {
        two["metadata"]["ownerReferences"] = json!([owner]);
    }
    [one, two]
}

/// Whether alice may do it; nothing is done.
fn alice(world: &World, arguments: &[&str], object: Option<&Value>) -> Result<bool> {
    let path = world.folder().join("alice.json");
    let place = path.display().to_string();
    let mut all = vec!["--as=alice", "--dry-run=server"];
    all.extend(arguments);
    if let Some(object) = object {
        std::fs::write(&path, object.to_string())?;
        all.extend(["-f", &place]);
    }
    match world.kubectl(&all) {
        Ok(_) => Ok(true),
        Err(error) if format!("{error:#}").contains("ValidatingAdmissionPolicy") => Ok(false),
        Err(error) => Err(error),
    }
}

/// Alice may write extensions and sets; somebody else has an extension with a strong account. Gives the reference to it.
async fn stage(world: &World) -> Result<Value> {
    let rbac = "rbac.authorization.k8s.io";
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "attack"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "strong", "namespace": "attack"}}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "extension-writer"},
            "rules": [{"apiGroups": [names::GROUP], "resources": ["*"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "extension-writer"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "extension-writer"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alice"}],
        }),
    ])?;
    let [victim, _] = written("victim", Some("strong"), None);
    world.apply(&[victim])?;
    let uid = extensions(world)
        .get("victim")
        .await?
        .metadata
        .uid
        .context("uid")?;
    Ok(json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterExtension", "name": "victim", "uid": uid, "controller": true,
    }))
}

async fn an_account_is_named_only_by_those_who_may_impersonate_it(world: &World) -> Result<()> {
    let owner = stage(world).await?;
    let creations = |account| written("hers", account, None);
    world
        .eventually("the policy is in force", SOON, async || {
            let [extension, _] = creations(Some("strong"));
            Ok((!alice(world, &["create"], Some(&extension))?).then_some(()))
        })
        .await?;
    let check = |what: &str, arguments: &[&str], object: Option<&Value>, allowed: bool| -> Result<()> {
        match alice(world, arguments, object) {
            Ok(found) if found == allowed => Ok(()),
            Ok(found) => bail!("{what}: allowed is {found}"),
            Err(error) => Err(error.context(what.to_owned())),
        }
    };
    let [_, set] = creations(Some("strong"));
    check("a set names the account", &["create"], Some(&set), false)?;
    let mut malformed = set.clone();
    malformed["metadata"]["annotations"] = json!({ names::annotation::SERVICE_ACCOUNT: "strong" });
    check(
        "a set names half an account",
        &["create"],
        Some(&malformed),
        false,
    )?;
    for object in creations(None) {
        check("no account is named", &["create"], Some(&object), true)?;
    }
    let [_, revision] = written("victim", None, Some(owner));
    check("a revision is slipped in", &["create"], Some(&revision), false)?;
    let spec = r#"{"spec":{"source":{"catalog":{"version":"1.0.0"}}}}"#;
    let account = r#"{"spec":{"serviceAccount":null}}"#;
    let orphan = format!(
        r#"{{"metadata":{{"annotations":{{"{}":"orphan"}}}}}}"#,
        user::UNINSTALL
    );
    let label = r#"{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}"#;
    let change = ["patch", "clusterextension", "victim", "--type=merge", "-p"];
    let with = |patch| -> Vec<&str> { change.iter().copied().chain([patch]).collect() };
    check("the spec is changed", &with(spec), None, false)?;
    check("the account is taken away", &with(account), None, false)?;
    check("an annotation is set", &with(&orphan), None, false)?;
    check("other metadata is changed", &with(label), None, true)?;

    world.kubectl(&[
        "create",
        "role",
        "strong-user",
        "-n",
        "attack",
        "--verb=impersonate",
        "--resource=serviceaccounts",
        "--resource-name=strong",
    ])?;
    world.kubectl(&[
        "create",
        "rolebinding",
        "strong-user",
        "-n",
        "attack",
        "--role=strong-user",
        "--user=alice",
    ])?;
    world
        .eventually("the right counts", SOON, async || {
            let [extension, _] = creations(Some("strong"));
            Ok(alice(world, &["create"], Some(&extension))?.then_some(()))
        })
        .await?;
    check("a set names the account", &["create"], Some(&set), true)?;
    check("the spec is changed", &with(spec), None, true)?;
    check("a revision is slipped in", &["create"], Some(&revision), false)?;
    let [other, _] = creations(Some("stronger"));
    check("another account is named", &["create"], Some(&other), false)?;

    // Where there is a default account, naming none is naming it.
    world.apply_file("manifests/overlays/default-account/policy.yaml")?;
    world
        .eventually("the policy of the overlay is in force", SOON, async || {
            let [extension, _] = creations(None);
            Ok((!alice(world, &["create"], Some(&extension))?).then_some(()))
        })
        .await?;
    let [_, none] = creations(None);
    check("a set names no account", &["create"], Some(&none), false)?;
    check("the account is taken away", &with(account), None, false)?;
    check("a set names the account", &["create"], Some(&set), true)?;
    check("the spec is changed", &with(spec), None, true)
}
