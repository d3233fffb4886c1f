//! Leader election on a Lease, with the semantics of client-go so that the reference implementation and this one never
//! lead at the same time.
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

/// The timeout of one request to the API server: a dead connection must not use up the time for others.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The lease and the times of the election.
#[derive(Debug, Clone)]
pub struct LeaseSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The holder's identity; unique to this process.
    pub identity: String,
    /// The time after the last renewal after which others take over.
    pub duration: Duration,
    /// The leader steps down when it could not renew for this long; shorter than `duration`.
    pub renew_deadline: Duration,
    /// The interval of renewals by the leader.
    pub renew_every: Duration,
    /// The interval of reads by the others.
    pub look_every: Duration,
}

impl LeaseSettings {
    /// The times of the reference implementation (137 s, 107 s, 26 s), but waiting replicas read the lease every 2 s so
    /// that a released one is taken at once.
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

/// Leadership was lost. Another process may write now, so this process must end.
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

/// Takes part in the election until `stop` is cancelled; `leading` reports whether this process leads. On stop the
/// lease is released, so that another process takes over at once.
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
    let mut seen: Option<ObservedLease> = None;
    while !stop.is_cancelled() {
        let attempt = tokio::time::timeout(ATTEMPT, try_acquire(&api, &settings, &mut seen));
        let attempt = tokio::select! { () = stop.cancelled() => break, attempt = attempt => attempt };
        match attempt.unwrap_or_else(|_| Err(late())) {
            Ok(true) => {
                tracing::info!(lease = settings.name, identity = settings.identity, "leading");
                leading.send_replace(true);
                let result = hold(&api, &settings, &stop).await;
                leading.send_replace(false);
                return result;
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(lease = settings.name, %error, "cannot read the lease; retrying");
            }
        }
        tokio::select! { () = stop.cancelled() => {}, () = tokio::time::sleep(settings.look_every) => {} }
    }
    Ok(())
}

fn late() -> kube::Error {
    kube::Error::Service(Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)))
}

/// The last observed state of the lease, and the time since which it is unchanged.
struct ObservedLease {
    holder: String,
    renewed: Option<Timestamp>,
    since: Instant,
}

