//! Catalogs from the files of bundles.
//!
//! Parsing is more lenient than installation: files that are not manifests are skipped with a warning in
//! [`Entry::warnings`], so that the bundles of a large catalog can be rendered although some contain odd files.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::Annotations;
use olm_bundle::BundleFiles;
use olm_bundle::metadata::member;
use olm_bundle::metadata::{DEPENDENCY_PROPERTIES, DeclaredIn, Dependency, read_dependencies};
use olm_bundle::metadata::{Property, PropertyError, read_properties};
use olm_bundle::names::go_json;
use olm_bundle::object::{flatten, list, object_name, text};
use olm_fbc::property::{
    TYPE_BUNDLE_OBJECT, TYPE_CONSTRAINT, TYPE_CSV_METADATA, TYPE_GVK, TYPE_GVK_REQUIRED, TYPE_PACKAGE,
};
use olm_fbc::{Catalog, Channel, ChannelEntry, Gvk, Icon, Package, PackageProperty, RelatedImage, canonical};
use olm_version::VersionRelease;
use serde_json::Value;

/// The maximum number of objects in one bundle.
const MAX_OBJECTS: usize = 10_000;

/// The reason why the files of a bundle do not make an entry of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The directory `manifests` is empty.
    #[error("no bundle objects found")]
    NoObjects,
    /// There are more objects than any operator has.
    #[error("the bundle has more than {MAX_OBJECTS} objects")]
    TooManyObjects,
    /// There is no ClusterServiceVersion.
    #[error("no csv in bundle")]
    NoClusterServiceVersion,
    /// There are several.
    #[error("a bundle has exactly one ClusterServiceVersion, found {}: {}", .0.len(), .0.join(", "))]
    SeveralClusterServiceVersions(Vec<String>),
    /// A required or owned definition is not named `PLURAL.GROUP`.
    #[error("couldn't parse plural.group from crd name: {0}")]
    DefinitionName(String),
    /// An owned definition is not in the bundle.
    #[error(
        "error checking provided apis in bundle {bundle}: couldn't find {missing} in bundle. found: {}",
        if .found.is_empty() { "nothing".to_owned() } else { .found.join(", ") }
    )]
    MissingDefinition {
        /// The bundle.
        bundle: String,
        /// The owned definition: `group/version/kind (plural)`.
        missing: String,
        /// The APIs that the bundle provides.
        found: Vec<String>,
    },
    /// No file in `metadata` contains annotations.
    #[error("Could not find annotations file")]
    NoAnnotations,
    /// A list of properties or dependencies is malformed.
    #[error("{file}: {fault}")]
    Properties {
        /// The file of the fault.
        file: String,
        /// The fault.
        fault: String,
    },
}

/// A bundle as a catalog shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The blob.
    pub bundle: olm_fbc::Bundle,
    /// The channels that the bundle is published in.
    pub channels: Vec<String>,
    /// The default channel that the bundle names.
    pub default_channel: Option<String>,
    /// The update edges of the bundle, from the ClusterServiceVersion.
    pub edges: ChannelEntry,
    /// The author's description of the operator.
    pub description: String,
    /// The first icon of the ClusterServiceVersion.
    pub icon: Option<Icon>,
    /// Omitted files and properties, with the reasons.
    pub warnings: Vec<String>,
}

