//! `olm search` compared with the search of `olm catalog serve`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{Files, binary, olm};

/// The blobs of a package with one bundle that describes itself, and a newer one that does not.
fn package(name: &str, metadata: &Value, api: (&str, &str)) -> String {
    let described = format!("{name}.v1.0.0");
    let newest = format!("{name}.v1.1.0");
    let version =
        |version: &str| json!({"type": "olm.package", "value": {"packageName": name, "version": version}});
    let (group, kind) = api;
    let gvk = json!({"type": "olm.gvk", "value": {"group": group, "kind": kind, "version": "v1"}});
    let bundle = |bundle: &str, properties: Value| json!({"schema": "olm.bundle", "name": bundle, "package": name, "image": "reg.example/b:1", "properties": properties});
    let blobs = [
        json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "name": "stable", "package": name, "entries": [{"name": newest, "replaces": described}, {"name": described}]}),
        bundle(
            &described,
            json!([version("1.0.0"), gvk, {"type": "olm.csv.metadata", "value": metadata}]),
        ),
        bundle(&newest, json!([version("1.1.0"), gvk])),
    ];
    blobs
        .iter()
        .flat_map(|blob| [blob.to_string(), "\n".to_owned()])
        .collect()
}

fn about(name: &str, summary: &str, provider: &str, keywords: &[&str], categories: &str) -> Value {
    json!({
        "displayName": name,
        "provider": {"name": provider},
        "keywords": keywords,
        "annotations": {"description": summary, "categories": categories},
    })
}

fn catalogs() -> Files {
    let words = |summary| about("Words", summary, "Acme", &["text"], "Database, Big Data");
    let one = [
        package(
            "database",
            &about("Rows", "Keeps rows.", "Acme", &["sql"], "Storage"),
            ("d.example", "Table"),
        ),
        package(
            "a-database",
            &about("Another", "Keeps more rows.", "Beta", &["SQL"], "Database"),
            ("a.example", "Cluster"),
        ),
        package(
            "database-backup",
            &about("Backup", "Copies.", "Acme", &["backup", "database"], "Storage"),
            ("b.example", "Backup"),
        ),
        package("words", &words("A list of words."), ("w.example", "Database")),
        package(
            "zebra",
            &about("Database", "Stripes.", "Zoo", &["animal"], "Other"),
            ("z.example", "Zebra"),
        ),
        package(
            "apples",
            &about("Apples", "Sold by the database firm.", "Fruit", &[], ""),
            ("f.example", "Apple"),
        ),
    ];
    let other = [
        package("words", &words("Other words."), ("w.example", "Word")),
        package(
            "monitor",
            &about(
                "Monitor",
                "Looks at Ünits.",
                "Database Firm",
                &["metrics"],
                "Monitoring",
            ),
            ("m.example", "Monitor"),
        ),
    ];
    Files::new(&[
        ("one/catalog.json", &one.concat()),
        ("other/catalog.json", &other.concat()),
    ])
}

/// The packages of an answer in their order, as CATALOG/PACKAGE.
fn names(items: &Value, package: &str) -> Vec<String> {
    let text = |item: &Value, key: &str| item[key].as_str().expect("it is a text").to_owned();
    let items = items.as_array().expect("it is a list").iter();
    items
        .map(|item| format!("{}/{}", text(item, "catalog"), text(item, package)))
        .collect()
}

fn asked(address: &str, words: &str) -> std::io::Result<Value> {
    let query: String = words
        .bytes()
        .flat_map(|byte| ["%".to_owned(), format!("{byte:02X}")])
        .collect();
    Ok(serde_json::from_str(&fetched(
        address,
        &format!("/api/v1/search?q={query}"),
    )?)?)
}

/// The body of the answer to a request for a path.
fn fetched(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    Ok(body.to_owned())
}

/// `olm catalog serve` of directories among the files, and its address.
fn serving(files: &Files, catalogs: &[&str]) -> (Child, String) {
    let mut child = binary()
        .current_dir(files.path(""))
        .args(["catalog", "serve", "--addr", "127.0.0.1:0"])
        .args(catalogs)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output is piped"))
        .read_line(&mut line)
        .expect("it says where");
    let address = line.split('/').nth(2).unwrap_or_default().to_owned();
    (child, address)
}

fn stop(mut child: Child) {
    child.kill().expect("it can be stopped");
    child.wait().expect("it ends");
}

#[test]
fn the_command_and_the_server_find_the_same_in_the_same_order() {
    let files = catalogs();
    let (child, address) = serving(&files, &["one", "other"]);
    let outcomes: Vec<_> = QUERIES
        .iter()
        .map(|(words, expected)| {
            let arguments = ["search", "--catalog", "one", "--catalog", "other", "-o", "json"];
            let arguments: Vec<&str> = arguments.into_iter().chain(words.split(' ')).collect();
            let run = olm(&files.path(""), &arguments);
            (words, expected, asked(&address, words), run)
        })
        .collect();
    stop(child);
    for (words, expected, answer, run) in outcomes {
        let printed: Value = serde_json::from_str(&run.stdout).expect("it prints JSON");
        let printed = names(&printed, "package");
        assert_eq!(printed, *expected, "{words}");
        assert_eq!(run.status, i32::from(expected.is_empty()), "{words}");
        let answer = answer.expect("it answers");
        assert_eq!(names(&answer["items"], "name"), printed, "{words}");
    }
}

