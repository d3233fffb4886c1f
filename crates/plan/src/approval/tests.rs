use olm_api::change_policy::{ChangePolicySpec, WindowSpec};
use olm_api::cluster_extension::BundleMetadata;
use olm_api::cluster_object_set::CollisionProtection;
use olm_rollout::policy::Uninstall;
use serde_json::{Value, json};

use super::*;
use crate::{BundleIdentity, Change};

fn bundle(version: &str) -> BundleIdentity {
    BundleIdentity {
        package: "p".to_owned(),
        metadata: BundleMetadata {
            name: format!("p.v{version}"),
            version: version.to_owned(),
            release: None,
        },
        image: "i".to_owned(),
    }
}

fn plan(from: Option<&str>, to: &str, after: &[&Value]) -> ChangePlan {
    let installed = from.map(bundle);
    ChangePlan::new(&Change {
        extension: "e",
        account: "n/a",
        installed_account: None,
        installed: installed.as_ref(),
        wanted: &bundle(to),
        catalog: "",
        passed: &[],
        uninstall: Uninstall::Delete,
        adopt: CollisionProtection::Prevent,
        before: &[],
        after,
        needs: None,
    })
}

fn policy(name: &str, approval: Value) -> ChangePolicy {
    let spec = ChangePolicySpec {
        approval: serde_json::from_value(approval).unwrap(),
        ..ChangePolicySpec::default()
    };
    ChangePolicy::new(name, spec)
}

fn decided(verdict: DecisionOutcome) -> Decision {
    Decision {
        verdict,
        approver: "jane".to_owned(),
        note: String::new(),
    }
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

#[test]
fn the_greatest_part_of_the_version_that_differs_is_the_class() {
    for (from, to, class) in [
        (None, "1.0.0", ChangeClass::Install),
        (Some("1.0.0"), "1.0.0", ChangeClass::Content),
        (Some("1.0.0"), "1.0.1", ChangeClass::Patch),
        (Some("1.0.1"), "1.0.0", ChangeClass::Patch),
        (Some("1.0.0"), "1.1.0", ChangeClass::Minor),
        (Some("1.9.0"), "2.0.0", ChangeClass::Major),
        (Some("1.0.0-rc.1"), "1.0.0", ChangeClass::Patch),
        (Some("one"), "1.0.0", ChangeClass::Major),
    ] {
        assert_eq!(ChangeClass::of(&plan(from, to, &[])), class, "{from:?} {to}");
    }
}

#[test]
fn a_kind_of_change_that_is_not_named_follows_the_default() {
    let needs = |approval: Value, from: Option<&str>, to: &str| {
        let found = gate(&plan(from, to, &[]), [&policy("p", approval)], None, now());
        assert_eq!(found.needs_approval, found.causes == [Cause::Approval]);
        found.needs_approval
    };
    for (approval, expected) in [
        (json!({}), [false, false, false, false]),
        (json!({ "default": "Manual" }), [true, true, true, true]),
        (
            json!({ "default": "Manual", "patch": "Automatic" }),
            [true, false, true, true],
        ),
        (json!({ "major": "Manual" }), [false, false, false, true]),
        (json!({ "install": "Manual" }), [true, false, false, false]),
    ] {
        let found = [
            needs(approval.clone(), None, "1.0.0"),
            needs(approval.clone(), Some("1.0.0"), "1.0.1"),
            needs(approval.clone(), Some("1.0.0"), "1.1.0"),
            needs(approval.clone(), Some("1.0.0"), "2.0.0"),
        ];
        assert_eq!(found, expected, "{approval}");
    }
}

#[test]
fn more_rights_need_an_approval_whatever_the_version() {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "r" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "b" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r" },
        "subjects": [{ "kind": "ServiceAccount", "name": "s", "namespace": "n" }],
    });
    let widening = plan(Some("1.0.0"), "1.0.1", &[&role, &binding]);
    let rules = policy("p", json!({ "widenedRights": "Manual" }));
    assert!(gate(&widening, [&rules], None, now()).needs_approval);
    assert!(!gate(&plan(Some("1.0.0"), "1.0.1", &[]), [&rules], None, now()).needs_approval);
    // A rule never turns a manual approval of another rule into an automatic one.
    let rules = policy("p", json!({ "default": "Manual", "widenedRights": "Automatic" }));
    assert!(gate(&widening, [&rules], None, now()).needs_approval);
}

#[test]
fn the_strictest_of_several_policies_holds() {
    let upgrade = plan(Some("1.0.0"), "1.0.1", &[]);
    let (free, manual) = (
        policy("free", json!({})),
        policy("manual", json!({ "default": "Manual" })),
    );
    let mut frozen = policy("frozen", json!({}));
    frozen.spec.freeze = true;
    let all = [&free, &manual, &frozen];
    let found = gate(&upgrade, all, Some(&decided(DecisionOutcome::Approved)), now());
    assert_eq!(found.approver.as_deref(), Some("jane"));
    let policy = "frozen".to_owned();
    assert_eq!(found.causes, [Cause::Freeze { policy }]);
    let found = gate(
        &upgrade,
        [&free, &manual],
        Some(&decided(DecisionOutcome::Approved)),
        now(),
    );
    assert_eq!(found.causes, []);
    let found = gate(&upgrade, all, Some(&decided(DecisionOutcome::Rejected)), now());
    let reasons: Vec<&str> = found.causes.iter().map(Cause::reason).collect();
    assert_eq!(reasons, [reason::REJECTED, reason::FROZEN]);
    assert_eq!(gate(&upgrade, [], None, now()), Gate::default());
}

#[test]
fn every_policy_with_windows_must_have_one_open() {
    let window = |schedule: &str| WindowSpec {
        schedule: schedule.to_owned(),
        duration: "2h".to_owned(),
        time_zone: "UTC".to_owned(),
    };
    let upgrade = plan(Some("1.0.0"), "1.0.1", &[]);
    let with = |name: &str, schedules: &[&str]| {
        let mut policy = policy(name, json!({}));
        policy.spec.windows = schedules.iter().map(|schedule| window(schedule)).collect();
        policy
    };
    let open = with("open", &["0 3 * * *", "0 11 * * *"]);
    assert_eq!(gate(&upgrade, [&open], None, now()).causes, []);
    let evening = with("evening", &["0 20 * * *", "0 18 * * *"]);
    let night = with("night", &["0 23 * * *"]);
    let found = gate(&upgrade, [&evening, &open, &night], None, now());
    let [cause] = &found.causes[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        cause.text(),
        "the next window of ChangePolicy \"night\" opens at 2026-11-21T23:00:00Z"
    );
    assert_eq!(cause.reason(), reason::AWAITING_WINDOW);
    let never = with("never", &["0 0 30 2 *"]);
    let found = gate(&upgrade, [&never, &night], None, now());
    assert!(
        matches!(&found.causes[..], [Cause::Window { opens: None, .. }]),
        "{found:?}"
    );
}

#[test]
fn a_policy_that_cannot_be_used_holds_everything_back() {
    let mut broken = policy("broken", json!({}));
    broken.spec.windows = vec![WindowSpec::default()];
    let found = gate(&plan(None, "1.0.0", &[]), [&broken], None, now());
    assert!(
        matches!(&found.causes[..], [Cause::Policy { name, .. }] if name == "broken"),
        "{found:?}"
    );
    assert_eq!(found.causes[0].reason(), reason::BLOCKED);
}
