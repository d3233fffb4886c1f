//! The values of an extension's metrics, from the extension and its revisions. Pure.

use olm_api::ClusterExtension;
use olm_api::cluster_extension::ClusterExtensionStatus;
use olm_api::conditions::{self, AVAILABLE, DEPRECATED, READY, Status, prefix, reason};
use olm_api::names::annotation;
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::held_back;
use olm_text::escape;

use crate::extension::revisions::Revisions;

/// The longest value of a label, in bytes. Longer values are truncated.
const MAX_LABEL: usize = 128;
/// The reason for an unknown or foreign reason.
const OTHER: &str = "Other";

/// The state of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ExtensionState {
    /// The content of its spec is there and works.
    Ready,
    /// The extension is not ready, and the controller works on it.
    Reconciling,
    /// The extension is not ready, and a user must act.
    Stalled,
    /// The extension is being deleted.
    Deleting,
    /// The extension was not reconciled yet.
    Unknown,
}

impl ExtensionState {
    /// The value of the label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Deleting => "Deleting",
            Self::Unknown => "Unknown",
        }
    }
}

/// A newer bundle than the installed one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Update {
    pub version: String,
    /// The catalog that has it.
    pub catalog: String,
    /// The blocker of an update, from a fixed set; `None` if nothing blocks it.
    pub held_back_by: Option<&'static str>,
}

/// The values of one extension's metrics. Texts are escaped and bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The name.
    pub extension: String,
    pub state: ExtensionState,
    /// The reason, one of [`reason::ALL`] or `Other`.
    pub reason: &'static str,
    /// Whether a bundle is installed.
    pub is_installed: bool,
    /// Whether the objects of the installed bundle pass their probes; `None` if unknown.
    pub is_available: Option<bool>,
    /// Whether the catalog deprecates the installed bundle; `None` while that is unknown.
    pub is_deprecated: Option<bool>,
    pub package: String,
    /// The installed version; empty when there is none.
    pub version: String,
    /// The channels that the spec names, separated by commas; empty when it names none.
    pub channel: String,
    /// The catalog that the installed bundle came from; empty if unknown.
    pub catalog: String,
    /// A newer bundle.
    pub update: Option<Update>,
    /// The creation of the revision that is rolling out, in seconds since 1970.
    pub rollout_started: Option<i64>,
    /// The request for the deletion, in seconds since 1970.
    pub deletion_requested: Option<i64>,
}

impl Sample {
    /// The sample of an extension and its revisions.
    pub(crate) fn of(extension: &ClusterExtension, revisions: &Revisions) -> Self {
        let list = extension.conditions();
        let source = extension.spec.source.catalog.as_ref();
        let installed = revisions.installed();
        let of_revision = |key: &str| installed.and_then(|set| set.annotation(key)).unwrap_or_default();
        let package = source.map(|source| source.package_name.as_str());
        let package = Some(of_revision(annotation::PACKAGE_NAME))
            .filter(|text| !text.is_empty())
            .or(package);
        let status = extension.status.as_ref();
        let install = status.and_then(|status| status.install.as_ref());
        let (state, reason) = state(extension);
        Self {
            extension: label(extension.name()),
            state,
            reason,
            is_installed: install.is_some(),
            is_available: known(list, AVAILABLE),
            is_deprecated: known(list, DEPRECATED),
            package: label(package.unwrap_or_default()),
            version: label(
                install
                    .map(|install| install.bundle.version.as_str())
                    .unwrap_or_default(),
            ),
            channel: label(&source.map(|source| source.channels.join(",")).unwrap_or_default()),
            catalog: label(of_revision(annotation::CATALOG)),
            update: status.and_then(update),
            rollout_started: revisions
                .newest_active()
                .filter(|set| !conditions::is_true(set.conditions(), conditions::SUCCEEDED))
                .and_then(|set| set.metadata.creation_timestamp.as_ref())
                .map(|time| time.0.as_second()),
            deletion_requested: extension
                .metadata
                .deletion_timestamp
                .as_ref()
                .map(|time| time.0.as_second()),
        }
    }
}

