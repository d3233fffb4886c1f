//! Waits until a ClusterExtension is ready or gone, and prints its progress: the resolved bundle, the revision, and the
//! phase of its rollout with the objects that are not ready.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Api;
use olm_api::conditions::{READY, find, reason};
use olm_api::names::{annotation, user};
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::held_back;
use olm_api::{ClusterExtension, ClusterObjectSet};

use crate::extension::cluster::{Cluster, newest_active};
use crate::extension::look::truncated;
use crate::extension::lookup::revisions;
use crate::output::{Status, note};

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// The time for which a state that waits for a user must last: rights that were granted together with the extension
/// take effect a moment later.
const PATIENCE: Duration = Duration::from_secs(10);

/// The obstacle while the status does not show the change yet.
const UNSEEN: &str = "waiting for operator-controller";
/// The longest line about the progress, in characters.
const MAX_LINE: usize = 500;
/// The number of lines that explain the end of a wait that fails.
const MAX_LINES: usize = 10;

/// Whether and how long to wait.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArguments {
    /// Wait for the end and show the progress
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum time to wait, such as `90s`, `10m` or `1h`
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// The awaited state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The cluster matches the spec of this generation.
    Ready(i64),
    /// A revision that was not there before is installed, and the cluster matches it.
    Revision,
    /// The extension and all that it installed is gone.
    Gone,
}

/// The state of an extension.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Reached,
    /// A user must change something; the message of `Ready` explains it.
    Stalled(String),
    /// The controller continues. The text is the current obstacle.
    Going(String),
}

/// The reason and the message of a condition. Objects that do not work yet are no failure during a rollout, whose
/// message names the object that it waits for.
fn state(ready: &Condition) -> String {
    if ready.reason == reason::PROBE_FAILURE {
        ready.message.clone()
    } else {
        format!("{}: {}", ready.reason, ready.message)
    }
}

/// The state of an extension; `known` are the revisions before the change.
fn step(extension: Option<&ClusterExtension>, goal: Goal, known: &BTreeSet<String>) -> Step {
    let Some(extension) = extension else {
        return match goal {
            Goal::Gone => Step::Reached,
            Goal::Ready(_) | Goal::Revision => Step::Stalled("the ClusterExtension was deleted".to_owned()),
        };
    };
    if goal == Goal::Gone && !extension.is_deleting() {
        return Step::Stalled("another ClusterExtension of that name was created".to_owned());
    }
    let ready = find(extension.conditions(), READY);
    let is_seen = match goal {
        Goal::Ready(generation) => ready
            .and_then(|ready| ready.observed_generation)
            .is_some_and(|seen| seen >= generation),
        Goal::Revision | Goal::Gone => ready.is_some(),
    };
    let Some(ready) = ready.filter(|_| is_seen) else {
        return Step::Going(UNSEEN.to_owned());
    };
    // `olm resume` removed the annotation, and the state is from before it.
    if ready.reason == reason::PAUSED && extension.annotation(user::PAUSED) != Some("true") {
        return Step::Going(UNSEEN.to_owned());
    }
    let state = state(ready);
    match (verdict(extension.conditions()), goal) {
        (Some(Verdict::Ready), Goal::Ready(_)) => held(extension).unwrap_or(Step::Reached),
        (Some(Verdict::Ready), Goal::Revision) if active(extension).any(|name| !known.contains(name)) => {
            Step::Reached
        }
        (Some(Verdict::Stalled), _) => Step::Stalled(state),
        _ => Step::Going(state),
    }
}

/// The state of a chosen update that a ChangePolicy holds back: the extension is ready as it is, without the change.
fn held(extension: &ClusterExtension) -> Option<Step> {
    let updates = extension.status.as_ref()?.updates.as_ref()?;
    let next = updates.next.as_ref()?;
    let waits = || format!("the update to {} waits: {}", next.version, updates.message);
    match updates.held_back_by.as_deref()? {
        held_back::APPROVAL | held_back::FREEZE => Some(Step::Stalled(waits())),
        held_back::WINDOW => Some(Step::Going(waits())),
        _ => None,
    }
}

/// The names of the revisions that are installed or roll out.
fn active(extension: &ClusterExtension) -> impl Iterator<Item = &str> {
    let status = extension.status.iter();
    let active = status.flat_map(|status| &status.active_revisions);
    active.map(|revision| revision.name.as_str())
}

/// The progress of a revision.
#[derive(Debug, Default, PartialEq, Eq)]
struct RevisionProgress {
    /// The steps that are done, one line each.
    done: Vec<String>,
    /// The obstacle of the rollout, unless it is complete.
    going: Option<String>,
}

