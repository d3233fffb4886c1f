//! The progress of a migration of stored versions. The next run continues from it: in the same process from memory,
//! after a change of the leader from an annotation of the extension.

use kube::api::{Api, Patch};
use olm_api::ClusterExtension;
use olm_api::names::{annotation, field_manager};
use olm_platform::write::patched_by;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::extension::context::Context;

/// The objects of a CRD that are already written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MigrationProgress {
    /// The CRD: its UID and generation.
    pub(crate) of: String,
    /// The last written object in the order of the API server; empty if there is none.
    pub(crate) last: String,
    /// The number of written objects.
    pub(crate) written: usize,
}

impl MigrationProgress {
    pub(crate) fn begin(definition: &Value) -> Self {
        let seen = |pointer: &str| definition.pointer(pointer).unwrap_or(&Value::Null);
        let generation = seen("/metadata/generation");
        let uid = seen("/metadata/uid").as_str().unwrap_or_default();
        Self {
            of: format!("{uid}/{generation}"),
            last: String::new(),
            written: 0,
        }
    }

    /// The recorded progress of another process. Only users who may act as the account can write it.
    fn recorded(extension: &ClusterExtension) -> Option<Self> {
        serde_json::from_str(extension.annotation(annotation::STORAGE_MIGRATION)?).ok()
    }
}

/// The progress that this process knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Migration {
    /// Unknown.
    #[default]
    Nothing,
    /// This progress.
    Reached(MigrationProgress),
    /// No migration is under way.
    Over,
}

impl Migration {
    /// The progress from which to continue.
    pub(crate) fn of(self, extension: &ClusterExtension) -> Option<MigrationProgress> {
        match self {
            Self::Nothing => MigrationProgress::recorded(extension),
            Self::Reached(progress) => Some(progress),
            Self::Over => None,
        }
    }

    /// The value to record on the extension if it differs; `null` removes it.
    fn change(&self, extension: &ClusterExtension) -> Option<Value> {
        let wanted = match self {
            Self::Nothing => return None,
            Self::Reached(progress) => Some(serde_json::to_string(progress).ok()?),
            Self::Over => None,
        };
        let is_recorded = extension.annotation(annotation::STORAGE_MIGRATION) == wanted.as_deref();
        (!is_recorded).then(|| wanted.map_or(Value::Null, Value::String))
    }
}

/// Records the progress for the next leader. Without the record, the migration starts again, which does no harm.
pub(crate) async fn record(migration: &Migration, context: &Context, extension: &ClusterExtension) {
    let Some(value) = migration.change(extension) else {
        return;
    };
    let extensions: Api<ClusterExtension> = Api::all(context.client.clone());
    let patch = json!({"metadata": {
        "uid": extension.metadata.uid,
        "annotations": {annotation::STORAGE_MIGRATION: value},
    }});
    let params = patched_by(field_manager::OPERATOR_CONTROLLER);
    let patch = Patch::Merge(&patch);
    if let Err(error) = extensions.patch_metadata(extension.name(), &params, &patch).await {
        tracing::warn!(
            extension = extension.name(),
            error = &error as &dyn std::error::Error,
            "cannot record how far stored versions were migrated"
        );
    }
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::ClusterExtensionSpec;

    use super::*;

    fn annotated(annotation: Option<&str>) -> ClusterExtension {
        let mut extension = ClusterExtension::new("a", ClusterExtensionSpec::default());
        let entry = |text: &str| [(annotation::STORAGE_MIGRATION.to_owned(), text.to_owned())].into();
        extension.metadata.annotations = annotation.map(entry);
        extension
    }

    #[test]
    fn a_new_leader_continues_where_the_last_one_stopped() {
        let definition = json!({"metadata": {"uid": "u", "generation": 3}});
        let mut reached = MigrationProgress::begin(&definition);
        reached.last = "n/b".to_owned();
        reached.written = 2;
        let known = Migration::Reached(reached.clone());
        // The record of the old leader at the end of a run is the start of the new one.
        let value = known.change(&annotated(None)).unwrap();
        let extension = annotated(value.as_str());
        assert_eq!(known.change(&extension), None, "it is recorded once");
        assert_eq!(Migration::Nothing.of(&extension), Some(reached.clone()));
        assert_eq!(Migration::Nothing.change(&extension), None);
        // This process's own progress has precedence over the recorded one.
        assert_eq!(Migration::Over.of(&extension), None);
        let begun = Migration::Reached(MigrationProgress::begin(&definition));
        assert_eq!(begun.of(&extension), Some(MigrationProgress::begin(&definition)));
        assert_eq!(Migration::Over.change(&extension), Some(Value::Null));
        assert_eq!(Migration::Over.change(&annotated(None)), None);
        for odd in ["", "{}", "[]", r#"{"of": 1}"#] {
            assert_eq!(Migration::Nothing.of(&annotated(Some(odd))), None, "{odd}");
        }
    }
}
