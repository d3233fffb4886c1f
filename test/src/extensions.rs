//! Common steps and waits of tests with ClusterExtensions.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use olm_api::names::SYSTEM_NAMESPACE;
use olm_api::{ClusterExtension, ClusterObjectSet, conditions};
use olm_rollout::content::{SecretContent, resolve, secrets_of};
use serde_json::{Value, json};

use crate::world::{World, binary};

/// The time limit for short waits on a busy machine.
pub const SOON: Duration = Duration::from_mins(2);

/// A ClusterCatalog of an image.
pub fn catalog(name: &str, reference: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": { "name": name },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    })
}

/// A namespace, an account in it, and a binding that gives the account all rights.
pub fn administrator(namespace: &str, account: &str) -> [Value; 3] {
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": account, "namespace": namespace },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{namespace}-{account}") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
        }),
    ]
}

/// All ClusterExtensions.
pub fn extensions(world: &World) -> Api<ClusterExtension> {
    Api::all(world.client.clone())
}

/// All ClusterObjectSets.
pub fn revisions(world: &World) -> Api<ClusterObjectSet> {
    Api::all(world.client.clone())
}

/// The stored objects of a revision.
///
/// # Errors
/// A Secret is missing or does not match the revision.
pub async fn content(client: &Client, set: &ClusterObjectSet) -> Result<Vec<Value>> {
    let mut secrets = BTreeMap::new();
    for name in secrets_of(&set.spec, SYSTEM_NAMESPACE).into_keys() {
        let api: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
        let secret = api.get(&name.name).await?;
        let data = secret.data.unwrap_or_default().into_iter();
        let content = SecretContent {
            immutable: secret.immutable == Some(true),
            data: data.map(|(key, value)| (key, value.0)).collect(),
        };
        secrets.insert(name, content);
    }
    let content = resolve(&set.spec, &secrets, SYSTEM_NAMESPACE)?;
    let objects = content.phases.into_iter().flat_map(|phase| phase.objects);
    Ok(objects.map(|object| object.object).collect())
}

/// The installed version in the status.
pub fn installed_version(extension: &ClusterExtension) -> Option<&str> {
    Some(
        extension
            .status
            .as_ref()?
            .install
            .as_ref()?
            .bundle
            .version
            .as_str(),
    )
}

/// Whether a bundle is installed and no change is in progress.
pub fn is_settled(extension: &ClusterExtension) -> bool {
    conditions::is_true(extension.conditions(), conditions::INSTALLED)
        && conditions::find(extension.conditions(), conditions::PROGRESSING)
            .is_some_and(|progressing| progressing.reason == conditions::reason::SUCCEEDED)
}

/// Waits until this version is installed and no change is in progress.
///
/// # Errors
/// When that takes too long.
pub async fn await_version(world: &World, name: &str, version: &str) -> Result<ClusterExtension> {
    world
        .eventually(&format!("{name} is at {version}"), SOON, async || {
            let extension = extensions(world).get(name).await?;
            if installed_version(&extension) == Some(version) && is_settled(&extension) {
                return Ok(Some(extension));
            }
            anyhow::bail!("status is {}", serde_json::to_string(&extension.status)?)
        })
        .await
}

/// Waits until `Progressing` has this reason and the message of `Ready`, which explains it, this part; returns that
/// message.
///
/// # Errors
/// When that takes too long.
pub async fn await_progressing(world: &World, name: &str, reason: &str, part: &str) -> Result<String> {
    world
        .eventually(&format!("{name} is {reason} with {part:?}"), SOON, async || {
            let extension = extensions(world).get(name).await?;
            let of = |condition_type| conditions::find(extension.conditions(), condition_type);
            match (of(conditions::PROGRESSING), of(conditions::READY)) {
                (Some(found), Some(ready)) if found.reason == reason && ready.message.contains(part) => {
                    Ok(Some(ready.message.clone()))
                }
                _ => anyhow::bail!("status is {}", serde_json::to_string(&extension.status)?),
            }
        })
        .await
}

/// Changes fields below `spec.source.catalog`.
///
/// # Errors
/// When the API server refuses it.
pub async fn patch_source(world: &World, name: &str, catalog_source: Value) -> Result<()> {
    merge(
        world,
        name,
        json!({ "spec": { "source": { "catalog": catalog_source } } }),
    )
    .await
}

/// Changes fields of a ClusterExtension.
///
/// # Errors
/// When the API server refuses it.
pub async fn merge(world: &World, name: &str, patch: Value) -> Result<()> {
    extensions(world)
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Runs `olm rollback` without its question; returns whether it succeeded, and its output.
///
/// # Errors
/// When it cannot be run.
pub fn rollback(world: &World, name: &str, arguments: &[&str]) -> Result<(bool, String)> {
    olm(world, &["rollback", name, "--yes"], arguments)
}

/// Runs `olm unpin`. Returns whether it succeeded, and its output.
///
/// # Errors
/// When the program cannot be run.
pub fn unpin(world: &World, name: &str) -> Result<(bool, String)> {
    olm(world, &["unpin", name], &[])
}

fn olm(world: &World, command: &[&str], arguments: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(binary("olm")?)
        .args(command)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .args(arguments)
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// Waits until a ClusterExtension is gone.
///
/// # Errors
/// When that takes too long.
pub async fn await_gone(world: &World, name: &str) -> Result<()> {
    world
        .eventually(&format!("{name} is gone"), SOON, async || {
            match extensions(world).get_opt(name).await? {
                None => Ok(Some(())),
                Some(left) => anyhow::bail!("status is {}", serde_json::to_string(&left.status)?),
            }
        })
        .await
}

/// The roles that `olm rbac` prints.
///
/// # Errors
/// When it prints none.
pub fn rbac(world: &World, arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary("olm")?)
        .arg("rbac")
        .args(arguments)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .arg("--ca-dir")
        .arg(world.authorities())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {said}");
    let roles = String::from_utf8(output.stdout)?;
    ensure!(
        roles.starts_with("apiVersion: rbac"),
        "{arguments:?}: {roles}{said}"
    );
    Ok(roles)
}

/// The argument of the command `olm rbac` in a message.
pub fn rbac_subject(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("`olm rbac ")?;
    rest.split_once('`').map(|(subject, _)| subject)
}

/// Grants the missing rights to the account of an extension.
///
/// # Errors
/// When `olm rbac` prints nothing, or its output cannot be applied.
pub fn grant(world: &World, extension: &str) -> Result<()> {
    let path = world.folder().join(format!("{extension}-roles.yaml"));
    std::fs::write(&path, rbac(world, &[extension])?)?;
    world
        .kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])
        .map(drop)
}

/// The name of the user of the tests, as the API server knows it.
///
/// # Errors
/// When the API server does not answer.
pub fn own_name(world: &World) -> Result<String> {
    let name = world.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])?;
    Ok(name.trim().to_owned())
}