#[test]
fn pages_and_commands_name_the_newest_version_of_all_channels() {
    let text = package(
        "words",
        &about("Words", "A list of words.", "Acme", &[], ""),
        ("w.example", "Word"),
    );
    let newer = json!({"schema": "olm.bundle", "name": "words.v2.0.0", "package": "words", "image": "reg.example/b:2",
        "properties": [{"type": "olm.package", "value": {"packageName": "words", "version": "2.0.0"}}]});
    let fast = json!({"schema": "olm.channel", "name": "fast", "package": "words", "entries": [{"name": "words.v2.0.0"}]});
    let files = Files::new(&[("one/catalog.json", &format!("{text}{newer}\n{fast}\n"))]);
    let (child, address) = serving(&files, &["one"]);
    let found = asked(&address, "words");
    let page = fetched(&address, "/packages/one/words");
    stop(child);
    assert_eq!(found.expect("it answers")["items"][0]["latestVersion"], "2.0.0");
    let page = page.expect("it answers");
    assert!(
        page.contains(r#"<span class="badge version">2.0.0</span>"#),
        "{page}"
    );
    assert!(
        !page.contains("channels: [") && page.contains("--for=condition=Ready"),
        "{page}"
    );
    for command in [["search", "words"], ["show", "words"]] {
        let run = olm(
            &files.path(""),
            &[&command[..], &["--catalog", "one", "-o", "json"]].concat(),
        );
        let printed: Value = serde_json::from_str(&run.stdout).expect("it prints JSON");
        assert_eq!(printed[0]["version"], "2.0.0", "{command:?}");
        assert_eq!(printed[0]["defaultChannel"], "stable", "{command:?}");
    }
    let run = olm(
        &files.path(""),
        &["resolve", "words", "--catalog", "one", "-o", "json"],
    );
    let printed: Value = serde_json::from_str(&run.stdout).expect("it prints JSON");
    assert_eq!(printed["version"], "2.0.0");
}

#[test]
fn versions_are_listed_newest_first_and_shown_one_by_one() {
    let files = catalogs();
    let show = |more: &[&str]| {
        let command = ["show", "words", "--catalog", "one", "--catalog", "other"];
        olm(&files.path(""), &[&command[..], more].concat())
    };
    let listed = show(&[]);
    let table = "VERSION  BUNDLE        CHANNELS          PUBLISHED  DEPRECATED\n\
                 1.1.0    words.v1.1.0  stable (default)  -          -\n\
                 1.0.0    words.v1.0.0  stable (default)  -          -\n";
    assert_eq!(listed.stdout.matches(table).count(), 2, "{}", listed.stdout);
    let run = show(&["--version", "1.1.0"]);
    assert_eq!(
        run.stdout.lines().take(7).collect::<Vec<_>>(),
        [
            "package     words",
            "catalog     one",
            "version     1.1.0",
            "bundle      words.v1.1.0",
            "image       reg.example/b:1",
            "channels    stable (default)",
            "edges       stable: replaces words.v1.0.0",
        ]
    );
    let run = show(&["--version", "1.0.0", "-o", "json"]);
    let printed: Value = serde_json::from_str(&run.stdout).expect("it prints JSON");
    assert_eq!(printed[1]["catalog"], "other");
    assert_eq!(printed[1]["bundle"], "words.v1.0.0");
    assert_eq!(printed[1]["apis"], json!(["w.example/v1/Word"]));
    let run = show(&["-o", "json"]);
    let printed: Value = serde_json::from_str(&run.stdout).expect("it prints JSON");
    assert_eq!(printed[0]["versions"][0]["version"], "1.1.0");
    assert_eq!(printed[0]["versions"][1]["channels"], json!(["stable"]));
    for (version, part) in [
        ("1.x", "error: \"1.x\" is not a version\n"),
        (
            "2.0.0",
            "error: package \"words\" has no version 2.0.0 in one, other\n",
        ),
    ] {
        let run = show(&["--version", version]);
        assert!(run.status == 1 && run.stderr.starts_with(part), "{}", run.stderr);
        assert!(
            run.stderr.contains("--all-versions` lists the versions"),
            "{}",
            run.stderr
        );
    }
}

/// Words, and the matching packages in order.
const QUERIES: &[(&str, &[&str])] = &[
    (
        "database",
        &[
            "one/database",
            "one/zebra",
            "one/database-backup",
            "one/a-database",
            "one/words",
            "other/words",
            "other/monitor",
            "one/apples",
        ],
    ),
    ("DataBase rows", &["one/database", "one/a-database"]),
    ("sql", &["one/a-database", "one/database"]),
    ("backup", &["one/database-backup"]),
    ("back", &["one/database-backup"]),
    ("words", &["one/words", "other/words"]),
    ("word", &["one/words", "other/words"]),
    ("a.example", &["one/a-database"]),
    ("big data", &["one/words", "other/words"]),
    ("storage acme", &["one/database", "one/database-backup"]),
    ("firm", &["other/monitor", "one/apples"]),
    ("Ünits", &["other/monitor"]),
    ("monitor", &["other/monitor"]),
    ("nothing-of-the-kind", &[]),
    ("database nothing-of-the-kind", &[]),
];
