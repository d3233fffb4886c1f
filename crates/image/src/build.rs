//! Images made from files: the same input gives the same bytes, so the same digests.

mod layer;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest,
};
use serde_json::json;

use crate::digest::Digest;
use crate::manifest::Blob;
use crate::platform::Platform;

use layer::header;
pub use layer::{BuiltLayer, LayerBuilder};

/// Error of a build of an image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or directory cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A layer or an archive cannot be written.
    #[error("cannot write `{path}`")]
    Write {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A path in the image leaves it, or is not UTF-8.
    #[error("`{path}` is not a path within an image")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Something that is no file, directory or link, or a directory that is too deep.
    #[error("`{path}` is not allowed in an image")]
    Kind {
        /// The path.
        path: PathBuf,
    },
}

/// Source of the bytes of a blob.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Memory(Bytes),
    File(Arc<tempfile::NamedTempFile>),
    /// A file of a layout, and the directory that keeps it.
    Layout {
        path: PathBuf,
        _unpacked: Option<Arc<tempfile::TempDir>>,
    },
}

impl Source {
    pub(crate) fn open(&self) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(io::Cursor::new(bytes.clone())),
            Self::File(file) => Box::new(file.reopen()?),
            Self::Layout { path, .. } => Box::new(std::fs::File::open(path)?),
        })
    }
}

/// A finished image: its blobs and their manifest.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    pub(crate) manifest: Bytes,
    pub(crate) blobs: Vec<(Blob, Source)>,
    pub(crate) platform: Platform,
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

    /// Writes the image as a tar archive in OCI layout, which container engines load under `name`.
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
            // In the specification the tag alone is the reference name.
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

#[cfg(test)]
mod tests;
