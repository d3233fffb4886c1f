//! Every interleaving of small worlds: revisions of one or two extensions, two leaders, crashes, lost answers, stale
//! reads, users that edit and delete.
//!
//! The worlds run the engine itself on the simulated API server. In every state that can be reached:
//!
//! - an object has at most one controller, and only its controller or a newer revision of the same extension changes it;
//! - a fair run from there, without further faults, ends in the state of an undisturbed run. It suffices to look at states
//!   in which no process is within a run: the others lead there.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use serde_json::Value;
use stateright::{Checker, Model, Property};

use super::simulation::{Cluster, Revision, executor, revision};
use crate::engine::request::{Request, RequestOutcome, Step};
use crate::engine::rollout::{Mode, Rollout, RolloutEnd, Settings};
use crate::engine::teardown::{RetainedObjects, Teardown, TeardownEnd};
use crate::failure::{FailureKind, RequestFailure};
use crate::object::ObjectId;

/// The most rounds of a fair run.
const ROUNDS: usize = 12;

/// A world before anything happens.
struct World {
    /// The revisions, each created after the previous one.
    revisions: Vec<Revision>,
    /// The number of revisions that are installed at the start.
    installed: usize,
    /// The revision of each process that may run, by index. A revision that is named twice has two leaders.
    processes: Vec<usize>,
    /// Most faults and foreign changes that may happen.
    disturbances: u8,
    /// Kinds whose objects become ready later.
    slow: &'static [&'static str],
    /// The revisions whose extension is uninstalled at some time, by index.
    uninstalled: Vec<usize>,
    /// The server ignores preconditions.
    unguarded: bool,
    /// The objects after an undisturbed run.
    end: OnceLock<Vec<Value>>,
}

/// The life of a revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Life {
    created: bool,
    succeeded: bool,
    archived: bool,
}

#[derive(Debug, Clone)]
enum Machine {
    Up(Rollout),
    Down(Teardown),
}

/// A process within a run.
#[derive(Debug, Clone)]
struct Run {
    machine: Machine,
    requests: Vec<Request>,
    answers: Vec<RequestOutcome>,
    /// All of it as text: machines have no equality of their own.
    text: String,
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Run {}

impl Hash for Run {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    cluster: Cluster,
    /// The cluster before its last change, for stale reads.
    previous: Cluster,
    lives: Vec<Life>,
    runs: Vec<Option<Run>>,
    disturbances: u8,
    violation: Option<String>,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// It is fulfilled.
    Fulfilled,
    /// It takes effect, and the answer is lost.
    AnswerLost,
    /// It fails without effect.
    Failed,
    /// A read returns the state before the last change.
    Stale,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Create(usize),
    Archive(usize),
    Start(usize),
    Request(usize, Course),
    Crash(usize),
    Settle,
    Edit(ObjectId),
    Delete(ObjectId),
}

impl World {
    fn upgrade() -> Self {
        Self {
            revisions: vec![
                revision(1, &[&[("A", "1")], &[("C", "1"), ("Old", "1")]]),
                revision(2, &[&[("A", "2")], &[("C", "1"), ("New", "2")]]),
            ],
            installed: 1,
            processes: vec![0, 1],
            disturbances: 1,
            slow: &["New"],
            uninstalled: Vec::new(),
            unguarded: false,
            end: OnceLock::new(),
        }
    }

    fn start(&self) -> State {
        let mut state = State {
            cluster: Cluster {
                hashed: true,
                unguarded: self.unguarded,
                slow: self.slow.iter().map(|kind| (*kind).to_owned()).collect(),
                ..Cluster::default()
            },
            previous: Cluster::default(),
            lives: vec![Life::default(); self.revisions.len()],
            runs: vec![None; self.processes.len()],
            disturbances: 0,
            violation: None,
        };
        for index in 0..self.installed {
            state.lives[index].created = true;
            self.settle(&mut state, |_| false);
        }
        state.cluster = Self::canonical(state.cluster);
        state.previous = state.cluster.clone();
        state
    }

