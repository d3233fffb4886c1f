//! A server over a store in a temporary directory, and a client that writes its own bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use olm_platform::listener::{self, Limits, Transport};
use olm_serve::{Access, App, Commit, Endpoints, Findings, Origin, Store, StoreLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The server's timeout for the body of a request.
pub const BODY_TIMEOUT: Duration = Duration::from_millis(500);

/// Endpoint, status and bytes of each request.
pub type RequestLog = Arc<Mutex<Vec<(&'static str, u16, u64)>>>;

pub struct Running {
    pub address: SocketAddr,
    pub store: Arc<Store>,
    pub shutdown: CancellationToken,
    pub task: JoinHandle<()>,
    pub seen: RequestLog,
    _root: tempfile::TempDir,
}

pub async fn start(limits: Limits) -> Running {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(root.path(), StoreLimits::default()).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let observer = move |a: &Access| log.lock().unwrap().push((a.endpoint, a.status.as_u16(), a.bytes));
    let app = App::new(Arc::clone(&store), Endpoints::default())
        .observed_by(observer)
        .with_priorities(|catalog| (catalog == "cat").then_some(7))
        .with_names(|| vec!["cat".to_owned(), "new".to_owned()])
        .with_body_timeout(BODY_TIMEOUT);
    let app = Arc::new(app);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let respond = move |request, peer| {
        let app = Arc::clone(&app);
        async move { app.respond(request, Some(peer)).await }
    };
    let task = tokio::spawn(listener::serve(
        listener,
        Transport::Plain,
        limits,
        shutdown.clone(),
        respond,
    ));
    Running {
        address,
        store,
        shutdown,
        task,
        seen,
        _root: root,
    }
}

/// Stores blobs as a catalog: schema, package, name and the line.
pub fn put<'a>(
    store: &Arc<Store>,
    catalog: &str,
    blobs: impl IntoIterator<Item = (&'a str, &'a str, &'a str, &'a str)>,
) {
    let mut writer = store.begin(catalog).unwrap();
    for (schema, package, name, line) in blobs {
        writer.push(schema, package, name, line.as_bytes()).unwrap();
    }
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let commit = Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: now,
        now,
    };
    writer.commit(commit).unwrap().prepare(|| true).unwrap();
}

/// A catalog of large bundles of one package, and its content.
pub fn fill(store: &Arc<Store>, blobs: usize) -> Vec<u8> {
    let names: Vec<String> = (0..blobs).map(|number| format!("p.v{number}")).collect();
    let line = |name: &String| {
        format!(
            "{{\"name\":\"{name}\",\"package\":\"p\",\"filler\":\"{}\"}}\n",
            "x".repeat(1000)
        )
    };
    let lines: Vec<String> = names.iter().map(line).collect();
    let blobs = names.iter().zip(&lines);
    put(
        store,
        "cat",
        blobs.map(|(name, line)| ("olm.bundle", "p", name.as_str(), line.as_str())),
    );
    lines.concat().into_bytes()
}

pub struct RawResponse {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends these bytes and reads until the server closes.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> RawResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may answer and close before it has read the whole request.
    let _ = stream.write_all(bytes).await;
    read(stream).await
}

/// Reads an answer until the server closes.
pub async fn read(mut stream: TcpStream) -> RawResponse {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n");
    let split = split.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&answer)));
    let head = String::from_utf8(answer[..split].to_vec()).unwrap();
    RawResponse {
        status: head[9..12].parse().unwrap(),
        head,
        body: answer[split + 4..].to_vec(),
    }
}

pub async fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> RawResponse {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    raw(address, head.as_bytes()).await
}

pub async fn post(address: SocketAddr, path: &str, headers: &str, body: &str) -> RawResponse {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    raw(address, head.as_bytes()).await
}
