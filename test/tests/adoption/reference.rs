//! The state that the reference implementation leaves on a cluster: revisions of its Boxcutter runtime, releases of its
//! Helm runtime, and the objects of both. They are created by separate rules, not with the code under test.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use olm_test::objects::api;
use olm_test::world::World;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The namespace of the reference implementation's records.
pub(crate) const SYSTEM: &str = "olmv1-system";
/// The size of a part of a release, in bytes.
const CHUNK_BYTES: usize = 1_040_384;

/// An extension as the reference has installed it.
pub(crate) struct Installed<'a> {
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) package: &'a str,
    pub(crate) version: &'a str,
    pub(crate) image: &'a str,
    /// The objects of the bundle as they are rendered.
    pub(crate) objects: &'a [Value],
}

pub(crate) fn name(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Creates an object with this field manager, and returns it.
async fn create(world: &World, object: &Value, manager: &str) -> Result<Value> {
    let params = PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    };
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    let made = api(&world.client, object).create(&params, &typed).await;
    let made = made.with_context(|| format!("cannot make {} {}", object["kind"], name(object)))?;
    Ok(serde_json::to_value(made)?)
}

/// Creates an object like the Boxcutter runtime, which marks the fields of a POST as applied.
async fn create_applied(world: &World, object: &Value) -> Result<()> {
    let made = create(world, object, "olm.operatorframework.io").await?;
    let fields: Vec<Value> = made["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            let mut entry = entry.clone();
            if entry["manager"] == "olm.operatorframework.io" {
                entry["operation"] = json!("Apply");
            }
            entry
        })
        .collect();
    let version = &made["metadata"]["resourceVersion"];
    let converted = json!({"metadata": {"managedFields": fields, "resourceVersion": version}});
    // Another writer may change the object first; then it is read again.
    if patch(world, object, converted).await.is_err() {
        patch(world, object, json!({"metadata": {"managedFields": fields}})).await?;
    }
    Ok(())
}

