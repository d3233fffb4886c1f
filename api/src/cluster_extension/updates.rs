//! Newer bundles in the catalogs of an extension, as `status.updates` reports them.

use olm_text::escape_lines;
use serde::{Deserialize, Serialize};

use super::BundleMetadata;
use crate::conditions::prefix;

/// The longest name, version, release or catalog, in bytes; longer ones are truncated.
pub const MAX_NAME_BYTES: usize = 253;
/// The longest message, in bytes; longer ones are truncated.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// The reasons why the newest bundle is not installed: the values of `status.updates.heldBackBy`. Later versions may
/// add values.
pub mod held_back {
    /// `spec.source.catalog.version` is another version.
    pub const PIN: &str = "Pin";
    /// The bundle is outside the range of `spec.source.catalog.version`.
    pub const RANGE: &str = "Range";
    /// The bundle is a pre-release, which the range does not admit.
    pub const PRERELEASE: &str = "Prerelease";
    /// The bundle is not in the channels of `spec.source.catalog.channels`.
    pub const CHANNEL: &str = "Channel";
    /// No update edge leads to the bundle.
    pub const EDGE: &str = "Edge";
    /// A requirement of the bundle is missing, or others require an API that it would remove.
    pub const REQUIREMENT: &str = "Requirement";
    /// The cluster is too old for it, or lacks an API or an architecture that it names.
    pub const PLATFORM: &str = "Platform";
    /// The catalog deprecates it, and the chosen one not.
    pub const DEPRECATED: &str = "Deprecated";
    /// Another catalog comes first, none can be chosen, or one does not answer or is gone.
    pub const CATALOG: &str = "Catalog";
    /// The service account is missing or lacks permissions.
    pub const RIGHTS: &str = "Rights";
    /// A changed CRD would not keep stored objects valid.
    pub const CRD_UPGRADE_SAFETY: &str = "CRDUpgradeSafety";
    /// The installed operator reports `Upgradeable=False`.
    pub const OPERATOR: &str = "Operator";
    /// The signature policy refuses the image of the bundle, or one of its Pods.
    pub const SIGNATURE: &str = "Signature";
    /// `spec.config` or an annotation has a value that does not fit.
    pub const CONFIGURATION: &str = "Configuration";
    /// The annotation `paused` stops all changes.
    pub const PAUSED: &str = "Paused";
    /// A ChangePolicy requires an approval of the change, which is missing or was denied.
    pub const APPROVAL: &str = "Approval";
    /// A ChangePolicy allows changes only in windows, and none is open.
    pub const WINDOW: &str = "Window";
    /// A ChangePolicy allows no changes.
    pub const FREEZE: &str = "Freeze";
    /// The revision rolls out and is stuck.
    pub const ROLLOUT: &str = "Rollout";
    /// Another reason; the condition `Ready` explains it.
    pub const OTHER: &str = "Other";

    /// All reasons.
    pub const ALL: &[&str] = &[
        PIN,
        RANGE,
        PRERELEASE,
        CHANNEL,
        EDGE,
        REQUIREMENT,
        PLATFORM,
        DEPRECATED,
        CATALOG,
        RIGHTS,
        CRD_UPGRADE_SAFETY,
        OPERATOR,
        SIGNATURE,
        CONFIGURATION,
        PAUSED,
        APPROVAL,
        WINDOW,
        FREEZE,
        ROLLOUT,
        OTHER,
    ];
}

/// Newer bundles in the catalogs; without members if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdatesStatus {
    /// The bundle that is chosen and not installed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AvailableBundle>,
    /// The newest bundle of the admitted catalogs, if it is newer than the installed one or, without an installed one,
    /// than `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<AvailableBundle>,
    /// The blocker of `next`, otherwise of `newest`: one of [`held_back`]'s constants, or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back_by: Option<String>,
    /// The reasons as text, a line for each of the two.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A bundle of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AvailableBundle {
    /// The bundle's name in the catalog.
    pub name: String,
    /// The version.
    pub version: String,
    /// The release: absent if the bundle has none, empty if the bundle has an empty release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The ClusterCatalog that has it.
    pub catalog: String,
}

impl AvailableBundle {
    /// A bundle of a catalog, with its texts truncated to the limits of a status.
    pub fn new(bundle: &BundleMetadata, catalog: &str) -> Self {
        let cut = |text: &str| prefix(text, MAX_NAME_BYTES).to_owned();
        Self {
            name: cut(&bundle.name),
            version: cut(&bundle.version),
            release: bundle.release.as_deref().map(cut),
            catalog: cut(catalog),
        }
    }

    /// Name, version and release.
    pub fn metadata(&self) -> BundleMetadata {
        BundleMetadata {
            name: self.name.clone(),
            version: self.version.clone(),
            release: self.release.clone(),
        }
    }
}

/// The lines in the form for a status: hidden characters are escaped, and long lines are truncated and marked.
pub fn bounded_lines(lines: &[String]) -> String {
    const MARK: &str = "…";
    let text = lines.join("\n");
    let text = escape_lines(&text);
    if text.len() <= MAX_MESSAGE_BYTES {
        return text.into_owned();
    }
    format!("{}{MARK}", prefix(&text, MAX_MESSAGE_BYTES - MARK.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_catalogs_are_cut_to_the_bounds_of_the_status() {
        let long = "ä".repeat(1000);
        let bundle = BundleMetadata {
            name: long.clone(),
            version: long.clone(),
            release: Some(long.clone()),
        };
        let bundle = AvailableBundle::new(&bundle, &long);
        for text in [&bundle.name, &bundle.version, &bundle.catalog] {
            assert_eq!(text.len(), MAX_NAME_BYTES - 1);
        }
        let text = bounded_lines(&["a\u{202e}b".to_owned(), long]);
        assert!(text.len() <= MAX_MESSAGE_BYTES && text.ends_with('…'), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        assert_eq!(bounded_lines(&["a".to_owned(), "b".to_owned()]), "a\nb");
    }

    #[test]
    fn values_that_a_later_version_adds_are_tolerated() {
        let later = r#"{"next":{"name":"a","version":"1.0.0","catalog":"c","size":1},"heldBackBy":"Window","since":"x"}"#;
        let read: UpdatesStatus = serde_json::from_str(later).unwrap();
        assert_eq!(read.held_back_by.as_deref(), Some("Window"));
        assert_eq!(
            serde_json::to_string(&UpdatesStatus::default()).unwrap(),
            "{}",
            "known to be up to date"
        );
    }
}
