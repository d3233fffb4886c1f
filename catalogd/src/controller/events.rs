//! What changed, as events of the ClusterCatalog.

use std::sync::Arc;

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use olm_api::names::field_manager;
use olm_api::{ClusterCatalog, conditions};

use super::report::Said;

/// The most bytes that the API server takes as an event's note.
const NOTE_BYTES: usize = 1000;

/// Tells what changed, to those who look at the object.
pub(crate) struct Events(Arc<Recorder>);

impl Events {
    /// Nothing is told yet; `instance` names this process among its replicas.
    pub(crate) fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter {
            controller: field_manager::CATALOGD.to_owned(),
            instance: Some(instance),
        };
        Self(Arc::new(Recorder::new(client, reporter)))
    }

    /// Tells it beside the work: an event that is lost costs nothing but itself.
    pub(super) fn publish(&self, catalog: &ClusterCatalog, said: Vec<Said>) {
        if said.is_empty() {
            return;
        }
        let (recorder, reference) = (Arc::clone(&self.0), catalog.object_ref(&()));
        tokio::spawn(async move {
            for Said {
                is_fault,
                reason,
                note,
            } in said
            {
                let event = Event {
                    type_: if is_fault {
                        EventType::Warning
                    } else {
                        EventType::Normal
                    },
                    reason,
                    note: Some(conditions::prefix(&note, NOTE_BYTES).to_owned()),
                    action: "Reconcile".to_owned(),
                    secondary: None,
                };
                if let Err(error) = recorder.publish(&event, &reference).await {
                    tracing::debug!(%error, "an event was not recorded");
                }
            }
        });
    }
}
