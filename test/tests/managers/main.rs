//! Both managers in a real cluster: access to their metrics and content, leader election, certificates that change,
//! health, the shipped overlays, admission, and the make targets that deploy and remove all parts.

mod admission;
mod connections;
mod deploy;
mod files;
mod ipv6;
mod leaders;
mod metrics;
mod tokens;

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_api::conditions::reason;
use olm_api::names;
use olm_test::extensions::{await_progressing, await_version, catalog, extensions, patch_source};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::json;

use self::files::{Files, Scraper, own_authority, token};

const SOON: Duration = Duration::from_secs(90);
const NAMESPACE: &str = names::SYSTEM_NAMESPACE;
/// The account whose token operator-controller sends to catalogd.
const ACCOUNT: &str = "operator-controller-controller-manager";

/// Both managers with the rights of the restricted overlay and one installed extension, `greeter`.
static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

struct Stage {
    world: World,
    /// The certificate of both managers.
    files: Files,
    /// The issuer of the certificate that catalogd serves now.
    authority: String,
    /// A token of an account that may read the metrics.
    reader: String,
}

impl Stage {
    async fn start() -> Result<Self> {
        let files = Files::new()?;
        let authority = files.renew("first")?;
        let world = World::start(Options {
            catalogd: Self::catalogd_flags(&files),
            operator_controller: Self::operator_controller_flags(&files),
            manifests: "manifests/overlays/restricted",
            ..Options::default()
        })
        .await?;
        let reader = token(&world, "reader")?;
        for role in ["catalogd-metrics-reader", "operator-controller-metrics-reader"] {
            bind(&world, role, role, "default:reader")?;
        }
        let account = format!("{NAMESPACE}:{ACCOUNT}");
        bind(
            &world,
            "catalogs-of-operator-controller",
            "catalogd-content-reader",
            &account,
        )?;
        let audience = format!("--audience={}", names::CATALOGD_AUDIENCE);
        let content = world.kubectl(&["create", "token", ACCOUNT, "-n", NAMESPACE, &audience])?;
        std::fs::write(files.token(), content)?;
        publish(&world, "greeter").await?;
        world.apply_file("manifests/samples/greeter.yaml")?;
        world.apply_file("manifests/overlays/restricted/token-role.yaml")?;
        await_version(&world, "greeter", "1.0.0").await?;
        Ok(Self {
            world,
            files,
            authority,
            reader,
        })
    }

    fn catalogd_flags(files: &Files) -> Vec<String> {
        let mut flags = files.flags();
        flags.push("--leader-elect".to_owned());
        flags.push("--content-authentication".to_owned());
        flags
    }

    fn operator_controller_flags(files: &Files) -> Vec<String> {
        vec![
            "--leader-elect".to_owned(),
            format!("--catalogd-cas-dir={}", files.authorities().display()),
            format!("--catalogd-token-file={}", files.token().display()),
        ]
    }

    /// Reads the metrics of catalogd, whose certificate is in files.
    fn of_catalogd(&self) -> Result<Scraper> {
        Scraper::new(&self.authority)
    }

    /// Reads the metrics of operator-controller, which has made its own certificate.
    async fn of_operator_controller(&self) -> Result<Scraper> {
        let map = names::certificate::OPERATOR_CONTROLLER_AUTHORITY;
        Scraper::new(&own_authority(&self.world, map).await?)
    }
}

/// Gives a ClusterRole to a service account, `NAMESPACE:NAME`.
fn bind(world: &World, name: &str, role: &str, account: &str) -> Result<()> {
    let account = format!("--serviceaccount={account}");
    world
        .kubectl(&[
            "create",
            "clusterrolebinding",
            name,
            "--clusterrole",
            role,
            &account,
        ])
        .map(drop)
}

/// Pushes version 1.0.0 of the sample operator as this package and serves a catalog of it.
async fn publish(world: &World, package: &str) -> Result<()> {
    let reference = world
        .publish(package, &["1.0.0"], samples::OPERATOR_IMAGE)
        .await?;
    world.apply(&[catalog(package, &reference)])
}

#[test]
fn a_renewed_certificate_is_served_without_a_restart() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let process = stage.world.catalogd.pid();
        let before = std::mem::replace(&mut stage.authority, stage.files.renew("second")?);
        let wanted = [
            "certwatcher_read_certificate_total ",
            "serving_certificate_expiration_timestamp_seconds ",
        ];
        let Stage { world, reader, .. } = stage;
        let second = Scraper::new(&stage.authority)?;
        second.shows(world, &world.catalogd, reader, &wanted).await?;
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
        Ok(())
    })
}

/// The certificate is created as with `openssl req -x509`. The scraper's library refuses it, which shows that it is
/// served.
#[test]
fn catalogs_are_read_from_a_server_whose_certificate_is_a_cas() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let scraper = Scraper::new(&stage.files.renew_flagged("flagged")?)?;
        let world = &mut stage.world;
        world
            .eventually("the certificate is served", SOON, async || {
                let error = scraper.get(&world.catalogd, None).await.err();
                let error = error.map(|error| format!("{error:?}")).unwrap_or_default();
                ensure!(error.contains("CaUsedAsEndEntity"), "{error}");
                Ok(Some(()))
            })
            .await?;
        // A new process has read no catalog yet.
        world.operator_controller.stop().await?;
        world.start_operator_controller()?;
        let before = extensions(world).get("greeter").await?;
        patch_source(world, "greeter", json!({ "version": "9.9.9" })).await?;
        let missing = "no bundles found for package \"greeter\"";
        await_progressing(world, "greeter", reason::RETRYING, missing).await?;
        let version = before.spec.source.catalog.and_then(|catalog| catalog.version);
        patch_source(world, "greeter", json!({ "version": version })).await?;
        await_progressing(world, "greeter", reason::SUCCEEDED, "").await?;
        stage.authority = stage.files.renew("after-flagged")?;
        let Stage { world, reader, .. } = stage;
        let scraper = Scraper::new(&stage.authority)?;
        scraper.shows(world, &world.catalogd, reader, &[]).await
    })
}