/// The state and reason of an extension. Conditions of an earlier generation do not count.
fn state(extension: &ClusterExtension) -> (ExtensionState, &'static str) {
    let ready = conditions::find(extension.conditions(), READY);
    let reason = ready.map_or(OTHER, |ready| known_reason(&ready.reason));
    if extension.is_deleting() {
        return (ExtensionState::Deleting, reason);
    }
    let observed = extension
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    match verdict(extension.conditions()) {
        None => (ExtensionState::Unknown, reason),
        Some(_) if observed != Some(extension.generation()) => {
            (ExtensionState::Reconciling, reason::RECONCILING)
        }
        Some(Verdict::Ready) => (ExtensionState::Ready, reason),
        Some(Verdict::Reconciling) => (ExtensionState::Reconciling, reason),
        Some(Verdict::Stalled) => (ExtensionState::Stalled, reason),
    }
}

/// The newest bundle, if it is newer than the installed one; `None` before an installation.
fn update(status: &ClusterExtensionStatus) -> Option<Update> {
    status.install.as_ref()?;
    let updates = status.updates.as_ref()?;
    let bundle = updates.newest.as_ref().or(updates.next.as_ref())?;
    Some(Update {
        version: label(&bundle.version),
        catalog: label(&bundle.catalog),
        held_back_by: updates.held_back_by.as_deref().map(known_hold),
    })
}

/// A reason of [`held_back`]. A writer of the status could invent any number of others.
fn known_hold(by: &str) -> &'static str {
    let found = held_back::ALL.iter().find(|known| **known == by);
    found.copied().unwrap_or(held_back::OTHER)
}

/// A reason of a condition. A writer of the status could invent any number of others.
fn known_reason(reason: &str) -> &'static str {
    let found = reason::ALL.iter().find(|known| **known == reason);
    found.copied().unwrap_or(OTHER)
}

/// The status of a condition; `None` when it is absent or `Unknown`.
fn known(list: &[olm_api::Condition], condition_type: &str) -> Option<bool> {
    let found = conditions::find(list, condition_type)?;
    match found.status.as_str() {
        text if text == Status::True.as_str() => Some(true),
        text if text == Status::False.as_str() => Some(false),
        _ => None,
    }
}

