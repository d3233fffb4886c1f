//! Clusters and registries start, are isolated, survive outages of their parts, and leave nothing behind.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what a test cannot read fails it"
)]

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::api::{Api, PostParams};
use olm_test::cluster::{Cluster, Component, Info, Mode, apply_definitions};
use olm_test::registry::{Registry, Server};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAUNCHER: &str = env!("CARGO_BIN_EXE_olm-test");

#[tokio::test]
async fn two_clusters_keep_apart_survive_outages_and_leave_nothing() {
    let (first, second) = tokio::join!(Cluster::start(Mode::Simulated), Cluster::start(Mode::Simulated));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_ne!(first.info().server, second.info().server);
    assert_ne!(first.info().service_range, second.info().service_range);
    assert!(
        first.info().service_range.starts_with("127."),
        "services never leave the machine"
    );

    // Objects of one cluster do not exist in the other; Pods become ready.
    let client = first.client().await.unwrap();
    namespaces(&client)
        .create(&PostParams::default(), &named("here"))
        .await
        .unwrap();
    assert!(
        namespaces(&second.client().await.unwrap())
            .get_opt("here")
            .await
            .unwrap()
            .is_none()
    );
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "nowhere.example/web:1"}]}});
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    eventually("the pod is ready", async || {
        let conditions = pods
            .get("web")
            .await
            .unwrap()
            .status
            .and_then(|s| s.conditions)
            .unwrap_or_default();
        conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
    })
    .await;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let service = services
        .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
        .await
        .unwrap();
    assert!(service.spec.unwrap().cluster_ip.unwrap().starts_with("127."));

    // The shipped definitions pass the API server's own checks, cost limits of rules included.
    apply_definitions(&client, &olm_api::crd::definitions())
        .await
        .unwrap();

    // The audit log lists the requests by user.
    let audit = std::fs::read_to_string(first.audit_log()).unwrap();
    let events = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let created = events.filter(|e| e["verb"] == "create" && e["requestURI"] == "/api/v1/namespaces?");
    assert_eq!(
        created
            .map(|e| e["user"]["username"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>(),
        ["admin"]
    );

    // Outages: the stored objects still exist.
    first.kill(Component::Etcd).unwrap();
    first.kill(Component::KubeApiserver).unwrap();
    assert!(namespaces(&client).get("here").await.is_err());
    first.revive(Component::Etcd).unwrap();
    first.revive(Component::KubeApiserver).unwrap();
    first.ready().await.unwrap();
    namespaces(&client).get("here").await.unwrap();
    let registry = first.registry().unwrap().clone();
    let plain = Access::plain(&registry);
    let digest = push(&plain, "kept", b"content").await;
    first.restart(Component::Registry).unwrap();
    eventually("the registry answers", async || {
        plain.get("/v2/").send().await.is_ok()
    })
    .await;
    assert_eq!(pull(&plain, "kept", &digest).await, b"content");

    // One cluster ends and the other continues; then nothing is left.
    let (left, folder) = (processes(&first), first.info().state.clone());
    assert_eq!(left.len(), 8, "etcd, three of Kubernetes, KWOK, three registries");
    first.stop().unwrap();
    assert!(left.iter().all(|pid| !runs(*pid)));
    assert!(!folder.exists());
    second.ready().await.unwrap();
    let (left, folder) = (processes(&second), second.info().state.clone());
    drop(second);
    assert!(left.iter().all(|pid| !runs(*pid)));
    assert!(!folder.exists());
}

#[tokio::test]
async fn the_registry_takes_and_gives_plainly_with_tls_and_with_a_password() {
    let server = Server::start().await.unwrap();
    let registry = server.registry();
    let (plain, tls) = (Access::plain(registry), Access::tls(registry));
    let (stranger, auth) = (Access::stranger(registry), Access::auth(registry));

    let digest = push(&plain, "one", b"first").await;
    assert_eq!(pull(&tls, "one", &digest).await, b"first");
    let digest = push(&auth, "two", b"second").await;
    assert_eq!(pull(&plain, "two", &digest).await, b"second");

    // No password, a wrong password, an unknown authority.
    let refused = stranger.get("/v2/two/manifests/latest").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(
        refused.headers()["www-authenticate"]
            .to_str()
            .unwrap()
            .starts_with("Basic ")
    );
    let wrong = auth
        .client
        .get(format!("{}/v2/", auth.base))
        .basic_auth("tester", Some("wrong"));
    assert_eq!(wrong.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert!(
        reqwest::get(format!("https://{}/v2/", registry.tls))
            .await
            .is_err()
    );

    // Tests of garbage collection delete manifests.
    let found = manifest(&plain, "one").await;
    let digest = found.headers()["docker-content-digest"]
        .to_str()
        .unwrap()
        .to_owned();
    let deleted = plain.request(reqwest::Method::DELETE, &format!("/v2/one/manifests/{digest}"));
    assert_eq!(deleted.send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(manifest(&plain, "one").await.status(), StatusCode::NOT_FOUND);
}

#[test]
fn a_killed_owner_leaves_no_process_and_no_folder() {
    for signal in ["KILL", "TERM"] {
        let mut owner = launcher(&["up", "--foreground", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut text = String::new();
        let mut output = owner.stdout.take().unwrap();
        // The report is one JSON object, and the owner stays.
        while serde_json::from_str::<Value>(&text).is_err() {
            let mut buffer = [0; 4096];
            let count = output.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "the launcher ended early: {text}");
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
        let info: Info = serde_json::from_str(&text).unwrap();
        let left = recorded(&info.state);
        assert_eq!(left.len(), 8);
        assert!(left.iter().all(|pid| runs(*pid)));
        let killed = Command::new("kill")
            .args(["-s", signal, &owner.id().to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        owner.wait().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while info.state.exists() || left.iter().any(|pid| runs(*pid)) {
            assert!(
                Instant::now() < end,
                "{signal}: processes or {} are left",
                info.state.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_cluster_in_the_background_is_found_by_its_folder_until_it_is_taken_down() {
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("c");
    let at = ["--state", state.to_str().unwrap()];
    let run = |arguments: &[&str]| {
        let output = launcher(arguments).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert!(!run(&["status", at[0], at[1]]).0, "nothing is up yet");
    let (up, said) = run(&["up", at[0], at[1]]);
    assert!(up, "{said}");
    assert!(
        said.contains(&format!(
            "export KUBECONFIG={}",
            state.join("kubeconfig").display()
        )),
        "{said}"
    );

    let (again, said) = run(&["up", at[0], at[1]]);
    assert!(!again && said.contains("a cluster is up in"), "{said}");
    let (_, said) = run(&[
        "exec",
        at[0],
        at[1],
        "--",
        "kubectl",
        "get",
        "nodes",
        "--no-headers",
    ]);
    assert!(said.contains("olm-test-node") && said.contains("Ready"), "{said}");

    // An outage from outside: the component stays dead until the owner starts it again.
    let cluster = Cluster::attach(&state).unwrap();
    cluster.kill(Component::KubeScheduler).unwrap();
    assert!(!run(&["status", at[0], at[1]]).0);
    cluster.revive(Component::KubeScheduler).unwrap();
    let (all, said) = run(&["status", at[0], at[1]]);
    assert!(all, "{said}");

    let left = recorded(&state);
    assert!(run(&["down", at[0], at[1]]).0);
    assert!(left.iter().all(|pid| !runs(*pid)));
    assert!(!state.exists());
    assert!(run(&["down", at[0], at[1]]).0, "twice is no error");
}

fn launcher(arguments: &[&str]) -> Command {
    let mut command = Command::new(LAUNCHER);
    command.arg("cluster").args(arguments);
    command
}

fn namespaces(client: &kube::Client) -> Api<Namespace> {
    Api::all(client.clone())
}

fn named(name: &str) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn processes(cluster: &Cluster) -> Vec<i32> {
    let daemons = cluster.daemons();
    assert!(
        daemons.iter().all(|(_, pid, alive)| *alive && runs(*pid)),
        "{daemons:?}"
    );
    daemons.into_iter().map(|(_, pid, _)| pid).collect()
}

/// The process ids in a cluster's folder.
fn recorded(state: &Path) -> Vec<i32> {
    let files: BTreeSet<PathBuf> = std::fs::read_dir(state.join("pids"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let first = |text: String| text.split(' ').next().unwrap().parse().unwrap();
    files
        .into_iter()
        .map(|file| first(std::fs::read_to_string(file).unwrap()))
        .collect()
}

fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !check().await {
        assert!(Instant::now() < end, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One of the registry's servers, accessed by a client.
struct Access {
    base: String,
    client: reqwest::Client,
    password: Option<(String, String)>,
}

impl Access {
    fn plain(registry: &Registry) -> Self {
        Self {
            base: format!("http://{}", registry.address),
            client: trusting(&registry.ca),
            password: None,
        }
    }

    fn tls(registry: &Registry) -> Self {
        Self {
            base: format!("https://{}", registry.tls),
            client: trusting(&registry.ca),
            password: None,
        }
    }

    fn stranger(registry: &Registry) -> Self {
        Self {
            base: format!("https://{}", registry.auth),
            client: trusting(&registry.ca),
            password: None,
        }
    }

    fn auth(registry: &Registry) -> Self {
        let password = Some((registry.username.clone(), registry.password.clone()));
        Self {
            password,
            ..Self::stranger(registry)
        }
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let path = if path.starts_with("http") {
            path.to_owned()
        } else {
            format!("{}{path}", self.base)
        };
        let request = self.client.request(method, path);
        match &self.password {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.request(reqwest::Method::GET, path)
    }
}

fn trusting(authority: &Path) -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let authority = reqwest::Certificate::from_pem(&std::fs::read(authority).unwrap()).unwrap();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .build()
        .unwrap()
}

/// Pushes an image of one layer as `NAME:latest`; the layer's digest.
async fn push(access: &Access, name: &str, layer: &[u8]) -> String {
    let config = b"{}";
    let mut descriptors = Vec::new();
    for (kind, blob) in [("config.v1+json", config.as_slice()), ("layer.v1.tar", layer)] {
        let digest = digest(blob);
        let begun = access
            .request(reqwest::Method::POST, &format!("/v2/{name}/blobs/uploads/"))
            .send()
            .await
            .unwrap();
        assert_eq!(begun.status(), StatusCode::ACCEPTED);
        let place = begun.headers()["location"].to_str().unwrap();
        let put = access.request(reqwest::Method::PUT, &format!("{place}&digest={digest}"));
        assert_eq!(
            put.body(blob.to_vec()).send().await.unwrap().status(),
            StatusCode::CREATED
        );
        let media = format!("application/vnd.oci.image.{kind}");
        descriptors.push(json!({"mediaType": media, "digest": digest, "size": blob.len()}));
    }
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptors[0], "layers": [descriptors[1]]});
    let put = access.request(reqwest::Method::PUT, &format!("/v2/{name}/manifests/latest"));
    let put = put
        .header("content-type", MANIFEST)
        .body(serde_json::to_vec(&manifest).unwrap());
    assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    digest(layer)
}

/// Asks for the manifest of `NAME:latest`.
async fn manifest(access: &Access, name: &str) -> reqwest::Response {
    let request = access.get(&format!("/v2/{name}/manifests/latest"));
    request.header("accept", MANIFEST).send().await.unwrap()
}

/// Pulls `NAME:latest` and returns the content of its layer.
async fn pull(access: &Access, name: &str, layer: &str) -> Vec<u8> {
    let manifest = manifest(access, name).await;
    let manifest: Value = serde_json::from_slice(&manifest.bytes().await.unwrap()).unwrap();
    assert_eq!(manifest["layers"][0]["digest"], layer);
    access
        .get(&format!("/v2/{name}/blobs/{layer}"))
        .send()
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap()
        .to_vec()
}

fn digest(bytes: &[u8]) -> String {
    let hex: Vec<String> = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{}", hex.concat())
}
