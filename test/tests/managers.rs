//! Both managers in a real cluster: who may read their metrics and what those hold, who leads, certificates that change,
//! health, the shipped overlays, what admission lets through, and the verbs that deploy and remove everything.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::{ClusterExtension, conditions, names};
use olm_test::samples;
use olm_test::world::{Lab, Manager, Options, World, binary, free_address, repository};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(90);
const NAMESPACE: &str = names::SYSTEM_NAMESPACE;

/// A certificate for this machine under a new authority, in files that a manager is started with.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        std::fs::create_dir(folder.path().join("authorities"))?;
        Ok(Self { folder })
    }

    /// Makes both anew, as whoever renews certificates does, and returns the new authority's certificate.
    fn renew(&self, name: &str) -> Result<String> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(rcgen::DnType::CommonName, name);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let own = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let key = KeyPair::generate()?;
        let certificate = own.signed_by(&key, &authority)?;
        std::fs::write(self.folder.path().join("authorities").join(name), authority.pem())?;
        // One after the other: a pair that does not fit yet must not hurt.
        std::fs::write(self.certificate(), certificate.pem())?;
        std::fs::write(self.key(), key.serialize_pem())?;
        Ok(authority.pem())
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("tls.crt")
    }

    /// The token that operator-controller shows to catalogd.
    fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("tls.key")
    }

    fn flags(&self) -> Vec<String> {
        vec![
            format!("--tls-cert={}", self.certificate().display()),
            format!("--tls-key={}", self.key().display()),
        ]
    }
}

struct Scraper {
    client: reqwest::Client,
}

impl Scraper {
    /// Trusts one authority and nothing else.
    fn new(authority: &str) -> Result<Self> {
        let authority = reqwest::Certificate::from_pem(authority.as_bytes())?;
        // A new connection each time meets the certificate that is served now.
        let client = reqwest::Client::builder()
            .tls_certs_only([authority])
            .pool_max_idle_per_host(0)
            .no_proxy()
            .build()?;
        Ok(Self { client })
    }

