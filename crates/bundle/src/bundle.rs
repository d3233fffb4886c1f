//! A parsed bundle.

use olm_api::names::annotation::PROPERTIES;
use olm_api::names::property::MAX_OPENSHIFT_VERSION;
use serde_json::{Value, json};

use crate::csv::{ApiDescription, ClusterServiceVersion};
use crate::metadata::{Annotations, Dependency, Property};
use crate::names::go_json;
use crate::object::text;

/// A registry+v1 bundle: one version of an operator.
#[derive(Debug, Clone)]
pub struct Bundle {
    pub(crate) annotations: Annotations,
    /// The typed part of the ClusterServiceVersion. The properties of all files are merged into its annotations.
    pub(crate) csv: ClusterServiceVersion,
    /// The custom resource definitions, in the order of the files.
    pub(crate) definitions: Vec<Value>,
    /// All other objects, in the order of the files.
    pub(crate) others: Vec<Value>,
    /// All properties of the ClusterServiceVersion's annotation and of `metadata/properties.yaml`.
    pub(crate) properties: Vec<Property>,
    /// The dependencies on other bundles.
    pub(crate) dependencies: Vec<Dependency>,
}

impl Bundle {
    /// The name of the ClusterServiceVersion, which is the bundle's: `etcdoperator.v0.9.2`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.csv.metadata.name
    }

    /// The package's name.
    #[must_use]
    pub fn package(&self) -> &str {
        self.annotations.package()
    }

    /// The annotations of the bundle.
    #[must_use]
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// The typed part of the ClusterServiceVersion.
    #[must_use]
    pub fn csv(&self) -> &ClusterServiceVersion {
        &self.csv
    }

    /// The custom resource definitions, in the order of the files.
    #[must_use]
    pub fn custom_resource_definitions(&self) -> &[Value] {
        &self.definitions
    }

    /// All properties, those of the ClusterServiceVersion first.
    #[must_use]
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// The properties of the files as JSON text, as in the annotation `olm.properties` of revisions.
    #[must_use]
    pub fn properties_text(&self) -> Option<&str> {
        self.csv.metadata.annotations.get(PROPERTIES).map(String::as_str)
    }

    /// The dependencies on other bundles.
    #[must_use]
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    /// The declared properties, and those that catalogs derive from the rest of the bundle: `olm.gvk` for provided
    /// APIs, and the requirements. Each once.
    #[must_use]
    pub fn all_properties(&self) -> Vec<Property> {
        let mut all = self.provided_properties();
        for dependency in &self.dependencies {
            add(&mut all, dependency.property_kind(), dependency.property_value());
        }
        all
    }

    /// [`Bundle::all_properties`] without requirements in the files.
    #[must_use]
    pub fn provided_properties(&self) -> Vec<Property> {
        let mut all = self.properties.clone();
        for api in self.definitions.iter().flat_map(provided) {
            add(&mut all, "olm.gvk", api);
        }
        for api in &self.csv.spec.api_service_definitions.owned {
            add(&mut all, "olm.gvk", described(api));
        }
        all
    }

    /// The properties in [`Bundle::all_properties`] and of the catalog that [`Bundle::properties_text`] lacks, as JSON
    /// text; `None` if there are none. The bundle, not the catalog, decides on the highest OpenShift version.
    #[must_use]
    pub fn further_properties(&self, declared: &[(String, Value)]) -> Option<String> {
        let mut all = self.all_properties();
        let has_maximum = all.iter().any(|own| own.kind == MAX_OPENSHIFT_VERSION);
        for (kind, value) in declared {
            if kind != MAX_OPENSHIFT_VERSION || !has_maximum {
                add(&mut all, kind, value.clone());
            }
        }
        all.retain(|property| !self.properties.contains(property));
        (!all.is_empty()).then(|| go_json(&all))
    }
}

fn add(all: &mut Vec<Property>, kind: &str, value: Value) {
    let property = Property {
        kind: kind.to_owned(),
        value,
    };
    if !all.contains(&property) {
        all.push(property);
    }
}

fn described(api: &ApiDescription) -> Value {
    json!({"group": api.group, "version": api.version, "kind": api.kind})
}

/// The APIs that a custom resource definition serves.
fn provided(definition: &Value) -> impl Iterator<Item = Value> + '_ {
    let text = |pointer: &str| text(definition, pointer);
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let is_served = |version: &&Value| version.get("served").and_then(Value::as_bool) == Some(true);
    let names = versions.into_iter().flatten().filter(is_served);
    names
        .filter_map(|version| version.get("name").and_then(Value::as_str))
        .map(move |version| json!({"group": group, "version": version, "kind": kind}))
}
