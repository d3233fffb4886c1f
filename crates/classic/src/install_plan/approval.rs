//! The approval of a plan, bound to its UID and to a digest of its content.

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::condition;
use crate::cluster::{annotation, items, put, text};
use crate::names::{APPROVED_PLAN_ANNOTATION, BUNDLE_IMAGES_ANNOTATION, PLAN_DIGEST_ANNOTATION};

/// The reason of the condition `Installed` of a plan that was edited.
const REASON: &str = "InstallCheckFailed";

/// The digest of a plan's content: its steps without their statuses, its bundles, and their images.
pub fn plan_digest(plan: &Value) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    };
    for version in items(plan, "/spec/clusterServiceVersionNames") {
        add(version.as_str().unwrap_or_default());
    }
    for step in items(plan, "/status/plan") {
        add("step");
        add(text(step, "/resolving"));
        for field in [
            "group",
            "version",
            "kind",
            "name",
            "sourceName",
            "sourceNamespace",
            "manifest",
        ] {
            add(text(step, &format!("/resource/{field}")));
        }
    }
    for lookup in items(plan, "/status/bundleLookups") {
        add("bundle");
        for pointer in [
            "/path",
            "/identifier",
            "/replaces",
            "/properties",
            "/catalogSourceRef/namespace",
            "/catalogSourceRef/name",
        ] {
            add(text(lookup, pointer));
        }
    }
    add(annotation(plan, BUNDLE_IMAGES_ANNOTATION));
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// The approval of a plan as it is now, in the value of its annotation.
pub fn approval(plan: &Value) -> String {
    format!("{}/{}", text(plan, "/metadata/uid"), plan_digest(plan))
}

/// Reason why a plan is not carried out: it is not the one that was planned, or that was approved. A plan of another
/// implementation has no digest.
pub fn edited(plan: &Value) -> Option<String> {
    let planned = annotation(plan, PLAN_DIGEST_ANNOTATION);
    let approved = annotation(plan, APPROVED_PLAN_ANNOTATION);
    let (digest, approval) = (plan_digest(plan), approval(plan));
    let what = if !planned.is_empty() && planned != digest {
        format!("its steps are not those that were planned: their digest was {planned} and is {digest}")
    } else if !approved.is_empty() && approved != approval {
        format!("it is not the plan that was approved: that was {approved}, and this is {approval}")
    } else {
        return None;
    };
    Some(format!(
        "cannot carry out InstallPlan {}/{}: {what}. Delete it, or wait for the plan that replaces it",
        text(plan, "/metadata/namespace"),
        text(plan, "/metadata/name"),
    ))
}

/// The plan, failed for good because it was edited.
pub fn refused(plan: &Value, why: &str, now: Timestamp) -> Value {
    let mut plan = plan.clone();
    put(&mut plan, &["status"], "phase", "Failed");
    put(&mut plan, &["status"], "message", why);
    condition(&mut plan, "False", REASON, why, now);
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> Value {
        let mut plan = json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "annotations": {}},
            "spec": {"clusterServiceVersionNames": ["a.v1"]},
            "status": {"plan": [{
                "resolving": "a.v1", "status": "Unknown",
                "resource": {"group": "", "version": "v1", "kind": "Service", "name": "s", "manifest": "{}"},
            }]},
        });
        plan["metadata"]["annotations"][PLAN_DIGEST_ANNOTATION] = plan_digest(&plan).into();
        plan["metadata"]["annotations"][APPROVED_PLAN_ANNOTATION] = approval(&plan).into();
        plan
    }

    #[test]
    fn progress_of_steps_leaves_an_approval_valid_and_edits_end_it() {
        let check = |edit: &dyn Fn(&mut Value), expected: Option<&str>| {
            let mut plan = plan();
            edit(&mut plan);
            let why = edited(&plan);
            assert_eq!(why.is_some(), expected.is_some(), "{why:?}");
            assert!(
                expected.is_none_or(|part| why.as_ref().is_some_and(|why| why.contains(part))),
                "{why:?}"
            );
        };
        check(&|_| {}, None);
        check(
            &|plan| plan["status"]["plan"][0]["status"] = json!("Created"),
            None,
        );
        let planned = Some("its steps are not those that were planned");
        check(
            &|plan| plan["status"]["plan"][0]["resource"]["manifest"] = json!("{\"spec\":{}}"),
            planned,
        );
        check(
            &|plan| plan["spec"]["clusterServiceVersionNames"] = json!(["a.v2"]),
            planned,
        );
        check(
            &|plan| plan["metadata"]["annotations"][BUNDLE_IMAGES_ANNOTATION] = json!("{}x"),
            planned,
        );
        let approved = Some("it is not the plan that was approved");
        check(&|plan| plan["metadata"]["uid"] = json!("other"), approved);
        check(
            &|plan| {
                plan["status"]["plan"] = json!([]);
                plan["metadata"]["annotations"][PLAN_DIGEST_ANNOTATION] = plan_digest(plan).into();
            },
            approved,
        );
        check(
            &|plan| {
                plan["status"]["plan"] = json!([]);
                plan["metadata"]["annotations"] = json!({});
            },
            None,
        );
    }

    #[test]
    fn a_plan_that_was_edited_has_failed_and_says_why() {
        let refused = refused(&plan(), "no", Timestamp::UNIX_EPOCH);
        assert_eq!(refused["status"]["phase"], "Failed");
        assert_eq!(refused["status"]["conditions"][0]["reason"], REASON);
        assert_eq!(refused["status"]["conditions"][0]["message"], "no");
    }
}
