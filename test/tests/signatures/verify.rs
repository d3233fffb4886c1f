//! `olm verify` on images that the real cosign signed: its output and its exit status.

use std::process::Command;

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
        "  rule       the command line",
        "  signed by  key ",
        "  proof      none but the key or certificate",
        &format!("  digest     {}", image.digest()),
    ] {
        ensure!(printed.contains(line), "{line:?}: {printed}");
    }

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
            "it was not made with a key",
        ),
        (
            &unsigned,
            &["--key", public.as_str()],
            "there is none at tag sha256-",
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
