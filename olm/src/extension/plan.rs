//! `olm plan`: the changes of the next revision of a ClusterExtension, before any write.

mod facts;
mod text;

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::names::{self, annotation};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::{CertificateProvider, Dependencies, Request as Installation, prepare};
use olm_migrate::objects::content::objects;
use olm_plan::bundle::{operator_condition, roles_named_after};
use olm_plan::phases::{CommonMetadata, phases};
use olm_plan::{BundleIdentity, Change, ChangePlan};
use olm_rollout::policy::{Policy, VerifiedImages, adopt, verified_images};
use serde_json::Value;

use super::access::ClusterArguments;
use super::choose::{ChosenBundle, Origin, ResolutionInput};
use super::cluster::{Cluster, newest_active};
use super::lookup::revisions;
use super::rollback::account::account;
use crate::hint::Hint;
use crate::input::read;
use crate::output::{CHANGES, CommandResult, ObjectFormat, Status, note, resource_name};
use crate::registry::RegistryArguments;
use crate::source::open_bundle;

/// The largest file with a ClusterExtension that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Args)]
#[command(
    after_help = format!("The plan compares the objects of the newest revision with those that operator-controller would apply. Its digest \
                  covers the bundle, the account, the objects of both, the rights that they give, the images and how \
                  grave changes of CRDs are. Values of Secrets are not shown.\n\nExit status: 0 when the plan is printed, \
                  1 when no bundle fits or the command fails; with --exit-code {CHANGES} when something would change.")
)]
pub(crate) struct Arguments {
    /// ClusterExtension to plan for
    #[arg(value_parser = NonEmptyStringValueParser::new(), required_unless_present = "file")]
    name: Option<String>,
    /// File with a ClusterExtension to plan for, which need not exist on the cluster
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Version or range of versions instead of that of the ClusterExtension
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    version: Option<String>,
    /// Channel instead of those of the ClusterExtension; may be repeated
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Catalog to choose the bundle from instead of those of the cluster: the name of a ClusterCatalog, or a source as
    /// SOURCE or NAME=SOURCE; may be repeated
    #[arg(long = "catalog", value_name = "CATALOG")]
    catalogs: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    /// Exit with status 3 when something would change
    #[arg(long)]
    exit_code: bool,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    registry: RegistryArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let plan = match make_plan(arguments, &cluster)? {
        Ok(plan) => plan,
        Err(refusal) => {
            note(&format!("refused: {refusal}"));
            return Ok(Status::Failure);
        }
    };
    let name = resource_name("clusterextension", &plan.extension);
    arguments.output.print(&plan, [name], || text::text(&plan))?;
    Ok(if arguments.exit_code && !plan.is_empty() {
        Status::Changes
    } else {
        Status::Success
    })
}

/// The plan of the next revision of an extension of the cluster, as text; the inner error explains why none fits.
pub(crate) fn of_extension(
    cluster: &Cluster,
    name: &str,
    registry: &RegistryArguments,
    access: &ClusterArguments,
) -> anyhow::Result<Result<(ChangePlan, String), String>> {
    let arguments = Arguments {
        name: Some(name.to_owned()),
        file: None,
        version: None,
        channels: Vec::new(),
        catalogs: Vec::new(),
        output: ObjectFormat::default(),
        exit_code: false,
        system_namespace: names::SYSTEM_NAMESPACE.to_owned(),
        registry: registry.clone(),
        cluster: access.clone(),
    };
    let plan = make_plan(&arguments, cluster)?;
    Ok(plan.map(|plan| {
        let text = text::text(&plan);
        (plan, text)
    }))
}

