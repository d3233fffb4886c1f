//! The archive, of limited size. It gets its name when it is complete.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::NamedTempFile;

/// An archive that is being written, which its user alone may read.
pub(super) struct Archive {
    tar: tar::Builder<GzEncoder<File>>,
    file: NamedTempFile,
    /// The prefix of all names.
    folder: String,
    /// Bytes that fit still.
    left: u64,
}

impl Archive {
    /// Creates an archive beside `path` whose files are in `folder` and have at most `limit` bytes together.
    pub(super) fn create(path: &Path, folder: String, limit: u64) -> anyhow::Result<Self> {
        let wrong = || format!("cannot write {}", path.display());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let file = NamedTempFile::new_in(parent.unwrap_or(Path::new("."))).with_context(wrong)?;
        let compressed = GzEncoder::new(file.reopen().with_context(wrong)?, Compression::default());
        Ok(Self {
            tar: tar::Builder::new(compressed),
            file,
            folder,
            left: limit,
        })
    }

    /// The number of bytes that still fit.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Adds a file; `false` if it does not fit.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> anyhow::Result<bool> {
        let Some(left) = self.left.checked_sub(content.len() as u64) else {
            return Ok(false);
        };
        self.left = left;
        self.write(name, content)?;
        Ok(true)
    }

    /// Adds the file that lists the others; it always fits.
    pub(super) fn write(&mut self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(content.len() as u64);
        header.set_mtime(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default());
        let path = format!("{}/{name}", self.folder);
        self.tar
            .append_data(&mut header, &path, content)
            .with_context(|| format!("cannot add {name} to the archive"))
    }

    /// Moves the complete archive to its name, which must still be free.
    pub(super) fn finish(self, path: &Path) -> anyhow::Result<()> {
        let wrong = || format!("cannot write {}", path.display());
        let mut file = self
            .tar
            .into_inner()
            .and_then(GzEncoder::finish)
            .with_context(wrong)?;
        file.flush().with_context(wrong)?;
        self.file.persist_noclobber(path).with_context(wrong)?;
        Ok(())
    }
}
