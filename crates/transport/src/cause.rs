//! The cause of a failed connection.

use std::error::Error;
use std::io;

use rustls::{CertificateError, OtherError};

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
