//! The bundles of a resolution: those that are unpacked, and the Subscriptions that go on without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use olm_api::names::user::SIGNATURE_POLICY;
use olm_classic::cluster::{Cluster, annotation, text};
use olm_classic::install_plan::BundleContent;
use olm_classic::names;
use olm_classic::resolve::{Bundle, BundleName, Resolved, take_bundles};
use olm_classic::subscription::{Resolution, Unpacked};
use olm_image::Rules;
use serde_json::Value;

use super::context::{Context, operator_group};
use super::resolution::{ResolutionInput, ResolutionResult};
use super::unpack::{self, BundleState, UnpackTimeouts};
use crate::registry::access::{Puller, own_rules};

/// The annotation of an OperatorGroup with the time that unpacking may take.
const TIMEOUT: &str = "operatorframework.io/bundle-unpack-timeout";
/// The annotation of an OperatorGroup with the time after which a bundle that failed is unpacked again.
const RETRY: &str = "operatorframework.io/bundle-unpack-min-retry-interval";

/// A resolution with the bundles that are unpacked.
pub(super) struct UnpackedResolution {
    /// The resolution, with the steps of its bundles.
    pub(super) resolution: Resolution,
    /// The state of each bundle.
    pub(super) unpacked: Vec<Unpacked>,
    /// The time after which a state changes without an event.
    pub(super) due: Option<Duration>,
    /// The bundles for which Subscriptions that do without them no longer wait.
    held_up: BTreeSet<BundleName>,
}

/// As [`unpack`]. Subscriptions that need a bundle which cannot be unpacked, or whose pull has failed for a while, are
/// left out where the others do without.
pub(super) async fn unpack_available(
    context: &Context,
    input: &ResolutionInput<'_>,
    whole: &ResolutionResult,
    resolved: &Resolved,
) -> UnpackedResolution {
    let found = unpack(context, input, resolved).await;
    let names = resolved
        .resolution
        .bundle_lookups
        .iter()
        .map(BundleName::of_lookup);
    let states: BTreeMap<BundleName, &Unpacked> = names.zip(&found.unpacked).collect();
    let failed = states.iter().filter(|(_, state)| state.has_failed());
    let failed = failed.map(|(name, _)| name.clone());
    let failed: BTreeSet<BundleName> = failed.chain(found.held_up.iter().cloned()).collect();
    if failed.is_empty() {
        return found;
    }
    let reduced = context.resolutions.without(input, whole, failed).await;
    let Some(reduced) = reduced.as_ref() else {
        return found;
    };
    let left_out = reduced.left_out.iter().filter_map(|(name, bundle)| {
        let state = states.get(bundle)?;
        Some((name.clone(), (*state).clone()))
    });
    let left_out = left_out.collect();
    let mut others = unpack(context, input, reduced).await;
    others.resolution.left_out = left_out;
    others.due = others.due.into_iter().chain(found.due).min();
    others
}

/// Unpacks the bundles of a resolution.
async fn unpack(context: &Context, input: &ResolutionInput<'_>, resolved: &Resolved) -> UnpackedResolution {
    let (namespace, cluster) = (input.namespace, input.cluster);
    let mut resolution = resolved.resolution.clone();
    if resolution.updated.is_empty() {
        // No plan is made: nothing has to be here.
        let unpacked = resolution
            .bundle_lookups
            .iter()
            .map(|_| Unpacked::Conditions(Vec::new()));
        let unpacked = unpacked.collect();
        return UnpackedResolution {
            resolution,
            unpacked,
            due: None,
            held_up: BTreeSet::new(),
        };
    }
    let timeouts = timeouts(context, cluster, namespace);
    let (mut images, mut held_up) = (BTreeMap::new(), BTreeSet::new());
    let (mut bundles, mut due): (Vec<Bundle>, Option<Duration>) = (Vec::new(), None);
    for lookup in &resolution.bundle_lookups {
        let of = |pointer: &str| text(lookup, pointer);
        let (source, place) = (of("/catalogSourceRef/name"), of("/catalogSourceRef/namespace"));
        let image = of("/path");
        let Some(found) = cluster.get(names::CATALOG_SOURCE_KIND, place, source) else {
            bundles.push(Bundle::Condition(unpack::catalog_missing()));
            continue;
        };
        let asking = resolved.asking(lookup, input.subscriptions);
        if image.is_empty() {
            let bundle = match unsigned(&asking, lookup) {
                Some(refusal) => refusal,
                None => inline(context, resolved, lookup).await,
            };
            bundles.push(bundle);
            continue;
        }
        let puller = Puller::of(found, rules(context, namespace, asking));
        match context.unpacker.ask(namespace, image, &puller, timeouts).await {
            BundleState::Unpacked(bundle) => {
                images.insert(image.to_owned(), bundle.image.clone());
                bundles.push(Bundle::Content(bundle.content.clone()));
            }
            BundleState::NotUnpacked {
                condition,
                again,
                is_held_up,
            } => {
                due = due.into_iter().chain(again).min();
                held_up.extend(is_held_up.then(|| BundleName::of_lookup(lookup)));
                bundles.push(Bundle::Condition(condition));
            }
        }
    }
    let unpacked = take_bundles(&mut resolution, bundles, namespace);
    resolution.images = images;
    UnpackedResolution {
        resolution,
        unpacked,
        due,
        held_up,
    }
}

