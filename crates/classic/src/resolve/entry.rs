//! An operator that a resolution may choose: a bundle in a channel, or an installed ClusterServiceVersion.

use std::collections::BTreeSet;

use olm_fbc::Gvk;
use olm_version::Version;
use olm_version::blang::{Range, parse_tolerant};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::text;
use crate::csv::ClusterServiceVersion;
use crate::names::PROPERTIES_ANNOTATION;
use crate::operator_group::{ApiKey, provided_by, required_by};
use crate::properties::read_annotation;
use crate::registry::{Api, BundleMessage, PackageMessage, TypedValue};

/// The name of the catalog that holds the installed ClusterServiceVersions.
pub const EXISTING: &str = "@existing";

/// One operator that may be chosen.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The name of the ClusterServiceVersion.
    pub name: String,
    /// The package; empty where it is not known.
    pub package: String,
    /// The channel; empty for an installed one.
    pub channel: String,
    /// Whether that is the package's default channel.
    pub is_default_channel: bool,
    /// The catalog's name; [`EXISTING`] for an installed one.
    pub catalog: String,
    /// The catalog's namespace.
    pub catalog_namespace: String,
    /// The version, where there is one.
    pub version: Option<Version>,
    /// The name of the ClusterServiceVersion that it replaces; empty for none.
    pub replaces: String,
    /// The names of the ClusterServiceVersions that it skips.
    pub skips: Vec<String>,
    /// The versions that it replaces.
    pub skip_range: Option<Range>,
    /// The APIs that it provides.
    pub provided: BTreeSet<ApiKey>,
    /// The APIs that it requires.
    pub required: BTreeSet<ApiKey>,
    /// Its properties: package, provided APIs, labels and requirements.
    pub properties: Vec<TypedValue>,
    /// Its image.
    pub bundle_path: String,
    /// The bundle, where it has no image and the catalog holds its manifests.
    pub inline: Option<Box<BundleMessage>>,
    /// The reasons why package, channel and bundle are deprecated.
    pub deprecations: [Option<String>; 3],
    /// The Subscription that an installed one belongs to.
    pub subscription: Option<String>,
    /// The startingCSV by which it was chosen.
    pub starting_csv: String,
    parsed: Parsed,
}

impl Entry {
    /// The entry for a bundle in a channel.
    ///
    /// # Errors
    /// When a dependency cannot be read; such a bundle is left out.
    pub fn of_bundle(
        bundle: &BundleMessage,
        package: Option<&PackageMessage>,
    ) -> Result<Self, serde_json::Error> {
        let provided = keys(&bundle.provided_apis, false);
        let required = keys(&bundle.required_apis, false);
        let mut properties = bundle.properties.clone();
        if properties.is_empty() {
            properties = provided_properties(&keys(&bundle.provided_apis, true));
        }
        if bundle.dependencies.is_empty() {
            properties.extend(required_properties(&keys(&bundle.required_apis, true)));
        }
        for dependency in &bundle.dependencies {
            properties.extend(as_property(dependency)?);
        }
        if !properties.iter().any(|property| property.kind == "olm.package") {
            properties.push(package_property(&bundle.package_name, &bundle.version));
        }
        let message =
            |schema: &str, name: &str, found: Option<&str>| Some(format!("{schema}/{name}: {}", found?));
        let channels = package
            .map(|package| package.channels.as_slice())
            .unwrap_or_default();
        let channel = channels
            .iter()
            .rfind(|channel| channel.name == bundle.channel_name && channel.deprecation.is_some());
        let deprecations = [
            package.and_then(|found| found.deprecation.as_ref()),
            channel.and_then(|found| found.deprecation.as_ref()),
            bundle.deprecation.as_ref(),
        ]
        .map(|found| found.map(|found| found.message.as_str()));
        let [of_package, of_channel, of_bundle] = deprecations;
        Ok(Self {
            name: bundle.csv_name.clone(),
            package: bundle.package_name.clone(),
            channel: bundle.channel_name.clone(),
            is_default_channel: package
                .is_some_and(|package| package.default_channel_name == bundle.channel_name),
            version: parse_tolerant(&bundle.version).ok(),
            replaces: bundle.replaces.clone(),
            skips: bundle.skips.clone(),
            skip_range: Range::parse(&bundle.skip_range).ok(),
            provided,
            required,
            parsed: Parsed::of(&properties),
            properties,
            bundle_path: bundle.bundle_path.clone(),
            inline: bundle.bundle_path.is_empty().then(|| Box::new(bundle.clone())),
            deprecations: [
                message(
                    "olm.package",
                    package.map_or("", |package| package.name.as_str()),
                    of_package,
                ),
                message("olm.channel", &bundle.channel_name, of_channel),
                message("olm.bundle", &bundle.csv_name, of_bundle),
            ],
            ..Self::default()
        })
    }

