//! Images on disk: a directory in OCI layout, or a tar archive of one as container engines write it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use oci_distribution::manifest::{OCI_IMAGE_MEDIA_TYPE, OciManifest};
use tempfile::TempDir;

use crate::build::{BuiltImage, Source};
use crate::digest::{Digest, Hasher};
use crate::layer::tree::{Storage, Tree};
use crate::layer::{LayerError, Selection, Unpacker};
use crate::limits::Limits;
use crate::manifest::{Blob, ConfigFile, artifact_type, blob, choose_platform, layers, parse_manifest};
use crate::platform::Platform;

/// Indexes inside one another that are followed.
const MAX_INDEXES: usize = 4;

/// Error of an image on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is larger than it may be.
    #[error("{path} has more than {limit} bytes")]
    Size {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// The bytes of a file are not those that its name promises.
    #[error("the content of {path} has the digest {actual}")]
    Digest {
        /// The file.
        path: PathBuf,
        /// The digest of its bytes.
        actual: Digest,
    },
    /// The manifest cannot be used.
    #[error("cannot use the image in {path}: {message}")]
    Manifest {
        /// The layout.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// A layer cannot be unpacked.
    #[error("cannot unpack layer {layer} of the image in {path}")]
    Layer {
        /// The layout.
        path: PathBuf,
        /// The number of the layer, from 1.
        layer: usize,
        /// The cause.
        source: LayerError,
    },
}

/// An image on disk.
#[derive(Debug)]
pub struct LocalImage {
    root: PathBuf,
    /// The directory with the files of an archive.
    unpacked: Option<Arc<TempDir>>,
    digest: Digest,
    manifest: Bytes,
    config: Blob,
    layers: Vec<Blob>,
    labels: BTreeMap<String, String>,
    artifact_type: Option<String>,
    platform: Platform,
}

impl LocalImage {
    /// Opens the image at `path`, a layout or an archive of one. Of several images the one for the platform is taken.
    ///
    /// # Errors
    /// When there is no image that can be used.
    pub fn open(path: &Path, platform: &Platform, limits: &Limits) -> Result<Self, LayoutError> {
        let (root, unpacked) = if path.is_dir() {
            (path.to_owned(), None)
        } else {
            let directory = extract(path, limits)?;
            (directory.path().to_owned(), Some(Arc::new(directory)))
        };
        let unusable = |message: String| LayoutError::Manifest {
            path: path.to_owned(),
            message,
        };
        let mut text = read(&root.join("index.json"), limits.manifest_bytes)?;
        let mut digest = Digest::of(&text);
        let mut indexes = 0;
        let manifest = loop {
            match parse_manifest(&text).map_err(unusable)? {
                OciManifest::Image(manifest) => break manifest,
                OciManifest::ImageIndex(_) if indexes == MAX_INDEXES => {
                    return Err(unusable("its indexes lead to ever more indexes".to_owned()));
                }
                OciManifest::ImageIndex(index) => {
                    indexes += 1;
                    let only = match index.manifests.as_slice() {
                        [only] => Some(only),
                        entries => choose_platform(entries, platform),
                    };
                    let entry = only.ok_or_else(|| {
                        unusable(format!(
                            "no image is for {}/{}",
                            platform.os, platform.architecture
                        ))
                    })?;
                    digest = Digest::parse(&entry.digest).map_err(|error| unusable(error.to_string()))?;
                    text = read_blob(&root, &digest, limits.manifest_bytes)?;
                }
            }
        };
        if manifest.layers.len() > limits.layers {
            return Err(unusable(format!("it has more than {} layers", limits.layers)));
        }
        let layers = layers(&manifest).map_err(unusable)?;
        let config_blob = blob(&manifest.config).map_err(unusable)?;
        let config = read_blob(&root, &config_blob.digest, limits.config_bytes)?;
        let artifact_type = artifact_type(&manifest);
        let config: ConfigFile = match serde_json::from_slice(&config) {
            // An artifact that is no container image has a configuration of another form, or none.
            Err(_) if artifact_type.is_some() => ConfigFile::default(),
            read => read.map_err(|error| unusable(format!("configuration: {error}")))?,
        };
        Ok(Self {
            root,
            unpacked,
            digest,
            manifest: text.into(),
            config: config_blob,
            layers,
            platform: Platform {
                os: config.os.clone(),
                architecture: config.architecture.clone(),
            },
            labels: config.into_labels(),
            artifact_type,
        })
    }

    /// The digest of the image's manifest.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The labels of the configuration.
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The image as it can be pushed, with the same digest.
    ///
    /// # Errors
    /// When a blob is not there or damaged, or the manifest is not one of OCI.
    pub fn to_built(&self) -> Result<BuiltImage, LayoutError> {
        let unusable = |message: &str| LayoutError::Manifest {
            path: self.root.clone(),
            message: message.to_owned(),
        };
        match parse_manifest(&self.manifest) {
            Ok(OciManifest::Image(manifest))
                if manifest.media_type.as_deref().unwrap_or(OCI_IMAGE_MEDIA_TYPE) == OCI_IMAGE_MEDIA_TYPE => {
            }
            _ => return Err(unusable("its manifest is not one of OCI")),
        }
        let mut blobs = Vec::new();
        for blob in std::iter::once(&self.config).chain(&self.layers) {
            let path = blob_path(&self.root, &blob.digest);
            verify(&path, &open(&path)?, &blob.digest)?;
            let source = Source::Layout {
                path,
                _unpacked: self.unpacked.clone(),
            };
            blobs.push((blob.clone(), source));
        }
        Ok(BuiltImage {
            manifest: self.manifest.clone(),
            blobs,
            platform: self.platform.clone(),
        })
    }

    /// Artifact type in the manifest; `None` for a container image.
    pub fn artifact_type(&self) -> Option<&str> {
        self.artifact_type.as_deref()
    }

    /// Unpacks the selection of the layers, each of which must have its digest.
    ///
    /// # Errors
    /// When a layer is not there, damaged, or passes a limit.
    pub fn unpack(
        &self,
        selection: &Selection,
        storage: &Storage,
        limits: &Limits,
    ) -> Result<Tree, LayoutError> {
        let wrong = |layer: usize, source: LayerError| LayoutError::Layer {
            path: self.root.clone(),
            layer,
            source,
        };
        let mut unpacker = Unpacker::new(selection, storage, limits).map_err(|source| wrong(1, source))?;
        for (layer, blob) in (1..).zip(&self.layers) {
            let path = blob_path(&self.root, &blob.digest);
            let file = open(&path)?;
            verify(&path, &file, &blob.digest)?;
            let file = open(&path)?;
            unpacker
                .apply(BufReader::new(file), blob.size)
                .map_err(|source| wrong(layer, source))?;
        }
        unpacker
            .finish()
            .map_err(|source| wrong(self.layers.len(), source))
    }
}

pub(crate) fn blob_path(root: &Path, digest: &Digest) -> PathBuf {
    // Both parts of a digest were checked when it was parsed: neither has a separator.
    root.join("blobs").join(digest.algorithm()).join(digest.hex())
}

fn open(path: &Path) -> Result<File, LayoutError> {
    File::open(path).map_err(|source| LayoutError::Read {
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LayoutError> {
    let mut bytes = Vec::new();
    open(path)?
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| LayoutError::Read {
            path: path.to_owned(),
            source,
        })?;
    if bytes.len() as u64 > limit {
        return Err(LayoutError::Size {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(bytes)
}

pub(crate) fn read_blob(root: &Path, digest: &Digest, limit: u64) -> Result<Vec<u8>, LayoutError> {
    let path = blob_path(root, digest);
    let bytes = read(&path, limit)?;
    let mut hasher = Hasher::like(digest);
    hasher.update(&bytes);
    match hasher.finish() {
        actual if actual == *digest => Ok(bytes),
        actual => Err(LayoutError::Digest { path, actual }),
    }
}

fn verify(path: &Path, mut file: &File, digest: &Digest) -> Result<(), LayoutError> {
    let mut hasher = Hasher::like(digest);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = file.read(&mut buffer).map_err(|source| LayoutError::Read {
            path: path.to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
    match hasher.finish() {
        actual if actual == *digest => Ok(()),
        actual => Err(LayoutError::Digest {
            path: path.to_owned(),
            actual,
        }),
    }
}

/// Takes the files of a layout out of an archive. Other names in it are left alone.
fn extract(path: &Path, limits: &Limits) -> Result<TempDir, LayoutError> {
    let wrong = |source| LayoutError::Read {
        path: path.to_owned(),
        source,
    };
    let directory = tempfile::Builder::new()
        .prefix("olm-layout-")
        .tempdir()
        .map_err(wrong)?;
    let mut archive = tar::Archive::new(BufReader::new(open(path)?));
    let mut left = limits.transfer_bytes;
    for entry in archive.entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let Some(target) = target(&entry) else {
            continue;
        };
        let target = directory.path().join(target);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(wrong)?;
        }
        let mut file = File::create(&target).map_err(wrong)?;
        let written = io::copy(&mut entry.by_ref().take(left + 1), &mut file).map_err(wrong)?;
        left = left.checked_sub(written).ok_or_else(|| LayoutError::Size {
            path: path.to_owned(),
            limit: limits.transfer_bytes,
        })?;
    }
    Ok(directory)
}

/// Path of a file of a layout; `None` for any other entry.
fn target(entry: &tar::Entry<'_, impl io::Read>) -> Option<PathBuf> {
    if !entry.header().entry_type().is_file() {
        return None;
    }
    let name = entry.path().ok()?;
    let name = name.to_str()?.trim_start_matches("./");
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        ["index.json" | "oci-layout"] => Some(PathBuf::from(name)),
        ["blobs", algorithm, hex] if plain(algorithm) && plain(hex) => Some(PathBuf::from(name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{LayoutError, LocalImage};
    use crate::{ImageBuilder, LayerBuilder, Limits, Platform, Resolved, Selection, Storage};

    fn archive(directory: &std::path::Path) -> std::path::PathBuf {
        let mut layer = LayerBuilder::new();
        layer
            .bytes("/configs/a.yaml", &b"schema: a\n"[..], 0o644)
            .expect("the layer takes a file");
        let layer = layer.build().expect("the layer is built");
        let image = ImageBuilder::new(Platform::host())
            .label("k", "v")
            .layer(layer)
            .build();
        let path = directory.join("image.tar");
        image
            .write_archive(&path, Some("reg.example/a:1"))
            .expect("the archive is written");
        path
    }

    #[test]
    fn an_archive_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().expect("there is a directory");
        let limits = Limits::catalog();
        let image = LocalImage::open(&archive(directory.path()), &Platform::host(), &limits)
            .expect("the image is read");
        assert_eq!(image.labels().get("k").map(String::as_str), Some("v"));
        let tree = image
            .unpack(&Selection::Everything, &Storage::Memory, &limits)
            .expect("the image is unpacked");
        assert!(matches!(tree.resolve("/configs/a.yaml"), Resolved::File(_)));
    }

    #[test]
    fn an_archive_can_be_pushed_as_it_is() {
        let directory = tempfile::tempdir().expect("there is a directory");
        let written = archive(directory.path());
        let limits = Limits::catalog();
        let image = LocalImage::open(&written, &Platform::host(), &limits).expect("the image is read");
        let built = image.to_built().expect("it can be pushed");
        assert_eq!(built.digest(), *image.digest());
        drop(image);
        let again = directory.path().join("again.tar");
        built
            .write_archive(&again, Some("reg.example/a:1"))
            .expect("its blobs are still there");
        let read = |path: &std::path::Path| std::fs::read(path).expect("the archive is there");
        assert_eq!(read(&again), read(&written));
    }

    #[test]
    fn a_damaged_blob_is_refused() {
        let directory = tempfile::tempdir().expect("there is a directory");
        let root = directory.path().join("layout");
        let file = std::fs::File::open(archive(directory.path())).expect("the archive is there");
        tar::Archive::new(file)
            .unpack(&root)
            .expect("the archive is unpacked");
        let limits = Limits::catalog();
        let open = || LocalImage::open(&root, &Platform::host(), &limits);
        let image = open().expect("the layout is read");
        let layer = image.layers.first().expect("there is a layer");
        std::fs::write(super::blob_path(&root, &layer.digest), b"other").expect("the layer is damaged");
        let unpacked = image.unpack(&Selection::Everything, &Storage::Memory, &limits);
        assert!(
            matches!(unpacked, Err(LayoutError::Digest { .. })),
            "{unpacked:?}"
        );
        std::fs::write(super::blob_path(&root, image.digest()), b"{}").expect("the manifest is damaged");
        assert!(matches!(open(), Err(LayoutError::Digest { .. })));
    }
}
