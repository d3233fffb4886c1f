//! Connects to the registries of CatalogSources.

use futures::TryStreamExt as _;
use olm_classic::registry::{BundleMessage, PackageMessage};

use super::load::{Connect, Registry};
use crate::registry::client::{ClientError, RegistryClient};
use crate::registry::trust::Trust;

/// Connects to registries over the network.
pub(super) struct Network {
    /// The authorities of registries that speak TLS.
    pub(super) trust: Trust,
}

impl Connect for Network {
    type Registry = RegistryClient;

    async fn connect(&self, address: &str) -> Result<RegistryClient, ClientError> {
        RegistryClient::connect(address, &self.trust).await
    }
}

impl Registry for RegistryClient {
    async fn packages(&self) -> Result<Vec<String>, ClientError> {
        let mut names = self.list_packages().await?;
        names.sort_unstable();
        Ok(names)
    }

    async fn package(&self, name: &str) -> Result<PackageMessage, ClientError> {
        self.get_package(name).await
    }

    async fn head(&self, package: &str, channel: &str) -> Result<BundleMessage, ClientError> {
        self.get_bundle_for_channel(package, channel).await
    }

    async fn bundles(
        &self,
        mut each: impl FnMut(BundleMessage) -> Result<(), ClientError> + Send,
    ) -> Result<(), ClientError> {
        let mut bundles = self.list_bundles().await?;
        while let Some(bundle) = bundles.try_next().await? {
            each(bundle)?;
        }
        Ok(())
    }
}
