//! The access of the command line to a cluster, its catalogs and the user.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_api::names::{CATALOGD_SERVICE, SYSTEM_NAMESPACE};
use olm_test::world::{World, binary};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::{CLUSTER, olm, trusting};

/// An address of this machine other than the loopback address, to which the API server connects for no Pod.
fn address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Sends nothing, but determines the source address.
    socket.connect("198.51.100.1:9")?;
    Ok(socket.local_addr()?.ip())
}

/// Hands connections to catalogd.
async fn forward(listener: TcpListener, catalogd: String) {
    while let Ok((mut from, _)) = listener.accept().await {
        let catalogd = catalogd.clone();
        tokio::spawn(async move {
            if let Ok(mut to) = TcpStream::connect(catalogd).await {
                // Either end may close first.
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}

/// A Pod behind catalogd's Service, as in a cluster in which catalogd is not a process of this machine.
async fn stand_in(world: &World) -> Result<()> {
    let address = address()?;
    let listener = TcpListener::bind((address, 0)).await?;
    let port = listener.local_addr()?.port();
    let catalogd = world.catalogs.strip_prefix("https://").context("an address")?;
    tokio::spawn(forward(listener, catalogd.to_owned()));
    let metadata = json!({"name": "catalogd-stand-in", "namespace": SYSTEM_NAMESPACE});
    let container = json!({
        "name": "catalogd", "image": "registry.example/catalogd:1",
        "securityContext": {
            "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    // On a node without a simulated kubelet, so that only the test writes its status.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": "nowhere", "containers": [container]},
    });
    world.apply(&[pod])?;
    let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
    world.kubectl(&[
        "patch",
        "pod",
        "catalogd-stand-in",
        "-n",
        SYSTEM_NAMESPACE,
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ])?;
    world.kubectl(&[
        "patch",
        "service",
        CATALOGD_SERVICE,
        "-n",
        SYSTEM_NAMESPACE,
        "--type=merge",
        "-p",
        r#"{"spec":{"selector":null}}"#,
    ])?;
    let target = json!({"kind": "Pod", "name": "catalogd-stand-in", "namespace": SYSTEM_NAMESPACE});
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": CATALOGD_SERVICE, "namespace": SYSTEM_NAMESPACE},
        "subsets": [{
            "addresses": [{"ip": address, "targetRef": target}],
            "ports": [{"name": "https", "port": port}],
        }],
    });
    world.apply(&[endpoints])
}

#[test]
fn catalogs_are_read_through_the_api_server_without_a_way_to_the_registry() -> Result<()> {
    CLUSTER.with(async |world| {
        // The client does not trust the registry here.
        let refused = olm(world, "search fan")?.ended(1)?;
        let refused = refused.says(&[
            "catalogd cannot be reached through the API server",
            "hint: see whether catalogd runs; to read the image instead, set --ca-dir",
        ])?;
        ensure!(refused.printed.is_empty(), "{refused}");
        stand_in(world).await?;
        world
            .eventually(
                "the Service has its endpoint",
                olm_test::extensions::SOON,
                async || {
                    olm(world, "search fan")?.ended(0)?.prints(&["\nfans     fan "])?;
                    Ok(Some(()))
                },
            )
            .await?;
        let shown = olm(world, "show fan")?.ended(0)?;
        ensure!(shown.said.is_empty(), "{shown}");
        shown.prints(&["package     fan\n"])?;
        catalogs_by_name(world)?;
        olm(world, "install fun --yes")?
            .ended(1)?
            .says(&["did you mean \"fan\" of catalog \"fans\"?"])?;
        Ok(())
    })
}

/// `--catalog` names a ClusterCatalog or a source, for each command.
fn catalogs_by_name(world: &World) -> Result<()> {
    for command in ["show fan", "search fan", "resolve fan", "resolve fan --cluster"] {
        olm(world, &format!("{command} --catalog fans"))?.ended(0)?;
    }
    olm(world, "show fan --catalog lamps")?
        .ended(1)?
        .says(&["package \"fan\" not found in lamps"])?;
    olm(world, "show fan --catalog fanz")?.ended(1)?.says(&[
        "\"fanz\" is neither a file or directory nor a ClusterCatalog",
        "hint: did you mean \"fans\"?",
    ])?;
    olm(world, "updates --catalog fans")?.ended(0)?;
    let account = "-n fan --service-account fan-installer";
    olm(world, &format!("rbac fan --catalog fanz {account}"))?
        .ended(1)?
        .says(&["did you mean \"fans\"?"])?;
    olm(world, "rbac absent")?.ended(1)?.says(&[
        "refused: ",
        "neither a ClusterExtension nor an installable package is called \"absent\"",
    ])?;
    let ca = trusting(world);
    let role = olm(world, &format!("rbac fan --version 1.0.1 {account} {ca}"))?.ended(0)?;
    role.prints(&["kind: ClusterRole\n", "name: fan-installer\n"])?;
    olm(world, "install fan --catalog ./fans --yes")?
        .ended(1)?
        .says(&[
            "cannot install from \"./fans\": a cluster installs from its ClusterCatalogs only",
            "hint: name a ClusterCatalog: fans, lamps, vases",
        ])?;
    // Without --catalog, the catalogs of the cluster.
    let chosen = olm(world, "resolve fan --cluster --version 1.0.x")?.ended(0)?;
    chosen.prints(&["version   1.0.1\n", "catalog   fans\n"])?;
    olm(world, "resolve fan")?.ended(2)?.says(&["--catalog"])?;
    Ok(())
}

#[test]
fn the_program_is_a_plugin_of_kubectl_and_completes_its_commands() -> Result<()> {
    CLUSTER.with(async |world| {
        let folder = world.folder().join("plugin");
        std::fs::create_dir(&folder)?;
        std::os::unix::fs::symlink(binary("olm")?, folder.join("kubectl-olm"))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let run = world
            .cluster
            .exec("kubectl")
            .args(["olm", "get", "--help"])
            .env("PATH", format!("{}:{path}", folder.display()))
            .output()?;
        let printed = String::from_utf8_lossy(&run.stdout);
        ensure!(
            printed.contains("Usage: kubectl olm get [OPTIONS] [EXTENSION]"),
            "{printed}"
        );
        for shell in ["bash", "zsh", "fish"] {
            olm(world, &format!("completion {shell}"))?
                .ended(0)?
                .prints(&["uninstall", "--dry-run"])?;
        }
        // A shell checks the syntax of the script.
        let script = folder.join("completion");
        std::fs::write(&script, olm(world, "completion bash")?.printed)?;
        let checked = Command::new("bash").arg("-n").arg(&script).output()?;
        ensure!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
        olm(world, "instal fan")?.ended(2)?.says(&["'install'"])?;
        Ok(())
    })
}
