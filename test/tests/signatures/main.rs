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
use olm_test::registry::proxy::{ProxyBehaviour, RegistryProxy};
use olm_test::registry::signatures::{SignatureDocuments, SignatureFormat};
use olm_test::registry::sigstore::{Cosign, Sigstore};
use olm_test::registry::{Registry, Server};
use serde_json::{Value, json};

const RELEASE: &str = "release@example.com";
const FORMATS: [SignatureFormat; 3] = [
    SignatureFormat::Bundle,
    SignatureFormat::Listed,
    SignatureFormat::Attached,
];

/// A way to sign.
#[derive(Debug, Clone, Copy)]
struct Way {
    cosign: Cosign,
    keyless: bool,
    format: SignatureFormat,
}

/// Whether everything is wanted, with all services.
fn is_whole() -> bool {
    std::env::var("SIGNATURES").is_ok_and(|value| value == "all")
}

/// All ways to sign with the services, or those without them.
fn ways(services: bool) -> Vec<Way> {
    let (cosigns, keyless) = if services {
        (&[Cosign::Three, Cosign::Two][..], &[false, true][..])
    } else {
        (&[Cosign::Three][..], &[false][..])
    };
    let mut ways = Vec::new();
    for &cosign in cosigns {
        for &keyless in keyless {
            ways.extend(FORMATS.map(|format| Way {
                cosign,
                keyless,
                format,
            }));
        }
    }
    ways
}

impl Way {
    fn is_bundle(self) -> bool {
        self.format != SignatureFormat::Attached
    }

    /// Whether a log has an entry of the signature. The older format holds promises of the first Rekor, and cosign 2
    /// speaks a dialect that Rekor 2.3 no longer takes.
    fn is_logged(self, services: bool) -> bool {
        services && self.is_bundle() && self.cosign == Cosign::Three
    }

    /// Whether a certificate of an attestation is used at a time that nothing proves: cosign 2 stamps the whole envelope
    /// in the older form, and not its signature.
    fn stamps_envelopes(self, services: bool) -> bool {
        services && self.keyless && !self.is_bundle() && self.cosign == Cosign::Two
    }
}

/// A registry, and the tools that sign images in it.
struct Stage {
    server: Server,
    /// The same registry with a list of referrers, and where it is.
    _lists: RegistryProxy,
    listed: Registry,
    sigstore: Sigstore,
    images: Images,
    access: Access,
    key: PathBuf,
    public: PathBuf,
    stranger: PathBuf,
}

impl Stage {
    /// With what the ways to sign need.
    async fn of_ways(services: bool) -> Result<Self> {
        let sigstore = if services {
            Sigstore::start().await?
        } else {
            Sigstore::alone().await?
        };
        Self::start(sigstore).await
    }

    async fn start(sigstore: Sigstore) -> Result<Self> {
        let server = Server::start().await?;
        let registry = server.registry();
        let behaviour = ProxyBehaviour {
            lists_referrers: Some(10),
            keeps_uploads: true,
            ..ProxyBehaviour::default()
        };
        let upstream = format!("http://{}", registry.address);
        let lists = RegistryProxy::plain(&upstream, &registry.ca, behaviour).await?;
        let listed = Registry {
            address: format!("127.0.0.1:{}", lists.port),
            ..registry.clone()
        };
        let registries = Registries::default().plain_http(&registry.address);
        let access = Access {
            registries: Arc::new(registries.plain_http(&listed.address)),
            ..Access::default()
        };
        let (key, public) = sigstore.key("ours")?;
        let (_, stranger) = sigstore.key("strange")?;
        Ok(Self {
            images: Images::new(Options::new("olm-test")),
            server,
            _lists: lists,
            listed,
            sigstore,
            access,
            key,
            public,
            stranger,
        })
    }

    /// The registry for signatures of a format.
    fn registry(&self, format: SignatureFormat) -> &Registry {
        match format {
            SignatureFormat::Listed => &self.listed,
            SignatureFormat::Bundle | SignatureFormat::Attached => self.server.registry(),
        }
    }

    async fn push(&self, name: &str) -> Result<Pinned> {
        self.push_for(SignatureFormat::Bundle, name).await
    }

    /// Pushes an image that is to have signatures of a format.
    async fn push_for(&self, format: SignatureFormat, name: &str) -> Result<Pinned> {
        let mut layer = LayerBuilder::new();
        layer.bytes("manifests/a.yaml", format!("name: {name}"), 0o644)?;
        let image = ImageBuilder::new(Platform::host()).layer(layer.build()?).build();
        let reference = Reference::parse(&format!("{}/{name}", self.registry(format).address))?;
        Ok(self.images.push(&reference, &image, &self.access).await?.pinned)
    }

