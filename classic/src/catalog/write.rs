//! Writes statuses of objects that no other program writes.

use std::borrow::Cow;

use olm_classic::cluster::text;
use olm_classic::names;
use olm_classic::subscription::keep_migration;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use crate::base::Base;
use crate::objects::write::Actor;

/// Most attempts to write a status over a newer version of its object.
const ATTEMPTS: usize = 5;

/// Writes the status of an object. Where the rest of the object has changed meanwhile, that stays as it is: a status
/// that is lost would be worked out again from the objects that it has led to. The condition of a Subscription about
/// its move stays, too: moves write it.
///
/// # Errors
/// As [`update_status`].
pub async fn write_status(base: &Base, object: &Value) -> Result<(), RequestFailure> {
    let written = update_status(base, object, |live| Some(with_status_of(object, live)));
    written.await.map(drop)
}

/// Changes the status of an object. `change` returns the object as it must be; `None` if it is so already. When another
/// client has written the object first, `change` gets the live one. Returns the written object, if any.
///
/// # Errors
/// The status was not written, or it is not known whether it was. [`FailureKind::MissingNamespace`] is none: the object
/// is gone.
pub async fn update_status(
    base: &Base,
    object: &Value,
    change: impl Fn(&Value) -> Option<Value> + Send,
) -> Result<Option<Value>, RequestFailure> {
    let mut current = Cow::Borrowed(object);
    for _ in 0..ATTEMPTS {
        let Some(wanted) = change(&current) else {
            return Ok(None);
        };
        match base.writer.write_status(&wanted).await {
            Ok(()) => return Ok(Some(wanted)),
            Err(failure) if failure.kind == FailureKind::MissingNamespace => return Ok(None),
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
        let Some(live) = same else { return Ok(None) };
        current = Cow::Owned(live);
    }
    Err(RequestFailure::new(
        FailureKind::Conflict,
        format!("{} keeps changing", text(object, "/metadata/name")),
    ))
}

/// The live object with the status of `object`.
fn with_status_of(object: &Value, live: &Value) -> Value {
    let mut wanted = live.clone();
    if let (Some(fields), Some(status)) = (wanted.as_object_mut(), object.get("status")) {
        fields.insert("status".to_owned(), status.clone());
    }
    if text(object, "/kind") == names::SUBSCRIPTION_KIND {
        keep_migration(&mut wanted, live);
    }
    wanted
}
