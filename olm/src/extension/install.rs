//! `olm install`: from the name of a package to an extension that runs, under an account with the least rights.

mod objects;
mod send;

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::Api;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::{
    CatalogFilter, ClusterExtensionSpec, ExtensionConfig, ServiceAccountReference, SourceConfig,
};
use olm_bundle::{Bundle, Request as Installation};
use olm_cluster::identity::AccountName;
use olm_preflight::permissions::{Account, roles};
use serde_json::Value;

use self::objects::{InstallObjects, existing, manifests, selector};
use super::access::ClusterArguments;
use super::change::ask::agreed;
use super::change::wait::{Goal, WaitArguments, wait};
use super::choose::{ChosenBundle, Origin, ResolutionInput};
use super::cluster::Cluster;
use crate::hint::Hint;
use crate::output::{CommandResult, ObjectFormat, Status, note, print, print_json, print_text};
use crate::rbac::bundle::objects as rendered;
use crate::rbac::cluster::lacked;
use crate::rbac::installation::{ConfigArguments, default_account, open, settings};
use crate::registry::RegistryArguments;
use crate::resolve;
use crate::source::{BundleSource, is_object_name};

#[derive(Debug, Args)]
#[command(
    after_help = "The catalogs of the cluster are asked through its API server. The command creates what is missing of these: the \
                  namespace, the service account, the roles with exactly the rights that the bundle needs, and the \
                  ClusterExtension. It shows them and asks first. Everything is applied with your own rights; Kubernetes lets \
                  you grant only rights that you hold.\n\nThe bundle is read from its image: set --ca-dir or --authfile where \
                  this machine needs them for the registry.\n\nExamples:\n  olm install greeter --wait\n  olm install greeter \
                  --version 1.x --channel stable -n greeter --yes\n  olm install greeter --dry-run > greeter.yaml\n\nExit status: 0 \
                  on success, 1 when no bundle fits, you decline or the command fails; with --wait 4 when a person must \
                  change something, 5 when the time is over."
)]
pub(crate) struct Arguments {
    /// Package to install
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    package: String,
    /// Version or range of versions [default: the newest, and each newer one later]
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    version: Option<String>,
    /// Channel to take versions from; may be repeated [default: all]
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Catalog to take the package from: the name of a ClusterCatalog; may be repeated [default: all]
    #[arg(long = "catalog", value_name = "CATALOG")]
    catalogs: Vec<String>,
    /// Namespace to install into [default: the one that the bundle proposes, else the package]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Name of the ClusterExtension [default: the package]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Service account that installs [default: NAME-installer]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Create without a question
    #[arg(short, long)]
    yes: bool,
    /// Print the manifests and create nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format [default: table; with --dry-run yaml]
    #[arg(short, long, value_enum)]
    output: Option<ObjectFormat>,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    are_names(arguments, &cluster)?;
    let name = arguments.name.as_deref().unwrap_or(&arguments.package);
    is_free(arguments, &cluster, name)?;
    let mut extension = extension(arguments, name);
    let origin = Origin {
        catalogs: &[],
        registry: &arguments.registry,
        access: &arguments.cluster,
    };
    let choice = ResolutionInput::gather(&cluster, origin, &extension, None)?;
    if choice.catalogs().is_empty() {
        return Err(no_catalog(&cluster, arguments)?);
    }
    let chosen = match choice.resolve() {
        Ok(chosen) => chosen,
        Err(refusal) => {
            note(&format!("refused: {refusal}"));
            return Ok(Status::Failure);
        }
    };
    let image = chosen.bundle.image.as_str();
    let opened = open(
        &cluster,
        &arguments.registry,
        image,
        arguments.namespace.as_deref(),
    )
    .map_err(unreadable)?;
    let namespace = opened.namespace;
    extension.spec.namespace.clone_from(&namespace);
    configure(&mut extension, arguments, &opened.bundle)?;
    let account = AccountName {
        namespace,
        name: account_name(&extension).to_owned(),
    };
    let planned = install_objects(arguments, &cluster, extension, &account, &opened.source, image)?;
    let objects = manifests(&planned)?;
    let format = match (arguments.output, arguments.dry_run) {
        (Some(format), _) => format,
        (None, true) => ObjectFormat::Yaml,
        (None, false) => ObjectFormat::Table,
    };
    show(format, &chosen, &planned, &objects)?;
    if let Some(default) = &chosen.default_channel
        && arguments.channels.is_empty()
        && !chosen.channels.contains(default)
    {
        let version = &chosen.bundle.metadata.version;
        note(&format!(
            "note: {version} is not in the default channel {default:?}; to follow that channel alone, set --channel {default}"
        ));
    }
    if arguments.dry_run {
        if format != ObjectFormat::Table {
            for line in existing(&planned) {
                note(&format!("note: left out: {line}"));
            }
        }
        return Ok(Status::Success);
    }
    send::may_create(&cluster, &account, &objects)?;
    let question = format!("Create these {} objects?", objects.len());
    if !agreed(&question, arguments.yes)? {
        return Ok(Status::Failure);
    }
    send::create(&cluster, &objects, format == ObjectFormat::Table)?;
    let created = cluster.extension(name)?;
    if arguments.wait.wait {
        return wait(
            &cluster,
            &arguments.wait,
            &created,
            Goal::Ready(created.generation()),
        );
    }
    if format == ObjectFormat::Table {
        note(&format!(
            "hint: `olm get {name}` shows how far it is, `olm explain {name}` why"
        ));
    }
    Ok(Status::Success)
}

