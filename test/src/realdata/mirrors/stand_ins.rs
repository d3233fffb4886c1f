//! Real catalogs whose images are replaced by small ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use olm_fbc::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE, meta, metas};
use olm_image::{BuiltImage, BuiltLayer, ImageBuilder, LayerBuilder, Platform, Reference};
use olm_version::{BuildMetadata, VersionRelease};
use serde_json::Value;

use super::super::catalogs;

/// A large catalog, of which only some packages are mirrored.
const LARGE: &str = "operatorhub.json";

/// The channels and the bundles of a package.
#[derive(Debug, Default)]
pub(super) struct Package {
    pub(super) channels: BTreeSet<String>,
    /// Names and versions, the lowest version first.
    pub(super) bundles: Vec<(String, String)>,
}

/// A catalog in which each image is a stand-in.
#[derive(Debug)]
pub(super) struct RealCatalog {
    pub(super) name: String,
    pub(super) blobs: Vec<Value>,
    pub(super) packages: BTreeMap<String, Package>,
    /// The images that it names.
    pub(super) images: BTreeSet<String>,
    /// Whether the packages are named to `olm mirror`, which then writes a new catalog.
    pub(super) is_selection: bool,
}

impl RealCatalog {
    /// The catalog as an image.
    pub(super) fn image(&self) -> Result<BuiltImage> {
        let text: String = self.blobs.iter().map(|blob| format!("{blob}\n")).collect();
        let mut layer = LayerBuilder::new();
        layer.bytes("configs/catalog.json", text, 0o644)?;
        Ok(ImageBuilder::default()
            .label("operators.operatorframework.io.index.configs.v1", "/configs")
            .layer(layer.build()?)
            .build())
    }
}

/// The images that stand in for those that catalogs name. An image that a catalog names by digest is another one here,
/// so the catalog names its digest instead; host, path and tag remain.
pub(super) struct StandIns {
    layer: BuiltLayer,
    images: BTreeMap<String, BuiltImage>,
}

impl StandIns {
    pub(super) fn new() -> Result<Self> {
        let mut layer = LayerBuilder::new();
        layer.bytes("stand-in", "", 0o644)?;
        Ok(Self {
            layer: layer.build()?,
            images: BTreeMap::new(),
        })
    }

    /// The images by their references.
    pub(super) const fn images(&self) -> &BTreeMap<String, BuiltImage> {
        &self.images
    }

    /// The reference of the stand-in for an image.
    fn replace(&mut self, text: &str) -> Result<String> {
        let reference = Reference::parse_familiar(text).with_context(|| format!("{text:?}"))?;
        let image = ImageBuilder::new(Platform::host())
            .label("stand-in.for", text)
            .layer(self.layer.clone())
            .build();
        let written = match text.split_once('@') {
            Some((name, _)) if reference.digest().is_some() => format!("{name}@{}", image.digest()),
            _ => text.to_owned(),
        };
        self.images.insert(written.clone(), image);
        Ok(written)
    }

    /// Reads all catalogs in `dir`: those in `fbc`, and of the large one the packages with at most `most` bundles.
    pub(super) fn catalogs(&mut self, dir: &Path, most: usize) -> Result<Vec<RealCatalog>> {
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(dir.join("fbc"))? {
            let name = entry?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.sort();
        let mut catalogs = Vec::new();
        for name in names {
            let blobs = blobs(&dir.join("fbc").join(&name)).with_context(|| name.clone())?;
            let name = name.to_lowercase();
            catalogs.push(self.catalog(name, blobs, false)?);
        }
        if dir.join(LARGE).is_file() {
            let mut blobs = blobs(&dir.join(LARGE))?;
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for blob in blobs.iter().filter(|blob| text(blob, "schema") == SCHEMA_BUNDLE) {
                *counts.entry(text(blob, "package").to_owned()).or_default() += 1;
            }
            blobs.retain(|blob| counts.get(package_of(blob)).is_some_and(|count| *count <= most));
            catalogs.push(self.catalog("operatorhub".to_owned(), blobs, true)?);
        }
        Ok(catalogs)
    }

    fn catalog(&mut self, name: String, mut blobs: Vec<Value>, is_selection: bool) -> Result<RealCatalog> {
        let mut packages: BTreeMap<String, Package> = BTreeMap::new();
        let mut images = BTreeSet::new();
        for blob in &mut blobs {
            let (schema, package) = (text(blob, "schema").to_owned(), package_of(blob).to_owned());
            let own = text(blob, "name").to_owned();
            match schema.as_str() {
                SCHEMA_PACKAGE => {
                    packages.entry(package).or_default();
                }
                SCHEMA_CHANNEL => {
                    packages.entry(package).or_default().channels.insert(own);
                }
                SCHEMA_BUNDLE => {
                    let version = version(blob).unwrap_or_default();
                    packages.entry(package).or_default().bundles.push((own, version));
                    for image in named_images(blob) {
                        let written = self.replace(image)?;
                        images.insert(written.clone());
                        *image = written;
                    }
                }
                _ => {}
            }
        }
        let key = |text: &str| VersionRelease::parse(text, BuildMetadata::Release).ok();
        for package in packages.values_mut() {
            package
                .bundles
                .sort_by(|(_, left), (_, right)| match (key(left), key(right)) {
                    (Some(left), Some(right)) => left.compare(&right),
                    (left, right) => left.is_some().cmp(&right.is_some()),
                });
        }
        Ok(RealCatalog {
            name,
            blobs,
            packages,
            images,
            is_selection,
        })
    }
}

/// The blobs of a catalog in a file or folder.
fn blobs(root: &Path) -> Result<Vec<Value>> {
    let mut blobs = Vec::new();
    for path in catalogs::files(root).map_err(|error| anyhow!(error))? {
        let full = if path.is_empty() {
            root.to_owned()
        } else {
            root.join(&path)
        };
        for blob in metas(BufReader::new(File::open(full)?), &meta::limits()) {
            let blob = blob.map_err(|error| anyhow!("{path}:{}: {error}", error.line))?;
            if !blob.line.is_empty() {
                blobs.push(serde_json::from_str(blob.json())?);
            }
        }
    }
    Ok(blobs)
}

fn text<'b>(blob: &'b Value, key: &str) -> &'b str {
    blob.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn package_of(blob: &Value) -> &str {
    let key = if text(blob, "schema") == SCHEMA_PACKAGE {
        "name"
    } else {
        "package"
    };
    text(blob, key)
}

fn version(bundle: &Value) -> Option<String> {
    let properties = bundle.get("properties")?.as_array()?.iter();
    let mut packages = properties.filter(|property| text(property, "type") == "olm.package");
    let version = packages.next()?.pointer("/value/version")?.as_str()?;
    Some(version.to_owned())
}

/// The image of a bundle and its related images, without empty ones.
fn named_images(bundle: &mut Value) -> Vec<&mut String> {
    let Some(bundle) = bundle.as_object_mut() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, value) in bundle {
        match (key.as_str(), value) {
            ("image", Value::String(image)) => found.push(image),
            ("relatedImages", Value::Array(related)) => {
                let images = related.iter_mut().filter_map(|one| one.get_mut("image"));
                found.extend(images.filter_map(|image| match image {
                    Value::String(image) => Some(image),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    found.retain(|image| !image.is_empty());
    found
}
