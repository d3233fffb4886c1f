//! ClusterObjectSets on a real control plane: the controller runs in this process with the rights that the shipped
//! manifests give it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    process::Stdio,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use olm_api::{ClusterObjectSet, conditions, names};
use olm_test::cluster::{Cluster, Mode};
use operator_controller::{
    cluster::identity::AccountName,
    object_set::controller::{Context, Options, run},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const SYSTEM: &str = "olmv1-system";
/// How long anything is waited for; on a busy machine all of it takes much longer.
const LIMIT: Duration = Duration::from_secs(150);
/// Who asks for nothing for so long has come to rest.
const QUIET: Duration = Duration::from_secs(8);

struct World {
    cluster: Cluster,
    runtime: Runtime,
    admin: Client,
    config: Config,
}

/// One cluster and one controller for all tests of this file.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (cluster, admin, config) = runtime.block_on(async {
            let cluster = Cluster::start(Mode::Simulated).await.unwrap();
            let admin = cluster.client().await.unwrap();
            kubectl(&cluster, &["create", "namespace", SYSTEM]);
            let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests");
            for (how, part) in [
                ("-k", "crds"),
                ("-f", "operator-controller/rbac.yaml"),
                ("-f", "operator-controller/rbac-watch.yaml"),
            ] {
                let part = format!("{manifests}/{part}");
                kubectl(&cluster, &["apply", "--server-side", "-n", SYSTEM, how, &part]);
            }
            kubectl(&cluster, &["wait", "--for=condition=Established", "crd", "--all"]);
            let config = config_of(&cluster, &admin, SYSTEM, "operator-controller-controller-manager").await;
            (cluster, admin, config)
        });
        let world = World {
            cluster,
            runtime,
            admin,
            config,
        };
        world.start(None);
        world
    })
}

fn kubectl(cluster: &Cluster, arguments: &[&str]) {
    let output = cluster
        .exec("kubectl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// How to reach the cluster as a service account.
async fn config_of(cluster: &Cluster, admin: &Client, namespace: &str, name: &str) -> Config {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(7200),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .unwrap();
    let file = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info = AuthInfo {
        token: answer.status.unwrap().token.map(Into::into),
        ..AuthInfo::default()
    };
    config.default_retry = false;
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static("operator-controller/test"),
    ));
    config
}

impl World {
    /// Starts a controller; it stops when the token is cancelled.
    fn start(&self, default_account: Option<AccountName>) -> CancellationToken {
        let stop = CancellationToken::new();
        let _entered = self.runtime.enter();
        let own = Client::try_from(self.config.clone()).unwrap();
        let options = Options {
            system_namespace: SYSTEM.to_owned(),
            default_account,
            concurrency: 8,
        };
        let context = Context::new(&self.config, own, options).unwrap();
        self.runtime.spawn(run(Arc::new(context), stop.clone()));
        stop
    }

    fn sets(&self) -> Api<ClusterObjectSet> {
        Api::all(self.admin.clone())
    }

    /// A namespace of its own, with an account that may do everything there and what the rules say elsewhere.
    async fn place(&self, rules: Value) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("place-{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let place = Place { world: world(), name };
        place
            .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.name}}))
            .await;
        place.account().await;
        place.grant(rules).await;
        place
    }
}

/// A namespace with an account called `installer`.
struct Place {
    world: &'static World,
    name: String,
}

fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
}

