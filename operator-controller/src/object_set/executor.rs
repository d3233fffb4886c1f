//! Fulfils what the engine asks for, under the account, with as few requests as possible.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use futures::{StreamExt as _, stream};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use kube::Client;
use olm_api::{cluster_object_set::ProgressionProbe, names::field_manager};
use serde_json::Value;

use super::{
    content::Content,
    definition,
    engine::{
        Answer, Failure, FailureKind, ObjectId, Observation, Outline, Ownership, Place, ProbeResult, Request,
        Step, Write, desired,
        differences::{Differences, differences},
        probe,
        rollout::{Report, Rollout, Settings},
        teardown::{Teardown, TeardownEnd},
    },
    memory::{Known, Memory},
};
use crate::certificates::{authority, layout::Layout, secret};
use crate::cluster::{
    apply::{self, Commit, Target},
    discover::{Discovery, Resource, Scope},
    watch::{Coverage, Look, number},
};

/// How many requests of one set are made at the same time.
const CONCURRENCY: usize = 8;

/// Everything that requests are fulfilled with.
pub struct Executor<'a> {
    /// Acts as the account.
    pub client: &'a Client,
    /// The kinds that the cluster serves.
    pub discovery: &'a Discovery,
    /// What watches know.
    pub coverage: &'a Coverage,
    /// The revision.
    pub outline: &'a Outline,
    /// The bodies, when they are at hand.
    pub content: Option<&'a Content>,
    /// The probes.
    pub probes: &'a [ProgressionProbe],
    /// What was seen before.
    pub memory: &'a mut Memory,
    /// Set when a body would have been needed.
    pub starved: AtomicBool,
    /// Set when nobody watches one of the objects.
    pub unwatched: AtomicBool,
}

