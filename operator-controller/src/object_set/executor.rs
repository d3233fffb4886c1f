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
    watch::{Coverage, Freshness, WatchedState, number},
};
use olm_rollout::{
    certificates::authority::AuthorityObstacle,
    content::RevisionContent,
    engine::{
        desired,
        release::released,
        request::{Observation, Request, RequestOutcome, Step},
        rollout::{Report, Rollout, Settings},
        teardown::{RetainedObjects, Teardown, TeardownEnd},
    },
    failure::{FailureKind, RequestFailure},
    object::ObjectId,
    outline::{ObjectPosition, Outline},
    ownership::{Guard, Ownership},
    probe::{self, ProbeResult},
};
use serde_json::Value;

use super::state::{SeenObject, SetState};
use goal::Goal;

/// The most concurrent requests of one set.
const CONCURRENCY: usize = 8;

/// The parts that are needed to execute requests.
pub(crate) struct Executor<'a> {
    /// A client with the account's rights.
    pub client: &'a Client,
    /// The kinds that the cluster serves.
    pub discovery: &'a Discovery,
    /// The watches of the set.
    pub coverage: &'a Coverage,
    /// The revision.
    pub outline: &'a Outline,
    /// The bodies, if they are loaded.
    pub content: Option<&'a RevisionContent>,
    pub probes: &'a [ProgressionProbe],
    /// The greatest age of the known state of objects.
    pub freshness: Freshness,
    /// The state from earlier runs.
    pub set_state: &'a mut SetState,
    /// Set if a body was needed and not loaded.
    pub starved: AtomicBool,
    /// Set if no watch covers one of the objects.
    pub unwatched: AtomicBool,
}

impl<'a> Executor<'a> {
    /// An executor without content and probes that reads the live state of objects.
    pub(crate) fn new(
        client: &'a Client,
        discovery: &'a Discovery,
        coverage: &'a Coverage,
        outline: &'a Outline,
        set_state: &'a mut SetState,
    ) -> Self {
        Self {
            client,
            discovery,
            coverage,
            outline,
            content: None,
            probes: &[],
            freshness: Freshness::Live,
            set_state,
            starved: AtomicBool::new(false),
            unwatched: AtomicBool::new(false),
        }
    }

    /// Rolls the revision out as far as possible now.
    pub(crate) async fn roll_out(&mut self, settings: Settings) -> Report {
        let mut reread = HashSet::new();
        let mut step = Rollout::start(self.outline, settings);
        loop {
            match step {
                Step::End(report) => return report,
                Step::Ask(machine, requests) => {
                    let answers = self.fulfil(&requests, &mut reread, Goal::Keep).await;
                    step = machine.step(self.outline, answers);
                }
            }
        }
    }

