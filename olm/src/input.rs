//! Catalogs and bundles on disk.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind as Io, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use olm_api::text::{counted, first_of};
use olm_bundle::BundleFiles;
use olm_fbc::check::Rule;
use olm_fbc::meta::{limits, metas};
use olm_fbc::{Ignore, Meta, MetaError, ignore, walk_order};
use olm_yaml::{DuplicateKeys, ErrorKind, Limits, documents};
use tempfile::TempDir;

use crate::hint::Hint;
use crate::output::note;

/// The deepest accepted nesting of directories.
const MAX_DEPTH: usize = 100;
/// The largest file of a bundle that is read, in bytes.
pub(crate) const MAX_BUNDLE_FILE: u64 = 64 << 20;
/// The largest `.indexignore` that is read, in bytes.
const MAX_IGNORE_FILE: u64 = 1 << 20;

/// A file with its path relative to the root of the search, with `/` between the parts.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// A directory entry that a reader cannot use as a file.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// The path below the directory.
    pub(crate) name: String,
    /// The error message.
    pub(crate) message: String,
}

/// The hint if the path is a file.
pub(crate) const CATALOG_DIRECTORY: &str = "name the directory that holds the files of the catalog";

/// The files of a catalog, in the order in which they are read.
#[derive(Debug)]
pub(crate) struct CatalogFiles {
    files: Vec<SourceFile>,
    /// The names of those that `.indexignore` leaves out.
    ignored: Vec<String>,
    /// The directory with fetched files.
    scratch: Option<TempDir>,
}

impl CatalogFiles {
    /// The catalog at `path`: a directory, or one file.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !metadata.is_dir() {
            let name = path
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
                .into_owned();
            let path = path.to_owned();
            return Ok(Self::of(vec![SourceFile { name, path }], Vec::new()));
        }
        Self::open_but(path, Vec::new())
    }

    /// The catalog in a directory with unreadable entries. Like in catalogd, an unreadable entry is an error unless
    /// `.indexignore` excludes it.
    pub(crate) fn open_but(path: &Path, mut unreadable: Vec<Unreadable>) -> anyhow::Result<Self> {
        let (files, more) = survey(path)?;
        unreadable.extend(more);
        let mut ignored = Ignore::new();
        for file in files
            .iter()
            .filter(|file| file.name.rsplit('/').next() == Some(ignore::FILE_NAME))
        {
            let text = read(&file.path, MAX_IGNORE_FILE)?;
            ignored.add(&file.name, &String::from_utf8_lossy(&text));
        }
        let faults = unreadable.iter().filter(|fault| !ignored.is_ignored(&fault.name));
        if let Some(error) = refusal(faults) {
            return Err(error.context(Hint(
                "to exclude a file from the catalog, add a line to .indexignore".to_owned(),
            )));
        }
        let (out, files): (Vec<SourceFile>, Vec<SourceFile>) =
            files.into_iter().partition(|file| ignored.is_ignored(&file.name));
        let out = out.into_iter().map(|file| file.name);
        Ok(Self::of(
            files,
            out.filter(|name| name.rsplit('/').next() != Some(ignore::FILE_NAME))
                .collect(),
        ))
    }

    fn of(files: Vec<SourceFile>, ignored: Vec<String>) -> Self {
        Self {
            files,
            ignored,
            scratch: None,
        }
    }

    /// Keeps a directory until the files are no longer needed.
    pub(crate) fn keeping(mut self, directory: TempDir) -> Self {
        self.scratch = Some(directory);
        self
    }

    /// The names of the files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// The path of the file with this name.
    pub(crate) fn path(&self, name: &str) -> Option<&Path> {
        self.files
            .iter()
            .find(|file| file.name == name)
            .map(|file| file.path.as_path())
    }

    /// Passes all blobs and all unreadable documents to `each`, with the name of the file. Warns about `reference` if
    /// it has no blobs.
    pub(crate) fn read(
        &self,
        reference: &str,
        mut each: impl FnMut(&str, Result<Meta, MetaError>) -> ControlFlow<anyhow::Error>,
    ) -> anyhow::Result<()> {
        let mut is_empty = true;
        self.each(|file, meta| {
            is_empty = false;
            each(file, meta)
        })?;
        if is_empty {
            self.warn_of_emptiness(reference);
        }
        Ok(())
    }

    /// Like [`CatalogFiles::read`], for callers that report more of it.
    pub(crate) fn each(
        &self,
        mut each: impl FnMut(&str, Result<Meta, MetaError>) -> ControlFlow<anyhow::Error>,
    ) -> anyhow::Result<()> {
        for SourceFile { name, path } in &self.files {
            let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            for meta in metas(BufReader::with_capacity(64 << 10, file), &limits()) {
                if let ControlFlow::Break(error) = each(name, meta) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Prints a warning about the content of `reference` that is not a catalog, with a hint.
    pub(crate) fn warn_of_emptiness(&self, reference: &str) {
        note(&format!("warning: {reference}: {}", self.emptiness()));
        if let Some(hint) = Rule::CatalogEmpty.hint() {
            note(&format!("hint: {hint}"));
        }
    }

    /// The description of a directory without a catalog.
    pub(crate) fn emptiness(&self) -> String {
        let read: Vec<&str> = self.names().collect();
        let ignored: Vec<&str> = self.ignored.iter().map(String::as_str).collect();
        let found = match (read.as_slice(), ignored.as_slice()) {
            ([], []) => "there are no files".to_owned(),
            ([], ignored) => format!(".indexignore leaves out {}", listed(ignored)),
            (read, []) => format!("no object in {}", listed(read)),
            (read, ignored) => format!(
                "no object in {}, .indexignore leaves out {}",
                listed(read),
                listed(ignored)
            ),
        };
        format!("the catalog is empty: {found}")
    }

    /// File, line and key of the first key of each YAML file that its mapping has already. Those of JSON are found when
    /// the blobs are read.
    pub(crate) fn repeated_keys(&self) -> anyhow::Result<Vec<(&str, usize, String)>> {
        let limits = Limits {
            duplicate_keys: DuplicateKeys::Refuse,
            ..limits()
        };
        let mut found = Vec::new();
        for SourceFile { name, path } in &self.files {
            let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            let faults = documents(BufReader::with_capacity(64 << 10, file), &limits).filter_map(Result::err);
            // Reading the blobs reports other faults.
            found.extend(faults.filter_map(|fault| match fault.kind {
                ErrorKind::DuplicateKey(key) => Some((name.as_str(), fault.position.line, key)),
                _ => None,
            }));
        }
        Ok(found)
    }
}

/// `1 file (a)`, `5 files (a, b, c and 2 more)`.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let count = counted(names.len(), "file");
    format!("{count} ({})", first_of(names.iter(), SHOWN))
}

/// Checks that there is a directory at `path`; otherwise `hint` is added to the error.
pub(crate) fn directory(path: &Path, hint: &str) -> anyhow::Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if metadata.is_dir() {
        return Ok(());
    }
    let error = anyhow!("{:?} is not a directory", path.display().to_string());
    Err(error.context(Hint(hint.to_owned())))
}

