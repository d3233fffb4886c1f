//! Writes the objects of a pass over an InstallPlan.

use std::collections::BTreeMap;

use olm_api::names::field_manager;
use olm_classic::cluster::{Cluster, items, text};
use olm_classic::install_plan::{DefinitionWrites, InstallPlanDecision};
use olm_classic::names;
use olm_rollout::failure::RequestFailure;
use serde_json::{Value, json};

use super::Actors;
use crate::catalog::context::Context;
use crate::objects::write::Actor;

/// Writes the objects in their order. `read` has the CustomResourceDefinitions as the pass has read them.
///
/// # Errors
/// The position of the object that was not written, and why.
pub(super) async fn write(
    context: &Context,
    plan: &Value,
    decision: &InstallPlanDecision,
    read: &Cluster,
    actors: &Actors,
) -> Result<(), (usize, RequestFailure)> {
    let mut uids: BTreeMap<String, String> = BTreeMap::new();
    for (position, write) in decision.written.iter().enumerate() {
        let mut object = write.object.clone();
        fill_owners(&mut object, &uids);
        let kind = text(&object, "/kind");
        let (actor, writer) = (actors.of(kind), &context.base.writer);
        let written = match kind {
            // What exists stays as it is.
            names::CSV_KIND | names::SUBSCRIPTION_KIND => writer.create_with_warnings(actor, &object).await,
            names::CRD_KIND => write_definition(context, actor, &object, read).await,
            _ => writer.apply_with_warnings(actor, &object).await,
        };
        let (written, warnings) = written.map_err(|failure| (position, failure))?;
        warn(context, plan, write.step, &warnings);
        tracing::debug!(
            plan = text(plan, "/metadata/name"),
            kind = text(&object, "/kind"),
            name = text(&object, "/metadata/name"),
            "wrote an object of an InstallPlan"
        );
        if text(&written, "/kind") == names::CSV_KIND {
            let part = |pointer: &str| text(&written, pointer).to_owned();
            uids.insert(part("/metadata/name"), part("/metadata/uid"));
        }
    }
    Ok(())
}

/// Applies a CustomResourceDefinition, and merges the annotations that other plans do not know.
async fn write_definition(
    context: &Context,
    actor: &Actor,
    object: &Value,
    read: &Cluster,
) -> Result<(Value, Vec<String>), RequestFailure> {
    let found = read.get(names::CRD_KIND, "", text(object, "/metadata/name"));
    let snapshot = context.base.store.snapshot();
    let DefinitionWrites { applied, merged } = DefinitionWrites::new(object, found, &snapshot);
    let writer = &context.base.writer;
    let applied = writer.apply_with_warnings(actor, &applied).await?;
    if !merged.is_empty() {
        let patch = json!({"metadata": {"annotations": merged}});
        // The manager of all that OLM classic writes: a move to OLM v1 takes over its fields.
        writer
            .merge_as(field_manager::CLASSIC, actor, object, &patch)
            .await?;
    }
    Ok(applied)
}

/// Tells of the warnings of the API server about the object of a step.
fn warn(context: &Context, plan: &Value, position: usize, warnings: &[String]) {
    if warnings.is_empty() {
        return;
    }
    context.metrics.warned(warnings.len());
    let step = items(plan, "/status/plan").nth(position).unwrap_or(&Value::Null);
    let of = |pointer: &str| text(step, pointer);
    let during = match of("/resolving") {
        "" => "during operator installation".to_owned(),
        version => format!("during installation of operator \"{version}\""),
    };
    let note = format!(
        "{} warning(s) generated {during} ({} \"{}\"): {}",
        warnings.len(),
        of("/resource/kind"),
        of("/resource/name"),
        warnings.join(", ")
    );
    let part = format!("status.plan[{position}]");
    context.warn_about(plan, part, ("AppliedWithWarnings".to_owned(), note));
}

/// Fills in the UIDs of ClusterServiceVersions that this pass has created.
fn fill_owners(object: &mut Value, uids: &BTreeMap<String, String>) {
    let owners = object
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        if text(owner, "/kind") != names::CSV_KIND || !text(owner, "/uid").is_empty() {
            continue;
        }
        let uid = uids.get(text(owner, "/name"));
        if let (Some(uid), Some(owner)) = (uid, owner.as_object_mut()) {
            owner.insert("uid".to_owned(), uid.as_str().into());
        }
    }
}
