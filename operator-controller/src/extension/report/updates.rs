//! `status.updates`, from the result of the resolution and the progress of the chosen bundle. Pure.

use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionStatus};
use olm_api::conditions::{self, READY, steady};
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::{UpdatesStatus, bounded_lines, held_back};

use super::inputs::Progress;
use crate::extension::approval;
use crate::extension::failure::Severity;
use crate::extension::resolve::updates::{HeldBack, Updates};
use crate::extension::revisions::as_installed;

/// Sets `status.updates` of a status whose conditions and installed bundle are set. While the content of catalogs is
/// unknown, the last known newest bundle stays.
pub(crate) fn report(
    status: &mut ClusterExtensionStatus,
    found: &Result<Updates, HeldBack>,
    progress: &Progress,
    waits: Option<&approval::HeldChange>,
) {
    let before = status.updates.take().and_then(|before| before.newest);
    let installed = status.install.as_ref().map(|install| &install.bundle);
    let (next, newest, held) = match found {
        Ok(found) => {
            let obstacle = found
                .next
                .as_ref()
                .and_then(|_| obstacle(status, progress, waits));
            (
                found.next.clone(),
                found.newest.clone(),
                [obstacle, found.held.clone()],
            )
        }
        Err(held) => {
            let newest = before
                .filter(|newest| installed.is_none_or(|installed| is_newer(&newest.metadata(), installed)));
            if newest.is_none() && installed.is_none() {
                return;
            }
            (None, newest, [Some(held.clone()), None])
        }
    };
    let held: Vec<HeldBack> = held.into_iter().flatten().collect();
    let lines: Vec<String> = held.iter().map(|held| held.message.clone()).collect();
    status.updates = Some(UpdatesStatus {
        next,
        newest,
        held_back_by: held.first().map(|held| held.by.to_owned()),
        message: bounded_lines(&lines),
    });
}

/// The obstacle of the chosen bundle; `None` while it is rolling out.
fn obstacle(
    status: &ClusterExtensionStatus,
    progress: &Progress,
    waits: Option<&approval::HeldChange>,
) -> Option<HeldBack> {
    if let Some(waits) = waits {
        return Some(HeldBack {
            by: waits.cause.held_back_by(),
            message: waits.message.clone(),
        });
    }
    let (by, message) = match progress {
        Progress::Failed(failure) => match failure.severity {
            Severity::Pulling | Severity::Unfinished => return None,
            Severity::Terminal | Severity::Waiting | Severity::Transient => {
                (failure.held_back_by, failure.message.as_str())
            }
        },
        Progress::Applied { .. } | Progress::Silent(_)
            if verdict(&status.conditions) == Some(Verdict::Stalled) =>
        {
            let ready = conditions::find(&status.conditions, READY)?;
            (held_back::ROLLOUT, ready.message.as_str())
        }
        Progress::Applied { .. } | Progress::Silent(_) => return None,
    };
    let line = message.lines().next().unwrap_or_default();
    Some(HeldBack {
        by,
        message: steady(line),
    })
}

