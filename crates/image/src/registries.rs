//! Where a reference is really fetched from: the registry itself, or what a policy puts in front of it.

use std::collections::BTreeSet;

use crate::reference::Reference;

/// How a registry is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// HTTPS with a verified certificate.
    Verified,
    /// HTTPS with any certificate, else plain HTTP. Only for registries that were named as insecure.
    Insecure,
    /// Plain HTTP. Only for registries that were named so.
    PlainHttp,
}

/// One place to fetch a reference from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The reference as this place knows it.
    pub reference: Reference,
    /// How the place is reached.
    pub security: Security,
}

/// Which places serve which references. The default is every registry itself over verified HTTPS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registries {
    insecure: BTreeSet<String>,
    plain_http: BTreeSet<String>,
}

impl Registries {
    /// Allows any certificate, or none, of a registry (`host[:port]`).
    #[must_use]
    pub fn insecure(mut self, registry: impl Into<String>) -> Self {
        self.insecure.insert(registry.into());
        self
    }

    /// Uses plain HTTP for a registry (`host[:port]`).
    #[must_use]
    pub fn plain_http(mut self, registry: impl Into<String>) -> Self {
        self.plain_http.insert(registry.into());
        self
    }

    /// The places to try for a reference, in order. Never empty.
    pub fn endpoints(&self, reference: &Reference) -> Vec<Endpoint> {
        vec![self.home(reference)]
    }

    /// The registry that a reference names, whatever stands in front of it.
    pub fn home(&self, reference: &Reference) -> Endpoint {
        let security = if self.plain_http.contains(reference.registry()) {
            Security::PlainHttp
        } else if self.insecure.contains(reference.registry()) {
            Security::Insecure
        } else {
            Security::Verified
        };
        Endpoint {
            reference: reference.clone(),
            security,
        }
    }
}
