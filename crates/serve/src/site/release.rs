//! The metadata of a bundle and its operator.

use olm_fbc::property::{TYPE_CONSTRAINT, TYPE_GVK, TYPE_GVK_REQUIRED, TYPE_PACKAGE_REQUIRED};
use olm_fbc::{Bundle, Gvk, RelatedImage};
use olm_version::VersionRelease;
use serde_json::Value;

use crate::package_summary::CsvMetadata;

/// Rules, APIs, images and so on that are shown, each.
const MOST: usize = 1_000;
/// The property with the first version of OpenShift that a bundle does not run on.
const TYPE_MAX_OPENSHIFT: &str = "olm.maxOpenShiftVersion";

/// The displayed facts of a bundle.
#[derive(Debug, Default)]
pub(super) struct Release {
    pub(super) name: String,
    pub(super) version: Option<VersionRelease>,
    pub(super) image: String,
    pub(super) metadata: CsvMetadata,
    pub(super) provided: Vec<ProvidedApi>,
    pub(super) required: Vec<Requirement>,
    pub(super) images: Vec<RelatedImage>,
    /// The permissions of its operator; `None` if the catalog does not contain them.
    pub(super) permissions: Option<Permissions>,
    /// The newest supported version of OpenShift; empty if unknown.
    pub(super) max_openshift: String,
}

/// An API that a bundle provides.
#[derive(Debug)]
pub(super) struct ProvidedApi {
    pub(super) api: Gvk,
    pub(super) title: String,
    pub(super) about: String,
}

/// A requirement on the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) what: &'static str,
    pub(super) text: String,
}

/// The permissions of the operator of a bundle.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    /// The rules for the whole cluster.
    pub(super) cluster: Vec<Rule>,
    /// The rules for the watched namespaces.
    pub(super) namespaces: Vec<Rule>,
}

/// One rule of a role.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) groups: String,
    pub(super) resources: String,
    pub(super) verbs: String,
}

impl Release {
    /// The facts of a bundle. Unreadable facts are left out.
    pub(super) fn of(bundle: &Bundle) -> Self {
        // Parsing it takes far longer than the rest of the page.
        let csv = bundle.csv();
        let metadata = CsvMetadata::beside_csv(bundle, csv.as_ref()).unwrap_or_default();
        let max_openshift = bundle.properties.iter().find(|p| p.kind == TYPE_MAX_OPENSHIFT);
        let max_openshift = max_openshift.and_then(|p| serde_json::from_str::<Value>(&p.value).ok());
        Self {
            name: bundle.name.clone(),
            version: bundle.version_release().ok(),
            image: bundle.image.clone(),
            provided: provided(bundle, &metadata),
            required: required(bundle, &metadata),
            images: bundle
                .related_images
                .iter()
                .filter(|i| !i.image.is_empty())
                .take(MOST)
                .cloned()
                .collect(),
            permissions: csv.as_ref().map(Permissions::of),
            max_openshift: match max_openshift {
                Some(Value::String(text)) => text,
                Some(Value::Number(number)) => number.to_string(),
                _ => String::new(),
            },
            metadata,
        }
    }

