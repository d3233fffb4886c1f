//! Image references: `registry[:port]/repository[:tag][@digest]`.
//!
//! [`Reference::parse`] takes only the canonical form, as the cluster API does: a short name such as `nginx` would mean
//! something else on the next machine. [`Reference::parse_familiar`] expands short names, for people at a terminal.

use std::fmt;

use crate::digest::{Digest, DigestError};

/// The registry that short names mean.
const DEFAULT_REGISTRY: &str = "docker.io";
/// The tag of references without tag and digest.
pub(crate) const LATEST: &str = "latest";
/// The longest repository path, in bytes.
const REPOSITORY_LENGTH: usize = 255;
/// The longest tag, in bytes.
const TAG_LENGTH: usize = 128;

/// A parsed image reference. It always names a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
    /// The tag that meant the digest, which is not written.
    of_tag: Option<String>,
}

/// Error of a text that is no image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The text is empty.
    #[error("repository name must have at least one component")]
    Empty,
    /// The text does not follow the grammar.
    #[error("invalid reference format")]
    Format,
    /// The repository has upper-case letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// Sixty-four hex digits name an image identifier, not a repository.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// The repository path is too long.
    #[error("repository name must not be more than {REPOSITORY_LENGTH} characters")]
    Length,
    /// A short form where the whole name is needed.
    #[error("repository name must be canonical")]
    NotCanonical,
    /// The text after `@` is no digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// A reference, a scope or a prefix in its usual spelling: the host in lower case and without the port 443. Rules and
/// images are compared so, since another spelling leads to the same registry and must not escape a rule.
pub(crate) fn usual_spelling(text: &str) -> String {
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let host = host.to_ascii_lowercase();
    format!("{}{path}", host.strip_suffix(":443").unwrap_or(&host))
}

impl Reference {
    /// Parses a reference that must be complete: with its registry, and `library/` where Docker Hub needs it.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let reference = Self::parse_familiar(text)?;
        if reference.to_string() == text {
            Ok(reference)
        } else {
            Err(ReferenceError::NotCanonical)
        }
    }

    /// Parses a reference that may be short: `nginx` is `docker.io/library/nginx`.
    pub fn parse_familiar(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ReferenceError::Identifier(text.to_owned()));
        }
        let (registry, remainder) = split_registry(text);
        let (rest, digest) = match remainder.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (remainder.as_str(), None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(ReferenceError::Uppercase(repository.to_owned()));
        }
        let valid = is_registry(registry)
            && !repository.is_empty()
            && repository.split('/').all(is_path_component)
            && tag.is_none_or(is_tag);
        if !valid {
            return Err(ReferenceError::Format);
        }
        if repository.len() > REPOSITORY_LENGTH {
            return Err(ReferenceError::Length);
        }
        let digest = digest.map(parse_digest).transpose()?;
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
            of_tag: None,
        })
    }

    /// The registry's host, with its port when there is one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path of the repository within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, when one is written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, when one is written.
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// `registry/repository`, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Whether mirrors for tags may serve it: it was requested by tag, whatever digest the tag resolved to.
    pub(crate) const fn is_by_tag(&self) -> bool {
        self.digest.is_none() || self.of_tag.is_some()
    }

    /// Whether both a tag and a digest are written. The digest counts then.
    pub const fn has_tag_and_digest(&self) -> bool {
        self.tag.is_some() && self.digest.is_some()
    }

    /// The same repository at a tag. Only for tags that are known to be good.
    #[must_use]
    pub(crate) fn with_tag(&self, tag: &str) -> Self {
        Self {
            tag: Some(tag.to_owned()),
            digest: None,
            of_tag: None,
            ..self.clone()
        }
    }

    /// The same repository at a digest; a tag is dropped, since it no longer says anything.
    pub fn pin(&self, digest: Digest) -> Pinned {
        let of_tag = match &self.digest {
            Some(_) => self.of_tag.clone(),
            None => Some(self.tag().unwrap_or(LATEST).to_owned()),
        };
        Pinned {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            digest,
            of_tag,
        }
    }

    /// The pinned reference when a digest is written, else nothing: the tag has to be resolved first.
    pub fn pinned(&self) -> Option<Pinned> {
        self.digest.clone().map(|digest| self.pin(digest))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// A reference by digest: every pull gets the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pinned {
    registry: String,
    repository: String,
    digest: Digest,
    of_tag: Option<String>,
}

