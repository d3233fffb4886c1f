//! Reading `policy.json`. An unknown field or type is an error: it might be the one that rejects an image.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use olm_signature::{
    Attestation, Authority, Identities, JsonError, Pattern, Pki, PublicKey, Shape, Subject, Trust,
    WHOLE_DOCUMENT, check_names, read_json,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DEFAULT, FILES, Identity, Policy, Requirement, Signed, is_scope, numbered};
use crate::reference::{Reference, usual_spelling};

/// The most bytes of a policy.
const POLICY_BYTES: usize = 4 << 20;

/// Error of a policy. Nothing is fetched then.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is no JSON, or not of the form that it should have.
    #[error("{0}")]
    Syntax(String),
    /// A requirement is not one.
    #[error("{place}: {message}")]
    Requirement {
        /// The part of the policy that has it, such as `scope default`.
        place: String,
        /// The reason.
        message: String,
    },
    /// A file with a key or a certificate cannot be read.
    #[error("{place}: cannot read `{path}`")]
    Key {
        /// The part of the policy that names it.
        place: String,
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl PolicyError {
    /// The fault of rules that come without files.
    pub(super) fn into_message(self) -> String {
        match self {
            Self::Syntax(message) | Self::Requirement { message, .. } => message,
            Self::Key { path, .. } => {
                format!("`{path}` would be a file of the manager; give its content in the field `…Data`")
            }
        }
    }
}

/// A list of requirements.
const LIST: Shape = Shape::List(&Shape::Map(&Shape::Any));
/// A policy.
const DOCUMENT: Shape = Shape::Object(&[("default", LIST), ("transports", Shape::Map(&Shape::Map(&LIST)))]);
/// A list for messages.
const EXAMPLE: &str = r#"[{"type": "sigstoreSigned", "keyData": "BASE64 OF key.pub"}]"#;

#[derive(Deserialize)]
struct Document {
    default: Vec<Map<String, Value>>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Map<String, Value>>>>,
}

type ReadKey<'read> = &'read dyn Fn(&str) -> io::Result<Vec<u8>>;

/// The rules for whatever they are set on; files are not read.
pub(super) fn rules(origin: &str, text: &str) -> Result<Policy, PolicyError> {
    within_bytes(text)?;
    let value = read_json(text, &LIST).map_err(|fault| {
        let is_no_list = match &fault {
            JsonError::Syntax(_) => true,
            JsonError::Kind { place, .. } => place == WHOLE_DOCUMENT,
            JsonError::Twice(_) | JsonError::Unknown { .. } => false,
        };
        PolicyError::Syntax(if is_no_list {
            format!("{fault}; write a list of requirements, such as {EXAMPLE}")
        } else {
            fault.to_string()
        })
    })?;
    let list: Vec<Map<String, Value>> = from_value(value)?;
    let requirements = requirements(origin, &list, &no_files)?;
    Ok(Policy {
        default_scope: None,
        default: numbered(origin, requirements),
        registries: BTreeMap::new(),
    })
}

/// The reader of files for rules that must not name any.
pub(super) fn no_files(_: &str) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

fn read<T: DeserializeOwned>(text: &str, shape: &Shape) -> Result<T, PolicyError> {
    within_bytes(text)?;
    from_value(read_json(text, shape).map_err(|fault| PolicyError::Syntax(fault.to_string()))?)
}

fn within_bytes(text: &str) -> Result<(), PolicyError> {
    if text.len() > POLICY_BYTES {
        return Err(PolicyError::Syntax(format!(
            "it is larger than {POLICY_BYTES} bytes"
        )));
    }
    Ok(())
}

fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, PolicyError> {
    serde_json::from_value(value).map_err(|fault| PolicyError::Syntax(fault.to_string()))
}

/// The names of transports, ways to get an image.
const TRANSPORTS: [&str; 11] = [
    "atomic",
    "containers-storage",
    "dir",
    "docker",
    "docker-archive",
    "docker-daemon",
    "oci",
    "oci-archive",
    "ostree",
    "sif",
    "tarball",
];

pub(super) fn policy(text: &str, key: ReadKey<'_>) -> Result<Policy, PolicyError> {
    let mut document: Document = read(text, &DOCUMENT)?;
    // A misspelt name would leave the images of registries to the default.
    if let Some(unknown) = document
        .transports
        .keys()
        .find(|name| !TRANSPORTS.contains(&name.as_str()))
    {
        return Err(PolicyError::Syntax(format!(
            "unknown transport {unknown:?}; that of registries is \"docker\""
        )));
    }
    // Other transports are other ways to get an image, none of which is gone here.
    let registries = document.transports.remove("docker").unwrap_or_default();
    let mut scopes = BTreeMap::new();
    for (scope, list) in registries {
        let place = format!("scope {scope:?}");
        let spelled = usual_spelling(&scope);
        if !scope.is_empty() && !is_scope(&scope) {
            return Err(PolicyError::Requirement {
                place,
                message: "no image is in it; name a host, HOST/PATH, an image or *.DOMAIN".to_owned(),
            });
        }
        let entries = numbered(FILES, requirements(&place, &list, key)?);
        if scopes.insert(spelled, entries).is_some() {
            return Err(PolicyError::Requirement {
                place,
                message: "another scope is the same registry in another spelling".to_owned(),
            });
        }
    }
    Ok(Policy {
        default_scope: Some(DEFAULT),
        default: numbered(FILES, requirements("scope default", &document.default, key)?),
        registries: scopes,
    })
}

fn requirements(
    place: &str,
    list: &[Map<String, Value>],
    key: ReadKey<'_>,
) -> Result<Vec<Requirement>, PolicyError> {
    if list.is_empty() {
        return Err(PolicyError::Requirement {
            place: place.to_owned(),
            message: "the list of requirements is empty".to_owned(),
        });
    }
    list.iter()
        .map(|fields| requirement(place, fields, key))
        .collect()
}

/// The fields of one object.
pub(super) struct Fields<'fields> {
    /// The part of the policy that has it, for messages.
    place: &'fields str,
    object: &'fields Map<String, Value>,
}