    async fn get(&self, manager: &Manager, token: Option<&str>) -> Result<(u16, String)> {
        let (_, port) = manager
            .metrics
            .rsplit_once(':')
            .context("an address has a port")?;
        let mut request = self.client.get(format!("https://localhost:{port}/metrics"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Waits until the metrics hold all of these.
    async fn shows(&self, world: &World, manager: &Manager, token: &str, wanted: &[&str]) -> Result<()> {
        world
            .eventually("the metrics show what is wanted", SOON, async || {
                let (status, text) = self.get(manager, Some(token)).await?;
                let missing: Vec<_> = wanted.iter().filter(|part| !text.contains(**part)).collect();
                ensure!(
                    status == 200 && missing.is_empty(),
                    "{status}, without {missing:?}: {text}"
                );
                Ok(Some(()))
            })
            .await
    }
}

async fn own_authority(lab: &Lab, map: &str) -> Result<String> {
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let data = maps.get(map).await?.data.unwrap_or_default();
    data.get("ca.crt").cloned().context("no authority is published")
}

/// A token of an account in namespace `default`, made if need be.
fn token(lab: &Lab, account: &str) -> Result<String> {
    lab.apply(&[json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": "default" },
    })])?;
    Ok(lab
        .kubectl(&["create", "token", account, "-n", "default"])?
        .trim()
        .to_owned())
}

/// Nobody without a token, nobody without the right; the shipped roles give it.
async fn metrics_are_for_those_who_may(world: &World, catalogd: &Scraper, other: &Scraper) -> Result<String> {
    let (stranger, reader) = (token(world, "stranger")?, token(world, "reader")?);
    for (scraper, manager, role) in [
        (catalogd, &world.catalogd, "catalogd-metrics-reader"),
        (
            other,
            &world.operator_controller,
            "operator-controller-metrics-reader",
        ),
    ] {
        ensure!(scraper.get(manager, None).await?.0 == 401, "a token is needed");
        ensure!(
            scraper.get(manager, Some("made up")).await?.0 == 401,
            "a true token is needed"
        );
        let (status, text) = scraper.get(manager, Some(&stranger)).await?;
        ensure!(
            status == 403 && text.contains("system:serviceaccount:default:stranger"),
            "{status}: {text}"
        );
        world.kubectl(&[
            "create",
            "clusterrolebinding",
            role,
            "--clusterrole",
            role,
            "--serviceaccount=default:reader",
        ])?;
        scraper
            .shows(world, manager, &reader, &["process_resident_memory_bytes"])
            .await?;
    }
    Ok(reader)
}

/// The names that dashboards for controllers know, with values that work has left.
async fn metrics_tell_what_is_done(
    world: &World,
    catalogd: &Scraper,
    other: &Scraper,
    token: &str,
) -> Result<()> {
    let of = |controller: &str| {
        let label = format!("{{name=\"{controller}\",controller=\"{controller}\"}}");
        let queue = [
            "depth",
            "adds_total",
            "retries_total",
            "queue_duration_seconds_count",
            "work_duration_seconds_count",
            "unfinished_work_seconds",
            "longest_running_processor_seconds",
        ];
        let mut all: Vec<String> = queue
            .iter()
            .map(|name| format!("workqueue_{name}{label} "))
            .collect();
        let label = format!("{{controller=\"{controller}\"");
        for name in ["total", "errors_total", "panics_total", "time_seconds_count"] {
            all.push(format!("controller_runtime_reconcile_{name}{label}"));
        }
        all.push(format!("controller_runtime_active_workers{label}"));
        all.push(format!("controller_runtime_max_concurrent_reconciles{label}"));
        all
    };
    let server = kube::config::Kubeconfig::read_from(world.cluster.kubeconfig())?;
    let server = server
        .clusters
        .first()
        .and_then(|named| named.cluster.as_ref()?.server.clone());
    let host = server
        .unwrap_or_default()
        .trim_start_matches("https://")
        .to_owned();
    for (scraper, manager, controllers, lease, methods) in [
        (
            catalogd,
            &world.catalogd,
            &["catalogd-clustercatalog-controller"][..],
            names::lease::CATALOGD,
            &[("200", "GET"), ("201", "POST")][..],
        ),
        (
            other,
            &world.operator_controller,
            &[
                "controller-operator-cluster-extension-controller",
                "clusterobjectset",
            ],
            names::lease::OPERATOR_CONTROLLER,
            // A PATCH is made under the account of an extension.
            &[("200", "GET"), ("201", "POST"), ("200", "PATCH")],
        ),
    ] {
        let mut wanted: Vec<String> = controllers.iter().flat_map(|name| of(name)).collect();
        wanted.push(format!("leader_election_master_status{{name=\"{lease}\"}} 1"));
        for (code, method) in methods {
            wanted.push(format!(
                "rest_client_requests_total{{code=\"{code}\",method=\"{method}\",host=\"{host}\"}}"
            ));
        }
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        scraper.shows(world, manager, token, &wanted).await?;
    }
    Ok(())
}

/// Under the restricted overlay an account can be used only where its own namespace lets the controller.
async fn tokens_are_had_only_where_it_is_allowed(world: &World) -> Result<()> {
    for package in ["greeter", "other"] {
        let files = samples::renamed_bundle(package, "1.0.0", samples::OPERATOR_IMAGE);
        let image = world
            .push_bundle(&format!("{package}-bundle:v1.0.0"), &files)
            .await?;
        let blobs = samples::renamed(package, &samples::catalog(&["1.0.0"], |_| image.clone()));
        let catalog = world
            .push_catalog(&format!("{package}-catalog:latest"), &blobs)
            .await?;
        world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": package },
            "spec": { "source": { "type": "Image", "image": { "ref": catalog } } },
        })])?;
    }
    world.apply_file("manifests/samples/greeter.yaml")?;
    let sample = std::fs::read_to_string(repository().join("manifests/samples/greeter.yaml"))?;
    let other = world.folder().join("other.yaml");
    std::fs::write(&other, samples::renamed("other", &sample))?;
    world.kubectl(&["apply", "--server-side", "-f", &other.display().to_string()])?;

    let extensions: Api<ClusterExtension> = Api::all(world.client.clone());
    let refused = async |name: &str, account: &str| {
        let what = format!("{name} is refused");
        world
            .eventually(&what, SOON, async || {
                let extension = extensions.get(name).await?;
                let progressing = conditions::find(extension.conditions(), conditions::PROGRESSING).cloned();
                let message = progressing.context("no condition yet")?.message;
                ensure!(
                    message.contains("serviceaccounts/token") && message.contains(account),
                    "{message}"
                );
                let installed = conditions::is_true(extension.conditions(), conditions::INSTALLED);
                ensure!(!installed, "it is installed");
                Ok(Some(()))
            })
            .await
    };
    refused("greeter", "greeter-installer").await?;
    refused("other", "other-installer").await?;
    world.apply_file("manifests/overlays/restricted/token-role.yaml")?;
    world
        .eventually(
            "the extension whose account may be used is installed",
            SOON,
            async || {
                let extension = extensions.get("greeter").await?;
                let installed = conditions::is_true(extension.conditions(), conditions::INSTALLED);
                ensure!(
                    installed,
                    "status is {}",
                    serde_json::to_string(&extension.status)?
                );
                Ok(Some(()))
            },
        )
        .await?;
    refused("other", "other-installer").await
}

