//! Signatures that cosign 3.1.3 made with a key are verified; the same with a byte or a field changed are not.

mod keys;
mod own_authority;
mod public;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const KEY: &[u8] = include_bytes!("../testdata/key/cosign.pub");
const BUNDLE_TEXT: &str = include_str!("../testdata/key/bundle.json");
const MANIFEST: &str = include_str!("../testdata/key/attached.json");
const PAYLOAD: &[u8] = include_bytes!("../testdata/key/payload.json");
/// A bundle with an entry of Rekor 2, and the trust root with its log.
const LOGGED: &str = include_str!("../testdata/log/bundle.json");
const LOG_ROOT: &str = include_str!("../testdata/log/trusted_root.json");
/// Image of that bundle.
const LOGGED_IMAGE: &str = "sha256:f91ab0ce8f27817ca2c9eba20b9aa74fb2dfca090e3ac9ab54b9cc2505e72d2f";
/// A bundle and a signature of the older form by an identity, made with Fulcio 1.8.8, Rekor 2.3.0 and the timestamp
/// authority
/// 1.2.9, and the trust root with these.
const KEYLESS: &str = include_str!("../testdata/keyless/bundle.json");
const KEYLESS_ROOT: &str = include_str!("../testdata/keyless/trusted_root.json");
const KEYLESS_MANIFEST: &str = include_str!("../testdata/keyless/attached.json");
const KEYLESS_PAYLOAD: &[u8] = include_bytes!("../testdata/keyless/payload.json");
/// Images of the two, and their signer.
const KEYLESS_IMAGE: &str = "sha256:89c37c74706d8dda001451e1a349790a33074ef2d5c12537c2dd243105bf73e6";
const KEYLESS_OTHER: &str = "sha256:b137469f935196d5a7b95376e2f5c23ba336a8111a02c81aa04012b063aff69e";
const SUBJECT: &str = "release@example.com";
const ISSUER: &str = "http://127.0.0.1:16021";
/// Image of the bundle.
const IMAGE: &str = "sha256:a063f3ce5ff664cafb35ec26333f1b35cf1cdc52d4e4f931c3687c8f8c87f5d9";
/// Image of the payload.
const OTHER: &str = "sha256:8d212257f05a301fc138d68acfd0203abca5aad626e5a32b6d18356c26de7143";

