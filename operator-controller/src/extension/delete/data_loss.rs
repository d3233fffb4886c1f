//! Data loss: the custom resources that a deletion removes in addition to the bundle's objects. They are read under the
//! account, so that a user learns no more than the account may see.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_api::object::qualified_name;
use olm_api::text::{counted, first_of};
use olm_platform::log::chain;
use olm_preflight::crd_upgrade::{definition_name, resource};
use serde_json::Value;
use tokio::time::timeout_at;

use crate::extension::context::Context;
use crate::extension::context::account;
use crate::extension::revisions::Revisions;
use crate::object_set::gather;
use olm_cluster::list::{Budget, Collection, Detail};
use olm_rollout::failure::FailureKind;

/// The most CRDs whose objects are counted.
const MAX_DEFINITIONS: usize = 100;
/// The longest time for all CRDs.
const MAX_TIME: Duration = Duration::from_secs(30);
/// The most CRDs that are read at the same time.
const AT_ONCE: usize = 8;
/// The time for which found finalizers are cached.
const FRESH: Duration = Duration::from_mins(1);
/// The rest after a search without a result, as a multiple of its time.
const REST: u32 = 10;
/// The most objects that are searched for finalizers.
const MAX_HELD: usize = 100;
/// The most objects that are named.
const NAMED: usize = 3;
/// The finalizer of a CRD whose objects are being deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The CRDs of an extension, and a client with its account's rights.
struct Kinds {
    definitions: Vec<Value>,
    client: Result<Client, String>,
}

impl Kinds {
    async fn of(context: &Context, extension: &ClusterExtension, left: &Revisions) -> Self {
        let mut definitions = Vec::new();
        if let Some(set) = left.newest_active().or_else(|| left.latest()) {
            match gather::objects(set, &context.system_namespace, &context.client).await {
                Ok(objects) => definitions = objects,
                Err(error) => tracing::debug!(
                    set = set.name(),
                    error = &error as &dyn std::error::Error,
                    "cannot read which kinds are deleted with an extension"
                ),
            }
        }
        definitions.retain(|object| definition_name(object).is_some());
        definitions.truncate(MAX_DEFINITIONS);
        let client = match account::choose(extension, context.default_account.as_ref()) {
            Ok(account) => context
                .accounts
                .client(&account)
                .await
                .map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        Self { definitions, client }
    }

    /// Keeps the CRDs that wait for the deletion of their objects.
    async fn retain_held(&mut self, until: Instant) {
        let Ok(client) = &self.client else {
            return;
        };
        let held = stream::iter(std::mem::take(&mut self.definitions))
            .map(async |definition| {
                let held = timeout_at(until.into(), is_held(client, &definition)).await;
                held.unwrap_or_default().then_some(definition)
            })
            .buffered(AT_ONCE)
            .filter_map(async |definition| definition);
        self.definitions = held.collect().await;
    }

    fn collections(&self) -> impl Iterator<Item = Collection<'_>> {
        self.definitions.iter().filter_map(|definition| {
            let (group, version, plural) = resource(definition)?;
            Some(Collection {
                group,
                version,
                plural,
            })
        })
    }
}

/// The number of custom resources by kind that are deleted with the extension; `None` if it has no kinds.
pub(crate) async fn count(
    context: &Context,
    extension: &ClusterExtension,
    left: &Revisions,
) -> Option<String> {
    let kinds = Kinds::of(context, extension, left).await;
    let until = Instant::now() + MAX_TIME;
    let work: Vec<_> = kinds
        .collections()
        .map(|collection| object_count(&kinds.client, collection, until))
        .collect();
    let counts: Vec<String> = stream::iter(work).buffered(AT_ONCE).collect().await;
    (!counts.is_empty()).then(|| {
        format!(
            "uninstalling deletes {} with all custom resources: {}",
            counted(kinds.definitions.len(), "custom resource definition"),
            counts.join(", ")
        )
    })
}

/// The number of objects of a kind.
async fn object_count(client: &Result<Client, String>, collection: Collection<'_>, until: Instant) -> String {
    let Collection { group, plural, .. } = collection;
    let counted = match client {
        Ok(client) => match timeout_at(until.into(), collection.count(client)).await {
            // The CRD does not exist, or serves no version.
            Ok(Err(failure))
                if matches!(
                    failure.kind,
                    FailureKind::UnknownKind | FailureKind::MissingNamespace
                ) =>
            {
                Ok(0)
            }
            Ok(Err(failure)) => Err(failure.message),
            Ok(Ok(count)) => Ok(count),
            Err(_) => Err(format!("no answer within {} s", MAX_TIME.as_secs())),
        },
        Err(error) => Err(error.clone()),
    };
    match counted {
        Ok(count) => format!("{count} {plural}.{group}"),
        Err(why) => format!("an unknown number of {plural}.{group} ({why})"),
    }
}

/// The finalizers that block objects, searched for again after some time.
#[derive(Debug, Clone, Default)]
pub(crate) struct FinalizerCache {
    known: Option<(Instant, Option<String>)>,
}

impl FinalizerCache {
    /// The objects that block the deletion of their CRDs, with their finalizers.
    pub(crate) async fn held(
        &mut self,
        context: &Context,
        extension: &ClusterExtension,
        left: &Revisions,
    ) -> Option<String> {
        let asked = Instant::now();
        if let Some((until, found)) = &self.known
            && asked < *until
        {
            return found.clone();
        }
        let mut kinds = Kinds::of(context, extension, left).await;
        let until = asked + MAX_TIME;
        kinds.retain_held(until).await;
        let found = find_held(&kinds, until).await;
        // Objects may not be marked for deletion yet.
        let rest = if found.is_some() {
            FRESH
        } else {
            REST * asked.elapsed()
        };
        self.known = Some((Instant::now() + rest, found.clone()));
        found
    }
}

