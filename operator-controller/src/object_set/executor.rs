//! Executes the requests of the engine under the account, with as few API requests as possible.

mod certificates;
mod definition;
mod goal;
mod issued;
mod kinds;
#[cfg(test)]
mod testing;

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
use olm_api::cluster_object_set::ProgressionProbe;
use olm_cluster::{
    apply::{self, Commit, Target},
    discover::{Discovery, Resource},
    watch::{Coverage, Freshness, Look, number},
};
use olm_rollout::{
    certificates::authority::Obstacle,
    content::Content,
    engine::{
        desired,
        release::released,
        request::{Answer, Observation, Request, Step},
        rollout::{Report, Rollout, Settings},
        teardown::{Lasting, Teardown, TeardownEnd},
    },
    failure::{Failure, FailureKind},
    object::ObjectId,
    outline::{Outline, Place},
    ownership::{Guard, Ownership},
    probe::{self, ProbeResult},
};
use serde_json::Value;

use super::memory::{Memory, SeenObject};
use goal::Goal;

/// The most concurrent requests of one set.
const CONCURRENCY: usize = 8;

/// The parts that are needed to execute requests.
pub struct Executor<'a> {
    /// A client with the account's rights.
    pub client: &'a Client,
    /// The kinds that the cluster serves.
    pub discovery: &'a Discovery,
    /// The watches of the set.
    pub coverage: &'a Coverage,
    /// The revision.
    pub outline: &'a Outline,
    /// The bodies, if they are loaded.
    pub content: Option<&'a Content>,
    /// The probes.
    pub probes: &'a [ProgressionProbe],
    /// The greatest age of the known state of objects.
    pub freshness: Freshness,
    /// The state from earlier runs.
    pub memory: &'a mut Memory,
    /// Set if a body was needed and not loaded.
    pub starved: AtomicBool,
    /// Set if no watch covers one of the objects.
    pub unwatched: AtomicBool,
}

