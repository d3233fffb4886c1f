//! Parsers of untrusted bytes that are not public otherwise, for fuzzing.

use crate::layer::tree::{Storage, Tree};
use crate::layer::{LayerError, Selection, Unpacker};
use crate::limits::Limits;

/// Applies layers, lowest first.
pub fn unpack(layers: &[&[u8]], selection: &Selection, limits: &Limits) -> Result<Tree, LayerError> {
    let mut unpacker = Unpacker::new(selection, &Storage::Memory, limits)?;
    for layer in layers {
        unpacker.apply(*layer, layer.len() as u64)?;
    }
    unpacker.finish()
}

/// Reads a manifest or an index, and chooses a platform from it.
pub fn manifest(text: &[u8]) -> Result<usize, String> {
    use oci_distribution::manifest::OciManifest;
    match crate::manifest::parse_manifest(text)? {
        OciManifest::Image(manifest) => Ok(crate::manifest::layers(&manifest)?.len()),
        OciManifest::ImageIndex(index) => {
            let platform = crate::platform::Platform::host();
            Ok(crate::manifest::choose_platform(&index.manifests, &platform).map_or(0, |_| 1))
        }
    }
}
