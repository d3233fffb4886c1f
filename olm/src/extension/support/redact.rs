//! Removal of credentials from objects and logs. Text that looks like a credential is replaced, even if it is none.

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// The replacement of a credential.
const REDACTED: &str = "REDACTED";

/// Patterns in text, and their replacements.
const PATTERNS: [(&str, &str); 6] = [
    // A private key in PEM, also one whose end is cut off.
    (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
        REDACTED,
    ),
    // A JSON web token.
    (
        r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?",
        REDACTED,
    ),
    // User and password of a URL.
    (r#"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@"']+@"#, "${1}REDACTED@"),
    (r"(?i)\b(bearer\s+)[A-Za-z0-9+/=._~-]{8,}", "${1}REDACTED"),
    (
        r"(?i)\b(authorization\W{1,4}basic\s+)[A-Za-z0-9+/=]+",
        "${1}REDACTED",
    ),
    // The value of an AWS access key, which is recognised without a name.
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", REDACTED),
];

/// Settings in text: `name=value`, `"name":"value"`, `name: value`.
const SETTING: &str = r#"([A-Za-z][A-Za-z0-9_.-]*)(\\?["']?\s?[=:]\s?\\?["']?)([^\s"'\\,;&]+)"#;

/// Words that name credentials.
const WORDS: [&str; 14] = [
    "auth",
    "authorization",
    "credential",
    "credentials",
    "htpasswd",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "pwd",
    "secret",
    "token",
    "tokens",
];
/// Words that name a credential before the word `key`.
const KEYS: [&str; 5] = ["access", "api", "encryption", "private", "signing"];
/// Last words of names that describe a credential or its place, not the credential itself.
const ABOUT: [&str; 23] = [
    "audience",
    "class",
    "dir",
    "enabled",
    "endpoint",
    "file",
    "files",
    "format",
    "host",
    "kind",
    "method",
    "mode",
    "name",
    "names",
    "namespace",
    "path",
    "policy",
    "provider",
    "ref",
    "refs",
    "seconds",
    "type",
    "url",
];
/// The annotation in which kubectl stores the applied object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Takes credentials out.
pub(super) struct Redactor {
    patterns: Vec<(Regex, &'static str)>,
    setting: Regex,
}

impl Redactor {
    pub(super) fn new() -> anyhow::Result<Self> {
        let patterns = PATTERNS
            .iter()
            .map(|(pattern, instead)| Ok((Regex::new(pattern)?, *instead)));
        Ok(Self {
            patterns: patterns.collect::<anyhow::Result<_>>()?,
            setting: Regex::new(SETTING)?,
        })
    }

    /// Text without credentials.
    pub(super) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, instead) in &self.patterns {
            if pattern.is_match(&text) {
                text = pattern.replace_all(&text, *instead).into_owned();
            }
        }
        let setting = |found: &Captures<'_>| -> String {
            let part = |index| found.get(index).map_or("", |part| part.as_str());
            let (name, between, value) = (part(1), part(2), part(3));
            // In prose, a colon may follow any word.
            let is_prose = between.contains(": ") && name.chars().all(|c| c.is_ascii_alphabetic());
            if is_credential(name) && (!is_prose || is_password(name)) {
                format!("{name}{between}{REDACTED}")
            } else {
                format!("{name}{between}{value}")
            }
        };
        self.setting.replace_all(&text, setting).into_owned()
    }

    /// An object without credentials and managed fields. Values are as deep as the reader of JSON allows.
    pub(super) fn object(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.string(text),
            Value::Array(items) => {
                let mut is_next = false;
                for item in items {
                    if std::mem::take(&mut is_next) && item.is_string() {
                        *item = REDACTED.into();
                        continue;
                    }
                    // An option whose value is the next argument.
                    is_next = item.as_str().is_some_and(|text| {
                        text.strip_prefix('-')
                            .is_some_and(|option| !option.contains('=') && is_credential(option))
                    });
                    self.object(item);
                }
            }
            Value::Object(fields) => self.fields(fields),
            _ => {}
        }
    }

    /// A string without credentials; one that is an object in JSON, like the steps of an InstallPlan, as such.
    fn string(&self, text: &str) -> String {
        if text.trim_start().starts_with(['{', '['])
            && let Ok(mut inner) = serde_json::from_str::<Value>(text)
        {
            self.object(&mut inner);
            // Names of fields hold credentials, too: addresses of registries, for example.
            return self.text(&inner.to_string());
        }
        self.text(text)
    }

    fn fields(&self, fields: &mut Map<String, Value>) {
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(LAST_APPLIED);
            }
        }
        if fields.get("kind").and_then(Value::as_str) == Some("Secret") {
            // The last is the whole object, as a step of an InstallPlan has it.
            for part in ["data", "stringData", "manifest"] {
                fields.get_mut(part).into_iter().for_each(hide);
            }
        }
        // An environment variable, or a setting in the same form.
        let is_variable = fields
            .get("name")
            .and_then(Value::as_str)
            .is_some_and(is_credential);
        if let Some(value) = fields.get_mut("value").filter(|_| is_variable) {
            hide(value);
        }
        for (name, value) in fields {
            let is_leaf = !value.is_object() || name.eq_ignore_ascii_case("credentials");
            if is_credential(name) && is_leaf {
                hide(value);
            } else {
                self.object(value);
            }
        }
    }
}

