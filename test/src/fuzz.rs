//! All parsers of untrusted bytes, as functions of bytes: none may panic, run without end or violate its guarantees.
//!
//! The tests replay the seeds in `test/fuzz/seeds` and mutate them for a while; `make fuzz` runs a coverage-guided
//! engine that finds new ones.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use olm_author::lint::{self, Options, RuleSet, images, load};
use olm_author::template::{Template, convert};
use olm_bundle::BundleFiles;
use olm_constraint::cel::Budget;
use olm_constraint::{Present, Requirement, Subject};
use olm_fbc::graph::{self, PackageGraph};
use olm_fbc::{Catalog, Checker, Ignore, Property, meta};
use olm_image::{
    Contents, Credentials, Digest, Limits, LocalImage, Platform, Policy, Reference, Registries, Selection,
    Storage,
};
use olm_preflight::crd_upgrade;
use olm_serve::{App, Commit, Endpoints, Findings, Origin, Store, StoreLimits, ingest};
use olm_version::{blang, masterminds};
use olm_yaml::ErrorKind;

/// A reader under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name, also that of its folder of seeds.
    pub name: &'static str,
    /// The parser; its result does not matter.
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
    Target {
        name: "validators",
        run: validators,
    },
    Target {
        name: "package-manifest",
        run: package_manifest,
    },
    Target {
        name: "template",
        run: template,
    },
    Target {
        name: "layout",
        run: layout,
    },
    Target {
        name: "archive",
        run: archive,
    },
    Target {
        name: "constraint",
        run: constraint,
    },
    Target {
        name: "definitions",
        run: definitions,
    },
    Target {
        name: "markdown",
        run: markdown,
    },
];

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// YAML converted to JSON is also YAML with the same meaning.
fn yaml(bytes: &[u8]) {
    let Ok(value) = olm_yaml::to_json(bytes) else {
        return;
    };
    let written = value.to_string();
    match olm_yaml::to_json(&written) {
        Ok(again) => assert_eq!(again, value, "{written}"),
        // Text that aliases enlarged is too large when it is written out, and YAML allows no keys longer than 1024
        // letters.
        Err(error) => assert!(
            matches!(
                error.kind,
                ErrorKind::TooLarge(_) | ErrorKind::TooManyNodes(_) | ErrorKind::ExcessiveAliasing
            ) || written.split('"').any(|text| text.len() > 1000),
            "{error}: {written}"
        ),
    }
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
    // Input that does not load is refused.
    let _ = catalog.load(BufReader::new(bytes), &limits);
    for package in &catalog.packages {
        if let Some(graph) = PackageGraph::within(&catalog, &package.name, 10_000) {
            assert!(graph::svg(&graph).ends_with("</svg>\n"));
            drop(graph::mermaid(&[graph]));
        }
    }
    let unchanged = olm_author::diff::diff(&catalog, &catalog);
    assert!(unchanged.is_empty(), "{unchanged:?}");
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
        // A link that leads nowhere is refused.
        let bundle = Contents::from_tree(BTreeMap::new(), &tree).unwrap_or_default();
        let bytes: u64 = bundle.files.values().map(|content| content.len() as u64).sum();
        assert!(bytes <= limits.kept_bytes, "a bundle of {bytes} bytes");
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

/// A parsed reference prints as the original text.
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

/// The served small catalog.
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

/// No request of a client causes a server error.
#[expect(clippy::expect_used, reason = "a target that cannot run has to say so")]
fn answer(request: http::Request<String>, text: &str) {
    static APP: OnceLock<Served> = OnceLock::new();
    let served = APP.get_or_init(|| served().expect("a small catalog can be served"));
    let response = served.runtime.block_on(served.app.respond(request, None));
    assert!(
        response.status() != http::StatusCode::INTERNAL_SERVER_ERROR,
        "{text}"
    );
}

/// Files, each begun by a line `--- FILE path`.
fn files(bytes: &[u8]) -> Vec<(String, String)> {
    let text = text(bytes);
    let parts = text.split("--- FILE ").skip(1);
    let parts = parts.map(|part| part.split_once('\n').unwrap_or((part, "")));
    parts
        .map(|(path, content)| (path.trim().to_owned(), content.to_owned()))
        .collect()
}

fn bundle_files(bytes: &[u8]) -> BundleFiles {
    files(bytes)
        .into_iter()
        .map(|(path, content)| (path, content.into_bytes()))
        .collect()
}

fn bundle(bytes: &[u8]) {
    let files = bundle_files(bytes);
    if let Ok(bundle) = olm_bundle::parse(&files, &BTreeMap::new()) {
        drop(olm_bundle::lint::violations(&bundle));
        let render = |watched: Option<&[String]>| {
            let certificates = Some(olm_bundle::CertificateProvider::CertManager);
            olm_bundle::render::render_for(&bundle, "system", watched, certificates, None, None, None)
        };
        for watched in [
            None,
            Some(["system".to_owned()].as_slice()),
            Some(&["a".to_owned()]),
        ] {
            let Ok(rendered) = render(watched) else { continue };
            assert!(
                render(watched).is_ok_and(|again| again == rendered),
                "rendering twice gives two things"
            );
        }
    }
}

/// A custom resource definition and its replacement, separated by a line `--- NEW`, and after a line `--- OBJECT` an
/// object of its kind.
fn definitions(bytes: &[u8]) {
    let text = text(bytes);
    let (definitions, object) = text.split_once("--- OBJECT\n").unwrap_or((&text, ""));
    let (old, new) = definitions
        .split_once("--- NEW\n")
        .unwrap_or((definitions, definitions));
    let object = olm_yaml::to_json(object).unwrap_or_default();
    if let (Ok(old), Ok(new)) = (olm_yaml::to_json(old), olm_yaml::to_json(new)) {
        let policy = crd_upgrade::Policy::everything();
        for (old, new) in [(&old, &new), (&new, &old)] {
            drop(crd_upgrade::compare(old, new, &policy));
            let mut asked = crd_upgrade::existing::schema_checks(old, new);
            for version in asked.versions() {
                asked.check(&version, &object);
            }
            drop((asked.findings(), asked.unchecked()));
        }
    }
}

/// A description.
fn markdown(bytes: &[u8]) {
    let page = olm_serve::fuzz::markdown(&text(bytes));
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap_or_default();
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let harmful = ["script", "img", "iframe", "style", "object", "svg"].contains(&name);
        let leads = attributes
            .strip_prefix("href=\"")
            .unwrap_or("https://")
            .to_ascii_lowercase();
        let known = ["https://", "http://", "mailto:"];
        let known = known.iter().any(|scheme| leads.trim_start().starts_with(scheme));
        assert!(!harmful && known, "<{tag}> in {page}");
    }
}

