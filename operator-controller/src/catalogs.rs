//! The content of catalogs about a package.
//!
//! [`client`] sends requests to catalogd, [`content`] reads the answers, [`search`] finds providers of missing
//! requirements, [`trust`] loads certificate authorities. Answers are cached and revalidated by their ETag.

pub(crate) mod client;
pub(crate) mod content;
pub(crate) mod search;
pub(crate) mod trust;

pub(crate) use client::{CatalogAddress, Catalogs, Token};
