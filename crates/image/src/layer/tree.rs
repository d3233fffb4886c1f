//! The merged file system of an image, or the wanted part.
//!
//! Names that come from an image never become names on disk: the tree lives in memory, and the bytes of its files lie
//! one behind the other in a single unnamed file (or in memory, for small images). So no path, link or letter case in
//! an image can reach anything outside, and nothing is left behind when the process dies.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// The most links that are followed for one path.
const LINK_HOPS: usize = 40;
/// The most components that are looked at for one path, those of links on its way among them.
const LINK_STEPS: u64 = 4096;
/// The most components that are looked at for all links of an image together: following them costs time again and
/// again, in every step that unpacks, checks and reads it.
pub(crate) const ALL_LINK_STEPS: u64 = 1 << 20;
/// Separates path components in keys: below every other character, so that keys sort as a directory walk does.
const SEPARATOR: char = '\0';

/// Storage for the bytes of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    Memory,
    /// In an unnamed file within this directory.
    Directory(PathBuf),
}

/// The bytes of one file.
#[derive(Clone, Debug)]
pub struct FileContent(Backing);

#[derive(Clone, Debug)]
enum Backing {
    Memory(Bytes),
    Spool {
        file: Arc<File>,
        offset: u64,
        length: u64,
    },
}

impl FileContent {
    /// The number of bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Backing::Memory(bytes) => bytes.len() as u64,
            Backing::Spool { length, .. } => *length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A reader over the bytes. Any number of them can be used at the same time.
    pub fn reader(&self) -> ContentReader {
        ContentReader {
            content: self.clone(),
            position: 0,
        }
    }

    /// The bytes as a whole. The caller knows that they are few, from [`FileContent::len`].
    pub fn read_all(&self) -> io::Result<Bytes> {
        match &self.0 {
            Backing::Memory(bytes) => Ok(bytes.clone()),
            Backing::Spool { .. } => {
                let mut bytes = Vec::with_capacity(usize::try_from(self.len()).unwrap_or_default());
                self.reader().read_to_end(&mut bytes)?;
                Ok(bytes.into())
            }
        }
    }
}

impl From<Bytes> for FileContent {
    fn from(bytes: Bytes) -> Self {
        Self(Backing::Memory(bytes))
    }
}

/// Reads the bytes of one file.
#[derive(Clone, Debug)]
pub struct ContentReader {
    content: FileContent,
    position: u64,
}

impl Read for ContentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &self.content.0 {
            Backing::Memory(bytes) => {
                let start = usize::try_from(self.position).unwrap_or(usize::MAX);
                bytes.get(start..).unwrap_or_default().read(buffer)?
            }
            Backing::Spool { file, offset, length } => {
                let left = usize::try_from(length.saturating_sub(self.position)).unwrap_or(usize::MAX);
                let wanted = left.min(buffer.len());
                let target = buffer.get_mut(..wanted).unwrap_or_default();
                let read = file.read_at(target, offset + self.position)?;
                if read == 0 && wanted > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                read
            }
        };
        self.position += read as u64;
        Ok(read)
    }
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub enum Node {
    /// A directory.
    Directory,
    /// A regular file.
    File(FileContent),
    /// A symbolic link with its target as it is written.
    Link(String),
}

/// Result of following the links of a path.
#[derive(Clone, Debug)]
pub enum Resolved<'tree> {
    /// To a regular file.
    File(&'tree FileContent),
    /// To a directory.
    Directory,
    /// Nowhere within the tree: to a path that is not there, out of the image, or in circles.
    Missing,
}

/// A link that readers of the image cannot use as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableLink {
    /// The path of the link, relative to the directory that was asked about.
    pub path: String,
    /// Its target as it is written.
    pub target: String,
    /// The reason, as the place that it leads to.
    pub why: &'static str,
}

