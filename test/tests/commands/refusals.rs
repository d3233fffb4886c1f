//! Errors of commands, with hints.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::reason;
use olm_test::extensions::{await_progressing, extensions};
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{CLUSTER, FAN, olm, olm_as, trusting};

#[test]
fn an_impossible_installation_is_refused_before_anything_is_created() -> Result<()> {
    CLUSTER.with(async |world| {
        let ca = trusting(world);
        olm(world, &format!("install fam --yes {ca}"))?.ended(1)?.says(&[
            "refused: no bundles found for package \"fam\"",
            "did you mean \"fan\" of catalog \"fans\"?",
        ])?;
        olm(world, &format!("install fan --catalog fanz --yes {ca}"))?
            .ended(1)?
            .says(&[
                "serves none of the catalogs fanz",
                "hint: its ClusterCatalogs are fans, lamps",
            ])?;
        olm(world, &format!("install fan --version 9.9.9 --yes {ca}"))?
            .ended(1)?
            .says(&["refused: ", "9.9.9"])?;
        // Its certificate is that of no known authority.
        olm(world, "install fan --yes")?
            .ended(1)?
            .says(&["error: ", "--ca-dir"])?;
        leaving_namespace(world)?;
        without_rights(world)?;
        declined(world)?;
        ensure!(world.kubectl(&["get", "namespace", FAN]).is_err());
        ensure!(extensions(world).get_opt(FAN).await?.is_none());
        olm(world, "get --context nowhere")?.ended(1)?.says(&[
            "cannot use the context `nowhere` of the kubeconfig",
            "hint: its contexts are ",
        ])?;
        an_account_without_rights(world).await
    })
}

fn leaving_namespace(world: &World) -> Result<()> {
    let held = |finalizers: &[&str]| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": "leaving", "finalizers": finalizers},
        })
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leaving"}});
    world.apply(&[namespace, held(&["commands.olm.example/held"])])?;
    world.kubectl(&["delete", "namespace", "leaving", "--wait=false"])?;
    olm(
        world,
        &format!("install fan -n leaving --yes {}", trusting(world)),
    )?
    .ended(1)?
    .says(&[
        "Namespace \"leaving\" is being deleted",
        "hint: wait for its end, or set --namespace",
    ])?;
    world.apply(&[held(&[])])
}

/// A kubeconfig of a user who may read all objects and write none.
fn reader(world: &World) -> Result<String> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reads-all"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reads-all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-all"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    });
    world.apply(&[role, binding])?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(world.cluster.kubeconfig())?)?;
    let user = config.pointer_mut("/users/0/user").context("a user")?;
    user["as"] = json!("reader");
    let path = world.folder().join("reader.json");
    std::fs::write(&path, config.to_string())?;
    Ok(path.display().to_string())
}

fn without_rights(world: &World) -> Result<()> {
    let reader = reader(world)?;
    let ca = trusting(world);
    olm_as(world, &reader, &format!("install fan --yes {ca}"))?
        .ended(1)?
        .says(&[
            "you may not create or patch clusterextensions, ",
            "create or patch namespaces, ",
            "create or patch serviceaccounts in namespace fan",
            "impersonate service account fan/fan-installer",
            "hint: give the output of --dry-run to an administrator",
        ])?;
    olm_as(world, &reader, &format!("install fan --dry-run -o name {ca}"))?
        .ended(0)?
        .prints(&[
            "namespace/fan\nserviceaccount/fan-installer\n",
            "clusterextension.olm.operatorframework.io/fan\n",
        ])?;
    Ok(())
}

/// On a terminal the command asks.
fn declined(world: &World) -> Result<()> {
    let olm = binary("olm")?;
    let line = format!("{} install fan {}", olm.display(), trusting(world));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("KUBECONFIG", world.cluster.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run script, of util-linux")?;
    let mut input = child.stdin.take().context("its input")?;
    input.write_all(b"n\n")?;
    let run = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&run.stdout);
    ensure!(
        run.status.code() == Some(1)
            && printed.contains("Create these ")
            && printed.contains("objects? [y/N] ")
            && printed.contains("nothing was changed"),
        "{printed}"
    );
    Ok(())
}

/// Blocked by rights, until `olm rbac` grants them; then the name and the package are taken.
async fn an_account_without_rights(world: &World) -> Result<()> {
    let ca = trusting(world);
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bare", "namespace": "breeze"},
    });
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "breeze"},
        "spec": {"namespace": "breeze", "serviceAccount": {"name": "bare"},
            "source": {"sourceType": "Catalog", "catalog": {"packageName": FAN, "version": "1.0.0"}}},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "breeze"}});
    world.apply(&[namespace, account, extension])?;
    await_progressing(world, "breeze", reason::RETRYING, "lacks permissions").await?;
    olm(world, &format!("explain breeze {ca}"))?.ended(1)?.prints(&[
        "breeze is not ready (Blocked)\n",
        "installed  nothing\n",
        "lacks permissions",
        "Held back: 1.0.0 (Rights)\n\nChoice: fan.v1.0.0 of catalog fans\n",
        "`olm rbac breeze | kubectl apply -f -` grants what the account lacks",
    ])?;
    olm(world, "get breeze")?
        .ended(0)?
        .prints(&[" 1.0.0 (Rights)  ", " Blocked ", "\nbreeze: "])?;
    // A change that waits for a person ends with a status of its own.
    olm(world, &format!("upgrade breeze --version 1.0.1 --wait {ca}"))?
        .ended(4)?
        .says(&["breeze is stalled: Blocked: ", "hint: `olm explain breeze` shows"])?;

    olm(world, &format!("install fan --yes {ca}"))?
        .ended(1)?
        .says(&["package \"fan\" is installed already, by ClusterExtension \"breeze\""])?;
    olm(world, &format!("install lamp --name breeze --yes {ca}"))?
        .ended(1)?
        .says(&[
            "ClusterExtension \"breeze\" exists already",
            "--name gives the new one another name",
        ])?;
    // Another name does not help where the package is the same.
    let taken = olm(world, &format!("install fan --name breeze --yes {ca}"))?.ended(1)?;
    let taken = taken.says(&["exists already", "olm upgrade breeze"])?;
    ensure!(!taken.said.contains("--name"), "{taken}");
    Ok(())
}
