//! The plan of a rollback for people. Pure.

use std::fmt::Write as _;

use olm_preflight::crd_upgrade::rollback::CrdRollback;

use super::plan::{RollbackPlan, bundle_version};
use super::rehearse::Rehearsal;
use super::settings::ChangedSetting;

/// A kind that is not the same in the older version.
pub(super) struct RolledBackKind {
    pub(super) reversal: CrdRollback,
    /// The number of its objects; `None` if it is unknown.
    pub(super) objects: Option<u64>,
}

impl RolledBackKind {
    /// Whether objects may lose something. There may be some of a kind that cannot be read.
    pub(super) fn may_lose(&self) -> bool {
        self.objects != Some(0)
    }
}

/// Where the extension goes, what custom resources lose, what the API server refuses, and what changes in the extension.
pub(super) fn text(
    name: &str,
    plan: &RollbackPlan<'_>,
    kinds: &[RolledBackKind],
    rehearsal: &Rehearsal,
    settings: &[ChangedSetting],
) -> String {
    let RollbackPlan { present, target } = plan;
    let mut text = format!(
        "{name} is at {} (revision {}) and rolls back to {} (revision {})\n",
        bundle_version(present),
        present.spec.revision,
        bundle_version(target),
        target.spec.revision
    );
    if kinds.is_empty() {
        text.push_str("\nCustom resources lose nothing.\n");
    } else {
        text.push_str("\nCustom resources:\n");
    }
    for kind in kinds {
        let sign = if kind.may_lose() { '!' } else { ' ' };
        let objects = match kind.objects {
            None => "an unknown number of objects".to_owned(),
            Some(0) => "no objects, so that nothing is lost".to_owned(),
            Some(1) => "1 object".to_owned(),
            Some(count) => format!("{count} objects"),
        };
        let _ = writeln!(text, "{sign} {}: {objects}", kind.reversal.definition);
        for line in kind.reversal.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    let answers = rehearsal.to_string();
    if !answers.is_empty() {
        let _ = write!(text, "\nDry run:\n{answers}");
    }
    if !settings.is_empty() {
        let _ = writeln!(text, "\nSettings of ClusterExtension {name}:");
    }
    for setting in settings {
        let value = |value: &str| if value.is_empty() { "unset" } else { value }.to_owned();
        let (before, after) = (value(&setting.before), value(&setting.after));
        let _ = writeln!(text, "~ {}: {before} -> {after}", setting.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use olm_api::ClusterObjectSet;
    use olm_api::cluster_object_set::ClusterObjectSetSpec;
    use olm_api::names::annotation;
    use olm_preflight::crd_upgrade::rollback::RollbackEffect;

    use super::*;

    fn set(revision: i64, version: &str) -> ClusterObjectSet {
        let spec = ClusterObjectSetSpec {
            revision,
            ..ClusterObjectSetSpec::default()
        };
        let mut set = ClusterObjectSet::new("greeter", spec);
        set.metadata.annotations = Some([(annotation::BUNDLE_VERSION.to_owned(), version.to_owned())].into());
        set
    }

    #[test]
    fn a_plan_counts_the_objects_and_lists_the_settings() {
        let (present, target) = (set(2, "1.1.0"), set(1, "1.0.0"));
        let plan = RollbackPlan {
            present: &present,
            target: &target,
        };
        let gone = |definition: &str, objects| RolledBackKind {
            reversal: CrdRollback {
                definition: definition.to_owned(),
                effect: RollbackEffect::Deleted,
                removed_fields: Vec::new(),
            },
            objects,
        };
        let settings = [ChangedSetting {
            name: "channels",
            before: "stable".to_owned(),
            after: String::new(),
        }];
        let kinds = [gone("a.x", Some(0)), gone("b.x", Some(2)), gone("c.x", None)];
        let deleted = "    it is deleted with all its objects: the older version does not have it\n";
        assert_eq!(
            text("greeter", &plan, &kinds, &Rehearsal::default(), &settings),
            format!(
                "greeter is at 1.1.0 (revision 2) and rolls back to 1.0.0 (revision 1)\n\nCustom resources:\n  a.x: no \
                 objects, so that nothing is lost\n{deleted}! b.x: 2 objects\n{deleted}! c.x: an unknown number of \
                 objects\n{deleted}\nSettings of ClusterExtension greeter:\n~ channels: stable -> unset\n"
            )
        );
        let nothing = text("greeter", &plan, &[], &Rehearsal::default(), &[]);
        assert!(
            nothing.ends_with("\n\nCustom resources lose nothing.\n"),
            "{nothing}"
        );
    }
}
