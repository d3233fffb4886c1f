//! catalogd against a real API server and a real registry: unpack, serve, poll, survive.

mod pulls;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use olm_api::serving::IMAGE_HEADER;
use olm_api::{ClusterCatalog, Condition, conditions, names};
use olm_platform::shutdown::Shutdown;
use olm_test::cluster::Component;
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Lab, eventually, free_address};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(90);

fn catalogs(lab: &Lab) -> Api<ClusterCatalog> {
    Api::all(lab.client.clone())
}

async fn create(lab: &Lab, name: &str, image: Value) -> Result<()> {
    let object = json!({
        "apiVersion": names::API_VERSION,
        "kind": names::CLUSTER_CATALOG,
        "metadata": { "name": name },
        "spec": { "source": { "type": "Image", "image": image } },
    });
    let object = serde_json::from_value(object)?;
    catalogs(lab).create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn change(lab: &Lab, name: &str, patch: Value) -> Result<()> {
    catalogs(lab)
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Waits until a condition has this status and reason, and returns the object.
async fn await_condition(lab: &Lab, name: &str, wanted: &str) -> Result<ClusterCatalog> {
    let text = |c: &Condition| format!("{}={}/{}", c.type_, c.status, c.reason);
    eventually(&format!("{name}: {wanted}"), SOON, async || {
        let catalog = catalogs(lab).get(name).await?;
        let current = catalog.conditions().iter();
        let current = current.filter(|c| c.observed_generation == Some(catalog.generation()));
        if current.clone().any(|c| text(c) == wanted) {
            return Ok(Some(catalog));
        }
        bail!(
            "{:?}",
            catalog
                .conditions()
                .iter()
                .map(|c| format!("{} {}", text(c), c.message))
                .collect::<Vec<_>>()
        )
    })
    .await
}

fn message<'a>(catalog: &'a ClusterCatalog, condition_type: &str) -> &'a str {
    conditions::find(catalog.conditions(), condition_type).map_or("", |c| &c.message)
}

/// catalogd within this process.
struct Replica {
    shutdown: Shutdown,
    task: JoinHandle<Result<()>>,
    content: String,
    health: String,
}

impl Replica {
    /// Starts catalogd on that cache directory, as the leader unless the arguments say otherwise.
    fn start(lab: &Lab, cache: &str, more: &[&str]) -> Result<Self> {
        let (content, health) = (free_address()?, free_address()?);
        let mut arguments = vec![
            "catalogd".to_owned(),
            format!("--kubeconfig={}", lab.cluster.kubeconfig().display()),
            format!("--cache-dir={}", lab.folder().join(cache).display()),
            format!("--catalogs-server-addr={content}"),
            format!("--external-address={content}"),
            format!("--health-probe-bind-address={health}"),
            format!("--pull-cas-dir={}", lab.authorities().display()),
            format!("--system-namespace={}", names::SYSTEM_NAMESPACE),
            "--metrics-bind-address=0".to_owned(),
        ];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let shutdown = Shutdown::default();
        let args = catalogd::args::Args::try_parse_from(arguments)?;
        let task = tokio::spawn(catalogd::run::run_until(args, shutdown.clone()));
        Ok(Self {
            shutdown,
            task,
            content,
            health,
        })
    }

    async fn ready(&self) -> Result<()> {
        let url = format!("http://{}/readyz", self.health);
        eventually("catalogd is ready", SOON, async || {
            let answer = reqwest::get(&url).await?;
            if answer.status().is_success() {
                return Ok(Some(()));
            }
            bail!("{}", answer.text().await?)
        })
        .await
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.stop();
        tokio::time::timeout(SOON, self.task)
            .await
            .context("catalogd does not end")??
    }

    /// Asks this replica for a path below a catalog's address.
    async fn get(&self, lab: &Lab, path: &str) -> Result<reqwest::Response> {
        Ok(self.request(lab, path).await?.send().await?)
    }

    /// A request to this replica with its published authority.
    async fn request(&self, lab: &Lab, path: &str) -> Result<reqwest::RequestBuilder> {
        let authority = lab.catalogd_authority().await?;
        let client = reqwest::Client::builder()
            .tls_certs_only([authority])
            .timeout(SOON)
            .build()?;
        Ok(client.get(format!("https://{}/catalogs/{path}", self.content)))
    }