/// A text as the value of a label.
fn label(text: &str) -> String {
    prefix(&escape(text), MAX_LABEL).to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use olm_api::cluster_extension::{
        BundleMetadata, CatalogFilter, ClusterExtensionSpec, InstallStatus, SourceConfig,
    };
    use olm_api::conditions::{Report, SUCCEEDED, set_condition};
    use olm_api::readiness::{Readiness, set_readiness};
    use olm_api::updates::{AvailableBundle, UpdatesStatus};

    use super::*;
    use crate::extension::revisions::tests::revision;

    /// A reconciled extension of generation 1.
    pub(in crate::metrics) fn extension(name: &str, verdict: Verdict, reason: &str) -> ClusterExtension {
        let catalog = CatalogFilter {
            package_name: "asked-for".to_owned(),
            channels: vec!["stable".to_owned(), "fast".to_owned()],
            ..CatalogFilter::default()
        };
        let spec = ClusterExtensionSpec {
            source: SourceConfig {
                catalog: Some(catalog),
                ..SourceConfig::default()
            },
            ..ClusterExtensionSpec::default()
        };
        let mut extension = ClusterExtension::new(name, spec);
        extension.metadata.uid = Some(format!("uid-of-{name}"));
        extension.metadata.generation = Some(1);
        let status = extension.status.get_or_insert_default();
        status.observed_generation = Some(1);
        let readiness = Readiness {
            verdict,
            reason,
            message: "",
            observed_generation: 1,
        };
        set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        extension
    }

    fn report(extension: &mut ClusterExtension, condition_type: &str, status: Status) {
        let report = Report {
            condition_type,
            status,
            reason: reason::SUCCEEDED,
            message: "",
            observed_generation: 1,
        };
        let list = &mut extension.status.get_or_insert_default().conditions;
        set_condition(list, report, Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn the_state_is_that_of_the_spec_as_it_is_now() {
        let check = |change: fn(&mut ClusterExtension), expected: (ExtensionState, &str)| {
            let mut extension = extension("e", Verdict::Stalled, reason::BLOCKED);
            change(&mut extension);
            assert_eq!(state(&extension), expected);
        };
        check(|_| {}, (ExtensionState::Stalled, reason::BLOCKED));
        check(
            |e| e.metadata.generation = Some(2),
            (ExtensionState::Reconciling, reason::RECONCILING),
        );
        check(
            |e| e.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
            (ExtensionState::Deleting, reason::BLOCKED),
        );
        check(|e| e.status = None, (ExtensionState::Unknown, "Other"));
        let ready = extension("e", Verdict::Ready, reason::HEALTHY);
        assert_eq!(state(&ready), (ExtensionState::Ready, reason::HEALTHY));
        let foreign = extension("e", Verdict::Reconciling, "MadeUp-4711");
        assert_eq!(state(&foreign), (ExtensionState::Reconciling, "Other"));
    }

    #[test]
    fn the_installed_bundle_comes_from_its_revision() {
        let mut extension = extension("e", Verdict::Ready, reason::HEALTHY);
        let waiting = Sample::of(&extension, &Revisions::new(vec![]));
        assert_eq!(
            (waiting.package.as_str(), waiting.version.as_str()),
            ("asked-for", "")
        );
        assert_eq!((waiting.is_installed, waiting.rollout_started), (false, None));

        extension.status.get_or_insert_default().install = Some(InstallStatus {
            bundle: BundleMetadata {
                name: "pkg.v1".to_owned(),
                version: "1.0.0".to_owned(),
                release: None,
            },
        });
        let mut old = (*revision(1, &[(SUCCEEDED, Status::True, "")])).clone();
        let annotations = old.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::CATALOG.to_owned(), "hub".to_owned());
        let mut new = (*revision(2, &[])).clone();
        new.metadata.creation_timestamp = Some(Time(Timestamp::from_second(50).unwrap()));
        report(&mut extension, AVAILABLE, Status::False);
        report(&mut extension, DEPRECATED, Status::Unknown);
        let sample = Sample::of(&extension, &Revisions::new(vec![old.into(), new.into()]));
        let texts = [&sample.package, &sample.version, &sample.channel, &sample.catalog];
        assert_eq!(texts, ["pkg", "1.0.0", "stable,fast", "hub"]);
        assert!(sample.is_installed);
        assert_eq!((sample.is_available, sample.is_deprecated), (Some(false), None));
        assert_eq!(sample.rollout_started, Some(50));
    }

    #[test]
    fn an_update_is_the_newest_bundle_of_an_installed_extension() {
        let bundle = |version: &str| AvailableBundle {
            name: format!("pkg.v{version}"),
            version: version.to_owned(),
            release: None,
            catalog: "hub".to_owned(),
        };
        let of = |next: Option<&str>, newest: Option<&str>, by: Option<&str>| {
            let updates = UpdatesStatus {
                next: next.map(bundle),
                newest: newest.map(bundle),
                held_back_by: by.map(str::to_owned),
                message: String::new(),
            };
            let mut status = ClusterExtensionStatus {
                updates: Some(updates),
                ..ClusterExtensionStatus::default()
            };
            assert_eq!(update(&status), None, "nothing is installed");
            status.install = Some(InstallStatus::default());
            update(&status)
        };
        let expected = |version: &str, held_back_by| {
            Some(Update {
                version: version.to_owned(),
                catalog: "hub".to_owned(),
                held_back_by,
            })
        };
        assert_eq!(of(None, None, Some(held_back::CATALOG)), None);
        assert_eq!(
            of(None, Some("2.0.0"), Some("Range")),
            expected("2.0.0", Some("Range"))
        );
        assert_eq!(of(Some("1.1.0"), Some("2.0.0"), None), expected("2.0.0", None));
        assert_eq!(
            of(Some("1.1.0"), None, Some("MadeUp")),
            expected("1.1.0", Some("Other"))
        );
        assert_eq!(update(&ClusterExtensionStatus::default()), None);
    }

    #[test]
    fn labels_are_short_and_have_no_hidden_characters() {
        assert_eq!(label("a\nb\u{202e}"), "a\\nb\\u202e");
        assert!(label(&"ä".repeat(200)).len() <= MAX_LABEL);
    }
}