async fn patch(world: &World, object: &Value, patch: Value) -> Result<()> {
    let params = PatchParams::default();
    api(&world.client, object)
        .patch(name(object), &params, &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Sets texts of a map in the metadata.
fn mark(object: &mut Value, map: &str, texts: &[(&str, &str)]) {
    for (key, text) in texts {
        object["metadata"][map][*key] = json!(text);
    }
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{
        "apiVersion": "olm.operatorframework.io/v1", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A revision that the reference made.
struct Revision {
    number: u32,
    name: String,
    uid: String,
    /// The objects as it holds them.
    objects: Vec<Value>,
    /// The observed phases.
    observed: Vec<Value>,
}

impl Revision {
    /// The objects as a revision applies them, phase by phase.
    fn marked(&self) -> Vec<Value> {
        let mut objects = self.objects.clone();
        objects.sort_by_key(|object| (phase(object), sort_key(object)));
        for object in &mut objects {
            mark(
                object,
                "labels",
                &[("app.kubernetes.io/managed-by", "olm.operatorframework.io")],
            );
            mark(
                object,
                "annotations",
                &[("olm.operatorframework.io/revision", &self.number.to_string())],
            );
        }
        objects
    }

    async fn write_status(&self, world: &World, conditions: &[Value]) -> Result<()> {
        let set = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": self.name},
        });
        let status = json!({"observedPhases": self.observed, "conditions": conditions});
        write_status(world, &set, status).await
    }
}

impl Installed<'_> {
    fn bundle(&self) -> String {
        format!("{}.v{}", self.package, self.version)
    }

    fn owner_labels(&self) -> [(&'static str, &str); 2] {
        [
            ("olm.operatorframework.io/owner-kind", "ClusterExtension"),
            ("olm.operatorframework.io/owner-name", self.name),
        ]
    }

    /// The facts about the bundle in revisions and releases.
    fn texts(&self) -> Value {
        json!({
            "olm.operatorframework.io/bundle-name": self.bundle(),
            "olm.operatorframework.io/package-name": self.package,
            "olm.operatorframework.io/bundle-version": self.version,
            "olm.operatorframework.io/bundle-reference": self.image,
        })
    }

    /// The status that both runtimes write of an extension that is installed.
    pub(crate) async fn write_status(&self, world: &World) -> Result<()> {
        let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": self.name}});
        let conditions = [condition(
            "Installed",
            "Succeeded",
            &format!("Installed bundle {} successfully", self.image),
        )];
        let status = json!({
            "conditions": conditions,
            "install": {"bundle": {"name": self.bundle(), "version": self.version}},
        });
        write_status(world, &extension, status).await
    }

    /// The Boxcutter runtime: a revision, its Secret, and its objects.
    pub(crate) async fn by_boxcutter(&self, world: &World) -> Result<()> {
        let revision = self.revision(world, 1).await?;
        for object in &revision.marked() {
            let mut object = object.clone();
            object["metadata"]["ownerReferences"] = owner("ClusterObjectSet", &revision.name, &revision.uid);
            create_applied(world, &object).await?;
        }
        let conditions = [
            condition(
                "Available",
                "ProbesSucceeded",
                "Objects are available and pass all probes.",
            ),
            condition("Succeeded", "Succeeded", "Revision succeeded rolling out."),
        ];
        revision.write_status(world, &conditions).await
    }

    /// The same in the middle of an upgrade: a second revision has the objects of its first phases, which the first one
    /// no longer controls.
    pub(crate) async fn begins_by_boxcutter(&self, world: &World, before: &str, phases: usize) -> Result<()> {
        let revision = self.revision(world, 2).await?;
        let first = format!("{}-1", self.name);
        for object in revision.marked().iter().filter(|object| phase(object) < phases) {
            let mut object = object.clone();
            let mut owners = owner("ClusterObjectSet", &revision.name, &revision.uid);
            let mut former = owner("ClusterObjectSet", &first, before)[0].take();
            former["controller"] = json!(false);
            if let Some(owners) = owners.as_array_mut() {
                owners.push(former);
            }
            object["metadata"]["ownerReferences"] = owners;
            let params = PatchParams::apply("olm.operatorframework.io").force();
            api(&world.client, &object)
                .patch(name(&object), &params, &Patch::Apply(&object))
                .await?;
        }
        let mut available = condition("Available", "ProbeFailure", "not yet");
        available["status"] = json!("False");
        let message = format!("Revision {} is rolling out.", self.version);
        revision
            .write_status(
                world,
                &[condition("Progressing", "RollingOut", &message), available],
            )
            .await
    }

    /// A revision and its Secret.
    async fn revision(&self, world: &World, number: u32) -> Result<Revision> {
        let set_name = format!("{}-{number}", self.name);
        let mut phases: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        let mut objects = self.objects.to_vec();
        for object in &mut objects {
            mark(object, "labels", &self.owner_labels());
            let annotations = [
                ("olm.operatorframework.io/bundle-version", self.version),
                ("olm.operatorframework.io/package-name", self.package),
            ];
            mark(object, "annotations", &annotations);
            phases.entry(phase(object)).or_default().push(object.clone());
        }
        let mut data: BTreeMap<String, String> = BTreeMap::new();
        let mut references = Vec::new();
        let mut observed = Vec::new();
        for (number, objects) in &mut phases {
            objects.sort_by_key(sort_key);
            let text = format!(
                "{{\"name\":\"{}\",\"objects\":[{}]}}",
                PHASES[*number].0,
                objects.iter().map(go_json).collect::<Vec<_>>().join(",")
            );
            observed.push(
                json!({"name": PHASES[*number].0, "digest": format!("sha256:{}", hex::encode(Sha256::digest(text)))}),
            );
            let mut keys = Vec::new();
            for object in objects.iter() {
                let text = go_json(object);
                let key = URL_SAFE_NO_PAD.encode(Sha256::digest(&text));
                data.insert(key.clone(), text);
                keys.push(key);
            }
            references.push((PHASES[*number].0, keys));
        }
        let secret_name = format!("{set_name}-{}", content_name(&data));
        let phases: Vec<Value> = references
            .iter()
            .map(|(phase, keys)| {
                let objects: Vec<Value> = keys
                    .iter()
                    .map(|key| json!({"ref": {"name": secret_name, "namespace": SYSTEM, "key": key}}))
                    .collect();
                json!({"name": phase, "objects": objects})
            })
            .collect();
        let encoded: BTreeMap<&String, String> = data
            .iter()
            .map(|(key, text)| (key, STANDARD.encode(text)))
            .collect();
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": true,
            "metadata": {"name": secret_name, "namespace": SYSTEM, "labels": {
                "olm.operatorframework.io/revision-name": set_name, "olm.operatorframework.io/owner-name": self.name}},
            "data": encoded,
        });
        let manager = "olm.operatorframework.io/clusterextension-controller";
        let mut set = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {
                "name": set_name, "annotations": self.texts(), "labels": {},
                "finalizers": ["olm.operatorframework.io/teardown"],
                "ownerReferences": owner("ClusterExtension", self.name, self.uid),
            },
            "spec": {
                "lifecycleState": "Active", "collisionProtection": "Prevent", "revision": number, "phases": phases,
                "progressionProbes": probes(),
            },
        });
        mark(&mut set, "labels", &self.owner_labels());
        let made = create(world, &set, manager).await?;
        let uid = made["metadata"]["uid"].as_str().context("a UID")?;
        secret["metadata"]["ownerReferences"] = owner("ClusterObjectSet", &set_name, uid);
        create(world, &secret, "operator-controller").await?;
        Ok(Revision {
            number,
            name: set_name,
            uid: uid.to_owned(),
            objects,
            observed,
        })
    }

    /// The Helm runtime: a release, superseded, deployed, failed and unfinished ones, and the objects.
    pub(crate) async fn by_helm(&self, world: &World) -> Result<()> {
        let mut manifest = String::new();
        let mut objects = self.objects.to_vec();
        objects.sort_by_key(|object| (phase(object), sort_key(object)));
        for object in &mut objects {
            mark(object, "labels", &self.owner_labels());
            object["metadata"]["ownerReferences"] = owner("ClusterExtension", self.name, self.uid);
            manifest.push_str(&go_json(object));
            manifest.push('\n');
            mark(object, "labels", &[("app.kubernetes.io/managed-by", "Helm")]);
            let namespace = self.name;
            let annotations = [
                ("meta.helm.sh/release-name", self.name),
                ("meta.helm.sh/release-namespace", namespace),
            ];
            mark(object, "annotations", &annotations);
            create(world, object, "operator-controller").await?;
        }
        for (number, state) in [
            (1, "superseded"),
            (2, "deployed"),
            (3, "failed"),
            (4, "pending-upgrade"),
        ] {
            let filler = if state == "deployed" { 1_300_000 } else { 100 };
            let release = json!({
                "name": self.name, "namespace": self.name, "version": number, "labels": self.texts(),
                "info": {"status": state, "description": "Install complete"},
                "chart": {"metadata": {}, "files": [{"name": "object.json", "data": STANDARD.encode(noise(filler))}]},
                "config": {}, "manifest": if state == "deployed" { manifest.as_str() } else { "" },
            });
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            writeln!(encoder, "{release}")?;
            self.store(world, number, state, &encoder.finish()?).await?;
        }
        Ok(())
    }

    /// Stores a release's bytes.
    pub(crate) async fn store(&self, world: &World, number: u32, state: &str, bytes: &[u8]) -> Result<()> {
        let key = format!("sh.helm.release.v1.{}.v{number}", self.name);
        let mut chunks = bytes.chunks(CHUNK_BYTES);
        let first = chunks.next().unwrap_or_default();
        let others: Vec<(String, &[u8])> = chunks
            .map(|chunk| (format!("{key}-{}", fnv(chunk)), chunk))
            .collect();
        let names: Vec<&String> = others.iter().map(|(name, _)| name).collect();
        let index = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "operatorframework.io/index.v1", "immutable": false,
            "metadata": {
                "name": key, "namespace": SYSTEM, "ownerReferences": owner("ClusterExtension", self.name, self.uid),
                "labels": {
                    "name": self.name, "owner": "operator-controller", "status": state, "version": number.to_string(),
                    "key": key, "type": "index", "createdAt": "1700000000",
                },
            },
            "data": {"chunk": STANDARD.encode(first), "extraChunks": STANDARD.encode(serde_json::to_vec(&names)?)},
        });
        let made = create(world, &index, "operator-controller").await?;
        for (name, chunk) in others {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "operatorframework.io/chunk.v1", "immutable": true,
                "metadata": {
                    "name": name, "namespace": SYSTEM,
                    "labels": {"owner": "operator-controller", "key": key, "type": "chunk", "createdAt": "1700000000"},
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Secret", "name": key, "uid": made["metadata"]["uid"],
                        "controller": true, "blockOwnerDeletion": false,
                    }],
                },
                "data": {"chunk": STANDARD.encode(chunk)},
            });
            create(world, &secret, "operator-controller").await?;
        }
        Ok(())
    }
}