/// Whether a CRD waits for the deletion of its objects. A CRD that cannot be read is not reported.
async fn is_held(client: &Client, definition: &Value) -> bool {
    let Some(name) = definition_name(definition) else {
        return false;
    };
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.get_metadata(name).await.is_ok_and(|found| {
        let finalizers = found.metadata.finalizers.unwrap_or_default();
        found.metadata.deletion_timestamp.is_some() && finalizers.iter().any(|one| one == CLEANUP)
    })
}

async fn find_held(kinds: &Kinds, until: Instant) -> Option<String> {
    let client = kinds.client.as_ref().ok()?;
    let work: Vec<_> = kinds
        .collections()
        .map(|collection| held_of(client, collection, until))
        .collect();
    let lines = stream::iter(work).buffered(AT_ONCE);
    let lines: Vec<String> = lines.filter_map(async |line| line).collect().await;
    (!lines.is_empty()).then(|| lines.join("\n"))
}

async fn held_of(client: &Client, collection: Collection<'_>, until: Instant) -> Option<String> {
    let mut found = Vec::new();
    let budget = Budget {
        objects: MAX_HELD,
        bytes: 1 << 20,
        until,
    };
    let mut pages = collection.read(client, Detail::Metadata, budget);
    while let Ok(Ok(page)) = timeout_at(until.into(), pages.page()).await {
        found.extend(page.iter().filter_map(held_by));
    }
    describe(collection, &found)
}

/// An object that is being deleted, with its finalizers.
fn held_by(object: &Value) -> Option<String> {
    let metadata = object.get("metadata")?;
    metadata.get("deletionTimestamp")?;
    let finalizers: Vec<&str> = metadata
        .get("finalizers")?
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let name = qualified_name(object);
    (!finalizers.is_empty()).then(|| format!("{name} ({})", finalizers.join(", ")))
}

fn describe(collection: Collection<'_>, found: &[String]) -> Option<String> {
    let Collection { group, plural, .. } = collection;
    (!found.is_empty()).then(|| {
        format!(
            "{plural}.{group} have finalizers of an operator that is gone: {}. Clean up the external resources, then \
             remove the finalizers",
            first_of(found.iter(), NAMED)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use olm_cluster::fake;

    fn definition(name: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{name}.x.io")},
            "spec": {"group": "x.io", "names": {"plural": name}, "versions": [{"name": "v1", "served": true}]},
        })
    }

    #[tokio::test]
    async fn kinds_are_asked_about_together_within_one_time() {
        let (client, asked) = fake::client(|_, _| {
            let metadata =
                json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x.io/f"]});
            (200, json!({"metadata": {}, "items": [{ "metadata": metadata }]}))
        });
        let kinds = Kinds {
            definitions: ["backups", "greetings"].map(definition).to_vec(),
            client: Ok(client),
        };
        let text = find_held(&kinds, Instant::now() + MAX_TIME).await.unwrap();
        assert!(
            text.starts_with("backups.x.io have finalizers")
                && text.contains("\ngreetings.x.io have finalizers"),
            "{text}"
        );
        assert_eq!(asked.lock().unwrap().len(), 2);
        let first = kinds.collections().next().unwrap();
        let late = Instant::now();
        assert_eq!(held_of(kinds.client.as_ref().unwrap(), first, late).await, None);
        let uncounted = object_count(&kinds.client, first, late).await;
        assert!(
            uncounted.starts_with("an unknown number of backups.x.io (no answer"),
            "{uncounted}"
        );
    }

    #[tokio::test]
    async fn only_kinds_whose_deletion_waits_for_their_objects_are_asked_about() {
        let (client, _) = fake::client(|_, path| {
            let mut metadata = json!({"name": "greetings.x.io", "finalizers": [CLEANUP]});
            if path.contains("greetings") {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let (api, kind) = ("meta.k8s.io/v1", "PartialObjectMetadata");
            (
                200,
                json!({"apiVersion": api, "kind": kind, "metadata": metadata}),
            )
        });
        let mut kinds = Kinds {
            definitions: ["greetings", "backups"].map(definition).to_vec(),
            client: Ok(client),
        };
        kinds.retain_held(Instant::now() + MAX_TIME).await;
        assert_eq!(kinds.definitions, [definition("greetings")]);
    }

    #[test]
    fn objects_that_finalizers_hold_are_named_with_them() {
        let object = |name: &str, finalizers: Value, deleted: bool| {
            let mut object = json!({"metadata": {"name": name, "namespace": "n", "finalizers": finalizers}});
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            object
        };
        let found: Vec<String> = [
            object("a", json!(["x.io/clean", "y.io/wait"]), true),
            object("b", json!(["x.io/clean"]), false),
            object("c", json!([]), true),
        ]
        .iter()
        .filter_map(held_by)
        .collect();
        assert_eq!(found, ["n/a (x.io/clean, y.io/wait)"]);
        let greetings = Collection {
            group: "x.io",
            version: "v1",
            plural: "greetings",
        };
        assert_eq!(describe(greetings, &[]), None);
        let many = vec![found[0].clone(); 5];
        let text = describe(greetings, &many).unwrap();
        assert!(
            text.contains("greetings.x.io have finalizers") && text.contains(" and 2 more"),
            "{text}"
        );
    }
}
