//! Which kinds the cluster serves.
//!
//! The table is read with two requests and kept until a kind is asked for that it lacks, or until somebody learns that
//! it is out of date.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use kube::{Client, client::APIGroupDiscoveryList, core::ApiResource};

/// How long a table is trusted when it lacks a kind.
const FRESH: Duration = Duration::from_millis(500);

/// A kind that the cluster serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Group, version, kind and plural.
    pub api: ApiResource,
    /// Whether its objects have a namespace.
    pub scope: Scope,
    /// Whether it can be listed and watched.
    pub watchable: bool,
}

/// Whether the objects of a kind have a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// They have not.
    Cluster,
    /// They have.
    Namespaced,
}

impl Resource {
    /// The path of the collection that holds objects of that namespace.
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    group: String,
    version: String,
    kind: String,
}

#[derive(Debug, Default)]
struct Table {
    resources: HashMap<Key, Arc<Resource>>,
    read: Option<Instant>,
}

/// The kinds that the cluster serves.
pub struct Discovery {
    client: Client,
    table: RwLock<Table>,
    reading: tokio::sync::Mutex<()>,
}

impl Discovery {
    /// Asks with that client, when first needed.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            table: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// The kind, or `None` when the cluster does not serve it.
    ///
    /// # Errors
    /// The server could not be asked.
    pub async fn find(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Arc<Resource>>, kube::Error> {
        let key = Key {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        };
        if let Some(found) = self.known(&key) {
            return Ok(Some(found));
        }
        let _reading = self.reading.lock().await;
        let fresh = self
            .table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .read
            .is_some_and(|at| at.elapsed() < FRESH);
        if !fresh {
            self.refresh().await?;
        }
        Ok(self.known(&key))
    }

    /// Has the table read again when it is needed next.
    pub fn forget(&self) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Table::default();
    }

    fn known(&self, key: &Key) -> Option<Arc<Resource>> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .resources
            .get(key)
            .cloned()
    }

    async fn refresh(&self) -> Result<(), kube::Error> {
        let (core, groups) = futures::try_join!(
            self.client.list_core_api_versions_aggregated(),
            self.client.list_api_groups_aggregated()
        )?;
        let resources = table(&[core, groups]);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Table {
            resources,
            read: Some(Instant::now()),
        };
        Ok(())
    }
}

fn table(lists: &[APIGroupDiscoveryList]) -> HashMap<Key, Arc<Resource>> {
    let mut found = HashMap::new();
    for group in lists.iter().flat_map(|list| &list.items) {
        let name = group
            .metadata
            .as_ref()
            .and_then(|m| m.name.clone())
            .unwrap_or_default();
        for version in &group.versions {
            let Some(number) = &version.version else { continue };
            for resource in &version.resources {
                let (Some(plural), Some(kind)) = (
                    &resource.resource,
                    resource
                        .response_kind
                        .as_ref()
                        .and_then(|kind| kind.kind.as_ref()),
                ) else {
                    continue;
                };
                // Some subresources stand in the list like resources, and have no verb to read with.
                let has = |verb: &str| resource.verbs.iter().any(|v| v == verb);
                if !has("get") {
                    continue;
                }
                let api_version = if name.is_empty() {
                    number.clone()
                } else {
                    format!("{name}/{number}")
                };
                let key = Key {
                    group: name.clone(),
                    version: number.clone(),
                    kind: kind.clone(),
                };
                let resource = Resource {
                    api: ApiResource {
                        group: name.clone(),
                        version: number.clone(),
                        api_version,
                        kind: kind.clone(),
                        plural: plural.clone(),
                    },
                    scope: if resource.scope.as_deref() == Some("Cluster") {
                        Scope::Cluster
                    } else {
                        Scope::Namespaced
                    },
                    watchable: has("list") && has("watch"),
                };
                found.entry(key).or_insert_with(|| Arc::new(resource));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_is_made_of_what_the_server_lists() {
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
        let table = table(&[list]);
        assert_eq!(table.len(), 1);
        let resource = table.values().next().unwrap();
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
}
