//! Images made from files: the same input gives the same bytes, so the same digests.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_LAYER_GZIP_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor,
    OciImageManifest,
};
use serde_json::json;

use crate::digest::{Digest, Hasher};
use crate::pull::Platform;
use crate::transfer::Blob;
use crate::tree::{clean, path_of};

/// The compression level of layers: most of the gain for little time.
const GZIP_LEVEL: u32 = 6;
/// The deepest directory that is read.
const DEPTH: usize = 64;

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or directory cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A layer or an archive cannot be written.
    #[error("cannot write `{path}`")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A path in the image leaves it, or is not UTF-8.
    #[error("`{path}` is no path within an image")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Something that is no file, directory or link, or a directory that is too deep.
    #[error("`{path}` cannot stand in an image")]
    Kind {
        /// The path.
        path: PathBuf,
    },
}

/// Where the bytes of a blob are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Memory(Bytes),
    File(Arc<tempfile::NamedTempFile>),
}

impl Source {
    pub(crate) fn open(&self) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(io::Cursor::new(bytes.clone())),
            Self::File(file) => Box::new(file.reopen()?),
        })
    }
}

/// A finished image: its blobs and their manifest.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    pub(crate) manifest: Bytes,
    pub(crate) blobs: Vec<(Blob, Source)>,
    platform: Platform,
}

impl BuiltImage {
    /// The digest of the manifest, which is the image's.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// The configuration and the layers.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.blobs.iter().map(|(blob, _)| blob)
    }

    /// The size of all blobs as they are transferred, in bytes.
    pub fn transfer_bytes(&self) -> u64 {
        self.blobs().map(|blob| blob.size).sum()
    }

    /// Writes the image as a tar archive in OCI layout, which container engines load. `name` is what they call it then.
    pub fn write_archive(&self, path: &Path, name: Option<&str>) -> Result<(), BuildError> {
        let wrong = |source| BuildError::Write {
            path: path.to_owned(),
            source,
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(parent).map_err(wrong)?;
        let mut archive = tar::Builder::new(io::BufWriter::new(file));
        self.write_entries(&mut archive, name).map_err(wrong)?;
        let file = archive
            .into_inner()
            .map_err(wrong)?
            .into_inner()
            .map_err(|error| wrong(error.into_error()))?;
        let readable = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file.path(), readable).map_err(wrong)?;
        file.persist(path).map_err(|error| wrong(error.error))?;
        Ok(())
    }

    fn write_entries(&self, archive: &mut tar::Builder<impl Write>, name: Option<&str>) -> io::Result<()> {
        let mut put = |path: &str, size: u64, reader: &mut dyn io::Read| {
            let mut header = header(tar::EntryType::Regular, 0o644, size);
            archive.append_data(&mut header, path, reader)
        };
        let mut annotations = BTreeMap::new();
        if let Some(name) = name {
            annotations.insert("io.containerd.image.name", name);
            // The tag alone is what the specification means by the reference name.
            let tag = name
                .rsplit_once('/')
                .map_or(name, |(_, last)| last)
                .split_once(':')
                .map(|(_, tag)| tag);
            annotations.insert("org.opencontainers.image.ref.name", tag.unwrap_or(name));
        }
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": OCI_IMAGE_MEDIA_TYPE,
                "digest": self.digest().to_string(),
                "size": self.manifest.len(),
                "platform": {"os": self.platform.os, "architecture": self.platform.architecture},
                "annotations": annotations,
            }],
        });
        let index = serde_json::to_vec(&index)?;
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#;
        put("oci-layout", layout.len() as u64, &mut layout.as_slice())?;
        put("index.json", index.len() as u64, &mut index.as_slice())?;
        let blob_path = |digest: &Digest| format!("blobs/{}/{}", digest.algorithm(), digest.hex());
        put(
            &blob_path(&self.digest()),
            self.manifest.len() as u64,
            &mut self.manifest.as_ref(),
        )?;
        for (blob, source) in &self.blobs {
            put(&blob_path(&blob.digest), blob.size, &mut source.open()?)?;
        }
        Ok(())
    }
}

