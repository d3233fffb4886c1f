//! Reading `policy.json`. An unknown field or type is an error: it might be the one that rejects an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use olm_signature::{Attestation, Authority, Identities, Pattern, Pki, PublicKey, Subject, Trust};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{DEFAULT, FILES, Identity, Policy, Requirement, Signed, is_scope, numbered};
use crate::reference::{Reference, usual_spelling};

/// The most bytes of a policy.
const POLICY_BYTES: usize = 4 << 20;

/// Error of a policy. Nothing is fetched then.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is no JSON, or not of the form that it should have.
    #[error("the signature policy cannot be read: {0}")]
    Syntax(String),
    /// A requirement is not one.
    #[error("signature policy, scope {scope}: {message}")]
    Requirement {
        /// The entry of the policy.
        scope: String,
        /// The reason.
        message: String,
    },
    /// A file with a key or a certificate cannot be read.
    #[error("signature policy, scope {scope}: cannot read `{path}`")]
    Key {
        /// The entry of the policy.
        scope: String,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    default: Vec<Map<String, Value>>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Map<String, Value>>>>,
}

type ReadKey<'read> = &'read dyn Fn(&str) -> io::Result<Vec<u8>>;

/// The rules for whatever they are set on; files are not read.
pub(super) fn rules(origin: &str, text: &str) -> Result<Policy, PolicyError> {
    let list: Vec<Map<String, Value>> = read(text)?;
    let requirements = requirements(origin, &list, &no_files)?;
    Ok(Policy {
        default_scope: None,
        default: numbered(origin, requirements),
        registries: BTreeMap::new(),
    })
}

/// One requirement; files are not read.
pub(super) fn one(origin: &str, fields: &Map<String, Value>) -> Result<Requirement, PolicyError> {
    requirement(origin, fields, &no_files)
}

fn no_files(_: &str) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

fn read<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, PolicyError> {
    if text.len() > POLICY_BYTES {
        return Err(PolicyError::Syntax(format!(
            "it is larger than {POLICY_BYTES} bytes"
        )));
    }
    let wrong = |error: serde_json::Error| PolicyError::Syntax(error.to_string());
    let UniqueNames = serde_json::from_str(text).map_err(wrong)?;
    serde_json::from_str(text).map_err(wrong)
}

/// Any JSON in which no object has a name twice: of two lists for one scope, the one that counts may be the lax one.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueNames {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, Self)) = map.next_entry::<String, Self>()? {
            if let Some(name) = names.replace(name) {
                return Err(A::Error::custom(format!("`{name}` occurs twice in one object")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }
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
    let mut document: Document = read(text)?;
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
        let shown = format!("{scope:?}");
        let spelled = usual_spelling(&scope);
        if !scope.is_empty() && !is_scope(&scope) {
            return Err(PolicyError::Requirement {
                scope: shown,
                message: "no image is in it; name a host, HOST/PATH, an image or *.DOMAIN".to_owned(),
            });
        }
        let entries = numbered(FILES, requirements(&shown, &list, key)?);
        if scopes.insert(spelled, entries).is_some() {
            return Err(PolicyError::Requirement {
                scope: shown,
                message: "another scope is the same registry in another spelling".to_owned(),
            });
        }
    }
    Ok(Policy {
        default_scope: Some(DEFAULT),
        default: numbered(FILES, requirements(DEFAULT, &document.default, key)?),
        registries: scopes,
    })
}

fn requirements(
    scope: &str,
    list: &[Map<String, Value>],
    key: ReadKey<'_>,
) -> Result<Vec<Requirement>, PolicyError> {
    if list.is_empty() {
        return Err(PolicyError::Requirement {
            scope: scope.to_owned(),
            message: "the list of requirements is empty".to_owned(),
        });
    }
    list.iter()
        .map(|fields| requirement(scope, fields, key))
        .collect()
}

/// The fields of one object, taken one by one; the rest is unknown.
pub(super) struct Fields<'fields> {
    scope: &'fields str,
    pub(super) left: BTreeMap<&'fields str, &'fields Value>,
}

