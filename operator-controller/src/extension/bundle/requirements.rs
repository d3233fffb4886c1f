//! Requirements in a bundle's own files that its catalog does not declare.

use olm_api::conditions::reason;
use olm_api::updates::held_back;
use olm_bundle::Bundle;
use olm_constraint::{Gvk, Requirement, RequirementError, Subject};
use olm_fbc::Property;
use olm_resolve::{Blocker, Platform, Refusal, recorded_version, refuse, unmet};

use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError};
use crate::extension::resolve::inventory::{self, InventoryError};
use crate::extension::resolve::{Resolved, proposals};

/// The reason why a bundle cannot be installed on this cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequirementsError {
    /// The cluster did not answer.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// A requirement in the files is invalid.
    #[error("the requirement of type {kind} is invalid")]
    Unsound {
        /// The type of the dependency.
        kind: String,
        #[source]
        fault: Box<RequirementError>,
    },
    /// A requirement in the files is not met.
    #[error("{refusal}")]
    Unmet {
        /// The missing requirement, with a hint.
        refusal: Refusal,
        /// The reason that holds an update back.
        held_back_by: &'static str,
    },
}

impl StageError for RequirementsError {
    fn severity(&self) -> Severity {
        match self {
            Self::Inventory(error) => error.severity(),
            Self::Unsound { .. } => Severity::Terminal,
            Self::Unmet { .. } => Severity::Waiting,
        }
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Inventory(error) => error.held_back_by(),
            Self::Unsound { .. } => held_back::REQUIREMENT,
            Self::Unmet { held_back_by, .. } => held_back_by,
        }
    }
}

/// Checks that all requirements in the bundle's files are met.
///
/// # Errors
/// A requirement is not met, or the cluster did not answer.
pub(crate) async fn admit(
    context: &Context,
    resolved: &Resolved<'_>,
    bundle: &Bundle,
) -> Result<(), RequirementsError> {
    let (observed, target) = (resolved.observed, &resolved.target);
    let mut requirements = Vec::new();
    for dependency in bundle.dependencies() {
        let (kind, value) = (dependency.property_kind(), dependency.property_value());
        if target.declared.iter().any(|(k, v)| k == kind && *v == value) {
            continue;
        }
        let requirement = Requirement::of_dependency(kind, &value.to_string());
        requirements.push(requirement.map_err(|fault| RequirementsError::Unsound {
            kind: kind.to_owned(),
            fault: Box::new(fault),
        })?);
    }
    let platform = platform(bundle);
    if requirements.is_empty() && platform.is_none() {
        return Ok(());
    }
    let inventory = inventory::of_bundle(
        context,
        &observed.extension,
        &observed.revisions,
        &requirements,
        platform.as_ref(),
    )
    .await?;
    let facts = inventory.facts();
    let properties = bundle.provided_properties().into_iter();
    let subject = Subject::new(
        bundle.name(),
        bundle.package(),
        recorded_version(&target.bundle.metadata.version),
        properties
            .map(|property| Property::new(property.kind, property.value.to_string()))
            .collect(),
    );
    let mut found: Vec<Blocker> = platform
        .map(|platform| platform.blockers(facts.platform, facts.served))
        .unwrap_or_default();
    found.retain(Blocker::forbids);
    found.extend(unmet(&requirements, &subject, &facts));
    let Some(first) = found.first() else {
        return Ok(());
    };
    let held_back_by = first.held_back_by();
    let mut refusal = refuse(bundle.name(), &target.catalog, &found);
    proposals::propose(context, &observed.extension, &mut refusal, &inventory).await;
    Err(RequirementsError::Unmet {
        refusal,
        held_back_by,
    })
}

/// The requirements of a bundle's own files on the cluster itself; `None` if there are none.
pub(crate) fn platform(bundle: &Bundle) -> Option<Platform> {
    let csv = bundle.csv();
    let apis = csv.spec.native_apis.iter().map(|api| Gvk {
        group: api.group.clone(),
        version: api.version.clone(),
        kind: api.kind.clone(),
    });
    let labels = csv
        .metadata
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    Platform::new(Some(&csv.spec.min_kube_version), apis.collect(), labels)
}