/// Makes an image from layers and a configuration.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    platform: Platform,
    labels: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    user: Option<String>,
    directory: Option<String>,
    layers: Vec<BuiltLayer>,
}

impl Default for ImageBuilder {
    /// An empty image for this machine's platform.
    fn default() -> Self {
        Self::new(Platform::host())
    }
}

impl ImageBuilder {
    /// An empty image for a platform.
    pub const fn new(platform: Platform) -> Self {
        Self {
            platform,
            labels: BTreeMap::new(),
            environment: BTreeMap::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            user: None,
            directory: None,
            layers: Vec::new(),
        }
    }

    /// Sets a label of the configuration.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn environment(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(key.into(), value.into());
        self
    }

    /// Sets the program that a container runs.
    #[must_use]
    pub fn entrypoint(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the default arguments of the program.
    #[must_use]
    pub fn command(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the user a container runs as, for example `65532:65532`.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the directory a container starts in.
    #[must_use]
    pub fn working_directory(mut self, directory: impl Into<String>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Puts a layer on top.
    #[must_use]
    pub fn layer(mut self, layer: BuiltLayer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Finishes the image.
    pub fn build(self) -> BuiltImage {
        let mut config = json!({"Labels": self.labels});
        if let Some(map) = config.as_object_mut() {
            let environment: Vec<_> = self
                .environment
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let mut set = |key: &str, value: serde_json::Value| map.insert(key.to_owned(), value);
            if !environment.is_empty() {
                set("Env", json!(environment));
            }
            if !self.entrypoint.is_empty() {
                set("Entrypoint", json!(self.entrypoint));
            }
            if !self.command.is_empty() {
                set("Cmd", json!(self.command));
            }
            if let Some(user) = &self.user {
                set("User", json!(user));
            }
            if let Some(directory) = &self.directory {
                set("WorkingDir", json!(directory));
            }
        }
        let file = json!({
            "architecture": self.platform.architecture,
            "os": self.platform.os,
            "config": config,
            "rootfs": {
                "type": "layers",
                "diff_ids": self.layers.iter().map(|layer| layer.diff_id.to_string()).collect::<Vec<_>>(),
            },
        });
        let config = Bytes::from(file.to_string());
        let config_blob = Blob {
            digest: Digest::of(&config),
            size: config.len() as u64,
            media_type: IMAGE_CONFIG_MEDIA_TYPE.to_owned(),
        };
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(&config_blob),
            layers: self.layers.iter().map(|layer| descriptor(&layer.blob)).collect(),
            ..OciImageManifest::default()
        };
        let mut blobs = vec![(config_blob, Source::Memory(config))];
        blobs.extend(self.layers.into_iter().map(|layer| (layer.blob, layer.source)));
        BuiltImage {
            // A manifest is plain data, which always can be written as JSON.
            manifest: serde_json::to_vec(&manifest).unwrap_or_default().into(),
            blobs,
            platform: self.platform,
        }
    }
}

fn descriptor(blob: &Blob) -> OciDescriptor {
    OciDescriptor {
        media_type: blob.media_type.clone(),
        digest: blob.digest.to_string(),
        size: i64::try_from(blob.size).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    }
}

/// A compressed layer.
#[derive(Clone, Debug)]
pub struct BuiltLayer {
    blob: Blob,
    diff_id: Digest,
    source: Source,
}

impl BuiltLayer {
    /// The compressed layer as a blob.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }
}

/// Gathers what a layer holds. Owners are root, times are zero, the order is that of the paths, so the bytes depend on
/// nothing else.
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

    /// Adds everything below a directory of the disk. Files get mode 0644, or 0755 when their owner may run them. A link
    /// stays a link.
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

    /// Compresses the layer into an unnamed-for-others file of this directory, which goes away with the image. For layers
    /// that may be large.
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

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
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
#[path = "build_tests.rs"]
mod tests;