/// Makes the plan; the inner error is the reason why no bundle fits.
fn make_plan(arguments: &Arguments, cluster: &Cluster) -> anyhow::Result<Result<ChangePlan, String>> {
    let extension = requested_extension(arguments, cluster)?;
    let name = extension.name();
    if extension.is_deleting() {
        bail!("ClusterExtension {name:?} is being deleted");
    }
    let sets = match extension.metadata.uid {
        Some(_) => cluster.runtime.block_on(revisions(&cluster.client, &extension))?,
        None => Vec::new(),
    };
    let newest = newest_active(&sets);
    let Some((namespace, account)) = account(&extension, newest) else {
        let error = anyhow!("ClusterExtension {name:?} names no service account");
        return Err(error.context(Hint("set spec.serviceAccount.name".to_owned())));
    };
    let account = olm_cluster::identity::AccountName {
        namespace: namespace.to_owned(),
        name: account.to_owned(),
    };
    let uninstall = Policy::read(|key| extension.annotation(key))?.uninstall;
    let origin = Origin {
        catalogs: &arguments.catalogs,
        registry: &arguments.registry,
        access: &arguments.cluster,
    };
    let mut chosen = match ResolutionInput::gather(cluster, origin, &extension, newest)?.resolve() {
        Ok(chosen) => chosen,
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    let provider = cluster.provider(newest)?;
    let latest = sets.iter().max_by_key(|set| set.spec.revision);
    let policies = cluster.image_rules(&extension)?;
    let registry = arguments.registry.with_rules(policies.rules);
    let (after, verified) = render(&registry, &extension, latest, &mut chosen, provider)?;
    let before = match newest {
        Some(newest) => {
            cluster
                .runtime
                .block_on(objects(&cluster.client, newest, &arguments.system_namespace))?
        }
        None => Vec::new(),
    };
    let needs = facts::needs(cluster, &before, &after, provider)?;
    let (old, new): (Vec<&Value>, Vec<&Value>) = (before.iter().collect(), after.iter().collect());
    let installed = newest.map(BundleIdentity::of);
    let mut plan = ChangePlan::new(&Change {
        extension: name,
        account: &account.to_string(),
        installed_account: newest.and_then(|set| set.annotation(annotation::SERVICE_ACCOUNT)),
        installed: installed.as_ref(),
        wanted: &chosen.bundle,
        catalog: &chosen.catalog,
        passed: &chosen.passed,
        uninstall,
        adopt: adopt(|key| extension.annotation(key))?,
        before: &old,
        after: &new,
        needs: Some((&needs.before, &needs.after)),
    });
    plan.observed.verified = verified;
    plan.observed.notes.extend(policies.unread);
    if verified_images(|key| extension.annotation(key))? == VerifiedImages::All {
        facts::verify_images(cluster, &registry, &new, &mut plan.observed)?;
    }
    facts::observe(cluster, &extension, &account, &after, provider, &mut plan)?;
    Ok(Ok(plan))
}

/// The requested extension: that of the cluster, or the spec of the file with the state of the cluster.
fn requested_extension(arguments: &Arguments, cluster: &Cluster) -> anyhow::Result<ClusterExtension> {
    let mut extension = match (&arguments.file, &arguments.name) {
        (Some(path), name) => {
            let mut extension = from_file(path, name.as_deref())?;
            if let Some(present) = cluster.find(extension.name())? {
                extension.metadata.uid = present.metadata.uid;
                extension.metadata.deletion_timestamp = present.metadata.deletion_timestamp;
                extension.status = present.status;
            }
            extension
        }
        (None, Some(name)) => cluster.extension(name)?,
        (None, None) => bail!("name the ClusterExtension, or set --file"),
    };
    let name = extension.name().to_owned();
    let Some(filter) = &mut extension.spec.source.catalog else {
        bail!("ClusterExtension {name:?} has no spec.source.catalog: there is nothing to install");
    };
    if let Some(version) = &arguments.version {
        filter.version = Some(version.clone());
    }
    if !arguments.channels.is_empty() {
        filter.channels.clone_from(&arguments.channels);
    }
    Ok(extension)
}

/// The ClusterExtension in a file, which may contain other objects.
fn from_file(path: &std::path::Path, name: Option<&str>) -> anyhow::Result<ClusterExtension> {
    let shown = path.display();
    let text = read(path, MAX_FILE)?;
    let mut found = Vec::new();
    for document in olm_yaml::documents(text.as_slice(), &olm_yaml::Limits::default()) {
        let value = document
            .and_then(olm_yaml::Document::into_value)
            .with_context(|| format!("cannot read {shown}"))?;
        if value.get("kind").and_then(Value::as_str) == Some(names::CLUSTER_EXTENSION) {
            let extension: ClusterExtension = serde_json::from_value(value)
                .with_context(|| format!("cannot read the ClusterExtension in {shown}"))?;
            found.push(extension);
        }
    }
    found.retain(|extension| name.is_none_or(|name| name == extension.name()));
    match (found.pop(), found.is_empty(), name) {
        (Some(extension), true, _) => Ok(extension),
        (Some(_), false, _) => {
            let error = anyhow!("{shown} holds several ClusterExtensions");
            Err(error.context(Hint("name one of them".to_owned())))
        }
        (None, _, Some(name)) => bail!("{shown} holds no ClusterExtension {name:?}"),
        (None, _, None) => bail!("{shown} holds no ClusterExtension"),
    }
}

/// The objects of the chosen bundle as operator-controller renders them, and by whom its image is signed; its digest is
/// known then.
fn render(
    registry: &RegistryArguments,
    extension: &ClusterExtension,
    latest: Option<&ClusterObjectSet>,
    chosen: &mut ChosenBundle,
    provider: CertificateProvider,
) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let source = chosen.bundle.image.clone();
    let bundle = open_bundle(&source, registry)?;
    let config = extension
        .spec
        .config
        .as_ref()
        .and_then(|config| config.inline.clone())
        .map(Value::Object);
    let request = Installation {
        config: config.as_ref(),
        certificates: Some(provider),
        operator_condition: operator_condition(latest, &chosen.bundle),
        roles_named_after: roles_named_after(latest, &chosen.bundle),
        dependencies: Dependencies::Evaluated,
        ..Installation::new(&extension.spec.namespace)
    };
    let prepared = prepare(&bundle.files, &bundle.labels, &request)
        .with_context(|| format!("cannot render {source:?}"))?;
    let marks = CommonMetadata {
        extension: extension.name(),
        package: &chosen.bundle.package,
        version: &chosen.bundle.metadata.version,
    };
    let groups = phases(prepared.rendered.into_objects(), marks)?;
    if let Some(pinned) = bundle.pinned {
        chosen.bundle.image = pinned;
    }
    let objects = groups.into_iter().flat_map(|group| group.objects).collect();
    Ok((objects, bundle.verified))
}