    /// Tears the revision down as far as possible now.
    pub(crate) async fn take_down(&mut self, retained: RetainedObjects) -> TeardownEnd {
        let mut reread = HashSet::new();
        let kept = retained.kept.clone();
        let mut step = Teardown::start(self.outline, retained);
        loop {
            match step {
                Step::End(end) => return end,
                Step::Ask(machine, requests) => {
                    let answers = self.fulfil(&requests, &mut reread, Goal::Remove).await;
                    for (request, answer) in requests.iter().zip(&answers) {
                        let position = request.position();
                        if matches!(request, Request::Observe(_))
                            && is_gone(answer)
                            && !kept.contains(&position)
                            && self.set_state.teardown.swept.insert(position)
                        {
                            self.delete_remains_of(&self.outline.id(position)).await;
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
        reread: &mut HashSet<ObjectPosition>,
        goal: Goal,
    ) -> Vec<RequestOutcome> {
        let this = &*self;
        let seen = &*reread;
        let asked = Instant::now();
        // Collected first: a closure inside the stream would make the future not `Send`.
        let work: Vec<_> = requests
            .iter()
            .map(|request| this.one(request, seen.contains(&request.position()), goal, asked))
            .collect();
        let answers: Vec<(RequestOutcome, bool)> = stream::iter(work).buffered(CONCURRENCY).collect().await;
        for (request, (answer, is_remembered)) in requests.iter().zip(&answers) {
            if !is_remembered {
                self.note(request, answer, reread, goal);
            }
        }
        answers.into_iter().map(|(answer, _)| answer).collect()
    }

    /// Records the answer of the server.
    fn note(
        &mut self,
        request: &Request,
        answer: &RequestOutcome,
        reread: &mut HashSet<ObjectPosition>,
        goal: Goal,
    ) {
        let position = request.position();
        match (request, answer) {
            (Request::DryRun(..), RequestOutcome::Live(_) | RequestOutcome::Absent) => {}
            (_, RequestOutcome::Live(seen)) => {
                reread.remove(&position);
                let at = self
                    .set_state
                    .objects
                    .known
                    .get(&position)
                    .filter(|known| known.seen == **seen)
                    .map(|known| known.at);
                self.set_state.objects.known.insert(
                    position,
                    SeenObject {
                        seen: (**seen).clone(),
                        at: at.unwrap_or_else(Instant::now),
                        asked: Instant::now(),
                    },
                );
            }
            (_, RequestOutcome::Absent) => {
                self.set_state.objects.known.remove(&position);
                if goal == Goal::Remove {
                    self.set_state.teardown.gone.insert(position);
                }
            }
            (_, RequestOutcome::Failed(_) | RequestOutcome::Blocked(_)) => {
                self.set_state.objects.known.remove(&position);
                reread.insert(position);
            }
        }
    }

    /// An answer, and whether it came from memory without a request.
    async fn one(
        &self,
        request: &Request,
        reread: bool,
        goal: Goal,
        asked: Instant,
    ) -> (RequestOutcome, bool) {
        let mut is_remembered = false;
        let answer = self.answer(request, reread, goal, asked, &mut is_remembered);
        (answer.await, is_remembered)
    }

    async fn answer(
        &self,
        request: &Request,
        reread: bool,
        goal: Goal,
        asked: Instant,
        is_remembered: &mut bool,
    ) -> RequestOutcome {
        let position = request.position();
        if goal == Goal::Remove && self.set_state.teardown.gone.contains(&position) {
            return RequestOutcome::Absent;
        }
        let id = self.outline.id(position);
        let resource = match self.resource(&id, goal, asked).await {
            Ok(resource) => resource,
            Err(failure) => return RequestOutcome::Failed(failure),
        };
        let target = Target {
            client: self.client,
            resource: &resource,
            namespace: &id.namespace,
            name: &id.name,
        };
        let done = match request {
            Request::Observe(_) => match self.remembered(position, &id, &resource, reread, goal) {
                Some(answer) => {
                    *is_remembered = true;
                    return answer;
                }
                None => target.read().await,
            },
            // The content of the Secret is created when it is applied.
            Request::DryRun(..) if self.layout().names(position).is_some() => Ok(None),
            Request::DryRun(_, write) => {
                let object = match self.body(position) {
                    Ok(object) => object,
                    Err(failure) => return RequestOutcome::Failed(failure),
                };
                let body = desired::body(object, &self.outline.owner, write);
                match target.apply(&body, Commit::DryRun).await {
                    Err(failure) if apply::cannot_dry_run(&failure) => Ok(None),
                    Err(failure) => match self.obstacle(&target, object, &failure).await {
                        Some(AuthorityObstacle::Ours(_)) => return RequestOutcome::Blocked(failure),
                        // The present object is in use until the wanted one is applied, so a dry run is not possible.
                        Some(AuthorityObstacle::Injected(_)) => Ok(None),
                        None => Err(failure),
                    },
                    Ok(live) => Ok(Some(live)),
                }
            }
            Request::Apply(_, write) => {
                let object = match self.body(position) {
                    Ok(object) => object,
                    Err(failure) => return RequestOutcome::Failed(failure),
                };
                tracing::debug!(set = self.outline.owner.name, object = %id, guard = ?write.guard, "applying");
                match self.apply(&target, position, object, write).await {
                    Ok(live) => Ok(Some(live)),
                    Err(answer) => return answer,
                }
            }
            Request::Clear(_) => match self.body(position) {
                Ok(object) => self.clear(&target, object).await,
                Err(failure) => Err(failure),
            },
            Request::Release(_, guard, holder) => release(&target, holder.uid(self.outline), guard).await,
            Request::Delete(_, guard) => self.delete(&target, &id, guard).await,
        };
        match done {
            Ok(None) => RequestOutcome::Absent,
            Ok(Some(live)) => match self.observation(position, &live, goal) {
                Ok(seen) => RequestOutcome::Live(Box::new(seen)),
                Err(failure) => RequestOutcome::Failed(failure),
            },
            Err(failure) if failure.kind == FailureKind::UnknownKind => {
                RequestOutcome::Failed(self.confirmed(&id, goal).await)
            }
            Err(failure) => RequestOutcome::Failed(failure),
        }
    }

    /// The body of an object.
    fn body(&self, position: ObjectPosition) -> Result<&Value, RequestFailure> {
        let phase = self
            .content
            .and_then(|content| content.phases.get(position.phase));
        let object = phase.and_then(|phase| phase.objects.get(position.object));
        object.map(|object| &object.object).ok_or_else(|| {
            self.starved.store(true, Ordering::Relaxed);
            RequestFailure::new(FailureKind::Transient, "the object's content is missing")
        })
    }

    fn observation(
        &self,
        position: ObjectPosition,
        live: &Value,
        goal: Goal,
    ) -> Result<Observation, RequestFailure> {
        let ownership = Ownership::of(live, &self.outline.owner.uid);
        Ok(match goal {
            Goal::Remove => Observation {
                ownership,
                differences: 0,
                probe: ProbeResult::PASSES,
            },
            Goal::Keep => {
                let found = self.compare(position, live)?;
                if found.fingerprint != 0 {
                    let id = self.outline.id(position);
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
        position: ObjectPosition,
        id: &ObjectId,
        resource: &Arc<Resource>,
        reread: bool,
        goal: Goal,
    ) -> Option<RequestOutcome> {
        let state = self.coverage.state(resource, &id.namespace, &id.name);
        if state == WatchedState::Unwatched {
            self.unwatched.store(true, Ordering::Relaxed);
        }
        if reread {
            return None;
        }
        let known = self.set_state.objects.known.get(&position);
        let current = match (state, known) {
            // Objects without a watch are read within a rate limit.
            (WatchedState::Unwatched, Some(known))
                if goal == Goal::Keep && self.freshness == Freshness::Recent =>
            {
                !self.coverage.is_due(resource, known.asked)
            }
            (
                WatchedState::There {
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
            (WatchedState::Absent { listed, newest }, Some(known)) => {
                let seen = &known.seen.ownership;
                seen.owned && number(&seen.resource_version) > newest && known.at > listed
            }
            (WatchedState::Absent { .. }, None) if goal == Goal::Keep => return Some(RequestOutcome::Absent),
            (WatchedState::Unwatched, _)
            | (WatchedState::There { .. } | WatchedState::Absent { .. }, None) => false,
        };
        let holds = || {
            self.set_state
                .objects
                .certificates
                .is_current(self.layout(), position, today())
        };
        known
            .filter(|_| current && (goal == Goal::Remove || holds()))
            .map(|known| RequestOutcome::Live(Box::new(known.seen.clone())))
    }
}

/// Removes an owner reference from the object and, if that owner controlled it, our marks too. `None` if the object
/// does not exist.
async fn release(
    target: &Target<'_>,
    owner_uid: &str,
    guard: &Guard,
) -> Result<Option<Value>, RequestFailure> {
    let Some(live) = target.read().await? else {
        return Ok(None);
    };
    Ownership::of(&live, owner_uid).check(guard)?;
    target.merge(&released(&live, owner_uid)).await.map(Some)
}

/// Whether the answer means that an object or its kind does not exist.
fn is_gone(answer: &RequestOutcome) -> bool {
    match answer {
        RequestOutcome::Absent => true,
        RequestOutcome::Live(_) | RequestOutcome::Blocked(_) => false,
        RequestOutcome::Failed(failure) => failure.kind == FailureKind::UnknownKind,
    }
}

/// The day, in UTC.
fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}