impl<'fields> Fields<'fields> {
    pub(super) const fn new(place: &'fields str, object: &'fields Map<String, Value>) -> Self {
        Self { place, object }
    }

    /// Checks that there are no other fields than these. To be called first: a misspelt field is the cause of the
    /// missing one that it was meant to be.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), PolicyError> {
        check_names(self.object, known).map_err(|fault| self.wrong(fault.to_string()))
    }

    pub(super) fn wrong(&self, message: impl Into<String>) -> PolicyError {
        PolicyError::Requirement {
            place: self.place.to_owned(),
            message: message.into(),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'fields str>, PolicyError> {
        match self.object.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(format!("`{name}` is not a string"))),
        }
    }

    pub(super) fn needed(&self, name: &str) -> Result<&'fields str, PolicyError> {
        self.text(name)?
            .ok_or_else(|| self.wrong(format!("`{name}` is missing")))
    }

    pub(super) fn texts(&self, name: &str) -> Result<Vec<&'fields str>, PolicyError> {
        let Some(value) = self.object.get(name) else {
            return Ok(Vec::new());
        };
        let list = value.as_array().filter(|list| !list.is_empty());
        list.and_then(|list| list.iter().map(Value::as_str).collect())
            .ok_or_else(|| self.wrong(format!("`{name}` is not a list of strings")))
    }

    /// An object that must have no other fields than these.
    pub(super) fn object(&self, name: &str, known: &[&str]) -> Result<Option<Self>, PolicyError> {
        match self.object.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => {
                let fields = Self::new(self.place, map);
                fields.only(known).map(|()| Some(fields))
            }
            Some(_) => Err(self.wrong(format!("`{name}` is not an object"))),
        }
    }

    /// A value `NAME` or a pattern `NAMERegExp`.
    fn pattern(&self, name: &str) -> Result<Pattern, PolicyError> {
        let by_pattern = format!("{name}RegExp");
        match (self.text(name)?, self.text(&by_pattern)?) {
            (Some(text), None) => Ok(Pattern::Exact(text.to_owned())),
            (None, Some(text)) => {
                Pattern::matching(text).map_err(|message| self.wrong(format!("`{by_pattern}`: {message}")))
            }
            _ => Err(self.wrong(format!("an identity needs one of `{name}` and `{by_pattern}`"))),
        }
    }

    /// Content of the file `NAMEPath` or of the base64 text `NAMEData`, after its source for messages.
    fn content(&self, name: &str, read: ReadKey<'_>) -> Result<Option<(String, Vec<u8>)>, PolicyError> {
        let (path, data) = (format!("{name}Path"), format!("{name}Data"));
        match (self.text(&path)?, self.text(&data)?) {
            (None, None) => Ok(None),
            (Some(file), None) => Ok(Some((format!("`{file}`"), self.file(file, read)?))),
            (None, Some(text)) => Ok(Some((format!("`{data}`"), self.decoded(&data, text)?))),
            (Some(_), Some(_)) => Err(self.wrong(format!("only one of `{path}` and `{data}` may be set"))),
        }
    }

    /// The public keys of `NAMEPath`, `NAMEPaths`, `NAMEData` and `NAMEDatas`.
    fn keys(&self, name: &str, read: ReadKey<'_>) -> Result<Vec<PublicKey>, PolicyError> {
        let data = format!("{name}Data");
        let mut paths = self.texts(&format!("{name}Paths"))?;
        paths.extend(self.text(&format!("{name}Path"))?);
        let mut datas = self.texts(&format!("{data}s"))?;
        datas.extend(self.text(&data)?);
        let mut keys = Vec::new();
        for path in paths {
            let text = self.file(path, read)?;
            let found = PublicKey::parse_pem(&text);
            keys.extend(found.map_err(|message| self.wrong(format!("key `{path}`: {message}")))?);
        }
        for text in datas {
            let text = self.decoded(&data, text)?;
            let found = PublicKey::parse_pem(&text);
            keys.extend(found.map_err(|message| self.wrong(format!("`{data}`: {message}")))?);
        }
        Ok(keys)
    }

    fn file(&self, path: &str, read: ReadKey<'_>) -> Result<Vec<u8>, PolicyError> {
        read(path).map_err(|source| PolicyError::Key {
            place: self.place.to_owned(),
            path: path.to_owned(),
            source,
        })
    }

    fn decoded(&self, name: &str, text: &str) -> Result<Vec<u8>, PolicyError> {
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| self.wrong(format!("`{name}` is not base64")))
    }
}