    /// The entry for an installed ClusterServiceVersion.
    ///
    /// # Errors
    /// When the object, the annotation with its properties, or the name of an API cannot be read.
    pub fn of_csv<'a>(
        object: &Value,
        subscriptions: impl IntoIterator<Item = &'a Value>,
    ) -> Result<Self, String> {
        let csv = ClusterServiceVersion::read(object).map_err(|error| error.to_string())?;
        let name = &csv.metadata.name;
        let provided: BTreeSet<ApiKey> = provided_by(&csv)
            .map_err(|error| error.to_string())?
            .iter()
            .cloned()
            .collect();
        let mut definitions = csv.spec.custom_resource_definitions.required.iter();
        if let Some(api) = definitions.find(|api| !api.name.contains('.')) {
            return Err(format!("error parsing crd name: {}", api.name));
        }
        let required = required_by(&csv);
        let owners: Vec<&Value> = subscriptions
            .into_iter()
            .filter(|subscription| text(subscription, "/status/installedCSV") == name)
            .collect();
        let properties = match csv.metadata.annotations.get(PROPERTIES_ANNOTATION) {
            Some(annotation) => read_annotation(annotation)
                .map_err(|error| format!("failed to retrieve properties of csv {name:?}: {error}"))?,
            None => inferred(&csv, &provided, &required, &owners),
        };
        let version = version_of(&csv);
        let mut entry = Self {
            name: name.clone(),
            catalog: EXISTING.to_owned(),
            catalog_namespace: csv.metadata.namespace.clone(),
            version,
            provided,
            required,
            parsed: Parsed::of(&properties),
            properties,
            subscription: owners
                .last()
                .map(|owner| text(owner, "/metadata/name").to_owned()),
            ..Self::default()
        };
        let package = entry.packages().last().map(|(package, _)| package.clone());
        entry.package = package.unwrap_or_default();
        Ok(entry)
    }

    /// Whether it is installed.
    pub fn is_existing(&self) -> bool {
        self.catalog == EXISTING
    }

    /// The name of its variable.
    pub fn id(&self) -> String {
        id(&self.catalog, &self.catalog_namespace, self)
    }

    /// The APIs that its properties provide.
    pub fn gvks(&self) -> &[Gvk] {
        &self.parsed.gvks
    }

    /// The packages that its properties name, with their versions.
    pub fn packages(&self) -> &[(String, String)] {
        &self.parsed.packages
    }

    /// Whether it is of a package, by its place in the catalog or by its properties.
    pub fn is_of(&self, package: &str) -> bool {
        self.package == package || self.packages().iter().any(|(name, _)| name == package)
    }

    /// The labels of its properties.
    pub fn labels(&self) -> &[String] {
        &self.parsed.labels
    }
}

/// The properties that requirements look at, parsed. A value that cannot be read counts as absent.
#[derive(Debug, Clone, Default)]
struct Parsed {
    gvks: Vec<Gvk>,
    packages: Vec<(String, String)>,
    labels: Vec<String>,
}

impl Parsed {
    fn of(properties: &[TypedValue]) -> Self {
        let mut parsed = Self::default();
        for property in properties {
            let kind = property.kind.as_str();
            if !["olm.gvk", "olm.package", "olm.label"].contains(&kind) {
                continue;
            }
            let Ok(value) = texts(&property.value) else {
                continue;
            };
            let field = |key: &str| text(&value, key).to_owned();
            match kind {
                "olm.gvk" => parsed.gvks.push(gvk(&value)),
                "olm.package" => parsed.packages.push((field("/packageName"), field("/version"))),
                _ => parsed.labels.push(field("/label")),
            }
        }
        parsed
    }
}

