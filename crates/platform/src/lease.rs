//! Leader election on a Lease, with the semantics of client-go so that the reference and this never lead at once.
//!
//! Clocks of other machines are not trusted: a lease counts as expired when its `renewTime` has not changed for its
//! duration *as seen from here*.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Which lease, and the times of the election.
#[derive(Debug, Clone)]
pub struct LeaseSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who we are; unique to this process.
    pub identity: String,
    /// How long others wait after the last renewal before they take over.
    pub duration: Duration,
    /// The leader steps down when it could not renew for this long; shorter than `duration`.
    pub renew_deadline: Duration,
    /// How often the leader renews.
    pub renew_every: Duration,
    /// How often the others look.
    pub look_every: Duration,
}

impl LeaseSettings {
    /// The reference's times (137 s, 107 s, 26 s), but waiting replicas look every 2 s so that a released lease
    /// is taken at once.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(137),
            renew_deadline: Duration::from_secs(107),
            renew_every: Duration::from_secs(26),
            look_every: Duration::from_secs(2),
        }
    }
}

/// Leadership was lost: another may act now, so this process has to end.
#[derive(Debug, thiserror::Error)]
#[error("lost the lease `{namespace}/{name}`: not renewed for {}s", .deadline.as_secs())]
pub struct LeaseLost {
    namespace: String,
    name: String,
    deadline: Duration,
}

/// A name that no other process has: the host's name and a random part.
pub fn unique_identity() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned());
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    format!("{host}_{random:016x}")
}

/// Takes part in the election until `stop` is cancelled; `leading` says whether we lead. On stop the lease is
/// released, so that another takes over at once.
///
/// # Errors
/// When leadership was held and lost. The caller ends the process.
pub async fn elect(
    client: Client,
    settings: LeaseSettings,
    stop: CancellationToken,
    leading: watch::Sender<bool>,
) -> Result<(), LeaseLost> {
    let api = Api::<Lease>::namespaced(client, &settings.namespace);
    let mut seen: Option<Seen> = None;
    while !stop.is_cancelled() {
        match try_acquire(&api, &settings, &mut seen).await {
            Ok(true) => {
                tracing::info!(lease = settings.name, identity = settings.identity, "leading");
                leading.send_replace(true);
                let result = hold(&api, &settings, &stop).await;
                leading.send_replace(false);
                return result;
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(lease = settings.name, %error, "cannot look at the lease; will try again");
            }
        }
        tokio::select! { () = stop.cancelled() => {}, () = tokio::time::sleep(settings.look_every) => {} }
    }
    Ok(())
}

/// What the lease looked like, and since when it has looked so.
struct Seen {
    holder: String,
    renewed: Option<Timestamp>,
    since: Instant,
}

/// What to do about a lease that is there.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    Ours,
    Free,
    Taken,
}

fn claim(spec: &LeaseSpec, identity: &str, unchanged_for: Duration) -> Claim {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder == identity {
        return Claim::Ours;
    }
    let duration = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0));
    if holder.is_empty() || unchanged_for >= duration {
        Claim::Free
    } else {
        Claim::Taken
    }
}

async fn try_acquire(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    seen: &mut Option<Seen>,
) -> Result<bool, kube::Error> {
    let Some(lease) = api.get_opt(&settings.name).await? else {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(settings.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(held(settings, Timestamp::now(), None)),
        };
        return match api.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        };
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.clone().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let since = match seen {
        Some(before) if before.holder == holder && before.renewed == renewed => before.since,
        _ => {
            let since = Instant::now();
            *seen = Some(Seen {
                holder,
                renewed,
                since,
            });
            since
        }
    };
    if claim(&spec, &settings.identity, since.elapsed()) == Claim::Taken {
        return Ok(false);
    }
    replace(
        api,
        settings,
        lease,
        held(settings, Timestamp::now(), Some(&spec)),
    )
    .await
}

