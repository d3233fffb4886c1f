//! The pages for people.

use olm_platform::listener::Limits;
use sha2::{Digest as _, Sha256};

use crate::support::{RawResponse, put, request, start};

/// The page without the one script that its policy allows.
fn without_script(answer: &RawResponse) -> String {
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let (before, rest) = text.split_once("<script>").unwrap();
    let (script, after) = rest.split_once("</script>").unwrap();
    let digest = olm_fbc::base64_text::encode(&Sha256::digest(script));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.contains(&format!("script-src 'sha256-{digest}';")),
        "{policy}"
    );
    format!("{before}{after}")
}

#[tokio::test]
async fn what_a_catalog_says_is_shown_and_never_run() {
    let running = start(Limits::default()).await;
    let evil = "<script>alert(1)</script>\\\"'";
    let package = format!(
        r#"{{"defaultChannel":"{evil}","description":"Head\n\n{evil} [x](javascript:alert(1))","icon":{{"base64data":"PHN2Zz4=\" onerror=\"x","mediatype":"image/png"}},"name":"p{evil}","schema":"olm.package"}}"#
    );
    let channel = format!(
        r#"{{"entries":[{{"name":"{evil}"}}],"name":"{evil}","package":"p{evil}","schema":"olm.channel"}}"#
    );
    let bundle = format!(
        r#"{{"image":"{evil}","name":"{evil}","package":"p{evil}","properties":[{{"type":"olm.package","value":{{"packageName":"p{evil}","version":"1.0.0"}}}},{{"type":"olm.csv.metadata","value":{{"displayName":"{evil}","keywords":["{evil}"],"provider":{{"name":"{evil}"}},"annotations":{{"categories":"{evil}","description":"{evil}"}}}}}}],"schema":"olm.bundle"}}"#
    );
    let deprecation = format!(
        r#"{{"entries":[{{"message":"{evil}","reference":{{"schema":"olm.package"}}}}],"package":"p{evil}","schema":"olm.deprecations"}}"#
    );
    let name = "p<script>alert(1)</script>\"'";
    put(
        &running.store,
        "cat",
        [
            ("olm.package", "", name, package.as_str()),
            ("olm.channel", name, &name[1..], channel.as_str()),
            ("olm.bundle", name, &name[1..], bundle.as_str()),
            ("olm.deprecations", name, "", deprecation.as_str()),
        ],
    );
    let escaped = "p%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%27";
    let page = format!("/packages/cat/{escaped}");
    let versions = format!("{page}/versions");
    let version = format!("{versions}/{}", &escaped[1..]);
    for path in ["/", "/?q=script", &page, &versions, &version] {
        let answer = request(running.address, "GET", path, "").await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let text = without_script(&answer);
        assert!(
            text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{path}: {text}"
        );
        for harm in ["<script", "javascript:alert(1)\"", "onerror=\"", "\"'\""] {
            assert!(!text.contains(harm), "{harm} in {path}: {text}");
        }
    }
    let search = request(running.address, "GET", "/?q=%22%3E%3Cscript%3E", "").await;
    let text = String::from_utf8(search.body).unwrap();
    assert!(text.contains("value=\"&quot;&gt;&lt;script&gt;\""), "{text}");
}

#[tokio::test]
async fn control_and_bidirectional_characters_of_a_catalog_are_shown_as_escapes() {
    let running = start(Limits::default()).await;
    let line =
        r#"{"defaultChannel":"c","description":"one\u001b[31m\u202etwo","name":"p","schema":"olm.package"}"#;
    put(&running.store, "cat", [("olm.package", "", "p", line)]);
    for path in ["/", "/packages/cat/p", "/?q=%1b%e2%80%ae"] {
        let answer = request(running.address, "GET", path, "").await;
        let text = String::from_utf8(answer.body).unwrap();
        assert!(
            text.contains("\\u001b") && text.contains("\\u202e"),
            "{path}: {text}"
        );
        let is_hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(is_hidden), "{path}");
    }
}

