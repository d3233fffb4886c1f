//! The format `registries.conf`, version 2.
//!
//! Settings for short names are ignored: a reference without its registry is refused everywhere, so no search list can
//! turn one name into another publisher's image.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Security;
use crate::reference::{Reference, usual_spelling};

/// The most bytes of one file.
const FILE_BYTES: usize = 4 << 20;

/// Error of a configuration of registries. Nothing is fetched then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistriesError {
    /// It is no TOML, or has a field with another meaning than it should.
    #[error("`{file}` is not a configuration of registries: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// The reason and its position.
        message: String,
    },
    /// It has the format that came before.
    #[error("`{file}` has the format of version 1; write [[registry]] tables instead")]
    Version {
        /// The file.
        file: String,
    },
    /// A rule contradicts itself or another one.
    #[error("`{file}`, registry `{registry}`: {message}")]
    Rule {
        /// The file.
        file: String,
        /// The prefix or location of the rule.
        registry: String,
        /// The reason.
        message: String,
    },
}

/// Rule for the references that a prefix covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) prefix: String,
    pub(super) blocked: bool,
    pub(super) security: Security,
    /// Replacement of the prefix; `None` keeps the reference as it is.
    pub(super) location: Option<String>,
    pub(super) mirrors: Vec<Mirror>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    pub(super) location: String,
    pub(super) security: Security,
    pulls: Pulls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulls {
    All,
    Digests,
    Tags,
}

impl Mirror {
    pub(super) fn serves(&self, reference: &Reference) -> bool {
        match self.pulls {
            Pulls::All => true,
            Pulls::Digests => reference.digest().is_some(),
            Pulls::Tags => reference.is_by_tag(),
        }
    }
}

impl Rule {
    /// Number of bytes of a reference in the usual spelling that the prefix covers; `None` when it does not cover the reference.
    pub(super) fn covers(&self, reference: &str) -> Option<usize> {
        let end = if let Some(domain) = self.prefix.strip_prefix('*') {
            // Whole labels in front of the domain, and nothing of the path.
            let host = reference.split('/').next().unwrap_or_default();
            let host = host.split(':').next().unwrap_or_default();
            if host.len() <= domain.len() || !host.ends_with(domain) {
                return None;
            }
            host.len()
        } else {
            reference.starts_with(&self.prefix).then_some(self.prefix.len())?
        };
        match reference.as_bytes().get(end) {
            None | Some(b'/' | b':' | b'@') => Some(end),
            Some(_) => None,
        }
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    registry: Vec<RegistryTable>,
    /// Of version 1.
    registries: Option<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RegistryTable {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<MirrorTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MirrorTable {
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    pull_from_mirror: String,
}

/// The rules of all files, the longest prefix first.
pub(super) fn parse<'files>(
    files: impl IntoIterator<Item = (&'files str, &'files str)>,
) -> Result<Vec<Rule>, RegistriesError> {
    let mut rules = BTreeMap::new();
    for (file, text) in files {
        let mut own = BTreeMap::new();
        for table in read(file, text)? {
            let rule = rule(&table).map_err(|message| RegistriesError::Rule {
                file: file.to_owned(),
                registry: if table.prefix.is_empty() {
                    table.location.clone()
                } else {
                    table.prefix.clone()
                },
                message,
            })?;
            let prefix = rule.prefix.clone();
            if own.insert(prefix.clone(), rule).is_some() {
                return Err(RegistriesError::Rule {
                    file: file.to_owned(),
                    registry: prefix,
                    message: "it occurs twice".to_owned(),
                });
            }
        }
        rules.extend(own);
    }
    let mut rules: Vec<Rule> = rules.into_values().collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
    Ok(rules)
}

fn read(file: &str, text: &str) -> Result<Vec<RegistryTable>, RegistriesError> {
    let syntax = |message: String| RegistriesError::Syntax {
        file: file.to_owned(),
        message,
    };
    if text.len() > FILE_BYTES {
        return Err(syntax(format!("it is larger than {FILE_BYTES} bytes")));
    }
    let parsed: File = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        syntax(format!("line {line}: {}", error.message()))
    })?;
    if parsed.registries.is_some() {
        return Err(RegistriesError::Version {
            file: file.to_owned(),
        });
    }
    Ok(parsed.registry)
}

