//! `packageserver`: PackageManifests as an aggregated API.
//!
//! - [`follow`] follows CatalogSources and says when a registry is asked;
//! - [`load`] asks a registry for its packages;
//! - [`index`] holds the packages of all catalogs, each as an [`item`];
//! - [`scope`] says which of them a request sees;
//! - [`serve`] answers requests that the API server forwards.
//!
//! Nothing is written to the cluster, so every replica serves.

mod certificate;
mod connect;
mod follow;
mod index;
mod item;
mod load;
mod scope;
mod serve;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use olm_platform::admin;
use olm_platform::delegated::Delegated;
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::tls::{Profile, server_config_for_client_certificates};
use serde_json::json;

use self::connect::Network;
use self::follow::Follower;
use self::index::PackageIndex;
use self::serve::Server;
use crate::args::PackageArgs;
use crate::base::Base;
use crate::objects::kinds::{self, Kind};
use crate::registry::trust::Trust;

/// Time that packages count as fresh although the catalog does not change.
const INTERVAL: Duration = Duration::from_hours(12);
/// The kinds that are followed.
const KINDS: &[Kind] = &[kinds::CATALOG_SOURCE, kinds::OLM_CONFIG, kinds::ENDPOINT_SLICE];

/// Starts to serve, until the process ends. `ready` is set when every catalog was asked once.
///
/// # Errors
/// When the server cannot start.
pub async fn run(base: &Arc<Base>, args: &PackageArgs, ready: Arc<AtomicBool>) -> anyhow::Result<()> {
    let given = args.classic.interval.as_str();
    let interval = if given.is_empty() {
        INTERVAL
    } else {
        follow::duration(given).with_context(|| format!("`--interval` is not a duration: {given:?}"))?
    };
    let global = if args.global_namespace.is_empty() {
        base.namespace.clone()
    } else {
        args.global_namespace.clone()
    };
    let started = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
    let index = Arc::new(PackageIndex::new(started));
    let clients = Arc::new(Delegated::new(base.writer.own().clone(), trusted(args)?));
    let follower = Arc::new(Follower::new(
        Arc::clone(&base.store),
        Network {
            trust: Trust::new(&args.classic.common.pull_cas_dir),
        },
        Arc::clone(&index),
        interval,
    ));
    follower.queue().report_to(&base.metrics, "packageserver");
    let server = Server::new(
        index,
        global,
        Arc::clone(&clients),
        Arc::clone(&ready),
        base.shutdown.token(),
    );
    open(base, args, server).await?;
    spawn(base, "clients", {
        let clients = Arc::clone(&clients);
        async move { clients.follow().await }
    });
    let (stop, shared) = (base.shutdown.token(), Arc::clone(base));
    base.shutdown.spawn("packages", async move {
        shared.follow(KINDS).await;
        let tried = async {
            follower.wait_until_tried().await;
            clients.wait_until_known().await;
            ready.store(true, Ordering::Release);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = follower.run(shared.concurrency, stop) => {}
            () = tried => {}
        }
    });
    Ok(())
}

/// Runs an endless task until the process ends.
fn spawn(base: &Base, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    let stop = base.shutdown.token();
    base.shutdown.spawn(name, async move {
        tokio::select! { () = stop.cancelled() => {}, () = task => {} }
    });
}

/// Opens the port of the API.
async fn open(base: &Base, args: &PackageArgs, server: Server) -> anyhow::Result<()> {
    let profile = Profile::parse(&args.classic.common.profile)?;
    profile.warn();
    let certificate = certificate::serving(base, args).context("no serving certificate")?;
    let config = server_config_for_client_certificates(&profile, certificate)?;
    let listener = admin::bind(&address(&args.bind_address, args.secure_port))
        .await
        .context("cannot open the port of the API")?;
    let address = admin::address(&listener).map(tracing::field::display);
    tracing::info!(address, "serving packages");
    let server = Arc::new(server);
    let respond = move |request, _| {
        let server = Arc::clone(&server);
        async move { server.respond(request).await }
    };
    let transport = Transport::Tls(Arc::new(config));
    let serving = listener::serve(
        listener,
        transport,
        Limits::default(),
        base.shutdown.token(),
        respond,
    );
    base.shutdown.spawn("api", serving);
    Ok(())
}

/// The address to listen on; a bare IPv6 address gets its brackets.
fn address(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Settings of flags for clients instead of the API server, in the form of its ConfigMap.
fn trusted(args: &PackageArgs) -> anyhow::Result<BTreeMap<String, String>> {
    let mut given = BTreeMap::new();
    for (key, path) in [
        ("client-ca-file", &args.client_ca_file),
        ("requestheader-client-ca-file", &args.requestheader_client_ca_file),
    ] {
        if !path.is_empty() {
            let pem = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read `{path}` of `--{key}`"))?;
            given.insert(key.to_owned(), pem);
        }
    }
    for (key, list) in [
        ("requestheader-allowed-names", &args.requestheader_allowed_names),
        (
            "requestheader-username-headers",
            &args.requestheader_username_headers,
        ),
        ("requestheader-uid-headers", &args.requestheader_uid_headers),
        ("requestheader-group-headers", &args.requestheader_group_headers),
        (
            "requestheader-extra-headers-prefix",
            &args.requestheader_extra_headers_prefix,
        ),
    ] {
        if !list.is_empty() {
            given.insert(key.to_owned(), json!(list).to_string());
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_their_brackets() {
        for (host, expected) in [
            ("", ":5443"),
            ("0.0.0.0", "0.0.0.0:5443"),
            ("::", "[::]:5443"),
            ("[::1]", "[::1]:5443"),
        ] {
            assert_eq!(address(host, 5443), expected);
        }
    }
}
