//! A server-side dry run of the objects of a revision, before anything is written and before an upgrade changes the
//! installed revision. It runs under the account and finds errors that access reviews cannot find: admission, schemas,
//! immutable fields.

use std::fmt::Write as _;
use std::time::Instant;

use futures::{StreamExt as _, stream};
use olm_api::names::user;
use olm_api::text::escape;
use olm_preflight::crd_upgrade::within;
use olm_preflight::dry_run::{self, BundleContent, Denial, DryRunOutcome, MAX_OBJECTS};
use serde_json::Value;

use super::access::{MAX_FINDINGS, PreflightAccess, PreflightError};
use olm_cluster::apply::{self, Commit, Target};
use olm_rollout::certificates::authority;
use olm_rollout::failure::{FailureKind, RequestFailure};
use olm_rollout::object::ObjectId;
use olm_rollout::report;

/// The most dry runs at the same time.
const AT_ONCE: usize = 8;
/// The status code of a server error, and of an object that does not match its schema.
const INTERNAL_ERROR: u16 = 500;

/// The results of all dry runs.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    /// The refusals, a line for each object.
    refused: Vec<String>,
    /// Whether a change of an existing object is refused.
    refused_change: bool,
    /// Objects for which a dry run was not possible.
    unchecked: Vec<ObjectId>,
    /// Whether an object is forbidden to the account.
    forbidden: bool,
}

/// Makes dry runs of a bundle's added and changed objects.
pub(crate) async fn rehearse(
    access: &PreflightAccess<'_>,
    bundle_content: &BundleContent,
    touched: &[&Value],
) -> Rehearsal {
    let mut rehearsal = Rehearsal::default();
    let asked = Instant::now();
    let work: Vec<_> = touched
        .iter()
        .take(MAX_OBJECTS)
        .map(|object| one(access, object, asked))
        .collect();
    let answers: Vec<Result<(), RefusedObject>> = stream::iter(work).buffered(AT_ONCE).collect().await;
    for (object, answer) in touched.iter().zip(answers) {
        let Err(RefusedObject { failure, exists }) = answer else {
            continue;
        };
        let id = ObjectId::of(object);
        match assess(object, &failure, bundle_content) {
            DryRunOutcome::Refused => {
                rehearsal.forbidden |= failure.kind == FailureKind::Forbidden;
                rehearsal.refused_change |= exists && failure.kind == FailureKind::Invalid;
                let line = format!("{}: {}", id.reference(), failure.message);
                rehearsal.refused.push(escape(&line).into_owned());
            }
            DryRunOutcome::Unchecked => rehearsal.unchecked.push(id),
            DryRunOutcome::Deferred => {}
        }
    }
    let beyond = touched.iter().skip(MAX_OBJECTS);
    rehearsal
        .unchecked
        .extend(beyond.map(|object| ObjectId::of(object)));
    rehearsal
}

impl Rehearsal {
    /// Whether the account may have lost rights since the reviews.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.forbidden
    }

    /// The objects for which a dry run was not possible.
    ///
    /// # Errors
    /// The server refuses others.
    pub(crate) fn passed(self) -> Result<Vec<ObjectId>, PreflightError> {
        if self.refused.is_empty() {
            return Ok(self.unchecked);
        }
        let refused = within(&self.refused.join("\n"), MAX_FINDINGS);
        let mut text = format!(
            "the API server refuses objects of this revision (dry run); nothing is applied:\n{refused}"
        );
        if self.refused_change {
            let _ = write!(
                text,
                "\nAn immutable field changes only in a new object. To replace an object: set the annotation \
                 {key} to \"true\", delete the object with its content, remove the annotation; or go back to the installed version",
                key = user::PAUSED
            );
        }
        Err(PreflightError::Refused(text))
    }
}

/// A note about objects for which a dry run was not possible.
pub(crate) fn note(unchecked: &[ObjectId]) -> Option<String> {
    (!unchecked.is_empty()).then(|| {
        format!(
            "not checked, because a dry run of them is not possible yet: {}",
            report::short_names(unchecked)
        )
    })
}

fn assess(object: &Value, failure: &RequestFailure, bundle_content: &BundleContent) -> DryRunOutcome {
    let denial = match failure.kind {
        FailureKind::Forbidden => Denial::Forbidden,
        FailureKind::Invalid if apply::cannot_dry_run(failure) => Denial::NoDryRun,
        FailureKind::Invalid => Denial::Invalid,
        FailureKind::Conflict
        | FailureKind::UnknownKind
        | FailureKind::MissingNamespace
        | FailureKind::Transient => Denial::Other,
    };
    match dry_run::assess(object, denial, bundle_content) {
        // Our own objects may conflict until the new object is applied.
        DryRunOutcome::Refused
            if denial == Denial::Invalid && authority::is_caller(object) && passes(&failure.fields) =>
        {
            DryRunOutcome::Unchecked
        }
        answer => answer,
    }
}