impl Place {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = text("/apiVersion")
            .split_once('/')
            .unwrap_or(("", text("/apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
        let client = self.world.admin.clone();
        match object.pointer("/metadata/namespace").and_then(Value::as_str) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        self.api(&object)
            .patch(name, &params, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    async fn live(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.ok().flatten();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    async fn account(&self) {
        self.apply(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": self.name}}))
            .await;
    }

    async fn grant(&self, rules: Value) {
        let metadata = json!({"name": self.name});
        let version = "rbac.authorization.k8s.io/v1";
        self.apply(
            json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
        )
        .await;
        self.apply(
            json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.name},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": self.name}]}),
        )
        .await;
    }

    fn config_map(&self, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.name},
            "data": {"key": "value"}})
    }

    fn deployment(&self, name: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": self.name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{
                "name": "main", "image": "registry.invalid/image:1", "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
            }]},
        }}})
    }

    /// The definition of a kind of this place's own, and an object of it.
    fn custom(&self) -> (Value, Value) {
        let group = format!("{}.example.com", self.name);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("foos.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Foo",
            "metadata": {"name": "foo", "namespace": self.name}, "spec": {"size": 3}});
        (definition, object)
    }

    /// Revision `revision` of an extension named like the place.
    fn set(&self, revision: i64, phases: &[(&str, Vec<Value>)]) -> Value {
        let phases: Vec<Value> = phases
            .iter()
            .map(|(name, objects)| {
                let objects: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
                json!({"name": name, "objects": objects})
            })
            .collect();
        let condition = |kind: &str, group: &str, condition: &str| {
            json!({
                "selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": kind}},
                "assertions": [{"type": "ConditionEqual", "conditionEqual": {"type": condition, "status": "True"}}],
            })
        };
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {
                "name": format!("{}-{revision}", self.name),
                "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": self.name},
                "annotations": {
                    "olm.operatorframework.io/service-account": format!("{}/installer", self.name),
                    "olm.operatorframework.io/bundle-version": format!("{revision}.0.0"),
                },
            },
            "spec": {
                "lifecycleState": "Active", "revision": revision, "collisionProtection": "Prevent", "phases": phases,
                "progressionProbes": [
                    condition("CustomResourceDefinition", "apiextensions.k8s.io", "Established"),
                    condition("Deployment", "apps", "Available"),
                ],
            },
        })
    }

    async fn create(&self, set: &Value) -> String {
        let set: ClusterObjectSet = serde_json::from_value(set.clone()).unwrap();
        self.world
            .sets()
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
        set.name().to_owned()
    }

    async fn annotate(&self, set: &str, key: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.world
            .sets()
            .patch(set, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    async fn remove(&self, set: &str) {
        self.world
            .sets()
            .delete(set, &DeleteParams::background())
            .await
            .unwrap();
    }

    /// Waits until the set says so: `TYPE=STATUS/REASON`, and what the message begins with or holds.
    async fn until(&self, set: &str, wanted: &str, message: &str) -> ClusterObjectSet {
        let mut last = None;
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let found = self.world.sets().get(set).await.unwrap();
            let said = found.conditions().iter().any(|c| {
                format!("{}={}/{}", c.type_, c.status, c.reason) == wanted && c.message.contains(message)
            });
            if said {
                return found;
            }
            last = Some(found);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "{set} never said {wanted}: {message}; it says {:#?}",
            last.map(|set| set.status)
        );
    }

    async fn until_gone(&self, set: &str) {
        let gone = async || self.world.sets().get_opt(set).await.unwrap().is_none();
        eventually(&format!("{set} is gone"), gone).await;
    }

    /// Everything in the namespace and beside it that belongs to the extension.
    async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let selector =
            ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={}", self.name));
        for (group, kind) in [
            ("", "ConfigMap"),
            ("", "Secret"),
            ("", "ServiceAccount"),
            ("apps", "Deployment"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(self.world.admin.clone(), &resource);
            let found = api.list(&selector).await.unwrap();
            left.extend(
                found
                    .items
                    .into_iter()
                    .map(|o| format!("{kind} {}", o.metadata.name.unwrap_or_default())),
            );
        }
        left
    }
}