    fn canonical(cluster: Cluster) -> Cluster {
        Cluster {
            version: 0,
            requests: 0,
            writes: 0,
            ..cluster
        }
    }

    /// Whether a newer revision of the extension succeeded.
    fn is_superseded(&self, state: &State, index: usize) -> bool {
        let owner = &self.revisions[index].outline.owner;
        let newer = |other: usize| {
            let other_owner = &self.revisions[other].outline.owner;
            other_owner.owner_name == owner.owner_name
                && other_owner.revision > owner.revision
                && state.lives[other].succeeded
        };
        (0..self.revisions.len()).any(newer)
    }

    fn is_uninstalled(&self, index: usize) -> bool {
        self.uninstalled.contains(&index)
    }

    fn begin(&self, state: &mut State, process: usize) {
        let index = self.processes[process];
        let life = state.lives[index];
        let outline = &self.revisions[index].outline;
        if life.archived {
            let step = Teardown::start(outline, RetainedObjects::default());
            Self::took_down(state, process, step);
        } else {
            let mode = if life.succeeded {
                Mode::KeepUp
            } else {
                Mode::RollOut
            };
            let settings = Settings {
                mode,
                ..Settings::default()
            };
            let step = Rollout::start(outline, settings);
            self.rolled_out(state, process, step);
        }
    }

    fn rolled_out(
        &self,
        state: &mut State,
        process: usize,
        step: Step<Rollout, crate::engine::rollout::Report>,
    ) {
        state.runs[process] = match step {
            Step::Ask(machine, requests) => Some(run(Machine::Up(machine), requests)),
            Step::End(report) => {
                state.lives[self.processes[process]].succeeded |= report.end == RolloutEnd::Complete;
                None
            }
        };
    }

    fn took_down(state: &mut State, process: usize, step: Step<Teardown, TeardownEnd>) {
        state.runs[process] = match step {
            Step::Ask(machine, requests) => Some(run(Machine::Down(machine), requests)),
            Step::End(_) => None,
        };
    }

    /// Makes the next request of a process.
    fn request(&self, state: &mut State, process: usize, course: Course) {
        let Some(mut under_way) = state.runs[process].take() else {
            return;
        };
        let revision = &self.revisions[self.processes[process]];
        let request = under_way.requests[under_way.answers.len()].clone();
        let before = state.cluster.clone();
        let transient = || RequestOutcome::Failed(RequestFailure::new(FailureKind::Transient, "transient"));
        let answer = match course {
            Course::Failed => transient(),
            Course::Stale => executor(&mut state.previous.clone(), revision).one(&request),
            Course::Fulfilled | Course::AnswerLost => {
                let answer = executor(&mut state.cluster, revision).one(&request);
                if course == Course::Fulfilled {
                    answer
                } else {
                    transient()
                }
            }
        };
        state.cluster = Self::canonical(std::mem::take(&mut state.cluster));
        if state.cluster.objects != before.objects {
            if let Some(found) = self.violation(revision, &request, &before, &state.cluster) {
                state.violation = Some(found);
            }
            state.previous = before;
        }
        under_way.answers.push(answer);
        if under_way.answers.len() < under_way.requests.len() {
            state.runs[process] = Some(run_with(under_way.machine, under_way.requests, under_way.answers));
            return;
        }
        match under_way.machine {
            Machine::Up(machine) => {
                let step = machine.step(&revision.outline, under_way.answers);
                self.rolled_out(state, process, step);
            }
            Machine::Down(machine) => {
                let step = machine.step(&revision.outline, under_way.answers);
                Self::took_down(state, process, step);
            }
        }
    }

