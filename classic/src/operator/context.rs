//! State that the controllers share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use olm_classic::cluster::{Cluster, Discovery, text};
use olm_classic::csv::ClusterServiceVersion;
use olm_cluster::apply::classify;
use olm_platform::events::Notice;
use olm_platform::fresh::Fresh;
use olm_platform::queue::Queue;
use olm_rollout::failure::RequestFailure;
use serde_json::Value;

use super::copy_index::CopyIndex;
use super::grace::Unready;
use super::metrics::Metrics;
use super::work::{Name, Work};
use crate::args::OperatorArgs;
use crate::base::Base;
use crate::objects::account::account;
use crate::objects::write::{Actor, Writer};

/// Greatest age of the known version of the API server.
const VERSION_AGE: Duration = Duration::from_mins(1);

/// Shared state of the controllers.
pub struct Context {
    /// The shared state of the program.
    pub base: Arc<Base>,
    /// The pending work.
    pub queue: Queue<Work>,
    /// The metrics.
    pub metrics: Metrics,
    /// Namespaces that keep copies where copies are switched off.
    pub protected: BTreeSet<String>,
    /// The copies of ClusterServiceVersions.
    pub copies: Arc<CopyIndex>,
    /// Operators of which an event says that they are not copied; nothing until the events are listed.
    pub reported: tokio::sync::Mutex<Option<BTreeSet<Name>>>,
    /// Operators that were healthy and do not run for the moment.
    pub unready: Unready,
    version: Fresh<String>,
}

impl Context {
    /// Nothing to do yet.
    pub fn new(base: Arc<Base>, args: OperatorArgs) -> Self {
        let queue = Queue::default();
        queue.report_to(&base.metrics, "olm-operator");
        let protected = args.protected_copied_csv_namespaces.into_iter();
        Self {
            metrics: Metrics::register(&base.metrics),
            queue,
            protected: protected.filter(|name| !name.is_empty()).collect(),
            copies: Arc::default(),
            reported: tokio::sync::Mutex::default(),
            unready: Unready::default(),
            version: Fresh::new(VERSION_AGE),
            base,
        }
    }

    /// The followed objects, as of now.
    pub fn snapshot(&self) -> Cluster {
        self.base.store.snapshot()
    }

    /// Writes objects.
    pub fn writer(&self) -> &Writer {
        &self.base.writer
    }

    /// The account for content of a namespace.
    ///
    /// # Errors
    /// A message that no account is configured.
    pub fn account(&self, cluster: &Cluster, namespace: &str) -> Result<Actor, String> {
        account(cluster, namespace, self.base.account.as_ref()).map_err(|error| error.to_string())
    }

    /// Records events about an object.
    pub fn publish(&self, object: &Value, notices: Vec<Notice>) {
        let field = |pointer: &str| Some(text(object, pointer).to_owned()).filter(|field| !field.is_empty());
        let reference = ObjectReference {
            api_version: field("/apiVersion"),
            kind: field("/kind"),
            name: field("/metadata/name"),
            namespace: field("/metadata/namespace"),
            uid: field("/metadata/uid"),
            resource_version: field("/metadata/resourceVersion"),
            ..ObjectReference::default()
        };
        self.base.events.publish(reference, notices);
    }

    /// The served ones among the kinds that a ClusterServiceVersion names. Nothing is requested where it names none.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn discovery(&self, csv: &ClusterServiceVersion) -> Result<Discovery, RequestFailure> {
        let services = &csv.spec.api_service_definitions;
        let apis = services
            .owned
            .iter()
            .chain(&services.required)
            .chain(&csv.spec.native_apis);
        let mut discovery = Discovery::default();
        for api in apis {
            let (group, version, kind) = (api.group.as_str(), api.version.as_str(), api.kind.as_str());
            match self.base.discovery.find(group, version, kind).await {
                Ok(Some(_)) => discovery.note(group, version, Some(kind)),
                Ok(None) if self.base.discovery.has_version(group, version) => {
                    discovery.note(group, version, None);
                }
                Ok(None) => {}
                Err(kube::Error::Api(status)) if status.code == 503 => {
                    discovery.note_unavailable(group, version);
                }
                Err(error) => return Err(classify(&error)),
            }
        }
        Ok(discovery)
    }

    /// The version of the API server, where a ClusterServiceVersion asks for one.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn server_version(
        &self,
        csv: &ClusterServiceVersion,
    ) -> Result<Option<String>, RequestFailure> {
        if csv.spec.min_kube_version.is_empty() {
            return Ok(None);
        }
        let own = self.writer().own();
        let read = async || own.apiserver_version().await.map(|info| info.git_version);
        let version = self.version.get_or(read).await;
        version.map(Some).map_err(|error| classify(&error))
    }
}

/// The time as statuses have it.
pub fn written_time(now: Timestamp) -> String {
    format!("{now:.0}")
}
