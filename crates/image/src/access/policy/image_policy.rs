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

/// The policies of the objects: one of all with scopes, in which the most specific scope decides, and one that refuses
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
        let entry = Entry::only(&origin, requirement);
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
    Policy::of_entry(origin, Requirement::Unusable(why.to_owned()))
}

/// The scopes of an object. One that could never match is a fault: the images that it means would pass.
fn scopes(spec: &Value) -> Result<Vec<&str>, PolicyError> {
    let fields = fields("spec", spec)?;
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
    let spec = fields("spec", spec)?;
    spec.only(&["scopes", "policy"])?;
    let policy = object(&spec, "policy", &["rootOfTrust", "signedIdentity"])?;
    let mut made = Map::from_iter([("type".to_owned(), json!("sigstoreSigned"))]);
    let [key, fulcio, pki] = ROOTS;
    let root = object(&policy, "rootOfTrust", &["policyType", key, fulcio, pki])?;
    root_of_trust(&root, &mut made)?;
    let identities = ["matchPolicy", "exactRepository", "remapIdentity"];
    if let Some(identity) = policy.object("signedIdentity", &identities)? {
        made.insert("signedIdentity".to_owned(), signed_identity(&identity)?);
    }
    parse::requirement("policy", &made, &parse::no_files)
}

/// The fields of a root of trust, one for each type.
const ROOTS: [&str; 3] = ["publicKey", "fulcioCAWithRekor", "pki"];

fn root_of_trust(root: &Fields<'_>, made: &mut Map<String, Value>) -> Result<(), PolicyError> {
    let [key, fulcio, pki] = ROOTS;
    let of_type = |field: &'static str, known: &[&str]| {
        let found = object(root, field, known)?;
        root.only(&["policyType", field])?;
        Ok(found)
    };
    match root.needed("policyType")? {
        "PublicKey" => {
            let key = of_type(key, &["keyData", "rekorKeyData"])?;
            needed(&key, "keyData", made, "keyData")?;
            given(&key, "rekorKeyData", made, "rekorPublicKeyData")?;
        }
        "FulcioCAWithRekor" => {
            let authority = of_type(fulcio, &["fulcioCAData", "fulcioSubject", "rekorKeyData"])?;
            let subject = object(&authority, "fulcioSubject", &["oidcIssuer", "signedEmail"])?;
            let mut fulcio = Map::new();
            needed(&authority, "fulcioCAData", &mut fulcio, "caData")?;
            needed(&subject, "oidcIssuer", &mut fulcio, "oidcIssuer")?;
            needed(&subject, "signedEmail", &mut fulcio, "subjectEmail")?;
            made.insert("fulcio".to_owned(), fulcio.into());
            needed(&authority, "rekorKeyData", made, "rekorPublicKeyData")?;
        }
        "PKI" => {
            let between = "caIntermediatesData";
            let authority = of_type(pki, &["caRootsData", between, "pkiCertificateSubject"])?;
            let subject = object(&authority, "pkiCertificateSubject", &["email", "hostname"])?;
            let mut pki = Map::new();
            needed(&authority, "caRootsData", &mut pki, "caRootsData")?;
            given(&authority, between, &mut pki, between)?;
            given(&subject, "email", &mut pki, "subjectEmail")?;
            given(&subject, "hostname", &mut pki, "subjectHostname")?;
            made.insert("pki".to_owned(), pki.into());
        }
        other => return Err(root.wrong(format!("unknown `policyType` {other:?}"))),
    }
    Ok(())
}

fn signed_identity(identity: &Fields<'_>) -> Result<Value, PolicyError> {
    let mut made = Map::new();
    let of_rule = |field: &'static str, known: &[&str]| {
        let found = object(identity, field, known)?;
        identity.only(&["matchPolicy", field])?;
        Ok(found)
    };
    let matching = match identity.text("matchPolicy")?.unwrap_or("MatchRepoDigestOrExact") {
        "MatchRepoDigestOrExact" => identity
            .only(&["matchPolicy"])
            .map(|()| "matchRepoDigestOrExact")?,
        "MatchRepository" => identity.only(&["matchPolicy"]).map(|()| "matchRepository")?,
        "ExactRepository" => {
            let exact = of_rule("exactRepository", &["repository"])?;
            needed(&exact, "repository", &mut made, "dockerRepository")?;
            "exactRepository"
        }
        "RemapIdentity" => {
            let remap = of_rule("remapIdentity", &["prefix", "signedPrefix"])?;
            needed(&remap, "prefix", &mut made, "prefix")?;
            needed(&remap, "signedPrefix", &mut made, "signedPrefix")?;
            "remapIdentity"
        }
        other => return Err(identity.wrong(format!("unknown `matchPolicy` {other:?}"))),
    };
    made.insert("type".to_owned(), json!(matching));
    Ok(made.into())
}

fn fields<'value>(name: &'value str, value: &'value Value) -> Result<Fields<'value>, PolicyError> {
    let map = value.as_object().ok_or_else(|| PolicyError::Requirement {
        place: name.to_owned(),
        message: format!("`{name}` is not an object"),
    })?;
    Ok(Fields::new(name, map))
}

/// An object that must be there, with no other fields than these.
fn object<'fields>(
    fields: &Fields<'fields>,
    name: &str,
    known: &[&str],
) -> Result<Fields<'fields>, PolicyError> {
    let found = fields.object(name, known)?;
    found.ok_or_else(|| fields.wrong(format!("`{name}` is missing")))
}

/// Moves a text that must be there.
fn needed(from: &Fields<'_>, name: &str, to: &mut Map<String, Value>, new: &str) -> Result<(), PolicyError> {
    to.insert(new.to_owned(), json!(from.needed(name)?));
    Ok(())
}

/// Moves a text if it is there.
fn given(from: &Fields<'_>, name: &str, to: &mut Map<String, Value>, new: &str) -> Result<(), PolicyError> {
    if let Some(text) = from.text(name)? {
        to.insert(new.to_owned(), json!(text));
    }
    Ok(())
}
