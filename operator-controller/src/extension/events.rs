//! The events of a ClusterExtension. Pure.

use std::cmp::Ordering;

use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionStatus};
use olm_api::conditions::{self, PROGRESSING, READY, VERIFIED, reason};
use olm_platform::events::Notice;

use super::revisions::as_installed;

/// A first bundle is installed.
const INSTALLED: &str = "Installed";
/// A newer bundle replaced the installed one.
const UPGRADED: &str = "Upgraded";
/// An older bundle replaced the installed one.
const DOWNGRADED: &str = "Downgraded";
/// Another bundle of the same version replaced the installed one.
const REPLACED: &str = "Replaced";
/// A newer bundle is going to replace the installed one.
const UPGRADING: &str = "Upgrading";
/// An older bundle is going to replace the installed one.
const DOWNGRADING: &str = "Downgrading";
/// The installed bundle is about to change within its version.
const CHANGING: &str = "Changing";
/// A revision is created, with warnings.
pub(crate) const WARNED: &str = "Warned";
/// A bundle with precedence is held back, and another one is installed.
pub(crate) const HELD_BACK: &str = "HeldBack";
/// There is a newer bundle than the installed one.
const UPDATE_AVAILABLE: &str = "UpdateAvailable";
/// Stored versions of a definition are being migrated.
pub(crate) const MIGRATING: &str = "Migrating";
/// The user has paused the extension.
pub(crate) const PAUSED: &str = "Paused";
/// The extension is being deleted.
pub(crate) const UNINSTALLING: &str = "Uninstalling";
/// The extension is gone.
pub(crate) const UNINSTALLED: &str = "Uninstalled";

/// The event that reports a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A warning, with the reason of the condition.
    Warning,
    /// A normal event, with this reason.
    Normal(&'static str),
    /// No event.
    None,
}

/// A normal event.
pub(crate) fn normal(reason: &str, note: impl Into<String>) -> Notice {
    Notice {
        is_fault: false,
        reason: reason.to_owned(),
        note: note.into(),
    }
}

/// The event before an installed bundle is replaced.
pub(crate) fn upcoming(installed: &BundleMetadata, wanted: &BundleMetadata, note: &str) -> Notice {
    let reason = match order(installed, wanted) {
        Ordering::Less => UPGRADING,
        Ordering::Equal => CHANGING,
        Ordering::Greater => DOWNGRADING,
    };
    normal(reason, note)
}

/// A revision replaces one that is being deleted.
pub(crate) fn replacing(deleted: &str, made: &str) -> Notice {
    let note = format!(
        "{deleted} is being deleted, {made} replaces it: custom resource definitions stay with all their objects, other objects are created again"
    );
    normal(CHANGING, note)
}

/// The order of two bundles by version and release. Unreadable versions are equal.
fn order(old: &BundleMetadata, new: &BundleMetadata) -> Ordering {
    let read = |bundle| as_installed(bundle).version_release();
    match (read(old), read(new)) {
        (Ok(old), Ok(new)) => old.compare(&new),
        _ => Ordering::Equal,
    }
}

/// The events between two states of an extension. `kind` is that of the blocker.
pub(crate) fn changes(
    before: Option<&ClusterExtensionStatus>,
    after: &ClusterExtensionStatus,
    kind: EventKind,
) -> Vec<Notice> {
    let mut events = Vec::new();
    let installed = before.and_then(|status| status.install.as_ref());
    match (installed, after.install.as_ref()) {
        (None, Some(new)) => events.push(normal(INSTALLED, format!("Installed {}", named(&new.bundle)))),
        (Some(old), Some(new)) if named(&old.bundle) != named(&new.bundle) => {
            let reason = match order(&old.bundle, &new.bundle) {
                Ordering::Less => UPGRADED,
                Ordering::Equal => REPLACED,
                Ordering::Greater => DOWNGRADED,
            };
            events.push(normal(
                reason,
                format!("Replaced {} by {}", named(&old.bundle), named(&new.bundle)),
            ));
        }
        _ => {}
    }
    events.extend(available(before, after));
    events.extend(refused(before, after));
    let Some(progressing) = conditions::find(&after.conditions, PROGRESSING) else {
        return events;
    };
    let earlier = before.and_then(|status| conditions::find(&status.conditions, PROGRESSING));
    let is_hindered = !matches!(
        progressing.reason.as_str(),
        reason::SUCCEEDED | reason::ROLLING_OUT
    );
    let note = explanation(after);
    let is_reported = earlier.is_some_and(|earlier| earlier.reason == progressing.reason)
        && before.map(explanation) == Some(note);
    if is_hindered && !is_reported {
        match kind {
            EventKind::Warning => events.push(Notice {
                is_fault: true,
                reason: progressing.reason.clone(),
                note: note.to_owned(),
            }),
            EventKind::Normal(reason) => events.push(normal(reason, note)),
            EventKind::None => {}
        }
    }
    events
}

