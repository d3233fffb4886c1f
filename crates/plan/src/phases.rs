//! A bundle's objects, cleaned and sorted into phases.

use std::collections::BTreeMap;

use olm_api::cluster_object_set::{
    Assertion, AssertionType, ConditionEqual, FieldValue, FieldsEqual, GroupKind, ProbeSelector,
    ProgressionProbe, SelectorType,
};
use olm_api::names::{CLUSTER_EXTENSION, annotation, cert_manager, label};
use serde_json::{Map, Value, json};

use olm_rollout::object::ObjectId;

/// The maximum number of objects in a phase.
const PHASE_OBJECTS: usize = 50;
/// The maximum number of phases in a revision.
const PHASES: usize = 20;

/// Objects that are applied together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// The phase's name.
    pub name: String,
    /// The objects, sorted by group, version, kind, namespace and name.
    pub objects: Vec<Value>,
}

/// The reason why objects do not fit into a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PhasesError {
    /// A rendered object is not an object with a kind and a name.
    #[error("the bundle holds something that is not a Kubernetes object: {0}")]
    NotAnObject(String),
    /// There are too many objects.
    #[error(
        "the bundle's {objects} objects need {phases} phases, more than the {PHASES} that a ClusterObjectSet can hold ({PHASE_OBJECTS} objects each)"
    )]
    TooMany {
        /// The number of objects.
        objects: usize,
        /// The number of phases that they need.
        phases: usize,
    },
}

/// The phases in the order in which they are applied, with the group and kind of their objects. Other objects belong to
/// `deploy`.
const ORDER: &[(&str, &[(&str, &str)])] = &[
    ("namespaces", &[("", "Namespace")]),
    (
        "policies",
        &[
            ("networking.k8s.io", "NetworkPolicy"),
            ("policy", "PodDisruptionBudget"),
            ("scheduling.k8s.io", "PriorityClass"),
        ],
    ),
    ("identity", &[("", "ServiceAccount")]),
    ("configuration", &[("", "Secret"), ("", "ConfigMap")]),
    (
        "storage",
        &[
            ("", "PersistentVolume"),
            ("", "PersistentVolumeClaim"),
            ("storage.k8s.io", "StorageClass"),
        ],
    ),
    ("crds", &[("apiextensions.k8s.io", "CustomResourceDefinition")]),
    (
        "roles",
        &[
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("rbac.authorization.k8s.io", "Role"),
        ],
    ),
    (
        "bindings",
        &[
            ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
            ("rbac.authorization.k8s.io", "RoleBinding"),
        ],
    ),
    (
        "infrastructure",
        &[
            ("", "Service"),
            (cert_manager::GROUP, cert_manager::ISSUER),
            (cert_manager::GROUP, cert_manager::CERTIFICATE),
        ],
    ),
    (DEPLOY, &[("apps", "Deployment")]),
    ("scaling", &[("autoscaling.k8s.io", "VerticalPodAutoscaler")]),
    (
        "publish",
        &[
            ("monitoring.coreos.com", "PrometheusRule"),
            ("monitoring.coreos.com", "ServiceMonitor"),
            ("monitoring.coreos.com", "PodMonitor"),
            ("networking.k8s.io", "Ingress"),
            ("route.openshift.io", "Route"),
            ("console.openshift.io", "ConsoleYAMLSample"),
            ("console.openshift.io", "ConsoleQuickStart"),
            ("console.openshift.io", "ConsoleCLIDownload"),
            ("console.openshift.io", "ConsoleLink"),
            ("console.openshift.io", "ConsolePlugin"),
            (API_SERVICE.0, API_SERVICE.1),
        ],
    ),
    (
        "admission",
        &[
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ],
    ),
];

const DEPLOY: &str = "deploy";
/// Group and kind by which aggregated APIs are registered.
const API_SERVICE: (&str, &str) = ("apiregistration.k8s.io", "APIService");

