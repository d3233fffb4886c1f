//! The rights of an operator in the namespaces that it watches, given under the account that installs it.

use olm_classic::cluster::{Cluster, text};
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::names;
use olm_classic::operator_group::OperatorGroup;
use olm_classic::operator_group::copies::is_annotated;
use olm_classic::operator_group::tenants::lacking;
use olm_platform::events::Notice;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use super::super::context::Context;
use super::super::work::Name;

/// Whether all rights are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantResult {
    /// They are, as far as there are copies to own them.
    Complete,
    /// The account may not give them. An event says so.
    Incomplete,
}

/// Creates the missing roles and bindings.
///
/// # Errors
/// Something passing keeps it from being done.
pub(super) async fn grant(
    context: &Context,
    object: &Value,
    cluster: &Cluster,
) -> Result<GrantResult, RequestFailure> {
    let Ok(csv) = ClusterServiceVersion::read(object) else {
        return Ok(GrantResult::Complete);
    };
    let place = csv.metadata.namespace.as_str();
    let mut groups = cluster.in_namespace(names::OPERATOR_GROUP_KIND, place);
    let (Some(group), None) = (groups.next(), groups.next()) else {
        return Ok(GrantResult::Complete);
    };
    let group = match OperatorGroup::read(group) {
        Ok(group) if is_annotated(&csv, &group) => group,
        _ => return Ok(GrantResult::Complete),
    };
    if !matches!(csv.status.phase.as_str(), "Installing" | "Succeeded") {
        return Ok(GrantResult::Complete);
    }
    let copies = context.copies.uids(&Name::of(object));
    let lacking = lacking(&csv, &group, cluster, &copies);
    if lacking.is_empty() {
        return Ok(GrantResult::Complete);
    }
    let mut refused = Vec::new();
    match context.account(cluster, place) {
        Err(error) => refused.push(error),
        Ok(actor) => {
            for wanted in lacking {
                match context.writer().apply(&actor, &wanted).await {
                    Ok(_) => {}
                    // The namespace is going.
                    Err(failure) if failure.kind == FailureKind::MissingNamespace => {}
                    Err(failure) if failure.kind == FailureKind::Forbidden => refused.push(format!(
                        "{} {}: {}",
                        text(&wanted, "/kind"),
                        text(&wanted, "/metadata/name"),
                        failure.message
                    )),
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
    if refused.is_empty() {
        return Ok(GrantResult::Complete);
    }
    let notice = Notice {
        is_fault: true,
        reason: "RightsNotGiven".to_owned(),
        note: format!(
            "cannot give the operator its rights in the namespaces that it watches: {}",
            refused.join("; ")
        ),
    };
    context.publish(object, vec![notice]);
    Ok(GrantResult::Incomplete)
}
