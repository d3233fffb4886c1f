//! Writes files, or an image with files, into the store.

mod image;
mod ingest;

pub use image::{CONFIGS_LABEL, CatalogImages, Destination, ImageKind, Pull, UnpackError};
pub use ingest::{IngestError, ingest};
