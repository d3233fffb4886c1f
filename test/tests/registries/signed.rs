//! Signatures by certificates, in the older form: identities, times, logs, and everything that may be wrong with them.

use jiff::Timestamp;
use olm_test::registry::certified::{Services, Signed, minutes_ago};

use super::*;

const ISSUER: &str = "https://accounts.example.com";
const RELEASE: &str = "release@example.com";

/// Images of a registry, signed by somebody whom two forms of policy ask for.
struct Stage {
    place: Place,
    services: Services,
    policies: Vec<Access>,
}

impl Stage {
    async fn start() -> Result<Self> {
        let services = Services::new()?;
        let encoded = |text: &str| STANDARD.encode(text);
        let fulcio = json!({
            "type": "sigstoreSigned",
            "fulcio": { "caData": encoded(services.authority()), "oidcIssuer": ISSUER, "subjectEmail": RELEASE },
            "rekorPublicKeyData": encoded(&services.log_key()),
        });
        let keyless = json!({
            "type": "sigstoreSigned",
            "trustedRootData": encoded(&services.trusted_root()?),
            "identities": [{ "subjectRegExp": "[a-z]+@example\\.com", "issuer": ISSUER }],
        });
        let policies = [fulcio, keyless].map(|requirement| {
            let policy = json!({ "default": [requirement] }).to_string();
            let policy = Policy::parse(&policy, |_| Err(std::io::ErrorKind::NotFound.into()));
            Access {
                policy: Arc::new(policy.unwrap()),
                ..Access::default()
            }
        });
        Ok(Self {
            place: Place::start().await?,
            services,
            policies: policies.into(),
        })
    }

    /// Pushes an image, signs it as `subject` of `issuer` with a certificate of the last minutes, changes what was
    /// signed, and says what each policy makes of it.
    async fn judge(
        &self,
        name: &str,
        subject: &str,
        issuer: &str,
        logged: Timestamp,
        change: impl FnOnce(&mut Signed, &Services) -> Result<()>,
    ) -> Result<Vec<Result<Digest, String>>> {
        let image = self.place.push(name).await?;
        let signer = self.services.issue(subject, issuer, minutes_ago(5)?)?;
        let about = format!("{}/{name}", self.place.registry().tls);
        let mut signed = self.services.sign(&signer, &about, image.digest(), logged)?;
        change(&mut signed, &self.services)?;
        signed.attach(self.place.registry(), name, image.digest()).await?;
        let mut found = Vec::new();
        for access in &self.policies {
            found.push(pull(&self.place.images(), &image.to_string(), access).await);
        }
        Ok(found)
    }

