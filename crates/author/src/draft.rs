//! The first files of a bundle: they can be installed unchanged, and edited afterwards.

use std::fmt::Write as _;

use olm_bundle::BundleFiles;
use olm_bundle::{REGISTRY_V1, annotation_keys};
use olm_text::names::subdomain_faults;
use olm_version::blang::{VersionError, parse_version};
use serde_json::Value;

/// The longest name of a bundle, which becomes the value of a label, in bytes.
const MAX_NAME: usize = 63;
/// The oldest Kubernetes that a new operator supports.
const MINIMUM_KUBERNETES: &str = "1.30.0";

/// The input for a new bundle.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    /// The name of the package, of the deployment and of its service account.
    pub name: &'a str,
    /// The version, three numbers at least.
    pub version: &'a str,
    /// The image of the operator. The caller has checked that it is a reference.
    pub image: &'a str,
    /// The channels.
    pub channels: &'a [String],
    /// The channel that is meant when none is named.
    pub default_channel: &'a str,
    /// The definitions that the operator provides.
    pub definitions: &'a [Definition],
}

/// A custom resource definition that the operator provides.
#[derive(Debug, Clone)]
pub struct Definition {
    name: String,
    group: String,
    plural: String,
    kind: String,
    version: String,
    text: Vec<u8>,
}

/// The reason why a draft cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// The name cannot be that of a package.
    #[error(
        "invalid package name {0:?}: use lower case letters, digits and hyphens, for example my-operator"
    )]
    Name(String),
    /// The version is invalid.
    #[error("invalid version {version:?} ({fault}): use three numbers, for example 0.1.0 or 1.0.0-rc.1")]
    Version {
        /// The version.
        version: String,
        /// The fault of the version.
        fault: VersionError,
    },
    /// The version can be no part of a name.
    #[error(
        "invalid version {0:?}: build metadata and capital letters cannot be in a bundle name; use for example 0.1.0"
    )]
    Build(String),
    /// Name and version together are too long.
    #[error("{name} has {} characters, more than {MAX_NAME}: choose a shorter name", .name.len())]
    TooLong {
        /// The bundle's name.
        name: String,
    },
    /// A channel has no usable name.
    #[error("invalid channel name {0:?}: use for example stable or candidate-v1")]
    Channel(String),
    /// The default channel is not among the channels.
    #[error("the default channel {0:?} is not among the bundle's channels: add --channel {0}")]
    DefaultChannel(String),
    /// A file cannot be read as YAML.
    #[error("not valid YAML")]
    Yaml(#[source] olm_yaml::Error),
    /// A file contains no definition.
    #[error("not a CustomResourceDefinition of apiextensions.k8s.io/v1: {0} is missing")]
    NoDefinition(&'static str),
}

impl Definition {
    /// Reads a custom resource definition.
    ///
    /// # Errors
    /// When the text is not a definition.
    pub fn read(text: &[u8]) -> Result<Self, DraftError> {
        let value = olm_yaml::to_json(text).map_err(DraftError::Yaml)?;
        let field = |pointer: &'static str| {
            let text = value.pointer(pointer).and_then(Value::as_str);
            text.map(str::to_owned).ok_or(DraftError::NoDefinition(pointer))
        };
        if field("/kind")? != "CustomResourceDefinition" {
            return Err(DraftError::NoDefinition("kind: CustomResourceDefinition"));
        }
        let versions = value.pointer("/spec/versions").and_then(Value::as_array);
        let mut versions = versions.into_iter().flatten();
        let stored = versions.find(|version| version.get("storage") == Some(&Value::Bool(true)));
        let version = stored.and_then(|version| version.get("name")?.as_str());
        Ok(Self {
            name: field("/metadata/name")?,
            group: field("/spec/group")?,
            plural: field("/spec/names/plural")?,
            kind: field("/spec/names/kind")?,
            version: version
                .ok_or(DraftError::NoDefinition("a stored version in /spec/versions"))?
                .to_owned(),
            text: text.to_vec(),
        })
    }
}

