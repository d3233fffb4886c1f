//! ClusterServiceVersions: passes until nothing changes, and their writes.
//!
//! Passes of one run see each other's phases before these are written: an installation that fails as it did before
//! changes nothing in the cluster.

mod act;
mod clean;
mod rights;
mod settle;

pub use clean::{remove, remove_orphans};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use olm_classic::cluster::{items, text};
use olm_classic::csv::explain::explained;
use olm_classic::csv::phases::pass;
use olm_classic::csv::requirements::ClusterFacts;
use olm_classic::csv::{ClusterServiceVersion, set_phase};
use olm_classic::names;
use olm_classic::operator_group::apis::{DefinitionNameError, provided_by};
use olm_classic::subscription::is_version_paused;
use olm_platform::events::Notice;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Value, json};

use super::certificates::Authority;
use super::context::{Context, written_time};
use super::work::Name;

/// The reason that nothing but other rights ends.
const NO_RETRY: &str = "InstallComponentFailedNoRetry";
/// Passes of one run, at most.
const MAX_PASSES: usize = 24;
/// Time limit for an installation to become healthy.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// The pause until the newer version of an object is here.
const STALE: Duration = Duration::from_millis(200);
/// Interval of requests for APIs of Kubernetes and of servers behind the API server: what they serve is not followed.
const UNFOLLOWED: Duration = Duration::from_mins(1);

/// Reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    /// The last pass has changed nothing.
    Settled,
    /// It will try again.
    Failed,
    /// It is gone.
    Gone,
}

/// Works on a ClusterServiceVersion.
pub async fn reconcile(context: &Context, name: &Name) -> Outcome {
    let snapshot = context.snapshot();
    let Some(object) = snapshot.get(names::CSV_KIND, &name.namespace, &name.name) else {
        context.unready.forget(name);
        let removed = remove_orphans(context, &snapshot, name).await;
        return removed.unwrap_or_else(|failure| after(name, &failure));
    };
    let (csv, fault) = match ClusterServiceVersion::read(object) {
        Ok(csv) => (csv, None),
        Err(error) => match ClusterServiceVersion::read_without_spec(object) {
            Ok(csv) => (csv, Some(error)),
            Err(_) => return Outcome::Done,
        },
    };
    if csv.is_copy() {
        return Outcome::Done;
    }
    let fault = fault.map_or_else(|| unreadable_name(&csv), |error| Some(unreadable_spec(&error)));
    let result = match fault {
        _ if csv.metadata.deletion_timestamp.is_some() => remove(context, object, &csv).await,
        _ if is_version_paused(&snapshot, object) => {
            tracing::debug!(%name, "the ClusterServiceVersion is paused");
            return Outcome::Done;
        }
        None => run(context, name, object.clone()).await,
        Some(fault) => refuse(context, object, &fault).await,
    };
    match result {
        Ok(outcome) => outcome,
        Err(failure) => after(name, &failure),
    }
}

/// Outcome of a failure that no status shows.
fn after(name: &Name, failure: &RequestFailure) -> Outcome {
    match failure.kind {
        FailureKind::Conflict => Outcome::After(STALE),
        // It is gone.
        FailureKind::MissingNamespace => Outcome::Done,
        _ => {
            tracing::warn!(%name, error = failure.message, "cannot reconcile ClusterServiceVersion; retrying");
            Outcome::Failed
        }
    }
}

/// The fault of a spec that cannot be read.
fn unreadable_spec(error: &serde_json::Error) -> String {
    format!("install strategy invalid: cannot read the spec: {error}. Correct it")
}

/// The fault of a spec with a CustomResourceDefinition whose name has no group, if there is one.
fn unreadable_name(csv: &ClusterServiceVersion) -> Option<String> {
    let DefinitionNameError(name) = provided_by(csv).err()?;
    Some(format!(
        "install strategy invalid: cannot look for CustomResourceDefinition {name:?}: its name has no group. Name it \
         PLURAL.GROUP in spec.customresourcedefinitions"
    ))
}

/// Reports the fault of the spec in the status. A change of the spec wakes it.
async fn refuse(context: &Context, object: &Value, message: &str) -> Result<Outcome, RequestFailure> {
    let mut current = object.clone();
    let now = written_time(Timestamp::now());
    set_phase(&mut current, "Failed", "InvalidInstallStrategy", message, &now);
    settle::settle(context, object, &current).await?;
    Ok(Outcome::Done)
}

