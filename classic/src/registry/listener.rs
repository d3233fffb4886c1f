//! A port on which one registry answers.

use std::io;
use std::time::Duration;

use olm_platform::admin;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::service::{Experimental, Health, Registry, Service, Slot};

/// How often a silent client is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Calls of one client at the same time.
const MAX_CALLS: u32 = 64;

/// A port on which a registry answers for as long as this is held.
#[derive(Debug)]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// What it serves.
    pub slot: Slot,
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
        let (slot, stop) = (Slot::default(), stop.child_token());
        let routes = Routes::new(Service(Registry(slot.clone())))
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
