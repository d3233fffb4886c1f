//! The kinds that the cluster serves.
//!
//! Two requests fill the table. A kind that is missing in it, or that a caller thinks is stale, is read again from the discovery
//! of its group and version: aggregated discovery lags behind, and does not distinguish a removed kind from one whose
//! server is down.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, client::APIGroupDiscoveryList, core::ApiResource};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use crate::identity::is_name;

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of cached groups and versions. Beyond it, unused ones are dropped.
const MAX_DOCUMENTS: usize = 1000;

/// A kind that the cluster serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Group, version, kind and plural.
    pub api: ApiResource,
    /// Whether its objects have a namespace.
    pub scope: Scope,
    /// Whether it supports list and watch.
    pub watchable: bool,
}

/// Whether the objects of a kind have a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// No namespace.
    Cluster,
    /// A namespace.
    Namespaced,
}

impl Resource {
    /// The path of the collection in a namespace.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.api.group.is_empty() {
            format!("/api/{}", self.api.version)
        } else {
            format!("/apis/{}/{}", self.api.group, self.api.version)
        };
        match self.scope {
            Scope::Cluster => format!("{root}/{}", self.api.plural),
            Scope::Namespaced => format!("{root}/namespaces/{namespace}/{}", self.api.plural),
        }
    }
}

/// A group in a version; the core group is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct GroupVersion {
    group: String,
    version: String,
}

impl GroupVersion {
    fn new(group: &str, version: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
        }
    }
}

/// The kinds of one group in one version.
type Kinds = HashMap<String, Arc<Resource>>;

#[derive(Debug, Default)]
struct Table {
    served: HashMap<GroupVersion, Kinds>,
    /// Whether aggregated discovery was read.
    filled: bool,
}

/// The last discovery of one group in one version.
#[derive(Debug)]
struct Reading {
    began: Instant,
    outcome: Result<(), kube::Error>,
}

/// A lock for one read at a time, with its result for callers that waited.
type SharedReading = Arc<tokio::sync::Mutex<Option<Reading>>>;

/// The kinds that the cluster serves.
pub struct Discovery {
    client: Client,
    table: RwLock<Table>,
    filling: tokio::sync::Mutex<()>,
    documents: Mutex<HashMap<GroupVersion, SharedReading>>,
}

