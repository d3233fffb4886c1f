//! Copies of ClusterServiceVersions in the namespaces that their OperatorGroups select.
//!
//! Of a copy only its metadata is followed, and the hashes of what it held when it was last read or written are kept.
//! One that others have changed is read again.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _, stream};
use olm_classic::cluster::{Cluster, text};
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::names;
use olm_classic::operator_group::copies::{
    Copy, CopyNamespaces, CopySwitch, copy_namespaces, copy_of, hashes,
};
use olm_cluster::apply::Target;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use olm_rollout::ownership::Guard;
use serde_json::{Value, json};

use super::config::{is_switched_off, is_uncopied};
use super::context::Context;
use super::copy_events;
use super::copy_index::CopyRecord;
use super::group::after;
use super::work::{Name, Work};
use crate::objects::kinds;

/// Copies of one original that are worked on at once.
const AT_ONCE: usize = 8;

/// Brings the copies of a ClusterServiceVersion up to date.
pub async fn reconcile(context: &Arc<Context>, name: &Name) -> Outcome {
    let cluster = context.snapshot();
    let records = context.copies.of(name);
    let original = cluster.get(names::CSV_KIND, &name.namespace, &name.name);
    let copied = original.and_then(|original| {
        let csv = ClusterServiceVersion::read(original).ok()?;
        (!csv.is_copy()).then_some((original, csv))
    });
    let (wanted, copy) = match &copied {
        Some((original, csv)) => match wanted(context, csv, &cluster) {
            CopyNamespaces::Kept => return Outcome::Done,
            CopyNamespaces::These(wanted) if wanted.is_empty() => (wanted, None),
            CopyNamespaces::These(wanted) => (wanted, Some(copy_of(original))),
        },
        // It is gone, or was never one of ours.
        None => (BTreeSet::new(), None),
    };
    let mut changes = Vec::new();
    for namespace in &wanted {
        if let Some(copy) = &copy
            && !records.get(namespace).is_some_and(|record| record.holds(copy))
        {
            changes.push(write(context, name, copy, namespace, records.get(namespace)).boxed());
        }
    }
    for (namespace, record) in &records {
        if !wanted.contains(namespace) {
            changes.push(remove(context, name, namespace, record).boxed());
        }
    }
    let results: Vec<Result<(), RequestFailure>> =
        stream::iter(changes).buffer_unordered(AT_ONCE).collect().await;
    let reported = if let Some((original, csv)) = &copied {
        copy_events::report(context, original, is_uncopied(csv, &cluster)).await
    } else {
        copy_events::forget(context, name).await;
        Ok(())
    };
    for config in cluster.of_kind("OLMConfig") {
        let config = text(config, "/metadata/name").to_owned();
        context.queue.add_patiently(Work::Config(config));
    }
    match results.into_iter().chain([reported]).find_map(Result::err) {
        None => Outcome::Done,
        Some(failure) => after("copies of ClusterServiceVersion", &name.to_string(), &failure),
    }
}

/// The namespaces that have a copy.
fn wanted(context: &Context, csv: &ClusterServiceVersion, cluster: &Cluster) -> CopyNamespaces {
    let switch = if is_switched_off(cluster) {
        CopySwitch::Off(&context.protected)
    } else {
        CopySwitch::On
    };
    copy_namespaces(csv, cluster, switch)
}

/// Creates a copy, or writes what of it differs.
async fn write(
    context: &Context,
    name: &Name,
    copy: &Copy,
    namespace: &str,
    record: Option<&CopyRecord>,
) -> Result<(), RequestFailure> {
    let resource = kinds::CSV.resource();
    let target = Target {
        client: context.writer().own(),
        resource: &resource,
        namespace,
        name: &name.name,
    };
    let mut wanted = copy.object.clone();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    if let Some(record) = record.filter(|record| record.has_content(copy)) {
        // Only the status differs; it is written on the version that was last seen.
        let live = json!({"metadata": {"uid": record.uid, "resourceVersion": record.resource_version}});
        let written = target.replace_status(&on_version(&wanted, &live)).await?;
        context.copies.record(name, namespace, &written);
        return Ok(());
    }
    let found = target.read().await?;
    let mut live = match found {
        None => match target.create(&wanted).await {
            Ok(created) => created,
            // The namespace is going, or gone.
            Err(failure) if failure.kind == FailureKind::MissingNamespace => return Ok(()),
            Err(failure) => return Err(failure),
        },
        Some(found) if text(&found, "/metadata/labels/olm.copiedFrom") != name.namespace => {
            tracing::warn!(%name, namespace, "cannot copy ClusterServiceVersion: another one with that name exists");
            return Ok(());
        }
        Some(found) if !text(&found, "/metadata/deletionTimestamp").is_empty() => return Ok(()),
        Some(found) => found,
    };
    let [held, _] = hashes(&live);
    if held != copy.content_hash {
        live = target.replace_object(&on_version(&wanted, &live)).await?;
    }
    let [_, held] = hashes(&live);
    if held != copy.status_hash {
        live = target.replace_status(&on_version(&wanted, &live)).await?;
    }
    context.copies.record(name, namespace, &live);
    Ok(())
}

/// The wanted copy on the version of the live one.
fn on_version(wanted: &Value, live: &Value) -> Value {
    let mut body = wanted.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["resourceVersion", "uid"] {
            if let Some(value) = live.pointer(&format!("/metadata/{key}")) {
                metadata.insert(key.to_owned(), value.clone());
            }
        }
    }
    body
}

async fn remove(
    context: &Context,
    name: &Name,
    namespace: &str,
    record: &CopyRecord,
) -> Result<(), RequestFailure> {
    let resource = kinds::CSV.resource();
    let target = Target {
        client: context.writer().own(),
        resource: &resource,
        namespace,
        name: &name.name,
    };
    let guard = Guard::Seen {
        uid: record.uid.clone(),
        resource_version: record.resource_version.clone(),
    };
    target.delete(&guard).await?;
    context.copies.forget(name, namespace);
    Ok(())
}
