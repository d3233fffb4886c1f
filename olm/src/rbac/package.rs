//! The roles for a package of the cluster, as `olm install` would install it.

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, SourceConfig};
use olm_bundle::Request as Installation;
use olm_cluster::identity::AccountName;
use olm_preflight::permissions::Missing;

use super::bundle::{ChosenBundles, empty_subject, objects};
use super::cluster::{RoleRequest, lacked};
use super::installation::{open, settings};
use super::{Arguments, Subject, print_roles};
use crate::extension::lookup::others;
use crate::output::{CommandResult, Status, note};

/// Prints the roles; a package that no bundle fits is reported.
pub(super) fn run(arguments: &Arguments, cluster: &RoleRequest, name: &str) -> CommandResult {
    match subject(arguments, cluster, name)? {
        Some(found) => print_roles(&[found], arguments.output),
        None => Ok(Status::Failure),
    }
}

/// The roles for the package, since no extension has this name. The error is that there is neither.
pub(super) fn instead_of_extension(
    arguments: &Arguments,
    cluster: &RoleRequest,
    name: &str,
) -> CommandResult {
    let installed = || {
        cluster
            .runtime
            .block_on(others(&Api::all(cluster.client.clone()), name))
    };
    let found = subject(arguments, cluster, name)
        .map_err(|error| error.context(format!("there is no ClusterExtension {name:?}")))?;
    let Some(found) = found else {
        let error = anyhow!("neither a ClusterExtension nor an installable package is called {name:?}");
        return Err(error.context(installed()));
    };
    note(&format!(
        "note: there is no ClusterExtension {name:?}; these are the rights for installing the package"
    ));
    print_roles(&[found], arguments.output)
}

/// What the account of the installation lacks; `None` if no bundle fits.
fn subject(
    arguments: &Arguments,
    cluster: &RoleRequest,
    name: &str,
) -> anyhow::Result<Option<(Subject, Missing)>> {
    let chosen = match &arguments.bundle {
        Some(source) => ChosenBundles::only(source.clone()),
        None => match cluster.proposed(arguments, &wanted(arguments, name), None)? {
            Some(chosen) => chosen,
            None => return Ok(None),
        },
    };
    let given = arguments.config.read()?;
    let provider = cluster.provider(None)?;
    let mut subject: Option<Subject> = None;
    for source in &chosen.sources {
        let namespace = match &subject {
            Some(subject) => Some(subject.account.namespace.clone()),
            None => arguments.namespace.clone(),
        };
        let opened = open(cluster, &arguments.registry, source, namespace.as_deref())?;
        let subject = subject.get_or_insert_with(|| empty_subject(arguments, &opened.bundle));
        let config = settings(&opened.bundle, given.clone(), &opened.namespace);
        let request = Installation {
            config: config.as_ref(),
            roles_named_after: chosen.first.as_deref(),
            ..Installation::new(&opened.namespace)
        };
        subject
            .objects
            .extend(objects(&opened.source, source, request, provider)?);
    }
    let Some(subject) = subject else {
        return Ok(None);
    };
    let asks = !arguments.all && exists(cluster, &subject.account)?;
    let missing = lacked(cluster, &subject.account, &subject.objects, asks)?;
    Ok(Some((subject, missing)))
}

/// The extension that selects the bundle.
fn wanted(arguments: &Arguments, package: &str) -> ClusterExtension {
    let filter = CatalogFilter {
        package_name: package.to_owned(),
        version: arguments.version.clone(),
        channels: arguments.channels.clone(),
        ..CatalogFilter::default()
    };
    let spec = ClusterExtensionSpec {
        source: SourceConfig {
            catalog: Some(filter),
            ..SourceConfig::default()
        },
        ..ClusterExtensionSpec::default()
    };
    ClusterExtension::new(arguments.extension.as_deref().unwrap_or(package), spec)
}

/// Whether the account exists.
fn exists(cluster: &RoleRequest, account: &AccountName) -> anyhow::Result<bool> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &account.namespace);
    let found = cluster.runtime.block_on(accounts.get_opt(&account.name));
    let found = found.with_context(|| format!("cannot read ServiceAccount {account}"))?;
    Ok(found.is_some())
}
