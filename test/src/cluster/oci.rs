//! OCI images of one layer as archives, without a container engine or a base image.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::control_plane::architecture;

const USERS: &str = "root:x:0:0::/root:/bin/sh\nnonroot:x:65532:65532::/:/bin/false\n";
const GROUPS: &str = "root:x:0:\nnonroot:x:65532:\n";

/// A file of an image.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A program: readable and executable by all users.
    Program(Vec<u8>),
    /// Data: readable by all users.
    Data(Vec<u8>),
    /// A symbolic link.
    Link(String),
}

/// The content of an image, and its program.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// Path without a leading slash, and content.
    pub files: Vec<(String, Entry)>,
    /// The command of a container.
    pub entrypoint: Vec<String>,
    /// The arguments, unless the pod gives some.
    pub command: Vec<String>,
    /// The user, root when empty.
    pub user: String,
}

/// Writes an image as a tar archive that `ctr images import` and [`super::Cluster::load`] take. Equal input gives
/// equal bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_archive(path: &Path, reference: &str, image: &Image) -> Result<()> {
    let layer = layer(image)?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "User": image.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media("manifest.v1+json"),
        "config": descriptor("config.v1+json", &config),
        "layers": [descriptor("layer.v1.tar", &layer)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = descriptor("manifest.v1+json", &manifest);
    if let Some(entry) = entry.as_object_mut() {
        entry.insert(
            "platform".to_owned(),
            json!({"os": "linux", "architecture": architecture()}),
        );
        entry.insert(
            "annotations".to_owned(),
            json!({"io.containerd.image.name": reference}),
        );
    }
    let index = json!({"schemaVersion": 2, "mediaType": media("index.v1+json"), "manifests": [entry]});

    let folder = path.parent().context("an archive needs a folder")?;
    let fresh =
        NamedTempFile::new_in(folder).with_context(|| format!("cannot write in {}", folder.display()))?;
    let mut archive = tar::Builder::new(std::io::BufWriter::new(fresh));
    append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut archive, "index.json", &serde_json::to_vec(&index)?)?;
    for blob in [&config, &manifest, &layer] {
        append(
            &mut archive,
            &format!("blobs/{}", digest(blob).replace(':', "/")),
            blob,
        )?;
    }
    let fresh = archive
        .into_inner()?
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    fresh
        .persist(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn layer(image: &Image) -> Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    let header = |mode: u32, kind: tar::EntryType, size: usize| -> Result<tar::Header> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(u64::try_from(size)?);
        header.set_mtime(0);
        Ok(header)
    };
    let mut folders = std::collections::BTreeSet::new();
    let standard = [
        ("etc/passwd".to_owned(), Entry::Data(USERS.as_bytes().to_vec())),
        ("etc/group".to_owned(), Entry::Data(GROUPS.as_bytes().to_vec())),
    ];
    layer.append_data(
        &mut header(0o1777, tar::EntryType::Directory, 0)?,
        "tmp",
        std::io::empty(),
    )?;
    for (path, entry) in standard.iter().chain(&image.files) {
        let parents: Vec<&Path> = Path::new(path)
            .ancestors()
            .skip(1)
            .filter(|p| !p.as_os_str().is_empty())
            .collect();
        for folder in parents.into_iter().rev() {
            if folders.insert(folder.to_owned()) {
                layer.append_data(
                    &mut header(0o755, tar::EntryType::Directory, 0)?,
                    folder,
                    std::io::empty(),
                )?;
            }
        }
        match entry {
            Entry::Program(bytes) => {
                layer.append_data(
                    &mut header(0o755, tar::EntryType::Regular, bytes.len())?,
                    path,
                    bytes.as_slice(),
                )?;
            }
            Entry::Data(bytes) => {
                layer.append_data(
                    &mut header(0o644, tar::EntryType::Regular, bytes.len())?,
                    path,
                    bytes.as_slice(),
                )?;
            }
            Entry::Link(target) => {
                layer.append_link(&mut header(0o777, tar::EntryType::Symlink, 0)?, path, target)?;
            }
        }
    }
    Ok(layer.into_inner()?)
}

fn append(archive: &mut tar::Builder<impl std::io::Write>, path: &str, bytes: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(u64::try_from(bytes.len())?);
    Ok(archive.append_data(&mut header, path, bytes)?)
}

fn media(kind: &str) -> String {
    format!("application/vnd.oci.image.{kind}")
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media(kind), "digest": digest(bytes), "size": bytes.len()})
}
