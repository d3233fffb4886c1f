//! Attestations of the real cosign, in both its forms: accepted when their signer, type and condition are those that
//! the policy asks for, refused otherwise.

use std::path::PathBuf;

use super::*;

const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
const BUILDER: &str = "https://ci.example/builder";

/// A file with the provenance of a builder.
fn provenance(stage: &Stage, builder: &str) -> Result<PathBuf> {
    let predicate = json!({
        "buildDefinition": {
            "buildType": "https://ci.example/make", "externalParameters": { "source": "https://git.example/greeter" },
            "resolvedDependencies": [],
        },
        "runDetails": { "builder": { "id": builder } },
    });
    let file = stage.key.with_file_name("provenance.json");
    std::fs::write(&file, predicate.to_string())?;
    Ok(file)
}

/// Attests with our key that the builder made an image.
fn attest(stage: &Stage, form: SignatureFormat, builder: &str, image: &str) -> Result<()> {
    let arguments = [
        "attest".to_owned(),
        "--yes".to_owned(),
        "--allow-http-registry".to_owned(),
        format!("--key={}", stage.key.display()),
        "--type=slsaprovenance1".to_owned(),
        format!("--predicate={}", provenance(stage, builder)?.display()),
        format!("--new-bundle-format={}", form == SignatureFormat::Bundle),
        "--use-signing-config=false".to_owned(),
        "--tlog-upload=false".to_owned(),
        image.to_owned(),
    ];
    stage.sigstore.run(Cosign::Three, &arguments).map(drop)
}

/// A requirement for provenance by a key, with a condition.
fn attested(key: &PathBuf, condition: &str) -> Value {
    json!({
        "type": "sigstoreAttested", "keyPath": key, "predicateType": PROVENANCE, "condition": condition,
    })
}

async fn both_forms(stage: &Stage, form: SignatureFormat) -> Result<()> {
    let name = format!("attested/{form:?}").to_lowercase();
    let image = stage.push(&name).await?;
    let reference = Reference::parse(&image.to_string())?;
    let by_builder = format!("predicate.runDetails.builder.id == '{BUILDER}'");
    let good = attested(&stage.public, &by_builder);

    refused(
        stage.judge(good.clone(), &reference).await,
        "asks for an attestation, and there is none",
        "an image without attestation",
    )?;
    stage.sign(
        Way {
            cosign: Cosign::Three,
            keyless: false,
            format: form,
        },
        &image.to_string(),
        false,
        false,
    )?;
    ensure!(
        stage.judge(good.clone(), &reference).await.is_err(),
        "a signature counts as an attestation"
    );
    attest(stage, form, "https://elsewhere.example", &image.to_string())?;
    refused(
        stage.judge(good.clone(), &reference).await,
        "it does not satisfy the condition",
        "an image of another builder",
    )?;
    attest(stage, form, BUILDER, &image.to_string())?;
    let accepted = stage.judge(good.clone(), &reference).await;
    accepted.map_err(anyhow::Error::msg)?;

    refused(
        stage
            .judge(attested(&stage.stranger, &by_builder), &reference)
            .await,
        "it was not made with a key of the policy",
        "an attestation of another key",
    )?;
    let mut of_type = good.clone();
    of_type["predicateType"] = json!("https://spdx.dev/Document");
    refused(
        stage.judge(of_type, &reference).await,
        "asks for an attestation, and there is none",
        "an attestation of another type",
    )?;
    // The attestation is no signature, also where the image has no other.
    let unsigned = stage.push(&format!("{name}/unsigned")).await?;
    attest(stage, form, BUILDER, &unsigned.to_string())?;
    let unsigned = Reference::parse(&unsigned.to_string())?;
    let accepted = stage.judge(good, &unsigned).await;
    accepted.map_err(anyhow::Error::msg)?;
    ensure!(
        stage.judge(by_key(&stage.public), &unsigned).await.is_err(),
        "an attestation counts as a signature"
    );
    Ok(())
}

/// A policy that asks for both a signature and an attestation, which `olm verify` reports.
async fn signature_and_attestation(stage: &Stage) -> Result<()> {
    let image = stage.push("both").await?;
    let way = Way {
        cosign: Cosign::Three,
        keyless: false,
        format: SignatureFormat::Bundle,
    };
    stage.sign(way, &image.to_string(), false, false)?;
    attest(stage, SignatureFormat::Bundle, BUILDER, &image.to_string())?;
    let policy = stage.key.with_file_name("both.json");
    let condition = "predicate.buildDefinition.externalParameters.source.startsWith('https://git.example/')";
    let requirements = [by_key(&stage.public), attested(&stage.public, condition)];
    std::fs::write(&policy, json!({ "default": requirements }).to_string())?;
    let policy = policy.display().to_string();
    let text = image.to_string();
    let (status, printed, said) = verify::verify(stage, &text, &["--signature-policy", &policy])?;
    ensure!(status == 0, "{said}");
    for line in [
        "  rule       the signature policy (scope default, requirement 1)",
        "  rule       the signature policy (scope default, requirement 2)",
        "  statement  https://slsa.dev/provenance/v1",
    ] {
        ensure!(printed.contains(line), "{line:?}: {printed}");
    }
    let public = stage.public.display().to_string();
    let by_options = [
        "--key",
        public.as_str(),
        "--predicate-type",
        PROVENANCE,
        "--condition",
    ];
    let (status, printed, said) = verify::verify(stage, &text, &[&by_options[..], &[condition]].concat())?;
    ensure!(status == 0 && printed.contains("statement"), "{printed}{said}");
    let (status, _, said) = verify::verify(
        stage,
        &text,
        &[&by_options[..], &["predicate.runDetails == 1"]].concat(),
    )?;
    ensure!(
        status != 0 && said.contains("it does not satisfy the condition \"predicate.runDetails == 1\""),
        "{said}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attestation_counts_by_its_signer_its_type_and_its_condition() -> Result<()> {
    olm_platform::crypto::install();
    let stage = Stage::start(Sigstore::alone().await?).await?;
    for form in [SignatureFormat::Bundle, SignatureFormat::Attached] {
        both_forms(&stage, form)
            .await
            .with_context(|| format!("{form:?}"))?;
    }
    signature_and_attestation(&stage).await
}
