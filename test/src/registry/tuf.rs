//! A repository of TUF (The Update Framework) over HTTP. Its documents are signed here, one by one, so that a test can
//! serve wrong ones too.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::net::Ipv4Addr;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context as _, Result};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use http::{Response, StatusCode};
use http_body_util::Full;
use olm_platform::listener::{self, Limits, Transport};
use olpc_cjson::CanonicalFormatter;
use serde::Serialize as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The number of signatures that a root needs.
const ROOT_THRESHOLD: usize = 2;

type Files = BTreeMap<String, Vec<u8>>;

/// The server of a repository. Dropping it ends it.
#[derive(Debug)]
pub struct TufRepository {
    url: String,
    files: Arc<RwLock<Files>>,
    _stop: DropGuard,
}

/// The keys of a repository.
#[derive(Debug)]
pub struct TufKeys {
    /// The keys of the root; two of them must sign.
    pub root: [Ed25519KeyPair; 3],
    /// The key of all other roles.
    pub online: Ed25519KeyPair,
}

impl TufKeys {
    /// New keys.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new() -> Result<Self> {
        let key = || Ed25519KeyPair::generate().context("cannot make a key");
        Ok(Self {
            root: [key()?, key()?, key()?],
            online: key()?,
        })
    }

    /// The content of a root with these keys, not yet signed.
    pub fn root(&self, version: u64, expires: &str) -> Value {
        let all = self.root.iter().chain([&self.online]);
        let keys: serde_json::Map<String, Value> = all
            .map(|key| {
                let public = hex::encode(key.public_key());
                let about =
                    json!({ "keytype": "ed25519", "scheme": "ed25519", "keyval": { "public": public } });
                (id(key), about)
            })
            .collect();
        let online = json!({ "keyids": [id(&self.online)], "threshold": 1 });
        json!({
            "_type": "root", "spec_version": "1.0.31", "version": version, "expires": expires,
            "consistent_snapshot": true, "keys": keys,
            "roles": {
                "root": { "keyids": self.root.iter().map(id).collect::<Vec<_>>(), "threshold": ROOT_THRESHOLD },
                "timestamp": online, "snapshot": online, "targets": online,
            },
        })
    }
}

/// The name of a key.
fn id(key: &Ed25519KeyPair) -> String {
    hex::encode(Sha256::digest(key.public_key()))
}

/// A document with its signatures.
///
/// # Errors
/// When it has no canonical form.
pub fn signed<'keys>(
    content: &Value,
    keys: impl IntoIterator<Item = &'keys Ed25519KeyPair>,
) -> Result<Vec<u8>> {
    let mut canonical = Vec::new();
    let mut serializer =
        serde_json::Serializer::with_formatter(&mut canonical, CanonicalFormatter::default());
    content.serialize(&mut serializer)?;
    let signatures: Vec<Value> = keys
        .into_iter()
        .map(|key| json!({ "keyid": id(key), "sig": hex::encode(key.sign(&canonical)) }))
        .collect();
    Ok(json!({ "signed": content, "signatures": signatures })
        .to_string()
        .into_bytes())
}

impl TufRepository {
    /// Starts the server of an empty repository.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/tuf", listener.local_addr()?);
        let files = Arc::<RwLock<Files>>::default();
        let stop = CancellationToken::new();
        let served = Arc::clone(&files);
        tokio::spawn(listener::serve(
            listener,
            Transport::Plain,
            Limits::default(),
            stop.clone(),
            move |request, _| {
                let files = served.read().unwrap_or_else(PoisonError::into_inner);
                let name = request.uri().path().strip_prefix("/tuf/");
                let file = name.and_then(|name| files.get(name)).cloned();
                async move {
                    let status = file.as_ref().map_or(StatusCode::NOT_FOUND, |_| StatusCode::OK);
                    let mut response = Response::new(Full::new(Cursor::new(file.unwrap_or_default())));
                    *response.status_mut() = status;
                    response
                }
            },
        ));
        Ok(Self {
            url,
            files,
            _stop: stop.drop_guard(),
        })
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Puts a file there.
    pub fn put(&self, name: &str, content: Vec<u8>) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.insert(name.to_owned(), content);
    }

    /// All files, to put them back later.
    pub fn files(&self) -> Files {
        self.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces all files.
    pub fn restore(&self, files: Files) {
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = files;
    }

    /// Publishes a trust root with all metadata of a version.
    ///
    /// # Errors
    /// When the documents cannot be signed.
    pub fn publish(&self, key: &Ed25519KeyPair, version: u64, expires: &str, content: &[u8]) -> Result<()> {
        let hash = hex::encode(Sha256::digest(content));
        let role = |kind: &str, more: Value| {
            let mut document =
                json!({ "_type": kind, "spec_version": "1.0.31", "version": version, "expires": expires });
            if let (Some(document), Value::Object(more)) = (document.as_object_mut(), more) {
                document.extend(more);
            }
            document
        };
        let target = json!({ "length": content.len(), "hashes": { "sha256": hash } });
        let targets = role("targets", json!({ "targets": { "trusted_root.json": target } }));
        let snapshot = role(
            "snapshot",
            json!({ "meta": { "targets.json": { "version": version } } }),
        );
        let timestamp = role(
            "timestamp",
            json!({ "meta": { "snapshot.json": { "version": version } } }),
        );
        self.put(&format!("{version}.targets.json"), signed(&targets, [key])?);
        self.put(&format!("{version}.snapshot.json"), signed(&snapshot, [key])?);
        self.put("timestamp.json", signed(&timestamp, [key])?);
        self.put(&format!("targets/{hash}.trusted_root.json"), content.to_vec());
        Ok(())
    }
}
