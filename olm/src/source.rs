//! Where catalogs and bundles come from: files and directories, images in registries and on disk, a running catalogd.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use olm_bundle::catalog::{Entry, entry};
use olm_bundle::media_type::{Format, labels_of};
use olm_bundle::{BundleFiles, ParseError, annotation_keys};
use olm_fbc::Catalog;
use olm_fbc::similar::nearest;
use olm_image::{Bundle, Limits, LocalImage, Platform, Reference, Selection, Storage, Tree};
use tempfile::TempDir;

use crate::hint::Hint;
use crate::input::{self, CatalogFiles, bundle_files};
use crate::output::note;
use crate::registry::RegistryArguments;

/// The label that says where in an image its catalog is.
pub(crate) const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// The label of images with a database in the place of a catalog.
const DATABASE_LABEL: &str = "operators.operatorframework.io.index.database.v1";
/// The largest catalog that is fetched from a running catalogd, in bytes.
const MAX_CATALOG: u64 = 4 << 30;

/// What a reference leads to.
pub(crate) enum Source {
    /// A catalog.
    Catalog(CatalogFiles),
    /// A bundle.
    Bundle(BundleSource),
}

/// The files of a bundle and what is known of its image.
pub(crate) struct BundleSource {
    /// The files below `manifests/` and `metadata/`.
    pub(crate) files: BundleFiles,
    /// The labels of the image.
    pub(crate) labels: BTreeMap<String, String>,
    /// The reference of the image; empty for a directory.
    pub(crate) image: String,
}

impl BundleSource {
    /// The bundle as a catalog shows it.
    pub(crate) fn entry(&self) -> anyhow::Result<Entry> {
        let entry = entry(&self.files, &self.labels, &self.image)?;
        for warning in &entry.warnings {
            note(&format!("warning: {warning}"));
        }
        Ok(entry)
    }
}

/// Opens what `reference` names.
pub(crate) fn open(reference: &str, registry: &RegistryArguments) -> anyhow::Result<Source> {
    if reference.starts_with("http://") || reference.starts_with("https://") {
        return served(reference, registry).map(Source::Catalog);
    }
    let path = Path::new(reference);
    if path.is_dir() {
        return if path.join("oci-layout").is_file() {
            on_disk(path)
        } else if path.join("manifests").is_dir() && path.join("metadata").is_dir() {
            Ok(Source::Bundle(BundleSource {
                files: bundle_files(path)?,
                labels: BTreeMap::new(),
                image: String::new(),
            }))
        } else {
            CatalogFiles::open(path).map(Source::Catalog)
        };
    }
    if path.exists() {
        return if is_archive(path)? {
            on_disk(path)
        } else {
            CatalogFiles::open(path).map(Source::Catalog)
        };
    }
    let Ok(parsed) = Reference::parse_familiar(reference) else {
        bail!("{reference:?} is neither a file nor a directory, and no image reference");
    };
    if !reference.contains(['/', ':']) {
        bail!("{reference:?} is neither a file nor a directory; an image reference names its registry");
    }
    registry.pull(&parsed, reference).map_err(|error| {
        let is_short = parsed.registry() == "docker.io" && !reference.starts_with("docker.io/");
        if !is_short || error.downcast_ref::<Hint>().is_some() {
            return error;
        }
        // Who meant a file is not helped by what a registry says.
        error.context(Hint(format!(
            "there is no file or directory {reference}, and it names no registry, so that it was taken for an image of \
             docker.io"
        )))
    })
}

/// The error that there is no such package in these catalogs.
pub(crate) fn no_package<'a>(
    package: &str,
    catalogs: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> anyhow::Error {
    let error = anyhow!("package {package:?} not found in {catalogs}");
    error.context(Hint(match nearest(package, known) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => "`olm catalog list packages` shows what a catalog has".to_owned(),
    }))
}