/// The header `Accept` of browsers.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

#[tokio::test]
async fn people_get_a_page_that_says_why_there_is_no_other_and_programs_a_problem() {
    let running = start(Limits::default()).await;
    put(
        &running.store,
        "cat",
        [
            ("olm.package", "", "db", r#"{"name":"db","schema":"olm.package"}"#),
            (
                "olm.package",
                "",
                "greeter",
                r#"{"name":"greeter","schema":"olm.package"}"#,
            ),
        ],
    );
    for (path, status, part) in [
        (
            "/packages/cat/n%3Cb%3E",
            404,
            "<p>Catalog <code>cat</code> has no package <code>n&lt;b&gt;</code>.</p>",
        ),
        (
            "/packages/cat/greter",
            404,
            "<ul class=\"near\"><li><a href=\"/packages/cat/greeter\">greeter</a>",
        ),
        (
            "/packages/none/db",
            404,
            "<p>No catalog is served as <code>none</code>.</p>",
        ),
        ("/nowhere", 404, "<p>This page does not exist.</p>"),
        ("/packages/CAT/db", 400, "<h1>Bad Request</h1>"),
        ("/?x=1", 400, "<h1>Bad Request</h1>"),
    ] {
        let answer = request(running.address, "GET", path, BROWSER).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(answer.header("content-security-policy").is_some(), "{path}");
        let text = String::from_utf8(answer.body).unwrap();
        assert!(text.contains(part), "{part} in {text}");
        assert!(text.contains("<a href=\"/\">all packages</a>"), "{text}");
    }
    for (path, accept, content_type) in [
        ("/packages/cat/none", "", "application/problem+json"),
        (
            "/packages/cat/none",
            "Accept: text/html, application/problem+json\r\n",
            "application/problem+json",
        ),
        ("/nowhere", "", "text/plain; charset=utf-8"),
        ("/catalogs/none/api/v1/all", BROWSER, "text/plain; charset=utf-8"),
        ("/api/v1/search?x=1", BROWSER, "application/problem+json"),
    ] {
        let answer = request(running.address, "GET", path, accept).await;
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{path} {accept}"
        );
    }
}

