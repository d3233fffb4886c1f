//! Both managers with IPv6 addresses.

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_api::ClusterCatalog;
use olm_test::extensions::await_version;
use olm_test::world::{Options, World};

use crate::publish;

/// A port that is free on the loopback address of IPv6.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("[::1]:0").context("this machine has no IPv6")?;
    Ok(listener.local_addr()?.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_is_installed_over_ipv6_and_ports_without_a_host_serve_both_families() -> Result<()> {
    let (catalogs, metrics) = (format!("[::1]:{}", free_port()?), free_port()?);
    let world = World::start(Options {
        catalogs: Some(catalogs.clone()),
        catalogd: vec![format!("--metrics-bind-address=:{metrics}")],
        ..Options::default()
    })
    .await?;
    publish(&world, "greeter").await?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.0").await?;

    let api = Api::<ClusterCatalog>::all(world.client.clone());
    let catalog = api
        .list(&kube::api::ListParams::default())
        .await?
        .items
        .pop()
        .context("no catalog")?;
    let base = catalog
        .status
        .and_then(|status| status.urls)
        .context("no urls")?
        .base;
    ensure!(
        base.starts_with(&format!("https://{catalogs}/catalogs/")),
        "{base}"
    );
    // The certificate of catalogd is for that address.
    let client = reqwest::Client::builder()
        .tls_certs_merge([world.catalogd_authority().await?])
        .no_proxy()
        .build()?;
    let answer = client
        .get(format!("{base}/api/v1/all"))
        .send()
        .await?
        .error_for_status()?
        .text()
        .await?;
    ensure!(answer.contains("olm.package"), "{answer}");

    let anyone = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .build()?;
    for host in ["127.0.0.1", "[::1]"] {
        let answer = anyone
            .get(format!("https://{host}:{metrics}/metrics"))
            .send()
            .await;
        let status = answer
            .with_context(|| format!("the port does not answer at {host}"))?
            .status();
        ensure!(status == 401, "{host}: {status}");
    }
    Ok(())
}