    async fn names(&self, lab: &Lab, catalog: &str) -> Result<Vec<String>> {
        let answer = self
            .get(lab, &format!("{catalog}/api/v1/metas?schema=olm.bundle"))
            .await?
            .error_for_status()?;
        let name = |line: &str| {
            Some(
                serde_json::from_str::<Value>(line).ok()?["name"]
                    .as_str()?
                    .to_owned(),
            )
        };
        Ok(answer.text().await?.lines().filter_map(name).collect())
    }

    async fn status(&self, lab: &Lab, catalog: &str) -> Result<u16> {
        Ok(self
            .get(lab, &format!("{catalog}/api/v1/all"))
            .await?
            .status()
            .as_u16())
    }
}

fn greeter(versions: &[&str]) -> String {
    samples::catalog(versions, |version| {
        format!("registry.example/greeter-bundle:v{version}")
    })
}

/// A cluster, and a catalogd that leads. Every test has catalogs of its own.
static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// The Secret with the password of the registry.
const PULL_SECRET: &str = "pull";

struct Stage {
    lab: Lab,
    replica: Replica,
    /// A port for a registry without TLS.
    plain: TcpListener,
}

impl Stage {
    async fn start() -> Result<Self> {
        let lab = Lab::with_definitions().await?;
        let plain = TcpListener::bind("127.0.0.1:0")?;
        let flags = [
            "--leader-elect".to_owned(),
            format!("--global-pull-secret={}/{PULL_SECRET}", names::SYSTEM_NAMESPACE),
            format!("--plain-http-registries={}", plain.local_addr()?),
        ];
        let replica = Replica::start(&lab, "one", &flags.each_ref().map(String::as_str))?;
        replica.ready().await?;
        Ok(Self { lab, replica, plain })
    }
}

/// The number of versions of a catalog's content on the disk of the leading replica.
fn stored(lab: &Lab, catalog: &str) -> Result<usize> {
    let folder = lab.folder().join("one/catalogs").join(catalog);
    match std::fs::read_dir(folder) {
        Ok(entries) => Ok(entries.count()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Creates a Secret with the password of the registry.
fn pull_secret(lab: &Lab, name: &str) -> Result<()> {
    let registry = lab.cluster.registry().context("no registry")?;
    let login = json!({ "username": registry.username, "password": registry.password });
    let login = json!({ "auths": { &registry.auth: login } }).to_string();
    lab.apply(&[json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": names::SYSTEM_NAMESPACE },
        "stringData": { ".dockerconfigjson": login },
    })])
}

#[test]
fn a_catalog_is_unpacked_served_and_removed() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        let reference = lab.push_catalog("cat:latest", &greeter(&["1.0.0"])).await?;
        create(lab, "cat", json!({ "ref": reference })).await?;

        let catalog = await_condition(lab, "cat", "Serving=True/Available").await?;
        let status = catalog.status.clone().context("no status")?;
        let resolved = status
            .resolved_source
            .and_then(|source| source.image)
            .context("no resolved source")?
            .reference;
        ensure!(resolved.contains("/cat@sha256:"), "{resolved}");
        ensure!(
            status.urls.context("no address")?.base == format!("https://{}/catalogs/cat", replica.content)
        );
        ensure!(status.last_unpacked.is_some());
        ensure!(catalog.label(names::label::METADATA_NAME) == Some("cat"));
        await_condition(lab, "cat", "Progressing=True/Succeeded").await?;
        ensure!(replica.names(lab, "cat").await? == ["greeter.v1.0.0"]);

        // The object has events.
        let events: Api<Event> = Api::namespaced(lab.client.clone(), "default");
        eventually("an event names the content", SOON, async || {
            let found = events.list(&kube::api::ListParams::default()).await?;
            let is_reported = found.iter().any(|event| {
                event.reason.as_deref() == Some("Available")
                    && event.note.as_deref() == Some(&format!("Serving {resolved}"))
                    && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some("cat")
            });
            Ok(is_reported.then_some(()))
        })
        .await?;

        // A digest is as good as a tag.
        create(lab, "pinned", json!({ "ref": resolved })).await?;
        await_condition(lab, "pinned", "Serving=True/Available").await?;
        ensure!(replica.names(lab, "pinned").await? == ["greeter.v1.0.0"]);

        // The label is restored, and an unchanged object is not written.
        change(
            lab,
            "cat",
            json!({ "metadata": { "labels": { names::label::METADATA_NAME: "other" } } }),
        )
        .await?;
        eventually("the label is restored", SOON, async || {
            let catalog = catalogs(lab).get("cat").await?;
            Ok((catalog.label(names::label::METADATA_NAME) == Some("cat")).then_some(()))
        })
        .await?;
        let version = catalogs(lab).get("cat").await?.resource_version();
        tokio::time::sleep(Duration::from_secs(1)).await;
        ensure!(
            catalogs(lab).get("cat").await?.resource_version() == version,
            "something was written for nothing"
        );

        for name in ["cat", "pinned"] {
            catalogs(lab).delete(name, &DeleteParams::default()).await?;
        }
        eventually("both are gone", SOON, async || {
            let cat = catalogs(lab).get_opt("cat").await?;
            let pinned = catalogs(lab).get_opt("pinned").await?;
            let stored = stored(lab, "cat")? + stored(lab, "pinned")?;
            Ok((cat.is_none() && pinned.is_none() && stored == 0).then_some(()))
        })
        .await?;
        ensure!(replica.status(lab, "cat").await? == 404);
        Ok(())
    })
}