impl Executor<'_> {
    /// Rolls the revision out as far as it goes now.
    pub async fn roll_out(&mut self, settings: Settings) -> Report {
        let mut doubted = HashSet::new();
        let mut step = Rollout::start(self.outline, settings);
        loop {
            match step {
                Step::End(report) => return report,
                Step::Ask(machine, requests) => {
                    let answers = self.fulfil(&requests, &mut doubted, Goal::Keep).await;
                    step = machine.step(self.outline, answers);
                }
            }
        }
    }

    /// Takes the revision down as far as it goes now.
    pub async fn take_down(&mut self, kept: std::collections::BTreeSet<Place>) -> TeardownEnd {
        let mut doubted = HashSet::new();
        let mut step = Teardown::start(self.outline, kept);
        loop {
            match step {
                Step::End(end) => return end,
                Step::Ask(machine, requests) => {
                    let answers = self.fulfil(&requests, &mut doubted, Goal::Remove).await;
                    step = machine.step(self.outline, answers);
                }
            }
        }
    }

    async fn fulfil(
        &mut self,
        requests: &[Request],
        doubted: &mut HashSet<Place>,
        goal: Goal,
    ) -> Vec<Answer> {
        let this = &*self;
        let seen = &*doubted;
        let asked = Instant::now();
        // Made beforehand: a closure inside the stream would keep the whole run from moving between threads.
        let work: Vec<_> = requests
            .iter()
            .map(|request| this.one(request, seen.contains(&request.place()), goal, asked))
            .collect();
        let answers: Vec<Answer> = stream::iter(work).buffered(CONCURRENCY).collect().await;
        for (request, answer) in requests.iter().zip(&answers) {
            self.note(request, answer, doubted, goal);
        }
        answers
    }

    /// Remembers what an answer says.
    fn note(&mut self, request: &Request, answer: &Answer, doubted: &mut HashSet<Place>, goal: Goal) {
        let place = request.place();
        match (request, answer) {
            (Request::DryRun(..), Answer::Live(_) | Answer::Absent) => {}
            (_, Answer::Live(seen)) => {
                doubted.remove(&place);
                let at = self
                    .memory
                    .known
                    .get(&place)
                    .filter(|known| known.seen == **seen)
                    .map(|known| known.at);
                self.memory.known.insert(
                    place,
                    Known {
                        seen: (**seen).clone(),
                        at: at.unwrap_or_else(Instant::now),
                    },
                );
            }
            (_, Answer::Absent) => {
                self.memory.known.remove(&place);
                if goal == Goal::Remove {
                    self.memory.gone.insert(place);
                }
            }
            (_, Answer::Failed(_)) => {
                self.memory.known.remove(&place);
                doubted.insert(place);
            }
        }
    }

    async fn one(&self, request: &Request, doubted: bool, goal: Goal, asked: Instant) -> Answer {
        let place = request.place();
        if goal == Goal::Remove && self.memory.gone.contains(&place) {
            return Answer::Absent;
        }
        let id = self.outline.id(place);
        let resource = match self.resource(&id, goal, asked).await {
            Ok(resource) => resource,
            Err(failure) => return Answer::Failed(failure),
        };
        let target = Target {
            client: self.client,
            resource: &resource,
            namespace: &id.namespace,
            name: &id.name,
        };
        let done = match request {
            Request::Observe(_) => match self.remembered(place, &id, &resource, doubted, goal) {
                Some(answer) => return answer,
                None => target.read().await,
            },
            // What it will hold is made when it is applied.
            Request::DryRun(..) if self.layout().names(place).is_some() => Ok(None),
            Request::DryRun(_, write) => {
                let object = match self.body(place) {
                    Ok(object) => object,
                    Err(failure) => return Answer::Failed(failure),
                };
                let body = desired::body(object, &self.outline.owner, write);
                match target.apply(&body, Commit::DryRun).await {
                    Err(failure) if apply::cannot_dry_run(&failure) => Ok(None),
                    Err(failure) => Err(self.cleared(&target, object, failure).await),
                    Ok(live) => Ok(Some(live)),
                }
            }
            Request::Apply(_, write) => {
                let object = match self.body(place) {
                    Ok(object) => object,
                    Err(failure) => return Answer::Failed(failure),
                };
                tracing::debug!(set = self.outline.owner.name, object = %id, guard = ?write.guard, "applying");
                self.apply(&target, place, object, write).await.map(Some)
            }
            Request::Release(_, guard) => target.release(&self.outline.owner.uid, guard).await,
            Request::Delete(_, guard) => target.delete(guard).await,
        };
        match done {
            Ok(None) => Answer::Absent,
            Ok(Some(live)) => match self.observation(place, &live, goal) {
                Ok(seen) => Answer::Live(Box::new(seen)),
                Err(failure) => Answer::Failed(failure),
            },
            Err(failure) if failure.kind == FailureKind::UnknownKind => {
                Answer::Failed(self.confirmed(&id, goal).await)
            }
            Err(failure) => Answer::Failed(failure),
        }
    }

    fn layout(&self) -> &Layout {
        static NONE: Layout = Layout::NONE;
        self.memory
            .phases
            .as_ref()
            .map_or(&NONE, |phases| &phases.certificates)
    }

    /// Applies an object with its certificates or authorities.
    async fn apply(
        &self,
        target: &Target<'_>,
        place: Place,
        object: &Value,
        write: &Write,
    ) -> Result<Value, Failure> {
        if let Some(names) = self.layout().names(place) {
            return self.certify(target, place, object, names, write).await;
        }
        let body = desired::body(object, &self.outline.owner, write);
        match target.apply(&body, Commit::Yes).await {
            Ok(live) => self.authorize(target, place, object, live).await,
            Err(failure) => Err(self.cleared(target, object, failure).await),
        }
    }

    /// Applies a Secret with what is due made anew. Where nothing can be built upon, what callers trust stays trusted.
    async fn certify(
        &self,
        target: &Target<'_>,
        place: Place,
        skeleton: &Value,
        names: &[String],
        write: &Write,
    ) -> Result<Value, Failure> {
        let live = target.read().await?;
        let mut older = String::new();
        if live.as_ref().and_then(secret::usable).is_none() {
            for caller in self.layout().callers(place) {
                let id = self.outline.id(caller);
                let Ok(resource) = self.resource(&id, Goal::Keep, Instant::now()).await else {
                    continue;
                };
                let at = Target {
                    client: self.client,
                    resource: &resource,
                    namespace: &id.namespace,
                    name: &id.name,
                };
                if let Some(live) = at.read().await? {
                    older.push_str(&authority::trusted_by(&live));
                }
            }
        }
        let owner = &self.outline.owner;
        let body = secret::body(skeleton, owner, write, names, live.as_ref(), &older, today());
        let body = body.map_err(|error| Failure {
            kind: FailureKind::Transient,
            message: olm_platform::log::chain(&error),
        })?;
        target
            .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
            .await
    }

    /// Has an object that was applied trust the authority that it names.
    async fn authorize(
        &self,
        target: &Target<'_>,
        place: Place,
        wanted: &Value,
        live: Value,
    ) -> Result<Value, Failure> {
        match self.authority(place) {
            Some(trusted) if !authority::is_trusting(wanted, &live, &trusted) => {
                let body = authority::trusting(wanted, &live, &trusted);
                target
                    .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
                    .await
            }
            _ => Ok(live),
        }
    }

    /// The authorities that the object at that place has to trust, as far as they are known.
    fn authority(&self, place: Place) -> Option<String> {
        self.memory.certificates.trusted(self.layout().secret_of(place)?)
    }

    /// What follows from a failure to apply: a conflict when authorities that we wrote stood in the way and are gone now.
    async fn cleared(&self, target: &Target<'_>, wanted: &Value, failure: Failure) -> Failure {
        if failure.kind != FailureKind::Invalid || !authority::is_caller(wanted) {
            return failure;
        }
        let Ok(Some(live)) = target.read().await else {
            return failure;
        };
        let owned = Ownership::of(&live, &self.outline.owner.uid).owner_name;
        let Some(body) = authority::without_leftovers(wanted, &live)
            .filter(|_| owned.as_deref() == Some(self.outline.owner.owner_name.as_str()))
        else {
            return failure;
        };
        match target
            .apply_as(field_manager::CERTIFICATES, &body, Commit::Yes)
            .await
        {
            Ok(_) => Failure {
                kind: FailureKind::Conflict,
                ..failure
            },
            Err(_) => failure,
        }
    }

    /// What it means that the server has no path for an object: that it does not serve the kind counts only when it says
    /// so itself, and the kind's definition, if we know it, says nothing else.
    async fn confirmed(&self, id: &ObjectId, goal: Goal) -> Failure {
        let asked = Instant::now();
        let found = self
            .discovery
            .confirm(&id.group, &id.version, &id.kind, asked)
            .await;
        let found = match found {
            Ok(Some(_)) => Ok(()),
            Ok(None) => self.defined(id, goal).await.map(drop),
            Err(error) => Err(apply::classify(&error)),
        };
        match found {
            Ok(()) => Failure {
                kind: FailureKind::Transient,
                message: format!("the server does not serve the kind {} yet", id.kind),
            },
            Err(failure) => failure,
        }
    }

    /// The kind, as the live definition says that the revision brings; for what the server says of the kinds that it serves
    /// may lag behind. On removal, another version than the wanted one finds the object too.
    async fn defined(&self, id: &ObjectId, goal: Goal) -> Result<Arc<Resource>, Failure> {
        let unknown = || Failure {
            kind: FailureKind::UnknownKind,
            message: format!(
                "no matches for kind \"{}\" in version \"{}\"",
                id.kind,
                id.api_version()
            ),
        };
        let definition = self.outline.id(self.outline.definition(id).ok_or_else(unknown)?);
        let ObjectId {
            group, version, kind, ..
        } = &definition;
        let resource = self.discovery.find(group, version, kind).await;
        let resource = resource
            .map_err(|error| apply::classify(&error))?
            .ok_or_else(unknown)?;
        let target = Target {
            client: self.client,
            resource: &resource,
            namespace: "",
            name: &definition.name,
        };
        let live = target.read().await?.ok_or_else(unknown)?;
        definition::serves(&live, id, goal)
            .map(Arc::new)
            .ok_or_else(unknown)
    }

    async fn resource(&self, id: &ObjectId, goal: Goal, asked: Instant) -> Result<Arc<Resource>, Failure> {
        let found = self
            .discovery
            .find_since(&id.group, &id.version, &id.kind, asked)
            .await;
        let resource = match found.map_err(|error| apply::classify(&error))? {
            Some(resource) => resource,
            None => self.defined(id, goal).await?,
        };
        if resource.scope == Scope::Namespaced && id.namespace.is_empty() {
            return Err(Failure {
                kind: FailureKind::Invalid,
                message: "metadata.namespace must be set".to_owned(),
            });
        }
        Ok(resource)
    }

    /// The body of an object.
    fn body(&self, place: Place) -> Result<&Value, Failure> {
        let phase = self.content.and_then(|content| content.phases.get(place.phase));
        let object = phase.and_then(|phase| phase.objects.get(place.object));
        object.map(|object| &object.object).ok_or_else(|| {
            self.starved.store(true, Ordering::Relaxed);
            Failure {
                kind: FailureKind::Transient,
                message: "the object's content is not at hand".to_owned(),
            }
        })
    }

    fn observation(&self, place: Place, live: &Value, goal: Goal) -> Result<Observation, Failure> {
        let ownership = Ownership::of(live, &self.outline.owner.uid);
        Ok(match goal {
            Goal::Remove => Observation {
                ownership,
                differences: 0,
                probe: ProbeResult::PASSES,
            },
            Goal::Keep => {
                let found = self.compare(place, live)?;
                if found.fingerprint != 0 {
                    let id = self.outline.id(place);
                    tracing::debug!(set = self.outline.owner.name, object = %id, paths = ?found.paths, "differs");
                }
                Observation {
                    ownership,
                    differences: found.fingerprint,
                    probe: probe::ask(self.probes, live),
                }
            }
        })
    }

    /// How a live object differs from what is wanted, with its certificates or authorities.
    fn compare(&self, place: Place, live: &Value) -> Result<Differences, Failure> {
        let (wanted, owner) = (self.body(place)?, &self.outline.owner);
        if let Some(names) = self.layout().names(place) {
            let seen = secret::look(wanted, owner, names, live, today());
            if let Some(trusted) = seen.trusted {
                self.memory.certificates.secret_seen(place, today(), trusted);
            }
            return Ok(seen.differences);
        }
        let mut found = differences(&desired::wanted(wanted, owner), live);
        if let Some(trusted) = self.authority(place) {
            self.memory.certificates.caller_seen(place, &trusted);
            if !authority::is_trusting(wanted, live, &trusted) {
                found.add("caBundle");
            }
        }
        Ok(found)
    }

    /// The answer that needs no request: a watch shows the object just as it was when it was seen last, or our own write
    /// is newer than what the watch has brought. An object that nobody has ever seen counts as absent; creating it
    /// fails should it exist, and then it is read.
    fn remembered(
        &self,
        place: Place,
        id: &ObjectId,
        resource: &Arc<Resource>,
        doubted: bool,
        goal: Goal,
    ) -> Option<Answer> {
        let look = self.coverage.look(resource, &id.namespace, &id.name);
        if look == Look::Unwatched {
            self.unwatched.store(true, Ordering::Relaxed);
        }
        if doubted {
            return None;
        }
        let known = self.memory.known.get(&place);
        let current = match (look, known) {
            (
                Look::There {
                    uid,
                    resource_version,
                },
                Some(known),
            ) => {
                let seen = &known.seen.ownership;
                uid == seen.uid
                    && (resource_version == seen.resource_version
                        || number(&seen.resource_version) > number(&resource_version))
            }
            (Look::Absent { listed, newest }, Some(known)) => {
                number(&known.seen.ownership.resource_version) > newest && known.at > listed
            }
            (Look::Absent { .. }, None) if goal == Goal::Keep => return Some(Answer::Absent),
            (Look::Unwatched, _) | (Look::There { .. } | Look::Absent { .. }, None) => false,
        };
        let holds = || self.memory.certificates.is_current(self.layout(), place, today());
        known
            .filter(|_| current && (goal == Goal::Remove || holds()))
            .map(|known| Answer::Live(Box::new(known.seen.clone())))
    }
}

