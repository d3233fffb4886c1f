//! Gathers the input of a pass over an InstallPlan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_classic::cluster::{Cluster, annotation, items, text};
use olm_classic::install_plan::{
    BundleReference, Replacement, bundle_name, is_supported, pending, references, wanted_definitions,
};
use olm_classic::names;
use olm_classic::resolve::asking_later;
use olm_cluster::discover::Scope;
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_platform::log;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use super::findings::{Findings, findings};
use super::{Actors, Gathered};
use crate::catalog::bundles::rules;
use crate::catalog::context::Context;
use crate::objects::write::Actor;
use crate::registry::access::Puller;

/// Time limit for reading custom resources before a plan is retried.
const MOST_TIME: Duration = Duration::from_mins(5);

/// Gathers the input of the steps that are not carried out yet.
pub(super) async fn gather(
    context: &Context,
    plan: &Value,
    cluster: &Cluster,
    actors: &Actors,
) -> Result<Gathered, RequestFailure> {
    let steps: Vec<&Value> = pending(plan).collect();
    let mut gathered = of_steps(context, plan, &steps, cluster, actors).await?;
    definitions(context, plan, actors, &mut gathered).await?;
    Ok(gathered)
}

/// What may break when the CustomResourceDefinitions of a plan replace those on the cluster.
pub(super) async fn gather_findings(
    context: &Context,
    plan: &Value,
    cluster: &Cluster,
    actors: &Actors,
) -> Result<Findings, RequestFailure> {
    let steps: Vec<&Value> = definition_steps(plan).collect();
    let gathered = of_steps(context, plan, &steps, cluster, actors).await?;
    let wanted = wanted_definitions(plan, &gathered.facts(context));
    let found = wanted.iter().filter_map(|wanted| {
        let name = text(wanted, "/metadata/name");
        let found = gathered.cluster.get(names::CRD_KIND, "", name)?;
        Some((name.to_owned(), findings(found, wanted)?))
    });
    Ok(found.collect())
}

/// Gathers the bundles and the objects of some steps of a plan.
async fn of_steps(
    context: &Context,
    plan: &Value,
    steps: &[&Value],
    cluster: &Cluster,
    actors: &Actors,
) -> Result<Gathered, RequestFailure> {
    let mut gathered = Gathered {
        cluster: cluster.clone(),
        ..Gathered::default()
    };
    for reference in references(steps.iter().copied()) {
        bundle(context, plan, &reference, &mut gathered).await?;
    }
    objects(context, plan, steps.iter().copied(), actors, &mut gathered).await?;
    Ok(gathered)
}

/// The steps of CustomResourceDefinitions that are not carried out yet.
pub(super) fn definition_steps(plan: &Value) -> impl Iterator<Item = &Value> {
    pending(plan).filter(|step| text(step, "/resource/kind") == names::CRD_KIND)
}

/// The bundle that steps refer to: its image once more, else its ConfigMap.
async fn bundle(
    context: &Context,
    plan: &Value,
    reference: &BundleReference,
    gathered: &mut Gathered,
) -> Result<(), RequestFailure> {
    let mut lookups = items(plan, "/status/bundleLookups");
    let Some(lookup) = lookups.find(|lookup| bundle_name(text(lookup, "/path")) == reference.name) else {
        let kind = ("v1", "ConfigMap");
        let writer = &context.base.writer;
        let map = writer
            .read(&Actor::Own, kind, &reference.namespace, &reference.name)
            .await?;
        if let Some(mut map) = map {
            typed(&mut map, kind);
            gathered.cluster.insert(Arc::new(map));
        }
        return Ok(());
    };
    let source = gathered.cluster.get(
        names::CATALOG_SOURCE_KIND,
        &reference.catalog_namespace,
        &reference.catalog,
    );
    let path = text(lookup, "/path");
    let namespace = text(plan, "/metadata/namespace");
    let subscriptions = gathered.cluster.in_namespace(names::SUBSCRIPTION_KIND, namespace);
    let asking = asking_later(lookup, subscriptions);
    let rules = rules(context, namespace, asking);
    let puller = Puller::of_catalog(source, &reference.catalog_namespace, rules);
    let pinned: Value =
        serde_json::from_str(annotation(plan, names::BUNDLE_IMAGES_ANNOTATION)).unwrap_or_default();
    let image = pinned.get(path).and_then(Value::as_str).unwrap_or(path);
    let unpacked = context
        .unpacker
        .fetch(image, path, &puller)
        .await
        .map_err(|error| {
            let kind = if error.is_retryable() {
                FailureKind::Transient
            } else {
                FailureKind::Invalid
            };
            RequestFailure::new(
                kind,
                format!(
                    "cannot unpack bundle image {image}: {}",
                    log::chain(error.as_ref())
                ),
            )
        })?;
    let key = (reference.namespace.clone(), reference.name.clone());
    gathered.bundles.insert(key, unpacked.content.clone());
    Ok(())
}

