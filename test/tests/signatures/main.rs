//! Signatures of the real cosign, in both its forms, with keys and with identities: accepted when all is well, refused
//! when anything is not. `SIGNATURES=all` (`make signatures`) goes through the whole matrix; without it a selection
//! runs that needs cosign 3 alone.
#![expect(
    clippy::unwrap_used,
    reason = "what cannot be set up or parsed fails the test, wherever it happens"
)]

mod attestations;
mod referrers;
mod trust_root;
mod verify;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_image::{
    Access, ImageBuilder, Images, LayerBuilder, Options, Pinned, Platform, Policy, Reference, Registries,
};
use olm_platform::log::chain;
use olm_test::registry::Server;
use olm_test::registry::signatures::{SignatureDocuments, SignatureFormat};
use olm_test::registry::sigstore::{Cosign, Sigstore};
use serde_json::{Value, json};

const RELEASE: &str = "release@example.com";

/// A way to sign.
#[derive(Debug, Clone, Copy)]
struct Way {
    cosign: Cosign,
    keyless: bool,
    format: SignatureFormat,
}

/// A registry, and the tools that sign images in it.
struct Stage {
    server: Server,
    sigstore: Sigstore,
    images: Images,
    access: Access,
    key: PathBuf,
    public: PathBuf,
    stranger: PathBuf,
}

impl Stage {
    async fn start(sigstore: Sigstore) -> Result<Self> {
        let server = Server::start().await?;
        let address = &server.registry().address;
        let access = Access {
            registries: Arc::new(Registries::default().plain_http(address)),
            ..Access::default()
        };
        let (key, public) = sigstore.key("ours")?;
        let (_, stranger) = sigstore.key("strange")?;
        Ok(Self {
            images: Images::new(Options::new("olm-test")),
            server,
            sigstore,
            access,
            key,
            public,
            stranger,
        })
    }

    async fn push(&self, name: &str) -> Result<Pinned> {
        let mut layer = LayerBuilder::new();
        layer.bytes("manifests/a.yaml", format!("name: {name}"), 0o644)?;
        let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
        let reference = Reference::parse(&format!("{}/{name}", self.server.registry().address))?;
        Ok(self.images.push(&reference, &image, &self.access).await?)
    }

    /// Signs an image; `logged` says whether a log gets it, where the format can hold an entry of the log that is here.
    fn sign(&self, way: Way, image: &str, logged: bool, services: bool) -> Result<()> {
        let mut arguments: Vec<String> = ["sign", "--yes", "--allow-http-registry"]
            .map(str::to_owned)
            .into();
        if way.keyless {
            arguments.push(format!(
                "--identity-token={}",
                self.sigstore.token(RELEASE)?.display()
            ));
        } else {
            arguments.push(format!("--key={}", self.key.display()));
        }
        let is_bundle = way.format == SignatureFormat::Bundle;
        arguments.push(format!("--new-bundle-format={is_bundle}"));
        if is_bundle && services {
            let config = self.sigstore.config(if logged { "logged" } else { "unlogged" });
            arguments.push(format!("--signing-config={}", config.display()));
            arguments.push(format!(
                "--trusted-root={}",
                self.sigstore.trusted_root().display()
            ));
        } else {
            // The older format holds promises of the first Rekor only.
            arguments.extend(["--use-signing-config=false", "--tlog-upload=false"].map(str::to_owned));
            if services {
                arguments.push(format!("--timestamp-server-url={}", self.sigstore.timestamps()));
            }
            if way.keyless {
                arguments.push(format!("--fulcio-url={}", self.sigstore.fulcio()));
                arguments.push(format!(
                    "--trusted-root={}",
                    self.sigstore.trusted_root().display()
                ));
                arguments.push("--insecure-skip-verify".to_owned());
            }
        }
        arguments.push(image.to_owned());
        self.sigstore.run(way.cosign, &arguments).map(drop)
    }

    /// Verdict of a policy with this requirement about an image.
    async fn judge(&self, requirement: Value, image: &Reference) -> Result<(), String> {
        let access = self.asking(requirement)?;
        let verdict = self.images.verify(image, &access).await;
        verdict.map(drop).map_err(|error| chain(&error))
    }

    /// The same for an image that nodes of any platform run.
    async fn judge_for_all_nodes(&self, requirement: Value, image: &Reference) -> Result<(), String> {
        let access = self.asking(requirement)?;
        let verdict = self.images.verify_for_all_nodes(image, &access).await;
        verdict.map(drop).map_err(|error| chain(&error))
    }