impl<'fields> Fields<'fields> {
    pub(super) fn new(scope: &'fields str, fields: &'fields Map<String, Value>) -> Self {
        Self {
            scope,
            left: fields
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
        }
    }

    pub(super) fn wrong(&self, message: impl Into<String>) -> PolicyError {
        PolicyError::Requirement {
            scope: self.scope.to_owned(),
            message: message.into(),
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<&'fields str>, PolicyError> {
        match self.left.remove(name) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(format!("`{name}` is not a string"))),
        }
    }

    pub(super) fn needed(&mut self, name: &str) -> Result<&'fields str, PolicyError> {
        self.text(name)?
            .ok_or_else(|| self.wrong(format!("`{name}` is missing")))
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<&'fields str>, PolicyError> {
        let Some(value) = self.left.remove(name) else {
            return Ok(Vec::new());
        };
        let list = value.as_array().filter(|list| !list.is_empty());
        list.and_then(|list| list.iter().map(Value::as_str).collect())
            .ok_or_else(|| self.wrong(format!("`{name}` is not a list of strings")))
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Self>, PolicyError> {
        match self.left.remove(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self::new(self.scope, map))),
            Some(_) => Err(self.wrong(format!("`{name}` is not an object"))),
        }
    }

    /// A value `NAME` or a pattern `NAMERegExp`.
    fn pattern(&mut self, name: &str) -> Result<Pattern, PolicyError> {
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
    fn content(&mut self, name: &str, read: ReadKey<'_>) -> Result<Option<(String, Vec<u8>)>, PolicyError> {
        let (path, data) = (format!("{name}Path"), format!("{name}Data"));
        match (self.text(&path)?, self.text(&data)?) {
            (None, None) => Ok(None),
            (Some(file), None) => Ok(Some((format!("`{file}`"), self.file(file, read)?))),
            (None, Some(text)) => Ok(Some((format!("`{data}`"), self.decoded(&data, text)?))),
            (Some(_), Some(_)) => Err(self.wrong(format!("only one of `{path}` and `{data}` may be set"))),
        }
    }

    /// The public keys of `NAMEPath`, `NAMEPaths`, `NAMEData` and `NAMEDatas`.
    fn keys(&mut self, name: &str, read: ReadKey<'_>) -> Result<Vec<PublicKey>, PolicyError> {
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
            scope: self.scope.to_owned(),
            path: path.to_owned(),
            source,
        })
    }

    fn decoded(&self, name: &str, text: &str) -> Result<Vec<u8>, PolicyError> {
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| self.wrong(format!("`{name}` is not base64")))
    }

    pub(super) fn end(&self) -> Result<(), PolicyError> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => Err(self.wrong(format!("unknown field `{name}`"))),
        }
    }
}

fn requirement(
    scope: &str,
    fields: &Map<String, Value>,
    key: ReadKey<'_>,
) -> Result<Requirement, PolicyError> {
    let mut fields = Fields::new(scope, fields);
    let requirement = match fields.needed("type")? {
        "insecureAcceptAnything" => Requirement::Accept,
        "reject" => Requirement::Reject,
        // Refused when an image needs it, so that its fields do not matter.
        "signedBy" => return Ok(Requirement::SignedBy),
        "sigstoreSigned" => Requirement::Signed(Arc::new(signed(&mut fields, key)?)),
        "sigstoreAttested" => Requirement::Signed(Arc::new(attested(&mut fields, key)?)),
        other => return Err(fields.wrong(format!("unknown type {other:?}"))),
    };
    fields.end()?;
    Ok(requirement)
}

fn signed(fields: &mut Fields<'_>, read: ReadKey<'_>) -> Result<Signed, PolicyError> {
    let authority = authority(fields, read)?;
    let identity = match fields.left.remove("signedIdentity") {
        None => Identity::RepositoryOrExact,
        Some(Value::Object(map)) => identity(fields.scope, map)?,
        Some(_) => return Err(fields.wrong("`signedIdentity` is not an object")),
    };
    Ok(Signed {
        authority,
        attestation: None,
        identity,
    })
}