/// Reads the files of a bundle as an entry of a catalog. `labels` are those of the image, `image` is its reference; an
/// empty one stands for a bundle without image.
///
/// # Errors
/// When the files are not one bundle.
pub fn entry(
    files: &BundleFiles,
    labels: &BTreeMap<String, String>,
    image: &str,
) -> Result<Entry, CatalogError> {
    let mut warnings = Vec::new();
    let objects = objects(files, &mut warnings)?;
    let csvs: Vec<&Value> = objects
        .iter()
        .filter(|object| text(object, "/kind") == "ClusterServiceVersion")
        .collect();
    let csv = match csvs.as_slice() {
        [] => return Err(CatalogError::NoClusterServiceVersion),
        [csv] => *csv,
        several => {
            let names = several.iter().map(|csv| object_name(csv).to_owned());
            return Err(CatalogError::SeveralClusterServiceVersions(names.collect()));
        }
    };
    let provided = provided(&objects, csv);
    check_owned(csv, &provided)?;
    let metadata = Metadata::read(files, labels, &mut warnings)?;
    let properties = bundle_properties(csv, &objects, &provided, &metadata, &mut warnings)?;
    let name = object_name(csv).to_owned();
    let package = metadata.annotations.package().to_owned();
    Ok(Entry {
        channels: metadata.annotations.channels().map(str::to_owned).collect(),
        default_channel: metadata.annotations.default_channel().map(str::to_owned),
        edges: ChannelEntry {
            name: name.clone(),
            replaces: given(csv, "/spec/replaces"),
            skips: strings(csv, "/spec/skips").into(),
            skip_range: given(csv, "/metadata/annotations/olm.skipRange"),
        },
        description: text(csv, "/spec/description").to_owned(),
        icon: icon(csv),
        bundle: olm_fbc::Bundle {
            properties: properties.into(),
            related_images: related_images(csv, image).into(),
            image: image.to_owned(),
            package,
            name,
        },
        warnings,
    })
}

/// The manifests, those of a file in their order; other content is skipped.
fn objects(files: &BundleFiles, warnings: &mut Vec<String>) -> Result<Vec<Value>, CatalogError> {
    let mut objects = Vec::new();
    let manifests = files
        .iter()
        .filter_map(|(path, content)| Some((path, path.strip_prefix("manifests/")?, content)));
    for (path, name, content) in manifests {
        if name.contains('/') || name.starts_with('.') {
            warnings.push(format!("skipped {path}: it is hidden or in a subdirectory"));
            continue;
        }
        for document in olm_yaml::documents(content.as_slice(), &olm_yaml::Limits::default()) {
            match document.and_then(olm_yaml::Document::into_value) {
                Ok(Value::Null) => {}
                Ok(value) => {
                    let found = flatten(value).into_iter();
                    objects.extend(found.filter(|object| !text(object, "/kind").is_empty()));
                }
                Err(error) => warnings.push(format!("skipped {path}: {error}")),
            }
            if objects.len() > MAX_OBJECTS {
                return Err(CatalogError::TooManyObjects);
            }
        }
    }
    if objects.is_empty() {
        return Err(CatalogError::NoObjects);
    }
    Ok(objects)
}

/// An API with the plural by which definitions are named.
type Api = (Gvk, String);

fn api(api: &Api) -> String {
    let (Gvk { group, version, kind }, plural) = api;
    format!("{group}/{version}/{kind} ({plural})")
}

/// The APIs of the definitions in the bundle, and those of its own API servers.
fn provided(objects: &[Value], csv: &Value) -> BTreeSet<Api> {
    let mut apis = BTreeSet::new();
    let definitions = objects
        .iter()
        .filter(|object| text(object, "/kind") == "CustomResourceDefinition");
    for definition in definitions {
        let versions = list(definition, "/spec/versions")
            .iter()
            .map(|version| text(version, "/name"));
        // Only definitions of v1beta1 have their own version field.
        let own = text(definition, "/spec/version");
        for version in versions.chain([own]).filter(|version| !version.is_empty()) {
            let gvk = Gvk {
                group: text(definition, "/spec/group").to_owned(),
                kind: text(definition, "/spec/names/kind").to_owned(),
                version: version.to_owned(),
            };
            apis.insert((gvk, text(definition, "/spec/names/plural").to_owned()));
        }
    }
    for description in list(csv, "/spec/apiservicedefinitions/owned") {
        apis.insert((
            gvk(description, text(description, "/group")),
            text(description, "/name").to_owned(),
        ));
    }
    apis
}

