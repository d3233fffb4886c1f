//! The cluster that all scenarios share, the program and its registries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use classic::registry::catalog::StoredCatalog;
use classic::registry::server::Listener;
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use olm_serve::{Commit, Findings, Origin, Store, StoreLimits};
use olm_test::classic::{aggregated, packageserver_rights, prepare};
use olm_test::objects::api;
use olm_test::shared::Shared;
use olm_test::world::{CLASSIC_NAMESPACE, Lab, Manager, eventually, free_address};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::content::Package;

/// The cluster with the running program.
pub(crate) static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// Time limit for steps that take a second; on a busy machine all of them take much longer.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// The running program.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) server: Manager,
    /// The address of the program, `HOST:PORT`.
    pub(crate) address: String,
    store: Arc<Store>,
    registries: Mutex<HashMap<String, (Listener, u64)>>,
    stop: CancellationToken,
    _folder: TempDir,
}

impl Stage {
    async fn start() -> Result<Self> {
        let lab = Lab::empty().await?;
        prepare(&lab)?;
        lab.apply(&packageserver_rights())?;
        let address = free_address()?;
        let (host, port) = address.split_once(':').context("no port")?;
        let arguments = vec![
            format!("--bind-address={host}"),
            format!("--secure-port={port}"),
            format!("--global-namespace={CLASSIC_NAMESPACE}"),
            "-v=4".to_owned(),
        ];
        lab.apply(&aggregated(port.parse()?))?;
        let server = Manager::classic(&lab, "packageserver", "packageserver", arguments).await?;
        let folder = tempfile::tempdir()?;
        let mut stage = Self {
            store: Arc::new(Store::open(folder.path(), StoreLimits::default())?),
            _folder: folder,
            lab,
            server,
            address,
            registries: Mutex::default(),
            stop: CancellationToken::new(),
        };
        stage.server.start(&stage.lab.cluster)?;
        stage.server.ready().await?;
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.packages.operators.coreos.com"},
        });
        eventually("the API server forwards requests", SOON, async || {
            let found = api(&stage.lab.client, &service)
                .get("v1.packages.operators.coreos.com")
                .await?;
            let conditions = found.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let available = conditions
                .iter()
                .find(|condition| condition["type"] == "Available");
            let available = available.context("no condition")?;
            anyhow::ensure!(available["status"] == "True", "{available}");
            Ok(Some(()))
        })
        .await
        .with_context(|| stage.server.log_end())?;
        Ok(stage)
    }

    /// Makes a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        self.lab
            .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})])
    }

    /// Serves packages as a CatalogSource, in the place of those that it had.
    pub(crate) async fn serve(&self, namespace: &str, name: &str, packages: &[Package]) -> Result<()> {
        let key = format!("{namespace}-{name}");
        let mut registries = self.registries.lock().await;
        let is_new = !registries.contains_key(&key);
        if is_new {
            registries.insert(key.clone(), (Listener::open(&self.stop).await?, 0));
        }
        let (listener, count) = registries.get_mut(&key).context("no registry")?;
        *count += 1;
        let stored = format!("{key}-{count}");
        let mut writer = self.store.begin(&stored)?;
        for blob in packages.iter().flat_map(Package::blobs) {
            let text = |key: &str| blob[key].as_str().unwrap_or_default().to_owned();
            let json = blob.to_string();
            writer.push(&text("schema"), &text("package"), &text("name"), json.as_bytes())?;
        }
        let now = Timestamp::now();
        writer.commit(Commit {
            origin: Origin::default(),
            findings: Findings::default(),
            modified: now,
            now,
        })?;
        let snapshot = self.store.snapshot(&stored).context("no content")?;
        listener.slot.set(Some(Arc::new(StoredCatalog::new(snapshot))));
        let (port, count) = (listener.port, *count);
        drop(registries);
        if is_new {
            self.lab
                .apply(&[source(namespace, name, &format!("127.0.0.1:{port}"))])?;
        }
        self.connection(namespace, name, "READY", count).await
    }

    /// Sets the connection in the status of a CatalogSource, as the catalog-operator does.
    pub(crate) async fn connection(
        &self,
        namespace: &str,
        name: &str,
        state: &str,
        count: u64,
    ) -> Result<()> {
        let time = Timestamp::from_second(1_700_000_000 + i64::try_from(count)?)?.to_string();
        let status = json!({"status": {"connectionState": {
            "address": "", "lastObservedState": state, "lastConnect": time,
        }}});
        api(&self.lab.client, &source(namespace, name, ""))
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// Deletes a CatalogSource.
    pub(crate) fn delete(&self, namespace: &str, name: &str) -> Result<()> {
        let deleted = self.lab.kubectl(&[
            "delete",
            "catalogsources.operators.coreos.com",
            name,
            "-n",
            namespace,
        ]);
        deleted.map(drop)
    }

    /// The packages of a namespace as another client than kubectl sees them.
    pub(crate) fn packages(&self, namespace: &str) -> Api<DynamicObject> {
        packages(&self.lab.client, namespace)
    }

    /// Waits until kubectl, asked with these arguments, shows as much, and returns it.
    pub(crate) async fn shows(&self, arguments: &[&str], is_wanted: impl Fn(&str) -> bool) -> Result<String> {
        let all = [&["get", "packagemanifests"], arguments].concat();
        let what = format!("kubectl {}", all.join(" "));
        let mut last = String::new();
        let found = eventually(&what, SOON, async || {
            last = self.lab.kubectl(&all)?;
            Ok(is_wanted(&last).then(|| last.clone()))
        })
        .await;
        found.with_context(|| format!("it shows:\n{last}\n{}", self.server.log_end()))
    }
}

/// The packages of a namespace as this client sees them.
pub(crate) fn packages(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("packages.operators.coreos.com", "v1", "PackageManifest");
    let resource = ApiResource::from_gvk_with_plural(&kind, "packagemanifests");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// A CatalogSource with a registry at an address.
pub(crate) fn source(namespace: &str, name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
        "metadata": {"namespace": namespace, "name": name, "labels": {"team": name}},
        "spec": {
            "sourceType": "grpc", "address": address, "displayName": format!("Catalog {name}"),
            "publisher": "Samples",
        },
    })
}
