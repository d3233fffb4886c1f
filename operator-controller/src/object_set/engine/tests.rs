//! The engine against a small cluster in memory: crash after every request, restart, and end in the same state.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    Answer, Definition, Failure, FailureKind, Guard, ObjectId, Observation, Outline, OutlineObject,
    OutlinePhase, Owner, Ownership, Place, Request, Sibling, Step,
    desired::{body, wanted},
    differences::differences,
    probe,
    rollout::{Report, Rollout, RolloutEnd, Settings, Writes},
    teardown::{Teardown, TeardownEnd},
};

/// As much of an API server as faults need.
#[derive(Debug, Clone, Default)]
struct Cluster {
    objects: BTreeMap<ObjectId, Value>,
    version: u64,
    /// Objects of these kinds become ready only by [`Cluster::settle`].
    slow: BTreeSet<String>,
    requests: usize,
    writes: usize,
}

struct Crash;

impl Cluster {
    fn tick(&mut self) -> String {
        self.version += 1;
        (self.version + 100).to_string()
    }

    fn guard_holds(&self, id: &ObjectId, guard: &Guard) -> bool {
        match (self.objects.get(id), guard) {
            (None, Guard::Absent) => true,
            (
                Some(live),
                Guard::Seen {
                    uid,
                    resource_version,
                },
            ) => live["metadata"]["uid"] == *uid && live["metadata"]["resourceVersion"] == *resource_version,
            _ => false,
        }
    }

    fn apply(&mut self, id: &ObjectId, body: &Value) -> Value {
        let uid = format!("uid-{}", self.version);
        let mut next = self.objects.get(id).cloned().unwrap_or_else(|| {
            json!({"apiVersion": id.api_version(), "kind": id.kind, "metadata": {"name": id.name, "uid": uid}})
        });
        let before = next.clone();
        let mut body = body.clone();
        let metadata = body["metadata"].as_object_mut().unwrap();
        for key in ["uid", "resourceVersion"] {
            metadata.remove(key);
        }
        let old =
            super::ownership::fields_of(&before, &id.api_version(), olm_api::names::field_manager::OBJECTS)
                .cloned()
                .unwrap_or(json!({}));
        let fields = fields_of(&body);
        remove(&mut next, &old, &fields);
        merge(&mut next, &body);
        next["metadata"]["managedFields"] = json!([{
            "manager": "olm.operatorframework.io", "operation": "Apply", "apiVersion": id.api_version(), "fieldsV1": fields,
        }]);
        if next != before {
            next["metadata"]["resourceVersion"] = self.tick().into();
            if !self.slow.contains(&id.kind) {
                next["ready"] = "yes".into();
            }
            self.objects.insert(id.clone(), next.clone());
        }
        next
    }

    fn settle(&mut self) {
        for live in self.objects.values_mut() {
            live["ready"] = "yes".into();
        }
    }

    fn edit(&mut self, id: &ObjectId, change: impl FnOnce(&mut Value)) {
        let version = self.tick();
        let live = self.objects.get_mut(id).unwrap();
        change(live);
        live["metadata"]["resourceVersion"] = version.into();
    }

    /// The state without what differs from run to run.
    fn normalised(&self) -> Vec<Value> {
        let strip = |live: &Value| {
            let mut live = live.clone();
            let metadata = live["metadata"].as_object_mut().unwrap();
            metadata.remove("uid");
            metadata.remove("resourceVersion");
            live
        };
        self.objects.values().map(strip).collect()
    }
}

fn fields_of(value: &Value) -> Value {
    let Value::Object(map) = value else {
        return json!({});
    };
    let fields = map.iter().map(|(key, value)| {
        let below = if key == "ownerReferences" {
            let entries = value.as_array().unwrap().iter();
            entries
                .map(|entry| (format!("k:{}", json!({"uid": entry["uid"]})), fields_of(entry)))
                .collect::<Map<_, _>>()
                .into()
        } else {
            fields_of(value)
        };
        (format!("f:{key}"), below)
    });
    fields.collect::<Map<_, _>>().into()
}

/// Takes away what was ours and no longer is.
fn remove(live: &mut Value, old: &Value, new: &Value) {
    for (field, below) in old.as_object().unwrap() {
        let key = field.strip_prefix("f:").unwrap_or(field);
        if key == "ownerReferences" {
            let gone: Vec<Value> = below
                .as_object()
                .unwrap()
                .keys()
                .filter(|entry| new.get(field).is_none_or(|now| now.get(entry.as_str()).is_none()))
                .map(|entry| serde_json::from_str::<Value>(&entry[2..]).unwrap()["uid"].clone())
                .collect();
            live[key]
                .as_array_mut()
                .unwrap()
                .retain(|entry| !gone.contains(&entry["uid"]));
        } else if let Some(now) = new.get(field) {
            remove(&mut live[key], below, now);
        } else {
            live.as_object_mut().unwrap().remove(key);
        }
    }
}