/// The files of the bundle in the directory `path`.
pub(crate) fn bundle_files(path: &Path) -> anyhow::Result<BundleFiles> {
    directory(
        path,
        "name the directory of the bundle, with the directories manifests and metadata in it",
    )?;
    let mut files = BundleFiles::new();
    for part in ["manifests", "metadata"] {
        let directory = path.join(part);
        if !directory.is_dir() {
            continue;
        }
        for file in walk(&directory)? {
            files.insert(
                format!("{part}/{}", file.name),
                read(&file.path, MAX_BUNDLE_FILE)?,
            );
        }
    }
    Ok(files)
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    let read = File::open(path)
        .with_context(failed)?
        .take(limit + 1)
        .read_to_end(&mut bytes);
    if read.as_ref().is_err_and(|error| error.kind() == Io::IsADirectory) {
        bail!("{} is a directory; name a file", path.display());
    }
    read.with_context(failed)?;
    if bytes.len() as u64 > limit {
        bail!("{} exceeds {limit} bytes", path.display());
    }
    Ok(bytes)
}

/// Every file below `root`, in the order in which catalogs are read. Links to files are followed.
pub(crate) fn walk(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let (found, unreadable) = survey(root)?;
    match refusal(unreadable.iter()) {
        None => Ok(found),
        Some(error) => Err(error),
    }
}

/// The number of unreadable entries in an error.
const MOST_NAMED: usize = 10;

/// The error for unreadable entries, a line each.
fn refusal<'u>(unreadable: impl Iterator<Item = &'u Unreadable>) -> Option<anyhow::Error> {
    let mut seen = BTreeSet::new();
    let mut lines: Vec<&str> = unreadable
        .filter(|fault| seen.insert(&fault.name))
        .map(|fault| fault.message.as_str())
        .collect();
    let more = lines.len().saturating_sub(MOST_NAMED);
    lines.truncate(MOST_NAMED);
    let text = lines.join("\n");
    match (lines.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(anyhow!(text)),
        (false, more) => Some(anyhow!("{text}\nand {more} more")),
    }
}

/// The files in the order of [`walk`], and the unreadable entries.
fn survey(root: &Path) -> anyhow::Result<(Vec<SourceFile>, Vec<Unreadable>)> {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    let mut directories = vec![(String::new(), root.to_owned(), 0)];
    while let Some((prefix, directory, depth)) = directories.pop() {
        if depth > MAX_DEPTH {
            bail!(
                "{} is more than {MAX_DEPTH} directories deep",
                directory.display()
            );
        }
        let failed = || format!("cannot read {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
                bail!("the name of {} is not UTF-8", path.display());
            };
            let kind = entry.file_type().with_context(failed)?;
            if kind.is_dir() {
                directories.push((format!("{name}/"), path, depth + 1));
            } else if kind.is_file() || (kind.is_symlink() && path.is_file()) {
                found.push(SourceFile { name, path });
            } else {
                let what = if kind.is_symlink() && !path.exists() {
                    "a link that leads nowhere"
                } else if kind.is_symlink() {
                    "a link to a directory"
                } else {
                    "neither a file nor a directory"
                };
                let message = format!("{} is {what}", path.display());
                unreadable.push(Unreadable { name, message });
            }
        }
    }
    found.sort_by(|left, right| walk_order(&left.name, &right.name));
    unreadable.sort_by(|left, right| walk_order(&left.name, &right.name));
    Ok((found, unreadable))
}