/// catalogd answers only who may read catalogs; operator-controller shows a token of its own account.
async fn catalogs_are_read_with_a_token(world: &World, files: &Files) -> Result<()> {
    const ACCOUNT: &str = "operator-controller-controller-manager";
    let account = format!("--serviceaccount={NAMESPACE}:{ACCOUNT}");
    world.kubectl(&[
        "create",
        "clusterrolebinding",
        "catalogs-of-operator-controller",
        "--clusterrole=catalogd-content-reader",
        &account,
    ])?;
    let token = world.kubectl(&["create", "token", ACCOUNT, "-n", NAMESPACE])?;
    std::fs::write(files.token(), &token)?;
    let client = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .build()?;
    let url = format!("{}/catalogs", world.catalogs);
    let anonymous = client.get(&url).send().await?;
    let form = anonymous.headers().get("content-type").cloned();
    ensure!(anonymous.status() == 401, "without a token: {anonymous:?}");
    ensure!(form.is_some_and(|form| form == "application/problem+json"));
    world
        .eventually("the account may read catalogs", SOON, async || {
            let answer = client.get(&url).bearer_auth(token.trim()).send().await?;
            Ok((answer.status() == 200).then_some(()))
        })
        .await
}

/// Of each catalog: whether it is served, what and since when, what it took to get it, and what failed.
async fn metrics_tell_of_catalogs(world: &World, scraper: &Scraper, token: &str) -> Result<()> {
    let lost = format!("{}/lost:latest", world.registry()?);
    world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": "lost" },
        "spec": { "source": { "type": "Image", "image": { "ref": lost } } },
    })])?;
    let begin = jiff::Timestamp::now().as_second();
    world
        .eventually("the metrics tell of catalogs", SOON, async || {
            let (_, text) = scraper.get(&world.catalogd, Some(token)).await?;
            let value = |metric: &str| -> Result<f64> {
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                let mut values = lines.filter_map(|line| line.strip_prefix(metric)?.rsplit_once(' '));
                let (_, value) = values.next().with_context(|| format!("no {metric} in {text}"))?;
                Ok(value.parse()?)
            };
            for (metric, least, most) in [
                ("catalogd_catalog_ready{catalog=\"greeter\"}", 1.0, 1.0),
                ("catalogd_catalog_ready{catalog=\"lost\"}", 0.0, 0.0),
                (
                    "catalogd_catalog_failures_total{catalog=\"lost\",reason=\"registry\"}",
                    1.0,
                    1e6,
                ),
                ("catalogd_catalog_content{catalog=\"greeter\",digest=\"", 1.0, 1.0),
                ("catalogd_catalog_pull_seconds{catalog=\"greeter\"}", 1e-6, 900.0),
                (
                    "catalogd_catalog_unpack_seconds{catalog=\"greeter\"}",
                    1e-6,
                    900.0,
                ),
                (
                    "catalogd_catalog_pulled_bytes_total{catalog=\"greeter\"}",
                    100.0,
                    1e6,
                ),
                ("catalogd_catalog_bytes{catalog=\"greeter\"}", 100.0, 1e6),
                ("catalogd_catalog_blobs{catalog=\"greeter\"}", 3.0, 100.0),
                ("catalogd_catalog_findings{catalog=\"greeter\"}", 0.0, 0.0),
                ("catalogd_disk_used_bytes", 100.0, 1e9),
                (
                    "catalogd_http_requests_total{endpoint=\"catalogs\",code=\"401\"}",
                    1.0,
                    1e6,
                ),
                (
                    "catalogd_http_requests_total{endpoint=\"metas\",code=\"200\"}",
                    1.0,
                    1e6,
                ),
                (
                    "catalogd_http_response_bytes_total{endpoint=\"metas\",code=\"200\"}",
                    100.0,
                    1e9,
                ),
                (
                    "catalogd_http_endpoint_duration_seconds_count{endpoint=\"metas\"}",
                    1.0,
                    1e6,
                ),
            ] {
                let found = value(metric)?;
                ensure!((least..=most).contains(&found), "{metric} is {found}");
            }
            let stored = value("catalogd_catalog_stored_timestamp_seconds{catalog=\"greeter\"}")?;
            let age = f64::from(i32::try_from(begin)?) - stored;
            ensure!((-5.0..=3600.0).contains(&age), "content is {age} s old");
            Ok(Some(()))
        })
        .await?;
    world.kubectl(&["delete", "clustercatalog", "lost"])?;
    world
        .eventually("a catalog that is gone is told of no more", SOON, async || {
            let (_, text) = scraper.get(&world.catalogd, Some(token)).await?;
            Ok((!text.contains("catalog=\"lost\"")).then_some(()))
        })
        .await
}

