//! Real signing services of Sigstore on this machine: cosign, an authority that issues certificates to holders of a
//! token, a transparency log and a timestamp authority. Only the issuer of the tokens is the test's own.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use http_body_util::Full;
use olm_platform::listener::{self, Limits, Transport};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::instance::Instance;
use crate::cluster::process::{self, Daemon};
use crate::cluster::{Binaries, Tool};

/// Audience of tokens.
const AUDIENCE: &str = "sigstore";
/// The name of the transparency log, which its checkpoints bear: cosign looks for the host of its address.
const LOG: &str = "127.0.0.1";
/// The turn of a test to have services.
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);
/// Time from which everything is trusted.
const START: &str = "2020-01-01T00:00:00Z";

/// Issuer of identity tokens (OpenID Connect).
#[derive(Debug)]
struct Issuer {
    url: String,
    key: EcdsaKeyPair,
    _stop: DropGuard,
}

/// The services, and cosign that uses them. Dropping it ends them.
#[derive(Debug)]
pub struct Sigstore {
    issuer: Issuer,
    folder: PathBuf,
    timestamps: String,
    fulcio: String,
    cosigns: BTreeMap<&'static str, PathBuf>,
    _instance: Instance,
    _turn: Option<OwnedMutexGuard<()>>,
}

/// Version of cosign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cosign {
    /// The second major version.
    Two,
    /// The third.
    Three,
}

impl Cosign {
    const fn tool(self) -> Tool {
        match self {
            Self::Two => Tool::Cosign2,
            Self::Three => Tool::Cosign3,
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Two => "cosign2",
            Self::Three => "cosign3",
        }
    }
}

impl Sigstore {
    /// cosign 3 without any service: it signs with keys.
    ///
    /// # Errors
    /// When it cannot be built.
    pub async fn alone() -> Result<Self> {
        let instance = Instance::create(None)?;
        Ok(Self {
            issuer: Issuer::start().await?,
            folder: instance.folder().to_owned(),
            timestamps: String::new(),
            fulcio: String::new(),
            cosigns: built(&[Cosign::Three]).await?,
            _instance: instance,
            _turn: None,
        })
    }

    /// Starts all services, after those of another test of this program have ended: the timestamp authority always
    /// takes the same port for its metrics.
    ///
    /// # Errors
    /// When a program cannot be built or does not start.
    pub async fn start() -> Result<Self> {
        let turn = Arc::clone(&TURN).lock_owned().await;
        let cosigns = built(&[Cosign::Three, Cosign::Two]).await?;
        let services = tokio::task::spawn_blocking(|| Binaries::ensure_signing(Tool::Services)).await??;
        let issuer = Issuer::start().await?;
        let mut instance = Instance::create(None)?;
        let folder = instance.folder().to_owned();
        let mut ports = Vec::new();
        for _ in 0..7 {
            ports.push(instance.port()?.to_string());
        }
        let [
            fulcio,
            fulcio_grpc,
            fulcio_metrics,
            rekor,
            rekor_grpc,
            rekor_metrics,
            timestamps,
        ] = &ports[..]
        else {
            bail!("too few ports");
        };

        let config = folder.join("conf/fulcio.yaml");
        let text = format!(
            "oidc-issuers:\n  {0}:\n    issuer-url: {0}\n    client-id: {AUDIENCE}\n    type: email\n",
            issuer.url
        );
        std::fs::write(&config, text)?;
        instance.start(
            Daemon::new("fulcio", services.path("fulcio"))
                .argument("serve")
                .flag("host", "127.0.0.1")
                .flag("port", fulcio)
                .flag("grpc-host", "127.0.0.1")
                .flag("grpc-port", fulcio_grpc)
                .flag("metrics-port", fulcio_metrics)
                .flag("legacy-unix-domain-socket", folder.join("fulcio.sock"))
                .flag("ca", "ephemeralca")
                // No log of certificates.
                .flag("ct-log-url", "")
                .flag("config-path", &config),
        )?;

        let log_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let (private, public) = (folder.join("pki/log.pem"), folder.join("pki/log.pub"));
        std::fs::write(&private, log_key.serialize_pem())?;
        std::fs::write(&public, log_key.public_key_pem())?;
        instance.start(
            Daemon::new("rekor", services.path("rekor"))
                .argument("serve")
                .flag("http-port", rekor)
                .flag("http-metrics-port", rekor_metrics)
                .flag("grpc-port", rekor_grpc)
                .flag("hostname", LOG)
                .flag("storage-dir", folder.join("log-of-signatures"))
                .flag("signer-filepath", &private)
                .flag("checkpoint-interval", "1s")
                .flag("batch-max-age", "100ms"),
        )?;

        instance.start(
            Daemon::new("timestamps", services.path("timestamp-server"))
                .argument("serve")
                .flag("host", "127.0.0.1")
                .flag("port", timestamps)
                .flag("timestamp-signer", "memory")
                .flag("disable-ntp-monitoring", "true"),
        )?;

        for (name, port) in [("fulcio", fulcio), ("rekor", rekor), ("timestamps", timestamps)] {
            let address = format!("127.0.0.1:{port}");
            let probe = async || tokio::net::TcpStream::connect(&address).await.map(drop);
            instance.wait_for(name, 60, probe).await?;
        }
        let url = |port: &str| format!("http://127.0.0.1:{port}");
        let this = Self {
            issuer,
            folder,
            timestamps: format!("{}/api/v1/timestamp", url(timestamps)),
            fulcio: url(fulcio),
            cosigns,
            _instance: instance,
            _turn: Some(turn),
        };
        this.configure(&url(rekor), &public).await?;
        Ok(this)
    }

