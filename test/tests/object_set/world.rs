//! The cluster and the controller, and the operations of tests on them.

use std::{
    collections::BTreeSet,
    process::Stdio,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
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
use olm_api::ClusterObjectSet;
use olm_platform::metrics::Metrics;
use olm_test::{
    cluster::{Cluster, Mode},
    objects,
};
use operator_controller::{
    cluster::{
        discover::Discovery,
        identity::{AccountName, Accounts},
    },
    metrics::counters::Counters,
    object_set::controller::{Context, ControllerOptions, run},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

pub(crate) const SYSTEM: &str = "olmv1-system";
/// The time limit of a wait; a busy machine needs much longer.
const LIMIT: Duration = Duration::from_secs(150);
/// A controller without requests for this time is idle.
pub(crate) const QUIET: Duration = Duration::from_secs(8);

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    runtime: Runtime,
    pub(crate) admin: Client,
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
            kubectl(
                &cluster,
                &["apply", "--server-side", "-k", &format!("{manifests}/crds")],
            );
            let rights = rights_of(&cluster, &format!("{manifests}/operator-controller"));
            let arguments = ["apply", "--server-side", "-f", "-"];
            olm_test::world::kubectl(&cluster, &arguments, Some(&rights)).unwrap();
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

/// The accounts and rights of a kustomization, as it gives them.
fn rights_of(cluster: &Cluster, folder: &str) -> String {
    let rendered = olm_test::world::kubectl(cluster, &["kustomize", folder], None).unwrap();
    let is_right = |object: &&str| {
        let mut kinds = object.lines().filter_map(|line| line.strip_prefix("kind: "));
        kinds.any(|kind| objects::RIGHTS.contains(&kind))
    };
    let rights: Vec<&str> = rendered.split("\n---\n").filter(is_right).collect();
    rights.join("\n---\n")
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

/// The client configuration of a service account.
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
    pub(crate) fn start(&self, default_account: Option<AccountName>) -> CancellationToken {
        let stop = CancellationToken::new();
        let _entered = self.runtime.enter();
        let own = Client::try_from(self.config.clone()).unwrap();
        let options = ControllerOptions {
            system_namespace: SYSTEM.to_owned(),
            default_account,
            concurrency: 8,
            // All deadlines of ten minutes have passed.
            clock: || Timestamp::now() + SignedDuration::from_mins(11),
            counters: Counters::default(),
        };
        let accounts = Accounts::new(&self.config, own.clone(), &Metrics::default()).unwrap();
        let context = Arc::new(Context::new(
            own.clone(),
            Arc::new(accounts),
            Arc::new(Discovery::new(own.clone())),
            Arc::default(),
            Arc::default(),
            Arc::default(),
            options,
        ));
        let (sets, stopped) = (Arc::clone(context.sets()), stop.clone());
        self.runtime
            .spawn(async move { stopped.run_until_cancelled(sets.follow(&own)).await });
        self.runtime.spawn(run(context, stop.clone()));
        stop
    }

    pub(crate) fn sets(&self) -> Api<ClusterObjectSet> {
        Api::all(self.admin.clone())
    }

    /// A separate namespace, with an account that has all rights there and the rights of the rules elsewhere.
    pub(crate) async fn place(&self, rules: Value) -> Place {
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
pub(crate) struct Place {
    pub(crate) world: &'static World,
    pub(crate) name: String,
}

pub(crate) fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
}

impl Place {
    pub(crate) fn api(&self, object: &Value) -> Api<DynamicObject> {
        objects::api(&self.world.admin, object)
    }

    pub(crate) async fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        self.api(&object)
            .patch(name, &params, &Patch::Apply(&object))
            .await
            .unwrap();
    }

    /// Adds a webhook without support for dry runs to the ConfigMaps of this place.
    pub(crate) async fn hinder_dry_runs(&self) {
        let webhook = objects::silent_webhook(&self.name, &self.name, "", "configmaps");
        self.apply(webhook).await;
        self.world.cluster.give_side_effects(&self.name).await.unwrap();
        let probe = self.config_map("probe");
        let (api, probe) = (self.api(&probe), serde_json::from_value(probe).unwrap());
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually("no dry run can be made", async || {
            let asked = api.create(&params, &probe).await;
            asked.is_err_and(|error| error.to_string().contains("does not support dry run"))
        })
        .await;
    }

    pub(crate) async fn live(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.ok().flatten();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    pub(crate) async fn account(&self) {
        self.apply(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": self.name}}))
            .await;
    }

    /// A ClusterRole of this place.
    pub(crate) fn role(&self) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{}-role", self.name)},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]})
    }

    /// Grants rights to the account `installer`.
    pub(crate) async fn grant(&self, rules: Value) {
        self.apply(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": self.name}, "rules": rules}),
        )
        .await;
        self.bind("installer").await;
    }

    /// Grants the rights of the place to an account.
    pub(crate) async fn bind(&self, account: &str) {
        self.apply(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{}-{account}", self.name)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.name}]}),
        )
        .await;
    }

    pub(crate) fn config_map(&self, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.name},
            "data": {"key": "value"}})
    }

    pub(crate) fn deployment(&self, name: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": self.name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{
                "name": "main", "image": "registry.invalid/image:1", "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
            }]},
        }}})
    }

    /// The definition of a kind of this place, and an object of it.
    pub(crate) fn custom(&self) -> (Value, Value) {
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
    pub(crate) fn set(&self, revision: i64, phases: &[(&str, Vec<Value>)]) -> Value {
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

    pub(crate) async fn create(&self, set: &Value) -> String {
        let set: ClusterObjectSet = serde_json::from_value(set.clone()).unwrap();
        self.world
            .sets()
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
        set.name().to_owned()
    }

    pub(crate) async fn annotate(&self, set: &str, key: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.world
            .sets()
            .patch(set, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    pub(crate) async fn remove(&self, set: &str) {
        self.world
            .sets()
            .delete(set, &DeleteParams::background())
            .await
            .unwrap();
    }

    /// Waits until the set has a condition `TYPE=STATUS/REASON` with a message that begins with or contains this text.
    pub(crate) async fn until(&self, set: &str, wanted: &str, message: &str) -> ClusterObjectSet {
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

    pub(crate) async fn until_gone(&self, set: &str) {
        let gone = async || self.world.sets().get_opt(set).await.unwrap().is_none();
        eventually(&format!("{set} is gone"), gone).await;
    }

    /// The objects of the extension in the namespace and outside.
    pub(crate) async fn left(&self) -> Vec<String> {
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

pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition().await {
        assert!(Instant::now() < end, "not within {} s: {what}", LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs a test in a place whose account has the rights.
pub(crate) fn in_place(rules: Value, test: impl AsyncFnOnce(Place)) {
    let world = world();
    world
        .runtime
        .block_on(async { test(world.place(rules).await).await });
}

impl World {
    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.cluster.audit_log()).unwrap();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The writers of objects of these resources in a namespace, other than Kubernetes' own controllers and this test.
    pub(crate) fn writers(&self, namespace: &str, resources: &[&str]) -> BTreeSet<String> {
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
    pub(crate) fn deletions(&self, place: &str) -> Vec<String> {
        let user = format!("system:serviceaccount:{place}:installer");
        self.audit()
            .iter()
            .filter(|entry| entry["verb"] == "delete" && entry["user"]["username"] == *user)
            .filter_map(|entry| entry["requestURI"].as_str().map(str::to_owned))
            .collect()
    }

    /// The requests of the controller and its accounts to the API server from `from` on, except reviews and tokens.
    pub(crate) fn requests(&self, from: usize) -> Vec<String> {
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
