//! The gRPC services of a registry: `api.Registry`, its experimental part, and health checks.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use olm_classic::registry::ChannelEntryMessage;
use olm_fbc::Gvk;
use parking_lot::RwLock;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::registry::catalog::{CallError, StoredCatalog};
use crate::registry::messages::{
    Bundle, BundleRequest, ChannelEntry, Empty, GroupVersionKind, HealthRequest, HealthResponse, Package,
    PackageName, ReplacementRequest, SchemasRequest,
};

/// Packages that are read from the disk at the same time, for all clients of all catalogs.
const MAX_READING: usize = 4;
/// The metadata with which a client accepts that a call is an experiment.
const ACKNOWLEDGED: &str = "x-acknowledge-experimental";
/// A server that answers, in health checks.
const SERVING: i32 = 1;

static READING: Semaphore = Semaphore::const_new(MAX_READING);

/// The response to a call, under way.
type ResponseFuture = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;
/// The messages of a streaming response.
type MessageStream<T> = BoxStream<'static, Result<T, Status>>;

/// The content that a registry serves, which changes while it serves.
#[derive(Debug, Clone, Default)]
pub struct CatalogSlot(Arc<RwLock<Option<Arc<StoredCatalog>>>>);

impl CatalogSlot {
    /// The content, once there is some.
    pub fn get(&self) -> Option<Arc<StoredCatalog>> {
        self.0.read().clone()
    }

    /// Serves other content, or none.
    pub fn set(&self, content: Option<Arc<StoredCatalog>>) {
        *self.0.write() = content;
    }

    fn content(&self) -> Result<Arc<StoredCatalog>, Status> {
        self.get()
            .ok_or_else(|| Status::unavailable("the content of the catalog is not here yet"))
    }
}

/// The calls of a service.
pub(super) trait Calls: Clone + Send + Sync + 'static {
    /// The service, with its package.
    const NAME: &'static str;

    /// Response to the call of this name; nothing where there is none.
    fn call(&self, name: &str, request: http::Request<Body>) -> Option<ResponseFuture>;
}

/// A service as the server routes it.
#[derive(Debug, Clone)]
pub(super) struct Service<C>(pub(super) C);

impl<C: Calls> NamedService for Service<C> {
    const NAME: &'static str = C::NAME;
}

impl<C: Calls> tower::Service<http::Request<Body>> for Service<C> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        match self.0.call(name, request) {
            Some(response) => response.map(Ok).boxed(),
            None => std::future::ready(Ok(Status::unimplemented("").into_http())).boxed(),
        }
    }
}

/// Answers a call with one message.
fn one<Q, A, F>(request: http::Request<Body>, call: impl Fn(Q) -> F + Send + Sync + 'static) -> ResponseFuture
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    Box::pin(async move {
        let service = tower::service_fn(move |request: Request<Q>| {
            let answer = call(request.into_inner());
            async move { answer.await.map(Response::new) }
        });
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
        grpc.unary(service, request).await
    })
}

/// Answers a call with a stream of messages.
fn many<Q, A, F>(
    request: http::Request<Body>,
    call: impl Fn(Request<Q>) -> F + Send + Sync + 'static,
) -> ResponseFuture
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<MessageStream<A>, Status>> + Send + 'static,
{
    Box::pin(async move {
        let service = tower::service_fn(move |request: Request<Q>| {
            let answer = call(request);
            async move { answer.await.map(Response::new) }
        });
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
        grpc.server_streaming(service, request).await
    })
}

/// Asks a catalog, which reads the disk.
async fn ask<T: Send + 'static>(
    catalog: Arc<StoredCatalog>,
    call: impl FnOnce(&StoredCatalog) -> Result<T, CallError> + Send + 'static,
) -> Result<T, Status> {
    let _turn = READING.acquire().await.map_err(|_| stopped())?;
    let asking = tokio::task::spawn_blocking(move || call(&catalog));
    asking
        .await
        .map_err(|_| stopped())?
        .map_err(|error| status(&error))
}

