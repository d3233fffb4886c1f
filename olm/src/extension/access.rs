//! Which cluster is meant, on the command line.

use clap::Args;
use kube::Config;

/// Which cluster is meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArguments {
    /// Path to the kubeconfig file [default: $KUBECONFIG, then that of kubectl]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl ClusterArguments {
    /// How the API server is reached, and as whom.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        Ok(olm_platform::client::config_in(kubeconfig, context, "olm").await?)
    }
}
