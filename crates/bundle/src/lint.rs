//! Lint: what keeps a bundle from being installed. [`violations`] lists the rules of registry+v1 bundles that a bundle breaks,
//! [`support`] what this installation does not support.

mod objects;
pub mod support;
mod webhooks;

use olm_api::text::escape;

use crate::bundle::Bundle;

/// One rule. The order of the variants is the order in which faults are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Deployments have names of their own.
    DeploymentUniqueness,
    /// Deployment names are DNS-1123 subdomains.
    DeploymentName,
    /// Custom resource definitions have names of their own.
    DefinitionUniqueness,
    /// Every owned custom resource definition is in the bundle.
    OwnedDefinitionExists,
    /// The package has a name.
    PackageName,
    /// Conversion webhooks come only with operators that watch all namespaces and can do nothing else.
    ConversionScope,
    /// Webhooks are served by deployments that exist.
    WebhookDeployment,
    /// Webhooks of one type have names of their own.
    WebhookUniqueness,
    /// Webhook names are DNS-1123 subdomains.
    WebhookName,
    /// A custom resource definition is converted by one webhook.
    ConversionUniqueness,
    /// Converted custom resource definitions are owned.
    ConversionOwned,
    /// Admission webhooks keep away from everything at once, from our own API and from webhook configurations.
    WebhookRules,
    /// Additional objects are of a kind that is supported.
    ObjectKind,
    /// Aggregated APIs have a group and a version, names of their own, and are served by deployments that exist.
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

    /// Where the bundle breaks this rule.
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

/// A rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleViolation {
    /// The rule.
    pub rule: Rule,
    /// Where and how.
    pub message: String,
}

/// Every place where the bundle breaks a rule, in the order of the rules; empty when it is sound.
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
