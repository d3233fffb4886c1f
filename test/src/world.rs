//! The whole product on a simulated node: a cluster, a registry, both managers as processes with the rights that the shipped
//! manifests give them, and images made on the spot.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use olm_api::names;
use olm_image::{Access, ImageBuilder, Images, LayerBuilder, Pinned, Platform, Reference};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{Cluster, Mode};
use crate::samples;

/// Kinds in the manifests that only Pods need; here the managers are processes.
const ONLY_FOR_PODS: &[&str] = &["Deployment", "NetworkPolicy", "PodDisruptionBudget"];

/// A manager as a process.
#[derive(Debug)]
pub struct Manager {
    program: &'static str,
    name: String,
    child: Option<Child>,
    arguments: Vec<String>,
    /// What it logs.
    pub log: PathBuf,
    /// Its health port on this machine.
    pub health: String,
    /// Its metrics port on this machine.
    pub metrics: String,
}

/// A cluster with a registry, and what tests do to both.
pub struct Lab {
    /// The cluster that everything runs on.
    pub cluster: Cluster,
    /// An administrator's client.
    pub client: Client,
    images: Images,
    folder: TempDir,
}

/// The running product.
pub struct World {
    lab: Lab,
    /// catalogd.
    pub catalogd: Manager,
    /// operator-controller.
    pub operator_controller: Manager,
    /// Where catalogs are served: `https://HOST:PORT`.
    pub catalogs: String,
}

impl std::ops::Deref for World {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// How the managers are started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More arguments for catalogd.
    pub catalogd: Vec<String>,
    /// More arguments for operator-controller.
    pub operator_controller: Vec<String>,
    /// The manifests to apply, a folder of the repository; `manifests/base` when empty.
    pub manifests: &'static str,
}

impl World {
    /// Starts a cluster, applies the shipped CRDs and roles, and starts both managers.
    ///
    /// # Errors
    /// When a part is missing or does not start.
    pub async fn start(options: Options) -> Result<Self> {
        // Whichever test is first installs it.
        olm_platform::crypto::install();
        let lab = Lab::over(Cluster::start(Mode::Simulated).await?).await?;
        let manifests = Some(options.manifests).filter(|folder| !folder.is_empty());
        apply_manifests(&lab.cluster, manifests.unwrap_or("manifests/base"))?;
        let content = free_address()?;
        let catalogd = Manager::catalogd(&lab, "catalogd", &content, options.catalogd).await?;
        let operator_controller =
            Manager::operator_controller(&lab, "operator-controller", options.operator_controller).await?;
        let mut world = Self {
            lab,
            catalogd,
            operator_controller,
            catalogs: format!("https://{content}"),
        };
        world.start_catalogd()?;
        world.start_operator_controller()?;
        world.catalogd.ready().await?;
        world.operator_controller.ready().await?;
        Ok(world)
    }

    /// Starts catalogd when it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_catalogd(&mut self) -> Result<()> {
        self.catalogd.start(&self.lab.cluster)
    }

    /// Starts operator-controller when it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_operator_controller(&mut self) -> Result<()> {
        self.operator_controller.start(&self.lab.cluster)
    }

    /// Looks until `look` returns something.
    ///
    /// # Errors
    /// When `limit` passes first; the error holds `what` and the ends of both managers' logs.
    pub async fn eventually<T, F>(&self, what: &str, limit: Duration, look: F) -> Result<T>
    where
        F: AsyncFnMut() -> Result<Option<T>>,
    {
        eventually(what, limit, look).await.map_err(|error| {
            error.context(format!(
                "--- catalogd\n{}\n--- operator-controller\n{}",
                self.catalogd.log_end(),
                self.operator_controller.log_end()
            ))
        })
    }
}

