//! The content of an image, read back from its archive.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

/// An image with one manifest.
#[derive(Debug)]
pub struct Contents {
    /// The digest of the manifest, `sha256:…`.
    pub digest: String,
    /// The configuration.
    pub config: Value,
    /// The entries of all layers, from the lowest layer.
    pub entries: Vec<Entry>,
}

/// An entry of a layer.
#[derive(Debug)]
pub struct Entry {
    /// The path, without the slash in front.
    pub path: String,
    /// The mode.
    pub mode: u32,
    /// The numbers of user and group, and their names.
    pub owner: (u64, u64, String, String),
    /// Seconds since 1970.
    pub time: u64,
    /// The content of a file; none for a folder.
    pub bytes: Option<Vec<u8>>,
}

impl Contents {
    /// Reads an archive in OCI layout.
    ///
    /// # Errors
    /// When it cannot be read, or holds something other than one image of files and folders.
    pub fn read(archive: &Path) -> Result<Self> {
        let wrong = || format!("cannot read {}", archive.display());
        let mut files = BTreeMap::new();
        let file = std::fs::File::open(archive).with_context(wrong)?;
        each(file, |entry| {
            files.insert(entry.path, entry.bytes.unwrap_or_default());
            Ok(())
        })
        .with_context(wrong)?;
        let part = |name: &str| {
            files
                .get(name)
                .with_context(|| format!("{} lacks {name}", archive.display()))
        };
        let blob = |descriptor: &Value| -> Result<&Vec<u8>> {
            let digest = descriptor["digest"].as_str().context("no digest")?;
            part(&format!("blobs/{}", digest.replace(':', "/")))
        };
        let index: Value = serde_json::from_slice(part("index.json")?)?;
        let manifests = index["manifests"].as_array().context("no manifests")?;
        ensure!(
            manifests.len() == 1,
            "{} holds {} images",
            archive.display(),
            manifests.len()
        );
        let manifest: Value = serde_json::from_slice(blob(&manifests[0])?)?;
        let mut entries = Vec::new();
        for layer in manifest["layers"].as_array().context("no layers")? {
            each(GzDecoder::new(blob(layer)?.as_slice()), |entry| {
                entries.push(entry);
                Ok(())
            })?;
        }
        Ok(Self {
            digest: manifests[0]["digest"].as_str().context("no digest")?.to_owned(),
            config: serde_json::from_slice(blob(&manifest["config"])?)?,
            entries,
        })
    }

    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.bytes.is_some())
    }

    /// The content of a file.
    ///
    /// # Errors
    /// When there is none.
    pub fn file(&self, path: &str) -> Result<&[u8]> {
        let entry = self.files().find(|entry| entry.path == path);
        let bytes = entry.and_then(|entry| entry.bytes.as_deref());
        bytes.with_context(|| format!("the image lacks {path}"))
    }

    /// The name of the processor in Go.
    ///
    /// # Errors
    /// When the configuration has none.
    pub fn architecture(&self) -> Result<&str> {
        self.config["architecture"].as_str().context("no architecture")
    }
}

/// Calls a function with each entry of a tar archive.
fn each(archive: impl Read, mut take: impl FnMut(Entry) -> Result<()>) -> Result<()> {
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let header = entry.header();
        let kind = header.entry_type();
        let name = |name: Option<&[u8]>| String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        let (mode, time) = (header.mode()?, header.mtime()?);
        let owner = (
            header.uid()?,
            header.gid()?,
            name(header.username_bytes()),
            name(header.groupname_bytes()),
        );
        let path = entry.path()?.to_string_lossy().trim_matches('/').to_owned();
        ensure!(
            kind.is_file() || kind.is_dir(),
            "{path} is neither a file nor a folder"
        );
        let bytes = if kind.is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            Some(bytes)
        } else {
            None
        };
        take(Entry {
            path,
            mode,
            owner,
            time,
            bytes,
        })?;
    }
    Ok(())
}
