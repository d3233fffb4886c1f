//! A directory in OCI layout with many images, each under its reference.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{MirrorError, Outline};
use crate::build::BuiltImage;
use crate::digest::Digest;
use crate::layout::{LayoutError, blob_path, read};
use crate::reference::{LATEST, Reference};

/// The annotation that names an image in an index.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The largest index that is read, in bytes.
const MAX_INDEX: u64 = 256 << 20;

/// A directory with images.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
    index: Index,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    manifests: Vec<LayoutEntry>,
}

/// An image in the index of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutEntry {
    media_type: String,
    digest: String,
    size: u64,
    /// Annotations of the image in the index.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl LayoutEntry {
    /// The reference under which it is kept.
    pub fn name(&self) -> Option<&str> {
        self.annotations.get(REF_NAME).map(String::as_str)
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> LayoutError {
    let path = path.to_owned();
    move |source| LayoutError::Read { path, source }
}

impl Layout {
    /// The layout in a directory.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(root: &Path) -> Result<Self, LayoutError> {
        let path = root.join("index.json");
        let text = read(&path, MAX_INDEX)?;
        let index = serde_json::from_slice(&text).map_err(|error| LayoutError::Manifest {
            path,
            message: error.to_string(),
        })?;
        Ok(Self {
            root: root.to_owned(),
            index,
        })
    }

    /// The layout in a directory, or a new one. The previous content has no names until [`Self::save`].
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(root: &Path) -> Result<Self, LayoutError> {
        fs::create_dir_all(root.join("blobs/sha256")).map_err(failed(root))?;
        let marker = root.join("oci-layout");
        fs::write(&marker, r#"{"imageLayoutVersion":"1.0.0"}"#).map_err(failed(&marker))?;
        Ok(Self {
            root: root.to_owned(),
            index: Index {
                schema_version: 2,
                manifests: Vec::new(),
            },
        })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The images.
    pub fn entries(&self) -> &[LayoutEntry] {
        &self.index.manifests
    }

    /// Adds an image and everything attached to it to the index under a reference, with annotations for the image.
    pub fn add(&mut self, reference: &Reference, outline: &Outline, annotations: &BTreeMap<String, String>) {
        for (tag, digest, media_type, size) in outline.named() {
            let is_image = digest == outline.digest();
            let name = match tag {
                Some(tag) => reference.with_tag(tag).to_string(),
                // The tag names it.
                None if reference.digest().is_none() => continue,
                None => reference.pin(digest.clone()).to_string(),
            };
            let mut all = if is_image {
                annotations.clone()
            } else {
                BTreeMap::new()
            };
            all.insert(REF_NAME.to_owned(), name);
            let entry = LayoutEntry {
                media_type: media_type.to_owned(),
                digest: digest.to_string(),
                size: size as u64,
                annotations: all,
            };
            if !self.index.manifests.contains(&entry) {
                self.index.manifests.push(entry);
            }
        }
    }

    /// Writes the blobs of an image that was built here, to be known by the tag of a reference.
    ///
    /// # Errors
    /// When one cannot be read or written.
    pub fn take(&self, image: &BuiltImage, reference: &Reference) -> Result<Outline, MirrorError> {
        for (blob, source) in &image.blobs {
            let mut file = NamedTempFile::new_in(&self.root).map_err(failed(&self.root))?;
            let mut from = source.open().map_err(failed(&self.root))?;
            std::io::copy(&mut from, &mut file).map_err(failed(&self.root))?;
            self.keep(&blob.digest, file)?;
        }
        self.write(&image.digest(), &image.manifest)?;
        Ok(Outline::of(image, reference.tag().unwrap_or(LATEST)))
    }

    /// Writes the index.
    ///
    /// # Errors
    /// When that fails.
    pub fn save(&self) -> Result<(), LayoutError> {
        let path = self.root.join("index.json");
        let text = serde_json::to_vec_pretty(&self.index).map_err(|error| LayoutError::Manifest {
            path: path.clone(),
            message: error.to_string(),
        })?;
        let file = NamedTempFile::new_in(&self.root).map_err(failed(&self.root))?;
        fs::write(file.path(), text).map_err(failed(&path))?;
        let kept = file.persist(&path).map_err(|error| failed(&path)(error.error))?;
        drop(kept);
        Ok(())
    }

    /// The digest of an image that the index names.
    pub(super) fn digest(&self, reference: &Reference) -> Option<Digest> {
        if let Some(digest) = reference.digest() {
            return self.has(digest).then(|| digest.clone());
        }
        let tagged = reference.with_tag(reference.tag().unwrap_or(LATEST));
        let name = tagged.to_string();
        let mut entries = self.index.manifests.iter();
        let entry = entries.find(|entry| entry.name() == Some(name.as_str()))?;
        Digest::parse(&entry.digest).ok()
    }

    /// Whether a blob is there.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        blob_path(&self.root, digest).is_file()
    }

    /// Takes a verified file as a blob.
    pub(super) fn keep(&self, digest: &Digest, file: NamedTempFile) -> Result<(), MirrorError> {
        let path = blob_path(&self.root, digest);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        let kept = file.persist(&path).map_err(|error| failed(&path)(error.error))?;
        drop(kept);
        Ok(())
    }

    /// Writes a small blob.
    pub(super) fn write(&self, digest: &Digest, bytes: &[u8]) -> Result<(), MirrorError> {
        let file = NamedTempFile::new_in(&self.root).map_err(failed(&self.root))?;
        fs::write(file.path(), bytes).map_err(failed(&self.root))?;
        self.keep(digest, file)
    }
}
