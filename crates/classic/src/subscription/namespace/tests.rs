use serde_json::json;

use super::*;
use crate::cluster::items;
use crate::subscription::find_condition;

fn subscription(name: &str, approval: &str) -> Value {
    json!({
        "kind": "Subscription", "metadata": {"namespace": "n", "name": name, "uid": name},
        "spec": {"name": name, "installPlanApproval": approval},
        "status": {"conditions": [{"type": RESOLUTION_FAILED, "status": "True", "reason": "old"}]},
    })
}

#[test]
fn a_refused_subscription_has_the_reason_and_the_others_move() {
    let subscriptions = [subscription("bad", "Manual"), subscription("good", "Automatic")];
    let error = ResolveError::NotSatisfiable(vec!["subscription bad exists".to_owned()]);
    let resolution = Resolution {
        steps: vec![json!({"resource": {"kind": names::CSV_KIND, "name": "good.v2"}})],
        updated: [("good".to_owned(), "good.v2".to_owned())].into(),
        refused: [("bad".to_owned(), error)].into(),
        ..Resolution::default()
    };
    let run = |unpacked: &[Unpacked]| {
        let cluster = Cluster::default();
        let now = Timestamp::UNIX_EPOCH;
        conclude("n", &subscriptions, &cluster, Ok(&resolution), unpacked, now)
    };
    let decision = run(&[]);
    let [bad, plan, good] = &decision.written[..] else {
        panic!("{decision:?}")
    };
    let why = find_condition(bad, RESOLUTION_FAILED).unwrap();
    let message = "constraints not satisfiable: subscription bad exists";
    assert_eq!(
        (text(why, "/reason"), text(why, "/message")),
        ("ConstraintsNotSatisfiable", message)
    );
    assert_eq!(bad.pointer("/status/currentCSV"), None);
    // The approval of each Subscription of the namespace counts.
    assert_eq!(text(plan, "/status/phase"), "RequiresApproval");
    assert_eq!(text(good, "/status/currentCSV"), "good.v2");
    assert_eq!(find_condition(good, RESOLUTION_FAILED), None);
    assert_eq!(decision.error, None);
    let event = Warning {
        subscription: None,
        reason: RESOLUTION_FAILED,
        message: format!("Subscription bad is left out: {message}"),
    };
    assert_eq!(decision.events, [event]);

    let pending = json!({"type": "BundleLookupPending", "status": "True"});
    let decision = run(&[Unpacked::Conditions(vec![pending])]);
    let [bad, good] = &decision.written[..] else {
        panic!("{decision:?}")
    };
    assert!(find_condition(bad, UNPACKING).is_none() && find_condition(bad, RESOLUTION_FAILED).is_some());
    assert!(find_condition(good, UNPACKING).is_some());
}

#[test]
fn a_subscription_whose_bundle_cannot_be_unpacked_has_the_reason_and_the_others_move() {
    let subscriptions = [
        subscription("bad", "Automatic"),
        subscription("good", "Automatic"),
    ];
    let failed = json!({
        "type": "BundleLookupFailed", "status": "True", "reason": "DeadlineExceeded", "message": "m", "hint": "h",
    });
    for (bundle, reason, message, error) in [
        (
            Unpacked::Conditions(vec![failed]),
            UNPACK_FAILED,
            "Bundle unpacking failed - DeadlineExceeded: m. h",
            None,
        ),
        (
            Unpacked::Fatal("no kind".to_owned()),
            "ErrorPreventedUnpacking",
            "no kind",
            None,
        ),
        (
            Unpacked::Error("gone".to_owned()),
            "ErrorPreventedUnpacking",
            "gone",
            Some("bundle unpacking failed with an error: gone".to_owned()),
        ),
    ] {
        let resolution = Resolution {
            steps: vec![json!({"resource": {"kind": names::CSV_KIND, "name": "good.v2"}})],
            updated: [("good".to_owned(), "good.v2".to_owned())].into(),
            left_out: [("bad".to_owned(), bundle)].into(),
            ..Resolution::default()
        };
        let (cluster, now) = (Cluster::default(), Timestamp::UNIX_EPOCH);
        let decision = conclude("n", &subscriptions, &cluster, Ok(&resolution), &[], now);
        let [bad, plan, good] = &decision.written[..] else {
            panic!("{decision:?}")
        };
        let why = find_condition(bad, UNPACK_FAILED).unwrap();
        assert_eq!((text(why, "/reason"), text(why, "/message")), (reason, message));
        assert_eq!(items(plan, "/spec/clusterServiceVersionNames").count(), 1);
        assert_eq!(text(good, "/status/currentCSV"), "good.v2");
        assert_eq!(find_condition(good, UNPACK_FAILED), None);
        assert_eq!(decision.error, error);
        let about: Vec<_> = decision
            .events
            .iter()
            .map(|event| event.subscription.as_deref())
            .collect();
        assert!(about.iter().all(|name| *name == Some("bad")), "{about:?}");
    }
}