/// The name of the variable of an entry of a catalog.
pub(super) fn id(catalog: &str, namespace: &str, entry: &Entry) -> String {
    format!("{catalog}/{namespace}/{}/{}", entry.channel, entry.name)
}

/// The API in a value of a property.
pub(super) fn gvk(value: &Value) -> Gvk {
    Gvk {
        group: text(value, "/group").to_owned(),
        version: text(value, "/version").to_owned(),
        kind: text(value, "/kind").to_owned(),
    }
}

/// The value of a property whose fields are texts.
fn texts(value: &str) -> Result<Value, serde_json::Error> {
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Texts {
        group: Option<String>,
        version: Option<String>,
        kind: Option<String>,
        package_name: Option<String>,
        label: Option<String>,
    }
    let found: Option<Texts> = serde_json::from_str(value)?;
    serde_json::to_value(found.unwrap_or_default())
}

fn version_of(csv: &ClusterServiceVersion) -> Option<Version> {
    if csv.spec.version.is_empty() {
        return Some(Version::new(0, 0, 0));
    }
    parse_tolerant(&csv.spec.version).ok()
}

fn keys(apis: &[Api], has_plural: bool) -> BTreeSet<ApiKey> {
    let keys = apis.iter().map(|api| ApiKey {
        group: api.group.clone(),
        version: api.version.clone(),
        kind: api.kind.clone(),
        plural: if has_plural {
            api.plural.clone()
        } else {
            String::new()
        },
    });
    keys.collect()
}

fn provided_properties(apis: &BTreeSet<ApiKey>) -> Vec<TypedValue> {
    let values = apis
        .iter()
        .map(|api| json!({"group": api.group, "kind": api.kind, "version": api.version}));
    sorted(values.map(|value| property("olm.gvk", &value)).collect())
}

fn required_properties(apis: &BTreeSet<ApiKey>) -> Vec<TypedValue> {
    let values = apis
        .iter()
        .map(|api| json!({"group": api.group, "version": api.version, "kind": api.kind}));
    sorted(values.map(|value| property("olm.gvk.required", &value)).collect())
}

fn sorted(mut properties: Vec<TypedValue>) -> Vec<TypedValue> {
    properties.sort_by(|left, right| left.value.cmp(&right.value));
    properties
}

fn package_property(package: &str, version: &str) -> TypedValue {
    property(
        "olm.package",
        &json!({"packageName": package, "version": version}),
    )
}

fn property(kind: &str, value: &Value) -> TypedValue {
    TypedValue {
        kind: kind.to_owned(),
        value: value.to_string(),
    }
}

/// A dependency of the old kind as a property; those of other kinds say nothing.
fn as_property(dependency: &TypedValue) -> Result<Option<TypedValue>, serde_json::Error> {
    Ok(Some(match dependency.kind.as_str() {
        "olm.gvk" => {
            let Gvk { group, version, kind } = gvk(&texts(&dependency.value)?);
            property(
                "olm.gvk.required",
                &json!({"group": group, "version": version, "kind": kind}),
            )
        }
        "olm.package" => {
            let value = texts(&dependency.value)?;
            property(
                "olm.package.required",
                &json!({"packageName": text(&value, "/packageName"), "versionRange": text(&value, "/version")}),
            )
        }
        "olm.label" => TypedValue {
            kind: "olm.label.required".to_owned(),
            value: dependency.value.clone(),
        },
        "olm.constraint" => dependency.clone(),
        _ => return Ok(None),
    }))
}

/// The properties of a ClusterServiceVersion that does not write them down.
fn inferred(
    csv: &ClusterServiceVersion,
    provided: &BTreeSet<ApiKey>,
    required: &BTreeSet<ApiKey>,
    owners: &[&Value],
) -> Vec<TypedValue> {
    let mut properties = provided_properties(provided);
    properties.extend(required_properties(required));
    let mut packages: BTreeSet<&str> = owners.iter().map(|owner| text(owner, "/spec/name")).collect();
    packages.remove("");
    if let (Some(package), 1) = (packages.first(), packages.len()) {
        let is_none = |version: &Version| {
            (version.major, version.minor, version.patch) == (0, 0, 0) && version.pre.is_empty()
        };
        let version = version_of(csv).filter(|version| !is_none(version));
        let version = version.map(|version| version.to_string());
        properties.push(package_property(package, &version.unwrap_or_default()));
    }
    properties
}