#[test]
fn a_polled_tag_is_followed() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        let polled = lab.push_catalog("polled:latest", &greeter(&["1.0.0"])).await?;
        create(lab, "polled", json!({ "ref": polled, "pollIntervalMinutes": 1 })).await?;
        await_condition(lab, "polled", "Serving=True/Available").await?;
        lab.push_catalog("polled:latest", &greeter(&["1.0.0", "1.0.1"]))
            .await?;
        eventually(
            "the new content of the tag is served",
            Duration::from_secs(80),
            async || Ok((replica.names(lab, "polled").await?.len() == 2).then_some(())),
        )
        .await
    })
}

/// The served content stays if new content cannot be loaded. Findings of the whole-catalog check are reported, and the
/// content is served.
#[test]
fn a_catalog_that_cannot_be_loaded_is_not_served() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        let reference = lab
            .push_catalog("unloadable:latest", &greeter(&["1.0.0"]))
            .await?;
        create(lab, "unloadable", json!({ "ref": reference })).await?;
        await_condition(lab, "unloadable", "Serving=True/Available").await?;
        // Content that cannot be loaded is not served; the old content still is.
        lab.push_catalog("unloadable:latest", "{\"schema\": \"olm.package\", \"name\": 1}")
            .await?;
        change(lab, "unloadable", json!({ "spec": { "priority": 1 } })).await?;
        let catalog = await_condition(lab, "unloadable", "Progressing=True/Retrying").await?;
        let why = message(&catalog, conditions::PROGRESSING);
        ensure!(
            why.starts_with("error storing fbc: error walking FBC root: `catalog.json`"),
            "{why}"
        );
        ensure!(conditions::is_true(catalog.conditions(), conditions::SERVING));
        ensure!(replica.names(lab, "unloadable").await? == ["greeter.v1.0.0"]);

        // Content at a digest never changes, so it stays broken.
        let files = BTreeMap::from([("configs/catalog.json".to_owned(), b"{\"schema\": 1}".to_vec())]);
        let label = ("operators.operatorframework.io.index.configs.v1", "/configs");
        let broken = lab.push("broken:v1", &files, &[label]).await?;
        create(lab, "broken", json!({ "ref": broken.to_string() })).await?;
        let catalog = await_condition(lab, "broken", "Progressing=False/Blocked").await?;
        let why = message(&catalog, conditions::PROGRESSING);
        ensure!(
            why.starts_with("error storing fbc: error walking FBC root: "),
            "{why}"
        );
        catalogs(lab).delete("broken", &DeleteParams::default()).await?;

        // Content with findings of the whole-catalog check is served, and the findings are reported.
        let orphan =
            json!({ "schema": "olm.bundle", "package": "none", "name": "orphan.v1.0.0" }).to_string();
        lab.push_catalog("unloadable:latest", &(greeter(&["1.0.0", "1.0.1"]) + &orphan))
            .await?;
        let catalog = await_condition(lab, "unloadable", "ContentValid=False/Findings").await?;
        ensure!(message(&catalog, conditions::CONTENT_VALID).contains("orphan.v1.0.0"));
        ensure!(
            replica.names(lab, "unloadable").await? == ["greeter.v1.0.0", "greeter.v1.0.1", "orphan.v1.0.0"]
        );
        Ok(())
    })
}

