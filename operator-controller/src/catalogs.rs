//! What the catalogs say about a package.
//!
//! [`client`] asks catalogd, [`content`] reads its answers, [`search`] finds providers of missing requirements, [`trust`]
//! says which certificate authorities are trusted. An answer is kept and asked for again by its entity tag.

pub mod client;
pub mod content;
pub mod search;
pub mod trust;

pub use client::{Catalogs, CatalogsError, Place, Token};
