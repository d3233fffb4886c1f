//! Browsing: filters, pages of many packages, icons, versions, feeds.

use std::fmt::Write as _;
use std::net::SocketAddr;

use olm_platform::listener::Limits;

use crate::support::{Running, put, request, start};

async fn page(address: SocketAddr, path: &str) -> String {
    let answer = request(address, "GET", path, "").await;
    assert_eq!(answer.status, 200, "{path}");
    String::from_utf8(answer.body).unwrap()
}

/// A package with one bundle and its metadata.
fn blobs(name: &str, category: &str, level: &str) -> [(&'static str, String, String, String); 3] {
    let package = format!(r#"{{"schema":"olm.package","name":"{name}","defaultChannel":"c"}}"#);
    let channel = format!(
        r#"{{"schema":"olm.channel","package":"{name}","name":"c","entries":[{{"name":"{name}.v1"}}]}}"#
    );
    let bundle = format!(
        r#"{{"schema":"olm.bundle","package":"{name}","name":"{name}.v1","image":"i","properties":[
        {{"type":"olm.package","value":{{"packageName":"{name}","version":"1.0.0"}}}},
        {{"type":"olm.gvk","value":{{"group":"{category}.io","version":"v1","kind":"Kind"}}}},
        {{"type":"olm.csv.metadata","value":{{"annotations":{{"categories":"{category}","capabilities":"{level}"}},
          "installModes":[{{"type":"AllNamespaces","supported":true}},{{"type":"OwnNamespace","supported":false}}]}}}}]}}"#
    )
    .replace('\n', "");
    [
        ("olm.package", String::new(), name.to_owned(), package),
        ("olm.channel", name.to_owned(), "c".to_owned(), channel),
        ("olm.bundle", name.to_owned(), format!("{name}.v1"), bundle),
    ]
}

fn serve(running: &Running, catalog: &str, packages: &[(&str, &str, &str)]) {
    let blobs: Vec<_> = packages
        .iter()
        .flat_map(|(name, category, level)| blobs(name, category, level))
        .collect();
    let lines = blobs
        .iter()
        .map(|(schema, package, name, line)| (*schema, package.as_str(), name.as_str(), line.as_str()));
    put(&running.store, catalog, lines);
}

#[tokio::test]
async fn filters_are_links_that_count_what_they_leave() {
    let running = start(Limits::default()).await;
    let packages = [
        ("a", "Database", "Auto Pilot"),
        ("b", "Database", "Basic Install"),
        ("c", "Storage", "Basic Install"),
    ];
    serve(&running, "cat", &packages);
    serve(&running, "other", &packages[..1]);
    let text = page(running.address, "/").await;
    for part in [
        "href=\"/?category=Database\"><span class=\"value\">Database</span><span class=\"number\">3</span>",
        "href=\"/?catalog=other\"><span class=\"value\">other</span><span class=\"number\">1</span>",
        "href=\"/?capability=Auto%20Pilot\"><span class=\"value\">Auto Pilot</span><span class=\"number\">2</span>",
        "href=\"/?api=Storage.io\"",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The other values of a set filter show the number of packages for a change of the filter.
    let text = page(running.address, "/?category=storage&capability=Basic+Install").await;
    for part in [
        "<strong>1</strong> package in 2 catalogs",
        "href=\"/?capability=Basic%20Install&amp;category=Database\"><span class=\"value\">Database</span><span class=\"number\">1</span>",
        "href=\"/?capability=Basic%20Install\" aria-current=\"true\"><span class=\"value\">Storage</span>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for query in ["installMode=AllNamespaces", "deprecated=false", "api=Kind"] {
        let text = page(running.address, &format!("/?{query}")).await;
        assert!(text.contains("<strong>4</strong> packages"), "{query}: {text}");
    }
    for (query, found) in [
        ("installMode=OwnNamespace", 0),
        ("deprecated=true", 0),
        ("capability=auto+pilot", 2),
    ] {
        let answer = page(running.address, &format!("/api/v1/search?{query}")).await;
        assert!(
            answer.contains(&format!("\"total\":{found}")),
            "{query}: {answer}"
        );
    }
}

#[tokio::test]
async fn many_packages_come_page_by_page() {
    let running = start(Limits::default()).await;
    let names: Vec<String> = (0..60).map(|number| format!("p{number:02}")).collect();
    let packages: Vec<(&str, &str, &str)> =
        names.iter().map(|name| (name.as_str(), "Database", "")).collect();
    serve(&running, "cat", &packages);
    let mut path = "/?category=Database".to_owned();
    let mut seen = String::new();
    for number in 1..=3 {
        let text = page(running.address, &path).await;
        assert!(text.contains(&format!("Page {number} of 3")), "{text}");
        for name in names
            .iter()
            .filter(|name| text.contains(&format!("href=\"/packages/cat/{name}\"")))
        {
            let _ = write!(seen, "{name} ");
        }
        let next = text
            .split("rel=\"next\" href=\"")
            .nth(1)
            .map(|rest| rest.split('"').next().unwrap());
        assert_eq!(next.is_some(), number < 3, "{text}");
        assert_eq!(text.contains("rel=\"prev\""), number > 1, "{text}");
        path = next.unwrap_or_default().replace("&amp;", "&");
    }
    assert_eq!(seen.trim(), names.join(" "));
}

#[tokio::test]
async fn an_icon_is_a_picture_in_a_sandbox() {
    let running = start(Limits::default()).await;
    // <svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>
    let svg =
        "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciPjxzY3JpcHQ+YWxlcnQoMSk8L3NjcmlwdD48L3N2Zz4=";
    let with = |name: &str, media: &str| {
        format!(
            r#"{{"schema":"olm.package","name":"{name}","icon":{{"base64data":"{svg}","mediatype":"{media}"}}}}"#
        )
    };
    let (good, bad) = (with("good", "image/svg+xml"), with("bad", "text/html"));
    put(
        &running.store,
        "cat",
        [
            ("olm.package", "", "good", good.as_str()),
            ("olm.package", "", "bad", bad.as_str()),
        ],
    );
    let answer = request(running.address, "GET", "/packages/cat/good/icon", "").await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("image/svg+xml"))
    );
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none';") && policy.contains("sandbox;"),
        "{policy}"
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let again = format!("If-None-Match: {}\r\n", answer.header("etag").unwrap());
    let answer = request(running.address, "GET", "/packages/cat/good/icon", &again).await;
    assert_eq!((answer.status, answer.body.len()), (304, 0));
    assert_eq!(
        request(running.address, "GET", "/packages/cat/bad/icon", "")
            .await
            .status,
        404
    );
    let text = page(running.address, "/").await;
    assert!(
        text.contains("src=\"/packages/cat/good/icon\"") && !text.contains("/packages/cat/bad/icon"),
        "{text}"
    );
}

