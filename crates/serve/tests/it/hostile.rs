//! Clients that are slow, endless or hostile, with sockets of their own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use olm_platform::listener::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{BODY_TIMEOUT, fill, raw, read, request, start};

const ALL: &str = "/catalogs/cat/api/v1/all";
const GRAPHQL: &str = "POST /catalogs/cat/api/v1/graphql HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";

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
    // While its answer is in progress, it keeps the only slot.
    let began = Instant::now();
    loop {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let question =
            "GET /catalogs/cat/api/v1/metas?name=p.v1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(question.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        if answer.starts_with(b"HTTP/1.1 200") {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "never sent away");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off() {
    let limits = Limits {
        head: Duration::from_millis(400),
        ..Limits::default()
    };
    let running = start(limits).await;
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    let began = Instant::now();
    slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    // Each header comes well within the limit; together they never end.
    while slow.write_all(b"X-Slow: 1\r\n").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(began.elapsed() < Duration::from_mins(1), "never cut off");
    }
}

#[tokio::test]
async fn a_connection_that_idles_between_two_requests_is_closed() {
    let limits = Limits {
        head: Duration::from_millis(300),
        ..Limits::default()
    };
    let running = start(limits).await;
    fill(&running.store, 1);
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(format!("GET {ALL} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let answer = tokio::time::timeout(Duration::from_mins(1), read(idle))
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let running = start(Limits::default()).await;
    let long = "x".repeat(200 << 10);
    let many = "X-Many: 1\r\n".repeat(500);
    for (head, expected) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), [414, 431]),
        (
            format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", &long[..70_000]),
            [414, 431],
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n"),
            [431, 431],
        ),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"), [431, 431]),
        ("NONSENSE\r\n\r\n".to_owned(), [400, 400]),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(),
            [400, 400],
        ),
    ] {
        let status = raw(running.address, head.as_bytes()).await.status;
        assert!(
            expected.contains(&status),
            "{status} to {}…",
            &head[..20.min(head.len())]
        );
    }
}

#[tokio::test]
async fn a_question_that_never_ends_is_refused() {
    let running = start(Limits::default()).await;
    fill(&running.store, 1);
    let mut endless = TcpStream::connect(running.address).await.unwrap();
    endless
        .write_all(format!("{GRAPHQL}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    let mut sent = 0;
    while endless.write_all(chunk.as_bytes()).await.is_ok() {
        sent += chunk.len();
        assert!(sent < 64 << 20, "never refused");
    }
    let mut announced = TcpStream::connect(running.address).await.unwrap();
    let head = format!("{GRAPHQL}Content-Length: 999999999999\r\n\r\n");
    announced.write_all(head.as_bytes()).await.unwrap();
    sent = 0;
    while announced.write_all(chunk.as_bytes()).await.is_ok() {
        sent += chunk.len();
        assert!(sent < 64 << 20, "never refused");
    }
    assert_eq!(request(running.address, "GET", ALL, "").await.status, 200);
}

#[tokio::test]
async fn a_question_that_does_not_arrive_is_given_up() {
    let running = start(Limits::default()).await;
    fill(&running.store, 1);
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    slow.write_all(format!("{GRAPHQL}Content-Length: 100\r\n\r\n{{").as_bytes())
        .await
        .unwrap();
    let began = Instant::now();
    let answer = tokio::time::timeout(Duration::from_mins(1), read(slow))
        .await
        .unwrap();
    assert_eq!(answer.status, 408);
    assert!(began.elapsed() >= BODY_TIMEOUT);
}

#[tokio::test]
async fn a_client_that_trickles_what_it_takes_is_sent_away() {
    let limits = Limits {
        stall: Duration::from_millis(500),
        ..Limits::default()
    };
    let running = start(limits).await;
    let all = fill(&running.store, 30_000);
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    slow.write_all(format!("GET {ALL} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
        .await
        .unwrap();
    // A client that reads a byte now and then does not keep its connection: the server closes it after the sent data.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let _ = slow.read_u8().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(rest.len() < all.len() / 2, "{} bytes", rest.len());
}

/// A connection from another address of this machine.
async fn connect_from(host: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, host], 0).into()).unwrap();
    socket.connect(address).await.unwrap()
}

#[tokio::test]
async fn further_connections_take_the_place_of_the_idlest() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let running = start(limits).await;
    fill(&running.store, 1);
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
    }
    let answer = tokio::time::timeout(Duration::from_secs(20), request(running.address, "GET", ALL, ""));
    assert_eq!(answer.await.unwrap().status, 200);
}

#[tokio::test]
async fn one_peer_locks_no_other_out_with_idle_or_busy_connections() {
    let limits = Limits {
        connections: 24,
        per_peer: 16,
        ..Limits::default()
    };
    let running = start(limits).await;
    fill(&running.store, 20_000);
    let mut held = Vec::new();
    // Two addresses occupy all slots, one of them with answers that it does not read.
    for number in 0..300_u16 {
        let mut busy = connect_from(2, running.address).await;
        let _ = busy
            .write_all(format!("GET {ALL} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
            .await;
        held.push(busy);
        if number < 100 {
            held.push(connect_from(3, running.address).await);
        }
    }
    for path in [ALL, "/catalogs/cat/api/v1/metas?name=p.v1"] {
        let answer = tokio::time::timeout(Duration::from_secs(20), request(running.address, "GET", path, ""));
        assert_eq!(answer.await.unwrap().status, 200);
    }
}
