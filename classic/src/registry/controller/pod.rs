//! A registry that is a Pod, for sources that ask for one: the rules of the reference, and a connection to its Service.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use olm_classic::catalog_source::{
    CatalogSourceDecision, FAULT, Images, Source, led_to_program, pass, refused,
};
use olm_classic::cluster::{Cluster, text};
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use super::context::Context;
use super::pod_image::{PodImage, pod_image};
use super::remote::{Remote, State};
use super::report::{CONNECTING, FAILED, READY, dialled, replace_status};
use crate::objects::write::Actor;
use crate::registry::{Key, endpoint};

/// The user of registry Pods in restricted namespaces.
const USER: i64 = 1001;
/// The pause until the next pass where its time cannot be represented.
const PENDING: Duration = Duration::from_secs(30);

/// One pass over a source whose registry is a Pod; `live` is the source as it is stored.
///
/// # Errors
/// An object was not read, written or deleted.
pub(super) async fn pod(
    context: &Arc<Context>,
    key: &Key,
    source: &Source<'_>,
    live: &Value,
) -> Result<Outcome, RequestFailure> {
    let mut cluster = source.cluster.clone();
    gather(context, source, &mut cluster).await?;
    let source = Source {
        cluster: &cluster,
        ..*source
    };
    let (catalog, refusal) = match pod_image(context, key, &source).await {
        PodImage::Unasked => (None, None),
        PodImage::Accepted(catalog, refusal) => (Some(catalog), refusal),
        PodImage::Refused(fault) => {
            refuse(context, key, &source, live, fault).await?;
            return Ok(Outcome::Failed);
        }
    };
    // The objects that led to this program go first: the Service gets a selector, and clients must not be led to a
    // port that is closed.
    let mut is_led_here = false;
    for own in led_to_program(&source) {
        context.writer().delete(&Actor::Own, own).await?;
        is_led_here = true;
    }
    if is_led_here {
        return Ok(Outcome::After(Duration::from_secs(1)));
    }
    let (connection, fault) = dial(context, key, &source);
    let registry = &context.args.registry;
    let images = Images {
        catalog,
        config_map_server: registry.config_map_server_image.clone(),
        opm: registry.opm_image.clone(),
        utilities: registry.util_image.clone(),
        run_as_user: registry.set_workload_user_id.then_some(USER),
    };
    let decision = pass(&source, &images, connection, Timestamp::now());
    write(context, key, &cluster, &decision).await?;
    let mut status = decision.status;
    let is_refused = refusal.is_some();
    if let (Some(fault), Some(status)) = (refusal.or(fault), status.as_object_mut()) {
        status.entry("reason").or_insert_with(|| FAULT.into());
        status.entry("message").or_insert_with(|| fault.into());
    }
    replace_status(context, key, source.object, live, status, connection).await?;
    Ok(match decision.next {
        _ if is_refused || decision.error.is_some() => Outcome::Failed,
        Some(next) => Outcome::After(Duration::try_from(next).unwrap_or(PENDING)),
        None => Outcome::Done,
    })
}

/// Says why no Pod of the image is made. What serves the source stays.
async fn refuse(
    context: &Arc<Context>,
    key: &Key,
    source: &Source<'_>,
    live: &Value,
    fault: String,
) -> Result<(), RequestFailure> {
    let connection = if context.sources.with(key, |source| source.served.is_some()) {
        READY
    } else if source.has_pod() {
        dial(context, key, source).0
    } else {
        context.sources.with(key, |source| {
            source.remote = None;
            source.fault = Some(fault.clone());
        });
        FAILED
    };
    let status = refused(source, &fault, connection, Timestamp::now());
    replace_status(context, key, source.object, live, status, connection).await
}

/// Reads the objects that are not followed.
async fn gather(context: &Context, source: &Source<'_>, cluster: &mut Cluster) -> Result<(), RequestFailure> {
    let part = |pointer: &str| text(source.object, pointer).to_owned();
    let (namespace, name) = (part("/metadata/namespace"), part("/metadata/name"));
    let policies = "networking.k8s.io/v1";
    let wanted = [
        ("v1", "Namespace", "", namespace.clone()),
        ("v1", "ServiceAccount", namespace.as_str(), name.clone()),
        (
            policies,
            "NetworkPolicy",
            &namespace,
            format!("{name}-grpc-server"),
        ),
        (
            policies,
            "NetworkPolicy",
            &namespace,
            format!("{name}-unpack-bundles"),
        ),
    ];
    for (api_version, kind, place, name) in wanted {
        let kinds = (api_version, kind);
        if let Some(found) = context.writer().read(&Actor::Own, kinds, place, &name).await? {
            cluster.insert(Arc::new(found));
        }
    }
    Ok(())
}

/// Keeps a connection to the Pod; its state, and why there is none.
fn dial(context: &Arc<Context>, key: &Key, source: &Source<'_>) -> (&'static str, Option<String>) {
    let address = endpoint::find(source.cluster, source.object).unwrap_or_default();
    let state = context.sources.with(key, |source| {
        source.serve_nothing();
        let known = source.remote.as_ref().filter(|remote| remote.target == address);
        if known.is_none() {
            let remote = Remote::open(address.clone(), context.trust.clone(), dialled(context, key));
            source.remote = Some(Arc::new(remote));
        }
        source
            .remote
            .as_ref()
            .map(|remote| remote.state())
            .unwrap_or_default()
    });
    match state {
        State::Ready(_) => (READY, None),
        State::Connecting => (CONNECTING, None),
        State::Failed(error) => (FAILED, Some(error)),
    }
}

/// Writes and deletes the objects of a pass.
async fn write(
    context: &Context,
    key: &Key,
    cluster: &Cluster,
    decision: &CatalogSourceDecision,
) -> Result<(), RequestFailure> {
    for object in &decision.written {
        context.writer().write(&Actor::Own, object).await?;
    }
    for name in &decision.deleted {
        if let Some(pod) = cluster.get("Pod", &key.0, name) {
            context.writer().delete(&Actor::Own, pod).await?;
        }
    }
    let pods: Api<Pod> = Api::namespaced(context.writer().own().clone(), &key.0);
    for name in &decision.dead {
        // Its node is gone: no kubelet would end it.
        match pods.delete(name, &DeleteParams::default().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(RequestFailure::new(FailureKind::Transient, error.to_string())),
            Ok(_) => {}
        }
    }
    Ok(())
}
