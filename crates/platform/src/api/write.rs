//! Parameters of writes, and refusals that a controller expects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Error;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};

/// Parameters that create or replace an object as a field manager.
pub fn created_by(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters that patch an object as a field manager.
pub fn patched_by(manager: &str) -> PatchParams {
    PatchParams::apply(manager)
}

/// Parameters that delete the object only as it was seen.
pub fn as_seen(metadata: &ObjectMeta) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    }
}

/// The answer; `None` if the API server refuses with one of these status codes.
///
/// # Errors
/// Another error of the request.
pub fn unless<T>(codes: &[u16], answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Api(status)) if codes.contains(&status.code) => Ok(None),
        Err(error) => Err(error),
    }
}