impl Pinned {
    /// Parses a canonical reference that carries a digest.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        Reference::parse(text)?.pinned().ok_or(ReferenceError::Format)
    }

    /// The digest.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The same as the result of the tag of `reference`, if that is by tag: mirrors for tags may serve it, and
    /// signatures are held against the tag. A text does not say so.
    #[must_use]
    pub fn of_tag(self, reference: &Reference) -> Self {
        Self {
            of_tag: reference.pin(self.digest.clone()).of_tag,
            ..self
        }
    }

    /// The reference as policies for images name it: by the tag if it was requested by tag.
    pub(crate) fn requested(&self) -> Reference {
        let reference = self.reference();
        match &self.of_tag {
            Some(tag) => reference.with_tag(tag),
            None => reference,
        }
    }

    /// The plain reference.
    pub fn reference(&self) -> Reference {
        Reference {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            tag: None,
            digest: Some(self.digest.clone()),
            of_tag: self.of_tag.clone(),
        }
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}@{}", self.registry, self.repository, self.digest)
    }
}

/// Splits the registry off. The part before the first slash is a registry only if it looks like a host.
fn split_registry(text: &str) -> (&str, String) {
    let (registry, remainder) = match text.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => (DEFAULT_REGISTRY, text),
    };
    let registry = if registry == "index.docker.io" {
        DEFAULT_REGISTRY
    } else {
        registry
    };
    if registry == DEFAULT_REGISTRY && !remainder.contains('/') {
        return (registry, format!("library/{remainder}"));
    }
    (registry, remainder.to_owned())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = if let Some(address) = text.strip_prefix('[') {
        let Some((address, rest)) = address.split_once(']') else {
            return false;
        };
        let valid = !address.is_empty()
            && address
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b':');
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port),
            None if rest.is_empty() => None,
            None => return false,
        };
        return valid && port.is_none_or(is_port);
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    host.split('.').all(is_host_component) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_host_component(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Runs of lower-case letters and digits, joined by `.`, `_`, `__` or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut separator: Vec<u8> = Vec::new();
    let mut after_word = false;
    for byte in text.bytes() {
        if is_word(byte) {
            let joins = match separator.as_slice() {
                [] | [b'.' | b'_'] | [b'_', b'_'] => true,
                dashes => dashes.iter().all(|dash| *dash == b'-'),
            };
            if !joins || (!after_word && !separator.is_empty()) {
                return false;
            }
            separator.clear();
            after_word = true;
        } else if matches!(byte, b'.' | b'_' | b'-') {
            separator.push(byte);
        } else {
            return false;
        }
    }
    after_word && separator.is_empty()
}

