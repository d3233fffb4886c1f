//! Layers made from files: root owns everything, times are zero, the order is that of the paths.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use oci_distribution::manifest::IMAGE_LAYER_GZIP_MEDIA_TYPE;

use super::{BuildError, Source};
use crate::digest::{Digest, Hasher};
use crate::layer::tree::{Node, Tree, clean, path_of};
use crate::manifest::Blob;

/// The compression level of layers: most of the gain for little time.
const GZIP_LEVEL: u32 = 6;
/// The deepest directory that is read.
const DEPTH: usize = 64;

/// A compressed layer.
#[derive(Clone, Debug)]
pub struct BuiltLayer {
    pub(super) blob: Blob,
    pub(super) diff_id: Digest,
    pub(super) source: Source,
}

impl BuiltLayer {
    /// The compressed layer as a blob.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }
}

/// Gathers the entries of a layer. Owners are root, times are zero, the order is that of the paths, so the bytes depend
/// on nothing else.
#[derive(Clone, Debug, Default)]
pub struct LayerBuilder {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    Bytes { bytes: Bytes, mode: u32 },
    File { path: PathBuf, mode: u32 },
    Link { target: String },
}

impl LayerBuilder {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory.
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<(), BuildError> {
        self.insert(path, Entry::Directory { mode })
    }

    /// Adds a file with these bytes.
    pub fn bytes(&mut self, path: &str, bytes: impl Into<Bytes>, mode: u32) -> Result<(), BuildError> {
        self.insert(
            path,
            Entry::Bytes {
                bytes: bytes.into(),
                mode,
            },
        )
    }

    /// Adds a file from the disk. It is read when the layer is built.
    pub fn file(&mut self, path: &str, from: impl Into<PathBuf>, mode: u32) -> Result<(), BuildError> {
        self.insert(
            path,
            Entry::File {
                path: from.into(),
                mode,
            },
        )
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: impl Into<String>) -> Result<(), BuildError> {
        self.insert(
            path,
            Entry::Link {
                target: target.into(),
            },
        )
    }

    /// Adds everything below a directory of the disk. Files get mode 0644, or 0755 when their owner may run them. A
    /// link stays a link.
    pub fn tree(&mut self, path: &str, from: &Path) -> Result<(), BuildError> {
        let mut todo = vec![(path.to_owned(), from.to_owned(), 0_usize)];
        while let Some((path, from, depth)) = todo.pop() {
            let wrong = |source| BuildError::Read {
                path: from.clone(),
                source,
            };
            if depth > DEPTH {
                return Err(BuildError::Kind { path: from });
            }
            if depth > 0 || clean(&path).is_some_and(|key| !key.is_empty()) {
                self.directory(&path, 0o755)?;
            }
            for entry in std::fs::read_dir(&from).map_err(wrong)? {
                let entry = entry.map_err(wrong)?;
                let name = entry.file_name();
                let name = name
                    .to_str()
                    .ok_or_else(|| BuildError::Path { path: entry.path() })?;
                let target = format!("{}/{name}", path.trim_end_matches('/'));
                let metadata = entry.metadata().map_err(wrong)?;
                if metadata.is_dir() {
                    todo.push((target, entry.path(), depth + 1));
                } else if metadata.is_symlink() {
                    let link = std::fs::read_link(entry.path()).map_err(wrong)?;
                    let link = link
                        .to_str()
                        .ok_or_else(|| BuildError::Path { path: entry.path() })?;
                    self.link(&target, link)?;
                } else if metadata.is_file() {
                    let runs = metadata.permissions().mode() & 0o100 != 0;
                    self.file(&target, entry.path(), if runs { 0o755 } else { 0o644 })?;
                } else {
                    return Err(BuildError::Kind { path: entry.path() });
                }
            }
        }
        Ok(())
    }

    /// File tree of an image of this layer alone. Its files are empty.
    pub fn outline(&self) -> Tree {
        let mut tree = Tree::default();
        for (key, entry) in &self.entries {
            let node = match entry {
                Entry::Directory { .. } => Node::Directory,
                Entry::Bytes { .. } | Entry::File { .. } => Node::File(Bytes::new().into()),
                Entry::Link { target } => Node::Link(target.clone()),
            };
            tree.insert(key.clone(), node);
        }
        tree
    }