async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition().await {
        assert!(Instant::now() < end, "not within {} s: {what}", LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs a test in a place whose account has the rights.
fn in_place(rules: Value, test: impl AsyncFnOnce(Place)) {
    let world = world();
    world
        .runtime
        .block_on(async { test(world.place(rules).await).await });
}

fn data(value: &str) -> Value {
    json!({"key": value})
}

#[test]
fn a_set_rolls_out_phase_by_phase_under_its_account_and_is_removed_without_leftovers() {
    in_place(everything(), async |place| {
        let (definition, custom) = place.custom();
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "secret", "namespace": place.name}, "stringData": {"key": "value"}});
        let set = place.set(
            1,
            &[
                ("configuration", vec![place.config_map("one"), secret.clone()]),
                ("crds", vec![definition.clone()]),
                ("deploy", vec![place.deployment("operator"), custom.clone()]),
            ],
        );
        let name = place.create(&set).await;
        let done = place
            .until(
                &name,
                "Progressing=True/Succeeded",
                "Revision 1.0.0 has rolled out.",
            )
            .await;
        place
            .until(
                &name,
                "Available=True/ProbesSucceeded",
                "Objects are available and pass all probes.",
            )
            .await;
        place
            .until(
                &name,
                "Succeeded=True/Succeeded",
                "Revision succeeded rolling out.",
            )
            .await;
        assert_eq!(
            done.metadata.finalizers,
            Some(vec![names::finalizer::TEARDOWN.to_owned()])
        );
        assert_eq!(done.status.unwrap().observed_phases.len(), 3);

        let live = place.live(&place.deployment("operator")).await.unwrap();
        let owner = &live["metadata"]["ownerReferences"];
        assert_eq!(owner.as_array().unwrap().len(), 1);
        assert_eq!(
            (&owner[0]["controller"], &owner[0]["blockOwnerDeletion"]),
            (&json!(true), &Value::Null)
        );
        let managers: BTreeSet<String> = live["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["subresource"].is_null())
            .map(|entry| {
                format!(
                    "{} {}",
                    entry["manager"].as_str().unwrap(),
                    entry["operation"].as_str().unwrap()
                )
            })
            .collect();
        assert!(
            managers.contains("olm.operatorframework.io Apply"),
            "{managers:?}"
        );
        assert!(
            !managers.contains("olm.operatorframework.io Update"),
            "{managers:?}"
        );

        // Nothing was written to these kinds but by the account.
        let writers = place
            .world
            .writers(&place.name, &["configmaps", "secrets", "deployments", "foos"]);
        assert_eq!(
            writers,
            BTreeSet::from([format!("system:serviceaccount:{}:installer", place.name)])
        );

        place.remove(&name).await;
        place.until_gone(&name).await;
        assert_eq!(place.left().await, Vec::<String>::new());
        assert_eq!(place.live(&custom).await, None);
        let order = place.world.deletions(&place.name);
        let at = |what: &str| {
            order
                .iter()
                .position(|path| path.contains(what))
                .unwrap_or_else(|| panic!("{order:?}"))
        };
        assert!(at("/foos/foo") < at("/customresourcedefinitions/"), "{order:?}");
        assert!(
            at("/customresourcedefinitions/") < at("/configmaps/one"),
            "{order:?}"
        );
    });
}

impl World {
    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.cluster.audit_log()).unwrap();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Who wrote objects of these resources in a namespace, other than Kubernetes' own controllers and this test.
    fn writers(&self, namespace: &str, resources: &[&str]) -> BTreeSet<String> {
        let text = |entry: &Value, pointer: &str| {
            entry
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        self.audit()
            .iter()
            .filter(|entry| text(entry, "/objectRef/namespace") == namespace)
            .filter(|entry| resources.contains(&text(entry, "/objectRef/resource").as_str()))
            .filter(|entry| ["create", "patch", "update", "delete"].contains(&text(entry, "/verb").as_str()))
            .filter(|entry| text(entry, "/objectRef/subresource").is_empty())
            .map(|entry| text(entry, "/user/username"))
            .filter(|user| {
                user.starts_with("system:serviceaccount:") && !user.starts_with("system:serviceaccount:kube-")
            })
            .collect()
    }

    /// The paths that an installer deleted, in order.
    fn deletions(&self, place: &str) -> Vec<String> {
        let user = format!("system:serviceaccount:{place}:installer");
        self.audit()
            .iter()
            .filter(|entry| entry["verb"] == "delete" && entry["user"]["username"] == *user)
            .filter_map(|entry| entry["requestURI"].as_str().map(str::to_owned))
            .collect()
    }

    /// What the controller and its accounts asked of the API server from `from` on, without reviews and tokens.
    fn requests(&self, from: usize) -> Vec<String> {
        self.audit()
            .iter()
            .skip(from)
            .filter(|entry| {
                entry["userAgent"]
                    .as_str()
                    .is_some_and(|agent| agent.starts_with("operator-controller"))
            })
            .filter(|entry| entry["verb"] != "watch")
            .filter(|entry| {
                let resource = entry["objectRef"]["resource"].as_str().unwrap_or_default();
                !resource.starts_with("selfsubject") && entry["objectRef"]["subresource"] != "token"
            })
            .map(|entry| {
                format!(
                    "{} {}",
                    entry["verb"].as_str().unwrap_or_default(),
                    entry["requestURI"]
                )
            })
            .collect()
    }
}

