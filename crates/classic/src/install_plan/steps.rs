//! The steps that install a bundle.

use serde_json::{Value, json};

use crate::cluster::{object_at, put, text};
use crate::install::rbac::{UnknownStrategyError, rbac};
use crate::names;
use crate::properties::write_annotation;
use crate::registry::TypedValue;
use crate::wire::{UNEXPECTED_END, UNEXPECTED_EOF, json_fault};

/// Target namespace and catalog of a bundle.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The namespace that it is installed in.
    pub namespace: String,
    /// The ClusterServiceVersion that it replaces; empty for none.
    pub replaces: String,
    /// The name of the CatalogSource.
    pub catalog: String,
    /// The namespace of the CatalogSource.
    pub catalog_namespace: String,
}

/// The objects of a bundle.
#[derive(Debug, Clone, Default)]
pub struct BundleContent {
    /// The ClusterServiceVersion as JSON.
    pub csv: String,
    /// All objects as JSON; ClusterServiceVersions among them are passed over.
    pub objects: Vec<String>,
    /// The properties of the catalog.
    pub properties: Vec<TypedValue>,
}

/// A step of a plan: one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// The ClusterServiceVersion that it belongs to; empty for none.
    pub resolving: String,
    /// The group of the object; empty for the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind; `BundleSecret` for a Secret of the bundle.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The name of the CatalogSource.
    pub source: String,
    /// The namespace of the CatalogSource.
    pub source_namespace: String,
    /// The object.
    pub manifest: Value,
}

impl Step {
    /// The step as it stands in the status of a plan.
    pub fn to_value(&self) -> Value {
        json!({
            "resolving": self.resolving,
            "resource": {
                "group": self.group, "version": self.version, "kind": self.kind, "name": self.name,
                "sourceName": self.source, "sourceNamespace": self.source_namespace,
                "manifest": self.manifest.to_string(),
            },
            "status": "Unknown",
        })
    }
}

/// Error of the steps of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepsError {
    /// The ClusterServiceVersion has no `apiVersion`.
    #[error("bundle CSV {0} missing APIVersion")]
    NoApiVersion(String),
    /// The ClusterServiceVersion has no `kind`.
    #[error("bundle CSV {0} missing Kind")]
    NoKind(String),
    /// The ClusterServiceVersion has another install strategy than Deployments.
    #[error(transparent)]
    Strategy(#[from] UnknownStrategyError),
    /// A property is no JSON.
    #[error("failed to construct properties annotation for \"{0}\": {1}")]
    Property(String, String),
    /// An object cannot be read.
    #[error("{0}")]
    Object(String),
}

/// The steps of a bundle: the ClusterServiceVersion, the other objects in their order, then accounts, roles and
/// bindings.
///
/// # Errors
/// When an object or a property cannot be read, or the ClusterServiceVersion lacks a field that a plan needs.
pub fn bundle_steps(bundle: &BundleContent, origin: &Origin) -> Result<Vec<Step>, StepsError> {
    let read = |text: &str, cut: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| StepsError::Object(json_fault(&error, cut)))
    };
    let mut csv = read(&bundle.csv, UNEXPECTED_END)?;
    let name = text(&csv, "/metadata/name").to_owned();
    put(&mut csv, &["metadata"], "namespace", origin.namespace.as_str());
    if let Some(spec) = object_at(&mut csv, &["spec"]) {
        spec.remove("replaces");
        if !origin.replaces.is_empty() {
            spec.insert("replaces".to_owned(), origin.replaces.as_str().into());
        }
    }
    if text(&csv, "/apiVersion").is_empty() {
        return Err(StepsError::NoApiVersion(name));
    }
    if text(&csv, "/kind").is_empty() {
        return Err(StepsError::NoKind(name));
    }
    let annotation =
        write_annotation(&bundle.properties).map_err(|error| StepsError::Property(name.clone(), error))?;
    put(
        &mut csv,
        &["metadata", "annotations"],
        names::PROPERTIES_ANNOTATION,
        annotation,
    );
    let mut steps = vec![step(&csv, &name, origin)];
    for object in &bundle.objects {
        let object_text = object;
        let object = if object_text.trim_start().starts_with('{') {
            read(object_text, UNEXPECTED_EOF)?
        } else {
            olm_yaml::to_json(object_text).map_err(|error| StepsError::Object(error.to_string()))?
        };
        match text(&object, "/kind") {
            "" => {
                return Err(StepsError::Object(format!(
                    "Object 'Kind' is missing in '{object_text}'"
                )));
            }
            names::CSV_KIND => {}
            kind => {
                let mut step = step(&object, &name, origin);
                if kind == names::SECRET_KIND {
                    names::BUNDLE_SECRET_KIND.clone_into(&mut step.kind);
                }
                steps.push(step);
            }
        }
    }
    for (account, rights) in rbac(&csv)? {
        let mut objects = Vec::new();
        if account != "default" {
            objects.push(rights.account);
        }
        let rights = [
            rights.roles,
            rights.role_bindings,
            rights.cluster_roles,
            rights.cluster_role_bindings,
        ];
        objects.extend(rights.into_iter().flatten());
        steps.extend(objects.iter().map(|object| typed(step(object, &name, origin))));
    }
    Ok(steps)
}

fn step(object: &Value, resolving: &str, origin: &Origin) -> Step {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let name = match text(object, "/metadata/name") {
        "" => text(object, "/metadata/generateName"),
        name => name,
    };
    Step {
        resolving: resolving.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(object, "/kind").to_owned(),
        name: name.to_owned(),
        source: origin.catalog.clone(),
        source_namespace: origin.catalog_namespace.clone(),
        manifest: object.clone(),
    }
}

/// Manifests of accounts and roles have no kind: clients know them so.
fn typed(mut step: Step) -> Step {
    if let Some(manifest) = step.manifest.as_object_mut() {
        manifest.remove("apiVersion");
        manifest.remove("kind");
    }
    step
}

/// The step that subscribes to a package which another one requires.
pub fn subscription_step(package: &str, channel: &str, starting_csv: &str, origin: &Origin) -> Step {
    let name = format!(
        "{package}-{channel}-{}-{}",
        origin.catalog, origin.catalog_namespace
    );
    let mut spec = json!({
        "installPlanApproval": "Automatic", "name": package, "source": origin.catalog,
        "sourceNamespace": origin.catalog_namespace, "startingCSV": starting_csv,
    });
    if !channel.is_empty() {
        put(&mut spec, &[], "channel", channel);
    }
    Step {
        resolving: starting_csv.to_owned(),
        group: names::GROUP.to_owned(),
        version: "v1alpha1".to_owned(),
        kind: names::SUBSCRIPTION_KIND.to_owned(),
        name: name.clone(),
        source: origin.catalog.clone(),
        source_namespace: origin.catalog_namespace.clone(),
        manifest: json!({
            "metadata": {"name": name, "namespace": origin.namespace},
            "spec": spec,
            "status": {"lastUpdated": null},
        }),
    }
}
