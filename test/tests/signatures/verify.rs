//! `olm verify` on images that the real cosign signed: its output and its exit status.

use std::path::Path;
use std::process::Command;

use olm_test::registry::certified::{Services, minutes_ago};
use olm_test::world::binary;

use super::*;

/// Runs `olm verify`: the exit status, the output and the errors.
pub(super) fn verify(stage: &Stage, image: &str, arguments: &[&str]) -> Result<(i32, String, String)> {
    let run = Command::new(binary("olm")?)
        .args(["verify", image, "--plain-http"])
        .args(arguments)
        .env_remove("OLM_SIGNATURE_POLICY")
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", stage.key.parent().context("a folder")?)
        .output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let status = run.status.code().context("it was killed")?;
    Ok((status, text(&run.stdout), text(&run.stderr)))
}

/// `olm verify` by an identity, exact and by patterns, of an image that the real services vouch for.
pub(super) fn by_identity(
    stage: &Stage,
    image: &str,
    subject: &str,
    issuer: &str,
    is_logged: bool,
) -> Result<()> {
    let root = stage.key.with_file_name("verify_root.json");
    let text = STANDARD.decode(stage.root_for(is_logged, |_| {})?)?;
    std::fs::write(&root, text)?;
    let proof = if is_logged {
        ", and time\n"
    } else {
        "  proof      time\n"
    };
    identities(stage, image, &root, subject, issuer, &["  signed at  20", proof])
}

/// `olm verify` by an identity that is right, and by others. `lines` are among those that it prints.
fn identities(
    stage: &Stage,
    image: &str,
    root: &Path,
    subject: &str,
    issuer: &str,
    lines: &[&str],
) -> Result<()> {
    let root = root.display().to_string();
    let run = |identity: [&str; 4]| {
        verify(
            stage,
            image,
            &[&["--trusted-root", root.as_str()], &identity[..]].concat(),
        )
    };
    let (exact, of) = ("--certificate-identity", "--certificate-oidc-issuer");
    let (pattern, of_pattern) = (
        "--certificate-identity-regexp",
        "--certificate-oidc-issuer-regexp",
    );
    for identity in [
        [exact, subject, of, issuer],
        [pattern, "[a-z]+@example\\.com", of_pattern, "https?://.*"],
        [exact, subject, of_pattern, "https?://.*"],
    ] {
        let (status, printed, said) = run(identity)?;
        ensure!(status == 0, "{identity:?}: {said}");
        let signer = format!("  signed by  {subject} (issuer {issuer})\n");
        let rule = format!("  rule       {}\n", identity[0]);
        for line in [&[rule.as_str(), &signer], lines].concat() {
            ensure!(printed.contains(line), "{line:?}: {printed}");
        }
    }
    for identity in [
        [exact, "other@example.com", of, issuer],
        [exact, subject, of, "https://other.example"],
        // A pattern fits the whole.
        [pattern, "release", of, issuer],
        [exact, subject, of_pattern, "http"],
    ] {
        let (status, printed, said) = run(identity)?;
        ensure!(
            status == 1 && printed.is_empty(),
            "{identity:?}: {status} {printed}"
        );
        let expected = format!(
            "no signature satisfies {}: it is by \"{subject}\" of issuer \"{issuer}\", not by",
            identity[0]
        );
        ensure!(said.contains(&expected), "{identity:?}: {said}");
    }
    Ok(())
}

