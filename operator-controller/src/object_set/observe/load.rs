//! The content of a ClusterObjectSet, its outline, its siblings.

use std::{sync::Arc, time::Duration};

use kube::Client;
use olm_api::{ClusterObjectSet, cluster_extension::controlling_extension, names};
use olm_platform::queue::Outcome;
use olm_rollout::{
    certificates::layout,
    content::{self, ContentError, RevisionContent},
    outline::{Outline, Owner, Sibling},
    phases::Phases,
};

use super::gather::{self, GatherError, Sources};
use crate::certificates::choose;
use crate::object_set::{
    conclusion::{LATER, RESYNC, RIGHTS, RunConclusion},
    context::Context,
    state::SetState,
};

/// The phases. If the bodies had to be read, they are in the state.
pub(in crate::object_set) async fn load(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
    account: Option<&Client>,
) -> Result<Arc<Phases>, RunConclusion> {
    if let Some(phases) = &set_state.loaded.phases {
        return Ok(Arc::clone(phases));
    }
    let (all, sources) = read(context, set, account).await?;
    let phases = Arc::new(Phases::of(&all));
    set_state.loaded.phases = Some(Arc::clone(&phases));
    set_state.loaded.content = Some(Arc::new(all));
    set_state.loaded.sources = sources;
    Ok(phases)
}

/// Drops the content if one of its Secrets is gone or was created again.
pub(in crate::object_set) async fn drop_replaced_content(
    context: &Context,
    set_state: &mut SetState,
    account: &Client,
) -> Result<(), RunConclusion> {
    let system_namespace = &context.options.system_namespace;
    let same = gather::are_same(&set_state.loaded.sources, system_namespace, &context.own, account).await;
    let same = same.map_err(|error| RunConclusion::retrying(error.to_string(), Outcome::Failed))?;
    if !same {
        set_state.loaded.phases = None;
        set_state.loaded.content = None;
    }
    Ok(())
}

/// The bodies and their Secrets.
async fn read(
    context: &Context,
    set: &ClusterObjectSet,
    account: Option<&Client>,
) -> Result<(RevisionContent, Sources), RunConclusion> {
    let system_namespace = &context.options.system_namespace;
    let (secrets, sources) = match gather::secrets(set, system_namespace, &context.own, account).await {
        Ok(found) => found,
        Err(error @ GatherError::TooMuch(_)) => {
            return Err(RunConclusion::waiting(error.to_string(), Outcome::After(RESYNC)));
        }
        Err(error) => return Err(RunConclusion::retrying(error.to_string(), Outcome::Failed)),
    };
    let resolved = content::resolve(&set.spec, &secrets, system_namespace).map(|mut content| {
        if choose::are_ours(set) {
            layout::complete(set.spec.collision_protection, &mut content);
        }
        content
    });
    resolved
        .map(|content| (content, sources))
        .map_err(|error| match &error {
            ContentError::Mutable(_) => RunConclusion::blocked(error.to_string(), Outcome::After(RIGHTS)),
            ContentError::TooMuch { .. } => RunConclusion::waiting(error.to_string(), Outcome::After(RESYNC)),
            _ => RunConclusion {
                lost: matches!(error, ContentError::MissingSecret { .. }),
                ..RunConclusion::waiting(error.to_string(), Outcome::After(LATER))
            },
        })
}

/// Checks that the phases are those that were first seen.
pub(in crate::object_set) fn check_observed(
    set: &ClusterObjectSet,
    set_state: &SetState,
) -> Result<(), String> {
    let Some(phases) = &set_state.loaded.phases else {
        return Ok(());
    };
    let observed = set
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.observed_phases);
    content::check_observed(observed, &phases.observed).map_err(|error| error.to_string())
}

pub(in crate::object_set) fn outline(context: &Context, set: &ClusterObjectSet, phases: &Phases) -> Outline {
    let owner = Owner {
        name: set.name().to_owned(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        revision: set.spec.revision,
        owner_name: set.label(names::label::OWNER_NAME).unwrap_or_default().to_owned(),
        extension: controlling_extension(&set.metadata)
            .unwrap_or_default()
            .to_owned(),
        migrated: set.label(names::label::MIGRATED_FROM_HELM).is_some(),
    };
    let others = context.sets.siblings(set);
    let siblings = others.iter().map(|sibling| Sibling {
        name: sibling.name().to_owned(),
        uid: sibling.metadata.uid.clone().unwrap_or_default(),
        revision: sibling.spec.revision,
    });
    let mut outline = phases.outline(owner, siblings.collect());
    let provider = |set: &ClusterObjectSet| {
        set.annotation(names::annotation::CERTIFICATE_PROVIDER)
            .map(str::to_owned)
    };
    // A Secret of the previous certificate provider has the same name, and is not deleted before this one works.
    let own = provider(set);
    if others
        .iter()
        .filter_map(|other| provider(other))
        .any(|other| Some(other) != own)
    {
        let secrets = phases.certificates.secrets();
        secrets.for_each(|position| outline.inherit(position));
    }
    outline
}

/// The bodies, read again if they were dropped.
pub(in crate::object_set) async fn bodies(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
    client: &Client,
) -> Result<Arc<RevisionContent>, RunConclusion> {
    if let Some(content) = &set_state.loaded.content {
        return Ok(Arc::clone(content));
    }
    let (all, sources) = read(context, set, Some(client)).await?;
    let all = Arc::new(all);
    let changed = set_state
        .loaded
        .phases
        .as_ref()
        .is_some_and(|phases| phases.observed != all.observed_phases());
    if changed {
        // The next run finds and reports the change.
        set_state.loaded.phases = None;
        return Err(RunConclusion::silent(Outcome::After(Duration::ZERO)));
    }
    set_state.loaded.content = Some(Arc::clone(&all));
    set_state.loaded.sources = sources;
    Ok(all)
}
