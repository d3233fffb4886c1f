//! What a look at every blob tells, found once for each content and kept beside it: the shapes of schemas for GraphQL,
//! and the facts of packages for those who search.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock, PoisonError};

use serde_json::{Map, Value};

use super::error::{Context as _, StoreError};
use super::snapshot::Snapshot;
use super::writer::{create, sync};
use crate::facts::{Collector, PackageFacts};
use crate::graphql::{Graph, Shapes};

const SHAPES: &str = "shapes.json";
const PACKAGES: &str = "packages.jsonl";
/// Bytes of the shapes of a catalog that are read back; more is not what we wrote, which has a budget.
const MOST: u64 = 16 << 20;

impl Snapshot {
    /// Looks at every blob, unless an earlier look is kept. It is given up without a trace as soon as `go_on` says so.
    pub(super) fn survey(&self, go_on: &impl Fn() -> bool) -> Result<(), StoreError> {
        // Whoever comes second waits for the first and finds its work.
        let _turn = self.surveying.lock().unwrap_or_else(PoisonError::into_inner);
        if self.packages.get().is_some() {
            return Ok(());
        }
        let (mut shapes, mut packages) = (Shapes::default(), Collector::default());
        for blob in self.index().iter() {
            if !go_on() {
                return Ok(());
            }
            let line = self.read(blob.range).context("read", super::snapshot::ALL)?;
            let Ok(text) = std::str::from_utf8(&line) else {
                continue;
            };
            packages.add(blob.schema, text);
            if let Ok(values) = serde_json::from_str::<Map<String, Value>>(text) {
                shapes.add(blob.schema, &values);
            }
        }
        self.put(SHAPES, |out| {
            serde_json::to_writer(out, &shapes).map_err(Into::into)
        })?;
        self.put(PACKAGES, |out| {
            packages.finish().try_for_each(|facts| {
                serde_json::to_writer(&mut *out, &facts)?;
                out.write_all(b"\n")
            })
        })?;
        sync(self.directory())?;
        self.load_survey();
        Ok(())
    }

    /// Writes a file beside the content; it is there as a whole or not at all.
    pub(super) fn put(
        &self,
        name: &str,
        content: impl FnOnce(&mut std::io::BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), StoreError> {
        let partial = format!("{name}.new");
        let mut out = std::io::BufWriter::new(create(self.directory(), &partial)?);
        content(&mut out).context("write", name)?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .context("write", name)?;
        file.sync_data().context("write", name)?;
        std::fs::rename(self.directory().join(partial), self.directory().join(name))
            .context("put in place", name)
    }

    /// Opens what an earlier look found, so that it can be read as long as the content can.
    pub(super) fn load_survey(&self) {
        let open = |name: &str| File::open(self.directory().join(name)).ok().map(Arc::new);
        if let (Some(shapes), Some(packages)) = (open(SHAPES), open(PACKAGES)) {
            let _ = self.shapes.set(shapes);
            let _ = self.packages.set(packages);
        }
    }

    /// What can be asked in GraphQL. Reads the disk, and every blob if that was not done before.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn graph(&self) -> Result<&Graph, StoreError> {
        let graph = self.graph.get_or_init(|| {
            let shapes = self.surveyed(&self.shapes).map_err(text)?;
            let bytes = usize::try_from(shapes.metadata().map_err(text)?.len().min(MOST)).map_err(text)?;
            let mut json = vec![0; bytes];
            shapes.read_exact_at(&mut json, 0).map_err(text)?;
            Graph::new(serde_json::from_slice(&json).map_err(text)?)
        });
        graph.as_ref().map_err(|why| StoreError::Damaged(why.clone()))
    }

    /// The packages by name, read from the disk one by one. Reads every blob first if that was not done before.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn packages(
        &self,
    ) -> Result<impl Iterator<Item = std::io::Result<PackageFacts>> + use<>, StoreError> {
        let file = Arc::clone(self.surveyed(&self.packages)?);
        let lines = BufReader::new(Positioned { file, at: 0 }).lines();
        Ok(lines.map(|line| Ok(serde_json::from_str(&line?)?)))
    }

    fn surveyed<'a>(&'a self, file: &'a OnceLock<Arc<File>>) -> Result<&'a Arc<File>, StoreError> {
        if file.get().is_none() {
            self.survey(&|| true)?;
        }
        file.get()
            .ok_or_else(|| StoreError::Damaged("what was found in it cannot be read back".to_owned()))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A reader with a place of its own in a file that others read too.
struct Positioned {
    file: Arc<File>,
    at: u64,
}

impl std::io::Read for Positioned {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