    /// Signs an image; `logged` says whether a log gets it, where the format can hold an entry of the log that is here.
    fn sign(&self, way: Way, image: &str, logged: bool, services: bool) -> Result<()> {
        self.cosign(way, &["sign"], image, logged, services)
    }

    /// Runs a command of cosign on an image.
    fn cosign(&self, way: Way, command: &[&str], image: &str, logged: bool, services: bool) -> Result<()> {
        let mut arguments: Vec<String> = command.iter().map(|&argument| argument.to_owned()).collect();
        arguments.extend(["--yes", "--allow-http-registry"].map(str::to_owned));
        if way.keyless {
            arguments.push(format!(
                "--identity-token={}",
                self.sigstore.token(RELEASE)?.display()
            ));
        } else {
            arguments.push(format!("--key={}", self.key.display()));
        }
        let is_bundle = way.is_bundle();
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

    /// The requirement that a signature of this way satisfies.
    fn requirement(&self, way: Way, services: bool) -> Result<Value> {
        let is_logged = way.is_logged(services);
        Ok(if way.keyless {
            let root = self.root_for(is_logged, |_| {})?;
            by_identity(".*@example\\.com", self.sigstore.issuer(), &root)
        } else if is_logged {
            let root = self.root_for(is_logged, |_| {})?;
            json!({ "type": "sigstoreSigned", "keyPath": self.public, "trustedRootData": root })
        } else {
            by_key(&self.public)
        })
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

    /// The trust root, changed, without its log where signatures have no entry of it.
    fn root_for(&self, is_logged: bool, change: impl FnOnce(&mut Value)) -> Result<String> {
        self.root(|root| {
            change(root);
            if !is_logged {
                root.as_object_mut().unwrap().remove("tlogs");
            }
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

fn by_identity(subject: &str, issuer: &str, root: &str) -> Value {
    json!({
        "type": "sigstoreSigned", "trustedRootData": root,
        "identities": [{ "subjectRegExp": subject, "issuer": issuer }],
    })
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
    let push = async |name: &str| stage.push_for(way.format, name).await;
    let image = push(&name).await?;
    let elsewhere = format!("{name}/other");
    let other = push(&elsewhere).await?;
    let registry = stage.registry(way.format);
    let here = SignatureDocuments::new(registry, &name, way.format);
    let there = SignatureDocuments::new(registry, &elsewhere, way.format);
    let by_digest = |image: &Pinned| Reference::parse(&image.to_string());
    let reference = by_digest(&image)?;
    let is_logged = way.is_logged(services);
    stage.sign(way, &image.to_string(), is_logged, services)?;
    let issuer = stage.sigstore.issuer();
    let wanted = stage.requirement(way, services)?;
    let good = || wanted.clone();
    let signed = here.read(image.digest()).await?;
    stage
        .judge(good(), &reference)
        .await
        .map_err(anyhow::Error::msg)?;
    if way.keyless {
        verify::by_identity(stage, &image.to_string(), RELEASE, issuer, is_logged)?;
    }

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
        let root = stage.root_for(is_logged, |_| {})?;
        let found = stage
            .judge(by_identity("other@.*", issuer, &root), &reference)
            .await;
        refused(found, &said, "another identity")?;
        let found = stage
            .judge(by_identity(".*", "https://other.example", &root), &reference)
            .await;
        refused(found, &said, "another issuer")?;
        // The authority was trusted until a while ago.
        let late = |kind: &'static str| {
            stage.root_for(is_logged, |root| {
                root[kind][0]["validFor"]["end"] = json!("2021-01-01T00:00:00Z");
            })
        };
        let root = late("certificateAuthorities")?;
        let found = stage.judge(by_identity(".*", issuer, &root), &reference).await;
        refused(found, "its certificate is not accepted", "an expired authority")?;
        let root = late("timestampAuthorities")?;
        let found = stage.judge(by_identity(".*", issuer, &root), &reference).await;
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
        let unlogged = push(&format!("{name}/unlogged")).await?;
        stage.sign(way, &unlogged.to_string(), false, services)?;
        let all = stage.root(|_| {})?;
        let wanted = if way.keyless {
            by_identity(".*", issuer, &all)
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
    )?;
    // The index alone is signed.
    let verdict = stage.judge(good(), &place).await;
    verdict.map_err(anyhow::Error::msg)
}

/// With several threads: one waits for cosign while another is the issuer of tokens.
#[tokio::test(flavor = "multi_thread")]
async fn what_cosign_signs_is_accepted_when_all_is_well_and_refused_when_anything_is_not() -> Result<()> {
    olm_platform::crypto::install();
    let services = is_whole();
    let stage = Stage::of_ways(services).await?;
    let mut faults = BTreeMap::new();
    for way in ways(services) {
        if let Err(error) = rows(&stage, way, services).await {
            faults.insert(format!("{way:?}"), format!("{error:#}"));
        }
    }
    ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}
