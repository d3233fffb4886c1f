//! The Pod that serves a catalog.

use serde_json::{Map, Value, json};

use super::{Images, Source};
use crate::cluster::{items, object_at, text};
use crate::wire::deployment::POD_SPEC;
use crate::wire::quantity;
use crate::{hash, names, wire};

const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const PRIORITY_ANNOTATION: &str = "operatorframework.io/priorityclass";
const ENFORCED_LABEL: &str = "pod-security.kubernetes.io/enforce";
const CONTENT: &str = "/extracted-catalog";
const PORT: i64 = 50051;

/// The Pod of a source that serves this image, if it serves one. `labels` are its labels but for the hash; `account` is
/// its service account as it is or will be.
pub(super) fn pod(
    source: &Source<'_>,
    image: &str,
    images: &Images,
    labels: &Map<String, Value>,
    account: &Value,
) -> Value {
    let mut spec = if source.is_image() {
        image_spec(source, image, images)
    } else {
        config_map_spec(source, images)
    };
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("nodeSelector".to_owned(), json!({"kubernetes.io/os": "linux"}));
        spec.insert(
            "serviceAccountName".to_owned(),
            text(account, "/metadata/name").into(),
        );
        if let Some(secrets) = account.get("imagePullSecrets").filter(|found| found.is_array()) {
            spec.insert("imagePullSecrets".to_owned(), secrets.clone());
        }
    }
    configure(&mut spec, source);
    if is_restricted(source) {
        restrict(&mut spec, images.run_as_user);
    }
    let mut annotations = source
        .object
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    annotations.insert(SAFE_TO_EVICT.to_owned(), "true".into());
    let class = annotations.get(PRIORITY_ANNOTATION);
    if let (Some(class), Some(spec)) = (class.filter(|class| *class != ""), spec.as_object_mut()) {
        spec.insert("priorityClassName".to_owned(), class.clone());
    }
    let mut labels = labels.clone();
    let hash = spec_hash(source, &spec);
    labels.insert(names::POD_HASH_LABEL.to_owned(), hash.into());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", source.name()),
            "namespace": source.namespace(),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [source.owner(true, false)],
        },
        "spec": spec,
    })
}

/// The hash of a Pod's spec. That of a ConfigMap source leaves out the fields that follow from the source's name.
fn spec_hash(source: &Source<'_>, spec: &Value) -> String {
    let mut spec = spec.clone();
    if !source.is_image() {
        if let Some(container) = spec.pointer_mut("/containers/0").and_then(Value::as_object_mut) {
            container.remove("command");
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("serviceAccountName");
        }
    }
    hash::text(&format!("{}\n", wire::write(&spec, POD_SPEC)))
}

fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        "IfNotPresent"
    } else {
        "Always"
    }
}

