//! What changed, as events of an object, for those who look at it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// The most bytes that the API server takes as an event's note.
const NOTE_BYTES: usize = 1000;

/// One line for an object's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Whether it is a warning.
    pub is_fault: bool,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub note: String,
}

/// How often it is tried to tell something.
const ATTEMPTS: usize = 3;
/// How long until it is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// Different notes beyond which one that comes again is a new event.
const MAX_NOTES: usize = 500;

/// Tells what changed.
pub struct Events {
    client: Client,
    reporter: Reporter,
    /// One for each note as it is told: a recorder takes events of the same reason for one, and keeps the note of the first.
    recorders: Mutex<HashMap<String, Arc<Recorder>>>,
}

impl Events {
    /// Nothing is told yet; `controller` is who tells, `instance` names this process among its replicas.
    pub fn new(client: Client, controller: &str, instance: String) -> Self {
        Self {
            client,
            reporter: Reporter {
                controller: controller.to_owned(),
                instance: Some(instance),
            },
            recorders: Mutex::default(),
        }
    }

    fn recorder(&self, event: &Event) -> Arc<Recorder> {
        let note = event.note.clone().unwrap_or_default();
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        if recorders.len() >= MAX_NOTES {
            recorders.clear();
        }
        let new = || Arc::new(Recorder::new(self.client.clone(), self.reporter.clone()));
        Arc::clone(recorders.entry(note).or_insert_with(new))
    }

    /// Tells it beside the work: an event that is lost costs nothing but itself.
    pub fn publish(&self, object: ObjectReference, said: Vec<Said>) {
        if said.is_empty() {
            return;
        }
        let said: Vec<_> = said
            .into_iter()
            .map(event)
            .map(|event| (self.recorder(&event), event))
            .collect();
        tokio::spawn(async move {
            for (recorder, event) in said {
                let mut attempts = 1;
                while let Err(error) = recorder.publish(&event, &object).await {
                    if attempts == ATTEMPTS {
                        tracing::warn!(%error, reason = event.reason, "an event was not recorded");
                        break;
                    }
                    attempts += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
    }
}

fn event(said: Said) -> Event {
    let Said {
        is_fault,
        reason,
        mut note,
    } = said;
    note.truncate(note.floor_char_boundary(NOTE_BYTES));
    Event {
        type_: if is_fault {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason,
        note: Some(note),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_as_long_as_the_api_server_takes_it() {
        let said = Said {
            is_fault: true,
            reason: "Blocked".to_owned(),
            note: "ä".repeat(NOTE_BYTES),
        };
        assert_eq!(event(said).note.unwrap().len(), NOTE_BYTES);
    }

    #[test]
    fn notes_that_differ_beyond_what_is_told_are_one() {
        let note = |end: &str| {
            let said = Said {
                is_fault: true,
                reason: "Blocked".to_owned(),
                note: format!("{}{end}", "x".repeat(NOTE_BYTES)),
            };
            event(said).note
        };
        assert_eq!(note("1"), note("2"));
    }
}