#[test]
fn drift_is_repaired_within_seconds_and_what_others_add_is_kept() {
    in_place(everything(), async |place| {
        let (map, deployment) = (place.config_map("one"), place.deployment("operator"));
        let name = place
            .create(&place.set(1, &[("deploy", vec![map.clone(), deployment.clone()])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;

        let patch =
            json!({"data": {"key": "wrong", "other": "kept"}, "metadata": {"labels": {"mine": "kept"}}});
        let api = place.api(&map);
        api.patch("one", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        let restored = async || {
            place
                .live(&map)
                .await
                .is_some_and(|live| live["data"]["key"] == "value")
        };
        eventually("the field is restored", restored).await;
        let live = place.live(&map).await.unwrap();
        assert_eq!(live["data"]["other"], "kept");
        assert_eq!(live["metadata"]["labels"]["mine"], "kept");

        place.delete(&map).await;
        eventually("the object is back", async || place.live(&map).await.is_some()).await;

        // The labels by which we know it, and our owner reference, are fields like others.
        let strip = json!({"metadata": {"labels": null, "ownerReferences": null}});
        place
            .api(&deployment)
            .patch("operator", &PatchParams::default(), &Patch::Merge(&strip))
            .await
            .unwrap();
        // Without an owner it might be anybody's: it is left alone, and said.
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                "revision object collisions in phase 0",
            )
            .await;
    });
}

#[test]
fn a_new_revision_takes_over_and_the_old_one_is_archived() {
    in_place(everything(), async |place| {
        let first = place.set(
            1,
            &[(
                "deploy",
                vec![
                    place.config_map("kept"),
                    place.config_map("dropped"),
                    place.deployment("operator"),
                ],
            )],
        );
        let old = place.create(&first).await;
        place.until(&old, "Succeeded=True/Succeeded", "").await;
        let before = place.live(&place.deployment("operator")).await.unwrap();

        let mut changed = place.config_map("kept");
        changed["data"] = data("new");
        let second = place.set(
            2,
            &[(
                "deploy",
                vec![
                    changed.clone(),
                    place.config_map("added"),
                    place.deployment("operator"),
                ],
            )],
        );
        let new = place.create(&second).await;
        place.until(&new, "Succeeded=True/Succeeded", "").await;
        let archived = place
            .until(&old, "Progressing=False/Archived", "revision is archived")
            .await;
        place
            .until(&old, "Available=Unknown/Archived", "revision is archived")
            .await;
        assert_eq!(
            serde_json::to_value(archived.spec.lifecycle_state).unwrap(),
            "Archived"
        );
        eventually("its finalizer is gone", async || {
            place
                .world
                .sets()
                .get(&old)
                .await
                .unwrap()
                .metadata
                .finalizers
                .is_none()
        })
        .await;

        assert_eq!(place.live(&changed).await.unwrap()["data"], data("new"));
        assert_eq!(place.live(&place.config_map("dropped")).await, None);
        let after = place.live(&place.deployment("operator")).await.unwrap();
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["spec"], before["spec"], "the same Pods");
        let owners = after["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(
            owners
                .iter()
                .map(|owner| owner["name"].as_str().unwrap())
                .collect::<Vec<_>>(),
            [new.as_str()]
        );

        place.remove(&old).await;
        place.until_gone(&old).await;
        assert!(place.live(&changed).await.is_some());
    });
}

#[test]
fn missing_rights_are_all_told_before_anything_is_applied_and_heal() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    in_place(rules, async |place| {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{}-role", place.name)},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]});
        let set = place.set(
            1,
            &[
                ("configuration", vec![place.config_map("one")]),
                ("roles", vec![role.clone()]),
                ("deploy", vec![place.deployment("operator")]),
            ],
        );
        let name = place.create(&set).await;
        let account = format!("service account {}/installer lacks permissions:", place.name);
        let told = place.until(&name, "Progressing=True/Retrying", &account).await;
        let message = &conditions::find(told.conditions(), conditions::PROGRESSING)
            .unwrap()
            .message;
        for part in ["deployments", "clusterroles", "escalate"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("configmaps"), "{message}");
        assert_eq!(
            place.live(&place.config_map("one")).await,
            None,
            "nothing is applied"
        );

        // Rights on the kinds alone do not let it make a role that grants more than it has.
        place
            .grant(json!([{"apiGroups": ["", "apps", "rbac.authorization.k8s.io"],
            "resources": ["configmaps", "deployments", "clusterroles"],
            "verbs": ["get", "create", "patch", "delete"]}]))
            .await;
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                "permissions: escalate clusterroles",
            )
            .await;
        assert_eq!(place.live(&role).await, None);

        place.grant(everything()).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        assert!(place.live(&role).await.is_some());
    });
}