/// The rules for a bundle that these Subscriptions of a namespace ask for.
pub(super) fn rules<'a>(
    context: &Context,
    namespace: &str,
    asking: impl IntoIterator<Item = &'a Value>,
) -> Rules {
    let own = asking.into_iter().map(own_rules);
    own.fold(context.policies.of_namespace(namespace), |all, own| all.and(&own))
}

/// The refusal of a bundle without an image, where one of these Subscriptions asks for a signature.
fn unsigned(asking: &[&Value], lookup: &Value) -> Option<Bundle> {
    let mut asking = asking.iter();
    let strict = asking.find(|subscription| own_rules(subscription) != Rules::default())?;
    Some(Bundle::Refused(format!(
        "bundle {} has no image that could be signed, and annotation {SIGNATURE_POLICY} of Subscription {} asks for that",
        text(lookup, "/identifier"),
        text(strict, "/metadata/name"),
    )))
}

/// The bundle of a lookup that the catalog holds itself.
async fn inline(context: &Context, resolved: &Resolved, lookup: &Value) -> Bundle {
    let of = |pointer: &str| text(lookup, pointer);
    let (source, place) = (of("/catalogSourceRef/name"), of("/catalogSourceRef/namespace"));
    let name = of("/identifier");
    let Some(entry) = resolved.operator(lookup) else {
        return Bundle::Error(format!(
            "bundle {name} is not in catalogsource {place}/{source} any more"
        ));
    };
    let found = context
        .sources
        .bundle(place, source, &entry.package, &entry.channel, name)
        .await;
    match found {
        Ok(bundle) => Bundle::Content(BundleContent {
            csv: bundle.csv_json,
            objects: bundle.object,
            properties: entry.properties.clone(),
        }),
        Err(error) => Bundle::Error(format!(
            "cannot read bundle {name} of catalogsource {place}/{source}: {error}"
        )),
    }
}

/// The times that the OperatorGroup sets for unpacking. Zero and negative values have the meaning that the Go
/// implementation gives them: none, and not set.
fn timeouts(context: &Context, cluster: &Cluster, namespace: &str) -> UnpackTimeouts {
    let group = operator_group(cluster, namespace).ok();
    let duration = |key: &str| unpack_time(annotation(group?, key));
    let timeout = duration(TIMEOUT).unwrap_or(context.unpack_timeout);
    let positive =
        |duration: SignedDuration| Duration::try_from(duration).ok().filter(|found| !found.is_zero());
    UnpackTimeouts {
        timeout: positive(timeout),
        retry: duration(RETRY).and_then(positive),
    }
}

/// The time in an annotation; `None` where it is not set, or negative.
fn unpack_time(value: &str) -> Option<SignedDuration> {
    let duration = SignedDuration::from_nanos(olm_text::duration::parse(value).ok()?);
    (!duration.is_negative()).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_unpacking_have_the_grammar_that_their_check_accepts() {
        let seconds = |value: &str| unpack_time(value).map(|time| time.as_secs());
        for (value, expected) in [
            ("0", Some(0)),
            ("10m", Some(600)),
            (".5m", Some(30)),
            ("1.m", Some(60)),
            ("1.5h30m", Some(7200)),
            ("-1s", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(seconds(value), expected, "{value:?}");
        }
    }
}