#[tokio::test]
async fn a_search_without_a_hit_says_so_and_offers_what_is_near() {
    let running = start(Limits::default()).await;
    let shown = async |query: &str| {
        let answer = request(running.address, "GET", query, BROWSER).await;
        assert_eq!(answer.status, 200, "{query}");
        String::from_utf8(answer.body).unwrap()
    };
    assert!(shown("/").await.contains("No catalog is served yet"));
    put(
        &running.store,
        "cat",
        ["cert-manager", "prometheus", "other"].map(|name| {
            let line = match name {
                "cert-manager" => r#"{"name":"cert-manager","schema":"olm.package"}"#,
                "prometheus" => r#"{"name":"prometheus","schema":"olm.package"}"#,
                _ => r#"{"name":"other","schema":"olm.package"}"#,
            };
            ("olm.package", "", name, line)
        }),
    );
    let text = shown("/?q=promethues").await;
    for part in [
        "<strong>0</strong> packages in 1 catalog",
        "No package has all of these words in its name, summary, provider, keywords, categories or APIs: promethues.",
        "<a href=\"/packages/cat/prometheus\">prometheus</a>",
        "href=\"/\">All packages</a>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(shown("/?q=mangaer").await.contains(">cert-manager</a>"));
    let nothing = shown("/?q=elephant").await;
    assert!(!nothing.contains("Did you mean"), "{nothing}");
    assert!(!shown("/?q=prometheus").await.contains("No package"));
}

#[tokio::test]
async fn the_page_of_a_package_says_how_to_install_it() {
    let running = start(Limits::default()).await;
    put(
        &running.store,
        "cat",
        [
            (
                "olm.package",
                "",
                "db",
                r##"{"defaultChannel":"stable","description":"# About\n\nA *database*.","name":"db","schema":"olm.package"}"##,
            ),
            (
                "olm.channel",
                "db",
                "stable",
                r#"{"entries":[{"name":"db.v1"},{"name":"db.v2","replaces":"db.v1"}],"name":"stable","package":"db","schema":"olm.channel"}"#,
            ),
            (
                "olm.bundle",
                "db",
                "db.v2",
                r#"{"image":"r/db:2","name":"db.v2","package":"db","properties":[{"type":"olm.package","value":{"packageName":"db","version":"2.0.0"}}],"schema":"olm.bundle"}"#,
            ),
        ],
    );
    let page = request(running.address, "GET", "/packages/cat/db", "").await;
    let text = String::from_utf8(page.body).unwrap();
    for part in [
        "<em>database</em>",
        "<code>olm install db --catalog cat --wait</code>",
        "<strong>stable</strong> <span class=\"badge good\">default</span>",
        "href=\"/packages/cat/db/versions/db.v2\">2.0.0</a>",
        "kind: ClusterExtension",
        "packageName: &quot;db&quot;",
        "aria-label=\"Updates of db\"",
        ">db.v1</text>",
        ">no bundle</text>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for (path, status) in [
        ("/packages/cat/none", 404),
        ("/packages/none/db", 404),
        ("/packages/CAT/db", 400),
        ("/packages/cat/db/versions", 200),
        ("/packages/cat/db/versions/db.v2", 200),
        ("/packages/cat/db/versions/db.v1", 404),
        ("/packages/cat/db/icon", 404),
        ("/packages/cat/db/other", 404),
        ("/packages/cat/none/feed.xml", 404),
        ("/icon.svg", 200),
        ("/style.css", 200),
        ("/?x=1", 400),
    ] {
        assert_eq!(
            request(running.address, "GET", path, "").await.status,
            status,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_version_in_no_channel_is_installed_by_its_number() {
    let running = start(Limits::default()).await;
    let bundle = |version: &str| {
        format!(
            r#"{{"image":"r/db:{version}","name":"db.v{version}","package":"db","properties":[{{"type":"olm.package","value":{{"packageName":"db","version":"{version}"}}}}],"schema":"olm.bundle"}}"#
        )
    };
    let bundles = ["1.0.0", "1.1.0", "1.2.0", "2.0.0", "3.0.0"]
        .map(|version| (format!("db.v{version}"), bundle(version)));
    let channel = r#"{"entries":[{"name":"db.v1.2.0","replaces":"db.v1.1.0","skipRange":">=1.0.0 <1.2.0"},{"name":"db.v2.0.0","skips":["db.v1.1.0"]}],"name":"stable","package":"db","schema":"olm.channel"}"#;
    let blobs = [
        (
            "olm.package",
            "",
            "db",
            r#"{"defaultChannel":"stable","name":"db","schema":"olm.package"}"#,
        ),
        ("olm.channel", "db", "stable", channel),
    ];
    let bundles = bundles
        .iter()
        .map(|(name, line)| ("olm.bundle", "db", name.as_str(), line.as_str()));
    put(&running.store, "cat", blobs.into_iter().chain(bundles));

    let none = "No channel holds this version. An extension gets it only if <code>spec.source.catalog.channels</code> is empty";
    let link = |version: &str| format!("href=\"/packages/cat/db/versions/db.v{version}\">{version}</a>");
    for (version, leads_to, stays) in [
        // By a range, by name and by a skip, and not at all.
        ("1.0.0", vec!["1.2.0"], false),
        ("1.1.0", vec!["1.2.0", "2.0.0"], false),
        ("3.0.0", Vec::new(), true),
    ] {
        let path = format!("/packages/cat/db/versions/db.v{version}");
        let page = String::from_utf8(request(running.address, "GET", &path, "").await.body).unwrap();
        let (_, updates) = page.split_once("<h2>Updates</h2>").unwrap();
        let (updates, _) = updates.split_once("</section>").unwrap();
        assert!(
            updates.contains(none) && !page.contains("cannot be installed"),
            "{updates}"
        );
        assert!(
            page.contains(&format!(
                "olm install db --version {version} --catalog cat --wait"
            )),
            "{page}"
        );
        assert!(
            !page.contains("channels: "),
            "the manifest names no channel: {page}"
        );
        for other in ["1.2.0", "2.0.0"] {
            assert_eq!(
                updates.contains(&link(other)),
                leads_to.contains(&other),
                "{version}: {updates}"
            );
        }
        assert_eq!(
            updates.contains("No channel has an update from it."),
            stays,
            "{updates}"
        );
    }
    let page = request(running.address, "GET", "/packages/cat/db/versions/db.v1.2.0", "").await;
    assert!(!String::from_utf8(page.body).unwrap().contains(none));
}

#[tokio::test]
async fn a_package_shows_its_maintainers_and_links_on_both_its_pages() {
    let running = start(Limits::default()).await;
    let metadata = r#"{"annotations":{"repository":"https://git.example/db/"},"links":[{"name":"Manual","url":"https://docs.example/db"},{"name":"Bad","url":"javascript:alert(1)"}],"maintainers":[{"email":"ada@db.example","name":"Ada"},{"email":"team@db.example"},{"email":"x?subject=y@z","name":"Eve"}],"provider":{"name":"Databases Ltd"}}"#;
    let bundle = format!(
        r#"{{"image":"r/db:1","name":"db.v1","package":"db","properties":[{{"type":"olm.package","value":{{"packageName":"db","version":"1.0.0"}}}},{{"type":"olm.csv.metadata","value":{metadata}}}],"schema":"olm.bundle"}}"#
    );
    put(
        &running.store,
        "cat",
        [
            (
                "olm.package",
                "",
                "db",
                r#"{"defaultChannel":"stable","name":"db","schema":"olm.package"}"#,
            ),
            (
                "olm.channel",
                "db",
                "stable",
                r#"{"entries":[{"name":"db.v1"}],"name":"stable","package":"db","schema":"olm.channel"}"#,
            ),
            ("olm.bundle", "db", "db.v1", &bundle),
        ],
    );
    for path in ["/packages/cat/db", "/packages/cat/db/versions/db.v1"] {
        let page = request(running.address, "GET", path, "").await;
        let text = String::from_utf8(page.body).unwrap();
        for part in [
            "<dt>Publisher</dt><dd>Databases Ltd</dd>",
            "<dt>Maintainers</dt>",
            "<a href=\"mailto:ada@db.example\">Ada</a>",
            "<a href=\"mailto:team@db.example\">team@db.example</a>",
            "<li>Eve</li>",
            "<dt>Links</dt>",
            "href=\"https://docs.example/db\"",
            ">Manual</a>",
            "href=\"https://git.example/db/\"",
            ">git.example/db</a>",
            "Bad",
        ] {
            assert!(text.contains(part), "{path}: {part} in {text}");
        }
        assert!(!text.contains("href=\"javascript:"), "{text}");
    }
}

#[tokio::test]
async fn addresses_beside_those_of_packages_lead_to_what_they_stand_for() {
    let running = start(Limits::default()).await;
    for (path, target) in [
        ("/packages", "/"),
        ("/packages/?q=db", "/?q=db"),
        ("/packages/cat?q=db", "/?catalog=cat&q=db"),
        ("/packages/cat/", "/?catalog=cat"),
        ("/packages/cat/db/", "/packages/cat/db"),
    ] {
        let answer = request(running.address, "GET", path, BROWSER).await;
        assert_eq!(answer.status, 307, "{path}");
        assert_eq!(answer.header("location"), Some(target), "{path}");
    }
}

#[tokio::test]
async fn bundles_that_carry_their_manifests_have_dates_and_others_name_the_command_for_roles() {
    let running = start(Limits::default()).await;
    let csv = r#"{"kind":"ClusterServiceVersion","metadata":{"annotations":{"createdAt":"2023-05-06 07:08:09"}},"spec":{}}"#;
    let bundle = |package: &str, property: &str| {
        format!(
            r#"{{"image":"r/{package}:1","name":"{package}.v1","package":"{package}","properties":[{{"type":"olm.package","value":{{"packageName":"{package}","version":"1.0.0"}}}},{property}],"schema":"olm.bundle"}}"#
        )
    };
    let data = olm_fbc::base64_text::encode(csv.as_bytes());
    let carried = bundle(
        "db",
        &format!(r#"{{"type":"olm.bundle.object","value":{{"data":"{data}"}}}}"#),
    );
    let described = bundle(
        "web",
        r#"{"type":"olm.csv.metadata","value":{"displayName":"Web"}}"#,
    );
    put(
        &running.store,
        "cat",
        [
            ("olm.package", "", "db", r#"{"name":"db","schema":"olm.package"}"#),
            ("olm.bundle", "db", "db.v1", &carried),
            (
                "olm.package",
                "",
                "web",
                r#"{"name":"web","schema":"olm.package"}"#,
            ),
            ("olm.bundle", "web", "web.v1", &described),
        ],
    );
    for (path, part) in [
        ("/packages/cat/db", "<dt>Published</dt><dd>2023-05-06</dd>"),
        (
            "/packages/cat/db/versions",
            "<td class=\"nowrap\">2023-05-06</td>",
        ),
        (
            "/packages/cat/web/versions/web.v1",
            "olm rbac --bundle r/web:1 \\\n  --namespace web --service-account web-installer",
        ),
    ] {
        let page = request(running.address, "GET", path, "").await;
        let text = String::from_utf8(page.body).unwrap();
        assert!(text.contains(part), "{path}: {part} in {text}");
    }
}

#[tokio::test]
async fn short_texts_are_whole_and_the_summary_is_that_of_the_search() {
    let running = start(Limits::default()).await;
    let package = r#"{"defaultChannel":"stable","description":"A shelf.\n\nFor books.","icon":{"base64data":"PHN2Zy8+","mediatype":"image/svg+xml"},"name":"shelf","schema":"olm.package"}"#;
    let bundle = r#"{"image":"r/shelf:1","name":"shelf.v1","package":"shelf","properties":[{"type":"olm.package","value":{"packageName":"shelf","version":"1.0.0"}},{"type":"olm.csv.metadata","value":{"description":"Holds *books*."}}],"schema":"olm.bundle"}"#;
    put(
        &running.store,
        "cat",
        [
            ("olm.package", "", "shelf", package),
            ("olm.bundle", "shelf", "shelf.v1", bundle),
        ],
    );
    let shown = async |path: &str| {
        let answer = request(running.address, "GET", path, "").await;
        String::from_utf8(answer.body).unwrap()
    };
    assert!(shown("/").await.contains("/icon\" alt=\"\" loading=\"lazy\""));
    for path in ["/packages/cat/shelf", "/packages/cat/shelf/versions/shelf.v1"] {
        let text = shown(path).await;
        for part in [
            "<p class=\"lead\">A shelf.</p>",
            "<em>books</em>",
            "/icon\" alt=\"\">",
        ] {
            assert!(text.contains(part), "{path}: {part} in {text}");
        }
        assert!(!text.contains("class=\"long\""), "{path}: {text}");
    }
}

#[tokio::test]
async fn clearing_the_filters_keeps_the_words_and_the_order() {
    let running = start(Limits::default()).await;
    let path = "/?q=a&category=Database&capability=x&sort=created";
    let answer = request(running.address, "GET", path, "").await;
    let text = String::from_utf8(answer.body).unwrap();
    let link = "href=\"/?q=a&amp;sort=created\">Clear all</a>";
    assert!(text.contains(link), "{text}");
}