/// The day, in UTC.
fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

/// What a run wants of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// That they are as the revision says.
    Keep,
    /// That they are gone.
    Remove,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use olm_api::cluster_object_set::CollisionProtection;
    use serde_json::json;

    use super::*;
    use crate::{
        cluster::fake,
        object_set::{
            content::{ContentObject, ContentPhase},
            engine::Owner,
            memory::Phases,
        },
    };

    fn definition() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.x.io", "uid": "d", "resourceVersion": "5",
                "ownerReferences": [{"uid": "us", "controller": true}]},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"kind": "Foo"},
                "versions": [{"name": "v1", "served": true}]},
            "status": {"acceptedNames": {"kind": "Foo", "plural": "foos"},
                "conditions": [{"type": "Established", "status": "True"}]},
        })
    }

    fn custom() -> Value {
        json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "foo", "namespace": "n", "uid": "c",
            "resourceVersion": "6", "ownerReferences": [{"uid": "us", "controller": true}]}})
    }

    fn outline() -> Outline {
        let phase = |name: &str, object: Value| ContentPhase {
            name: name.to_owned(),
            objects: vec![ContentObject {
                object,
                collision_protection: CollisionProtection::Prevent,
            }],
            ..ContentPhase::default()
        };
        let content = Content {
            phases: vec![phase("crds", definition()), phase("deploy", custom())],
        };
        let owner = Owner {
            uid: "us".to_owned(),
            ..Owner::default()
        };
        Phases::of(&content).outline(owner, Vec::new())
    }

    /// Takes the definition and its object down and gives the end and the paths of what was deleted. What the server says
    /// of the kinds of `x.io/v1` is the reply; the other one is what it says of the object.
    async fn take_down(
        kinds: fake::Reply,
        object: fake::Reply,
        live: Option<Value>,
    ) -> (TeardownEnd, Vec<String>) {
        let (client, log) = fake::client(move |method, path| match (method, path) {
            (_, "/api" | "/apis") => (200, json!({"items": []})),
            (_, "/apis/apiextensions.k8s.io/v1") => (
                200,
                json!({"groupVersion": "apiextensions.k8s.io/v1", "resources": [
                    {"name": "customresourcedefinitions", "singularName": "", "namespaced": false,
                        "kind": "CustomResourceDefinition", "verbs": ["get"]},
                ]}),
            ),
            (_, "/apis/x.io/v1") => kinds.clone(),
            ("DELETE", _) => (200, json!({"kind": "Status", "status": "Success"})),
            ("GET", "/apis/x.io/v1/namespaces/n/foos/foo") => object.clone(),
            ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.x.io") => match &live {
                Some(live) => (200, live.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
                ),
            },
            _ => (404, json!("404 page not found")),
        });
        let discovery = Discovery::new(client.clone());
        let outline = outline();
        let mut executor = Executor {
            client: &client,
            discovery: &discovery,
            coverage: &Coverage::default(),
            outline: &outline,
            content: None,
            probes: &[],
            memory: &mut Memory::default(),
            starved: AtomicBool::default(),
            unwatched: AtomicBool::default(),
        };
        let end = executor.take_down(BTreeSet::new()).await;
        let log = log.lock().unwrap();
        let deleted = log
            .iter()
            .filter_map(|request| request.strip_prefix("DELETE "))
            .map(str::to_owned);
        (end, deleted.collect())
    }

    #[tokio::test]
    async fn a_custom_resource_is_gone_only_when_the_server_and_its_definition_say_so() {
        let foo = "/apis/x.io/v1/namespaces/n/foos/foo";
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.x.io";
        let text = || (404, json!("404 page not found"));
        let none = || {
            (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
            )
        };
        let served = || {
            (
                200,
                json!({"groupVersion": "x.io/v1", "resources": [
                    {"name": "foos", "singularName": "", "namespaced": true, "kind": "Foo", "verbs": ["get"]},
                ]}),
            )
        };
        let mut unserved = definition();
        unserved["spec"]["versions"][0]["served"] = false.into();
        for (name, kinds, object, live, expected, complete) in [
            (
                "served",
                served(),
                (200, custom()),
                Some(definition()),
                &[foo, crd][..],
                true,
            ),
            (
                "not listed yet",
                text(),
                (200, custom()),
                Some(definition()),
                &[foo, crd],
                true,
            ),
            ("gone", served(), none(), Some(definition()), &[crd], true),
            (
                "its path is not there for a moment",
                served(),
                text(),
                Some(definition()),
                &[],
                false,
            ),
            (
                "neither its path nor its kind is there yet",
                text(),
                text(),
                Some(definition()),
                &[],
                false,
            ),
            (
                "its server is down",
                (503, json!("unavailable")),
                text(),
                Some(definition()),
                &[],
                false,
            ),
            (
                "no version of it is served",
                text(),
                text(),
                Some(unserved),
                &[crd],
                true,
            ),
            ("the definition is gone", text(), text(), None, &[], true),
        ] {
            let (end, deleted) = take_down(kinds, object, live).await;
            assert_eq!(deleted, expected, "{name}");
            match end {
                TeardownEnd::Complete => assert!(complete, "{name}"),
                TeardownEnd::Failed { phase: 1, failures } => {
                    assert!(!complete, "{name}");
                    assert!(
                        failures
                            .iter()
                            .all(|(_, failure)| failure.kind == FailureKind::Transient),
                        "{name}"
                    );
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
