//! Writes statuses that others than this program never write.

use olm_classic::cluster::text;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use crate::base::Base;
use crate::objects::write::Actor;

/// Most attempts to write a status over a newer version of its object.
const ATTEMPTS: usize = 5;

/// Writes the status of an object. Where the rest of the object has changed meanwhile, that stays as it is: a status
/// that is lost would be worked out again from the objects that it has led to.
///
/// # Errors
/// The status was not written, or it is not known whether it was. [`FailureKind::MissingNamespace`] is none: the object
/// is gone.
pub async fn write_status(base: &Base, object: &Value) -> Result<(), RequestFailure> {
    let mut wanted = object.clone();
    for _ in 0..ATTEMPTS {
        match base.writer.write_status(&wanted).await {
            Ok(()) => return Ok(()),
            Err(failure) if failure.kind == FailureKind::MissingNamespace => return Ok(()),
            Err(failure) if failure.kind == FailureKind::Conflict => {}
            Err(failure) => return Err(failure),
        }
        let kind = (text(object, "/apiVersion"), text(object, "/kind"));
        let place = (
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        let live = base.writer.read(&Actor::Own, kind, place.0, place.1).await?;
        let same = live.filter(|live| text(live, "/metadata/uid") == text(object, "/metadata/uid"));
        let Some(mut live) = same else { return Ok(()) };
        if let (Some(fields), Some(status)) = (live.as_object_mut(), object.get("status")) {
            fields.insert("status".to_owned(), status.clone());
        }
        wanted = live;
    }
    Err(RequestFailure::new(
        FailureKind::Conflict,
        format!("{} changes all the time", text(object, "/metadata/name")),
    ))
}