/// The container that answers gRPC.
fn server(name: &str, image: &str, liveness_delay: i64) -> Value {
    let probe = |delay: i64| json!({"grpc": {"port": PORT, "service": null}, "initialDelaySeconds": delay, "timeoutSeconds": 5});
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": pull_policy(image),
        "ports": [{"name": "grpc", "containerPort": PORT}],
        "readinessProbe": probe(5),
        "livenessProbe": probe(liveness_delay),
        "startupProbe": {
            "grpc": {"port": PORT, "service": null}, "failureThreshold": 15, "periodSeconds": 10, "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "50Mi"}},
        "securityContext": {"readOnlyRootFilesystem": false},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

fn config_map_spec(source: &Source<'_>, images: &Images) -> Value {
    let mut server = server("configmap-registry-server", &images.config_map_server, 5);
    if let Some(server) = server.as_object_mut() {
        let map = text(source.object, "/spec/configMap");
        let command = json!(["configmap-server", "-c", map, "-n", source.namespace()]);
        server.insert("command".to_owned(), command);
    }
    json!({"containers": [server]})
}

fn image_spec(source: &Source<'_>, image: &str, images: &Images) -> Value {
    let extract = source.object.pointer("/spec/grpcPodConfig/extractContent");
    let Some(extract) = extract.filter(|extract| extract.is_object()) else {
        return json!({"containers": [server("registry-server", image, 10)]});
    };
    let cache = text(extract, "/cacheDir");
    let mut arguments = vec![
        format!("--catalog.from={}", text(extract, "/catalogDir")),
        format!("--catalog.to={CONTENT}/catalog"),
    ];
    let mut serve = vec!["serve".to_owned(), format!("{CONTENT}/catalog")];
    let mut mounts = vec![json!({"name": "catalog-content", "mountPath": CONTENT})];
    let mut volumes = vec![
        json!({"name": "utilities", "emptyDir": {}}),
        json!({"name": "catalog-content", "emptyDir": {}}),
    ];
    if cache.is_empty() {
        mounts.insert(0, json!({"name": "tmpdir", "mountPath": "/tmp/"}));
        volumes.push(json!({"name": "tmpdir", "emptyDir": {}}));
    } else {
        arguments.push(format!("--cache.from={cache}"));
        arguments.push(format!("--cache.to={CONTENT}/cache"));
        serve.push(format!("--cache-dir={CONTENT}/cache"));
    }
    let mut container = server("registry-server", &images.opm, 10);
    if let Some(container) = container.as_object_mut() {
        for (key, value) in [
            ("command", json!(["/bin/opm"])),
            ("args", json!(serve)),
            ("volumeMounts", json!(mounts)),
            ("securityContext", json!({"readOnlyRootFilesystem": true})),
        ] {
            container.insert(key.to_owned(), value);
        }
    }
    let utilities = json!({"name": "utilities", "mountPath": "/utilities"});
    json!({
        "containers": [container],
        "initContainers": [
            {
                "name": "extract-utilities", "image": images.utilities, "command": ["cp"],
                "args": ["/bin/copy-content", "/utilities/copy-content"], "volumeMounts": [utilities],
                "securityContext": {"readOnlyRootFilesystem": true},
                "terminationMessagePolicy": "FallbackToLogsOnError",
            },
            {
                "name": "extract-content", "image": image, "imagePullPolicy": pull_policy(image),
                "command": ["/utilities/copy-content"], "args": arguments,
                "volumeMounts": [utilities, {"name": "catalog-content", "mountPath": CONTENT}],
                "securityContext": {"readOnlyRootFilesystem": true},
                "terminationMessagePolicy": "FallbackToLogsOnError",
            },
        ],
        "volumes": volumes,
    })
}

/// Applies `spec.grpcPodConfig`.
fn configure(spec: &mut Value, source: &Source<'_>) {
    let config = source.object.pointer("/spec/grpcPodConfig");
    let Some(config) = config.filter(|config| config.is_object()) else {
        return;
    };
    if let Some(memory) = config.get("memoryTarget").filter(|memory| !memory.is_null()) {
        let memory = memory.as_str().map_or_else(|| memory.to_string(), str::to_owned);
        let memory = quantity::canonical(&memory).unwrap_or(memory);
        let container = spec.pointer_mut("/containers/0");
        if let Some(container) = container {
            if let Some(requests) = object_at(container, &["resources", "requests"]) {
                requests.insert("memory".to_owned(), memory.as_str().into());
            }
            if let Some(container) = container.as_object_mut() {
                let limit = json!([{"name": "GOMEMLIMIT", "value": format!("{memory}B")}]);
                container.insert("env".to_owned(), limit);
            }
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        for key in ["nodeSelector", "tolerations", "affinity", "priorityClassName"] {
            if let Some(value) = config.get(key).filter(|value| !value.is_null()) {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    }
}

/// Whether the Pod must fit a namespace that enforces the standard `restricted`.
fn is_restricted(source: &Source<'_>) -> bool {
    match text(source.object, "/spec/grpcPodConfig/securityContextConfig") {
        "restricted" => true,
        "" => {
            let namespace = source.cluster.get("Namespace", "", source.namespace());
            let labels = namespace.and_then(|namespace| namespace.pointer("/metadata/labels"));
            labels.and_then(|labels| labels.get(ENFORCED_LABEL)) == Some(&json!("restricted"))
        }
        _ => false,
    }
}

fn restrict(spec: &mut Value, user: Option<i64>) {
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(context) = object_at(container, &["securityContext"]) {
                context.insert("allowPrivilegeEscalation".to_owned(), false.into());
                context.insert("capabilities".to_owned(), json!({"drop": ["ALL"]}));
            }
        }
    }
    if let Some(context) = object_at(spec, &["securityContext"]) {
        context.insert("seccompProfile".to_owned(), json!({"type": "RuntimeDefault"}));
        if let Some(user) = user {
            context.insert("runAsUser".to_owned(), user.into());
            context.insert("runAsNonRoot".to_owned(), true.into());
        }
    }
}

/// The images of all containers of a Pod.
pub(super) fn images(pod: &Value) -> Vec<&str> {
    let of = |list: &'static str| items(pod, list).map(|one| text(one, "/image"));
    of("/spec/initContainers").chain(of("/spec/containers")).collect()
}

/// Whether a Pod is the wanted one: the labels, the hash among them, and the images.
pub(super) fn is_same(found: &Value, wanted: &Value) -> bool {
    let labels = wanted.pointer("/metadata/labels").and_then(Value::as_object);
    let has = |key: &str, value: &Value| {
        found
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(key))
            == Some(value)
    };
    labels.is_some_and(|labels| labels.iter().all(|(key, value)| has(key, value)))
        && images(found) == images(wanted)
}

/// Whether a Pod has lost its node, or is about to: nothing may report that it is gone.
pub(super) fn is_dead(pod: &Value) -> bool {
    let is_disrupted = |condition: &Value| {
        text(condition, "/type") == "DisruptionTarget" && text(condition, "/status") == "True"
    };
    items(pod, "/status/conditions").any(is_disrupted)
}
