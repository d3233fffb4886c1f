//! Signatures that the public services vouch for: a log of certificates and the first Rekor, which the other test data
//! lack. Where one of the authorities is missing or another one, they do not count.

use super::*;

const PUBLIC: &str = include_str!("../../testdata/public/bundle.json");
const PUBLIC_ROOT: &str = include_str!("../../testdata/public/trusted_root.json");
const STAGING: &str = include_str!("../../testdata/public/staging_bundle.json");
const STAGING_ROOT: &str = include_str!("../../testdata/public/staging_trusted_root.json");
/// What both are about: the digest of a package, and the type of the statement.
const PACKAGE: &str = "sha256:54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f";
const STATEMENT: &str = "https://schemas.conda.org/attestations-publish-1.schema.json";
/// Signers of the two, and the issuers of their identities.
const WORKFLOW: [&str; 2] = [
    "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main",
    "https://token.actions.githubusercontent.com",
];
const PERSON: [&str; 2] = ["jku@goto.fi", "https://github.com/login/oauth"];

type Change<'a> = &'a dyn Fn(&mut Value);

fn unchanged(_: &mut Value) {}

/// A bundle, its trust root and its signer.
struct Public {
    bundle: &'static str,
    root: &'static str,
    signer: [&'static str; 2],
}

const OF_PUBLIC: Public = Public {
    bundle: PUBLIC,
    root: PUBLIC_ROOT,
    signer: WORKFLOW,
};
const OF_STAGING: Public = Public {
    bundle: STAGING,
    root: STAGING_ROOT,
    signer: PERSON,
};

impl Public {
    fn authority(&self, change: Change<'_>) -> Authority {
        let mut root: Value = serde_json::from_str(self.root).unwrap();
        change(&mut root);
        let [subject, issuer] = self.signer.map(|text| Pattern::Exact(text.to_owned()));
        Authority::Certificate {
            trust: Trust::parse(root.to_string().as_bytes()).unwrap(),
            identities: Identities(vec![Identity {
                subject,
                issuer,
                email: false,
            }]),
        }
    }

    /// Checks the statement, with its trust root and its bundle changed.
    fn check(&self, root: Change<'_>, document: Change<'_>) -> Result<Verified, SignatureError> {
        let mut text: Value = serde_json::from_str(self.bundle).unwrap();
        document(&mut text);
        attested(&self.authority(root), &bundle(&text.to_string()))
    }

