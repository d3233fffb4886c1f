//! Removes versions from `status.storedVersions` before a CRD drops them: writes every object once more without a
//! change, which stores it in the current storage version, then cleans the list. All under the account. Many objects
//! take several runs, each of which continues where the last one stopped.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::header::CONTENT_TYPE;
use kube::Client;
use olm_api::conditions::reason;
use olm_api::names::field_manager;
use olm_api::object::text;
use olm_preflight::crd_upgrade::migration::Rewrite;
use serde_json::{Value, json};

use super::progress::MigrationProgress;
use crate::extension::failure::{Severity, StageError};
use olm_cluster::apply::classify;
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_rollout::failure::{FailureKind, RequestFailure};

/// The most bytes of metadata that one run lists.
const MAX_BYTES: u64 = 512 << 20;
/// The longest time that one run lists.
const MAX_TIME: Duration = Duration::from_mins(5);
/// The most concurrent writes.
const AT_ONCE: usize = 8;
/// The API group of CRDs.
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// The limits of a migration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The most objects of one CRD. With more, none is written.
    objects: usize,
    /// The time for writes in one run.
    time: Duration,
}

impl Limits {
    /// Limits for a CRD with this time for writes in each run. Every run writes at least one page.
    pub(crate) const fn within(time: Duration) -> Self {
        Self {
            objects: 100_000,
            time,
        }
    }
}

/// The reason why versions were not removed from the list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrationError {
    /// There are too many objects.
    #[error(
        "cannot remove {} from status.storedVersions of CRD {definition:?}: the limit on the {limit} is exceeded; migrate the objects by a StorageVersionMigration and remove the versions from the list",
        gone
    )]
    TooMany {
        definition: String,
        /// The versions, as [`Rewrite::versions`] names them.
        gone: String,
        /// The limit that is exceeded.
        limit: &'static str,
    },
    /// Not all objects are written yet. The next run continues.
    #[error(
        "migrating the stored objects of CRD {definition:?}, to remove {} from status.storedVersions",
        gone
    )]
    Unfinished {
        definition: String,
        /// The versions, as [`Rewrite::versions`] names them.
        gone: String,
    },
    /// The server refused a request.
    #[error("cannot remove {} from status.storedVersions of CRD {definition:?}: {what}: {}", gone, .failure.message)]
    Refused {
        definition: String,
        /// The versions, as [`Rewrite::versions`] names them.
        gone: String,
        /// The request.
        what: String,
        /// The answer.
        failure: Box<RequestFailure>,
    },
}

impl StageError for MigrationError {
    fn severity(&self) -> Severity {
        match self {
            Self::Refused { failure, .. }
                if !matches!(failure.kind, FailureKind::Forbidden | FailureKind::Invalid) =>
            {
                Severity::Transient
            }
            Self::Unfinished { .. } => Severity::Unfinished,
            Self::Refused { .. } | Self::TooMany { .. } => Severity::Waiting,
        }
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }
}

