//! The places that may have an image: its mirrors and its registry, asked in turn.

use bytes::Bytes;

use super::{Images, PullError};
use crate::access::Access;
use crate::access::registries::{Endpoint, PlaceError};
use crate::digest::Digest;
use crate::reference::Reference;
use crate::registry::auth::Action;
use crate::registry::error::RegistryError;
use crate::registry::fetch::FetchTarget;
use crate::registry::referrers::lists_signatures;
use crate::registry::session::{RetryPolicy, Session};

impl Images {
    /// Conversations with all places that may have a reference.
    pub(crate) async fn sessions(
        &self,
        reference: &Reference,
        access: &Access,
    ) -> Result<Vec<Session<'_>>, RegistryError> {
        let mut sessions = Vec::new();
        let mut broken = RegistryError::GivenUp;
        for (endpoint, patience) in places(access, reference).unwrap_or_default() {
            match self.session(endpoint, access, patience).await {
                Ok(session) => sessions.push(session),
                Err(error) => broken = error,
            }
        }
        if sessions.is_empty() {
            Err(broken)
        } else {
            Ok(sessions)
        }
    }

    /// Opens a conversation with one place.
    pub(super) async fn session(
        &self,
        endpoint: Endpoint,
        access: &Access,
        patience: RetryPolicy,
    ) -> Result<Session<'_>, RegistryError> {
        self.session_for(endpoint, access, Action::Pull, patience).await
    }

    pub(crate) async fn session_for(
        &self,
        endpoint: Endpoint,
        access: &Access,
        action: Action,
        patience: RetryPolicy,
    ) -> Result<Session<'_>, RegistryError> {
        let credential = access.credentials.lookup(&endpoint.reference).cloned();
        Session::open(&self.inner.shared, endpoint, credential, action, patience).await
    }

    /// Asks each place in turn; the last one's error is the answer when all fail. A place whose list of referrers has no
    /// signature may be a mirror that has the image alone: the next ones are asked, too, and whether there is a signature
    /// is not known when one of them is down.
    pub(crate) async fn fetch(
        &self,
        reference: &Reference,
        access: &Access,
        what: &'static str,
        wanted: FetchTarget<'_>,
    ) -> Result<(Bytes, Digest), PullError> {
        let mut last = RegistryError::GivenUp;
        let (mut unsigned, mut down) = (None, None);
        for (endpoint, patience) in places(access, reference).map_err(|source| no_place(reference, source))? {
            let attempt = match self.session(endpoint, access, patience).await {
                // Boxed: it is in the future of everything that pulls.
                Ok(session) => Box::pin(wanted.fetch(&session)).await,
                Err(error) => Err(error),
            };
            match attempt {
                Ok(found)
                    if matches!(wanted, FetchTarget::Referrers { .. }) && !lists_signatures(&found.0) =>
                {
                    unsigned.get_or_insert(found);
                }
                Ok(found) => return Ok(found),
                Err(error) => {
                    if patience == RetryPolicy::Once {
                        tracing::info!(%reference, error = %error, "a mirror lacks {what}; asking the next place");
                    }
                    // A registry that cannot be reached is the ordinary case beside the mirrors of a closed network.
                    if unsigned.is_some() && error.is_outage() {
                        down = Some(error);
                    } else {
                        last = error;
                    }
                }
            }
        }
        match (unsigned, down) {
            (Some(found), None) => Ok(found),
            (_, down) => Err(PullError::Fetch {
                what,
                reference: reference.to_string(),
                source: down.unwrap_or(last),
            }),
        }
    }
}

pub(super) fn no_place(reference: &Reference, source: PlaceError) -> PullError {
    PullError::Place {
        reference: reference.to_string(),
        source,
    }
}

/// The places to ask, in order. Only with the last of them patience helps: before it, another one may do.
pub(super) fn places(
    access: &Access,
    reference: &Reference,
) -> Result<Vec<(Endpoint, RetryPolicy)>, PlaceError> {
    let endpoints = access.registries.endpoints(reference)?;
    let last = endpoints.len().saturating_sub(1);
    let patience = |index| {
        if index == last {
            RetryPolicy::Some
        } else {
            RetryPolicy::Once
        }
    };
    let numbered = endpoints.into_iter().enumerate();
    Ok(numbered
        .map(|(index, endpoint)| (endpoint, patience(index)))
        .collect())
}