/// The findings for authors of a bundle, and its form in a catalog.
fn validators(bytes: &[u8]) {
    let files = bundle_files(bytes);
    drop(lint::layout(&files));
    if let Ok(manifests) = load(&files) {
        let images = images(&manifests).into_iter();
        let options = Options {
            kubernetes_version: "1.30".to_owned(),
            dockerfile: Some("LABEL a=b".to_owned()),
            platforms: images.map(|image| (image, Ok(BTreeSet::new()))).collect(),
            ..Options::default()
        };
        for validator in RuleSet::ALL {
            for problem in validator.run(&manifests, &options) {
                assert!(!problem.to_string().is_empty());
            }
        }
    }
    if let Ok(entry) = olm_author::catalog_entry::entry(&files, &BTreeMap::new(), "registry.example/x:v1") {
        reads_back(&olm_author::catalog_entry::assemble(&[entry]));
    }
}

fn package_manifest(bytes: &[u8]) {
    let image = |entry: &olm_author::catalog_entry::Entry| format!("registry.example/{}", entry.bundle.name);
    if let Ok(converted) = olm_author::package_manifest::convert(&bundle_files(bytes), &image) {
        reads_back(&converted.catalog);
    }
}

/// A catalog that we write is one that we read.
fn reads_back(catalog: &Catalog) {
    let text = olm_author::write::json_lines(catalog);
    let mut again = Catalog::default();
    let loaded = again.load(text.as_bytes(), &meta::limits());
    assert!(loaded.is_ok(), "{loaded:?} of {text}");
    assert_eq!(olm_author::write::json_lines(&again), text);
}

