//! The typed load: a whole catalog in memory.

use std::io::BufRead;

use crate::blob::bundle::Bundle;
use crate::blob::channel::Channel;
use crate::blob::deprecation::Deprecations;
use crate::blob::package::Package;
use crate::blob::{Blob, BlobError};
use crate::check::Object;
use crate::meta::{Limits, Meta, MetaError, metas};

/// The blobs of a catalog, by type, each type in the order in which it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// `olm.package`.
    pub packages: Vec<Package>,
    /// `olm.channel`.
    pub channels: Vec<Channel>,
    /// `olm.bundle`.
    pub bundles: Vec<Bundle>,
    /// `olm.deprecations`.
    pub deprecations: Vec<Deprecations>,
    /// The blobs with other schemas, as written.
    pub others: Vec<Meta>,
}

/// The reason why a file cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not a stream of objects.
    #[error("{0}")]
    Walk(#[from] MetaError),
    /// A blob does not have the shape of its schema.
    #[error("{error}")]
    Blob {
        /// The line of the file at which the blob begins, counted from 1.
        line: usize,
        /// The fault.
        error: BlobError,
    },
}

impl LoadError {
    /// The line of the file, counted from 1, that the error is about.
    pub fn line(&self) -> usize {
        match self {
            Self::Walk(error) => error.line,
            Self::Blob { line, .. } => *line,
        }
    }
}

/// A fault in a blob. A catalog server stores and serves the blob nevertheless, because it does not validate content.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BlobFault {
    /// The object of the blob, by its own names.
    pub object: Object,
    /// The fault.
    pub error: LoadError,
    /// The treatment of the blob.
    pub effect: Effect,
}

/// The treatment of a blob with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The blob does not match its schema and is not in the catalog.
    LeftOut,
    /// The blob is in the catalog as written; its icon, or a manifest in it, cannot be decoded.
    Kept,
}

impl Catalog {
    /// Adds the blobs of one file. Add files in the order of [`walk_order`](crate::walk_order).
    ///
    /// # Errors
    /// At the first blob that cannot be read; those before it have been added.
    pub fn load<R: BufRead>(&mut self, reader: R, limits: &Limits) -> Result<(), LoadError> {
        for meta in metas(reader, limits) {
            self.add(meta?)?;
        }
        Ok(())
    }

    /// Adds one blob.
    ///
    /// # Errors
    /// When the blob has no schema or not the shape of its schema.
    pub fn add(&mut self, meta: Meta) -> Result<(), LoadError> {
        let line = meta.position;
        let blob = Blob::from_json(&meta.schema, meta.json())
            .and_then(|blob| blob.check_contents().map(|()| blob))
            .map_err(|error| LoadError::Blob { line, error })?;
        self.push(blob, meta);
        Ok(())
    }

    /// Adds the readable part of one blob, for readers of a catalog server.
    ///
    /// # Errors
    /// The fault of the blob. The catalog stays usable.
    pub fn add_readable(&mut self, meta: Meta) -> Result<(), Box<BlobFault>> {
        let fault = |error, effect| {
            let line = meta.position;
            Box::new(BlobFault {
                object: Object::of(&meta),
                error: LoadError::Blob { line, error },
                effect,
            })
        };
        let blob =
            Blob::from_json(&meta.schema, meta.json()).map_err(|error| fault(error, Effect::LeftOut))?;
        let contents = blob.check_contents().map_err(|error| fault(error, Effect::Kept));
        self.push(blob, meta);
        contents
    }

    fn push(&mut self, blob: Blob, meta: Meta) {
        match blob {
            Blob::Package(package) => self.packages.push(package),
            Blob::Channel(channel) => self.channels.push(channel),
            Blob::Bundle(bundle) => self.bundles.push(bundle),
            Blob::Deprecations(deprecations) => self.deprecations.push(deprecations),
            Blob::Other => self.others.push(meta),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Catalog, Effect};
    use crate::meta::{limits, metas};

    fn check(text: &str, expected: Result<[usize; 5], (usize, &str)>) {
        let mut catalog = Catalog::default();
        let found = catalog
            .load(text.as_bytes(), &limits())
            .map(|()| {
                [
                    catalog.packages.len(),
                    catalog.channels.len(),
                    catalog.bundles.len(),
                    catalog.deprecations.len(),
                    catalog.others.len(),
                ]
            })
            .map_err(|error| (error.line(), error.to_string()));
        assert_eq!(
            found,
            expected.map_err(|(line, text)| (line, text.to_owned())),
            "{text}"
        );
    }

    #[test]
    fn blobs_are_sorted_by_schema() {
        check(
            "{\"schema\":\"olm.package\"}{\"schema\":\"olm.channel\"}{\"schema\":\"olm.bundle\"}\
             {\"schema\":\"olm.deprecations\"}{\"schema\":\"mine\"}{\"schema\":\"OLM.package\"}",
            Ok([1, 1, 1, 1, 2]),
        );
    }

    #[test]
    fn a_blob_without_schema_is_refused() {
        check(
            "{\"schema\":\"a\"}\n{\"name\":\"x\"}",
            Err((2, "object '{\"name\":\"x\"}' is missing root schema field")),
        );
        check("# words\n", Err((1, "object '' is missing root schema field")));
    }

    #[test]
    fn a_blob_has_the_shape_of_its_schema() {
        check(
            "\n{\"schema\":\"olm.bundle\",\"relatedImages\":{}}",
            Err((2, "parse bundle: `relatedImages` must be a list, not an object")),
        );
        check(
            "{\"schema\":\"olm.package\",\"icon\":{\"base64data\":\"%%%\"}}",
            Err((
                1,
                "parse package: `icon.base64data` must be base64: Invalid symbol 37, offset 0.",
            )),
        );
    }

    #[test]
    fn faulty_blobs_are_added_as_far_as_they_can_be_read() {
        let text = "{\"schema\":\"olm.package\",\"name\":\"p\",\"icon\":{\"base64data\":\"%\"}}\n\
                    {\"schema\":\"olm.bundle\",\"name\":\"b\",\"package\":\"p\",\"image\":1}\n{\"name\":\"x\"}\n\
                    {\"schema\":\"olm.package\",\"name\":\"q\"}";
        let mut catalog = Catalog::default();
        let mut faults = Vec::new();
        for meta in metas(text.as_bytes(), &limits()) {
            if let Err(fault) = catalog.add_readable(meta.unwrap()) {
                faults.push((fault.error.line(), fault.object.to_string(), fault.effect));
            }
        }
        assert_eq!(
            faults,
            [
                (1, "package p".to_owned(), Effect::Kept),
                (2, "package p, bundle b".to_owned(), Effect::LeftOut),
                (3, String::new(), Effect::LeftOut),
            ]
        );
        let names: Vec<&str> = catalog.packages.iter().map(|package| &*package.name).collect();
        assert_eq!((names, catalog.bundles.len()), (vec!["p", "q"], 0));
    }

    #[test]
    fn the_manifests_in_a_bundle_can_be_read() {
        let blob = |data: &str| {
            format!(
                "{{\"schema\":\"olm.bundle\",\"name\":\"b\",\"package\":\"p\",\"properties\":[{{\"type\":\"x\"}},\
                 {{\"type\":\"olm.bundle.object\",\"value\":{{\"data\":\"{data}\"}}}}]}}"
            )
        };
        check(&blob("e30="), Ok([0, 0, 1, 0, 0]));
        check(
            &blob("***"),
            Err((
                1,
                "read bundle objects: package \"p\", bundle \"b\": `properties[1].value.data` must be base64: \
                 Invalid symbol 42, offset 0.",
            )),
        );
    }
}
