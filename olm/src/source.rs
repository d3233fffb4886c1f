//! The sources of catalogs and bundles: files and directories, images in registries and on disk, a running catalogd.

mod named;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use olm_author::catalog_entry::{Entry, entry};
use olm_bundle::media_type::{Format, labels_of};
use olm_bundle::{BundleFiles, ParseError, annotation_keys};
use olm_fbc::catalog::{BlobFault, Effect};
use olm_fbc::similar::nearest;
use olm_fbc::{Catalog, LoadError, MetaError};
use olm_image::{
    Approval, Contents, Limits, LocalImage, Pinned, Platform, Reference, Selection, SignatureStatus, Storage,
    Tree,
};
use tempfile::TempDir;

pub(crate) use self::named::{NamedCatalog, is_object_name, named_source};
use crate::hint::Hint;
use crate::input::{self, CatalogFiles, Unreadable, bundle_files};
use crate::output::note;
use crate::registry::{RegistryArguments, bundle_selection, is_short};

/// The label with the path of the catalog in an image.
pub(crate) const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// The label of images with a database instead of a catalog.
const DATABASE_LABEL: &str = "operators.operatorframework.io.index.database.v1";
/// The largest catalog that is fetched from a running catalogd, in bytes.
pub(crate) const MAX_CATALOG: u64 = 4 << 30;

/// The catalog or bundle at a reference.
pub(crate) enum Source {
    /// A catalog.
    Catalog(CatalogFiles),
    /// A bundle.
    Bundle(BundleSource),
}

/// The files of a bundle and the facts about its image.
pub(crate) struct BundleSource {
    /// The files below `manifests/` and `metadata/`.
    pub(crate) files: BundleFiles,
    /// The labels of the image.
    pub(crate) labels: BTreeMap<String, String>,
    /// The reference of the image; empty for a directory.
    pub(crate) image: String,
    /// The same by digest, for an image from a registry.
    pub(crate) pinned: Option<String>,
    /// By whom the image is signed and which rules ask for that, if any does.
    pub(crate) verified: Option<String>,
}

impl BundleSource {
    /// Gives a bundle without an image the reference that is made for it.
    pub(crate) fn name_image(&mut self, reference: impl Fn(&Entry) -> String) -> anyhow::Result<()> {
        if self.image.is_empty() {
            // The entry that is kept prints its warnings.
            self.image = reference(&entry(&self.files, &self.labels, "")?);
        }
        Ok(())
    }

    /// The bundle as a catalog shows it.
    pub(crate) fn entry(&self) -> anyhow::Result<Entry> {
        let entry = entry(&self.files, &self.labels, &self.image)?;
        for warning in &entry.warnings {
            note(&format!("warning: {warning}"));
        }
        Ok(entry)
    }
}

/// Opens the catalog or bundle at `reference`.
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
                pinned: None,
                verified: None,
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
        bail!("{reference:?} is not a file, a directory or an image reference");
    };
    if !reference.contains(['/', ':']) {
        bail!("{reference:?} is not a file or directory; an image reference needs a registry");
    }
    pull(registry, &parsed, reference).map_err(|error| {
        if !is_short(&parsed, reference) || error.downcast_ref::<Hint>().is_some() {
            return error;
        }
        // If the user meant a file, the registry's answer does not help.
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
        None => "`olm search --catalog SOURCE` shows what a catalog has".to_owned(),
    }))
}

/// Like [`open`], for a catalog only.
pub(crate) fn open_catalog(reference: &str, registry: &RegistryArguments) -> anyhow::Result<CatalogFiles> {
    let opened = open(reference, registry).map_err(|error| {
        if reference.contains(['/', ':']) || Path::new(reference).exists() {
            return error;
        }
        error.context(Hint(
            "`olm show PACKAGE --catalog NAME` reads a ClusterCatalog".to_owned(),
        ))
    });
    match opened? {
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
            let error =
                anyhow!("{reference:?} is not a bundle: it lacks the directories manifests and metadata");
            Err(error.context(Hint(
                "of a bundle, name the directory that holds both directories; `olm catalog validate` and `olm catalog list` \
                 are for catalogs"
                    .to_owned(),
            )))
        }
    }
}

/// Warns that a bundle has update edges in the catalog, but no image.
pub(crate) fn warn_of_missing_image(bundle: &str) {
    note(&format!(
        "warning: {bundle} has no image in the catalog and cannot be installed"
    ));
}

/// The hint about the command that shows all faults of a catalog.
pub(crate) fn faults_shown(reference: &str) -> Hint {
    Hint(format!(
        "`olm catalog validate {reference}` shows every error; list files that do not belong to the catalog in \
         .indexignore"
    ))
}

/// The error that a file of a catalog cannot be read, which no catalog server would serve then.
pub(crate) fn unreadable(reference: &str, file: &str, error: &MetaError) -> anyhow::Error {
    anyhow!("{file}:{}: {}", error.line, error.without_line()).context(faults_shown(reference))
}