/// Only what the range grammar reads passes admission; any bundle name may be reported.
async fn admission_accepts_what_the_grammar_accepts(world: &World) -> Result<()> {
    let extensions: Api<ClusterExtension> = Api::all(world.client.clone());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (version, accepted) in [
        ("1||2 - 3", true),
        ("1 - 2 3 - 4,5", true),
        ("\t1\n-\r2", true),
        ("x.1x.99999999999999999999", true),
        ("18446744073709551615", true),
        ("1.2--+001", true),
        (">=1.2.3-0 <2 || ~v3.x", true),
        (
            "1111111111.1111111111.1111111111-1111111111.1111111111.111111111",
            true,
        ),
        (
            "1111111111.1111111111.1111111111-1111111111.1111111111.1111111111",
            false,
        ),
        ("", false),
        (" ", false),
        ("1|2", false),
        ("x.1|2", false),
        ("1 - 2>3", false),
        (">=1 2 - 3", false),
        ("18446744073709551616", false),
        ("1.2.3-01", false),
        ("1.0.0\u{b}", false),
        ("1\u{a0}2", false),
        ("latest", false),
    ] {
        let extension: ClusterExtension = serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": "dry" },
            "spec": { "namespace": "n", "source": { "sourceType": "Catalog", "catalog": {
                "packageName": "p", "version": version } } },
        }))?;
        let outcome = extensions.create(&dry, &extension).await;
        match &outcome {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 422 => {}
            Err(error) => bail!("{version:?}: {error}"),
        }
        let grammar = olm_version::masterminds::Constraint::parse(version).is_ok();
        ensure!(
            outcome.is_ok() == accepted && (accepted == grammar || version.len() > 64),
            "{version:?}: {outcome:?}"
        );
    }
    for name in ["a", "Strange_Name+v1", "greeter.v1.0.0", "-", &"long".repeat(100)] {
        let patch = json!({ "status": { "install": { "bundle": { "name": name, "version": "1.0.0" } } } });
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        extensions
            .patch_status("other", &dry, &Patch::Merge(&patch))
            .await
            .with_context(|| format!("bundle {name:?}"))?;
    }
    Ok(())
}