    fn refused(&self, root: Change<'_>, document: Change<'_>, kind: &str, said: &str) {
        let fault = self.check(root, document).unwrap_err();
        assert_eq!(fault.kind(), kind, "{fault}");
        assert!(fault.to_string().contains(said), "{said:?}: {fault}");
    }
}

fn attested(authority: &Authority, signature: &Signature) -> Result<Verified, SignatureError> {
    let statement = Attestation::new(STATEMENT, None).unwrap();
    authority.check(signature, Some(&statement), &[PACKAGE.to_owned()], now())
}

/// The key of an entry of the trust root becomes a key that signed nothing here.
fn exchange(log: &mut Value) {
    let key = PublicKey::parse_pem(KEY).unwrap();
    log["publicKey"]["rawBytes"] = json!(STANDARD.encode(key[0].der()));
}

/// The entries of a kind that fit the condition.
fn keep(root: &mut Value, kind: &str, fits: impl Fn(&Value) -> bool) {
    root[kind].as_array_mut().unwrap().retain(fits);
}

fn entry_of(document: &mut Value) -> &mut Value {
    &mut document["verificationMaterial"]["tlogEntries"][0]
}

#[test]
fn what_the_public_services_vouch_for_counts() {
    let [subject, issuer] = WORKFLOW.map(str::to_owned);
    let verified = OF_PUBLIC.check(&unchanged, &unchanged).unwrap();
    assert_eq!(verified.signer, Signer::Identity { subject, issuer });
    assert_eq!(verified.claim.digest, PACKAGE);
    assert_eq!(verified.time.unwrap().as_second(), 1_756_728_839);
    let log = verified.proof.log.unwrap();
    assert_eq!(
        (log.log.as_str(), log.index),
        ("wNI9atQGlz+VWfO6LRygH4QUfY/8W4RFwiT5i5WRgB0=", 456_119_071)
    );

    let [subject, issuer] = PERSON.map(str::to_owned);
    let verified = OF_STAGING.check(&unchanged, &unchanged).unwrap();
    assert_eq!(verified.signer, Signer::Identity { subject, issuer });
    assert_eq!(verified.time.unwrap().to_string(), "2026-05-26T07:42:21Z");
    assert_eq!(verified.proof.log.unwrap().index, 4_197_416);

    // A statement is no signature of an image.
    let fault = check(&OF_PUBLIC.authority(&unchanged), &bundle(PUBLIC), PACKAGE).unwrap_err();
    assert_eq!(fault.kind(), "form", "{fault}");
}

#[test]
fn the_log_of_certificates_must_have_promised_the_certificate() {
    let of_2022 = |log: &Value| log["baseUrl"] == "https://ctfe.sigstore.dev/2022";
    let of_2026 = |log: &Value| log["baseUrl"] == "https://log2026-1.ctfe.sigstage.dev";
    let kind = "certificate";
    let said = "invalid signed certificate timestamp";
    let missing = |root: &mut Value| keep(root, "ctlogs", |log| !of_2022(log));
    OF_PUBLIC.refused(&missing, &unchanged, kind, said);
    let missing = |root: &mut Value| keep(root, "ctlogs", |log| !of_2026(log));
    OF_STAGING.refused(&missing, &unchanged, kind, said);
    let other = |root: &mut Value| {
        root["ctlogs"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(exchange);
    };
    OF_PUBLIC.refused(&other, &unchanged, kind, said);
    OF_STAGING.refused(&other, &unchanged, kind, said);
    // That log had ended when it promised the certificate.
    let ended = |root: &mut Value| {
        for log in root["ctlogs"].as_array_mut().unwrap() {
            log["publicKey"]["validFor"]["end"] = json!("2024-01-01T00:00:00Z");
        }
    };
    OF_PUBLIC.refused(&ended, &unchanged, kind, said);
    // The other one is not needed, and a trust root without such logs asks for no promise.
    let needed = |root: &mut Value| keep(root, "ctlogs", of_2022);
    OF_PUBLIC.check(&needed, &unchanged).unwrap();
    let none = |root: &mut Value| keep(root, "ctlogs", |_| false);
    OF_PUBLIC.check(&none, &unchanged).unwrap();
}

#[test]
fn the_transparency_log_must_have_the_signature() {
    let missing = |root: &mut Value| {
        keep(root, "tlogs", |log| {
            log["baseUrl"] != "https://log2025-alpha3.rekor.sigstage.dev"
        });
    };
    OF_STAGING.refused(&missing, &unchanged, "log", "No matching Rekor key");
    let other = |root: &mut Value| {
        root["tlogs"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(exchange);
    };
    OF_PUBLIC.refused(&other, &unchanged, "log", "invalid inclusion promise");
    OF_STAGING.refused(&other, &unchanged, "log", "No valid Rekor signature");
    let of_staging = |root: &mut Value| {
        root["tlogs"] = serde_json::from_str::<Value>(STAGING_ROOT).unwrap()["tlogs"].clone();
    };
    OF_PUBLIC.refused(&of_staging, &unchanged, "log", "No log key valid");
    let ended = |root: &mut Value| {
        root["tlogs"][0]["publicKey"]["validFor"]["end"] = json!("2024-01-01T00:00:00Z");
    };
    OF_PUBLIC.refused(&ended, &unchanged, "log", "No log key valid");

    // Without a proof, with a proof of another entry, or at another place.
    let remove = |field: &'static str| {
        move |document: &mut Value| {
            entry_of(document).as_object_mut().unwrap().remove(field);
        }
    };
    for of in [&OF_PUBLIC, &OF_STAGING] {
        of.refused(&unchanged, &remove("inclusionProof"), "log", "there is no entry");
        let none = |document: &mut Value| document["verificationMaterial"]["tlogEntries"] = json!([]);
        of.refused(&unchanged, &none, "log", "there is no entry");
        let steps = |document: &mut Value| {
            let hashes = &mut entry_of(document)["inclusionProof"]["hashes"];
            hashes.as_array_mut().unwrap().reverse();
        };
        of.refused(&unchanged, &steps, "log", "root hash mismatch");
    }
    let place = |document: &mut Value| entry_of(document)["logIndex"] = json!("456119072");
    OF_PUBLIC.refused(&unchanged, &place, "log", "SET verification failed");
    let body = |document: &mut Value| {
        let mut body: Value = entry_body(document);
        body["spec"]["payloadHash"]["value"] = json!("00".repeat(32));
        entry_of(document)["canonicalizedBody"] = json!(STANDARD.encode(body.to_string()));
    };
    OF_PUBLIC.refused(&unchanged, &body, "log", "SET verification failed");
}

#[test]
fn a_time_must_be_proven_by_a_log_or_a_timestamp_authority() {
    // The first Rekor promises the time, the second does not know it.
    let no_log = |root: &mut Value| keep(root, "tlogs", |_| false);
    OF_PUBLIC.refused(
        &no_log,
        &unchanged,
        "time",
        "at least one tlog entry or timestamp",
    );
    let no_promise = |document: &mut Value| {
        entry_of(document)
            .as_object_mut()
            .unwrap()
            .remove("inclusionPromise");
    };
    OF_PUBLIC.refused(&unchanged, &no_promise, "time", "no verified timestamp");
    let later = |document: &mut Value| entry_of(document)["integratedTime"] = json!("1756728840");
    OF_PUBLIC.refused(&unchanged, &later, "log", "invalid inclusion promise");

    let none = |root: &mut Value| keep(root, "timestampAuthorities", |_| false);
    OF_STAGING.refused(&none, &unchanged, "time", "no verified timestamp");
    let second = |root: &mut Value| {
        keep(root, "timestampAuthorities", |authority| {
            authority["validFor"]["start"] == "2026-06-12T00:00:00Z"
        });
    };
    OF_STAGING.refused(
        &second,
        &unchanged,
        "time",
        "does not match any trusted TSA certificate",
    );
    let of_public = |root: &mut Value| {
        let other: Value = serde_json::from_str(PUBLIC_ROOT).unwrap();
        root["timestampAuthorities"] = other["timestampAuthorities"].clone();
    };
    OF_STAGING.refused(
        &of_public,
        &unchanged,
        "time",
        "does not match any trusted TSA certificate",
    );
    let unstamped = |document: &mut Value| {
        document["verificationMaterial"]["timestampVerificationData"] = json!({});
    };
    OF_STAGING.refused(&unchanged, &unstamped, "time", "no verified timestamp");
    // A trust root without logs is content with the timestamp.
    let verified = OF_STAGING.check(&no_log, &unchanged).unwrap();
    assert_eq!((verified.proof.log, verified.proof.time), (None, true));
}

#[test]
fn the_certificate_must_be_of_a_trusted_authority() {
    let of_2022 = |authority: &Value| authority["validFor"]["start"] == "2022-04-13T20:06:15.000Z";
    let missing = |root: &mut Value| keep(root, "certificateAuthorities", |one| !of_2022(one));
    OF_PUBLIC.refused(
        &missing,
        &unchanged,
        "certificate",
        "no trusted certificate authority",
    );
    let of_staging = |root: &mut Value| {
        let other: Value = serde_json::from_str(STAGING_ROOT).unwrap();
        root["certificateAuthorities"] = other["certificateAuthorities"].clone();
    };
    OF_PUBLIC.refused(&of_staging, &unchanged, "certificate", "certificate chain");
    let needed = |root: &mut Value| keep(root, "certificateAuthorities", of_2022);
    OF_PUBLIC.check(&needed, &unchanged).unwrap();
}

/// The entry of the log, decoded.
fn entry_body(document: &Value) -> Value {
    let body = &document["verificationMaterial"]["tlogEntries"][0]["canonicalizedBody"];
    serde_json::from_slice(&STANDARD.decode(body.as_str().unwrap()).unwrap()).unwrap()
}

/// The public bundle as cosign 2 stores an attestation: the envelope as the payload, with its proofs as annotations.
fn older_form(change: Change<'_>) -> Signature {
    let document: Value = serde_json::from_str(PUBLIC).unwrap();
    let material = &document["verificationMaterial"];
    let entry = &material["tlogEntries"][0];
    let number = |text: &Value| text.as_str().unwrap().parse::<i64>().unwrap();
    let log = STANDARD
        .decode(entry["logId"]["keyId"].as_str().unwrap())
        .unwrap();
    let mut annotation = json!({
        "SignedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
        "Payload": {
            "body": entry["canonicalizedBody"],
            "integratedTime": number(&entry["integratedTime"]),
            "logIndex": number(&entry["logIndex"]),
            "logID": hex::encode(log),
        },
    });
    change(&mut annotation);
    let annotation = annotation.to_string();
    let certificate = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        material["certificate"]["rawBytes"].as_str().unwrap()
    );
    let payload = document["dsseEnvelope"].to_string().into_bytes();
    Signature::Attached(Attached::envelope(payload, |name| match name {
        "dev.sigstore.cosign/certificate" => Some(certificate.as_str()),
        "dev.sigstore.cosign/bundle" => Some(annotation.as_str()),
        _ => None,
    }))
}

#[test]
fn an_attestation_of_the_older_form_counts_by_its_entry_of_the_log() {
    let authority = OF_PUBLIC.authority(&unchanged);
    let verified = attested(&authority, &older_form(&unchanged)).unwrap();
    assert_eq!(verified.time.unwrap().as_second(), 1_756_728_839);
    assert_eq!(verified.proof.log.unwrap().index, 456_119_071);
    let refused = |change: Change<'_>, kind: &str, said: &str| {
        let fault = attested(&authority, &older_form(change)).unwrap_err();
        assert_eq!(fault.kind(), kind, "{fault}");
        assert!(fault.to_string().contains(said), "{said:?}: {fault}");
    };
    let time = |entry: &mut Value| entry["Payload"]["integratedTime"] = json!(1_756_728_840);
    refused(&time, "log", "invalid inclusion promise");
    let place = |entry: &mut Value| entry["Payload"]["logIndex"] = json!(7);
    refused(&place, "log", "invalid inclusion promise");
    let body = |kind: &'static str, version: &'static str| {
        move |entry: &mut Value| {
            let body = json!({ "kind": kind, "apiVersion": version }).to_string();
            entry["Payload"]["body"] = json!(STANDARD.encode(body));
        }
    };
    refused(
        &body("hashedrekord", "0.0.1"),
        "form",
        "unknown kind of entry hashedrekord",
    );
    refused(
        &body("intoto", "0.0.1"),
        "form",
        "unknown kind of entry intoto 0.0.1",
    );
    refused(&body("intoto", "0.0.2"), "log", "SET verification failed");
}
