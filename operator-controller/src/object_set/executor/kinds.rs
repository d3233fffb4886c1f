//! The kinds of the cluster, as far as a run needs them.

use std::{sync::Arc, time::Instant};

use olm_cluster::{
    apply::{self, Target},
    discover::{Resource, Scope},
};
use olm_rollout::failure::{FailureKind, RequestFailure};
use olm_rollout::object::ObjectId;

use super::{Executor, definition, goal::Goal};

impl Executor<'_> {
    /// The failure when the server has no path for an object. A kind counts as missing only if the server says so in
    /// the discovery of its group, and its CRD, if known, does not disagree.
    pub(super) async fn confirmed(&self, id: &ObjectId, goal: Goal) -> RequestFailure {
        let asked = Instant::now();
        let found = self
            .discovery
            .confirm(&id.group, &id.version, &id.kind, asked)
            .await;
        let found = match found {
            Ok(Some(_)) => Ok(()),
            Ok(None) => self.defined(id, goal).await.map(drop),
            Err(error) => Err(apply::classify(&error)),
        };
        match found {
            Ok(()) => RequestFailure::new(
                FailureKind::Transient,
                format!("the server does not serve the kind {} yet", id.kind),
            ),
            Err(failure) => failure,
        }
    }

    /// The kind from the live CRD that the revision brings, because discovery may lag behind. For a deletion, any other
    /// served version finds the object too.
    pub(super) async fn defined(&self, id: &ObjectId, goal: Goal) -> Result<Arc<Resource>, RequestFailure> {
        let unknown = || {
            RequestFailure::new(
                FailureKind::UnknownKind,
                format!(
                    "no matches for kind \"{}\" in version \"{}\"",
                    id.kind,
                    id.api_version()
                ),
            )
        };
        let definition = self.outline.id(self.outline.definition(id).ok_or_else(unknown)?);
        let ObjectId {
            group, version, kind, ..
        } = &definition;
        let resource = self.discovery.find(group, version, kind).await;
        let resource = resource
            .map_err(|error| apply::classify(&error))?
            .ok_or_else(unknown)?;
        let target = Target {
            client: self.client,
            resource: &resource,
            namespace: "",
            name: &definition.name,
        };
        let live = target.read().await?.ok_or_else(unknown)?;
        definition::serves(&live, id, goal)
            .map(Arc::new)
            .ok_or_else(unknown)
    }

    pub(super) async fn resource(
        &self,
        id: &ObjectId,
        goal: Goal,
        asked: Instant,
    ) -> Result<Arc<Resource>, RequestFailure> {
        let found = self
            .discovery
            .find_since(&id.group, &id.version, &id.kind, asked)
            .await;
        let resource = match found.map_err(|error| apply::classify(&error))? {
            Some(resource) => resource,
            None => self.defined(id, goal).await?,
        };
        if resource.scope == Scope::Namespaced && id.namespace.is_empty() {
            return Err(RequestFailure::new(
                FailureKind::Invalid,
                "metadata.namespace must be set",
            ));
        }
        Ok(resource)
    }
}

#[cfg(test)]
mod tests {
    use olm_cluster::fake;
    use olm_rollout::engine::teardown::{RetainedObjects, TeardownEnd};
    use olm_rollout::outline::Outline;
    use serde_json::{Value, json};

    use super::super::testing;
    use super::*;

    fn definition() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.x.io", "uid": "d", "resourceVersion": "5",
                "ownerReferences": [{"uid": "us", "controller": true}]},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"kind": "Foo"},
                "versions": [{"name": "v1", "served": true}]},
            "status": {"acceptedNames": {"kind": "Foo", "plural": "foos"},
                "conditions": [{"type": "Established", "status": "True"}]},
        })
    }

    fn custom() -> Value {
        json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "foo", "namespace": "n", "uid": "c",
            "resourceVersion": "6", "ownerReferences": [{"uid": "us", "controller": true}]}})
    }

    fn outline() -> Outline {
        testing::outline(vec![("crds", definition()), ("deploy", custom())])
    }

    /// Tears the CRD and its object down; returns the end and the paths of deletions. The arguments are the answers to
    /// the discovery of `x.io/v1` and to the read of the object.
    async fn take_down(
        kinds: fake::Reply,
        object: fake::Reply,
        live: Option<Value>,
    ) -> (TeardownEnd, Vec<String>) {
        let (client, log) = fake::client(move |method, path| match (method, path) {
            (_, "/api" | "/apis") => (200, json!({"items": []})),
            (_, "/apis/apiextensions.k8s.io/v1") => (
                200,
                json!({"groupVersion": "apiextensions.k8s.io/v1", "resources": [
                    {"name": "customresourcedefinitions", "singularName": "", "namespaced": false,
                        "kind": "CustomResourceDefinition", "verbs": ["get"]},
                ]}),
            ),
            (_, "/apis/x.io/v1") => kinds.clone(),
            ("DELETE", _) => (200, json!({"kind": "Status", "status": "Success"})),
            ("GET", "/apis/x.io/v1/namespaces/n/foos/foo") => object.clone(),
            ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.x.io") => match &live {
                Some(live) => (200, live.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
                ),
            },
            _ => (404, json!("404 page not found")),
        });
        testing::take_down(&client, &log, &outline(), RetainedObjects::default()).await
    }

    #[tokio::test]
    async fn a_custom_resource_is_gone_only_when_the_server_and_its_definition_say_so() {
        let foo = "/apis/x.io/v1/namespaces/n/foos/foo";
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.x.io";
        let text = || (404, json!("404 page not found"));
        let none = || {
            (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
            )
        };
        let served = || {
            (
                200,
                json!({"groupVersion": "x.io/v1", "resources": [
                    {"name": "foos", "singularName": "", "namespaced": true, "kind": "Foo", "verbs": ["get"]},
                ]}),
            )
        };
        let mut unserved = definition();
        unserved["spec"]["versions"][0]["served"] = false.into();
        for (name, kinds, object, live, expected, complete) in [
            (
                "served",
                served(),
                (200, custom()),
                Some(definition()),
                &[foo, crd][..],
                true,
            ),
            (
                "not listed yet",
                text(),
                (200, custom()),
                Some(definition()),
                &[foo, crd],
                true,
            ),
            ("gone", served(), none(), Some(definition()), &[crd], true),
            (
                "its path is not there for a moment",
                served(),
                text(),
                Some(definition()),
                &[],
                false,
            ),
            (
                "neither its path nor its kind is there yet",
                text(),
                text(),
                Some(definition()),
                &[],
                false,
            ),
            (
                "its server is down",
                (503, json!("unavailable")),
                text(),
                Some(definition()),
                &[],
                false,
            ),
            (
                "no version of it is served",
                text(),
                text(),
                Some(unserved),
                &[crd],
                true,
            ),
            ("the definition is gone", text(), text(), None, &[], true),
        ] {
            let (end, deleted) = take_down(kinds, object, live).await;
            assert_eq!(deleted, expected, "{name}");
            match end {
                TeardownEnd::Complete => assert!(complete, "{name}"),
                TeardownEnd::Failed { phase: 1, failures } => {
                    assert!(!complete, "{name}");
                    assert!(
                        failures
                            .iter()
                            .all(|(_, failure)| failure.kind == FailureKind::Transient),
                        "{name}"
                    );
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