async fn holder(lab: &Lab, lease: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let spec = leases.get(lease).await?.spec.unwrap_or_default();
    Ok(spec.holder_identity.unwrap_or_default())
}

/// One leads at a time. A leader that ends hands over at once, one that dies when its lease has run out.
async fn another_takes_over(world: &mut World, flags: &Flags, reader: &str) -> Result<(Manager, Manager)> {
    let content = free_address()?;
    let mut catalogd = Manager::catalogd(world, "catalogd-2", &content, flags.catalogd.clone()).await?;
    let more = flags.operator_controller.clone();
    let mut other = Manager::operator_controller(world, "operator-controller-2", more).await?;
    for manager in [&mut catalogd, &mut other] {
        manager.start(&world.cluster)?;
        manager.ready().await?;
    }
    let shown = |lease: &str, leads: u8| format!("leader_election_master_status{{name=\"{lease}\"}} {leads}");
    let (first, second) = (names::lease::CATALOGD, names::lease::OPERATOR_CONTROLLER);
    let (from, theirs) = (holder(world, first).await?, holder(world, second).await?);
    ensure!(!from.is_empty() && !theirs.is_empty(), "both leases are held");
    let own = Scraper::new(&own_authority(world, names::certificate::OPERATOR_CONTROLLER_AUTHORITY).await?)?;
    let files = Scraper::new(&flags.authority)?;
    files.shows(world, &catalogd, reader, &[&shown(first, 0)]).await?;
    own.shows(world, &other, reader, &[&shown(second, 0)]).await?;

    world.catalogd.stop().await?;
    files.shows(world, &catalogd, reader, &[&shown(first, 1)]).await?;
    ensure!(holder(world, first).await? != from, "the lease has a new holder");

    world.operator_controller.kill();
    ensure!(
        holder(world, second).await? == theirs,
        "the dead one's lease still runs"
    );
    // Nobody waits here for as long as a lease lasts.
    let patch = json!({ "spec": { "leaseDurationSeconds": 1 } });
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    leases
        .patch(second, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    own.shows(world, &other, reader, &[&shown(second, 1)]).await?;
    ensure!(
        holder(world, second).await? != theirs,
        "the lease has a new holder"
    );

    // The new ones do the work.
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), "greeter");
    let before = deployments.get("greeter-operator").await?.metadata.uid;
    deployments
        .delete("greeter-operator", &kube::api::DeleteParams::default())
        .await?;
    world
        .eventually("what is deleted is back", SOON, async || {
            let found = deployments.get_opt("greeter-operator").await?;
            Ok(found.filter(|found| found.metadata.uid != before).map(drop))
        })
        .await?;
    Ok((catalogd, other))
}