/// The annotation names the image by the cluster's version. If it cannot be used, the spec is used, and the condition
/// reports it.
#[test]
fn the_image_follows_the_version_of_the_cluster() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        let version = lab.client.apiserver_version().await?;
        let minor = version.minor.trim_end_matches('+');
        lab.push_catalog(
            &format!("versioned:v{}.{minor}", version.major),
            &greeter(&["1.0.2"]),
        )
        .await?;
        let other = lab.push_catalog("other:latest", &greeter(&["1.0.3"])).await?;
        create(lab, "templated", json!({ "ref": other })).await?;
        let annotate = async |template: &str| {
            let annotations = json!({ names::user::CATALOG_IMAGE_TEMPLATE: template });
            change(
                lab,
                "templated",
                json!({ "metadata": { "annotations": annotations } }),
            )
            .await
        };
        let template = format!(
            "{}/versioned:v{{kube_major_version}}.{{kube_minor_version}}",
            lab.registry()?
        );
        annotate(&template).await?;
        eventually("the image of this version is served", SOON, async || {
            Ok((replica.names(lab, "templated").await? == ["greeter.v1.0.2"]).then_some(()))
        })
        .await?;
        annotate(&format!("{}/versioned:v{{openshift_version}}", lab.registry()?)).await?;
        eventually("the image of the spec is served", SOON, async || {
            let catalog = catalogs(lab).get("templated").await?;
            let said = message(&catalog, conditions::READY).ends_with("unknown variable {openshift_version}");
            Ok((said && replica.names(lab, "templated").await? == ["greeter.v1.0.3"]).then_some(()))
        })
        .await
    })
}

/// `availabilityMode` removes and restores content.
#[test]
fn an_unavailable_catalog_is_not_served() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        let reference = lab
            .push_catalog("unavailable:latest", &greeter(&["1.0.0"]))
            .await?;
        create(lab, "unavailable", json!({ "ref": reference })).await?;
        await_condition(lab, "unavailable", "Serving=True/Available").await?;
        change(
            lab,
            "unavailable",
            json!({ "spec": { "availabilityMode": "Unavailable" } }),
        )
        .await?;
        let catalog = await_condition(lab, "unavailable", "Serving=False/UserSpecifiedUnavailable").await?;
        ensure!(
            catalog
                .status
                .is_some_and(|status| status.urls.is_none() && status.resolved_source.is_none())
        );
        eventually("the finalizer is gone", SOON, async || {
            Ok(catalogs(lab)
                .get("unavailable")
                .await?
                .finalizers()
                .is_empty()
                .then_some(()))
        })
        .await?;
        ensure!(replica.status(lab, "unavailable").await? == 404);
        change(
            lab,
            "unavailable",
            json!({ "spec": { "availabilityMode": "Available" } }),
        )
        .await?;
        await_condition(lab, "unavailable", "Serving=True/Available").await?;
        Ok(())
    })
}

#[test]
fn no_catalog_waits_for_another() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        // A registry that accepts connections and never answers.
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let silent = format!("{}/cat:latest", listener.local_addr()?);
        for number in 0..5 {
            create(lab, &format!("silent-{number}"), json!({ "ref": silent })).await?;
        }
        let reference = lab
            .push_catalog("waits-for-nobody:latest", &greeter(&["1.0.0"]))
            .await?;
        create(lab, "waits-for-nobody", json!({ "ref": reference })).await?;
        await_condition(lab, "waits-for-nobody", "Serving=True/Available").await?;
        ensure!(replica.names(lab, "waits-for-nobody").await? == ["greeter.v1.0.0"]);

        // A catalog whose registry hangs can be deleted at once.
        let begin = Instant::now();
        catalogs(lab).delete("silent-0", &DeleteParams::default()).await?;
        eventually("it is gone", SOON, async || {
            Ok(catalogs(lab).get_opt("silent-0").await?.is_none().then_some(()))
        })
        .await?;
        ensure!(
            begin.elapsed() < Duration::from_secs(3),
            "it took {:?}",
            begin.elapsed()
        );
        for number in 1..5 {
            let name = format!("silent-{number}");
            catalogs(lab).delete(&name, &DeleteParams::default()).await?;
        }
        Ok(())
    })
}

