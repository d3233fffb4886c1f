//! The settings that a rollback changes, for people. Pure.

use olm_api::ClusterExtension;
use olm_api::names::user;
use olm_api::object;
use serde_json::{Value, json};

use super::plan::{SOURCE, channels};

/// A setting of the extension that a pin changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChangedSetting {
    pub(super) name: &'static str,
    /// The value before; empty if it is not set.
    pub(super) before: String,
    pub(super) after: String,
}

/// The settings that the patch of a pin changes.
pub(super) fn changed_settings(extension: &ClusterExtension, patch: &Value) -> Vec<ChangedSetting> {
    let source = extension.spec.source.catalog.as_ref();
    let policy = source
        .map(|source| source.upgrade_constraint_policy)
        .unwrap_or_default();
    let before = [
        (
            "version",
            source
                .and_then(|source| source.version.clone())
                .unwrap_or_default(),
        ),
        ("channels", channels(extension).join(", ")),
        (
            "upgradeConstraintPolicy",
            object::text(&json!([policy]), "/0").to_owned(),
        ),
    ];
    let source = patch.pointer(SOURCE).unwrap_or(&Value::Null);
    let crd_policy = patch.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    let crd_policy = crd_policy.get(user::CRD_POLICY).and_then(Value::as_str);
    let settings = before.into_iter().filter_map(|(name, before)| {
        let after = source.get(name)?.as_str().unwrap_or_default().to_owned();
        Some(ChangedSetting { name, before, after })
    });
    let crd_policy = crd_policy.map(|after| ChangedSetting {
        name: user::CRD_POLICY,
        before: extension
            .annotation(user::CRD_POLICY)
            .unwrap_or_default()
            .to_owned(),
        after: after.to_owned(),
    });
    let changed = settings.chain(crd_policy);
    changed
        .filter(|setting| setting.before != setting.after)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, SourceConfig};
    use olm_preflight::crd_upgrade::Check;

    use super::*;
    use crate::extension::rollback::plan::pin;

    #[test]
    fn a_pin_names_the_settings_that_it_changes() {
        let filter = CatalogFilter {
            version: Some("1.x".to_owned()),
            channels: vec!["stable".to_owned(), "fast".to_owned()],
            ..CatalogFilter::default()
        };
        let spec = ClusterExtensionSpec {
            source: SourceConfig {
                catalog: Some(filter),
                ..SourceConfig::default()
            },
            ..ClusterExtensionSpec::default()
        };
        let mut extension = ClusterExtension::new("greeter", spec);
        let shown = |extension: &ClusterExtension, passing: &BTreeSet<Check>| -> Vec<String> {
            let changed = changed_settings(extension, &pin(extension, "1.0.0", passing));
            let changed = changed.iter();
            changed
                .map(|setting| format!("{}: {:?} -> {:?}", setting.name, setting.before, setting.after))
                .collect()
        };
        assert_eq!(
            shown(&extension, &BTreeSet::from([Check::Type])),
            [
                "version: \"1.x\" -> \"1.0.0\"".to_owned(),
                "channels: \"stable, fast\" -> \"\"".to_owned(),
                "upgradeConstraintPolicy: \"CatalogProvided\" -> \"SelfCertified\"".to_owned(),
                format!("{}: \"\" -> \"type=Warn\"", user::CRD_POLICY),
            ]
        );
        if let Some(filter) = &mut extension.spec.source.catalog {
            filter.channels.clear();
            filter.version = Some("1.0.0".to_owned());
        }
        assert_eq!(
            shown(&extension, &BTreeSet::new()),
            ["upgradeConstraintPolicy: \"CatalogProvided\" -> \"SelfCertified\""]
        );
    }
}
