//! Lint: the reasons why a bundle cannot be installed. [`violations`] lists the violated rules of registry+v1 bundles,
//! [`support`] the features that this installation does not support.

mod objects;
pub mod support;
mod webhooks;

use olm_api::text::escape;

use crate::bundle::Bundle;

/// A rule. Faults are listed in the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Names of deployments are unique.
    DeploymentUniqueness,
    /// Deployment names are DNS-1123 subdomains.
    DeploymentName,
    /// Names of custom resource definitions are unique.
    DefinitionUniqueness,
    /// Every owned custom resource definition is in the bundle.
    OwnedDefinitionExists,
    /// The package has a name.
    PackageName,
    /// Only operators that support no other mode than all namespaces have conversion webhooks.
    ConversionScope,
    /// Webhooks are served by deployments that exist.
    WebhookDeployment,
    /// Names of webhooks of one type are unique.
    WebhookUniqueness,
    /// Webhook names are DNS-1123 subdomains.
    WebhookName,
    /// At most one webhook converts a custom resource definition.
    ConversionUniqueness,
    /// Converted custom resource definitions are owned.
    ConversionOwned,
    /// Admission webhooks do not select all groups, our own API or webhook configurations.
    WebhookRules,
    /// Additional objects are of supported kinds.
    ObjectKind,
    /// Aggregated APIs have a group, a version and a unique name, and an existing deployment serves them.
    ApiServices,
}

impl Rule {
    /// All rules, in order.
    pub const ALL: [Self; 14] = [
        Self::DeploymentUniqueness,
        Self::DeploymentName,
        Self::DefinitionUniqueness,
        Self::OwnedDefinitionExists,
        Self::PackageName,
        Self::ConversionScope,
        Self::WebhookDeployment,
        Self::WebhookUniqueness,
        Self::WebhookName,
        Self::ConversionUniqueness,
        Self::ConversionOwned,
        Self::WebhookRules,
        Self::ObjectKind,
        Self::ApiServices,
    ];

    /// The places where the bundle violates the rule.
    #[must_use]
    pub fn check(self, bundle: &Bundle) -> Vec<RuleViolation> {
        let messages = match self {
            Self::DeploymentUniqueness => objects::deployment_uniqueness(bundle),
            Self::DeploymentName => objects::deployment_names(bundle),
            Self::DefinitionUniqueness => objects::definition_uniqueness(bundle),
            Self::OwnedDefinitionExists => objects::owned_definitions(bundle),
            Self::PackageName => objects::package_name(bundle),
            Self::ConversionScope => webhooks::conversion_scope(bundle),
            Self::WebhookDeployment => webhooks::deployments(bundle),
            Self::WebhookUniqueness => webhooks::uniqueness(bundle),
            Self::WebhookName => webhooks::names(bundle),
            Self::ConversionUniqueness => webhooks::conversion_uniqueness(bundle),
            Self::ConversionOwned => webhooks::conversion_owned(bundle),
            Self::WebhookRules => webhooks::rules(bundle),
            Self::ObjectKind => objects::kinds(bundle),
            Self::ApiServices => webhooks::api_services(bundle),
        };
        messages
            .into_iter()
            .map(|message| RuleViolation {
                rule: self,
                message: escape(&message).into_owned(),
            })
            .collect()
    }
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleViolation {
    /// The rule.
    pub rule: Rule,
    /// The place and the fault.
    pub message: String,
}

/// All violations, in the order of the rules; empty for a valid bundle.
#[must_use]
pub fn violations(bundle: &Bundle) -> Vec<RuleViolation> {
    Rule::ALL
        .into_iter()
        .flat_map(|rule| rule.check(bundle))
        .collect()
}

/// The names that occur more than once, sorted.
fn duplicates<T: Ord>(names: impl IntoIterator<Item = T>) -> std::collections::BTreeSet<T> {
    let mut names: Vec<T> = names.into_iter().collect();
    names.sort();
    let mut repeated = std::collections::BTreeSet::new();
    let mut previous: Option<T> = None;
    for name in names {
        match previous {
            Some(before) if before == name => {
                repeated.insert(before);
            }
            _ => {}
        }
        previous = Some(name);
    }
    repeated
}