#[test]
fn a_private_registry_is_read_with_the_global_pull_secret() -> Result<()> {
    CLUSTER.with(async |Stage { lab, replica, .. }| {
        let registry = lab.cluster.registry().context("no registry")?;
        lab.push_catalog("private:latest", &greeter(&["1.0.0"])).await?;
        let reference = format!("{}/private:latest", registry.auth);
        create(lab, "private", json!({ "ref": reference })).await?;
        await_condition(lab, "private", "Progressing=True/Retrying").await?;
        pull_secret(lab, PULL_SECRET)?;
        await_condition(lab, "private", "Serving=True/Available").await?;
        ensure!(replica.names(lab, "private").await? == ["greeter.v1.0.0"]);
        Ok(())
    })
}

#[test]
fn a_short_reference_is_blocked() -> Result<()> {
    CLUSTER.with(async |Stage { lab, .. }| {
        // A fault that only another spec fixes causes no retry.
        create(lab, "short", json!({ "ref": "docker.io/busybox:latest" })).await?;
        let catalog = await_condition(lab, "short", "Progressing=False/Blocked").await?;
        let why = message(&catalog, conditions::PROGRESSING);
        ensure!(
            why.starts_with(
                "source catalog content: error parsing image reference \"docker.io/busybox:latest\""
            ),
            "{why}"
        );

        Ok(())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_serves_and_a_restart_needs_no_registry() -> Result<()> {
    let lab = Lab::with_definitions().await?;
    let elected = &["--leader-elect"];
    let first = Replica::start(&lab, "one", elected)?;
    first.ready().await?;
    let reference = lab
        .push_catalog("cat:latest", &greeter(&["1.0.0", "1.0.1"]))
        .await?;
    create(&lab, "cat", json!({ "ref": reference })).await?;
    await_condition(&lab, "cat", "Serving=True/Available").await?;

    // A ready replica serves the content that the leader reports, with the same validators.
    let second = Replica::start(&lab, "two", elected)?;
    second.ready().await?;
    let mut validators = Vec::new();
    for replica in [&first, &second] {
        let answer = replica.get(&lab, "cat/api/v1/all").await?.error_for_status()?;
        let header = |name: &str| answer.headers().get(name).cloned();
        validators.push([IMAGE_HEADER, "etag", "last-modified"].map(header));
    }
    ensure!(validators[0] == validators[1], "{validators:?}");
    let catalog = catalogs(&lab).get("cat").await?;
    let image = catalog
        .status
        .as_ref()
        .and_then(|status| status.resolved_source.as_ref()?.image.as_ref());
    let digest = image
        .and_then(|image| image.reference.split_once('@'))
        .map(|(_, digest)| digest);
    let said = validators[0][0].as_ref().and_then(|said| said.to_str().ok());
    ensure!(digest.is_some() && said == digest, "{said:?} {digest:?}");

    // When the leader stops, the other replica takes over and continues with its content.
    first.stop().await?;
    lab.push_catalog("cat:latest", &greeter(&["1.0.0"])).await?;
    change(&lab, "cat", json!({ "spec": { "priority": 7 } })).await?;
    await_condition(&lab, "cat", "Progressing=True/Succeeded").await?;
    ensure!(second.names(&lab, "cat").await? == ["greeter.v1.0.0"]);

    // A restarted replica serves the content on the disk at once, with or without the registry.
    second.stop().await?;
    lab.cluster.kill(Component::RegistryTls)?;
    let begin = Instant::now();
    let third = Replica::start(&lab, "two", &[])?;
    eventually("content is served", SOON, async || {
        Ok((third.names(&lab, "cat").await? == ["greeter.v1.0.0"]).then_some(()))
    })
    .await?;
    third.ready().await?;
    ensure!(
        begin.elapsed() < Duration::from_secs(5),
        "served only after {:?}",
        begin.elapsed()
    );

    // Without the disk, the replica reports that the content is missing, not the catalog.
    third.stop().await?;
    let fourth = Replica::start(&lab, "three", &[])?;
    eventually("the catalog is expected", SOON, async || {
        Ok((fourth.status(&lab, "cat").await? == 503).then_some(()))
    })
    .await?;
    let catalog = await_condition(&lab, "cat", "Progressing=True/Retrying").await?;
    ensure!(message(&catalog, conditions::PROGRESSING).starts_with("source catalog content: "));
    await_condition(&lab, "cat", "Serving=False/Unavailable").await?;
    lab.cluster.revive(Component::RegistryTls)?;
    await_condition(&lab, "cat", "Progressing=True/Succeeded").await?;
    ensure!(fourth.names(&lab, "cat").await? == ["greeter.v1.0.0"]);
    await_condition(&lab, "cat", "Serving=True/Available").await?;

    // Without the disk, and with a tag that now points to broken content, the content in the status is fetched.
    fourth.stop().await?;
    lab.push_catalog("cat:latest", "{\"schema\": 1}").await?;
    let fifth = Replica::start(&lab, "four", &[])?;
    eventually("what was served is served again", SOON, async || {
        Ok((fifth.names(&lab, "cat").await? == ["greeter.v1.0.0"]).then_some(()))
    })
    .await?;
    await_condition(&lab, "cat", "Progressing=True/Retrying").await?;
    let catalog = await_condition(&lab, "cat", "Serving=True/Available").await?;
    ensure!(conditions::is_true(catalog.conditions(), conditions::SERVING));
    fifth.stop().await
}

/// A token of a new account.
async fn token(lab: &Lab, name: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), names::SYSTEM_NAMESPACE);
    let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    accounts.create(&PostParams::default(), &account).await?;
    token_for(lab, name, &[names::CATALOGD_AUDIENCE]).await
}

/// A token of an account, made for these audiences; for the API server when none is named.
async fn token_for(lab: &Lab, name: &str, audiences: &[&str]) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), names::SYSTEM_NAMESPACE);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: (!audiences.is_empty())
                .then(|| audiences.iter().map(|audience| (*audience).to_owned()).collect()),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let request = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await?;
    let status = request.status.context("no status")?;
    status.token.context("no token")
}

