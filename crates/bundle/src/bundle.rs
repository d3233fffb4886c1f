//! A bundle that has been read.

use olm_api::names::annotation::PROPERTIES;
use serde_json::Value;

use crate::annotations::Annotations;
use crate::csv::ClusterServiceVersion;
use crate::decode;
use crate::dependencies::{self, Dependency};
use crate::parse::ParseError;
use crate::properties::{self, Property};
use crate::shape::{self, Reader};

/// A registry+v1 bundle: one version of an operator (requirement 3.01).
#[derive(Debug, Clone)]
pub struct Bundle {
    /// What it says about itself.
    pub(crate) annotations: Annotations,
    /// The ClusterServiceVersion, as far as it is read; properties are merged into its annotations.
    pub(crate) csv: ClusterServiceVersion,
    /// The custom resource definitions, in the order of the files.
    pub(crate) definitions: Vec<Value>,
    /// All other objects, in the order of the files.
    pub(crate) others: Vec<Value>,
    /// All properties of the ClusterServiceVersion's annotation and of `metadata/properties.yaml`.
    pub(crate) properties: Vec<Property>,
    /// What it needs from other bundles.
    pub(crate) dependencies: Vec<Dependency>,
}

impl Bundle {
    /// A bundle of objects that are already parsed.
    ///
    /// # Errors
    /// When the ClusterServiceVersion has fields of wrong types or an unreadable `olm.properties` annotation.
    pub fn from_objects(
        annotations: Annotations,
        csv: &Value,
        definitions: Vec<Value>,
        others: Vec<Value>,
    ) -> Result<Self, ParseError> {
        Self::assemble(annotations, csv, definitions, others, None, Vec::new())
    }

    pub(crate) fn assemble(
        annotations: Annotations,
        csv: &Value,
        definitions: Vec<Value>,
        others: Vec<Value>,
        file_properties: Option<Vec<Property>>,
        file_dependencies: Vec<Dependency>,
    ) -> Result<Self, ParseError> {
        let faults = shape::faults(csv, Reader::Installer);
        if !faults.is_empty() {
            return Err(ParseError::ClusterServiceVersion(faults));
        }
        let read =
            decode::read(csv).map_err(|fault| ParseError::ClusterServiceVersion(vec![fault.to_string()]));
        let mut csv: ClusterServiceVersion = read?;
        let properties = merge_properties(&mut csv, file_properties)?;
        let mut found = file_dependencies;
        found.extend(dependencies::from_properties(&properties));
        found.extend(dependencies::from_required_apis(
            &csv.spec.custom_resource_definitions.required,
        ));
        found.extend(dependencies::from_required_apis(
            &csv.spec.api_service_definitions.required,
        ));
        Ok(Self {
            annotations,
            csv,
            definitions,
            others,
            properties,
            dependencies: found,
        })
    }

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

    /// What the bundle says about itself outside its manifests.
    #[must_use]
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// The ClusterServiceVersion, as far as it is read.
    #[must_use]
    pub fn csv(&self) -> &ClusterServiceVersion {
        &self.csv
    }

    /// The custom resource definitions, in the order of the files.
    #[must_use]
    pub fn custom_resource_definitions(&self) -> &[Value] {
        &self.definitions
    }

    /// The objects that are neither the ClusterServiceVersion nor custom resource definitions.
    #[must_use]
    pub fn other_objects(&self) -> &[Value] {
        &self.others
    }

    /// All properties, those of the ClusterServiceVersion first (requirements 3.41, 3.42).
    #[must_use]
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// The properties as the JSON text that revisions carry in the annotation `olm.properties`.
    #[must_use]
    pub fn properties_text(&self) -> Option<&str> {
        self.csv.metadata.annotations.get(PROPERTIES).map(String::as_str)
    }

    /// What the bundle needs from other bundles (requirement 3.55).
    #[must_use]
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }
}

/// Appends the file's properties to those of the annotation and writes all of them back into the annotation. Without a
/// file the annotation stays as it is, and without a property it is `null`, to the letter as in the operators that the
/// reference has installed: another annotation of their Pods would restart them when they are taken over.
fn merge_properties(
    csv: &mut ClusterServiceVersion,
    from_file: Option<Vec<Property>>,
) -> Result<Vec<Property>, ParseError> {
    let mut properties = match csv.metadata.annotations.get(PROPERTIES) {
        None => Vec::new(),
        Some(text) => {
            let list: Value = serde_json::from_str(text).map_err(ParseError::PropertiesAnnotation)?;
            properties::read_list(&list).map_err(ParseError::PropertiesAnnotationContent)?
        }
    };
    if let Some(from_file) = from_file {
        properties.extend(from_file);
        let text = match properties.as_slice() {
            [] => "null".to_owned(),
            properties => crate::names::go_json(&properties),
        };
        csv.metadata.annotations.insert(PROPERTIES.to_owned(), text);
    }
    Ok(properties)
}
