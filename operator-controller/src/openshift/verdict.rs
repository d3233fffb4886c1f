//! Whether the installed bundles allow an update of the cluster.

use std::collections::BTreeMap;
use std::fmt;

use olm_api::cluster_extension::controlling_extension;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{self, Status, reason};
use olm_api::names::annotation;
use olm_api::{ClusterObjectSet, conditions::SUCCEEDED};
use olm_bundle::openshift::{MinorVersion, PropertiesError, maxima};

/// The relevant facts about a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledRevision {
    /// The ClusterExtension's name.
    pub extension: String,
    /// The bundle's name.
    pub bundle: String,
    /// The revision's number.
    pub number: i64,
    /// Whether the revision is active.
    pub state: LifecycleState,
    /// Whether the revision was complete.
    pub rollout: Rollout,
    /// The bundle's properties, a JSON list; absent if it has none.
    pub properties: Option<String>,
    /// Further properties from its catalog, in the same form.
    pub further: Option<String>,
}

/// Whether a revision was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollout {
    /// The revision was complete.
    Complete,
    /// The revision was never complete.
    UnderWay,
}

impl InstalledRevision {
    /// The facts about a ClusterObjectSet; `None` if no existing ClusterExtension controls it, because any user can
    /// write labels and owner names. `extension` returns the name of the ClusterExtension with a UID.
    pub fn of<'a>(set: &ClusterObjectSet, extension: impl FnOnce(&str) -> Option<&'a str>) -> Option<Self> {
        let extension = extension(controlling_extension(&set.metadata)?)?;
        let complete = conditions::is_true(set.conditions(), SUCCEEDED);
        Some(Self {
            extension: extension.to_owned(),
            bundle: set
                .annotation(annotation::BUNDLE_NAME)
                .unwrap_or_default()
                .to_owned(),
            number: set.spec.revision,
            state: set.spec.lifecycle_state,
            rollout: if complete {
                Rollout::Complete
            } else {
                Rollout::UnderWay
            },
            properties: set.annotation(annotation::PROPERTIES).map(str::to_owned),
            further: set.annotation(annotation::FURTHER_PROPERTIES).map(str::to_owned),
        })
    }

    /// The latest versions of OpenShift that the bundle supports, highest first.
    fn maxima(&self) -> Result<Vec<MinorVersion>, PropertiesError> {
        let mut all = Vec::new();
        for properties in self.properties.iter().chain(&self.further) {
            all.extend(maxima(properties)?);
        }
        all.sort_unstable_by(|left, right| right.cmp(left));
        Ok(all)
    }
}

/// The condition for the ClusterOperator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeableCondition {
    /// `False` blocks a minor update.
    pub status: Status,
    /// The reason.
    pub reason: &'static str,
    /// The bundles that block the update, with reasons and hints, or the versions that could not be read.
    pub message: String,
}

/// The installed bundle of an extension.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ExtensionBundle {
    extension: String,
    bundle: String,
}

impl fmt::Display for ExtensionBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "bundle {:?} for ClusterExtension {:?}",
            self.bundle, self.extension
        )
    }
}

/// Whether a cluster at `cluster` may be updated to its next minor version. Unreadable versions block, too, and are
/// reported.
pub fn verdict(cluster: MinorVersion, revisions: &[InstalledRevision]) -> UpgradeableCondition {
    let next = cluster.next();
    let mut blockers: BTreeMap<ExtensionBundle, Vec<MinorVersion>> = BTreeMap::new();
    let mut errors: BTreeMap<ExtensionBundle, String> = BTreeMap::new();
    for revision in counting(revisions) {
        let named = ExtensionBundle {
            extension: revision.extension.clone(),
            bundle: revision.bundle.clone(),
        };
        match revision.maxima() {
            Ok(maxima) if maxima.first().is_some_and(|highest| !highest.allows(next)) => {
                blockers.insert(named, maxima);
            }
            Ok(_) => {}
            Err(error) => {
                errors.insert(named, error.to_string());
            }
        }
    }
    let unreadable = errors
        .iter()
        .map(|(named, error)| {
            format!(
                "error with cluster extension {}: error in bundle {}: {error}",
                named.extension, named.bundle
            )
        })
        .collect::<Vec<_>>()
        .join("\n");
    if blockers.is_empty() && errors.is_empty() {
        let message = format!("Every installed bundle supports OpenShift {next}.");
        return UpgradeableCondition {
            status: Status::True,
            reason: reason::AS_EXPECTED,
            message,
        };
    }
    if blockers.is_empty() {
        return UpgradeableCondition {
            status: Status::False,
            reason: reason::FAILURE_GETTING_EXTENSION_METADATA,
            message: unreadable,
        };
    }
    let mut message = blocked(next, &blockers);
    if !errors.is_empty() {
        message.push_str(
            "\n Additionally the following errors were encountered while getting extension metadata: ",
        );
        message.push_str(&unreadable);
    }
    UpgradeableCondition {
        status: Status::False,
        reason: reason::INCOMPATIBLE_OPERATORS_INSTALLED,
        message,
    }
}