/// Whether a text is a tag.
pub(crate) fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_LENGTH
        && text.bytes().next().is_some_and(is_word)
        && text
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// A digest as the reference grammar has it (any algorithm, at least 32 hex digits), then as one we can verify.
fn parse_digest(text: &str) -> Result<Digest, ReferenceError> {
    let (algorithm, hex) = text.split_once(':').ok_or(ReferenceError::Format)?;
    let is_algorithm = algorithm.split(['+', '.', '-', '_']).all(|part| {
        part.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    if !is_algorithm || hex.len() < 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ReferenceError::Format);
    }
    Ok(Digest::parse(text)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn canonical_references_are_taken_apart() {
        let check =
            |text: &str, registry: &str, repository: &str, tag: Option<&str>, digest: Option<&str>| {
                let reference = Reference::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(reference.registry(), registry);
                assert_eq!(reference.repository(), repository);
                assert_eq!(reference.tag(), tag);
                assert_eq!(reference.digest().map(Digest::hex), digest);
                assert_eq!(reference.to_string(), text);
            };
        let digest = format!("@sha256:{HEX}");
        check("example.com/a/b:v1", "example.com", "a/b", Some("v1"), None);
        check("example.com/a/b", "example.com", "a/b", None, None);
        check("example.com:5000/a", "example.com:5000", "a", None, None);
        check(
            &format!("example.com:5000/a{digest}"),
            "example.com:5000",
            "a",
            None,
            Some(HEX),
        );
        check(
            &format!("example.com/a:t{digest}"),
            "example.com",
            "a",
            Some("t"),
            Some(HEX),
        );
        check("localhost/a:1", "localhost", "a", Some("1"), None);
        check("[::1]:5000/a/b:1", "[::1]:5000", "a/b", Some("1"), None);
        check(
            "docker.io/library/busybox:1",
            "docker.io",
            "library/busybox",
            Some("1"),
            None,
        );
        check(
            "example.com/a__b/c-----d/e.f_g",
            "example.com",
            "a__b/c-----d/e.f_g",
            None,
            None,
        );
        check("HOST/a", "HOST", "a", None, None);
    }

    #[test]
    fn a_reference_that_is_not_canonical_is_refused() {
        let check = |text: &str, expected: ReferenceError| {
            assert_eq!(Reference::parse(text), Err(expected), "{text}");
        };
        check("", ReferenceError::Empty);
        check("busybox", ReferenceError::NotCanonical);
        check("org/image:v1", ReferenceError::NotCanonical);
        check("docker.io/busybox", ReferenceError::NotCanonical);
        check("index.docker.io/library/busybox", ReferenceError::NotCanonical);
        check("example.com/Image", ReferenceError::Uppercase("Image".into()));
        check(HEX, ReferenceError::Identifier(HEX.into()));
        check(
            &format!("example.com/{}", "a".repeat(256)),
            ReferenceError::Length,
        );
        check(
            &format!("example.com/a@sha256:{}", &HEX[..40]),
            DigestError::Length.into(),
        );
        check(
            &format!("example.com/a@sha1:{}", &HEX[..40]),
            DigestError::Algorithm.into(),
        );
        for text in [
            "example.com/",
            "example.com/a:",
            "example.com/a@",
            "example.com/a@sha256",
            "example.com/a@sha256:short",
            "example.com/a//b",
            "example.com/a:t:u",
            "example.com/-a",
            "example.com/a-",
            "example.com/a..b",
            "example.com/a._b",
            "example.com/a___b",
            "example.com:/a",
            "example.com:port/a",
            "-example.com/a",
            "example..com/a",
            "http://example.com/a",
            "example.com/a b",
            "example.com/a:.tag",
            "[::1/a",
            "[::1]x/a",
            " example.com/a",
            "example.com/a\n",
        ] {
            check(text, ReferenceError::Format);
        }
        check(
            &format!("example.com/a:{}", "t".repeat(129)),
            ReferenceError::Format,
        );
    }

    #[test]
    fn familiar_names_mean_docker_hub() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Reference::parse_familiar(text).unwrap().to_string(), expected);
        };
        check("busybox", "docker.io/library/busybox");
        check("org/image:v1", "docker.io/org/image:v1");
        check("index.docker.io/busybox", "docker.io/library/busybox");
        check("example.com/a", "example.com/a");
    }

    #[test]
    fn pinning_drops_the_tag() {
        let reference = Reference::parse(&format!("example.com/a:t@sha256:{HEX}")).unwrap();
        assert!(reference.has_tag_and_digest());
        assert_eq!(
            reference.pinned().unwrap().to_string(),
            format!("example.com/a@sha256:{HEX}")
        );
        assert!(Reference::parse("example.com/a:t").unwrap().pinned().is_none());
    }

    proptest! {
        #[test]
        fn whatever_follows_the_grammar_parses_and_prints_as_it_was(
            text in "[a-z0-9]{1,8}\\.[a-z]{2,3}(:[0-9]{1,5})?/[a-z0-9]{1,6}((\\.|_|__|-{1,3})[a-z0-9]{1,4}){0,2}(/[a-z0-9]{1,5}){0,3}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,20})?(@sha256:[0-9a-f]{64})?"
        ) {
            let reference = Reference::parse(&text);
            prop_assert_eq!(reference.map(|reference| reference.to_string()), Ok(text));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,80}") {
            if let Ok(reference) = Reference::parse(&text) {
                prop_assert_eq!(reference.to_string(), text);
            }
        }
    }
}
