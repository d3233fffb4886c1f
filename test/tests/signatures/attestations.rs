//! Attestations of the real cosign, in all its forms: accepted when their signer, type and condition are those that
//! the policy asks for, refused otherwise.

use std::path::PathBuf;

use super::*;

const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
const BUILDER: &str = "https://ci.example/builder";

/// A file with a predicate.
fn predicate(stage: &Stage, content: &Value) -> Result<PathBuf> {
    let file = stage.key.with_file_name("predicate.json");
    std::fs::write(&file, content.to_string())?;
    Ok(file)
}

/// The provenance of a builder.
fn provenance(builder: &str) -> Value {
    json!({
        "buildDefinition": {
            "buildType": "https://ci.example/make", "externalParameters": { "source": "https://git.example/greeter" },
            "resolvedDependencies": [],
        },
        "runDetails": { "builder": { "id": builder } },
    })
}

/// Attests in a way that a statement of a type of cosign is true of an image.
fn attest(
    stage: &Stage,
    way: Way,
    services: bool,
    kind: &str,
    content: &Value,
    image: &Pinned,
) -> Result<()> {
    let kind = format!("--type={kind}");
    let file = format!("--predicate={}", predicate(stage, content)?.display());
    let logged = way.is_logged(services);
    stage.cosign(
        way,
        &["attest", &kind, &file],
        &image.to_string(),
        logged,
        services,
    )
}

/// The requirement for an attestation instead of a signature.
fn attested(signed: &Value, predicate_type: &str, condition: &str) -> Value {
    let mut requirement = signed.clone();
    requirement["type"] = json!("sigstoreAttested");
    requirement["predicateType"] = json!(predicate_type);
    requirement["condition"] = json!(condition);
    requirement
}

/// Provenance, with every fault that an attestation can have.
async fn provenance_counts(stage: &Stage, way: Way, services: bool) -> Result<()> {
    let name = format!("attested/{:?}/{}/{:?}", way.cosign, way.keyless, way.format).to_lowercase();
    let image = stage.push_for(way.format, &name).await?;
    let reference = Reference::parse(&image.to_string())?;
    let by_builder = format!("predicate.runDetails.builder.id == '{BUILDER}'");
    let signed = stage.requirement(way, services)?;
    let good = attested(&signed, PROVENANCE, &by_builder);
    if way.stamps_envelopes(services) {
        attest(
            stage,
            way,
            services,
            "slsaprovenance1",
            &provenance(BUILDER),
            &image,
        )?;
        let said = "nothing proves when it was made: invalid RFC 3161 timestamp";
        return refused(
            stage.judge(good, &reference).await,
            said,
            "a timestamp of the envelope",
        );
    }
    let attest = |builder: &str, image: &Pinned| {
        attest(
            stage,
            way,
            services,
            "slsaprovenance1",
            &provenance(builder),
            image,
        )
    };
    let missing = "asks for an attestation, and there is none";

    refused(
        stage.judge(good.clone(), &reference).await,
        missing,
        "an image without attestation",
    )?;
    stage.sign(way, &image.to_string(), way.is_logged(services), services)?;
    // A bundle says in its content what it is.
    let said = if way.is_bundle() {
        "its type is \"https://sigstore.dev/cosign/sign/v1\", not \"https://slsa.dev/provenance/v1\""
    } else {
        missing
    };
    refused(
        stage.judge(good.clone(), &reference).await,
        said,
        "a signature instead of an attestation",
    )?;
    attest("https://elsewhere.example", &image)?;
    refused(
        stage.judge(good.clone(), &reference).await,
        "it does not satisfy the condition",
        "an image of another builder",
    )?;
    attest(BUILDER, &image)?;
    let accepted = stage.judge(good.clone(), &reference).await;
    accepted.map_err(anyhow::Error::msg)?;

    let (stranger, said) = if way.keyless {
        let root = stage.root_for(way.is_logged(services), |_| {})?;
        let said = format!("it is by \"{RELEASE}\"");
        (by_identity("other@.*", stage.sigstore.issuer(), &root), said)
    } else {
        let said = "it was not made with a trusted key".to_owned();
        (by_key(&stage.stranger), said)
    };
    refused(
        stage
            .judge(attested(&stranger, PROVENANCE, &by_builder), &reference)
            .await,
        &said,
        "an attestation of somebody else",
    )?;
    let of_type = attested(&signed, "https://spdx.dev/Document", &by_builder);
    let found = stage.judge(of_type, &reference).await;
    let said = if way.is_bundle() { "its type is" } else { missing };
    refused(found, said, "an attestation of another type")?;
    // The attestation is no signature, also where the image has no other.
    let unsigned = stage.push_for(way.format, &format!("{name}/unsigned")).await?;
    attest(BUILDER, &unsigned)?;
    let unsigned = Reference::parse(&unsigned.to_string())?;
    let accepted = stage.judge(good, &unsigned).await;
    accepted.map_err(anyhow::Error::msg)?;
    // That cosign 2 names it a signature does not make it one.
    let said = if services && way.is_bundle() && way.cosign == Cosign::Two {
        "which is not a signature of an image"
    } else {
        "asks for a signature, and there is none"
    };
    let found = stage.judge(signed, &unsigned).await;
    refused(found, said, "an attestation instead of a signature")
}

