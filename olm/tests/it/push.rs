//! `olm catalog push` and `olm bundle push` to a registry that only remembers.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::{CATALOG, Files, bundle, olm};
use serde_json::{Value, json};

/// The content that was pushed to the registry, by path.
type Contents = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A registry that accepts any content over plain HTTP.
struct Registry {
    address: SocketAddr,
    contents: Contents,
}

impl Registry {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it has an address");
        let contents = Contents::default();
        let shared = Arc::clone(&contents);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let contents = Arc::clone(&shared);
                std::thread::spawn(move || drop(answer(stream, &contents)));
            }
        });
        Self { address, contents }
    }

    /// The manifest under this tag, and the configuration of the image.
    fn image(&self, repository: &str, tag: &str) -> (Value, Value) {
        let contents = self.contents.lock().expect("no thread failed");
        let read = |path: &str| -> Value {
            let bytes = contents
                .get(path)
                .unwrap_or_else(|| panic!("{path} is not among {:?}", contents.keys()));
            serde_json::from_slice(bytes).expect("it is JSON")
        };
        let manifest = read(&format!("/v2/{repository}/manifests/{tag}"));
        let config = manifest["config"]["digest"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (manifest, read(&config))
    }
}

fn answer(stream: TcpStream, contents: &Contents) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let first = reader.fill_buf()?;
    if first.first() == Some(&0x16) {
        // A client that wants TLS gets the answer of a server without it.
        let length = first.len();
        reader.consume(length);
        return write!(reader.get_mut(), "HTTP/1.0 400 Bad Request\r\n\r\n");
    }
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_owned());
        }
        let length = head.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let mut words = head.first().map(String::as_str).unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        let (status, location) = match method {
            "GET" if path == "/v2/" => ("200 OK", String::new()),
            "POST" => ("202 Accepted", format!("Location: {path}upload\r\n")),
            "PUT" => {
                let digest = target
                    .split_once("digest=")
                    .map(|(_, digest)| digest.replace("%3A", ":"));
                let key = digest.map_or(path.to_owned(), |digest| {
                    digest.split('&').next().unwrap_or_default().to_owned()
                });
                contents.lock().expect("no thread failed").insert(key, body);
                ("201 Created", String::new())
            }
            _ => ("404 Not Found", String::new()),
        };
        write!(
            reader.get_mut(),
            "HTTP/1.1 {status}\r\n{location}Content-Length: 0\r\n\r\n"
        )?;
    }
}

#[test]
fn a_catalog_becomes_an_image_that_says_where_it_is() {
    let registry = Registry::start();
    let files = Files::new(&[("foo/catalog.json", CATALOG)]);
    let reference = format!("{}/catalogs/mine:v1", registry.address);
    let run = olm(
        &files.path(""),
        &["catalog", "push", ".", &reference, "--plain-http"],
    );
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let (manifest, config) = registry.image("catalogs/mine", "v1");
    assert_eq!(
        config["config"]["Labels"]["operators.operatorframework.io.index.configs.v1"],
        "/configs"
    );
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    assert!(
        run.stdout
            .starts_with(&format!("{}/catalogs/mine@sha256:", registry.address)),
        "{run:?}"
    );

    let again = olm(
        &files.path(""),
        &["catalog", "push", ".", &reference, "--plain-http"],
    );
    assert_eq!(again.stdout, run.stdout, "the same catalog is another image");
}

#[test]
fn a_catalog_that_cannot_be_loaded_is_not_pushed() {
    let registry = Registry::start();
    let files = Files::new(&[("README.md", "plain words\n")]);
    let reference = format!("{}/catalogs/mine", registry.address);
    let run = olm(
        &files.path(""),
        &["catalog", "push", ".", &reference, "--plain-http"],
    );
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            1,
            "error: the catalog cannot be loaded: README.md:1: expected an object, got a string\n\
             hint: `olm catalog validate .` shows every error; list files that do not belong to the catalog in \
             .indexignore\n"
        )
    );
    assert!(registry.contents.lock().expect("no thread failed").is_empty());
}

#[test]
fn a_bundle_becomes_an_image_that_repeats_its_annotations() {
    let registry = Registry::start();
    let reference = format!("{}/bundles/greeter:v1.0.0", registry.address);
    let run = olm(
        &bundle().path(""),
        &["bundle", "push", ".", &reference, "--plain-http"],
    );
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let (_, config) = registry.image("bundles/greeter", "v1.0.0");
    let labels = &config["config"]["Labels"];
    assert_eq!(
        labels["operators.operatorframework.io.bundle.mediatype.v1"],
        "registry+v1"
    );
    assert_eq!(
        labels["operators.operatorframework.io.bundle.package.v1"],
        "greeter"
    );
}

