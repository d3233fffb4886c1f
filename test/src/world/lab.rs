//! A cluster with a registry, and the operations of tests on both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use olm_api::names;
use olm_image::{Access, ImageBuilder, Images, LayerBuilder, Pinned, Platform, Reference};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{apply_manifests, kubectl, repository};
use crate::cluster::{Cluster, Mode};
use crate::samples;

/// Labels that make an image a bundle of the sample operator's kind.
const BUNDLE_LABELS: &[(&str, &str)] = &[
    (
        "operators.operatorframework.io.bundle.mediatype.v1",
        "registry+v1",
    ),
    ("operators.operatorframework.io.bundle.manifests.v1", "manifests/"),
    ("operators.operatorframework.io.bundle.metadata.v1", "metadata/"),
];

/// The label with the path of the content in a catalog image.
const CATALOG_LABELS: &[(&str, &str)] = &[("operators.operatorframework.io.index.configs.v1", "/configs")];

/// A cluster with a registry, and the operations of tests on both.
pub struct Lab {
    /// The cluster.
    pub cluster: Cluster,
    /// An administrator's client.
    pub client: Client,
    images: Images,
    folder: TempDir,
    _place: Option<SemaphorePermit<'static>>,
}

/// Tests that start clusters of their own wait for each other: more than two at once starve on a small machine.
static PLACES: Semaphore = Semaphore::const_new(2);

/// Adds a permit for a cluster that is kept until the process ends. Its own permit is never returned, and other tests
/// would wait for it for ever.
pub(crate) fn replace_kept_place() {
    PLACES.add_permits(1);
}

impl Lab {
    /// Starts a cluster with the objects in a folder of the repository that processes need: definitions, accounts,
    /// rights.
    ///
    /// # Errors
    /// When a part is missing or does not start.
    pub async fn with_manifests(folder: &str) -> Result<Self> {
        let lab = Self::empty().await?;
        apply_manifests(&lab.cluster, folder)?;
        Ok(lab)
    }

    /// Starts a cluster without our objects.
    ///
    /// # Errors
    /// When a part is missing or does not start.
    pub async fn empty() -> Result<Self> {
        // Whichever test is first installs it.
        olm_platform::crypto::install();
        Self::alone().await
    }

    /// Starts a cluster that has our CRDs and the namespace of the managers.
    ///
    /// # Errors
    /// When a part is missing or does not start.
    pub async fn with_definitions() -> Result<Self> {
        let lab = Self::empty().await?;
        let crds = repository().join("manifests/crds").display().to_string();
        lab.kubectl(&["apply", "--server-side", "-k", &crds])?;
        lab.kubectl(&["create", "namespace", names::SYSTEM_NAMESPACE])?;
        Ok(lab)
    }

    /// Starts a cluster, as one of few.
    async fn alone() -> Result<Self> {
        let place = PLACES.acquire().await?;
        Self::assemble(Cluster::start(Mode::Simulated).await?, Some(place)).await
    }

    /// Uses an existing cluster.
    ///
    /// # Errors
    /// When it has no registry or is unreachable.
    pub async fn over(cluster: Cluster) -> Result<Self> {
        Self::assemble(cluster, None).await
    }

    async fn assemble(cluster: Cluster, place: Option<SemaphorePermit<'static>>) -> Result<Self> {
        let client = cluster.client().await?;
        // The cluster's guard removes it, too, when no owner is left to drop this.
        let folder = TempDir::with_prefix_in("lab-", &cluster.info().state)?;
        let authorities = folder.path().join("registry-ca");
        std::fs::create_dir(&authorities)?;
        std::fs::copy(
            &cluster.registry().context("the cluster has no registry")?.ca,
            authorities.join("ca.crt"),
        )?;
        let images = Images::new(olm_image::Options {
            authorities: Some(authorities),
            ..olm_image::Options::new("olm-test")
        });
        Ok(Self {
            cluster,
            client,
            images,
            folder,
            _place: place,
        })
    }