fn blocked(next: MinorVersion, blockers: &BTreeMap<ExtensionBundle, Vec<MinorVersion>>) -> String {
    let names = blockers
        .keys()
        .map(ExtensionBundle::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let limits = blockers
        .iter()
        .map(|(named, maxima)| limit(&named.bundle, maxima))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "Found ClusterExtensions that require upgrades prior to upgrading cluster to version {next}: {names}. \
         Kubernetes APIs that a later version removes could break them: {limits}. \
         Update each to a bundle that supports {next}, or uninstall it."
    )
}

/// The text about the limit of a bundle. Its highest version counts.
fn limit(bundle: &str, maxima: &[MinorVersion]) -> String {
    let mut texts = maxima.iter().map(MinorVersion::to_string);
    let highest = texts.next().unwrap_or_default();
    let others: Vec<String> = texts.collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" (it also names {}, and the highest counts)", others.join(", "))
    };
    format!("{bundle:?} works on OpenShift {highest} at the latest{others}")
}

/// The revisions that count: of each extension the newest active one, and the newest active one that was complete,
/// because its objects run until the other is complete.
fn counting(revisions: &[InstalledRevision]) -> impl Iterator<Item = &InstalledRevision> {
    let mut newest: BTreeMap<(&str, bool), &InstalledRevision> = BTreeMap::new();
    for revision in revisions.iter().filter(|r| r.state == LifecycleState::Active) {
        for complete in [false, true] {
            if complete && revision.rollout != Rollout::Complete {
                continue;
            }
            let entry = newest
                .entry((revision.extension.as_str(), complete))
                .or_insert(revision);
            if entry.number < revision.number {
                *entry = revision;
            }
        }
    }
    newest.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(extension: &str, number: i64, maximum: &str) -> InstalledRevision {
        InstalledRevision {
            extension: extension.to_owned(),
            bundle: format!("{extension}.v{number}"),
            number,
            state: LifecycleState::Active,
            rollout: Rollout::Complete,
            properties: Some(format!(
                r#"[{{"type":"olm.maxOpenShiftVersion","value":{maximum}}}]"#
            )),
            further: None,
        }
    }

    fn check(cluster: &str, revisions: &[InstalledRevision], expected: Status) -> String {
        let verdict = verdict(MinorVersion::of_cluster(cluster).unwrap(), revisions);
        assert_eq!(verdict.status, expected, "{}", verdict.message);
        verdict.message
    }

    #[test]
    fn a_maximum_below_the_next_minor_version_blocks() {
        for (cluster, maximum, expected) in [
            ("4.18.0", "4.18", Status::False),
            ("4.18.0-rc1", "4.18", Status::False),
            ("4.17.9", "4.18", Status::True),
            ("4.18.5", "4.19", Status::True),
            ("4.19.2", "4.18", Status::False),
            ("4.18.0", "4.18.7", Status::False),
            ("4.9.3", "4.10", Status::True),
        ] {
            let message = check(cluster, &[revision("a", 1, &format!("{maximum:?}"))], expected);
            assert_eq!(message.contains("a.v1"), expected == Status::False, "{message}");
        }
    }

    #[test]
    fn a_bundle_without_the_property_never_blocks() {
        let mut silent = revision("a", 1, "0");
        silent.properties = None;
        check("4.18.0", &[silent.clone()], Status::True);
        silent.properties = Some(r#"[{"type":"olm.package","value":{"a":1}},{"type":"other"}]"#.to_owned());
        check("4.18.0", &[silent], Status::True);
    }

    #[test]
    fn only_the_blockers_are_named() {
        let revisions = [
            revision("a", 1, r#""4.20""#),
            revision("b", 1, r#""4.18""#),
            revision("c", 1, "4.17"),
        ];
        let message = check("4.18.0", &revisions, Status::False);
        assert!(
            message.contains("version 4.19") && !message.contains("a.v1"),
            "{message}"
        );
        assert!(
            message.contains(
                r#"bundle "b.v1" for ClusterExtension "b",bundle "c.v1" for ClusterExtension "c"."#
            ),
            "{message}"
        );
        assert!(message.contains(r#""c.v1" works on OpenShift 4.17"#), "{message}");
    }

    #[test]
    fn bundles_that_are_not_installed_never_block() {
        check("4.18.0", &[], Status::True);
        let mut archived = revision("a", 1, "4.18");
        archived.state = LifecycleState::Archived;
        check("4.18.0", &[archived], Status::True);
    }

    #[test]
    fn an_update_lifts_the_block_once_it_is_complete() {
        let old = revision("a", 1, "4.18");
        let mut new = revision("a", 2, "4.19");
        new.rollout = Rollout::UnderWay;
        let message = check("4.18.0", &[old.clone(), new.clone()], Status::False);
        assert!(message.contains("a.v1") && !message.contains("a.v2"), "{message}");
        new.rollout = Rollout::Complete;
        check("4.18.0", &[old, new], Status::True);
    }

    #[test]
    fn only_revisions_that_an_extension_controls_count() {
        use olm_api::cluster_object_set::ClusterObjectSetSpec;
        use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, label};
        let set = |kind: &str, uid: &str, controller: bool| {
            let mut set = ClusterObjectSet::new("a-1", ClusterObjectSetSpec::default());
            set.metadata = serde_json::from_value(serde_json::json!({
                "name": "a-1",
                "labels": {label::OWNER_KIND: CLUSTER_EXTENSION, label::OWNER_NAME: "a"},
                "ownerReferences": [
                    {"apiVersion": API_VERSION, "kind": kind, "name": "forged", "uid": uid, "controller": controller},
                ],
            }))
            .unwrap();
            set
        };
        let of = |set: &ClusterObjectSet| InstalledRevision::of(set, |uid| (uid == "1").then_some("a"));
        assert_eq!(of(&set(CLUSTER_EXTENSION, "1", true)).unwrap().extension, "a");
        assert_eq!(of(&set(CLUSTER_EXTENSION, "1", false)), None);
        assert_eq!(of(&set(CLUSTER_EXTENSION, "2", true)), None);
        assert_eq!(of(&set("Other", "1", true)), None);
        let mut labelled = set(CLUSTER_EXTENSION, "1", true);
        labelled.metadata.owner_references = None;
        assert_eq!(of(&labelled), None);
    }

    #[test]
    fn an_unreadable_maximum_blocks_and_is_reported_beside_the_blockers() {
        for properties in ["", "abcd", "{}", r#"[{"type":"olm.maxOpenShiftVersion"}]"#] {
            let mut unreadable = revision("u", 1, "0");
            unreadable.properties = Some(properties.to_owned());
            let alone = verdict(
                MinorVersion::of_cluster("4.18.0").unwrap(),
                std::slice::from_ref(&unreadable),
            );
            assert_eq!(alone.reason, reason::FAILURE_GETTING_EXTENSION_METADATA);
            let message = check("4.18.0", &[revision("b", 1, "4.18"), unreadable], Status::False);
            assert!(
                message.contains("b.v1") && message.contains("Additionally") && message.contains("u.v1"),
                "{message}"
            );
        }
    }

    #[test]
    fn of_several_limits_the_highest_counts_also_one_that_only_the_catalog_tells() {
        let list = |values: &[&str]| {
            let property =
                |value: &&str| format!(r#"{{"type":"olm.maxOpenShiftVersion","value":"{value}"}}"#);
            let properties: Vec<String> = values.iter().map(property).collect();
            Some(format!("[{}]", properties.join(",")))
        };
        let mut several = revision("s", 1, "0");
        several.properties = list(&["4.17", "4.18", "4.16"]);
        let message = check("4.18.0", std::slice::from_ref(&several), Status::False);
        let expected = r#""s.v1" works on OpenShift 4.18 at the latest (it also names 4.17, 4.16, and the highest counts)"#;
        assert!(message.contains(expected), "{message}");
        check("4.17.0", &[several], Status::True);
        let mut further = revision("t", 1, "0");
        further.properties = None;
        further.further = list(&["4.18"]);
        let message = check("4.18.0", std::slice::from_ref(&further), Status::False);
        assert!(
            message.contains(r#""t.v1" works on OpenShift 4.18 at the latest."#),
            "{message}"
        );
        further.properties = Some("null".to_owned());
        further.further = None;
        check("4.18.0", &[further], Status::True);
    }
}
