//! The common parts of all commands that access a registry.

pub(crate) mod image;
pub(crate) mod trust_root;
pub(crate) mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use olm_bundle::DIRECTORIES;
use olm_image::{
    Access, BuiltImage, Credentials, ImageBuilder, Images, LayerBuilder, Options, Platform, Reference, Rules,
    Selection, Settings,
};
use olm_transport::{Authorities, Proxies};

use crate::hint::Hint;
use crate::input::{self, Unreadable};
use crate::output::{note, print};

/// The user agent of requests.
const AGENT: &str = concat!("olm/", env!("CARGO_PKG_VERSION"));
/// The largest file of credentials that is read, in bytes.
const MAX_CREDENTIALS: u64 = 1 << 20;
/// The setting that adds certificate authorities.
const CA_DIR: &str = "the directory of --ca-dir";

/// The part of a bundle image to fetch.
pub(crate) fn bundle_selection() -> Selection {
    Selection::Below(DIRECTORIES.map(str::to_owned).to_vec())
}

/// The options for access to registries.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct RegistryArguments {
    /// File with registry credentials, in the format of Docker's config.json [default: that of the container tools]
    #[arg(long, value_name = "FILE", env = "REGISTRY_AUTH_FILE")]
    authfile: Option<PathBuf>,
    /// Configuration of registries: mirrors, blocked and insecure ones [default: that of the container tools]
    #[arg(long, value_name = "FILE", env = "CONTAINERS_REGISTRIES_CONF")]
    registries_conf: Option<PathBuf>,
    /// Signature policy for images [default: that of the container tools; without one, every image is accepted]
    #[arg(long, value_name = "FILE", env = "OLM_SIGNATURE_POLICY")]
    signature_policy: Option<PathBuf>,
    /// Host of a token service that registries of another site may use; may be repeated
    #[arg(long = "token-service", value_name = "HOST")]
    token_services: Vec<String>,
    /// Directory with additional CA certificates to trust
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// File with the bearer token for a running catalogd
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Skip verification of the registry's certificate, and accept plain HTTP
    #[arg(long, conflicts_with = "plain_http")]
    insecure: bool,
    /// Use plain HTTP
    #[arg(long)]
    plain_http: bool,
    /// Rules beside the signature policy, from a cluster.
    #[arg(skip)]
    rules: Rules,
}

impl RegistryArguments {
    fn credentials(&self) -> anyhow::Result<Credentials> {
        let path = match &self.authfile {
            Some(path) => path.clone(),
            None => match usual_places().find(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok(Credentials::default()),
            },
        };
        Credentials::parse_dockerconfigjson(&input::read(&path, MAX_CREDENTIALS)?)
            .with_context(|| format!("{} holds no credentials", path.display()))
    }

    /// The same, with rules for images beside the signature policy.
    pub(crate) fn with_rules(&self, rules: Rules) -> Self {
        Self {
            rules,
            ..self.clone()
        }
    }

    /// Whether registries need no certificate.
    pub(crate) const fn is_insecure(&self) -> bool {
        self.insecure || self.plain_http
    }

    /// The credentials and the transport for the registry of a reference.
    pub(crate) fn access(&self, reference: &Reference) -> anyhow::Result<Access> {
        let registry = || vec![reference.registry().to_owned()];
        let settings = Settings {
            registries: self
                .registries_conf
                .clone()
                .or_else(|| of_user("containers/registries.conf")),
            policy: self
                .signature_policy
                .clone()
                .or_else(|| of_user("containers/policy.json")),
            plain_http: if self.plain_http { registry() } else { Vec::new() },
        };
        let (mut registries, policy) = settings.read()?;
        if self.insecure {
            registries = Arc::new(Arc::unwrap_or_clone(registries).insecure(reference.registry()));
        }
        Ok(Access {
            credentials: Arc::new(self.credentials()?),
            registries,
            policy,
            rules: self.rules.clone(),
        })
    }

    /// A client for images.
    pub(crate) fn images(&self) -> Images {
        Images::new(Options {
            authorities: self.ca_dir.clone(),
            authorities_setting: CA_DIR,
            token_services: self.token_services.clone(),
            selection: bundle_selection(),
            ..Options::new(AGENT)
        })
    }

    /// The platforms of images, as `linux/amd64`, or the reason why they are unknown.
    pub(crate) fn platforms(
        &self,
        images: BTreeSet<String>,
    ) -> anyhow::Result<BTreeMap<String, Result<BTreeSet<String>, String>>> {
        let client = self.images();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let look = |image: &str| -> anyhow::Result<BTreeSet<String>> {
            let reference = Reference::parse_familiar(image)?;
            let access = self.access(&reference)?;
            let platforms = runtime.block_on(client.platforms(&reference, &access))?;
            let text = |platform: &Platform| format!("{}/{}", platform.os, platform.architecture);
            Ok(platforms.iter().map(text).collect())
        };
        let found = images.into_iter().map(|image| {
            let platforms = look(&image).map_err(|error| format!("{error:#}"));
            (image, platforms)
        });
        Ok(found.collect())
    }