fn merge(live: &mut Value, body: &Value) {
    match (live, body) {
        (Value::Object(live), Value::Object(body)) => {
            for (key, value) in body {
                merge(live.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(live), Value::Array(body)) if body.iter().any(|entry| entry.get("uid").is_some()) => {
            for entry in body {
                match live.iter_mut().find(|present| present["uid"] == entry["uid"]) {
                    Some(present) => merge(present, entry),
                    None => live.push(entry.clone()),
                }
            }
        }
        (live, body) => *live = body.clone(),
    }
}

/// One revision with its bodies.
#[derive(Debug, Clone)]
struct Revision {
    outline: Outline,
    bodies: BTreeMap<Place, Value>,
}

fn revision(number: i64, phases: &[&[(&str, &str)]]) -> Revision {
    let sibling = |revision: i64| Sibling {
        name: format!("e-{revision}"),
        uid: format!("cos-{revision}"),
        revision,
    };
    let mut bodies = BTreeMap::new();
    let phases = phases
        .iter()
        .enumerate()
        .map(|(phase, objects)| OutlinePhase {
            name: format!("phase-{phase}"),
            objects: objects
                .iter()
                .enumerate()
                .map(|(object, (kind, value))| {
                    let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "data": {"v": value, *value: 1}});
                    let id = ObjectId::of(&body);
                    bodies.insert(Place { phase, object }, body);
                    OutlineObject { id, ..OutlineObject::default() }
                })
                .collect(),
        })
        .collect();
    let owner = Owner {
        name: format!("e-{number}"),
        uid: format!("cos-{number}"),
        revision: number,
        owner_name: "e".to_owned(),
        ..Owner::default()
    };
    let siblings = (1..4).filter(|other| *other != number).map(sibling).collect();
    Revision {
        outline: Outline {
            owner,
            siblings,
            phases,
            ..Outline::default()
        },
        bodies,
    }
}

/// Fulfils requests until the budget is used up.
struct Executor<'a> {
    cluster: &'a mut Cluster,
    revision: &'a Revision,
    budget: usize,
}

impl Executor<'_> {
    fn fulfil(&mut self, requests: &[Request]) -> Result<Vec<Answer>, Crash> {
        let mut answers = Vec::new();
        for request in requests {
            answers.push(self.one(request));
            self.cluster.requests += 1;
            if self.budget == 0 {
                return Err(Crash);
            }
            self.budget -= 1;
        }
        Ok(answers)
    }

    fn one(&mut self, request: &Request) -> Answer {
        let id = self.revision.outline.id(request.place());
        let object = &self.revision.bodies[&request.place()];
        let owner = &self.revision.outline.owner;
        let conflict = Answer::Failed(Failure {
            kind: FailureKind::Conflict,
            message: "conflict".into(),
        });
        self.cluster.writes += usize::from(request.writes());
        match request {
            Request::Observe(_) => match self.cluster.objects.get(&id) {
                None => Answer::Absent,
                Some(live) => self.observation(object, live),
            },
            Request::DryRun(_, write) | Request::Apply(_, write) => {
                if !self.cluster.guard_holds(&id, &write.guard) {
                    return conflict;
                }
                if object["data"]["v"] == "invalid" {
                    return Answer::Failed(Failure {
                        kind: FailureKind::Invalid,
                        message: "refused".into(),
                    });
                }
                let body = body(object, owner, write);
                let live = if request.writes() {
                    self.cluster.apply(&id, &body)
                } else {
                    self.cluster.clone().apply(&id, &body)
                };
                self.observation(object, &live)
            }
            Request::Release(_, guard) | Request::Delete(_, guard)
                if !self.cluster.guard_holds(&id, guard) =>
            {
                conflict
            }
            Request::Release(..) => {
                let uid = owner.uid.clone();
                self.cluster.edit(&id, |live| {
                    live["metadata"]["ownerReferences"]
                        .as_array_mut()
                        .unwrap()
                        .retain(|entry| entry["uid"] != *uid);
                });
                self.observation(object, &self.cluster.objects[&id])
            }
            Request::Delete(..) => {
                self.cluster.objects.remove(&id);
                Answer::Absent
            }
        }
    }

    fn observation(&self, object: &Value, live: &Value) -> Answer {
        let owner = &self.revision.outline.owner;
        let probes = [serde_json::from_value(json!({
            "selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": live["kind"]}},
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "ready", "value": "yes"}}],
        }))
        .unwrap()];
        Answer::Live(Box::new(Observation {
            ownership: Ownership::of(live, &owner.uid),
            differences: differences(&wanted(object, owner), live).fingerprint,
            probe: probe::ask(&probes, live),
        }))
    }

    fn roll_out(&mut self, settings: Settings) -> Result<Report, Crash> {
        let mut step = Rollout::start(&self.revision.outline, settings);
        loop {
            match step {
                Step::End(report) => return Ok(report),
                Step::Ask(machine, requests) => {
                    assert!(!requests.is_empty());
                    let answers = self.fulfil(&requests)?;
                    step = machine.step(&self.revision.outline, answers);
                }
            }
        }
    }

    fn take_down(&mut self, kept: BTreeSet<Place>) -> Result<TeardownEnd, Crash> {
        let mut step = Teardown::start(&self.revision.outline, kept);
        loop {
            match step {
                Step::End(end) => return Ok(end),
                Step::Ask(machine, requests) => {
                    assert!(!requests.is_empty());
                    let answers = self.fulfil(&requests)?;
                    step = machine.step(&self.revision.outline, answers);
                }
            }
        }
    }
}

