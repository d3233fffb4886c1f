//! Every interleaving of a small world: an extension whose catalog moves, users who approve and reject, two leaders,
//! crashes and stale reads.
//!
//! The world runs the functions that plan revisions, decide on changes and record them. In every state that can be
//! reached:
//!
//! - each revision has an approval of its own, for exactly the change from the revision before;
//! - a fair run from there, without further faults, installs the wanted version unless a user rejected it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use olm_api::change_policy::{ApprovalMode, ChangePolicySpec};
use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionSpec};
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::conditions::{Report, Status, reason, set_condition};
use olm_api::pending_change::{APPLIED, DecisionOutcome, PendingChangeSpec};
use olm_plan::phases::Group;
use olm_rollout::policy::Uninstall;
use parking_lot::Mutex;
use serde_json::json;
use stateright::{Checker, Model, Property};

use super::super::pending::{DesiredChange, counts, records};
use super::super::*;
use crate::extension::plan::action::Action;
use crate::extension::plan::revision::{DesiredRevision, plan};
use crate::extension::revisions::ConflictingSets;

/// The versions that the catalog offers, one at a time.
const VERSIONS: u8 = 2;
/// The most PendingChanges that are created.
const UIDS: u8 = 6;
/// The most rounds of a fair run.
const ROUNDS: usize = 8;

/// A revision; its number is its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Revision {
    version: u8,
    /// The UID of its PendingChange.
    approval: Option<u8>,
}

/// A change, from the version of the newest revision to another one.
type Step = (Option<u8>, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Applied,
    Void,
}

/// A PendingChange.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pending {
    uid: u8,
    step: Step,
    decision: Option<DecisionResult>,
    end: Option<End>,
    resource_version: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DecisionResult {
    Approved,
    Rejected,
}

/// The objects on the API server, as a leader sees them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Cluster {
    wanted: u8,
    revisions: Vec<Revision>,
    changes: Vec<Pending>,
}

/// A leader with a change that may begin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Leader {
    seen: Cluster,
    approval: Option<u8>,
    is_confirmed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    cluster: Cluster,
    /// The cluster before its last change, for stale caches.
    previous: Cluster,
    leaders: Vec<Option<Leader>>,
    /// The changes that users approved, by UID.
    approved: BTreeMap<u8, Step>,
    uids: u8,
    moves: u8,
    rejections: u8,
    faults: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// The catalog offers another version.
    Move(u8),
    Decide(u8, DecisionResult),
    /// A leader looks at the cluster. The cache may be stale, and a crash may follow the first write.
    Begin {
        leader: usize,
        is_stale: bool,
        is_cut: bool,
    },
    Confirm(usize),
    Create(usize),
    Crash(usize),
}

struct World {
    extension: ClusterExtension,
    policy: ChangePolicy,
    plans: BTreeMap<Step, Arc<ChangePlan>>,
    leaders: usize,
    moves: u8,
    rejections: u8,
    faults: u8,
    /// Approvals count more than once, and no leader confirms them before it creates a revision.
    reuses: bool,
    built: Mutex<HashMap<Vec<Revision>, Revisions>>,
}

fn bundle(version: u8) -> BundleIdentity {
    BundleIdentity {
        package: "p".to_owned(),
        metadata: BundleMetadata {
            name: format!("p.v{version}"),
            version: format!("{version}.0.0"),
            release: None,
        },
        image: format!("i:{version}"),
    }
}

fn object(version: u8) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"},
        "data": {"version": version.to_string()}})
}

fn change_plan((from, to): Step) -> Arc<ChangePlan> {
    let (installed, before) = (from.map(bundle), from.map(object));
    Arc::new(ChangePlan::new(&Change {
        extension: "ext",
        account: "n/a",
        installed_account: None,
        installed: installed.as_ref(),
        wanted: &bundle(to),
        catalog: "",
        passed: &[],
        uninstall: Uninstall::Delete,
        adopt: CollisionProtection::Prevent,
        before: &before.iter().collect::<Vec<_>>(),
        after: &[&object(to)],
        needs: None,
    }))
}

impl World {
    fn new() -> Self {
        let mut extension = ClusterExtension::new("ext", ClusterExtensionSpec::default());
        extension.metadata.uid = Some("u".to_owned());
        let mut policy = ChangePolicy::new("all", ChangePolicySpec::default());
        policy.spec.approval.default = ApprovalMode::Manual;
        let installed = || std::iter::once(None).chain((0..VERSIONS).map(Some));
        let steps = (0..VERSIONS).flat_map(|to| installed().map(move |from| (from, to)));
        Self {
            extension,
            policy,
            plans: steps.map(|step| (step, change_plan(step))).collect(),
            leaders: 1,
            moves: 3,
            rejections: 1,
            faults: 1,
            reuses: false,
            built: Mutex::default(),
        }
    }

