//! The objects of a bundle, and their resources without a cluster.

use std::collections::BTreeSet;

use anyhow::Context as _;
use olm_bundle::{Bundle, CertificateProvider, Dependencies, Request as Installation, prepare};
use olm_cluster::identity::AccountName;
use olm_preflight::permissions::{Discovery, Resource, Scope};
use olm_resolve::{Installed, Request};
use olm_rollout::certificates::layout;
use olm_rollout::object::ObjectId;
use serde_json::Value;

use super::installation::{default_account, default_namespace, read_bundle, settings};
use super::{Arguments, Purpose, Subject};
use crate::extension::cluster::catalogs::sources_of;
use crate::output::note;
use crate::resolve::Source;
use crate::source::{BundleSource, open_bundle};

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

/// The bundle as `olm install` installs it, of the catalogs that the arguments name; none if no bundle fits, which is
/// reported.
pub(super) fn subject(arguments: &Arguments) -> anyhow::Result<Option<Subject>> {
    let Some(chosen) = wanted(arguments)? else {
        return Ok(None);
    };
    let given = arguments.config.read()?;
    let mut subject: Option<Subject> = None;
    for source in &chosen.sources {
        let opened = open_bundle(source, &arguments.registry)?;
        let bundle = read_bundle(&opened)?;
        let subject = subject.get_or_insert_with(|| empty_subject(arguments, &bundle));
        let namespace = &subject.account.namespace;
        let config = settings(&bundle, given.clone(), namespace);
        let request = Installation {
            config: config.as_ref(),
            roles_named_after: chosen.first.as_deref(),
            ..Installation::new(namespace)
        };
        let found = objects(&opened, source, request, CertificateProvider::SelfSigned)?;
        subject.objects.extend(found);
    }
    Ok(subject)
}

/// The bundles that the arguments ask for; none if no bundle fits, which is reported.
fn wanted(arguments: &Arguments) -> anyhow::Result<Option<ChosenBundles>> {
    if let Some(source) = &arguments.bundle {
        return Ok(Some(ChosenBundles::only(source.clone())));
    }
    let (registry, access) = (&arguments.registry, &arguments.cluster);
    let package = arguments.name.as_deref().unwrap_or_default();
    let sources = sources_of(&arguments.catalogs, registry, access, package)?;
    let request = Request {
        package,
        version: arguments.version.as_deref(),
        channels: &arguments.channels,
        ..Request::default()
    };
    Ok(choose(&sources, &request, None, arguments.every_version))
}

/// The extension and the account of a bundle, as `olm install` names them, without objects.
pub(super) fn empty_subject(arguments: &Arguments, bundle: &Bundle) -> Subject {
    let extension = arguments.extension.as_deref().or(arguments.name.as_deref());
    let extension = extension.unwrap_or_else(|| bundle.package()).to_owned();
    let namespace = arguments.namespace.as_deref();
    let account = arguments.service_account.clone();
    Subject {
        account: AccountName {
            namespace: namespace.unwrap_or_else(|| default_namespace(bundle)).to_owned(),
            name: account.unwrap_or_else(|| default_account(&extension)),
        },
        extension,
        objects: Vec::new(),
        purpose: Purpose::Apply,
    }
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

/// All objects of the installation of a bundle.
pub(crate) fn objects(
    bundle: &BundleSource,
    source: &str,
    request: Installation<'_>,
    certificates: CertificateProvider,
) -> anyhow::Result<Vec<Value>> {
    let request = Installation {
        certificates: Some(certificates),
        dependencies: Dependencies::Evaluated,
        ..request
    };
    let prepared = prepare(&bundle.files, &bundle.labels, &request)
        .with_context(|| format!("cannot render {source:?}"))?;
    let mut objects = prepared.rendered.into_objects();
    with_secrets(&mut objects, certificates);
    Ok(objects)
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
