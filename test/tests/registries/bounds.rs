//! What lies beside an image may be broken, endless or never answered: whoever may push there must neither refuse an
//! image that is well signed nor keep a pull busy.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::EcdsaKeyPair;
use olm_test::registry::proxy::{ProxyBehaviour, RegistryProxy};
use olm_test::registry::signatures::payload;

use super::answers::ProxiedRegistry;
use super::*;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const NO_KEY: &str = "it was not made with a trusted key";

/// An image at a registry that answers what a test says about its signatures.
struct Stage {
    registry: ProxiedRegistry,
    proxy: RegistryProxy,
    images: Images,
    image: Reference,
    digest: Digest,
    signer: EcdsaKeyPair,
    access: Access,
}

/// Form in which an image is signed.
#[derive(Debug, Clone, Copy)]
enum Form {
    Attached,
    Bundle,
}

const FORMS: [Form; 2] = [Form::Attached, Form::Bundle];

impl Stage {
    async fn start() -> Result<Self> {
        let registry = ProxiedRegistry::start().await?;
        let name = push_to(registry.place.registry(), "team/app:v1").await?;
        let proxy = registry.open(ProxyBehaviour::default()).await?;
        let images = registry.images();
        let tagged = Reference::parse(&format!("127.0.0.1:{}/{name}", proxy.port))?;
        let pinned = images.resolve(&tagged, &Access::default()).await?;
        let (public, signer) = key()?;
        let requirement = json!({ "type": "sigstoreSigned", "keyData": STANDARD.encode(public) });
        let policy = json!({ "default": [requirement] }).to_string();
        let policy = Policy::parse(&policy, |_| Err(std::io::ErrorKind::NotFound.into()));
        let access = Access {
            policy: Arc::new(policy.map_err(|error| anyhow::anyhow!("{error}"))?),
            ..Access::default()
        };
        Ok(Self {
            registry,
            proxy,
            images,
            image: Reference::parse(&pinned.to_string())?,
            digest: pinned.digest().clone(),
            signer,
            access,
        })
    }

    /// The verdict about the image, with the reasons.
    async fn verdict(&self) -> Result<(), String> {
        let verdict = self.images.verify(&self.image, &self.access).await;
        verdict
            .map(drop)
            .map_err(|error| olm_platform::log::chain(&error))
    }

    async fn refused(&self, said: &[&str]) -> Result<()> {
        let error = self.verdict().await.err().context("it was accepted")?;
        for said in said {
            ensure!(error.contains(said), "wanted {said:?}, got {error}");
        }
        Ok(())
    }

    /// Answers a path with a document, and gives its descriptor.
    fn answer(&self, end: Option<&str>, kind: &str, text: &str) -> Value {
        let digest = Digest::of(text.as_bytes()).to_string();
        let end = match end {
            Some(end) => end.to_owned(),
            None if kind == MANIFEST => format!("/manifests/{digest}"),
            None => format!("/blobs/{digest}"),
        };
        let answer = (200, kind.to_owned(), text.to_owned());
        self.proxy
            .behave(|behaviour| drop(behaviour.answers.insert(end, answer)));
        json!({ "mediaType": kind, "digest": digest, "size": text.len() })
    }

    fn sign(&self, message: &[u8]) -> Result<String> {
        let signature = self.signer.sign(&SystemRandom::new(), message)?;
        Ok(STANDARD.encode(signature.as_ref()))
    }

    /// A signature of the image in a form, or one that is not by its key: an entry for [`Stage::list`].
    fn entry(&self, form: Form, is_good: bool) -> Result<Value> {
        let other = Digest::of(b"other");
        let about = if is_good { &self.digest } else { &other };
        match form {
            Form::Attached => {
                let text = payload(&self.image.name(), about);
                let message = if is_good { text.as_str() } else { "" };
                let mut layer = self.answer(None, PAYLOAD, &text);
                layer["annotations"] =
                    json!({ "dev.cosignproject.cosign/signature": self.sign(message.as_bytes())? });
                Ok(layer)
            }
            Form::Bundle => {
                let hex = about.to_string().replace("sha256:", "");
                let text = json!({
                    "_type": "https://in-toto.io/Statement/v1", "subject": [{ "digest": { "sha256": hex } }],
                    "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {},
                })
                .to_string();
                let kind = "application/vnd.in-toto+json";
                let message = format!("DSSEv1 {} {kind} {} {text}", kind.len(), text.len());
                let message = if is_good { message.as_str() } else { "" };
                let bundle = json!({
                    "mediaType": BUNDLE, "verificationMaterial": { "publicKey": { "hint": "" } },
                    "dsseEnvelope": {
                        "payload": STANDARD.encode(text), "payloadType": kind,
                        "signatures": [{ "sig": self.sign(message.as_bytes())? }],
                    },
                });
                let layer = self.answer(None, BUNDLE, &bundle.to_string());
                Ok(self.referrer(&layer))
            }
        }
    }

