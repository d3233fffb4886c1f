//! Layers: decompression, tar entries, whiteouts, and the limits that hold for all of them.

mod error;
mod extensions;
mod stream;
pub(crate) mod tree;
mod write;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};
use std::rc::Rc;
use std::time::Instant;

use tar::EntryType;

pub use error::LayerError;
use error::{escape, shorten};
use extensions::Extensions;
use stream::{Compression, ExceededLimit, Meter};

use crate::layer::tree::{
    ALL_LINK_STEPS, Node, Resolved, Sink, Storage, Tree, clean, is_within, join, path_of, split_last,
};
use crate::limits::{Limits, RATIO_FREE_BYTES};

/// The name that hides a sibling of lower layers starts so.
const WHITEOUT: &str = ".wh.";
/// The entry that hides everything of lower layers in its directory.
const OPAQUE: &str = ".wh..wh..opq";
/// Number of bytes that distinguish one compression from another.
const MAGIC_BYTES: u64 = 6;
/// The largest window of a zstd frame, as a power of two; a decoder must hold it in memory.
const ZSTD_WINDOW: u32 = 26;

/// Selected part of the file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// All of it.
    Everything,
    /// These directories and all below them.
    Below(Vec<String>),
}

/// Applies layers, lowest first, to a tree.
pub(crate) struct Unpacker {
    tree: Tree,
    sink: Sink,
    wanted: Option<Vec<String>>,
    limits: Limits,
    entries: u64,
    unpacked: u64,
    kept: u64,
    /// Bytes of the paths and targets of links that were put into the tree.
    paths: u64,
    layer: usize,
    /// The layer each kept path was last written by: a whiteout hides lower layers only.
    written: HashMap<String, usize>,
    /// Components that were looked at to follow links.
    link_steps: u64,
    /// Paths below which this layer has hidden lower layers. Nothing of lower layers can come back there, and looking
    /// again would cost as much as the first time.
    hidden: HashSet<String>,
    began: Instant,
    /// Paths that were looked at to hide entries below others.
    #[cfg(test)]
    looked_at: usize,
}

impl Unpacker {
    pub(crate) fn new(selection: &Selection, storage: &Storage, limits: &Limits) -> Result<Self, LayerError> {
        let wanted = match selection {
            Selection::Everything => None,
            Selection::Below(directories) => Some(
                directories
                    .iter()
                    .map(|directory| clean(directory).ok_or_else(|| escape(directory)))
                    .collect::<Result<Vec<_>, _>>()?,
            ),
        };
        let sink = Sink::new(storage).map_err(|source| LayerError::Store {
            path: "(spool)".to_owned(),
            source,
        })?;
        Ok(Self {
            tree: Tree::default(),
            sink,
            wanted,
            limits: limits.clone(),
            entries: 0,
            unpacked: 0,
            kept: 0,
            paths: 0,
            layer: 0,
            written: HashMap::new(),
            link_steps: 0,
            hidden: HashSet::new(),
            began: Instant::now(),
            #[cfg(test)]
            looked_at: 0,
        })
    }

    /// The tree. Looks at every link, so it may take a while.
    pub(crate) fn finish(mut self) -> Result<Tree, LayerError> {
        self.check_links()?;
        self.sink.finish().map_err(|source| LayerError::Store {
            path: "(spool)".to_owned(),
            source,
        })?;
        Ok(self.tree)
    }