fn rule(table: &RegistryTable) -> Result<Rule, String> {
    let location = place("location", &table.location)?;
    let prefix = place("prefix", &table.prefix)?;
    let prefix = match (prefix.is_empty(), location.is_empty()) {
        (true, true) => return Err("it has neither a prefix nor a location".to_owned()),
        (true, false) => location,
        (false, _) => prefix,
    };
    let wild = prefix.strip_prefix('*');
    let named = wild.unwrap_or(prefix);
    if wild.is_some_and(|domain| !domain.starts_with('.') || domain.contains(['/', ':', '@']))
        || named.contains('*')
    {
        return Err("`*` stands for the first labels of a host only, as in `*.example.com`".to_owned());
    }
    if location.contains('*') {
        return Err("a location holds no `*`".to_owned());
    }
    let mirrors = table.mirror.iter().map(|mirror| {
        let location = place("location of a mirror", &mirror.location)?;
        if location.is_empty() || location.contains('*') {
            return Err("a mirror needs a location without `*`".to_owned());
        }
        let pulls = match (mirror.pull_from_mirror.as_str(), table.mirror_by_digest_only) {
            ("" | "all", false) => Pulls::All,
            ("", true) | ("digest-only", false) => Pulls::Digests,
            ("tag-only", false) => Pulls::Tags,
            (_, true) => {
                return Err("mirror-by-digest-only and pull-from-mirror exclude each other".to_owned());
            }
            (other, false) => {
                return Err(format!(
                    "pull-from-mirror must be `all`, `digest-only` or `tag-only`, not {other:?}"
                ));
            }
        };
        Ok(Mirror {
            location: location.to_owned(),
            security: security(mirror.insecure),
            pulls,
        })
    });
    Ok(Rule {
        prefix: usual_spelling(prefix),
        blocked: table.blocked,
        security: security(table.insecure),
        location: Some(location.to_owned()).filter(|location| !location.is_empty()),
        mirrors: mirrors.collect::<Result<_, _>>()?,
    })
}

const fn security(insecure: bool) -> Security {
    if insecure {
        Security::Insecure
    } else {
        Security::Verified
    }
}

