//! The client of the registry API, for registries that run elsewhere.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use olm_classic::registry::{BundleMessage, ChannelEntryMessage, PackageMessage};
use olm_transport::Proxies;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{
    Bundle, BundleRequest, ChannelEntry, Empty, GroupVersionKind, HealthRequest, HealthResponse, Package,
    PackageName, ReplacementRequest,
};
use super::trust::Trust;

/// Prefix of the address of a registry that speaks TLS.
const SECURE: &str = "https://";
/// Time limit for a registry to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time limit for an answer to a call that is no stream, and between two messages of a stream.
const ANSWER_TIME: Duration = Duration::from_mins(1);
/// Interval of keepalive pings to a silent registry, and the time limit for their answers.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The largest message that is read, in bytes: a bundle with its manifests.
const MAX_MESSAGE: usize = 64 << 20;

/// A registry does not answer as it is asked to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error("{0:?} is not an address: it must be HOST:PORT")]
    Address(String),
    /// Nothing accepts the connection.
    #[error("cannot connect to {address}: {message}")]
    Connect {
        /// The address.
        address: String,
        /// The reason.
        message: String,
    },
    /// It lists more than is read.
    #[error("the bundles of the registry take more than {} MiB", .0 >> 20)]
    Large(usize),
    /// A call fails; the text is that of other clients of the API.
    #[error("rpc error: code = {code:?} desc = {message}")]
    Call {
        /// The code.
        code: Code,
        /// The registry's own message.
        message: String,
    },
}