/// Like [`open`], for a catalog only.
pub(crate) fn open_catalog(reference: &str, registry: &RegistryArguments) -> anyhow::Result<CatalogFiles> {
    match open(reference, registry)? {
        Source::Catalog(files) => Ok(files),
        Source::Bundle(_) => Err(anyhow!("{reference:?} is a bundle, not a catalog").context(Hint(
            "`olm bundle validate` and `olm bundle render` are for bundles; `olm bundle convert` and `olm catalog \
             render` make a catalog of one"
                .to_owned(),
        ))),
    }
}

/// Like [`open`], for a bundle only.
pub(crate) fn open_bundle(reference: &str, registry: &RegistryArguments) -> anyhow::Result<BundleSource> {
    match open(reference, registry)? {
        Source::Bundle(bundle) => Ok(bundle),
        Source::Catalog(_) => {
            let error = anyhow!(
                "{reference:?} is a catalog, not a bundle with the directories manifests and metadata"
            );
            Err(error.context(Hint(
                "`olm catalog validate` and `olm catalog list` are for catalogs; of a bundle, name the directory that \
                 holds both directories"
                    .to_owned(),
            )))
        }
    }
}

/// Adds what `reference` names to the catalog: all blobs of a catalog, the one of a bundle.
pub(crate) fn load(
    reference: &str,
    registry: &RegistryArguments,
    catalog: &mut Catalog,
) -> anyhow::Result<()> {
    match open(reference, registry)? {
        Source::Catalog(files) => load_files(&files, catalog),
        Source::Bundle(bundle) => {
            catalog.bundles.push(bundle.entry()?.bundle);
            Ok(())
        }
    }
    .with_context(|| format!("render reference {reference:?}"))
}

/// Reads a whole catalog.
pub(crate) fn load_catalog(reference: &str, registry: &RegistryArguments) -> anyhow::Result<Catalog> {
    let mut catalog = Catalog::default();
    load_files(&open_catalog(reference, registry)?, &mut catalog)
        .with_context(|| format!("cannot read the catalog {reference:?}"))?;
    Ok(catalog)
}

fn load_files(files: &CatalogFiles, catalog: &mut Catalog) -> anyhow::Result<()> {
    files.read(|file, meta| {
        let added = meta
            .map_err(olm_fbc::LoadError::from)
            .and_then(|meta| catalog.add(meta));
        match added {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let place = format!("{file}:{}", error.line());
                ControlFlow::Break(anyhow::Error::new(error).context(place))
            }
        }
    })
}

/// Whether a file is a tar archive.
fn is_archive(path: &Path) -> anyhow::Result<bool> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(265).read_to_end(&mut start))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(start.get(257..262) == Some(b"ustar"))
}

/// The image in a layout or an archive of one.
fn on_disk(path: &Path) -> anyhow::Result<Source> {
    let limits = Limits::catalog();
    let image = LocalImage::open(path, &Platform::host(), &limits)?;
    let name = path.display().to_string();
    let labels = labels_of(image.labels(), image.artifact_type(), &BundleFiles::new());
    match kind(&name, &labels)? {
        Kind::Catalog(configs) => {
            let selection = Selection::Below(vec![configs.clone()]);
            let storage = Storage::Directory(std::env::temp_dir());
            let tree = image.unpack(&selection, &storage, &limits)?;
            catalog_of(&tree, &configs)
        }
        Kind::Bundle => {
            let tree = image.unpack(&Bundle::selection(), &Storage::Memory, &Limits::bundle())?;
            let bundle = Bundle::from_tree(image.labels().clone(), &tree);
            Ok(bundle_of(&bundle, String::new()))
        }
    }
}

/// What an image holds.
pub(crate) enum Kind {
    /// A catalog in this directory.
    Catalog(String),
    /// A bundle.
    Bundle,
}

