//! Whether changed CRDs keep stored objects valid.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_api::names::user;
use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::crd_upgrade::{
    Change, Check, Policy, Unsafe, add, check_all, definition_name, settle, summary, weigh,
};
use serde_json::Value;

use super::access::{MAX_FINDINGS, PreflightAccess, PreflightError};
use super::existing;
use crate::extension::context::Context;
use olm_cluster::apply::Target;
use olm_cluster::identity::AccountName;
use olm_rollout::failure::FailureKind;
use olm_rollout::ownership::{Ownership, RevisionMark};

/// The most CRDs that are read at the same time.
const AT_ONCE: usize = 8;

/// The CRDs of the objects on the cluster, read under the account, because a message names them.
pub(crate) async fn read_all(
    context: &Context,
    account: &AccountName,
    client: &Client,
    objects: &[&Value],
) -> Result<BTreeMap<String, Value>, PreflightError> {
    let names: Vec<&str> = objects
        .iter()
        .filter_map(|object| definition_name(object))
        .collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ask = |source| PreflightError::Ask {
        account: account.clone(),
        source,
    };
    let found = context
        .discovery
        .find("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let Some(resource) = found.await.map_err(ask)? else {
        return Ok(BTreeMap::new());
    };
    let reads: Vec<_> = names
        .into_iter()
        .map(|name| read(client, &resource, name))
        .collect();
    let live = stream::iter(reads)
        .buffer_unordered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await;
    if let Err(PreflightError::Read {
        kind: FailureKind::Forbidden,
        ..
    }) = &live
    {
        // Cached rights are no longer true.
        context.reviews.forget(account);
    }
    live
}

async fn read(
    client: &Client,
    resource: &olm_cluster::discover::Resource,
    name: &str,
) -> Result<Option<(String, Value)>, PreflightError> {
    let target = Target {
        client,
        resource,
        namespace: "",
        name,
    };
    match target.read().await {
        Ok(live) => Ok(live.map(|live| (name.to_owned(), live))),
        Err(failure) => Err(PreflightError::Read {
            name: name.to_owned(),
            kind: failure.kind,
            message: failure.message,
        }),
    }
}

pub(crate) fn enforcement(extension: &ClusterExtension) -> CrdUpgradeSafetyEnforcement {
    let preflight = extension
        .spec
        .install
        .as_ref()
        .and_then(|install| install.preflight.as_ref());
    preflight
        .and_then(|preflight| preflight.crd_upgrade_safety.as_ref())
        .map_or(CrdUpgradeSafetyEnforcement::Strict, |safety| safety.enforcement)
}

/// Whether CRDs (name, live, wanted) may be replaced. Returns warnings.
pub(crate) async fn safety(
    access: &PreflightAccess<'_>,
    policy: &Policy,
    pairs: &[(&str, &Value, &Value)],
    ours: &[&str],
) -> Result<Vec<String>, PreflightError> {
    let ask = |source| PreflightError::Ask {
        account: access.account.clone(),
        source,
    };
    let mut found = check_all(pairs.iter().map(|(_, _, new)| *new), policy, |name| {
        let old = pairs.iter().find(|(known, _, _)| *known == name);
        Ok(old.map(|(_, old, _)| *old))
    });
    let (mut notes, mut hints) = (Vec::new(), Vec::new());
    let until = existing::deadline();
    for (name, old, new) in pairs {
        match migration(old, new) {
            Migration::Needless => {}
            Migration::Possible(_) => settle(&mut found, name, Check::StoredVersionRemoval),
            Migration::Impossible { reason, .. } => {
                hints.push(format!("CRD {name:?}: {reason}"));
            }
        }
        if policy.reports(Check::ExistingObjects, Change::Other) {
            let checked = existing::check(access, old, new, until).await.map_err(ask)?;
            add(&mut found, name, checked.findings, policy);
            notes.extend(checked.notes);
        }
    }
    let (errors, warnings) = weigh(found, policy);
    if !errors.is_empty() {
        let lines = compared(&errors, pairs, ours)
            .into_iter()
            .chain(hints)
            .chain(notes);
        let way_out = lenient(&errors).map(|policy| {
            format!(
                "to upgrade anyway, set the annotation {}: {policy:?}",
                user::CRD_POLICY
            )
        });
        let lines: Vec<String> = lines.chain(way_out).collect();
        return Err(PreflightError::Definitions {
            found: summary(&errors, MAX_FINDINGS),
            help: (!lines.is_empty()).then(|| lines.join("\n")),
        });
    }
    if !warnings.is_empty() {
        notes.insert(0, summary(&warnings, MAX_FINDINGS));
    }
    Ok(notes)
}