#[test]
fn a_missing_account_or_namespace_is_named_and_heals() {
    in_place(everything(), async |place| {
        let installer = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": place.name}});
        place.delete(&installer).await;
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        let message = format!("service account {}/installer does not exist", place.name);
        place.until(&name, "Progressing=True/Retrying", &message).await;
        place.account().await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;

        let mut other = place.set(2, &[("deploy", Vec::new())]);
        other["metadata"]["annotations"][names::annotation::SERVICE_ACCOUNT] = "nowhere/x".into();
        let other = place.create(&other).await;
        place
            .until(
                &other,
                "Progressing=True/Retrying",
                "namespace nowhere of service account nowhere/x does not exist",
            )
            .await;
    });
}

#[test]
fn without_an_account_nothing_is_done() {
    in_place(everything(), async |place| {
        let mut set = place.set(1, &[("deploy", vec![place.config_map("one")])]);
        set["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(names::annotation::SERVICE_ACCOUNT);
        let name = place.create(&set).await;
        let told = place
            .until(&name, "Progressing=False/Blocked", "no service account is named")
            .await;
        assert_eq!(told.metadata.finalizers, None);
        assert_eq!(place.live(&place.config_map("one")).await, None);
        place.remove(&name).await;
        place.until_gone(&name).await;
    });
}

#[test]
fn an_object_of_another_owner_is_neither_changed_nor_deleted() {
    in_place(everything(), async |place| {
        let first = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("shared")])]))
            .await;
        place.until(&first, "Succeeded=True/Succeeded", "").await;
        place.apply(place.config_map("by-hand")).await;

        let mut stranger = place.set(
            7,
            &[(
                "deploy",
                vec![place.config_map("shared"), place.config_map("by-hand")],
            )],
        );
        stranger["metadata"]["name"] = format!("{}-stranger", place.name).into();
        stranger["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = "stranger".into();
        let stranger = place.create(&stranger).await;
        let owner = format!(
            "Conflicting Owner: ClusterObjectSet.olm.operatorframework.io/v1 {first} of ClusterExtension {}",
            place.name
        );
        place.until(&stranger, "Progressing=True/Retrying", &owner).await;
        place
            .until(&stranger, "Progressing=True/Retrying", "Object ConfigMap.v1")
            .await;
        place.remove(&stranger).await;
        place.until_gone(&stranger).await;
        assert!(place.live(&place.config_map("shared")).await.is_some());
        assert!(place.live(&place.config_map("by-hand")).await.is_some());
        place.until(&first, "Progressing=True/Succeeded", "").await;
    });
}

#[test]
fn removal_waits_for_the_account_and_goes_on_when_it_is_back() {
    in_place(everything(), async |place| {
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let installer = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": place.name}});
        place.delete(&installer).await;
        place.remove(&name).await;
        let message = format!(
            "cannot remove the 1 object(s) of this revision: service account {}/installer does not exist",
            place.name
        );
        // A token of the deleted account may be good for a moment yet.
        let stuck = async || {
            let Some(set) = place.world.sets().get_opt(&name).await.unwrap() else {
                return true;
            };
            set.conditions().iter().any(|c| c.message.contains(&message))
        };
        eventually("it says what is missing", stuck).await;
        place.account().await;
        place.until_gone(&name).await;
        assert_eq!(place.left().await, Vec::<String>::new());
    });
}

