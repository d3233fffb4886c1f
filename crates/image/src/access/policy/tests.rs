mod image_policy;
mod names;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;

fn pem(der: &[u8]) -> String {
    format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    )
}

/// A key pair: its public key, and the function that signs with it.
fn key() -> (String, impl Fn(&[u8]) -> String) {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let text = pem(der.as_ref());
    let sign = move |message: &[u8]| {
        let signature = pair.sign(&SystemRandom::new(), message).unwrap();
        STANDARD.encode(signature.as_ref())
    };
    (text, sign)
}

fn parse(policy: &Value) -> Result<Policy, String> {
    Policy::parse(&policy.to_string(), |path| match path {
        "/key.pub" => Ok(key().0.into_bytes()),
        "/other" => Ok(b"nothing".to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    })
    .map_err(|error| error.to_string())
}

#[test]
fn two_spellings_of_one_scope_are_an_error() {
    let accept = json!([{ "type": "insecureAcceptAnything" }]);
    let docker = json!({ "registry.example/a": accept, "registry.example:443/a": accept });
    let message = parse(&json!({ "default": accept, "transports": { "docker": docker } })).unwrap_err();
    assert_eq!(
        message,
        "scope \"registry.example:443/a\": another scope is the same registry in another spelling"
    );
}

#[test]
fn the_most_specific_scope_decides() {
    let accept = json!([{ "type": "insecureAcceptAnything" }]);
    let reject = json!([{ "type": "reject" }]);
    let policy = parse(&json!({
        "default": reject,
        "transports": {
            "docker": {
                "registry.example": accept,
                "registry.example/team": reject,
                "registry.example/team/app": accept,
                "registry.example/team/app:bad": reject,
                "registry.example:5000": accept,
                "Upper.Example:443": reject,
                "*.wild.example": accept,
                "*.deep.wild.example": reject,
                "docker.io/library": [{ "type": "signedBy", "keyType": "GPGKeys", "keyPath": "/x" }],
            },
            "docker-daemon": { "": accept },
        },
    }))
    .unwrap();
    let check = |reference: &str, refused: Option<&str>| {
        let reference = Reference::parse(reference).unwrap();
        let found = policy.admit(&reference).err().map(|refusal| refusal.to_string());
        assert_eq!(found.as_deref(), refused, "{reference}");
    };
    let by = |scope: &str| format!("the signature policy (scope {scope}, requirement 1) rejects it");
    check("registry.example/other:v1", None);
    check(
        "registry.example/team/x:v1",
        Some(&by("\"registry.example/team\"")),
    );
    check("registry.example/teammate:v1", None);
    check("registry.example/team/app:v1", None);
    check("registry.example/team/app/sub:v1", None);
    check(
        "registry.example/team/app:bad",
        Some(&by("\"registry.example/team/app:bad\"")),
    );
    check("registry.example:5000/team/x:v1", None);
    check("registry.example:6000/team/x:v1", Some(&by("default")));
    // The same registry in another spelling.
    check(
        "REGISTRY.example:443/team/x:v1",
        Some(&by("\"registry.example/team\"")),
    );
    check("Registry.example/team/app:v1", None);
    check(
        "A.Deep.wild.example:443/x:v1",
        Some(&by("\"*.deep.wild.example\"")),
    );
    // A scope in another spelling.
    check("upper.example/x:v1", Some(&by("\"upper.example\"")));
    check("a.wild.example/x:v1", None);
    check("a.wild.example:5000/x:v1", None);
    check("a.deep.wild.example/x:v1", Some(&by("\"*.deep.wild.example\"")));
    check("other.example/x:v1", Some(&by("default")));
    check(
        "docker.io/library/busybox:v1",
        Some(
            "the signature policy (scope \"docker.io/library\", requirement 1) asks for `signedBy`, which is not supported; use `sigstoreSigned`",
        ),
    );
    assert!(
        Policy::default()
            .admit(&Reference::parse("a.example/x:v1").unwrap())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn all_requirements_of_a_scope_hold() {
    let policy = parse(&json!({
        "default": [{ "type": "insecureAcceptAnything" }, { "type": "reject" }],
    }));
    let reference = Reference::parse("a.example/x:v1").unwrap();
    assert!(policy.unwrap().admit(&reference).is_err());
}

#[test]
fn a_policy_that_is_not_understood_lets_nothing_through() {
    let check = |policy: &Value, expected: &str| {
        let error = parse(policy).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let signed = |more: Value| {
        let mut requirement = json!({ "type": "sigstoreSigned", "keyPath": "/key.pub" });
        requirement
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "default": [requirement] })
    };
    parse(&signed(json!({}))).unwrap();
    for text in [
        r#"{"default": [{"type": "reject"}], "default": [{"type": "insecureAcceptAnything"}]}"#,
        r#"{"default": [{"type": "reject", "type": "insecureAcceptAnything"}]}"#,
        r#"{"default": [{"type": "reject"}], "transports": {"docker": {"a": [{"type": "reject"}], "a": []}}}"#,
    ] {
        let error = Policy::parse(text, |_| Ok(Vec::new())).unwrap_err().to_string();
        assert!(error.contains("occurs twice in one object"), "{error}");
    }
    check(&json!({}), "missing field `default`");
    check(
        &json!({ "default": [{ "type": "reject" }], "transports": { "Docker": {}, "docker-daemon": {} } }),
        "unknown transport \"Docker\"",
    );
    check(&json!({ "default": [] }), "is empty");
    check(&json!({ "default": [{}] }), "`type` is missing");
    // In the order of the fields, a list could stand for an object.
    check(
        &json!([[{ "type": "insecureAcceptAnything" }], {}]),
        "it is a list, not an object",
    );
    check(
        &json!({ "default": [["reject"]] }),
        "`default[0]` is a list, not an object",
    );
    check(
        &json!({ "default": [{ "type": "reject" }], "transports": { "docker": [] } }),
        "`transports.docker` is a list, not an object",
    );
    // The misspelt field comes before the missing one.
    check(
        &json!({ "defualt": [{ "type": "reject" }] }),
        "unknown field `defualt`",
    );
    check(
        &json!({ "default": [{ "typ": "reject" }] }),
        "unknown field `typ`",
    );
    check(
        &json!({ "default": [{ "type": "sigstoreSigned", "keypath": "/key.pub" }] }),
        "unknown field `keypath`",
    );
    check(
        &signed(json!({ "signedIdentity": { "typ": "matchDigest" } })),
        "unknown field `typ`",
    );
    check(
        &json!({ "default": [{ "type": "sigstoreSigned", "pki": { "caRootPath": "/key.pub" } }] }),
        "unknown field `caRootPath`",
    );
    check(
        &json!({ "default": [{ "type": "accept" }] }),
        "unknown type \"accept\"",
    );
    check(
        &json!({ "default": [{ "type": "reject", "x": 1 }] }),
        "unknown field `x`",
    );
    check(
        &json!({ "default": [{ "type": "reject" }], "x": 1 }),
        "unknown field `x`",
    );
    check(
        &json!({ "default": [{ "type": "reject" }], "transports": { "docker": { "a.example": [] } } }),
        "scope \"a.example\": the list of requirements is empty",
    );
    check(
        &json!({ "default": [{ "type": "sigstoreSigned" }] }),
        "names no key",
    );
    check(
        &signed(json!({ "keyPath": "/missing" })),
        "cannot read `/missing`",
    );
    check(
        &signed(json!({ "keyPath": "/other" })),
        "key `/other`: it holds no public key",
    );
    check(&signed(json!({ "keyData": "%" })), "is not base64");
    check(
        &signed(json!({ "keyData": STANDARD.encode(pem(b"x")) })),
        "the key is not supported; use ECDSA P-256",
    );
}

#[test]
fn a_scope_that_no_image_is_in_lets_nothing_through() {
    let never = [
        "https://quay.io",
        "quay.io/",
        "*.a:5000",
        "*..",
        "a",
        "index.docker.io",
        "docker.io/nginx:1",
        ":443",
    ];
    for scope in never {
        let reject = json!([{ "type": "reject" }]);
        let error =
            parse(&json!({ "default": reject, "transports": { "docker": { scope: reject } } })).unwrap_err();
        let expected = format!("scope {scope:?}: no image is in it");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn an_identity_that_is_not_understood_lets_nothing_through() {
    let check = |identity: Value, expected: &str| {
        let requirement =
            json!({ "type": "sigstoreSigned", "keyPath": "/key.pub", "signedIdentity": identity });
        let error = parse(&json!({ "default": [requirement] })).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(json!({ "type": "matchAll" }), "unknown identity");
    check(
        json!({ "type": "exactRepositry", "dockerRepository": "a.example/x" }),
        "unknown identity \"exactRepositry\"",
    );
    check(
        json!({ "type": "exactReference", "dockerReference": "a.example/x" }),
        "neither a tag nor a digest",
    );
    check(json!({ "type": "matchExact", "x": 1 }), "unknown field `x`");
}

#[test]
fn every_scope_that_an_image_can_be_in_is_one() {
    for scope in [
        "",
        "docker.io",
        "docker.io/library",
        "docker.io/library/nginx:1",
        "quay.io",
        "quay.io/a",
        "QUAY.IO/a",
        "quay.io:443",
        "localhost",
        "localhost:5000",
        "a.example:5000/b/c",
        "*.example.com",
        "[::1]:5000",
        "HOST",
    ] {
        let policy = parse(&json!({
            "default": [{ "type": "reject" }], "transports": { "docker": { scope: [{ "type": "reject" }] } },
        }));
        assert!(policy.is_ok(), "{scope}: {policy:?}");
    }
}

#[test]
fn a_requirement_names_exactly_one_kind_of_signer() {
    let check = |policy: &Value, expected: &str| {
        let error = parse(policy).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let signed = |more: Value| {
        let mut requirement = json!({ "type": "sigstoreSigned", "keyPath": "/key.pub" });
        let fields = requirement.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        json!({ "default": [requirement] })
    };
    let only = |more: Value| {
        let mut requirement = json!({ "type": "sigstoreSigned" });
        let fields = requirement.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        json!({ "default": [requirement] })
    };
    let certificate = STANDARD.encode(authority());
    let fulcio =
        json!({ "caData": certificate, "oidcIssuer": "https://a.example", "subjectEmail": "a@a.example" });
    parse(&only(
        json!({ "fulcio": fulcio, "rekorPublicKeyPath": "/key.pub" }),
    ))
    .unwrap();
    check(
        &only(json!({ "fulcio": fulcio })),
        "`fulcio` needs `rekorPublicKeyPath`",
    );
    check(
        &only(json!({ "fulcio": {}, "rekorPublicKeyPath": "/key.pub" })),
        "names neither `caPath` nor `caData`",
    );
    check(
        &only(json!({ "fulcio": { "caData": certificate }, "rekorPublicKeyPath": "/key.pub" })),
        "`subjectEmail` is missing",
    );
    check(
        &only(json!({ "fulcio": { "caPath": "/other" }, "rekorPublicKeyPath": "/key.pub" })),
        "`/other`: it holds no certificate",
    );
    check(
        &signed(json!({ "fulcio": fulcio, "rekorPublicKeyPath": "/key.pub" })),
        "only one of keys, `fulcio`, `pki` and `identities`",
    );
    parse(&only(
        json!({ "pki": { "caRootsData": certificate, "subjectEmail": "a@a.example" } }),
    ))
    .unwrap();
    check(
        &only(json!({ "pki": { "caRootsData": certificate } })),
        "neither a subjectEmail nor a subjectHostname",
    );
    parse(&signed(json!({ "rekorPublicKeyPaths": ["/key.pub"] }))).unwrap();
    let identities = json!([{ "subjectRegExp": "a.*", "issuer": "https://a.example" }]);
    check(
        &only(json!({ "identities": identities })),
        "`identities` needs `trustedRootPath`",
    );
    check(
        &only(json!({ "identities": identities, "trustedRootPath": "/other" })),
        "`/other`: ",
    );
    let root =
        STANDARD.encode(r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#);
    let keyless = |identity: Value| only(json!({ "identities": [identity], "trustedRootData": root }));
    parse(&keyless(
        json!({ "subjectRegExp": "a.*", "issuer": "https://a.example" }),
    ))
    .unwrap();
    check(
        &keyless(json!({ "subject": "a" })),
        "one of `issuer` and `issuerRegExp`",
    );
    check(
        &keyless(json!({ "subject": "a", "subjectRegExp": "a", "issuer": "b" })),
        "one of `subject` and `subjectRegExp`",
    );
    check(
        &keyless(json!({ "subject": "a", "issuerRegExp": "a)|(b" })),
        "not a usable regular expression",
    );
    check(
        &signed(json!({ "trustedRootData": root })),
        "the trust root names no transparency log",
    );
}

#[test]
fn the_policy_of_options_is_named_after_them() {
    let of = |requirement: Value| {
        let requirement = requirement.as_object().unwrap().clone();
        Policy::of_requirement(
            "--key",
            &requirement,
            |_| Err(std::io::ErrorKind::NotFound.into()),
        )
    };
    let policy = of(json!({ "type": "reject" })).unwrap();
    let image = Reference::parse("a.example/x:v1").unwrap();
    assert_eq!(policy.admit(&image).unwrap_err().to_string(), "--key rejects it");
    let error = of(json!({ "type": "sigstoreSigned", "keyPath": "key.pub" })).unwrap_err();
    assert_eq!(error.to_string(), "--key: cannot read `key.pub`");
}

/// An authority, in PEM.
fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.self_signed(&key).unwrap().pem()
}

proptest::proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in "\\{\"default\":\\[\\{\"type\":\"[a-zA-Z]{0,12}\"(,\"[a-zA-Z]{1,9}\":\"\\PC{0,9}\")?\\}\\]\\}|\\PC{0,60}") {
        let _ = Policy::parse(&text, |_| Err(std::io::ErrorKind::NotFound.into()));
    }
}

#[test]
fn the_policy_that_openshift_writes_for_image_policies_is_read() {
    let certificate = STANDARD.encode(authority());
    let public = STANDARD.encode(key().0);
    let fulcio =
        json!({ "caData": certificate, "oidcIssuer": "https://a.example", "subjectEmail": "a@a.example" });
    let scopes = json!({
        "a.example/keyed": [{
            "type": "sigstoreSigned", "keyData": public, "signedIdentity": { "type": "matchRepoDigestOrExact" },
        }],
        "a.example/keyless": [{
            "type": "sigstoreSigned", "fulcio": fulcio, "rekorPublicKeyData": public,
            "signedIdentity": {
                "type": "remapIdentity", "prefix": "a.example/keyless", "signedPrefix": "b.example/keyless",
            },
        }],
        "a.example/pki": [{
            "type": "sigstoreSigned", "pki": { "caRootsData": certificate, "subjectEmail": "a@a.example" },
            "signedIdentity": { "type": "matchRepository" },
        }],
    });
    let anything = json!([{ "type": "insecureAcceptAnything" }]);
    let policy = parse(&json!({
        "default": anything,
        "transports": { "atomic": scopes, "docker": scopes, "docker-daemon": { "": anything } },
    }))
    .unwrap();
    for scope in ["a.example/keyed", "a.example/keyless", "a.example/pki"] {
        let image = Reference::parse(&format!("{scope}/x:v1")).unwrap();
        let wanted = policy.admit(&image).unwrap();
        let rules: Vec<_> = wanted.iter().map(|wanted| wanted.rule.to_string()).collect();
        assert_eq!(
            rules,
            [format!("the signature policy (scope {scope:?}, requirement 1)")]
        );
    }
    let other = Reference::parse("a.example/x:v1").unwrap();
    assert!(policy.admit(&other).unwrap().is_empty());
}

#[test]
fn rules_of_an_object_hold_beside_the_policy_and_say_who_set_them() {
    let (public, _) = key();
    let signed = json!([{ "type": "sigstoreSigned", "keyData": STANDARD.encode(&public) }]);
    let policy = parse(&json!({ "default": signed })).unwrap();
    let image = Reference::parse("a.example/x:v1").unwrap();
    let rules = |text: &str| Rules::parse("annotation a of ClusterExtension b", text);
    let with = |text: &str| crate::access::Access {
        policy: std::sync::Arc::new(policy.clone()),
        rules: rules(text).unwrap(),
        ..crate::access::Access::default()
    };
    let both = with(&signed.to_string());
    let wanted = both.admit(&image).unwrap();
    let asked: Vec<_> = wanted.iter().map(|wanted| wanted.rule.to_string()).collect();
    assert_eq!(
        asked,
        [
            "the signature policy (scope default, requirement 1)",
            "annotation a of ClusterExtension b (requirement 1)",
        ]
    );
    // They cannot allow what the policy asks for.
    let lax = with(r#"[{"type":"insecureAcceptAnything"}]"#);
    assert_eq!(lax.admit(&image).unwrap().len(), 1);
    let error = with(r#"[{"type":"reject"}]"#).admit(&image).unwrap_err();
    assert_eq!(
        error.to_string(),
        "annotation a of ClusterExtension b (requirement 1) rejects it"
    );
    assert_eq!(error.remedy(), Some("change the policy"));
    for (text, expected) in [
        ("[]", "the list of requirements is empty"),
        (
            "{}",
            "it is an object, not a list; write a list of requirements, such as [{\"type\": \"sigstoreSigned\", ",
        ),
        (
            "key.pub",
            "it is not JSON: expected value at line 1 column 1; write a list of requirements, such as [{",
        ),
        (
            r#"[["sigstoreSigned", "AA=="]]"#,
            "`[0]` is a list, not an object",
        ),
        (r#"[{"type":"other"}]"#, "unknown type \"other\""),
        (
            r#"[{"type":"sigstoreSigned","keyPath":"/key.pub"}]"#,
            "`/key.pub` would be a file of the manager",
        ),
    ] {
        let error = rules(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert_ne!(
        rules("[{\"type\":\"reject\"}]").unwrap().mark(),
        Rules::default().mark()
    );
}

#[test]
fn an_attestation_names_its_type_its_signer_and_a_condition_that_is_an_expression() {
    let attested = |more: Value| {
        let mut requirement = json!({
            "type": "sigstoreAttested", "keyPath": "/key.pub", "predicateType": "https://slsa.dev/provenance/v1",
        });
        let fields = requirement.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        fields.retain(|_, value| !value.is_null());
        parse(&json!({ "default": [requirement] }))
    };
    let policy = attested(json!({ "condition": "predicate.runDetails.builder.id == 'ci'" })).unwrap();
    let image = Reference::parse("a.example/x:v1").unwrap();
    let wanted = policy.admit(&image).unwrap();
    let attestation = wanted.first().and_then(|wanted| wanted.signed.attestation());
    let predicate_type = attestation.map(Attestation::predicate_type);
    assert_eq!(predicate_type, Some("https://slsa.dev/provenance/v1"));
    for (more, expected) in [
        (json!({ "predicateType": null }), "`predicateType` is missing"),
        (json!({ "condition": "predicate ==" }), "is not a condition"),
        (json!({ "condition": 1 }), "`condition` is not a string"),
        (json!({ "keyPath": null }), "names no key"),
        (
            json!({ "signedIdentity": { "type": "matchDigest" } }),
            "unknown field `signedIdentity`",
        ),
    ] {
        let error = attested(more).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