/// A manager that cannot reach the API server lives, is not ready, and says what it waits for.
async fn readiness_says_what_is_missing(world: &World, files: &Files) -> Result<()> {
    let nowhere = world.folder().join("nowhere.kubeconfig");
    std::fs::write(
        &nowhere,
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("https://{}", free_address()?) } }],
            "users": [{ "name": "u", "user": { "token": "none" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        })
        .to_string(),
    )?;
    let mut more = files.flags();
    more.push(format!("--kubeconfig={}", nowhere.display()));
    let content = free_address()?;
    let mut catalogd = Manager::catalogd(world, "catalogd-lost", &content, more.clone()).await?;
    let mut other = Manager::operator_controller(world, "operator-controller-lost", more).await?;
    for (manager, missing) in [(&mut catalogd, "catalogs:"), (&mut other, "watches:")] {
        manager.start(&world.cluster)?;
        let get = async |path: &str| -> Result<(u16, String)> {
            let answer = reqwest::get(format!("http://{}{path}", manager.health)).await?;
            Ok((answer.status().as_u16(), answer.text().await?))
        };
        let lives = world
            .eventually("the health port answers", SOON, async || {
                Ok(Some(get("/healthz").await?))
            })
            .await?;
        ensure!(lives.0 == 200, "{lives:?}");
        let (status, text) = get("/readyz").await?;
        ensure!(
            status == 503 && text.contains(missing),
            "{status}: {text}\n{}",
            manager.log_end()
        );
        manager.stop().await?;
    }
    Ok(())
}

/// What the README says to type, with the Makefile's own commands.
fn make(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let mut command = lab.cluster.exec("make");
    command
        .current_dir(repository())
        .args(arguments)
        .env("HOME", lab.folder())
        .env("SSL_CERT_FILE", lab.authorities().join("ca.crt"));
    for inherited in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        command.env_remove(inherited);
    }
    let output = command.output().context("cannot run make")?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "make {}: {said}", arguments.join(" "));
    Ok(said)
}

/// Every overlay is accepted as a whole by a real API server, and removed as a whole.
async fn overlays_are_applied_and_removed(world: &World) -> Result<()> {
    for definitions in ["cert-manager", "monitoring"] {
        world.apply_file(&format!("test/samples/definitions/{definitions}.yaml"))?;
    }
    world.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ])?;
    for namespace in ["openshift-config", "openshift-monitoring"] {
        world.apply(&[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        ])?;
    }
    let arguments = || -> Result<String> {
        let path =
            "jsonpath={.spec.template.spec.containers[0].args}{.spec.template.spec.containers[0].image}";
        let name = "operator-controller-controller-manager";
        world.kubectl(&["get", "deployment", name, "-n", NAMESPACE, "-o", path])
    };
    for (overlay, argument) in [
        ("restricted", "--leader-elect"),
        ("cert-manager", "--tls-cert=/var/certs/tls.crt"),
        ("openshift", "--global-pull-secret=openshift-config/pull-secret"),
    ] {
        make(
            world,
            &["deploy", &format!("OVERLAY=manifests/overlays/{overlay}")],
        )
        .with_context(|| format!("overlay {overlay}"))?;
        let found = arguments()?;
        ensure!(found.contains(argument), "{overlay}: {found}");
    }
    let prometheus = "--as=system:serviceaccount:openshift-monitoring:prometheus-k8s";
    world.kubectl(&["auth", "can-i", "get", "/metrics", prometheus])?;
    world.kubectl(&["auth", "can-i", "watch", "endpoints", "-n", NAMESPACE, prometheus])?;
    for (kind, count) in [("servicemonitors", 2), ("issuers,certificates", 5)] {
        let found = world.kubectl(&["get", kind, "-n", NAMESPACE, "-o", "name"])?;
        ensure!(found.lines().count() == count, "{found}");
    }

    // Images of one's own, and an account that may do everything.
    let prefix = format!("{}/mine", world.registry()?);
    let prefix = format!("PREFIX={prefix}");
    let tool = format!("OLM_TEST={}", binary("olm-test")?.display());
    // Built already.
    let said = make(world, &["-o", "images", "push", &prefix, &tool])?;
    ensure!(said.matches("@sha256:").count() == 2, "{said}");
    make(
        world,
        &["deploy", "OVERLAY=manifests/overlays/default-account", &prefix],
    )?;
    let found = arguments()?;
    ensure!(
        found.contains("--default-service-account=olmv1-system/olm-default-installer")
            && found.contains(&format!("{}/mine/operator-controller:v", world.registry()?)),
        "{found}"
    );
    let account = "--as=system:serviceaccount:olmv1-system:olm-default-installer";
    world.kubectl(&["auth", "can-i", "*", "*", "--all-namespaces", account])?;

    // Extensions go first, while there is somebody to take them down.
    make(world, &["undeploy", "OVERLAY=manifests/overlays/default-account"])?;
    let left = world.kubectl(&[
        "get",
        "deployments,serviceaccounts",
        "-n",
        "greeter",
        "-o",
        "name",
    ])?;
    ensure!(!left.contains("greeter-operator"), "{left}");
    for overlay in ["cert-manager", "openshift"] {
        let folder = repository().join("manifests/overlays").join(overlay);
        world.kubectl(&[
            "delete",
            "--ignore-not-found",
            "-k",
            &folder.display().to_string(),
        ])?;
    }
    let kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,namespaces";
    world
        .eventually("nothing of ours is left", SOON, async || {
            let left = world.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=olm", "-o", "name"])?;
            ensure!(left.trim().is_empty(), "{left}");
            Ok(Some(()))
        })
        .await
}

