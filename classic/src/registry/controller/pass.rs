//! One pass over a CatalogSource: fetches and serves its catalog, and reports the result.

use std::sync::Arc;
use std::time::Duration;

use olm_classic::catalog_source::{Source, SourceKind, config_map_content, has_template};
use olm_classic::cluster::text;
use olm_classic::names;
use olm_platform::log::chain;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::config_map::{ConfigMapState, WatchedMap};
use super::context::Context;
use super::image::image;
use super::pod::pod;
use super::remote::Remote;
use super::report::{dialled, report, serve, serve_catalog, waking};
use super::state::{ServedCatalog, TrackedSource};
use crate::registry::Key;
use crate::registry::pull::CatalogImage;

/// The pause until the newer version of an object is here.
const STALE: Duration = Duration::from_millis(200);
/// The longest time until the version of Kubernetes is read again for the template of an image.
const TEMPLATE_TIME: Duration = Duration::from_mins(15);
/// The most faults of a ConfigMap in a message.
const MAX_FAULTS: usize = 5;

/// Works on a source.
pub(in crate::registry) async fn pass(context: &Arc<Context>, key: &Key) -> Outcome {
    let (namespace, name) = key;
    let cluster = context.base.store.snapshot();
    let found = cluster.get(names::CATALOG_SOURCE_KIND, namespace, name);
    context
        .metrics
        .count(cluster.of_kind(names::CATALOG_SOURCE_KIND).count());
    let Some(found) = found.filter(|found| text(found, "/metadata/deletionTimestamp").is_empty()) else {
        context.forget(key);
        return Outcome::Done;
    };
    let Some(object) = context.with_template(found).await else {
        return Outcome::Failed;
    };
    let uid = text(&object, "/metadata/uid").to_owned();
    context.sources.with(key, |source| {
        if source.uid != uid {
            *source = TrackedSource {
                uid,
                ..TrackedSource::default()
            };
        }
    });
    let kind = Source {
        object: &object,
        cluster: &cluster,
    }
    .source_kind();
    let map_name = text(&object, "/spec/configMap");
    let (mut around, mut followed_map) = (cluster.clone(), ConfigMapState::Nothing);
    if kind == Ok(SourceKind::ConfigMap) {
        followed_map = followed(context, key, map_name);
        if let ConfigMapState::Is(map) = &followed_map {
            around.insert(Arc::clone(map));
        }
    }
    let source = Source {
        object: &object,
        cluster: &around,
    };
    if kind == Ok(SourceKind::Image) && source.wants_pod() {
        let passed = pod(context, key, &source, found).await;
        return with_template_read(&object, passed.unwrap_or_else(|failure| failed(key, &failure)));
    }
    let outcome = match kind {
        Ok(SourceKind::Image) => image(context, key, &source).await,
        Ok(SourceKind::Address) => address(context, key, &source),
        Ok(SourceKind::ConfigMap) => config_map(context, key, map_name, followed_map.clone()).await,
        Err(_) => {
            context.sources.with(key, |source| {
                *source = TrackedSource {
                    uid: std::mem::take(&mut source.uid),
                    ..TrackedSource::default()
                };
            });
            Outcome::Done
        }
    };
    // The work may have taken long, and has written what is under way.
    let newer = context.base.store.snapshot();
    let Some(newest) = newer.get(names::CATALOG_SOURCE_KIND, namespace, name) else {
        return Outcome::Done;
    };
    if newest.get("spec") != found.get("spec") && newest.get("spec") != object.get("spec") {
        // Its change leads to another pass.
        return outcome;
    }
    let Some(object) = context.with_template(newest).await else {
        return Outcome::Failed;
    };
    let mut around = newer.clone();
    if let ConfigMapState::Is(map) = &followed_map {
        around.insert(Arc::clone(map));
    }
    let source = Source {
        object: &object,
        cluster: &around,
    };
    match report(context, key, &source, newest).await {
        Ok(()) => with_template_read(&object, outcome),
        Err(failure) => failed(key, &failure),
    }
}

/// The outcome of a pass over a source. Nothing announces a new version of Kubernetes, on which a template may depend.
fn with_template_read(source: &Value, outcome: Outcome) -> Outcome {
    if !has_template(source) {
        return outcome;
    }
    match outcome {
        Outcome::Done => Outcome::After(TEMPLATE_TIME),
        Outcome::After(pause) => Outcome::After(pause.min(TEMPLATE_TIME)),
        other => other,
    }
}

