//! `olm support-bundle`: one archive with the facts for remote support, without credentials.

mod archive;
mod classic;
mod collect;
mod redact;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use jiff::Timestamp;
use olm_api::names::SYSTEM_NAMESPACE;

use self::archive::Archive;
use self::collect::Collector;
use self::redact::Redactor;
use super::access::ClusterArguments;
use super::cluster::Cluster;
use crate::output::{CommandResult, Status, note, print_text};

#[derive(Debug, Args)]
#[command(
    after_help = "The archive holds:\n  - the versions of olm and of the API server\n  - ClusterExtensions, ClusterCatalogs, \
                  ClusterObjectSets, ChangePolicies and PendingChanges, and the events about them\n  - Deployments, Pods, Services, \
                  Leases and events in the namespace of OLM; names and keys of its Secrets and ConfigMaps\n  - the logs of both \
                  managers, also from before a restart, and their metrics where the API server reaches them\n  - of OLM \
                  classic, where it is installed: CatalogSources, Subscriptions, InstallPlans, ClusterServiceVersions \
                  without copies, OperatorGroups and OperatorConditions of all namespaces; the Deployments and Pods of olm-operator, catalog-operator and \
                  packageserver, and their logs\n\nValues of Secrets, \
                  private keys, tokens, passwords in URLs, and environment variables, annotations, arguments and settings with \
                  names like those of credentials are replaced by REDACTED. Read the archive before you hand it on: programs may \
                  write confidential text that has no such mark.\n\nWhat cannot be read is listed as a warning and in \
                  summary.txt.\n\nExamples:\n  olm support-bundle\n  olm support-bundle --output case-17.tar.gz --max-size \
                  10\n\nExit status: 0 when the archive is written, also when parts are missing; 1 when the cluster does not answer \
                  or the archive cannot be written."
)]
pub(crate) struct Arguments {
    /// Archive to write; it must not exist [default: olm-support-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Namespace of OLM
    #[arg(short, long, value_name = "NAME", default_value = SYSTEM_NAMESPACE, value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// Maximum size of the archive in MiB, uncompressed
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    max_size: u64,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let folder = format!("olm-support-{time}");
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{folder}.tar.gz")),
    };
    if path.exists() {
        bail!("cannot write {}: it exists", path.display());
    }
    let archive = Archive::create(&path, folder, arguments.max_size << 20)?;
    let collector = Collector::new(&cluster.client, &arguments.namespace, Redactor::new()?, archive);
    let (archive, warnings) = cluster.runtime.block_on(collector.collect())?;
    archive.finish(&path)?;
    for warning in &warnings {
        note(&format!("warning: {warning}"));
    }
    print_text(&format!("{}\n", path.display()))?;
    Ok(Status::Success)
}
