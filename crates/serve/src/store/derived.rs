//! Data derived from every blob once per content and stored beside it: the shapes of schemas for GraphQL, and the
//! summaries of packages for the search.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::content::StoredContent;
use super::error::{Context as _, StoreError};
use super::files::{ALL, digest, replace, sync};
use crate::graphql_schema::{Graph, Shapes};
use crate::package_summary::{Collector, PackageSummary};

/// The derived data of one content.
#[derive(Debug, Default)]
pub(super) struct Derived {
    files: Mutex<Option<DerivedFiles>>,
    graph: OnceLock<Result<Graph, String>>,
}

/// The files of derived data, open for reading for as long as the content is.
#[derive(Debug, Clone)]
struct DerivedFiles {
    shapes: Arc<File>,
    packages: Arc<File>,
    digests: Arc<Digests>,
}

/// The version of the derived files. Files of another version are created again.
const FORMAT: u32 = 4;

/// The SHA-256 digests of both files, in a file beside them.
#[derive(Debug, Serialize, Deserialize)]
struct Digests {
    format: u32,
    shapes: String,
    packages: String,
}

const DIGESTS: &str = "derived.json";
const SHAPES: &str = "shapes.json";
const PACKAGES: &str = "packages.jsonl";
/// The most bytes of the shapes that are read back; [`Shapes`] has a budget below this.
const MAX_SHAPES_BYTES: u64 = 16 << 20;

impl Derived {
    /// Derives the data from every blob, unless it exists. Leaves no trace when `go_on` ends it.
    pub(super) fn make(&self, content: &StoredContent, go_on: &impl Fn() -> bool) -> Result<(), StoreError> {
        // A second caller waits for the first and finds its work.
        let mut files = self.files.lock();
        if files.is_some() {
            return Ok(());
        }
        let (mut shapes, mut packages) = (Shapes::default(), Collector::default());
        for blob in content.index.iter() {
            if !go_on() {
                return Ok(());
            }
            let line = content.read(blob.range.clone()).context("read", ALL)?;
            let Ok(text) = std::str::from_utf8(&line) else {
                continue;
            };
            packages.add(blob.schema, text, blob.range.clone());
            if let Ok(values) = serde_json::from_str::<Map<String, Value>>(text) {
                shapes.add(blob.schema, &values);
            }
        }
        packages
            .describe(|range| content.read(range), go_on)
            .context("read", ALL)?;
        if !go_on() {
            return Ok(());
        }
        let directory = &content.directory;
        replace(directory, SHAPES, |out| {
            serde_json::to_writer(out, &shapes).map_err(Into::into)
        })?;
        replace(directory, PACKAGES, |out| {
            packages.finish().try_for_each(|summary| {
                serde_json::to_writer(&mut *out, &summary)?;
                out.write_all(b"\n")
            })
        })?;
        let digest = |name: &str| {
            let file = File::open(directory.join(name)).context("open", name)?;
            let bytes = file.metadata().context("open", name)?.len();
            digest(&file, bytes, go_on).context("read", name)
        };
        let (Some(shapes), Some(packages)) = (digest(SHAPES)?, digest(PACKAGES)?) else {
            return Ok(());
        };
        // The digests come last: they mark the derived data as complete.
        let digests = Digests {
            format: FORMAT,
            shapes,
            packages,
        };
        replace(directory, DIGESTS, |out| {
            serde_json::to_writer(out, &digests).map_err(Into::into)
        })?;
        sync(directory)?;
        *files = open(content);
        Ok(())
    }

    /// Opens the derived files of an earlier process.
    pub(super) fn load(&self, content: &StoredContent) {
        *self.files.lock() = open(content);
    }

    /// Removes derived files whose bytes have changed.
    pub(super) fn verify(&self, content: &StoredContent, go_on: &impl Fn() -> bool) {
        let Some(files) = self.files.lock().clone() else {
            return;
        };
        let is_whole = |file: &File, written: &str| {
            let found = file.metadata().and_then(|data| digest(file, data.len(), go_on));
            found.is_ok_and(|digest| digest.is_none_or(|digest| digest == written))
        };
        if !is_whole(&files.shapes, &files.digests.shapes)
            || !is_whole(&files.packages, &files.digests.packages)
        {
            self.discard(content);
        }
    }

    fn discard(&self, content: &StoredContent) {
        let catalog = &content.record.catalog;
        tracing::warn!(
            catalog,
            "derived files have changed on the disk; making them again"
        );
        let mut files = self.files.lock();
        for name in [DIGESTS, SHAPES, PACKAGES] {
            let _ = std::fs::remove_file(content.directory.join(name));
        }
        *files = None;
    }

    /// The GraphQL schema.
    pub(super) fn graph(&self, content: &StoredContent) -> Result<&Graph, StoreError> {
        // A failure of the disk is not remembered: the next request tries again.
        if self.graph.get().is_none() {
            let mut found = shapes(&self.files(content)?).context("read", SHAPES)?;
            if found.is_err() {
                self.discard(content);
                found = shapes(&self.files(content)?).context("read", SHAPES)?;
            }
            let _ = self.graph.set(found.and_then(Graph::new));
        }
        match self.graph.get() {
            Some(Ok(graph)) => Ok(graph),
            Some(Err(why)) => Err(StoreError::Damaged(why.clone())),
            None => Err(unreadable()),
        }
    }

    /// The packages by name, read from the disk one by one.
    pub(super) fn packages(
        &self,
        content: &StoredContent,
    ) -> Result<impl Iterator<Item = std::io::Result<PackageSummary>> + use<>, StoreError> {
        Ok(summaries(self.files(content)?.packages))
    }

    fn files(&self, content: &StoredContent) -> Result<DerivedFiles, StoreError> {
        self.make(content, &|| true)?;
        self.files.lock().clone().ok_or_else(unreadable)
    }
}

fn open(content: &StoredContent) -> Option<DerivedFiles> {
    let open = |name: &str| File::open(content.directory.join(name)).ok().map(Arc::new);
    let digests = std::fs::read(content.directory.join(DIGESTS)).ok()?;
    let digests: Digests = serde_json::from_slice(&digests).ok()?;
    let shapes = open(SHAPES)?;
    let packages = open(PACKAGES)?;
    (digests.format == FORMAT).then(|| DerivedFiles {
        shapes,
        packages,
        digests: Arc::new(digests),
    })
}

fn unreadable() -> StoreError {
    StoreError::Damaged("cannot read the derived files".to_owned())
}

/// Reads the shapes of schemas. The inner error is about their text, the outer one about the disk.
fn shapes(files: &DerivedFiles) -> std::io::Result<Result<Shapes, String>> {
    let file = &files.shapes;
    let bytes =
        usize::try_from(file.metadata()?.len().min(MAX_SHAPES_BYTES)).map_err(std::io::Error::other)?;
    let mut json = vec![0; bytes];
    file.read_exact_at(&mut json, 0)?;
    if hex::encode(Sha256::digest(&json)) != files.digests.shapes {
        return Ok(Err(format!("`{SHAPES}` has changed")));
    }
    Ok(serde_json::from_slice(&json).map_err(|error| error.to_string()))
}

/// Reads the packages one by one.
fn summaries(file: Arc<File>) -> impl Iterator<Item = std::io::Result<PackageSummary>> {
    let lines = BufReader::new(Positioned { file, at: 0 }).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?))
}

/// A reader with a position of its own in a shared file.
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