    async fn refuses(
        &self,
        name: &str,
        logged: Timestamp,
        said: &str,
        change: impl FnOnce(&mut Signed, &Services) -> Result<()>,
    ) -> Result<()> {
        for found in self.judge(name, RELEASE, ISSUER, logged, change).await? {
            fails(found, said)?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_certificate_counts_for_its_identity_while_it_is_valid() -> Result<()> {
    let stage = Stage::start().await?;
    let now = minutes_ago(1)?;
    let accepted = |found: Vec<Result<Digest, String>>| -> Result<()> {
        for one in found {
            one.map_err(anyhow::Error::msg)?;
        }
        Ok(())
    };
    accepted(stage.judge("good", RELEASE, ISSUER, now, |_, _| Ok(())).await?)?;
    for (name, subject, issuer) in [
        ("identity", "release@example.com.evil", ISSUER),
        ("issuer", RELEASE, "https://accounts.example.org"),
        ("uri", "https://example.com/release@example.com", ISSUER),
    ] {
        for found in stage.judge(name, subject, issuer, now, |_, _| Ok(())).await? {
            fails(
                found,
                &format!("it is by \"{subject}\" of issuer \"{issuer}\", not by"),
            )?;
        }
    }
    for (name, time) in [("late", minutes_ago(-10)?), ("early", minutes_ago(60)?)] {
        let found = stage.judge(name, RELEASE, ISSUER, time, |_, _| Ok(())).await?;
        for one in found {
            // An entry of the future is none; one from before or after the certificate proves nothing.
            let error = one.expect_err(name);
            ensure!(
                error.contains("its certificate is not accepted") || error.contains("in the future"),
                "{error}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_had_expired_when_it_was_used_does_not_count() -> Result<()> {
    let stage = Stage::start().await?;
    let image = stage.place.push("expired").await?;
    let signer = stage.services.issue(RELEASE, ISSUER, minutes_ago(60)?)?;
    let about = format!("{}/expired", stage.place.registry().tls);
    let sign = |time| stage.services.sign(&signer, &about, image.digest(), time);
    sign(minutes_ago(45)?)?
        .attach(stage.place.registry(), "expired", image.digest())
        .await?;
    for access in &stage.policies {
        let found = pull(&stage.place.images(), &image.to_string(), access).await;
        fails(found, "its certificate is not accepted")?;
    }
    // The same signer in time: that the certificate has expired since does not matter.
    sign(minutes_ago(55)?)?
        .attach(stage.place.registry(), "expired", image.digest())
        .await?;
    for access in &stage.policies {
        let found = pull(&stage.place.images(), &image.to_string(), access).await;
        found.map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_changed_or_not_logged_does_not_count() -> Result<()> {
    let stage = Stage::start().await?;
    let now = minutes_ago(1)?;
    let key = "it was not made with";
    let refuses =
        |name, said, change: fn(&mut Signed, &Services) -> Result<()>| stage.refuses(name, now, said, change);
    refuses("payload", key, |signed, _| {
        signed.payload = signed.payload.replace("null", "{}");
        Ok(())
    })
    .await?;
    refuses("certificate", key, |signed, services| {
        signed.certificate = Some(services.issue(RELEASE, ISSUER, minutes_ago(5)?)?.certificate);
        Ok(())
    })
    .await?;
    refuses("stranger", "its certificate is not accepted", |signed, _| {
        signed.certificate = Some(
            Services::new()?
                .issue(RELEASE, ISSUER, minutes_ago(5)?)?
                .certificate,
        );
        Ok(())
    })
    .await?;
    refuses("bare", "it has no certificate", |signed, _| {
        signed.certificate = None;
        Ok(())
    })
    .await?;
    refuses(
        "unlogged",
        "the transparency log does not prove it",
        |signed, _| {
            signed.log = None;
            Ok(())
        },
    )
    .await?;
    refuses("time", "the transparency log does not prove it", |signed, _| {
        let log = signed.log.as_mut().context("an entry")?;
        let time = log["Payload"]["integratedTime"].as_i64().context("a time")?;
        log["Payload"]["integratedTime"] = json!(time - 1);
        Ok(())
    })
    .await?;
    refuses("kind", "unknown kind of entry", |signed, _| {
        let log = signed.log.as_mut().context("an entry")?;
        let body = json!({ "kind": "hashedrekord", "apiVersion": "0.0.9" }).to_string();
        log["Payload"]["body"] = json!(STANDARD.encode(body));
        Ok(())
    })
    .await?;
    // An entry of the log for something else.
    refuses("borrowed", "", |signed, services| {
        let signer = services.issue(RELEASE, ISSUER, minutes_ago(5)?)?;
        let other = services.sign(
            &signer,
            "registry.example/other",
            &Digest::of(b"other"),
            minutes_ago(1)?,
        )?;
        signed.log = other.log;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_signature_of_another_image_is_none_of_this() -> Result<()> {
    let stage = Stage::start().await?;
    let signer = stage.services.issue(RELEASE, ISSUER, minutes_ago(5)?)?;
    let registry = stage.place.registry();
    let (this, other) = (stage.place.push("one").await?, stage.place.push("two").await?);
    let about = format!("{}/one", registry.tls);
    let signed = stage
        .services
        .sign(&signer, &about, other.digest(), minutes_ago(1)?)?;
    signed.attach(registry, "one", this.digest()).await?;
    // The right image under another name.
    let about = format!("{}/one", registry.tls);
    let signed = stage
        .services
        .sign(&signer, &about, other.digest(), minutes_ago(1)?)?;
    signed.attach(registry, "two", other.digest()).await?;
    for access in &stage.policies {
        let images = stage.place.images();
        let found = pull(&images, &this.to_string(), access).await;
        fails(found, &format!("it is for {}", other.digest()))?;
        fails(pull(&images, &other.to_string(), access).await, "it is about")?;
    }
    Ok(())
}
