//! Registry credentials as pull secrets hold them (`.dockerconfigjson`, `.dockercfg`).
//!
//! Keys may be a host, a host with a path, or one of the historic URL forms. The longest key that is a prefix of
//! `registry/repository`, at a slash, wins; a host may hold `*` for one label.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use serde::Deserialize;

use crate::reference::Reference;

/// A credential for one registry or a part of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// A user name and a password.
    Password {
        /// The user name.
        username: String,
        /// The password.
        password: String,
    },
    /// A refresh token, exchanged for access tokens by the registry's token service.
    IdentityToken(String),
    /// An access token, sent as it is.
    RegistryToken(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets never reach a log.
        formatter.write_str(match self {
            Self::Password { .. } => "Password(…)",
            Self::IdentityToken(_) => "IdentityToken(…)",
            Self::RegistryToken(_) => "RegistryToken(…)",
        })
    }
}

/// Credentials of any number of registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    entries: BTreeMap<String, Credential>,
}

/// Error of a pull secret. Neither variant repeats the secret's text.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The document is not the JSON it should be.
    #[error("not a docker configuration: line {line}, column {column}")]
    Json {
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault, from 1.
        column: usize,
    },
    /// `auth` of one registry is not `base64(user:password)`.
    #[error("`auth` of registry `{registry}` is not base64 of `user:password`")]
    Auth {
        /// The key under `auths`.
        registry: String,
    },
    /// One of several Secrets is at fault.
    #[error("cannot use pull secret {name}")]
    Secret {
        /// `NAMESPACE/NAME`.
        name: String,
        /// The cause.
        source: Box<Self>,
    },
}