    /// Writes the configuration of signers and the trust root of verifiers.
    async fn configure(&self, rekor: &str, log_key: &Path) -> Result<()> {
        let client = reqwest::Client::new();
        let bundle: Value = client
            .get(format!("{}/api/v2/trustBundle", self.fulcio))
            .send()
            .await?
            .error_for_status()?
            .json()
            .await?;
        let chain = bundle["chains"][0]["certificates"]
            .as_array()
            .context("no authority")?;
        let chain: String = chain.iter().filter_map(Value::as_str).collect();
        let authority = self.folder.join("pki/fulcio.pem");
        std::fs::write(&authority, chain)?;
        let chain = client
            .get(format!("{}/certchain", self.timestamps))
            .send()
            .await?;
        let stamps = self.folder.join("pki/timestamps.pem");
        std::fs::write(&stamps, chain.error_for_status()?.bytes().await?)?;

        let (root, fulcio, stamps_url) = (self.trusted_root(), &self.fulcio, &self.timestamps);
        let arguments = [
            "trusted-root".to_owned(),
            "create".to_owned(),
            format!(
                "--fulcio=url={fulcio},certificate-chain={},start-time={START}",
                authority.display()
            ),
            format!(
                "--rekor=url={rekor},public-key={},start-time={START},origin={LOG}",
                log_key.display()
            ),
            format!(
                "--tsa=url={stamps_url},certificate-chain={},start-time={START}",
                stamps.display()
            ),
            format!("--out={}", root.display()),
        ];
        self.run(Cosign::Three, &arguments)?;
        let of = |url: &str, version: u8| {
            format!("url={url},api-version={version},start-time={START},operator=test")
        };
        let services = [
            format!("--fulcio={}", of(fulcio, 1)),
            format!("--oidc-provider={}", of(&self.issuer.url, 1)),
            format!("--tsa={}", of(stamps_url, 1)),
            "--tsa-config=ANY".to_owned(),
        ];
        let log = [
            format!("--rekor={}", of(rekor, 2)),
            "--rekor-config=ANY".to_owned(),
        ];
        for (file, log) in [("logged", &log[..]), ("unlogged", &[])] {
            let mut arguments = vec!["signing-config".to_owned(), "create".to_owned()];
            arguments.extend(services.iter().chain(log).cloned());
            arguments.push(format!("--out={}", self.config(file).display()));
            self.run(Cosign::Three, &arguments)?;
        }
        Ok(())
    }