/// A host, with a path perhaps, without the slash at its end.
fn place<'text>(what: &str, text: &'text str) -> Result<&'text str, String> {
    let text = text.trim_end_matches('/');
    if text.contains("://") {
        return Err(format!("the {what} is a URL; write HOST[:PORT][/PATH]"));
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("the {what} holds a space"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::{PlaceError, Registries};
    use super::*;

    const DIGEST: &str = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    /// The places as `REFERENCE`, with `!` in front of insecure ones.
    fn places(text: &str, reference: &str) -> Result<Vec<String>, String> {
        let registries = Registries::parse([("conf", text)]).map_err(|error| error.to_string())?;
        let reference = Reference::parse(reference).unwrap();
        let places = registries
            .endpoints(&reference)
            .map_err(|error| error.to_string())?;
        let show = |endpoint: &super::super::Endpoint| {
            let mark = if endpoint.security == Security::Verified {
                ""
            } else {
                "!"
            };
            format!("{mark}{}", endpoint.reference)
        };
        Ok(places.iter().map(show).collect())
    }

    #[test]
    fn a_prefix_leads_to_its_mirrors_and_then_home() {
        let text = r#"
            unqualified-search-registries = ["docker.io"]
            short-name-mode = "permissive"
            [[registry]]
            prefix = "quay.io/team"
            location = "registry.example/copy/"
            insecure = true
            [[registry.mirror]]
            location = "mirror.example:5000/team"
            [[registry.mirror]]
            location = "digests.example"
            pull-from-mirror = "digest-only"
            [[registry.mirror]]
            location = "tags.example"
            pull-from-mirror = "tag-only"
            insecure = true
            [[registry]]
            location = "quay.io"
            [aliases]
            fedora = "registry.example/fedora"
        "#;
        let check = |reference: &str, expected: &[&str]| {
            assert_eq!(places(text, reference).unwrap(), expected, "{reference}");
        };
        check(
            "quay.io/team/app:v1",
            &[
                "mirror.example:5000/team/app:v1",
                "!tags.example/app:v1",
                "!registry.example/copy/app:v1",
            ],
        );
        let digest = |name: &str| format!("{name}{DIGEST}");
        check(
            &digest("quay.io/team/app"),
            &[
                &digest("mirror.example:5000/team/app"),
                &digest("digests.example/app"),
                &digest("!registry.example/copy/app"),
            ],
        );
        // An image that a tag resolved to is asked for by its digest, also where tags are mirrored.
        let tag = Reference::parse("quay.io/team/app:v1").unwrap();
        let pinned = tag.pin(crate::Digest::of(b"x")).reference();
        let registries = Registries::parse([("registries.conf", text)]).unwrap();
        let hosts = registries.endpoints(&pinned).unwrap();
        let hosts: Vec<&str> = hosts.iter().map(|place| place.reference.registry()).collect();
        assert_eq!(
            hosts,
            [
                "mirror.example:5000",
                "digests.example",
                "tags.example",
                "registry.example"
            ]
        );
        check("quay.io/teammate/app:v1", &["quay.io/teammate/app:v1"]);
        check("quay.io/other:v1", &["quay.io/other:v1"]);
        check("registry.example/a:v1", &["registry.example/a:v1"]);
    }

    #[test]
    fn all_mirrors_can_be_for_digests_only() {
        let text = r#"
            [[registry]]
            prefix = "quay.io"
            mirror-by-digest-only = true
            mirror = [{ location = "mirror.example/quay" }]
        "#;
        assert_eq!(places(text, "quay.io/a/b:v1").unwrap(), ["quay.io/a/b:v1"]);
        assert_eq!(
            places(text, &format!("quay.io/a/b{DIGEST}")).unwrap(),
            [
                format!("mirror.example/quay/a/b{DIGEST}"),
                format!("quay.io/a/b{DIGEST}")
            ]
        );
    }

    #[test]
    fn a_blocked_registry_has_no_endpoints() {
        let text = r#"
            registry = [
                { location = "bad.example", blocked = true },
                { location = "bad.example/good" },
                { prefix = "*.bad.example", blocked = true },
            ]
        "#;
        let check = |reference: &str, blocked: Option<&str>| {
            let expected = match blocked {
                Some(prefix) => Err(PlaceError::Blocked {
                    prefix: prefix.to_owned(),
                }
                .to_string()),
                None => Ok(vec![reference.to_owned()]),
            };
            assert_eq!(places(text, reference), expected, "{reference}");
        };
        check("bad.example/a:v1", Some("bad.example"));
        check("bad.example:5000/a:v1", Some("bad.example"));
        check("Bad.Example:443/a:v1", Some("bad.example"));
        check("A.bad.example/a:v1", Some("*.bad.example"));
        check("bad.example/good/a:v1", None);
        check("bad.example.org/a:v1", None);
        check("a.bad.example/a:v1", Some("*.bad.example"));
        check("a.b.bad.example:5000/a:v1", Some("*.bad.example"));
        check("notbad.example/a:v1", None);
        check("good.example/a.bad.example/b:v1", None);
    }

    #[test]
    fn a_mirror_serves_its_registry_in_every_spelling() {
        let text = "registry = [{ location = \"Quay.io:443/team\", mirror = [{ location = \"mirror.example/team\" }] }]";
        let found = places(text, "QUAY.io/team/app:v1").unwrap();
        assert_eq!(
            found.first().map(String::as_str),
            Some("mirror.example/team/app:v1")
        );
    }

    #[test]
    fn a_wildcard_can_have_one_place_for_all_its_hosts() {
        let text = "registry = [{ prefix = \"*.example.com\", location = \"all.example\" }]";
        assert_eq!(places(text, "a.example.com/x:v1").unwrap(), ["all.example/x:v1"]);
    }

    #[test]
    fn later_files_replace_rules_of_earlier_ones() {
        let base = "registry = [{ location = \"a.example\", blocked = true }, { location = \"b.example\", blocked = true }]";
        let later = "registry = [{ location = \"a.example\" }]";
        let registries = Registries::parse([("base", base), ("later", later)]).unwrap();
        let endpoints = |text| registries.endpoints(&Reference::parse(text).unwrap());
        assert!(endpoints("a.example/x:v1").is_ok());
        assert!(endpoints("b.example/x:v1").is_err());
    }

    #[test]
    fn contradictory_settings_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = Registries::parse([("conf", text)]).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        check("registry = 1", "line 1");
        check(
            "\n[[registry]]\nlocation = \"a\"\nblockd = true",
            "line 4: unknown field `blockd`",
        );
        check("[registries.search]\nregistries = []", "version 1");
        check(
            "registry = [{ insecure = true }]",
            "neither a prefix nor a location",
        );
        check("registry = [{ location = \"https://a\" }]", "is a URL");
        check("registry = [{ location = \"a b\" }]", "holds a space");
        check(
            "registry = [{ prefix = \"a.*.example\" }]",
            "first labels of a host only",
        );
        check(
            "registry = [{ prefix = \"*.example/x\" }]",
            "first labels of a host only",
        );
        check(
            "registry = [{ prefix = \"a\", location = \"*.b\" }]",
            "a location holds no `*`",
        );
        check(
            "registry = [{ location = \"a\" }, { location = \"a/\" }]",
            "occurs twice",
        );
        check(
            "registry = [{ location = \"a\", mirror = [{}] }]",
            "a mirror needs a location",
        );
        check(
            "registry = [{ location = \"a\", mirror = [{ location = \"b\", pull-from-mirror = \"never\" }] }]",
            "not \"never\"",
        );
        check(
            "registry = [{ location = \"a\", mirror-by-digest-only = true, mirror = [{ location = \"b\", pull-from-mirror = \"all\" }] }]",
            "exclude each other",
        );
    }

    #[test]
    fn a_rewritten_reference_must_be_one() {
        let text = "registry = [{ prefix = \"a.example/x\", location = \"UPPER.example/Case\" }]";
        let error = places(text, "a.example/x/y:v1").unwrap_err();
        assert!(error.contains("UPPER.example/Case/y:v1"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "(\\[\\[registry\\]\\]\n|prefix = \"[a-z*./:@]{0,8}\"\n|location = \"[a-z*./:]{0,8}\"\n|blocked = true\n|\\PC{0,9}\n){0,6}") {
            if let Ok(registries) = Registries::parse([("conf", text.as_str())]) {
                let reference = Reference::parse("a.b/c:d").unwrap();
                let _ = registries.endpoints(&reference);
            }
        }
    }
}
