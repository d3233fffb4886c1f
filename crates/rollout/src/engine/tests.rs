//! The engine against a small cluster in memory: crash after every request, restart, and end in the same state.

mod model;
mod simulation;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::simulation::{Cluster, Crash, Executor, Revision, executor, revision, roll_out, take_down};
use super::request::{Request, RequestOutcome, Step};
use super::rollout::{Rollout, RolloutEnd, Settings, Writes};
use super::teardown::{RetainedObjects, Teardown, TeardownEnd};
use crate::failure::{FailureKind, RequestFailure};
use crate::object::ObjectId;
use crate::outline::{Definition, ObjectPosition, Outline, OutlineObject, OutlinePhase, Owner};
use crate::report;

fn first() -> Revision {
    revision(
        1,
        &[
            &[("A", "1"), ("B", "1")],
            &[],
            &[("C", "1")],
            &[("D", "1"), ("Old", "1")],
        ],
    )
}

fn second() -> Revision {
    revision(
        2,
        &[
            &[("A", "2"), ("B", "1")],
            &[("New", "2")],
            &[("C", "1")],
            &[("D", "2")],
        ],
    )
}

/// A step of a life.
type Act = fn(&mut Executor<'_>) -> Result<(), Crash>;

/// Installs, upgrades, archives the old revision and tears the new one down; the process dies once, `crash` requests
/// after the start.
fn whole_life(cluster: &mut Cluster, mut crash: Option<usize>) -> Vec<Vec<Value>> {
    let mut states = Vec::new();
    let (first, second) = (first(), second());
    let up: Act = |executor| {
        let report = executor.roll_out(Settings::default())?;
        assert_eq!(report.end, RolloutEnd::Complete);
        Ok(())
    };
    let down: Act = |executor| {
        assert_eq!(
            executor.take_down(RetainedObjects::default())?,
            TeardownEnd::Complete
        );
        Ok(())
    };
    for (revision, act) in [(&first, up), (&second, up), (&first, down), (&second, down)] {
        let before = cluster.requests;
        let budget = crash.unwrap_or(usize::MAX);
        if act(&mut Executor {
            cluster,
            revision,
            budget,
        })
        .is_err()
        {
            crash = None;
            assert!(act(&mut executor(cluster, revision)).is_ok());
        } else {
            crash = crash.map(|left| left - (cluster.requests - before));
        }
        states.push(cluster.normalised());
    }
    states
}

#[test]
fn a_crash_after_any_request_ends_in_the_same_state() {
    let mut undisturbed = Cluster::default();
    let expected = whole_life(&mut undisturbed, None);
    assert_eq!(expected[0].len(), 5);
    assert_eq!(
        expected[1].len(),
        6,
        "the old revision's own object is still there"
    );
    assert_eq!(expected[2].len(), 5);
    assert_eq!(expected[3], Vec::<Value>::new());
    assert!(undisturbed.requests > 30);
    for crash in 0..undisturbed.requests {
        assert_eq!(
            whole_life(&mut Cluster::default(), Some(crash)),
            expected,
            "crash after request {crash}"
        );
    }
}

#[test]
fn planning_again_on_the_result_writes_nothing() {
    let mut cluster = Cluster::default();
    assert_eq!(roll_out(&mut cluster, &first()).written, 5);
    cluster.writes = 0;
    let again = roll_out(&mut cluster, &first());
    assert_eq!(
        (again.end, again.written, cluster.writes),
        (RolloutEnd::Complete, 0, 0)
    );
}

/// A process that does not know yet how the server stores a value applies it once more.
#[test]
fn an_apply_that_changes_nothing_does_not_count_as_a_repair() {
    let mut cluster = Cluster {
        rewrites: Some(("1".to_owned(), "one".to_owned())),
        ..Cluster::default()
    };
    roll_out(&mut cluster, &first());
    let (before, writes) = (cluster.objects.clone(), cluster.writes);
    let again = roll_out(&mut cluster, &first());
    assert_eq!((again.end, again.written), (RolloutEnd::Complete, 0));
    assert!(cluster.writes > writes && cluster.objects == before);
}

#[test]
fn drift_of_a_field_and_a_deleted_object_are_repaired() {
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &first());
    let expected = cluster.normalised();
    let id = |kind: &str| ObjectId {
        version: "v1".into(),
        kind: kind.into(),
        name: "x".into(),
        ..ObjectId::default()
    };
    cluster.edit(&id("C"), |live| live["data"]["v"] = "wrong".into());
    cluster.edit(&id("A"), |live| live["metadata"]["labels"] = json!({}));
    cluster.objects.remove(&id("D"));
    assert_eq!(roll_out(&mut cluster, &first()).written, 3);
    assert_eq!(cluster.normalised(), expected);
    // Fields of others stay.
    cluster.edit(&id("C"), |live| live["data"]["other"] = "kept".into());
    assert_eq!(roll_out(&mut cluster, &first()).written, 0);
}

