//! The blockers of a return to OLM classic. Pure.

use olm_api::names::{migration, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_classic::names::{OPERATOR_GROUP_ANNOTATION, TARGET_NAMESPACES_ANNOTATION};
use olm_classic::subscription::is_moving;
use serde_json::Value;

use crate::check::Request;
use crate::facts::{Case, ClassicObjects, annotation, find, list, name, namespace, text, within};
use crate::needs::Operator;
use crate::objects::backup::Record;
use crate::objects::record::content_of;

/// The version that a Subscription has installed.
pub(crate) const INSTALLED: &str = "/status/installedCSV";

/// Whether OLM classic has installed another version since its Subscription was restored: then only the
/// ClusterExtension remains to be deleted.
pub(crate) fn has_gone_on(record: &Record, live: Option<&Value>) -> bool {
    let installed = live.map_or("", |live| text(live, INSTALLED));
    !installed.is_empty() && installed != text(&record.subscription, INSTALLED)
}

/// All findings that block the return, each with its fix; empty if the operator can return.
pub(crate) fn findings(
    record: &Record,
    facts: &ClassicObjects,
    extension: &ClusterExtension,
    sets: &[ClusterObjectSet],
) -> Vec<String> {
    let case = Case {
        facts,
        subscription: &record.subscription,
    };
    let mut findings: Vec<String> = [deleted(extension), upgraded(extension, sets)]
        .into_iter()
        .flatten()
        .collect();
    let live = find(&facts.subscriptions, case.namespace(), name(&record.subscription));
    if has_gone_on(record, live) {
        return findings;
    }
    let checks = [
        without_group(case, record),
        without_source(case),
        subscribed(case),
        live.and_then(requested),
        other_version(case, record),
        other_owner(case, record),
    ];
    findings.extend(checks.into_iter().flatten());
    findings
}

/// The finding for a deletion that includes the objects: it cannot be stopped.
fn deleted(extension: &ClusterExtension) -> Option<String> {
    let is_deleted = extension.metadata.deletion_timestamp.is_some();
    (is_deleted && extension.annotation(user::UNINSTALL) != Some("orphan")).then(|| {
        format!(
            "ClusterExtension {:?} is being deleted with its objects: apply the Subscription when it is gone",
            extension.name()
        )
    })
}

/// The finding for an operator that needs another one, which stays with OLM v1: OLM classic would install that again.
pub(crate) fn without_needed(record: &Record, others: &[Record], request: Request) -> Option<String> {
    let of = |records: &[&Record]| ClassicObjects {
        subscriptions: records.iter().map(|record| record.subscription.clone()).collect(),
        versions: records.iter().map(|record| record.version.clone()).collect(),
        ..ClassicObjects::default()
    };
    let (own, others) = (of(&[record]), of(&others.iter().collect::<Vec<_>>()));
    let own = Operator::all(&own).into_iter().next()?;
    let others = Operator::all(&others);
    let (other, need) = others
        .iter()
        .find_map(|other| Some((other, own.needs_of(other)?)))?;
    let (place, subscription) = (namespace(&record.subscription), name(&record.subscription));
    let other = other.key()?;
    let fix = match request {
        Request::Command => format!(
            "give both back in one call, `olm migrate {other} {place}/{subscription} -n {place} --back`"
        ),
        Request::Annotation => format!(
            "annotate both ClusterExtensions with {}=true",
            migration::MIGRATE_BACK
        ),
    };
    Some(format!(
        "the operator requires {need} of the former Subscription {other}, which stays with OLM v1: {fix}"
    ))
}

/// Only the revision of the move consists of the objects that OLM classic installed.
pub(crate) fn upgraded(extension: &ClusterExtension, sets: &[ClusterObjectSet]) -> Option<String> {
    let other = sets
        .iter()
        .filter(|set| set.annotation(migration::SUBSCRIPTION).is_none())
        .max_by_key(|set| set.spec.revision)?;
    Some(format!(
        "ClusterExtension {:?} has revision {} since the move, so its objects are not those of OLM classic: to subscribe again, \
         run `olm uninstall {}` and apply the Subscription",
        extension.name(),
        other.spec.revision,
        extension.name()
    ))
}

fn without_group(case: Case<'_>, record: &Record) -> Option<String> {
    let wanted = annotation(&record.version, OPERATOR_GROUP_ANNOTATION).unwrap_or_default();
    let place = case.namespace();
    let Some(group) = case.group().filter(|group| name(group) == wanted) else {
        return Some(format!(
            "namespace {place:?} needs one OperatorGroup, {wanted:?}: apply it, and delete others"
        ));
    };
    let mut targets = case.targets();
    targets.sort_unstable();
    let before = annotation(&record.version, TARGET_NAMESPACES_ANNOTATION).unwrap_or_default();
    let now = targets.join(",");
    (now != before).then(|| {
        format!(
            "OperatorGroup {place}/{} selects {now:?}, and the operator watches {before:?}: select these namespaces",
            name(group)
        )
    })
}

fn without_source(case: Case<'_>) -> Option<String> {
    let spec = |key: &str| text(case.subscription, &format!("/spec/{key}"));
    case.source().is_none().then(|| {
        let (place, source) = (spec("sourceNamespace"), spec("source"));
        format!("CatalogSource {place}/{source} does not exist: apply it, so that the Subscription finds its package")
    })
}

fn subscribed(case: Case<'_>) -> Option<String> {
    let mut others = within(&case.facts.subscriptions, case.namespace());
    let other = others.find(|other| {
        text(other, "/spec/name") == case.package() || name(other) == name(case.subscription)
    })?;
    let is_restored =
        name(other) == name(case.subscription) && content_of(other) == content_of(case.subscription);
    (!is_restored).then(|| {
        format!(
            "Subscription {}/{} subscribes to package {:?} in another way: delete it",
            namespace(other),
            name(other),
            case.package()
        )
    })
}

/// The finding for a Subscription that was applied again and would move once more after the return.
fn requested(live: &Value) -> Option<String> {
    (is_moving(live) && text(live, INSTALLED).is_empty()).then(|| {
        format!(
            "Subscription {}/{} still requests the move: remove annotation {}, also in Git",
            namespace(live),
            name(live),
            migration::MIGRATE
        )
    })
}

fn other_version(case: Case<'_>, record: &Record) -> Option<String> {
    let found = find(&case.facts.versions, case.namespace(), name(&record.version))?;
    (content_of(found) != content_of(&record.version)).then(|| {
        format!(
            "ClusterServiceVersion {}/{} has other content than before the move: compare the two, and delete it with \
             --cascade=orphan",
            case.namespace(),
            name(found)
        )
    })
}

fn other_owner(case: Case<'_>, record: &Record) -> Option<String> {
    let kinds = |version: &Value| -> Vec<String> {
        let owned = list(version, "/spec/customresourcedefinitions/owned").iter();
        owned.map(|owned| text(owned, "/name").to_owned()).collect()
    };
    let own = kinds(&record.version);
    let mut others =
        within(&case.facts.versions, case.namespace()).filter(|other| name(other) != name(&record.version));
    let (other, kind) = others.find_map(|other| {
        let shared = kinds(other).into_iter().find(|kind| own.contains(kind))?;
        Some((other, shared))
    })?;
    Some(format!(
        "ClusterServiceVersion {}/{} owns CustomResourceDefinition {kind:?} too: the operator cannot go back as long as it \
         does",
        case.namespace(),
        name(other)
    ))
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::ClusterExtensionSpec;
    use olm_api::cluster_object_set::ClusterObjectSetSpec;
    use serde_json::json;

    use super::*;
    use crate::facts::tests::facts;

    fn record(facts: &ClassicObjects) -> Record {
        let mut version = facts.versions[0].clone();
        version["metadata"]["annotations"] =
            json!({"olm.operatorGroup": "group", "olm.targetNamespaces": ""});
        Record {
            subscription: facts.subscriptions[0].clone(),
            version,
            objects: Vec::new(),
        }
    }

    /// A cluster from which that operator has moved, and its record.
    fn moved() -> (ClassicObjects, Record) {
        let mut facts = facts();
        let record = record(&facts);
        facts.subscriptions.clear();
        facts.versions.clear();
        (facts, record)
    }

    fn found(facts: &ClassicObjects, record: &Record, sets: &[ClusterObjectSet]) -> Vec<String> {
        let extension = ClusterExtension::new("postgres", ClusterExtensionSpec::default());
        findings(record, facts, &extension, sets)
    }

    fn set(revision: i64, is_moved: bool) -> ClusterObjectSet {
        let mut set = ClusterObjectSet::new(&format!("postgres-{revision}"), ClusterObjectSetSpec::default());
        set.spec.revision = revision;
        if is_moved {
            set.metadata.annotations = Some(
                [(
                    migration::SUBSCRIPTION.to_owned(),
                    "databases/postgres".to_owned(),
                )]
                .into(),
            );
        }
        set
    }

    #[test]
    fn the_way_back_is_open_until_the_first_upgrade() {
        let (facts, record) = moved();
        assert_eq!(found(&facts, &record, &[set(1, true)]), Vec::<String>::new());
        let upgraded = found(&facts, &record, &[set(1, true), set(2, false)]);
        assert!(
            upgraded[0].contains("has revision 2 since the move"),
            "{upgraded:?}"
        );
        assert_eq!(upgraded.len(), 1);
    }

    #[test]
    fn a_deletion_with_all_objects_blocks() {
        let (facts, record) = moved();
        let mut extension = ClusterExtension::new("postgres", ClusterExtensionSpec::default());
        let now: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        extension.metadata.deletion_timestamp = Some(now);
        let found = findings(&record, &facts, &extension, &[]);
        assert!(
            found[0].contains("is being deleted with its objects"),
            "{found:?}"
        );
        extension.metadata.annotations = Some([(user::UNINSTALL.to_owned(), "orphan".to_owned())].into());
        assert_eq!(findings(&record, &facts, &extension, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_was_restored_before_a_stop_does_not_block() {
        let (mut facts, record) = moved();
        facts.subscriptions.push(record.subscription.clone());
        facts.versions.push(record.version.clone());
        assert_eq!(found(&facts, &record, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_subscription_that_was_applied_again_with_its_request_blocks() {
        let (mut facts, record) = moved();
        let mut again = record.subscription.clone();
        again["metadata"]["annotations"] = json!({migration::MIGRATE: "true"});
        // The move has stopped before it deleted the Subscription.
        facts.subscriptions.push(again.clone());
        assert_eq!(found(&facts, &record, &[]), Vec::<String>::new());
        again["status"] = json!({});
        facts.subscriptions = vec![again];
        assert_eq!(
            found(&facts, &record, &[]),
            [
                "Subscription databases/postgres still requests the move: remove annotation \
                 olm.operatorframework.io/migrate, also in Git"
            ]
        );
    }

    #[test]
    fn advice_about_a_needed_operator_suits_the_request() {
        let (_, needed) = moved();
        let mut needing = needed.clone();
        needing.subscription["metadata"]["name"] = json!("app");
        needing.subscription["status"]["installedCSV"] = json!("app.v1");
        needing.version["metadata"]["name"] = json!("app.v1");
        needing.version["spec"]["customresourcedefinitions"] =
            json!({"required": [{"name": "postgres.example"}]});
        let others = std::slice::from_ref(&needed);
        let advice = |request| without_needed(&needing, others, request).unwrap();
        assert!(advice(Request::Command).contains(
            "which stays with OLM v1: give both back in one call, `olm migrate databases/postgres databases/app"
        ));
        assert!(
            advice(Request::Annotation)
                .ends_with("annotate both ClusterExtensions with olm.operatorframework.io/migrate-back=true")
        );
    }

    #[test]
    fn a_later_upgrade_by_classic_leaves_only_the_extension_to_delete() {
        let (mut facts, mut record) = moved();
        record.subscription["status"]["installedCSV"] = json!("postgres.v1.0.0");
        let mut subscription = record.subscription.clone();
        subscription["status"]["installedCSV"] = json!("postgres.v2.0.0");
        let mut version = record.version.clone();
        version["metadata"]["name"] = json!("postgres.v2.0.0");
        facts.versions.push(version);
        assert_eq!(found(&facts, &record, &[]).len(), 1);
        facts.subscriptions.push(subscription);
        assert_eq!(found(&facts, &record, &[]), Vec::<String>::new());
    }

    #[test]
    fn each_missing_or_foreign_object_is_named() {
        let (mut facts, record) = moved();
        facts.groups[0]["status"]["namespaces"] = json!(["other"]);
        facts.sources.clear();
        let mut other = record.subscription.clone();
        other["metadata"]["name"] = json!("tools");
        facts.subscriptions.push(other);
        let mut version = record.version.clone();
        version["spec"]["version"] = json!("2.0.0");
        let mut sibling = version.clone();
        sibling["metadata"]["name"] = json!("tools.v1.0.0");
        facts.versions.extend([version, sibling]);
        let found = found(&facts, &record, &[]);
        for (found, part) in found.iter().zip([
            "OperatorGroup databases/group selects \"other\"",
            "CatalogSource olm/databases does not exist",
            "Subscription databases/tools subscribes to package",
            "ClusterServiceVersion databases/postgres.v1.0.0 has other content",
            "ClusterServiceVersion databases/tools.v1.0.0 owns",
        ]) {
            assert!(found.contains(part), "{found}");
        }
        assert_eq!(found.len(), 5);
        facts.groups.clear();
        assert!(
            super::findings(
                &record,
                &facts,
                &ClusterExtension::new("postgres", ClusterExtensionSpec::default()),
                &[]
            )[0]
            .contains("needs one OperatorGroup, \"group\"")
        );
    }
}
