//! Signature policies of OpenShift, the kinds ClusterImagePolicy and ImagePolicy, as rules. Nodes get the same rules in
//! their `policy.json`. An unknown field or type is a fault: it might be the one that rejects an image.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::parse::{self, Fields};
use super::{Entry, Policy, PolicyError, Requirement, is_scope};
use crate::reference::usual_spelling;

/// An object with a signature policy for the images in its scopes.
#[derive(Clone, Debug)]
pub struct ImagePolicy<'object> {
    /// The kind, for messages.
    pub kind: &'object str,
    /// The name, after `NAMESPACE/` where it has a namespace, for messages.
    pub name: String,
    /// Its `spec`.
    pub spec: &'object Value,
}

/// The policies of the objects: one of all with scopes, in which the most particular scope decides, and one that refuses
/// every image for each object without.
pub(super) fn policies(objects: &[ImagePolicy<'_>]) -> Vec<Policy> {
    let mut registries: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    let mut policies = Vec::new();
    for object in objects {
        let origin = format!("{} {}", object.kind, object.name);
        let scopes = match scopes(object.spec) {
            Ok(scopes) => scopes,
            Err(fault) => {
                policies.push(unusable(&origin, &fault.into_message()));
                continue;
            }
        };
        let requirement = requirement(object.spec);
        let requirement = requirement.unwrap_or_else(|fault| Requirement::Unusable(fault.into_message()));
        let entry = entry(&origin, requirement);
        for scope in scopes {
            registries
                .entry(usual_spelling(scope))
                .or_default()
                .push(entry.clone());
        }
    }
    policies.push(Policy {
        default_scope: None,
        default: Vec::new(),
        registries,
    });
    policies
}

/// A policy that cannot be read. It refuses every image.
pub(super) fn unusable(origin: &str, why: &str) -> Policy {
    Policy {
        default_scope: None,
        default: vec![entry(origin, Requirement::Unusable(why.to_owned()))],
        registries: BTreeMap::new(),
    }
}

fn entry(origin: &str, requirement: Requirement) -> Entry {
    Entry {
        origin: origin.into(),
        number: None,
        requirement,
    }
}

/// The scopes of an object. One that could never match is a fault: the images that it means would pass.
fn scopes(spec: &Value) -> Result<Vec<&str>, PolicyError> {
    let mut fields = fields("spec", spec)?;
    let scopes = fields.texts("scopes")?;
    if scopes.is_empty() {
        return Err(fields.wrong("`scopes` is missing"));
    }
    match scopes.iter().find(|scope| !is_scope(scope)) {
        None => Ok(scopes),
        Some(scope) => Err(fields.wrong(format!("{scope:?} is no scope"))),
    }
}

fn requirement(spec: &Value) -> Result<Requirement, PolicyError> {
    let mut spec = fields("spec", spec)?;
    spec.left.remove("scopes");
    let mut policy = object(&mut spec, "policy")?;
    spec.end()?;
    let mut made = Map::from_iter([("type".to_owned(), json!("sigstoreSigned"))]);
    root_of_trust(object(&mut policy, "rootOfTrust")?, &mut made)?;
    if let Some(identity) = policy.object("signedIdentity")? {
        made.insert("signedIdentity".to_owned(), signed_identity(identity)?);
    }
    policy.end()?;
    parse::one("policy", &made)
}

fn root_of_trust(mut root: Fields<'_>, made: &mut Map<String, Value>) -> Result<(), PolicyError> {
    match root.needed("policyType")? {
        "PublicKey" => {
            let mut key = object(&mut root, "publicKey")?;
            needed(&mut key, "keyData", made, "keyData")?;
            given(&mut key, "rekorKeyData", made, "rekorPublicKeyData")?;
            key.end()?;
        }
        "FulcioCAWithRekor" => {
            let mut authority = object(&mut root, "fulcioCAWithRekor")?;
            let mut subject = object(&mut authority, "fulcioSubject")?;
            let mut fulcio = Map::new();
            needed(&mut authority, "fulcioCAData", &mut fulcio, "caData")?;
            needed(&mut subject, "oidcIssuer", &mut fulcio, "oidcIssuer")?;
            needed(&mut subject, "signedEmail", &mut fulcio, "subjectEmail")?;
            made.insert("fulcio".to_owned(), fulcio.into());
            needed(&mut authority, "rekorKeyData", made, "rekorPublicKeyData")?;
            subject.end()?;
            authority.end()?;
        }
        "PKI" => {
            let mut authority = object(&mut root, "pki")?;
            let mut subject = object(&mut authority, "pkiCertificateSubject")?;
            let mut pki = Map::new();
            needed(&mut authority, "caRootsData", &mut pki, "caRootsData")?;
            given(
                &mut authority,
                "caIntermediatesData",
                &mut pki,
                "caIntermediatesData",
            )?;
            given(&mut subject, "email", &mut pki, "subjectEmail")?;
            given(&mut subject, "hostname", &mut pki, "subjectHostname")?;
            made.insert("pki".to_owned(), pki.into());
            subject.end()?;
            authority.end()?;
        }
        other => return Err(root.wrong(format!("unknown `policyType` {other:?}"))),
    }
    root.end()
}

fn signed_identity(mut identity: Fields<'_>) -> Result<Value, PolicyError> {
    let mut made = Map::new();
    let matching = match identity.text("matchPolicy")?.unwrap_or("MatchRepoDigestOrExact") {
        "MatchRepoDigestOrExact" => "matchRepoDigestOrExact",
        "MatchRepository" => "matchRepository",
        "ExactRepository" => {
            let mut exact = object(&mut identity, "exactRepository")?;
            needed(&mut exact, "repository", &mut made, "dockerRepository")?;
            exact.end()?;
            "exactRepository"
        }
        "RemapIdentity" => {
            let mut remap = object(&mut identity, "remapIdentity")?;
            needed(&mut remap, "prefix", &mut made, "prefix")?;
            needed(&mut remap, "signedPrefix", &mut made, "signedPrefix")?;
            remap.end()?;
            "remapIdentity"
        }
        other => return Err(identity.wrong(format!("unknown `matchPolicy` {other:?}"))),
    };
    identity.end()?;
    made.insert("type".to_owned(), json!(matching));
    Ok(made.into())
}

fn fields<'value>(name: &'value str, value: &'value Value) -> Result<Fields<'value>, PolicyError> {
    let map = value.as_object().ok_or_else(|| PolicyError::Requirement {
        scope: name.to_owned(),
        message: format!("`{name}` is not an object"),
    })?;
    Ok(Fields::new(name, map))
}

fn object<'fields>(fields: &mut Fields<'fields>, name: &str) -> Result<Fields<'fields>, PolicyError> {
    let found = fields.object(name)?;
    found.ok_or_else(|| fields.wrong(format!("`{name}` is missing")))
}

/// Moves a text that must be there.
fn needed(
    from: &mut Fields<'_>,
    name: &str,
    to: &mut Map<String, Value>,
    new: &str,
) -> Result<(), PolicyError> {
    to.insert(new.to_owned(), json!(from.needed(name)?));
    Ok(())
}

/// Moves a text if it is there.
fn given(
    from: &mut Fields<'_>,
    name: &str,
    to: &mut Map<String, Value>,
    new: &str,
) -> Result<(), PolicyError> {
    if let Some(text) = from.text(name)? {
        to.insert(new.to_owned(), json!(text));
    }
    Ok(())
}
