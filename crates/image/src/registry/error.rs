//! Errors of requests to a registry.

use std::error::Error;
use std::fmt;

use olm_transport::{Obstacle, Proxies, reason};
use reqwest::{StatusCode, Url};
use serde::Deserialize;

use super::clients::TrustError;
use crate::digest::{Digest, DigestError};

/// The most characters of a registry's own message that are repeated.
const MESSAGE_LENGTH: usize = 300;

/// Error of a request to a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The client could not be set up.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// No connection, or it broke.
    #[error("cannot reach registry `{registry}`")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The cause.
        source: Unreachable,
    },
    /// The registry wants other credentials, or any.
    #[error("registry `{registry}` refuses {credentials}: {message}")]
    Unauthorized {
        /// The registry.
        registry: String,
        /// `the given credentials`, `the given identity token` or `anonymous access`.
        credentials: &'static str,
        /// The registry's own words.
        message: String,
    },
    /// The credentials are known but not enough.
    #[error("registry `{registry}` denies access: {message}")]
    Denied {
        /// The registry.
        registry: String,
        /// The registry's own words.
        message: String,
    },
    /// There is no such repository, tag, manifest or blob.
    #[error("registry `{registry}` has no {what}: {message}")]
    NotFound {
        /// The registry.
        registry: String,
        /// The requested content, or the repository that it would be in.
        what: String,
        /// The registry's own words, or the existing alternatives.
        message: String,
        /// The missing part.
        missing: Missing,
    },
    /// Any other answer that is no success.
    #[error("registry `{registry}` answers {status}: {message}")]
    Status {
        /// The registry.
        registry: String,
        /// The HTTP status.
        status: u16,
        /// The registry's own words.
        message: String,
    },
    /// An answer longer than it may be.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// The content that was read.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The bytes are not those that the digest names.
    #[error("{what} has digest {actual}, wanted {expected}")]
    Mismatch {
        /// The content that was read.
        what: String,
        /// The digest asked for.
        expected: Digest,
        /// The actual digest.
        actual: Digest,
    },
    /// The number of bytes differs from the manifest.
    #[error("{what} has {actual} bytes, wanted {expected}")]
    Size {
        /// The content that was read.
        what: String,
        /// The size in the manifest.
        expected: u64,
        /// The actual size.
        actual: u64,
    },
    /// A digest in an answer that is none.
    #[error("registry `{registry}` names an invalid digest")]
    Digest {
        /// The registry.
        registry: String,
        /// The cause.
        source: DigestError,
    },
    /// The registry sends its clients to a token service that is neither its own nor allowed.
    #[error("registry `{registry}` names a token service of another site, `{host}`, which is not allowed")]
    TokenService {
        /// The registry.
        registry: String,
        /// The host of the token service.
        host: String,
    },
    /// The registry broke the protocol.
    #[error("registry `{registry}` breaks the protocol: {message}")]
    Protocol {
        /// The registry.
        registry: String,
        /// The reason.
        message: String,
    },
    /// The reader of the bytes went away; its own error says why.
    #[error("the transfer was aborted")]
    GivenUp,
}

impl RegistryError {
    /// Whether asking again later may help without a change at the registry.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => may_pass(source.obstacle()),
            _ => self.is_outage(),
        }
    }

    /// Whether the registry answers that it cannot answer now.
    pub(crate) const fn is_outage(&self) -> bool {
        // 501: it does not have this API.
        matches!(self, Self::Status { status, .. } if *status == 429 || (*status >= 500 && *status != 501))
    }
}

/// The missing object, if the registry reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The whole repository.
    Repository,
    /// The requested content: a tag, a manifest or a blob.
    Content,
    /// The registry does not say.
    Unspecified,
}

impl Missing {
    /// Meaning of the code of an error answer.
    pub(crate) fn of(code: &str) -> Self {
        match code {
            "NAME_UNKNOWN" | "NAME_INVALID" => Self::Repository,
            "MANIFEST_UNKNOWN" | "MANIFEST_BLOB_UNKNOWN" | "BLOB_UNKNOWN" | "TAG_UNKNOWN" => Self::Content,
            _ => Self::Unspecified,
        }
    }
}

/// Whether asking again in a moment may help.
const fn may_pass(obstacle: Obstacle) -> bool {
    match obstacle {
        Obstacle::Certificate | Obstacle::NoTls | Obstacle::Redirect => false,
        Obstacle::Name | Obstacle::Refused | Obstacle::Closed | Obstacle::Timeout | Obstacle::Other => true,
    }
}

/// Reason why a host did not answer, in one sentence: the HTTP client has a text for each of its layers, and the
/// innermost names the cause.
#[derive(Debug)]
pub struct Unreachable {
    obstacle: Obstacle,
    text: String,
}

impl Unreachable {
    /// From the client's error; `home` is where the registry is. Another host that it leads to is named, and nothing
    /// else of an address, which may carry a signature.
    pub(crate) fn new(home: &Url, proxies: &Proxies, error: reqwest::Error) -> Self {
        let proxy = error.url().and_then(|url| proxies.name(url));
        let elsewhere = error
            .url()
            .and_then(Url::host_str)
            .filter(|host| Some(*host) != home.host_str())
            .map(str::to_owned);
        let error = error.without_url();
        let obstacle = Obstacle::of(&error);
        let mut why = reason(&error);
        if error.is_body() || error.is_decode() {
            why = format!("the answer broke off: {why}");
        }
        if let Some(proxy) = proxy {
            why = format!("through the proxy `{proxy}`: {why}");
        }
        let text = elsewhere.map_or_else(|| why.clone(), |host| format!("it leads to `{host}`: {why}"));
        Self { obstacle, text }
    }