fn now() -> Timestamp {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

fn key() -> Authority {
    Authority::Keys {
        keys: PublicKey::parse_pem(KEY).unwrap(),
        log: None,
    }
}

fn check(authority: &Authority, signature: &Signature, digest: &str) -> Result<Verified, SignatureError> {
    authority.check(signature, None, &[digest.to_owned()], now())
}

fn bundle(text: &str) -> Signature {
    Signature::Bundle(Bundle::new(text.as_bytes().to_vec()))
}

/// The bundle with a change of its document.
fn changed(change: impl FnOnce(&mut Value)) -> Signature {
    let mut document: Value = serde_json::from_str(BUNDLE_TEXT).unwrap();
    change(&mut document);
    bundle(&document.to_string())
}

fn attached(payload: &[u8]) -> Signature {
    of_manifest(MANIFEST, payload)
}

fn of_manifest(manifest: &str, payload: &[u8]) -> Signature {
    let manifest: Value = serde_json::from_str(manifest).unwrap();
    let annotations = &manifest["layers"][0]["annotations"];
    let found = Attached::new(payload.to_vec(), |name| annotations[name].as_str());
    Signature::Attached(found.unwrap())
}

#[test]
fn a_bundle_by_a_key_names_its_digest_and_no_image() {
    let verified = check(&key(), &bundle(BUNDLE_TEXT), IMAGE).unwrap();
    assert_eq!(verified.claim.digest, IMAGE);
    assert_eq!(verified.claim.name, None);
    assert_eq!(verified.proof, Proof::default());
    let Signer::Key { fingerprint } = verified.signer else {
        panic!("{:?}", verified.signer);
    };
    assert_eq!(fingerprint, PublicKey::parse_pem(KEY).unwrap()[0].fingerprint());
}

#[test]
fn a_signature_of_the_older_form_names_its_image() {
    let verified = check(&key(), &attached(PAYLOAD), OTHER).unwrap();
    assert_eq!(verified.claim.digest, OTHER);
    assert_eq!(verified.claim.name.as_deref(), Some("127.0.0.1:15999/app"));
}

#[test]
fn a_signature_for_one_image_is_none_for_another() {
    let fault = check(&key(), &bundle(BUNDLE_TEXT), OTHER).unwrap_err();
    assert_eq!(fault, SignatureError::Digest(IMAGE.to_owned()));
    let fault = check(&key(), &attached(PAYLOAD), IMAGE).unwrap_err();
    assert_eq!(fault, SignatureError::Digest(OTHER.to_owned()));
}

#[test]
fn what_was_changed_after_signing_does_not_count() {
    let payload = changed(|document| {
        let text = document["dsseEnvelope"]["payload"].as_str().unwrap();
        let text = String::from_utf8(STANDARD.decode(text).unwrap()).unwrap();
        let text = text.replace(
            IMAGE.trim_start_matches("sha256:"),
            OTHER.trim_start_matches("sha256:"),
        );
        document["dsseEnvelope"]["payload"] = json!(STANDARD.encode(text));
    });
    let kind =
        changed(|document| document["dsseEnvelope"]["payloadType"] = json!("application/vnd.in-toto+jso"));
    for signature in [payload, kind] {
        for digest in [IMAGE, OTHER] {
            assert_eq!(check(&key(), &signature, digest).unwrap_err().kind(), "key");
        }
    }
    let other = String::from_utf8(PAYLOAD.to_vec())
        .unwrap()
        .replace("/app", "/ape");
    assert_eq!(
        check(&key(), &attached(other.as_bytes()), OTHER)
            .unwrap_err()
            .kind(),
        "key"
    );
}

#[test]
fn fields_and_forms_that_are_not_known_are_refused() {
    let form = |signature: &Signature, said: &str| {
        let fault = check(&key(), signature, IMAGE).unwrap_err();
        assert!(matches!(fault, SignatureError::Form(_)), "{fault}");
        assert!(fault.to_string().contains(said), "{fault}");
    };
    form(&bundle("{}"), "missing field");
    form(&bundle("null"), "invalid type");
    form(
        &changed(|document| document["criticalExtension"] = json!(1)),
        "unknown field",
    );
    form(
        &changed(|document| document["verificationMaterial"]["publicKey"]["use"] = json!(1)),
        "unknown field",
    );
    form(
        &changed(|document| document["dsseEnvelope"]["signatures"][0]["cert"] = json!(1)),
        "unknown field",
    );
    for kind in [
        "application/vnd.dev.sigstore.bundle.v0.4+json",
        "application/vnd.dev.sigstore.bundle+json;version=0.1",
    ] {
        form(
            &changed(|document| document["mediaType"] = json!(kind)),
            "not a known kind of bundle",
        );
    }
    form(
        &changed(|document| {
            let signatures = document["dsseEnvelope"]["signatures"].as_array_mut().unwrap();
            signatures.push(signatures[0].clone());
        }),
        "exactly one signature",
    );
    form(
        &changed(|document| {
            document.as_object_mut().unwrap().remove("dsseEnvelope");
            document["messageSignature"] = json!({ "signature": "AA==" });
        }),
        "it signs bytes",
    );
    let long = " ".repeat(ATTESTATION_BYTES + 1);
    form(&bundle(&long), "larger than");
    let proofs = json!({ "logId": { "keyId": "" }, "kindVersion": { "kind": "", "version": "" }, "canonicalizedBody": "" });
    form(
        &changed(|document| document["verificationMaterial"]["tlogEntries"] = json!(vec![proofs; 9])),
        "more than 8",
    );
}

#[test]
fn only_a_statement_that_an_image_is_signed_counts() {
    let claim = |change: &dyn Fn(&mut Value)| {
        let mut document = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "digest": { "sha256": IMAGE.trim_start_matches("sha256:") }, "annotations": { "a": "b" } }],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
            "predicate": {},
        });
        change(&mut document);
        let text = document.to_string();
        statement::Statement::read("application/vnd.in-toto+json", text.as_bytes())?.claim(None)
    };
    assert_eq!(claim(&|_| {}).unwrap().digest, IMAGE);
    let refused = |change: &dyn Fn(&mut Value), said: &str| {
        let fault = claim(change).unwrap_err().to_string();
        assert!(fault.contains(said), "{fault}");
    };
    refused(
        &|document| document["predicateType"] = json!("https://slsa.dev/provenance/v1"),
        "not a signature of an image",
    );
    refused(
        &|document| document["predicate"] = json!({ "until": 1 }),
        "a condition",
    );
    refused(&|document| document["subject"] = json!([]), "about 0 images");
    refused(
        &|document| {
            let subjects = document["subject"].as_array_mut().unwrap();
            subjects.push(subjects[0].clone());
        },
        "about 2 images",
    );
    refused(
        &|document| document["subject"][0]["digest"] = json!({ "sha512": "00" }),
        "no SHA-256",
    );
    refused(
        &|document| document["subject"][0]["digest"]["sha256"] = json!("AB"),
        "no SHA-256",
    );
    refused(
        &|document| document["subject"][0]["uri"] = json!("a"),
        "unknown field",
    );
    refused(
        &|document| document["_type"] = json!("https://in-toto.io/Statement/v2"),
        "unknown kind",
    );
    let fault = statement::Statement::read("text/plain", b"{}").err().unwrap();
    assert!(
        fault.to_string().contains("\"text/plain\" is not a statement"),
        "{fault}"
    );
}

