//! Signatures in the older form with entries of the first Rekor, by certificates and by keys: identities, times, logs,
//! and everything that may be wrong with them.

use jiff::Timestamp;
use olm_test::registry::certified::{Services, Signed, Signer, minutes_ago};

use super::*;

const ISSUER: &str = "https://accounts.example.com";
const RELEASE: &str = "release@example.com";
const NOT_LOGGED: &str = "the transparency log does not prove it";

/// Signers that a policy asks for, in any of its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// An identity: by `fulcio`, or by a trust root with `identities`.
    Identity,
    /// The owner of a certificate of an authority of one's own: by `pki`.
    Owner,
    /// A key with its log: by the key of the log, or by a trust root.
    Key,
}

const EVERYBODY: [Wanted; 3] = [Wanted::Identity, Wanted::Owner, Wanted::Key];
const CERTIFIED: [Wanted; 2] = [Wanted::Identity, Wanted::Owner];

/// Images of a registry, signed by somebody whom several forms of policy ask for.
struct Stage {
    place: Place,
    services: Services,
    key: Arc<Signer>,
}

impl Stage {
    async fn start() -> Result<Self> {
        Ok(Self {
            place: Place::start().await?,
            services: Services::new()?,
            key: Arc::new(Signer::by_key()?),
        })
    }

    fn policies(&self, wanted: Wanted) -> Result<Vec<Access>> {
        let encoded = |text: &str| STANDARD.encode(text);
        let log = encoded(&self.services.log_key());
        let root = encoded(&self.services.trusted_root()?);
        let authority = encoded(self.services.authority());
        let key = encoded(&self.key.public_key());
        let mut requirements = match wanted {
            Wanted::Identity => vec![
                json!({
                    "fulcio": { "caData": authority, "oidcIssuer": ISSUER, "subjectEmail": RELEASE },
                    "rekorPublicKeyData": log,
                }),
                json!({
                    "trustedRootData": root,
                    "identities": [{ "subjectRegExp": "[a-z]+@example\\.com", "issuer": ISSUER }],
                }),
            ],
            Wanted::Owner => vec![json!({
                "pki": { "caRootsData": authority, "subjectEmail": RELEASE }, "rekorPublicKeyData": log,
            })],
            Wanted::Key => vec![
                json!({ "keyData": key, "rekorPublicKeyData": log }),
                json!({ "keyData": key, "trustedRootData": root }),
            ],
        };
        let access = requirements.iter_mut().map(|requirement| {
            requirement["type"] = json!("sigstoreSigned");
            let policy = json!({ "default": [requirement] }).to_string();
            let policy = Policy::parse(&policy, |_| Err(std::io::ErrorKind::NotFound.into()));
            Ok(Access {
                policy: Arc::new(policy.map_err(|error| anyhow::anyhow!("{error}"))?),
                ..Access::default()
            })
        });
        access.collect()
    }

    /// Signs an image by `signer` at a time, changes the signed payload, and puts it beside the image `beside`. `about` is
    /// the name of the signed image.
    async fn attach(
        &self,
        signer: &Signer,
        (about, image): (&str, &Pinned),
        beside: (&str, &Pinned),
        time: Timestamp,
        change: impl FnOnce(&mut Signed) -> Result<()>,
    ) -> Result<()> {
        let about = format!("{}/{about}", self.place.registry().tls);
        let mut signed = self.services.sign(signer, &about, image.digest(), time)?;
        change(&mut signed)?;
        let (name, image) = beside;
        signed.attach(self.place.registry(), name, image.digest()).await
    }

    /// The verdict of each policy about an image.
    async fn verdicts(&self, wanted: Wanted, image: &Pinned) -> Result<Vec<Result<Digest, String>>> {
        let mut found = Vec::new();
        for access in self.policies(wanted)? {
            found.push(pull(&self.place.images(), &image.to_string(), &access).await);
        }
        Ok(found)
    }

