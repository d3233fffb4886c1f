//! Waits until a ClusterExtension is ready or gone, and prints its progress.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use kube::api::Api;
use olm_api::ClusterExtension;
use olm_api::conditions::{READY, find};
use olm_api::readiness::{Verdict, verdict};

use crate::extension::cluster::Cluster;
use crate::extension::look::first_line;
use crate::output::{Status, note};

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// The time for which a state that waits for a user must last: rights that were granted together with the extension
/// take effect a moment later.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// The extension and all that it installed is gone.
    Gone,
}

/// The progress of an extension.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Reached,
    /// A user must change something; the message of `Ready` explains it.
    Stalled(String),
    /// The controller continues by itself.
    Going(String),
}

fn step(extension: Option<&ClusterExtension>, goal: Goal) -> Step {
    let Some(extension) = extension else {
        return match goal {
            Goal::Gone => Step::Reached,
            Goal::Ready(_) => Step::Stalled("the ClusterExtension was deleted".to_owned()),
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
        Goal::Gone => ready.is_some(),
    };
    let Some(ready) = ready.filter(|_| is_seen) else {
        return Step::Going("waiting for operator-controller".to_owned());
    };
    let line = |text: &str| format!("{}: {text}", ready.reason);
    match (verdict(extension.conditions()), goal) {
        (Some(Verdict::Ready), Goal::Ready(_)) => Step::Reached,
        (Some(Verdict::Stalled), _) => Step::Stalled(line(&ready.message)),
        _ => Step::Going(line(ready.message.lines().next().unwrap_or_default())),
    }
}

/// Waits, and reports each state once on the standard error.
pub(crate) fn wait(
    cluster: &Cluster,
    arguments: &WaitArguments,
    seen: &ClusterExtension,
    goal: Goal,
) -> anyhow::Result<Status> {
    let name = seen.name();
    let api: Api<ClusterExtension> = Api::all(cluster.client.clone());
    let begin = Instant::now();
    let (mut shown, mut stalled) = (String::new(), None);
    loop {
        let found = cluster.runtime.block_on(api.get_opt(name));
        let found = found.with_context(|| format!("cannot read ClusterExtension {name:?}"))?;
        let found = found.filter(|found| found.metadata.uid == seen.metadata.uid);
        let elapsed = begin.elapsed();
        let going = match step(found.as_ref(), goal) {
            Step::Reached => {
                let end = match goal {
                    Goal::Ready(_) => "is ready",
                    Goal::Gone => "is gone",
                };
                note(&format!("{name} {end} after {} s", elapsed.as_secs()));
                return Ok(Status::Success);
            }
            Step::Stalled(why) => {
                let since: Instant = *stalled.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE || elapsed >= arguments.timeout {
                    let why = why.lines().next().unwrap_or_default();
                    note(&format!("{name} is stalled: {why}"));
                    note(&format!(
                        "hint: `olm explain {name}` shows the cause and what to do"
                    ));
                    return Ok(Status::Stalled);
                }
                first_line(&why)
            }
            Step::Going(what) => {
                stalled = None;
                first_line(&what)
            }
        };
        if elapsed >= arguments.timeout {
            let end = match goal {
                Goal::Ready(_) => "is not ready",
                Goal::Gone => "is not gone",
            };
            let seconds = arguments.timeout.as_secs();
            note(&format!("{name} {end} after {seconds} s: {going}"));
            note(&format!(
                "hint: `olm explain {name}` shows the cause; a longer --timeout waits on"
            ));
            return Ok(Status::TimedOut);
        }
        if going != shown {
            note(&format!("{:>4}s  {going}", elapsed.as_secs()));
            shown = going;
        }
        std::thread::sleep(PAUSE);
    }
}

/// A time such as `90s`, `10m` or `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let unclear = || format!("{text:?} is not a time: write 90s, 10m or 1h");
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(unclear)?;
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(unclear()),
    };
    let number: u64 = number.parse().map_err(|_| unclear())?;
    number
        .checked_mul(factor)
        .map(Duration::from_secs)
        .ok_or_else(unclear)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::ClusterExtensionSpec;
    use olm_api::readiness::{Readiness, set_readiness};

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
        assert_eq!(step(Some(&ready), Goal::Ready(2)), unseen);
        assert_eq!(step(Some(&ready), Goal::Ready(1)), Step::Reached);
        let fresh = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        assert_eq!(step(Some(&fresh), Goal::Ready(1)), unseen);
    }

    #[test]
    fn a_stalled_extension_is_shown_in_full_and_progress_in_a_line() {
        let stalled = extension(Verdict::Stalled, "Blocked", 1);
        assert_eq!(
            step(Some(&stalled), Goal::Ready(1)),
            Step::Stalled("Blocked: a\nb".to_owned())
        );
        let going = extension(Verdict::Reconciling, "RollingOut", 1);
        assert_eq!(
            step(Some(&going), Goal::Ready(1)),
            Step::Going("RollingOut: a".to_owned())
        );
    }

    #[test]
    fn a_deletion_ends_when_the_object_is_gone() {
        assert_eq!(step(None, Goal::Gone), Step::Reached);
        assert!(matches!(step(None, Goal::Ready(1)), Step::Stalled(_)));
        let mut leaving = extension(Verdict::Reconciling, "Removing", 1);
        assert!(matches!(step(Some(&leaving), Goal::Gone), Step::Stalled(_)));
        leaving.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        assert_eq!(
            step(Some(&leaving), Goal::Gone),
            Step::Going("Removing: a".to_owned())
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
