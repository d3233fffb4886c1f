//! Events that say of an operator that it is not copied: one for each, until copies are switched on again.

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_classic::names;
use olm_cluster::apply::classify;
use olm_platform::events::Notice;
use olm_rollout::failure::RequestFailure;
use serde_json::Value;

use super::context::Context;
use super::work::Name;

/// The reason of the events.
const REASON: &str = "DisabledCopiedCSVs";

/// Publishes that an operator is not copied, where no event says so yet; deletes the events about one that is copied.
///
/// # Errors
/// The events could not be listed or deleted.
pub async fn report(context: &Context, original: &Value, is_uncopied: bool) -> Result<(), RequestFailure> {
    let name = Name::of(original);
    let mut reported = context.reported.lock().await;
    if reported.is_none() {
        // One request for all operators, and only in the first pass.
        *reported = Some(listed(context).await?);
    }
    let reported = reported.get_or_insert_default();
    if !is_uncopied {
        if reported.contains(&name) {
            delete(context, &name).await?;
            reported.remove(&name);
        }
    } else if reported.insert(name.clone()) {
        let notice = Notice {
            is_fault: true,
            reason: REASON.to_owned(),
            note: format!("CSV copying disabled for {name}"),
        };
        context.publish(original, vec![notice]);
    }
    Ok(())
}

/// Forgets an operator that is gone. Its events expire.
pub async fn forget(context: &Context, name: &Name) {
    if let Some(reported) = context.reported.lock().await.as_mut() {
        reported.remove(name);
    }
}

/// The operators about which there is such an event.
async fn listed(context: &Context) -> Result<BTreeSet<Name>, RequestFailure> {
    let events: Api<Event> = Api::all(context.writer().own().clone());
    let selected = ListParams::default().fields(&format!("reason={REASON}"));
    let found = events.list(&selected).await.map_err(|error| classify(&error))?;
    let about = found.items.into_iter().filter_map(|event| event.regarding);
    let about = about.filter(|object| object.kind.as_deref() == Some(names::CSV_KIND));
    Ok(about
        .map(|object| Name {
            namespace: object.namespace.unwrap_or_default(),
            name: object.name.unwrap_or_default(),
        })
        .collect())
}

/// Deletes the events about an operator.
async fn delete(context: &Context, name: &Name) -> Result<(), RequestFailure> {
    let events: Api<Event> = Api::namespaced(context.writer().own().clone(), &name.namespace);
    let about = format!(
        "reason={REASON},regarding.kind={},regarding.name={}",
        names::CSV_KIND,
        name.name
    );
    let selected = ListParams::default().fields(&about);
    let found = events.list(&selected).await.map_err(|error| classify(&error))?;
    for event in found
        .items
        .iter()
        .filter_map(|event| event.metadata.name.as_deref())
    {
        match events.delete(event, &DeleteParams::default()).await {
            Ok(_) => {}
            // It has expired.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(classify(&error)),
        }
    }
    Ok(())
}
