//! The shipped overlays, and the make targets that deploy and remove all parts.

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::await_version;
use olm_test::images::PROGRAMS;
use olm_test::world::{Lab, Options, World, binary, repository};
use serde_json::json;

use crate::{NAMESPACE, SOON, publish};

/// Runs make with arguments from the README.
fn make(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let mut command = lab.cluster.exec("make");
    command
        .current_dir(repository())
        .args(arguments)
        .env("HOME", lab.folder())
        .env("SSL_CERT_FILE", lab.authorities().join("ca.crt"));
    for inherited in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        command.env_remove(inherited);
    }
    let output = command.output().context("cannot run make")?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "make {}: {said}", arguments.join(" "));
    Ok(said)
}

/// A kustomization over the base moves all of it to another namespace, including the subjects of bindings.
fn another_namespace_is_one_line(world: &World) -> Result<()> {
    let folder = world.folder().join("elsewhere");
    std::fs::create_dir_all(&folder)?;
    // kustomize takes relative paths only.
    let up = "../".repeat(folder.components().count() - 1);
    let base = repository().join("manifests/base");
    let base = format!("{up}{}", base.display().to_string().trim_start_matches('/'));
    let text = format!("namespace: elsewhere\nresources:\n  - {base}\n");
    std::fs::write(folder.join("kustomization.yaml"), text)?;
    let rendered = world.kubectl(&["kustomize", &folder.display().to_string()])?;
    ensure!(rendered.contains("namespace: elsewhere"), "{rendered}");
    let left = rendered.lines().find(|line| line.contains(NAMESPACE));
    ensure!(left.is_none(), "{left:?}");
    Ok(())
}

/// Every overlay is accepted as a whole by a real API server, and removed as a whole: with the cluster's own
/// definitions, so on a cluster of its own.
#[tokio::test(flavor = "multi_thread")]
async fn overlays_are_applied_and_removed() -> Result<()> {
    let world = &World::start(Options::default()).await?;
    publish(world, "greeter").await?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(world, "greeter", "1.0.0").await?;
    another_namespace_is_one_line(world)?;
    for definitions in ["cert-manager", "monitoring"] {
        world.apply_file(&format!("test/samples/definitions/{definitions}.yaml"))?;
    }
    world.await_definitions()?;
    for namespace in ["cert-manager", "openshift-config", "openshift-monitoring"] {
        world.apply(&[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        ])?;
    }
    let arguments = || -> Result<String> {
        let path =
            "jsonpath={.spec.template.spec.containers[0].args}{.spec.template.spec.containers[0].image}";
        let name = "operator-controller-controller-manager";
        world.kubectl(&["get", "deployment", name, "-n", NAMESPACE, "-o", path])
    };
    for (overlay, argument) in [
        ("restricted", "--leader-elect"),
        ("cert-manager", "--tls-cert=/var/certs/tls.crt"),
        ("openshift", "--global-pull-secret=openshift-config/pull-secret"),
    ] {
        make(
            world,
            &[
                "deploy",
                &format!("OVERLAY=manifests/overlays/{overlay}"),
                "PREFIX=olmv1",
            ],
        )
        .with_context(|| format!("overlay {overlay}"))?;
        let found = arguments()?;
        ensure!(found.contains(argument), "{overlay}: {found}");
        // Its own address is derived from it.
        let path = "jsonpath={.spec.template.spec.containers[0].env[*].name}";
        let name = "catalogd-controller-manager";
        let variables = world.kubectl(&["get", "deployment", name, "-n", NAMESPACE, "-o", path])?;
        ensure!(variables.contains("POD_NAMESPACE"), "{overlay}: {variables}");
    }
    let prometheus = "--as=system:serviceaccount:openshift-monitoring:prometheus-k8s";
    world.kubectl(&["auth", "can-i", "get", "/metrics", prometheus])?;
    world.kubectl(&["auth", "can-i", "watch", "endpoints", "-n", NAMESPACE, prometheus])?;
    for (kind, namespace, count) in [
        ("servicemonitors", NAMESPACE, 2),
        ("certificates", NAMESPACE, 2),
        ("certificates", "cert-manager", 1),
        ("clusterissuers", "", 2),
    ] {
        let found = world.kubectl(&["get", kind, "-n", namespace, "-o", "name"])?;
        ensure!(found.lines().count() == count, "{kind}: {found}");
    }

    // Images in another registry, and an account with all rights.
    let prefix = format!("{}/mine", world.registry()?);
    let prefix = format!("PREFIX={prefix}");
    let tool = format!("OLM_TEST={}", binary("olm-test")?.display());
    // Built already.
    let said = make(world, &["-o", "images", "push", &prefix, &tool])?;
    ensure!(said.matches("@sha256:").count() == PROGRAMS.len(), "{said}");
    make(
        world,
        &["deploy", "OVERLAY=manifests/overlays/default-account", &prefix],
    )?;
    let found = arguments()?;
    ensure!(
        found.contains("--default-service-account=olmv1-system/olm-default-installer")
            && found.contains(&format!("{}/mine/operator-controller:v", world.registry()?)),
        "{found}"
    );
    let account = "--as=system:serviceaccount:olmv1-system:olm-default-installer";
    world.kubectl(&["auth", "can-i", "*", "*", "--all-namespaces", account])?;

    // Extensions go first, while the managers still run.
    make(world, &["undeploy", "OVERLAY=manifests/overlays/default-account"])?;
    let left = world.kubectl(&[
        "get",
        "deployments,serviceaccounts",
        "-n",
        "greeter",
        "-o",
        "name",
    ])?;
    ensure!(!left.contains("greeter-operator"), "{left}");
    for overlay in ["cert-manager", "openshift"] {
        let folder = repository().join("manifests/overlays").join(overlay);
        world.kubectl(&[
            "delete",
            "--ignore-not-found",
            "-k",
            &folder.display().to_string(),
        ])?;
    }
    let kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,namespaces";
    world
        .eventually("nothing of ours is left", SOON, async || {
            let left = world.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=olm", "-o", "name"])?;
            ensure!(left.trim().is_empty(), "{left}");
            Ok(Some(()))
        })
        .await
}