    fn planned(&self, revisions: &Revisions, version: u8) -> RevisionPlan {
        let account = "n/a".parse().unwrap();
        let groups = [Group {
            name: "deploy".to_owned(),
            objects: vec![object(version)],
        }];
        let desired = DesiredRevision {
            extension: &self.extension,
            account: Some(&account),
            bundle: &bundle(version),
            catalog: "",
            properties: None,
            further_properties: None,
            certificates: None,
            operator_condition: None,
            roles_named_after: None,
            config_digest: None,
            verified: None,
            groups: &groups,
            adopt: CollisionProtection::Prevent,
            system_namespace: "s",
        };
        plan(&desired, revisions, &ConflictingSets::default()).unwrap()
    }

    fn created(&self, before: &Revisions, revision: Revision) -> Option<ClusterObjectSet> {
        let RevisionPlan::Create(creation) = self.planned(before, revision.version) else {
            return None;
        };
        let mut set = *creation.set;
        set.metadata.uid = Some(set.name().to_owned());
        if let Some(uid) = revision.approval {
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::PENDING_CHANGE.to_owned(), uid.to_string());
        }
        Some(set)
    }

    /// The ClusterObjectSets.
    fn revisions(&self, revisions: &[Revision]) -> Revisions {
        if let Some(built) = self.built.lock().get(revisions) {
            return built.clone();
        }
        let built = match revisions.split_last() {
            None => Revisions::default(),
            Some((last, before)) => {
                let before = self.revisions(before);
                let set = self
                    .created(&before, *last)
                    .expect("a new revision differs from the last");
                Revisions::new(before.all().iter().cloned().chain([Arc::new(set)]).collect())
            }
        };
        self.built.lock().insert(revisions.to_vec(), built.clone());
        built
    }

    fn object(&self, pending: &Pending) -> PendingChange {
        let digest = self.plans[&pending.step].digest.clone();
        let decision = pending.decision.map(|result| Decision {
            verdict: match result {
                DecisionResult::Approved => DecisionOutcome::Approved,
                DecisionResult::Rejected => DecisionOutcome::Rejected,
            },
            approver: "alice".to_owned(),
            note: String::new(),
        });
        let spec = PendingChangeSpec {
            extension: "ext".to_owned(),
            extension_uid: "u".to_owned(),
            digest: digest.clone(),
            decision,
            ..PendingChangeSpec::default()
        };
        let mut object = PendingChange::new(&pending_change::name("ext", &digest), spec);
        object.metadata.uid = Some(pending.uid.to_string());
        object.metadata.generation = Some(1);
        object.metadata.resource_version = Some(pending.resource_version.to_string());
        let seconds = Timestamp::from_second(pending.uid.into()).unwrap();
        object.metadata.creation_timestamp = Some(olm_api::Time(seconds));
        let (status, reason) = match pending.end {
            None => (Status::False, reason::AWAITING_APPROVAL),
            Some(End::Applied) => (Status::True, reason::SUCCEEDED),
            Some(End::Void) => (Status::False, reason::VOID),
        };
        let report = Report {
            condition_type: APPLIED,
            status,
            reason,
            message: "",
            observed_generation: 1,
        };
        let next = object.status.get_or_insert_default();
        next.observed_generation = Some(1);
        set_condition(&mut next.conditions, report, Timestamp::UNIX_EPOCH);
        object
    }

    /// The decision on a change, from the API server.
    fn evaluate(
        &self,
        cluster: &Cluster,
        revisions: &Revisions,
        step: Step,
    ) -> (Gate, Option<PendingChange>) {
        let plan = &self.plans[&step];
        let found = cluster.changes.iter().find(|pending| pending.step == step);
        let counts = |change: &PendingChange| self.reuses || counts(change, &self.extension, plan, revisions);
        let pending = found.map(|found| self.object(found)).filter(counts);
        let decision = pending
            .as_ref()
            .and_then(|pending| pending.spec.decision.as_ref());
        let gate = gate(plan, [&self.policy], decision, Timestamp::UNIX_EPOCH);
        (gate, pending)
    }

    /// The writes of a run that ends here, and the change that may begin.
    fn run(&self, state: &State, seen: &Cluster) -> (Vec<Action>, Option<Leader>) {
        let revisions = self.revisions(&seen.revisions);
        let step = (seen.revisions.last().map(|last| last.version), seen.wanted);
        let all: Vec<Arc<PendingChange>> = seen
            .changes
            .iter()
            .map(|change| Arc::new(self.object(change)))
            .collect();
        let record = |desired: &DesiredChange<'_>| {
            records(&self.extension, &all, &revisions, desired, Timestamp::UNIX_EPOCH)
        };
        if !matches!(self.planned(&revisions, seen.wanted), RevisionPlan::Create(_)) {
            return (record(&DesiredChange::Nothing("")), None);
        }
        let (gate, pending) = self.evaluate(&state.cluster, &revisions, step);
        let proposal = Proposal {
            plan: Arc::clone(&self.plans[&step]),
            policies: Vec::new(),
            gate,
            pending,
        };
        let held = proposal.held("ext");
        let actions = record(&DesiredChange::Change(&proposal, held.as_ref()));
        let leader = held.is_none().then(|| Leader {
            seen: seen.clone(),
            approval: uid(proposal.pending.as_ref()),
            is_confirmed: self.reuses,
        });
        (actions, leader)
    }

    fn begin(&self, state: &mut State, leader: usize, is_stale: bool, is_cut: bool) {
        let seen = if is_stale { &state.previous } else { &state.cluster };
        let (actions, next) = self.run(state, &seen.clone());
        let count = if is_cut { 1 } else { actions.len() };
        for action in actions.into_iter().take(count) {
            self.write(state, action);
        }
        state.leaders[leader] = next.filter(|_| !is_cut);
    }

    fn write(&self, state: &mut State, action: Action) {
        let before = state.cluster.clone();
        match action {
            Action::OfferChange(change) => {
                let step = self
                    .plans
                    .iter()
                    .find(|(_, plan)| plan.digest == change.spec.digest);
                let step = *step.expect("a plan").0;
                if state.cluster.changes.iter().all(|pending| pending.step != step) {
                    state.cluster.changes.push(Pending {
                        uid: state.uids,
                        step,
                        decision: None,
                        end: None,
                        resource_version: 0,
                    });
                    state.uids += 1;
                }
            }
            Action::RecordPendingChange(change) => {
                let found = state.cluster.changes.iter_mut().find(|pending| {
                    uid(Some(&change)) == Some(pending.uid)
                        && change.metadata.resource_version == Some(pending.resource_version.to_string())
                });
                let end = if change.is_applied() {
                    Some(End::Applied)
                } else {
                    change.is_void().then_some(End::Void)
                };
                if let Some(found) = found.filter(|found| found.end != end) {
                    found.end = end;
                    found.resource_version += 1;
                }
            }
            Action::RemovePendingChange(change) => {
                let uid = uid(Some(&change));
                state.cluster.changes.retain(|pending| Some(pending.uid) != uid);
            }
            other => panic!("{other:?}"),
        }
        state.keep(before);
    }

    fn confirm(&self, state: &mut State, index: usize) {
        let Some(leader) = state.leaders[index].clone() else {
            return;
        };
        let revisions = self.revisions(&leader.seen.revisions);
        let step = (
            leader.seen.revisions.last().map(|last| last.version),
            leader.seen.wanted,
        );
        let (gate, pending) = self.evaluate(&state.cluster, &revisions, step);
        let is_confirmed = gate.causes.is_empty() && uid(pending.as_ref()) == leader.approval;
        state.leaders[index] = is_confirmed.then_some(Leader {
            is_confirmed,
            ..leader
        });
    }

    fn create(&self, state: &mut State, index: usize) {
        let Some(leader) = state.leaders[index].take() else {
            return;
        };
        let revision = Revision {
            version: leader.seen.wanted,
            approval: leader.approval,
        };
        let set = self.created(&self.revisions(&leader.seen.revisions), revision);
        let set = set.expect("the run has planned a revision");
        // The API server refuses a name that is taken; the run ends.
        let on_server = self.revisions(&state.cluster.revisions);
        if on_server.all().iter().all(|found| found.name() != set.name()) {
            let before = state.cluster.clone();
            state.cluster.revisions.push(revision);
            state.keep(before);
        }
    }

    /// The cluster after fair runs of one leader with users who approve everything.
    fn settled(&self, state: &State) -> State {
        let mut state = state.clone();
        for _ in 0..ROUNDS {
            let undecided = |pending: &Pending| pending.decision.is_none() && pending.end.is_none();
            let open = state.cluster.changes.iter().filter(|pending| undecided(pending));
            for uid in open.map(|pending| pending.uid).collect::<Vec<_>>() {
                state.decide(uid, DecisionResult::Approved);
            }
            self.begin(&mut state, 0, false, false);
            self.confirm(&mut state, 0);
            self.create(&mut state, 0);
        }
        state
    }
}