/// The fields that say who must have signed.
const SIGNERS: &[&str] = &[
    "fulcio",
    "identities",
    "keyData",
    "keyDatas",
    "keyPath",
    "keyPaths",
    "pki",
    "rekorPublicKeyData",
    "rekorPublicKeyDatas",
    "rekorPublicKeyPath",
    "rekorPublicKeyPaths",
    "trustedRootData",
    "trustedRootPath",
];
const SIGNED: &[&str] = &["type", "signedIdentity"];
const ATTESTED: &[&str] = &["type", "predicateType", "condition"];

/// One requirement of this place in a policy.
pub(super) fn requirement(
    place: &str,
    object: &Map<String, Value>,
    key: ReadKey<'_>,
) -> Result<Requirement, PolicyError> {
    let fields = Fields::new(place, object);
    let only = |known: &[&[&str]]| fields.only(&known.concat());
    match fields.text("type")? {
        Some("insecureAcceptAnything") => only(&[&["type"]]).map(|()| Requirement::Accept),
        Some("reject") => only(&[&["type"]]).map(|()| Requirement::Reject),
        // Refused when an image needs it, so that its fields do not matter.
        Some("signedBy") => Ok(Requirement::SignedBy),
        Some("sigstoreSigned") => {
            only(&[SIGNED, SIGNERS])?;
            Ok(Requirement::Signed(Arc::new(signed(&fields, key)?)))
        }
        Some("sigstoreAttested") => {
            only(&[ATTESTED, SIGNERS])?;
            Ok(Requirement::Signed(Arc::new(attested(&fields, key)?)))
        }
        Some(other) => Err(fields.wrong(format!("unknown type {other:?}"))),
        None => {
            only(&[SIGNED, ATTESTED, SIGNERS])?;
            Err(fields.wrong("`type` is missing"))
        }
    }
}