/// With authentication, a request needs a token of the cluster and the right to read the catalog's content.
#[test]
fn catalogs_are_read_by_those_who_may_with_authentication() -> Result<()> {
    CLUSTER.with(async |Stage { lab, .. }| {
    for name in ["readable", "unreadable"] {
        let reference = lab.push_catalog(&format!("{name}:latest"), &greeter(&["1.0.0"])).await?;
        create(lab, name, json!({ "ref": reference })).await?;
        await_condition(lab, name, "Serving=True/Available").await?;
    }
    // It is a follower: the other replica leads.
    let follower = Replica::start(lab, "authenticated", &["--leader-elect", "--content-authentication"])?;
    follower.ready().await?;
    let (reader, stranger) = (token(lab, "reader").await?, token(lab, "stranger").await?);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "read-one" },
        "rules": [{ "apiGroups": [names::GROUP], "resources": ["clustercatalogs/content"],
                    "resourceNames": ["readable"], "verbs": ["get"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "read-one" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "read-one" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": names::SYSTEM_NAMESPACE }],
    });
    lab.apply(&[role, binding])?;
    let ask = async |catalog: &str, token: Option<&str>| -> Result<u16> {
        let request = follower.request(lab, &format!("{catalog}/api/v1/all")).await?;
        let request = token
            .into_iter()
            .fold(request, reqwest::RequestBuilder::bearer_auth);
        Ok(request.send().await?.status().as_u16())
    };
    ensure!(ask("readable", None).await? == 401);
    ensure!(ask("readable", Some("no token of this cluster")).await? == 401);
    ensure!(ask("readable", Some(&stranger)).await? == 403);
    // The API server's authorizer sees a new binding with a delay, and its answers are cached.
    tokio::time::sleep(Duration::from_secs(1)).await;
    eventually("the reader may read", Duration::from_secs(60), async || {
        Ok((ask("readable", Some(&reader)).await? == 200).then_some(()))
    })
    .await?;
    ensure!(
        ask("unreadable", Some(&reader)).await? == 403,
        "the right is for one catalog"
    );
    for audiences in [&[][..], &["elsewhere"]] {
        let token = token_for(lab, "reader", audiences).await?;
        let status = ask("readable", Some(&token)).await?;
        ensure!(status == 401, "a token for {audiences:?}: {status}");
    }
    follower.stop().await
    })
}