impl ClientError {
    /// Whether the registry answered, if only that there is no such thing.
    pub fn is_answer(&self) -> bool {
        let code = match self {
            Self::Call { code, .. } => *code,
            Self::Address(_) | Self::Connect { .. } | Self::Large(_) => return false,
        };
        !matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        Self::Call {
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

/// A connection to a registry. Clones share it. It does not come back once it is closed.
#[derive(Debug, Clone)]
pub struct RegistryClient {
    channel: Channel,
    closed: CancellationToken,
}

impl RegistryClient {
    /// Connects to the registry at `HOST:PORT`, or over TLS at `https://HOST:PORT`.
    ///
    /// # Errors
    /// When the address is none, nothing accepts the connection, or the certificate is not believed.
    pub async fn connect(target: &str, trust: &Trust) -> Result<Self, ClientError> {
        let failed = |message: String| ClientError::Connect {
            address: target.to_owned(),
            message,
        };
        let (address, is_secure) = match target.strip_prefix(SECURE) {
            Some(address) => (address, true),
            None => (target, false),
        };
        let uri: Uri = format!("http://{address}")
            .parse()
            .map_err(|_| ClientError::Address(target.to_owned()))?;
        if uri.port_u16().is_none() || uri.path() != "/" {
            return Err(ClientError::Address(target.to_owned()));
        }
        let secure = is_secure.then(|| secure(&uri, trust)).transpose();
        let secure = secure.map_err(&failed)?;
        let endpoint = Endpoint::from(uri)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true);
        let proxies = Proxies::for_grpc(|name| std::env::var(name).ok());
        let proxies = proxies.map_err(|error| failed(error.to_string()))?;
        let (closed, is_used) = (CancellationToken::new(), AtomicBool::new(false));
        let (place, guard) = (address.to_owned(), closed.clone());
        // One connection and no other: the holder of the client must learn that it is lost.
        let connector = tower::service_fn(move |_: Uri| {
            let (place, proxies, secure, guard, is_again) = (
                place.clone(),
                proxies.clone(),
                secure.clone(),
                guard.clone().drop_guard(),
                is_used.swap(true, Ordering::AcqRel),
            );
            async move {
                if is_again {
                    return Err(io::Error::from(io::ErrorKind::NotConnected));
                }
                let stream = olm_transport::connect(&place, &proxies).await?;
                stream.set_nodelay(true)?;
                let stream = match secure {
                    None => Either::Left(stream),
                    Some((connector, name)) => Either::Right(connector.connect(name, stream).await?),
                };
                Ok(TokioIo::new(WatchedConnection {
                    stream,
                    _guard: guard,
                }))
            }
        });
        let connecting = endpoint.connect_with_connector(connector);
        let channel = match tokio::time::timeout(CONNECT_TIME, connecting).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(failed(root(&error))),
            Err(_) => return Err(failed(format!("no answer within {} s", CONNECT_TIME.as_secs()))),
        };
        let client = Self { channel, closed };
        // The connection is one to a registry only once that speaks HTTP/2. One that knows no health checks answers,
        // too.
        match client.check().await {
            Err(error) if !error.is_answer() => Err(failed(error.to_string())),
            _ => Ok(client),
        }
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Asks whether the server is healthy.
    ///
    /// # Errors
    /// When it does not answer, or knows no health checks.
    pub async fn check(&self) -> Result<bool, ClientError> {
        let request = HealthRequest::default();
        let answer: HealthResponse = self.one("/grpc.health.v1.Health/Check", request).await?;
        Ok(answer.status == 1)
    }

    /// `ListPackages`: the names, in the order of the registry.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn list_packages(&self) -> Result<Vec<String>, ClientError> {
        let answers = self
            .many::<_, PackageName>("/api.Registry/ListPackages", Empty {})
            .await?;
        answers.map_ok(|package| package.name).try_collect().await
    }

    /// `GetPackage`.
    ///
    /// # Errors
    /// The registry does not answer, or has no such package.
    pub async fn get_package(&self, name: &str) -> Result<PackageMessage, ClientError> {
        let request = PackageName {
            name: name.to_owned(),
        };
        let package: Package = self.one("/api.Registry/GetPackage", request).await?;
        Ok(package.into())
    }

    /// `ListBundles`, in the order of the registry.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn list_bundles(
        &self,
    ) -> Result<BoxStream<'static, Result<BundleMessage, ClientError>>, ClientError> {
        let answers = self
            .many::<_, Bundle>("/api.Registry/ListBundles", Empty {})
            .await?;
        Ok(answers.map_ok(BundleMessage::from).boxed())
    }

    /// `GetBundle`.
    ///
    /// # Errors
    /// The registry does not answer, or has no such bundle.
    pub async fn get_bundle(
        &self,
        package: &str,
        channel: &str,
        csv: &str,
    ) -> Result<BundleMessage, ClientError> {
        let request = BundleRequest {
            pkg_name: package.to_owned(),
            channel_name: channel.to_owned(),
            csv_name: csv.to_owned(),
        };
        let bundle: Bundle = self.one("/api.Registry/GetBundle", request).await?;
        Ok(bundle.into())
    }

    /// `GetBundleForChannel`: the head of the channel.
    ///
    /// # Errors
    /// The registry does not answer, or has no such channel.
    pub async fn get_bundle_for_channel(
        &self,
        package: &str,
        channel: &str,
    ) -> Result<BundleMessage, ClientError> {
        let request = BundleRequest {
            pkg_name: package.to_owned(),
            channel_name: channel.to_owned(),
            csv_name: String::new(),
        };
        let bundle: Bundle = self.one("/api.Registry/GetBundleForChannel", request).await?;
        Ok(bundle.into())
    }

    /// `GetBundleThatReplaces`.
    ///
    /// # Errors
    /// The registry does not answer, or has none.
    pub async fn get_bundle_that_replaces(
        &self,
        csv: &str,
        package: &str,
        channel: &str,
    ) -> Result<BundleMessage, ClientError> {
        let request = ReplacementRequest {
            csv_name: csv.to_owned(),
            pkg_name: package.to_owned(),
            channel_name: channel.to_owned(),
        };
        let bundle: Bundle = self.one("/api.Registry/GetBundleThatReplaces", request).await?;
        Ok(bundle.into())
    }

    /// `GetDefaultBundleThatProvides`.
    ///
    /// # Errors
    /// The registry does not answer, or has none.
    pub async fn get_default_bundle_that_provides(
        &self,
        api: GroupVersionKind,
    ) -> Result<BundleMessage, ClientError> {
        let path = "/api.Registry/GetDefaultBundleThatProvides";
        let bundle: Bundle = self.one(path, api).await?;
        Ok(bundle.into())
    }

    /// `GetChannelEntriesThatReplace`.
    ///
    /// # Errors
    /// The registry does not answer, or has none.
    pub async fn entries_that_replace(&self, csv: &str) -> Result<Vec<ChannelEntryMessage>, ClientError> {
        let request = ReplacementRequest {
            csv_name: csv.to_owned(),
            ..ReplacementRequest::default()
        };
        self.entries("/api.Registry/GetChannelEntriesThatReplace", request)
            .await
    }

    /// `GetChannelEntriesThatProvide`.
    ///
    /// # Errors
    /// The registry does not answer, or has none.
    pub async fn entries_that_provide(
        &self,
        api: GroupVersionKind,
    ) -> Result<Vec<ChannelEntryMessage>, ClientError> {
        self.entries("/api.Registry/GetChannelEntriesThatProvide", api)
            .await
    }

    /// `GetLatestChannelEntriesThatProvide`.
    ///
    /// # Errors
    /// The registry does not answer, or has none.
    pub async fn latest_entries_that_provide(
        &self,
        api: GroupVersionKind,
    ) -> Result<Vec<ChannelEntryMessage>, ClientError> {
        self.entries("/api.Registry/GetLatestChannelEntriesThatProvide", api)
            .await
    }

    async fn entries<Q: Message + 'static>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Result<Vec<ChannelEntryMessage>, ClientError> {
        let answers = self.many::<_, ChannelEntry>(path, request).await?;
        answers.map_ok(ChannelEntryMessage::from).try_collect().await
    }

    async fn one<Q, A>(&self, path: &'static str, request: Q) -> Result<A, ClientError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        let asking = grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec);
        let answer = tokio::time::timeout(ANSWER_TIME, asking).await;
        Ok(answer.map_err(|_| late())??.into_inner())
    }

    async fn many<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Result<BoxStream<'static, Result<A, ClientError>>, ClientError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        let asking = grpc.server_streaming(Request::new(request), PathAndQuery::from_static(path), codec);
        let answer = tokio::time::timeout(ANSWER_TIME, asking).await;
        let answers: Streaming<A> = answer.map_err(|_| late())??.into_inner();
        // A registry that sends no further message does not block its reader forever.
        let answers = futures::stream::try_unfold(answers, |mut answers| async move {
            let next = tokio::time::timeout(ANSWER_TIME, answers.message()).await;
            let next = next.map_err(|_| late())??;
            Ok::<_, ClientError>(next.map(|message| (message, answers)))
        });
        Ok(answers.boxed())
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, ClientError> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let ready = tokio::time::timeout(ANSWER_TIME, grpc.ready()).await;
        ready
            .map_err(|_| late())?
            .map_err(|error| Status::unavailable(root(&error)))?;
        Ok(grpc)
    }
}

fn late() -> Status {
    Status::deadline_exceeded(format!("no answer within {} s", ANSWER_TIME.as_secs()))
}

/// The cause at the end of the chain: the errors before it only say that something failed.
fn root(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The client of TLS and the name that the server must have.
fn secure(uri: &Uri, trust: &Trust) -> Result<(TlsConnector, ServerName<'static>), String> {
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    Ok((TlsConnector::from(Arc::new(trust.client()?)), name))
}

/// A connection that says when it is closed.
struct WatchedConnection {
    stream: Either<TcpStream, TlsStream<TcpStream>>,
    _guard: DropGuard,
}

impl AsyncRead for WatchedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for WatchedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
