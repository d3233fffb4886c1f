//! Reading `policy.json`. An unknown field or type is an error: it might be what keeps an image out.

use std::collections::BTreeMap;
use std::io;

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::signature::PublicKey;
use super::{Identity, Policy, Requirement, Signed};
use crate::reference::Reference;

/// The most bytes of a policy.
const POLICY_BYTES: usize = 4 << 20;

/// Why a policy cannot be used. Nothing is fetched then.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is no JSON, or not of the form that it should have.
    #[error("the signature policy cannot be read: {0}")]
    Syntax(String),
    /// A requirement is not one.
    #[error("signature policy, scope {scope}: {message}")]
    Requirement {
        /// Which entry.
        scope: String,
        /// What is wrong.
        message: String,
    },
    /// A file with a key cannot be read.
    #[error("signature policy, scope {scope}: cannot read key `{path}`")]
    Key {
        /// Which entry.
        scope: String,
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    default: Vec<Map<String, Value>>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Map<String, Value>>>>,
}

type ReadKey<'read> = &'read dyn Fn(&str) -> io::Result<Vec<u8>>;

pub(super) fn policy(text: &str, key: ReadKey<'_>) -> Result<Policy, PolicyError> {
    if text.len() > POLICY_BYTES {
        return Err(PolicyError::Syntax(format!(
            "it is larger than {POLICY_BYTES} bytes"
        )));
    }
    let mut document: Document =
        serde_json::from_str(text).map_err(|error| PolicyError::Syntax(error.to_string()))?;
    // Other transports are other ways to get an image, none of which is gone here.
    let registries = document.transports.remove("docker").unwrap_or_default();
    Ok(Policy {
        default: requirements("default", &document.default, key)?,
        registries: registries
            .into_iter()
            .map(|(scope, list)| {
                let requirements = requirements(&format!("{scope:?}"), &list, key)?;
                Ok((scope, requirements))
            })
            .collect::<Result<_, PolicyError>>()?,
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
struct Fields<'fields> {
    scope: &'fields str,
    left: BTreeMap<&'fields str, &'fields Value>,
}

impl<'fields> Fields<'fields> {
    fn new(scope: &'fields str, fields: &'fields Map<String, Value>) -> Self {
        Self {
            scope,
            left: fields
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
        }
    }

    fn wrong(&self, message: impl Into<String>) -> PolicyError {
        PolicyError::Requirement {
            scope: self.scope.to_owned(),
            message: message.into(),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<&'fields str>, PolicyError> {
        match self.left.remove(name) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(format!("`{name}` is no text"))),
        }
    }

    fn needed(&mut self, name: &str) -> Result<&'fields str, PolicyError> {
        self.text(name)?
            .ok_or_else(|| self.wrong(format!("`{name}` is missing")))
    }

    fn texts(&mut self, name: &str) -> Result<Vec<&'fields str>, PolicyError> {
        let Some(value) = self.left.remove(name) else {
            return Ok(Vec::new());
        };
        let list = value.as_array().filter(|list| !list.is_empty());
        list.and_then(|list| list.iter().map(Value::as_str).collect())
            .ok_or_else(|| self.wrong(format!("`{name}` is no list of texts")))
    }

    fn end(&self) -> Result<(), PolicyError> {
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
        "sigstoreSigned" => Requirement::Signed(signed(&mut fields, key)?),
        other => return Err(fields.wrong(format!("unknown type {other:?}"))),
    };
    fields.end()?;
    Ok(requirement)
}

fn signed(fields: &mut Fields<'_>, key: ReadKey<'_>) -> Result<Signed, PolicyError> {
    for unsupported in [
        "fulcio",
        "pki",
        "rekorPublicKeyPath",
        "rekorPublicKeyPaths",
        "rekorPublicKeyData",
        "rekorPublicKeyDatas",
    ] {
        if fields.left.contains_key(unsupported) {
            return Err(fields.wrong(format!(
                "`{unsupported}` of `sigstoreSigned` is not supported; signatures are checked by key alone"
            )));
        }
    }
    let mut paths = fields.texts("keyPaths")?;
    paths.extend(fields.text("keyPath")?);
    let mut data = fields.texts("keyDatas")?;
    data.extend(fields.text("keyData")?);
    let mut keys = Vec::new();
    for path in paths {
        let text = key(path).map_err(|source| PolicyError::Key {
            scope: fields.scope.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        keys.extend(
            PublicKey::parse_pem(&text)
                .map_err(|message| fields.wrong(format!("key `{path}`: {message}")))?,
        );
    }
    for data in data {
        let text = base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(|_| fields.wrong("`keyData` is no base64"))?;
        keys.extend(
            PublicKey::parse_pem(&text).map_err(|message| fields.wrong(format!("`keyData`: {message}")))?,
        );
    }
    if keys.is_empty() {
        return Err(fields.wrong("`sigstoreSigned` names no key"));
    }
    let identity = match fields.left.remove("signedIdentity") {
        None => Identity::RepositoryOrExact,
        Some(Value::Object(map)) => identity(fields.scope, map)?,
        Some(_) => return Err(fields.wrong("`signedIdentity` is no object")),
    };
    Ok(Signed { keys, identity })
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
        "remapIdentity" => Identity::Remap {
            prefix: fields.needed("prefix")?.to_owned(),
            signed_prefix: fields.needed("signedPrefix")?.to_owned(),
        },
        other => return Err(fields.wrong(format!("unknown identity {other:?}"))),
    };
    fields.end()?;
    Ok(identity)
}
