//! What a look at every blob tells, found once for each content and kept beside it: the shapes of schemas for GraphQL,
//! and the facts of packages for those who search.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::error::{Context as _, StoreError};
use super::snapshot::{Snapshot, digest};
use super::writer::{create, sync};
use crate::facts::{Collector, PackageFacts};
use crate::graphql::{Graph, Shapes};

/// What a look found, open for reading for as long as the content is.
#[derive(Debug, Clone)]
pub(super) struct Survey {
    shapes: Arc<File>,
    packages: Arc<File>,
    digests: Arc<Digests>,
}

/// SHA-256 of what a look found, kept beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Digests {
    shapes: String,
    packages: String,
}

const DIGESTS: &str = "survey.json";
const SHAPES: &str = "shapes.json";
const PACKAGES: &str = "packages.jsonl";
/// Bytes of the shapes of a catalog that are read back; more is not what we wrote, which has a budget.
const MOST: u64 = 16 << 20;

impl Snapshot {
    /// Looks at every blob, unless an earlier look is kept. It is given up without a trace as soon as `go_on` says so.
    pub(super) fn look(&self, go_on: &impl Fn() -> bool) -> Result<(), StoreError> {
        // Whoever comes second waits for the first and finds its work.
        let mut survey = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        if survey.is_some() {
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
        let digest = |name: &str| {
            let file = File::open(self.directory().join(name)).context("open", name)?;
            let bytes = file.metadata().context("open", name)?.len();
            digest(&file, bytes, go_on).context("read", name)
        };
        let (Some(shapes), Some(packages)) = (digest(SHAPES)?, digest(PACKAGES)?) else {
            return Ok(());
        };
        // The digests come last: with them, the look is complete.
        let digests = Digests { shapes, packages };
        self.put(DIGESTS, |out| {
            serde_json::to_writer(out, &digests).map_err(Into::into)
        })?;
        sync(self.directory())?;
        *survey = self.open_survey();
        Ok(())
    }

    /// Writes a file beside the content; it is there as a whole or not at all.
    pub(super) fn put(
        &self,
        name: &str,
        content: impl FnOnce(&mut std::io::BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), StoreError> {
        let partial = format!("{name}.new");
        let write = || {
            let mut out = std::io::BufWriter::new(create(self.directory(), &partial)?);
            content(&mut out).context("write", name)?;
            let file = out
                .into_inner()
                .map_err(std::io::IntoInnerError::into_error)
                .context("write", name)?;
            file.sync_data().context("write", name)?;
            std::fs::rename(self.directory().join(&partial), self.directory().join(name))
                .context("put in place", name)
        };
        // What was not finished only takes room.
        write().inspect_err(|_| drop(std::fs::remove_file(self.directory().join(&partial))))
    }

    /// Opens what an earlier look found.
    pub(super) fn load_survey(&self) {
        *self.survey.lock().unwrap_or_else(PoisonError::into_inner) = self.open_survey();
    }

    fn open_survey(&self) -> Option<Survey> {
        let open = |name: &str| File::open(self.directory().join(name)).ok().map(Arc::new);
        let digests = std::fs::read(self.directory().join(DIGESTS)).ok()?;
        Some(Survey {
            shapes: open(SHAPES)?,
            packages: open(PACKAGES)?,
            digests: Arc::new(serde_json::from_slice(&digests).ok()?),
        })
    }

    /// Takes away what an earlier look found when its bytes are not those that were written.
    pub(super) fn verify_survey(&self, go_on: &impl Fn() -> bool) {
        let survey = self.survey.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(survey) = survey else {
            return;
        };
        let is_whole = |file: &File, written: &str| {
            let found = file.metadata().and_then(|data| digest(file, data.len(), go_on));
            found.is_ok_and(|digest| digest.is_none_or(|digest| digest == written))
        };
        if !is_whole(&survey.shapes, &survey.digests.shapes)
            || !is_whole(&survey.packages, &survey.digests.packages)
        {
            self.forget_survey();
        }
    }

    fn forget_survey(&self) {
        let catalog = &self.record().catalog;
        tracing::warn!(
            catalog,
            "what was found in the catalog has changed on the disk and is looked for anew"
        );
        let mut survey = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        for name in [DIGESTS, SHAPES, PACKAGES] {
            let _ = std::fs::remove_file(self.directory().join(name));
        }
        *survey = None;
    }

    /// What can be asked in GraphQL. Reads the disk, and every blob if that was not done before.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn graph(&self) -> Result<&Graph, StoreError> {
        // Only what was read is remembered: a disk that is full or fails now may not the next time.
        if self.graph.get().is_none() {
            let mut found = shapes(&self.surveyed()?).context("read", SHAPES)?;
            if found.is_err() {
                self.forget_survey();
                found = shapes(&self.surveyed()?).context("read", SHAPES)?;
            }
            let _ = self.graph.set(found.and_then(Graph::new));
        }
        match self.graph.get() {
            Some(Ok(graph)) => Ok(graph),
            Some(Err(why)) => Err(StoreError::Damaged(why.clone())),
            None => Err(unreadable()),
        }
    }

    /// The packages by name, read from the disk one by one. Reads every blob first if that was not done before.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn packages(
        &self,
    ) -> Result<impl Iterator<Item = std::io::Result<PackageFacts>> + use<>, StoreError> {
        Ok(facts(self.surveyed()?.packages))
    }

    fn surveyed(&self) -> Result<Survey, StoreError> {
        self.look(&|| true)?;
        let survey = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        survey.clone().ok_or_else(unreadable)
    }
}

fn unreadable() -> StoreError {
    StoreError::Damaged("what was found in it cannot be read back".to_owned())
}

/// Reads the shapes of schemas. The inner error is about what they say, the outer one about the disk.
fn shapes(survey: &Survey) -> std::io::Result<Result<Shapes, String>> {
    let file = &survey.shapes;
    let bytes = usize::try_from(file.metadata()?.len().min(MOST)).map_err(std::io::Error::other)?;
    let mut json = vec![0; bytes];
    file.read_exact_at(&mut json, 0)?;
    if hex::encode(Sha256::digest(&json)) != survey.digests.shapes {
        return Ok(Err(format!("`{SHAPES}` has changed")));
    }
    Ok(serde_json::from_slice(&json).map_err(|error| error.to_string()))
}

/// Reads the packages one by one.
fn facts(file: Arc<File>) -> impl Iterator<Item = std::io::Result<PackageFacts>> {
    let lines = BufReader::new(Positioned { file, at: 0 }).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?))
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