/// What an image holds, by its labels.
pub(crate) fn kind(reference: &str, labels: &BTreeMap<String, String>) -> anyhow::Result<Kind> {
    if let Some(configs) = labels.get(CONFIGS_LABEL) {
        return Ok(Kind::Catalog(configs.clone()));
    }
    match Format::of(labels.get(annotation_keys::MEDIA_TYPE).map(String::as_str)) {
        Format::RegistryV1 => {}
        other => {
            return Err(ParseError::MediaType(other)).with_context(|| format!("cannot use {reference:?}"));
        }
    }
    if labels.contains_key(annotation_keys::PACKAGE) {
        return Ok(Kind::Bundle);
    }
    if labels.contains_key(DATABASE_LABEL) {
        bail!(
            "render {reference:?}: sqlite-based index images are no longer supported, migrate to a file-based catalog"
        );
    }
    let neither = Hint(format!(
        "the image of a catalog has the label {CONFIGS_LABEL}, that of a bundle {}: `olm catalog push` and `olm bundle \
         push` set them",
        annotation_keys::PACKAGE
    ));
    if labels.is_empty() {
        let error = anyhow!("render {reference:?}: image type could not be determined: image has no labels");
        return Err(error.context(neither));
    }
    let found: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("  {key}={value}"))
        .collect();
    let error = anyhow!(
        "render {reference:?}: image type could not be determined, found labels\n{}",
        found.join("\n")
    );
    Err(error.context(neither))
}

pub(crate) fn bundle_of(bundle: &Bundle, image: String) -> Source {
    Source::Bundle(BundleSource {
        files: bundle
            .files
            .iter()
            .map(|(path, content)| (path.clone(), content.to_vec()))
            .collect(),
        labels: bundle.labels.clone(),
        image,
    })
}

/// The catalog in a directory of an unpacked image, put into files of its own.
pub(crate) fn catalog_of(tree: &Tree, configs: &str) -> anyhow::Result<Source> {
    let directory = scratch()?;
    tree.write_to(directory.path())?;
    let root = directory.path().join(configs.trim_matches('/'));
    if !root.is_dir() {
        bail!("the image says that its catalog is in {configs}, where there is none");
    }
    Ok(Source::Catalog(CatalogFiles::open(&root)?.keeping(directory)))
}

fn scratch() -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix("olm-catalog-").tempdir()
}

/// The catalog that a running catalogd serves at an address: that of the catalog or of one of its endpoints.
fn served(address: &str, registry: &RegistryArguments) -> anyhow::Result<CatalogFiles> {
    let base = address.trim_end_matches('/');
    let base = base.split_once("/api/v1").map_or(base, |(base, _)| base);
    let url = format!("{base}/api/v1/all");
    let client = registry.client()?;
    let directory = scratch()?;
    let path = directory.path().join("catalog.jsonl");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut response = registry
            .ask(&client, &url)?
            .send()
            .await
            .with_context(|| format!("cannot fetch {url}"))?;
        if !response.status().is_success() {
            let error = anyhow!("cannot fetch {url}: the server answers {}", response.status());
            return Err(match response.status().as_u16() {
                401 | 403 => error.context(Hint(
                    "name a file with a token that may read catalogs by --token-file".to_owned(),
                )),
                404 => error.context(Hint(
                    "an address is that of a catalog, https://HOST/catalogs/NAME; https://HOST/catalogs lists them"
                        .to_owned(),
                )),
                _ => error,
            });
        }
        let mut file = File::create(&path)?;
        let mut left = MAX_CATALOG;
        while let Some(piece) = response
            .chunk()
            .await
            .with_context(|| format!("cannot fetch {url}"))?
        {
            left = left
                .checked_sub(piece.len() as u64)
                .with_context(|| format!("{url} has more than {MAX_CATALOG} bytes"))?;
            file.write_all(&piece)?;
        }
        Ok(())
    })?;
    Ok(CatalogFiles::open(&path)?.keeping(directory))
}

/// Every file below `path` by its name, for bundles of the legacy format.
pub(crate) fn all_files(path: &Path) -> anyhow::Result<BundleFiles> {
    if !fs::metadata(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .is_dir()
    {
        bail!("{:?} is not a directory", path.display().to_string());
    }
    input::walk(path)?
        .into_iter()
        .map(|file| Ok((file.name, input::read(&file.path, input::MAX_BUNDLE_FILE)?)))
        .collect()
}