#[test]
fn a_reference_without_a_registry_is_refused() {
    let blocked = "[[registry]]\nprefix = \"docker.io\"\nblocked = true\n";
    let files = bundle();
    std::fs::write(files.path("registries.conf"), blocked).expect("the file can be written");
    for (reference, hint) in [
        (
            "greeter:v1",
            "hint: greeter:v1 names no registry, so that it was taken for an image of docker.io: write \
             REGISTRY/greeter:v1\n",
        ),
        ("docker.io/team/greeter:v1", "blocks `docker.io`\n"),
    ] {
        let run = olm(
            &files.path(""),
            &[
                "bundle",
                "push",
                ".",
                reference,
                "--registries-conf",
                "registries.conf",
            ],
        );
        assert!(run.status == 1 && run.stderr.ends_with(hint), "{run:?}");
    }
}

#[test]
fn a_link_that_no_image_can_follow_is_not_pushed() {
    let registry = Registry::start();
    let reference = format!("{}/greeter:v1", registry.address);
    let files = bundle();
    std::fs::write(
        files.path("outside.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n",
    )
    .expect("the file can be written");
    std::os::unix::fs::symlink("../outside.yaml", files.path("manifests/more.yaml"))
        .expect("a link can be made");
    let run = olm(
        &files.path(""),
        &["bundle", "push", ".", &reference, "--plain-http"],
    );
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (
            1,
            "error: ./manifests/more.yaml is a link to \"../outside.yaml\", which whoever reads the image cannot follow: \
             put the file itself in its place\n"
        )
    );
    assert!(registry.contents.lock().expect("no thread failed").is_empty());
}

#[test]
fn a_catalog_is_no_bundle_and_a_bundle_no_catalog() {
    let registry = Registry::start();
    let reference = format!("{}/mine:v1", registry.address);
    let files = Files::new(&[("catalog.json", CATALOG)]);
    for (files, verb, hint) in [
        (files, "bundle", "a catalog is pushed by `olm catalog push`"),
        (bundle(), "catalog", "this looks like a bundle: `olm bundle push`"),
    ] {
        let run = olm(&files.path(""), &[verb, "push", ".", &reference, "--plain-http"]);
        assert!(
            run.status == 1 && run.stderr.ends_with(&format!("\nhint: {hint}\n")),
            "{run:?}"
        );
    }
}

#[test]
fn a_chart_that_helm_pushed_is_refused_by_name() {
    let config = "{\"name\":\"chart\",\"version\":\"1.0.0\"}";
    let descriptor = |text: &str, media_type: &str| {
        let digest = olm_image::Digest::of(text.as_bytes());
        json!({"mediaType": media_type, "digest": digest.to_string(), "size": text.len()})
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor(config, "application/vnd.cncf.helm.config.v1+json"),
        "layers": [],
    })
    .to_string();
    let index = json!({
        "schemaVersion": 2,
        "manifests": [descriptor(&manifest, "application/vnd.oci.image.manifest.v1+json")],
    })
    .to_string();
    let blob = |text: &str| format!("blobs/sha256/{}", olm_image::Digest::of(text.as_bytes()).hex());
    let files = Files::new(&[
        ("chart/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}"),
        ("chart/index.json", &index),
        (&format!("chart/{}", blob(&manifest)), &manifest),
        (&format!("chart/{}", blob(config)), config),
    ]);
    for arguments in [
        &["bundle", "validate", "chart"][..],
        &["bundle", "render", "chart", "-n", "x"],
        &["catalog", "validate", "chart"],
        &["catalog", "render", "chart"],
    ] {
        let run = olm(&files.path(""), arguments);
        assert!(
            run.status == 1 && run.stderr.contains("Helm charts are not supported"),
            "{arguments:?}: {run:?}"
        );
    }
}

#[test]
fn a_registry_without_encryption_is_distinguished_from_an_absent_one() {
    let registry = Registry::start();
    let files = Files::new(&[("catalog.json", CATALOG)]);
    let reference = format!("{}/mine:v1", registry.address);
    for arguments in [
        &["catalog", "push", ".", &reference][..],
        &["catalog", "render", &reference],
    ] {
        let run = olm(&files.path(""), arguments);
        assert!(
            run.status == 1
                && run
                    .stderr
                    .contains("\nhint: the server speaks plain HTTP: set --plain-http"),
            "{run:?}"
        );
    }
    let run = olm(
        &files.path(""),
        &["catalog", "render", &reference, "--plain-http"],
    );
    assert!(
        run.status == 1 && run.stderr.contains("\nhint: check the repository and the tag"),
        "{run:?}"
    );
}

#[test]
fn a_registry_that_is_not_there_is_named() {
    let files = Files::new(&[("catalog.json", CATALOG)]);
    let run = olm(
        &files.path(""),
        &["catalog", "push", ".", "127.0.0.1:1/mine:v1", "--plain-http"],
    );
    assert!(
        run.status == 1
            && run.stderr.contains("127.0.0.1:1/mine:v1")
            && run
                .stderr
                .ends_with("hint: check host and port, and that the server runs: nothing listens there\n"),
        "{run:?}"
    );
    let run = olm(&files.path(""), &["catalog", "push", ".", "Not A Reference"]);
    assert!(
        run.status == 1
            && run
                .stderr
                .starts_with("error: \"Not A Reference\" is not an image reference"),
        "{run:?}"
    );
}
