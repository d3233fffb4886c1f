//! `olm rbac`: the roles that users apply, computed from the objects of an installation. No text of a message becomes
//! an object.

pub(crate) mod bundle;
pub(crate) mod cluster;
mod format;
pub(crate) mod installation;
mod package;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::names;
use olm_cluster::identity::AccountName;
use olm_preflight::permissions::{Account, AccountRights, Environment, Missing, needed, roles};
use serde_json::Value;

use self::cluster::RoleRequest;
use self::format::RoleFormat;
use self::installation::ConfigArguments;
use crate::extension::access::ClusterArguments;
use crate::output::{CommandResult, Status, note};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
#[command(
    after_help = "On a cluster, NAME is a ClusterExtension, or clusterobjectset/NAME; the output holds what its \
                        service account lacks for the installed bundle, or for the one to install; while it is being \
                        deleted, what the account lacks to remove the objects.\n\nNAME may also be a package that is \
                        not installed, of the catalogs of the cluster or of --catalog: the output holds all rights \
                        that `olm install` would grant. With --namespace or --service-account NAME always is a package; together \
                        with --catalog and a source, or with --bundle, no cluster is asked.\n\nTo apply it: olm rbac NAME | kubectl apply -f -\nTo read the \
                        rules: olm rbac NAME -o table"
)]
pub(crate) struct Arguments {
    /// ClusterExtension, clusterobjectset/NAME, or package
    #[arg(value_parser = NonEmptyStringValueParser::new(), required_unless_present = "bundle")]
    name: Option<String>,
    /// All permissions that the bundle needs, not only the missing ones
    #[arg(long)]
    all: bool,
    /// Include every version in the range, so that later upgrades within it need no new roles
    #[arg(long, conflicts_with = "bundle")]
    every_version: bool,
    /// Bundle to use instead of the one that the catalogs offer: a directory or an image
    #[arg(long, value_name = "SOURCE")]
    bundle: Option<String>,
    /// Catalog to choose the bundle from instead of those of the cluster: the name of a ClusterCatalog, or a source as
    /// SOURCE or NAME=SOURCE; may be repeated
    #[arg(long = "catalog", value_name = "CATALOG", conflicts_with = "bundle")]
    catalogs: Vec<String>,
    /// Version or range of versions of the package
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    version: Option<String>,
    /// Channel of the package; may be repeated
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Service account that will install the package, which need not exist yet [default: EXTENSION-installer]
    #[arg(id = "account", long = "service-account", value_name = "NAME")]
    service_account: Option<String>,
    /// Namespace to install the package into [default: the one that the bundle proposes, else the package]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Name of the ClusterExtension, in the names of the roles [default: the package]
    #[arg(long, value_name = "NAME")]
    extension: Option<String>,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    /// Account of extensions that name none, as operator-controller is started with it
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "account")]
    default_service_account: Option<AccountName>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: RoleFormat,
    #[command(flatten)]
    registry: RegistryArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// The account and the objects for the roles.
struct Subject {
    /// The extension, or a set alone.
    extension: String,
    account: AccountName,
    /// All objects that are applied or removed under the account.
    objects: Vec<Value>,
    purpose: Purpose,
}

/// What the account does with the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It applies them, and removes them later.
    Apply,
    /// It removes them.
    Remove,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let Some(name) = &arguments.name else {
        return without_cluster(arguments);
    };
    let is_package = arguments.service_account.is_some() || arguments.namespace.is_some();
    if is_package && (arguments.bundle.is_some() || !arguments.catalogs.is_empty()) {
        return without_cluster(arguments);
    }
    let cluster = RoleRequest::reach(arguments)?;
    if is_package {
        return package::run(arguments, &cluster, name);
    }
    match cluster::run(arguments, &cluster, name)? {
        Some(status) => Ok(status),
        None => package::instead_of_extension(arguments, &cluster, name),
    }
}

/// The roles for a bundle of a catalog or a bundle that the arguments name.
fn without_cluster(arguments: &Arguments) -> CommandResult {
    let Some(subject) = bundle::subject(arguments)? else {
        return Ok(Status::Failure);
    };
    let missing = needed_anywhere(&subject.objects);
    print_roles(&[(subject, missing)], arguments.output)
}

/// The rights that the objects need, computed from their kinds without discovery on a cluster.
fn needed_anywhere(objects: &[Value]) -> Missing {
    let planned = olm_cluster::rights::absent(objects);
    let discovery = bundle::usual_resources(objects);
    let facts = Environment {
        discovery: &discovery,
        watched: &std::collections::BTreeSet::new(),
        roles: &[],
        namespace: "",
    };
    needed(&planned, &facts).missing(&AccountRights::new())
}

fn print_roles(subjects: &[(Subject, Missing)], format: RoleFormat) -> CommandResult {
    let mut all = Vec::new();
    for (subject, missing) in subjects {
        let Subject {
            extension, account, ..
        } = subject;
        if missing.is_empty() {
            note(&format!(
                "service account {account} lacks nothing that {extension} needs"
            ));
            continue;
        }
        let account = Account {
            namespace: &account.namespace,
            name: &account.name,
        };
        all.push(roles(missing, extension, account));
    }
    let all = all.join("---\n");
    if !all.is_empty() {
        format.print(&all)?;
    }
    Ok(Status::Success)
}

/// The objects of manifests in YAML.
///
/// # Errors
/// When the text is no YAML.
pub(crate) fn parsed(manifests: &str) -> anyhow::Result<Vec<Value>> {
    let documents = olm_yaml::documents(manifests.as_bytes(), &olm_yaml::Limits::default());
    documents.map(|document| Ok(document?.into_value()?)).collect()
}
