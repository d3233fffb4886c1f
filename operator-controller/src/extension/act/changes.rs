//! Writes PendingChanges with the controller's own rights.

use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, Error};
use olm_api::PendingChange;
use olm_api::names::{PENDING_CHANGE, field_manager};
use olm_platform::write::{created_by, unless};

use crate::extension::failure::{self, RequestError};

fn failed(what: &str, change: &PendingChange) -> impl FnOnce(Error) -> RequestError + use<> {
    failure::failed(format!("cannot {what} {PENDING_CHANGE} {:?}", change.name()))
}

fn params() -> PostParams {
    created_by(field_manager::OPERATOR_CONTROLLER)
}

/// Creates a PendingChange with its status. If the name is taken, the next run reads the existing one.
pub(crate) async fn offer(client: &Client, change: &PendingChange) -> Result<(), RequestError> {
    let changes: Api<PendingChange> = Api::all(client.clone());
    let created = unless(&[409], changes.create(&params(), change).await);
    let Some(mut made) = created.map_err(failed("create", change))? else {
        return Ok(());
    };
    tracing::info!(
        extension = change.spec.extension,
        change = change.name(),
        "a change waits for an approval"
    );
    made.status.clone_from(&change.status);
    record(client, &made).await
}

/// Writes the status of a PendingChange, if the object is unchanged since it was read. A changed one starts another
/// run.
pub(crate) async fn record(client: &Client, change: &PendingChange) -> Result<(), RequestError> {
    let changes: Api<PendingChange> = Api::all(client.clone());
    let written = changes.replace_status(change.name(), &params(), change).await;
    let written = unless(&[404, 409], written).map(drop);
    written.map_err(failed("write the status of", change))
}

/// Deletes a PendingChange as it was seen.
pub(crate) async fn remove(client: &Client, change: &PendingChange) -> Result<(), RequestError> {
    let changes: Api<PendingChange> = Api::all(client.clone());
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: change.metadata.uid.clone(),
        resource_version: None,
    });
    let deleted = unless(&[404, 409], changes.delete(change.name(), &params).await).map(drop);
    deleted.map_err(failed("delete", change))
}
