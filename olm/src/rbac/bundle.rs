//! The objects of a bundle, and their resources without a cluster.

use std::collections::BTreeSet;

use anyhow::Context as _;
use olm_bundle::{CertificateProvider, Dependencies, Request as Installation, config, prepare};
use olm_cluster::identity::AccountName;
use olm_preflight::permissions::{Discovery, Resource, Scope};
use olm_resolve::{Installed, Request};
use olm_rollout::certificates::layout;
use olm_rollout::object::ObjectId;
use serde_json::Value;

use super::{Arguments, Purpose, Subject, name};
use crate::extension::cluster::Cluster;
use crate::extension::cluster::catalogs::sources_of;
use crate::input::read;
use crate::output::note;
use crate::resolve::Source;
use crate::source::{BundleSource, open_bundle};

/// The largest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 1 << 20;
/// Kinds of bundles that have no namespace.
const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("console.openshift.io", "ConsoleCLIDownload"),
    ("console.openshift.io", "ConsoleLink"),
    ("console.openshift.io", "ConsolePlugin"),
    ("console.openshift.io", "ConsoleQuickStart"),
    ("console.openshift.io", "ConsoleYAMLSample"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "StorageClass"),
];

/// The bundle installed under the account; none if no bundle fits, which is reported.
pub(super) fn subject(arguments: &Arguments, account: AccountName) -> anyhow::Result<Option<Subject>> {
    let chosen = if let Some(source) = &arguments.bundle {
        ChosenBundles::only(source.clone())
    } else {
        let (registry, access) = (&arguments.registry, &arguments.cluster);
        let package = name(arguments)?;
        let sources = if arguments.catalogs.is_empty() {
            Cluster::reach(access)?.catalogs(registry, package, None)?
        } else {
            sources_of(&arguments.catalogs, registry, access, package)?
        };
        let request = Request {
            package,
            version: arguments.version.as_deref(),
            channels: &arguments.channels,
            ..Request::default()
        };
        match choose(&sources, &request, None, arguments.every_version) {
            Some(chosen) => chosen,
            None => return Ok(None),
        }
    };
    let given = match &arguments.config {
        Some(path) => {
            let text = read(path, MAX_CONFIG)?;
            let given = config::from_text(&String::from_utf8_lossy(&text));
            Some(given.with_context(|| format!("cannot use {}", path.display()))?)
        }
        None => None,
    };
    let request = Installation {
        config: given.as_ref(),
        roles_named_after: chosen.first.as_deref(),
        ..Installation::new(&account.namespace)
    };
    let mut extension = arguments.extension.clone().or_else(|| arguments.name.clone());
    let mut all = Vec::new();
    for source in &chosen.sources {
        let bundle = open_bundle(source, &arguments.registry)?;
        let (package, objects) = objects(&bundle, source, request, CertificateProvider::SelfSigned)?;
        extension.get_or_insert(package);
        all.extend(objects);
    }
    Ok(Some(Subject {
        extension: extension.unwrap_or_default(),
        account,
        objects: all,
        purpose: Purpose::Apply,
    }))
}

/// The bundles for the roles.
pub(super) struct ChosenBundles {
    /// Their images, or other sources.
    pub(super) sources: BTreeSet<String>,
    /// The bundle that would be installed first, if there are others: its roles keep their names through upgrades.
    pub(super) first: Option<String>,
}

impl ChosenBundles {
    /// One bundle.
    pub(super) fn only(source: String) -> Self {
        Self {
            sources: BTreeSet::from([source]),
            first: None,
        }
    }
}

/// The bundle that would be installed, or with `every` all bundles in the range; `None` if none fits, which is
/// reported.
pub(super) fn choose(
    sources: &[Source],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    every: bool,
) -> Option<ChosenBundles> {
    let catalogs: Vec<_> = sources.iter().map(Source::view).collect();
    let chosen = olm_resolve::resolve(&catalogs, request, installed).and_then(|found| {
        if !every {
            return Ok(ChosenBundles::only(found.bundle.image.clone()));
        }
        let all = olm_resolve::candidates(&catalogs, request)?;
        Ok(ChosenBundles {
            sources: all.into_iter().map(|bundle| bundle.image.clone()).collect(),
            first: Some(found.bundle.name.clone()),
        })
    });
    chosen
        .inspect_err(|refusal| note(&format!("refused: {}", refusal.clone().on_command_line())))
        .ok()
}

/// The package of a bundle, and all objects of its installation.
pub(crate) fn objects(
    bundle: &BundleSource,
    source: &str,
    request: Installation<'_>,
    certificates: CertificateProvider,
) -> anyhow::Result<(String, Vec<Value>)> {
    let request = Installation {
        certificates: Some(certificates),
        dependencies: Dependencies::Evaluated,
        ..request
    };
    let prepared = prepare(&bundle.files, &bundle.labels, &request)
        .with_context(|| format!("cannot render {source:?}"))?;
    let package = prepared.bundle.package().to_owned();
    let mut objects = prepared.rendered.into_objects();
    with_secrets(&mut objects, certificates);
    Ok((package, objects))
}

/// Adds the Secrets with certificates if the same account creates them.
pub(crate) fn with_secrets(objects: &mut Vec<Value>, certificates: CertificateProvider) {
    if certificates == CertificateProvider::SelfSigned {
        let secrets = layout::secrets(objects.iter());
        objects.extend(secrets);
    }
}

/// The resources of the objects' kinds, by the usual plural; a CRD may define another one.
pub(super) fn usual_resources(objects: &[Value]) -> Discovery {
    let kinds = objects.iter().map(ObjectId::of).map(|id| (id.group, id.kind));
    let resource = |(group, kind): (String, String)| {
        let scope = if CLUSTER_SCOPED.contains(&(group.as_str(), kind.as_str())) {
            Scope::Cluster
        } else {
            Scope::Namespaced
        };
        let resource = Resource {
            plural: plural(&kind),
            scope,
        };
        ((group, kind), resource)
    };
    kinds.map(resource).collect()
}

/// The plural of a kind as client-go guesses it.
fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.strip_suffix('y') {
        _ if singular == "endpoints" => singular,
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::plural;

    #[test]
    fn kinds_have_the_plurals_of_their_resources() {
        for (kind, expected) in [
            ("ConfigMap", "configmaps"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("Endpoints", "endpoints"),
            ("APIService", "apiservices"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
