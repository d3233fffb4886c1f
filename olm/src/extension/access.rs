//! The selection of the cluster on the command line.

use anyhow::anyhow;
use clap::Args;
use kube::config::Kubeconfig;
use kube::{Config, Error};

use crate::hint::Hint;

/// The hint for a cluster without our kinds.
pub(crate) const NO_OLM: &str = "the cluster does not serve ClusterExtensions: install OLM first";

/// The error if objects of ours cannot be listed; `what` describes them.
pub(crate) fn unlisted(error: Error, what: &str) -> anyhow::Error {
    unserved(anyhow!(error).context(format!("cannot list {what}")))
}

/// An error with a hint if the cluster does not serve our kinds.
pub(crate) fn unserved(error: anyhow::Error) -> anyhow::Error {
    let is_unknown = matches!(error.downcast_ref(), Some(Error::Api(status)) if status.code == 404);
    if is_unknown {
        return error.context(Hint(NO_OLM.to_owned()));
    }
    error
}

/// The selection of the cluster.
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
    /// The address of the API server, and the credentials.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let config = olm_platform::client::config_in(kubeconfig, context, "olm").await;
        config.map_err(|error| match self.unknown_context() {
            Some(hint) => anyhow!(error).context(hint),
            None => error.into(),
        })
    }

    /// The hint that the kubeconfig has no context of the wanted name.
    fn unknown_context(&self) -> Option<Hint> {
        let wanted = self.context.as_ref()?;
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let contexts = read.ok()?.contexts;
        let names: Vec<&str> = contexts.iter().map(|context| context.name.as_str()).collect();
        if names.is_empty() {
            return Some(Hint("it has no contexts".to_owned()));
        }
        (!names.contains(&wanted.as_str())).then(|| Hint(format!("its contexts are {}", names.join(", "))))
    }
}
