//! Validation of image references, including short names. [`Display`](std::fmt::Display) of the fault does not repeat
//! the text.
//!
//! This is the grammar of catalog tools. It is older than the grammar for pulls (`olm_image::Reference`) and rejects
//! other texts: here a first part in upper case is not a registry, and the registry counts towards the length of the
//! name.

/// The reason why a text is not an image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceFault {
    /// The text looks like the identifier of an image.
    #[error("cannot specify 64-byte hexadecimal strings")]
    Identifier,
    /// The path has upper case letters.
    #[error("invalid reference format: repository name must be lowercase")]
    Uppercase,
    /// Registry and path have more than 255 characters.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// The digest's algorithm is not known.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    /// The digest does not have the length for its algorithm.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// The text does not have the form of a reference.
    #[error("invalid reference format")]
    Format,
}

/// Checks `text`: `[domain[:port]/]path[:tag][@digest]`.
///
/// # Errors
/// The fault of the text.
pub fn check(text: &str) -> Result<(), ReferenceFault> {
    if text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    {
        return Err(ReferenceFault::Identifier);
    }
    let (domain, rest) = split_domain(text);
    // The part before the first colon is the path, or the path with the algorithm of a digest.
    let before_colon = rest.split(':').next().unwrap_or_default();
    if before_colon.chars().any(char::is_uppercase) {
        return Err(ReferenceFault::Uppercase);
    }
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    let valid = domain.is_none_or(is_domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !valid {
        return Err(ReferenceFault::Format);
    }
    if domain.map_or(0, |domain| domain.len() + 1) + path.len() > 255 {
        return Err(ReferenceFault::TooLong);
    }
    match digest.and_then(|digest| digest.split_once(':')) {
        Some((algorithm, encoded)) => check_digest(algorithm, encoded),
        None => Ok(()),
    }
}

/// The registry, if the text has one: the part before the first slash that cannot be a part of a path.
fn split_domain(text: &str) -> (Option<&str>, &str) {
    match text.split_once('/') {
        Some((head, rest)) if head == "localhost" || head.contains(['.', ':']) => (Some(head), rest),
        _ => (None, text),
    }
}

fn is_domain(domain: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = domain.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        return !address.is_empty()
            && address
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    port.is_none_or(is_port)
        && host.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

/// Runs of lower case letters and digits between single dots, one or two underscores, or any number of hyphens.
fn is_path_component(component: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut separators = component.split(|letter: char| letter.is_ascii() && is_plain(letter as u8));
    let ends_plain =
        component.bytes().next().is_some_and(is_plain) && component.bytes().last().is_some_and(is_plain);
    ends_plain
        && separators
            .all(|part| matches!(part, "" | "." | "_" | "__") || part.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, encoded)) = digest.split_once(':') else {
        return false;
    };
    algorithm.split(['-', '_', '+', '.']).all(|part| {
        part.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }) && encoded.len() >= 32
        && encoded.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_digest(algorithm: &str, encoded: &str) -> Result<(), ReferenceFault> {
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ReferenceFault::DigestAlgorithm),
    };
    if encoded.len() != length {
        return Err(ReferenceFault::DigestLength);
    }
    if encoded.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Err(ReferenceFault::Format)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ReferenceFault, check};

    #[test]
    fn references_with_and_without_their_parts_are_valid() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in [
            "busybox",
            "library/busybox:1",
            "reg.example/a/b",
            "REG.example:5000/a__b/c-_d".replace("-_", "--").as_str(),
            "localhost/a",
            "[::1]:5000/a",
            &format!("quay.io/a/b@{digest}"),
            &format!("quay.io/a/b:v1.0_x-@{digest}"),
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_invalid_reference_says_why() {
        let check = |text: &str, fault| assert_eq!(check(text), Err(fault), "{text}");
        check(&"a".repeat(64), ReferenceFault::Identifier);
        check("quay.io/A/b:v1", ReferenceFault::Uppercase);
        check("A/b", ReferenceFault::Uppercase);
        for text in [
            "",
            "a:",
            "a:-b",
            "a b",
            "quay.io/a//b",
            "a..b",
            "a_-b",
            "quay.io/a@md5:abc",
            "a@sha256:zz",
            "a/",
        ] {
            check(text, ReferenceFault::Format);
        }
        check(
            &format!("a@md5:{}", "0".repeat(32)),
            ReferenceFault::DigestAlgorithm,
        );
        check(
            &format!("a@sha256:{}", "0".repeat(32)),
            ReferenceFault::DigestLength,
        );
        check(&format!("a@sha256:{}", "A".repeat(64)), ReferenceFault::Format);
        check(&format!("quay.io/{}", "a".repeat(250)), ReferenceFault::TooLong);
    }
}
