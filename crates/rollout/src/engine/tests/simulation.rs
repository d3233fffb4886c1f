//! A simulated API server and executor in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use super::super::desired::{body, wanted};
use super::super::differences::differences;
use super::super::request::{Observation, Request, RequestOutcome, Step};
use super::super::rollout::{Report, Rollout, Settings};
use super::super::teardown::{RetainedObjects, Teardown, TeardownEnd};
use crate::failure::{FailureKind, RequestFailure};
use crate::object::ObjectId;
use crate::outline::{ObjectPosition, Outline, OutlineObject, OutlinePhase, Owner, Sibling};
use crate::ownership::{Guard, Ownership, fields_of as fields_applied_by};
use crate::probe;

/// A simulated API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    pub(super) objects: BTreeMap<ObjectId, Value>,
    pub(super) version: u64,
    /// The version of an object is a hash of its content, so that equal clusters are equal values.
    pub(super) hashed: bool,
    /// The server ignores preconditions: a fault that tests must notice.
    pub(super) unguarded: bool,
    /// Objects of these kinds become ready only by [`Cluster::settle`].
    pub(super) slow: BTreeSet<String>,
    /// The server stores this value of a field in another form, as it does with quantities.
    pub(super) rewrites: Option<(String, String)>,
    pub(super) requests: usize,
    pub(super) writes: usize,
}

pub(super) struct Crash;

impl Cluster {
    pub(super) fn tick(&mut self) -> String {
        self.version += 1;
        (self.version + 100).to_string()
    }

    /// Stores an object under a new version.
    fn store(&mut self, id: &ObjectId, mut live: Value) -> Value {
        live["metadata"]["resourceVersion"] = if self.hashed {
            live["metadata"]["uid"] = "uid".into();
            live["metadata"]["resourceVersion"] = Value::Null;
            let mut hasher = DefaultHasher::new();
            live.hash(&mut hasher);
            hasher.finish().to_string().into()
        } else {
            self.tick().into()
        };
        self.objects.insert(id.clone(), live.clone());
        live
    }

    pub(super) fn guard_holds(&self, id: &ObjectId, guard: &Guard) -> bool {
        if self.unguarded {
            return true;
        }
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

    pub(super) fn apply(&mut self, id: &ObjectId, body: &Value) -> Value {
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
        let old = fields_applied_by(&before, &id.api_version(), olm_api::names::field_manager::OBJECTS)
            .cloned()
            .unwrap_or(json!({}));
        let fields = fields_of(&body);
        remove(&mut next, &old, &fields);
        merge(&mut next, &body);
        if let Some((given, stored)) = &self.rewrites
            && next["data"]["v"] == given.as_str()
        {
            next["data"]["v"] = stored.as_str().into();
        }
        next["metadata"]["managedFields"] = json!([{
            "manager": "olm.operatorframework.io", "operation": "Apply", "apiVersion": id.api_version(), "fieldsV1": fields,
        }]);
        if next != before {
            if !self.slow.contains(&id.kind) {
                next["ready"] = "yes".into();
            }
            next = self.store(id, next);
        }
        next
    }

    pub(super) fn settle(&mut self) {
        for live in self.objects.values_mut() {
            live["ready"] = "yes".into();
        }
    }

    pub(super) fn edit(&mut self, id: &ObjectId, change: impl FnOnce(&mut Value)) {
        let mut live = self.objects[id].clone();
        change(&mut live);
        self.store(id, live);
    }

    /// The state without values that differ from run to run.
    pub(super) fn normalised(&self) -> Vec<Value> {
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

pub(super) fn fields_of(value: &Value) -> Value {
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

/// Removes fields that we owned and no longer apply.
pub(super) fn remove(live: &mut Value, old: &Value, new: &Value) {
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

pub(super) fn merge(live: &mut Value, body: &Value) {
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
pub(super) struct Revision {
    pub(super) outline: Outline,
    pub(super) bodies: BTreeMap<ObjectPosition, Value>,
}

pub(super) fn revision(number: i64, phases: &[&[(&str, &str)]]) -> Revision {
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
                    bodies.insert(ObjectPosition { phase, object }, body);
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
pub(super) struct Executor<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) revision: &'a Revision,
    pub(super) budget: usize,
}

impl Executor<'_> {
    pub(super) fn fulfil(&mut self, requests: &[Request]) -> Result<Vec<RequestOutcome>, Crash> {
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

    pub(super) fn one(&mut self, request: &Request) -> RequestOutcome {
        let id = self.revision.outline.id(request.position());
        let object = &self.revision.bodies[&request.position()];
        let owner = &self.revision.outline.owner;
        let conflict = RequestOutcome::Failed(RequestFailure::new(FailureKind::Conflict, "conflict"));
        self.cluster.writes += usize::from(request.writes());
        match request {
            Request::Observe(_) | Request::Clear(_) => match self.cluster.objects.get(&id) {
                None => RequestOutcome::Absent,
                Some(live) => self.observation(object, live),
            },
            Request::DryRun(_, write) | Request::Apply(_, write) => {
                if !self.cluster.guard_holds(&id, &write.guard) {
                    return conflict;
                }
                if object["data"]["v"] == "invalid" {
                    return RequestOutcome::Failed(RequestFailure::new(FailureKind::Invalid, "refused"));
                }
                let body = body(object, owner, write);
                let live = if request.writes() {
                    self.cluster.apply(&id, &body)
                } else {
                    self.cluster.clone().apply(&id, &body)
                };
                self.observation(object, &live)
            }
            Request::Release(_, guard, _) | Request::Delete(_, guard)
                if !self.cluster.guard_holds(&id, guard) =>
            {
                conflict
            }
            Request::Release(.., holder) => {
                let uid = holder.uid(&self.revision.outline).to_owned();
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
                RequestOutcome::Absent
            }
        }
    }

    pub(super) fn observation(&self, object: &Value, live: &Value) -> RequestOutcome {
        let owner = &self.revision.outline.owner;
        let probes = [serde_json::from_value(json!({
            "selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": live["kind"]}},
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "ready", "value": "yes"}}],
        }))
        .unwrap()];
        RequestOutcome::Live(Box::new(Observation {
            ownership: Ownership::of(live, &owner.uid),
            differences: differences(&wanted(object, owner), live).fingerprint,
            probe: probe::ask(&probes, live),
        }))
    }

    pub(super) fn roll_out(&mut self, settings: Settings) -> Result<Report, Crash> {
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

    pub(super) fn take_down(&mut self, retained: RetainedObjects) -> Result<TeardownEnd, Crash> {
        let mut step = Teardown::start(&self.revision.outline, retained);
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

pub(super) fn executor<'a>(cluster: &'a mut Cluster, revision: &'a Revision) -> Executor<'a> {
    Executor {
        cluster,
        revision,
        budget: usize::MAX,
    }
}

pub(super) fn roll_out(cluster: &mut Cluster, revision: &Revision) -> Report {
    executor(cluster, revision)
        .roll_out(Settings::default())
        .unwrap_or_else(|_| unreachable!())
}

pub(super) fn take_down(cluster: &mut Cluster, revision: &Revision) -> TeardownEnd {
    executor(cluster, revision)
        .take_down(RetainedObjects::default())
        .unwrap_or_else(|_| unreachable!())
}