#[test]
fn a_key_signature_is_no_signature_by_an_identity() {
    let root = r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#;
    let authority = Authority::Certificate {
        trust: Trust::parse(root.as_bytes()).unwrap(),
        identities: Identities(Vec::new()),
    };
    for signature in [bundle(BUNDLE_TEXT), attached(PAYLOAD)] {
        assert_eq!(
            check(&authority, &signature, IMAGE),
            Err(SignatureError::Material("certificate"))
        );
    }
}

#[test]
fn a_key_signature_without_an_entry_fails_where_a_log_is_named() {
    let keys = PublicKey::parse_pem(KEY).unwrap();
    let authority = Authority::Keys {
        log: Some(Trust::logs(&keys).unwrap()),
        keys,
    };
    for (signature, digest) in [(bundle(BUNDLE_TEXT), IMAGE), (attached(PAYLOAD), OTHER)] {
        assert_eq!(check(&authority, &signature, digest).unwrap_err().kind(), "log");
    }
}

#[test]
fn an_entry_of_the_log_is_proven_to_be_in_it() {
    let trust = |change: &dyn Fn(&mut Value)| {
        let mut root: Value = serde_json::from_str(LOG_ROOT).unwrap();
        change(&mut root);
        Authority::Keys {
            keys: PublicKey::parse_pem(KEY).unwrap(),
            log: Some(Trust::parse(root.to_string().as_bytes()).unwrap()),
        }
    };
    let logged = |change: &dyn Fn(&mut Value)| {
        let mut document: Value = serde_json::from_str(LOGGED).unwrap();
        change(&mut document["verificationMaterial"]["tlogEntries"][0]);
        bundle(&document.to_string())
    };
    let nothing = |_: &mut Value| {};
    let verified = check(&trust(&nothing), &logged(&nothing), LOGGED_IMAGE).unwrap();
    let document: Value = serde_json::from_str(LOGGED).unwrap();
    let entry = &document["verificationMaterial"]["tlogEntries"][0];
    let index = entry["inclusionProof"]["logIndex"].as_str().unwrap_or("0");
    let expected = LogEntry {
        log: entry["logId"]["keyId"].as_str().unwrap().to_owned(),
        index: index.parse().unwrap(),
    };
    assert_eq!(verified.proof.log, Some(expected));
    // The second Rekor gives no times.
    assert_eq!(verified.time, None);
    let refused = |trust: &Authority, change: &dyn Fn(&mut Value), kind: &str| {
        let fault = check(trust, &logged(change), LOGGED_IMAGE).unwrap_err();
        assert_eq!(fault.kind(), kind, "{fault}");
    };
    // Another log of the same name.
    let other = trust(&|root| {
        let key = STANDARD.encode(PublicKey::parse_pem(KEY).unwrap()[0].der());
        root["tlogs"][0]["publicKey"]["rawBytes"] = json!(key);
    });
    refused(&other, &nothing, "log");
    let ours = trust(&nothing);
    refused(
        &ours,
        &|entry| {
            entry.as_object_mut().unwrap().remove("inclusionProof");
        },
        "log",
    );
    refused(
        &ours,
        &|entry| {
            let note = &mut entry["inclusionProof"]["checkpoint"]["envelope"];
            *note = json!(note.as_str().unwrap().replace("127.0.0.1\n1\n", "127.0.0.1\n2\n"));
        },
        "log",
    );
    refused(&ours, &|entry| entry["logIndex"] = json!("7"), "form");
    refused(
        &ours,
        &|entry| {
            let body = STANDARD
                .decode(entry["canonicalizedBody"].as_str().unwrap())
                .unwrap();
            let body = [body.as_slice(), b" "].concat();
            entry["canonicalizedBody"] = json!(STANDARD.encode(body));
        },
        "log",
    );
    refused(
        &ours,
        &|entry| entry["kindVersion"]["version"] = json!("0.0.3"),
        "form",
    );
    // An entry that is there, but of nothing that was signed here.
    let mut document: Value = serde_json::from_str(BUNDLE_TEXT).unwrap();
    let entries = serde_json::from_str::<Value>(LOGGED).unwrap();
    document["verificationMaterial"]["tlogEntries"] = entries["verificationMaterial"]["tlogEntries"].clone();
    let fault = check(&ours, &bundle(&document.to_string()), IMAGE).unwrap_err();
    assert_eq!(fault.kind(), "digest", "{fault}");
}