    /// The rule that a change breaks.
    fn violation(
        &self,
        actor: &Revision,
        request: &Request,
        before: &Cluster,
        after: &Cluster,
    ) -> Option<String> {
        let id = actor.outline.id(request.position());
        let owner = &actor.outline.owner;
        let was = before.objects.get(&id).map(controllers);
        let is = after.objects.get(&id).map(controllers);
        if let Some(is) = &is
            && is.len() > 1
        {
            return Some(format!("{id:?} has the controllers {is:?}"));
        }
        let was = was?;
        let holder = was.first()?;
        if *holder == owner.uid {
            return None;
        }
        let older = |revision: &Revision| {
            revision.outline.owner.uid == *holder
                && revision.outline.owner.owner_name == owner.owner_name
                && revision.outline.owner.revision < owner.revision
        };
        let released = matches!(request, Request::Release(..)) && is.as_ref() == Some(&was);
        (released || (is.is_some() && self.revisions.iter().any(older)))
            .then_some(())
            .map_or_else(
                || Some(format!("{} changed {id:?}, which {holder} controls", owner.name)),
                |()| None,
            )
    }

    /// Lets everything happen in turn, without faults, until nothing changes.
    fn settle(&self, state: &mut State, is_uninstalled: impl Fn(usize) -> bool) {
        for process in 0..self.processes.len() {
            self.finish(state, process);
        }
        for _ in 0..ROUNDS {
            let before = state.clone();
            for process in 0..self.processes.len() {
                if state.lives[self.processes[process]].created {
                    self.begin(state, process);
                    self.finish(state, process);
                }
            }
            state.cluster.settle();
            for index in 0..self.revisions.len() {
                let goes = is_uninstalled(index) || self.is_superseded(state, index);
                state.lives[index].archived |= state.lives[index].created && goes;
            }
            state.previous = before.previous.clone();
            if *state == before {
                return;
            }
        }
        state
            .violation
            .get_or_insert_with(|| "a fair run does not come to rest".to_owned());
    }

    fn finish(&self, state: &mut State, process: usize) {
        while state.runs[process].is_some() {
            self.request(state, process, Course::Fulfilled);
        }
    }

    /// The cluster after all revisions are created and everything has settled.
    fn ended(&self, state: &State) -> (Vec<Value>, Option<String>) {
        let mut state = state.clone();
        for index in 0..self.revisions.len() {
            if !state.lives[index].created {
                state.lives[index].created = true;
                self.settle(&mut state, |_| false);
            }
        }
        self.settle(&mut state, |index| self.is_uninstalled(index));
        (state.cluster.normalised(), state.violation)
    }
}

fn run(machine: Machine, requests: Vec<Request>) -> Run {
    run_with(machine, requests, Vec::new())
}

fn run_with(machine: Machine, requests: Vec<Request>, answers: Vec<RequestOutcome>) -> Run {
    let mut text = String::new();
    let _ = write!(text, "{machine:?} {requests:?} {answers:?}");
    Run {
        machine,
        requests,
        answers,
        text,
    }
}

/// The UIDs of the owners that control an object.
fn controllers(live: &Value) -> Vec<String> {
    let owners = live["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .filter(|owner| owner["controller"] == true)
        .filter_map(|owner| owner["uid"].as_str().map(str::to_owned))
        .collect()
}

impl Model for World {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let mut state = self.start();
        state.disturbances = self.disturbances;
        vec![state]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (index, life) in state.lives.iter().enumerate() {
            if !life.created && (index == 0 || state.lives[index - 1].created) {
                events.push(Event::Create(index));
            }
            let goes = self.is_uninstalled(index) || self.is_superseded(state, index);
            if life.created && !life.archived && goes {
                events.push(Event::Archive(index));
            }
        }
        let disturbed = state.disturbances > 0;
        for (process, run) in state.runs.iter().enumerate() {
            let Some(run) = run else {
                if state.lives[self.processes[process]].created {
                    events.push(Event::Start(process));
                }
                continue;
            };
            events.push(Event::Request(process, Course::Fulfilled));
            if disturbed {
                events.push(Event::Crash(process));
                events.push(Event::Request(process, Course::Failed));
                let request = run.requests.get(run.answers.len());
                if request.is_some_and(Request::writes) {
                    events.push(Event::Request(process, Course::AnswerLost));
                } else if state.previous.objects != state.cluster.objects {
                    events.push(Event::Request(process, Course::Stale));
                }
            }
        }
        if state.cluster.objects.values().any(|live| live["ready"] != "yes") {
            events.push(Event::Settle);
        }
        if disturbed {
            for id in state.cluster.objects.keys() {
                events.push(Event::Edit(id.clone()));
                events.push(Event::Delete(id.clone()));
            }
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Create(index) => state.lives[index].created = true,
            Event::Archive(index) => state.lives[index].archived = true,
            Event::Start(process) => self.begin(&mut state, process),
            Event::Request(process, course) => {
                state.disturbances -= u8::from(course != Course::Fulfilled);
                self.request(&mut state, process, course);
            }
            Event::Crash(process) => {
                state.disturbances -= 1;
                state.runs[process] = None;
            }
            Event::Settle => {
                state.cluster.settle();
            }
            Event::Edit(id) => {
                state.disturbances -= 1;
                state.previous = last.cluster.clone();
                state.cluster.edit(&id, |live| live["data"]["v"] = "wrong".into());
            }
            Event::Delete(id) => {
                state.disturbances -= 1;
                state.previous = last.cluster.clone();
                state.cluster.objects.remove(&id);
            }
        }
        if state.disturbances == 0 {
            // No read is stale any more.
            state.previous = Cluster::default();
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each object has one owner", |_, state: &State| {
                state.violation.is_none()
            }),
            Property::always(
                "a fair run ends as an undisturbed one",
                |world: &Self, state: &State| {
                    state.runs.iter().any(Option::is_some) || {
                        let (found, violation) = world.ended(state);
                        found == *world.end.get_or_init(|| world.ended(&world.start()).0)
                            && violation.is_none()
                    }
                },
            ),
            Property::sometimes("an old revision is taken down", |_, state: &State| {
                state.lives.iter().any(|life| life.archived) && state.runs.iter().all(Option::is_none)
            }),
        ]
    }
}