impl CredentialsError {
    fn json(error: &serde_json::Error) -> Self {
        Self::Json {
            line: error.line(),
            column: error.column(),
        }
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Credentials {
    /// Reads a `.dockerconfigjson` document.
    pub fn parse_dockerconfigjson(text: &[u8]) -> Result<Self, CredentialsError> {
        let config: DockerConfig =
            serde_json::from_slice(text).map_err(|error| CredentialsError::json(&error))?;
        Self::from_entries(config.auths)
    }

    /// Reads a `.dockercfg` document: the entries without the `auths` around them.
    pub fn parse_dockercfg(text: &[u8]) -> Result<Self, CredentialsError> {
        let entries = serde_json::from_slice(text).map_err(|error| CredentialsError::json(&error))?;
        Self::from_entries(entries)
    }

    /// Reads the data of a pull secret: `.dockerconfigjson` first, else `.dockercfg`, else nothing.
    pub fn parse_secret<'data>(
        data: impl IntoIterator<Item = (&'data str, &'data [u8])>,
    ) -> Result<Self, CredentialsError> {
        let (mut modern, mut historic) = (None, None);
        for (key, value) in data {
            match key {
                ".dockerconfigjson" => modern = Some(value),
                ".dockercfg" => historic = Some(value),
                _ => {}
            }
        }
        match (modern, historic) {
            (Some(text), _) => Self::parse_dockerconfigjson(text),
            (None, Some(text)) => Self::parse_dockercfg(text),
            (None, None) => Ok(Self::default()),
        }
    }

    /// Reads the data of several pull secrets, each with its name for messages; a later one replaces an earlier one for
    /// the same key.
    pub fn from_secrets<'secrets>(
        secrets: impl IntoIterator<Item = (&'secrets str, &'secrets BTreeMap<String, Vec<u8>>)>,
    ) -> Result<Self, CredentialsError> {
        let mut credentials = Self::default();
        for (name, data) in secrets {
            let data = data.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
            let found = Self::parse_secret(data).map_err(|source| CredentialsError::Secret {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
            credentials.merge(found);
        }
        Ok(credentials)
    }

    fn from_entries(entries: BTreeMap<String, Entry>) -> Result<Self, CredentialsError> {
        let mut credentials = Self::default();
        for (registry, entry) in entries {
            if let Some(credential) = read_entry(&registry, entry)? {
                credentials.insert(&registry, credential);
            }
        }
        Ok(credentials)
    }

    /// Sets the credential of a registry or of a path within it.
    pub fn insert(&mut self, key: &str, credential: Credential) {
        self.entries.insert(normalise_key(key), credential);
    }

    /// Adds the entries of `later`, which replace ours of the same key.
    pub fn merge(&mut self, later: Self) {
        self.entries.extend(later.entries);
    }

    /// Whether there is no credential at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The credential for a repository: of the longest key that covers it.
    pub fn lookup(&self, reference: &Reference) -> Option<&Credential> {
        let name = reference.name();
        self.entries
            .iter()
            .filter(|(key, _)| covers(key, &name))
            // Among keys of one length the one without a wildcard is nearer.
            .max_by_key(|(key, _)| (key.len(), !key.contains('*')))
            .map(|(_, credential)| credential)
    }
}

fn read_entry(registry: &str, entry: Entry) -> Result<Option<Credential>, CredentialsError> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    if let Some(token) = filled(entry.identitytoken) {
        return Ok(Some(Credential::IdentityToken(token)));
    }
    if let Some(token) = filled(entry.registrytoken) {
        return Ok(Some(Credential::RegistryToken(token)));
    }
    if let Some(auth) = filled(entry.auth) {
        let wrong = || CredentialsError::Auth {
            registry: registry.to_owned(),
        };
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(auth.trim())
            .map_err(|_| wrong())?;
        let text = String::from_utf8(bytes).map_err(|_| wrong())?;
        let (username, password) = text.split_once(':').ok_or_else(wrong)?;
        return Ok(Some(Credential::Password {
            username: username.to_owned(),
            // Some tools pad the password with NUL bytes.
            password: password.trim_end_matches('\0').to_owned(),
        }));
    }
    Ok(match (filled(entry.username), entry.password) {
        (Some(username), Some(password)) => Some(Credential::Password { username, password }),
        _ => None,
    })
}

/// Brings `https://index.docker.io/v1/` and its like to `registry[/path]`.
fn normalise_key(key: &str) -> String {
    let (is_url, rest) = match key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
    {
        Some(rest) => (true, rest),
        None => (false, key),
    };
    let rest = rest.trim_end_matches('/');
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = if matches!(host, "index.docker.io" | "registry-1.docker.io") {
        "docker.io"
    } else {
        host
    };
    // The API's own prefix is no repository, and only URLs carry it.
    let path = if (is_url || host == "docker.io") && matches!(path, "v1" | "v2") {
        ""
    } else {
        path
    };
    if path.is_empty() {
        host.to_owned()
    } else {
        format!("{host}/{path}")
    }
}

fn covers(key: &str, name: &str) -> bool {
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = name.split_once('/').unwrap_or((name, ""));
    let under = key_path.is_empty()
        || path
            .strip_prefix(key_path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    under && covers_host(key_host, host)
}

fn covers_host(pattern: &str, host: &str) -> bool {
    if !pattern.contains('*') {
        return pattern == host;
    }
    let (mut wanted, mut given) = (pattern.split('.'), host.split('.'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(label), Some(text)) if covers_label(label, text) => {}
            _ => return false,
        }
    }
}

/// One label with at most one `*`, which stands for any text.
fn covers_label(pattern: &str, label: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == label,
        Some((start, end)) => {
            label.len() >= start.len() + end.len() && label.starts_with(start) && label.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(username: &str, password: &str) -> Credential {
        Credential::Password {
            username: username.into(),
            password: password.into(),
        }
    }

    #[test]
    fn every_form_of_an_entry_is_read() {
        let text = br#"{"auths":{
            "a.example":{"auth":"dXNlcjpwYTpzcw==","email":"x"},
            "b.example":{"username":"u","password":"p"},
            "c.example":{"auth":"dXNlcjpwYXNz","identitytoken":"refresh"},
            "d.example":{"registrytoken":"access"},
            "e.example":{}},
            "credsStore":"ignored"}"#;
        let credentials = Credentials::parse_dockerconfigjson(text).unwrap();
        let check = |registry: &str, expected: Option<Credential>| {
            let reference = Reference::parse(&format!("{registry}/x")).unwrap();
            assert_eq!(credentials.lookup(&reference), expected.as_ref(), "{registry}");
        };
        check("a.example", Some(password("user", "pa:ss")));
        check("b.example", Some(password("u", "p")));
        check("c.example", Some(Credential::IdentityToken("refresh".into())));
        check("d.example", Some(Credential::RegistryToken("access".into())));
        check("e.example", None);
        check("f.example", None);
    }