/// Writes the objects and cleans the list. Returns the number of written objects. `live` is the CRD that was read; if
/// it has changed, the list is not cleaned. `progress` is the progress of earlier runs, and is updated.
pub(crate) async fn migrate(
    client: &Client,
    rewrite: &Rewrite,
    live: &Value,
    progress: &mut Option<MigrationProgress>,
    limits: Limits,
) -> Result<usize, MigrationError> {
    let refused = |what: &str, failure| MigrationError::Refused {
        definition: rewrite.definition.clone(),
        gone: rewrite.versions(),
        what: what.to_owned(),
        failure: Box::new(failure),
    };
    let too_many = |limit| MigrationError::TooMany {
        definition: rewrite.definition.clone(),
        gone: rewrite.versions(),
        limit,
    };
    let unfinished = || MigrationError::Unfinished {
        definition: rewrite.definition.clone(),
        gone: rewrite.versions(),
    };
    let collection = Collection {
        group: &rewrite.group,
        version: &rewrite.served,
        plural: &rewrite.plural,
    };
    let begun = MigrationProgress::begin(live);
    let mut done = progress
        .take()
        .filter(|known| known.of == begun.of)
        .unwrap_or(begun);
    let count = collection.count(client).await;
    let count = count.map_err(|failure| refused("cannot count its objects", failure))?;
    if usize::try_from(count).is_ok_and(|count| count > limits.objects) {
        return Err(too_many("number of objects"));
    }
    let budget = Budget {
        objects: limits.objects,
        bytes: MAX_BYTES,
        until: Instant::now() + MAX_TIME,
    };
    let mut pages = collection.read(client, Detail::Metadata, budget);
    let resumed = done.last.clone();
    let (mut listed, mut in_order) = (String::new(), true);
    let mut writing: Option<Instant> = None;
    loop {
        let page = match pages.page().await {
            Ok(page) => page,
            Err(End::Complete) => break,
            Err(End::Spent(limit)) => {
                let has_written = writing.is_some();
                *progress = in_order.then_some(done);
                return Err(if has_written {
                    unfinished()
                } else {
                    too_many(limit)
                });
            }
            Err(End::Failed(failure)) => {
                *progress = in_order.then_some(done);
                return Err(refused("cannot list its objects", failure));
            }
        };
        let keys: Vec<String> = page.iter().map(key).collect();
        for key in &keys {
            in_order &= listed < *key;
            listed.clone_from(key);
        }
        if !in_order && !resumed.is_empty() {
            // Skipped objects may never have been written: start again.
            return Err(unfinished());
        }
        // Collected first: a closure inside the stream would make the future not `Send`.
        let work: Vec<_> = page
            .iter()
            .zip(&keys)
            .filter(|(_, key)| **key > resumed)
            .map(|(object, _)| touch(client, &collection, object))
            .collect();
        if work.is_empty() {
            continue;
        }
        let (written, since) = (work.len(), *writing.get_or_insert_with(Instant::now));
        if let Err(failure) = stream::iter(work)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
        {
            *progress = in_order.then_some(done);
            return Err(refused("cannot write its objects", failure));
        }
        done.written += written;
        done.last.clone_from(&listed);
        if in_order && since.elapsed() >= limits.time {
            *progress = Some(done);
            return Err(unfinished());
        }
    }
    let written = done.written;
    if let Err(failure) = clean(client, rewrite, live).await {
        *progress = in_order.then_some(done);
        return Err(refused("cannot update the list", failure));
    }
    Ok(written)
}

/// Removes the versions from the list of the CRD as it was seen.
async fn clean(client: &Client, rewrite: &Rewrite, live: &Value) -> Result<(), RequestFailure> {
    let path = format!(
        "/apis/{EXTENSIONS}/v1/customresourcedefinitions/{}/status",
        rewrite.definition
    );
    let metadata = live.get("metadata");
    let seen = |key: &str| metadata.and_then(|metadata| metadata.get(key));
    let kept = json!({
        "metadata": {"uid": seen("uid"), "resourceVersion": seen("resourceVersion")},
        "status": {"storedVersions": rewrite.kept},
    });
    patch(client, &path, &kept).await
}

/// The key by which the API server orders objects.
fn key(object: &Value) -> String {
    format!(
        "{}/{}",
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name")
    )
}

/// Writes an object without a change. If it is gone or was changed, it needs no write.
async fn touch(client: &Client, collection: &Collection<'_>, object: &Value) -> Result<(), RequestFailure> {
    let text = |pointer: &str| text(object, pointer);
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let (uid, version) = (text("/metadata/uid"), text("/metadata/resourceVersion"));
    let same = json!({"metadata": {"uid": uid, "resourceVersion": version}});
    match patch(client, &collection.object_path(namespace, name), &same).await {
        Err(failure)
            if matches!(
                failure.kind,
                FailureKind::Conflict | FailureKind::MissingNamespace
            ) =>
        {
            Ok(())
        }
        Err(failure) => Err(RequestFailure {
            message: format!("{namespace}/{name}: {}", failure.message),
            ..failure
        }),
        Ok(()) => Ok(()),
    }
}