/// The event that the signature policy does not accept the installed image any more.
fn refused(before: Option<&ClusterExtensionStatus>, after: &ClusterExtensionStatus) -> Option<Notice> {
    let of = |status: &ClusterExtensionStatus| {
        let found = conditions::find(&status.conditions, VERIFIED);
        let refused = found.filter(|found| found.reason == reason::POLICY_REFUSES);
        refused.map(|refused| refused.message.clone())
    };
    let note = of(after)?;
    (before.and_then(of).as_ref() != Some(&note)).then(|| Notice {
        is_fault: true,
        reason: reason::POLICY_REFUSES.to_owned(),
        note,
    })
}

/// The event that a newer bundle is available, once for each bundle.
fn available(before: Option<&ClusterExtensionStatus>, after: &ClusterExtensionStatus) -> Option<Notice> {
    let newest = |status: &ClusterExtensionStatus| {
        let updates = status.updates.as_ref().filter(|_| status.install.is_some())?;
        updates.newest.clone()
    };
    let updates = after.updates.as_ref()?;
    let found = newest(after)?;
    let name = named(&found.metadata());
    let was_installed = before
        .and_then(|before| before.install.as_ref())
        .map(|install| named(&install.bundle));
    let was_known = before.and_then(newest).map(|bundle| named(&bundle.metadata()));
    if [was_installed, was_known].contains(&Some(name.clone())) {
        return None;
    }
    let why = match updates.message.as_str() {
        "" => String::new(),
        message => format!("\n{message}"),
    };
    let note = format!("{name} of catalog {} is available{why}", found.catalog);
    Some(normal(UPDATE_AVAILABLE, note))
}

/// The explanation of the blocker of an extension: `Ready` explains the texts of the reference implementation in
/// `Progressing`.
fn explanation(status: &ClusterExtensionStatus) -> &str {
    let of = |condition_type| conditions::find(&status.conditions, condition_type);
    let found = of(READY).or_else(|| of(PROGRESSING));
    found.map_or("", |condition| condition.message.as_str())
}

