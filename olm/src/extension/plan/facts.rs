//! The facts that a plan reads from the cluster besides the revision.

use std::collections::BTreeMap;

use anyhow::Context as _;
use olm_api::ClusterExtension;
use olm_api::names::user;
use olm_bundle::CertificateProvider;
use olm_cluster::discover::Discovery;
use olm_cluster::identity::AccountName;
use olm_cluster::list::Collection;
use olm_cluster::permissions::Reviews;
use olm_cluster::rights::{lacking, needed_here};
use olm_image::{Reference, SignatureStatus};
use olm_plan::definitions::Effect;
use olm_plan::{ChangePlan, Observed, images, rights};
use olm_platform::log::chain;
use olm_preflight::crd_upgrade::{Policy, compare, definition_name, resource};
use olm_preflight::permissions::{AccountRights, Missing};
use serde_json::Value;

use crate::extension::cluster::Cluster;
use crate::extension::rollback::account::act_as;
use crate::rbac::bundle::with_secrets;
use crate::registry::RegistryArguments;

/// The missing rights for the objects of the newest revision, and for those to install.
pub(super) struct MissingRights {
    pub(super) before: Missing,
    pub(super) after: Missing,
}

/// All objects that are applied under the account, including Secrets with certificates.
fn all(objects: &[Value], provider: CertificateProvider) -> Vec<Value> {
    let mut all = objects.to_vec();
    with_secrets(&mut all, provider);
    all
}

pub(super) fn needs(
    cluster: &Cluster,
    before: &[Value],
    after: &[Value],
    provider: CertificateProvider,
) -> anyhow::Result<MissingRights> {
    let discovery = discovery(cluster);
    let needed = |objects: &[Value]| -> anyhow::Result<Missing> {
        let all = all(objects, provider);
        let all: Vec<&Value> = all.iter().collect();
        let needs = cluster
            .runtime
            .block_on(needed_here(&discovery, &cluster.client, &all));
        let needs = needs.context("cannot determine which rights the account needs")?;
        Ok(needs.missing(&AccountRights::new()))
    };
    Ok(MissingRights {
        before: needed(before)?,
        after: needed(after)?,
    })
}

fn discovery(cluster: &Cluster) -> Discovery {
    let _inside = cluster.runtime.enter();
    Discovery::new(cluster.client.clone())
}

/// Adds the present facts of the cluster: missing rights, objects of users, and definitions that differ from those of
/// the newest revision.
pub(super) fn observe(
    cluster: &Cluster,
    extension: &ClusterExtension,
    account: &AccountName,
    after: &[Value],
    provider: CertificateProvider,
    plan: &mut ChangePlan,
) -> anyhow::Result<()> {
    missing(cluster, account, after, provider, plan);
    let policy = match extension.annotation(user::CRD_POLICY) {
        Some(text) => Policy::parse(text).with_context(|| format!("annotation {}", user::CRD_POLICY))?,
        None => Policy::default(),
    };
    let new: BTreeMap<&str, &Value> = after
        .iter()
        .filter_map(|object| Some((definition_name(object)?, object)))
        .collect();
    let mut counts = BTreeMap::new();
    let names: Vec<(String, Effect, Vec<String>)> = plan
        .definitions
        .iter()
        .map(|one| (one.name.clone(), one.effect, one.findings.clone()))
        .collect();
    for (name, effect, known) in names {
        let Some(live) = cluster.definition(&name)? else {
            continue;
        };
        if let Some(new) = new.get(name.as_str()).filter(|_| effect != Effect::Left) {
            let found = compare(&live, new, &policy);
            let lines = found.iter().map(ToString::to_string);
            let others = lines.filter(|line| !known.contains(line));
            plan.observed
                .findings
                .extend(others.map(|line| format!("{name}: {line}")));
        }
        match count(cluster, &live) {
            Ok(count) => drop(counts.insert(name, count)),
            Err(why) => plan
                .observed
                .notes
                .push(format!("cannot count the objects of {name}: {why}")),
        }
    }
    plan.count(&counts);
    Ok(())
}

/// Verifies the images of the objects by the rules of the registries' settings, one after the other.
pub(super) fn verify_images(
    cluster: &Cluster,
    registry: &RegistryArguments,
    objects: &[&Value],
    observed: &mut Observed,
) -> anyhow::Result<()> {
    let client = registry.images();
    for image in images::of(objects) {
        let Ok(reference) = Reference::parse_familiar(&image) else {
            observed
                .refused_images
                .push(format!("{image:?} is not an image reference"));
            continue;
        };
        let access = registry.access(&reference)?;
        match cluster
            .runtime
            .block_on(client.verify_for_all_nodes(&reference, &access))
        {
            Ok(image) => {
                let status = SignatureStatus::accepted(&image.pinned, &image.approvals);
                observed
                    .verified_images
                    .extend(status.map(|status| status.message));
            }
            Err(error) if error.is_verdict() => observed.refused_images.push(chain(&error)),
            Err(error) => observed
                .notes
                .push(format!("cannot verify image {image}: {}", chain(&error))),
        }
    }
    Ok(())
}

/// The number of objects of a definition's kind.
fn count(cluster: &Cluster, definition: &Value) -> Result<u64, String> {
    let Some((group, version, plural)) = resource(definition) else {
        return Ok(0);
    };
    let collection = Collection {
        group,
        version,
        plural,
    };
    let counted = cluster.runtime.block_on(collection.count(&cluster.client));
    counted.map_err(|failure| failure.message)
}

/// The rights that the account lacks at the moment, if the user may ask for it.
fn missing(
    cluster: &Cluster,
    account: &AccountName,
    after: &[Value],
    provider: CertificateProvider,
    plan: &mut ChangePlan,
) {
    let all = all(after, provider);
    let all: Vec<&Value> = all.iter().collect();
    let discovery = discovery(cluster);
    let asked = cluster.runtime.block_on(async {
        let client = act_as(
            &cluster.config,
            &cluster.client,
            &account.namespace,
            &account.name,
        )
        .await?;
        let reviews = Reviews::default();
        let missing = lacking(&discovery, &reviews, account, &client, &all).await;
        missing.map_err(|error| error.to_string())
    });
    match asked {
        Ok(missing) => {
            plan.observed.missing_rights = Some(rights::lacking(&account.to_string(), &missing));
        }
        Err(why) => plan.observed.notes.push(format!(
            "cannot check the rights of service account {account}: {why}"
        )),
    }
}