/// Explores a world, and prints how many states it has.
fn explore(name: &str, world: World) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} steps, {} deep",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

#[test]
fn an_upgrade_ends_well_in_every_interleaving() {
    explore("upgrade", World::upgrade());
}

#[test]
fn two_leaders_of_each_revision_end_as_one() {
    explore(
        "two leaders",
        World {
            revisions: vec![
                revision(1, &[&[("A", "1")], &[("Old", "1")]]),
                revision(2, &[&[("A", "2")], &[("New", "2")]]),
            ],
            processes: vec![0, 0, 1, 1],
            disturbances: 0,
            slow: &[],
            ..World::upgrade()
        },
    );
}

#[test]
fn a_superseded_rollout_ends_as_the_newest_revision() {
    explore(
        "superseded",
        World {
            revisions: vec![
                revision(1, &[&[("A", "1")], &[("Old", "1")]]),
                revision(2, &[&[("A", "2")], &[("New", "2")]]),
                revision(3, &[&[("A", "3")], &[("Newest", "3")]]),
            ],
            processes: vec![0, 1, 2],
            slow: &["New"],
            ..World::upgrade()
        },
    );
}

#[test]
fn two_extensions_never_share_an_object_and_the_second_gets_it_after_the_first() {
    let mut other = revision(1, &[&[("A", "other")], &[("Other", "1")]]);
    other.outline.owner.name = "other-1".to_owned();
    other.outline.owner.uid = "other-cos-1".to_owned();
    other.outline.owner.owner_name = "other".to_owned();
    other.outline.siblings.clear();
    explore(
        "two extensions",
        World {
            revisions: vec![revision(1, &[&[("A", "1")], &[("Old", "1")]]), other],
            processes: vec![0, 1],
            slow: &[],
            uninstalled: vec![0],
            ..World::upgrade()
        },
    );
}

/// The exploration notices a server that ignores preconditions: it cannot pass by chance.
#[test]
fn without_preconditions_an_interleaving_loses_an_object() {
    let world = World {
        unguarded: true,
        ..World::upgrade()
    };
    let checker = world.checker().threads(2).spawn_bfs().join();
    assert!(checker.discovery("each object has one owner").is_some());
}
