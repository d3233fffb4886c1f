//! Registries that list referrers by themselves.

use std::path::Path;

use anyhow::{Result, ensure};
use olm_image::Digest;
use olm_test::registry::Server;
use olm_test::registry::proxy::{Issued, ProxyBehaviour, RegistryProxy, ServerTls, named};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{INDEX, MANIFEST, digest, olm, push_bundle, write_catalog};

const REPOSITORY: &str = "greeter/bundle";

/// Registries that list referrers, and a client of them.
struct Listing {
    certificate: Issued,
    client: reqwest::Client,
}

impl Listing {
    /// `trusted` becomes a directory with all authorities.
    fn new(trusted: &Path) -> Result<Self> {
        let certificate = Issued::alone(named("front", &["localhost", "127.0.0.1"])?, KeyPair::generate()?)?;
        std::fs::create_dir(trusted)?;
        std::fs::write(trusted.join("front.crt"), certificate.pem())?;
        let authority = reqwest::Certificate::from_pem(certificate.pem().as_bytes())?;
        let client = reqwest::Client::builder()
            .tls_certs_merge([authority])
            .no_proxy()
            .build()?;
        Ok(Self { certificate, client })
    }

    /// A registry in front of one that does not list them, with so many on a page.
    async fn over(&self, server: &Server, size: usize) -> Result<RegistryProxy> {
        let registry = server.registry();
        let behaviour = ProxyBehaviour {
            lists_referrers: Some(size),
            ..ProxyBehaviour::default()
        };
        let upstream = format!("http://{}", registry.address);
        RegistryProxy::start(
            &upstream,
            &registry.ca,
            &ServerTls::of(&self.certificate),
            behaviour,
        )
        .await
    }

    async fn get(&self, proxy: &RegistryProxy, path: &str) -> Result<Value> {
        let url = format!("https://localhost:{}/v2/{path}", proxy.port);
        let get = self
            .client
            .get(url)
            .header("accept", format!("{INDEX}, {MANIFEST}"));
        Ok(get.send().await?.error_for_status()?.json().await?)
    }

    /// The digests that a registry lists as referrers.
    async fn referrers(&self, proxy: &RegistryProxy, repository: &str, subject: &str) -> Result<Vec<String>> {
        let index = self
            .get(proxy, &format!("{repository}/referrers/{subject}"))
            .await?;
        Ok(listed(&index))
    }

    /// Puts an artifact of this type that refers to a manifest; gives its digest.
    async fn attach(&self, proxy: &RegistryProxy, subject: &str, kind: &str) -> Result<String> {
        let subject_manifest = self
            .get(proxy, &format!("{REPOSITORY}/manifests/{subject}"))
            .await?;
        let artifact = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind,
            "config": subject_manifest["config"], "layers": subject_manifest["layers"],
            "subject": {"mediaType": MANIFEST, "digest": subject, "size": subject_manifest.to_string().len()},
        });
        let text = artifact.to_string();
        let digest = Digest::of(text.as_bytes()).to_string();
        let url = format!(
            "https://localhost:{}/v2/{REPOSITORY}/manifests/{digest}",
            proxy.port
        );
        let put = self.client.put(url).header("content-type", MANIFEST).body(text);
        let answer = put.send().await?.error_for_status()?;
        let said = answer.headers().get("oci-subject");
        ensure!(
            said.is_some_and(|said| said.as_bytes() == subject.as_bytes()),
            "{said:?}"
        );
        Ok(digest)
    }
}

/// The digests in an index, sorted.
fn listed(index: &Value) -> Vec<String> {
    let manifests = index["manifests"].as_array().into_iter().flatten();
    let digests = manifests.filter_map(|one| Some(one["digest"].as_str()?.to_owned()));
    let mut digests: Vec<String> = digests.collect();
    digests.sort();
    digests
}

#[tokio::test(flavor = "multi_thread")]
async fn referrers_that_a_registry_lists_are_listed_at_the_mirror() -> Result<()> {
    olm_platform::crypto::install();
    let (source, plain, listing_server) = (
        Server::start().await?,
        Server::start().await?,
        Server::start().await?,
    );
    let scratch = TempDir::new()?;
    let folder = scratch.path();
    let trusted = folder.join("trusted");
    let listing = Listing::new(&trusted)?;
    std::fs::copy(&plain.registry().ca, trusted.join("plain.crt"))?;
    // One on each page: the second is on the next page.
    let from = listing.over(&source, 1).await?;
    let bundle = push_bundle(source.registry(), "greeter", "1.0.0")
        .await?
        .digest()
        .to_string();
    let described = listing.attach(&from, &bundle, "application/spdx+json").await?;
    let signed = listing
        .attach(&from, &bundle, "application/vnd.dev.sigstore.bundle.v0.3+json")
        .await?;
    // The description is signed, too.
    let confirmed = listing
        .attach(&from, &described, "application/vnd.dev.sigstore.bundle.v0.3+json")
        .await?;
    let mut both = vec![described.clone(), signed.clone()];
    both.sort();
    let fallback = bundle.replace(':', "-");
    ensure!(digest(source.registry(), REPOSITORY, &fallback).await?.is_none());

    let name = "greeter.v1.0.0";
    let host = format!("localhost:{}", from.port);
    let blobs = [
        json!({"schema": "olm.package", "name": "greeter", "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": "greeter", "name": "stable", "entries": [{"name": name}]}),
        json!({"schema": "olm.bundle", "package": "greeter", "name": name, "image": format!("{host}/{REPOSITORY}@{bundle}"),
            "properties": [{"type": "olm.package", "value": {"packageName": "greeter", "version": "1.0.0"}}]}),
    ];
    write_catalog(folder, "catalog", &blobs)?;
    let mirrored = format!("{}/{REPOSITORY}", host.replace(':', "-"));

    // To a registry that does not list referrers: they are at the tag for such registries.
    olm(
        folder,
        &format!(
            "mirror ./catalog --to {} --ca-dir trusted --config-dir conf",
            plain.registry().tls
        ),
    )?;
    for one in [&described, &signed, &confirmed] {
        ensure!(
            digest(plain.registry(), &mirrored, one).await?.as_ref() == Some(one),
            "{one}"
        );
    }
    for (subject, expected) in [(&bundle, &both), (&described, &vec![confirmed.clone()])] {
        let url = format!(
            "http://{}/v2/{mirrored}/manifests/{}",
            plain.registry().address,
            subject.replace(':', "-")
        );
        let get = reqwest::Client::new().get(url).header("accept", INDEX);
        let index: Value = get.send().await?.error_for_status()?.json().await?;
        ensure!(listed(&index) == *expected, "{index}");
    }

    // Through a directory to a registry that lists them.
    let to = listing.over(&listing_server, 10).await?;
    olm(folder, "mirror ./catalog --to ./copy --ca-dir trusted")?;
    drop(from);
    let line = format!(
        "mirror ./copy --to localhost:{} --ca-dir trusted --config-dir onward",
        to.port
    );
    let done = olm(folder, &line)?;
    ensure!(
        listing.referrers(&to, &mirrored, &bundle).await? == both,
        "{done}"
    );
    ensure!(
        listing.referrers(&to, &mirrored, &described).await? == [confirmed],
        "{done}"
    );
    let again = olm(folder, &line)?;
    ensure!(again.contains(" 0 to copy, "), "{again}");
    Ok(())
}
