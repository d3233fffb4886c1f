//! `all` and `metas` over real connections.

use std::io::Read as _;
use std::time::Duration;

use olm_platform::listener::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{fill, put, request, start};

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
    running.store.announce("cat");
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
async fn an_answer_under_way_ends_after_the_server_was_stopped() {
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

#[tokio::test]
async fn every_coding_has_a_tag_and_the_digest_stands_in_a_header() {
    let running = start(Limits::default()).await;
    let all = fill(&running.store, 50);
    let digest = running.store.snapshot("cat").unwrap().record().digest.clone();
    for path in ["/catalogs/cat/api/v1/all", "/catalogs/cat/api/v1/metas?package=p"] {
        let mut tags = Vec::new();
        for (accept, coding) in [("", None), ("gzip", Some("gzip")), ("zstd, gzip", Some("zstd"))] {
            let headers = format!("Accept-Encoding: {accept}\r\n");
            let answer = request(running.address, "GET", path, &headers).await;
            assert_eq!(answer.header("content-encoding"), coding, "{path}");
            assert_eq!(
                answer.header("olm-catalog-digest"),
                Some(format!("sha256:{digest}").as_str())
            );
            let plain = match coding {
                Some("zstd") => zstd::decode_all(&*answer.body).unwrap(),
                Some(_) => {
                    let mut plain = Vec::new();
                    flate2::read::GzDecoder::new(&*answer.body)
                        .read_to_end(&mut plain)
                        .unwrap();
                    plain
                }
                None => answer.body.clone(),
            };
            assert_eq!(plain, all, "{path}");
            let tag = answer.header("etag").unwrap().to_owned();
            let again = format!("{headers}If-None-Match: {tag}\r\n");
            let again = request(running.address, "GET", path, &again).await;
            assert_eq!((again.status, again.body.len()), (304, 0));
            tags.push(tag);
        }
        tags.dedup();
        assert_eq!(tags.len(), 3);
    }
}

#[tokio::test]
async fn pages_of_metas_are_the_whole_in_order() {
    let running = start(Limits::default()).await;
    put(
        &running.store,
        "cat",
        [
            ("a", "p", "1", "{\"n\":1}"),
            ("b", "p", "2", "{\"n\":2}"),
            ("a", "p", "3", "{\"n\":3}"),
            ("a", "q", "4", "{\"n\":4}"),
            ("a", "p", "5", "{\"n\":5}"),
        ],
    );
    let path = "/catalogs/cat/api/v1/metas";
    for limit in 1..5 {
        let mut query = format!("?schema=a&package=p&limit={limit}");
        let mut pages = Vec::new();
        loop {
            let answer = request(running.address, "GET", &format!("{path}{query}"), "").await;
            assert_eq!(answer.status, 200, "{query}");
            pages.push(String::from_utf8(answer.body.clone()).unwrap());
            match answer.header("link") {
                Some(link) => {
                    query = link
                        .strip_prefix('<')
                        .unwrap()
                        .split('>')
                        .next()
                        .unwrap()
                        .to_owned();
                }
                None => break,
            }
        }
        assert_eq!(pages.concat(), "{\"n\":1}\n{\"n\":3}\n{\"n\":5}\n");
        assert_eq!(pages.len(), 3_usize.div_ceil(limit));
    }
    let first = request(running.address, "GET", &format!("{path}?limit=2"), "").await;
    let next = first
        .header("link")
        .unwrap()
        .split(['<', '>'])
        .nth(1)
        .unwrap()
        .to_owned();
    put(&running.store, "cat", [("a", "p", "other", "{}")]);
    let gone = request(running.address, "GET", &format!("{path}{next}"), "").await;
    assert_eq!(
        (gone.status, gone.body.as_slice()),
        (410, b"410 Gone\n".as_slice())
    );
}
