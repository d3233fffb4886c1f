//! `olm trust-root`: the file with the authorities, logs and timestamp authorities that signatures are verified with.

mod mirror;
mod state;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use olm_image::Digest;
use olm_signature::{ROOT_BYTES, Trust};
use serde_json::json;
use sigstore_tuf::{Updater, UpdaterConfig};
use tempfile::Builder;

use super::http_client;
use crate::hint::Hint;
use crate::input;
use crate::output::{CommandResult, ReportFormat, Status, print_json, print_text};
use mirror::Mirror;
use state::State;

/// The most bytes of the root of the repository.
const TUF_ROOT_BYTES: u64 = 512_000;
/// The time for a whole update.
const TIME: Duration = Duration::from_mins(2);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch the newest trust root from a TUF repository, such as that of Sigstore
    Update(UpdateArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Verifies the metadata of the repository, starting from a root that you trust: signatures, thresholds, expiry, and \
                  that no version is older than one that was seen before. Then replaces the file at once. After any error the file \
                  stays as it is."
)]
pub(crate) struct UpdateArguments {
    /// URL of the TUF repository
    #[arg(long, value_name = "URL")]
    mirror: String,
    /// File with a `root.json` of the repository that you trust; newer ones are found from there
    #[arg(long, value_name = "FILE")]
    root: PathBuf,
    /// File to write, which a signature policy names as `trustedRootPath`
    #[arg(long, value_name = "FILE", default_value = "trusted_root.json")]
    out: PathBuf,
    /// Name of the file in the repository
    #[arg(long, value_name = "NAME", default_value = "trusted_root.json")]
    target: String,
    /// Directory with the metadata that was seen last, so that older metadata is refused [default: the path of --out with
    /// `.tuf` appended]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Directory with additional CA certificates to trust
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
}

/// The verified trust root, and the metadata that vouches for it.
struct Fetched {
    text: Vec<u8>,
    root_version: u64,
    timestamp_version: Option<u64>,
    /// The time until which the metadata holds.
    fresh_until: Option<Timestamp>,
}

impl Command {
    pub(crate) fn run(&self) -> CommandResult {
        match self {
            Self::Update(arguments) => update(arguments),
        }
    }
}

fn update(arguments: &UpdateArguments) -> CommandResult {
    let out = &arguments.out;
    let failed = |error: anyhow::Error| {
        let error = error.context(format!("cannot update {}", out.display()));
        error.context(Hint(format!(
            "check the mirror, --root, --state and the clock of this machine; {} stays as it is",
            out.display()
        )))
    };
    let fetched = fetch(arguments).map_err(failed)?;
    let is_changed = std::fs::read(out).map_or(true, |old| old != fetched.text);
    if is_changed {
        replace(out, &fetched.text).map_err(failed)?;
    }
    report(arguments, &fetched, is_changed)?;
    Ok(Status::Success)
}

fn fetch(arguments: &UpdateArguments) -> anyhow::Result<Fetched> {
    let root = input::read(&arguments.root, TUF_ROOT_BYTES)?;
    let client = http_client(arguments.ca_dir.as_deref(), false)?;
    let mirror = Mirror::new(client, &arguments.mirror)?;
    let state = State::new(&state_directory(arguments));
    let updater = Updater::new(mirror, &root)
        .with_context(|| format!("{} is not a root of a TUF repository", arguments.root.display()))?;
    let mut bounds = UpdaterConfig::default();
    bounds.root_max_length = TUF_ROOT_BYTES;
    bounds.target_max_length = ROOT_BYTES as u64;
    let mut updater = updater.with_config(bounds).with_store(state.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let now = Timestamp::now();
    let work = async {
        updater.refresh(now).await?;
        updater.get_target(&arguments.target, now).await
    };
    let found = runtime.block_on(async { tokio::time::timeout(TIME, work).await });
    // First: without its state, an update does not recognise older metadata.
    state.check()?;
    let text = found.map_err(|_| anyhow!("it takes more than {} seconds", TIME.as_secs()))??;
    Trust::parse(&text).map_err(|error| anyhow!("{} is no trust root: {error}", arguments.target))?;
    let trusted = updater.trusted();
    let timestamp = trusted.timestamp();
    Ok(Fetched {
        text,
        root_version: trusted.root().version,
        timestamp_version: timestamp.map(|timestamp| timestamp.version),
        fresh_until: timestamp.map(|timestamp| timestamp.expires),
    })
}

fn state_directory(arguments: &UpdateArguments) -> PathBuf {
    arguments.state.clone().unwrap_or_else(|| {
        let mut path = arguments.out.clone().into_os_string();
        path.push(".tuf");
        PathBuf::from(path)
    })
}

/// Replaces a file so that a reader finds the old content or the new.
fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let failed = || format!("cannot write {}", path.display());
    let mut file = Builder::new()
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(failed)?;
    file.write_all(content).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(path)
        .map_err(|error| error.error)
        .with_context(failed)?;
    Ok(())
}

fn report(arguments: &UpdateArguments, fetched: &Fetched, is_changed: bool) -> anyhow::Result<()> {
    let digest = Digest::of(&fetched.text).to_string();
    let until = fetched.fresh_until.map(|time| time.to_string());
    match arguments.output {
        ReportFormat::Text => print_text(&format!(
            "{}: {}\n  mirror     {}\n  root       version {}\n  timestamp  version {}, until {}\n  digest     {digest}\n",
            arguments.out.display(),
            if is_changed { "updated" } else { "unchanged" },
            arguments.mirror,
            fetched.root_version,
            fetched.timestamp_version.unwrap_or_default(),
            until.unwrap_or_default(),
        )),
        ReportFormat::Json => print_json(&json!({
            "file": arguments.out,
            "changed": is_changed,
            "mirror": arguments.mirror,
            "rootVersion": fetched.root_version,
            "timestampVersion": fetched.timestamp_version,
            "freshUntil": until,
            "digest": digest,
        })),
    }
}
