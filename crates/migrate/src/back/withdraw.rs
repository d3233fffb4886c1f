//! A return whose request was withdrawn.

use anyhow::{Context as _, ensure};
use kube::api::{Api, Patch};
use olm_api::ClusterExtension;
use olm_api::names::{migration, user};
use serde_json::{Map, Value, json};

use super::findings::INSTALLED;
use crate::check::Request;
use crate::context::MoveContext;
use crate::facts::{annotation, name, namespace, text};
use crate::objects::backup::{self, Record};
use crate::objects::inventory::{api_of, get};

/// What becomes of a return without a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It has not begun, or a user has begun it.
    Idle,
    /// Nothing has gone back to OLM classic: the ClusterExtension is resumed.
    Resumed,
    /// It has stopped. The message names the state and the commands that continue.
    Stopped(String),
}

/// The annotations that the return sets on a ClusterExtension.
const MARKS: [(&str, &str); 2] = [(user::PAUSED, "true"), (user::UNINSTALL, "orphan")];

/// Whether a return of a ClusterExtension has begun, by its annotations.
fn is_begun(extension: &ClusterExtension) -> bool {
    MARKS
        .iter()
        .all(|(key, value)| extension.annotation(key) == Some(value))
        && extension.metadata.deletion_timestamp.is_none()
}

/// Whether a field manager has set an annotation.
fn has_set(manager: &str, extension: &ClusterExtension, key: &str) -> bool {
    let mut entries = extension.metadata.managed_fields.iter().flatten();
    entries.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let annotations = fields.and_then(|fields| fields.pointer("/f:metadata/f:annotations"));
        entry.manager.as_deref() == Some(manager)
            && annotations.is_some_and(|annotations| annotations.get(format!("f:{key}")).is_some())
    })
}

/// Checks that the return of a ClusterExtension is still requested.
///
/// # Errors
/// The annotation that requested it is gone, or the ClusterExtension cannot be read.
pub(super) async fn still_requested(
    context: &MoveContext<'_>,
    extension: &ClusterExtension,
) -> anyhow::Result<()> {
    if context.request == Request::Command {
        return Ok(());
    }
    let live = read(context, extension).await?;
    ensure!(
        live.is_none_or(|live| live.annotation(migration::MIGRATE_BACK) == Some("true")),
        "the request of the return was withdrawn"
    );
    Ok(())
}

async fn read(
    context: &MoveContext<'_>,
    extension: &ClusterExtension,
) -> anyhow::Result<Option<ClusterExtension>> {
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let name = extension.name();
    let found = extensions.get_opt(name).await;
    let found = found.with_context(|| format!("cannot read ClusterExtension {name:?}"))?;
    Ok(found.filter(|found| found.metadata.uid == extension.metadata.uid))
}

/// Resumes a ClusterExtension whose return this program has begun and whose request was withdrawn, as long as nothing
/// has gone back to OLM classic. Can be repeated.
///
/// # Errors
/// An object cannot be read, or the ClusterExtension not changed.
pub async fn withdraw(context: &MoveContext<'_>, extension: &ClusterExtension) -> anyhow::Result<Withdrawal> {
    let Some(live) = read(context, extension).await? else {
        return Ok(Withdrawal::Idle);
    };
    if !is_begun(&live) || live.annotation(migration::MIGRATE_BACK) == Some("true") {
        return Ok(Withdrawal::Idle);
    }
    let marks: Vec<&str> = MARKS
        .iter()
        .map(|(key, _)| *key)
        .filter(|key| has_set(context.manager, &live, key))
        .collect();
    // A move to OLM v1 sets a mark, too, and a user may have begun this return.
    let is_ours = has_set(context.manager, &live, migration::UNINSTALL_BACKUP);
    if !is_ours && live.annotation(migration::MIGRATE_BACK_STATUS).is_none() {
        return Ok(Withdrawal::Idle);
    }
    let key = live.annotation(migration::SUBSCRIPTION).unwrap_or_default();
    let (place, subscription) = key.split_once('/').unwrap_or_default();
    let record = backup::kept(&context.own, place, subscription, &live).await?;
    let returned = match &record {
        Some(record) => what_is_back(context, record).await?,
        None => Some(Returned {
            state: format!("there is no record of the move of Subscription {key}"),
            remedy: Remedy::Resume,
        }),
    };
    let by_user = || Returned {
        state: "a user has begun it, and nothing has gone back".to_owned(),
        remedy: Remedy::Resume,
    };
    if let Some(returned) = returned.or_else(|| (!is_ours).then(by_user)) {
        return Ok(Withdrawal::Stopped(stopped(&live, &returned)));
    }
    let patch = resumption(&live, &marks);
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let resumed = extensions
        .patch(live.name(), &context.changing(), &Patch::Merge(&patch))
        .await;
    resumed.with_context(|| format!("cannot resume ClusterExtension {:?}", live.name()))?;
    (context.on_step)(&format!("clusterextension/{} resumed", live.name()));
    Ok(Withdrawal::Resumed)
}

