//! Writes PendingChanges with the controller's own rights.

use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, Error};
use olm_api::PendingChange;
use olm_api::names::{PENDING_CHANGE, field_manager};

use crate::extension::failure::{Severity, StageError};

/// A PendingChange could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {PENDING_CHANGE} {name:?}")]
pub(crate) struct ChangeError {
    what: &'static str,
    name: String,
    #[source]
    source: Error,
}

impl StageError for ChangeError {
    fn severity(&self) -> Severity {
        Severity::Transient
    }
}

fn failed(what: &'static str, change: &PendingChange) -> impl Fn(Error) -> ChangeError {
    let name = change.name().to_owned();
    move |source| ChangeError {
        what,
        name: name.clone(),
        source,
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(field_manager::OPERATOR_CONTROLLER.to_owned()),
        ..PostParams::default()
    }
}

/// Creates a PendingChange with its status. If the name is taken, the next run reads the existing one.
pub(crate) async fn offer(client: &Client, change: &PendingChange) -> Result<(), ChangeError> {
    let changes: Api<PendingChange> = Api::all(client.clone());
    match changes.create(&params(), change).await {
        Ok(mut made) => {
            tracing::info!(
                extension = change.spec.extension,
                change = change.name(),
                "a change waits for an approval"
            );
            made.status.clone_from(&change.status);
            record(client, &made).await
        }
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(failed("create", change)(error)),
    }
}

/// Writes the status of a PendingChange, if the object is unchanged since it was read. A changed one starts another
/// run.
pub(crate) async fn record(client: &Client, change: &PendingChange) -> Result<(), ChangeError> {
    let changes: Api<PendingChange> = Api::all(client.clone());
    match changes.replace_status(change.name(), &params(), change).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(failed("write the status of", change)(error)),
    }
}

/// Deletes a PendingChange as it was seen.
pub(crate) async fn remove(client: &Client, change: &PendingChange) -> Result<(), ChangeError> {
    let changes: Api<PendingChange> = Api::all(client.clone());
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: change.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match changes.delete(change.name(), &params).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(failed("delete", change)(error)),
    }
}
