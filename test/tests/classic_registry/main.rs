//! CatalogSources on a real API server, with images in a real registry.

mod answers;
mod large;
mod poll;
mod serve;
mod sources;
mod stage;
