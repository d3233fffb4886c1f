//! What every verb that talks to a registry has in common.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use olm_image::{
    Access, BuiltImage, Credentials, ImageBuilder, Images, LayerBuilder, Options, Platform, Reference,
    Registries,
};

use crate::input;
use crate::output::print;

/// The largest file of credentials that is read, in bytes.
const MAX_CREDENTIALS: u64 = 1 << 20;

/// How the registry is reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct RegistryArguments {
    /// File with credentials, in the form of Docker's config.json [default: that of the container tools, if there is one]
    #[arg(long, value_name = "FILE", env = "REGISTRY_AUTH_FILE")]
    authfile: Option<PathBuf>,
    /// Directory with certificates of authorities to trust beside those of the system
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Accept any certificate of the registry, or plain HTTP
    #[arg(long, conflicts_with = "plain_http")]
    insecure: bool,
    /// Use plain HTTP
    #[arg(long)]
    plain_http: bool,
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

    /// Pushes the image and prints its reference by digest.
    pub(crate) fn push(&self, reference: &str, image: &BuiltImage) -> anyhow::Result<()> {
        let reference = Reference::parse_familiar(reference)
            .with_context(|| format!("{reference:?} is not an image reference"))?;
        let mut registries = Registries::default();
        if self.plain_http {
            registries = registries.plain_http(reference.registry());
        } else if self.insecure {
            registries = registries.insecure(reference.registry());
        }
        let access = Access {
            credentials: Arc::new(self.credentials()?),
            registries: Arc::new(registries),
            ..Access::default()
        };
        let agent = concat!("olm/", env!("CARGO_PKG_VERSION"));
        let images = Images::new(Options {
            authorities: self.ca_dir.clone(),
            ..Options::new(agent)
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let pinned = runtime.block_on(images.push(&reference, image, &access))?;
        print(&format!("{pinned}\n"))
    }
}

/// Where the container tools keep credentials, the most specific place first.
fn usual_places() -> impl Iterator<Item = PathBuf> {
    let below =
        |variable: &str, path: &str| std::env::var_os(variable).map(|home| PathBuf::from(home).join(path));
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

/// An image of one layer that holds data only, so that it fits every machine.
pub(crate) fn data_image(
    layer: LayerBuilder,
    labels: impl IntoIterator<Item = (String, String)>,
) -> anyhow::Result<BuiltImage> {
    let layer = layer.build_in(&std::env::temp_dir())?;
    let image = ImageBuilder::new(Platform {
        os: "linux".to_owned(),
        ..Platform::host()
    });
    let image = labels
        .into_iter()
        .fold(image, |image, (key, value)| image.label(key, value));
    Ok(image.layer(layer).build())
}