    /// The file that names the services for signers: with the log, `logged`, or without, `unlogged`.
    pub fn config(&self, name: &str) -> PathBuf {
        self.folder.join(format!("conf/{name}.json"))
    }

    /// The file with the trust root of verifiers.
    pub fn trusted_root(&self) -> PathBuf {
        self.folder.join("conf/trusted_root.json")
    }

    /// The issuer of identities.
    pub fn issuer(&self) -> &str {
        &self.issuer.url
    }

    /// The certificate authority.
    pub fn fulcio(&self) -> &str {
        &self.fulcio
    }

    /// The timestamp authority.
    pub fn timestamps(&self) -> &str {
        &self.timestamps
    }

    /// A file with a token for an email address: in an argument, cosign knows tokens by RSA keys only.
    ///
    /// # Errors
    /// When it cannot be signed or written.
    pub fn token(&self, email: &str) -> Result<PathBuf> {
        let file = self.folder.join("conf/token");
        std::fs::write(&file, self.issuer.token(email)?)?;
        Ok(file)
    }

    /// A key pair: the files of the private and the public key. The password is empty.
    ///
    /// # Errors
    /// When cosign fails.
    pub fn key(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        let prefix = self.folder.join("pki").join(name);
        let arguments = [
            "generate-key-pair".to_owned(),
            format!("--output-key-prefix={}", prefix.display()),
        ];
        self.run(Cosign::Three, &arguments)?;
        Ok((prefix.with_extension("key"), prefix.with_extension("pub")))
    }

    /// Runs cosign; returns its output.
    ///
    /// # Errors
    /// When it fails; the error has its output.
    pub fn run(&self, cosign: Cosign, arguments: &[String]) -> Result<String> {
        let program = self.cosigns.get(cosign.program()).context("no cosign")?;
        let mut command = Command::new(program);
        process::without_proxies(&mut command);
        let output = command
            .args(arguments)
            .env("COSIGN_PASSWORD", "")
            // Nothing of the user's.
            .env("HOME", &self.folder)
            .env("TUF_ROOT", self.folder.join("tuf"))
            .stdin(Stdio::null())
            .output()
            .context("cannot start cosign")?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(output.status.success(), "cosign {}: {said}", arguments.join(" "));
        Ok(said)
    }
}

/// The files of these programs, by name.
async fn built(cosigns: &'static [Cosign]) -> Result<BTreeMap<&'static str, PathBuf>> {
    let building = tokio::task::spawn_blocking(move || {
        let one = |cosign: &Cosign| {
            let binaries = Binaries::ensure_signing(cosign.tool())?;
            Ok((cosign.program(), binaries.path(cosign.program())))
        };
        cosigns.iter().map(one).collect()
    });
    building.await?
}

impl Issuer {
    async fn start() -> Result<Self> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        // An uncompressed point: one byte that says so, and two coordinates of equal length.
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "k", "x": x, "y": y }] });
        let about = json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": format!("{url}/no"),
            "token_endpoint": format!("{url}/no"), "response_types_supported": ["code"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
        });
        let answers = Arc::new((about.to_string(), keys.to_string()));
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(
            listener,
            Transport::Plain,
            Limits::default(),
            stop.clone(),
            move |request, _| {
                let answers = Arc::clone(&answers);
                async move {
                    let (about, keys) = &*answers;
                    let body = if request.uri().path() == "/keys" {
                        keys
                    } else {
                        about
                    };
                    let mut response = Response::new(Full::new(Cursor::new(body.clone().into_bytes())));
                    let kind = http::HeaderValue::from_static("application/json");
                    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
                    response
                }
            },
        ));
        Ok(Self {
            url,
            key,
            _stop: stop.drop_guard(),
        })
    }

    fn token(&self, email: &str) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let claims = json!({
            "iss": self.url, "sub": email, "aud": AUDIENCE, "email": email, "email_verified": true,
            "iat": now - 5, "nbf": now - 5, "exp": now + 600,
        });
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "k" });
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self
            .key
            .sign(&SystemRandom::new(), signed.as_bytes())
            .context("cannot sign")?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }
}
