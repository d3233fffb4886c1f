//! The proxies of the environment, each in a process of its own. The registry has a name that only the proxy knows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_image::{Access, Registries};
use olm_test::registry::proxy::{Issued, named};
use olm_test::registry::{Registry, Server};
use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{images, pull, push_to};

/// The registry as the proxy knows it. No resolver knows names below `test`.
const NAME: &str = "registry.site.test";

/// Set in the process that pulls through the proxy of its environment.
const CHILD: &str = "OLM_TEST_PROXIED_REFERENCE";
const CHILD_AUTHORITIES: &str = "OLM_TEST_PROXIED_AUTHORITIES";
/// Set when the registry speaks plain HTTP.
const CHILD_PLAIN: &str = "OLM_TEST_PROXIED_PLAIN";
const VARIABLES: [&str; 8] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// A proxy that counts its connections.
struct Proxy {
    address: String,
    tunnels: Arc<AtomicUsize>,
    _serving: tokio_util::task::AbortOnDropHandle<()>,
}

impl Proxy {
    /// `login` is `USER:PASSWORD` when the proxy wants one; `tls` is its certificate when it speaks TLS itself.
    async fn start(login: Option<&'static str>, tls: Option<&Issued>) -> Result<Self> {
        let acceptor = tls.map(acceptor).transpose()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let tunnels = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&tunnels);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                match acceptor.clone() {
                    None => drop(tokio::spawn(pass(stream, login, counter))),
                    Some(acceptor) => drop(tokio::spawn(async move {
                        pass(acceptor.accept(stream).await?, login, counter).await
                    })),
                }
            }
        });
        Ok(Self {
            address,
            tunnels,
            _serving: tokio_util::task::AbortOnDropHandle::new(serving),
        })
    }
}