/// Images contain bundles whose names and versions come from the end of the reference, `…/NAME:vVERSION`.
fn template(bytes: &[u8]) {
    let Ok(template) = Template::parse(bytes) else {
        return;
    };
    let bundle = |image: &str| {
        let (rest, version) = image.rsplit_once(":v").unwrap_or((image, "1.0.0"));
        let package = rest.rsplit('/').next().unwrap_or_default();
        let property = serde_json::json!({ "packageName": package, "version": version });
        olm_fbc::Bundle {
            name: format!("{package}.v{version}"),
            package: package.to_owned(),
            image: image.to_owned(),
            properties: vec![Property::new("olm.package", property.to_string())].into(),
            ..olm_fbc::Bundle::default()
        }
    };
    let images = template.images().into_iter();
    let bundles = images
        .map(|image| (image.to_owned(), Ok(vec![bundle(image)])))
        .collect();
    if let Ok(catalog) = template.render(&bundles) {
        let text = olm_author::write::json_lines(&catalog);
        let again = template
            .render(&bundles)
            .map(|catalog| olm_author::write::json_lines(&catalog));
        assert!(
            again.is_ok_and(|again| again == text),
            "rendering twice gives two catalogs"
        );
        for converted in [convert::basic(&catalog), convert::substitutes(&catalog)] {
            let _ = Template::parse(converted.as_bytes());
        }
    }
}

/// Files of a layout. A file below the root is a blob; in later files, `@NAME@` is replaced by its digest and `#NAME#`
/// by its size.
fn layout(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let blobs = folder.path().join("blobs/sha256");
    if std::fs::create_dir_all(&blobs).is_err() {
        return;
    }
    let mut known: Vec<(String, String)> = Vec::new();
    for (name, content) in files(bytes).into_iter().take(16) {
        let content = known
            .iter()
            .fold(content, |content, (mark, value)| content.replace(mark, value));
        if content.len() > 1 << 20 {
            return;
        }
        if name == "index.json" {
            let _ = std::fs::write(folder.path().join("index.json"), content);
            continue;
        }
        let digest = Digest::of(content.as_bytes());
        let _ = std::fs::write(blobs.join(digest.hex()), &content);
        if !name.is_empty() {
            known.push((format!("#{name}#"), content.len().to_string()));
            known.push((format!("@{name}@"), digest.to_string()));
        }
    }
    local_image(folder.path());
}

/// An archive of a layout.
fn archive(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("image.tar");
    if std::fs::write(&path, bytes).is_ok() {
        local_image(&path);
    }
}

fn local_image(path: &Path) {
    let limits = Limits {
        entries: 1000,
        kept_bytes: 1 << 20,
        unpacked_bytes: 8 << 20,
        transfer_bytes: 8 << 20,
        ..Limits::bundle()
    };
    let platform = Platform {
        os: "linux".to_owned(),
        architecture: "amd64".to_owned(),
    };
    if let Ok(image) = LocalImage::open(path, &platform, &limits) {
        let _ = image.unpack(&Selection::Everything, &Storage::Memory, &limits);
    }
}

/// The value of a constraint. A valid one is evaluated over a bundle within a budget.
fn constraint(bytes: &[u8]) {
    let text = text(bytes);
    let properties = vec![
        Property::new("olm.package", r#"{"packageName":"p","version":"1.2.3"}"#),
        Property::new("a", r#"[1,"x",{"b":null}]"#),
    ];
    let version = olm_version::Version::parse("1.2.3").ok();
    let subject = Subject::new("p.v1.2.3", "p", version, properties);
    let served = HashSet::new();
    let present = Present::new([&subject], &served, Budget::default());
    for kind in ["olm.constraint", "olm.package.required", "olm.gvk.required"] {
        let Some(Ok(requirement)) = Requirement::of_property(&Property::new(kind, text.as_ref())) else {
            continue;
        };
        let explained = requirement.explain(&present).map(|explanation| explanation.text);
        match requirement.holds(&present) {
            Ok(holds) => assert_eq!(holds, explained.is_none(), "{explained:?}"),
            Err(_) => assert!(explained.is_some()),
        }
    }
}