/// The progress of the newest revision; `known` are those that were there before the change. `None` when the change
/// made no revision and the newest one is complete.
fn progress(set: &ClusterObjectSet, known: &BTreeSet<String>, is_paused: bool) -> Option<RevisionProgress> {
    let name = set.name();
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    let ready = find(set.conditions(), READY).filter(|_| observed == Some(set.generation()));
    let is_complete = ready.is_some_and(|ready| ready.status == "True");
    let is_known = known.contains(name);
    if is_known && is_complete {
        return None;
    }
    let mut progress = RevisionProgress::default();
    if !is_known {
        let text = |key| set.annotation(key).unwrap_or_default();
        progress.done.push(format!(
            "resolved {} ({})",
            text(annotation::BUNDLE_VERSION),
            text(annotation::BUNDLE_NAME)
        ));
        progress.done.push(format!("revision {name} created"));
    }
    if is_complete {
        progress.done.push(format!("revision {name} is available"));
    } else {
        // Until its controller has seen that the extension is resumed.
        let going = ready.filter(|ready| is_paused || ready.reason != reason::PAUSED);
        progress.going = going.map(state);
    }
    Some(progress)
}

/// The lines that were not printed yet.
#[derive(Debug, Default)]
struct Unprinted {
    done: BTreeSet<String>,
    going: String,
}

impl Unprinted {
    /// The lines to print after a look: each completed step once, the obstacle when it changes.
    fn lines(&mut self, progress: &RevisionProgress, going: Option<&str>) -> Vec<String> {
        let mut lines = Vec::new();
        for line in &progress.done {
            if self.done.insert(line.clone()) {
                lines.push(line.clone());
            }
        }
        if let Some(going) = going {
            let line = one_line(going);
            if line != self.going {
                lines.push(line.clone());
                self.going = line;
            }
        }
        lines
    }
}

/// The lines of a message as one line, truncated if it is long. A line without an end mark gets a semicolon.
fn one_line(message: &str) -> String {
    let mut joined = String::new();
    for line in message.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !joined.is_empty() {
            joined.push_str(if joined.ends_with(['.', ':', ';', ',']) {
                " "
            } else {
                "; "
            });
        }
        joined.push_str(line);
    }
    truncated(&joined, MAX_LINE)
}

/// Waits, and prints each new obstacle to standard error.
pub(crate) fn wait(
    cluster: &Cluster,
    arguments: &WaitArguments,
    seen: &ClusterExtension,
    goal: Goal,
) -> anyhow::Result<Status> {
    let name = seen.name();
    let known: BTreeSet<String> = active(seen).map(str::to_owned).collect();
    let api: Api<ClusterExtension> = Api::all(cluster.client.clone());
    let begin = Instant::now();
    let (mut unprinted, mut stalled) = (Unprinted::default(), None);
    loop {
        let found = cluster.runtime.block_on(api.get_opt(name));
        let found = found.with_context(|| format!("cannot read ClusterExtension {name:?}"))?;
        let found = found.filter(|found| found.metadata.uid == seen.metadata.uid);
        let rollout = match goal {
            Goal::Ready(_) | Goal::Revision => rollout(cluster, found.as_ref().unwrap_or(seen), &known),
            Goal::Gone => RevisionProgress::default(),
        };
        let elapsed = begin.elapsed();
        let print = |lines: Vec<String>| {
            for line in lines {
                note(&format!("{:>4}s  {line}", elapsed.as_secs()));
            }
        };
        let is_late = elapsed >= arguments.timeout;
        let going = match step(found.as_ref(), goal, &known) {
            Step::Reached => {
                print(unprinted.lines(&rollout, None));
                let end = match goal {
                    Goal::Ready(_) | Goal::Revision => "is ready",
                    Goal::Gone => "is gone",
                };
                note(&format!("{name} {end} after {} s", elapsed.as_secs()));
                return Ok(Status::Success);
            }
            Step::Stalled(why) => {
                let since: Instant = *stalled.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE || is_late {
                    note(&format!("{name} is stalled: {}", several_lines(&why)));
                    note(&format!(
                        "hint: `olm explain {name}` shows the cause and what to do"
                    ));
                    return Ok(Status::Stalled);
                }
                why
            }
            Step::Going(what) => {
                stalled = None;
                rollout.going.clone().unwrap_or(what)
            }
        };
        if is_late {
            let end = match goal {
                Goal::Ready(_) | Goal::Revision => "is not ready",
                Goal::Gone => "is not gone",
            };
            let (seconds, why) = (arguments.timeout.as_secs(), several_lines(&going));
            note(&format!("{name} {end} after {seconds} s: {why}"));
            note(&format!(
                "hint: `olm explain {name}` shows the cause; a longer --timeout waits on"
            ));
            return Ok(Status::TimedOut);
        }
        print(unprinted.lines(&rollout, Some(&going)));
        std::thread::sleep(PAUSE);
    }
}