fn acceptor(certificate: &Issued) -> Result<TlsAcceptor> {
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(certificate.key()?.serialize_pem().as_bytes())?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Connects as the proxy does, which finds every host on the loopback address.
async fn connect(target: &str) -> Result<TcpStream> {
    let (_, port) = target.rsplit_once(':').context("no port")?;
    Ok(TcpStream::connect(("127.0.0.1", port.parse()?)).await?)
}

/// Serves one `CONNECT`, or one request that names the whole address.
async fn pass(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    login: Option<&str>,
    tunnels: Arc<AtomicUsize>,
) -> Result<()> {
    let mut client = BufReader::new(stream);
    let (mut first, mut head, mut authorization) = (String::new(), String::new(), None);
    client.read_line(&mut first).await?;
    let mut line = String::new();
    while client.read_line(&mut line).await? > 2 {
        let (name, value) = line.split_once(':').context("no header")?;
        if name.eq_ignore_ascii_case("proxy-authorization") {
            authorization = Some(value.trim().to_owned());
        } else if !name.eq_ignore_ascii_case("connection") {
            head.push_str(&line);
        }
        line.clear();
    }
    let wanted = login.map(|login| format!("Basic {}", STANDARD.encode(login)));
    if wanted != authorization {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";
        client.write_all(refusal.as_bytes()).await?;
        return Ok(());
    }
    let mut words = first.split(' ');
    let (method, target) = (
        words.next().context("no method")?,
        words.next().context("no target")?,
    );
    tunnels.fetch_add(1, Ordering::SeqCst);
    if method == "CONNECT" {
        let mut server = connect(target).await?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    } else {
        let url: reqwest::Url = target.parse()?;
        let mut server = connect(&format!(":{}", url.port_or_known_default().unwrap_or(80))).await?;
        let request = format!(
            "{method} {} HTTP/1.1\r\nconnection: close\r\n{head}\r\n",
            url.path()
        );
        server.write_all(request.as_bytes()).await?;
        tokio::io::copy(&mut server, &mut client).await?;
    }
    Ok(())
}

/// A registry whose certificate has a name that only the proxy resolves, and its authorities.
struct Site {
    server: Server,
    certificate: Issued,
    authorities: TempDir,
}

impl Site {
    async fn start() -> Result<Self> {
        olm_platform::crypto::install();
        let certificate = Issued::alone(named("registry", &[NAME, "127.0.0.1"])?, KeyPair::generate()?)?;
        let (pem, key) = (certificate.pem(), certificate.key()?.serialize_pem());
        let server = Server::start_showing(&pem, &key, &pem).await?;
        let authorities = TempDir::new()?;
        std::fs::write(authorities.path().join("ca.crt"), pem)?;
        push_to(server.registry(), "app:v1").await?;
        Ok(Self {
            server,
            certificate,
            authorities,
        })
    }

    fn registry(&self) -> &Registry {
        self.server.registry()
    }

    /// Pulls in a process with these variables, from `host`, which is a name or an address.
    async fn pull(&self, host: &str, variables: &[(&str, &str)]) -> Result<Result<(), String>> {
        let is_plain = variables
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("http_proxy"));
        let registry = self.registry();
        let listens = if is_plain {
            &registry.address
        } else {
            &registry.tls
        };
        let (_, port) = listens.rsplit_once(':').context("no port")?;
        let host = format!("{host}:{port}");
        let authorities: &Path = self.authorities.path();
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command
            .args([
                "--exact",
                "proxies::the_proxy_of_the_environment_is_used",
                "--nocapture",
            ])
            .env(CHILD, format!("{host}/app:v1"))
            .env(CHILD_AUTHORITIES, authorities)
            .kill_on_drop(true);
        for name in VARIABLES {
            command.env_remove(name);
        }
        if is_plain {
            command.env(CHILD_PLAIN, host);
        }
        let output = command.envs(variables.iter().copied()).output().await?;
        let printed =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok(if output.status.success() {
            Ok(())
        } else {
            Err(printed)
        })
    }

    /// Checks that a pull from the name works through this proxy.
    async fn goes_through(&self, proxy: &Proxy, variables: &[(&str, &str)]) -> Result<()> {
        let before = proxy.tunnels.load(Ordering::SeqCst);
        let result = self.pull(NAME, variables).await?;
        ensure!(result.is_ok(), "{variables:?}: {}", result.unwrap_err());
        ensure!(
            proxy.tunnels.load(Ordering::SeqCst) > before,
            "{variables:?}: the proxy was not used"
        );
        Ok(())
    }

    /// Checks that a pull from the name bypasses the proxy, so that the name is unknown.
    async fn leaves_out(&self, proxy: &Proxy, variables: &[(&str, &str)]) -> Result<()> {
        let before = proxy.tunnels.load(Ordering::SeqCst);
        let error = self.pull(NAME, variables).await?.err();
        let error = error.with_context(|| format!("{variables:?}: found without the proxy"))?;
        ensure!(
            error.contains(NAME)
                && error.contains("cannot be resolved")
                && !error.contains("through the proxy"),
            "{variables:?}: {error}"
        );
        ensure!(
            proxy.tunnels.load(Ordering::SeqCst) == before,
            "{variables:?}: the proxy was used"
        );
        Ok(())
    }
}

/// The pull of the child process.
async fn pull_as_child(reference: &str) -> Result<()> {
    olm_platform::crypto::install();
    let registries = match std::env::var(CHILD_PLAIN) {
        Ok(host) => Registries::default().plain_http(host),
        Err(_) => Registries::default(),
    };
    let access = Access {
        registries: Arc::new(registries),
        ..Access::default()
    };
    let images = images(Some(std::env::var(CHILD_AUTHORITIES)?.into()));
    pull(&images, reference, &access)
        .await
        .map(drop)
        .map_err(anyhow::Error::msg)
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used() -> Result<()> {
    if let Ok(reference) = std::env::var(CHILD) {
        return pull_as_child(&reference).await;
    }
    let site = Site::start().await?;
    let open = Proxy::start(None, None).await?;
    let (http, bare) = (format!("http://{}", open.address), open.address.as_str());
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "HTTP_PROXY",
        "http_proxy",
    ] {
        site.goes_through(&open, &[(name, &http)]).await?;
    }
    site.goes_through(&open, &[("HTTPS_PROXY", bare)]).await?;

    let closed = Proxy::start(Some("me:open sesame"), None).await?;
    let login = format!("http://me:open%20sesame@{}", closed.address);
    site.goes_through(&closed, &[("HTTPS_PROXY", &login)]).await?;
    site.goes_through(&closed, &[("HTTP_PROXY", &login)]).await?;

    // A proxy that speaks TLS itself, with credentials too.
    let secure = Proxy::start(Some("me:open sesame"), Some(&site.certificate)).await?;
    let login = format!("https://me:open%20sesame@{}", secure.address);
    site.goes_through(&secure, &[("HTTPS_PROXY", &login)]).await?;
    site.goes_through(&secure, &[("HTTP_PROXY", &login)]).await
}