/// Authority with this identity, by the trust root after a change.
fn identity(subject: &str, issuer: &str, change: &dyn Fn(&mut Value)) -> Authority {
    let mut root: Value = serde_json::from_str(KEYLESS_ROOT).unwrap();
    change(&mut root);
    Authority::Certificate {
        trust: Trust::parse(root.to_string().as_bytes()).unwrap(),
        identities: Identities(vec![Identity {
            subject: Pattern::Exact(subject.to_owned()),
            issuer: Pattern::Exact(issuer.to_owned()),
            email: true,
        }]),
    }
}

/// The older form has no entry of this log.
fn without_log(root: &mut Value) {
    root.as_object_mut().unwrap().remove("tlogs");
}

#[test]
fn a_certificate_proves_an_identity_at_the_time_of_a_timestamp() {
    let signer = Signer::Identity {
        subject: SUBJECT.to_owned(),
        issuer: ISSUER.to_owned(),
    };
    let verified = check(
        &identity(SUBJECT, ISSUER, &|_| {}),
        &bundle(KEYLESS),
        KEYLESS_IMAGE,
    )
    .unwrap();
    assert_eq!(verified.signer, signer);
    assert!(verified.proof.log.is_some() && verified.proof.time);
    assert_eq!(verified.time.unwrap().to_string().get(..10), Some("2026-11-25"));
    let older = of_manifest(KEYLESS_MANIFEST, KEYLESS_PAYLOAD);
    let verified = check(&identity(SUBJECT, ISSUER, &without_log), &older, KEYLESS_OTHER).unwrap();
    assert_eq!(verified.signer, signer);
    assert_eq!(
        verified.proof,
        Proof {
            log: None,
            time: true
        }
    );
}

