//! A real OCI registry, the Go module `distribution`. It stores on disk and has three listeners: plain, with TLS, and
//! with TLS and a password. A cluster contains one; [`Server::start`] starts one without a cluster.

pub mod certified;
pub mod opm;
pub mod proxy;
mod referrers;
pub mod signatures;
pub mod sigstore;
pub mod tokens;
pub mod tuf;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::cluster::Binaries;
use crate::cluster::instance::Instance;
use crate::cluster::pki::{Authority, Subject};
use crate::cluster::process::Daemon;

/// The user of the registry with a password.
const USERNAME: &str = "tester";
const PASSWORD: &str = "sesame";
/// The bcrypt hash of the password, at the lowest cost, because every request computes it.
const HTPASSWD: &str = "tester:$2a$04$yqb7DzllkH5qWA1xJWleb./cdnX.Pb1c0IYzZrxr9KDtO2XOB0dYy\n";

/// The addresses of the three servers, each as `HOST:PORT`. They share one store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registry {
    /// Plain HTTP.
    pub address: String,
    /// HTTPS.
    pub tls: String,
    /// HTTPS, with a user name and a password for all requests.
    pub auth: String,
    /// The authority that signed the certificates, in PEM.
    pub ca: PathBuf,
    /// The user name for `auth`.
    pub username: String,
    /// The password for `auth`.
    pub password: String,
}

/// A registry without a cluster. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    registry: Registry,
    _instance: Instance,
}

impl Server {
    /// Starts a registry on free ports of the loopback address.
    ///
    /// # Errors
    /// When it cannot be built or does not start.
    pub async fn start() -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(Binaries::ensure_registry).await??;
        let mut instance = Instance::create(None)?;
        let authority = Authority::create(&instance.folder().join("pki"))?;
        let ports = Ports {
            plain: instance.port()?,
            tls: instance.port()?,
            auth: instance.port()?,
        };
        let registry = start(&instance, &binaries, &authority, Ipv4Addr::LOCALHOST, &ports).await?;
        Ok(Self {
            registry,
            _instance: instance,
        })
    }

    /// Starts a registry with this certificate, whose authority is `ca`, both in PEM.
    ///
    /// # Errors
    /// When it cannot be built or does not start.
    pub async fn start_showing(certificate: &str, key: &str, ca: &str) -> Result<Self> {
        let binaries = tokio::task::spawn_blocking(Binaries::ensure_registry).await??;
        let mut instance = Instance::create(None)?;
        let folder = instance.folder().join("pki");
        std::fs::create_dir_all(&folder)?;
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        let shown = Shown {
            certificate: file("registry.crt", certificate)?,
            key: file("registry.key", key)?,
            ca: file("ca.crt", ca)?,
        };
        let ports = Ports {
            plain: instance.port()?,
            tls: instance.port()?,
            auth: instance.port()?,
        };
        let registry = start_showing(&instance, &binaries, shown, Ipv4Addr::LOCALHOST, &ports).await?;
        Ok(Self {
            registry,
            _instance: instance,
        })
    }

    /// The addresses of the registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// The ports of the three servers.
pub(crate) struct Ports {
    pub(crate) plain: u16,
    pub(crate) tls: u16,
    pub(crate) auth: u16,
}

impl Ports {
    /// The ports if the network is the cluster's own.
    pub(crate) const FIXED: Self = Self {
        plain: 5000,
        tls: 5001,
        auth: 5002,
    };
}

/// Starts the three servers and waits until they answer.
pub(crate) async fn start(
    instance: &Instance,
    binaries: &Binaries,
    authority: &Authority,
    host: Ipv4Addr,
    ports: &Ports,
) -> Result<Registry> {
    let subject = Subject {
        name: "registry",
        group: None,
    };
    let pair = authority.issue(
        "registry",
        &subject,
        &["localhost", "127.0.0.1", &host.to_string()],
    )?;
    let shown = Shown {
        certificate: pair.certificate,
        key: pair.key,
        ca: authority.certificate(),
    };
    start_showing(instance, binaries, shown, host, ports).await
}

/// The files with a server's certificate, its key and its authority.
struct Shown {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

async fn start_showing(
    instance: &Instance,
    binaries: &Binaries,
    shown: Shown,
    host: Ipv4Addr,
    ports: &Ports,
) -> Result<Registry> {
    let folder = instance.folder();
    let tls = tls(&shown.certificate, &shown.key);
    let users = folder.join("conf/htpasswd");
    std::fs::write(&users, HTPASSWD)?;
    let servers = [
        ("registry", ports.plain, String::new()),
        ("registry-tls", ports.tls, tls.clone()),
        ("registry-auth", ports.auth, tls + &password(&users)),
    ];
    for (name, port, more) in &servers {
        let text = include_str!("../cluster/conf/registry.yaml")
            .replace("${STATE}", &folder.to_string_lossy())
            .replace("${ADDRESS}", &format!("{host}:{port}"));
        let file = folder.join("conf").join(format!("{name}.yaml"));
        std::fs::write(&file, text + more).with_context(|| format!("cannot write {}", file.display()))?;
        instance.start(
            Daemon::new(name, binaries.path("registry"))
                .argument("serve")
                .argument(file)
                // Otherwise it looks for a collector of traces.
                .variable("OTEL_TRACES_EXPORTER", "none"),
        )?;
    }
    for (name, port, _) in &servers {
        let probe = async || tokio::net::TcpStream::connect((host, *port)).await.map(drop);
        instance.wait_for(name, 30, probe).await?;
    }
    Ok(Registry {
        address: format!("{host}:{}", ports.plain),
        tls: format!("{host}:{}", ports.tls),
        auth: format!("{host}:{}", ports.auth),
        ca: shown.ca,
        username: USERNAME.to_owned(),
        password: PASSWORD.to_owned(),
    })
}

/// Continues the section `http`.
fn tls(certificate: &Path, key: &Path) -> String {
    format!(
        "  tls: {{certificate: \"{}\", key: \"{}\"}}\n",
        certificate.display(),
        key.display()
    )
}

fn password(users: &Path) -> String {
    format!(
        "auth:\n  htpasswd: {{realm: tests, path: \"{}\"}}\n",
        users.display()
    )
}