#[test]
fn a_phase_waits_for_the_probes_of_the_one_before() {
    let mut cluster = Cluster {
        slow: ["A".to_owned()].into(),
        ..Cluster::default()
    };
    let report = roll_out(&mut cluster, &first());
    let RolloutEnd::Incomplete(not_ready) = report.end else {
        panic!("{report:?}")
    };
    assert_eq!(
        report::not_ready(&not_ready[0]),
        "Object A.v1 /x: missing key: \"ready\""
    );
    assert_eq!((report.written, cluster.objects.len()), (2, 2));
    cluster.settle();
    assert_eq!(roll_out(&mut cluster, &first()).end, RolloutEnd::Complete);
    // Once complete, an object that fails again does not hold back repairs in later phases.
    let id = |kind: &str| ObjectId {
        version: "v1".into(),
        kind: kind.into(),
        name: "x".into(),
        ..ObjectId::default()
    };
    cluster.edit(&id("A"), |live| live["ready"] = "no".into());
    cluster.objects.remove(&id("C"));
    let first = first();
    let settings = Settings {
        mode: super::rollout::Mode::KeepUp,
        ..Settings::default()
    };
    let report = executor(&mut cluster, &first)
        .roll_out(settings)
        .unwrap_or_else(|_| unreachable!());
    assert!(matches!(report.end, RolloutEnd::Incomplete(ref not_ready) if not_ready.len() == 1));
    assert!(cluster.objects.contains_key(&id("C")));
}

#[test]
fn nothing_of_a_phase_is_written_when_an_object_collides_or_is_refused() {
    let stranger = revision(1, &[&[("B", "1")]]);
    let mut other = stranger.clone();
    other.outline.owner = Owner {
        uid: "other".into(),
        name: "other-1".into(),
        revision: 1,
        owner_name: "other".into(),
        ..Owner::default()
    };
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &other);
    let before = cluster.normalised();
    let report = roll_out(&mut cluster, &first());
    let RolloutEnd::Collisions { phase: 0, objects } = report.end else {
        panic!("{report:?}")
    };
    assert!(
        report::collisions(first().outline.phase(0), &first().outline, &objects).contains(
            "belongs to ClusterObjectSet other-1 of ClusterExtension other (olm.operatorframework.io/v1)"
        )
    );
    assert_eq!(cluster.normalised(), before);
    assert_eq!(take_down(&mut cluster, &first()), TeardownEnd::Complete);
    assert_eq!(cluster.normalised(), before, "what is not ours is not deleted");

    let refused = revision(1, &[&[("A", "1"), ("X", "invalid")]]);
    let mut cluster = Cluster::default();
    let report = roll_out(&mut cluster, &refused);
    assert!(
        matches!(report.end, RolloutEnd::Failed { phase: 0, ref failures } if failures.len() == 1),
        "{report:?}"
    );
    assert_eq!(cluster.objects.len(), 0);
}

#[test]
fn an_older_revision_leaves_alone_the_objects_of_a_newer_one() {
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &first());
    roll_out(&mut cluster, &second());
    let before = cluster.normalised();
    let report = roll_out(&mut cluster, &first());
    assert_eq!(
        (report.end, report.written, report.handed_over),
        (RolloutEnd::Complete, 0, 4)
    );
    assert_eq!(cluster.normalised(), before);
}

#[test]
fn a_paused_revision_reports_its_pending_writes() {
    let mut cluster = Cluster::default();
    let (first, settings) = (
        first(),
        Settings {
            writes: Writes::Paused,
            ..Settings::default()
        },
    );
    let report = executor(&mut cluster, &first)
        .roll_out(settings)
        .unwrap_or_else(|_| unreachable!());
    assert!(matches!(report.end, RolloutEnd::Paused(ref ids) if ids.len() == 2));
    assert_eq!(cluster.writes, 0);
}

