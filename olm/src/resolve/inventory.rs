//! `olm inventory`.

use anyhow::anyhow;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use kube::config::Kubeconfig;
use olm_resolve::cluster::fleet::ClusterRecord;

use super::cluster::Cluster;
use crate::extension::access::ClusterArguments;
use crate::hint::Hint;
use crate::output::table::table;
use crate::output::{CommandResult, ObjectFormat, Status, resource_name};

#[derive(Debug, Args)]
#[command(
    after_help = "The document holds the ClusterExtensions with their specs and installed bundles, the ClusterCatalogs, the \
                  version of Kubernetes, the architectures of the nodes and the served kinds. It holds no configuration of \
                  extensions, no Secrets and no addresses of the cluster. The same state gives the same text.\n\nExamples:\n  olm \
                  inventory >east.yaml\n  olm inventory --context west --name west -o json >west.json\n  olm fleet plan \
                  samples=./catalog east.yaml west.json"
)]
pub(crate) struct Arguments {
    /// Name of the cluster in plans [default: its name in the kubeconfig]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// ClusterCatalogs of extensions that select none, comma-separated: the --default-catalogs of operator-controller
    #[arg(long, value_name = "CATALOGS", value_delimiter = ',')]
    default_catalogs: Vec<String>,
    /// Output format; `olm fleet plan` reads yaml and json
    #[arg(short, long, value_enum, default_value_t = ObjectFormat::Yaml)]
    output: ObjectFormat,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => called(&arguments.cluster).ok_or_else(|| {
            anyhow!("the kubeconfig does not name the cluster").context(Hint("set --name".to_owned()))
        })?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let record = runtime.block_on(async {
        let cluster = Cluster::reach(&arguments.cluster).await?;
        cluster.record(name, &arguments.default_catalogs).await
    })?;
    let names = record.extensions.iter();
    let names = names.map(|extension| resource_name("clusterextension", &extension.name));
    arguments.output.print(&record, names, || text(&record))?;
    Ok(Status::Success)
}

/// The extensions with their packages and installed versions.
fn text(record: &ClusterRecord) -> String {
    let rows: Vec<Vec<String>> = record
        .extensions
        .iter()
        .map(|extension| {
            let installed = extension.installed.as_ref();
            vec![
                extension.name.clone(),
                extension.catalog.package_name.clone(),
                installed.map_or_else(|| "-".to_owned(), |installed| installed.bundle.version.clone()),
            ]
        })
        .collect();
    table(&["NAME", "PACKAGE", "INSTALLED"], &rows)
}

/// The name of the cluster in the kubeconfig.
fn called(access: &ClusterArguments) -> Option<String> {
    let read = match &access.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let config = read.ok()?;
    let name = access.context.as_ref().or(config.current_context.as_ref())?;
    let mut contexts = config.contexts.iter();
    let context = contexts.find(|context| context.name == *name)?.context.as_ref()?;
    Some(context.cluster.clone()).filter(|name| !name.is_empty())
}