fn failed((namespace, name): &Key, failure: &RequestFailure) -> Outcome {
    if failure.kind == FailureKind::Conflict {
        return Outcome::After(STALE);
    }
    tracing::warn!(
        namespace,
        name,
        error = failure.message,
        "cannot report on a CatalogSource"
    );
    Outcome::Failed
}

/// Keeps the connection to a registry elsewhere.
fn address(context: &Arc<Context>, key: &Key, source: &Source<'_>) -> Outcome {
    let target = source.target();
    context.sources.with(key, |source| {
        source.serve_nothing();
        if source
            .remote
            .as_ref()
            .is_some_and(|remote| remote.target == target)
        {
            return;
        }
        source.remote = Some(Arc::new(Remote::open(
            target,
            context.trust.clone(),
            dialled(context, key),
        )));
    });
    Outcome::Done
}

/// The state of the ConfigMap of a source. The program follows it from now on.
fn followed(context: &Arc<Context>, key: &Key, name: &str) -> ConfigMapState {
    context.sources.with(key, |source| {
        source.remote = None;
        if source.map.as_ref().is_none_or(|map| map.name != name) {
            let client = context.base.writer.own().clone();
            source.serve_nothing();
            let map = WatchedMap::open(client, &key.0, name, waking(context, key));
            source.map = Some(map);
        }
        source.map.as_ref().map(WatchedMap::known).unwrap_or_default()
    })
}

/// Serves the content of a ConfigMap.
async fn config_map(context: &Context, key: &Key, name: &str, known: ConfigMapState) -> Outcome {
    let fail = |fault: String| context.sources.with(key, |source| source.fault = Some(fault));
    if let Err(error) = serve(context, key).await {
        fail(format!("cannot open a port for the registry: {error}"));
        return Outcome::Failed;
    }
    let map = match known {
        ConfigMapState::Nothing => return Outcome::Done,
        ConfigMapState::Missing => {
            fail(format!(
                "failed to get catalog config map {name}: configmaps \"{name}\" not found"
            ));
            return Outcome::Done;
        }
        ConfigMapState::Is(map) => map,
    };
    let found = config_map_content(&map);
    let stored = stored_name(&found.blobs);
    let faults: Vec<&str> = found.faults.iter().map(String::as_str).take(MAX_FAULTS).collect();
    let fault = (!faults.is_empty()).then(|| {
        format!(
            "cannot read all of catalog config map {name}: {}",
            faults.join("; ")
        )
    });
    let is_current = context.sources.with(key, |source| {
        source.fault = fault;
        source.served.as_ref().is_some_and(|served| served.name == stored)
    });
    let Some(contents) = context.contents().filter(|_| !is_current) else {
        return Outcome::Done;
    };
    match contents.put(&stored, found.blobs).await {
        Ok(catalog) => {
            let served = ServedCatalog {
                wanted: CatalogImage::default(),
                secrets: Vec::new(),
                content: catalog,
                name: stored,
                accepted_by: None,
            };
            serve_catalog(context, key, served);
            Outcome::Done
        }
        Err(error) => {
            fail(format!(
                "cannot serve catalog config map {name}: {}",
                chain(&error)
            ));
            Outcome::Failed
        }
    }
}

/// The name of a ConfigMap's content in the store.
fn stored_name(blobs: &[Value]) -> String {
    let mut hash = Sha256::new();
    for blob in blobs {
        hash.update(blob.to_string());
    }
    format!("configmap-{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_with_a_template_is_worked_on_at_least_every_quarter_of_an_hour() {
        let templated =
            json!({"metadata": {"annotations": {"olm.catalogImageTemplate": "i:{kube_minor_version}"}}});
        let pause = |minutes| Outcome::After(Duration::from_mins(minutes));
        for (outcome, expected) in [
            (Outcome::Done, pause(15)),
            (pause(60), pause(15)),
            (pause(2), pause(2)),
            (Outcome::Failed, Outcome::Failed),
        ] {
            assert_eq!(with_template_read(&templated, outcome), expected);
            assert_eq!(with_template_read(&json!({}), outcome), outcome);
        }
    }
}
