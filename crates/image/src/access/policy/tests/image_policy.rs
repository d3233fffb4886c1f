use base64::Engine as _;
use serde_json::{Value, json};

use super::super::is_scope;
use super::super::{ImagePolicy, Rules};
use super::{Policy, Reference, STANDARD};
use crate::access::Access;

const IMAGE: &str = "a.example/team/app:v1";

/// A public key in PEM, in base64.
fn key() -> String {
    STANDARD.encode(super::key().0)
}

/// A certificate authority in PEM, in base64.
fn authority() -> String {
    STANDARD.encode(super::authority())
}

fn by_key(scopes: &[&str]) -> Value {
    let key = json!({ "keyData": key() });
    let root = json!({ "policyType": "PublicKey", "publicKey": key });
    json!({ "scopes": scopes, "policy": { "rootOfTrust": root } })
}

fn rules(objects: &[(&str, &Value)]) -> Rules {
    Rules::of_image_policies(objects.iter().map(|(name, spec)| ImagePolicy {
        kind: "ClusterImagePolicy",
        name: (*name).to_owned(),
        spec,
    }))
}

/// The rules that ask for a signature of an image, or the refusal.
fn asked(rules: &Rules, image: &str) -> Result<Vec<String>, String> {
    let access = Access {
        rules: rules.clone(),
        ..Access::default()
    };
    let image = Reference::parse_familiar(image).unwrap();
    let wanted = access.admit(&image).map_err(|refusal| refusal.to_string())?;
    Ok(wanted.iter().map(|wanted| wanted.rule.to_string()).collect())
}

#[test]
fn the_most_specific_scope_of_all_objects_decides_and_an_image_in_none_is_accepted() {
    let (wide, narrow) = (
        by_key(&["a.example", "*.b.example"]),
        by_key(&["a.example/team/app"]),
    );
    let rules = rules(&[("wide", &wide), ("narrow", &narrow), ("second", &narrow)]);
    for (image, expected) in [
        ("a.example/other:v1", vec!["wide (scope \"a.example\")"]),
        ("x.b.example/app:v1", vec!["wide (scope \"*.b.example\")"]),
        (
            IMAGE,
            vec![
                "narrow (scope \"a.example/team/app\")",
                "second (scope \"a.example/team/app\")",
            ],
        ),
        ("b.example/app:v1", vec![]),
    ] {
        let expected: Vec<_> = expected
            .iter()
            .map(|rule| format!("ClusterImagePolicy {rule}"))
            .collect();
        assert_eq!(asked(&rules, image), Ok(expected), "{image}");
    }
}

