//! Lets versions leave `status.storedVersions` before their definition goes (requirement 5.33): every object is written
//! once more as it is, which stores it in the present storage version, then the list is cleaned. All under the account.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::header::CONTENT_TYPE;
use kube::Client;
use olm_api::names::field_manager;
use olm_preflight::crd_upgrade::migration::Rewrite;
use olm_preflight::permissions::Right;
use olm_preflight::rules::Object;
use serde_json::{Value, json};

use super::Asking;
use crate::cluster::apply::classify;
use crate::cluster::list::{Budget, Collection, End, Part};
use crate::cluster::permissions::right;
use crate::object_set::engine::{Failure, FailureKind};

/// Objects of one definition beyond which nothing is migrated.
const MAX_OBJECTS: usize = 20_000;
/// Bytes of their metadata.
const MAX_BYTES: u64 = 512 << 20;
/// How long one migration may take.
const MAX_TIME: Duration = Duration::from_mins(5);
/// How many objects are written at once.
const AT_ONCE: usize = 8;
/// The API group of definitions.
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Why versions did not leave the list.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// Not all objects can be written in one run.
    #[error(
        "{} cannot leave status.storedVersions of CRD {definition:?}: not all of its objects can be written again, for their {limit}; migrate them by a StorageVersionMigration and take the versions off the list",
        versions(.gone)
    )]
    TooMany {
        /// The definition.
        definition: String,
        /// The versions.
        gone: Vec<String>,
        /// What there is too much of.
        limit: &'static str,
    },
    /// The server did not do it.
    #[error("{} cannot leave status.storedVersions of CRD {definition:?}: {what}: {}", versions(.gone), .failure.message)]
    Refused {
        /// The definition.
        definition: String,
        /// The versions.
        gone: Vec<String>,
        /// What was to be done.
        what: String,
        /// What the server said.
        failure: Failure,
    },
}

fn versions(gone: &[String]) -> String {
    format!("version(s) {}", gone.join(", "))
}

/// The rights that the account lacks to rewrite the objects and to clean the list.
pub(super) async fn lacking(asking: &Asking<'_>, rewrite: &Rewrite) -> Result<BTreeSet<Right>, kube::Error> {
    let mut clean = right("patch", EXTENSIONS, "customresourcedefinitions/status", "");
    if let Object::Resource { name, .. } = &mut clean.access.object {
        *name = Some(rewrite.definition.clone());
    }
    let of_objects = |verb| right(verb, &rewrite.group, &rewrite.plural, "");
    let mut missing: BTreeSet<Right> = BTreeSet::new();
    for needed in [of_objects("list"), of_objects("patch"), clean] {
        if !asking.may(&needed).await? {
            missing.insert(needed);
        }
    }
    Ok(missing)
}

/// Rewrites the objects and cleans the list. Gives how many objects were written. `live` is the definition as it was
/// seen; when it has changed meanwhile, nothing is cleaned.
pub(super) async fn migrate(
    client: &Client,
    rewrite: &Rewrite,
    live: &Value,
) -> Result<usize, MigrationError> {
    let refused = |what: &str, failure| MigrationError::Refused {
        definition: rewrite.definition.clone(),
        gone: rewrite.gone.clone(),
        what: what.to_owned(),
        failure,
    };
    let collection = Collection {
        group: &rewrite.group,
        version: &rewrite.served,
        plural: &rewrite.plural,
    };
    let budget = Budget {
        objects: MAX_OBJECTS,
        bytes: MAX_BYTES,
        until: Instant::now() + MAX_TIME,
    };
    let mut pages = collection.read(client, Part::Metadata, budget);
    let mut written = 0;
    loop {
        let page = match pages.page().await {
            Ok(page) => page,
            Err(End::Complete) => break,
            Err(End::Spent(limit)) => {
                return Err(MigrationError::TooMany {
                    definition: rewrite.definition.clone(),
                    gone: rewrite.gone.clone(),
                    limit,
                });
            }
            Err(End::Failed(failure)) => return Err(refused("its objects cannot be listed", failure)),
        };
        written += page.len();
        // Made beforehand: a closure inside the stream would keep the whole run from moving between threads.
        let work: Vec<_> = page
            .iter()
            .map(|object| touch(client, &collection, object))
            .collect();
        let done = stream::iter(work).buffer_unordered(AT_ONCE).try_collect::<()>();
        done.await
            .map_err(|failure| refused("its objects cannot be written again", failure))?;
    }
    let path = format!(
        "/apis/{EXTENSIONS}/v1/customresourcedefinitions/{}/status",
        rewrite.definition
    );
    let metadata = live.get("metadata");
    let seen = |key: &str| metadata.and_then(|metadata| metadata.get(key));
    let clean = json!({
        "metadata": {"uid": seen("uid"), "resourceVersion": seen("resourceVersion")},
        "status": {"storedVersions": rewrite.kept},
    });
    patch(client, &path, &clean)
        .await
        .map_err(|failure| refused("the list cannot be cleaned", failure))?;
    Ok(written)
}