#[test]
fn an_object_held_by_finalizers_stops_the_teardown_of_earlier_phases() {
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &first());
    let id = ObjectId {
        version: "v1".into(),
        kind: "C".into(),
        name: "x".into(),
        ..ObjectId::default()
    };
    cluster.edit(&id, |live| {
        live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        live["metadata"]["finalizers"] = json!(["example.com/f"]);
    });
    let end = take_down(&mut cluster, &first());
    assert_eq!(
        end,
        TeardownEnd::Waiting {
            phase: 2,
            objects: vec![(id.clone(), vec!["example.com/f".to_owned()])]
        }
    );
    assert_eq!(
        cluster.objects.len(),
        3,
        "the phase after it is gone, the phases before it are not"
    );
    cluster.objects.remove(&id);
    assert_eq!(take_down(&mut cluster, &first()), TeardownEnd::Complete);
    assert_eq!(cluster.objects.len(), 0);
}

#[test]
fn objects_that_the_extension_controls_go_with_the_revision_made_from_its_release() {
    let live = |controller: &str| {
        json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "x", "uid": "x", "resourceVersion": "1", "ownerReferences": [
            {"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "e", "uid": controller, "controller": true},
        ]}})
    };
    for (extension, migrated, kept, left) in [
        ("us", true, BTreeSet::new(), 0),
        (
            "us",
            true,
            BTreeSet::from([ObjectPosition { phase: 0, object: 0 }]),
            1,
        ),
        ("us", false, BTreeSet::new(), 1),
        ("", true, BTreeSet::new(), 1),
        ("other", true, BTreeSet::new(), 1),
    ] {
        let mut revision = revision(1, &[&[("A", "1")]]);
        revision.outline.owner.extension = extension.to_owned();
        revision.outline.owner.migrated = migrated;
        let id = revision.outline.id(ObjectPosition::default());
        let mut cluster = Cluster::default();
        cluster.objects.insert(id, live("us"));
        let retained = RetainedObjects {
            kept,
            ..RetainedObjects::default()
        };
        let end = executor(&mut cluster, &revision).take_down(retained).ok();
        assert_eq!(end, Some(TeardownEnd::Complete), "{extension}");
        assert_eq!(cluster.objects.len(), left, "{extension}");
        let freed = migrated && extension == "us";
        for live in cluster.objects.values() {
            // Objects that are kept are not deleted with the extension.
            assert_eq!(
                live["metadata"]["ownerReferences"] == json!([]),
                freed,
                "{extension}"
            );
        }
    }
}

#[test]
fn definitions_of_a_phase_go_after_everything_else_in_it() {
    let mut revision = revision(
        1,
        &[
            &[("A", "1")],
            &[("Definition", "1"), ("Custom", "1"), ("Other", "1")],
        ],
    );
    revision.outline.definitions = vec![Definition {
        position: ObjectPosition { phase: 1, object: 0 },
        ..Definition::default()
    }];
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &revision);
    let custom = revision.outline.id(ObjectPosition { phase: 1, object: 1 });
    cluster.edit(&custom, |live| {
        live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        live["metadata"]["finalizers"] = json!(["example.com/f"]);
    });
    let end = take_down(&mut cluster, &revision);
    assert!(
        matches!(end, TeardownEnd::Waiting { phase: 1, ref objects } if objects.len() == 1),
        "{end:?}"
    );
    let kinds: Vec<&str> = cluster.objects.keys().map(|id| id.kind.as_str()).collect();
    assert_eq!(kinds, ["A", "Custom", "Definition"]);
    cluster.objects.remove(&custom);
    assert_eq!(take_down(&mut cluster, &revision), TeardownEnd::Complete);
    assert_eq!(cluster.objects.len(), 0);
}