impl Discovery {
    /// A discovery that uses this client when it is first needed.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            table: RwLock::default(),
            filling: tokio::sync::Mutex::default(),
            documents: Mutex::default(),
        }
    }

    /// The kind, or `None` if the cluster does not serve it. A known kind may come from the cache; `None` always comes
    /// from a request made after the call.
    ///
    /// # Errors
    /// The API server, or the aggregated API server behind it, did not answer.
    pub async fn find(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Arc<Resource>>, kube::Error> {
        self.find_since(group, version, kind, Instant::now()).await
    }

    /// Like [`Self::find`], for a lookup that began earlier: lookups of the same moment share one request.
    ///
    /// # Errors
    /// The API server, or the aggregated API server behind it, did not answer.
    pub async fn find_since(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        asked: Instant,
    ) -> Result<Option<Arc<Resource>>, kube::Error> {
        self.fill().await?;
        match self.known(&GroupVersion::new(group, version), kind) {
            Some(found) => Ok(Some(found)),
            None => self.confirm(group, version, kind, asked).await,
        }
    }

    /// Asks the server even if the kind is known. Aggregated discovery may lag behind by seconds and lacks the kinds of
    /// a server that is down; discovery of one group in one version does neither.
    ///
    /// # Errors
    /// The API server, or the aggregated API server behind it, did not answer.
    pub async fn confirm(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        asked: Instant,
    ) -> Result<Option<Arc<Resource>>, kube::Error> {
        self.ask(GroupVersion::new(group, version), kind, asked).await
    }

    /// Whether the cluster served the version of the group when its kinds were last read.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.table
            .read()
            .served
            .contains_key(&GroupVersion::new(group, version))
    }

    /// Makes the next lookup of this kind ask the server.
    pub fn invalidate(&self, api: &ApiResource) {
        let key = GroupVersion {
            group: api.group.clone(),
            version: api.version.clone(),
        };
        if let Some(kinds) = write(&self.table).served.get_mut(&key) {
            kinds.remove(&api.kind);
        }
    }

    fn known(&self, key: &GroupVersion, kind: &str) -> Option<Arc<Resource>> {
        let table = self.table.read();
        table.served.get(key)?.get(kind).cloned()
    }

    /// Reads aggregated discovery, once.
    async fn fill(&self) -> Result<(), kube::Error> {
        let filled = || self.table.read().filled;
        if filled() {
            return Ok(());
        }
        let _filling = self.filling.lock().await;
        if filled() {
            return Ok(());
        }
        let (core, groups) = in_time(async {
            futures::try_join!(
                self.client.list_core_api_versions_aggregated(),
                self.client.list_api_groups_aggregated()
            )
        })
        .await?;
        let mut table = write(&self.table);
        for (key, kinds) in listed(&[core, groups]) {
            // A direct read is newer.
            table.served.entry(key).or_insert(kinds);
        }
        table.filled = true;
        Ok(())
    }

    async fn ask(
        &self,
        key: GroupVersion,
        kind: &str,
        asked: Instant,
    ) -> Result<Option<Arc<Resource>>, kube::Error> {
        if !is_name(&key.version) || !(key.group.is_empty() || is_name(&key.group)) {
            // No server has such a group or version, and the text could lead to another path.
            return Ok(None);
        }
        let document = self.document(&key);
        let mut last = document.lock().await;
        let reading = match last.take().filter(|reading| reading.began >= asked) {
            Some(reading) => reading,
            None => Reading {
                began: Instant::now(),
                outcome: self.read(&key).await,
            },
        };
        let reading = last.insert(reading);
        match &reading.outcome {
            Ok(()) => Ok(self.known(&key, kind)),
            Err(error) => Err(same(error)),
        }
    }

    fn document(&self, key: &GroupVersion) -> SharedReading {
        let mut documents = self.documents.lock();
        if documents.len() >= MAX_DOCUMENTS {
            documents.retain(|_, document| Arc::strong_count(document) > 1);
        }
        Arc::clone(documents.entry(key.clone()).or_default())
    }

    async fn read(&self, key: &GroupVersion) -> Result<(), kube::Error> {
        let GroupVersion { group, version } = key;
        let answer = if group.is_empty() {
            in_time(self.client.list_core_api_resources(version)).await
        } else {
            let name = format!("{group}/{version}");
            in_time(self.client.list_api_group_resources(&name)).await
        };
        let kinds = match answer {
            Ok(list) => kinds(key, &list),
            Err(kube::Error::Api(status)) if status.code == 404 => Kinds::new(),
            Err(error) => return Err(error),
        };
        let mut table = write(&self.table);
        if kinds.is_empty() && table.filled {
            // Catalogs name groups that the cluster does not serve. They are not cached.
            table.served.remove(key);
        } else {
            table.served.insert(key.clone(), kinds);
        }
        Ok(())
    }
}

fn write(table: &RwLock<Table>) -> RwLockWriteGuard<'_, Table> {
    table.write()
}

async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    tokio::time::timeout(TIMEOUT, answer).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} s", TIMEOUT.as_secs());
        Err(kube::Error::Service(message.into()))
    })
}

/// A copy of the error for each caller that waited for the same request.
fn same(error: &kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(status) => kube::Error::Api(status.clone()),
        other => kube::Error::Service(other.to_string().into()),
    }
}

