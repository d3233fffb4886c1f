//! The metadata that was seen last. It is verified again at each update; older metadata is refused.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sigstore_tuf::{Error, FileStore, MetadataStore};

/// The most bytes of a file that are read.
const FILE_BYTES: u64 = 5_000_000;

/// The metadata in a directory. The client continues when it cannot be read or written; [`State::check`] does not.
#[derive(Debug, Clone)]
pub(super) struct State {
    directory: PathBuf,
    files: FileStore,
    /// The first error.
    fault: Arc<Mutex<Option<Error>>>,
}

impl State {
    /// The metadata in a directory, which is made where it is missing.
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            files: FileStore::new(directory),
            fault: Arc::default(),
        }
    }

    /// Whether everything could be read and written.
    ///
    /// # Errors
    /// The first error since the last call.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.fault.lock().take().map_or(Ok(()), Err)
    }

    /// The same result, remembered if it is an error.
    fn noted<T>(&self, result: Result<T, Error>, otherwise: T) -> T {
        result.unwrap_or_else(|error| {
            self.fault.lock().get_or_insert(error);
            otherwise
        })
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.directory.join(name);
        let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(Error::Malformed(format!("{} is too large", path.display())));
        }
        Ok(Some(bytes))
    }
}

impl MetadataStore for State {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        // The trust root itself is in a place of its own.
        if name.starts_with("targets/") {
            return Ok(None);
        }
        Ok(self.noted(self.read(name), None))
    }

    fn store(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        if !name.starts_with("targets/") {
            self.noted(self.files.store(name, bytes), ());
        }
        Ok(())
    }
}
