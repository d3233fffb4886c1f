//! What a deletion takes away besides what the bundle brought: the objects of its kinds. Asked under the account, so that
//! nobody learns more than the account may see.

use std::time::{Duration, Instant};

use kube::Client;
use olm_api::ClusterExtension;
use olm_platform::log::chain;
use olm_preflight::crd_upgrade::{definition_name, resource};
use serde_json::Value;

use super::account;
use super::context::Context;
use super::revisions::Revisions;
use crate::cluster::list::{Budget, Collection, Part};
use crate::object_set::engine::FailureKind;
use crate::object_set::gather;

/// Definitions beyond which objects are not counted.
const MAX_DEFINITIONS: usize = 100;
/// Objects that are looked at for what holds them.
const MAX_HELD: usize = 100;
/// Objects that are named.
const NAMED: usize = 3;
/// The finalizer of a definition whose objects are being deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The definitions of an extension and a client that acts as its account.
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
                    "cannot tell which kinds go with an extension"
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

/// How many objects of which kinds go with the extension; nothing when it brought no kinds.
pub async fn count(context: &Context, extension: &ClusterExtension, left: &Revisions) -> Option<String> {
    let kinds = Kinds::of(context, extension, left).await;
    let mut counts = Vec::new();
    for collection in kinds.collections() {
        let Collection { group, plural, .. } = collection;
        let counted = match &kinds.client {
            Ok(client) => match collection.count(client).await {
                // The definition is not there, or serves nothing.
                Err(failure)
                    if matches!(
                        failure.kind,
                        FailureKind::UnknownKind | FailureKind::MissingNamespace
                    ) =>
                {
                    Ok(0)
                }
                Err(failure) => Err(failure.message),
                Ok(count) => Ok(count),
            },
            Err(nobody) => Err(nobody.clone()),
        };
        counts.push(match counted {
            Ok(count) => format!("{count} {plural}.{group}"),
            Err(why) => format!("an unknown number of {plural}.{group} ({why})"),
        });
    }
    (!counts.is_empty()).then(|| {
        format!(
            "uninstalling deletes {} custom resource definition(s) with all objects of their kinds: {}",
            kinds.definitions.len(),
            counts.join(", ")
        )
    })
}

/// Which objects keep their definitions from going, and by which finalizers.
pub async fn held(context: &Context, extension: &ClusterExtension, left: &Revisions) -> Option<String> {
    let kinds = Kinds::of(context, extension, left).await;
    let client = kinds.client.as_ref().ok()?;
    let mut lines = Vec::new();
    for collection in kinds.collections() {
        let mut found = Vec::new();
        let budget = Budget {
            objects: MAX_HELD,
            bytes: 1 << 20,
            until: Instant::now() + Duration::from_secs(10),
        };
        let mut pages = collection.read(client, Part::Metadata, budget);
        while let Ok(page) = pages.page().await {
            found.extend(page.iter().filter_map(held_by));
        }
        lines.extend(describe(collection, &found));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// An object that is being deleted, with its finalizers.
fn held_by(object: &Value) -> Option<String> {
    let metadata = object.get("metadata")?;
    metadata.get("deletionTimestamp")?;
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let finalizers: Vec<&str> = metadata
        .get("finalizers")?
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let name = match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    };
    (!finalizers.is_empty()).then(|| format!("{name} ({})", finalizers.join(", ")))
}

fn describe(collection: Collection<'_>, found: &[String]) -> Option<String> {
    let Collection { group, plural, .. } = collection;
    let named: Vec<&str> = found.iter().take(NAMED).map(String::as_str).collect();
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!found.is_empty()).then(|| {
        format!(
            "{plural}.{group} are held by finalizers, which their operator would take off and it is gone: {}{more}; look \
             whether anything outside the cluster is to be cleaned up, then take them off",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let pots = Collection {
            group: "x.io",
            version: "v1",
            plural: "pots",
        };
        assert_eq!(describe(pots, &[]), None);
        let many = vec![found[0].clone(); 5];
        let text = describe(pots, &many).unwrap();
        assert!(
            text.contains("pots.x.io are held") && text.contains(" and 2 more"),
            "{text}"
        );
    }
}
