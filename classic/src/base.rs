//! State that all three programs share.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Config;
use olm_classic::cluster::text;
use olm_cluster::discover::Discovery;
use olm_cluster::identity::AccountName;
use olm_platform::events::Events;
use olm_platform::metrics::Metrics;
use olm_platform::shutdown::Shutdown;
use serde_json::Value;

use crate::objects::kinds::Kind;
use crate::objects::store::Store;
use crate::objects::write::Writer;

/// Shared state of a program.
pub struct Base {
    /// The namespace of OLM classic.
    pub namespace: String,
    /// The address and credentials of the API server.
    pub config: Config,
    /// The followed objects.
    pub store: Arc<Store>,
    /// Writes objects.
    pub writer: Arc<Writer>,
    /// Records events.
    pub events: Events,
    /// The kinds that the cluster serves.
    pub discovery: Arc<Discovery>,
    /// The account for content where the OperatorGroup names none.
    pub account: Option<AccountName>,
    /// The number of objects that are worked on at once.
    pub concurrency: usize,
    /// The metrics.
    pub metrics: Metrics,
    /// The end of the program.
    pub shutdown: Shutdown,
}

impl Base {
    /// Follows these kinds until the process ends, and waits until their objects are listed.
    pub async fn follow(self: &Arc<Self>, kinds: &'static [Kind]) {
        let (base, stop) = (Arc::clone(self), self.shutdown.token());
        self.store.expect(kinds.len());
        self.shutdown.spawn("watches", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = base.store.follow(base.writer.own(), kinds) => {}
            }
        });
        let stop = self.shutdown.token();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.store.wait_until_listed() => {}
        }
    }
}

/// A reference to an object, for events about it.
pub fn reference(object: &Value) -> ObjectReference {
    let of = |pointer: &str| Some(text(object, pointer).to_owned()).filter(|text| !text.is_empty());
    ObjectReference {
        api_version: of("/apiVersion"),
        kind: of("/kind"),
        namespace: of("/metadata/namespace"),
        name: of("/metadata/name"),
        uid: of("/metadata/uid"),
        ..ObjectReference::default()
    }
}