    fn asking(&self, requirement: Value) -> Result<Access, String> {
        let policy = json!({ "default": [requirement] }).to_string();
        let policy = Policy::parse(&policy, |path| std::fs::read(path)).map_err(|error| error.to_string())?;
        Ok(Access {
            policy: Arc::new(policy),
            ..self.access.clone()
        })
    }

    /// The trust root, changed.
    fn root(&self, change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut root: Value = serde_json::from_slice(&std::fs::read(self.sigstore.trusted_root())?)?;
        change(&mut root);
        Ok(STANDARD.encode(root.to_string()))
    }
}

fn by_key(key: &PathBuf) -> Value {
    json!({ "type": "sigstoreSigned", "keyPath": key })
}

fn refused(found: Result<(), String>, said: &str, what: &str) -> Result<()> {
    let error = found.err().with_context(|| format!("{what} was accepted"))?;
    ensure!(error.contains(said), "{what}: wanted {said:?}, got {error}");
    Ok(())
}

/// The content with the last byte changed, in base64.
fn flipped(base64: &str) -> String {
    let mut bytes = STANDARD.decode(base64).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    STANDARD.encode(bytes)
}

/// The payload of a signature with a space more.
fn tampered(document: &mut Value) {
    if let Some(payload) = document.pointer_mut("/dsseEnvelope/payload") {
        let mut text = STANDARD.decode(payload.as_str().unwrap()).unwrap();
        text.push(b' ');
        *payload = json!(STANDARD.encode(text));
    } else {
        document["payload"] = json!(format!("{} ", document["payload"].as_str().unwrap()));
    }
}

/// The certificate of a signature with another signature of its issuer.
fn forged(document: &mut Value) {
    if let Some(certificate) = document.pointer_mut("/verificationMaterial/certificate/rawBytes") {
        *certificate = json!(flipped(certificate.as_str().unwrap()));
    } else {
        let certificate = &mut document["annotations"]["dev.sigstore.cosign/certificate"];
        let text = certificate.as_str().unwrap();
        let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        *certificate = json!(format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            flipped(&body)
        ));
    }
}