#[tokio::test]
async fn hosts_of_no_proxy_are_reached_directly() -> Result<()> {
    let site = Site::start().await?;
    let proxy = Proxy::start(None, None).await?;
    let http = format!("http://{}", proxy.address);
    let (_, port) = site.registry().tls.rsplit_once(':').context("no port")?;
    let (with_port, other_port) = (format!("{NAME}:{port}"), format!("{NAME}:1"));
    for (exempt, is_used) in [
        ("other.test", true),
        ("ite.test", true),
        (".registry.site.test", true),
        ("10.0.0.0/8", true),
        (other_port.as_str(), true),
        (NAME, false),
        ("REGISTRY.site.test", false),
        ("site.test", false),
        (".site.test", false),
        ("*.site.test", false),
        ("other.test, site.test", false),
        (with_port.as_str(), false),
        ("*", false),
    ] {
        let upper = [("HTTPS_PROXY", http.as_str()), ("NO_PROXY", exempt)];
        let lower = [("HTTPS_PROXY", http.as_str()), ("no_proxy", exempt)];
        for variables in [upper, lower] {
            if is_used {
                site.goes_through(&proxy, &variables).await?;
            } else {
                site.leaves_out(&proxy, &variables).await?;
            }
        }
    }
    // This machine needs no entry.
    let before = proxy.tunnels.load(Ordering::SeqCst);
    let result = site.pull("127.0.0.1", &[("HTTPS_PROXY", &http)]).await?;
    ensure!(result.is_ok(), "{}", result.unwrap_err());
    ensure!(proxy.tunnels.load(Ordering::SeqCst) == before);
    Ok(())
}

#[tokio::test]
async fn errors_name_the_proxy_without_its_password() -> Result<()> {
    let site = Site::start().await?;
    let closed = Proxy::start(Some("me:open sesame"), None).await?;
    let name = format!("through the proxy `http://{}`", closed.address);
    for (variable, expected) in [
        ("HTTPS_PROXY", name.as_str()),
        ("HTTP_PROXY", "wants credentials, or others than it gets"),
    ] {
        let wrong = format!("http://me:an%20odd%20one@{}", closed.address);
        let error = site.pull(NAME, &[(variable, &wrong)]).await?.unwrap_err();
        ensure!(
            error.contains(expected) && error.contains(&closed.address),
            "{error}"
        );
        ensure!(!error.contains("odd"), "{error}");
    }

    let gone = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
    let error = site.pull(NAME, &[("HTTPS_PROXY", &gone)]).await?.unwrap_err();
    let expected = format!("through the proxy `http://{gone}`: Connection refused");
    ensure!(error.contains(&expected), "{error}");

    let socks = site.pull(NAME, &[("HTTPS_PROXY", "socks5://me:odd@p")]).await?;
    let error = socks.unwrap_err();
    ensure!(
        error.contains("cannot use the proxy of HTTPS_PROXY: its scheme is `socks5`")
            && !error.contains("odd"),
        "{error}"
    );

    // The certificate of a proxy is checked as any other.
    let stranger = Issued::alone(named("proxy", &["127.0.0.1"])?, KeyPair::generate()?)?;
    let secure = Proxy::start(None, Some(&stranger)).await?;
    let url = format!("https://{}", secure.address);
    let error = site.pull(NAME, &[("HTTPS_PROXY", &url)]).await?.unwrap_err();
    let expected = format!("through the proxy `{url}`: ");
    ensure!(
        error.contains(&expected) && error.contains("the certificate is not trusted"),
        "{error}"
    );
    Ok(())
}