async fn patch(client: &Client, path: &str, body: &Value) -> Result<(), RequestFailure> {
    let invalid = |message: String| RequestFailure::new(FailureKind::Invalid, message);
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
    use olm_cluster::fake;

    const LONG: Limits = Limits::within(Duration::from_mins(1));

    fn rewrite() -> Rewrite {
        Rewrite {
            definition: "greetings.x.io".to_owned(),
            group: "x.io".to_owned(),
            plural: "greetings".to_owned(),
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
            (403, 200, Err("cannot write its objects")),
            (200, 409, Err("cannot update the list")),
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
            let done = migrate(&client, &rewrite(), &live, &mut None, LONG).await;
            match (done, expected) {
                (Ok(count), Ok(expected)) => assert_eq!(count, expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                other => panic!("{other:?}"),
            }
            let asked = asked.lock().unwrap();
            assert_eq!(asked[..2], ["GET /apis/x.io/v2/greetings"; 2]);
            assert!(
                asked[2].starts_with("PATCH /apis/x.io/v2/namespaces/n/greetings/"),
                "{asked:?}"
            );
            let last = "PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.x.io/status";
            assert_eq!(
                asked.last().map(String::as_str) == Some(last),
                object != 403,
                "{asked:?}"
            );
        }
    }

    /// An API server with objects of these names, whose pages each name themselves as the next page.
    fn serve(names: &'static [&'static str]) -> (Client, fake::Log) {
        fake::client(move |method, _| {
            let object = |name: &&str| json!({"metadata": {"name": name, "namespace": "n"}});
            let items: Vec<Value> = names.iter().map(object).collect();
            let page = json!({"metadata": {}, "items": items});
            (200, if method == "GET" { page } else { json!({}) })
        })
    }

    fn written(asked: &fake::Log) -> Vec<String> {
        let mut asked: Vec<String> = std::mem::take(&mut *asked.lock().unwrap());
        asked.retain(|request| request.starts_with("PATCH"));
        let last = |request: String| request.rsplit('/').next().unwrap_or_default().to_owned();
        asked.into_iter().map(last).collect()
    }

    #[tokio::test]
    async fn a_run_continues_where_the_last_one_stopped() {
        let live = json!({"metadata": {"uid": "u", "generation": 3}});
        let (client, asked) = serve(&["a", "b"]);
        let short = Limits::within(Duration::ZERO);
        let mut progress = None;
        let first = migrate(&client, &rewrite(), &live, &mut progress, short).await;
        assert!(
            matches!(first, Err(MigrationError::Unfinished { .. })),
            "{first:?}"
        );
        assert_eq!(written(&asked).len(), 2);
        let stopped = progress.clone();
        // Only the list remains.
        let second = migrate(&client, &rewrite(), &live, &mut progress, short).await;
        assert_eq!(second.unwrap(), 2);
        assert_eq!(written(&asked), ["status"]);
        assert_eq!(progress, None);
        // Another CRD, or another storage version of the same one, starts again.
        progress = stopped.clone();
        let changed = json!({"metadata": {"uid": "u", "generation": 4}});
        migrate(&client, &rewrite(), &changed, &mut progress, LONG)
            .await
            .unwrap();
        assert_eq!(written(&asked).len(), 3);
        // So does a list in another order than the last.
        let (client, asked) = serve(&["b", "a"]);
        progress = stopped;
        let odd = migrate(&client, &rewrite(), &live, &mut progress, short).await;
        assert!(matches!(odd, Err(MigrationError::Unfinished { .. })), "{odd:?}");
        assert_eq!(progress, None);
        assert_eq!(written(&asked), [""; 0]);
        let whole = migrate(&client, &rewrite(), &live, &mut progress, short).await;
        assert_eq!(whole.unwrap(), 2);
    }

    #[tokio::test]
    async fn too_many_objects_are_not_written_at_all() {
        let (client, asked) = serve(&["a", "b"]);
        let few = Limits { objects: 1, ..LONG };
        let done = migrate(&client, &rewrite(), &json!({}), &mut None, few).await;
        assert!(
            matches!(
                done,
                Err(MigrationError::TooMany {
                    limit: "number of objects",
                    ..
                })
            ),
            "{done:?}"
        );
        assert_eq!(written(&asked), [""; 0]);
    }
}