/// A merge patch that removes these marks of a return and the report about it, and restores the setting that one has
/// replaced. It requires the object that was read.
fn resumption(live: &ClusterExtension, marks: &[&str]) -> Value {
    let mut annotations: Map<String, Value> =
        marks.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    if marks.contains(&user::UNINSTALL)
        && let Some(before) = live.annotation(migration::UNINSTALL_BACKUP)
        && !before.is_empty()
    {
        annotations.insert(user::UNINSTALL.to_owned(), before.into());
    }
    for key in [migration::UNINSTALL_BACKUP, migration::MIGRATE_BACK_STATUS] {
        annotations.insert(key.to_owned(), Value::Null);
    }
    json!({"metadata": {
        "uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version, "annotations": annotations,
    }})
}

/// How far a stopped return is.
struct Returned {
    state: String,
    remedy: Remedy,
}

/// What leads back to OLM v1.
#[derive(Debug, Clone, Copy)]
enum Remedy {
    /// No object has changed: the ClusterExtension is resumed.
    Resume,
    /// OLM classic has objects and leaves them alone: the move is repeated.
    Move,
    /// OLM classic works on the operator: the return has to end first.
    Continue,
}

/// What OLM classic has of an operator again; `None` if nothing has gone back. Its ClusterServiceVersion comes first.
async fn what_is_back(context: &MoveContext<'_>, record: &Record) -> anyhow::Result<Option<Returned>> {
    let version = &record.version;
    let (place, wanted) = (namespace(version), name(version));
    if let Some(found) = get(&api_of(&context.own, version), "ClusterServiceVersion", wanted).await? {
        return Ok(Some(Returned {
            state: format!("ClusterServiceVersion {place}/{wanted} is back"),
            remedy: match annotation(&found, user::PAUSED) {
                Some("true") => Remedy::Move,
                _ => Remedy::Continue,
            },
        }));
    }
    let subscription = &record.subscription;
    let found = get(
        &api_of(&context.own, subscription),
        "Subscription",
        name(subscription),
    )
    .await?;
    // One that was applied after the move has installed nothing.
    let is_back = found.is_some_and(|found| !text(&found, INSTALLED).is_empty());
    Ok(is_back.then(|| Returned {
        state: format!("Subscription {} is back", record.key()),
        remedy: Remedy::Continue,
    }))
}

/// The setting of the deletion before a return, as arguments of `kubectl annotate`: `KEY=VALUE`, or `KEY-`.
pub(super) fn former_setting(extension: &ClusterExtension) -> String {
    let recorded = extension.annotation(migration::UNINSTALL_BACKUP);
    let setting = match recorded.or_else(|| extension.annotation(user::UNINSTALL)) {
        Some(before @ ("delete" | "keep-crds" | "orphan")) => format!("{}={before}", user::UNINSTALL),
        _ => format!("{}-", user::UNINSTALL),
    };
    format!("{setting} {}-", migration::UNINSTALL_BACKUP)
}