#[test]
fn objects_stay_until_the_next_revision_has_taken_them_over() {
    let old = revision(1, &[&[("Definition", "1")], &[("A", "1")]]);
    let held = || RetainedObjects {
        held: BTreeSet::from([ObjectPosition { phase: 0, object: 0 }]),
        ..RetainedObjects::default()
    };
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &old);
    let definition = old.outline.id(ObjectPosition { phase: 0, object: 0 });
    let before = cluster.objects[&definition].clone();
    for _ in 0..2 {
        let end = executor(&mut cluster, &old).take_down(held()).ok();
        assert_eq!(end, Some(TeardownEnd::Held(vec![definition.clone()])));
        // The others are gone, and this one is unchanged.
        assert_eq!(cluster.objects.len(), 1);
        assert_eq!(cluster.objects[&definition], before);
    }
    cluster.edit(&definition, |live| {
        live["metadata"]["ownerReferences"][0]["uid"] = "another".into();
    });
    let end = executor(&mut cluster, &old).take_down(held()).ok();
    assert_eq!(end, Some(TeardownEnd::Complete));
    assert_eq!(cluster.objects.len(), 1);
}

#[test]
fn an_object_of_an_unknown_kind_is_waited_for_or_left_out() {
    let outline = Outline {
        phases: vec![OutlinePhase {
            name: "p".into(),
            objects: vec![OutlineObject::default()],
        }],
        ..Outline::default()
    };
    let unknown = || {
        vec![RequestOutcome::Failed(RequestFailure::new(
            FailureKind::UnknownKind,
            String::new(),
        ))]
    };
    for (missing_kinds, complete) in [
        (super::rollout::MissingKinds::Wait, false),
        (super::rollout::MissingKinds::Skip, true),
    ] {
        let settings = Settings {
            missing_kinds,
            ..Settings::default()
        };
        let Step::Ask(machine, _) = Rollout::start(&outline, settings) else {
            panic!()
        };
        let Step::End(report) = machine.step(&outline, unknown()) else {
            panic!()
        };
        assert_eq!(report.end == RolloutEnd::Complete, complete);
        assert_eq!(report.skipped.len(), usize::from(complete));
    }
    let Step::Ask(machine, _) = Teardown::start(&outline, RetainedObjects::default()) else {
        panic!()
    };
    let Step::End(end) = machine.step(&outline, unknown()) else {
        panic!()
    };
    assert_eq!(end, TeardownEnd::Complete, "an object whose kind is gone is gone");
}

#[test]
fn obstacles_of_a_phase_are_cleared_by_requests_of_their_own_after_every_dry_run() {
    let revision = revision(1, &[&[("A", "1"), ("B", "1")]]);
    let outline = &revision.outline;
    let [a, b] = [0, 1].map(|object| ObjectPosition { phase: 0, object });
    let refusal = RequestFailure::new(FailureKind::Invalid, "refused");
    let dry_runs = || -> Rollout {
        let Step::Ask(machine, _) = Rollout::start(outline, Settings::default()) else {
            panic!("nothing is observed")
        };
        let Step::Ask(machine, asked) =
            machine.step(outline, vec![RequestOutcome::Absent, RequestOutcome::Absent])
        else {
            panic!("no dry run is made")
        };
        assert!(asked.iter().all(|request| !request.writes()), "{asked:?}");
        machine
    };
    let blocked = RequestOutcome::Blocked(refusal.clone());
    let Step::Ask(machine, asked) = dry_runs().step(outline, vec![blocked.clone(), RequestOutcome::Absent])
    else {
        panic!("nothing is cleared")
    };
    assert_eq!(asked, [Request::Clear(a)]);
    let Step::Ask(_, asked) = machine.step(outline, vec![RequestOutcome::Absent]) else {
        panic!("the object is not looked at again")
    };
    assert_eq!(asked, [Request::Observe(a)]);

    let failed = |answers: Vec<RequestOutcome>| match dry_runs().step(outline, answers) {
        Step::End(report) => report.end,
        Step::Ask(machine, asked) => {
            assert_eq!(asked, [Request::Clear(a)]);
            let transient = RequestFailure::new(FailureKind::Transient, "down");
            match machine.step(outline, vec![RequestOutcome::Failed(transient)]) {
                Step::End(report) => report.end,
                Step::Ask(_, asked) => panic!("{asked:?}"),
            }
        }
    };
    let end = |position| RolloutEnd::Failed {
        phase: 0,
        failures: vec![(outline.id(position), refusal.clone())],
    };
    // The server refuses another object permanently: nothing is written.
    assert_eq!(
        failed(vec![blocked.clone(), RequestOutcome::Failed(refusal.clone())]),
        end(b)
    );
    assert_eq!(
        failed(vec![blocked, RequestOutcome::Absent]),
        end(a),
        "what cannot be cleared is refused"
    );
}
