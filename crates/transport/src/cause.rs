//! The cause of a failed connection.

use std::error::Error;
use std::io;

use rustls::{CertificateError, OtherError};

use crate::resolve::Unresolved;
use crate::verifier::Distrust;

/// An error and its causes, the innermost last.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'e (dyn Error + 'static) = *error;
        // An error of the system that wraps another one does not name it as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

/// The messages of an error and its causes, the innermost last. Some libraries repeat their cause in their own text.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.is_empty() => cause,
        cause if text.ends_with(&cause) => text,
        cause => format!("{text}: {cause}"),
    })
}

/// The kind of reason why a host did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The name of the host cannot be resolved.
    Name,
    /// Nothing listens there.
    Refused,
    /// The certificate is not trusted.
    Certificate,
    /// The server does not speak TLS.
    NoTls,
    /// The server closes new connections.
    Closed,
    /// The server did not answer in time.
    Timeout,
    /// The server redirects to a place that the client does not follow.
    Redirect,
    /// Any other.
    Other,
}

impl Obstacle {
    /// The kind of an error, by its causes. [`Obstacle::Redirect`] is not found.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut found = Self::Other;
        let mut is_new_connection = false;
        for cause in causes(error) {
            let request = cause.downcast_ref::<reqwest::Error>();
            is_new_connection |= request.is_some_and(reqwest::Error::is_connect);
            let system = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            found = match cause.downcast_ref() {
                Some(rustls::Error::InvalidCertificate(_)) => Self::Certificate,
                Some(rustls::Error::InvalidMessage(_)) => Self::NoTls,
                _ if cause.is::<Unresolved>() => Self::Name,
                _ if request.is_some_and(reqwest::Error::is_timeout) => Self::Timeout,
                _ => match system {
                    Some(io::ErrorKind::ConnectionRefused) => Self::Refused,
                    Some(io::ErrorKind::TimedOut) => Self::Timeout,
                    Some(io::ErrorKind::UnexpectedEof) if is_new_connection => Self::Closed,
                    _ => found,
                },
            };
        }
        found
    }
}

/// Whether the innermost cause is a certificate that is not trusted.
pub fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    let innermost = causes(error).last().and_then(|cause| cause.downcast_ref());
    matches!(innermost, Some(rustls::Error::InvalidCertificate(_)))
}

/// The message of the innermost cause: the outer ones only say that a connection failed.
pub fn reason(error: &(dyn Error + 'static)) -> String {
    let Some(cause) = causes(error).last() else {
        return String::new();
    };
    match cause.downcast_ref() {
        // The text of rustls for it is meant for debugging.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other)))) => {
            match other.downcast_ref::<Distrust>() {
                Some(distrust) => format!("the certificate is not trusted: {distrust}"),
                None => format!("the certificate is not trusted: {other}"),
            }
        }
        _ => cause.to_string(),
    }
}
