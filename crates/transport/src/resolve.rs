//! The addresses of a host, from the resolver of the system.

use std::io;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The name of a host cannot be resolved. It has no source: the message contains the text of the system.
#[derive(Debug, thiserror::Error)]
#[error("the name of the host cannot be resolved: {0}")]
pub struct Unresolved(pub io::Error);

/// The resolver of the system. Its error has its own type, which the HTTP client's resolver lacks.
pub(crate) struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The client sets the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let found: Vec<_> = found.map_err(Unresolved)?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes;

    #[tokio::test]
    async fn a_name_without_an_address_is_an_error_of_its_own() {
        let unknown = "unknown.invalid".parse().expect("it is a name");
        let error = Resolver.resolve(unknown).await.err().expect("it has no address");
        let found = causes(&*error).find_map(|cause| cause.downcast_ref::<Unresolved>());
        assert!(found.is_some(), "{error}");
        let addresses = Resolver.resolve("localhost".parse().expect("it is a name")).await;
        let addresses = addresses.expect("it has an address");
        assert!(addresses.into_iter().all(|address| address.ip().is_loopback()));
    }
}