/// Makes passes until nothing changes, then writes the status.
async fn run(context: &Context, name: &Name, object: Value) -> Result<Outcome, RequestFailure> {
    let mut stored = object;
    let now = Timestamp::now();
    let issuer = Authority::new(now);
    // Written with the annotations of the first pass, before any content.
    let mut current = with_finalizer(&stored);
    if text(&current, "/status/reason") == NO_RETRY {
        // Whether the rights are others now shows only the next attempt.
        set_phase(
            &mut current,
            "Pending",
            "DetectedClusterChange",
            "Cluster resources changed state",
            &written_time(now),
        );
    }
    let mut seen = BTreeSet::new();
    let mut end = RunEnd::Settled;
    let (mut error, mut rest) = (None, None);
    for _ in 0..MAX_PASSES {
        let before = settle::phase_status(&current);
        let mut cluster = context.snapshot();
        let _ = cluster.insert(Arc::new(current.clone()));
        let csv = ClusterServiceVersion::read(&current).map_err(unreadable)?;
        let discovery = context.discovery(&csv).await?;
        let version = context.server_version(&csv).await?;
        let facts = ClusterFacts {
            cluster: &cluster,
            discovery: &discovery,
            server_version: version.as_deref(),
        };
        let decision = pass(&current, &facts, &issuer, now).map_err(unreadable)?;
        if before.phase == "Succeeded"
            && let Some(left) = context.unready.rest(name, decision.unready, Instant::now())
        {
            // An earlier pass of this run may have reached the phase, which is written below.
            rest = Some(left);
            break;
        }
        error.clone_from(&decision.error);
        let is_unanswered = decision.is_unanswered;
        let acted = act::act(context, &cluster, &csv, &stored, &current, decision).await?;
        (stored, current) = (acted.stored, acted.current);
        if acted.is_gone {
            end = RunEnd::Gone;
            break;
        }
        if is_unanswered {
            end = RunEnd::Failed;
            break;
        }
        let after = settle::phase_status(&current);
        if after == before && !acted.has_written {
            break;
        }
        let is_back = !seen.insert((after.phase.clone(), after.reason.clone())) && !acted.has_written;
        let has_failed = after.phase == "Failed" && !matches!(before.phase.as_str(), "Failed" | "Succeeded");
        if acted.is_refused || is_back || has_failed {
            end = RunEnd::Failed;
            break;
        }
    }
    if end == RunEnd::Gone {
        return Ok(Outcome::Done);
    }
    let current = explained(current, &context.snapshot());
    let written = settle::settle(context, &stored, &current).await?;
    if let Some(error) = &error
        && text(&written, "/status/phase") == "Replacing"
    {
        report_stranded(context, &written, error);
    }
    if rights::grant(context, &written, &context.snapshot()).await? == rights::GrantResult::Incomplete {
        return Ok(Outcome::Failed);
    }
    Ok(rest.map_or_else(|| next(&written, end, error.is_some(), now), Outcome::After))
}

/// Says by an event that a ClusterServiceVersion cannot be replaced: its phase has no other words for it.
fn report_stranded(context: &Context, csv: &Value, error: &str) {
    let notice = Notice {
        is_fault: true,
        reason: "ReplacementMissing".to_owned(),
        note: format!(
            "cannot replace ClusterServiceVersion {}: {error}. Create or correct the one that replaces it, or \
             delete it",
            text(csv, "/metadata/name")
        ),
    };
    context.publish(csv, vec![notice]);
}

/// Time of the next run if nothing changes meanwhile.
fn next(csv: &Value, end: RunEnd, is_unfinished: bool, now: Timestamp) -> Outcome {
    let time = |pointer: &str| text(csv, pointer).parse::<Timestamp>().ok();
    let until = |time: Timestamp| {
        let left = time.duration_since(now).max(SignedDuration::ZERO);
        let left = Duration::try_from(left).unwrap_or_default();
        Outcome::After(left + Duration::from_secs(1))
    };
    match text(csv, "/status/phase") {
        _ if end == RunEnd::Failed => Outcome::Failed,
        "Installing" => until(time("/status/lastTransitionTime").unwrap_or(now) + PATIENCE),
        "Succeeded" if is_unfinished => Outcome::Failed,
        "Succeeded" => time("/status/certsRotateAt").map_or(Outcome::Done, until),
        "Pending" if needs_unfollowed(csv) => Outcome::After(UNFOLLOWED),
        _ => Outcome::Done,
    }
}