/// Fails if a catalog is named by its source: a cluster installs from its ClusterCatalogs only.
fn are_names(arguments: &Arguments, cluster: &Cluster) -> anyhow::Result<()> {
    let mut sources = arguments.catalogs.iter();
    let Some(source) = sources.find(|catalog| !is_object_name(catalog)) else {
        return Ok(());
    };
    let error = anyhow!("cannot install from {source:?}: a cluster installs from its ClusterCatalogs only");
    let known = cluster.catalog_names()?.join(", ");
    Err(error.context(Hint(match known.as_str() {
        "" => "add a ClusterCatalog first".to_owned(),
        known => format!("name a ClusterCatalog: {known}"),
    })))
}

/// Fails if the extension already exists, or another one for the package.
fn is_free(arguments: &Arguments, cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let known = cluster
        .runtime
        .block_on(resolve::cluster::Cluster::reach(&arguments.cluster))?;
    if let Some(taken) = known.named(name) {
        let error = anyhow!("ClusterExtension {name:?} exists already");
        let filter = resolve::cluster::filter(taken);
        let is_same = filter.is_some_and(|filter| filter.package_name == arguments.package);
        return Err(error.context(Hint(if is_same {
            format!("`olm explain {name}` shows its state, `olm upgrade {name}` changes its version")
        } else {
            format!("`olm explain {name}` shows its state; --name gives the new one another name")
        })));
    }
    if let Some(other) = known.extension(&arguments.package) {
        let other = other.name();
        let error = anyhow!(
            "package {:?} is installed already, by ClusterExtension {other:?}",
            arguments.package
        );
        return Err(error.context(Hint(format!(
            "a cluster holds one extension per package: `olm upgrade {other}` changes its version"
        ))));
    }
    Ok(())
}

/// Sets the configuration of the extension.
fn configure(extension: &mut ClusterExtension, arguments: &Arguments, bundle: &Bundle) -> anyhow::Result<()> {
    let found = settings(bundle, arguments.config.read()?, &extension.spec.namespace);
    if let Some(Value::Object(fields)) = found {
        extension.spec.config = Some(ExtensionConfig {
            inline: Some(fields),
            ..ExtensionConfig::default()
        });
    }
    Ok(())
}

/// The extension, without its namespace and its configuration.
fn extension(arguments: &Arguments, name: &str) -> ClusterExtension {
    let account = arguments.service_account.clone();
    let filter = CatalogFilter {
        package_name: arguments.package.clone(),
        version: arguments.version.clone(),
        channels: arguments.channels.clone(),
        selector: selector(&arguments.catalogs),
        ..CatalogFilter::default()
    };
    ClusterExtension::new(
        name,
        ClusterExtensionSpec {
            service_account: Some(ServiceAccountReference {
                name: account.unwrap_or_else(|| default_account(name)),
            }),
            source: SourceConfig {
                catalog: Some(filter),
                ..SourceConfig::default()
            },
            ..ClusterExtensionSpec::default()
        },
    )
}

fn account_name(extension: &ClusterExtension) -> &str {
    let account = extension.spec.service_account.as_ref();
    account.map(|account| account.name.as_str()).unwrap_or_default()
}