/// The types of predicates in the documentation, as cosign names them.
async fn types_count(stage: &Stage, way: Way, services: bool) -> Result<()> {
    if way.stamps_envelopes(services) {
        return Ok(());
    }
    let bill =
        json!({ "bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{ "name": "greeter" }] });
    let document = json!({ "spdxVersion": "SPDX-2.3", "name": "greeter", "packages": [] });
    let scan = json!({
        "invocation": { "uri": "https://ci.example/1" },
        "scanner": { "uri": "https://scanner.example", "version": "1", "result": { "findings": [] } },
        "metadata": { "scanStartedOn": "2026-08-01T00:00:00Z", "scanFinishedOn": "2026-08-01T00:01:00Z" },
    });
    for (kind, predicate_type, content, condition) in [
        (
            "cyclonedx",
            "https://cyclonedx.org/bom",
            bill,
            "predicate.components.exists(c, c.name == 'greeter')",
        ),
        (
            "spdxjson",
            "https://spdx.dev/Document",
            document,
            "predicate.name == 'greeter'",
        ),
        (
            "vuln",
            "https://cosign.sigstore.dev/attestation/vuln/v1",
            scan,
            "timestamp(predicate.metadata.scanFinishedOn) > timestamp('2026-07-01T00:00:00Z') && \
             !predicate.scanner.result.findings.exists(f, f.severity == 'CRITICAL')",
        ),
    ] {
        let name = format!("{kind}/{:?}/{}/{:?}", way.cosign, way.keyless, way.format).to_lowercase();
        let image = stage.push_for(way.format, &name).await?;
        attest(stage, way, services, kind, &content, &image)?;
        let reference = Reference::parse(&image.to_string())?;
        let signed = stage.requirement(way, services)?;
        let verdict = stage
            .judge(attested(&signed, predicate_type, condition), &reference)
            .await;
        verdict.map_err(anyhow::Error::msg).context(kind)?;
        let not = format!("!({condition})");
        refused(
            stage
                .judge(attested(&signed, predicate_type, &not), &reference)
                .await,
            "it does not satisfy the condition",
            kind,
        )?;
    }
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
    attest(stage, way, false, "slsaprovenance1", &provenance(BUILDER), &image)?;
    let policy = stage.key.with_file_name("both.json");
    let condition = "predicate.buildDefinition.externalParameters.source.startsWith('https://git.example/')";
    let signed = by_key(&stage.public);
    let requirements = [signed.clone(), attested(&signed, PROVENANCE, condition)];
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
    let services = is_whole();
    let stage = Stage::of_ways(services).await?;
    let mut faults = BTreeMap::new();
    for way in ways(services) {
        if let Err(error) = provenance_counts(&stage, way, services).await {
            faults.insert(format!("provenance, {way:?}"), format!("{error:#}"));
        }
        if let Err(error) = types_count(&stage, way, services).await {
            faults.insert(format!("types, {way:?}"), format!("{error:#}"));
        }
    }
    ensure!(faults.is_empty(), "{faults:#?}");
    signature_and_attestation(&stage).await
}