/// Whether a ClusterServiceVersion needs APIs that other servers or Kubernetes bring, or a version of Kubernetes.
fn needs_unfollowed(csv: &Value) -> bool {
    ["/spec/nativeAPIs", "/spec/apiservicedefinitions/required"]
        .iter()
        .any(|apis| items(csv, apis).next().is_some())
        || !text(csv, "/spec/minKubeVersion").is_empty()
}

/// The object with the finalizer of OLM.
fn with_finalizer(object: &Value) -> Value {
    let mut wanted = object.clone();
    if items(object, "/metadata/finalizers").any(|found| found == names::CLEANUP_FINALIZER) {
        return wanted;
    }
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(names::CLEANUP_FINALIZER.into());
        }
    }
    wanted
}

#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn unreadable(error: serde_json::Error) -> RequestFailure {
    RequestFailure::new(FailureKind::Invalid, format!("cannot read it: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_is_due_when_a_timer_ends() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let check = |status: Value, end: RunEnd, expected: Outcome| {
            assert_eq!(next(&json!({"status": status}), end, false, now), expected);
        };
        let seconds = |count| Outcome::After(Duration::from_secs(count));
        check(
            json!({"phase": "Installing", "lastTransitionTime": "2025-12-31T23:56:00Z"}),
            RunEnd::Settled,
            seconds(61),
        );
        check(
            json!({"phase": "Succeeded", "certsRotateAt": "2026-01-01T01:00:00Z"}),
            RunEnd::Settled,
            seconds(3601),
        );
        check(json!({"phase": "Succeeded"}), RunEnd::Settled, Outcome::Done);
        check(json!({"phase": "Pending"}), RunEnd::Settled, Outcome::Done);
        check(json!({"phase": "Failed"}), RunEnd::Failed, Outcome::Failed);
        check(json!({"phase": "Installing"}), RunEnd::Failed, Outcome::Failed);
    }

    #[test]
    fn apis_that_are_not_followed_are_asked_for_while_they_are_missing() {
        let check = |spec: Value, expected: Outcome| {
            let csv = json!({"spec": spec, "status": {"phase": "Pending"}});
            assert_eq!(
                next(&csv, RunEnd::Settled, false, Timestamp::UNIX_EPOCH),
                expected
            );
        };
        let apis = || json!([{"group": "g", "version": "v1", "kind": "K"}]);
        check(json!({"nativeAPIs": apis()}), Outcome::After(UNFOLLOWED));
        check(json!({"minKubeVersion": "1.99.0"}), Outcome::After(UNFOLLOWED));
        check(json!({"minKubeVersion": ""}), Outcome::Done);
        check(
            json!({"apiservicedefinitions": {"required": apis()}}),
            Outcome::After(UNFOLLOWED),
        );
        check(json!({"apiservicedefinitions": {"owned": apis()}}), Outcome::Done);
    }

    #[test]
    fn the_finalizer_is_added_once_and_others_stay() {
        let first = with_finalizer(&json!({"metadata": {"finalizers": ["other"]}}));
        assert_eq!(
            first["metadata"]["finalizers"],
            json!(["other", names::CLEANUP_FINALIZER])
        );
        assert_eq!(with_finalizer(&first), first);
        let bare = with_finalizer(&json!({"metadata": {}}));
        assert_eq!(bare["metadata"]["finalizers"], json!([names::CLEANUP_FINALIZER]));
    }

    #[test]
    fn a_definition_without_a_group_is_named() {
        let csv = |name: &str| {
            let owned = json!([{"name": name, "version": "v1", "kind": "K"}]);
            let csv =
                json!({"metadata": {"name": "c"}, "spec": {"customresourcedefinitions": {"owned": owned}}});
            ClusterServiceVersion::read(&csv).unwrap()
        };
        assert_eq!(unreadable_name(&csv("ks.g")), None);
        assert_eq!(
            unreadable_name(&csv("ks")).as_deref(),
            Some(
                "install strategy invalid: cannot look for CustomResourceDefinition \"ks\": its name has no group. \
                 Name it PLURAL.GROUP in spec.customresourcedefinitions"
            )
        );
    }
}