    /// The version, otherwise its name.
    pub(super) fn title(&self) -> String {
        self.version
            .as_ref()
            .map_or_else(|| self.name.clone(), ToString::to_string)
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn provided(bundle: &Bundle, metadata: &CsvMetadata) -> Vec<ProvidedApi> {
    let described: Vec<&Value> = ["/crdDescriptions/owned", "/apiServiceDefinitions/owned"]
        .into_iter()
        .flat_map(|pointer| metadata.items(pointer))
        .collect();
    let apis = bundle
        .properties
        .iter()
        .filter(|property| property.kind == TYPE_GVK);
    let mut apis: Vec<Gvk> = apis
        .filter_map(|property| property.gvk().ok())
        .take(MOST)
        .collect();
    apis.sort();
    apis.dedup();
    apis.into_iter()
        .map(|api| {
            let about = described
                .iter()
                .find(|it| {
                    text(it, "kind") == api.kind && [text(it, "version"), ""].contains(&api.version.as_str())
                })
                .or_else(|| described.iter().find(|it| text(it, "kind") == api.kind));
            ProvidedApi {
                title: about
                    .map(|it| text(it, "displayName").to_owned())
                    .unwrap_or_default(),
                about: about
                    .map(|it| text(it, "description").to_owned())
                    .unwrap_or_default(),
                api,
            }
        })
        .collect()
}

fn required(bundle: &Bundle, metadata: &CsvMetadata) -> Vec<Requirement> {
    let mut found: Vec<Requirement> = Vec::new();
    let mut add = |what: &'static str, text: String| {
        let requirement = Requirement { what, text };
        if found.len() < MOST && !found.contains(&requirement) {
            found.push(requirement);
        }
    };
    for property in &bundle.properties {
        match property.kind.as_str() {
            TYPE_GVK_REQUIRED => {
                if let Ok(api) = property.gvk() {
                    add("API", format!("{} ({}/{})", api.kind, api.group, api.version));
                }
            }
            TYPE_PACKAGE_REQUIRED => {
                if let Ok(package) = property.package_required_in_any_spelling() {
                    add(
                        "Package",
                        format!("{} {}", package.package_name, package.version_range),
                    );
                }
            }
            TYPE_CONSTRAINT => {
                let value: Value = serde_json::from_str(&property.value).unwrap_or_default();
                let message = text(&value, "failureMessage");
                let said = if message.is_empty() {
                    property.value.to_string()
                } else {
                    message.to_owned()
                };
                add("Constraint", said);
            }
            _ => {}
        }
    }
    for pointer in ["/crdDescriptions/required", "/apiServiceDefinitions/required"] {
        for api in metadata.items(pointer) {
            // A definition is named PLURAL.GROUP, an aggregated API by its group.
            let group = text(api, "group");
            let name = text(api, "name");
            let group = if group.is_empty() {
                name.split_once('.').map_or(name, |(_, group)| group)
            } else {
                group
            };
            add(
                "API",
                format!("{} ({group}/{})", text(api, "kind"), text(api, "version")),
            );
        }
    }
    for api in metadata.items("/nativeAPIs") {
        add(
            "API",
            format!(
                "{} ({}/{})",
                text(api, "kind"),
                text(api, "group"),
                text(api, "version")
            ),
        );
    }
    found
}

impl Permissions {
    fn of(csv: &Value) -> Self {
        Self {
            cluster: rules(csv, "/spec/install/spec/clusterPermissions"),
            namespaces: rules(csv, "/spec/install/spec/permissions"),
        }
    }
}

/// The rules of all accounts in that list.
fn rules(csv: &Value, pointer: &str) -> Vec<Rule> {
    let list = |rule: &Value, key: &str| {
        let items = rule.get(key).and_then(Value::as_array).into_iter().flatten();
        let items: Vec<&str> = items
            .filter_map(Value::as_str)
            .map(|item| if item.is_empty() { "core" } else { item })
            .collect();
        items.join(", ")
    };
    let accounts = csv
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    accounts
        .filter_map(|account| account.get("rules").and_then(Value::as_array))
        .flatten()
        .take(MOST)
        .map(|rule| Rule {
            groups: list(rule, "apiGroups"),
            resources: match list(rule, "resources") {
                none if none.is_empty() => list(rule, "nonResourceURLs"),
                resources => resources,
            },
            verbs: list(rule, "verbs"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use olm_fbc::Property;

    use super::*;

    #[test]
    fn manifests_in_a_catalog_tell_as_much_as_a_description() {
        let csv = r#"{"kind":"ClusterServiceVersion","metadata":{"annotations":{"description":"Short."}},"spec":{
            "displayName":"D","minKubeVersion":"1.30.0",
            "customresourcedefinitions":{"owned":[{"name":"as.g","kind":"A","version":"v1","description":"An a."}],
              "required":[{"name":"bs.h","kind":"B","version":"v2"}]},
            "install":{"spec":{
              "clusterPermissions":[{"rules":[{"apiGroups":["","apps"],"resources":["pods"],"verbs":["get"]}]}],
              "permissions":[{"rules":[{"nonResourceURLs":["/metrics"],"verbs":["get","list"]}]}]}}}}"#;
        let property = |kind: &str, value: &str| Property::new(kind, value);
        let bundle = Bundle {
            name: "p.v1".to_owned(),
            properties: [
                property(TYPE_GVK, r#"{"group":"g","kind":"A","version":"v1"}"#),
                property(TYPE_GVK_REQUIRED, r#"{"group":"h","kind":"B","version":"v2"}"#),
                property(
                    TYPE_PACKAGE_REQUIRED,
                    r#"{"packageName":"q","versionRange":">1.0.0"}"#,
                ),
                property(TYPE_CONSTRAINT, r#"{"failureMessage":"Needs more.","all":{}}"#),
                property(TYPE_MAX_OPENSHIFT, "\"4.17\""),
                Property::for_object(csv.as_bytes()),
            ]
            .into_iter()
            .collect(),
            ..Bundle::default()
        };
        let release = Release::of(&bundle);
        assert_eq!(release.title(), "p.v1");
        assert_eq!(release.metadata.annotation("description"), "Short.");
        assert_eq!(release.metadata.text("/minKubeVersion"), "1.30.0");
        assert_eq!(release.max_openshift, "4.17");
        assert_eq!(release.provided[0].about, "An a.");
        let required: Vec<(&str, &str)> = release
            .required
            .iter()
            .map(|required| (required.what, required.text.as_str()))
            .collect();
        let expected = [
            ("API", "B (h/v2)"),
            ("Package", "q >1.0.0"),
            ("Constraint", "Needs more."),
        ];
        assert_eq!(required, expected);
        let permissions = release.permissions.unwrap();
        assert_eq!(permissions.cluster[0].groups, "core, apps");
        assert_eq!(permissions.namespaces[0].resources, "/metrics");
    }
}