/// The kinds in aggregated discovery.
fn listed(lists: &[APIGroupDiscoveryList]) -> HashMap<GroupVersion, Kinds> {
    let mut found: HashMap<GroupVersion, Kinds> = HashMap::new();
    for group in lists.iter().flat_map(|list| &list.items) {
        let name = group.metadata.as_ref().and_then(|m| m.name.clone());
        for version in &group.versions {
            let key = GroupVersion {
                group: name.clone().unwrap_or_default(),
                version: version.version.clone().unwrap_or_default(),
            };
            let resources = version.resources.iter().filter_map(|resource| {
                let kind = resource.response_kind.as_ref()?.kind.as_deref()?;
                let plural = resource.resource.as_deref()?;
                let scope = match resource.scope.as_deref() {
                    Some("Cluster") => Scope::Cluster,
                    _ => Scope::Namespaced,
                };
                key.resource(kind, plural, scope, &resource.verbs)
            });
            let kinds = found.entry(key.clone()).or_default();
            for resource in resources {
                kinds.entry(resource.api.kind.clone()).or_insert(resource);
            }
        }
    }
    found
}

/// The kinds in the discovery of one group in one version.
fn kinds(key: &GroupVersion, list: &APIResourceList) -> Kinds {
    let mut kinds = Kinds::new();
    let own = list.resources.iter().filter(|entry| !entry.name.contains('/'));
    for entry in own {
        let scope = if entry.namespaced {
            Scope::Namespaced
        } else {
            Scope::Cluster
        };
        if let Some(resource) = key.resource(&entry.kind, &entry.name, scope, &entry.verbs) {
            kinds.entry(entry.kind.clone()).or_insert(resource);
        }
    }
    kinds
}