/// The error that there is no catalog to choose from.
fn no_catalog(cluster: &Cluster, arguments: &Arguments) -> anyhow::Result<anyhow::Error> {
    let known = cluster.catalog_names()?;
    let error = match arguments.catalogs.as_slice() {
        [] => anyhow!("the cluster serves no catalog"),
        named => anyhow!("the cluster serves none of the catalogs {}", named.join(", ")),
    };
    Ok(error.context(Hint(if known.is_empty() {
        "add a ClusterCatalog first".to_owned()
    } else {
        format!("its ClusterCatalogs are {}", known.join(", "))
    })))
}

fn unreadable(error: anyhow::Error) -> anyhow::Error {
    if error.downcast_ref::<Hint>().is_some() {
        return error;
    }
    error.context("cannot read the bundle, which says which rights its account needs")
}

/// The objects to create: the extension, and the missing ones of namespace, account and rights.
fn install_objects(
    arguments: &Arguments,
    cluster: &Cluster,
    extension: ClusterExtension,
    account: &AccountName,
    bundle: &BundleSource,
    image: &str,
) -> anyhow::Result<InstallObjects> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &account.namespace);
    let (namespace, present) = cluster.runtime.block_on(async {
        let namespace = namespaces.get_opt(&account.namespace).await;
        let namespace =
            namespace.with_context(|| format!("cannot read Namespace {:?}", account.namespace))?;
        let present = accounts.get_opt(&account.name).await;
        let present = present.with_context(|| format!("cannot read ServiceAccount {account}"))?;
        anyhow::Ok((namespace, present))
    })?;
    let leaves = |namespace: &Namespace| namespace.metadata.deletion_timestamp.is_some();
    if namespace.as_ref().is_some_and(leaves) {
        let error = anyhow!("Namespace {:?} is being deleted", account.namespace);
        return Err(error.context(Hint(
            "wait for its end, or set --namespace to another one".to_owned(),
        )));
    }
    if arguments.service_account.is_some() && present.is_none() && namespace.is_some() {
        note(&format!(
            "note: service account {account} does not exist yet and is created"
        ));
    }
    let config = extension.spec.config.as_ref();
    let config = config.and_then(|config| config.inline.clone()).map(Value::Object);
    let request = Installation {
        config: config.as_ref(),
        ..Installation::new(&account.namespace)
    };
    let provider = cluster.provider(None)?;
    let objects = rendered(bundle, image, request, provider)?;
    let missing = lacked(cluster, account, &objects, present.is_some())?;
    let rights = if missing.is_empty() {
        String::new()
    } else {
        let account = Account {
            namespace: &account.namespace,
            name: &account.name,
        };
        roles(&missing, extension.name(), account)
    };
    Ok(InstallObjects {
        namespace: namespace.is_none().then(|| account.namespace.clone()),
        account: present.is_none().then(|| account.clone()),
        roles: rights,
        extension,
    })
}

/// Prints the created objects.
fn show(
    format: ObjectFormat,
    chosen: &ChosenBundle,
    planned: &InstallObjects,
    objects: &[Value],
) -> anyhow::Result<()> {
    match format {
        ObjectFormat::Table => print_text(&objects::text(chosen, planned, objects)),
        ObjectFormat::Json => {
            print_json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}))
        }
        ObjectFormat::Yaml => {
            let documents: Vec<String> = objects.iter().map(olm_yaml::to_yaml).collect();
            print(&documents.join("---\n"))
        }
        ObjectFormat::Name => {
            let lines: Vec<String> = objects.iter().map(objects::resource_name).collect();
            print_text(&lines.concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_names_its_account_after_itself() {
        let arguments = Arguments {
            package: "greeter".to_owned(),
            version: Some("1.x".to_owned()),
            channels: vec!["stable".to_owned()],
            catalogs: vec!["one".to_owned()],
            namespace: None,
            name: None,
            service_account: None,
            config: ConfigArguments::default(),
            yes: false,
            dry_run: false,
            output: None,
            wait: WaitArguments {
                wait: false,
                timeout: std::time::Duration::ZERO,
            },
            cluster: ClusterArguments::default(),
            registry: RegistryArguments::default(),
        };
        let made = extension(&arguments, "greeter-eu");
        assert_eq!(made.kind, olm_api::names::CLUSTER_EXTENSION);
        assert_eq!(account_name(&made), "greeter-eu-installer");
        let filter = made.spec.source.catalog.unwrap();
        assert_eq!(filter.version.as_deref(), Some("1.x"));
        assert_eq!(filter.channels, ["stable"]);
        assert!(filter.selector.is_some());
    }
}