fn gvk(description: &Value, group: &str) -> Gvk {
    Gvk {
        group: group.to_owned(),
        kind: text(description, "/kind").to_owned(),
        version: text(description, "/version").to_owned(),
    }
}

/// The definitions that the ClusterServiceVersion lists at `pointer`.
fn described(csv: &Value, pointer: &str) -> Result<Vec<Api>, CatalogError> {
    let described = |description: &Value| match text(description, "/name").split_once('.') {
        Some((plural, group)) => Ok((gvk(description, group), plural.to_owned())),
        None => Err(CatalogError::DefinitionName(
            text(description, "/name").to_owned(),
        )),
    };
    list(csv, pointer).iter().map(described).collect()
}

fn check_owned(csv: &Value, provided: &BTreeSet<Api>) -> Result<(), CatalogError> {
    let owned = described(csv, "/spec/customresourcedefinitions/owned")?;
    match owned.iter().find(|api| !provided.contains(*api)) {
        None => Ok(()),
        Some(missing) => Err(CatalogError::MissingDefinition {
            bundle: object_name(csv).to_owned(),
            missing: api(missing),
            found: provided.iter().map(api).collect(),
        }),
    }
}

/// The content of the files in `metadata`.
struct Metadata {
    annotations: Annotations,
    properties: Vec<Property>,
    dependencies: Vec<Dependency>,
}