#[tokio::test]
async fn versions_have_pages_and_a_feed() {
    let running = start(Limits::default()).await;
    let bundle = |version: &str| {
        format!(
            r#"{{"schema":"olm.bundle","package":"p","name":"p.v{version}","image":"i:{version}","properties":[{{"type":"olm.package","value":{{"packageName":"p","version":"{version}"}}}},{{"type":"olm.csv.metadata","value":{{"displayName":"Pea","annotations":{{"createdAt":"2026-01-0{}"}}}}}}]}}"#,
            &version[..1]
        )
    };
    let (one, two) = (bundle("1.0.0"), bundle("2.0.0"));
    let channel = r#"{"schema":"olm.channel","package":"p","name":"c","entries":[{"name":"p.v1.0.0"},{"name":"p.v2.0.0","replaces":"p.v1.0.0","skipRange":"<2.0.0"}]}"#;
    let deprecated = r#"{"schema":"olm.deprecations","package":"p","entries":[{"reference":{"schema":"olm.bundle","name":"p.v1.0.0"},"message":"Old & gone."}]}"#;
    put(
        &running.store,
        "cat",
        [
            (
                "olm.package",
                "",
                "p",
                r#"{"schema":"olm.package","name":"p","defaultChannel":"c"}"#,
            ),
            ("olm.channel", "p", "c", channel),
            ("olm.bundle", "p", "p.v1.0.0", one.as_str()),
            ("olm.bundle", "p", "p.v2.0.0", two.as_str()),
            ("olm.deprecations", "p", "", deprecated),
        ],
    );
    let text = page(running.address, "/packages/cat/p/versions/p.v1.0.0").await;
    for part in [
        "olm install p --version 1.0.0 --catalog cat --wait",
        "Old &amp; gone.",
        "i:1.0.0",
        "href=\"/packages/cat/p/versions/p.v2.0.0\">2.0.0</a>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let answer = request(running.address, "GET", "/packages/cat/p/feed.xml", "").await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/atom+xml; charset=utf-8")
    );
    let text = String::from_utf8(answer.body).unwrap();
    let entries: Vec<&str> = text.split("<entry>").skip(1).collect();
    assert_eq!(entries.len(), 2, "{text}");
    assert!(
        entries[0].contains("<title>Pea 2.0.0</title><updated>2026-01-02T00:00:00Z</updated>"),
        "{text}"
    );
    assert!(entries[1].contains("Deprecated: Old &amp; gone."), "{text}");
    assert!(
        text.contains("<updated>2026-01-02T00:00:00Z</updated><author><name>cat</name>"),
        "{text}"
    );
}