    fn insert(&mut self, path: &str, entry: Entry) -> Result<(), BuildError> {
        let key = clean(path)
            .filter(|key| !key.is_empty())
            .ok_or_else(|| BuildError::Path { path: path.into() })?;
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Compresses the layer in memory.
    pub fn build(self) -> Result<BuiltLayer, BuildError> {
        let (bytes, hashes) = self.write(Vec::new(), Path::new("(memory)"))?;
        Ok(hashes.layer(Source::Memory(bytes.into())))
    }

    /// Compresses the layer into an unnamed-for-others file of this directory, which goes away with the image. For
    /// layers that may be large.
    pub fn build_in(self, directory: &Path) -> Result<BuiltLayer, BuildError> {
        let wrong = |source| BuildError::Write {
            path: directory.to_owned(),
            source,
        };
        let file = tempfile::NamedTempFile::new_in(directory).map_err(wrong)?;
        let (file, hashes) = self.write(file, directory)?;
        file.as_file().rewind().map_err(wrong)?;
        Ok(hashes.layer(Source::File(Arc::new(file))))
    }

    fn write<W: Write>(mut self, output: W, place: &Path) -> Result<(W, Hashes), BuildError> {
        self.add_parents();
        let wrong = |source| BuildError::Write {
            path: place.to_owned(),
            source,
        };
        let counted = HashingWriter::new(output);
        let gzip = flate2::GzBuilder::new()
            .mtime(0)
            .write(counted, flate2::Compression::new(GZIP_LEVEL));
        let mut archive = tar::Builder::new(HashingWriter::new(gzip));
        for (key, entry) in &self.entries {
            let path = path_of(key);
            match entry {
                Entry::Directory { mode } => {
                    let mut header = header(tar::EntryType::Directory, *mode, 0);
                    archive
                        .append_data(&mut header, format!("{path}/"), io::empty())
                        .map_err(wrong)?;
                }
                Entry::Bytes { bytes, mode } => {
                    let mut header = header(tar::EntryType::Regular, *mode, bytes.len() as u64);
                    archive
                        .append_data(&mut header, path.as_ref(), bytes.as_ref())
                        .map_err(wrong)?;
                }
                Entry::File { path: from, mode } => {
                    let unreadable = |source| BuildError::Read {
                        path: from.clone(),
                        source,
                    };
                    let file = std::fs::File::open(from).map_err(unreadable)?;
                    let size = file.metadata().map_err(unreadable)?.len();
                    let mut header = header(tar::EntryType::Regular, *mode, size);
                    // A file that grows meanwhile must not spoil the archive.
                    archive
                        .append_data(&mut header, path.as_ref(), file.take(size))
                        .map_err(wrong)?;
                }
                Entry::Link { target } => {
                    let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                    archive
                        .append_link(&mut header, path.as_ref(), target)
                        .map_err(wrong)?;
                }
            }
        }
        let plain = archive.into_inner().map_err(wrong)?;
        let diff_id = plain.hasher.finish();
        let compressed = plain.inner.finish().map_err(wrong)?;
        let (digest, size) = (compressed.hasher.finish(), compressed.written);
        Ok((
            compressed.inner,
            Hashes {
                diff_id,
                digest,
                size,
            },
        ))
    }

    /// Every directory above an entry is an entry too, so that its mode is known.
    fn add_parents(&mut self) {
        let mut missing = Vec::new();
        for key in self.entries.keys() {
            let mut key = key.as_str();
            while let Some((parent, _)) = key.rsplit_once('\0') {
                missing.push(parent.to_owned());
                key = parent;
            }
        }
        for parent in missing {
            self.entries
                .entry(parent)
                .or_insert(Entry::Directory { mode: 0o755 });
        }
    }
}

pub(super) fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

struct Hashes {
    diff_id: Digest,
    digest: Digest,
    size: u64,
}

impl Hashes {
    fn layer(self, source: Source) -> BuiltLayer {
        let media_type = IMAGE_LAYER_GZIP_MEDIA_TYPE.to_owned();
        BuiltLayer {
            blob: Blob {
                digest: self.digest,
                size: self.size,
                media_type,
            },
            diff_id: self.diff_id,
            source,
        }
    }
}

struct HashingWriter<W> {
    inner: W,
    hasher: Hasher,
    written: u64,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Hasher::sha256(),
            written: 0,
        }
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hasher.update(buffer.get(..written).unwrap_or_default());
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tree::Storage;
    use crate::layer::{Selection, Unpacker};
    use crate::limits::Limits;

