//! Registries: conversations, what is fetched in them, and blobs.

pub(crate) mod auth;
mod body;
pub(crate) mod clients;
pub(crate) mod error;
pub(crate) mod fetch;
mod redirect;
pub(crate) mod referrers;
pub(crate) mod session;
pub(crate) mod transfer;

#[cfg(test)]
mod tests;