#[test]
fn orphaned_objects_stay() {
    in_place(everything(), async |place| {
        // Said before the deletion: Kubernetes itself lets the objects go, whatever has become of the account.
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.annotate(&name, names::user::UNINSTALL, "orphan").await;
        eventually("the finalizer is there", async || {
            let set = place.world.sets().get(&name).await.unwrap();
            set.metadata
                .finalizers
                .iter()
                .flatten()
                .any(|finalizer| finalizer == "orphan")
        })
        .await;
        place
            .world
            .sets()
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
        place.until_gone(&name).await;
        let live = place.live(&place.config_map("one")).await.unwrap();
        assert_eq!(live["metadata"]["ownerReferences"], Value::Null);

        // Said after it: the account lets them go.
        let mut set = place.set(2, &[("deploy", vec![place.config_map("two")])]);
        set["metadata"]["name"] = format!("{}-two", place.name).into();
        set["spec"]["phases"][0]["objects"][0]["object"]["metadata"]["name"] = "two".into();
        let name = place.create(&set).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.annotate(&name, names::user::PAUSED, "nonsense").await;
        place
            .until(&name, "Progressing=False/Blocked", "unknown value \"nonsense\"")
            .await;
        place.remove(&name).await;
        let patch = json!({"metadata": {"annotations": {names::user::PAUSED: null, names::user::UNINSTALL: "orphan"}}});
        place
            .world
            .sets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        place.until_gone(&name).await;
        let live = place.live(&place.config_map("two")).await.unwrap();
        assert_eq!(live["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(live["metadata"]["labels"], Value::Null);
    });
}

#[test]
fn content_is_read_from_immutable_secrets() {
    in_place(everything(), async |place| {
        let secret = |name: &str, immutable: bool| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": immutable,
                "metadata": {"name": format!("{}-{name}", place.name), "namespace": SYSTEM,
                    "labels": {"olm.operatorframework.io/owner-name": place.name}},
                "stringData": {"object": place.config_map("from-secret").to_string()}})
        };
        let set = |revision: i64, name: &str| {
            let mut set = place.set(revision, &[("deploy", vec![])]);
            set["spec"]["phases"][0]["objects"] =
                json!([{"ref": {"name": format!("{}-{name}", place.name), "key": "object"}}]);
            set
        };
        place.apply(secret("loose", false)).await;
        let loose = place.create(&set(1, "loose")).await;
        place
            .until(
                &loose,
                "Progressing=False/Blocked",
                &format!("must have immutable set to true): {SYSTEM}/{}-loose", place.name),
            )
            .await;
        place.remove(&loose).await;
        place.until_gone(&loose).await;

        place.apply(secret("firm", true)).await;
        let firm = place.create(&set(2, "firm")).await;
        place.until(&firm, "Succeeded=True/Succeeded", "").await;
        assert!(place.live(&place.config_map("from-secret")).await.is_some());
        // A Secret that was not made for it is read as the account, which may not read there.
        let mut other = secret("other", true);
        other["metadata"]["labels"] = json!({});
        place.apply(other).await;
        let other = place.create(&set(3, "other")).await;
        place.until(&other, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn a_secret_of_somebody_else_is_not_read_for_a_set() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    in_place(rules, async |place| {
        place.apply(json!({"apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": true,
            "metadata": {"name": format!("{}-theirs", place.name), "namespace": SYSTEM,
                "labels": {"olm.operatorframework.io/owner-name": "somebody-else"}},
            "stringData": {"object": place.config_map("stolen").to_string()}})).await;
        let mut set = place.set(1, &[("deploy", vec![])]);
        set["spec"]["phases"][0]["objects"] =
            json!([{"ref": {"name": format!("{}-theirs", place.name), "key": "object"}}]);
        let name = place.create(&set).await;
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                &format!("Secret {SYSTEM}/{}-theirs not found", place.name),
            )
            .await;
        assert_eq!(place.live(&place.config_map("stolen")).await, None);
    });
}

#[test]
fn missing_kinds_are_waited_for_or_left_out_as_the_user_says() {
    in_place(everything(), async |place| {
        let (definition, custom) = place.custom();
        let phases = [
            ("deploy", vec![place.config_map("one")]),
            ("publish", vec![custom.clone()]),
        ];
        let name = place.create(&place.set(1, &phases)).await;
        let message = format!("the cluster has no kind Foo in {}.example.com/v1", place.name);
        place.until(&name, "Progressing=True/Retrying", &message).await;
        assert!(place.live(&place.config_map("one")).await.is_some());
        place.annotate(&name, names::user::MISSING_KINDS, "skip").await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.apply(definition).await;
        eventually("the object comes with its kind", async || {
            place.live(&custom).await.is_some()
        })
        .await;
    });
}

#[test]
fn objects_that_nobody_may_watch_are_looked_at_now_and_then() {
    in_place(json!([]), async |place| {
        let (definition, mut custom) = place.custom();
        place.apply(definition).await;
        let group = format!("{}.example.com", place.name);
        place.grant(json!([{"apiGroups": [group], "resources": ["foos"], "verbs": ["get", "create", "patch", "delete"]}])).await;
        let mut set = place.set(1, &[("deploy", vec![custom.clone()])]);
        set["spec"]["progressionProbes"] = json!([{
            "selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": "Foo"}},
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "spec.phase", "value": "Ready"}}],
        }]);
        let name = place.create(&set).await;
        place
            .until(
                &name,
                "Available=False/ProbeFailure",
                "missing key: \"spec.phase\"",
            )
            .await;
        custom["spec"] = json!({"phase": "Ready"});
        place.apply(custom).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn definitions_are_kept_when_the_user_wants_them() {
    in_place(everything(), async |place| {
        let (definition, custom) = place.custom();
        let mut set = place.set(
            1,
            &[
                ("crds", vec![definition.clone()]),
                ("deploy", vec![custom.clone(), place.config_map("one")]),
            ],
        );
        set["metadata"]["annotations"][names::user::UNINSTALL] = "keep-crds".into();
        let name = place.create(&set).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.remove(&name).await;
        place.until_gone(&name).await;
        assert_eq!(
            place.left().await,
            Vec::<String>::new(),
            "what is left carries no label of ours"
        );
        for kept in [definition, custom] {
            assert_eq!(
                place.live(&kept).await.unwrap()["metadata"]["ownerReferences"],
                Value::Null
            );
        }
    });
}

