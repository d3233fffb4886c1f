//! What a foreign image may cost.

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
    /// Bytes of all files that are kept.
    pub kept_bytes: u64,
    /// Bytes of one file that is kept.
    pub file_bytes: u64,
    /// How many times larger than its compressed form a layer may become. Layers below 32 MiB are free.
    pub ratio: u64,
    /// Directories above an entry that is kept.
    pub depth: usize,
    /// Bytes of one path component.
    pub name_bytes: usize,
    /// Bytes of a whole path.
    pub path_bytes: usize,
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
            time: Duration::from_mins(15),
        }
    }

    /// Limits for a bundle image, which is held in memory.
    pub const fn bundle() -> Self {
        Self {
            entries: 50_000,
            transfer_bytes: 1 << 30,
            unpacked_bytes: 4 << 30,
            kept_bytes: 64 << 20,
            file_bytes: 16 << 20,
            time: Duration::from_mins(5),
            ..Self::catalog()
        }
    }
}
