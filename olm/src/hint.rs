//! Hints: remedies for an error, printed after it.

use std::io;

use olm_bundle::PrepareError;
use olm_image::{Missing, RegistryError, Unreachable};
pub(crate) use olm_migrate::hint::Hint;
use olm_transport::Obstacle;

/// The remedy for an error, if one is known.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    if let Some(Hint(hint)) = error.downcast_ref() {
        return Some(hint.clone());
    }
    if let Some(found) = error.chain().find_map(of_system) {
        return Some(found.to_owned());
    }
    if let Some(advice) = error.chain().find_map(of_configuration) {
        return Some(advice);
    }
    let connection = error.chain().find_map(of_connection);
    let answer = || {
        error
            .chain()
            .find_map(|cause| of_answer(cause.downcast_ref::<RegistryError>()?))
    };
    connection.map(str::to_owned).or_else(answer)
}

/// The remedy for an error of the system.
fn of_system(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let kind = cause.downcast_ref::<io::Error>()?.kind();
    (kind == io::ErrorKind::AddrInUse)
        .then_some("another program listens there: set --addr to another address; port 0 picks a free one")
}

/// The remedy for a configuration that does not fit the bundle.
fn of_configuration(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    match cause.downcast_ref()? {
        PrepareError::Config { advice, .. } => advice.clone(),
        _ => None,
    }
}

/// The remedy for a failed connection.
fn of_connection(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let registry = cause.downcast_ref().map(Unreachable::obstacle);
    Some(match registry.unwrap_or_else(|| Obstacle::of(cause)) {
        Obstacle::NoTls => {
            "the server speaks plain HTTP: set --plain-http for a registry, use http:// for a catalogd"
        }
        Obstacle::Closed => {
            "the server closed the connection during the TLS handshake: it may speak plain HTTP (set --plain-http), or \
             only an older version of TLS"
        }
        Obstacle::Refused => "check host and port, and that the server runs: nothing listens there",
        Obstacle::Name => "check the host's name, and that this machine can resolve it",
        Obstacle::Timeout => {
            "check host and port, and that a firewall or proxy lets the connection through (HTTPS_PROXY, NO_PROXY)"
        }
        Obstacle::Certificate | Obstacle::Redirect | Obstacle::Other => return None,
    })
}

/// The remedy for an error of a registry.
fn of_answer(error: &RegistryError) -> Option<String> {
    Some(match error {
        RegistryError::Unauthorized { registry, .. } => format!(
            "run `podman login {registry}` or `docker login {registry}`, or set --authfile to a file with \
             credentials"
        ),
        RegistryError::Denied { registry, .. } => format!(
            "the credentials for {registry} lack the permission: request it, or set --authfile to other credentials"
        ),
        RegistryError::NotFound { missing, .. } => match missing {
            Missing::Repository => {
                "check the repository; some registries answer like this when you lack access to it"
            }
            Missing::Content => "check the tag or digest: the repository exists",
            Missing::Unspecified => {
                "check the repository and the tag or digest; some registries answer like this when you lack access to them"
            }
        }
        .to_owned(),
        RegistryError::TokenService { host, .. } => {
            format!("set --token-service {host} if credentials may go to {host}")
        }
        RegistryError::Status { status: 500.., .. } => {
            "the registry failed: retry, or check its log".to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use olm_transport::Unresolved;

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
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
            Some("--plain-http"),
        );
        check(io::Error::from(io::ErrorKind::AddrInUse), Some("--addr"));
        check(
            io::Error::from(io::ErrorKind::ConnectionRefused),
            Some("nothing listens"),
        );
        check(io::Error::from(io::ErrorKind::TimedOut), Some("firewall"));
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
        check(not_found(Missing::Repository), Some("check the repository;"));
        check(not_found(Missing::Content), Some("the repository exists"));
        check(
            not_found(Missing::Unspecified),
            Some("the repository and the tag"),
        );
        check(
            Unresolved(io::Error::other("Name or service not known")),
            Some("resolve it"),
        );
        check(status(503), Some("retry"));
        check(status(418), None);
        check(
            anyhow!("words").context(Hint("do this".to_owned())),
            Some("do this"),
        );
        check(anyhow!("words"), None);
    }
}