/// Whether a bundle is newer than another one. Without a readable version that is unknown.
fn is_newer(bundle: &BundleMetadata, than: &BundleMetadata) -> bool {
    let read = |bundle| as_installed(bundle).version_release();
    matches!((read(bundle), read(than)), (Ok(bundle), Ok(than)) if bundle.compare(&than).is_gt())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::InstallStatus;
    use olm_api::conditions::reason;
    use olm_api::readiness::{Readiness, set_readiness};
    use olm_api::updates::AvailableBundle;

    use super::*;
    use crate::extension::failure::StageFailure;

    const APPLIED: Progress = Progress::Applied { started: None };

    fn greeter(version: &str) -> AvailableBundle {
        AvailableBundle {
            name: format!("greeter.v{version}"),
            version: version.to_owned(),
            catalog: "one".to_owned(),
            ..AvailableBundle::default()
        }
    }

    fn at(version: &str) -> ClusterExtensionStatus {
        let bundle = greeter(version).metadata();
        ClusterExtensionStatus {
            install: (!version.is_empty()).then_some(InstallStatus { bundle }),
            ..ClusterExtensionStatus::default()
        }
    }

    fn held(by: &'static str, message: &str) -> HeldBack {
        HeldBack {
            by,
            message: message.to_owned(),
        }
    }

    fn failed(severity: Severity, by: &'static str) -> Progress {
        Progress::Failed(StageFailure {
            severity,
            reason: reason::RETRYING,
            message: "read tcp 10.0.0.1:5->10.0.0.2:443: no\nand so on".to_owned(),
            help: None,
            held_back_by: by,
        })
    }

    /// `next/newest by: message`, with the lines joined by a bar.
    fn line(status: &ClusterExtensionStatus) -> String {
        let Some(updates) = &status.updates else {
            return "unknown".to_owned();
        };
        let version = |bundle: &Option<AvailableBundle>| {
            bundle
                .as_ref()
                .map_or("-", |bundle| bundle.version.as_str())
                .to_owned()
        };
        format!(
            "{}/{} {}: {}",
            version(&updates.next),
            version(&updates.newest),
            updates.held_back_by.as_deref().unwrap_or("-"),
            updates.message.replace('\n', "|")
        )
    }

    fn check(
        mut status: ClusterExtensionStatus,
        found: &Result<Updates, HeldBack>,
        progress: &Progress,
        expected: &str,
    ) {
        report(&mut status, found, progress, None);
        assert_eq!(line(&status), expected);
        let first = status.clone();
        report(&mut status, found, progress, None);
        assert_eq!(status, first, "the same again changes nothing");
    }

    #[test]
    fn the_cause_that_holds_back_the_chosen_bundle_comes_first() {
        let found = |next: Option<&str>, why: Option<HeldBack>| {
            Ok(Updates {
                next: next.map(greeter),
                newest: Some(greeter("2.0.0")),
                held: why,
            })
        };
        let ranged = || found(None, Some(held(held_back::RANGE, "outside")));
        check(at("1.0.0"), &ranged(), &APPLIED, "-/2.0.0 Range: outside");
        // The failure is about the installed bundle.
        let rights = failed(Severity::Waiting, held_back::RIGHTS);
        check(at("1.0.0"), &ranged(), &rights, "-/2.0.0 Range: outside");
        let both = || found(Some("1.1.0"), Some(held(held_back::EDGE, "no edge")));
        for by in [
            held_back::RIGHTS,
            held_back::CRD_UPGRADE_SAFETY,
            held_back::OPERATOR,
            held_back::PAUSED,
            held_back::REQUIREMENT,
            held_back::CONFIGURATION,
            held_back::OTHER,
        ] {
            let expected = format!("1.1.0/2.0.0 {by}: no|no edge");
            check(at("1.0.0"), &both(), &failed(Severity::Waiting, by), &expected);
        }
        check(at("1.0.0"), &both(), &APPLIED, "1.1.0/2.0.0 Edge: no edge");
        let next = || found(Some("2.0.0"), None);
        for severity in [Severity::Pulling, Severity::Unfinished] {
            let on_its_way = failed(severity, held_back::OTHER);
            check(at("1.0.0"), &next(), &on_its_way, "2.0.0/2.0.0 -: ");
        }
        let mut stuck = at("1.0.0");
        let readiness = Readiness {
            verdict: Verdict::Stalled,
            reason: reason::PROGRESS_DEADLINE_EXCEEDED,
            message: "too long\nmore",
            observed_generation: 1,
        };
        set_readiness(&mut stuck.conditions, readiness, Timestamp::UNIX_EPOCH);
        check(stuck, &next(), &APPLIED, "2.0.0/2.0.0 Rollout: too long");
        check(at("2.0.0"), &Ok(Updates::default()), &APPLIED, "-/- -: ");
    }

    #[test]
    fn the_newest_stays_while_a_catalog_does_not_answer() {
        let silent = Err(held(held_back::CATALOG, "gone"));
        let known = |installed: &str, newest: &str| {
            let mut status = at(installed);
            status.updates = Some(UpdatesStatus {
                next: Some(greeter("1.1.0")),
                newest: Some(greeter(newest)),
                held_back_by: Some(held_back::RANGE.to_owned()),
                message: "outside".to_owned(),
            });
            status
        };
        check(
            known("1.0.0", "2.0.0"),
            &silent,
            &APPLIED,
            "-/2.0.0 Catalog: gone",
        );
        check(known("2.0.0", "2.0.0"), &silent, &APPLIED, "-/- Catalog: gone");
        check(at("1.0.0"), &silent, &APPLIED, "-/- Catalog: gone");
        check(at(""), &silent, &APPLIED, "unknown");
    }
}