async fn write_status(world: &World, object: &Value, status: Value) -> Result<()> {
    let params = PatchParams::default();
    api(&world.client, object)
        .patch_status(name(object), &params, &Patch::Merge(&json!({ "status": status })))
        .await?;
    Ok(())
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// The number of phases up to that of the definitions.
pub(crate) const UP_TO_DEFINITIONS: usize = 3;

/// The phases of the kinds that the sample has, in their order.
const PHASES: [(&str, &str); 6] = [
    ("identity", "ServiceAccount"),
    ("configuration", "ConfigMap"),
    ("crds", "CustomResourceDefinition"),
    ("roles", "ClusterRole"),
    ("bindings", "ClusterRoleBinding"),
    ("deploy", "Deployment"),
];

fn phase(object: &Value) -> usize {
    let position = PHASES.iter().position(|(_, kind)| object["kind"] == *kind);
    position.unwrap_or_else(|| panic!("the sample has no {}", object["kind"]))
}

fn sort_key(object: &Value) -> (String, String) {
    (object["apiVersion"].to_string(), name(object).to_owned())
}

fn probes() -> Value {
    let equal =
        |kind: &str| json!({"type": "ConditionEqual", "conditionEqual": {"type": kind, "status": "True"}});
    let phase = |value: &str| json!({"type": "FieldValue", "fieldValue": {"fieldPath": "status.phase", "value": value}});
    let updated = json!({"type": "FieldsEqual", "fieldsEqual": {"fieldA": "status.updatedReplicas", "fieldB": "status.replicas"}});
    let probe = |group: &str, kind: &str, assertions: Value| json!({"selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": kind}}, "assertions": assertions});
    json!([
        probe(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!([equal("Established")])
        ),
        probe("cert-manager.io", "Certificate", json!([equal("Ready")])),
        probe("cert-manager.io", "Issuer", json!([equal("Ready")])),
        probe("", "Namespace", json!([phase("Active")])),
        probe("", "PersistentVolumeClaim", json!([phase("Bound")])),
        probe("apps", "StatefulSet", json!([updated, equal("Available")])),
        probe("apps", "Deployment", json!([updated, equal("Available")])),
    ])
}

/// The suffix of the name of a Secret with these objects.
fn content_name(data: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for (key, value) in data {
        hash.update(key);
        hash.update(value);
    }
    hex::encode(hash.finalize())[..16].to_owned()
}

/// JSON in the form of Go: sorted keys, no white space, escaped HTML characters.
fn go_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            let entries: Vec<String> = sorted
                .iter()
                .map(|(key, value)| format!("{}:{}", go_json(&json!(key)), go_json(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_json).collect();
            format!("[{}]", items.join(","))
        }
        other => other
            .to_string()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026"),
    }
}

/// FNV-1a of 64 bits in base 32.
fn fnv(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let alphabet = b"abcdefghijklmnopqrstuvwxyz123456";
    // 64 bits make 13 digits, the last of which is filled with a zero bit.
    (0..13)
        .map(|digit| {
            let five = (u128::from(hash) << 1) >> (60 - 5 * digit);
            char::from(alphabet[usize::try_from(five & 31).unwrap_or_default()])
        })
        .collect()
}

/// Bytes that cannot be compressed.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
