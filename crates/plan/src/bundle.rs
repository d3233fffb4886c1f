//! The bundle of a revision, and the names that the next revision inherits from the newest one.

use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::names::{annotation, is_name};
use olm_version::Release;

/// The bundle of a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleIdentity {
    /// The package.
    pub package: String,
    /// The name, version and release.
    pub metadata: BundleMetadata,
    /// The image.
    pub image: String,
}

impl BundleIdentity {
    /// The bundle in the annotations of a revision.
    pub fn of(set: &ClusterObjectSet) -> Self {
        let text = |key: &str| set.annotation(key).unwrap_or_default().to_owned();
        Self {
            package: text(annotation::PACKAGE_NAME),
            metadata: BundleMetadata {
                name: text(annotation::BUNDLE_NAME),
                version: text(annotation::BUNDLE_VERSION),
                release: set.annotation(annotation::BUNDLE_RELEASE).map(str::to_owned),
            },
            image: text(annotation::BUNDLE_REFERENCE),
        }
    }

    /// Whether the API server accepts the bundle in a status: it needs a name, a version that begins with a number, and
    /// a valid release.
    pub fn can_be_reported(&self) -> bool {
        let BundleMetadata {
            name,
            version,
            release,
        } = &self.metadata;
        !name.is_empty()
            && version.starts_with(|first: char| first.is_ascii_digit())
            && release
                .as_deref()
                .is_none_or(|release| Release::parse(release).is_ok())
    }
}

/// The bundle after which the roles of the wanted bundle are named, if it is another one: the bundle of the first
/// revision in a line of upgrades. An account that holds rights to these roles by name keeps them in the next version.
pub fn roles_named_after<'a>(
    latest: Option<&'a ClusterObjectSet>,
    wanted: &BundleIdentity,
) -> Option<&'a str> {
    let latest =
        latest.filter(|set| set.annotation(annotation::PACKAGE_NAME) == Some(wanted.package.as_str()))?;
    let inherited = latest.annotation(annotation::ROLES_NAMED_AFTER);
    let named = inherited.or_else(|| latest.annotation(annotation::BUNDLE_NAME));
    named.filter(|name| !name.is_empty() && (inherited.is_some() || *name != wanted.metadata.name))
}

/// The name of the OperatorCondition that the operator reads, given the newest revision. The content of an installed
/// bundle stays as it is.
pub fn operator_condition<'a>(
    latest: Option<&'a ClusterObjectSet>,
    bundle: &'a BundleIdentity,
) -> Option<&'a str> {
    match latest {
        Some(set) if BundleIdentity::of(set).metadata == bundle.metadata => {
            set.annotation(annotation::OPERATOR_CONDITION)
        }
        _ => Some(bundle.metadata.name.as_str()).filter(|name| is_name(name)),
    }
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;

    fn bundle(version: &str) -> BundleIdentity {
        let mut bundle = BundleIdentity::default();
        bundle.metadata.name = format!("op.v{version}");
        bundle.metadata.version = version.to_owned();
        bundle
    }

    fn revision(version: &str, condition: Option<&str>) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::new("e-1", ClusterObjectSetSpec::default());
        let bundle = bundle(version).metadata;
        let mut annotations = std::collections::BTreeMap::from([
            (annotation::BUNDLE_NAME.to_owned(), bundle.name),
            (annotation::BUNDLE_VERSION.to_owned(), bundle.version),
        ]);
        annotations
            .extend(condition.map(|name| (annotation::OPERATOR_CONDITION.to_owned(), name.to_owned())));
        set.metadata.annotations = Some(annotations);
        set
    }

    #[test]
    fn an_operator_reads_a_condition_from_the_first_revision_of_its_bundle_on_or_never() {
        let check = |latest: Option<&ClusterObjectSet>, version: &str, expected: Option<&str>| {
            assert_eq!(operator_condition(latest, &bundle(version)), expected);
        };
        check(None, "1", Some("op.v1"));
        // An operator that is taken over does not restart.
        check(Some(&revision("1", None)), "1", None);
        check(Some(&revision("1", None)), "2", Some("op.v2"));
        check(Some(&revision("1", Some("op.v1"))), "1", Some("op.v1"));
        check(Some(&revision("2", Some("op.v2"))), "1", Some("op.v1"));
        let mut odd = bundle("1");
        odd.metadata.name = "Not A Name".to_owned();
        assert_eq!(operator_condition(None, &odd), None);
    }

    fn numbered(number: i64) -> ClusterObjectSet {
        let mut set = revision(&format!("{number}.0.0"), None);
        let annotations = set.metadata.annotations.get_or_insert_default();
        for (key, value) in [
            (annotation::PACKAGE_NAME, "pkg".to_owned()),
            (annotation::BUNDLE_NAME, format!("pkg.v{number}")),
        ] {
            annotations.insert(key.to_owned(), value);
        }
        set
    }

    #[test]
    fn roles_keep_the_names_that_the_first_version_gave_them() {
        let bundle = |version: i64| BundleIdentity::of(&numbered(version));
        let after = |set: &ClusterObjectSet, version| {
            roles_named_after(Some(set), &bundle(version)).map(str::to_owned)
        };
        let first = numbered(1);
        assert_eq!(roles_named_after(None, &bundle(1)), None);
        assert_eq!(after(&first, 1), None, "what is there stays as it is");
        assert_eq!(after(&first, 2).as_deref(), Some("pkg.v1"));
        let mut second = numbered(2);
        let annotations = second.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::ROLES_NAMED_AFTER.to_owned(), "pkg.v1".to_owned());
        for version in [1, 2, 3] {
            assert_eq!(after(&second, version).as_deref(), Some("pkg.v1"), "{version}");
        }
        let other = BundleIdentity {
            package: "other".to_owned(),
            ..bundle(2)
        };
        assert_eq!(roles_named_after(Some(&second), &other), None);
    }
}
