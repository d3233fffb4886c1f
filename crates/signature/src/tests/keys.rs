//! Kinds of keys: those that sign, and those that are refused.

use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519,
    PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize, SigningKey as _,
};

use super::*;

/// A key of P-384 and its signature of the payload with SHA-256, as cosign 2 makes them.
const P384: &str = "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEwUvG3hTUsjvra9pM9yfSZdcy2yV3BGuM8oaGLeEX8FEiD+UxKxr3edAGe+CUyU2Qf4tncoCfFiKQ9HPWppVc8jF2fPSR0E+DNItsrvO6Z1j1KBhuplfatsnei7lWloAN";
const P384_SHA256: &str = "MGUCMBLb6UM6g+3dfnxXBePs4kgqDt3NaiywSEbdrd6ftgwVJ0fHButmeLTI8+DBV+UIwgIxAIBljP+XBKaWGk5X3M86WTsiQ7RQZGbzIp95uad9XsXp+1SzHXlpoc5IMYmdA+8wpA==";
/// Keys of kinds that are refused.
const RSA_1024: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCYdJFAteXH0GNzSiYq6Kkkmag9Q3kUtLSP7KceAYNavwyrK2FNAVhSyN9WKBS0XjkFJIMFBuJOp0IHSFZuSBmbIPVKdHBLfk1c+UbiuyOWeO89yI1AJmZL/2/tdIegjtynLzUs2/ISICJY/0kJWJkMtCoGWS4VoAdZzEhDZB4yYQIDAQAB";
const SECP256K1: &str = "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEhk2N9CcyhVjJis84uHxHrUZCNoxohx+R9PxD015J/nlvp5LzwkJznoH9boDABs1Yrvyuj2eXkE2tL11E6xp9qA==";
const ED448: &str =
    "MEMwBQYDK2VxAzoA+SOyReIjt25eKy7okvAjBd7mG/KXuAgcWxKPlaghaZDk8AyHsEohUOpedqF5JNKPhqNFkI0TNKYA";

fn pem(body: &str) -> String {
    format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
}

/// Authority of one key, with no log.
fn holder(pem: &str) -> Authority {
    Authority::Keys {
        keys: PublicKey::parse_pem(pem.as_bytes()).unwrap(),
        log: None,
    }
}

/// A signature of the payload in the older form.
fn signed(signature: &str) -> Signature {
    let found = Attached::new(PAYLOAD.to_vec(), |name| {
        (name == SIGNATURE_ANNOTATION).then_some(signature)
    });
    Signature::Attached(found.unwrap())
}

/// Keys of every kind that signs, each with its name.
fn keys() -> Vec<(&'static str, KeyPair)> {
    let rsa = |size| KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size).unwrap();
    let of = |kind| KeyPair::generate_for(kind).unwrap();
    vec![
        ("P-256", of(&PKCS_ECDSA_P256_SHA256)),
        ("P-384", of(&PKCS_ECDSA_P384_SHA384)),
        ("Ed25519", of(&PKCS_ED25519)),
        ("RSA 2048", rsa(RsaKeySize::_2048)),
        ("RSA 3072", rsa(RsaKeySize::_3072)),
    ]
}

#[test]
fn a_key_of_every_known_kind_signs_for_itself_alone() {
    let keys: Vec<_> = keys()
        .into_iter()
        .map(|(kind, key)| {
            let signature = signed(&STANDARD.encode(key.sign(PAYLOAD).unwrap()));
            let public = pem(&STANDARD.encode(key.subject_public_key_info()));
            (kind, public, signature)
        })
        .collect();
    for (holder_kind, public, _) in &keys {
        let authority = holder(public);
        for (kind, _, signature) in &keys {
            let found = check(&authority, signature, OTHER);
            if kind == holder_kind {
                assert_eq!(found.unwrap().claim.digest, OTHER, "{kind}");
            } else {
                let fault = found.unwrap_err();
                assert_eq!(
                    fault,
                    SignatureError::Key("a trusted key"),
                    "{kind} for {holder_kind}"
                );
            }
        }
    }
    // A policy with all of them accepts each.
    let all: String = keys.iter().map(|(_, public, _)| public.as_str()).collect();
    let authority = holder(&all);
    for (kind, public, signature) in &keys {
        let verified = check(&authority, signature, OTHER).unwrap();
        let fingerprint = PublicKey::parse_pem(public.as_bytes()).unwrap()[0].fingerprint();
        assert_eq!(verified.signer, Signer::Key { fingerprint }, "{kind}");
    }
}

#[test]
fn a_key_of_p384_signs_with_either_digest() {
    let authority = holder(&pem(P384));
    check(&authority, &signed(P384_SHA256), OTHER).unwrap();
    let fault = check(&holder(&pem(P384)), &attached(PAYLOAD), OTHER).unwrap_err();
    assert_eq!(fault.kind(), "key");
}

#[test]
fn keys_of_other_kinds_are_refused_with_those_that_are_known() {
    let p521 = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).unwrap();
    let p521 = STANDARD.encode(p521.subject_public_key_info());
    for (kind, body) in [
        ("P-521", p521.as_str()),
        ("RSA 1024", RSA_1024),
        ("secp256k1", SECP256K1),
        ("Ed448", ED448),
        ("garbage", "AAAA"),
    ] {
        let error = PublicKey::parse_pem(pem(body).as_bytes()).unwrap_err();
        assert_eq!(
            error, "the key is not supported; use ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits",
            "{kind}"
        );
        // One beside good ones is not left out silently.
        let both = pem(P384) + &pem(body);
        PublicKey::parse_pem(both.as_bytes()).unwrap_err();
    }
    for (text, said) in [
        ("", "it holds no public key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n", "it is not a whole PEM"),
        (
            "-----BEGIN PUBLIC KEY-----\n%\n-----END PUBLIC KEY-----\n",
            "it is not PEM",
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "it holds no public key",
        ),
    ] {
        assert_eq!(PublicKey::parse_pem(text.as_bytes()).unwrap_err(), said, "{text}");
    }
}