/// Renews until told to stop; fails when the lease could not be renewed in time or is another's.
async fn hold(api: &Api<Lease>, settings: &LeaseSettings, stop: &CancellationToken) -> Result<(), LeaseLost> {
    let lost = || LeaseLost {
        namespace: settings.namespace.clone(),
        name: settings.name.clone(),
        deadline: settings.renew_deadline,
    };
    let mut renewed = Instant::now();
    let mut next = settings.renew_every;
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                release(api, settings).await;
                return Ok(());
            }
            () = tokio::time::sleep(next) => {}
        }
        let left = settings.renew_deadline.saturating_sub(renewed.elapsed());
        match tokio::time::timeout(left, renew(api, settings)).await {
            Ok(Ok(Renewal::Done)) => {
                renewed = Instant::now();
                next = settings.renew_every;
            }
            Ok(Ok(Renewal::Taken)) | Err(_) => return Err(lost()),
            Ok(Ok(Renewal::Conflict)) => next = Duration::from_millis(200),
            Ok(Err(error)) => {
                tracing::warn!(lease = settings.name, %error, "cannot renew the lease; will try again");
                next = settings.look_every;
            }
        }
        if renewed.elapsed() >= settings.renew_deadline {
            return Err(lost());
        }
    }
}

enum Renewal {
    Done,
    Conflict,
    Taken,
}

async fn renew(api: &Api<Lease>, settings: &LeaseSettings) -> Result<Renewal, kube::Error> {
    let lease = api.get(&settings.name).await?;
    let spec = lease.spec.clone().unwrap_or_default();
    if spec.holder_identity.as_deref() != Some(settings.identity.as_str()) {
        return Ok(Renewal::Taken);
    }
    let done = replace(
        api,
        settings,
        lease,
        held(settings, Timestamp::now(), Some(&spec)),
    )
    .await?;
    Ok(if done { Renewal::Done } else { Renewal::Conflict })
}

async fn release(api: &Api<Lease>, settings: &LeaseSettings) {
    let released = async {
        let lease = api.get(&settings.name).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(settings.identity.as_str()) {
            return Ok(true);
        }
        let now = MicroTime(Timestamp::now());
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(now.clone()),
            acquire_time: Some(now),
            ..spec
        };
        replace(api, settings, lease, spec).await
    };
    match tokio::time::timeout(Duration::from_secs(3), released).await {
        Ok(Ok(_)) => tracing::info!(lease = settings.name, "lease released"),
        Ok(Err(error)) => {
            tracing::warn!(lease = settings.name, %error, "cannot release the lease; it will expire");
        }
        Err(_) => tracing::warn!(
            lease = settings.name,
            "releasing the lease took too long; it will expire"
        ),
    }
}

/// Writes the lease back at the version it was read; `false` when another was faster.
async fn replace(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    mut lease: Lease,
    spec: LeaseSpec,
) -> Result<bool, kube::Error> {
    lease.spec = Some(spec);
    match api.replace(&settings.name, &PostParams::default(), &lease).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

fn held(settings: &LeaseSettings, now: Timestamp, before: Option<&LeaseSpec>) -> LeaseSpec {
    let ours = before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(settings.identity.as_str()));
    let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        lease_duration_seconds: Some(i32::try_from(settings.duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: before
            .filter(|_| ours)
            .and_then(|spec| spec.acquire_time.clone())
            .or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if before.is_none() || ours {
            transitions
        } else {
            transitions.saturating_add(1)
        }),
        ..before.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(137),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_over_only_when_released_or_unchanged_for_its_duration() {
        let seconds = Duration::from_secs;
        assert_eq!(claim(&spec("me"), "me", seconds(0)), Claim::Ours);
        assert_eq!(claim(&spec("other"), "me", seconds(136)), Claim::Taken);
        assert_eq!(claim(&spec("other"), "me", seconds(137)), Claim::Free);
        assert_eq!(claim(&spec(""), "me", seconds(0)), Claim::Free);
    }

    #[test]
    fn a_new_holder_counts_as_a_transition_and_a_renewal_does_not() {
        let settings = LeaseSettings::new("ns", "lease", "me");
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(
            held(&settings, now, Some(&spec("other"))).lease_transitions,
            Some(5)
        );
        assert_eq!(held(&settings, now, Some(&spec("me"))).lease_transitions, Some(4));
        assert_eq!(held(&settings, now, None).lease_transitions, Some(0));
        assert_eq!(held(&settings, now, None).lease_duration_seconds, Some(137));
    }
}
