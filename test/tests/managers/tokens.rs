//! The tokens that operator-controller gets and sends.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_api::names::{self, label};
use olm_api::{ClusterExtension, conditions};
use olm_test::extensions::{await_gone, await_progressing, catalog};
use olm_test::registry::proxy::{Issued, ProxyBehaviour, RegistryProxy, ServerTls, authority, named};
use rcgen::KeyPair;
use serde_json::json;

use crate::{CLUSTER, SOON, Stage, publish};

/// With the restricted overlay.
#[test]
fn an_account_is_used_only_where_its_namespace_allows_it() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        for package in ["allowed", "refused"] {
            publish(world, package).await?;
            let path = world.sample_file("manifests/samples/greeter.yaml", package, |text| text)?;
            world.kubectl(&["apply", "--server-side", "-f", &path])?;
        }
        let extensions: Api<ClusterExtension> = Api::all(world.client.clone());
        let refused = async |name: &str, account: &str| {
            let what = format!("{name} is refused");
            world
                .eventually(&what, SOON, async || {
                    let extension = extensions.get(name).await?;
                    let progressing =
                        conditions::find(extension.conditions(), conditions::PROGRESSING).cloned();
                    let message = progressing.context("no condition yet")?.message;
                    ensure!(
                        message.contains("serviceaccounts/token") && message.contains(account),
                        "{message}"
                    );
                    let installed = conditions::is_true(extension.conditions(), conditions::INSTALLED);
                    ensure!(!installed, "it is installed");
                    Ok(Some(()))
                })
                .await
        };
        refused("allowed", "allowed-installer").await?;
        refused("refused", "refused-installer").await?;
        let role = "manifests/overlays/restricted/token-role.yaml";
        let path = world.sample_file(role, "allowed", |text| text)?;
        world.kubectl(&["apply", "--server-side", "-f", &path])?;
        world
            .eventually(
                "the extension whose account may be used is installed",
                SOON,
                async || {
                    let extension = extensions.get("allowed").await?;
                    let installed = conditions::is_true(extension.conditions(), conditions::INSTALLED);
                    ensure!(
                        installed,
                        "status is {}",
                        serde_json::to_string(&extension.status)?
                    );
                    Ok(Some(()))
                },
            )
            .await?;
        refused("refused", "refused-installer").await
    })
}

/// catalogd answers only clients that may read catalogs; operator-controller shows a token of its own account.
#[test]
fn catalogs_are_read_with_a_token() -> Result<()> {
    CLUSTER.with(async |stage| {
        let Stage { world, files, .. } = stage;
        let token = std::fs::read_to_string(files.token())?;
        let client = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .build()?;
        let url = format!("{}/catalogs", world.catalogs);
        let anonymous = client.get(&url).send().await?;
        let form = anonymous.headers().get("content-type").cloned();
        ensure!(anonymous.status() == 401, "without a token: {anonymous:?}");
        ensure!(form.is_some_and(|form| form == "application/problem+json"));
        world
            .eventually("the account may read catalogs", SOON, async || {
                let answer = client.get(&url).bearer_auth(token.trim()).send().await?;
                Ok((answer.status() == 200).then_some(()))
            })
            .await
    })
}

/// A user who may write the status of a ClusterCatalog sets the address of another server, whose certificate
/// operator-controller trusts.
#[test]
fn a_foreign_server_that_a_catalog_names_gets_no_token() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let Stage { world, files, .. } = stage;
        // catalogd would correct the status.
        world.catalogd.stop().await?;
        let issuer = Issued::alone(authority("foreign authority")?, KeyPair::generate()?)?;
        let leaf = issuer.issue(named("foreign", &["127.0.0.1"])?, KeyPair::generate()?)?;
        let believed = files.authorities().join("foreign.crt");
        std::fs::write(&believed, issuer.pem())?;
        let behaviour = ProxyBehaviour {
            refusals: vec![(401, "0".to_owned()); 1000].into(),
            ..ProxyBehaviour::default()
        };
        let foreign = RegistryProxy::start(&world.catalogs, &believed, &ServerTls::of(&leaf), behaviour).await?;
        let base = format!("https://127.0.0.1:{}/catalogs/lure", foreign.port);
        world.apply(&[catalog("lure", "registry.invalid/lure:v1")])?;
        let status = json!({ "status": {
            "conditions": [{
                "type": "Serving", "status": "True", "reason": "Available", "message": "Serving desired content",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "lastUnpacked": "2026-01-01T00:00:00Z",
            "resolvedSource": {
                "type": "Image", "image": { "ref": format!("registry.invalid/lure@sha256:{}", "0".repeat(64)) },
            },
            "urls": { "base": base },
        } });
        let patch = ["--subresource=status", "--type=merge", "-p", &status.to_string()];
        world.kubectl(&[&["patch", "clustercatalog", "lure"], &patch[..]].concat())?;
        world.apply(&[json!({
            "apiVersion": names::API_VERSION, "kind": names::CLUSTER_EXTENSION, "metadata": { "name": "lured" },
            "spec": {
                "namespace": "default",
                "serviceAccount": { "name": "default" },
                "source": { "sourceType": "Catalog", "catalog": {
                    "packageName": "lured",
                    "selector": { "matchLabels": { label::METADATA_NAME: "lure" } },
                } },
            },
        })])?;
        let said = await_progressing(world, "lured", "Retrying", "response status code 401").await?;
        ensure!(said.contains(&format!("the request had no token, because status.urls.base of the ClusterCatalog is {base:?}")), "{said}");
        let seen = foreign.seen();
        ensure!(!seen.is_empty() && seen.iter().all(|request| !request.authorized), "{seen:?}");
        world.kubectl(&["delete", "clusterextension/lured", "clustercatalog/lure"])?;
        await_gone(world, "lured").await?;
        std::fs::remove_file(&believed)?;
        world.start_catalogd()?;
        world.catalogd.ready().await
    })
}
