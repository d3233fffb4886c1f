//! The server over real connections.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::io::Read as _;
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

/// Endpoint, status and bytes of each request.
type Seen = Arc<Mutex<Vec<(&'static str, u16, u64)>>>;

struct Running {
    address: SocketAddr,
    store: Arc<Store>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    seen: Seen,
    _root: tempfile::TempDir,
}

async fn start(limits: Limits) -> Running {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(root.path(), StoreLimits::default()).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let observer = move |a: &Access| log.lock().unwrap().push((a.endpoint, a.status.as_u16(), a.bytes));
    let app = Arc::new(App::new(Arc::clone(&store), Endpoints::default()).observed_by(observer));
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

fn fill(store: &Arc<Store>, blobs: usize) -> Vec<u8> {
    let mut writer = store.begin("cat").unwrap();
    let mut all = Vec::new();
    for number in 0..blobs {
        let name = format!("p.v{number}");
        let line = format!(
            "{{\"name\":\"{name}\",\"package\":\"p\",\"filler\":\"{}\"}}\n",
            "x".repeat(1000)
        );
        writer.push("olm.bundle", "p", &name, line.as_bytes()).unwrap();
        all.extend(line.as_bytes());
    }
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let commit = Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: now,
        now,
    };
    writer.commit(commit).unwrap().prepare(|| true).unwrap();
    all
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

async fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..split].to_vec()).unwrap();
    Answer {
        status: head[9..12].parse().unwrap(),
        head,
        body: answer[split + 4..].to_vec(),
    }
}

#[tokio::test]
async fn content_is_served_plain_coded_in_parts_and_not_again() {
    let running = start(Limits::default()).await;
    let all = fill(&running.store, 300);
    let get = async |path: &str, headers: &str| request(running.address, "GET", path, headers).await;
    let path = "/catalogs/cat/api/v1/all";

    let plain = get(path, "").await;
    assert_eq!((plain.status, &plain.body), (200, &all));
    assert_eq!(
        plain.header("content-length"),
        Some(all.len().to_string().as_str())
    );
    let etag = plain.header("etag").unwrap();

    let coded = get(path, "Accept-Encoding: gzip\r\n").await;
    assert_eq!(coded.header("content-encoding"), Some("gzip"));
    assert_ne!(coded.header("etag").unwrap(), etag);
    let mut unzipped = Vec::new();
    flate2::read::GzDecoder::new(&*coded.body)
        .read_to_end(&mut unzipped)
        .unwrap();
    assert_eq!(unzipped, all);

    let head = request(running.address, "HEAD", path, "Accept-Encoding: gzip\r\n").await;
    assert_eq!(head.header("content-length"), coded.header("content-length"));
    assert!(head.body.is_empty());

    assert_eq!(get(path, &format!("If-None-Match: {etag}\r\n")).await.status, 304);
    assert_eq!(
        get(
            path,
            &format!("If-None-Match: {etag}\r\nAccept-Encoding: gzip\r\n")
        )
        .await
        .status,
        200
    );

    let part = get(path, "Range: bytes=1000-200999\r\nAccept-Encoding: gzip\r\n").await;
    assert_eq!((part.status, part.body.as_slice()), (206, &all[1000..201_000]));
    let parts = get(path, "Range: bytes=0-4,-3\r\n").await;
    assert_eq!(parts.status, 206);
    let boundary = parts
        .header("content-type")
        .unwrap()
        .split_once("boundary=")
        .unwrap()
        .1
        .to_owned();
    let text = String::from_utf8(parts.body.clone()).unwrap();
    assert_eq!(text.matches(&format!("--{boundary}")).count(), 3);
    assert_eq!(
        parts.header("content-length"),
        Some(text.len().to_string().as_str())
    );
    let beyond = get(path, "Range: bytes=999999999-\r\n").await;
    assert_eq!(
        (beyond.status, beyond.header("content-range")),
        (416, Some(format!("bytes */{}", all.len()).as_str()))
    );
    let stale = get(path, "Range: bytes=0-9\r\nIf-Range: \"other\"\r\n").await;
    assert_eq!((stale.status, stale.body.len()), (200, all.len()));

    let one = get("/catalogs/cat/api/v1/metas?name=p.v7", "").await;
    assert!(
        String::from_utf8(one.body)
            .unwrap()
            .starts_with("{\"name\":\"p.v7\"")
    );
    let many = get(
        "/catalogs/cat/api/v1/metas?package=p",
        "Accept-Encoding: gzip\r\n",
    )
    .await;
    let mut unzipped = Vec::new();
    flate2::read::GzDecoder::new(&*many.body)
        .read_to_end(&mut unzipped)
        .unwrap();
    assert_eq!(unzipped, all);
    assert_eq!(
        many.header("content-length"),
        Some(many.body.len().to_string().as_str())
    );
}

#[tokio::test]
async fn a_catalog_that_is_on_its_way_is_not_missing() {
    let running = start(Limits::default()).await;
    running.store.expect("cat");
    assert_eq!(
        request(running.address, "GET", "/catalogs/cat/api/v1/all", "")
            .await
            .status,
        503
    );
    assert_eq!(
        request(running.address, "GET", "/catalogs/other/api/v1/all", "")
            .await
            .status,
        404
    );
    fill(&running.store, 1);
    assert_eq!(
        request(running.address, "GET", "/catalogs/cat/api/v1/all", "")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn every_request_is_reported_when_its_answer_ends() {
    let running = start(Limits::default()).await;
    let all = fill(&running.store, 3);
    request(running.address, "GET", "/catalogs/cat/api/v1/all", "").await;
    request(running.address, "GET", "/catalogs/cat/api/v1/metas?x=1", "").await;
    request(running.address, "GET", "/nothing", "").await;
    let seen = running.seen.lock().unwrap().clone();
    assert_eq!(
        seen,
        [
            ("all", 200, all.len() as u64),
            ("metas", 400, 16),
            ("other", 404, 19)
        ]
    );
}

#[tokio::test]
async fn a_client_that_says_nothing_is_sent_away_and_frees_its_place() {
    let limits = Limits {
        connections: 1,
        head: Duration::from_millis(300),
        ..Limits::default()
    };
    let running = start(limits).await;
    fill(&running.store, 1);
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    silent.write_all(b"GET /catalogs/cat/").await.unwrap();
    let answer = request(running.address, "GET", "/catalogs/cat/api/v1/all", "").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_sent_away() {
    let limits = Limits {
        connections: 1,
        stall: Duration::from_millis(300),
        ..Limits::default()
    };
    let running = start(limits).await;
    fill(&running.store, 20_000);
    let mut greedy = TcpStream::connect(running.address).await.unwrap();
    greedy
        .write_all(b"GET /catalogs/cat/api/v1/all HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let answer = request(running.address, "GET", "/catalogs/cat/api/v1/metas?name=p.v1", "").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn an_answer_under_way_ends_after_the_server_was_told_to_stop() {
    let running = start(Limits::default()).await;
    let all = fill(&running.store, 20_000);
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    slow.write_all(b"GET /catalogs/cat/api/v1/all HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 1000];
    slow.read_exact(&mut first).await.unwrap();
    running.shutdown.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!running.task.is_finished());
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(&all[all.len() - 1000..]));
    tokio::time::timeout(Duration::from_secs(5), running.task)
        .await
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}