/// The report about a return that has stopped.
fn stopped(extension: &ClusterExtension, returned: &Returned) -> String {
    let former = former_setting(extension);
    let (extension, back) = (extension.name(), migration::MIGRATE_BACK);
    let annotate = format!("kubectl annotate --overwrite clusterextension {extension}");
    let stay = match returned.remedy {
        Remedy::Resume => {
            format!("; to stay with OLM v1: `{annotate} {former}` and `olm resume {extension}`")
        }
        Remedy::Move => {
            // With it and the pause the return would count as under way.
            let orphan = format!("{}=orphan", user::UNINSTALL);
            let (now, later) = match former.strip_prefix(&orphan) {
                Some(rest) => (
                    format!("{}-{rest}", user::UNINSTALL),
                    format!(", and after the move `{annotate} {orphan}`"),
                ),
                None => (former, String::new()),
            };
            format!(
                "; to stay with OLM v1, which repeats the move: `{annotate} {now} {}=true`{later}",
                migration::MIGRATE
            )
        }
        Remedy::Continue => String::new(),
    };
    format!(
        "the return has stopped because annotation {back} no longer requests it: {}, and this ClusterExtension is paused. \
         To continue: `{annotate} {back}=true`{stay}",
        returned.state
    )
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::ClusterExtensionSpec;

    use super::*;

    const MANAGER: &str = "mover";

    fn extension(metadata: &Value) -> ClusterExtension {
        let mut extension = ClusterExtension::new("postgres", ClusterExtensionSpec::default());
        extension.metadata = serde_json::from_value(metadata.clone()).unwrap();
        extension.metadata.name = Some("postgres".to_owned());
        extension
    }

    fn message(extension: &ClusterExtension, remedy: Remedy) -> String {
        let state = "ClusterServiceVersion n/a is back".to_owned();
        stopped(extension, &Returned { state, remedy })
    }

    #[test]
    fn a_return_has_begun_with_both_annotations_unless_a_deletion_ends_it() {
        let annotations = json!({user::PAUSED: "true", user::UNINSTALL: "orphan"});
        assert!(is_begun(&extension(&json!({"annotations": annotations}))));
        assert!(!is_begun(&extension(
            &json!({"annotations": {user::PAUSED: "true"}})
        )));
        let deleted = json!({"annotations": annotations, "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!is_begun(&extension(&deleted)));
    }

    #[test]
    fn a_pause_of_a_user_stays() {
        let set_by = |manager: &str, key: &str| {
            let key = format!("f:{key}");
            let fields = json!({"f:metadata": {"f:annotations": {key: {}}}});
            json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let fields = [
            set_by("kubectl-annotate", user::PAUSED),
            set_by(MANAGER, user::UNINSTALL),
        ];
        let found = extension(&json!({
            "uid": "u", "resourceVersion": "7", "managedFields": fields,
            "annotations": {user::PAUSED: "true", user::UNINSTALL: "orphan", migration::UNINSTALL_BACKUP: "keep-crds"},
        }));
        assert!(!has_set(MANAGER, &found, user::PAUSED));
        assert!(has_set(MANAGER, &found, user::UNINSTALL));
        assert_eq!(
            resumption(&found, &[user::UNINSTALL]),
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "annotations": {
                user::UNINSTALL: "keep-crds", migration::UNINSTALL_BACKUP: null, migration::MIGRATE_BACK_STATUS: null,
            }}})
        );
        let without = extension(&json!({"annotations": {migration::UNINSTALL_BACKUP: ""}}));
        assert_eq!(
            resumption(&without, &[user::PAUSED, user::UNINSTALL])["metadata"]["annotations"],
            json!({
                user::PAUSED: null, user::UNINSTALL: null,
                migration::UNINSTALL_BACKUP: null, migration::MIGRATE_BACK_STATUS: null,
            })
        );
    }

    #[test]
    fn a_stopped_return_names_the_commands_that_continue() {
        let extension = extension(&json!({}));
        let message = |remedy| message(&extension, remedy);
        let annotate = "`kubectl annotate --overwrite clusterextension postgres olm.operatorframework.io/";
        for remedy in [Remedy::Resume, Remedy::Move, Remedy::Continue] {
            assert!(message(remedy).contains(&format!("To continue: {annotate}migrate-back=true`")));
        }
        let unset = "uninstall- olm.operatorframework.io/migration-uninstall-backup-";
        assert!(message(Remedy::Move).ends_with(&format!(
            "which repeats the move: {annotate}{unset} olm.operatorframework.io/migrate=true`"
        )));
        assert!(message(Remedy::Resume).ends_with(&format!("{annotate}{unset}` and `olm resume postgres`")));
        assert!(message(Remedy::Continue).ends_with("migrate-back=true`"));
    }

    #[test]
    fn a_stopped_return_names_the_former_setting_of_the_deletion() {
        let before = |value: &str, remedy| {
            let extension = extension(&json!({"annotations": {migration::UNINSTALL_BACKUP: value}}));
            message(&extension, remedy)
        };
        for remedy in [Remedy::Resume, Remedy::Move] {
            let setting = |value: &str| format!("postgres olm.operatorframework.io/uninstall{value} ");
            assert!(before("keep-crds", remedy).contains(&setting("=keep-crds")));
            assert!(before("; other", remedy).contains(&setting("-")));
        }
        assert!(before("orphan", Remedy::Resume).contains("io/uninstall=orphan olm."));
        let moved = before("orphan", Remedy::Move);
        assert!(moved.contains("io/uninstall- olm."), "{moved}");
        assert!(
            moved.ends_with("postgres olm.operatorframework.io/uninstall=orphan`"),
            "{moved}"
        );
    }
}
