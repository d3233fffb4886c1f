//! Catalogs as the command line names them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use olm_text::names::subdomain_faults;

/// A catalog that the command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamedCatalog {
    /// The ClusterCatalog of that name.
    OfCluster(String),
    /// A source, and the name that the catalog goes by.
    Source { name: String, source: String },
}

impl NamedCatalog {
    /// Reads `NAME=SOURCE`, `SOURCE` or the name of a ClusterCatalog. A word that is no file or directory is a name: an
    /// image has a registry, a path or a tag.
    pub(crate) fn parse(argument: &str) -> anyhow::Result<Self> {
        if is_object_name(argument) && !Path::new(argument).exists() {
            return Ok(Self::OfCluster(argument.to_owned()));
        }
        let (name, source) = named_source(argument)?;
        Ok(Self::Source { name, source })
    }
}

/// Whether an object of Kubernetes can have that name.
pub(crate) fn is_object_name(text: &str) -> bool {
    subdomain_faults(text).is_empty()
}

/// The name and the path in an argument.
fn name_and_path(argument: &str) -> anyhow::Result<(String, PathBuf)> {
    if let Some((name, path)) = argument.split_once('=').filter(|(name, _)| !name.contains('/')) {
        return Ok((name.to_owned(), path.into()));
    }
    let path = PathBuf::from(argument);
    // `.` and `..` have names as well, though not in the argument.
    let absolute = path
        .canonicalize()
        .with_context(|| format!("cannot read {argument}"))?;
    // A file's name ends with its type; that of a directory may end with a version.
    let name = if absolute.is_dir() {
        absolute.file_name()
    } else {
        absolute.file_stem()
    };
    match name.and_then(|name| name.to_str()) {
        Some(name) => Ok((name.to_lowercase().replace('_', "-"), path)),
        None => bail!("cannot derive a name from {argument}; use NAME={argument}"),
    }
}

/// The name and the source in an argument; an image or address lends its last part.
pub(crate) fn named_source(argument: &str) -> anyhow::Result<(String, String)> {
    let given = argument
        .split_once('=')
        .filter(|(name, _)| !name.contains(['/', ':', '?']));
    if let Some((name, source)) = given {
        return Ok((name.to_owned(), source.to_owned()));
    }
    if Path::new(argument).exists() {
        let (name, _) = name_and_path(argument)?;
        return Ok((name, argument.to_owned()));
    }
    let base = argument.split("/api/v1").next().unwrap_or_default();
    let last = base.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name = last.split([':', '@']).next().unwrap_or_default();
    if name.is_empty() {
        bail!("cannot derive a name from {argument}; use NAME={argument}");
    }
    Ok((name.to_lowercase().replace('_', "-"), argument.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_file_is_the_name_of_a_catalog_of_the_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let source = |name: &str, source: &str| NamedCatalog::Source {
            name: name.to_owned(),
            source: source.to_owned(),
        };
        for (argument, expected) in [
            ("samples", NamedCatalog::OfCluster("samples".to_owned())),
            ("my.catalog-2", NamedCatalog::OfCluster("my.catalog-2".to_owned())),
            ("samples:latest", source("samples", "samples:latest")),
            (
                "registry.example/a/b@sha256:1",
                source("b", "registry.example/a/b@sha256:1"),
            ),
            ("one=samples", source("one", "samples")),
            ("./samples", source("samples", "./samples")),
            (&format!("one={path}"), source("one", &path)),
            // Cargo runs tests in the folder of the package, which has this folder.
            ("src", source("src", "src")),
        ] {
            assert_eq!(NamedCatalog::parse(argument).unwrap(), expected, "{argument}");
        }
    }
}
