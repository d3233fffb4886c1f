//! The number of requests to registries, and their credentials.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use olm_api::{conditions, names};
use olm_image::{Access, Credentials, Images, Options, Reference};
use olm_platform::pull_secrets::PullSecrets;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{CLUSTER, SOON, Stage, catalogs, create, greeter, pull_secret};

/// Our own write of the failure to the status does not cause an immediate retry.
#[test]
fn failed_pulls_are_retried_with_growing_pauses() -> Result<()> {
    CLUSTER.with(async |Stage { lab, plain, .. }| {
        const PAUSES: [Duration; 3] = [
            Duration::from_secs(1),
            Duration::from_secs(2),
            Duration::from_secs(4),
        ];
        // A registry that has no image, and when it was asked for one.
        let listener = plain.try_clone()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?.to_string();
        let (asked, mut times) = tokio::sync::mpsc::unbounded_channel();
        let registry = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                // An error is the end of one connection, which the client notices.
                while stream.read_line(&mut line).await.is_ok_and(|length| length > 2) {
                    if line.contains("/manifests/") {
                        let _ = asked.send(Instant::now());
                    }
                    line.clear();
                }
                let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        });
        create(lab, "nowhere", json!({ "ref": format!("{address}/cat:latest") })).await?;
        let mut before: Option<Instant> = None;
        for pause in [Duration::ZERO].iter().chain(&PAUSES) {
            let time = tokio::time::timeout(SOON, times.recv())
                .await
                .context("the registry is not asked again")?
                .context("the registry has ended")?;
            if let Some(before) = before.replace(time) {
                let elapsed = time - before;
                ensure!(
                    elapsed >= *pause,
                    "asked again after {elapsed:?} instead of {pause:?}"
                );
            }
        }
        // Before the first success there is no condition Serving.
        let catalog = catalogs(lab).get("nowhere").await?;
        let serving = conditions::find(catalog.conditions(), conditions::SERVING);
        ensure!(serving.is_none(), "{serving:?}");
        registry.abort();
        catalogs(lab).delete("nowhere", &DeleteParams::default()).await?;
        Ok(())
    })
}

/// An account's Secrets open a registry, in their order; one that does not exist blocks no pull.
#[test]
fn an_account_brings_its_pull_secrets() -> Result<()> {
    CLUSTER.with(async |Stage { lab, .. }| {
        pull_secret(lab, "pull-of-account")?;
        lab.push_catalog("pulled:latest", &greeter(&["1.0.0"])).await?;
        let registry = lab.cluster.registry().context("no registry")?;
        let account: ServiceAccount = serde_json::from_value(json!({
            "metadata": { "name": "puller" },
            "imagePullSecrets": [{ "name": "missing" }, { "name": "pull-of-account" }],
        }))?;
        let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), names::SYSTEM_NAMESPACE);
        accounts.create(&PostParams::default(), &account).await?;
        let images = Images::new(Options {
            authorities: Some(lab.authorities()),
            ..Options::new("olm-test")
        });
        let private = Reference::parse(&format!("{}/pulled:latest", registry.auth))?;
        let resolve = async |account: &str| {
            let account = (names::SYSTEM_NAMESPACE.to_owned(), account.to_owned());
            let secrets = PullSecrets::new(lab.client.clone(), None, Some(account))
                .read()
                .await?;
            let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
            let access = Access {
                credentials: Arc::new(Credentials::from_secrets(secrets)?),
                ..Access::default()
            };
            anyhow::Ok(images.resolve(&private, &access).await)
        };
        resolve("puller").await??;
        // Others have none.
        for stranger in ["default", "nobody"] {
            ensure!(resolve(stranger).await?.is_err(), "{stranger} may pull");
        }
        Ok(())
    })
}