/// The files of a bundle of one deployment, by path.
///
/// # Errors
/// When the name, the version or a channel is invalid.
pub fn draft(draft: &Draft<'_>) -> Result<BundleFiles, DraftError> {
    let Draft { name, version, .. } = draft;
    if name.contains('.') || !subdomain_faults(name).is_empty() {
        return Err(DraftError::Name((*name).to_owned()));
    }
    parse_version(version).map_err(|fault| DraftError::Version {
        version: (*version).to_owned(),
        fault,
    })?;
    let bundle = format!("{name}.v{version}");
    if !subdomain_faults(&bundle).is_empty() && bundle.len() <= MAX_NAME {
        return Err(DraftError::Build((*version).to_owned()));
    }
    if bundle.len() > MAX_NAME {
        return Err(DraftError::TooLong { name: bundle });
    }
    if let Some(channel) = draft
        .channels
        .iter()
        .find(|channel| !subdomain_faults(channel).is_empty())
    {
        return Err(DraftError::Channel(channel.clone()));
    }
    if !draft
        .channels
        .iter()
        .any(|channel| channel == draft.default_channel)
    {
        return Err(DraftError::DefaultChannel(draft.default_channel.to_owned()));
    }
    let mut files = BundleFiles::from([
        (
            format!("manifests/{name}.clusterserviceversion.yaml"),
            service_version(draft, &bundle).into_bytes(),
        ),
        (
            "metadata/annotations.yaml".to_owned(),
            annotations(draft).into_bytes(),
        ),
    ]);
    files.extend(draft.definitions.iter().map(|definition| {
        (
            format!("manifests/{}.yaml", quotable(&definition.name)),
            definition.text.clone(),
        )
    }));
    Ok(files)
}

/// The name as the name of a file.
fn quotable(name: &str) -> String {
    name.chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.'))
        .collect()
}

/// A text in the form of a YAML string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn annotations(draft: &Draft<'_>) -> String {
    let Draft {
        name,
        channels,
        default_channel,
        ..
    } = draft;
    let channels = channels.join(",");
    let rows = [
        (annotation_keys::MEDIA_TYPE, REGISTRY_V1),
        (annotation_keys::MANIFESTS, "manifests/"),
        (annotation_keys::METADATA, "metadata/"),
        (annotation_keys::PACKAGE, name),
        (annotation_keys::CHANNELS, &channels),
        (annotation_keys::DEFAULT_CHANNEL, default_channel),
    ];
    let rows = rows.map(|(key, value)| format!("  {key}: {}\n", quoted(value)));
    format!("annotations:\n{}", rows.concat())
}

/// The owned definitions, as a part of the ClusterServiceVersion; empty if there are none.
fn owned(definitions: &[Definition]) -> String {
    let mut text = String::new();
    for definition in definitions {
        if text.is_empty() {
            text.push_str("  customresourcedefinitions:\n    owned:\n");
        }
        let Definition {
            name, kind, version, ..
        } = definition;
        let _ = write!(
            text,
            "      - name: {}\n        version: {}\n        kind: {}\n        displayName: {}\n        \
             description: {}\n",
            quoted(name),
            quoted(version),
            quoted(kind),
            quoted(kind),
            quoted(&format!("What a {kind} is for."))
        );
    }
    text
}

/// The cluster permissions of the operator: for the resources that it provides.
fn cluster_permissions(name: &str, definitions: &[Definition]) -> String {
    let name = quoted(name);
    let mut text = String::new();
    for Definition { group, plural, .. } in definitions {
        if text.is_empty() {
            let _ = write!(
                text,
                "      clusterPermissions:\n        - serviceAccountName: {name}\n          rules:\n"
            );
        }
        let _ = write!(
            text,
            "            - apiGroups: [{}]\n              resources: [{}, {}, {}]\n              \
             verbs: [get, list, watch, create, update, patch, delete]\n",
            quoted(group),
            quoted(plural),
            quoted(&format!("{plural}/status")),
            quoted(&format!("{plural}/finalizers"))
        );
    }
    text
}

/// One example of each API, in the form for tools.
fn examples(definitions: &[Definition]) -> String {
    let example = |definition: &Definition| {
        serde_json::json!({
            "apiVersion": format!("{}/{}", definition.group, definition.version),
            "kind": definition.kind,
            "metadata": { "name": "example" },
            "spec": {},
        })
    };
    definitions.iter().map(example).collect::<Value>().to_string()
}