/// Adds the content at `reference` to the catalog: all blobs of a catalog, or one bundle. Blobs that cannot be written
/// unchanged are refused.
pub(crate) fn load(
    reference: &str,
    registry: &RegistryArguments,
    catalog: &mut Catalog,
) -> anyhow::Result<()> {
    match open(reference, registry)? {
        Source::Catalog(files) => load_files(&files, reference, MalformedBlobs::Refused, catalog),
        Source::Bundle(bundle) => {
            catalog.bundles.push(bundle.entry()?.bundle);
            Ok(())
        }
    }
    .with_context(|| format!("render reference {reference:?}"))
}

/// The treatment of objects that do not match their schema. Catalog servers serve them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MalformedBlobs {
    /// Skip them with a warning.
    LeftOut,
    /// Fail, because the output would lack them.
    Refused,
}

/// Reads a whole catalog, as a catalog server would serve it, except for the objects of `malformed`.
pub(crate) fn load_catalog(
    reference: &str,
    registry: &RegistryArguments,
    malformed: MalformedBlobs,
) -> anyhow::Result<Catalog> {
    let mut catalog = Catalog::default();
    load_files(
        &open_catalog(reference, registry)?,
        reference,
        malformed,
        &mut catalog,
    )
    .with_context(|| format!("cannot read the catalog {reference:?}"))?;
    Ok(catalog)
}

/// Like [`load_catalog`], for existing files; `reference` names their origin.
pub(crate) fn read_catalog(files: &CatalogFiles, reference: &str) -> anyhow::Result<Catalog> {
    let mut catalog = Catalog::default();
    load_files(files, reference, MalformedBlobs::LeftOut, &mut catalog)
        .with_context(|| format!("cannot read the catalog {reference:?}"))?;
    Ok(catalog)
}

/// The number of printed warnings about a catalog.
const MAX_WARNINGS: usize = 5;
/// The longest message that is printed, in characters.
const MAX_MESSAGE: usize = 300;

fn load_files(
    files: &CatalogFiles,
    reference: &str,
    malformed: MalformedBlobs,
    catalog: &mut Catalog,
) -> anyhow::Result<()> {
    let (mut warnings, mut more) = (Vec::new(), 0_usize);
    files.read(reference, |file, meta| {
        let meta = match meta {
            Ok(meta) => meta,
            Err(error) => return ControlFlow::Break(unreadable(reference, file, &error)),
        };
        let Err(fault) = catalog.add_readable(meta) else {
            return ControlFlow::Continue(());
        };
        if fault.effect == Effect::LeftOut && malformed == MalformedBlobs::Refused {
            let place = format!("{file}:{}", fault.error.line());
            let error = anyhow::Error::new(fault.error).context(place);
            return ControlFlow::Break(error.context(faults_shown(reference)));
        }
        if warnings.len() < MAX_WARNINGS {
            warnings.push(warning(reference, file, &fault));
        } else {
            more += 1;
        }
        ControlFlow::Continue(())
    })?;
    if warnings.is_empty() {
        return Ok(());
    }
    for line in warnings {
        note(&line);
    }
    if more > 0 {
        note(&format!("warning: {reference}: and {more} more"));
    }
    note(&format!("hint: {}", faults_shown(reference)));
    Ok(())
}

/// The fault of an object that is served nevertheless, in one line.
fn warning(reference: &str, file: &str, fault: &BlobFault) -> String {
    let object = fault.object.to_string();
    let object = if object.is_empty() {
        object
    } else {
        format!("{object}: ")
    };
    let left_out = match fault.effect {
        Effect::LeftOut => "left out: ",
        Effect::Kept => "",
    };
    let (line, text) = (fault.error.line(), shortened(&fault.error));
    format!("warning: {reference}: {file}:{line}: {object}{left_out}{text}")
}

/// The text of an error that may quote a whole object.
fn shortened(error: &LoadError) -> String {
    let text = error.to_string();
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
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
        ImageContent::Catalog(configs) => {
            let selection = Selection::Below(vec![configs.clone()]);
            let storage = Storage::Directory(std::env::temp_dir());
            let tree = image.unpack(&selection, &storage, &limits)?;
            catalog_of(&tree, &configs)
        }
        ImageContent::Bundle => {
            let selection = bundle_selection();
            let tree = image.unpack(&selection, &Storage::Memory, &Limits::bundle())?;
            let bundle = Contents::from_tree(image.labels().clone(), &tree)
                .with_context(|| format!("cannot use {}", path.display()))?;
            Ok(bundle_of(&bundle, String::new(), None))
        }
    }
}

/// The content of an image.
pub(crate) enum ImageContent {
    /// A catalog in this directory.
    Catalog(String),
    /// A bundle.
    Bundle,
}