fn executor<'a>(cluster: &'a mut Cluster, revision: &'a Revision) -> Executor<'a> {
    Executor {
        cluster,
        revision,
        budget: usize::MAX,
    }
}

fn roll_out(cluster: &mut Cluster, revision: &Revision) -> Report {
    executor(cluster, revision)
        .roll_out(Settings::default())
        .unwrap_or_else(|_| unreachable!())
}

fn take_down(cluster: &mut Cluster, revision: &Revision) -> TeardownEnd {
    executor(cluster, revision)
        .take_down(BTreeSet::new())
        .unwrap_or_else(|_| unreachable!())
}

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

/// Install, upgrade, archive the old, take down the new; `crash` requests after the start the process dies once.
fn whole_life(cluster: &mut Cluster, mut crash: Option<usize>) -> Vec<Vec<Value>> {
    let mut states = Vec::new();
    let (first, second) = (first(), second());
    let up: Act = |executor| {
        let report = executor.roll_out(Settings::default())?;
        assert_eq!(report.end, RolloutEnd::Complete);
        Ok(())
    };
    let down: Act = |executor| {
        assert_eq!(executor.take_down(BTreeSet::new())?, TeardownEnd::Complete);
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
    // What others add is left alone.
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
        super::report::not_ready(&not_ready[0]),
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
        super::report::collisions(first().outline.phase(0), &objects)
            .contains("ClusterObjectSet.olm.operatorframework.io/v1 other-1 of ClusterExtension other")
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
fn an_older_revision_leaves_alone_what_a_newer_one_took_over() {
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
fn a_paused_revision_says_what_it_would_write() {
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
fn what_the_extension_itself_controls_goes_with_the_revision_made_from_its_release() {
    let live = |controller: &str| {
        json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "x", "uid": "x", "resourceVersion": "1", "ownerReferences": [
            {"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "e", "uid": controller, "controller": true},
        ]}})
    };
    for (extension, migrated, kept, left) in [
        ("us", true, BTreeSet::new(), 0),
        ("us", true, BTreeSet::from([Place { phase: 0, object: 0 }]), 1),
        ("us", false, BTreeSet::new(), 1),
        ("", true, BTreeSet::new(), 1),
        ("other", true, BTreeSet::new(), 1),
    ] {
        let mut revision = revision(1, &[&[("A", "1")]]);
        revision.outline.owner.extension = extension.to_owned();
        revision.outline.owner.migrated = migrated;
        let id = revision.outline.id(Place::default());
        let mut cluster = Cluster::default();
        cluster.objects.insert(id, live("us"));
        let end = executor(&mut cluster, &revision).take_down(kept).ok();
        assert_eq!(end, Some(TeardownEnd::Complete), "{extension}");
        assert_eq!(cluster.objects.len(), left, "{extension}");
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
        place: Place { phase: 1, object: 0 },
        ..Definition::default()
    }];
    let mut cluster = Cluster::default();
    roll_out(&mut cluster, &revision);
    let custom = revision.outline.id(Place { phase: 1, object: 1 });
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
fn an_object_of_an_unknown_kind_is_waited_for_or_left_out() {
    let outline = Outline {
        phases: vec![OutlinePhase {
            name: "p".into(),
            objects: vec![OutlineObject::default()],
        }],
        ..Outline::default()
    };
    let unknown = || {
        vec![Answer::Failed(Failure {
            kind: FailureKind::UnknownKind,
            message: String::new(),
        })]
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
    let Step::Ask(machine, _) = Teardown::start(&outline, BTreeSet::new()) else {
        panic!()
    };
    let Step::End(end) = machine.step(&outline, unknown()) else {
        panic!()
    };
    assert_eq!(end, TeardownEnd::Complete, "an object whose kind is gone is gone");
}