/// The labels and annotations of a bundle's objects.
#[derive(Debug, Clone, Copy)]
pub struct CommonMetadata<'a> {
    /// The ClusterExtension's name.
    pub extension: &'a str,
    /// The package.
    pub package: &'a str,
    /// The bundle's version.
    pub version: &'a str,
}

/// Cleans the objects, marks them and sorts them into phases. A phase of more than 50 objects is split (`deploy`,
/// `deploy-2`). If that makes too many phases, the objects fill the phases one after the other, in the same order.
pub fn phases(objects: Vec<Value>, marks: CommonMetadata<'_>) -> Result<Vec<Group>, PhasesError> {
    let total = objects.len();
    let mut sorted: BTreeMap<usize, BTreeMap<ObjectId, Vec<Value>>> = BTreeMap::new();
    for object in objects {
        let object = clean(object, marks)?;
        let id = ObjectId::of(&object);
        sorted
            .entry(position(&id))
            .or_default()
            .entry(id)
            .or_default()
            .push(object);
    }
    let mut groups = Vec::new();
    for (position, objects) in sorted {
        let name = ORDER.get(position).map_or(DEPLOY, |(name, _)| *name);
        let objects: Vec<Value> = objects.into_values().flatten().collect();
        for (i, part) in objects.chunks(PHASE_OBJECTS).enumerate() {
            let name = if i == 0 {
                name.to_owned()
            } else {
                format!("{name}-{}", i + 1)
            };
            groups.push(Group {
                name,
                objects: part.to_vec(),
            });
        }
    }
    if groups.len() > PHASES {
        groups = packed(groups);
    }
    if groups.len() > PHASES {
        return Err(PhasesError::TooMany {
            objects: total,
            phases: groups.len(),
        });
    }
    Ok(groups)
}

/// The same objects in as few phases as possible, each named after the phase of its first object.
fn packed(groups: Vec<Group>) -> Vec<Group> {
    let mut full: Vec<Group> = Vec::new();
    for Group { name, objects } in groups {
        for object in objects {
            match full.last_mut() {
                Some(last) if last.objects.len() < PHASE_OBJECTS => last.objects.push(object),
                _ => full.push(Group {
                    name: name.clone(),
                    objects: vec![object],
                }),
            }
        }
    }
    full
}

fn position(id: &ObjectId) -> usize {
    let holds = |(_, kinds): &(&str, &[(&str, &str)])| kinds.contains(&(id.group.as_str(), id.kind.as_str()));
    let deploy = || ORDER.iter().position(|(name, _)| *name == DEPLOY);
    ORDER.iter().position(holds).or_else(deploy).unwrap_or_default()
}

/// The object without fields that the API server or kubectl adds, and with our labels and annotations.
fn clean(object: Value, marks: CommonMetadata<'_>) -> Result<Value, PhasesError> {
    let Value::Object(mut object) = object else {
        return Err(not_an_object(&object));
    };
    object.remove("status");
    let Some(Value::Object(given)) = object.remove("metadata") else {
        return Err(not_an_object(&Value::Object(object)));
    };
    let mut metadata: Map<String, Value> = given
        .into_iter()
        .filter(|(key, value)| {
            matches!(key.as_str(), "annotations" | "labels" | "name" | "namespace") && !value.is_null()
        })
        .collect();
    let mut labels = texts(&mut metadata, "labels");
    labels.insert(label::OWNER_KIND.to_owned(), json!(CLUSTER_EXTENSION));
    labels.insert(label::OWNER_NAME.to_owned(), json!(marks.extension));
    metadata.insert("labels".to_owned(), Value::Object(labels));
    let mut annotations = texts(&mut metadata, "annotations");
    annotations.remove(annotation::LAST_APPLIED);
    for (key, value) in [
        (annotation::BUNDLE_VERSION, marks.version),
        (annotation::PACKAGE_NAME, marks.package),
    ] {
        if !value.is_empty() {
            annotations.insert(key.to_owned(), json!(value));
        }
    }
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
    object.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(Value::Object(object))
}