/// The content of an image, by its labels.
pub(crate) fn kind(reference: &str, labels: &BTreeMap<String, String>) -> anyhow::Result<ImageContent> {
    if let Some(configs) = labels.get(CONFIGS_LABEL) {
        return Ok(ImageContent::Catalog(configs.clone()));
    }
    match Format::of(labels.get(annotation_keys::MEDIA_TYPE).map(String::as_str)) {
        Format::RegistryV1 => {}
        other => {
            return Err(ParseError::MediaType(other)).with_context(|| format!("cannot use {reference:?}"));
        }
    }
    // The package may be named in the files alone.
    if [annotation_keys::PACKAGE, annotation_keys::MEDIA_TYPE]
        .iter()
        .any(|key| labels.contains_key(*key))
    {
        return Ok(ImageContent::Bundle);
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

pub(crate) fn bundle_of(
    bundle: &Contents,
    image: String,
    verified: Option<(&Pinned, &[Approval])>,
) -> Source {
    let pinned = verified.map(|(pinned, _)| pinned);
    let verified = verified.and_then(|(pinned, approvals)| SignatureStatus::accepted(pinned, approvals));
    Source::Bundle(BundleSource {
        files: bundle
            .files
            .iter()
            .map(|(path, content)| (path.clone(), content.to_vec()))
            .collect(),
        labels: bundle.labels.clone(),
        image,
        pinned: pinned.map(ToString::to_string),
        verified: verified.map(|status| status.message),
    })
}

/// The catalog in a directory of an unpacked image, put into files of its own.
pub(crate) fn catalog_of(tree: &Tree, configs: &str) -> anyhow::Result<Source> {
    let directory = scratch()?;
    tree.write_to(directory.path()).map_err(unwritten)?;
    let root = directory.path().join(configs.trim_matches('/'));
    if !root.is_dir() {
        bail!("the image has no catalog in {configs}, the directory that its label names");
    }
    let missing: Vec<Unreadable> = tree
        .astray(configs)
        .map(|link| {
            let message = format!("cannot read {}: {}", link.path, link.why);
            Unreadable {
                name: link.path,
                message,
            }
        })
        .collect();
    let files = CatalogFiles::open_but(&root, missing)?;
    Ok(Source::Catalog(files.keeping(directory)))
}

/// The error of a catalog that cannot be put into files, with its remedy.
fn unwritten(error: std::io::Error) -> anyhow::Error {
    let is_without_case = error.kind() == std::io::ErrorKind::AlreadyExists;
    let error = anyhow!(error);
    if is_without_case {
        error.context(Hint(
            "set TMPDIR to a directory on a file system that distinguishes upper and lower case".to_owned(),
        ))
    } else {
        error
    }
}

pub(crate) fn scratch() -> std::io::Result<TempDir> {
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
            .map_err(|error| anyhow!(olm_transport::reason(&error)))
            .with_context(|| format!("cannot fetch {url}"))?;
        if !response.status().is_success() {
            let status = response.status();
            let why = why(&mut response).await;
            let error = anyhow!("cannot fetch {url}: the server answers {status}{why}");
            return Err(match status.as_u16() {
                401 | 403 => error.context(Hint(
                    "set --token-file to a file with a token that may read catalogs".to_owned(),
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

/// The reason in the body of a refusal, as text after the status.
async fn why(response: &mut reqwest::Response) -> String {
    let start = response.chunk().await.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&start);
    let line: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(MAX_MESSAGE)
        .collect();
    if line.is_empty() || line == response.status().to_string() || line.starts_with(['<', '{']) {
        String::new()
    } else {
        format!(": {line}")
    }
}

/// Fetches the image and its content.
fn pull(registry: &RegistryArguments, reference: &Reference, written: &str) -> anyhow::Result<Source> {
    let access = registry.access(reference)?;
    let images = registry.images();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let limits = Limits::catalog();
        let pinned = images.resolve(reference, &access).await?;
        let image = images.image(&pinned, &access, &limits).await?;
        let labels = labels_of(image.labels(), image.artifact_type(), &BundleFiles::new());
        match kind(written, &labels)? {
            ImageContent::Catalog(configs) => {
                let selection = Selection::Below(vec![configs.clone()]);
                let storage = Storage::Directory(std::env::temp_dir());
                let tree = images
                    .unpack(&image, &selection, &storage, &access, &limits)
                    .await?;
                catalog_of(&tree, &configs)
            }
            ImageContent::Bundle => {
                let limits = Limits::bundle();
                let (bundle, approvals) = images.verified_contents(&pinned, &access, &limits).await?;
                let image = Some((&pinned, approvals.as_slice()));
                Ok(bundle_of(&bundle, written.to_owned(), image))
            }
        }
    })
}

/// Every file below `path` by its name, for bundles of the legacy format.
pub(crate) fn all_files(path: &Path) -> anyhow::Result<BundleFiles> {
    input::directory(
        path,
        "a directory of package manifests has a file PACKAGE.package.yaml and a directory for each version",
    )?;
    input::walk(path)?
        .into_iter()
        .map(|file| Ok((file.name, input::read(&file.path, input::MAX_BUNDLE_FILE)?)))
        .collect()
}
