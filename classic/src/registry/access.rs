//! The rights and settings with which the images of a CatalogSource are pulled: those of the catalog and of its
//! bundles.

use std::sync::Arc;

use kube::Client;
use olm_api::names::annotation_of;
use olm_api::names::user::SIGNATURE_POLICY;
use olm_classic::cluster::{items, text};
use olm_cluster::image_policies;
use olm_image::{
    Access, Credentials, CredentialsError, Options, Reference, ReferenceError, Rules, Settings, SettingsError,
};
use olm_platform::pull_secrets::{PullSecrets, ReadError};
use serde_json::Value;

use crate::args::CatalogArgs;

/// The service account of a namespace whose pull secrets its sources use, too.
const DEFAULT_ACCOUNT: &str = "default";

/// An image cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The reference is no fully qualified image reference.
    #[error("cannot read the image reference {reference:?}")]
    Reference {
        /// The reference.
        reference: String,
        /// The cause.
        #[source]
        source: ReferenceError,
    },
    /// A pull secret cannot be read.
    #[error(transparent)]
    Secret(#[from] ReadError),
    /// A pull secret is invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The configuration of registries or signatures cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The process ends.
    #[error("the program stops")]
    Stopped,
}

/// Reads an image reference. A short name is one of docker.io, as for the nodes that pulled these images before.
///
/// # Errors
/// It is none.
pub fn parse(reference: &str) -> Result<Reference, AccessError> {
    Reference::parse_familiar(reference).map_err(|source| AccessError::Reference {
        reference: reference.to_owned(),
        source,
    })
}

/// The rights with which the images of a source are pulled, and the rules that they must satisfy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Puller {
    /// The namespace of the source.
    pub namespace: String,
    /// The names of its pull secrets.
    pub secrets: Vec<String>,
    /// The rules beside the signature policy of the file.
    pub rules: Rules,
}

impl Puller {
    /// The rights of a CatalogSource as it is on the wire, with these rules.
    pub fn of(source: &Value, rules: Rules) -> Self {
        let secrets = items(source, "/spec/secrets").filter_map(Value::as_str);
        Self {
            namespace: text(source, "/metadata/namespace").to_owned(),
            secrets: secrets.map(str::to_owned).collect(),
            rules,
        }
    }

    /// The rights of a CatalogSource that may be gone, whose namespace is known.
    pub fn of_catalog(source: Option<&Value>, namespace: &str, rules: Rules) -> Self {
        match source {
            Some(source) => Self::of(source, rules),
            None => Self {
                namespace: namespace.to_owned(),
                secrets: Vec::new(),
                rules,
            },
        }
    }
}

/// The rules of a CatalogSource or Subscription itself for its image. A list that cannot be read refuses the image.
pub fn own_rules(object: &Value) -> Rules {
    let of = |pointer: &str| text(object, pointer);
    let (kind, namespace) = (of("/kind"), of("/metadata/namespace"));
    let name = format!("{namespace}/{}", of("/metadata/name"));
    let annotations = object.pointer("/metadata/annotations");
    let list = annotations.and_then(|annotations| annotations.get(SIGNATURE_POLICY)?.as_str());
    image_policies::own_rules(kind, &name, list)
        .unwrap_or_else(|fault| Rules::unreadable(&annotation_of(SIGNATURE_POLICY, kind, &name), &fault))
}

/// Reads credentials and settings for pulls, as they are now.
#[derive(Clone)]
pub struct Accesses {
    client: Client,
    settings: Settings,
    global_secret: Option<(String, String)>,
}

impl Accesses {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// When a flag cannot be read.
    pub fn new(client: Client, args: &CatalogArgs) -> anyhow::Result<Self> {
        Ok(Self {
            client,
            settings: settings(args),
            global_secret: args.classic.common.pull_secret()?,
        })
    }

    /// Logs which settings are used.
    pub fn announce(&self) {
        self.settings.announce();
    }

    /// The access of a source: the pull secrets that it names, those of the default account of its namespace, and the
    /// one for all registries.
    ///
    /// # Errors
    /// A Secret or the settings cannot be read.
    pub async fn of(&self, puller: &Puller) -> Result<Access, AccessError> {
        let account = (puller.namespace.clone(), DEFAULT_ACCOUNT.to_owned());
        let named = puller
            .secrets
            .iter()
            .map(|name| (puller.namespace.clone(), name.clone()));
        let global = self.global_secret.clone();
        let secrets = PullSecrets::new(self.client.clone(), global, Some(account)).and(named);
        let secrets = secrets.read().await?;
        let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
        let credentials = Arc::new(Credentials::from_secrets(secrets)?);
        let settings = self.settings.clone();
        let reading = tokio::task::spawn_blocking(move || settings.read());
        let (registries, policy) = reading.await.map_err(|_| AccessError::Stopped)??;
        Ok(Access {
            credentials,
            registries,
            policy,
            rules: puller.rules.clone(),
        })
    }
}

/// The files that say where images come from and which may be used.
pub fn settings(args: &CatalogArgs) -> Settings {
    let common = &args.classic.common;
    Settings {
        registries: common.registries_file(),
        policy: common.policy_file(),
        plain_http: args.registry.plain_http_registries.clone(),
    }
}

/// The options of all clients of image registries.
pub fn options(args: &CatalogArgs) -> Options {
    let common = &args.classic.common;
    Options {
        authorities: (!common.pull_cas_dir.is_empty()).then(|| common.pull_cas_dir.clone().into()),
        authorities_setting: "--pull-cas-dir",
        token_services: common.registry_token_services.clone(),
        ..Options::new(concat!("catalog-operator/", env!("CARGO_PKG_VERSION")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_sets_rules_for_its_own_image() {
        let rules = |annotations: Value| {
            own_rules(&json!({
                "kind": "CatalogSource",
                "metadata": {"namespace": "n", "name": "c", "annotations": annotations},
            }))
        };
        assert_eq!(rules(json!({})), Rules::default());
        let list = r#"[{"type": "reject"}]"#;
        let origin = annotation_of(SIGNATURE_POLICY, "CatalogSource", "n/c");
        let expected = Rules::parse(&origin, list).unwrap();
        assert_eq!(rules(json!({SIGNATURE_POLICY: list})), expected);
        for unreadable in [
            "",
            "reject",
            r#"[{"type": "sigstoreSigned", "keyPath": "/etc/key"}]"#,
        ] {
            let rules = rules(json!({SIGNATURE_POLICY: unreadable}));
            assert_ne!(rules, Rules::default(), "{unreadable}");
        }
    }
}