#[test]
fn a_certificate_counts_for_its_identity_issuer_time_and_authority() {
    let refused = |subject: &str, issuer: &str, change: &dyn Fn(&mut Value), kind: &str| {
        let fault = check(
            &identity(subject, issuer, change),
            &bundle(KEYLESS),
            KEYLESS_IMAGE,
        )
        .unwrap_err();
        assert_eq!(fault.kind(), kind, "{fault}");
        let older = of_manifest(KEYLESS_MANIFEST, KEYLESS_PAYLOAD);
        let change = |root: &mut Value| {
            change(root);
            without_log(root);
        };
        let fault = check(&identity(subject, issuer, &change), &older, KEYLESS_OTHER).unwrap_err();
        assert_eq!(fault.kind(), kind, "{fault}");
    };
    refused("other@example.com", ISSUER, &|_| {}, "identity");
    refused(SUBJECT, "http://127.0.0.1:16022", &|_| {}, "identity");
    let past = json!({ "start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z" });
    refused(
        SUBJECT,
        ISSUER,
        &|root| root["certificateAuthorities"][0]["validFor"] = past.clone(),
        "certificate",
    );
    refused(
        SUBJECT,
        ISSUER,
        &|root| root["timestampAuthorities"][0]["validFor"] = past.clone(),
        "time",
    );
    refused(
        SUBJECT,
        ISSUER,
        &|root| {
            root.as_object_mut().unwrap().remove("timestampAuthorities");
        },
        "time",
    );
    refused(
        SUBJECT,
        ISSUER,
        &|root| root["certificateAuthorities"] = json!([]),
        "certificate",
    );
    // A trust root with a log of certificates requires its promise, which this certificate does not have.
    refused(
        SUBJECT,
        ISSUER,
        &|root| {
            let mut log = serde_json::from_str::<Value>(LOG_ROOT).unwrap()["tlogs"][0].clone();
            let key = PublicKey::parse_pem(KEY).unwrap();
            log["publicKey"]["rawBytes"] = json!(STANDARD.encode(key[0].der()));
            root["ctlogs"] = json!([log]);
        },
        "certificate",
    );
}

#[test]
fn a_signature_of_the_future_does_not_count() {
    let before: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let digests = [KEYLESS_IMAGE.to_owned()];
    let fault = identity(SUBJECT, ISSUER, &|_| {}).check(&bundle(KEYLESS), None, &digests, before);
    assert_eq!(fault.unwrap_err().kind(), "time");
}

#[test]
fn no_part_of_a_signature_by_an_identity_can_be_changed() {
    let flip = |value: &mut Value, place: usize| {
        let mut bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
        let place = place % bytes.len();
        bytes[place] ^= 1;
        *value = json!(STANDARD.encode(bytes));
    };
    let authority = identity(SUBJECT, ISSUER, &|_| {});
    let proofs = "/verificationMaterial/timestampVerificationData/rfc3161Timestamps/0/signedTimestamp";
    let all: &[_] = &[usize::MAX, 5, 77, 191, 300];
    for (path, places, kind) in [
        ("/verificationMaterial/certificate/rawBytes", all, "certificate"),
        (
            "/verificationMaterial/tlogEntries/0/canonicalizedBody",
            all,
            "log",
        ),
        (proofs, all, "time"),
        // Its statement must be readable before its digest is known.
        ("/dsseEnvelope/payload", &[usize::MAX, 5, 300], "form"),
        ("/dsseEnvelope/payload", &[77, 191], "key"),
        // The timestamp is of the signature.
        ("/dsseEnvelope/signatures/0/sig", all, "time"),
    ] {
        for &place in places {
            let mut document: Value = serde_json::from_str(KEYLESS).unwrap();
            flip(document.pointer_mut(path).unwrap(), place);
            let fault = check(&authority, &bundle(&document.to_string()), KEYLESS_IMAGE).unwrap_err();
            assert_eq!(fault.kind(), kind, "{path} at {place}: {fault}");
        }
    }
}

