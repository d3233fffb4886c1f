//! Proposals of bundles that meet missing requirements, when a bundle is held back.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, label};
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_constraint::SimpleRequirement;
use olm_constraint::cel::Budget;
use olm_resolve::cluster::inventory::Inventory;
use olm_resolve::cluster::providers::{Provider, ProviderCandidate, providers};
use olm_resolve::{Candidate, Package, Reason, Refusal};

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

/// Adds the bundles that meet the missing requirement to a refusal, and a ClusterExtension for the best. Installs
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
    let mut attachments = Vec::new();
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
        let offers: Vec<ProviderCandidate<'_>> = found.iter().map(ProvidingPackage::offer).collect();
        let mut proposals = providers(wanted, &offers, Some(&own_catalog), &facts, &mut budget);
        proposals.retain(|proposal| Some(proposal.package) != own_package);
        if proposals.is_empty() {
            refusal.hint(format!("no catalog provides {wanted}"));
        }
        for (index, proposal) in proposals.iter().take(MOST_PROPOSALS).enumerate() {
            let there = gathered
                .neighbours
                .iter()
                .find(|neighbour| neighbour.subject.package == proposal.package);
            let on_its_way = asks_for(context, extension, proposal.package).filter(|_| there.is_none());
            let alternative = if index == 0 { "" } else { "or " };
            let how = match (there, &on_its_way) {
                (Some(neighbour), _) => format!("update ClusterExtension {} to", neighbour.subject.name),
                (None, Some(other)) => format!("wait until ClusterExtension {} reaches", other.name()),
                (None, None) => "install".to_owned(),
            };
            refusal.hint(format!(
                "{alternative}{how} {} of package {} from channel {} of catalog {}: it provides {wanted}",
                proposal.bundle.name, proposal.package, proposal.channel, proposal.catalog
            ));
            if index == 0 {
                let is_known = proposed.iter().any(|bundle| bundle.package == proposal.package);
                if there.is_none() && on_its_way.is_none() && !is_known {
                    attachments.push(manifest(extension, proposal));
                }
                proposed.push(proposal.bundle.clone());
            }
        }
    }
    if !attachments.is_empty() {
        refusal.attach(attachments.join("---\n"));
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
    fn offer(&self) -> ProviderCandidate<'_> {
        ProviderCandidate {
            catalog: self.catalog.name(),
            priority: self.catalog.spec.priority,
            name: &self.name,
            package: &self.package,
            default_channel: self.default_channel.as_deref(),
        }
    }
}

/// A ClusterExtension for the missing requirement, ready to apply, with the namespace and account of the extension that
/// needs it.
fn manifest(extension: &ClusterExtension, proposal: &Provider<'_>) -> String {
    let spec = &extension.spec;
    let mut text = format!(
        "apiVersion: {API_VERSION}\nkind: {CLUSTER_EXTENSION}\nmetadata:\n  name: {}\nspec:\n  namespace: {}\n",
        scalar(proposal.package),
        spec.namespace
    );
    if let Some(account) = &spec.service_account {
        let _ = writeln!(text, "  serviceAccount:\n    name: {}", account.name);
    }
    let _ = write!(
        text,
        "  source:\n    sourceType: Catalog\n    catalog:\n      packageName: {}\n      channels: [{}]\n",
        scalar(proposal.package),
        scalar(proposal.channel)
    );
    if !proposal.is_newest
        && let Ok(version) = &proposal.bundle.version
    {
        let _ = writeln!(text, "      version: \"{}\"", version.version);
    }
    let _ = writeln!(
        text,
        "      selector:\n        matchLabels:\n          {}: {}",
        label::METADATA_NAME,
        proposal.catalog
    );
    text
}

/// A name as a YAML value that cannot mean anything else: catalogs choose their names, and people apply the output.
fn scalar(name: &str) -> Cow<'_, str> {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_'))
        && !WORDS.contains(&name.to_ascii_lowercase().as_str());
    if is_plain {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(serde_json::Value::from(name).to_string())
    }
}

/// Words that YAML readers may not read as strings.
const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_catalog_is_one_value_in_the_proposed_manifest() {
        for (name, shown) in [
            ("stable-1.x", "stable-1.x"),
            ("4.18", "\"4.18\""),
            ("no", "\"no\""),
            (
                "x]\n---\nkind: ClusterRoleBinding",
                "\"x]\\n---\\nkind: ClusterRoleBinding\"",
            ),
        ] {
            assert_eq!(scalar(name), shown);
        }
    }
}