impl GroupVersion {
    /// Some lists contain subresources as resources without a verb to read them. They are left out.
    fn resource(&self, kind: &str, plural: &str, scope: Scope, verbs: &[String]) -> Option<Arc<Resource>> {
        let has = |verb: &str| verbs.iter().any(|v| v == verb);
        has("get").then(|| {
            Arc::new(Resource {
                api: ApiResource {
                    group: self.group.clone(),
                    version: self.version.clone(),
                    api_version: if self.group.is_empty() {
                        self.version.clone()
                    } else {
                        format!("{}/{}", self.group, self.version)
                    },
                    kind: kind.to_owned(),
                    plural: plural.to_owned(),
                },
                scope,
                watchable: has("list") && has("watch"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{self, Log, Reply};

    #[test]
    fn a_table_is_built_from_the_discovery_of_the_server() {
        let list: APIGroupDiscoveryList = serde_json::from_value(json!({"items": [{
            "metadata": {"name": "apps"},
            "versions": [{"version": "v1", "resources": [
                {"resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                 "scope": "Namespaced", "verbs": ["get", "list", "watch"]},
                {"resource": "reviews", "responseKind": {"group": "apps", "version": "v1", "kind": "Review"},
                 "scope": "Cluster", "verbs": ["create"]},
            ]}],
        }]}))
        .unwrap();
        let table = listed(&[list]);
        let resources: Vec<&Arc<Resource>> = table.values().flat_map(HashMap::values).collect();
        let [resource] = resources[..] else {
            panic!("{resources:?}")
        };
        assert_eq!(resource.path("n"), "/apis/apps/v1/namespaces/n/deployments");
        assert!(resource.watchable);
    }

    #[test]
    fn paths_follow_group_and_scope() {
        let resource = |group: &str, scope| Resource {
            api: ApiResource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                api_version: String::new(),
                kind: "X".to_owned(),
                plural: "xs".to_owned(),
            },
            scope,
            watchable: true,
        };
        assert_eq!(
            resource("", Scope::Namespaced).path("n"),
            "/api/v1/namespaces/n/xs"
        );
        assert_eq!(resource("", Scope::Cluster).path("n"), "/api/v1/xs");
        assert_eq!(resource("g.io", Scope::Cluster).path(""), "/apis/g.io/v1/xs");
    }

    fn server(answer: impl Fn(&str) -> Reply + Send + 'static) -> (Discovery, Log) {
        let (client, asked) = fake::client(move |_, path| answer(path));
        (Discovery::new(client), asked)
    }

    /// Aggregated discovery in which one group of an aggregated API is down.
    fn everything() -> serde_json::Value {
        json!({"items": [
            {"metadata": {"name": "x.io"}, "versions": [{"version": "v1", "freshness": "Stale", "resources": []}]},
        ]})
    }

    fn foos() -> serde_json::Value {
        json!({"groupVersion": "x.io/v1", "resources": [
            {"name": "foos", "singularName": "foo", "namespaced": true, "kind": "Foo", "verbs": ["get", "list", "watch"]},
            {"name": "foos/status", "singularName": "", "namespaced": true, "kind": "Foo", "verbs": ["get"]},
        ]})
    }

    #[tokio::test]
    async fn a_kind_that_the_list_lacks_is_asked_for_where_it_would_be_served() {
        for (code, body, expected) in [
            (200, foos(), Ok(true)),
            (
                200,
                json!({"groupVersion": "x.io/v1", "resources": []}),
                Ok(false),
            ),
            (404, json!("404 page not found"), Ok(false)),
            (503, json!("service unavailable"), Err(503)),
            (
                403,
                json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}),
                Err(403),
            ),
        ] {
            let (discovery, asked) = server(move |path| match path {
                "/api" | "/apis" => (200, everything()),
                _ => (code, body.clone()),
            });
            let found = match discovery.find("x.io", "v1", "Foo").await {
                Ok(found) => Ok(found.is_some()),
                Err(kube::Error::Api(status)) => Err(status.code),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, expected, "{code}");
            let before = asked.lock().unwrap().len();
            let again = discovery.find("x.io", "v1", "Foo").await;
            let more = asked.lock().unwrap().len() - before;
            // Only served kinds are cached.
            assert_eq!(
                (again.is_ok(), more),
                (expected.is_ok(), usize::from(expected != Ok(true)))
            );
        }
    }

    #[tokio::test]
    async fn lookups_share_an_answer_only_if_it_is_younger_than_they_are() {
        let (discovery, asked) = server(|path| match path {
            "/api" | "/apis" => (200, everything()),
            _ => (404, json!("404 page not found")),
        });
        discovery.find("", "v1", "Pod").await.unwrap();
        let count = || {
            asked
                .lock()
                .unwrap()
                .iter()
                .filter(|request| *request == "GET /apis/x.io/v1")
                .count()
        };
        let asked_at = Instant::now();
        let lookup = || discovery.find_since("x.io", "v1", "Foo", asked_at);
        futures::future::join_all((0..20).map(|_| lookup())).await;
        assert_eq!(count(), 1);
        lookup().await.unwrap();
        assert_eq!(count(), 1, "of the same moment");
        discovery.find("x.io", "v1", "Foo").await.unwrap();
        assert_eq!(count(), 2, "of a later moment");
    }

    #[tokio::test]
    async fn known_kinds_stay_while_their_server_is_down_and_are_read_again_when_stale() {
        let down = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let now = Arc::clone(&down);
        let (discovery, _) = server(move |path| match path {
            "/api" | "/apis" => (200, everything()),
            _ if now.load(std::sync::atomic::Ordering::SeqCst) => (503, json!("service unavailable")),
            _ => (200, foos()),
        });
        let found = discovery.find("x.io", "v1", "Foo").await.unwrap().unwrap();
        down.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(discovery.find("x.io", "v1", "Bar").await.is_err());
        assert_eq!(
            discovery.find("x.io", "v1", "Foo").await.unwrap(),
            Some(Arc::clone(&found))
        );
        assert!(
            discovery
                .confirm("x.io", "v1", "Foo", Instant::now())
                .await
                .is_err()
        );
        discovery.invalidate(&found.api);
        assert!(discovery.find("x.io", "v1", "Foo").await.is_err());
    }

    #[tokio::test]
    async fn names_that_lead_elsewhere_are_not_asked_for() {
        let (discovery, asked) = server(|_| (200, everything()));
        for (group, version) in [("../x", "v1"), ("x.io", "v1?y"), ("", ".."), ("x.io", "")] {
            assert_eq!(discovery.find(group, version, "Foo").await.unwrap(), None);
        }
        assert_eq!(asked.lock().unwrap().len(), 2);
    }
}
