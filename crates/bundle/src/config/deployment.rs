//! The schema of `deploymentConfig`.
//!
//! Its own fields are closed. The Kubernetes types below are open, as in the OpenAPI document of the API server,
//! because a newer Kubernetes may have more fields.

use serde_json::{Map, Value, json};

/// Volume sources whose fields are not checked.
const FURTHER_SOURCES: [&str; 20] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "iscsi",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

pub(super) fn schema() -> Value {
    let mut schema = object(
        &[],
        [
            ("affinity", affinity()),
            ("annotations", map_of(&json!({"type": "string"}))),
            ("env", list_of(&environment_variable())),
            ("envFrom", list_of(&environment_source())),
            ("nodeSelector", map_of(&json!({"type": "string"}))),
            ("resources", resources()),
            ("tolerations", list_of(&toleration())),
            ("volumeMounts", list_of(&volume_mount())),
            ("volumes", list_of(&volume())),
        ],
    );
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn integer() -> Value {
    json!({"type": "integer"})
}

fn quantity() -> Value {
    json!({"type": ["string", "number"]})
}

fn any_object() -> Value {
    json!({"type": "object"})
}

fn list_of(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn map_of(values: &Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn object<const N: usize>(required: &[&str], fields: [(&str, Value); N]) -> Value {
    let properties: Map<String, Value> = fields
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    let mut object = json!({"type": "object", "properties": properties});
    if let (false, Some(object)) = (required.is_empty(), object.as_object_mut()) {
        object.insert("required".to_owned(), json!(required));
    }
    object
}

/// A key in an object of the same namespace.
fn key_reference() -> Value {
    object(
        &["key"],
        [("key", text()), ("name", text()), ("optional", flag())],
    )
}

/// A field of the pod.
fn field_reference() -> Value {
    object(&["fieldPath"], [("apiVersion", text()), ("fieldPath", text())])
}

/// A limit or request of a container.
fn resource_reference() -> Value {
    object(
        &["resource"],
        [
            ("containerName", text()),
            ("divisor", quantity()),
            ("resource", text()),
        ],
    )
}

fn environment_variable() -> Value {
    let source = object(
        &[],
        [
            ("configMapKeyRef", key_reference()),
            ("secretKeyRef", key_reference()),
            ("fieldRef", field_reference()),
            (
                "fileKeyRef",
                object(
                    &["key", "path", "volumeName"],
                    [
                        ("key", text()),
                        ("optional", flag()),
                        ("path", text()),
                        ("volumeName", text()),
                    ],
                ),
            ),
            ("resourceFieldRef", resource_reference()),
        ],
    );
    object(
        &["name"],
        [("name", text()), ("value", text()), ("valueFrom", source)],
    )
}

fn environment_source() -> Value {
    let reference = || object(&[], [("name", text()), ("optional", flag())]);
    object(
        &[],
        [
            ("prefix", text()),
            ("configMapRef", reference()),
            ("secretRef", reference()),
        ],
    )
}

fn resources() -> Value {
    object(
        &[],
        [
            (
                "claims",
                list_of(&object(&["name"], [("name", text()), ("request", text())])),
            ),
            ("limits", map_of(&quantity())),
            ("requests", map_of(&quantity())),
        ],
    )
}

fn toleration() -> Value {
    object(
        &[],
        [
            ("effect", text()),
            ("key", text()),
            ("operator", text()),
            ("tolerationSeconds", integer()),
            ("value", text()),
        ],
    )
}

fn volume_mount() -> Value {
    object(
        &["mountPath", "name"],
        [
            ("mountPath", text()),
            ("mountPropagation", text()),
            ("name", text()),
            ("readOnly", flag()),
            ("recursiveReadOnly", text()),
            ("subPath", text()),
            ("subPathExpr", text()),
        ],
    )
}

fn volume() -> Value {
    let mut volume = object(
        &["name"],
        [
            ("name", text()),
            ("configMap", files_of("name")),
            (
                "csi",
                object(
                    &["driver"],
                    [
                        ("driver", text()),
                        ("fsType", text()),
                        ("nodePublishSecretRef", object(&[], [("name", text())])),
                        ("readOnly", flag()),
                        ("volumeAttributes", map_of(&text())),
                    ],
                ),
            ),
            (
                "downwardAPI",
                object(
                    &[],
                    [
                        ("defaultMode", integer()),
                        (
                            "items",
                            list_of(&object(
                                &["path"],
                                [
                                    ("fieldRef", field_reference()),
                                    ("mode", integer()),
                                    ("path", text()),
                                    ("resourceFieldRef", resource_reference()),
                                ],
                            )),
                        ),
                    ],
                ),
            ),
            (
                "emptyDir",
                object(&[], [("medium", text()), ("sizeLimit", quantity())]),
            ),
            (
                "hostPath",
                object(&["path"], [("path", text()), ("type", text())]),
            ),
            (
                "image",
                object(&[], [("pullPolicy", text()), ("reference", text())]),
            ),
            (
                "nfs",
                object(
                    &["path", "server"],
                    [("path", text()), ("readOnly", flag()), ("server", text())],
                ),
            ),
            (
                "persistentVolumeClaim",
                object(&["claimName"], [("claimName", text()), ("readOnly", flag())]),
            ),
            (
                "projected",
                object(
                    &[],
                    [("defaultMode", integer()), ("sources", list_of(&any_object()))],
                ),
            ),
            ("secret", files_of("secretName")),
        ],
    );
    if let Some(properties) = volume.get_mut("properties").and_then(Value::as_object_mut) {
        for source in FURTHER_SOURCES {
            properties.insert(source.to_owned(), any_object());
        }
    }
    volume
}

/// The keys of a ConfigMap or Secret, which a field names, as files.
fn files_of(reference: &'static str) -> Value {
    let file = object(
        &["key", "path"],
        [("key", text()), ("mode", integer()), ("path", text())],
    );
    object(
        &[],
        [
            ("defaultMode", integer()),
            ("items", list_of(&file)),
            (reference, text()),
            ("optional", flag()),
        ],
    )
}

fn requirements() -> Value {
    list_of(&object(
        &["key", "operator"],
        [
            ("key", text()),
            ("operator", text()),
            ("values", list_of(&text())),
        ],
    ))
}

fn affinity() -> Value {
    let term = || {
        object(
            &[],
            [
                ("matchExpressions", requirements()),
                ("matchFields", requirements()),
            ],
        )
    };
    let nodes = object(
        &[],
        [
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                list_of(&object(
                    &["weight", "preference"],
                    [("preference", term()), ("weight", integer())],
                )),
            ),
            (
                "requiredDuringSchedulingIgnoredDuringExecution",
                object(&["nodeSelectorTerms"], [("nodeSelectorTerms", list_of(&term()))]),
            ),
        ],
    );
    object(
        &[],
        [
            ("nodeAffinity", nodes),
            ("podAffinity", pods()),
            ("podAntiAffinity", pods()),
        ],
    )
}

fn pods() -> Value {
    let selector = || {
        object(
            &[],
            [
                ("matchExpressions", requirements()),
                ("matchLabels", map_of(&text())),
            ],
        )
    };
    let term = || {
        object(
            &["topologyKey"],
            [
                ("labelSelector", selector()),
                ("matchLabelKeys", list_of(&text())),
                ("mismatchLabelKeys", list_of(&text())),
                ("namespaceSelector", selector()),
                ("namespaces", list_of(&text())),
                ("topologyKey", text()),
            ],
        )
    };
    object(
        &[],
        [
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                list_of(&object(
                    &["weight", "podAffinityTerm"],
                    [("podAffinityTerm", term()), ("weight", integer())],
                )),
            ),
            ("requiredDuringSchedulingIgnoredDuringExecution", list_of(&term())),
        ],
    )
}