/// The compared versions of the CRDs with errors. Even a first installation may find existing ones.
fn compared(errors: &[Unsafe], pairs: &[(&str, &Value, &Value)], ours: &[&str]) -> Vec<String> {
    let mut by_holder: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for error in errors {
        let (Unsafe::Change { definition, .. } | Unsafe::Unknown { definition, .. }) = error;
        if let Some((name, live, _)) = pairs.iter().find(|(name, _, _)| *name == definition.as_str()) {
            by_holder.entry(holder(live, ours)).or_default().push(name);
        }
    }
    let lines = by_holder.into_iter();
    lines
        .map(|(holder, names)| {
            format!(
                "compared with the definition on the cluster, which {holder}: {}",
                names.join(", ")
            )
        })
        .collect()
}

/// The owner of a CRD on the cluster, as the end of a sentence.
fn holder(live: &Value, ours: &[&str]) -> String {
    let seen = Ownership::of(live, "");
    let extension = seen.owner_name.filter(|name| !name.is_empty());
    let of = extension.map_or_else(String::new, |name| format!(" of ClusterExtension {name}"));
    match seen.controller {
        Some(owner) if ours.contains(&owner.uid.as_str()) => "is this extension's own".to_owned(),
        Some(owner) => format!(
            "belongs to {} {}{of} ({})",
            owner.kind, owner.name, owner.api_version
        ),
        None if seen.revision != RevisionMark::Absent => {
            format!("a revision{of} left behind without a controller")
        }
        None if seen.writers.is_empty() => "has no controller".to_owned(),
        None => format!("has no controller (written by {})", seen.writers.join(", ")),
    }
}

/// The policy that makes the errors warnings; `None` if the API server itself would refuse the change.
fn lenient(errors: &[Unsafe]) -> Option<String> {
    let mut checks = BTreeSet::new();
    for error in errors {
        let Unsafe::Change { findings, .. } = error else {
            return None;
        };
        checks.extend(findings.iter().map(|finding| finding.check));
    }
    let refused = [Check::StoredVersionRemoval, Check::Scope];
    let is_refused = refused.iter().any(|check| checks.contains(check));
    let entries: Vec<String> = checks
        .iter()
        .map(|check| format!("{}=Warn", check.as_str()))
        .collect();
    (!is_refused && !entries.is_empty()).then(|| entries.join(","))
}

#[cfg(test)]
mod tests {
    use olm_api::names::{annotation, label};
    use olm_preflight::crd_upgrade::{Finding, FindingLocation};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_remedy_names_the_findings_unless_the_server_refuses_it() {
        let change = |checks: &[Check]| {
            let finding = |check: &Check| Finding {
                location: FindingLocation::Definition,
                check: *check,
                message: String::new(),
            };
            Unsafe::Change {
                definition: "greetings.x.io".to_owned(),
                findings: checks.iter().map(finding).collect(),
            }
        };
        let unknown = Unsafe::Unknown {
            definition: "backups.x.io".to_owned(),
            reason: "no answer".to_owned(),
        };
        for (errors, expected) in [
            (vec![change(&[Check::Enum, Check::Enum])], Some("enum=Warn")),
            (vec![change(&[Check::Enum, Check::StoredVersionRemoval])], None),
            (vec![change(&[Check::Scope])], None),
            (vec![change(&[Check::Enum]), unknown], None),
            (Vec::new(), None),
        ] {
            assert_eq!(lenient(&errors).as_deref(), expected);
        }
    }

    #[test]
    fn a_finding_names_the_compared_definition_and_its_owner() {
        let set = |uid: &str| json!([{"apiVersion": "x/v1", "kind": "Set", "name": "a-1", "uid": uid, "controller": true}]);
        for (metadata, expected) in [
            (json!({"ownerReferences": set("us")}), "is this extension's own"),
            (
                json!({"ownerReferences": set("them"), "labels": {label::OWNER_NAME: "a"}}),
                "belongs to Set a-1 of ClusterExtension a (x/v1)",
            ),
            (
                json!({"annotations": {annotation::REVISION: "1"}, "labels": {label::OWNER_NAME: "a"}}),
                "a revision of ClusterExtension a left behind without a controller",
            ),
            (
                json!({"managedFields": [{"manager": "kubectl"}, {"manager": "apiserver", "subresource": "status"}]}),
                "has no controller (written by kubectl)",
            ),
            (json!({}), "has no controller"),
        ] {
            let live = json!({ "metadata": metadata });
            let error = Unsafe::Change {
                definition: "greetings.x.io".to_owned(),
                findings: Vec::new(),
            };
            let lines = compared(&[error], &[("greetings.x.io", &live, &Value::Null)], &["us"]);
            assert_eq!(
                lines,
                [format!(
                    "compared with the definition on the cluster, which {expected}: greetings.x.io"
                )]
            );
        }
    }
}