fn signed(fields: &Fields<'_>, read: ReadKey<'_>) -> Result<Signed, PolicyError> {
    let authority = authority(fields, read)?;
    let identity = match fields.object.get("signedIdentity") {
        None => Identity::RepositoryOrExact,
        Some(Value::Object(map)) => identity(fields.place, map)?,
        Some(_) => return Err(fields.wrong("`signedIdentity` is not an object")),
    };
    Ok(Signed {
        authority,
        attestation: None,
        identity,
    })
}

/// An attestation. It is about a digest; the name in it does not count.
fn attested(fields: &Fields<'_>, read: ReadKey<'_>) -> Result<Signed, PolicyError> {
    let predicate_type = fields.needed("predicateType")?;
    let condition = fields.text("condition")?;
    let attestation = Attestation::new(predicate_type, condition);
    Ok(Signed {
        authority: authority(fields, read)?,
        attestation: Some(attestation.map_err(|message| fields.wrong(message))?),
        identity: Identity::Digest,
    })
}

const FULCIO: &[&str] = &["caData", "caPath", "oidcIssuer", "subjectEmail"];
const PKI: &[&str] = &[
    "caIntermediatesData",
    "caIntermediatesPath",
    "caRootsData",
    "caRootsPath",
    "subjectEmail",
    "subjectHostname",
];

/// The trusted signers: exactly one of keys, `fulcio`, `pki`, and a trust root with identities.
fn authority(fields: &Fields<'_>, read: ReadKey<'_>) -> Result<Authority, PolicyError> {
    let keys = fields.keys("key", read)?;
    let logs = fields.keys("rekorPublicKey", read)?;
    let root = match fields.content("trustedRoot", read)? {
        Some((name, text)) => {
            let trust = Trust::parse(&text);
            Some(trust.map_err(|message| fields.wrong(format!("{name}: {message}")))?)
        }
        None => None,
    };
    let fulcio = fields.object("fulcio", FULCIO)?;
    let pki = fields.object("pki", PKI)?;
    let identities = fields.object.get("identities");
    if root.is_some() && !logs.is_empty() {
        return Err(fields.wrong("a `trustedRoot…` already names the logs; remove `rekorPublicKey…`"));
    }
    match (keys.is_empty(), fulcio, pki, identities) {
        (false, None, None, None) => Ok(Authority::Keys {
            keys,
            log: match root {
                Some(root) if root.has_logs() => Some(root),
                Some(_) => {
                    return Err(fields.wrong(
                        "the trust root names no transparency log, and a key needs nothing else of it",
                    ));
                }
                None if logs.is_empty() => None,
                None => Some(Trust::logs(&logs).map_err(|message| fields.wrong(message))?),
            },
        }),
        (true, Some(fulcio), None, None) if root.is_none() => certificates(&fulcio, &logs, read),
        (true, None, Some(pki), None) if root.is_none() => own_authority(&pki, &logs, read),
        (true, None, None, Some(list)) => {
            let trust = root
                .ok_or_else(|| fields.wrong("`identities` needs `trustedRootPath` or `trustedRootData`"))?;
            let identities = identities_of(fields.place, list)?;
            Ok(Authority::Certificate { trust, identities })
        }
        (true, None, None, None) => {
            Err(fields.wrong("the requirement names no key, no `fulcio`, no `pki` and no `identities`"))
        }
        _ => Err(fields.wrong("only one of keys, `fulcio`, `pki` and `identities` may be set")),
    }
}

/// `fulcio`: a certificate authority for identities, and the logs that prove when a certificate was used.
fn certificates(
    fields: &Fields<'_>,
    logs: &[PublicKey],
    read: ReadKey<'_>,
) -> Result<Authority, PolicyError> {
    if logs.is_empty() {
        return Err(fields.wrong("`fulcio` needs `rekorPublicKeyPath` or `rekorPublicKeyData`"));
    }
    let (name, text) = fields
        .content("ca", read)?
        .ok_or_else(|| fields.wrong("`fulcio` names neither `caPath` nor `caData`"))?;
    let trust = Trust::of(&text, logs).map_err(|message| fields.wrong(format!("{name}: {message}")))?;
    let identity = olm_signature::Identity {
        subject: Pattern::Exact(fields.needed("subjectEmail")?.to_owned()),
        issuer: Pattern::Exact(fields.needed("oidcIssuer")?.to_owned()),
        email: true,
    };
    Ok(Authority::Certificate {
        trust,
        identities: Identities(vec![identity]),
    })
}

