//! Which tokens operator-controller gets, and which it shows.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_api::{ClusterExtension, conditions};

use crate::{CLUSTER, SOON, Stage, publish};

/// Under the restricted overlay.
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

/// catalogd answers only who may read catalogs; operator-controller shows a token of its own account.
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