/// A part of an image's merged file system.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// All paths with their nodes, in the order of a directory walk: the entries of a directory by name, each followed
    /// by all below it.
    pub fn entries(&self) -> impl Iterator<Item = (Cow<'_, str>, &Node)> {
        self.nodes.iter().map(|(key, node)| (path_of(key), node))
    }

    /// Everything below a directory, in the order of a walk, with paths relative to it. `""` and `"/"` mean the root.
    pub fn below(&self, directory: &str) -> impl Iterator<Item = (Cow<'_, str>, &Node)> {
        let prefix = match clean(directory) {
            Some(key) if !key.is_empty() => format!("{key}{SEPARATOR}"),
            _ => String::new(),
        };
        let length = prefix.len();
        self.nodes
            .range(prefix.clone()..)
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(move |(key, node)| (path_of(key.get(length..).unwrap_or_default()), node))
    }

    /// Target of a path after all links are followed within the tree.
    pub fn resolve(&self, path: &str) -> Resolved<'_> {
        self.resolve_counted(path, &mut 0)
    }

    /// [`Tree::resolve`], which adds the number of components that it looked at to `looked_at` where it met a link.
    pub(crate) fn resolve_counted(&self, path: &str, looked_at: &mut u64) -> Resolved<'_> {
        let Some(key) = clean(path) else {
            return Resolved::Missing;
        };
        let Some(key) = self.follow(&key, looked_at) else {
            return Resolved::Missing;
        };
        if key.is_empty() {
            return Resolved::Directory;
        }
        match self.nodes.get(&key) {
            Some(Node::File(content)) => Resolved::File(content),
            Some(Node::Directory) => Resolved::Directory,
            Some(Node::Link(_)) | None => Resolved::Missing,
        }
    }

    /// The links below a directory that lead to no file within the tree.
    pub fn astray(&self, directory: &str) -> impl Iterator<Item = UnusableLink> {
        self.below(directory).filter_map(move |(path, node)| {
            let Node::Link(target) = node else {
                return None;
            };
            let why = match self.resolve(&format!("{directory}/{path}")) {
                Resolved::File(_) => return None,
                Resolved::Directory => "it is a link to a directory",
                Resolved::Missing => "it is a link that leads out of the catalog, or nowhere",
            };
            Some(UnusableLink {
                path: path.into_owned(),
                target: target.clone(),
                why,
            })
        })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.nodes.get(key)
    }

    pub(crate) fn insert(&mut self, key: String, node: Node) {
        self.nodes.insert(key, node);
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.nodes.remove(key);
    }

    /// The keys strictly below a key.
    pub(crate) fn keys_below(&self, key: &str) -> Vec<String> {
        let prefix = if key.is_empty() {
            String::new()
        } else {
            format!("{key}{SEPARATOR}")
        };
        self.nodes
            .range(prefix.clone()..)
            .take_while(|(other, _)| other.starts_with(&prefix))
            .map(|(other, _)| other.clone())
            .collect()
    }

    /// The key that a key means when every link on its way is followed; `None` when it leaves the image or runs in
    /// circles. A key that is not in the tree is kept as it is. Adds to `looked_at` the components that were looked at,
    /// where a link was among them.
    pub(crate) fn follow(&self, key: &str, looked_at: &mut u64) -> Option<String> {
        let (found, hops, steps) = self.follow_links(key);
        if hops > 0 {
            *looked_at += steps;
        }
        found
    }

    /// The target of a key, the number of followed links, and the number of components that were looked at.
    fn follow_links(&self, key: &str) -> (Option<String>, usize, u64) {
        let mut here = String::new();
        let mut todo: Vec<String> = key.split(SEPARATOR).rev().map(str::to_owned).collect();
        let (mut hops, mut steps) = (0usize, 0u64);
        while let Some(component) = todo.pop() {
            steps += 1;
            if steps > LINK_STEPS {
                return (None, hops, steps);
            }
            match component.as_str() {
                "" | "." => continue,
                ".." if here.is_empty() => return (None, hops, steps),
                ".." => {
                    here.truncate(split_last(&here).0.len());
                    continue;
                }
                _ => {}
            }
            let parent = here.len();
            if parent > 0 {
                here.push(SEPARATOR);
            }
            here.push_str(&component);
            if let Some(Node::Link(target)) = self.nodes.get(&here) {
                hops += 1;
                if hops > LINK_HOPS || target.len() > 4096 {
                    return (None, hops, steps);
                }
                here.truncate(if target.starts_with('/') { 0 } else { parent });
                todo.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        (Some(here), hops, steps)
    }
}

/// The key of a path: components joined by the separator. Nothing for a path that leaves the root or holds a NUL.
pub(crate) fn clean(path: &str) -> Option<String> {
    if path.contains(SEPARATOR) {
        return None;
    }
    let mut components: Vec<&str> = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => return None,
            component => components.push(component),
        }
    }
    Some(components.join("\0"))
}

/// The key one directory up, and the last component.
pub(crate) fn split_last(key: &str) -> (&str, &str) {
    key.rsplit_once(SEPARATOR).unwrap_or(("", key))
}

pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}{SEPARATOR}{name}")
    }
}

/// Whether `key` is `ancestor` or below it.
pub(crate) fn is_within(key: &str, ancestor: &str) -> bool {
    ancestor.is_empty()
        || key
            .strip_prefix(ancestor)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(SEPARATOR))
}

pub(crate) fn path_of(key: &str) -> Cow<'_, str> {
    if key.contains(SEPARATOR) {
        Cow::Owned(key.replace(SEPARATOR, "/"))
    } else {
        Cow::Borrowed(key)
    }
}

/// Takes the bytes of files, one after the other.
pub(crate) enum Sink {
    Memory,
    Spool {
        file: Arc<File>,
        end: u64,
        buffer: Vec<u8>,
    },
}

/// Bytes are gathered to this size before they are written.
const BUFFER_BYTES: usize = 256 << 10;

impl Sink {
    pub(crate) fn new(storage: &Storage) -> io::Result<Self> {
        Ok(match storage {
            Storage::Memory => Self::Memory,
            Storage::Directory(directory) => Self::Spool {
                file: Arc::new(tempfile::tempfile_in(directory)?),
                end: 0,
                buffer: Vec::with_capacity(BUFFER_BYTES),
            },
        })
    }

