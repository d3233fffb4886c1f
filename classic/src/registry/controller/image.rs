//! The image of a source: the time of its requests, and their results.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use olm_api::names::REGISTRY_POD;
use olm_classic::catalog_source::Source;
use olm_classic::cluster::text;
use olm_platform::log::chain;
use olm_platform::queue::Outcome;
use olm_rollout::failure::FailureKind;

use super::context::Context;
use super::report::{fault, report, serve, serve_catalog};
use super::state::{PersistedSource, ServedCatalog};
use crate::registry::Key;
use crate::registry::access::{Puller, own_rules};
use crate::registry::pull::{CatalogImage, ContentError};

/// The shortest time between two questions for a newer image.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// Fetches the image of a source where that is due.
pub(super) async fn image(context: &Context, key: &Key, source: &Source<'_>) -> Outcome {
    let wanted = CatalogImage::of(source.object);
    let rules = own_rules(source.object).and(&context.policies.of_cluster());
    let puller = Puller::of(source.object, rules);
    let policy = context.policies.number(&puller.rules).await;
    context.sources.with(key, |source| {
        source.remote = None;
        if source.map.is_some() {
            source.serve_nothing();
        }
    });
    if let Err(error) = serve(context, key).await {
        let fault = format!("cannot open a port for the registry: {error}");
        context.sources.with(key, |source| source.fault = Some(fault));
        return Outcome::Failed;
    }
    restore(context, key, &wanted, &puller);
    let due = next_poll(context, key, source);
    let is_current = context.sources.with(key, |source| {
        let served = source.served.as_ref();
        source.fault.is_none()
            && served
                .is_some_and(|served| served.secrets == puller.secrets && served.is_accepted(&wanted, policy))
    });
    if is_current && due.is_none_or(|due| !due.is_zero()) {
        return due.map_or(Outcome::Done, Outcome::After);
    }
    if context.sources.with(key, |source| source.served.is_none()) {
        // Clients see that something is under way.
        if let Err(failure) = report(context, key, source, source.object).await
            && failure.kind != FailureKind::Conflict
        {
            tracing::debug!(error = failure.message, "cannot report on a CatalogSource");
        }
    }
    let fetched = fetch(context, key, &wanted, &puller, policy).await;
    context
        .sources
        .with(key, |source| source.asked = Some(Timestamp::now()));
    match fetched {
        Ok(()) => {
            context.sources.with(key, |source| source.fault = None);
            next_poll(context, key, source).map_or(Outcome::Done, Outcome::After)
        }
        Err(ContentError::Stopped) => Outcome::Done,
        Err(error) => {
            let fault = fault(key, &wanted.reference, &error) + &hint(&error);
            context.sources.with(key, |source| source.fault = Some(fault));
            Outcome::Failed
        }
    }
}

/// What a user can change about the CatalogSource.
fn hint(error: &ContentError) -> String {
    if error.is_about_database() {
        format!("; or set the annotation {REGISTRY_POD} to \"true\", so that a Pod of the image serves it")
    } else if error.is_about_directory() {
        "; correct `spec.grpcPodConfig.extractContent.catalogDir`".to_owned()
    } else {
        String::new()
    }
}

/// Serves the content of the source from before the process was started, until the registry names the newest.
fn restore(context: &Context, key: &Key, wanted: &CatalogImage, puller: &Puller) {
    let (is_empty, uid) = context
        .sources
        .with(key, |source| (source.served.is_none(), source.uid.clone()));
    let kept = context
        .sources
        .kept(key)
        .filter(|kept| is_empty && kept.uid == uid && kept.is_of(wanted) && kept.secrets == puller.secrets);
    let Some(kept) = kept else { return };
    if let Some(content) = context
        .contents()
        .and_then(|contents| contents.stored(&kept.name))
    {
        let served = ServedCatalog {
            wanted: wanted.clone(),
            secrets: kept.secrets,
            content,
            name: kept.name,
            accepted_by: None,
        };
        serve_catalog(context, key, served);
    }
}

/// Fetches the content of an image and serves it; `policy` is the number of the policies for it.
async fn fetch(
    context: &Context,
    key: &Key,
    wanted: &CatalogImage,
    puller: &Puller,
    policy: u64,
) -> Result<(), ContentError> {
    let contents = context.contents().ok_or(ContentError::Stopped)?;
    let resolved = contents.resolve(&wanted.reference, puller).await?;
    let name = wanted.store_name(&resolved.pinned);
    let uid = context.sources.with(key, |source| {
        // Refused content may be fetched again once it differs.
        source.refused.take_if(|(refused, _)| *refused != name);
        source.uid.clone()
    });
    let known = context.sources.with(key, |source| {
        let served = source.served.as_ref();
        served
            .filter(|served| served.name == name && served.secrets == puller.secrets)
            .map(|served| (Arc::clone(&served.content), served.is_accepted(wanted, policy)))
    });
    let catalog = if let Some((known, is_accepted)) = known {
        if !is_accepted {
            contents.verify(&resolved).await?;
        }
        known
    } else {
        if let Some((_, fault)) = context.sources.with(key, |source| source.refused.clone()) {
            return Err(ContentError::Refused(fault));
        }
        let fetched = contents.fetch(wanted, &resolved).await;
        fetched.inspect_err(|error| {
            if error.is_about_content() {
                let refused = (name.clone(), chain(error));
                context.sources.with(key, |source| source.refused = Some(refused));
            }
        })?
    };
    let kept = PersistedSource {
        uid,
        wanted: wanted.reference.clone(),
        directory: wanted.directory.clone(),
        secrets: puller.secrets.clone(),
        name: name.clone(),
    };
    context.sources.keep(key, kept);
    let served = ServedCatalog {
        wanted: wanted.clone(),
        secrets: puller.secrets.clone(),
        content: catalog,
        name,
        accepted_by: Some(policy),
    };
    serve_catalog(context, key, served);
    Ok(())
}

/// The time until the registry is asked for a newer image, where it is; zero when that is due.
fn next_poll(context: &Context, key: &Key, source: &Source<'_>) -> Option<Duration> {
    let interval = Duration::try_from(source.poll_interval()?).unwrap_or(SHORTEST_POLL);
    let interval = spread(interval.max(SHORTEST_POLL), text(source.object, "/metadata/uid"));
    let asked = context.sources.with(key, |source| source.asked);
    let Some(asked) = asked else {
        return Some(Duration::ZERO);
    };
    let passed = Duration::try_from(Timestamp::now().duration_since(asked)).unwrap_or_default();
    Some(interval.saturating_sub(passed))
}

/// The interval plus up to a tenth, so that sources that are created together do not poll together for ever.
fn spread(interval: Duration, uid: &str) -> Duration {
    let percent = uid
        .bytes()
        .fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
        % 11;
    interval + interval.saturating_mul(percent) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_with_one_interval_poll_at_different_times() {
        let interval = Duration::from_mins(10);
        let spreads: std::collections::BTreeSet<Duration> = (0..50)
            .map(|number| spread(interval, &format!("uid-{number}")))
            .collect();
        assert!(spreads.len() > 5, "{spreads:?}");
        let limits = interval..=interval + interval / 10;
        assert!(
            spreads.iter().all(|spread| limits.contains(spread)),
            "{spreads:?}"
        );
        assert_eq!(spread(interval, "u"), spread(interval, "u"));
    }
}