    /// The directory with the registry's authority.
    pub fn authorities(&self) -> PathBuf {
        self.folder.path().join("registry-ca")
    }

    /// The authority that catalogd has published for its clients.
    ///
    /// # Errors
    /// When none is published.
    pub async fn catalogd_authority(&self) -> Result<reqwest::Certificate> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), names::SYSTEM_NAMESPACE);
        let map = maps.get(names::certificate::CATALOGD_AUTHORITY).await?;
        let pem = map.data.unwrap_or_default().remove("ca.crt");
        let pem = pem.context("catalogd has published no authority")?;
        Ok(reqwest::Certificate::from_pem(pem.as_bytes())?)
    }

    /// The registry (HTTPS) that images are pushed to, as `HOST:PORT`.
    ///
    /// # Errors
    /// Never for a cluster with a registry.
    pub fn registry(&self) -> Result<&str> {
        Ok(&self
            .cluster
            .registry()
            .context("the cluster has no registry")?
            .tls)
    }

    /// Pushes files as an image with these labels; `name` is `REPOSITORY:TAG`.
    ///
    /// # Errors
    /// When the registry refuses it.
    pub async fn push(
        &self,
        name: &str,
        files: &BTreeMap<String, Vec<u8>>,
        labels: &[(&str, &str)],
    ) -> Result<Pinned> {
        push(&self.images, self.registry()?, name, files, labels).await
    }

    /// Pushes a bundle (its annotations become the image's labels) and returns its reference by digest.
    ///
    /// # Errors
    /// When the registry refuses it.
    pub async fn push_bundle(&self, name: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<String> {
        Ok(self.push(name, files, BUNDLE_LABELS).await?.to_string())
    }

    /// Pushes a catalog of one file and returns its reference by tag.
    ///
    /// # Errors
    /// When the registry refuses it.
    pub async fn push_catalog(&self, name: &str, blobs: &str) -> Result<String> {
        let files = BTreeMap::from([("configs/catalog.json".to_owned(), blobs.as_bytes().to_vec())]);
        self.push_catalog_of(name, &files).await
    }

    /// Pushes a catalog of files below `configs` and returns its reference by tag.
    ///
    /// # Errors
    /// When the registry refuses it.
    pub async fn push_catalog_of(&self, name: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<String> {
        self.push(name, files, CATALOG_LABELS).await?;
        Ok(format!("{}/{name}", self.registry()?))
    }

    /// Pushes bundles and the catalog of the sample operator in these versions under `greeter-catalog:latest`;
    /// `operator` is the image that its Deployment runs.
    ///
    /// # Errors
    /// When the registry refuses them.
    pub async fn publish_greeter(&self, versions: &[&str], operator: &str) -> Result<String> {
        self.publish("greeter", versions, operator).await
    }

    /// Pushes the sample operator in these versions as another package, whose catalog is `PACKAGE-catalog:latest`;
    /// `operator` is the image that its Deployment runs.
    ///
    /// # Errors
    /// When the registry refuses them.
    pub async fn publish(&self, package: &str, versions: &[&str], operator: &str) -> Result<String> {
        let blobs = self.push_bundles(package, versions, operator).await?;
        self.push_catalog(&format!("{package}-catalog:latest"), &blobs)
            .await
    }

    /// Pushes the bundles of [`Lab::publish`] as `PACKAGE-bundle:vVERSION` and returns their blobs for a catalog.
    ///
    /// # Errors
    /// When the registry refuses them.
    pub async fn push_bundles(&self, package: &str, versions: &[&str], operator: &str) -> Result<String> {
        let mut bundles = BTreeMap::new();
        for version in versions {
            let files = samples::renamed_bundle(package, version, operator);
            let name = format!("{package}-bundle:v{version}");
            bundles.insert((*version).to_owned(), self.push_bundle(&name, &files).await?);
        }
        let catalog = samples::catalog(versions, |version| {
            bundles.get(version).cloned().unwrap_or_default()
        });
        Ok(samples::renamed(package, &catalog))
    }

    /// Writes a changed copy of a file of the repository for another package, and returns its path.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn sample_file(
        &self,
        path: &str,
        package: &str,
        change: impl FnOnce(String) -> String,
    ) -> Result<String> {
        let text = std::fs::read_to_string(repository().join(path))?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let copy = self.folder().join(format!("{package}-{name}"));
        std::fs::write(&copy, change(samples::renamed(package, &text)))?;
        Ok(copy.display().to_string())
    }

    /// Applies objects as an administrator, in the order given.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        let text = objects
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        kubectl(
            &self.cluster,
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            Some(&text),
        )
        .map(drop)
    }

    /// Applies a file of the repository, for example `manifests/samples/greeter.yaml`.
    ///
    /// # Errors
    /// When the API server refuses an object in it.
    pub fn apply_file(&self, path: &str) -> Result<()> {
        let path = repository().join(path);
        kubectl(
            &self.cluster,
            &["apply", "--server-side", "-f", &path.display().to_string()],
            None,
        )
        .map(drop)
    }

    /// Has the cluster serve ClusterImagePolicies and ImagePolicies, as OpenShift does.
    ///
    /// # Errors
    /// When the API server does not serve them within a minute.
    pub fn serve_image_policies(&self) -> Result<()> {
        self.apply_file("test/samples/definitions/image_policies.yaml")?;
        let kinds = ["clusterimagepolicies", "imagepolicies"];
        let [first, second] = kinds.map(|plural| format!("crd/{plural}.config.openshift.io"));
        let condition = "--for=condition=Established";
        self.kubectl(&["wait", condition, "--timeout=1m", &first, &second])?;
        for plural in kinds {
            self.await_watch(&format!("/apis/config.openshift.io/v1/{plural}"))?;
        }
        Ok(())
    }

    /// Waits until the API server can watch a kind that was just defined. It lists the kind some seconds earlier, and
    /// answers watches with 429 until then.
    fn await_watch(&self, path: &str) -> Result<()> {
        let watch = format!("{path}?watch=1&timeoutSeconds=1");
        let begin = Instant::now();
        loop {
            match self.kubectl(&["get", "--raw", &watch]) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > Duration::from_mins(1) => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Applies the other objects in an extension's file: its namespace, account and rights.
    ///
    /// # Errors
    /// The file cannot be read, or is refused.
    pub fn apply_without_extension(&self, path: &str) -> Result<()> {
        let text = std::fs::read(repository().join(path))?;
        let mut objects = Vec::new();
        for document in olm_yaml::documents(text.as_slice(), &olm_yaml::Limits::default()) {
            let object = document?.into_value()?;
            if object["kind"] != "ClusterExtension" {
                objects.push(object);
            }
        }
        self.apply(&objects)
    }

    /// Waits until the API server serves all CustomResourceDefinitions.
    ///
    /// # Errors
    /// When one of them is not established within a minute.
    pub fn await_definitions(&self) -> Result<()> {
        let arguments = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ];
        self.kubectl(&arguments).map(drop)
    }

    /// Runs kubectl as an administrator and returns its output.
    ///
    /// # Errors
    /// When it fails; the error contains its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&self.cluster, arguments, None)
    }

    /// A folder that lives as long as this.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

async fn push(
    images: &Images,
    registry: &str,
    name: &str,
    files: &BTreeMap<String, Vec<u8>>,
    labels: &[(&str, &str)],
) -> Result<Pinned> {
    let mut layer = LayerBuilder::new();
    for (path, content) in files {
        layer.bytes(path, content.clone(), 0o644)?;
    }
    let mut image = ImageBuilder::new(Platform::host()).layer(layer.build()?);
    for (key, value) in labels {
        image = image.label(*key, *value);
    }
    let reference = Reference::parse(&format!("{registry}/{name}"))?;
    Ok(images
        .push(&reference, &image.build(), &Access::default())
        .await?
        .pinned)
}
