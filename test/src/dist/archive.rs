//! Archives whose bytes depend only on their content.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};

/// A file of an archive: its path, its mode and its content.
pub(super) type Entry = (String, u32, Vec<u8>);

/// Writes files as a compressed archive, in the order given.
pub(super) fn write(path: &Path, entries: &[Entry]) -> Result<()> {
    let wrong = || format!("cannot write {}", path.display());
    let file = std::fs::File::create(path).with_context(wrong)?;
    let compressed = GzBuilder::new().mtime(0).write(file, Compression::best());
    let mut archive = tar::Builder::new(compressed);
    for (name, mode, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        // Some tools treat the first second of 1970 as a missing time.
        header.set_mtime(1);
        archive
            .append_data(&mut header, name, content.as_slice())
            .with_context(wrong)?;
    }
    archive
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .and_then(|mut file| file.flush())
        .with_context(wrong)
}