/// Replaces all text and numbers of a value.
fn hide(value: &mut Value) {
    match value {
        Value::String(_) | Value::Number(_) => *value = REDACTED.into(),
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(fields) => fields.values_mut().for_each(hide),
        Value::Null | Value::Bool(_) => {}
    }
}

/// The words of a name: `apiKey`, `API_KEY` and `api-key` have two.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (was_lower && c.is_uppercase());
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a name denotes a credential.
fn is_credential(name: &str) -> bool {
    // If the name has a domain, only the rest counts.
    let own = name.rsplit('/').next().unwrap_or(name);
    let words = words(own);
    if words.last().is_some_and(|last| ABOUT.contains(&last.as_str())) {
        return false;
    }
    let is_named = words
        .iter()
        .any(|word| WORDS.contains(&word.as_str()) || word == "apikey");
    let is_key = words
        .windows(2)
        .any(|pair| matches!(pair, [first, second] if KEYS.contains(&first.as_str()) && second == "key"));
    is_named || is_key
}

/// Whether a word denotes a credential even in prose.
fn is_password(name: &str) -> bool {
    words(name)
        .iter()
        .any(|word| word.starts_with("pass") || word == "pwd")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Redactor, is_credential};

    #[test]
    fn names_of_credentials_are_known_in_every_spelling() {
        for name in [
            "password",
            "DB_PASSWORD",
            "dbPassword",
            "api-key",
            "apiKey",
            "APIKEY",
            "AWS_SECRET_ACCESS_KEY",
            "TOKEN",
            "example.com/registry-token",
            "clientSecret",
            "private_key",
            "secretId",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in [
            "secretName",
            "tokenExpirationSeconds",
            "passive",
            "keys",
            "olm.operatorframework.io/service-account",
            "catalogd-token-file",
            "pull-cas-dir",
            "monkey",
            "author",
            "token.example/owner",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }

    #[test]
    fn the_objects_in_an_install_plan_lose_credentials() {
        let variable = json!({"env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "LEVEL", "value": "debug"}]});
        let secret = json!({"kind": "Secret", "data": {"tls.key": "hunter2"}}).to_string();
        let mut plan = json!({"status": {"plan": [
            {"resource": {"kind": "Secret", "manifest": secret}},
            {"resource": {"kind": "Deployment", "manifest": format!("\n{variable}")}},
            {"resource": {"kind": "ConfigMap", "manifest": r#"{"auths":{"https://me:hunter2@r.example":{}}}"#}},
        ]}});
        Redactor::new().unwrap().object(&mut plan);
        let text = plan.to_string();
        assert!(!text.contains("hunter2") && text.contains("debug"), "{text}");
    }

    #[test]
    fn text_loses_credentials_and_nothing_else() {
        let redactor = Redactor::new().unwrap();
        for (text, expected) in [
            (
                "GET https://me:pw@registry.example/v2/ 401",
                "GET https://REDACTED@registry.example/v2/ 401",
            ),
            (
                "GET https://registry.example/a@sha256:0a",
                "GET https://registry.example/a@sha256:0a",
            ),
            (
                "Authorization: Bearer abcdefgh.ijk",
                "Authorization: Bearer REDACTED",
            ),
            (
                "authorization: Basic dXNlcjpwYXNz",
                "authorization: Basic REDACTED",
            ),
            ("t=eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln end", "t=REDACTED end"),
            ("--db-password=hunter2 --v=2", "--db-password=REDACTED --v=2"),
            (
                r#"{"password":"hunter2","user":"me"}"#,
                r#"{"password":"REDACTED","user":"me"}"#,
            ),
            (r#"msg="x" api_key='k1' n=3"#, r#"msg="x" api_key='REDACTED' n=3"#),
            (
                "--catalogd-token-file=/var/token",
                "--catalogd-token-file=/var/token",
            ),
            (
                "cannot read the Secret: not found",
                "cannot read the Secret: not found",
            ),
            ("password: hunter2", "password: REDACTED"),
            ("level=info msg=\"took 3 s\"", "level=info msg=\"took 3 s\""),
            ("key AKIAABCDEFGHIJKLMNOP.", "key REDACTED."),
        ] {
            assert_eq!(redactor.text(text), expected);
        }
        let key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nb -----BEGIN PRIVATE KEY-----\nM";
        assert_eq!(redactor.text(key), "a\nREDACTED\nb REDACTED");
    }

    #[test]
    fn objects_lose_credentials_and_managed_fields() {
        let mut object = json!({
            "kind": "Pod",
            "metadata": {
                "name": "a",
                "managedFields": [{"manager": "m"}],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{\"password\":\"p\"}",
                    "example.com/api-token": "abc", "example.com/owner": "me",
                },
            },
            "spec": {
                "serviceAccountName": "a", "automountServiceAccountToken": true,
                "containers": [{
                    "env": [
                        {"name": "DB_PASSWORD", "value": "p"}, {"name": "PROXY", "value": "http://u:p@proxy:1"},
                        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ],
                    "args": ["--token", "abc", "--port", "1", "--password=x"],
                }],
                "volumes": [{"secret": {"secretName": "s"}}],
                "config": {"credentials": {"user": "u", "id": 7}, "pin": 5, "dbPassword": 1234},
                "objects": [{"object": {"kind": "Secret", "data": {"a": "YQ=="}, "stringData": {"b": "c"}}}],
            },
        });
        Redactor::new().unwrap().object(&mut object);
        let expected = json!({
            "kind": "Pod",
            "metadata": {
                "name": "a",
                "annotations": {"example.com/api-token": "REDACTED", "example.com/owner": "me"},
            },
            "spec": {
                "serviceAccountName": "a", "automountServiceAccountToken": true,
                "containers": [{
                    "env": [
                        {"name": "DB_PASSWORD", "value": "REDACTED"}, {"name": "PROXY", "value": "http://REDACTED@proxy:1"},
                        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ],
                    "args": ["--token", "REDACTED", "--port", "1", "--password=REDACTED"],
                }],
                "volumes": [{"secret": {"secretName": "s"}}],
                "config": {"credentials": {"user": "REDACTED", "id": "REDACTED"}, "pin": 5, "dbPassword": "REDACTED"},
                "objects": [{"object": {"kind": "Secret", "data": {"a": "REDACTED"}, "stringData": {"b": "REDACTED"}}}],
            },
        });
        assert_eq!(object, expected);
    }
}
