//! OLMConfig: whether operators for all namespaces are copied, and what came of it.

use jiff::Timestamp;
use olm_classic::cluster::{Cluster, items, text};
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::names;
use olm_classic::operator_group::copies::is_uncopiable;
use olm_platform::queue::Outcome;
use serde_json::{Value, json};

use super::context::{Context, written_time};
use super::group::after;
use super::work::Name;
use crate::objects::write::Actor;

const KIND: &str = "OLMConfig";
/// The only one that counts.
const NAME: &str = "cluster";
const CONDITION: &str = "DisabledCopiedCSVs";

/// Whether copies of operators for all namespaces are switched off.
pub fn is_switched_off(cluster: &Cluster) -> bool {
    let config = cluster.get(KIND, "", NAME);
    config
        .and_then(|config| config.pointer("/spec/features/disableCopiedCSVs"))
        .is_some_and(|switch| switch == true)
}

/// Whether a ClusterServiceVersion is an operator for all namespaces that is copied as far as it may be.
fn is_global(csv: &ClusterServiceVersion) -> bool {
    let targets = csv.metadata.annotations.get(names::TARGET_NAMESPACES_ANNOTATION);
    targets.is_some_and(String::is_empty)
        && !csv.is_copy()
        && !is_uncopiable(csv)
        && csv.metadata.deletion_timestamp.is_none()
}

/// Whether an operator for all namespaces has no copies because they are switched off.
pub fn is_uncopied(csv: &ClusterServiceVersion, cluster: &Cluster) -> bool {
    is_switched_off(cluster) && is_global(csv)
}

/// Writes the condition of an OLMConfig.
pub async fn reconcile(context: &Context, name: &str) -> Outcome {
    let cluster = context.snapshot();
    let Some(config) = cluster.get(KIND, "", name) else {
        return Outcome::Done;
    };
    let is_off = config
        .pointer("/spec/features/disableCopiedCSVs")
        .is_some_and(|switch| switch == true);
    let namespaces: Vec<&str> = cluster
        .of_kind("Namespace")
        .filter(|namespace| text(namespace, "/metadata/deletionTimestamp").is_empty())
        .map(|namespace| text(namespace, "/metadata/name"))
        .collect();
    // To read one costs more than to look at its annotation.
    let may_be_global = |object: &&Value| {
        let annotations = object.pointer("/metadata/annotations");
        let targets =
            annotations.and_then(|annotations| annotations.get(names::TARGET_NAMESPACES_ANNOTATION));
        targets.is_some_and(|targets| targets == "")
    };
    let mut versions = cluster.of_kind(names::CSV_KIND).filter(may_be_global);
    let deviate = versions.any(|object| {
        let Ok(csv) = ClusterServiceVersion::read(object) else {
            return false;
        };
        if !is_global(&csv) {
            return false;
        }
        let copies = context.copies.of(&Name::of(object));
        let is_wanted = |namespace: &str| !is_off || context.protected.contains(namespace);
        let others = namespaces.iter().filter(|name| **name != csv.metadata.namespace);
        let wanted = others.filter(|name| is_wanted(name)).count();
        copies.len() != wanted
    });
    let condition = condition(is_off, deviate);
    let Some(wanted) = with_condition(config, condition, &written_time(Timestamp::now())) else {
        return Outcome::Done;
    };
    match context.writer().write(&Actor::Own, &wanted).await {
        Ok(_) => Outcome::Done,
        Err(failure) => after(KIND, name, &failure),
    }
}

/// Status, reason and message.
fn condition(is_off: bool, deviate: bool) -> [&'static str; 3] {
    match (is_off, deviate) {
        (false, false) => [
            "False",
            "CopiedCSVsEnabled",
            "Copied CSVs are enabled and present across the cluster",
        ],
        (false, true) => [
            "False",
            "CopiedCSVsEnabled",
            "Copied CSVs are enabled and at least one copied CSVs is missing",
        ],
        (true, true) => [
            "False",
            "CopiedCSVsDisabled",
            "Copied CSVs are disabled and at least one unexpected copied CSV was found for an operator installed in \
             AllNamespace mode",
        ],
        (true, false) => [
            "True",
            "CopiedCSVsDisabled",
            "Copied CSVs are disabled and no unexpected copied CSVs were found for operators installed in AllNamespace mode",
        ],
    }
}

/// The OLMConfig with the condition; nothing where it has it.
fn with_condition(config: &Value, [status, reason, message]: [&str; 3], now: &str) -> Option<Value> {
    let known: Vec<Value> = items(config, "/status/conditions").cloned().collect();
    let before = known.iter().find(|known| text(known, "/type") == CONDITION);
    let is_same = |known: &Value| {
        [("/status", status), ("/reason", reason), ("/message", message)]
            .iter()
            .all(|(key, value)| text(known, key) == *value)
    };
    if before.is_some_and(is_same) {
        return None;
    }
    let since = before
        .filter(|known| text(known, "/status") == status)
        .map_or(now, |known| text(known, "/lastTransitionTime"));
    let condition = json!({
        "type": CONDITION, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    let mut conditions: Vec<Value> = known
        .iter()
        .filter(|known| text(known, "/type") != CONDITION)
        .cloned()
        .collect();
    conditions.push(condition);
    let mut wanted = config.clone();
    let fields = wanted.as_object_mut()?;
    let status = fields.entry("status").or_insert_with(|| json!({}));
    status
        .as_object_mut()?
        .insert("conditions".to_owned(), conditions.into());
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let config = json!({"metadata": {"name": NAME}});
        let first = with_condition(&config, condition(false, true), "t1").unwrap();
        let second = with_condition(&first, condition(false, false), "t2").unwrap();
        assert_eq!(second["status"]["conditions"][0]["lastTransitionTime"], "t1");
        assert_eq!(with_condition(&second, condition(false, false), "t3"), None);
        let third = with_condition(&second, condition(true, false), "t4").unwrap();
        assert_eq!(third["status"]["conditions"][0]["lastTransitionTime"], "t4");
    }
}
