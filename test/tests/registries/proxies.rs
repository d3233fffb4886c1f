//! The proxies of the environment, each in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_image::{Access, Registries};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Place, images, pull};

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

/// A proxy that counts what goes through it.
struct Proxy {
    address: String,
    tunnels: Arc<AtomicUsize>,
    _serving: tokio_util::task::AbortOnDropHandle<()>,
}

impl Proxy {
    /// `login` is `USER:PASSWORD` when the proxy wants one.
    async fn start(login: Option<&'static str>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let tunnels = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&tunnels);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, login, Arc::clone(&counter)));
            }
        });
        Ok(Self {
            address,
            tunnels,
            _serving: tokio_util::task::AbortOnDropHandle::new(serving),
        })
    }
}

/// Serves one `CONNECT`, or one request that names the whole address.
async fn pass(stream: TcpStream, login: Option<&str>, tunnels: Arc<AtomicUsize>) -> Result<()> {
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
        let mut server = TcpStream::connect(target).await?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    } else {
        let url: reqwest::Url = target.parse()?;
        let address = (
            url.host_str().context("no host")?,
            url.port_or_known_default().unwrap_or(80),
        );
        let mut server = TcpStream::connect(address).await?;
        let request = format!(
            "{method} {} HTTP/1.1\r\nconnection: close\r\n{head}\r\n",
            url.path()
        );
        server.write_all(request.as_bytes()).await?;
        tokio::io::copy(&mut server, &mut client).await?;
    }
    Ok(())
}

/// Pulls in a process with these variables.
async fn run(place: &Place, variables: &[(&str, &str)]) -> Result<Result<(), String>> {
    let is_plain = variables
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("http_proxy"));
    let registry = place.registry();
    let host = if is_plain {
        &registry.address
    } else {
        &registry.tls
    };
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command
        .args([
            "--exact",
            "proxies::the_proxy_of_the_environment_is_used",
            "--nocapture",
        ])
        .env(CHILD, format!("{host}/app:v1"))
        .env(CHILD_AUTHORITIES, place.authorities.path())
        .kill_on_drop(true);
    for name in VARIABLES {
        command.env_remove(name);
    }
    if is_plain {
        command.env(CHILD_PLAIN, host);
    }
    let output = command.envs(variables.iter().copied()).output().await?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok(if output.status.success() {
        Ok(())
    } else {
        Err(said)
    })
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used() -> Result<()> {
    if let Ok(reference) = std::env::var(CHILD) {
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
        return pull(&images, &reference, &access)
            .await
            .map(drop)
            .map_err(anyhow::Error::msg);
    }
    let place = Place::start().await?;
    place.push("app:v1").await?;
    let (open, closed) = (
        Proxy::start(None).await?,
        Proxy::start(Some("me:open sesame")).await?,
    );
    let port = place.registry().tls.rsplit_once(':').context("no port")?.1;
    let (with_port, other_port) = (format!("127.0.0.1:{port}"), "127.0.0.1:1".to_owned());
    let (http, bare) = (format!("http://{}", open.address), open.address.clone());
    let login = format!("http://me:open%20sesame@{}", closed.address);
    let check = async |variables: &[(&str, &str)], proxy: &Proxy, is_used: bool| -> Result<()> {
        let before = proxy.tunnels.load(Ordering::SeqCst);
        let result = run(&place, variables).await?;
        ensure!(result.is_ok(), "{variables:?}: {}", result.unwrap_err());
        let used = proxy.tunnels.load(Ordering::SeqCst) > before;
        ensure!(used == is_used, "{variables:?}: the proxy was used: {used}");
        Ok(())
    };
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "HTTP_PROXY",
        "http_proxy",
    ] {
        check(&[(name, &http)], &open, true).await?;
    }
    check(&[("HTTPS_PROXY", &bare)], &open, true).await?;
    check(&[("HTTPS_PROXY", &login)], &closed, true).await?;
    check(&[("HTTP_PROXY", &login)], &closed, true).await?;
    for (exempt, is_used) in [
        ("other.example", true),
        ("10.0.0.0/8", true),
        (other_port.as_str(), true),
        ("127.0.0.1", false),
        ("10.0.0.0/8, 127.0.0.0/8", false),
        (with_port.as_str(), false),
        ("*", false),
    ] {
        for name in ["NO_PROXY", "no_proxy"] {
            check(&[("HTTPS_PROXY", &http), (name, exempt)], &open, is_used).await?;
        }
    }

    // Who refuses is named, and the password is not.
    let name = format!("through the proxy `http://{}`", closed.address);
    for (variable, expected) in [
        ("HTTPS_PROXY", name.as_str()),
        ("HTTP_PROXY", "wants credentials, or others than it gets"),
    ] {
        let wrong = format!("http://me:an%20odd%20one@{}", closed.address);
        let error = run(&place, &[(variable, &wrong)]).await?.unwrap_err();
        ensure!(
            error.contains(expected) && error.contains(&closed.address),
            "{error}"
        );
        ensure!(!error.contains("odd"), "{error}");
    }
    let gone = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
    let error = run(&place, &[("HTTPS_PROXY", &gone)]).await?.unwrap_err();
    let expected = format!("through the proxy `http://{gone}`: Connection refused");
    ensure!(error.contains(&expected), "{error}");
    let error = run(&place, &[("HTTPS_PROXY", "socks5://me:odd@p")])
        .await?
        .unwrap_err();
    ensure!(
        error.contains("cannot use the proxy of HTTPS_PROXY: its scheme is `socks5`")
            && !error.contains("odd"),
        "{error}"
    );
    Ok(())
}