    /// Applies the next layer and reads it to its end. `compressed` is its size as transferred, in bytes.
    pub(crate) fn apply(&mut self, mut reader: impl BufRead, compressed: u64) -> Result<(), LayerError> {
        self.layer += 1;
        self.hidden.clear();
        let mut start = Vec::new();
        reader
            .by_ref()
            .take(MAGIC_BYTES)
            .read_to_end(&mut start)
            .map_err(LayerError::Corrupt)?;
        let mut reader = start.as_slice().chain(reader);
        match Compression::of(&start) {
            Compression::None => self.apply_tar(&mut reader, compressed)?,
            Compression::Gzip => {
                self.apply_tar(flate2::bufread::MultiGzDecoder::new(&mut reader), compressed)?;
            }
            Compression::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(&mut reader).map_err(LayerError::Corrupt)?;
                decoder.window_log_max(ZSTD_WINDOW).map_err(LayerError::Corrupt)?;
                self.apply_tar(decoder, compressed)?;
            }
            Compression::Unsupported(name) => return Err(LayerError::Compression(name)),
        }
        // The rest after the archive is part of the blob, whose digest covers all of it.
        loop {
            let length = reader.fill_buf().map_err(LayerError::Corrupt)?.len();
            if length == 0 {
                return Ok(());
            }
            reader.consume(length);
        }
    }

    fn apply_tar(&mut self, reader: impl Read, compressed: u64) -> Result<(), LayerError> {
        let tripped = Rc::new(Cell::new(None));
        let ratio = self.limits.ratio;
        let meter = Meter {
            inner: reader,
            read: 0,
            by_ratio: compressed.saturating_mul(ratio).max(RATIO_FREE_BYTES),
            by_size: self.limits.unpacked_bytes.saturating_sub(self.unpacked),
            tripped: Rc::clone(&tripped),
        };
        let mut archive = tar::Archive::new(meter);
        let result = self.apply_entries(&mut archive);
        self.unpacked += archive.into_inner().read;
        match tripped.get() {
            Some(ExceededLimit::Ratio) => Err(LayerError::Ratio { limit: ratio }),
            Some(ExceededLimit::Size) => Err(LayerError::UnpackedBytes {
                limit: self.limits.unpacked_bytes,
            }),
            None => result,
        }
    }

    fn apply_entries<R: Read>(&mut self, archive: &mut tar::Archive<R>) -> Result<(), LayerError> {
        let mut extensions = Extensions::default();
        for entry in archive.entries().map_err(LayerError::Corrupt)?.raw(true) {
            let mut entry = entry.map_err(LayerError::Corrupt)?;
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(LayerError::Entries {
                    limit: self.limits.entries,
                });
            }
            self.check_time()?;
            if extensions.take(&mut entry)? {
                continue;
            }
            let Extensions { path, link, size } = std::mem::take(&mut extensions);
            if size.is_some_and(|size| size != entry.size()) {
                return Err(LayerError::Corrupt(io::Error::other("an entry has two sizes")));
            }
            let path = path.unwrap_or_else(|| entry.header().path_bytes().into_owned());
            let link = link.or_else(|| entry.header().link_name_bytes().map(std::borrow::Cow::into_owned));
            self.apply_entry(&mut entry, &path, link.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }

    fn apply_entry<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        path: &[u8],
        link: &[u8],
    ) -> Result<(), LayerError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let Some(key) = self.key(path)? else { return Ok(()) };
        let (parent, name) = split_last(&key);
        if name == OPAQUE {
            let parent = parent.to_owned();
            self.hide_below(&parent);
            return Ok(());
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            // The names `.wh..wh.…` are bookkeeping of old storage drivers.
            if !hidden.is_empty() && !hidden.starts_with(WHITEOUT) {
                let hidden = join(parent, hidden);
                self.hide(&hidden);
            }
            return Ok(());
        }
        if !self.is_wanted(&key) {
            // A file in the place of a directory hides the entries below it, also when the file is not wanted.
            if !kind.is_dir() {
                self.hide(&key);
            }
            return Ok(());
        }
        self.check_path(&key)?;
        let Some(key) = self.place(parent, name)? else {
            return Ok(());
        };
        self.charge(&key)?;
        match kind {
            EntryType::Directory => {
                if !matches!(self.tree.get(&key), Some(Node::Directory)) {
                    self.tree.insert(key.clone(), Node::Directory);
                }
            }
            EntryType::Regular | EntryType::Continuous => {
                let content = self.store(entry, &key)?;
                self.replace(&key, Node::File(content));
            }
            EntryType::Symlink => {
                let target = std::str::from_utf8(link)
                    .map_err(|_| escape(&path_of(&key)))?
                    .to_owned();
                if target.len() > self.limits.path_bytes || target.contains('\0') {
                    return Err(escape(&path_of(&key)));
                }
                self.charge(&target)?;
                self.replace(&key, Node::Link(target));
            }
            EntryType::Link => {
                let target = self.key(link)?.unwrap_or_default();
                let node = self
                    .tree
                    .get(&target)
                    .filter(|node| !matches!(node, Node::Directory))
                    .cloned();
                let node = node.ok_or_else(|| LayerError::HardLink {
                    path: shorten(&path_of(&key)),
                    target: shorten(&path_of(&target)),
                })?;
                self.replace(&key, node);
            }
            _ => {
                return Err(LayerError::Kind {
                    path: shorten(&path_of(&key)),
                });
            }
        }
        self.written.insert(key, self.layer);
        Ok(())
    }

    fn store<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        key: &str,
    ) -> Result<crate::layer::tree::FileContent, LayerError> {
        let size = entry.size();
        if size > self.limits.file_bytes {
            return Err(LayerError::FileBytes {
                path: shorten(&path_of(key)),
                limit: self.limits.file_bytes,
            });
        }
        self.kept += size;
        if self.kept > self.limits.kept_bytes {
            return Err(LayerError::KeptBytes {
                limit: self.limits.kept_bytes,
            });
        }
        self.sink.put(entry, size).map_err(|source| {
            if source.raw_os_error().is_some() {
                LayerError::Store {
                    path: shorten(&path_of(key)),
                    source,
                }
            } else {
                // Reading and writing fail in the same call; only the disk speaks in operating-system errors.
                LayerError::Corrupt(source)
            }
        })
    }

    /// The key of a path in the archive; nothing for the root itself.
    fn key(&self, path: &[u8]) -> Result<Option<String>, LayerError> {
        if path.len() > self.limits.path_bytes {
            return Err(LayerError::Path {
                path: shorten(&String::from_utf8_lossy(path)),
                limit: self.limits.path_bytes,
            });
        }
        match std::str::from_utf8(path).ok().and_then(clean) {
            Some(key) if key.is_empty() => Ok(None),
            Some(key) => Ok(Some(key)),
            None => Err(escape(&String::from_utf8_lossy(path))),
        }
    }

    fn check_path(&self, key: &str) -> Result<(), LayerError> {
        if key.split('\0').count() > self.limits.depth + 1 {
            return Err(LayerError::Depth {
                path: shorten(&path_of(key)),
                limit: self.limits.depth,
            });
        }
        if key.split('\0').any(|name| name.len() > self.limits.name_bytes) {
            return Err(LayerError::Name {
                path: shorten(&path_of(key)),
                limit: self.limits.name_bytes,
            });
        }
        Ok(())
    }

    fn is_wanted(&self, key: &str) -> bool {
        self.wanted
            .as_ref()
            .is_none_or(|wanted| wanted.iter().any(|directory| is_within(key, directory)))
    }

    /// The key an entry really lands on: links among its parents are followed, missing parents are made. `None` when
    /// the links lead out of the selection.
    fn place(&mut self, parent: &str, name: &str) -> Result<Option<String>, LayerError> {
        let parent = self.tree.follow(parent, &mut self.link_steps);
        self.check_link_steps()?;
        let Some(parent) = parent else {
            return Ok(None);
        };
        let key = join(&parent, name);
        if !self.is_wanted(&key) {
            return Ok(None);
        }
        // Links may have made it longer.
        self.check_path(&key)?;
        let mut directory = String::new();
        for component in parent.split('\0').filter(|component| !component.is_empty()) {
            directory = join(&directory, component);
            if !self.is_wanted(&directory) {
                continue;
            }
            if !matches!(self.tree.get(&directory), Some(Node::Directory)) {
                self.charge(&directory)?;
                self.tree.insert(directory.clone(), Node::Directory);
            }
            // An entry below a directory implies the directory, so that a whiteout in the same layer leaves it.
            if self.written.get(&directory) != Some(&self.layer) {
                self.written.insert(directory.clone(), self.layer);
            }
        }
        Ok(Some(key))
    }

    /// Counts a path or a link's target that goes into the tree: parents that no entry names cost memory too.
    fn charge(&mut self, path: &str) -> Result<(), LayerError> {
        self.paths += path.len() as u64;
        if self.paths > self.limits.paths_bytes {
            return Err(LayerError::PathsBytes {
                limit: self.limits.paths_bytes,
            });
        }
        Ok(())
    }

    fn replace(&mut self, key: &str, node: Node) {
        for below in self.tree.keys_below(key) {
            self.tree.remove(&below);
            self.written.remove(&below);
        }
        self.tree.insert(key.to_owned(), node);
    }

    /// Removes a path of lower layers with everything below it.
    fn hide(&mut self, key: &str) {
        self.hide_below(key);
        if self.written.get(key).is_some_and(|layer| *layer < self.layer) {
            self.tree.remove(key);
            self.written.remove(key);
        }
    }

    /// Removes the entries of lower layers below a path.
    fn hide_below(&mut self, key: &str) {
        if self.hidden.contains(key) {
            return;
        }
        let below = self.tree.keys_below(key);
        if below.is_empty() {
            // Not worth a note: paths that lead nowhere are as many as an archive likes.
            return;
        }
        #[cfg(test)]
        {
            self.looked_at += below.len();
        }
        for below in below {
            if self.written.get(&below).is_some_and(|layer| *layer < self.layer) {
                self.tree.remove(&below);
                self.written.remove(&below);
            }
        }
        self.hidden.insert(key.to_owned());
    }

    /// The waiting caller has given up by then, but cannot stop a thread.
    fn check_time(&self) -> Result<(), LayerError> {
        if self.began.elapsed() <= self.limits.time {
            return Ok(());
        }
        Err(LayerError::Time {
            seconds: self.limits.time.as_secs(),
        })
    }

    /// Links that lead through others cost much more than their bytes.
    fn check_link_steps(&self) -> Result<(), LayerError> {
        if self.link_steps <= ALL_LINK_STEPS {
            return Ok(());
        }
        Err(LayerError::LinkSteps {
            limit: ALL_LINK_STEPS,
        })
    }

    /// Readers make a file of each link, so a small image could become as large as it likes.
    fn check_links(&mut self) -> Result<(), LayerError> {
        let mut bytes: u64 = 0;
        self.link_steps = 0;
        for (path, node) in self.tree.entries() {
            let content = match node {
                Node::Directory => continue,
                Node::File(content) => content,
                Node::Link(_) => {
                    self.check_time()?;
                    self.check_link_steps()?;
                    match self.tree.resolve_counted(&path, &mut self.link_steps) {
                        Resolved::File(content) => content,
                        Resolved::Directory | Resolved::Missing => continue,
                    }
                }
            };
            bytes = bytes.saturating_add(content.len());
            if bytes > self.limits.kept_bytes {
                return Err(LayerError::LinkedBytes {
                    limit: self.limits.kept_bytes,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