#[test]
fn rules_of_several_origins_hold_together() {
    let first = rules(&[("mine", &by_key(&["a.example"]))]);
    let second = Rules::parse("the annotation", r#"[{"type":"reject"}]"#).unwrap();
    let both = first.clone().and(&second);
    assert_eq!(
        asked(&both, IMAGE),
        Err("the annotation (requirement 1) rejects it".to_owned())
    );
    assert_ne!(both.mark(), first.mark());
    assert_eq!(first.clone().and(&Rules::default()), first);
    assert_eq!(Rules::default().and(&Rules::default()).mark(), 0);
    assert_eq!(rules(&[]), Rules::default());
    let unreadable = Rules::unreadable("the ClusterImagePolicies", "forbidden");
    assert_eq!(
        asked(&first.and(&unreadable), "b.example/app:v1"),
        Err("the ClusterImagePolicies cannot be followed: forbidden".to_owned())
    );
}

/// A root of trust of each type.
fn roots() -> [Value; 3] {
    let subject = json!({ "oidcIssuer": "https://a.example", "signedEmail": "a@a.example" });
    let fulcio = json!({ "fulcioCAData": authority(), "rekorKeyData": key(), "fulcioSubject": subject });
    let pki = json!({ "caRootsData": authority(), "pkiCertificateSubject": { "email": "a@a.example" } });
    [
        json!({ "policyType": "PublicKey", "publicKey": { "keyData": key(), "rekorKeyData": key() } }),
        json!({ "policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": fulcio }),
        json!({ "policyType": "PKI", "pki": pki }),
    ]
}

#[test]
fn each_type_is_the_same_requirement_as_in_policy_json() {
    let identities = [
        (Value::Null, Value::Null),
        (
            json!({ "matchPolicy": "MatchRepoDigestOrExact" }),
            json!({ "type": "matchRepoDigestOrExact" }),
        ),
        (
            json!({ "matchPolicy": "MatchRepository" }),
            json!({ "type": "matchRepository" }),
        ),
        (
            json!({ "matchPolicy": "ExactRepository", "exactRepository": { "repository": "b.example/x" } }),
            json!({ "type": "exactRepository", "dockerRepository": "b.example/x" }),
        ),
        (
            json!({ "matchPolicy": "RemapIdentity",
                "remapIdentity": { "prefix": "a.example", "signedPrefix": "b.example" } }),
            json!({ "type": "remapIdentity", "prefix": "a.example", "signedPrefix": "b.example" }),
        ),
    ];
    for root in roots() {
        let at = |pointer: &str| root.pointer(pointer).cloned().unwrap_or_default();
        let base = match root["policyType"].as_str().unwrap() {
            "PublicKey" => json!({
                "type": "sigstoreSigned",
                "keyData": at("/publicKey/keyData"),
                "rekorPublicKeyData": at("/publicKey/rekorKeyData"),
            }),
            "PKI" => json!({
                "type": "sigstoreSigned",
                "pki": { "caRootsData": at("/pki/caRootsData"), "subjectEmail": "a@a.example" },
            }),
            _ => json!({
                "type": "sigstoreSigned",
                "fulcio": {
                    "caData": at("/fulcioCAWithRekor/fulcioCAData"),
                    "oidcIssuer": "https://a.example",
                    "subjectEmail": "a@a.example",
                },
                "rekorPublicKeyData": at("/fulcioCAWithRekor/rekorKeyData"),
            }),
        };
        for (identity, expected) in &identities {
            let mut policy = json!({ "rootOfTrust": root });
            let mut requirement = base.clone();
            if !identity.is_null() {
                policy["signedIdentity"] = identity.clone();
                requirement["signedIdentity"] = expected.clone();
            }
            let spec = json!({ "scopes": ["a.example"], "policy": policy });
            let text = json!({
                "default": [{ "type": "reject" }],
                "transports": { "docker": { "a.example": [requirement] } },
            });
            let in_file = Policy::parse(&text.to_string(), |_| unreachable!()).unwrap();
            let converted = rules(&[("mine", &spec)]);
            let image = Reference::parse(IMAGE).unwrap();
            let signed = |policy: &Policy| policy.admit(&image).unwrap()[0].signed.clone();
            assert_eq!(
                converted.policies().map(signed).collect::<Vec<_>>(),
                [signed(&in_file)],
                "{spec}"
            );
        }
    }
}

#[test]
fn an_object_that_is_not_understood_refuses_the_images_in_its_scopes() {
    let good = by_key(&["a.example"]);
    let check = |pointer: &str, name: &str, value: Value, expected: &str| {
        let mut spec = good.clone();
        spec.pointer_mut(pointer).unwrap()[name] = value;
        let rules = rules(&[("mine", &spec)]);
        let refused = asked(&rules, IMAGE).unwrap_err();
        let expected =
            format!("ClusterImagePolicy mine (scope \"a.example\") cannot be followed: {expected}");
        assert!(refused.starts_with(&expected), "{refused}");
        assert_eq!(asked(&rules, "b.example/app:v1"), Ok(Vec::new()));
    };
    let root = "/policy/rootOfTrust";
    check("", "mode", json!("Warn"), "unknown field `mode`");
    check(
        "/policy",
        "attestations",
        json!([]),
        "unknown field `attestations`",
    );
    check(
        "/policy",
        "rootOfTrust",
        json!("x"),
        "`rootOfTrust` is not an object",
    );
    check(root, "policyType", json!("Gpg"), "unknown `policyType` \"Gpg\"");
    check(root, "policyType", json!("PKI"), "`pki` is missing");
    check(root, "pki", json!({}), "unknown field `pki`");
    check(
        &format!("{root}/publicKey"),
        "keyData",
        json!("%"),
        "`keyData` is not base64",
    );
    check(
        &format!("{root}/publicKey"),
        "keyDatas",
        json!([]),
        "unknown field `keyDatas`",
    );
    let identity = |value: Value, expected: &str| check("/policy", "signedIdentity", value, expected);
    identity(
        json!({ "matchPolicy": "MatchAll" }),
        "unknown `matchPolicy` \"MatchAll\"",
    );
    identity(
        json!({ "matchPolicy": "RemapIdentity" }),
        "`remapIdentity` is missing",
    );
    identity(
        json!({ "matchPolicy": "MatchRepository", "exactRepository": {} }),
        "unknown field `exactRepository`",
    );
}

#[test]
fn an_object_whose_scopes_are_not_understood_refuses_every_image() {
    let check = |scopes: Value, expected: &str| {
        let mut spec = by_key(&[]);
        spec["scopes"] = scopes;
        let good = by_key(&["b.example"]);
        let rules = rules(&[("good", &good), ("mine", &spec)]);
        let expected = format!("ClusterImagePolicy mine cannot be followed: {expected}");
        assert_eq!(asked(&rules, "b.example/app:v1"), Err(expected));
    };
    check(Value::Null, "`scopes` is not a list of strings");
    check(json!([1]), "`scopes` is not a list of strings");
    for scope in [
        "",
        "*",
        "*.",
        "*.b.example/x",
        "a.*.example",
        "b.example/",
        "busybox",
    ] {
        check(json!(["c.example", scope]), &format!("{scope:?} is no scope"));
    }
    let nothing = rules(&[("mine", &json!("x"))]);
    assert!(
        asked(&nothing, IMAGE)
            .unwrap_err()
            .ends_with("`spec` is not an object")
    );
    for scope in [
        "b.example",
        "b.example:5000",
        "localhost:5000",
        "*.b.example",
        "b.example/x:v1",
        "127.0.0.1:5000/x",
    ] {
        assert!(is_scope(scope), "{scope}");
    }
}
