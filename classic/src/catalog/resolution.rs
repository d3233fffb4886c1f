//! Resolves namespaces, each again only when something has changed that counts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Instant;

use olm_classic::cluster::{Cluster, annotation, items, text};
use olm_classic::names;
use olm_classic::resolve::{CatalogContent, EntryIndex, Request, Resolved, resolve_available};
use olm_classic::subscription::ResolveError;
use parking_lot::Mutex;
use serde_json::Value;

use super::metrics::CatalogMetrics;

/// Result of the resolution of a namespace.
pub type ResolutionResult = Arc<Result<Resolved, ResolveError>>;

/// The last resolution of a namespace.
struct CachedResolution {
    /// A hash of its input.
    hash: u64,
    /// The entries of the catalogs, so that none takes the place of another in memory.
    _catalogs: Vec<Weak<EntryIndex>>,
    result: ResolutionResult,
}

/// The last resolution of each namespace.
#[derive(Default)]
pub struct Resolutions {
    known: Mutex<BTreeMap<String, CachedResolution>>,
}

impl Resolutions {
    /// Resolves a namespace with these Subscriptions.
    pub async fn resolve(
        &self,
        namespace: &str,
        global: &str,
        cluster: &Cluster,
        subscriptions: &[Value],
        catalogs: Arc<Vec<CatalogContent>>,
        metrics: &CatalogMetrics,
    ) -> ResolutionResult {
        let hash = fingerprint(namespace, cluster, subscriptions, &catalogs);
        if let Some(known) = self.known.lock().get(namespace)
            && known.hash == hash
        {
            return Arc::clone(&known.result);
        }
        let began = Instant::now();
        let (cluster, subscriptions) = (cluster.clone(), subscriptions.to_vec());
        let (place, global, visible) = (namespace.to_owned(), global.to_owned(), Arc::clone(&catalogs));
        let work = tokio::task::spawn_blocking(move || {
            let request = Request {
                namespace: &place,
                global_namespace: &global,
                operator_groups: cluster.in_namespace(names::OPERATOR_GROUP_KIND, &place).collect(),
                catalogs: &visible,
                subscriptions: subscriptions.iter().collect(),
                csvs: cluster.in_namespace(names::CSV_KIND, &place).collect(),
            };
            resolve_available(&request)
        });
        let result = match work.await {
            Ok(result) => Arc::new(result),
            // Not kept: it is made anew.
            Err(_) => {
                return Arc::new(Err(ResolveError::Other(
                    "the resolution was interrupted".to_owned(),
                )));
            }
        };
        let is_resolved = (*result)
            .as_ref()
            .is_ok_and(|resolved| resolved.resolution.refused.is_empty());
        metrics.resolved(is_resolved, began.elapsed());
        let indices = catalogs
            .iter()
            .filter_map(|catalog| catalog.content.as_ref().ok());
        let known = CachedResolution {
            hash,
            _catalogs: indices.map(Arc::downgrade).collect(),
            result: Arc::clone(&result),
        };
        self.known.lock().insert(namespace.to_owned(), known);
        result
    }

    /// Forgets a namespace without Subscriptions.
    pub fn forget(&self, namespace: &str) {
        self.known.lock().remove(namespace);
    }
}

/// A hash of all that a resolution reads.
fn fingerprint(
    namespace: &str,
    cluster: &Cluster,
    subscriptions: &[Value],
    catalogs: &[CatalogContent],
) -> u64 {
    let mut hasher = DefaultHasher::new();
    for catalog in catalogs {
        (&catalog.namespace, &catalog.name, catalog.priority).hash(&mut hasher);
        match &catalog.content {
            Ok(content) => Arc::as_ptr(content).hash(&mut hasher),
            Err(error) => error.hash(&mut hasher),
        }
    }
    for group in cluster.in_namespace(names::OPERATOR_GROUP_KIND, namespace) {
        parts(group, &["/metadata/uid", "/spec/upgradeStrategy"], &mut hasher);
        let annotations = group.pointer("/metadata/annotations").map(Value::to_string);
        annotations.hash(&mut hasher);
    }
    for csv in cluster.in_namespace(names::CSV_KIND, namespace) {
        parts(
            csv,
            &["/metadata/name", "/metadata/uid", "/status/phase"],
            &mut hasher,
        );
        let generation = csv.pointer("/metadata/generation").and_then(Value::as_i64);
        let properties = annotation(csv, names::PROPERTIES_ANNOTATION);
        (generation, properties).hash(&mut hasher);
    }
    for subscription in subscriptions {
        let pointers = [
            "/metadata/name",
            "/metadata/uid",
            "/status/installedCSV",
            "/status/currentCSV",
        ];
        parts(subscription, &pointers, &mut hasher);
        let spec = subscription.get("spec").map(Value::to_string);
        (spec, items(subscription, "/metadata/ownerReferences").count()).hash(&mut hasher);
    }
    hasher.finish()
}

fn parts(object: &Value, pointers: &[&str], hasher: &mut DefaultHasher) {
    for pointer in pointers {
        text(object, pointer).hash(hasher);
    }
}