/// Writes an object as it is. One that is gone or was changed meanwhile is stored anew or not at all.
async fn touch(client: &Client, collection: &Collection<'_>, object: &Value) -> Result<(), Failure> {
    let text = |key: &str| {
        let value = object.get("metadata").and_then(|metadata| metadata.get(key));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    let same = json!({"metadata": {"uid": text("uid"), "resourceVersion": text("resourceVersion")}});
    match patch(
        client,
        &collection.object_path(text("namespace"), text("name")),
        &same,
    )
    .await
    {
        Err(failure)
            if matches!(
                failure.kind,
                FailureKind::Conflict | FailureKind::MissingNamespace
            ) =>
        {
            Ok(())
        }
        Err(failure) => Err(Failure {
            message: format!("{}/{}: {}", text("namespace"), text("name"), failure.message),
            ..failure
        }),
        Ok(()) => Ok(()),
    }
}

async fn patch(client: &Client, path: &str, body: &Value) -> Result<(), Failure> {
    let invalid = |message: String| Failure {
        kind: FailureKind::Invalid,
        message,
    };
    let request = http::Request::patch(format!(
        "{path}?fieldManager={}",
        field_manager::OPERATOR_CONTROLLER
    ))
    .header(CONTENT_TYPE, "application/merge-patch+json")
    .body(body.to_string().into_bytes())
    .map_err(|error| invalid(error.to_string()))?;
    let done = client.request::<Value>(request).await;
    done.map(drop).map_err(|error| classify(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake;

    fn rewrite() -> Rewrite {
        Rewrite {
            definition: "pots.x.io".to_owned(),
            group: "x.io".to_owned(),
            plural: "pots".to_owned(),
            served: "v2".to_owned(),
            storage: "v2".to_owned(),
            gone: vec!["v1".to_owned()],
            kept: vec!["v2".to_owned()],
        }
    }

    fn status(code: u16) -> Value {
        let reason = if code == 404 { "NotFound" } else { "Other" };
        json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason})
    }

    #[tokio::test]
    async fn every_object_is_written_before_the_list_is_cleaned() {
        for (object, cleaned, expected) in [
            (200, 200, Ok(2)),
            (409, 200, Ok(2)),
            (404, 200, Ok(2)),
            (403, 200, Err("its objects cannot be written again")),
            (200, 409, Err("the list cannot be cleaned")),
        ] {
            let (client, asked) = fake::client(move |method, path| match (method, path) {
                ("GET", _) => {
                    let object = |name: &str| {
                        let metadata =
                            json!({"name": name, "namespace": "n", "uid": "u", "resourceVersion": "1"});
                        json!({ "metadata": metadata })
                    };
                    (200, json!({"metadata": {}, "items": [object("a"), object("b")]}))
                }
                ("PATCH", path) if path.ends_with("/status") => (cleaned, status(cleaned)),
                _ => (object, status(object)),
            });
            let live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
            let done = migrate(&client, &rewrite(), &live).await;
            match (done, expected) {
                (Ok(count), Ok(expected)) => assert_eq!(count, expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                other => panic!("{other:?}"),
            }
            let asked = asked.lock().unwrap();
            assert_eq!(asked[0], "GET /apis/x.io/v2/pots");
            assert!(
                asked[1].starts_with("PATCH /apis/x.io/v2/namespaces/n/pots/"),
                "{asked:?}"
            );
            let last = "PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/pots.x.io/status";
            assert_eq!(
                asked.last().map(String::as_str) == Some(last),
                object != 403,
                "{asked:?}"
            );
        }
    }
}