    /// A redirect that is not followed; `why` ends in where it leads.
    pub(crate) fn redirect(why: &str, to: &Url) -> Self {
        Self {
            obstacle: Obstacle::Redirect,
            text: format!("{why} to `{}`", to.host_str().unwrap_or_default()),
        }
    }

    /// The kind of reason.
    pub const fn obstacle(&self) -> Obstacle {
        self.obstacle
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Error for Unreachable {}

/// The error answer of a registry.
pub(crate) struct RegistryErrorBody {
    /// The code of the protocol; empty when there is none.
    pub(crate) code: String,
    /// Its own words, shortened, on one line; else the status in words.
    pub(crate) message: String,
}

/// Reads an error answer.
pub(crate) fn words(body: &[u8], status: StatusCode) -> RegistryErrorBody {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(default)]
        errors: Vec<Item>,
        #[serde(default)]
        details: String,
        // As token services answer (RFC 6749, section 5.2).
        #[serde(default)]
        error_description: serde_json::Value,
        #[serde(default)]
        error: serde_json::Value,
    }
    #[derive(Deserialize)]
    struct Item {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let (code, text) = match serde_json::from_slice::<Envelope>(body) {
        Ok(envelope) => match envelope.errors.into_iter().next() {
            Some(item) if item.message.is_empty() => (item.code.clone(), item.code),
            Some(item) => (item.code, item.message),
            None => {
                let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                let code = text(envelope.error);
                let texts = [envelope.details, text(envelope.error_description), code.clone()];
                let mut texts = texts.into_iter();
                (code, texts.find(|text| !text.is_empty()).unwrap_or_default())
            }
        },
        // HTML pages are no help in a message.
        Err(_) => Default::default(),
    };
    let text: String = text
        .chars()
        .map(|character| if is_visible(character) { character } else { ' ' })
        .take(MESSAGE_LENGTH)
        .collect();
    let text = text.trim();
    let message = if text.is_empty() {
        let reason = status.canonical_reason().unwrap_or("no reason given");
        reason.to_lowercase()
    } else {
        text.to_owned()
    };
    RegistryErrorBody { code, message }
}

/// Whether a character shows, and changes nothing around it.
fn is_visible(character: char) -> bool {
    let is_hidden = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !character.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use std::io;

    use olm_transport::Unresolved;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Layer(#[source] io::Error);

    #[test]
    fn the_innermost_cause_names_the_obstacle() {
        let check = |error: io::Error, obstacle: Obstacle, expected: bool, text: &str| {
            let error = Layer(error);
            assert_eq!(Obstacle::of(&error), obstacle, "{text}");
            assert_eq!(may_pass(obstacle), expected, "{text}");
            assert_eq!(reason(&error), text);
        };
        check(
            io::Error::other(Unresolved(io::Error::other("Name or service not known"))),
            Obstacle::Name,
            true,
            "the name of the host cannot be resolved: Name or service not known",
        );
        check(
            io::ErrorKind::ConnectionRefused.into(),
            Obstacle::Refused,
            true,
            "connection refused",
        );
        check(
            io::Error::other(rustls::Error::InvalidCertificate(
                rustls::CertificateError::UnknownIssuer,
            )),
            Obstacle::Certificate,
            false,
            "invalid peer certificate: UnknownIssuer",
        );
        check(
            io::Error::other(rustls::Error::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType,
            )),
            Obstacle::NoTls,
            false,
            "received corrupt message of type InvalidContentType",
        );
        check(
            io::Error::other("operation timed out"),
            Obstacle::Other,
            true,
            "operation timed out",
        );
    }

    #[test]
    fn an_error_answer_tells_how_much_is_missing() {
        let check = |body: &str, missing: Missing, message: &str| {
            let words = words(body.as_bytes(), StatusCode::NOT_FOUND);
            assert_eq!(
                (Missing::of(&words.code), words.message.as_str()),
                (missing, message),
                "{body}"
            );
        };
        check(
            r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known"}]}"#,
            Missing::Repository,
            "repository name not known",
        );
        check(
            r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#,
            Missing::Content,
            "MANIFEST_UNKNOWN",
        );
        check(
            "{\"errors\":[{\"code\":\"X\",\"message\":\"a\\n\u{202e}b\"}]}",
            Missing::Unspecified,
            "a  b",
        );
        check(r#"{"details":"gone"}"#, Missing::Unspecified, "gone");
        check(
            r#"{"error":"invalid_grant","error_description":"unknown"}"#,
            Missing::Unspecified,
            "unknown",
        );
        check(
            r#"{"error":"invalid_grant"}"#,
            Missing::Unspecified,
            "invalid_grant",
        );
        check(
            r#"{"errors":[{"code":"A","message":"b"}],"error_description":null}"#,
            Missing::Unspecified,
            "b",
        );
        check(r#"{"error":{"code":1}}"#, Missing::Unspecified, "not found");
        check("<html>", Missing::Unspecified, "not found");
    }
}
