//! Every reader of foreign bytes as a function from bytes: none may panic, run away or break its own promises.
//!
//! The tests replay the seeds in `test/fuzz/seeds` and change them for a while; `make fuzz` has a coverage-guided engine
//! look for new ones.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::sync::{Arc, OnceLock};

use olm_fbc::meta;
use olm_fbc::{Checker, Ignore};
use olm_image::{Credentials, Limits, Policy, Reference, Registries, Selection};
use olm_serve::{App, Commit, Endpoints, Findings, Origin, Store, StoreLimits, ingest};
use olm_version::{blang, masterminds};

/// A reader under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, also that of its folder of seeds.
    pub name: &'static str,
    /// Reads; what it returns does not matter.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "yaml",
        run: yaml,
    },
    Target {
        name: "blobs",
        run: blobs,
    },
    Target {
        name: "catalog",
        run: catalog,
    },
    Target {
        name: "indexignore",
        run: indexignore,
    },
    Target {
        name: "layers",
        run: layers,
    },
    Target {
        name: "manifest",
        run: manifest,
    },
    Target {
        name: "reference",
        run: reference,
    },
    Target {
        name: "registries",
        run: registries,
    },
    Target {
        name: "policy",
        run: policy,
    },
    Target {
        name: "pull-secret",
        run: pull_secret,
    },
    Target {
        name: "blang",
        run: blang_range,
    },
    Target {
        name: "masterminds",
        run: masterminds_range,
    },
    Target {
        name: "query",
        run: query,
    },
    Target {
        name: "graphql",
        run: graphql,
    },
    Target {
        name: "bundle",
        run: bundle,
    },
];

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// What YAML became is JSON, which is YAML with the same meaning.
fn yaml(bytes: &[u8]) {
    let Ok(value) = olm_yaml::to_json(bytes) else {
        return;
    };
    let written = value.to_string();
    let again = olm_yaml::to_json(&written);
    assert!(
        again.is_err() || again.is_ok_and(|again| again == value),
        "{written}"
    );
}

fn blobs(bytes: &[u8]) {
    let limits = meta::limits();
    for blob in olm_fbc::metas(BufReader::new(bytes), &limits) {
        let Ok(blob) = blob else { return };
        assert!(!blob.json().contains('\n'), "a blob is one line");
    }
}

fn catalog(bytes: &[u8]) {
    let limits = meta::limits();
    let mut checker = Checker::new();
    for blob in olm_fbc::metas(BufReader::new(bytes), &limits) {
        match blob {
            Ok(blob) => checker.add("catalog.yaml", &blob),
            Err(error) => {
                checker.add_failure("catalog.yaml", &error);
                break;
            }
        }
    }
    drop(checker.finish());
    let mut catalog = olm_fbc::Catalog::default();
    // What does not load is refused; that is all.
    let _ = catalog.load(BufReader::new(bytes), &limits);
}

/// The first line is a path, the rest are patterns.
fn indexignore(bytes: &[u8]) {
    let text = text(bytes);
    let (path, patterns) = text.split_once('\n').unwrap_or((&text, ""));
    let mut ignore = Ignore::new();
    ignore.add(".indexignore", patterns);
    ignore.add("a/b/.indexignore", patterns);
    for path in [path, "a/b/c.yaml", "a"] {
        let _ = ignore.is_ignored(path);
    }
}

/// Two layers, divided by the byte sequence `|LAYER|`.
fn layers(bytes: &[u8]) {
    let limits = Limits {
        entries: 1000,
        kept_bytes: 1 << 20,
        unpacked_bytes: 8 << 20,
        ..Limits::bundle()
    };
    let divider = b"|LAYER|";
    let at = bytes.windows(divider.len()).position(|window| window == divider);
    let parts: Vec<&[u8]> = match at {
        Some(at) => vec![&bytes[..at], &bytes[at + divider.len()..]],
        None => vec![bytes],
    };
    for selection in [
        Selection::Everything,
        Selection::Below(vec!["configs".to_owned()]),
    ] {
        let Ok(tree) = olm_image::fuzz::unpack(&parts, &selection, &limits) else {
            continue;
        };
        for (path, _) in tree.entries() {
            assert!(
                !path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | "..")),
                "{path}"
            );
            if selection != Selection::Everything {
                assert!(path == "configs" || path.starts_with("configs/"), "{path}");
            }
            let _ = tree.resolve(&path);
        }
    }
}

fn manifest(bytes: &[u8]) {
    let _ = olm_image::fuzz::manifest(bytes);
}

/// What parses prints as it was.
fn reference(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(reference) = Reference::parse(&text) {
        assert_eq!(reference.to_string(), text);
    }
    if let Ok(reference) = Reference::parse_familiar(&text) {
        let whole = reference.to_string();
        assert_eq!(
            Reference::parse(&whole).map(|again| again.to_string()).as_ref(),
            Ok(&whole)
        );
    }
}

