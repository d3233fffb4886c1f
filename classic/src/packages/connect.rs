//! Connects to the registries of CatalogSources.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use http::uri::PathAndQuery;
use olm_classic::catalog_source::Source;
use olm_classic::cluster::{Cluster, items, label, text};
use olm_classic::names;
use olm_classic::registry::{BundleMessage, PackageMessage};
use prost::Message;
use serde_json::Value;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::load::{Connect, Registry, RegistryError};
use crate::objects::kinds;
use crate::objects::store::Store;
use crate::registry::messages::{Bundle, BundleRequest, Empty, Package, PackageName};

/// How long a registry may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(10);
/// The largest message: a bundle with all its manifests.
const LARGEST: usize = 64 << 20;

/// Where the registry of a CatalogSource answers, `HOST:PORT`: an EndpointSlice leads to it where there is one, else the
/// cluster's DNS does.
pub(super) fn address(source: &Value, cluster: &Cluster) -> String {
    let found = Source {
        object: source,
        cluster,
    };
    if !text(source, "/spec/address").is_empty() {
        return found.address();
    }
    let service = found.service_name();
    let slices = cluster.in_namespace(kinds::ENDPOINT_SLICE.kind, text(source, "/metadata/namespace"));
    let mut own = slices.filter(|slice| label(slice, names::SERVICE_NAME_LABEL) == service);
    own.find_map(endpoint).unwrap_or_else(|| found.address())
}

/// A ready endpoint of an EndpointSlice.
fn endpoint(slice: &Value) -> Option<String> {
    let port = items(slice, "/ports").find_map(|port| port.get("port")?.as_u64())?;
    let ready = items(slice, "/endpoints").find(|found| {
        // Unknown counts as ready.
        found.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false)
    })?;
    let host: IpAddr = items(ready, "/addresses").find_map(Value::as_str)?.parse().ok()?;
    Some(match host {
        IpAddr::V4(host) => format!("{host}:{port}"),
        IpAddr::V6(host) => format!("[{host}]:{port}"),
    })
}

/// Connects to the registries of CatalogSources.
pub(super) struct Registries {
    store: Arc<Store>,
}

impl Registries {
    /// Finds registries among the objects in `store`.
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Connect for Registries {
    type Registry = GrpcRegistry;

    async fn connect(&self, source: &Value) -> Result<GrpcRegistry, RegistryError> {
        let address = address(source, &self.store.snapshot());
        let failed = |error: tonic::transport::Error| {
            RegistryError::Unreachable(format!("{address:?}: {}", olm_platform::log::chain(&error)))
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(failed)?;
        let channel = endpoint
            .connect_timeout(CONNECTING)
            .connect()
            .await
            .map_err(failed)?;
        Ok(GrpcRegistry(
            Grpc::new(channel).max_decoding_message_size(LARGEST),
        ))
    }
}

/// A registry that speaks gRPC.
pub(super) struct GrpcRegistry(Grpc<Channel>);

impl GrpcRegistry {
    async fn ready(&self) -> Result<Grpc<Channel>, RegistryError> {
        let mut client = self.0.clone();
        let ready = client.ready().await;
        ready.map_err(|error| RegistryError::Unreachable(olm_platform::log::chain(&error)))?;
        Ok(client)
    }

    async fn one<Q, A>(&self, path: &'static str, question: Q) -> Result<A, RegistryError>
    where
        Q: Message + Send + 'static,
        A: Message + Default + 'static,
    {
        let mut client = self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = client.unary(Request::new(question), path, codec).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| failure(&status))
    }

    async fn stream<A>(&self, path: &'static str) -> Result<Streaming<A>, RegistryError>
    where
        A: Message + Default + 'static,
    {
        let mut client = self.ready().await?;
        let codec = ProstCodec::<Empty, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = client.server_streaming(Request::new(Empty {}), path, codec).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| failure(&status))
    }
}

/// Whether the registry has answered, or the connection is lost.
fn failure(status: &Status) -> RegistryError {
    let is_lost = std::error::Error::source(status).is_some()
        || matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded
        );
    let why = format!("{:?}: {}", status.code(), status.message());
    if is_lost {
        RegistryError::Unreachable(why)
    } else {
        RegistryError::Refused(why)
    }
}

impl Registry for GrpcRegistry {
    async fn packages(&self) -> Result<Vec<String>, RegistryError> {
        let names = self.stream::<PackageName>("/api.Registry/ListPackages").await?;
        let names = names.map_ok(|package| package.name);
        let mut names: Vec<String> = names.try_collect().await.map_err(|status| failure(&status))?;
        names.sort_unstable();
        Ok(names)
    }

    async fn package(&self, name: &str) -> Result<PackageMessage, RegistryError> {
        let name = name.to_owned();
        let found: Package = self.one("/api.Registry/GetPackage", PackageName { name }).await?;
        Ok(found.into())
    }

    async fn head(&self, package: &str, channel: &str) -> Result<BundleMessage, RegistryError> {
        let question = BundleRequest {
            pkg_name: package.to_owned(),
            channel_name: channel.to_owned(),
            csv_name: String::new(),
        };
        let found: Bundle = self.one("/api.Registry/GetBundleForChannel", question).await?;
        Ok(found.into())
    }

    async fn bundles(&self, mut each: impl FnMut(BundleMessage) + Send) -> Result<(), RegistryError> {
        let mut bundles = self.stream::<Bundle>("/api.Registry/ListBundles").await?;
        while let Some(bundle) = bundles.try_next().await.map_err(|status| failure(&status))? {
            each(bundle.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_registry_is_found_by_its_address_its_endpoints_or_its_name() {
        let source = |spec: Value| {
            json!({
                "kind": "CatalogSource", "metadata": {"namespace": "olm", "name": "a.b"}, "spec": spec,
            })
        };
        let slice = |is_ready: bool| {
            json!({
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": "olm", "name": "a-b", "labels": {"kubernetes.io/service-name": "a-b"},
                },
                "ports": [{"port": 4711}],
                "endpoints": [{"addresses": ["fd00::1"], "conditions": {"ready": is_ready}}],
            })
        };
        let image = source(json!({"sourceType": "grpc", "image": "i"}));
        let with = |slice: Value| [slice].into_iter().collect::<Cluster>();
        assert_eq!(address(&image, &Cluster::default()), "a-b.olm.svc:50051");
        assert_eq!(address(&image, &with(slice(false))), "a-b.olm.svc:50051");
        assert_eq!(address(&image, &with(slice(true))), "[fd00::1]:4711");
        let given = source(json!({"sourceType": "grpc", "address": "h:1", "image": "i"}));
        assert_eq!(address(&given, &with(slice(true))), "h:1");
    }

    #[tokio::test]
    async fn nobody_who_listens_is_unreachable() {
        let registries = Registries::new(Arc::default());
        let source = json!({"metadata": {}, "spec": {"sourceType": "grpc", "address": "127.0.0.1:1"}});
        let failed = registries.connect(&source).await.err().unwrap();
        assert!(matches!(failed, RegistryError::Unreachable(_)), "{failed}");
        let not_found = failure(&Status::unknown("package \"x\" not found"));
        assert!(matches!(not_found, RegistryError::Refused(_)));
        let restarts = failure(&Status::unavailable("starts"));
        assert!(matches!(restarts, RegistryError::Unreachable(_)));
    }
}
