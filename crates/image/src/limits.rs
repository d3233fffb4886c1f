//! Limits for foreign images.

use std::time::Duration;

/// Limits of one pull. Each is an error of its own when it is passed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of a manifest or an index.
    pub manifest_bytes: u64,
    /// Bytes of an image configuration.
    pub config_bytes: u64,
    /// Layers of an image.
    pub layers: usize,
    /// Entries of all layers together, kept or not.
    pub entries: u64,
    /// Bytes of all layers together as they are transferred.
    pub transfer_bytes: u64,
    /// Bytes of all layers together after decompression, kept or not.
    pub unpacked_bytes: u64,
    /// Bytes of all files that are kept, a link counting as the file that it leads to.
    pub kept_bytes: u64,
    /// Bytes of one file that is kept.
    pub file_bytes: u64,
    /// Largest ratio of a layer's unpacked size to its compressed size. Layers below 32 MiB are exempt.
    pub ratio: u64,
    /// Directories above an entry that is kept.
    pub depth: usize,
    /// Bytes of one path component.
    pub name_bytes: usize,
    /// Bytes of a whole path.
    pub path_bytes: usize,
    /// Bytes of all paths that are kept, the directories on the way and the targets of links among them: they are held
    /// in memory.
    pub paths_bytes: u64,
    /// Time for the whole pull.
    pub time: Duration,
}

/// Up to this size a layer's compression ratio is not looked at.
pub(crate) const RATIO_FREE_BYTES: u64 = 32 << 20;

impl Limits {
    /// Limits for a catalog image: large, since it holds a program beside the catalog.
    pub const fn catalog() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            config_bytes: 4 << 20,
            layers: 256,
            entries: 500_000,
            transfer_bytes: 4 << 30,
            unpacked_bytes: 16 << 30,
            kept_bytes: 4 << 30,
            file_bytes: 2 << 30,
            ratio: 200,
            depth: 64,
            name_bytes: 255,
            path_bytes: 4096,
            paths_bytes: 32 << 20,
            time: Duration::from_mins(15),
        }
    }

    /// These limits, with others in place of those that are named: as the field is, with `-` for `_`; `time` in
    /// seconds.
    #[must_use]
    pub fn with<'names>(mut self, others: impl IntoIterator<Item = (&'names str, u64)>) -> Self {
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        for (name, value) in others {
            match name {
                "manifest-bytes" => self.manifest_bytes = value,
                "config-bytes" => self.config_bytes = value,
                "layers" => self.layers = size(value),
                "entries" => self.entries = value,
                "transfer-bytes" => self.transfer_bytes = value,
                "unpacked-bytes" => self.unpacked_bytes = value,
                "kept-bytes" => self.kept_bytes = value,
                "file-bytes" => self.file_bytes = value,
                "ratio" => self.ratio = value,
                "depth" => self.depth = size(value),
                "name-bytes" => self.name_bytes = size(value),
                "path-bytes" => self.path_bytes = size(value),
                "paths-bytes" => self.paths_bytes = value,
                "time" => self.time = Duration::from_secs(value),
                // Names come from our own flags; a test reads them all.
                _ => {}
            }
        }
        self
    }

    /// Limits for a bundle image, which is held in memory.
    pub const fn bundle() -> Self {
        Self {
            entries: 50_000,
            transfer_bytes: 1 << 30,
            unpacked_bytes: 4 << 30,
            kept_bytes: 64 << 20,
            file_bytes: 16 << 20,
            paths_bytes: 8 << 20,
            time: Duration::from_mins(5),
            ..Self::catalog()
        }
    }
}