    /// A manifest among the referrers with this layer.
    fn referrer(&self, layer: &Value) -> Value {
        let empty = json!({ "mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}").to_string(), "size": 2 });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "config": empty, "layers": [layer],
        });
        let mut entry = self.answer(None, MANIFEST, &manifest.to_string());
        entry["artifactType"] = json!(BUNDLE);
        entry
    }

    /// Lists entries as the signatures of the image.
    fn list(&self, form: Form, entries: &[Value]) {
        let tag = self.digest.to_string().replace(':', "-");
        match form {
            Form::Attached => {
                let config = json!({ "mediaType": "application/vnd.oci.image.config.v1+json", "digest": Digest::of(b"{}").to_string(), "size": 2 });
                let list =
                    json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": entries });
                self.answer(
                    Some(&format!("/manifests/{tag}.sig")),
                    MANIFEST,
                    &list.to_string(),
                );
            }
            Form::Bundle => {
                let list = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
                let place = format!("/referrers/{}", self.digest);
                self.answer(Some(&place), INDEX, &list.to_string());
            }
        }
    }

    /// Checks that a 503 at this path is no verdict about the image.
    async fn is_unknown_while_down(&self, path: String) -> Result<()> {
        self.proxy.behave(|behaviour| {
            let down = (503, "text/plain".to_owned(), String::new());
            behaviour.answers.insert(path, down);
        });
        let error = self.verdict().await.err().context("it was accepted")?;
        ensure!(error.starts_with("cannot fetch the signatures of "), "{error}");
        Ok(())
    }

    /// Nothing lies beside the image.
    fn clear(&self) {
        self.proxy.behave(|behaviour| behaviour.answers.clear());
        self.proxy.seen();
    }

    /// The number of requests for an entry.
    fn asked(&self, entries: &[&Value]) -> usize {
        let seen = self.proxy.seen();
        let is_of = |request: &str| {
            let digests = entries.iter().filter_map(|entry| entry["digest"].as_str());
            digests.into_iter().any(|digest| request.ends_with(digest))
        };
        seen.iter().filter(|seen| is_of(&seen.request)).count()
    }
}

#[tokio::test]
async fn the_first_64_signatures_are_fetched_and_no_more() -> Result<()> {
    let stage = Stage::start().await?;
    for form in FORMS {
        for before in [63, 64] {
            stage.clear();
            let (bad, good) = (stage.entry(form, false)?, stage.entry(form, true)?);
            let mut entries = vec![bad.clone(); before];
            entries.push(good.clone());
            stage.list(form, &entries);
            if before < 64 {
                stage.verdict().await.map_err(anyhow::Error::msg)?;
            } else {
                stage.refused(&[NO_KEY]).await?;
            }
            let asked = stage.asked(&[&bad, &good]);
            ensure!(asked == 64, "{form:?} after {before}: {asked} requests");
        }
    }
    Ok(())
}

/// Entries that are broken in some way, each with the words of a refusal for it.
fn broken(stage: &Stage, form: Form) -> Vec<(Value, &'static str)> {
    let blob_type = match form {
        Form::Attached => PAYLOAD,
        Form::Bundle => BUNDLE,
    };
    let content = stage.answer(None, blob_type, "the content");
    let changed = |change: fn(&mut Value)| {
        let mut entry = content.clone();
        change(&mut entry);
        entry
    };
    let missing = json!({ "mediaType": blob_type, "digest": Digest::of(b"missing").to_string(), "size": 7 });
    let other = json!({ "mediaType": blob_type, "digest": Digest::of(b"asked for").to_string(), "size": 11 });
    let place = format!("/blobs/{}", Digest::of(b"asked for"));
    stage.answer(Some(&place), blob_type, "the answer ");
    let layers = vec![
        (
            changed(|entry| entry["digest"] = json!("sha256:zz")),
            "invalid checksum digest",
        ),
        (changed(|entry| entry["size"] = json!(-1)), "a size is negative"),
        (
            changed(|entry| entry["size"] = json!(5)),
            "is larger than 5 bytes",
        ),
        (missing, "has no blob"),
        (other, "has digest"),
    ];
    match form {
        Form::Attached => layers
            .into_iter()
            .map(|(mut layer, said)| {
                layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": "AAAA" });
                (layer, said)
            })
            .collect(),
        Form::Bundle => {
            let garbage = stage.answer(None, MANIFEST, "{}");
            let mut named = garbage.clone();
            named["digest"] = json!("sha256:zz");
            let manifest = format!("/manifests/{}", Digest::of(b"asked for"));
            stage.answer(Some(&manifest), MANIFEST, "{\"other\": 1}");
            let mut exchanged = garbage.clone();
            exchanged["digest"] = json!(Digest::of(b"asked for").to_string());
            let layers = layers
                .into_iter()
                .map(|(layer, said)| (stage.referrer(&layer), said));
            layers
                .chain([
                    (garbage, "the manifest"),
                    (named, "invalid checksum digest"),
                    (exchanged, "has digest"),
                ])
                .collect()
        }
    }
}

