//! What happened to a ClusterExtension, in words for its events. Pure.

use olm_api::cluster_extension::{ClusterExtensionStatus, InstallStatus};
use olm_api::conditions::{self, PROGRESSING, reason};
use olm_platform::events::Said;

/// A bundle is installed where none was.
const INSTALLED: &str = "Installed";
/// Another bundle took the place of the installed one.
const UPGRADED: &str = "Upgraded";
/// A revision is made although something about it should be known.
pub const WARNED: &str = "Warned";
/// An upgrade begins.
pub const UPGRADING: &str = "Upgrading";
/// The extension is being taken down.
pub const UNINSTALLING: &str = "Uninstalling";
/// The extension is gone.
pub const UNINSTALLED: &str = "Uninstalled";

/// One line that is no warning.
pub fn said(reason: &str, note: impl Into<String>) -> Said {
    Said {
        is_fault: false,
        reason: reason.to_owned(),
        note: note.into(),
    }
}

/// What happened between two states of an extension.
pub fn changes(before: Option<&ClusterExtensionStatus>, after: &ClusterExtensionStatus) -> Vec<Said> {
    let mut told = Vec::new();
    let installed = before.and_then(|status| status.install.as_ref());
    match (installed, after.install.as_ref()) {
        (None, Some(new)) => told.push(said(INSTALLED, format!("Installed {}", bundle(new)))),
        (Some(old), Some(new)) if bundle(old) != bundle(new) => {
            told.push(said(
                UPGRADED,
                format!("Replaced {} by {}", bundle(old), bundle(new)),
            ));
        }
        _ => {}
    }
    let Some(progressing) = conditions::find(&after.conditions, PROGRESSING) else {
        return told;
    };
    let earlier = before.and_then(|status| conditions::find(&status.conditions, PROGRESSING));
    let is_fault = !matches!(
        progressing.reason.as_str(),
        reason::SUCCEEDED | reason::ROLLING_OUT
    );
    let is_told = earlier.is_some_and(|earlier| {
        (&earlier.reason, &earlier.message) == (&progressing.reason, &progressing.message)
    });
    if is_fault && !is_told {
        told.push(Said {
            is_fault: true,
            reason: progressing.reason.clone(),
            note: progressing.message.clone(),
        });
    }
    told
}

fn bundle(install: &InstallStatus) -> String {
    format!("{} {}", install.bundle.name, install.bundle.version)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::cluster_extension::BundleMetadata;
    use olm_api::conditions::{Report, Status, set_condition};

    use super::*;

    fn status(version: &str, reason: &str, message: &str) -> ClusterExtensionStatus {
        let mut status = ClusterExtensionStatus::default();
        let bundle = BundleMetadata {
            name: "pot".to_owned(),
            version: version.to_owned(),
            release: None,
        };
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
    fn what_a_user_cares_about_is_told_once() {
        let none = status("", reason::ROLLING_OUT, "rolling");
        let one = status("1.0.0", reason::SUCCEEDED, "");
        let held = status("1.0.0", reason::RETRYING, "refused");
        let two = status("2.0.0", reason::SUCCEEDED, "");
        let check = |before: Option<&ClusterExtensionStatus>, after, expected: &[&str]| {
            let texts: Vec<String> = changes(before, after)
                .into_iter()
                .map(|said| format!("{} {} {}", said.is_fault, said.reason, said.note))
                .collect();
            assert_eq!(texts, expected);
        };
        check(None, &none, &[]);
        check(Some(&none), &one, &["false Installed Installed pot 1.0.0"]);
        check(Some(&one), &held, &["true Retrying refused"]);
        check(Some(&held), &held, &[]);
        check(
            Some(&held),
            &two,
            &["false Upgraded Replaced pot 1.0.0 by pot 2.0.0"],
        );
    }
}