/// The progress of the newest revision. It is left out for a user who may not list revisions.
fn rollout(cluster: &Cluster, seen: &ClusterExtension, known: &BTreeSet<String>) -> RevisionProgress {
    let sets = cluster.runtime.block_on(revisions(&cluster.client, seen));
    let sets = sets.unwrap_or_default();
    let is_paused = seen.annotation(user::PAUSED) == Some("true");
    let progress = newest_active(&sets).and_then(|set| progress(set, known, is_paused));
    progress.unwrap_or_default()
}

/// The first lines of a message, indented below the first one.
fn several_lines(message: &str) -> String {
    let lines: Vec<&str> = message.lines().take(MAX_LINES).collect();
    lines.join("\n  ")
}

/// A positive duration such as `90s`, `10m` or `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = olm_text::duration::parse(text)
        .ok()
        .and_then(|length| u64::try_from(length).ok());
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text:?} is not a duration: write 90s, 10m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionSpec, RevisionStatus};
    use olm_api::cluster_object_set::ClusterObjectSetSpec;
    use olm_api::readiness::{Readiness, set_readiness};
    use olm_api::updates::{AvailableBundle, UpdatesStatus};

    use super::*;

    fn extension(verdict: Verdict, reason: &str, generation: i64) -> ClusterExtension {
        let mut extension = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        let status = extension.status.get_or_insert_default();
        let readiness = Readiness {
            verdict,
            reason,
            message: "a\nb",
            observed_generation: generation,
        };
        set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        extension
    }

    #[test]
    fn a_state_of_an_earlier_spec_does_not_count() {
        let unseen = Step::Going("waiting for operator-controller".to_owned());
        let ready = extension(Verdict::Ready, "Healthy", 1);
        assert_eq!(step(Some(&ready), Goal::Ready(2), &BTreeSet::new()), unseen);
        assert_eq!(
            step(Some(&ready), Goal::Ready(1), &BTreeSet::new()),
            Step::Reached
        );
        let fresh = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        assert_eq!(step(Some(&fresh), Goal::Ready(1), &BTreeSet::new()), unseen);
    }

    #[test]
    fn a_resumed_extension_is_not_paused() {
        let mut paused = extension(Verdict::Stalled, reason::PAUSED, 1);
        assert_eq!(
            step(Some(&paused), Goal::Ready(1), &BTreeSet::new()),
            Step::Going(UNSEEN.to_owned())
        );
        paused.metadata.annotations = Some([(user::PAUSED.to_owned(), "true".to_owned())].into());
        assert_eq!(
            step(Some(&paused), Goal::Ready(1), &BTreeSet::new()),
            Step::Stalled("Paused: a\nb".to_owned())
        );
    }

    #[test]
    fn a_step_has_the_reason_and_the_whole_message() {
        let stalled = extension(Verdict::Stalled, "Blocked", 1);
        assert_eq!(
            step(Some(&stalled), Goal::Ready(1), &BTreeSet::new()),
            Step::Stalled("Blocked: a\nb".to_owned())
        );
        let going = extension(Verdict::Reconciling, "RollingOut", 1);
        assert_eq!(
            step(Some(&going), Goal::Ready(1), &BTreeSet::new()),
            Step::Going("RollingOut: a\nb".to_owned())
        );
    }

    fn revision(readiness: Option<(Verdict, &str)>) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::new("greeter-2", ClusterObjectSetSpec::default());
        set.metadata.generation = Some(1);
        let annotations = [
            (annotation::BUNDLE_VERSION, "1.1.0"),
            (annotation::BUNDLE_NAME, "greeter.v1.1.0"),
        ];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
        set.metadata.annotations = Some(annotations.into());
        let status = set.status.get_or_insert_default();
        status.observed_generation = Some(1);
        if let Some((verdict, message)) = readiness {
            let readiness = Readiness {
                verdict,
                reason: "ProbeFailure",
                message,
                observed_generation: 1,
            };
            set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        }
        set
    }

    #[test]
    fn a_rollout_is_shown_step_by_step_and_each_step_once() {
        let mut unprinted = Unprinted::default();
        let mut look = |readiness: Option<(Verdict, &str)>| {
            let progress = progress(&revision(readiness), &BTreeSet::new(), false).unwrap_or_default();
            let going = progress.going.clone();
            unprinted.lines(&progress, going.as_deref())
        };
        let at_crds = (
            Verdict::Reconciling,
            "It is rolling out: phase 1 of 2 (crds).\nObject A: no",
        );
        let at_deploy = (Verdict::Reconciling, "It is rolling out: phase 2 of 2 (deploy).");
        assert_eq!(
            look(None),
            ["resolved 1.1.0 (greeter.v1.1.0)", "revision greeter-2 created"]
        );
        assert_eq!(
            look(Some(at_crds)),
            ["It is rolling out: phase 1 of 2 (crds). Object A: no"]
        );
        assert_eq!(look(Some(at_crds)), [""; 0]);
        assert_eq!(
            look(Some(at_deploy)),
            ["It is rolling out: phase 2 of 2 (deploy)."]
        );
        assert_eq!(
            look(Some((Verdict::Ready, ""))),
            ["revision greeter-2 is available"]
        );
    }

    #[test]
    fn a_revision_of_before_the_change_is_no_progress() {
        let known = BTreeSet::from(["greeter-2".to_owned()]);
        assert_eq!(
            progress(&revision(Some((Verdict::Ready, ""))), &known, false),
            None
        );
        let drifting = progress(&revision(Some((Verdict::Reconciling, "why"))), &known, false).unwrap();
        assert_eq!(drifting.done, [""; 0]);
        assert_eq!(drifting.going.as_deref(), Some("why"));
    }

    #[test]
    fn the_end_of_a_failed_wait_has_several_lines() {
        assert_eq!(several_lines("a\nb"), "a\n  b");
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(several_lines(&long).lines().count(), MAX_LINES);
        assert_eq!(one_line("a:\n b\n\nc.\nd"), "a: b; c. d");
        assert_eq!(one_line(&"x ".repeat(MAX_LINE)).chars().count(), MAX_LINE + 1);
    }

    #[test]
    fn an_approved_change_is_over_when_its_revision_is_ready() {
        let known = BTreeSet::from(["greeter-1".to_owned()]);
        let mut ready = extension(Verdict::Ready, "Healthy", 1);
        let status = ready.status.get_or_insert_default();
        let active = |name: &str| RevisionStatus {
            name: name.to_owned(),
            ..RevisionStatus::default()
        };
        status.active_revisions = vec![active("greeter-1")];
        assert_eq!(
            step(Some(&ready), Goal::Revision, &known),
            Step::Going("Healthy: a\nb".to_owned())
        );
        let status = ready.status.get_or_insert_default();
        status.active_revisions = vec![active("greeter-2")];
        assert_eq!(step(Some(&ready), Goal::Revision, &known), Step::Reached);
    }

    #[test]
    fn an_update_that_waits_for_an_approval_or_a_window_is_not_the_end() {
        let mut ready = extension(Verdict::Ready, "Healthy", 1);
        let mut check = |held_back_by: &str, expected: Step| {
            let next = BundleMetadata {
                version: "1.1.0".to_owned(),
                ..BundleMetadata::default()
            };
            ready.status.get_or_insert_default().updates = Some(UpdatesStatus {
                next: Some(AvailableBundle::new(&next, "samples")),
                held_back_by: Some(held_back_by.to_owned()),
                message: "why".to_owned(),
                ..UpdatesStatus::default()
            });
            assert_eq!(step(Some(&ready), Goal::Ready(1), &BTreeSet::new()), expected);
        };
        let waits = "the update to 1.1.0 waits: why".to_owned();
        check(held_back::APPROVAL, Step::Stalled(waits.clone()));
        check(held_back::FREEZE, Step::Stalled(waits.clone()));
        check(held_back::WINDOW, Step::Going(waits));
        check(held_back::PIN, Step::Reached);
    }

    #[test]
    fn a_deletion_ends_when_the_object_is_gone() {
        assert_eq!(step(None, Goal::Gone, &BTreeSet::new()), Step::Reached);
        assert!(matches!(
            step(None, Goal::Ready(1), &BTreeSet::new()),
            Step::Stalled(_)
        ));
        let mut leaving = extension(Verdict::Reconciling, "Removing", 1);
        assert!(matches!(
            step(Some(&leaving), Goal::Gone, &BTreeSet::new()),
            Step::Stalled(_)
        ));
        leaving.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        assert_eq!(
            step(Some(&leaving), Goal::Gone, &BTreeSet::new()),
            Step::Going("Removing: a\nb".to_owned())
        );
    }

    #[test]
    fn times_have_a_number_and_a_unit() {
        for (text, seconds) in [
            ("90s", Some(90)),
            ("10m", Some(600)),
            ("1h", Some(3600)),
            ("", None),
            ("5", None),
            ("1d", None),
            ("é", None),
        ] {
            assert_eq!(
                duration(text).ok().map(|time| time.as_secs()),
                seconds,
                "{text:?}"
            );
        }
    }
}
