//! A port on which one registry answers.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use olm_platform::admin;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_reflection::server::Builder;

use super::descriptor::files;
use super::service::{CatalogSlot, Experimental, Health, Registry, Service};

/// Interval of keepalive pings to a silent client.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Calls of one client at the same time.
const MAX_CALLS: u32 = 64;

/// A port on which a registry answers for as long as this is held.
#[derive(Debug)]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// The served content.
    pub slot: CatalogSlot,
    _stop: DropGuard,
}

impl Listener {
    /// Opens a free port on all addresses. `stop` closes it, too.
    ///
    /// # Errors
    /// When the system has none.
    pub async fn open(stop: &CancellationToken) -> io::Result<Self> {
        let listener = admin::bind(":0").await?;
        let port = listener.local_addr()?.port();
        let (slot, stop) = (CatalogSlot::default(), stop.child_token());
        let routes = reflection()
            .add_service(Service(Registry(slot.clone())))
            .add_service(Service(Experimental(slot.clone())))
            .add_service(Service(Health(stop.clone())));
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .max_concurrent_streams(MAX_CALLS)
            .add_routes(routes);
        let (incoming, stopped) = (TcpIncoming::from(listener), stop.clone().cancelled_owned());
        tokio::spawn(async move {
            if let Err(error) = server.serve_with_incoming_shutdown(incoming, stopped).await {
                tracing::error!(%error, port, "a registry stops answering");
            }
        });
        Ok(Self {
            port,
            slot,
            _stop: stop.drop_guard(),
        })
    }
}

/// The services of server reflection, which all registries share.
fn reflection() -> Routes {
    static ROUTES: OnceLock<Routes> = OnceLock::new();
    let made = || {
        let builder = || Builder::configure().register_file_descriptor_set(files());
        let routes = Routes::default();
        match (builder().build_v1(), builder().build_v1alpha()) {
            (Ok(newer), Ok(older)) => routes.add_service(newer).add_service(older),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "registries answer no server reflection");
                routes
            }
        }
    };
    ROUTES.get_or_init(made).clone()
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    use super::*;
    use crate::registry::client::{ClientError, RegistryClient};
    use crate::registry::trust::Trust;

    #[tokio::test]
    async fn a_registry_without_content_is_healthy_and_says_that_it_has_none() {
        let stop = CancellationToken::new();
        let listener = Listener::open(&stop).await.unwrap();
        let client = RegistryClient::connect(&format!("127.0.0.1:{}", listener.port), &Trust::default())
            .await
            .unwrap();
        assert!(client.check().await.unwrap());
        let error = client.list_packages().await.unwrap_err();
        assert!(
            matches!(
                error,
                ClientError::Call {
                    code: Code::Unavailable,
                    ..
                }
            ),
            "{error}"
        );
        drop(listener);
        client.closed().await;
        assert!(client.is_closed());
    }

    #[tokio::test]
    async fn reflection_lists_the_services() {
        let stop = CancellationToken::new();
        let listener = Listener::open(&stop).await.unwrap();
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{}", listener.port));
        let mut client = ServerReflectionClient::new(endpoint.unwrap().connect_lazy());
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let answers = client
            .server_reflection_info(futures::stream::iter([request]))
            .await;
        let answer = answers.unwrap().into_inner().message().await.unwrap().unwrap();
        let Some(MessageResponse::ListServicesResponse(found)) = answer.message_response else {
            panic!("{answer:?}");
        };
        let mut names: Vec<String> = found.service.into_iter().map(|service| service.name).collect();
        names.sort();
        let expected = [
            "api.ExperimentalRegistry",
            "api.Registry",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
        ];
        assert_eq!(names, expected);
    }
}
