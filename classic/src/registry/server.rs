//! The servers of registries: one port for each source.

mod descriptor;
mod listener;
mod service;

pub use listener::Listener;
pub use service::CatalogSlot;