fn registries(bytes: &[u8]) {
    let text = text(bytes);
    let Ok(registries) = Registries::parse([("registries.conf", text.as_ref())]) else {
        return;
    };
    for reference in ["a.example/b/c:v1", "registry.example:5000/x:latest"] {
        if let Ok(reference) = Reference::parse(reference)
            && let Ok(places) = registries.endpoints(&reference)
        {
            assert!(!places.is_empty());
        }
    }
}

fn policy(bytes: &[u8]) {
    let key = |_: &str| Ok(bytes.to_vec());
    let _ = Policy::parse(&text(bytes), key);
}

fn pull_secret(bytes: &[u8]) {
    for key in [".dockerconfigjson", ".dockercfg"] {
        if let Ok(credentials) = Credentials::parse_secret([(key, bytes)])
            && let Ok(reference) = Reference::parse("registry.example/a/b:v1")
        {
            let _ = credentials.lookup(&reference);
        }
    }
}

fn versions() -> impl Iterator<Item = olm_version::Version> {
    [
        "0.0.0",
        "1.2.3",
        "1.2.3-alpha.1+build",
        "18446744073709551615.0.0",
    ]
    .into_iter()
    .filter_map(|text| olm_version::Version::parse(text).ok())
}

fn blang_range(bytes: &[u8]) {
    if let Ok(range) = blang::Range::parse(&text(bytes)) {
        for version in versions() {
            let _ = range.contains(&version);
        }
    }
}

fn masterminds_range(bytes: &[u8]) {
    if let Ok(constraint) = masterminds::Constraint::parse(&text(bytes)) {
        for version in versions() {
            let _ = constraint.check(&version);
        }
    }
}

/// A small catalog.
const SERVED: &str = r#"{"schema":"olm.package","name":"greeter","defaultChannel":"stable"}
{"schema":"olm.channel","package":"greeter","name":"stable","entries":[{"name":"greeter.v1.0.0"}]}
{"schema":"olm.bundle","package":"greeter","name":"greeter.v1.0.0","image":"registry.example/x:v1"}
"#;

/// The small catalog as it is served.
struct Served {
    runtime: tokio::runtime::Runtime,
    app: Arc<App>,
    _folder: tempfile::TempDir,
}

fn served() -> anyhow::Result<Served> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(Store::open(folder.path(), StoreLimits::default())?);
    let mut writer = store.begin("cat")?;
    let keep_going = |_: &str, _: &olm_fbc::Meta| std::ops::ControlFlow::Continue(());
    ingest(
        &mut writer,
        ["catalog.json"].into_iter(),
        |_| Ok(SERVED.as_bytes()),
        keep_going,
    )?;
    writer.commit(Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: jiff::Timestamp::UNIX_EPOCH,
        now: jiff::Timestamp::UNIX_EPOCH,
    })?;
    Ok(Served {
        runtime: tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()?,
        app: Arc::new(App::new(store, Endpoints::default())),
        _folder: folder,
    })
}

/// The first line is a path with its query, the others are headers.
fn query(bytes: &[u8]) {
    let text = text(bytes);
    let mut lines = text.lines();
    let mut request = http::Request::builder().uri(lines.next().unwrap_or_default());
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    if let Ok(request) = request.body(String::new()) {
        answer(request, &text);
    }
}

/// A query in GraphQL.
fn graphql(bytes: &[u8]) {
    let text = text(bytes);
    let body = serde_json::json!({ "query": text }).to_string();
    let request = http::Request::post("/catalogs/cat/api/v1/graphql");
    if let Ok(request) = request.body(body) {
        answer(request, &text);
    }
}

/// Nothing that a client sends is a fault of the server.
fn answer(request: http::Request<String>, text: &str) {
    static APP: OnceLock<Option<Served>> = OnceLock::new();
    let Some(served) = APP.get_or_init(|| served().ok()) else {
        return;
    };
    let response = served.runtime.block_on(served.app.respond(request, None));
    assert!(
        response.status() != http::StatusCode::INTERNAL_SERVER_ERROR,
        "{text}"
    );
}

/// Files, each begun by a line `--- FILE path`.
fn bundle(bytes: &[u8]) {
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let text = text(bytes);
    for part in text.split("--- FILE ").skip(1) {
        let (path, content) = part.split_once('\n').unwrap_or((part, ""));
        files.insert(path.trim().to_owned(), content.as_bytes().to_vec());
    }
    if let Ok(bundle) = olm_bundle::parse(&files, &BTreeMap::new()) {
        drop(olm_bundle::validate::validate(&bundle));
    }
}