    #[test]
    fn the_longest_covering_key_wins() {
        let mut credentials = Credentials::default();
        for key in [
            "r.example",
            "r.example/team",
            "r.example/team/app",
            "r.example:5000",
            "*.wild.example",
            "x.wild.example",
            "https://index.docker.io/v1/",
        ] {
            credentials.insert(key, password(key, ""));
        }
        let check = |reference: &str, expected: Option<&str>| {
            let reference = Reference::parse_familiar(reference).unwrap();
            let found = credentials.lookup(&reference).map(|credential| match credential {
                Credential::Password { username, .. } => username.as_str(),
                _ => "",
            });
            assert_eq!(found, expected, "{reference}");
        };
        check("r.example/other:v1", Some("r.example"));
        check("r.example/team/x", Some("r.example/team"));
        check("r.example/teammate/x", Some("r.example"));
        check("r.example/team/app", Some("r.example/team/app"));
        check("r.example/team/app/sub", Some("r.example/team/app"));
        check("r.example/team/apple", Some("r.example/team"));
        check("r.example:5000/team/app", Some("r.example:5000"));
        check("r.example:6000/team/app", None);
        check("y.wild.example/a", Some("*.wild.example"));
        check("x.wild.example/a", Some("x.wild.example"));
        check("a.b.wild.example/a", None);
        check("busybox", Some("https://index.docker.io/v1/"));
    }

    #[test]
    fn later_secrets_replace_earlier_ones() {
        let secret = |key: &str, text: &str| BTreeMap::from([(key.to_owned(), text.as_bytes().to_vec())]);
        let earlier = secret(".dockercfg", r#"{"r.example":{"username":"a","password":"1"}}"#);
        let later = secret(
            ".dockerconfigjson",
            r#"{"auths":{"r.example":{"username":"b","password":"2"}}}"#,
        );
        let other = secret("unrelated", "x");
        let credentials =
            Credentials::from_secrets([("a/earlier", &earlier), ("a/later", &later), ("a/other", &other)])
                .unwrap();
        let reference = Reference::parse("r.example/x").unwrap();
        assert_eq!(credentials.lookup(&reference), Some(&password("b", "2")));
        let broken = secret(".dockerconfigjson", "[");
        let error = Credentials::from_secrets([("a/later", &later), ("a/broken", &broken)]).unwrap_err();
        assert_eq!(error.to_string(), "cannot use pull secret a/broken");
    }

    #[test]
    fn faults_are_named_without_the_secret() {
        let check = |text: &str, expected: &str| {
            let error = Credentials::parse_dockerconfigjson(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            r#"{"auths":{"r":{"auth":"%%%"}}}"#,
            "`auth` of registry `r` is not base64 of `user:password`",
        );
        check(
            r#"{"auths":{"r":{"auth":"bm9jb2xvbg=="}}}"#,
            "`auth` of registry `r` is not base64 of `user:password`",
        );
        check(
            "{\n\"auths\": 3}",
            "not a docker configuration: line 2, column 10",
        );
        assert_eq!(format!("{:?}", password("user", "secret")), "Password(…)");
    }
}
