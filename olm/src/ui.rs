//! `olm ui`: pages about the extensions of a cluster, for the user who runs the command.

mod pages;
mod read;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::net::TcpListener;

use self::read::Backend;
use self::serve::Site;
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::Cluster;
use crate::hint::Hint;
use crate::output::{CommandResult, Status, print};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
#[command(
    after_help = "The pages show the extensions of the cluster with their state, what each waits for, its plan, its history and \
                  its events, and the commands that change something. They change nothing themselves. The cluster is asked with \
                  the rights of the kubeconfig.\n\nThe printed address holds a key: without it, other users of this machine \
                  and pages of other sites see nothing.\n\nExamples:\n  olm ui\n  olm ui --context production --addr \
                  127.0.0.1:9000"
)]
pub(crate) struct Arguments {
    /// Loopback address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    addr: SocketAddr,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    if !arguments.addr.ip().is_loopback() {
        let error = anyhow!("{} is not a loopback address", arguments.addr);
        return Err(error.context(Hint(
            "the pages show what your kubeconfig may read: listen on 127.0.0.1 or [::1]".to_owned(),
        )));
    }
    // A kubeconfig that leads nowhere is an error at once.
    let server = Cluster::reach(&arguments.cluster)?.config.cluster_url.to_string();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.addr)
            .await
            .with_context(|| format!("cannot listen on {}", arguments.addr))?;
        let address = listener.local_addr()?;
        let reach = Backend {
            server,
            cluster: arguments.cluster.clone(),
            registry: arguments.registry.clone(),
        };
        let site = Site::new(address, reach)?;
        print(&format!("to browse: {}\n", site.entrance()))?;
        serve::serve(listener, Arc::new(site)).await
    })?;
    Ok(Status::Success)
}
