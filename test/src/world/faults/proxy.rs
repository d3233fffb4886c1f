//! The proxy: plain HTTP on the loopback address, TLS to the API server.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::Kubeconfig;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::calls::Call;
use super::plan::{Fault, Plan};
use super::watches::{Broken, Chunks, disturb};
use crate::cluster::Cluster;

type Body = UnsyncBoxBody<Bytes, Broken>;

/// Sees a write of a status before it arrives. The write waits for it.
pub type Observer = Arc<dyn Fn(Call) -> BoxFuture<'static, ()> + Send + Sync>;

/// A proxy to the API server with faults. Dropping it ends it.
pub struct Proxy {
    /// The address for clients.
    url: String,
    state: Arc<State>,
    _stop: DropGuard,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

struct State {
    server: String,
    client: reqwest::Client,
    observer: Observer,
    course: Mutex<Course>,
    /// Whether the manager must die: no call passes any more.
    crashed: watch::Sender<bool>,
}

/// The plan and its progress.
#[derive(Default)]
struct Course {
    plan: Plan,
    count: usize,
    met: usize,
    calls: Vec<Call>,
}

impl Proxy {
    /// Starts a proxy to the API server of a cluster.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read or no port is free.
    pub async fn start(cluster: &Cluster, observer: Observer) -> Result<Self> {
        let admin = Kubeconfig::read_from(cluster.kubeconfig())?;
        let named = admin.clusters.into_iter().next().and_then(|named| named.cluster);
        let way = named.context("the kubeconfig has no cluster")?;
        let authority = match (way.certificate_authority_data, way.certificate_authority) {
            (Some(data), _) => STANDARD.decode(data)?,
            (None, Some(path)) => std::fs::read(path)?,
            (None, None) => anyhow::bail!("the kubeconfig names no authority"),
        };
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&authority)?])
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let state = Arc::new(State {
            server: way.server.context("the kubeconfig has no server")?,
            client,
            observer,
            course: Mutex::default(),
            crashed: watch::Sender::new(false),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(accept(listener, Arc::clone(&state))),
        );
        Ok(Self {
            url,
            state,
            _stop: stop.drop_guard(),
        })
    }

    /// The address for clients, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Begins a plan: its calls are counted from 1.
    pub fn follow(&self, plan: Plan) {
        let mut course = self.state.course();
        (course.plan, course.count, course.met) = (plan, 0, 0);
    }

    /// The number of counted calls, and of faults that happened.
    pub fn progress(&self) -> (usize, usize) {
        let course = self.state.course();
        (course.count, course.met)
    }

    /// The mutating calls about a name, in the order in which they came.
    pub fn calls(&self, name: &str) -> Vec<Call> {
        let course = self.state.course();
        course
            .calls
            .iter()
            .filter(|call| call.is_about(name))
            .cloned()
            .collect()
    }

    /// The time of the last mutating call about a name, except dry runs.
    pub fn last_change(&self, name: &str) -> Option<Instant> {
        let course = self.state.course();
        let mut changes = course.calls.iter().rev().filter(|call| !call.dry_run);
        changes.find(|call| call.is_about(name)).map(|call| call.at)
    }

    /// Forgets the calls about a name.
    pub fn forget(&self, name: &str) {
        self.state.course().calls.retain(|call| !call.is_about(name));
    }

    /// Whether the manager must die.
    pub fn has_crashed(&self) -> bool {
        *self.state.crashed.borrow()
    }

    /// Waits until the manager is to die.
    pub async fn crash(&self) {
        let mut crashed = self.state.crashed.subscribe();
        // The sender lives as long as this.
        let _ = crashed.wait_for(|crashed| *crashed).await;
    }

    /// Lets calls pass again after the manager is dead. Its earlier requests get no answer.
    pub fn recover(&self) {
        self.state.crashed.send_replace(false);
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, Arc::clone(&state)));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| Arc::clone(&state).answer(request));
    // An error is the end of one connection, which the client notices, as it should.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl State {
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request. An error closes its connection.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        self.alive().await;
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let Some(call) = Call::of(&head, &body) else {
            return self.forward(head, body).await;
        };
        let (came, fault) = self.course().enter(call.clone());
        match fault {
            Some(Fault::CrashBefore) => self.die().await,
            Some(Fault::Answer(code)) => return failure(code),
            Some(Fault::Closed) => return Err("closed as planned".into()),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::CrashAfter | Fault::LostAnswer | Fault::LateError) | None => {}
        }
        // Others may have brought the end meanwhile.
        self.alive().await;
        if call.place.subresource == "status" && !call.dry_run {
            (self.observer)(call).await;
        }
        let answer = self.forward(head, body).await?;
        if let Some(call) = self.course().calls.iter_mut().rev().find(|call| call.at == came) {
            call.code = Some(answer.status().as_u16());
        }
        match fault {
            Some(Fault::CrashAfter) => {
                self.die().await;
                Ok(answer)
            }
            Some(Fault::LostAnswer) => Err("lost as planned".into()),
            Some(Fault::LateError) => failure(500),
            _ => Ok(answer),
        }
    }

    /// Waits for ever when the manager is to die.
    async fn alive(&self) {
        if *self.crashed.borrow() {
            std::future::pending::<()>().await;
        }
    }

    async fn die(&self) {
        self.crashed.send_replace(true);
        std::future::pending::<()>().await;
    }

    async fn forward(&self, head: Parts, body: Bytes) -> Result<Response<Body>, Broken> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let query = head.uri.query().unwrap_or_default();
        let is_watch = query
            .split('&')
            .any(|part| matches!(part, "watch=true" | "watch=1"));
        let answer = self
            .client
            .request(head.method.clone(), format!("{}{path}", self.server))
            .headers(between(head.headers))
            .body(body)
            .send()
            .await?;
        let mut response = Response::new(());
        *response.status_mut() = answer.status();
        *response.headers_mut() = between(answer.headers().clone());
        let chunks: Chunks = Box::pin(answer.bytes_stream().map_err(Broken::from));
        let disturbance = self.course().plan.watches;
        let chunks = match disturbance {
            Some(watches) if is_watch => disturb(chunks, watches),
            _ => chunks,
        };
        let frames = chunks.map(|chunk| chunk.map(Frame::data));
        Ok(response.map(|()| StreamBody::new(frames).boxed_unsync()))
    }
}

impl Course {
    /// Records a call. Returns its time and its fault.
    fn enter(&mut self, mut call: Call) -> (Instant, Option<Fault>) {
        let mut fault = None;
        if self.plan.numbers(&call) {
            self.count += 1;
            call.number = Some(self.count);
            fault = self.plan.at.get(&self.count).copied();
            self.met += usize::from(fault.is_some());
        }
        let at = call.at;
        self.calls.push(call);
        (at, fault)
    }
}

/// The headers that are about more than one connection.
fn between(mut headers: HeaderMap) -> HeaderMap {
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH, HOST] {
        headers.remove(name);
    }
    headers
}

/// An answer as the API server would give it.
fn failure(code: u16) -> Result<Response<Body>, Broken> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected", "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code)?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == 429 {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Ok(response)
}
