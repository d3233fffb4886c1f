//! Hints for users when a catalog cannot be fetched: the last lines of the message.

use olm_image::{Missing, Obstacle, PullError, RegistryError};
use olm_serve::UnpackError;

use crate::content::ContentError;

/// The hint after a failure that catalogd retries. A point in time would change the status with every attempt.
pub(crate) const RETRY: &str = "catalogd retries after 1 s at first and then at least every 6 min, and at once when the spec or \
                                an annotation of the ClusterCatalog changes";

/// The hint for an error, if there is one. `image` is the field and the reference of the image.
pub(crate) fn hint(error: &ContentError, image: &str) -> Option<String> {
    match error {
        ContentError::Unpack(UnpackError::Pull(error)) => of_pull(error, image),
        ContentError::Reference { .. } => Some(format!(
            "set {image} to REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST"
        )),
        ContentError::TagAndDigest(_) => Some(format!("remove the tag or the digest from {image}")),
        _ => None,
    }
}

fn of_pull(error: &PullError, image: &str) -> Option<String> {
    let source = match error {
        PullError::Fetch { source, .. } => source,
        PullError::Policy { source, .. } => return source.remedy().map(str::to_owned),
        _ => return None,
    };
    Some(match source {
        RegistryError::NotFound { missing, .. } => match missing {
            Missing::Repository => format!(
                "check the repository in {image}; some registries also answer so without access rights: \
                 --global-pull-secret names the Secret with catalogd's credentials"
            ),
            Missing::Content => format!("check the tag or digest in {image}, or push the image"),
            Missing::Unspecified => format!(
                "check the repository and the tag or digest in {image}; some registries also answer so without \
                 access rights: --global-pull-secret names the Secret with catalogd's credentials"
            ),
        },
        RegistryError::Unauthorized { registry, .. } | RegistryError::Denied { registry, .. } => format!(
            "add credentials for {registry} with read access to the Secret that catalogd's flag --global-pull-secret \
             names, or to an imagePullSecret of its service account"
        ),
        RegistryError::Unreachable { source, .. } => match source.obstacle() {
            Obstacle::Name => {
                format!("check the host in {image}, and that DNS in catalogd's Pod resolves it")
            }
            Obstacle::Refused => format!("check the host and port in {image}, and that the registry is running"),
            Obstacle::NoTls => {
                "if the registry serves plain HTTP, add it to catalogd's flag --plain-http-registries"
                    .to_owned()
            }
            // The error itself names the remedy.
            Obstacle::Certificate | Obstacle::Redirect => return None,
            Obstacle::Closed | Obstacle::Timeout | Obstacle::Other => format!(
                "check the host in {image}, and that catalogd's Pod can reach it (NetworkPolicy, firewall, HTTPS_PROXY)"
            ),
        },
        RegistryError::TokenService { host, .. } => format!(
            "if credentials may go to {host}, add it to catalogd's flag --registry-token-services"
        ),
        RegistryError::Status { status: 429, .. } => {
            "the registry limits the request rate: credentials may raise the limit, a longer pollIntervalMinutes \
             makes fewer requests"
                .to_owned()
        }
        RegistryError::Status { status: 500.., .. } => {
            "the registry failed: see its log".to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_that_users_can_fix_has_a_hint_that_names_the_setting() {
        let check = |source: RegistryError, expected: Option<&str>| {
            let error = PullError::Fetch {
                what: "the digest",
                reference: "r.example/a:v1".to_owned(),
                source,
            };
            let found = hint(&error.into(), "spec.source.image.ref (r.example/a:v1)");
            match expected {
                Some(part) => assert!(
                    found.as_deref().is_some_and(|hint| hint.contains(part)),
                    "{found:?}"
                ),
                None => assert_eq!(found, None),
            }
        };
        let registry = || "r.example".to_owned();
        let not_found = |missing| RegistryError::NotFound {
            registry: registry(),
            what: "tag v1".to_owned(),
            message: String::new(),
            missing,
        };
        check(
            not_found(Missing::Repository),
            Some("check the repository in spec.source.image.ref (r.example/a:v1);"),
        );
        check(
            not_found(Missing::Content),
            Some("check the tag or digest in spec.source.image.ref (r.example/a:v1),"),
        );
        check(
            not_found(Missing::Unspecified),
            Some("check the repository and the tag"),
        );
        let status = |status| RegistryError::Status {
            registry: registry(),
            status,
            message: String::new(),
        };
        check(status(429), Some("pollIntervalMinutes"));
        check(status(502), Some("see its log"));
        check(status(418), None);
        let elsewhere = RegistryError::TokenService {
            registry: registry(),
            host: "auth.example".to_owned(),
        };
        check(elsewhere, Some("--registry-token-services"));
        let denied = RegistryError::Denied {
            registry: registry(),
            message: String::new(),
        };
        check(denied, Some("--global-pull-secret"));
    }
}