/// The first Rekor, for which no program is here: certificate and entry are the test's own.
#[tokio::test(flavor = "multi_thread")]
async fn olm_verify_shows_the_identity_the_time_and_the_entry_of_the_log() -> Result<()> {
    olm_platform::crypto::install();
    let stage = Stage::start(Sigstore::alone().await?).await?;
    let services = Services::new()?;
    let image = stage.push("keyless").await?;
    let issuer = "https://accounts.example.com";
    let signer = services.issue(RELEASE, issuer, minutes_ago(5)?)?;
    let time = minutes_ago(1)?;
    let about = image.reference().name();
    let signed = services.sign(&signer, &about, image.digest(), time)?;
    let registry = stage.server.registry();
    signed.attach(registry, "keyless", image.digest()).await?;
    let root = stage.key.with_file_name("first_root.json");
    std::fs::write(&root, services.trusted_root()?)?;
    let time = format!(
        "  signed at  {}\n",
        jiff::Timestamp::from_second(time.as_second())?
    );
    let name = format!("  name       {about}\n");
    let lines = [
        time.as_str(),
        "  proof      entry 7 of transparency log ",
        ", and time\n",
        name.as_str(),
    ];
    identities(&stage, &image.to_string(), &root, RELEASE, issuer, &lines)?;

    let root = root.display().to_string();
    let text = image.to_string();
    let json = [
        "--trusted-root",
        root.as_str(),
        "--certificate-identity",
        RELEASE,
        "--certificate-oidc-issuer",
        issuer,
        "-o",
        "json",
    ];
    let (status, printed, said) = verify(&stage, &text, &json)?;
    ensure!(status == 0, "{said}");
    let answer: Value = serde_json::from_str(&printed)?;
    let proof = &answer["verified"][0]["proof"];
    ensure!(proof["log"]["index"] == 7 && proof["time"] == true, "{answer}");
    // An identity needs its issuer.
    let (status, _, said) = verify(&stage, &text, &json[..4])?;
    ensure!(
        status == 1 && said.contains("name both its identity and its issuer"),
        "{status} {said}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn olm_verify_says_who_signed_by_which_rule_and_fails_for_what_is_refused() -> Result<()> {
    olm_platform::crypto::install();
    let stage = Stage::start(Sigstore::alone().await?).await?;
    let way = Way {
        cosign: Cosign::Three,
        keyless: false,
        format: SignatureFormat::Bundle,
    };
    let image = stage.push("good").await?;
    let text = image.to_string();
    stage.sign(way, &text, false, false)?;
    let (public, stranger) = (
        stage.public.display().to_string(),
        stage.stranger.display().to_string(),
    );

    let (status, printed, said) = verify(&stage, &text, &["--key", &public])?;
    ensure!(status == 0, "{said}");
    ensure!(printed.starts_with(&format!("{text}\n")), "{printed}");
    for line in [
        "  rule       --key\n",
        "  signed by  key ",
        "  proof      none but the key or certificate",
        &format!("  digest     {}", image.digest()),
    ] {
        ensure!(printed.contains(line), "{line:?}: {printed}");
    }

    ensure!(!printed.contains("  note "), "{printed}");
    // By tag, a policy would ask for the name.
    let tagged = format!("{}:latest", image.reference().name());
    let (status, printed, said) = verify(&stage, &tagged, &["--key", &public])?;
    let note =
        format!("  note       the signature does not name {tagged}, so that a policy refuses it by default");
    ensure!(status == 0 && printed.contains(&note), "{printed}{said}");
    let (_, printed, _) = verify(&stage, &tagged, &["--key", &public, "-o", "json"])?;
    let answer: Value = serde_json::from_str(&printed)?;
    ensure!(answer["verified"][0]["namesImage"] == false, "{answer}");

    // By a policy, whose rule is named.
    let policy = stage.key.with_file_name("policy.json");
    let repository = image.reference().name();
    let requirement = json!({ "type": "sigstoreSigned", "keyPath": stage.public });
    let document = json!({
        "default": [{ "type": "insecureAcceptAnything" }],
        "transports": { "docker": { repository.as_str(): [requirement] } },
    });
    std::fs::write(&policy, document.to_string())?;
    let policy = policy.display().to_string();
    let by_policy = ["--signature-policy", policy.as_str(), "-o", "json"];
    let (status, printed, said) = verify(&stage, &text, &by_policy)?;
    ensure!(status == 0, "{said}");
    let answer: Value = serde_json::from_str(&printed)?;
    let rule = format!("the signature policy (scope {repository:?}, requirement 1)");
    let verified = &answer["verified"][0];
    ensure!(answer["image"] == text.as_str(), "{answer}");
    ensure!(verified["namesImage"] == true, "{answer}");
    ensure!(verified["rule"] == rule.as_str(), "{answer}");
    ensure!(
        verified["signer"]
            .as_str()
            .is_some_and(|signer| signer.starts_with("key ")),
        "{answer}"
    );
    ensure!(
        verified["digest"] == image.digest().to_string().as_str(),
        "{answer}"
    );
    ensure!(
        verified["proof"] == json!({ "log": null, "time": false }),
        "{answer}"
    );

    // Refused: another key, no signature, no rule that asks for one.
    let unsigned = stage.push("unsigned").await?.to_string();
    for (image, arguments, expected) in [
        (
            &text,
            &["--key", stranger.as_str()][..],
            "no signature satisfies --key: it was not made with a trusted key",
        ),
        (
            &unsigned,
            &["--key", public.as_str()],
            "--key asks for a signature, and there is none at tag sha256-",
        ),
        (&unsigned, &by_policy[..2], "no signature is asked for"),
    ] {
        let (status, printed, said) = verify(&stage, image, arguments)?;
        ensure!(
            status == 1 && printed.is_empty(),
            "{image} {arguments:?}: {status} {printed}"
        );
        ensure!(said.contains(expected), "{expected:?}: {said}");
    }
    Ok(())
}
