//! Layers: decompression, tar entries, whiteouts, and the limits that hold for all of them.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use tar::EntryType;

use crate::limits::{Limits, RATIO_FREE_BYTES};
use crate::tree::{Node, Sink, Storage, Tree, clean, is_within, join, path_of, split_last};

/// The name that hides a sibling of lower layers starts so.
const WHITEOUT: &str = ".wh.";
/// The entry that hides everything of lower layers in its directory.
const OPAQUE: &str = ".wh..wh..opq";
/// The most bytes of an extension header (long names, PAX records).
const EXTENSION_BYTES: u64 = 1 << 20;
/// How many bytes tell one compression from another.
const MAGIC_BYTES: u64 = 6;
/// The largest window of a zstd frame, as a power of two; a decoder must hold it in memory.
const ZSTD_WINDOW: u32 = 26;

/// Which part of the file system is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// All of it.
    Everything,
    /// These directories and what is below them.
    Below(Vec<String>),
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The bytes are no tar archive, or a broken or truncated one.
    #[error("corrupt or truncated layer")]
    Corrupt(#[source] io::Error),
    /// A compression that is not supported.
    #[error("the layer is compressed with {0}, which is not supported")]
    Compression(&'static str),
    /// Bytes of files could not be stored.
    #[error("cannot store the content of `{path}`")]
    Store {
        /// The path in the image.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// More entries than [`Limits::entries`].
    #[error("the image has more than {limit} entries")]
    Entries {
        /// The limit.
        limit: u64,
    },
    /// More bytes than [`Limits::unpacked_bytes`].
    #[error("the image unpacks to more than {limit} bytes")]
    UnpackedBytes {
        /// The limit.
        limit: u64,
    },
    /// More bytes than [`Limits::kept_bytes`].
    #[error("the files to keep are larger than {limit} bytes together")]
    KeptBytes {
        /// The limit.
        limit: u64,
    },
    /// A file larger than [`Limits::file_bytes`].
    #[error("file `{path}` is larger than {limit} bytes")]
    FileBytes {
        /// The path in the image.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// Longer paths together than [`Limits::paths_bytes`].
    #[error("the paths of the files to keep have more than {limit} bytes together")]
    PathsBytes {
        /// The limit.
        limit: u64,
    },
    /// A layer that grows more than [`Limits::ratio`] times.
    #[error("a layer unpacks to more than {limit} times its compressed size")]
    Ratio {
        /// The limit.
        limit: u64,
    },
    /// A path below more directories than [`Limits::depth`].
    #[error("path `{path}` is deeper than {limit} directories")]
    Depth {
        /// The path in the image, shortened.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A path component longer than [`Limits::name_bytes`].
    #[error("a name in `{path}` is longer than {limit} bytes")]
    Name {
        /// The path in the image, shortened.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A path longer than [`Limits::path_bytes`].
    #[error("path `{path}` is longer than {limit} bytes")]
    Path {
        /// The path in the image, shortened.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A path that leaves the image, is not UTF-8 or holds a NUL.
    #[error("path `{path}` is not allowed")]
    Escape {
        /// The path in the image, shortened.
        path: String,
    },
    /// A hard link to something that is not among the files to keep.
    #[error("hard link `{path}` leads to `{target}`, which is not there")]
    HardLink {
        /// The path in the image, shortened.
        path: String,
        /// Where it leads, shortened.
        target: String,
    },
    /// A device, a pipe or another kind of entry that no catalog or bundle holds.
    #[error("`{path}` is no file, directory or link")]
    Kind {
        /// The path in the image, shortened.
        path: String,
    },
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
    /// Bytes of the paths that were put into the tree.
    paths: u64,
    layer: usize,
    /// The layer each kept path was last written by: a whiteout hides lower layers only.
    written: HashMap<String, usize>,
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
        })
    }

    pub(crate) fn finish(mut self) -> Result<Tree, LayerError> {
        self.sink.finish().map_err(|source| LayerError::Store {
            path: "(spool)".to_owned(),
            source,
        })?;
        Ok(self.tree)
    }

    /// Applies the next layer and reads it to its end. `compressed` is its size as transferred, in bytes.
    pub(crate) fn apply(&mut self, mut reader: impl BufRead, compressed: u64) -> Result<(), LayerError> {
        self.layer += 1;
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
        // What follows the archive is part of the blob, whose digest covers all of it.
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
            Some(Trip::Ratio) => Err(LayerError::Ratio { limit: ratio }),
            Some(Trip::Size) => Err(LayerError::UnpackedBytes {
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
            // A file in the place of a directory hides what lies below it, also when nobody wants the file.
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
    ) -> Result<crate::tree::Content, LayerError> {
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

    /// The key an entry really lands on: links among its parents are followed, missing parents are made. Nothing when
    /// the links lead out of what is wanted.
    fn place(&mut self, parent: &str, name: &str) -> Result<Option<String>, LayerError> {
        let Some(parent) = self.tree.follow(parent) else {
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
            if self.is_wanted(&directory) && !matches!(self.tree.get(&directory), Some(Node::Directory)) {
                self.charge(&directory)?;
                self.tree.insert(directory.clone(), Node::Directory);
                self.written.insert(directory.clone(), self.layer);
            }
        }
        Ok(Some(key))
    }

    /// Counts a path that goes into the tree: parents that no entry names cost memory too.
    fn charge(&mut self, key: &str) -> Result<(), LayerError> {
        self.paths += key.len() as u64;
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

    /// Removes what lower layers put below a path.
    fn hide_below(&mut self, key: &str) {
        for below in self.tree.keys_below(key) {
            if self.written.get(&below).is_some_and(|layer| *layer < self.layer) {
                self.tree.remove(&below);
                self.written.remove(&below);
            }
        }
    }
}

/// What extension headers say about the entry that follows them.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Extensions {
    /// Takes an entry that only describes the next one. Says whether it was one.
    fn take<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<bool, LayerError> {
        match entry.header().entry_type() {
            EntryType::GNULongName => self.path = Some(read_name(entry)?),
            EntryType::GNULongLink => self.link = Some(read_name(entry)?),
            EntryType::XHeader => {
                let bytes = read_extension(entry)?;
                for record in tar::PaxExtensions::new(&bytes) {
                    let record = record.map_err(LayerError::Corrupt)?;
                    match record.key_bytes() {
                        b"path" => self.path = Some(record.value_bytes().to_vec()),
                        b"linkpath" => self.link = Some(record.value_bytes().to_vec()),
                        b"size" => {
                            let size = record.value().ok().and_then(|text| text.parse().ok());
                            self.size = Some(size.ok_or_else(|| {
                                LayerError::Corrupt(io::Error::other("a size is no number"))
                            })?);
                        }
                        _ => {}
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn read_name<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, LayerError> {
    let mut bytes = read_extension(entry)?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

fn read_extension<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, LayerError> {
    if entry.size() > EXTENSION_BYTES {
        return Err(LayerError::Corrupt(io::Error::other(
            "an extension header is too long",
        )));
    }
    let mut bytes = Vec::new();
    entry
        .take(EXTENSION_BYTES)
        .read_to_end(&mut bytes)
        .map_err(LayerError::Corrupt)?;
    Ok(bytes)
}

/// Why the meter stopped the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trip {
    Ratio,
    Size,
}

/// Counts decompressed bytes and stops when there are too many.
struct Meter<R> {
    inner: R,
    read: u64,
    by_ratio: u64,
    by_size: u64,
    tripped: Rc<Cell<Option<Trip>>>,
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read += read as u64;
        let trip = if self.read > self.by_size {
            Trip::Size
        } else if self.read > self.by_ratio {
            Trip::Ratio
        } else {
            return Ok(read);
        };
        self.tripped.set(Some(trip));
        Err(io::Error::other("limit"))
    }
}

/// The compression of a layer, by its first bytes: media types are wrong too often.
enum Compression {
    None,
    Gzip,
    Zstd,
    Unsupported(&'static str),
}

impl Compression {
    const fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [b'B', b'Z', b'h', ..] => Self::Unsupported("bzip2"),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Unsupported("xz"),
            _ => Self::None,
        }
    }
}

fn escape(path: &str) -> LayerError {
    LayerError::Escape { path: shorten(path) }
}

/// A path for a message: without control characters, and not longer than a line.
fn shorten(path: &str) -> String {
    path.chars()
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .take(120)
        .collect()
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
