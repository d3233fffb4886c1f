//! What somebody can do about a catalog that cannot be fetched, said once, at the end of the message.

use olm_image::{Missing, Obstacle, PullError, RegistryError};

use crate::content::ContentError;

/// What follows what fails for the moment. A point in time would change, and be written, with every try.
pub(crate) const AGAIN: &str = "it is tried again by itself, after 1 s at first and then at least every 6 min, and at once \
                                when the spec or an annotation of the ClusterCatalog changes";

/// The way out of an error, if one is known. `image` says which image it is about, with what names it.
pub(crate) fn hint(error: &ContentError, image: &str) -> Option<String> {
    match error {
        ContentError::Pull(error) => of_pull(error, image),
        ContentError::Reference { .. } => Some(format!(
            "{image} has to be REGISTRY/REPOSITORY:TAG, or with @DIGEST"
        )),
        ContentError::TagAndDigest(_) => Some(format!("leave the tag or the digest out of {image}")),
        _ => None,
    }
}

fn of_pull(error: &PullError, image: &str) -> Option<String> {
    let PullError::Fetch { source, .. } = error else {
        return None;
    };
    Some(match source {
        RegistryError::NotFound { missing, .. } => match missing {
            Missing::Repository => format!(
                "check the repository in {image}; some registries also say this to those who may not see it: \
                 --global-pull-secret holds catalogd's credentials"
            ),
            Missing::Content => format!("check the tag or digest in {image}, or push the image"),
            Missing::Unsaid => format!(
                "check the repository and the tag or digest in {image}; some registries also say this to those who may \
                 not see them: --global-pull-secret holds catalogd's credentials"
            ),
        },
        RegistryError::Unauthorized { registry, .. } | RegistryError::Denied { registry, .. } => format!(
            "put credentials for {registry} that may read the image into the Secret that catalogd's flag \
             --global-pull-secret names, or into an imagePullSecret of its service account"
        ),
        RegistryError::Unreachable { source, .. } => match source.obstacle() {
            Obstacle::Name => {
                format!("check the host in {image}, and that DNS knows it in catalogd's Pod")
            }
            Obstacle::Refused => format!("check host and port in {image}, and that the registry runs"),
            Obstacle::NoTls => {
                "a registry that speaks plain HTTP has to be named by catalogd's flag --plain-http-registries"
                    .to_owned()
            }
            // The error itself says what would change it.
            Obstacle::Certificate | Obstacle::Redirect => return None,
            Obstacle::Other => format!(
                "check the host in {image}, and that catalogd's Pod may reach it (NetworkPolicy, firewall, HTTPS_PROXY)"
            ),
        },
        RegistryError::TokenService { host, .. } => format!(
            "if credentials may be sent to {host}, name it in catalogd's flag --registry-token-services"
        ),
        RegistryError::Status { status: 429, .. } => {
            "the registry limits how often it is asked: credentials may raise the limit, and a longer \
             pollIntervalMinutes asks less"
                .to_owned()
        }
        RegistryError::Status { status: 500.., .. } => {
            "the fault is the registry's: its log says more".to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_that_somebody_can_mend_has_a_way_out_that_names_what_to_change() {
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
            not_found(Missing::Unsaid),
            Some("check the repository and the tag"),
        );
        let status = |status| RegistryError::Status {
            registry: registry(),
            status,
            message: String::new(),
        };
        check(status(429), Some("pollIntervalMinutes"));
        check(status(502), Some("the registry's"));
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
