//! A registry that lists referrers by itself: cosign writes no tag there.

use olm_test::registry::proxy::{Issued, ProxyBehaviour, RegistryProxy, ServerTls, named};
use rcgen::KeyPair;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn signatures_and_attestations_are_found_where_a_registry_lists_referrers() -> Result<()> {
    olm_platform::crypto::install();
    let stage = Stage::start(Sigstore::alone().await?).await?;
    let certificate = Issued::alone(named("proxy", &["localhost", "127.0.0.1"])?, KeyPair::generate()?)?;
    let trusted = tempfile::tempdir()?;
    std::fs::write(trusted.path().join("proxy.crt"), certificate.pem())?;
    let behaviour = ProxyBehaviour {
        lists_referrers: Some(10),
        keeps_uploads: true,
        ..ProxyBehaviour::default()
    };
    let registry = stage.server.registry();
    let upstream = format!("http://{}", registry.address);
    let proxy =
        RegistryProxy::start(&upstream, &registry.ca, &ServerTls::of(&certificate), behaviour).await?;
    let images = Images::new(Options {
        authorities: Some(trusted.path().to_owned()),
        ..Options::new("olm-test")
    });
    let pushed = stage.push("listed").await?;
    let image = format!("localhost:{}/listed@{}", proxy.port, pushed.digest());
    let signing = |command: &str, more: &[String]| {
        let mut arguments: Vec<String> = [
            command,
            "--yes",
            "--allow-insecure-registry",
            "--new-bundle-format=true",
            "--use-signing-config=false",
            "--tlog-upload=false",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--key={}", stage.key.display()));
        arguments.extend_from_slice(more);
        arguments.push(image.clone());
        stage.sigstore.run(Cosign::Three, &arguments)
    };
    let judge = async |requirement: Value| {
        let policy = json!({ "default": [requirement] }).to_string();
        let access = Access {
            policy: Arc::new(Policy::parse(&policy, |path| std::fs::read(path))?),
            ..Access::default()
        };
        let verdict = images.verify(&Reference::parse(&image)?, &access).await;
        verdict
            .map(drop)
            .map_err(|error| anyhow::anyhow!(olm_platform::log::chain(&error)))
    };
    let attested = json!({
        "type": "sigstoreAttested", "keyPath": stage.public, "predicateType": "https://example.com/scan/v1",
        "condition": "predicate.findings.size() == 0",
    });
    let refuses = async |requirement: Value, said: &str| {
        let found = judge(requirement).await.map_err(|error| error.to_string());
        refused(found, said, "an image without it")
    };
    refuses(by_key(&stage.public), "asks for a signature, and there is none").await?;
    signing("sign", &[])?;
    judge(by_key(&stage.public)).await?;
    refuses(
        attested.clone(),
        "its type is \"https://sigstore.dev/cosign/sign/v1\", not",
    )
    .await?;
    let predicate = stage.key.with_file_name("scan.json");
    std::fs::write(&predicate, json!({ "findings": [] }).to_string())?;
    let more = [
        "--type=https://example.com/scan/v1".to_owned(),
        format!("--predicate={}", predicate.display()),
    ];
    signing("attest", &more)?;
    judge(attested).await?;
    let asked = proxy.seen();
    let listed = format!("GET /v2/listed/referrers/{}", pushed.digest());
    ensure!(
        asked.iter().any(|seen| seen.request.starts_with(&listed)),
        "no request for the referrers: {asked:?}"
    );
    let tag = pushed.digest().to_string().replace(':', "-");
    let written = format!("PUT /v2/listed/manifests/{tag}");
    ensure!(
        !asked.iter().any(|seen| seen.request == written),
        "cosign wrote the tag for registries that list no referrers"
    );
    Ok(())
}