fn uid(pending: Option<&PendingChange>) -> Option<u8> {
    pending?.metadata.uid.as_deref()?.parse().ok()
}

impl State {
    /// Keeps the former cluster for stale caches, if it has changed.
    fn keep(&mut self, before: Cluster) {
        if before != self.cluster {
            self.previous = before;
        }
    }

    fn decide(&mut self, uid: u8, result: DecisionResult) {
        let before = self.cluster.clone();
        if let Some(pending) = self.cluster.changes.iter_mut().find(|pending| pending.uid == uid) {
            pending.decision = Some(result);
            pending.resource_version += 1;
            if result == DecisionResult::Approved {
                self.approved.insert(uid, pending.step);
            }
        }
        self.keep(before);
    }

    /// Whether each revision has an approval of its own for its change.
    fn is_approved(&self) -> bool {
        let mut approved = self.approved.clone();
        let mut before = None;
        self.cluster.revisions.iter().all(|revision| {
            let step = (before.replace(revision.version), revision.version);
            revision
                .approval
                .is_some_and(|uid| approved.remove(&uid) == Some(step))
        })
    }
}

impl Model for World {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let cluster = Cluster {
            wanted: 0,
            revisions: Vec::new(),
            changes: Vec::new(),
        };
        vec![State {
            previous: cluster.clone(),
            cluster,
            leaders: vec![None; self.leaders],
            approved: BTreeMap::new(),
            uids: 0,
            moves: self.moves,
            rejections: self.rejections,
            faults: self.faults,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.moves > 0 {
            let others = (0..VERSIONS).filter(|version| *version != state.cluster.wanted);
            events.extend(others.map(Event::Move));
        }
        for pending in state
            .cluster
            .changes
            .iter()
            .filter(|pending| pending.decision.is_none())
        {
            events.push(Event::Decide(pending.uid, DecisionResult::Approved));
            if state.rejections > 0 {
                events.push(Event::Decide(pending.uid, DecisionResult::Rejected));
            }
        }
        for (index, leader) in state.leaders.iter().enumerate() {
            match leader {
                None => {
                    let mut begin = |is_stale, is_cut| {
                        events.push(Event::Begin {
                            leader: index,
                            is_stale,
                            is_cut,
                        });
                    };
                    begin(false, false);
                    if state.faults > 0 {
                        begin(true, false);
                        begin(false, true);
                    }
                }
                Some(leader) => {
                    events.push(if leader.is_confirmed {
                        Event::Create(index)
                    } else {
                        Event::Confirm(index)
                    });
                    if state.faults > 0 {
                        events.push(Event::Crash(index));
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        match event {
            Event::Move(version) => {
                state.moves -= 1;
                let before = state.cluster.clone();
                state.cluster.wanted = version;
                state.keep(before);
            }
            Event::Decide(uid, result) => {
                state.rejections -= u8::from(result == DecisionResult::Rejected);
                state.decide(uid, result);
            }
            Event::Begin {
                leader,
                is_stale,
                is_cut,
            } => {
                state.faults -= u8::from(is_stale || is_cut);
                self.begin(&mut state, leader, is_stale, is_cut);
            }
            Event::Confirm(leader) => self.confirm(&mut state, leader),
            Event::Create(leader) => self.create(&mut state, leader),
            Event::Crash(leader) => {
                state.faults -= 1;
                state.leaders[leader] = None;
            }
        }
        if state.faults == 0 {
            // No cache is stale any more.
            state.previous = state.cluster.clone();
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.uids <= UIDS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each revision is approved as applied", |_, state: &State| {
                state.is_approved()
            }),
            Property::always(
                "a fair run installs the wanted version",
                |world: &Self, state: &State| {
                    state.leaders.iter().any(Option::is_some) || {
                        let end = world.settled(state).cluster;
                        let newest = end.revisions.last().map(|last| last.version);
                        let is_rejected = |pending: &Pending| {
                            pending.step == (newest, end.wanted)
                                && pending.end.is_none()
                                && pending.decision == Some(DecisionResult::Rejected)
                        };
                        newest == Some(end.wanted) || end.changes.iter().any(is_rejected)
                    }
                },
            ),
            Property::sometimes("a version is installed again", |_, state: &State| {
                state.cluster.revisions.len() > 2
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
fn nothing_is_applied_without_an_approval_of_its_own_in_any_interleaving() {
    explore(
        "approval",
        World {
            faults: 2,
            ..World::new()
        },
    );
}

#[test]
fn two_leaders_use_each_approval_once() {
    explore(
        "approval, two leaders",
        World {
            leaders: 2,
            moves: 2,
            rejections: 0,
            ..World::new()
        },
    );
}

/// The exploration notices approvals that count twice: it cannot pass by chance.
#[test]
fn an_approval_that_counts_twice_is_found() {
    let world = World {
        reuses: true,
        ..World::new()
    };
    let checker = world.checker().threads(2).spawn_bfs().join();
    assert!(
        checker
            .discovery("each revision is approved as applied")
            .is_some()
    );
}
