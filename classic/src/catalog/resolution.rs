//! Resolves namespaces, each again only when something has changed that counts.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Instant;

use olm_classic::cluster::{Cluster, annotation, items, text};
use olm_classic::names;
use olm_classic::resolve::{
    BundleName, CatalogContent, EntryIndex, Request, Resolved, resolve_available, without_bundles,
};
use olm_classic::subscription::ResolveError;
use parking_lot::Mutex;
use serde_json::Value;

use super::metrics::CatalogMetrics;

/// Result of the resolution of a namespace.
pub type ResolutionResult = Arc<Result<Resolved, ResolveError>>;

/// Input of the resolution of a namespace.
#[derive(Clone)]
pub struct ResolutionInput<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The namespace whose catalogs are visible everywhere.
    pub global: &'a str,
    /// The OperatorGroups and ClusterServiceVersions.
    pub cluster: &'a Cluster,
    /// The Subscriptions.
    pub subscriptions: &'a [Value],
    /// The visible catalogs.
    pub catalogs: Arc<Vec<CatalogContent>>,
}

impl ResolutionInput<'_> {
    /// Works on the request in a thread of its own; `None` where that was interrupted.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Request<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (cluster, subscriptions) = (self.cluster.clone(), self.subscriptions.to_vec());
        let (place, global) = (self.namespace.to_owned(), self.global.to_owned());
        let visible = Arc::clone(&self.catalogs);
        let working = tokio::task::spawn_blocking(move || {
            work(&Request {
                namespace: &place,
                global_namespace: &global,
                operator_groups: cluster.in_namespace(names::OPERATOR_GROUP_KIND, &place).collect(),
                catalogs: &visible,
                subscriptions: subscriptions.iter().collect(),
                csvs: cluster.in_namespace(names::CSV_KIND, &place).collect(),
            })
        });
        working.await.ok()
    }
}

/// The last resolution without bundles that cannot be unpacked.
struct ReducedResolution {
    failed: BTreeSet<BundleName>,
    result: Arc<Option<Resolved>>,
}

/// The last resolution of a namespace.
struct CachedResolution {
    /// A hash of its input.
    hash: u64,
    /// The entries of the catalogs, so that none takes the place of another in memory.
    _catalogs: Vec<Weak<EntryIndex>>,
    result: ResolutionResult,
    reduced: Option<ReducedResolution>,
}

/// The last resolution of each namespace.
#[derive(Default)]
pub struct Resolutions {
    known: Mutex<BTreeMap<String, CachedResolution>>,
}

impl Resolutions {
    /// Resolves a namespace.
    pub async fn resolve(&self, input: &ResolutionInput<'_>, metrics: &CatalogMetrics) -> ResolutionResult {
        let hash = fingerprint(input);
        if let Some(known) = self.known.lock().get(input.namespace)
            && known.hash == hash
        {
            return Arc::clone(&known.result);
        }
        let began = Instant::now();
        let Some(result) = input.work(resolve_available).await.map(Arc::new) else {
            // Not kept: it is made anew.
            return Arc::new(Err(ResolveError::Other(
                "the resolution was interrupted".to_owned(),
            )));
        };
        let is_resolved = (*result)
            .as_ref()
            .is_ok_and(|resolved| resolved.resolution.refused.is_empty());
        metrics.resolved(is_resolved, began.elapsed());
        let indices = input.catalogs.iter();
        let indices = indices.filter_map(|catalog| catalog.content.as_ref().ok());
        let known = CachedResolution {
            hash,
            _catalogs: indices.map(Arc::downgrade).collect(),
            result: Arc::clone(&result),
            reduced: None,
        };
        self.known.lock().insert(input.namespace.to_owned(), known);
        result
    }

    /// Resolves a namespace without the Subscriptions that need bundles which cannot be unpacked. `whole` is its
    /// resolution with them. It holds `None` where these bundles stop all.
    pub async fn without(
        &self,
        input: &ResolutionInput<'_>,
        whole: &ResolutionResult,
        failed: BTreeSet<BundleName>,
    ) -> Arc<Option<Resolved>> {
        let hash = fingerprint(input);
        if let Some(known) = self.known.lock().get(input.namespace)
            && let Some(reduced) = known.reduced.as_ref().filter(|_| known.hash == hash)
            && reduced.failed == failed
        {
            return Arc::clone(&reduced.result);
        }
        let (whole, bundles) = (Arc::clone(whole), failed.clone());
        let work = move |request: &Request<'_>| {
            let whole = (*whole).as_ref().ok()?;
            without_bundles(request, whole, &bundles)
        };
        let Some(result) = input.work(work).await.map(Arc::new) else {
            return Arc::new(None);
        };
        if let Some(known) = self.known.lock().get_mut(input.namespace)
            && known.hash == hash
        {
            let result = Arc::clone(&result);
            known.reduced = Some(ReducedResolution { failed, result });
        }
        result
    }

    /// Forgets a namespace without Subscriptions.
    pub fn forget(&self, namespace: &str) {
        self.known.lock().remove(namespace);
    }
}

/// A hash of all that a resolution reads.
fn fingerprint(input: &ResolutionInput<'_>) -> u64 {
    let (namespace, cluster) = (input.namespace, input.cluster);
    let mut hasher = DefaultHasher::new();
    for catalog in input.catalogs.iter() {
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
    for subscription in input.subscriptions {
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