impl Metadata {
    /// Reads the metadata. The first matching file of each kind counts, whatever its name.
    fn read(
        files: &BundleFiles,
        labels: &BTreeMap<String, String>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, CatalogError> {
        let (mut annotations, mut properties, mut dependencies) = (None, None, None);
        let metadata = files.iter().filter(|(path, _)| {
            path.strip_prefix("metadata/")
                .is_some_and(|name| !name.contains('/'))
        });
        for (path, content) in metadata {
            let Ok(document) = olm_yaml::to_json(content) else {
                continue;
            };
            let fault = |fault: String| CatalogError::Properties {
                file: path.clone(),
                fault,
            };
            let given = |key: &str| {
                let value = document.as_object().and_then(|document| member(document, key));
                value.filter(|value| !value.is_null())
            };
            if annotations.is_none() && given("annotations").is_some() {
                annotations = Annotations::new(&document, labels);
            }
            if let (None, Some(list)) = (&properties, given("properties")) {
                let found = read_properties(list);
                let found = found.map_err(|error: PropertyError| fault(error.to_string()))?;
                properties = Some(with_values(found, path, warnings)?);
            }
            if dependencies.is_none() && given("dependencies").is_some() {
                let found = read_dependencies(&document);
                dependencies = Some(found.map_err(|error| fault(error.to_string()))?);
            }
        }
        Ok(Self {
            annotations: annotations.ok_or(CatalogError::NoAnnotations)?,
            properties: properties.unwrap_or_default(),
            dependencies: dependencies.unwrap_or_default(),
        })
    }
}

/// The properties with a type and a value: catalogs contain no others. Requirements are never left out.
fn with_values(
    mut properties: Vec<Property>,
    file: &str,
    warnings: &mut Vec<String>,
) -> Result<Vec<Property>, CatalogError> {
    let is_whole = |property: &Property| !property.kind.is_empty() && !property.value.is_null();
    for Property { kind, .. } in properties.iter().filter(|property| !is_whole(property)) {
        if kind.is_empty() {
            warnings.push(format!("{file}: skipped a property without a type"));
            continue;
        }
        if DEPENDENCY_PROPERTIES.contains(&kind.as_str()) {
            return Err(CatalogError::Properties {
                file: file.to_owned(),
                fault: format!("property of type {kind:?} has no value"),
            });
        }
        warnings.push(format!(
            "{file}: skipped a property of type {kind:?} without a value"
        ));
    }
    properties.retain(is_whole);
    Ok(properties)
}

/// The properties of the blob, by type and value, with the manifests and their metadata at the end.
fn bundle_properties(
    csv: &Value,
    objects: &[Value],
    provided: &BTreeSet<Api>,
    metadata: &Metadata,
    warnings: &mut Vec<String>,
) -> Result<Vec<olm_fbc::Property>, CatalogError> {
    let mut declared = metadata.properties.clone();
    let annotation = text(csv, "/metadata/annotations/olm.properties");
    if !annotation.is_empty() {
        let place = "annotation olm.properties";
        let fault = |fault: String| CatalogError::Properties {
            file: place.to_owned(),
            fault,
        };
        let list: Value = serde_json::from_str(annotation).map_err(|error| fault(error.to_string()))?;
        let found = read_properties(&list).map_err(|error| fault(error.to_string()))?;
        declared.extend(with_values(found, place, warnings)?);
    }
    let verbatim = |kind: &str, value: &Value| olm_fbc::Property::new(kind, canonical(&value.to_string()));
    let mut found: Vec<olm_fbc::Property> = Vec::new();
    let mut package = PackageProperty {
        package_name: metadata.annotations.package().to_owned(),
        version: text(csv, "/spec/version").to_owned(),
        release: text(csv, "/spec/release").to_owned(),
    };
    let mut gvks: BTreeSet<Gvk> = provided.iter().map(|(gvk, _)| gvk.clone()).collect();
    let mut required: BTreeSet<Gvk> = BTreeSet::new();
    for Property { kind, value } in &declared {
        let property = verbatim(kind, value);
        match kind.as_str() {
            // The annotations have precedence over a property.
            TYPE_PACKAGE => {
                if package.package_name.is_empty()
                    && let Ok(declared) = property.package()
                {
                    package = declared;
                }
            }
            TYPE_GVK => gvks.extend(property.gvk().ok()),
            _ => found.push(property),
        }
    }
    let of_file = metadata
        .dependencies
        .iter()
        .filter(|dependency| dependency.declared_in == DeclaredIn::DependenciesFile);
    for dependency in of_file {
        let property = verbatim(&dependency.kind, &dependency.value);
        match dependency.kind.as_str() {
            // A dependency without a value can never be satisfied.
            TYPE_GVK | TYPE_PACKAGE | TYPE_CONSTRAINT if dependency.value.is_null() => {
                return Err(CatalogError::Properties {
                    file: "metadata/dependencies.yaml".to_owned(),
                    fault: format!("dependency of type {} has no value", dependency.kind),
                });
            }
            TYPE_GVK => {
                let needed = property.gvk().map_err(|error| CatalogError::Properties {
                    file: "metadata/dependencies.yaml".to_owned(),
                    fault: format!("dependency of type {TYPE_GVK}: {error}"),
                })?;
                required.insert(needed);
            }
            TYPE_PACKAGE => {
                let needed = property.package_required_in_any_spelling();
                found.push(olm_fbc::Property::for_package_required(
                    &needed.unwrap_or_default(),
                ));
            }
            _ => found.push(property),
        }
    }
    let needed = described(csv, "/spec/customresourcedefinitions/required")?;
    required.extend(needed.into_iter().map(|(gvk, _)| gvk));
    let served = list(csv, "/spec/apiservicedefinitions/required");
    required.extend(
        served
            .iter()
            .map(|description| gvk(description, text(description, "/group"))),
    );
    found.push(olm_fbc::Property::for_package(&package));
    found.extend(gvks.iter().map(|gvk| olm_fbc::Property::for_gvk(TYPE_GVK, gvk)));
    found.extend(
        required
            .iter()
            .map(|gvk| olm_fbc::Property::for_gvk(TYPE_GVK_REQUIRED, gvk)),
    );
    found.extend(
        objects
            .iter()
            .map(|object| olm_fbc::Property::for_object(go_json(object).as_bytes())),
    );
    let at_the_end = |property: &olm_fbc::Property| {
        matches!(property.kind.as_str(), TYPE_BUNDLE_OBJECT | TYPE_CSV_METADATA)
    };
    found.sort_by(|left, right| {
        (at_the_end(left), &left.kind, &left.value).cmp(&(at_the_end(right), &right.kind, &right.value))
    });
    found.dedup();
    Ok(found)
}

/// The images in the ClusterServiceVersion, the bundle's own, and those of its containers, by image.
fn related_images(csv: &Value, image: &str) -> Vec<RelatedImage> {
    let mut related: Vec<RelatedImage> = list(csv, "/spec/relatedImages")
        .iter()
        .map(|related| RelatedImage {
            name: text(related, "/name").to_owned(),
            image: text(related, "/image").to_owned(),
        })
        .collect();
    let deployments = list(csv, "/spec/install/spec/deployments").iter();
    let containers = deployments.flat_map(|deployment| {
        ["initContainers", "containers"]
            .into_iter()
            .flat_map(|field| list(deployment, &format!("/spec/template/spec/{field}")))
    });
    let used = containers.map(|container| text(container, "/image"));
    for image in [image].into_iter().chain(used).filter(|image| !image.is_empty()) {
        if !related.iter().any(|related| related.image == image) {
            related.push(RelatedImage {
                name: String::new(),
                image: image.to_owned(),
            });
        }
    }
    related.sort_by(|left, right| left.image.cmp(&right.image));
    related
}

fn icon(csv: &Value) -> Option<Icon> {
    let icon = list(csv, "/spec/icon").first()?;
    let icon = Icon {
        base64_data: Some(text(icon, "/base64data").to_owned()),
        media_type: text(icon, "/mediatype").to_owned(),
    };
    icon.data().is_ok_and(|data| !data.is_empty()).then_some(icon)
}

fn given(value: &Value, pointer: &str) -> Option<String> {
    Some(text(value, pointer))
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn strings(value: &Value, pointer: &str) -> Vec<String> {
    let elements = list(value, pointer).iter();
    elements.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The catalog of the entries: packages, channels and bundles.
///
/// A package has the description and icon of its newest bundle, and its default channel, or the first channel if there
/// is no such channel; a channel has every bundle that is published in it, with the edges of the bundle's
/// ClusterServiceVersion.
pub fn assemble(entries: &[Entry]) -> Catalog {
    let mut catalog = Catalog::default();
    let mut by_package: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_package.entry(&entry.bundle.package).or_default().push(entry);
    }
    for (package, mut entries) in by_package {
        entries.sort_by(|left, right| {
            let (older, newer) = (version(left), version(right));
            match (&older, &newer) {
                (Some(older), Some(newer)) => older.compare(newer),
                _ => older.is_some().cmp(&newer.is_some()),
            }
            .then_with(|| left.bundle.name.cmp(&right.bundle.name))
        });
        let mut channels: BTreeMap<&str, Vec<ChannelEntry>> = BTreeMap::new();
        for entry in &entries {
            for channel in &entry.channels {
                channels.entry(channel).or_default().push(entry.edges.clone());
            }
        }
        let newest = entries.last();
        let default = newest
            .and_then(|entry| entry.default_channel.clone())
            .filter(|name| channels.contains_key(name.as_str()))
            .or_else(|| channels.keys().next().map(|channel| (*channel).to_owned()));
        catalog.packages.push(Package {
            name: package.to_owned(),
            default_channel: default.unwrap_or_default(),
            description: newest.map(|entry| entry.description.clone()).unwrap_or_default(),
            icon: newest.and_then(|entry| entry.icon.clone()),
            ..Package::default()
        });
        catalog
            .channels
            .extend(channels.into_iter().map(|(name, entries)| Channel {
                name: name.to_owned(),
                package: package.to_owned(),
                entries: entries.into(),
                ..Channel::default()
            }));
        catalog
            .bundles
            .extend(entries.iter().map(|entry| entry.bundle.clone()));
    }
    catalog
}

fn version(entry: &Entry) -> Option<VersionRelease> {
    entry.bundle.version_release().ok()
}