/// The meaning of an existing lease for this process.
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
    seen: &mut Option<ObservedLease>,
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
            *seen = Some(ObservedLease {
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

/// Renews until `stop` is cancelled; fails when the lease could not be renewed in time or has another holder.
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
        let attempt = tokio::time::timeout(left.min(ATTEMPT), renew(api, settings)).await;
        match attempt.unwrap_or_else(|_| Err(late())) {
            Ok(Renewal::Done) => {
                renewed = Instant::now();
                next = settings.renew_every;
            }
            Ok(Renewal::Taken) => return Err(lost()),
            Ok(Renewal::Conflict) => next = Duration::from_millis(200),
            Err(error) => {
                tracing::warn!(lease = settings.name, %error, "cannot renew the lease; retrying");
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

/// Writes the lease at the version at which it was read; `false` if another writer was faster.
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use kube::client::Body;
    use serde_json::{Value, json};

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

    /// An API server that knows one Lease.
    #[derive(Clone, Default)]
    struct Server {
        lease: Arc<Mutex<Option<Value>>>,
        /// Requests hang while this is set.
        silent: Arc<AtomicBool>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let server = server.clone();
                async move { Ok::<_, std::io::Error>(server.answer(request).await) }
            });
            Client::new(service, "ns")
        }

        async fn answer(&self, request: http::Request<Body>) -> http::Response<Body> {
            if self.silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let mut lease = self.lease.lock().unwrap();
            let (status, answer) = match (head.method.as_str(), lease.as_ref()) {
                ("GET", Some(lease)) => (200, lease.clone()),
                ("POST", None) | ("PUT", Some(_)) => {
                    let mut new: Value = serde_json::from_slice(&body).unwrap();
                    let version =
                        |lease: &Value| lease["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                    let before = lease.as_ref().and_then(version);
                    if before.is_some() && version(&new) != before {
                        (409, failure(409, "Conflict"))
                    } else {
                        let next = before.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
                        new["metadata"]["resourceVersion"] = Value::String(next.to_string());
                        *lease = Some(new.clone());
                        (200, new)
                    }
                }
                ("POST", Some(_)) => (409, failure(409, "AlreadyExists")),
                _ => (404, failure(404, "NotFound")),
            };
            http::Response::builder()
                .status(status)
                .body(Body::from(answer.to_string().into_bytes()))
                .unwrap()
        }

        fn holder(&self) -> String {
            let lease = self.lease.lock().unwrap();
            lease.as_ref().unwrap()["spec"]["holderIdentity"]
                .as_str()
                .unwrap()
                .to_owned()
        }

        fn set(&self, field: &str, value: Value) {
            self.lease.lock().unwrap().as_mut().unwrap()["spec"][field] = value;
        }
    }

    fn failure(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": ""})
    }

    struct Candidate {
        stop: CancellationToken,
        leading: watch::Receiver<bool>,
        task: tokio::task::JoinHandle<Result<(), LeaseLost>>,
    }

    fn candidate(server: &Server, identity: &str) -> Candidate {
        let (sender, leading) = watch::channel(false);
        let stop = CancellationToken::new();
        let settings = LeaseSettings::new("ns", "lease", identity);
        let task = tokio::spawn(elect(server.client(), settings, stop.clone(), sender));
        Candidate { stop, leading, task }
    }

    impl Candidate {
        /// Returns the time until this process leads.
        async fn leads(&mut self) -> Duration {
            let start = Instant::now();
            self.leading.wait_for(|leading| *leading).await.unwrap();
            start.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_a_released_lease_is_taken_at_once() {
        let server = Server::default();
        let mut first = candidate(&server, "first");
        first.leads().await;
        let mut second = candidate(&server, "second");
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(*first.leading.borrow() && !*second.leading.borrow());
        first.stop.cancel();
        first.task.await.unwrap().unwrap();
        assert!(second.leads().await <= Duration::from_secs(2));
        assert_eq!(server.holder(), "second");
        second.stop.cancel();
        second.task.await.unwrap().unwrap();
        assert_eq!(server.holder(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_holders_lease_is_taken_after_its_duration_whatever_its_clock_said() {
        let server = Server::default();
        let mut first = candidate(&server, "first");
        first.leads().await;
        first.task.abort();
        // A clock that is a century ahead or behind has no effect.
        server.set("renewTime", json!("2126-01-01T00:00:00.000000Z"));
        let mut second = candidate(&server, "second");
        let waited = second.leads().await.as_secs();
        assert!((137..=140).contains(&waited), "{waited}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_renew_steps_down_before_another_may_lead() {
        let server = Server::default();
        let mut leader = candidate(&server, "leader");
        leader.leads().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        server.silent.store(true, Ordering::SeqCst);
        let start = Instant::now();
        let error = leader.task.await.unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "lost the lease `ns/lease`: not renewed for 107s"
        );
        assert!(
            start.elapsed() <= Duration::from_secs(108),
            "{:?}",
            start.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_silence_does_not_lose_the_lease() {
        let server = Server::default();
        let mut leader = candidate(&server, "leader");
        leader.leads().await;
        server.silent.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(80)).await;
        server.silent.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(*leader.leading.borrow());
        leader.stop.cancel();
        leader.task.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_process_wrote_is_lost() {
        let server = Server::default();
        let mut leader = candidate(&server, "leader");
        leader.leads().await;
        server.set("holderIdentity", json!("thief"));
        assert!(leader.task.await.unwrap().is_err());
        assert!(!*leader.leading.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_at_once_on_shutdown_even_while_the_api_server_is_silent() {
        let server = Server::default();
        server.silent.store(true, Ordering::SeqCst);
        let waiting = candidate(&server, "waiting");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let start = Instant::now();
        waiting.stop.cancel();
        waiting.task.await.unwrap().unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
