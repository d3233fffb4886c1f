//! `olm catalog serve`.

use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use olm_fbc::Checker;
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::shutdown::Shutdown;
use olm_serve::{
    App, Commit, Endpoints, Findings, IngestError, Origin, Snapshot, Store, StoreLimits, ingest,
};
use tokio::net::TcpListener;

use super::validate::summary;
use crate::input::CatalogFiles;
use crate::output::{CommandResult, Status, note, print};
use crate::registry::RegistryArguments;
use crate::source::{faults_shown, named_source, open_catalog};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalogs, each as SOURCE or NAME=SOURCE: files, directories, images in a registry or on disk; the name is that
    /// of the file or image otherwise
    #[arg(required = true, value_name = "[NAME=]SOURCE")]
    catalogs: Vec<String>,
    /// Address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    addr: SocketAddr,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let directory = tempfile::Builder::new().prefix("olm-serve-").tempdir()?;
    let store = Arc::new(Store::open(directory.path(), StoreLimits::default())?);
    for catalog in &arguments.catalogs {
        let (name, source) = named_source(catalog)?;
        if store
            .snapshots()
            .iter()
            .any(|served| served.record().catalog == name)
        {
            bail!("two catalogs are named {name:?}; use NAME=SOURCE to give each its own name");
        }
        let files = open_catalog(&source, &arguments.registry)?;
        let snapshot =
            put(&store, &name, &source, &files).with_context(|| format!("cannot serve {source}"))?;
        snapshot.prepare(|| true)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(arguments.addr, store))?;
    Ok(Status::Success)
}

async fn serve(address: SocketAddr, store: Arc<Store>) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    let mut addresses = String::new();
    for snapshot in store.snapshots() {
        let _ = writeln!(
            addresses,
            "http://{address}/catalogs/{}/api/v1/all",
            snapshot.record().catalog
        );
    }
    let _ = writeln!(addresses, "to browse: http://{address}/");
    // At once: the server continues even if the reader of the output is gone.
    print(&addresses)?;
    let app = Arc::new(App::new(store, Endpoints::default()));
    let respond = move |request, peer| {
        let app = Arc::clone(&app);
        async move { app.respond(request, Some(peer)).await }
    };
    listener::serve(
        listener,
        Transport::Plain,
        Limits::default(),
        shutdown.token(),
        respond,
    )
    .await;
    Ok(())
}

/// Reads a catalog into the store.
fn put(store: &Arc<Store>, name: &str, source: &str, files: &CatalogFiles) -> anyhow::Result<Arc<Snapshot>> {
    let mut checker = Checker::new().with_constraints(olm_constraint::fault);
    let mut is_empty = true;
    let mut writer = store.begin(name)?;
    let open = |name: &str| {
        files
            .path(name)
            .ok_or(std::io::ErrorKind::NotFound.into())
            .and_then(File::open)
    };
    ingest(&mut writer, files.names(), open, |file, meta| {
        is_empty = false;
        checker.add(file, meta);
        ControlFlow::Continue(())
    })
    .map_err(|error| {
        let is_blob = matches!(error, IngestError::Blob { .. });
        let error = anyhow::Error::new(error);
        if is_blob {
            error.context(faults_shown(source))
        } else {
            error
        }
    })?;
    if is_empty {
        files.warn_of_emptiness(source);
    }
    let report = checker.finish();
    if !report.findings.is_empty() {
        note(&format!(
            "{name}: {}; see `olm catalog validate {source}`",
            summary(&report)
        ));
    }
    let now = Timestamp::now();
    let origin = Origin {
        requested: source.to_owned(),
        resolved: source.to_owned(),
    };
    let total = report.errors().count() + report.omitted;
    let findings = Findings {
        total: total as u64,
        first: Vec::new(),
    };
    Ok(writer.commit(Commit {
        origin,
        findings,
        modified: now,
        now,
    })?)
}