/// Looks until `look` returns something.
///
/// # Errors
/// When `limit` passes first; the error holds `what` and the last problem.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut look: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<Option<T>>,
{
    let end = Instant::now() + limit;
    loop {
        let problem = match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => String::new(),
            Err(error) => format!(" ({error:#})"),
        };
        if Instant::now() > end {
            bail!("{what}: not within {} s{problem}", limit.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Lab {
    /// Starts a cluster that has our CRDs and the namespace of the managers.
    ///
    /// # Errors
    /// When a part is missing or does not start.
    pub async fn with_definitions() -> Result<Self> {
        // Whichever test is first installs it.
        olm_platform::crypto::install();
        let lab = Self::over(Cluster::start(Mode::Simulated).await?).await?;
        let crds = repository().join("manifests/crds").display().to_string();
        lab.kubectl(&["apply", "--server-side", "-k", &crds])?;
        lab.kubectl(&["create", "namespace", names::SYSTEM_NAMESPACE])?;
        Ok(lab)
    }

    /// Puts a cluster to use.
    ///
    /// # Errors
    /// When it has no registry or cannot be reached.
    pub async fn over(cluster: Cluster) -> Result<Self> {
        let client = cluster.client().await?;
        let folder = TempDir::with_prefix("olm-lab-")?;
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
        })
    }

    /// The directory with the registry's authority.
    pub fn authorities(&self) -> PathBuf {
        self.folder.path().join("registry-ca")
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
    /// When the registry does not take it.
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
    /// When the registry does not take it.
    pub async fn push_bundle(&self, name: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<String> {
        Ok(self.push(name, files, BUNDLE_LABELS).await?.to_string())
    }

    /// Pushes a catalog of one file and returns its reference by tag.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub async fn push_catalog(&self, name: &str, blobs: &str) -> Result<String> {
        let files = BTreeMap::from([("configs/catalog.json".to_owned(), blobs.as_bytes().to_vec())]);
        self.push(name, &files, CATALOG_LABELS).await?;
        Ok(format!("{}/{name}", self.registry()?))
    }

    /// Pushes bundles and the catalog of the sample operator in these versions under `greeter-catalog:latest`;
    /// `operator` is the image that its Deployment runs.
    ///
    /// # Errors
    /// When the registry does not take them.
    pub async fn publish_greeter(&self, versions: &[&str], operator: &str) -> Result<String> {
        let mut bundles = BTreeMap::new();
        for version in versions {
            let files = samples::bundle(version, operator);
            bundles.insert(
                (*version).to_owned(),
                self.push_bundle(&format!("greeter-bundle:v{version}"), &files)
                    .await?,
            );
        }
        let catalog = samples::catalog(versions, |version| {
            bundles.get(version).cloned().unwrap_or_default()
        });
        self.push_catalog("greeter-catalog:latest", &catalog).await
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

    /// Applies a file of the repository, `manifests/samples/greeter.yaml` say.
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

    /// Runs kubectl as an administrator and returns what it prints.
    ///
    /// # Errors
    /// When it fails; the error holds what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&self.cluster, arguments, None)
    }

    /// A folder that lives as long as this.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Before the cluster goes.
        self.operator_controller.kill();
        self.catalogd.kill();
    }
}

impl Manager {
    /// A catalogd that is to serve catalogs at `content`, not started yet; `name` is that of its log and cache.
    ///
    /// # Errors
    /// When the shipped manifests are not applied.
    pub async fn catalogd(lab: &Lab, name: &str, content: &str, more: Vec<String>) -> Result<Self> {
        let mut arguments = vec![
            format!("--catalogs-server-addr={content}"),
            format!("--external-address={content}"),
            format!("--cache-dir={}", lab.folder().join(name).display()),
        ];
        arguments.extend(more);
        Self::prepare("catalogd", name, lab, arguments).await
    }

    /// An operator-controller, not started yet; `name` is that of its log and cache.
    ///
    /// # Errors
    /// When the shipped manifests are not applied.
    pub async fn operator_controller(lab: &Lab, name: &str, more: Vec<String>) -> Result<Self> {
        let mut arguments = vec![format!("--cache-path={}", lab.folder().join(name).display())];
        arguments.extend(more);
        Self::prepare("operator-controller", name, lab, arguments).await
    }

    async fn prepare(program: &'static str, name: &str, lab: &Lab, more: Vec<String>) -> Result<Self> {
        let kubeconfig = lab.folder().join(format!("{name}.kubeconfig"));
        let account = format!("{program}-controller-manager");
        write_kubeconfig(lab, names::SYSTEM_NAMESPACE, &account, &kubeconfig).await?;
        let (health, metrics) = (free_address()?, free_address()?);
        let mut arguments = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--system-namespace={}", names::SYSTEM_NAMESPACE),
            format!("--health-probe-bind-address={health}"),
            format!("--metrics-bind-address={metrics}"),
            format!("--pull-cas-dir={}", lab.authorities().display()),
            "--log-format=text".to_owned(),
        ];
        arguments.extend(more);
        Ok(Self {
            program,
            name: name.to_owned(),
            child: None,
            arguments,
            log: lab.folder().join(format!("{name}.log")),
            health,
            metrics,
        })
    }

    /// Starts the process when it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, cluster: &Cluster) -> Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let errors = log.try_clone()?;
        let arguments = self.arguments.clone();
        let child = cluster.spawn(binary(self.program)?, |command| {
            command
                .args(arguments)
                .stdout(log)
                .stderr(errors)
                .stdin(Stdio::null());
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Adds an argument for the next start.
    pub fn add_argument(&mut self, argument: String) {
        self.arguments.push(argument);
    }

    /// Asks the process to end and waits for it; returns how long that took.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let Some(mut child) = self.child.take() else {
            return Ok(Duration::ZERO);
        };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        while child.try_wait()?.is_none() {
            if begin.elapsed() > Duration::from_secs(30) {
                child.kill()?;
                child.wait()?;
                bail!(
                    "{} did not end when asked to; the end of its log:\n{}",
                    self.name,
                    self.log_end()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(begin.elapsed())
    }

    /// Ends the process at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may be gone already; either way nothing is left to do.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Errors
    /// When it does not within 30 s, or the process ends.
    pub async fn ready(&mut self) -> Result<()> {
        let url = format!("http://{}/readyz", self.health);
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(answer) = reqwest::get(&url).await
                && answer.status().is_success()
            {
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > end {
                bail!(
                    "{} is not ready; the end of its log:\n{}",
                    self.name,
                    self.log_end()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The last lines of the log.
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(40)..)
            .unwrap_or_default()
            .join("\n")
    }
}

/// Labels that make an image a bundle of the sample operator's kind.
const BUNDLE_LABELS: &[(&str, &str)] = &[
    (
        "operators.operatorframework.io.bundle.mediatype.v1",
        "registry+v1",
    ),
    ("operators.operatorframework.io.bundle.manifests.v1", "manifests/"),
    ("operators.operatorframework.io.bundle.metadata.v1", "metadata/"),
];

/// The label that says where a catalog image keeps its content.
const CATALOG_LABELS: &[(&str, &str)] = &[("operators.operatorframework.io.index.configs.v1", "/configs")];

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
        .await?)
}

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A program of this workspace, built beside this one.
///
/// # Errors
/// When it is not built.
pub fn binary(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    here.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not built: run `cargo build --release -p {name}` first"))
}

/// An address on this machine that nobody listens on at the moment.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn apply_manifests(cluster: &Cluster, folder: &str) -> Result<()> {
    let folder = repository().join(folder).display().to_string();
    let text = kubectl(cluster, &["kustomize", &folder], None)?;
    let objects: String = text
        .split("\n---\n")
        .filter(|object| {
            !ONLY_FOR_PODS
                .iter()
                .any(|kind| object.lines().any(|line| line == format!("kind: {kind}")))
        })
        .collect::<Vec<_>>()
        .join("\n---\n");
    kubectl(cluster, &["apply", "--server-side", "-f", "-"], Some(&objects))?;
    let crds = "clustercatalogs,clusterextensions,clusterobjectsets"
        .split(',')
        .map(|plural| format!("crd/{plural}.{}", names::GROUP));
    let mut arguments = vec![
        "wait".to_owned(),
        "--for=condition=Established".to_owned(),
        "--timeout=30s".to_owned(),
    ];
    arguments.extend(crds);
    kubectl(
        cluster,
        &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        None,
    )
    .map(drop)
}

/// Runs kubectl with an administrator's rights.
///
/// # Errors
/// When it fails; the error holds what it said.
pub fn kubectl(cluster: &Cluster, arguments: &[&str], input: Option<&str>) -> Result<String> {
    use std::io::Write as _;
    let mut command = cluster.exec("kubectl");
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let mut child = command.spawn().context("cannot run kubectl")?;
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A kubeconfig with the rights of a service account, for a day.
async fn write_kubeconfig(lab: &Lab, namespace: &str, account: &str, path: &Path) -> Result<()> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(86_400),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let token = Api::<ServiceAccount>::namespaced(lab.client.clone(), namespace)
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for {namespace}/{account}"))?
        .status
        .context("the API server returned no token")?
        .token;
    let admin = kube::config::Kubeconfig::read_from(lab.cluster.kubeconfig())?;
    let mut config = serde_json::to_value(&admin)?;
    let user = config
        .pointer_mut("/users/0/user")
        .context("the kubeconfig has no user")?;
    *user = json!({ "token": token });
    std::fs::write(path, config.to_string())?;
    Ok(())
}