/// All rows of the matrix for one way to sign. `services` says whether certificates, logs and timestamps are there.
#[expect(clippy::too_many_lines, reason = "one row of the matrix after the other")]
async fn rows(stage: &Stage, way: Way, services: bool) -> Result<()> {
    let name = format!("{:?}/{}/{:?}", way.cosign, way.keyless, way.format).to_lowercase();
    let image = stage.push(&name).await?;
    let elsewhere = format!("{name}/other");
    let other = stage.push(&elsewhere).await?;
    let registry = stage.server.registry();
    let here = SignatureDocuments::new(registry, &name, way.format);
    let there = SignatureDocuments::new(registry, &elsewhere, way.format);
    let by_digest = |image: &Pinned| Reference::parse(&image.to_string());
    let reference = by_digest(&image)?;
    // The older format holds promises of the first Rekor, and cosign 2 speaks a dialect that Rekor 2.3 no longer takes.
    let is_logged = services && way.format == SignatureFormat::Bundle && way.cosign == Cosign::Three;
    stage.sign(way, &image.to_string(), is_logged, services)?;
    let identity = |subject: &str, issuer: &str, root: &str| {
        json!({
            "type": "sigstoreSigned", "trustedRootData": root,
            "identities": [{ "subjectRegExp": subject, "issuer": issuer }],
        })
    };
    let root = if services {
        stage.root(|root| {
            if !is_logged {
                root.as_object_mut().unwrap().remove("tlogs");
            }
        })?
    } else {
        String::new()
    };
    let issuer = stage.sigstore.issuer();
    let good = || {
        if way.keyless {
            identity(".*@example\\.com", issuer, &root)
        } else if is_logged {
            json!({ "type": "sigstoreSigned", "keyPath": stage.public, "trustedRootData": root })
        } else {
            by_key(&stage.public)
        }
    };
    let signed = here.read(image.digest()).await?;
    stage
        .judge(good(), &reference)
        .await
        .map_err(anyhow::Error::msg)?;

    let wrong = "it was not made with";
    let mut changed = signed.clone();
    tampered(&mut changed);
    here.write(image.digest(), &changed).await?;
    refused(stage.judge(good(), &reference).await, wrong, "a tampered payload")?;
    if way.keyless {
        let mut changed = signed.clone();
        forged(&mut changed);
        here.write(image.digest(), &changed).await?;
        let said = "its certificate is not accepted";
        refused(
            stage.judge(good(), &reference).await,
            said,
            "a tampered certificate",
        )?;
    }
    here.write(image.digest(), &signed).await?;
    stage
        .judge(good(), &reference)
        .await
        .map_err(anyhow::Error::msg)?;

    if way.keyless {
        let said = format!("it is by \"{RELEASE}\" of issuer \"{issuer}\", not by");
        let found = stage.judge(identity("other@.*", issuer, &root), &reference).await;
        refused(found, &said, "another identity")?;
        let found = stage
            .judge(identity(".*", "https://other.example", &root), &reference)
            .await;
        refused(found, &said, "another issuer")?;
        // The authority was trusted until a while ago.
        let late = stage.root(|root| {
            root["certificateAuthorities"][0]["validFor"]["end"] = json!("2021-01-01T00:00:00Z");
            if !is_logged {
                root.as_object_mut().unwrap().remove("tlogs");
            }
        })?;
        let found = stage.judge(identity(".*", issuer, &late), &reference).await;
        refused(found, "its certificate is not accepted", "an expired authority")?;
        let late = stage.root(|root| {
            root["timestampAuthorities"][0]["validFor"]["end"] = json!("2021-01-01T00:00:00Z");
            if !is_logged {
                root.as_object_mut().unwrap().remove("tlogs");
            }
        })?;
        let found = stage.judge(identity(".*", issuer, &late), &reference).await;
        refused(
            found,
            "nothing proves when it was made",
            "an expired timestamp authority",
        )?;
        refused(
            stage.judge(by_key(&stage.public), &reference).await,
            wrong,
            "a certificate for a key",
        )?;
    } else {
        refused(
            stage.judge(by_key(&stage.stranger), &reference).await,
            wrong,
            "another key",
        )?;
    }

    // Not in the log, or in no log that is trusted.
    if services {
        let unlogged = stage.push(&format!("{name}/unlogged")).await?;
        stage.sign(way, &unlogged.to_string(), false, services)?;
        let all = stage.root(|_| {})?;
        let wanted = if way.keyless {
            identity(".*", issuer, &all)
        } else {
            json!({ "type": "sigstoreSigned", "keyPath": stage.public, "trustedRootData": all })
        };
        let found = stage.judge(wanted, &by_digest(&unlogged)?).await;
        refused(
            found,
            "the transparency log does not prove it",
            "a signature that is not logged",
        )?;
    }

    // Beside another image.
    there.write(other.digest(), &signed).await?;
    let said = format!("it is for {}", image.digest());
    refused(
        stage.judge(good(), &by_digest(&other)?).await,
        &said,
        "a signature of another image",
    )?;

    // Beside the manifest that the signed index names, and for the index itself.
    let index = here.index(image.digest()).await?;
    let place = Reference::parse(&format!("{}/{name}@{index}", registry.address))?;
    // Its manifest is signed, which is enough for a node of that platform, and not for one of another.
    stage.judge(good(), &place).await.map_err(anyhow::Error::msg)?;
    refused(
        stage.judge_for_all_nodes(good(), &place).await,
        "and there is none at tag",
        "an index without a signature of its own",
    )?;
    stage.sign(way, &place.to_string(), is_logged, services)?;
    stage
        .judge_for_all_nodes(good(), &place)
        .await
        .map_err(anyhow::Error::msg)?;
    let of_index = here.read(&index).await?;
    here.write(image.digest(), &of_index).await?;
    let said = format!("it is for {index}");
    refused(
        stage.judge(good(), &reference).await,
        &said,
        "the signature of an index for a manifest",
    )
}

/// With several threads: one waits for cosign while another is the issuer of tokens.
#[tokio::test(flavor = "multi_thread")]
async fn what_cosign_signs_is_accepted_when_all_is_well_and_refused_when_anything_is_not() -> Result<()> {
    olm_platform::crypto::install();
    let is_whole = std::env::var("SIGNATURES").is_ok_and(|value| value == "all");
    let sigstore = if is_whole {
        Sigstore::start().await?
    } else {
        Sigstore::alone().await?
    };
    let stage = Stage::start(sigstore).await?;
    let (cosigns, keyless) = if is_whole {
        (&[Cosign::Three, Cosign::Two][..], &[false, true][..])
    } else {
        (&[Cosign::Three][..], &[false][..])
    };
    let mut faults = BTreeMap::new();
    for &cosign in cosigns {
        for &keyless in keyless {
            for format in [SignatureFormat::Bundle, SignatureFormat::Attached] {
                let way = Way {
                    cosign,
                    keyless,
                    format,
                };
                if let Err(error) = rows(&stage, way, is_whole).await {
                    faults.insert(format!("{way:?}"), format!("{error:#}"));
                }
            }
        }
    }
    ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}
