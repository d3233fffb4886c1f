//! Proposals of bundles that meet missing requirements, when a bundle is held back.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_api::command::word;
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_constraint::SimpleRequirement;
use olm_constraint::cel::Budget;
use olm_resolve::cluster::inventory::Inventory;
use olm_resolve::cluster::providers::{Provider, ProviderCandidate, providers};
use olm_resolve::{Candidate, MAX_LINE, Package, Reason, Refusal};

use super::catalogs::address;
use crate::extension::context::Context;

/// The most missing requirements with proposals.
const MOST_WANTED: usize = 3;
/// The most proposals for one requirement.
const MOST_PROPOSALS: usize = 3;
/// A package of a catalog that may help.
struct ProvidingPackage {
    catalog: Arc<ClusterCatalog>,
    name: String,
    package: Arc<Package>,
    default_channel: Option<String>,
}

/// Adds the bundles that meet the missing requirement to a refusal, and the command that installs the best. Installs
/// nothing.
pub(crate) async fn propose(
    context: &Context,
    extension: &ClusterExtension,
    refusal: &mut Refusal,
    gathered: &Inventory,
) {
    let own_catalog = match refusal.reason() {
        Reason::Blocked { catalog, .. } => catalog.clone(),
        _ => return,
    };
    let own_package = extension.spec.source.catalog.as_ref();
    let own_package = own_package.map(|catalog| catalog.package_name.as_str());
    let facts = gathered.facts();
    let mut proposed: Vec<Candidate> = Vec::new();
    let mut budget = Budget::default();
    let wanted: Vec<SimpleRequirement> = refusal.wanted().iter().take(MOST_WANTED).cloned().collect();
    for wanted in &wanted {
        // An earlier proposal may be sufficient.
        if proposed
            .iter()
            .any(|bundle| wanted.is_provided_by(bundle.subject(), &mut budget) == Ok(true))
        {
            continue;
        }
        let found = search(context, wanted).await;
        let candidates: Vec<ProviderCandidate<'_>> = found.iter().map(ProvidingPackage::candidate).collect();
        let mut proposals = providers(wanted, &candidates, Some(&own_catalog), &facts, &mut budget);
        proposals.retain(|proposal| Some(proposal.package) != own_package);
        if proposals.is_empty() {
            refusal.hint(format!("no catalog provides {wanted}"));
        }
        for (index, proposal) in proposals.iter().take(MOST_PROPOSALS).enumerate() {
            let there = gathered
                .others
                .iter()
                .find(|other| other.subject.package == proposal.package);
            let on_its_way = asks_for(context, extension, proposal.package).filter(|_| there.is_none());
            let alternative = if index == 0 { "" } else { "or " };
            let how = match (there, &on_its_way) {
                (Some(other), _) => format!("update ClusterExtension {} to", other.subject.name),
                (None, Some(other)) => format!("wait until ClusterExtension {} reaches", other.name()),
                (None, None) => "install".to_owned(),
            };
            refusal.hint(format!(
                "{alternative}{how} {} of package {} from channel {} of catalog {}: it provides {wanted}",
                proposal.bundle.name, proposal.package, proposal.channel, proposal.catalog
            ));
            if index == 0 {
                let is_known = proposed.iter().any(|bundle| bundle.package == proposal.package);
                if there.is_none()
                    && on_its_way.is_none()
                    && !is_known
                    && let Some(command) = install(extension, proposal)
                {
                    refusal.hint(command);
                }
                proposed.push(proposal.bundle.clone());
            }
        }
    }
}

/// Another extension with the package.
fn asks_for(context: &Context, extension: &ClusterExtension, package: &str) -> Option<Arc<ClusterExtension>> {
    let asks = |other: &ClusterExtension| {
        let theirs = other.spec.source.catalog.as_ref();
        other.name() != extension.name()
            && !other.is_deleting()
            && theirs.is_some_and(|catalog| catalog.package_name == package)
    };
    context.extensions.state().into_iter().find(|other| asks(other))
}

async fn search(context: &Context, wanted: &SimpleRequirement) -> Vec<ProvidingPackage> {
    let mut found = Vec::new();
    for catalog in context.cluster_catalogs.state() {
        let Ok(address) = address(&catalog) else { continue };
        let names: BTreeSet<String> = match context.catalogs.providing(address, wanted).await {
            Ok(names) => names.into_iter().collect(),
            Err(error) => {
                tracing::debug!(
                    catalog = catalog.name(),
                    error = &error as &dyn std::error::Error,
                    "cannot search a catalog for a requirement"
                );
                continue;
            }
        };
        for name in names {
            if let Ok(Some(package)) = context.catalogs.package(address, &name).await {
                found.push(ProvidingPackage {
                    default_channel: context
                        .catalogs
                        .default_channel(address, &name)
                        .await
                        .ok()
                        .flatten(),
                    catalog: Arc::clone(&catalog),
                    name,
                    package,
                });
            }
        }
    }
    found
}

impl ProvidingPackage {
    fn candidate(&self) -> ProviderCandidate<'_> {
        ProviderCandidate {
            catalog: self.catalog.name(),
            priority: self.catalog.spec.priority,
            name: &self.name,
            package: &self.package,
            default_channel: self.default_channel.as_deref(),
        }
    }
}

/// The line about the command that prints what to apply for the missing requirement, with the namespace and account of
/// the extension that needs it; none if catalogs chose names that a command would read as something else.
fn install(extension: &ClusterExtension, proposal: &Provider<'_>) -> Option<String> {
    let version = match &proposal.bundle.version {
        Ok(version) if !proposal.is_newest => Some(version.version.to_string()),
        _ => None,
    };
    let account = extension.spec.service_account.as_ref();
    let options = [
        ("version", version.as_deref()),
        ("channel", Some(proposal.channel)),
        ("catalog", Some(proposal.catalog)),
        ("namespace", Some(extension.spec.namespace.as_str())),
        ("service-account", account.map(|account| account.name.as_str())),
    ];
    install_command(proposal.package, &options)
}

fn install_command(package: &str, options: &[(&str, Option<&str>)]) -> Option<String> {
    let mut command = format!("olm install {}", word(package)?);
    for (option, value) in options {
        if let Some(value) = value {
            command = format!("{command} --{option} {}", word(value)?);
        }
    }
    let hint = format!("`{command} --dry-run` prints what to apply");
    // Half a command is worse than none.
    (hint.chars().count() <= MAX_LINE).then_some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_catalog_is_one_word_of_the_command() {
        let check = |package: &str, channel: &str, expected: Option<&str>| {
            let command = install_command(package, &[("version", None), ("channel", Some(channel))]);
            assert_eq!(command.as_deref(), expected);
        };
        check(
            "provider",
            "stable-1.x",
            Some("`olm install provider --channel stable-1.x --dry-run` prints what to apply"),
        );
        check(
            "provider",
            "x; reboot",
            Some("`olm install provider --channel 'x; reboot' --dry-run` prints what to apply"),
        );
        check("--yes", "stable", None);
        check("provider", &"x".repeat(500), None);
        check("provider", "x\n---\nkind: ClusterRoleBinding", None);
    }
}
