//! The content of catalogs about a package.
//!
//! [`client`] sends requests to catalogd, [`content`] reads the answers, [`search`] finds providers of missing
//! requirements, [`trust`] loads certificate authorities. Answers are cached and revalidated by their ETag.

pub mod client;
pub mod content;
pub mod search;
pub mod trust;

pub use client::{CatalogAddress, Catalogs, CatalogsError, Token};