/// Removes the map with that name and returns it; empty if it is absent or not a map.
fn texts(metadata: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match metadata.remove(key) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn not_an_object(value: &Value) -> PhasesError {
    PhasesError::NotAnObject(value.to_string().chars().take(100).collect())
}

/// The probes for kinds that become ready over time. Probes of aggregated APIs are added only if there are any, so that
/// other revisions do not change.
pub fn probes(groups: &[Group]) -> Vec<ProgressionProbe> {
    let api = |object: &Value| object.get("kind").and_then(Value::as_str) == Some(API_SERVICE.1);
    let apis = groups.iter().flat_map(|group| &group.objects).any(api);
    let condition = |condition_type: &str| Assertion {
        assertion_type: AssertionType::ConditionEqual,
        condition_equal: Some(ConditionEqual {
            condition_type: condition_type.to_owned(),
            status: "True".to_owned(),
        }),
        ..Assertion::default()
    };
    let phase = |value: &str| Assertion {
        assertion_type: AssertionType::FieldValue,
        field_value: Some(FieldValue {
            field_path: "status.phase".to_owned(),
            value: value.to_owned(),
        }),
        ..Assertion::default()
    };
    let equal = |a: &str, b: &str| Assertion {
        assertion_type: AssertionType::FieldsEqual,
        fields_equal: Some(FieldsEqual {
            field_a: a.to_owned(),
            field_b: b.to_owned(),
        }),
        ..Assertion::default()
    };
    let updated = equal("status.updatedReplicas", "status.replicas");
    [
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            vec![condition("Established")],
        ),
        (
            cert_manager::GROUP,
            cert_manager::CERTIFICATE,
            vec![condition("Ready")],
        ),
        (
            cert_manager::GROUP,
            cert_manager::ISSUER,
            vec![condition("Ready")],
        ),
        ("", "Namespace", vec![phase("Active")]),
        ("", "PersistentVolumeClaim", vec![phase("Bound")]),
        // A StatefulSet has no condition `Available`.
        (
            "apps",
            "StatefulSet",
            vec![
                updated.clone(),
                equal("status.availableReplicas", "status.replicas"),
            ],
        ),
        ("apps", "Deployment", vec![updated, condition("Available")]),
    ]
    .into_iter()
    .chain(apis.then(|| (API_SERVICE.0, API_SERVICE.1, vec![condition("Available")])))
    .map(|(group, kind, assertions)| ProgressionProbe {
        selector: ProbeSelector {
            selector_type: SelectorType::GroupKind,
            group_kind: Some(GroupKind {
                group: group.to_owned(),
                kind: kind.to_owned(),
            }),
            label: None,
        },
        assertions,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: CommonMetadata<'_> = CommonMetadata {
        extension: "ext",
        package: "pkg",
        version: "1.0.0",
    };

    fn object(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
    }

    #[test]
    fn objects_go_to_their_phase_and_the_rest_to_deploy() {
        let groups = phases(
            vec![
                object("apps/v1", "Deployment", "d"),
                object("example.com/v1", "Unheard", "u"),
                object("v1", "Service", "s"),
                object("rbac.authorization.k8s.io/v1", "ClusterRole", "b"),
                object("rbac.authorization.k8s.io/v1", "ClusterRole", "a"),
                object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "c"),
            ],
            MARKS,
        )
        .unwrap();
        let names: Vec<(&str, Vec<&str>)> = groups
            .iter()
            .map(|g| {
                (
                    g.name.as_str(),
                    g.objects
                        .iter()
                        .map(|o| o["metadata"]["name"].as_str().unwrap())
                        .collect(),
                )
            })
            .collect();
        assert_eq!(
            names,
            [
                ("crds", vec!["c"]),
                ("roles", vec!["a", "b"]),
                ("infrastructure", vec!["s"]),
                ("deploy", vec!["d", "u"])
            ]
        );
    }

    #[test]
    fn more_than_fifty_objects_are_split_and_more_than_a_thousand_refused() {
        let many = |count: usize| {
            (0..count)
                .map(|i| object("v1", "ConfigMap", &format!("c{i:04}")))
                .collect::<Vec<_>>()
        };
        let groups = phases(many(101), MARKS).unwrap();
        let sizes: Vec<(&str, usize)> = groups
            .iter()
            .map(|g| (g.name.as_str(), g.objects.len()))
            .collect();
        assert_eq!(
            sizes,
            [
                ("configuration", 50),
                ("configuration-2", 50),
                ("configuration-3", 1)
            ]
        );
        assert_eq!(phases(many(1000), MARKS).unwrap().len(), 20);
        assert_eq!(
            phases(many(1001), MARKS),
            Err(PhasesError::TooMany {
                objects: 1001,
                phases: 21
            })
        );
    }

    #[test]
    fn objects_are_cleaned_and_marked() {
        let given = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": null}, "status": {"x": 1},
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "creationTimestamp": null, "labels": {"a": "b"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "keep": "me"}},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": null},
            "metadata": {
                "name": "c", "namespace": "n",
                "labels": {
                    "a": "b", "olm.operatorframework.io/owner-kind": "ClusterExtension",
                    "olm.operatorframework.io/owner-name": "ext"},
                "annotations": {
                    "keep": "me", "olm.operatorframework.io/bundle-version": "1.0.0",
                    "olm.operatorframework.io/package-name": "pkg"}},
        });
        assert_eq!(phases(vec![given], MARKS).unwrap()[0].objects[0], expected);
        for bad in [json!(1), json!({"kind": "X"}), json!({"metadata": 1})] {
            assert!(matches!(
                phases(vec![bad], MARKS),
                Err(PhasesError::NotAnObject(_))
            ));
        }
        let odd = phases(
            vec![json!({"metadata": {"labels": 1, "annotations": null}})],
            MARKS,
        )
        .unwrap();
        assert_eq!(
            odd[0].objects[0]["metadata"]["labels"]["olm.operatorframework.io/owner-name"],
            "ext"
        );
    }

    #[test]
    fn a_thousand_objects_fit_whatever_their_kinds_and_one_more_does_not() {
        let object = |kind: &str, i: usize| {
            let (api_version, kind) = match kind {
                "ClusterRole" => ("rbac.authorization.k8s.io/v1", kind),
                kind => ("v1", kind),
            };
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": format!("{kind}-{i}").to_lowercase()}})
        };
        let some = |kinds: &[(&str, usize)]| -> Vec<Value> {
            kinds
                .iter()
                .flat_map(|(kind, count)| (0..*count).map(|i| object(kind, i)))
                .collect()
        };
        let all = [
            ("ServiceAccount", 1),
            ("ConfigMap", 501),
            ("ClusterRole", 251),
            ("Service", 247),
        ];
        let groups = phases(some(&all), MARKS).unwrap();
        assert_eq!(groups.len(), 20);
        assert_eq!(
            groups.iter().map(|group| group.objects.len()).sum::<usize>(),
            1000
        );
        let names: std::collections::BTreeSet<&str> =
            groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names.len(), 20, "{names:?}");
        let kinds: Vec<&Value> = groups
            .iter()
            .flat_map(|group| &group.objects)
            .map(|object| &object["kind"])
            .collect();
        assert_eq!(
            (kinds[0], kinds[501], kinds[502]),
            (
                &json!("ServiceAccount"),
                &json!("ConfigMap"),
                &json!("ClusterRole")
            )
        );
        let more = phases(some(&[("ConfigMap", 501), ("ClusterRole", 500)]), MARKS).unwrap_err();
        assert!(more.to_string().contains("1001 objects"), "{more}");
    }

    #[test]
    fn every_probe_fits_the_schema() {
        let group = |kind: &str| Group {
            name: "publish".to_owned(),
            objects: vec![json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": kind})],
        };
        assert_eq!(probes(&[group("APIService")]).len(), 8);
        let probes = probes(&[group("Other")]);
        assert_eq!(probes.len(), 7);
        assert!(
            probes
                .iter()
                .all(|p| !p.assertions.is_empty() && p.selector.group_kind.is_some())
        );
    }
}