#[test]
fn a_pattern_fits_the_whole_text_only() {
    let identity = |subject: Pattern| {
        Identities(vec![Identity {
            subject,
            issuer: Pattern::Exact("https://issuer.example".to_owned()),
            email: false,
        }])
    };
    let fits = |subject: Pattern, text: &str| {
        let found = identity(subject).check(text, true, "https://issuer.example");
        found.is_ok()
    };
    let pattern = || Pattern::matching("[a-z]+@example\\.com|root").unwrap();
    assert!(fits(pattern(), "a@example.com"));
    assert!(fits(pattern(), "root"));
    for other in [
        "a@example.com.evil",
        "x a@example.com",
        "roots",
        "a@exampleXcom",
        "a@example.com\n",
    ] {
        assert!(!fits(pattern(), other), "{other}");
    }
    for text in ["(", "a)|(b", "(?:a{1000}){1000}{1000}"] {
        let error = Pattern::matching(text).unwrap_err();
        assert!(error.contains("is not a usable regular expression"), "{error}");
    }
    let fault = identity(pattern())
        .check("root", true, "https://other.example")
        .unwrap_err();
    assert_eq!(fault.kind(), "identity");
    assert!(
        fault
            .to_string()
            .contains("\"root\" of issuer \"https://other.example\""),
        "{fault}"
    );
}

#[test]
fn a_trust_root_of_another_kind_or_size_is_refused() {
    for (text, said) in [
        ("", "it is not JSON"),
        ("[]", "it is a list, not an object"),
        ("{}", "missing field `mediaType`"),
        (
            r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.9"}"#,
            "is not a known kind of trust root",
        ),
    ] {
        let error = Trust::parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    let large = vec![b' '; (1 << 20) + 1];
    assert!(Trust::parse(&large).unwrap_err().contains("larger than"));
}

#[test]
fn a_misspelt_field_of_a_trust_root_is_refused() {
    let root = include_str!("../testdata/public/trusted_root.json");
    assert!(Trust::parse(root.as_bytes()).is_ok());
    let fields = [
        "tlogs",
        "ctlogs",
        "certificateAuthorities",
        "timestampAuthorities",
        "publicKey",
        "validFor",
        "end",
        "organization",
    ];
    for field in fields {
        let misspelt = root.replacen(&format!("\"{field}\""), &format!("\"{field}_\""), 1);
        assert_ne!(misspelt, root, "{field}");
        let error = Trust::parse(misspelt.as_bytes()).unwrap_err();
        // Also where the right name is missing then.
        assert!(
            error.contains(&format!("unknown field `{field}_`")),
            "{field}: {error}"
        );
    }
    // In the order of the fields, a list could stand for an object.
    let mut root: Value = serde_json::from_str(root).unwrap();
    root["tlogs"][0]["publicKey"] = json!(["AA==", "PKIX_ECDSA_P256_SHA_256", null]);
    let error = Trust::parse(root.to_string().as_bytes()).unwrap_err();
    assert_eq!(error, "`tlogs[0].publicKey` is a list, not an object");
}

proptest::proptest! {
    #[test]
    fn no_bytes_break_a_reader(position in 0_usize..600, byte: u8) {
        let mut text = BUNDLE_TEXT.as_bytes().to_vec();
        if let Some(place) = text.get_mut(position) {
            *place = byte;
        }
        let unchanged = text == BUNDLE_TEXT.as_bytes();
        let bundle = Signature::Bundle(Bundle::new(text));
        let found = key().check(&bundle, None, &[IMAGE.to_owned()], now());
        // The hint of the key and white space are not signed.
        if unchanged {
            assert!(found.is_ok());
        }
        if let Ok(verified) = found {
            assert_eq!(verified.claim.digest, IMAGE);
        }
    }
}
