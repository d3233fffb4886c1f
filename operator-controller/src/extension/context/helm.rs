//! Releases of the reference implementation's Helm runtime: which are deployed, and their content.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use olm_api::names::release as names;
use olm_platform::fresh::Fresh;
use olm_platform::write::unless;

use super::release::{self, Entry, Release, ReleaseError, ReleaseOwner};
use crate::extension::failure::{RequestError, Severity, StageError, failed};
use olm_cluster::identity::is_name;

/// The time for which a list is cached for extensions that never reported an installed bundle.
const FRESH: Duration = Duration::from_secs(10);

/// The reason why a release cannot be read or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelmError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A release is malformed.
    #[error(
        "migrating storage: the Helm release in Secret {name:?} cannot be read; restore the Secrets of the release, or delete them to install the bundle again over the existing objects"
    )]
    Release {
        /// The first Secret.
        name: String,
        source: ReleaseError,
    },
    /// The program ends.
    #[error("migrating storage: reading the release was interrupted; the controller retries")]
    CutOff,
}

impl StageError for HelmError {
    fn severity(&self) -> Severity {
        match self {
            Self::Request(_) | Self::CutOff => Severity::Transient,
            Self::Release { source, .. } => source.severity(),
        }
    }
}

/// The deployed releases by the names of their extensions.
type Entries = Arc<HashMap<String, Vec<Entry>>>;

/// The releases in the system namespace.
pub(crate) struct Releases {
    secrets: Api<Secret>,
    listed: Fresh<Entries>,
}

impl Releases {
    /// Releases in the Secrets of this namespace.
    pub(crate) fn new(client: Client, system_namespace: &str) -> Self {
        Self {
            secrets: Api::namespaced(client, system_namespace),
            listed: Fresh::new(FRESH),
        }
    }

    /// The deployed releases of an extension. `had_something`: the extension has reported an installed bundle, which
    /// needs a new list; new extensions, of which many come at a time, share one.
    pub(crate) async fn of(
        &self,
        extension: &str,
        owner: ReleaseOwner<'_>,
        had_something: bool,
    ) -> Result<Vec<Entry>, HelmError> {
        let entries = self.list(had_something).await?;
        let entries = entries.get(extension).map_or(&[][..], Vec::as_slice);
        Ok(release::ours(entries, owner).cloned().collect())
    }

    async fn list(&self, had_something: bool) -> Result<Entries, HelmError> {
        if had_something {
            self.listed.forget();
        }
        let read = async || {
            let labels = ListParams::default().labels(names::INDEX_SELECTOR);
            let found = self.secrets.list_metadata(&labels).await.map_err(failed(
                "migrating storage: cannot list the releases of the Helm runtime",
            ))?;
            let mut entries: HashMap<String, Vec<Entry>> = HashMap::new();
            let deployed = found.items.iter();
            for (name, entry) in deployed.filter_map(|secret| release::entry(&secret.metadata)) {
                entries.entry(name).or_default().push(entry);
            }
            Ok(Arc::new(entries))
        };
        self.listed.get_or(read).await
    }

    /// Reads a release of that extension from its Secrets.
    pub(crate) async fn read(&self, extension: &str, entry: &Entry) -> Result<Release, HelmError> {
        let unreadable = |source| HelmError::Release {
            name: entry.secret.clone(),
            source,
        };
        let first = self.secret(&entry.secret).await?;
        let (first, others) = first
            .and_then(|first| release::index(&first))
            .map_err(unreadable)?;
        let mut parts = vec![first];
        for name in &others {
            let part = self.secret(name).await?;
            parts.push(part.and_then(|part| release::chunk(&part)).map_err(unreadable)?);
        }
        let name = extension.to_owned();
        tokio::task::spawn_blocking(move || release::decode(&name, &parts))
            .await
            .map_err(|_| HelmError::CutOff)?
            .map_err(unreadable)
    }

    async fn secret(&self, name: &str) -> Result<Result<Secret, ReleaseError>, HelmError> {
        let missing = || ReleaseError::Missing(name.to_owned());
        if !is_name(name) {
            // No Secret has such a name, and the text could lead to another path.
            return Ok(Err(missing()));
        }
        let found = self.secrets.get_opt(name).await;
        let found = found.map_err(failed(format!("migrating storage: cannot read Secret {name:?}")))?;
        Ok(found.ok_or_else(missing))
    }

    /// Deletes a release. A missing one is ignored.
    pub(crate) async fn remove(&self, secret: &str) -> Result<(), HelmError> {
        // This makes the list stale.
        self.listed.forget();
        let removed = self.secrets.delete(secret, &DeleteParams::background()).await;
        let removed = unless(&[404], removed).map(drop);
        let what = format!("cannot remove the release in Secret {secret:?}, which a revision has replaced");
        Ok(removed.map_err(failed(what))?)
    }
}