/// The objects of the steps as they are now, of kinds that are not followed; and whether their kinds are served.
async fn objects(
    context: &Context,
    plan: &Value,
    steps: impl Iterator<Item = &Value>,
    actors: &Actors,
    gathered: &mut Gathered,
) -> Result<(), RequestFailure> {
    const FOLLOWED: &[&str] = &[
        names::CSV_KIND,
        names::SUBSCRIPTION_KIND,
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ];
    let writer = &context.base.writer;
    let place = text(plan, "/metadata/namespace");
    for step in steps {
        let of = |field: &str| text(step, &format!("/resource/{field}"));
        let (kind, name) = (of("kind"), of("name"));
        if FOLLOWED.contains(&kind) {
            continue;
        }
        let api_version = match of("group") {
            "" => of("version").to_owned(),
            group => format!("{group}/{}", of("version")),
        };
        let mut places = vec![if kind == names::CRD_KIND { "" } else { place }];
        if is_supported(kind) {
            match writer.resource(&api_version, kind).await {
                Ok(resource) => {
                    let is_namespaced = resource.scope == Scope::Namespaced;
                    gathered.served.add(&api_version, kind, is_namespaced);
                    if !is_namespaced {
                        places = vec![""];
                    }
                }
                Err(failure) if failure.kind == FailureKind::UnknownKind => continue,
                Err(failure) => return Err(failure),
            }
        }
        if kind == names::SECRET_KIND {
            places.push(&context.global);
        }
        let kind = if kind == names::BUNDLE_SECRET_KIND {
            names::SECRET_KIND
        } else {
            kind
        };
        for place in places {
            let found = writer
                .read(actors.of(kind), (&api_version, kind), place, name)
                .await;
            match found {
                Ok(Some(mut found)) => {
                    typed(&mut found, (&api_version, kind));
                    gathered.cluster.insert(Arc::new(found));
                }
                Ok(None) => {
                    gathered.cluster.remove(kind, place, name);
                }
                // Only a CustomResourceDefinition must be known before it is replaced.
                Err(failure) if kind == names::CRD_KIND => return Err(failure),
                Err(failure) => tracing::debug!(kind, name, error = failure.message, "cannot read an object"),
            }
        }
    }
    Ok(())
}

/// Findings about the CustomResourceDefinitions that the plan replaces, and custom resources that do not fit the new
/// ones, one of each kind.
async fn definitions(
    context: &Context,
    plan: &Value,
    actors: &Actors,
    gathered: &mut Gathered,
) -> Result<(), RequestFailure> {
    let wanted = wanted_definitions(plan, &gathered.facts(context));
    for wanted in wanted {
        let name = text(&wanted, "/metadata/name").to_owned();
        let Some(found) = gathered.cluster.get(names::CRD_KIND, "", &name) else {
            continue;
        };
        let findings = findings(found, &wanted);
        let replacement = Replacement::new(found, &wanted);
        let (group, plural) = (
            text(found, "/spec/group").to_owned(),
            text(found, "/spec/names/plural").to_owned(),
        );
        gathered
            .findings
            .extend(findings.map(|findings| (name, findings)));
        for api_version in replacement.changed_schemas() {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            let collection = Collection {
                group: &group,
                version,
                plural: &plural,
            };
            let misfit = misfit(context, &collection, &api_version, &replacement, actors).await?;
            if let Some(misfit) = misfit {
                gathered.cluster.insert(Arc::new(misfit));
            }
        }
    }
    Ok(())
}

/// The first custom resource of a version that does not fit.
async fn misfit(
    context: &Context,
    collection: &Collection<'_>,
    api_version: &str,
    replacement: &Replacement,
    actors: &Actors,
) -> Result<Option<Value>, RequestFailure> {
    let client = context.base.writer.client(&actors.definitions).await?;
    let budget = Budget {
        objects: usize::MAX,
        bytes: u64::MAX,
        until: Instant::now() + MOST_TIME,
    };
    let mut pages = collection.read(&client, Detail::Whole, budget);
    loop {
        match pages.page().await {
            Ok(page) => {
                for mut object in page {
                    typed(&mut object, (api_version, replacement.kind()));
                    if replacement.misfit(&object).is_some() {
                        return Ok(Some(object));
                    }
                }
            }
            Err(End::Complete) => return Ok(None),
            Err(End::Spent(what)) => {
                let message = format!(
                    "cannot check all objects of {}: the limit on the {what} is exceeded",
                    collection.plural
                );
                return Err(RequestFailure::new(FailureKind::Transient, message));
            }
            Err(End::Failed(failure)) => return Err(failure),
        }
    }
}

/// Says of which kind an object is.
fn typed(object: &mut Value, (api_version, kind): (&str, &str)) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
    }
}
