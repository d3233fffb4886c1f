use serde_json::json;

use super::*;

fn plan(phase: &str, steps: &Value) -> Value {
    json!({
        "metadata": {"name": "install-1", "namespace": "n"},
        "spec": {"approved": true, "clusterServiceVersionNames": ["c.v1"]},
        "status": {"phase": phase, "plan": steps, "startTime": "2026-01-01T00:00:00Z", "message": "old"},
    })
}

fn run(plan: &Value, seconds: i64) -> InstallPlanDecision {
    let (cluster, served) = (Cluster::default(), ServedKinds::default());
    let facts = PassInput {
        cluster: &cluster,
        bundles: &UnpackedBundles::new(),
        served: &served,
        global_namespace: "olm",
        retry_for: SignedDuration::from_mins(1),
    };
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    pass(plan, &facts, start + SignedDuration::from_secs(seconds))
}

fn unreadable() -> Value {
    json!([{
        "resolving": "c.v1", "status": "Unknown",
        "resource": {"group": "", "version": "v1", "kind": "ConfigMap", "name": "x", "manifest": "{"},
    }])
}

#[test]
fn an_approved_plan_is_installed_in_the_next_pass() {
    let decision = run(&plan("RequiresApproval", &unreadable()), 0);
    assert_eq!(text(&decision.plan, "/status/phase"), "Installing");
    assert_eq!(text(&decision.plan, "/status/message"), "");
    assert_eq!(decision.written, Vec::<Write>::new());
}

#[test]
fn a_plan_fails_when_its_time_is_over() {
    let plan = plan("Installing", &unreadable());
    let early = run(&plan, 59);
    assert_eq!(text(&early.plan, "/status/phase"), "Installing");
    assert_eq!(
        text(&early.plan, "/status/message"),
        "retrying execution due to error: error parsing step manifest: x: unexpected end of JSON input"
    );
    let late = run(&plan, 60);
    assert_eq!(text(&late.plan, "/status/phase"), "Failed");
    assert_eq!(
        text(&late.plan, "/status/conditions/0/reason"),
        "InstallComponentFailed"
    );
    assert!(late.error.is_some());
}

#[test]
fn a_plan_that_waits_for_an_api_is_not_complete() {
    let manifest = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ks.g"},
        "spec": {"group": "g", "versions": []},
    });
    let step = json!([{
        "resolving": "c.v1", "status": "Unknown",
        "resource": {
            "group": "apiextensions.k8s.io", "version": "v1", "kind": "CustomResourceDefinition", "name": "ks.g",
            "manifest": manifest.to_string(),
        },
    }]);
    let decision = run(&plan("Installing", &step), 0);
    assert!(decision.is_waiting);
    assert_eq!(text(&decision.plan, "/status/phase"), "Installing");
    assert_eq!(text(&decision.plan, "/status/plan/0/status"), "WaitingForApi");
    assert_eq!(decision.written.len(), 1);
}

#[test]
fn a_plan_without_steps_and_bundles_is_empty() {
    assert!(is_empty(&plan("Installing", &json!([]))));
    assert!(is_empty(&json!({"status": {"phase": "Installing"}})));
    assert!(!is_empty(&plan("Installing", &unreadable())));
    let unpacked = json!({"status": {"phase": "Installing", "bundleLookups": [{"path": "i"}]}});
    assert!(!is_empty(&unpacked));
}

#[test]
fn a_failed_plan_of_a_scoped_account_is_resumed_with_its_start_time() {
    let mut failed = plan("Failed", &unreadable());
    assert_eq!(resumed(&failed), None);
    put(
        &mut failed,
        &["status"],
        "attenuatedServiceAccountRef",
        json!({"name": "a"}),
    );
    let resumed = resumed(&failed).unwrap();
    assert_eq!(text(&resumed, "/status/phase"), "Installing");
    assert_eq!(text(&resumed, "/status/startTime"), "2026-01-01T00:00:00Z");
    // Its time is over: one attempt is left.
    assert_eq!(text(&run(&resumed, 3600).plan, "/status/phase"), "Failed");
    put(&mut failed, &["status"], "phase", "Complete");
    assert_eq!(super::resumed(&failed), None);
}

#[test]
fn a_failing_plan_has_the_rest_of_its_time_and_none_after_it() {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let plan = json!({"status": {"startTime": "2026-01-01T00:00:00Z"}});
    let left = |plan: &Value, seconds| {
        let now = start + SignedDuration::from_secs(seconds);
        time_left(plan, SignedDuration::from_mins(1), now)
    };
    assert_eq!(left(&plan, 20), Some(SignedDuration::from_secs(40)));
    assert_eq!(left(&plan, 59), Some(SignedDuration::from_secs(1)));
    assert_eq!(left(&plan, 60), None);
    assert_eq!(left(&json!({}), 0), None);
}

#[test]
fn a_plan_that_makes_objects_again_stays_complete_when_that_fails() {
    let mut plan = plan("Installing", &unreadable());
    plan["status"]["conditions"] = json!([{"type": "Installed", "status": "True"}]);
    let early = run(&plan, 59);
    assert!(is_repair(&early.plan));
    assert_eq!(early.events, Vec::<(String, String)>::new());
    let late = run(&plan, 60);
    assert_eq!(text(&late.plan, "/status/phase"), "Complete");
    assert_eq!(text(&late.plan, "/status/message"), "");
    assert_eq!(text(&late.plan, "/status/plan/0/status"), "Created");
    assert_eq!(late.plan["status"]["conditions"], plan["status"]["conditions"]);
    let [(reason, note)] = &late.events[..] else {
        panic!("{:?}", late.events)
    };
    assert_eq!(reason, "RepairFailed");
    assert!(note.contains("error parsing step manifest: x"), "{note}");
    assert!(late.error.is_some());

    // Nothing of it lasts for ever, so that the next version can come.
    let unchanged = InstallPlanDecision {
        plan: plan.clone(),
        ..InstallPlanDecision::default()
    };
    let (wait, limit) = (SignedDuration::from_mins(1), RetryLimit::Endless);
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let stopped = interrupted(&plan, &unchanged, 0, "no answer", limit, wait, now);
    assert_eq!(text(&stopped.plan, "/status/phase"), "Complete");
}