#[tokio::test]
async fn a_broken_entry_is_named_and_does_not_hide_a_good_signature() -> Result<()> {
    let stage = Stage::start().await?;
    for form in FORMS {
        stage.clear();
        let entries = broken(&stage, form);
        for (entry, said) in &entries {
            stage.list(form, std::slice::from_ref(entry));
            let refused = stage.refused(&["it cannot be read", said]).await;
            refused.with_context(|| format!("{form:?}: {entry}"))?;
            let good = stage.entry(form, true)?;
            stage.list(form, &[entry.clone(), good]);
            let verdict = stage.verdict().await.map_err(anyhow::Error::msg);
            verdict.with_context(|| format!("{form:?}: {entry}"))?;
        }
        let mut all: Vec<_> = entries.into_iter().map(|(entry, _)| entry).collect();
        all.push(stage.entry(form, true)?);
        stage.list(form, &all);
        stage.verdict().await.map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_broken_list_of_one_form_does_not_hide_the_other_form() -> Result<()> {
    let stage = Stage::start().await?;
    let tag = format!("/manifests/{}.sig", stage.digest.to_string().replace(':', "-"));
    stage.answer(Some(&tag), MANIFEST, "{}");
    stage.refused(&["it cannot be read", "the manifest"]).await?;
    let good = stage.entry(Form::Bundle, true)?;
    stage.list(Form::Bundle, &[good]);
    stage.verdict().await.map_err(anyhow::Error::msg)
}

#[tokio::test]
async fn a_registry_that_denies_a_signature_says_nothing_about_the_image() -> Result<()> {
    let stage = Stage::start().await?;
    for form in FORMS {
        stage.clear();
        let (bad, good) = (stage.entry(form, false)?, stage.entry(form, true)?);
        let end = format!("/{}", bad["digest"].as_str().context("a digest")?);
        stage.list(form, &[bad, good]);
        stage.proxy.behave(|behaviour| {
            behaviour.answers.retain(|place, _| !place.ends_with(&end));
            behaviour
                .answers
                .insert(end.clone(), (403, "text/plain".to_owned(), String::new()));
        });
        let error = stage.verdict().await.err().context("it was accepted")?;
        ensure!(
            error.starts_with("cannot fetch the signatures of ") && error.contains("denies access"),
            "{form:?}: {error}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_list_of_a_mirror_does_not_hide_that_of_the_registry() -> Result<()> {
    let mut stage = Stage::start().await?;
    let list = format!("/referrers/{}", stage.digest);
    let none = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] });
    let mut behaviour = ProxyBehaviour::default();
    let answer = (200, INDEX.to_owned(), none.to_string());
    behaviour.answers.insert(list.clone(), answer);
    let mirror = stage.registry.open(behaviour).await?;
    let (location, mirrored) = (stage.proxy.port, mirror.port);
    let with_mirror = configured(&format!(
        "[[registry]]\nlocation = \"127.0.0.1:{location}\"\nmirror = [{{ location = \"127.0.0.1:{mirrored}\" }}]\n"
    ))?;
    stage.access.registries = with_mirror.registries;
    let good = stage.entry(Form::Bundle, true)?;
    stage.list(Form::Bundle, &[good]);
    stage.verdict().await.map_err(anyhow::Error::msg)?;
    let asked = mirror.seen().iter().any(|seen| seen.request.ends_with(&list));
    ensure!(asked, "the mirror was not asked");

    // While the registry is down, it is not known whether there is a signature.
    stage.is_unknown_while_down(list).await
}

#[tokio::test]
async fn a_registry_that_is_down_says_nothing_about_the_image() -> Result<()> {
    let stage = Stage::start().await?;
    let list = format!("/referrers/{}", stage.digest);
    stage.is_unknown_while_down(list).await
}

#[tokio::test]
async fn a_registry_that_never_answers_about_signatures_ends_in_time() -> Result<()> {
    let stage = Stage::start().await?;
    for end in [
        format!("/manifests/{}.sig", stage.digest.to_string().replace(':', "-")),
        format!("/referrers/{}", stage.digest),
    ] {
        stage.clear();
        stage
            .proxy
            .behave(|behaviour| behaviour.hangs = Some(end.clone()));
        let judged = stage.verdict();
        tokio::pin!(judged);
        let reached = async {
            while !stage.proxy.seen().iter().any(|seen| seen.request.ends_with(&end)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            early = &mut judged => anyhow::bail!("{early:?} before {end} was asked for"),
            () = reached => {}
        }
        // From here on only the clock goes on.
        tokio::time::pause();
        let start = tokio::time::Instant::now();
        let error = judged.await.err().context("it was accepted")?;
        let passed = start.elapsed();
        tokio::time::resume();
        ensure!(error.contains("cannot reach registry"), "{error}");
        ensure!(
            passed > Duration::from_secs(20) && passed <= Duration::from_mins(3),
            "{passed:?}: {error}"
        );
    }
    Ok(())
}
