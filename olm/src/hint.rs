//! What somebody can do about an error, said once, after it.

use std::{fmt, io};

use olm_image::{Missing, RegistryError};

/// Goes with an error as its context where the place that it comes from knows a way out.
#[derive(Debug)]
pub(crate) struct Hint(pub(crate) String);

impl fmt::Display for Hint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The way out of an error, if one is known.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    if let Some(Hint(hint)) = error.downcast_ref() {
        return Some(hint.clone());
    }
    if let Some(found) = error.chain().find_map(of_system) {
        return Some(found.to_owned());
    }
    let said = error.chain().map(ToString::to_string).collect::<Vec<_>>();
    let connection = said.iter().rev().find_map(|text| of_connection(text));
    let answer = || {
        error
            .chain()
            .find_map(|cause| of_answer(cause.downcast_ref::<RegistryError>()?))
    };
    connection.map(str::to_owned).or_else(answer)
}

/// What helps against what the system itself refuses.
fn of_system(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let kind = cause.downcast_ref::<io::Error>()?.kind();
    (kind == io::ErrorKind::AddrInUse)
        .then_some("another program listens there: name another address by --addr; port 0 is any free one")
}

/// What helps against a connection that does not come about. TLS tells its faults as texts only.
fn of_connection(text: &str) -> Option<&'static str> {
    const HINTS: [(&str, &str); 6] = [
        (
            "InvalidContentType",
            "the server speaks plain HTTP: --plain-http for a registry, an address with http:// for a catalogd",
        ),
        (
            "tls handshake eof",
            "the server ended the connection before it was encrypted: it may speak plain HTTP (--plain-http), or only an \
             older version of TLS",
        ),
        (
            "Connection refused",
            "nothing listens there: check host and port, and that the server runs",
        ),
        (
            "failed to lookup address",
            "check the host's name, and that this machine can resolve it",
        ),
        (
            "name of the host cannot be resolved",
            "check the host's name, and that this machine can resolve it",
        ),
        (
            "timed out",
            "check host and port, and that a firewall or proxy lets the connection through (HTTPS_PROXY, NO_PROXY)",
        ),
    ];
    HINTS
        .iter()
        .find(|(part, _)| text.contains(part))
        .map(|(_, hint)| *hint)
}

/// What helps against what a registry answers.
fn of_answer(error: &RegistryError) -> Option<String> {
    Some(match error {
        RegistryError::Unauthorized { registry, .. } => format!(
            "log in by `podman login {registry}` or `docker login {registry}`, or name a file with credentials by \
             --authfile"
        ),
        RegistryError::Denied { registry, .. } => format!(
            "the credentials for {registry} do not allow it: ask for the right, or name a file with others by --authfile"
        ),
        RegistryError::NotFound { missing, .. } => match missing {
            Missing::Repository => {
                "check the name of the repository; some registries also say this to those who may not see it"
            }
            Missing::Content => "check the tag or digest: the repository is there",
            Missing::Unsaid => {
                "check the repository and the tag or digest; some registries also say this to those who may not see them"
            }
        }
        .to_owned(),
        RegistryError::TokenService { host, .. } => {
            format!("if credentials may be sent to {host}, allow it by --token-service {host}")
        }
        RegistryError::Status { status: 500.., .. } => {
            "the fault is the registry's: try again, or look into its log".to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[track_caller]
    fn check(error: impl Into<anyhow::Error>, expected: Option<&str>) {
        let found = hint(&error.into().context("cannot fetch it"));
        match expected {
            Some(part) => assert!(
                found.as_deref().is_some_and(|hint| hint.contains(part)),
                "{found:?}"
            ),
            None => assert_eq!(found, None),
        }
    }

    #[test]
    fn an_error_comes_with_a_way_out_where_one_is_known() {
        check(
            anyhow!("received corrupt message of type InvalidContentType"),
            Some("--plain-http"),
        );
        check(io::Error::from(io::ErrorKind::AddrInUse), Some("--addr"));
        check(
            RegistryError::Unauthorized {
                registry: "r.example".to_owned(),
                credentials: "anonymous access",
                message: String::new(),
            },
            Some("`docker login r.example`"),
        );
        let status = |status| RegistryError::Status {
            registry: "r.example".to_owned(),
            status,
            message: String::new(),
        };
        let not_found = |missing| RegistryError::NotFound {
            registry: "r.example".to_owned(),
            what: "tag v1".to_owned(),
            message: String::new(),
            missing,
        };
        check(not_found(Missing::Repository), Some("name of the repository"));
        check(not_found(Missing::Content), Some("the repository is there"));
        check(not_found(Missing::Unsaid), Some("the repository and the tag"));
        check(
            anyhow!("the name of the host cannot be resolved: Name or service not known"),
            Some("resolve it"),
        );
        check(status(503), Some("try again"));
        check(status(418), None);
        check(
            anyhow!("words").context(Hint("do this".to_owned())),
            Some("do this"),
        );
        check(anyhow!("words"), None);
    }
}