fn stopped() -> Status {
    Status::unavailable("the server stops")
}

fn status(error: &CallError) -> Status {
    match error {
        CallError::Unknown(error) => Status::unknown(error.to_string()),
        CallError::Argument(error) => Status::invalid_argument(error.to_string()),
        CallError::Read(_) => Status::internal(olm_platform::log::chain(error)),
    }
}

fn items<T, U>(found: Vec<T>) -> MessageStream<U>
where
    T: Into<U>,
    U: Send + 'static,
{
    let found: Vec<Result<U, Status>> = found.into_iter().map(|item| Ok(item.into())).collect();
    stream::iter(found).boxed()
}

/// `api.Registry`.
#[derive(Debug, Clone)]
pub(super) struct Registry(pub(super) CatalogSlot);

impl Registry {
    /// Answers with what a catalog has one of.
    fn get<Q, A, T>(
        &self,
        request: http::Request<Body>,
        call: impl Fn(&StoredCatalog, Q) -> Result<T, CallError> + Copy + Send + Sync + 'static,
    ) -> ResponseFuture
    where
        Q: Message + Default + 'static,
        A: Message + From<T> + 'static,
        T: Send + 'static,
    {
        let slot = self.0.clone();
        one(request, move |query: Q| {
            let catalog = slot.content();
            async move { Ok(A::from(ask(catalog?, move |catalog| call(catalog, query)).await?)) }
        })
    }

    /// Answers with entries of channels.
    fn entries<Q: Message + Default + 'static>(
        &self,
        request: http::Request<Body>,
        call: impl Fn(&StoredCatalog, Q) -> Result<Vec<ChannelEntryMessage>, CallError>
        + Copy
        + Send
        + Sync
        + 'static,
    ) -> ResponseFuture {
        let slot = self.0.clone();
        many(request, move |query: Request<Q>| {
            let catalog = slot.content();
            async move {
                let query = query.into_inner();
                let found = ask(catalog?, move |catalog| call(catalog, query)).await?;
                Ok(items::<_, ChannelEntry>(found))
            }
        })
    }

    fn list_packages(&self, request: http::Request<Body>) -> ResponseFuture {
        let slot = self.0.clone();
        many(request, move |_: Request<Empty>| {
            let catalog = slot.content();
            async move {
                let names = ask(catalog?, |catalog| Ok(catalog.packages())).await?;
                let names = names.into_iter().map(|name| Ok(PackageName { name }));
                Ok(stream::iter(names).boxed())
            }
        })
    }

    /// Package by package: no more than one is held, however slowly the client reads.
    fn list_bundles(&self, request: http::Request<Body>) -> ResponseFuture {
        let slot = self.0.clone();
        many(request, move |_: Request<Empty>| {
            let catalog = slot.content();
            async move {
                let catalog = catalog?;
                let packages = ask(Arc::clone(&catalog), |catalog| Ok(catalog.packages())).await?;
                let bundles = stream::iter(packages).then(move |package| {
                    ask(Arc::clone(&catalog), move |catalog| {
                        catalog.list_bundles(&package)
                    })
                });
                let bundles = bundles.flat_map(|found| match found {
                    Ok(found) => items::<_, Bundle>(found),
                    Err(status) => stream::iter([Err(status)]).boxed(),
                });
                Ok(bundles.boxed())
            }
        })
    }
}

fn gvk(api: GroupVersionKind) -> Gvk {
    Gvk {
        group: api.group,
        version: api.version,
        kind: api.kind,
    }
}

impl Calls for Registry {
    const NAME: &'static str = "api.Registry";