    /// Takes a file of `length` bytes.
    pub(crate) fn put(&mut self, mut reader: impl Read, length: u64) -> io::Result<FileContent> {
        match self {
            Self::Memory => {
                let mut bytes =
                    BytesMut::with_capacity(usize::try_from(length).unwrap_or_default().min(1 << 20));
                let mut chunk = [0; 8 << 10];
                loop {
                    let read = reader.read(&mut chunk)?;
                    if read == 0 {
                        break;
                    }
                    bytes.extend_from_slice(chunk.get(..read).unwrap_or_default());
                }
                if bytes.len() as u64 != length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(FileContent(Backing::Memory(bytes.freeze())))
            }
            Self::Spool { file, end, buffer } => {
                let offset = *end;
                let mut left = length;
                while left > 0 {
                    let room = BUFFER_BYTES.saturating_sub(buffer.len()) as u64;
                    let read = reader.by_ref().take(room.min(left)).read_to_end(buffer)? as u64;
                    if read == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    left -= read;
                    *end += read;
                    if buffer.len() >= BUFFER_BYTES {
                        file.as_ref().write_all(buffer)?;
                        buffer.clear();
                    }
                }
                Ok(FileContent(Backing::Spool {
                    file: Arc::clone(file),
                    offset,
                    length,
                }))
            }
        }
    }

    /// Writes bytes that are still buffered. Must be called before anything is read.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Self::Spool { file, buffer, .. } = self {
            file.as_ref().write_all(buffer)?;
            *buffer = Vec::new();
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::layer) fn tree(entries: &[(&str, Node)]) -> Tree {
        let mut tree = Tree::default();
        for (path, node) in entries {
            tree.insert(clean(path).unwrap(), node.clone());
        }
        tree
    }

    pub(in crate::layer) fn file(text: &'static str) -> Node {
        Node::File(Bytes::from_static(text.as_bytes()).into())
    }

    pub(in crate::layer) fn link(target: &str) -> Node {
        Node::Link(target.to_owned())
    }

    #[test]
    fn entries_come_in_the_order_of_a_directory_walk() {
        let tree = tree(&[
            ("a-b/x", file("")),
            ("a/x", file("")),
            ("a", Node::Directory),
            ("a-b", Node::Directory),
            ("a.txt", file("")),
            ("B", file("")),
        ]);
        let paths: Vec<_> = tree.entries().map(|(path, _)| path.into_owned()).collect();
        assert_eq!(paths, ["B", "a", "a/x", "a-b", "a-b/x", "a.txt"]);
        let below: Vec<_> = tree.below("/a/").map(|(path, _)| path.into_owned()).collect();
        assert_eq!(below, ["x"]);
        assert_eq!(tree.below("/").count(), 6);
        assert_eq!(tree.below("missing").count(), 0);
    }

    #[test]
    fn links_lead_nowhere_but_into_the_tree() {
        let tree = tree(&[
            ("d", Node::Directory),
            ("d/f", file("content")),
            ("d/relative", link("f")),
            ("d/up", link("../d/f")),
            ("absolute", link("/d/f")),
            ("directory", link("d")),
            ("outside", link("../../etc/passwd")),
            ("host", link("/etc/passwd")),
            ("circle", link("circle")),
            ("twin", link("niwt")),
            ("niwt", link("twin")),
        ]);
        let check = |path: &str, expected: &str| {
            let found = match tree.resolve(path) {
                Resolved::File(content) => String::from_utf8(content.read_all().unwrap().to_vec()).unwrap(),
                Resolved::Directory => "(directory)".to_owned(),
                Resolved::Missing => "(missing)".to_owned(),
            };
            assert_eq!(found, expected, "{path}");
        };
        for path in [
            "d/f",
            "d/relative",
            "d/up",
            "absolute",
            "directory/f",
            "directory/relative",
            "/d/./f",
        ] {
            check(path, "content");
        }
        check("directory", "(directory)");
        check("", "(directory)");
        for path in ["outside", "host", "circle", "twin", "d/f/x", "../d/f", "nothing"] {
            check(path, "(missing)");
        }
    }

    #[test]
    fn bytes_come_back_from_either_storage() {
        let directory = tempfile::tempdir().unwrap();
        let large = vec![b'x'; BUFFER_BYTES + 77];
        for storage in [Storage::Memory, Storage::Directory(directory.path().to_owned())] {
            let mut sink = Sink::new(&storage).unwrap();
            let contents: Vec<_> = [b"one".as_slice(), b"", &large, b"two"]
                .iter()
                .map(|bytes| (sink.put(*bytes, bytes.len() as u64).unwrap(), bytes.to_vec()))
                .collect();
            sink.finish().unwrap();
            for (content, expected) in &contents {
                assert_eq!(content.read_all().unwrap(), expected.as_slice());
                assert_eq!(content.is_empty(), expected.is_empty());
            }
            let short = sink.put(b"12".as_slice(), 3).unwrap_err();
            assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        }
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            0,
            "the spool has no name"
        );
    }
}