/// `pki`: an authority of one's own.
fn own_authority(
    fields: &Fields<'_>,
    logs: &[PublicKey],
    read: ReadKey<'_>,
) -> Result<Authority, PolicyError> {
    let (name, roots) = fields
        .content("caRoots", read)?
        .ok_or_else(|| fields.wrong("`pki` names neither `caRootsPath` nor `caRootsData`"))?;
    let between = fields.content("caIntermediates", read)?.map(|(_, text)| text);
    let subject = Subject {
        email: fields.text("subjectEmail")?.map(str::to_owned),
        hostname: fields.text("subjectHostname")?.map(str::to_owned),
    };
    Pki::new(&roots, between.as_deref(), subject, logs)
        .map(Authority::Pki)
        .map_err(|message| fields.wrong(format!("`pki`, {name}: {message}")))
}

/// `identities`: subjects and issuers, each by its value or by a pattern.
fn identities_of(place: &str, list: &Value) -> Result<Identities, PolicyError> {
    let wrong = |message: &str| PolicyError::Requirement {
        place: place.to_owned(),
        message: message.to_owned(),
    };
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| wrong("`identities` is not a list of identities"))?;
    let one = |value: &Value| {
        let map = value
            .as_object()
            .ok_or_else(|| wrong("an identity is not an object"))?;
        let known = ["issuer", "issuerRegExp", "subject", "subjectRegExp"];
        let fields = Fields::new(place, map);
        fields.only(&known)?;
        Ok(olm_signature::Identity {
            subject: fields.pattern("subject")?,
            issuer: fields.pattern("issuer")?,
            email: false,
        })
    };
    list.iter().map(one).collect::<Result<_, _>>().map(Identities)
}

fn identity(place: &str, object: &Map<String, Value>) -> Result<Identity, PolicyError> {
    const REFERENCE: &str = "dockerReference";
    const REPOSITORY: &str = "dockerRepository";
    const PREFIX: &str = "prefix";
    const SIGNED_PREFIX: &str = "signedPrefix";
    let fields = Fields::new(place, object);
    let kind = fields.text("type")?;
    let known: &[&str] = match kind {
        Some("exactReference") => &["type", REFERENCE],
        Some("exactRepository") => &["type", REPOSITORY],
        Some("remapIdentity") => &["type", PREFIX, SIGNED_PREFIX],
        Some("matchExact" | "matchRepoDigestOrExact" | "matchRepository" | "matchDigest") => &["type"],
        // An unknown type is the cause of fields that do not belong to it.
        Some(_) | None => &["type", REFERENCE, REPOSITORY, PREFIX, SIGNED_PREFIX],
    };
    fields.only(known)?;
    let reference = |text: &str| {
        Reference::parse_familiar(text).map_err(|error| fields.wrong(format!("{text:?}: {error}")))
    };
    Ok(match kind {
        Some("matchExact") => Identity::Exact,
        Some("matchRepoDigestOrExact") => Identity::RepositoryOrExact,
        Some("matchRepository") => Identity::Repository,
        Some("exactReference") => {
            let text = fields.needed(REFERENCE)?;
            let exact = reference(text)?;
            if exact.tag().is_none() && exact.digest().is_none() {
                return Err(fields.wrong(format!("{text:?} has neither a tag nor a digest")));
            }
            Identity::ExactReference(exact)
        }
        Some("exactRepository") => Identity::ExactRepository(reference(fields.needed(REPOSITORY)?)?.name()),
        Some("matchDigest") => Identity::Digest,
        Some("remapIdentity") => Identity::Remap {
            prefix: fields.needed(PREFIX)?.to_owned(),
            signed_prefix: fields.needed(SIGNED_PREFIX)?.to_owned(),
        },
        Some(other) => return Err(fields.wrong(format!("unknown identity {other:?}"))),
        None => return Err(fields.wrong("`signedIdentity` has no `type`")),
    })
}