/// A bundle with its version and, after a plus sign, its release.
fn named(bundle: &BundleMetadata) -> String {
    match as_installed(bundle).version_release() {
        Ok(version) => format!("{} {version}", bundle.name),
        Err(_) => format!("{} {}", bundle.name, bundle.version),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::InstallStatus;
    use olm_api::conditions::{Report, Status, set_condition};
    use olm_api::updates::{AvailableBundle, UpdatesStatus};

    use super::*;

    fn greeter(version: &str, release: Option<&str>) -> BundleMetadata {
        BundleMetadata {
            name: "greeter".to_owned(),
            version: version.to_owned(),
            release: release.map(str::to_owned),
        }
    }

    fn status(version: &str, reason: &str, message: &str) -> ClusterExtensionStatus {
        let mut status = ClusterExtensionStatus::default();
        let bundle = greeter(version, None);
        status.install = (!version.is_empty()).then_some(InstallStatus { bundle });
        let report = Report {
            condition_type: PROGRESSING,
            status: Status::True,
            reason,
            message,
            observed_generation: 1,
        };
        set_condition(&mut status.conditions, report, Timestamp::UNIX_EPOCH);
        status
    }

    #[test]
    fn an_event_is_published_once() {
        let none = status("", reason::ROLLING_OUT, "rolling");
        let one = status("1.0.0", reason::SUCCEEDED, "");
        let held = status("1.0.0", reason::RETRYING, "refused");
        let two = status("2.0.0", reason::SUCCEEDED, "");
        let check_as = |kind, before: Option<&ClusterExtensionStatus>, after, expected: &[&str]| {
            let texts: Vec<String> = changes(before, after, kind)
                .into_iter()
                .map(|said| format!("{} {} {}", said.is_fault, said.reason, said.note))
                .collect();
            assert_eq!(texts, expected);
        };
        let check = |before, after, expected: &[&str]| check_as(EventKind::Warning, before, after, expected);
        check(None, &none, &[]);
        check(Some(&none), &one, &["false Installed Installed greeter 1.0.0"]);
        check(Some(&one), &held, &["true Retrying refused"]);
        check(Some(&held), &held, &[]);
        check(
            Some(&held),
            &two,
            &["false Upgraded Replaced greeter 1.0.0 by greeter 2.0.0"],
        );
        check(
            Some(&two),
            &one,
            &["false Downgraded Replaced greeter 2.0.0 by greeter 1.0.0"],
        );
        let [first, second] = ["1.0.0+1", "1.0.0+2"].map(|version| status(version, reason::SUCCEEDED, ""));
        check(
            Some(&first),
            &second,
            &["false Upgraded Replaced greeter 1.0.0+1 by greeter 1.0.0+2"],
        );
        let [unreleased, empty, released, ninth, tenth] = [None, Some(""), Some("1"), Some("9"), Some("10")]
            .map(|release| {
                let mut status = status("1.0.0", reason::SUCCEEDED, "");
                let bundle = greeter("1.0.0", release);
                status.install = Some(InstallStatus { bundle });
                status
            });
        check(
            Some(&tenth),
            &ninth,
            &["false Downgraded Replaced greeter 1.0.0+10 by greeter 1.0.0+9"],
        );
        check(
            Some(&unreleased),
            &released,
            &["false Upgraded Replaced greeter 1.0.0 by greeter 1.0.0+1"],
        );
        // The same version, written differently.
        check(Some(&unreleased), &empty, &[]);
        check(Some(&first), &released, &[]);
        check_as(
            EventKind::Normal(MIGRATING),
            Some(&one),
            &held,
            &["false Migrating refused"],
        );
        check_as(EventKind::None, Some(&one), &held, &[]);
    }

    #[test]
    fn a_newer_bundle_is_announced_once() {
        let with = |installed: &str, newest: Option<&str>, message: &str| {
            let mut status = status(installed, reason::SUCCEEDED, "");
            status.updates = Some(UpdatesStatus {
                newest: newest.map(|version| AvailableBundle::new(&greeter(version, None), "one")),
                message: message.to_owned(),
                ..UpdatesStatus::default()
            });
            status
        };
        let announced = |before: Option<&ClusterExtensionStatus>, after: &ClusterExtensionStatus| {
            let events = changes(before, after, EventKind::Warning).into_iter();
            let mut notes = events.filter(|event| event.reason == UPDATE_AVAILABLE);
            notes.next().map(|event| event.note)
        };
        let nothing = with("", Some("2.0.0"), "outside");
        let held = with("1.0.0", Some("2.0.0"), "outside");
        let note = "greeter 2.0.0 of catalog one is available\noutside";
        assert_eq!(announced(None, &nothing), None, "it is no update of anything");
        assert_eq!(announced(Some(&nothing), &held).as_deref(), Some(note));
        let earlier = status("1.0.0", reason::SUCCEEDED, "");
        assert_eq!(announced(Some(&earlier), &held).as_deref(), Some(note));
        // The reason changes, or another version is installed, but the available bundle is the same.
        for after in [
            &held,
            &with("1.0.0", Some("2.0.0"), ""),
            &with("1.1.0", Some("2.0.0"), "no edge"),
        ] {
            assert_eq!(announced(Some(&held), after), None);
        }
        let next = with("1.0.0", Some("2.1.0"), "");
        assert_eq!(
            announced(Some(&held), &next).as_deref(),
            Some("greeter 2.1.0 of catalog one is available")
        );
        // A rollback to a known bundle.
        let reached = with("2.0.0", None, "");
        assert_eq!(announced(Some(&held), &reached), None);
        assert_eq!(announced(Some(&reached), &held), None);
    }

    #[test]
    fn upcoming_changes_are_called_upgrade_or_downgrade() {
        for (installed, wanted, expected) in [
            (greeter("1.0.0", None), greeter("1.0.1", None), "Upgrading"),
            (greeter("1.0.1", None), greeter("1.0.0", None), "Downgrading"),
            (greeter("1.0.1", None), greeter("1.0.1", None), "Changing"),
            (greeter("", None), greeter("1.0.1", None), "Changing"),
            (greeter("1.0.0+1", None), greeter("1.0.0+2", None), "Upgrading"),
            (
                greeter("1.0.0", Some("1")),
                greeter("1.0.0", Some("2")),
                "Upgrading",
            ),
            (
                greeter("1.0.0", Some("2")),
                greeter("1.0.0", Some("")),
                "Downgrading",
            ),
            (
                greeter("1.0.0+9", Some("1")),
                greeter("1.0.0+8", Some("1")),
                "Changing",
            ),
        ] {
            let said = upcoming(&installed, &wanted, "");
            assert_eq!(said.reason, expected, "{installed:?} {wanted:?}");
        }
    }
}
