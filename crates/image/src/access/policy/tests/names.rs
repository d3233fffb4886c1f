//! The name in a signature against the name of the image.

use olm_signature::{Attached, Claim, Proof, SIGNATURE_ANNOTATION, Signer};

use super::*;
use crate::reference::Pinned;

const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Result of a requirement for a signature in the older form.
fn judge(
    wanted: &Signed,
    payload: &[u8],
    signature: &str,
    digests: &[Digest],
    image: &Reference,
) -> Result<(), String> {
    let annotation = |name: &str| (name == SIGNATURE_ANNOTATION).then_some(signature);
    let signature = Signature::Attached(Attached::new(payload.to_vec(), annotation).unwrap());
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let found = wanted.check(&signature, &digests.iter().collect(), image, now);
    found.map(drop).map_err(|unfit| unfit.to_string())
}

fn payload(reference: &str, digest: &str) -> Vec<u8> {
    json!({
        "critical": {
            "identity": { "docker-reference": reference },
            "image": { "docker-manifest-digest": digest },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
    .into_bytes()
}

#[test]
fn a_signature_counts_for_its_key_its_digest_and_its_name() {
    let (public, sign) = key();
    let (_, stranger) = key();
    let signed = |identity: Value| {
        let policy = json!({ "default": [{
            "type": "sigstoreSigned",
            "keyData": STANDARD.encode(&public),
            "signedIdentity": identity,
        }] });
        parse(&policy).unwrap()
    };
    let digest = Digest::parse(&format!("sha256:{HEX}")).unwrap();
    let image = Reference::parse(&format!("a.example/team/app@{digest}")).unwrap();
    let check = |identity: Value, name: &str, expected: Result<(), &str>| {
        let policy = signed(identity);
        let wanted = policy.admit(&image).unwrap();
        let payload = payload(name, &digest.to_string());
        let found = judge(
            wanted[0].signed,
            &payload,
            &sign(&payload),
            std::slice::from_ref(&digest),
            &image,
        );
        assert_eq!(found, expected.map_err(str::to_owned), "{name}");
    };
    let any = json!({ "type": "matchRepoDigestOrExact" });
    check(any.clone(), "a.example/team/app", Ok(()));
    check(any.clone(), "a.example/team/app:v1", Ok(()));
    check(
        any.clone(),
        "a.example/team/other",
        Err(
            "it is about \"a.example/team/other\", which does not match the repository \"a.example/team/app\"",
        ),
    );
    check(
        json!({ "type": "matchRepository" }),
        "a.example/team/app:v1",
        Ok(()),
    );
    let exact = format!(
        "it is about \"a.example/team/app:v1\", which does not match \"{image}\"; for an image by digest, remove \
         `signedIdentity`"
    );
    check(
        json!({ "type": "matchExact" }),
        "a.example/team/app:v1",
        Err(&exact),
    );
    check(
        json!({ "type": "exactRepository", "dockerRepository": "b.example/x" }),
        "b.example/x:v2",
        Ok(()),
    );
    check(
        json!({ "type": "exactReference", "dockerReference": "b.example/x:v1" }),
        "b.example/x:v2",
        Err("it is about \"b.example/x:v2\", which does not match \"b.example/x:v1\""),
    );
    let remap =
        json!({ "type": "remapIdentity", "prefix": "a.example/team", "signedPrefix": "b.example/origin" });
    check(remap.clone(), "b.example/origin/app", Ok(()));
    check(
        remap,
        "a.example/team/app",
        Err(
            "it is about \"a.example/team/app\", which does not match the repository \"b.example/origin/app\"",
        ),
    );
    let policy = signed(any);
    let wanted = policy.admit(&image).unwrap()[0].signed;
    let good = payload("a.example/team/app", &digest.to_string());
    let check = |payload: &[u8], signature: &str, digests: &[Digest], expected: &str| {
        let error = judge(wanted, payload, signature, digests, &image).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let one = std::slice::from_ref(&digest);
    check(&good, &stranger(&good), one, "not made with a trusted key");
    check(&good, "%", one, "not base64");
    check(&good, "", one, "not made with a trusted key");
    check(
        &good,
        &sign(&good),
        &[Digest::of(b"another")],
        "it is for sha256:",
    );
    check(b"{}", &sign(b"{}"), one, "cannot be read");
    let mut changed = good.clone();
    changed[20] ^= 1;
    check(&changed, &sign(&good), one, "not made with a trusted key");
}

/// An image that is named by its tag needs a signature about that tag, because images that the tag named earlier are
/// signed, too.
#[test]
fn a_signature_is_about_a_tag_unless_the_policy_says_otherwise() {
    let (public, sign) = key();
    let digest = Digest::parse(&format!("sha256:{HEX}")).unwrap();
    let reference = Reference::parse("a.example/team/app:v1").unwrap();
    // As it is once the tag is resolved.
    let image = reference.pin(digest.clone()).requested();
    let tag = "a.example/team/app:v1";
    let check = |identity: &Value, name: &str, wanted_name: &str, fits: bool| {
        let policy = parse(&json!({ "default": [{
            "type": "sigstoreSigned",
            "keyData": STANDARD.encode(&public),
            "signedIdentity": identity,
        }] }));
        let policy = policy.unwrap();
        let payload = payload(name, &digest.to_string());
        let signature = sign(&payload);
        let wanted = policy.admit(&image).unwrap();
        let found = judge(
            wanted[0].signed,
            &payload,
            &signature,
            std::slice::from_ref(&digest),
            &image,
        );
        let refused = format!("it is about {name:?}, which does not match {wanted_name}");
        assert_eq!(found, if fits { Ok(()) } else { Err(refused) });
    };
    let wanted = format!("{tag:?}");
    for identity in ["matchRepoDigestOrExact", "matchExact"] {
        let identity = json!({ "type": identity });
        check(&identity, tag, &wanted, true);
        check(&identity, "a.example/team/app:v2", &wanted, false);
        check(&identity, "a.example/team/app", &wanted, false);
    }
    let repository = json!({ "type": "matchRepository" });
    let wanted = "the repository \"a.example/team/app\"";
    check(&repository, "a.example/team/app:v2", wanted, true);
    check(&repository, "a.example/team/app", wanted, true);
    check(&repository, "a.example/team/other:v1", wanted, false);
    let exactly = json!({ "type": "exactReference", "dockerReference": "a.example/team/app:v2" });
    let wanted = "\"a.example/team/app:v2\"";
    check(&exactly, "a.example/team/app:v2", wanted, true);
    check(&exactly, tag, wanted, false);
    let remap =
        json!({ "type": "remapIdentity", "prefix": "a.example/team", "signedPrefix": "b.example/origin" });
    let wanted = "\"b.example/origin/app:v1\"";
    check(&remap, "b.example/origin/app:v1", wanted, true);
    check(&remap, "b.example/origin/app:v2", wanted, false);
}

/// Bundles of cosign 3 name no image. For an image by digest that changes nothing; a tag could be moved.
#[test]
fn a_signature_without_a_name_is_about_a_digest_and_no_tag() {
    let digest = Digest::parse(&format!("sha256:{HEX}")).unwrap();
    let by_tag = Reference::parse("a.example/team/app:v1").unwrap();
    let by_digest = by_tag.pin(digest).reference();
    let check = |identity: &Identity, image: &Reference, fits: bool| {
        assert_eq!(identity.check(None, image).is_ok(), fits, "{identity:?} {image}");
    };
    check(&Identity::RepositoryOrExact, &by_digest, true);
    check(&Identity::RepositoryOrExact, &by_tag, false);
    check(&Identity::Digest, &by_tag, true);
    check(&Identity::Repository, &by_digest, false);
    check(
        &Identity::ExactRepository("a.example/team/app".to_owned()),
        &by_digest,
        false,
    );
    let error = Identity::Exact.check(None, &by_tag).unwrap_err().to_string();
    assert!(
        error.contains("set `signedIdentity` to `{\"type\": \"matchDigest\"}`"),
        "{error}"
    );
    // A digest cannot be moved: the rule is what does not fit.
    let error = Identity::Exact.check(None, &by_digest).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "it names no image, and `signedIdentity` asks for \"{by_digest}\"; for an image by digest, remove \
             `signedIdentity`"
        )
    );
    let check = |signed: &str, advises: bool| {
        let error = Identity::Exact
            .check(Some(signed), &by_digest)
            .unwrap_err()
            .to_string();
        assert_eq!(error.contains("remove `signedIdentity`"), advises, "{error}");
    };
    check(&by_tag.to_string(), true);
    // The default refuses another repository, too.
    check("b.example/other:v1", false);
    let repository = Identity::Repository
        .check(None, &by_digest)
        .unwrap_err()
        .to_string();
    assert!(repository.contains("asks for the repository \""), "{repository}");
    // The digest alone decides, so a name is no reason to refuse.
    assert_eq!(Identity::Digest.check(Some("b.example/x"), &by_tag), Ok(()));
}

#[test]
fn an_approval_says_whether_a_policy_accepts_the_name_by_default() {
    let digest = Digest::parse(&format!("sha256:{HEX}")).unwrap();
    let by_tag = Reference::parse("a.example/team/app:v1").unwrap();
    let by_digest = Reference::parse(&format!("a.example/team/app@{digest}")).unwrap();
    let (tagged, pinned) = (by_tag.pin(digest.clone()), by_digest.pin(digest.clone()));
    let names = |name: Option<&str>, predicate_type: Option<&str>, image: &Pinned| {
        let approval = Approval {
            rule: Rule {
                origin: "--key".to_owned(),
                scope: None,
                number: None,
            },
            predicate_type: predicate_type.map(str::to_owned),
            verified: Verified {
                claim: Claim {
                    digest: digest.to_string(),
                    name: name.map(str::to_owned),
                },
                signer: Signer::Key {
                    fingerprint: String::new(),
                },
                time: None,
                proof: Proof::default(),
            },
        };
        approval.names(image)
    };
    assert_eq!(names(Some("a.example/team/app:v1"), None, &tagged), Some(true));
    assert_eq!(names(Some("a.example/team/app"), None, &tagged), Some(false));
    assert_eq!(names(None, None, &tagged), Some(false));
    assert_eq!(names(None, None, &pinned), Some(true));
    assert_eq!(names(Some("a.example/other"), None, &pinned), Some(false));
    assert_eq!(names(None, Some("https://slsa.dev/provenance/v1"), &tagged), None);
}