/// An attestation. It is about a digest; the name in it does not count.
fn attested(fields: &mut Fields<'_>, read: ReadKey<'_>) -> Result<Signed, PolicyError> {
    let predicate_type = fields.needed("predicateType")?;
    let condition = fields.text("condition")?;
    let attestation = Attestation::new(predicate_type, condition);
    Ok(Signed {
        authority: authority(fields, read)?,
        attestation: Some(attestation.map_err(|message| fields.wrong(message))?),
        identity: Identity::Digest,
    })
}

/// The trusted signers: exactly one of keys, `fulcio`, `pki`, and a trust root with identities.
fn authority(fields: &mut Fields<'_>, read: ReadKey<'_>) -> Result<Authority, PolicyError> {
    let keys = fields.keys("key", read)?;
    let logs = fields.keys("rekorPublicKey", read)?;
    let root = match fields.content("trustedRoot", read)? {
        Some((name, text)) => {
            let trust = Trust::parse(&text);
            Some(trust.map_err(|message| fields.wrong(format!("{name}: {message}")))?)
        }
        None => None,
    };
    let fulcio = fields.object("fulcio")?;
    let pki = fields.object("pki")?;
    let identities = fields.left.remove("identities");
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
        (true, Some(fulcio), None, None) if root.is_none() => certificates(fulcio, &logs, read),
        (true, None, Some(pki), None) if root.is_none() => own_authority(pki, &logs, read),
        (true, None, None, Some(list)) => {
            let trust = root
                .ok_or_else(|| fields.wrong("`identities` needs `trustedRootPath` or `trustedRootData`"))?;
            let identities = identities_of(fields.scope, list)?;
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
    mut fields: Fields<'_>,
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
    fields.end()?;
    Ok(Authority::Certificate {
        trust,
        identities: Identities(vec![identity]),
    })
}

/// `pki`: an authority of one's own.
fn own_authority(
    mut fields: Fields<'_>,
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
    fields.end()?;
    Pki::new(&roots, between.as_deref(), subject, logs)
        .map(Authority::Pki)
        .map_err(|message| fields.wrong(format!("`pki`, {name}: {message}")))
}

/// `identities`: subjects and issuers, each by its value or by a pattern.
fn identities_of(scope: &str, list: &Value) -> Result<Identities, PolicyError> {
    let wrong = |message: &str| PolicyError::Requirement {
        scope: scope.to_owned(),
        message: message.to_owned(),
    };
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| wrong("`identities` is not a list of identities"))?;
    let one = |value: &Value| {
        let map = value
            .as_object()
            .ok_or_else(|| wrong("an identity is not an object"))?;
        let mut fields = Fields::new(scope, map);
        let identity = olm_signature::Identity {
            subject: fields.pattern("subject")?,
            issuer: fields.pattern("issuer")?,
            email: false,
        };
        fields.end()?;
        Ok(identity)
    };
    list.iter().map(one).collect::<Result<_, _>>().map(Identities)
}

fn identity(scope: &str, map: &Map<String, Value>) -> Result<Identity, PolicyError> {
    let mut fields = Fields::new(scope, map);
    let reference = |text: &str, fields: &Fields<'_>| {
        Reference::parse_familiar(text).map_err(|error| fields.wrong(format!("{text:?}: {error}")))
    };
    let identity = match fields.needed("type")? {
        "matchExact" => Identity::Exact,
        "matchRepoDigestOrExact" => Identity::RepositoryOrExact,
        "matchRepository" => Identity::Repository,
        "exactReference" => {
            let text = fields.needed("dockerReference")?;
            let exact = reference(text, &fields)?;
            if exact.tag().is_none() && exact.digest().is_none() {
                return Err(fields.wrong(format!("{text:?} has neither a tag nor a digest")));
            }
            Identity::ExactReference(exact)
        }
        "exactRepository" => {
            let text = fields.needed("dockerRepository")?;
            Identity::ExactRepository(reference(text, &fields)?.name())
        }
        "matchDigest" => Identity::Digest,
        "remapIdentity" => Identity::Remap {
            prefix: fields.needed("prefix")?.to_owned(),
            signed_prefix: fields.needed("signedPrefix")?.to_owned(),
        },
        other => return Err(fields.wrong(format!("unknown identity {other:?}"))),
    };
    fields.end()?;
    Ok(identity)
}
