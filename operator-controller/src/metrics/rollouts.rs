//! The duration of rollouts.

use olm_api::ClusterObjectSet;
use olm_api::conditions::{self, SUCCEEDED};
use olm_api::names::label;
use tokio::sync::mpsc::UnboundedReceiver;

use super::counters::Counters;
use crate::object_set::store::Change;

/// Measures rollouts from the changes of revisions. Ends with the changes.
pub(crate) async fn follow(mut changes: UnboundedReceiver<Change>, counters: Counters) {
    while let Some(change) = changes.recv().await {
        let before = change.before.as_deref();
        if let Some(seconds) = change.now.as_deref().and_then(|now| completed_after(before, now)) {
            counters.rolled_out(seconds);
        }
    }
}

/// The seconds from the creation of a revision until it was complete, if it has just become complete. One from a Helm
/// release was complete before it existed.
fn completed_after(before: Option<&ClusterObjectSet>, now: &ClusterObjectSet) -> Option<f64> {
    let has_succeeded = |set: &ClusterObjectSet| conditions::is_true(set.conditions(), SUCCEEDED);
    if before.is_none_or(has_succeeded)
        || !has_succeeded(now)
        || now.label(label::MIGRATED_FROM_HELM).is_some()
    {
        return None;
    }
    let created = now.metadata.creation_timestamp.as_ref()?.0;
    let succeeded = conditions::find(now.conditions(), SUCCEEDED)?;
    let took = succeeded.last_transition_time.0.duration_since(created);
    Some(took.as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use olm_api::conditions::{Report, Status, reason, set_condition};

    use super::*;

    fn set(succeeded_at: Option<i64>) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::default();
        set.metadata.creation_timestamp = Some(Time(Timestamp::from_second(100).unwrap()));
        if let Some(second) = succeeded_at {
            let report = Report {
                condition_type: SUCCEEDED,
                status: Status::True,
                reason: reason::SUCCEEDED,
                message: "",
                observed_generation: 1,
            };
            let list = &mut set.status.get_or_insert_default().conditions;
            set_condition(list, report, Timestamp::from_second(second).unwrap());
        }
        set
    }

    #[test]
    fn a_rollout_is_timed_once_when_it_completes() {
        let done = set(Some(130));
        assert_eq!(completed_after(Some(&set(None)), &done), Some(30.0));
        assert_eq!(completed_after(Some(&done), &done), None);
        assert_eq!(completed_after(None, &done), None, "seen only after it");
        assert_eq!(completed_after(Some(&set(None)), &set(None)), None);
        let mut migrated = set(Some(130));
        let labels = migrated.metadata.labels.get_or_insert_default();
        labels.insert(label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
        assert_eq!(completed_after(Some(&set(None)), &migrated), None);
        assert_eq!(completed_after(Some(&set(None)), &set(Some(90))), Some(0.0));
    }
}