    fn call(&self, name: &str, request: http::Request<Body>) -> Option<ResponseFuture> {
        Some(match name {
            "ListPackages" => self.list_packages(request),
            "ListBundles" => self.list_bundles(request),
            "GetPackage" => self
                .get::<PackageName, Package, _>(request, |catalog, query| catalog.get_package(&query.name)),
            "GetBundle" => self.get::<BundleRequest, Bundle, _>(request, |catalog, query| {
                catalog.get_bundle(&query.pkg_name, &query.channel_name, &query.csv_name)
            }),
            "GetBundleForChannel" => self.get::<BundleRequest, Bundle, _>(request, |catalog, query| {
                catalog.get_bundle_for_channel(&query.pkg_name, &query.channel_name)
            }),
            "GetBundleThatReplaces" => {
                self.get::<ReplacementRequest, Bundle, _>(request, |catalog, query| {
                    catalog.get_bundle_that_replaces(&query.csv_name, &query.pkg_name, &query.channel_name)
                })
            }
            "GetDefaultBundleThatProvides" => self
                .get::<GroupVersionKind, Bundle, _>(request, |catalog, query| {
                    catalog.default_bundle_that_provides(&gvk(query))
                }),
            "GetChannelEntriesThatReplace" => self
                .entries::<ReplacementRequest>(request, |catalog, query| {
                    catalog.entries_that_replace(&query.csv_name)
                }),
            "GetChannelEntriesThatProvide" => self.entries::<GroupVersionKind>(request, |catalog, query| {
                catalog.entries_that_provide(&gvk(query))
            }),
            "GetLatestChannelEntriesThatProvide" => self
                .entries::<GroupVersionKind>(request, |catalog, query| {
                    catalog.latest_entries_that_provide(&gvk(query))
                }),
            _ => return None,
        })
    }
}

/// `api.ExperimentalRegistry`.
#[derive(Debug, Clone)]
pub(super) struct Experimental(pub(super) CatalogSlot);

impl Calls for Experimental {
    const NAME: &'static str = "api.ExperimentalRegistry";

    fn call(&self, name: &str, request: http::Request<Body>) -> Option<ResponseFuture> {
        if name != "ExperimentalListPackageCustomSchemas" {
            return None;
        }
        let slot = self.0.clone();
        Some(many(request, move |query: Request<SchemasRequest>| {
            let catalog = slot.content();
            async move {
                let is_acknowledged = query
                    .metadata()
                    .get(ACKNOWLEDGED)
                    .is_some_and(|value| value == "true");
                let SchemasRequest { schema, package_name } = query.into_inner();
                let found = ask(catalog?, move |catalog| {
                    catalog.custom_schemas(&schema, &package_name, is_acknowledged)
                });
                let blobs = found.await?.into_iter().filter_map(|blob| match blob {
                    Value::Object(fields) => Some(Ok(structure(fields))),
                    _ => None,
                });
                Ok(stream::iter(blobs.collect::<Vec<_>>()).boxed())
            }
        }))
    }
}

fn structure(fields: Map<String, Value>) -> Struct {
    let fields = fields.into_iter().map(|(key, field)| (key, value(field)));
    Struct {
        fields: fields.collect(),
    }
}

/// A JSON value as protobuf has it. The reader of JSON limits how deep it is.
fn value(value: Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(found) => Kind::BoolValue(found),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(items) => Kind::ListValue(ListValue {
            values: items.into_iter().map(self::value).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(structure(fields)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// `grpc.health.v1.Health`: every service of a server that answers is healthy.
#[derive(Debug, Clone)]
pub(super) struct Health(pub(super) CancellationToken);

impl Calls for Health {
    const NAME: &'static str = "grpc.health.v1.Health";

    fn call(&self, name: &str, request: http::Request<Body>) -> Option<ResponseFuture> {
        let stop = self.0.clone();
        match name {
            "Check" => Some(one(request, |_: HealthRequest| {
                std::future::ready(Ok(HealthResponse { status: SERVING }))
            })),
            "Watch" => Some(many(request, move |_: Request<HealthRequest>| {
                let first = stream::iter([Ok(HealthResponse { status: SERVING })]);
                let rest = first.chain(stream::pending());
                let answers = rest.take_until(stop.clone().cancelled_owned()).boxed();
                std::future::ready(Ok(answers))
            })),
            _ => None,
        }
    }
}
