//! Contents of small images: held in memory, kept on disk by digest.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::digest::{Digest, Hasher};
use crate::layer::tree::{Node, Resolved, Tree};
use crate::limits::Limits;

/// Names the format of cached files; other formats are fetched anew.
const MAGIC: &[u8] = b"olm-contents-1\n";
/// Letters of the digest that follows.
const DIGEST_LENGTH: usize = 64;

/// Contents of an image, or of its selected part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The labels of the image.
    pub labels: BTreeMap<String, String>,
    /// Artifact type in the manifest; `None` for a container image.
    pub artifact_type: Option<String>,
    /// The files by their path in the image, without a leading slash. Links to files within the image are files here,
    /// links to directories are left out.
    pub files: BTreeMap<String, Bytes>,
    /// The directories by their path in the image.
    pub directories: BTreeSet<String>,
}

/// A link that leads nowhere within the image. Without this error its file would silently be missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is a link to {target:?}, which leads out of the image, or nowhere")]
pub struct LostLink {
    /// The path of the link.
    pub path: String,
    /// Its target as it is written.
    pub target: String,
}

impl Contents {
    /// Takes labels and files from an unpacked image that is held in memory. Unpacking has counted each link as the
    /// file that it leads to.
    ///
    /// # Errors
    /// A link leads nowhere.
    pub fn from_tree(labels: BTreeMap<String, String>, tree: &Tree) -> Result<Self, LostLink> {
        let mut contents = Self {
            labels,
            ..Self::default()
        };
        for (path, node) in tree.entries() {
            let content = match node {
                Node::Directory => {
                    contents.directories.insert(path.into_owned());
                    continue;
                }
                Node::File(content) => content,
                Node::Link(target) => match tree.resolve(&path) {
                    Resolved::File(content) => content,
                    Resolved::Directory => continue,
                    Resolved::Missing => {
                        return Err(LostLink {
                            path: path.into_owned(),
                            target: target.clone(),
                        });
                    }
                },
            };
            if let Ok(bytes) = content.read_all() {
                contents.files.insert(path.into_owned(), bytes);
            }
        }
        Ok(contents)
    }
}

/// Contents on disk, one file per digest, written beside and renamed into place.
#[derive(Clone, Debug)]
pub(crate) struct ContentsStore {
    directory: PathBuf,
}

impl ContentsStore {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory
            .join(format!("{}-{}.contents", digest.algorithm(), digest.hex()))
    }

    /// Whether there are cached contents, whole or damaged.
    pub(crate) async fn has(&self, digest: &Digest) -> bool {
        tokio::fs::try_exists(self.path(digest)).await.unwrap_or(false)
    }

    /// Cached contents; nothing when they are not here, or damaged, or larger than they may be.
    pub(crate) async fn load(&self, digest: &Digest, limits: &Limits) -> Option<Contents> {
        let path = self.path(digest);
        // Labels and lengths come on top of the files.
        let limit = limits
            .kept_bytes
            .saturating_add(limits.config_bytes)
            .saturating_mul(2);
        tokio::task::spawn_blocking(move || {
            let length = std::fs::metadata(&path).ok()?.len();
            let contents = (length <= limit)
                .then(|| std::fs::read(&path).ok())
                .flatten()
                .and_then(|bytes| decode(&bytes));
            if contents.is_none() {
                tracing::warn!(path = %path.display(), "the cached contents are damaged and are fetched again");
            }
            contents
        })
        .await
        .ok()
        .flatten()
    }

    pub(crate) async fn save(&self, digest: &Digest, contents: Contents) -> io::Result<()> {
        let (directory, path) = (self.directory.clone(), self.path(digest));
        tokio::task::spawn_blocking(move || write_durably(&directory, &path, &encode(&contents)))
            .await
            .map_err(io::Error::other)?
    }

    pub(crate) async fn prune(&self, keep: &BTreeSet<Digest>) -> io::Result<usize> {
        let keep: BTreeSet<PathBuf> = keep.iter().map(|digest| self.path(digest)).collect();
        let directory = self.directory.clone();
        tokio::task::spawn_blocking(move || {
            let mut removed = 0;
            let entries = match std::fs::read_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                entries => entries?,
            };
            for entry in entries {
                let path = entry?.path();
                let ours = path.extension().is_some_and(|extension| extension == "contents");
                if ours && !keep.contains(&path) {
                    std::fs::remove_file(path)?;
                    removed += 1;
                }
            }
            Ok(removed)
        })
        .await
        .map_err(io::Error::other)?
    }
}