#[test]
fn a_paused_set_writes_nothing_and_says_what_it_would() {
    in_place(everything(), async |place| {
        let mut set = place.set(1, &[("deploy", vec![place.config_map("one")])]);
        set["metadata"]["annotations"][names::user::PAUSED] = "true".into();
        let name = place.create(&set).await;
        let message = format!("to be applied: ConfigMap.v1 {}/one", place.name);
        place.until(&name, "Progressing=False/Blocked", &message).await;
        place.annotate(&name, names::user::PAUSED, "false").await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn a_phase_that_the_server_refuses_is_not_begun() {
    in_place(everything(), async |place| {
        let mut wrong = place.config_map("wrong");
        wrong["data"] = json!({"bad key!": "x"});
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one"), wrong])]))
            .await;
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                "phase 0 validation error: v1, Kind=ConfigMap",
            )
            .await;
        assert_eq!(place.live(&place.config_map("one")).await, None);
    });
}

#[test]
fn a_quiet_set_costs_no_request_and_a_restart_writes_nothing() {
    in_place(everything(), async |place| {
        let world = place.world;
        let name = place
            .create(&place.set(
                1,
                &[(
                    "deploy",
                    vec![place.config_map("one"), place.deployment("operator")],
                )],
            ))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let mine = |from: usize| -> Vec<String> {
            let requests = world.requests(from).into_iter();
            requests.filter(|request| request.contains(&place.name)).collect()
        };
        // The Deployment's own status settles first; a set that is looked at again and again never comes to rest.
        let at_rest = async || {
            let from = world.audit().len();
            tokio::time::sleep(QUIET).await;
            mine(from).is_empty()
        };
        eventually("nothing is asked for", at_rest).await;

        let from = world.audit().len();
        let stop = world.start(None);
        eventually("the new controller has looked", async || !mine(from).is_empty()).await;
        eventually("nothing is asked for", at_rest).await;
        stop.cancel();
        let requests = mine(from);
        let writes: Vec<&String> = requests
            .iter()
            .filter(|request| !request.starts_with("get"))
            .collect();
        // The server stores what the Deployment requests (`1000m`) in another form; asking once tells that it is the same.
        assert!(
            writes.iter().all(|write| write.contains("/deployments/operator")),
            "{writes:?}"
        );
        let live = place.live(&place.deployment("operator")).await.unwrap();
        assert_eq!(live["metadata"]["generation"], 1);
    });
}