/// Whether a refusal is only about fields that OLM will change: authorities for calls of the API server, and stored
/// versions, which are migrated afterwards. The paths of all such fields contain one of these words.
fn passes(fields: &[String]) -> bool {
    let words = [
        "lientConfig",
        "conversion",
        "caBundle",
        "insecureSkipTLSVerify",
        "storedVersions",
    ];
    fields
        .iter()
        .any(|field| words.iter().any(|word| field.contains(word)))
}

struct RefusedObject {
    failure: RequestFailure,
    /// Whether an object with this name exists.
    exists: bool,
}

async fn one(access: &PreflightAccess<'_>, object: &Value, asked: Instant) -> Result<(), RefusedObject> {
    let id = ObjectId::of(object);
    let absent = |failure| RefusedObject {
        failure,
        exists: false,
    };
    let unknown = || RequestFailure::new(FailureKind::UnknownKind, format!("no kind {}", id.kind));
    let found = access
        .discovery
        .find_since(&id.group, &id.version, &id.kind, asked);
    let resource = found
        .await
        .map_err(|error| absent(apply::classify(&error)))?
        .ok_or_else(|| absent(unknown()))?;
    let target = Target {
        client: access.client,
        resource: &resource,
        namespace: &id.namespace,
        name: &id.name,
    };
    let body = dry_run::body(object);
    let mut answer = target.apply(&body, Commit::DryRun).await;
    if answer
        .as_ref()
        .is_err_and(|failure| failure.code == INTERNAL_ERROR)
    {
        // A server error is transient; an object that does not match its schema is refused again.
        answer = target.apply(&body, Commit::DryRun).await;
    }
    let Err(failure) = answer else {
        return Ok(());
    };
    let is_refused_change = failure.kind == FailureKind::Invalid && failure.code != INTERNAL_ERROR;
    let exists = is_refused_change && target.read().await.is_ok_and(|live| live.is_some());
    Err(RefusedObject { failure, exists })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::DryRunOutcome::{Refused, Unchecked};
    use super::*;

    #[test]
    fn a_refused_change_of_an_object_comes_with_the_way_to_a_new_one() {
        for refused_change in [true, false] {
            let rehearsal = Rehearsal {
                refused: vec!["ConfigMap n/a: field is immutable".to_owned()],
                refused_change,
                ..Rehearsal::default()
            };
            let text = rehearsal.passed().unwrap_err().to_string();
            assert!(text.contains("field is immutable"));
            assert_eq!(text.contains(user::PAUSED), refused_change, "{text}");
        }
    }

    #[test]
    fn refusals_of_the_server_block_except_for_missing_authorities() {
        let object = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"}});
        let map = object("v1", "ConfigMap");
        let webhook = object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
        );
        let definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        for (object, kind, expected) in [
            (&definition, FailureKind::Invalid, Refused),
            (&map, FailureKind::Forbidden, Refused),
            (&map, FailureKind::Invalid, Refused),
            (&map, FailureKind::MissingNamespace, Unchecked),
            (&map, FailureKind::UnknownKind, Unchecked),
            (&map, FailureKind::Transient, Unchecked),
            (&map, FailureKind::Conflict, Unchecked),
            (&webhook, FailureKind::Invalid, Refused),
            (&webhook, FailureKind::Forbidden, Refused),
        ] {
            let failure = RequestFailure::new(kind, "no");
            let answer = assess(object, &failure, &BundleContent::default());
            assert_eq!(answer, expected, "{object} {kind:?}");
        }
        let api = object("apiregistration.k8s.io/v1", "APIService");
        for (object, field) in [
            (&webhook, "webhooks[0].clientConfig.caBundle"),
            (&definition, "spec.conversion.webhookClientConfig"),
            (&api, "spec.caBundle"),
            (&definition, "status.storedVersions[0]"),
        ] {
            let failure = RequestFailure {
                fields: vec![field.to_owned()],
                ..RequestFailure::new(FailureKind::Invalid, "no")
            };
            assert_eq!(
                assess(object, &failure, &BundleContent::default()),
                Unchecked,
                "{field}"
            );
        }
    }
}