fn service_version(draft: &Draft<'_>, bundle: &str) -> String {
    let Draft {
        name,
        version,
        image,
        definitions,
        ..
    } = draft;
    let (version, image, examples) = (quoted(version), quoted(image), quoted(&examples(definitions)));
    let (owned, permissions) = (owned(definitions), cluster_permissions(name, definitions));
    let (description, name) = (quoted(&format!("What {name} does.")), quoted(name));
    format!(
        "apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: {bundle}
  annotations:
    # One example of each API that is owned, as a list in JSON.
    alm-examples: {examples}
spec:
  displayName: {name}
  description: {description}
  version: {version}
  minKubeVersion: {MINIMUM_KUBERNETES}
  provider:
    name: {name}
  maturity: alpha
  # Which namespaces the operator can watch. AllNamespaces: all of them.
  installModes:
    - type: OwnNamespace
      supported: false
    - type: SingleNamespace
      supported: false
    - type: MultiNamespace
      supported: false
    - type: AllNamespaces
      supported: true
{owned}  install:
    strategy: deployment
    spec:
{permissions}      # Rights of the operator's own account. Each account that a deployment uses has to be named here or above.
      permissions:
        - serviceAccountName: {name}
          rules:
            - apiGroups: [\"\"]
              resources: [events]
              verbs: [create, patch]
      deployments:
        - name: {name}
          spec:
            replicas: 1
            selector:
              matchLabels:
                app.kubernetes.io/name: {name}
            template:
              metadata:
                labels:
                  app.kubernetes.io/name: {name}
              spec:
                serviceAccountName: {name}
                containers:
                  - name: operator
                    image: {image}
                    securityContext:
                      allowPrivilegeEscalation: false
                      capabilities:
                        drop: [ALL]
                    resources:
                      requests:
                        cpu: 10m
                        memory: 32Mi
"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lint::{self, Options, RuleSet};

    const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.x.example}
spec:
  group: x.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

    fn sample<'a>(name: &'a str, version: &'a str, definitions: &'a [Definition]) -> Draft<'a> {
        Draft {
            name,
            version,
            image: "registry.example/my-operator:v0.1.0",
            channels: &[],
            default_channel: "stable",
            definitions,
        }
    }

    #[test]
    fn a_new_draft_has_no_fault_and_no_warning() {
        let definitions = [Definition::read(DEFINITION.as_bytes()).expect("it is one")];
        for (name, definitions, files) in [
            ("my-operator", &[][..], 2),
            ("my-operator", &definitions, 3),
            // A word that YAML reads as another type.
            ("on", &definitions, 3),
        ] {
            let channels = ["stable".to_owned(), "candidate".to_owned()];
            let draft = draft(&Draft {
                channels: &channels,
                ..sample(name, "0.1.0-rc.1", definitions)
            });
            let draft = draft.expect("the names are good");
            assert_eq!(draft.len(), files);
            let rule_sets = RuleSet::DEFAULT.into();
            let found = lint::bundle(&draft, &BTreeMap::new(), &rule_sets, &Options::default());
            assert_eq!(found, []);
            let bundle = olm_bundle::parse(&draft, &BTreeMap::new()).expect("it can be read");
            assert_eq!(bundle.check_support(&olm_bundle::Support::default()), []);
        }
    }

    #[test]
    fn an_invalid_name_is_refused_with_an_example() {
        let channels = ["stable".to_owned()];
        let check = |name: &str, version: &str, default_channel: &str, expected: &str| {
            let refused = draft(&Draft {
                channels: &channels,
                default_channel,
                ..sample(name, version, &[])
            });
            let said = refused.expect_err(expected).to_string();
            assert!(said.contains(expected), "{said}");
        };
        check("My", "1.0.0", "stable", "for example my-operator");
        check("a.b", "1.0.0", "stable", "for example my-operator");
        check("", "1.0.0", "stable", "for example my-operator");
        check("a", "one", "stable", "for example 0.1.0");
        check("a", "v1.0.0", "stable", "for example 0.1.0");
        check("a", "1.0", "stable", "for example 0.1.0");
        check("a", "1.0.0+b", "stable", "use for example 0.1.0");
        check(&"a".repeat(60), "1.0.0", "stable", "choose a shorter name");
        check("a", "1.0.0", "beta", "add --channel beta");
    }

    #[test]
    fn an_invalid_definition_is_refused_with_the_missing_fields() {
        let check = |text: &str, expected: &str| {
            let said = Definition::read(text.as_bytes()).expect_err(expected).to_string();
            assert!(said.contains(expected), "{said}");
        };
        check("kind: ConfigMap", "kind: CustomResourceDefinition is missing");
        check("[", "not valid YAML");
        check(
            &DEFINITION.replace("kind: Widget,", ""),
            "/spec/names/kind is missing",
        );
        check(
            &DEFINITION.replace("storage: true", "storage: false"),
            "a stored version",
        );
    }
}
