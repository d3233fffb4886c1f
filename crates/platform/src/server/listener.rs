//! The listener: TLS, limits for clients, graceful shutdown.

mod places;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use self::places::{Slot, Slots};
use super::progress::{CloseReason, OpenResponses, Tracked};
use super::stall::{Opening, StallGuard};
use crate::tls::client::ClientCertificates;

/// Limits for clients.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The number of concurrent connections. For one more, the peer with the most loses its idlest.
    pub connections: usize,
    /// The number of concurrent connections from one address. For one more, the listener closes the idlest of the
    /// address, or the new one if each has an answer in progress.
    pub per_peer: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request, also the time that a connection may idle between two.
    pub head: Duration,
    /// The time in which a connection with an answer in progress must transfer at least 16 KiB.
    pub stall: Duration,
    /// The number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// The time for answers in progress to end after the server begins to stop.
    pub drain: Duration,
}

impl Limits {
    /// Limits for a port with few clients and short answers.
    pub const fn small() -> Self {
        const TIME: Duration = Duration::from_secs(5);
        Self {
            connections: 32,
            per_peer: 8,
            handshake: TIME,
            head: TIME,
            stall: TIME,
            streams: 1,
            drain: TIME,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_peer: 256,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            streams: 64,
            drain: Duration::from_secs(8),
        }
    }
}

/// The security of connections.
#[derive(Clone)]
pub enum Transport {
    /// TLS with this configuration. Its certificate resolver may change certificates at any time.
    Tls(Arc<ServerConfig>),
    /// None: for a laptop.
    Plain,
}

/// Serves until `shutdown` is cancelled, then lets answers in progress end within [`Limits::drain`].
///
/// A slow handshake or client delays no other, because every connection is a separate task. If the configuration
/// requests certificates of clients, the requests of a client with one have [`ClientCertificates`] as an extension.
pub async fn serve<F, Answer, B>(
    listener: TcpListener,
    transport: Transport,
    limits: Limits,
    shutdown: CancellationToken,
    respond: F,
) where
    F: Fn(Request<Incoming>, SocketAddr) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<ConnectionError>> + Send + Unpin + 'static,
{
    let places = Slots::new(limits.connections, limits.per_peer);
    // Resolves when the last one is closed.
    let connections = GracefulShutdown::new();
    let acceptor = match transport {
        Transport::Tls(config) => Some(TlsAcceptor::from(config)),
        Transport::Plain => None,
    };
    let limits = Arc::new(limits);
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // There are no free descriptors, or the client is gone already: never a reason to stop.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(place) = places.take(peer.ip()) else {
            tracing::debug!(%peer, "closing a connection: its peer has too many");
            continue;
        };
        let (respond, limits, open) = (respond.clone(), Arc::clone(&limits), connections.watcher());
        let (acceptor, shutdown) = (acceptor.clone(), shutdown.clone());
        tokio::spawn(async move {
            let _open = open;
            let from = Peer { peer, place: &place };
            tokio::select! {
                ended = connection(stream, acceptor, respond, from, &limits, &shutdown) => if let Err(error) = ended {
                    tracing::debug!(%peer, error = %error, "connection ended");
                },
                () = place.evicted() => tracing::debug!(%peer, "connection closed: its place is needed"),
            }
        });
    }
    drop(listener);
    if timeout(limits.drain, connections.shutdown()).await.is_err() {
        tracing::warn!("answers under way were cut off at shutdown");
    }
}

async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, peer))
}

/// The origin of a connection, and its slot.
#[derive(Clone, Copy)]
struct Peer<'connection> {
    peer: SocketAddr,
    place: &'connection Slot,
}

/// The reason why a connection ended early.
pub type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// The protocol of the client. TLS negotiates it. Detection would wait for the first bytes without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Bytes of an answer that may wait for an HTTP/2 client, for each of its requests. The size keeps the connection busy;
/// the library's default is six times larger.
const SEND_BUFFER: usize = 64 << 10;
/// The number of bytes at the start of an HTTP/2 connection.
const PREFACE: usize = 24;

async fn connection<F, Answer, B>(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    respond: F,
    from: Peer<'_>,
    limits: &Limits,
    shutdown: &CancellationToken,
) -> Result<(), ConnectionError>
where
    F: Fn(Request<Incoming>, SocketAddr) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<ConnectionError>> + Send + Unpin + 'static,
{
    let stream = StallGuard::new(stream, limits.stall);
    let (stream, protocol, certificates) = match acceptor {
        Some(acceptor) => {
            let stream = timeout(limits.handshake, acceptor.accept(stream)).await??;
            let session = stream.get_ref().1;
            let protocol = match session.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                _ => Protocol::Http1,
            };
            let certificates = ClientCertificates::new(session.peer_certificates());
            (Either::Left(stream), protocol, certificates)
        }
        None => (Either::Right(stream), Protocol::Http1, None),
    };
    let builder = Builder::new(TokioExecutor::new());
    let (mut builder, opening) = match protocol {
        Protocol::Http1 => (builder.http1_only(), 0),
        Protocol::Http2 => (builder.http2_only(), PREFACE),
    };
    let stream = Opening::new(stream, opening, limits.head);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(128 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.head)
        .keep_alive_timeout(limits.handshake)
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(32 << 10);
    let answers = OpenResponses::new();
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(certificates) = &certificates {
            request.extensions_mut().insert(certificates.clone());
        }
        let (ticket, under_way) = (answers.begin(), from.place.answers());
        let answer = respond(request, from.peer);
        async move {
            Ok::<_, Infallible>(
                answer
                    .await
                    .map(|body| Tracked::new(body, ticket).holding(under_way)),
            )
        }
    });
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let still = async {
        match protocol {
            // For HTTP/1, the progress of the whole connection is sufficient.
            Protocol::Http1 => std::future::pending().await,
            Protocol::Http2 => answers.still(limits.stall, limits.head).await,
        }
    };
    tokio::select! {
        // First in order: a request that has arrived is processed before the server stops.
        biased;
        ended = served.as_mut() => return ended,
        () = shutdown.cancelled() => {}
        still = still => match still {
            CloseReason::Stalled => return Err(still.into()),
            CloseReason::Idle => {}
        },
    }
    // The server accepts no further requests and announces it; answers in progress may end.
    served.as_mut().graceful_shutdown();
    timeout(limits.stall.max(limits.drain), served).await?
}
