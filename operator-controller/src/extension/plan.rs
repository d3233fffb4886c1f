//! The plan of a run, given the wanted and the actual state. Pure: planning again on the result plans nothing.

pub mod action;
pub(crate) mod prepare;
pub mod revision;

use self::revision::{DesiredRevision, PlanError, RevisionPlan};
use super::bundle::Rendered;
use super::revisions::{ConflictingSets, config_digest};

/// The plan from the newest revision to the wanted one.
pub struct Plan<'a> {
    /// The bundle.
    pub rendered: Rendered<'a>,
    /// The change of the revisions.
    pub revision: RevisionPlan,
}

/// Plans the revision of a rendered bundle.
///
/// # Errors
/// The bundle does not fit into a revision.
pub(crate) fn plan<'a>(
    rendered: Rendered<'a>,
    others: &ConflictingSets,
    system_namespace: &str,
) -> Result<Plan<'a>, PlanError> {
    let resolved = &rendered.resolved;
    let condition = rendered.operator_condition.as_ref();
    let config = config_digest(&resolved.observed.extension);
    let wanted = DesiredRevision {
        extension: &resolved.observed.extension,
        account: Some(&resolved.settings.account),
        bundle: &resolved.target.bundle,
        catalog: &resolved.target.catalog,
        properties: rendered.properties.as_deref(),
        further_properties: rendered.further_properties.as_deref(),
        certificates: rendered.certificates,
        operator_condition: condition.map(|condition| condition.name.as_str()),
        roles_named_after: rendered.roles_named_after.as_deref(),
        config_digest: config.as_deref(),
        verified: rendered.verified.as_deref(),
        groups: &rendered.groups,
        adopt: resolved.settings.options.adopt,
        system_namespace,
    };
    let revision = revision::plan(&wanted, &resolved.observed.revisions, others)?;
    Ok(Plan { rendered, revision })
}