struct Flags {
    catalogd: Vec<String>,
    operator_controller: Vec<String>,
    /// Who signed catalogd's certificate.
    authority: String,
}

fn flags(files: &Files, authority: String) -> Flags {
    let authorities: &Path = &files.folder.path().join("authorities");
    let mut catalogd = files.flags();
    catalogd.push("--leader-elect".to_owned());
    catalogd.push("--content-authentication".to_owned());
    Flags {
        catalogd,
        operator_controller: vec![
            "--leader-elect".to_owned(),
            format!("--catalogd-cas-dir={}", authorities.display()),
            format!("--catalogd-token-file={}", files.token().display()),
        ],
        authority,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_managers_in_a_real_cluster() -> Result<()> {
    let files = Files::new()?;
    let mut flags = flags(&files, files.renew("first")?);
    let mut world = World::start(Options {
        catalogd: flags.catalogd.clone(),
        operator_controller: flags.operator_controller.clone(),
        manifests: "manifests/overlays/restricted",
    })
    .await?;
    let first = Scraper::new(&flags.authority)?;
    let own = own_authority(&world, names::certificate::OPERATOR_CONTROLLER_AUTHORITY).await?;
    let own = Scraper::new(&own)?;

    let reader = metrics_are_for_those_who_may(&world, &first, &own).await?;
    catalogs_are_read_with_a_token(&world, &files).await?;
    tokens_are_had_only_where_it_is_allowed(&world).await?;
    metrics_tell_what_is_done(&world, &first, &own, &reader).await?;
    metrics_tell_of_catalogs(&world, &first, &reader).await?;
    admission_accepts_what_the_grammar_accepts(&world).await?;
    readiness_says_what_is_missing(&world, &files).await?;

    let process = world.catalogd.pid();
    let before = std::mem::replace(&mut flags.authority, files.renew("second")?);
    let second = Scraper::new(&flags.authority)?;
    let wanted = ["certwatcher_read_certificate_total "];
    second.shows(&world, &world.catalogd, &reader, &wanted).await?;
    // A client that was here before resumes its session without looking at a certificate.
    let newcomer = Scraper::new(&before)?;
    ensure!(
        newcomer.get(&world.catalogd, None).await.is_err(),
        "the old certificate is served no more"
    );
    ensure!(
        world.catalogd.pid() == process && process.is_some(),
        "without a restart"
    );

    let (mut catalogd, mut other) = another_takes_over(&mut world, &flags, &reader).await?;
    overlays_are_applied_and_removed(&world).await?;
    other.stop().await?;
    catalogd.stop().await?;
    Ok(())
}