    #[test]
    fn an_outline_tells_which_links_whoever_reads_the_image_cannot_follow() {
        let mut layer = LayerBuilder::new();
        layer.directory("/configs/d", 0o755).unwrap();
        layer.bytes("/configs/a.yaml", "a: 1", 0o644).unwrap();
        for (path, target) in [
            ("/configs/good", "a.yaml"),
            ("/configs/d/up", "../a.yaml"),
            ("/configs/absolute", "/configs/a.yaml"),
            ("/configs/directory", "d"),
            ("/configs/nowhere", "b.yaml"),
            ("/configs/out", "../../etc/passwd"),
            ("/elsewhere", "nowhere"),
        ] {
            layer.link(path, target).unwrap();
        }
        let tree = layer.outline();
        let astray: Vec<_> = tree
            .astray("/configs")
            .map(|link| (link.path, link.target))
            .collect();
        let expected = [
            ("directory", "d"),
            ("nowhere", "b.yaml"),
            ("out", "../../etc/passwd"),
        ];
        assert_eq!(
            astray,
            expected.map(|(path, target)| (path.to_owned(), target.to_owned()))
        );
    }

    fn sample() -> LayerBuilder {
        let mut layer = LayerBuilder::new();
        layer.bytes("/configs/b/catalog.json", "{}", 0o644).unwrap();
        layer.bytes("configs/a.yaml", "a: 1", 0o600).unwrap();
        layer.link("configs/link", "a.yaml").unwrap();
        layer
            .bytes(&format!("configs/{}/long", "d".repeat(150)), "x", 0o644)
            .unwrap();
        layer
    }

    #[test]
    fn the_same_files_give_the_same_bytes_and_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let memory = sample().build().unwrap();
        let file = sample().build_in(directory.path()).unwrap();
        assert_eq!(memory.blob, file.blob);
        for layer in [memory, file] {
            let mut unpacker =
                Unpacker::new(&Selection::Everything, &Storage::Memory, &Limits::bundle()).unwrap();
            let reader = io::BufReader::new(layer.source.open().unwrap());
            unpacker.apply(reader, layer.blob.size).unwrap();
            let tree = unpacker.finish().unwrap();
            let found: Vec<_> = tree
                .entries()
                .map(|(path, node)| match node {
                    Node::Directory => format!("{path}/"),
                    Node::File(content) => {
                        format!("{path}={}", String::from_utf8_lossy(&content.read_all().unwrap()))
                    }
                    Node::Link(target) => format!("{path}->{target}"),
                })
                .collect();
            let long = "d".repeat(150);
            assert_eq!(
                found,
                [
                    "configs/",
                    "configs/a.yaml=a: 1",
                    "configs/b/",
                    "configs/b/catalog.json={}",
                    &format!("configs/{long}/"),
                    &format!("configs/{long}/long=x"),
                    "configs/link->a.yaml"
                ]
            );
        }
    }

    #[test]
    fn a_directory_becomes_a_layer() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("sub/deep")).unwrap();
        std::fs::write(directory.path().join("sub/deep/file"), "1").unwrap();
        std::fs::write(directory.path().join("run"), "#!").unwrap();
        std::fs::set_permissions(
            directory.path().join("run"),
            std::fs::Permissions::from_mode(0o700),
        )
        .unwrap();
        std::os::unix::fs::symlink("run", directory.path().join("link")).unwrap();
        let mut layer = LayerBuilder::new();
        layer.tree("/", directory.path()).unwrap();
        let found: Vec<_> = layer
            .entries
            .iter()
            .map(|(key, entry)| match entry {
                Entry::Directory { mode } | Entry::File { mode, .. } => format!("{} {mode:o}", path_of(key)),
                Entry::Link { target } => format!("{}->{target}", path_of(key)),
                Entry::Bytes { .. } => unreachable!(),
            })
            .collect();
        assert_eq!(
            found,
            [
                "link->run",
                "run 755",
                "sub 755",
                "sub/deep 755",
                "sub/deep/file 644"
            ]
        );
        assert!(matches!(
            layer.bytes("../escape", "", 0o644),
            Err(BuildError::Path { .. })
        ));
        assert!(matches!(
            layer.bytes("/", "", 0o644),
            Err(BuildError::Path { .. })
        ));
    }
}