    async fn accepts(&self, wanted: Wanted, image: &Pinned) -> Result<()> {
        for found in self.verdicts(wanted, image).await? {
            found.map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    async fn refuses(&self, wanted: Wanted, image: &Pinned, said: &str) -> Result<()> {
        for found in self.verdicts(wanted, image).await? {
            fails(found, said).with_context(|| format!("{wanted:?}, {image}"))?;
        }
        Ok(())
    }

    /// The wanted signer, with a certificate of the last minutes.
    fn signer(&self, wanted: Wanted) -> Result<Arc<Signer>> {
        match wanted {
            Wanted::Key => Ok(Arc::clone(&self.key)),
            Wanted::Identity | Wanted::Owner => self.issue(RELEASE, ISSUER),
        }
    }

    fn issue(&self, subject: &str, issuer: &str) -> Result<Arc<Signer>> {
        Ok(Arc::new(self.services.issue(subject, issuer, minutes_ago(5)?)?))
    }

    /// Refuses an image of the wanted signer after a change of its signature, or with another time.
    async fn fault(
        &self,
        wanted: Wanted,
        name: &str,
        time: Timestamp,
        said: &str,
        change: impl FnOnce(&mut Signed) -> Result<()>,
    ) -> Result<()> {
        let name = &format!("{wanted:?}/{name}").to_lowercase();
        let image = self.place.push(name).await?;
        let signer = self.signer(wanted)?;
        self.attach(&signer, (name, &image), (name, &image), time, change)
            .await?;
        self.refuses(wanted, &image, said).await
    }
}

fn unchanged(_: &mut Signed) -> Result<()> {
    Ok(())
}

#[tokio::test]
async fn a_signature_counts_for_its_signer_while_its_certificate_is_valid() -> Result<()> {
    let stage = Stage::start().await?;
    let now = minutes_ago(1)?;
    let signed = async |name: &str, signer: &Signer| {
        let image = stage.place.push(name).await?;
        stage
            .attach(signer, (name, &image), (name, &image), now, unchanged)
            .await?;
        anyhow::Ok(image)
    };
    for wanted in EVERYBODY {
        let name = format!("good/{wanted:?}").to_lowercase();
        let image = signed(&name, &*stage.signer(wanted)?).await?;
        stage.accepts(wanted, &image).await?;
    }
    for (name, subject, issuer) in [
        ("identity", "release@example.com.evil", ISSUER),
        ("issuer", RELEASE, "https://accounts.example.org"),
        ("uri", "https://example.com/release@example.com", ISSUER),
    ] {
        let image = signed(name, &*stage.issue(subject, issuer)?).await?;
        let said = format!("it is by \"{subject}\" of issuer \"{issuer}\", not by");
        stage.refuses(Wanted::Identity, &image, &said).await?;
        match name {
            // For an authority of one's own, the subject counts, whatever the issuer is.
            "issuer" => stage.accepts(Wanted::Owner, &image).await?,
            _ => {
                stage
                    .refuses(Wanted::Owner, &image, ", not by release@example.com")
                    .await?;
            }
        }
    }
    let image = signed("key", &Signer::by_key()?).await?;
    let said = "it was not made with a trusted key";
    stage.refuses(Wanted::Key, &image, said).await?;
    for wanted in EVERYBODY {
        stage
            .fault(wanted, "late", minutes_ago(-10)?, "is in the future", unchanged)
            .await?;
    }
    for wanted in CERTIFIED {
        let said = "its certificate is not accepted";
        stage
            .fault(wanted, "early", minutes_ago(60)?, said, unchanged)
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_had_expired_when_it_was_used_does_not_count() -> Result<()> {
    let stage = Stage::start().await?;
    let image = stage.place.push("expired").await?;
    let signer = stage.services.issue(RELEASE, ISSUER, minutes_ago(60)?)?;
    let place = ("expired", &image);
    stage
        .attach(&signer, place, place, minutes_ago(45)?, unchanged)
        .await?;
    for wanted in CERTIFIED {
        stage
            .refuses(wanted, &image, "its certificate is not accepted")
            .await?;
    }
    // The same signer in time: that the certificate has expired since does not matter.
    stage
        .attach(&signer, place, place, minutes_ago(55)?, unchanged)
        .await?;
    for wanted in CERTIFIED {
        stage.accepts(wanted, &image).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_changed_after_signing_does_not_count() -> Result<()> {
    let stage = Stage::start().await?;
    let now = minutes_ago(1)?;
    let wrong = "it was not made with";
    for wanted in EVERYBODY {
        let payload = |signed: &mut Signed| {
            signed.payload = signed.payload.replace("null", "{}");
            Ok(())
        };
        stage.fault(wanted, "payload", now, wrong, payload).await?;
    }
    for wanted in CERTIFIED {
        let exchanged = stage.issue(RELEASE, ISSUER)?;
        let certificate = |signed: &mut Signed| {
            signed.certificate.clone_from(&exchanged.certificate);
            Ok(())
        };
        stage
            .fault(wanted, "certificate", now, wrong, certificate)
            .await?;
        let stranger = Services::new()?.issue(RELEASE, ISSUER, minutes_ago(5)?)?;
        let certificate = |signed: &mut Signed| {
            signed.certificate.clone_from(&stranger.certificate);
            Ok(())
        };
        let said = "its certificate is not accepted";
        stage.fault(wanted, "stranger", now, said, certificate).await?;
        let bare = |signed: &mut Signed| {
            signed.certificate = None;
            Ok(())
        };
        stage
            .fault(wanted, "bare", now, "it has no certificate", bare)
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_the_log_does_not_have_does_not_count() -> Result<()> {
    let stage = Stage::start().await?;
    let now = minutes_ago(1)?;
    for wanted in EVERYBODY {
        let none = |signed: &mut Signed| {
            signed.log = None;
            Ok(())
        };
        stage.fault(wanted, "unlogged", now, NOT_LOGGED, none).await?;
        let time = |signed: &mut Signed| {
            let log = signed.log.as_mut().context("an entry")?;
            let time = log["Payload"]["integratedTime"].as_i64().context("a time")?;
            log["Payload"]["integratedTime"] = json!(time - 1);
            Ok(())
        };
        stage.fault(wanted, "time", now, NOT_LOGGED, time).await?;
        let kind = |signed: &mut Signed| {
            let log = signed.log.as_mut().context("an entry")?;
            let body = json!({ "kind": "hashedrekord", "apiVersion": "0.0.9" }).to_string();
            log["Payload"]["body"] = json!(STANDARD.encode(body));
            Ok(())
        };
        stage
            .fault(wanted, "kind", now, "unknown kind of entry", kind)
            .await?;
        // An entry of the log for something else, by the same signer and by another one.
        for signer in [stage.signer(wanted)?, Arc::new(Signer::by_key()?)] {
            let about = "registry.example/other";
            let other = stage.services.sign(&signer, about, &Digest::of(b"other"), now)?;
            let borrowed = |signed: &mut Signed| {
                signed.log = other.log;
                Ok(())
            };
            stage
                .fault(wanted, "borrowed", now, "it is for other content", borrowed)
                .await?;
        }
        // Without the promise of the log, and with that of another log.
        let replaced = |signed: &mut Signed| {
            let log = signed.log.as_mut().context("an entry")?;
            log["SignedEntryTimestamp"] = json!(STANDARD.encode("promised"));
            Ok(())
        };
        stage.fault(wanted, "promise", now, NOT_LOGGED, replaced).await?;
        let stranger = Services::new()?;
        let name = format!("strange/{wanted:?}").to_lowercase();
        let image = stage.place.push(&name).await?;
        let about = format!("{}/{name}", stage.place.registry().tls);
        let elsewhere = stranger.sign(&*stage.signer(wanted)?, &about, image.digest(), now)?;
        let log = |signed: &mut Signed| {
            signed.log = elsewhere.log;
            Ok(())
        };
        stage.fault(wanted, "other-log", now, NOT_LOGGED, log).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_signature_of_another_image_is_none_of_this() -> Result<()> {
    let stage = Stage::start().await?;
    let now = minutes_ago(1)?;
    let (this, other) = (stage.place.push("one").await?, stage.place.push("two").await?);
    for wanted in EVERYBODY {
        let signer = stage.signer(wanted)?;
        stage
            .attach(&signer, ("one", &other), ("one", &this), now, unchanged)
            .await?;
        // The right image under another name.
        stage
            .attach(&signer, ("one", &other), ("two", &other), now, unchanged)
            .await?;
        let said = format!("it is for {}", other.digest());
        stage.refuses(wanted, &this, &said).await?;
        stage.refuses(wanted, &other, "it is about").await?;
    }
    Ok(())
}
