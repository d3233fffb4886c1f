//! Which tokens operator-controller gets, and which it shows.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_api::{ClusterExtension, conditions};
use olm_test::samples;
use olm_test::world::{World, repository};
use serde_json::json;

use crate::files::Files;
use crate::{NAMESPACE, SOON};

/// Under the restricted overlay an account can be used only where its own namespace lets the controller.
pub(crate) async fn tokens_are_had_only_where_it_is_allowed(world: &World) -> Result<()> {
    for package in ["greeter", "other"] {
        let files = samples::renamed_bundle(package, "1.0.0", samples::OPERATOR_IMAGE);
        let image = world
            .push_bundle(&format!("{package}-bundle:v1.0.0"), &files)
            .await?;
        let blobs = samples::renamed(package, &samples::catalog(&["1.0.0"], |_| image.clone()));
        let catalog = world
            .push_catalog(&format!("{package}-catalog:latest"), &blobs)
            .await?;
        world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": package },
            "spec": { "source": { "type": "Image", "image": { "ref": catalog } } },
        })])?;
    }
    world.apply_file("manifests/samples/greeter.yaml")?;
    let sample = std::fs::read_to_string(repository().join("manifests/samples/greeter.yaml"))?;
    let other = world.folder().join("other.yaml");
    std::fs::write(&other, samples::renamed("other", &sample))?;
    world.kubectl(&["apply", "--server-side", "-f", &other.display().to_string()])?;

    let extensions: Api<ClusterExtension> = Api::all(world.client.clone());
    let refused = async |name: &str, account: &str| {
        let what = format!("{name} is refused");
        world
            .eventually(&what, SOON, async || {
                let extension = extensions.get(name).await?;
                let progressing = conditions::find(extension.conditions(), conditions::PROGRESSING).cloned();
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
    refused("greeter", "greeter-installer").await?;
    refused("other", "other-installer").await?;
    world.apply_file("manifests/overlays/restricted/token-role.yaml")?;
    world
        .eventually(
            "the extension whose account may be used is installed",
            SOON,
            async || {
                let extension = extensions.get("greeter").await?;
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
    refused("other", "other-installer").await
}

/// catalogd answers only who may read catalogs; operator-controller shows a token of its own account.
pub(crate) async fn catalogs_are_read_with_a_token(world: &World, files: &Files) -> Result<()> {
    const ACCOUNT: &str = "operator-controller-controller-manager";
    let account = format!("--serviceaccount={NAMESPACE}:{ACCOUNT}");
    world.kubectl(&[
        "create",
        "clusterrolebinding",
        "catalogs-of-operator-controller",
        "--clusterrole=catalogd-content-reader",
        &account,
    ])?;
    let token = world.kubectl(&["create", "token", ACCOUNT, "-n", NAMESPACE])?;
    std::fs::write(files.token(), &token)?;
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
}