impl Executor<'_> {
    /// Rolls the revision out as far as possible now.
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

    /// Tears the revision down as far as possible now.
    pub async fn take_down(&mut self, lasting: Lasting) -> TeardownEnd {
        let mut doubted = HashSet::new();
        let kept = lasting.kept.clone();
        let mut step = Teardown::start(self.outline, lasting);
        loop {
            match step {
                Step::End(end) => return end,
                Step::Ask(machine, requests) => {
                    let answers = self.fulfil(&requests, &mut doubted, Goal::Remove).await;
                    for (request, answer) in requests.iter().zip(&answers) {
                        let place = request.place();
                        if matches!(request, Request::Observe(_))
                            && is_gone(answer)
                            && !kept.contains(&place)
                            && self.memory.teardown.swept.insert(place)
                        {
                            self.delete_remains_of(&self.outline.id(place)).await;
                        }
                    }
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
        // Collected first: a closure inside the stream would make the future not `Send`.
        let work: Vec<_> = requests
            .iter()
            .map(|request| this.one(request, seen.contains(&request.place()), goal, asked))
            .collect();
        let answers: Vec<(Answer, bool)> = stream::iter(work).buffered(CONCURRENCY).collect().await;
        for (request, (answer, is_remembered)) in requests.iter().zip(&answers) {
            if !is_remembered {
                self.note(request, answer, doubted, goal);
            }
        }
        answers.into_iter().map(|(answer, _)| answer).collect()
    }

    /// Records the answer of the server.
    fn note(&mut self, request: &Request, answer: &Answer, doubted: &mut HashSet<Place>, goal: Goal) {
        let place = request.place();
        match (request, answer) {
            (Request::DryRun(..), Answer::Live(_) | Answer::Absent) => {}
            (_, Answer::Live(seen)) => {
                doubted.remove(&place);
                let at = self
                    .memory
                    .objects
                    .known
                    .get(&place)
                    .filter(|known| known.seen == **seen)
                    .map(|known| known.at);
                self.memory.objects.known.insert(
                    place,
                    SeenObject {
                        seen: (**seen).clone(),
                        at: at.unwrap_or_else(Instant::now),
                        asked: Instant::now(),
                    },
                );
            }
            (_, Answer::Absent) => {
                self.memory.objects.known.remove(&place);
                if goal == Goal::Remove {
                    self.memory.teardown.gone.insert(place);
                }
            }
            (_, Answer::Failed(_) | Answer::Obstructed(_)) => {
                self.memory.objects.known.remove(&place);
                doubted.insert(place);
            }
        }
    }

    /// An answer, and whether it came from memory without a request.
    async fn one(&self, request: &Request, doubted: bool, goal: Goal, asked: Instant) -> (Answer, bool) {
        let mut is_remembered = false;
        let answer = self.answer(request, doubted, goal, asked, &mut is_remembered);
        (answer.await, is_remembered)
    }

    async fn answer(
        &self,
        request: &Request,
        doubted: bool,
        goal: Goal,
        asked: Instant,
        is_remembered: &mut bool,
    ) -> Answer {
        let place = request.place();
        if goal == Goal::Remove && self.memory.teardown.gone.contains(&place) {
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
                Some(answer) => {
                    *is_remembered = true;
                    return answer;
                }
                None => target.read().await,
            },
            // The content of the Secret is created when it is applied.
            Request::DryRun(..) if self.layout().names(place).is_some() => Ok(None),
            Request::DryRun(_, write) => {
                let object = match self.body(place) {
                    Ok(object) => object,
                    Err(failure) => return Answer::Failed(failure),
                };
                let body = desired::body(object, &self.outline.owner, write);
                match target.apply(&body, Commit::DryRun).await {
                    Err(failure) if apply::cannot_dry_run(&failure) => Ok(None),
                    Err(failure) => match self.obstacle(&target, object, &failure).await {
                        Some(Obstacle::Ours(_)) => return Answer::Obstructed(failure),
                        // The present object is in use until the wanted one is applied, so a dry run is not possible.
                        Some(Obstacle::Injected(_)) => Ok(None),
                        None => Err(failure),
                    },
                    Ok(live) => Ok(Some(live)),
                }
            }
            Request::Apply(_, write) => {
                let object = match self.body(place) {
                    Ok(object) => object,
                    Err(failure) => return Answer::Failed(failure),
                };
                tracing::debug!(set = self.outline.owner.name, object = %id, guard = ?write.guard, "applying");
                match self.apply(&target, place, object, write).await {
                    Ok(live) => Ok(Some(live)),
                    Err(answer) => return answer,
                }
            }
            Request::Clear(_) => match self.body(place) {
                Ok(object) => self.clear(&target, object).await,
                Err(failure) => Err(failure),
            },
            Request::Release(_, guard, holder) => release(&target, holder.uid(self.outline), guard).await,
            Request::Delete(_, guard) => self.delete(&target, &id, guard).await,
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

    /// The body of an object.
    fn body(&self, place: Place) -> Result<&Value, Failure> {
        let phase = self.content.and_then(|content| content.phases.get(place.phase));
        let object = phase.and_then(|phase| phase.objects.get(place.object));
        object.map(|object| &object.object).ok_or_else(|| {
            self.starved.store(true, Ordering::Relaxed);
            Failure::new(FailureKind::Transient, "the object's content is missing")
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

    /// The answer without a request: a watch shows the object as it was last seen, or our own write is newer than the
    /// watch. An object that was never seen counts as absent. If it exists, its creation fails, and then it is read.
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
        let known = self.memory.objects.known.get(&place);
        let current = match (look, known) {
            // Objects without a watch are read within a rate limit.
            (Look::Unwatched, Some(known)) if goal == Goal::Keep && self.freshness == Freshness::Recent => {
                !self.coverage.is_due(resource, known.asked)
            }
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
            // The watch will show an object that we have just applied. It never shows objects of others.
            (Look::Absent { listed, newest }, Some(known)) => {
                let seen = &known.seen.ownership;
                seen.owned && number(&seen.resource_version) > newest && known.at > listed
            }
            (Look::Absent { .. }, None) if goal == Goal::Keep => return Some(Answer::Absent),
            (Look::Unwatched, _) | (Look::There { .. } | Look::Absent { .. }, None) => false,
        };
        let holds = || {
            self.memory
                .objects
                .certificates
                .is_current(self.layout(), place, today())
        };
        known
            .filter(|_| current && (goal == Goal::Remove || holds()))
            .map(|known| Answer::Live(Box::new(known.seen.clone())))
    }
}

/// Removes an owner reference from the object and, if that owner controlled it, our marks too. `None` if the object
/// does not exist.
async fn release(target: &Target<'_>, owner_uid: &str, guard: &Guard) -> Result<Option<Value>, Failure> {
    let Some(live) = target.read().await? else {
        return Ok(None);
    };
    Ownership::of(&live, owner_uid).check(guard)?;
    target.merge(&released(&live, owner_uid)).await.map(Some)
}

/// Whether the answer means that an object or its kind does not exist.
fn is_gone(answer: &Answer) -> bool {
    match answer {
        Answer::Absent => true,
        Answer::Live(_) | Answer::Obstructed(_) => false,
        Answer::Failed(failure) => failure.kind == FailureKind::UnknownKind,
    }
}

/// The day, in UTC.
fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}