    /// A client for a running catalogd, with the trusted authorities of registries.
    pub(crate) fn client(&self) -> anyhow::Result<reqwest::Client> {
        http_client(self.ca_dir.as_deref(), self.insecure)
    }

    /// A question to a running catalogd, with the token if there is one.
    pub(crate) fn ask(&self, client: &reqwest::Client, url: &str) -> anyhow::Result<reqwest::RequestBuilder> {
        let request = client.get(url);
        let Some(path) = &self.token_file else {
            return Ok(request);
        };
        if !url.starts_with("https://") {
            bail!("cannot send the token to {url}: use https, plain HTTP would expose it");
        }
        let token = input::read(path, MAX_CREDENTIALS)?;
        Ok(request.bearer_auth(String::from_utf8_lossy(&token).trim()))
    }

    /// Pushes the image and prints its reference by digest. A note names the image that had the tag before.
    pub(crate) fn push(&self, written: &str, image: &BuiltImage) -> anyhow::Result<()> {
        let reference = Reference::parse_familiar(written)
            .with_context(|| format!("{written:?} is not an image reference"))?;
        let access = self.access(&reference)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let pushed = runtime.block_on(self.images().push(&reference, image, &access));
        let pushed = pushed.map_err(|error| {
            let error = anyhow::Error::new(error);
            if is_short(&reference, written) {
                error.context(Hint(format!(
                    "{written} names no registry, so that it was taken for an image of docker.io: write \
                     REGISTRY/{written}"
                )))
            } else {
                error
            }
        })?;
        print(&format!("{}\n", pushed.pinned))?;
        if let Some(digest) = &pushed.replaced {
            note(&format!("replaced {digest}"));
        }
        Ok(())
    }
}

/// A client for HTTPS that trusts the authorities of the system and of a directory, or every certificate.
fn http_client(ca_dir: Option<&Path>, insecure: bool) -> anyhow::Result<reqwest::Client> {
    let provider = olm_transport::provider();
    let verifier = if insecure {
        olm_transport::unverified(&provider)
    } else {
        let mut authorities = Authorities::system();
        if let Some(directory) = ca_dir {
            authorities.add_files(directory, &olm_transport::read_directory(directory)?)?;
        }
        olm_transport::verified(&provider, authorities, CA_DIR)
    };
    let tls = olm_transport::client_config(provider, rustls::DEFAULT_VERSIONS, verifier)?;
    Ok(olm_transport::http_client(tls, &Proxies::from_environment()?)
        .user_agent(AGENT)
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_mins(1))
        .build()?)
}

/// Whether a reference is at docker.io because it has no registry.
pub(crate) fn is_short(reference: &Reference, written: &str) -> bool {
    let is_named = ["docker.io/", "index.docker.io/"]
        .iter()
        .any(|host| written.starts_with(host));
    reference.registry() == "docker.io" && !is_named
}

fn below(variable: &str, path: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(|home| PathBuf::from(home).join(path))
}

/// A user's own file with this name, which container tools read instead of the system's.
fn of_user(path: &str) -> Option<PathBuf> {
    let places = [
        below("XDG_CONFIG_HOME", path),
        below("HOME", ".config").map(|folder| folder.join(path)),
    ];
    places.into_iter().flatten().find(|place| place.is_file())
}

/// The places of credentials of container tools, the most specific first.
fn usual_places() -> impl Iterator<Item = PathBuf> {
    [
        below("XDG_RUNTIME_DIR", "containers/auth.json"),
        below("XDG_CONFIG_HOME", "containers/auth.json"),
        below("HOME", ".config/containers/auth.json"),
        below("DOCKER_CONFIG", "config.json"),
        below("HOME", ".docker/config.json"),
    ]
    .into_iter()
    .flatten()
}

/// The links in a layer at `path`, from this directory, that a reader of the image cannot follow.
pub(crate) fn astray(layer: &LayerBuilder, path: &str, directory: &Path) -> Vec<Unreadable> {
    let outline = layer.outline();
    let unreadable = outline.astray(path).map(|link| Unreadable {
        message: format!(
            "{} is a link to {:?}, which whoever reads the image cannot follow: put the file itself in its place",
            directory.join(&link.path).display(),
            link.target
        ),
        name: link.path,
    });
    unreadable.collect()
}

/// An image of one layer that holds data only, so that it fits every machine.
pub(crate) fn data_image(
    layer: LayerBuilder,
    labels: impl IntoIterator<Item = (String, String)>,
) -> anyhow::Result<BuiltImage> {
    let layer = layer.build_in(&std::env::temp_dir())?;
    let image = ImageBuilder::default();
    let image = labels
        .into_iter()
        .fold(image, |image, (key, value)| image.label(key, value));
    Ok(image.layer(layer).build())
}