fn write_durably(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The format: a magic line, the digest of the rest, then four lists, each with its length, of labels, the artifact
/// type (none or one), directories and files; every text and every file has its length before it.
fn encode(contents: &Contents) -> Vec<u8> {
    let mut text = MAGIC.to_vec();
    text.extend_from_slice(&[0; DIGEST_LENGTH]);
    let start = text.len();
    let body = &mut text;
    let number = |body: &mut Vec<u8>, value: usize| body.extend_from_slice(&(value as u64).to_le_bytes());
    let bytes = |body: &mut Vec<u8>, value: &[u8]| {
        number(body, value.len());
        body.extend_from_slice(value);
    };
    number(body, contents.labels.len());
    for (key, value) in &contents.labels {
        bytes(body, key.as_bytes());
        bytes(body, value.as_bytes());
    }
    number(body, contents.artifact_type.iter().len());
    if let Some(artifact_type) = &contents.artifact_type {
        bytes(body, artifact_type.as_bytes());
    }
    number(body, contents.directories.len());
    for path in &contents.directories {
        bytes(body, path.as_bytes());
    }
    number(body, contents.files.len());
    for (path, content) in &contents.files {
        bytes(body, path.as_bytes());
        bytes(body, content);
    }
    let mut hasher = Hasher::sha256();
    hasher.update(text.get(start..).unwrap_or_default());
    if let Some(place) = text.get_mut(MAGIC.len()..start) {
        place.copy_from_slice(hasher.finish().hex().as_bytes());
    }
    text
}

fn decode(text: &[u8]) -> Option<Contents> {
    let (digest, body) = text.strip_prefix(MAGIC)?.split_at_checked(DIGEST_LENGTH)?;
    if Digest::of(body).hex().as_bytes() != digest {
        return None;
    }
    let mut body = Bytes::copy_from_slice(body);
    let mut contents = Contents::default();
    for _ in 0..take_number(&mut body)? {
        let key = take_text(&mut body)?;
        contents.labels.insert(key, take_text(&mut body)?);
    }
    for _ in 0..take_number(&mut body)? {
        contents.artifact_type = Some(take_text(&mut body)?);
    }
    for _ in 0..take_number(&mut body)? {
        contents.directories.insert(take_text(&mut body)?);
    }
    for _ in 0..take_number(&mut body)? {
        let path = take_text(&mut body)?;
        contents.files.insert(path, take_bytes(&mut body)?);
    }
    body.is_empty().then_some(contents)
}

fn take_number(body: &mut Bytes) -> Option<usize> {
    let number = body.get(..8)?.try_into().ok().map(u64::from_le_bytes)?;
    let _ = body.split_to(8);
    usize::try_from(number).ok()
}

fn take_bytes(body: &mut Bytes) -> Option<Bytes> {
    let length = take_number(body)?;
    (length <= body.len()).then(|| body.split_to(length))
}

fn take_text(body: &mut Bytes) -> Option<String> {
    String::from_utf8(take_bytes(body)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Contents {
        Contents {
            labels: [("a".to_owned(), "b".to_owned())].into(),
            artifact_type: Some("application/vnd.example.config.v1+json".to_owned()),
            files: [
                ("manifests/x.yaml".to_owned(), Bytes::from_static(b"kind: X")),
                ("metadata/annotations.yaml".to_owned(), Bytes::new()),
            ]
            .into(),
            directories: ["manifests".to_owned(), "metadata".to_owned()].into(),
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_no_content() {
        let from = |target: &str| {
            let mut tree = Tree::default();
            let file = Node::File(Bytes::from_static(b"kind: X").into());
            tree.insert("manifests\0x.yaml".to_owned(), file);
            tree.insert("manifests\0y.yaml".to_owned(), Node::Link(target.to_owned()));
            let contents = Contents::from_tree(BTreeMap::new(), &tree);
            contents
                .map(|contents| contents.files.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(from("x.yaml"), Ok(2));
        for lost in ["gone.yaml", "../../x.yaml", "y.yaml", "/etc/passwd"] {
            let said = format!(
                "\"manifests/y.yaml\" is a link to {lost:?}, which leads out of the image, or nowhere"
            );
            assert_eq!(from(lost), Err(said));
        }
    }

    #[tokio::test]
    async fn contents_come_back_from_disk_as_they_were_and_never_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let store = ContentsStore::new(directory.path().join("cache"));
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        assert_eq!(store.load(&one, &Limits::bundle()).await, None);
        assert_eq!(store.prune(&BTreeSet::new()).await.unwrap(), 0);
        store.save(&one, sample()).await.unwrap();
        store.save(&two, sample()).await.unwrap();
        assert_eq!(store.load(&one, &Limits::bundle()).await, Some(sample()));

        let text = std::fs::read(store.path(&one)).unwrap();
        for position in [0, 20, 90, text.len() - 1] {
            let mut damaged = text.clone();
            damaged[position] ^= 1;
            std::fs::write(store.path(&one), damaged).unwrap();
            assert_eq!(store.load(&one, &Limits::bundle()).await, None, "byte {position}");
        }
        std::fs::write(store.path(&one), &text[..text.len() - 3]).unwrap();
        assert_eq!(store.load(&one, &Limits::bundle()).await, None);

        assert_eq!(store.prune(&BTreeSet::from([two.clone()])).await.unwrap(), 1);
        assert_eq!(store.load(&two, &Limits::bundle()).await, Some(sample()));
    }
}
