//! Objects that OLM classic leaves on a cluster after it has installed the sample operator, made by rules of this
//! module and not with the code under test. Its controllers do not run.

use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use olm_test::objects::api;
use olm_test::samples;
use olm_test::world::{World, repository};
use serde_json::{Value, json};

use super::serving::{APPLIED, Serving};

/// Namespace of catalogs of OLM classic.
pub(crate) const CATALOGS: &str = "olm";
/// Field manager of the controller of Subscriptions and InstallPlans.
const CATALOG: &str = "catalog";
/// Field manager of the controller of ClusterServiceVersions.
const OLM: &str = "olm";
const TIME: &str = "2026-01-01T00:00:00Z";

/// An installed version of the sample operator under another name.
pub(crate) struct Installed<'a> {
    pub(crate) world: &'a World,
    /// The package; the namespace and the Subscription are called so too.
    pub(crate) package: &'a str,
    /// The installed version.
    pub(crate) number: &'a str,
    /// The image of the bundle.
    pub(crate) bundle: &'a str,
    /// The image of the catalog.
    pub(crate) catalog: &'a str,
}

/// Installs the kinds of OLM classic.
pub(crate) fn definitions(world: &World) -> Result<()> {
    let path = repository().join("test/samples/classic/definitions.yaml");
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    for plural in [
        "subscriptions",
        "installplans",
        "clusterserviceversions",
        "operatorgroups",
        "catalogsources",
    ] {
        let name = format!("crd/{plural}.operators.coreos.com");
        world.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &name])?;
    }
    world.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CATALOGS}})])
}

/// Makes an object as that field manager, with its status.
async fn create(world: &World, object: &Value, manager: &str) -> Result<Value> {
    if manager == APPLIED {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply(APPLIED).force();
        let applied = api(&world.client, object)
            .patch(name, &params, &Patch::Apply(object))
            .await?;
        return Ok(serde_json::to_value(applied)?);
    }
    let params = PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    };
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    let named = || format!("cannot make {} {}", object["kind"], object["metadata"]["name"]);
    let made = api(&world.client, object)
        .create(&params, &typed)
        .await
        .with_context(named)?;
    let mut made = serde_json::to_value(made)?;
    if object.get("status").is_some() {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let patch = json!({"status": object["status"]});
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let written = api(&world.client, object)
            .patch_status(name, &params, &Patch::Merge(&patch))
            .await;
        made = serde_json::to_value(written.with_context(named)?)?;
    }
    Ok(made)
}

impl Installed<'_> {
    /// The name of the ClusterServiceVersion.
    pub(crate) fn version(&self) -> String {
        format!("{}.v{}", self.package, self.number)
    }

    fn channel(&self) -> &str {
        if samples::WITH_WEBHOOKS_ALONE.contains(&self.number) {
            "converted"
        } else {
            "stable"
        }
    }

    fn operator(&self) -> String {
        format!("{}-operator", self.package)
    }

    fn owner_labels(&self) -> Value {
        json!({
            "olm.managed": "true", "olm.owner": self.version(), "olm.owner.namespace": self.package,
            "olm.owner.kind": "ClusterServiceVersion",
            format!("operators.coreos.com/{0}.{0}", self.package): "",
        })
    }

    /// All of it, at rest.
    pub(crate) async fn install(&self) -> Result<()> {
        let (world, package) = (self.world, self.package);
        let at = |name: &str| json!({"name": name, "namespace": package});
        world.apply(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": package}}),
            json!({
                "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": at("all"), "spec": {},
            }),
        ])?;
        let group = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": at("all"),
        });
        let status = json!({"status": {"namespaces": [""], "lastUpdated": TIME}});
        api(&world.client, &group)
            .patch_status("all", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        let source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": format!("{package}-source"), "namespace": CATALOGS},
            "spec": {"sourceType": "grpc", "image": self.catalog, "displayName": "Samples",
                "updateStrategy": {"registryPoll": {"interval": "45m"}}},
        });
        create(world, &source, "kubectl-create").await?;
        let subscription = self.subscription().await?;
        let steps = self.objects().await?;
        let plan = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
            "metadata": {
                "name": "install-abcde", "namespace": package,
                "ownerReferences": [{
                    "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "name": package,
                    "uid": subscription["metadata"]["uid"], "controller": false, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "approval": "Automatic", "approved": true, "generation": 1,
                "clusterServiceVersionNames": [self.version()],
            },
            "status": {
                "phase": "Complete", "catalogSources": [], "plan": steps,
                "bundleLookups": [{
                    "path": self.bundle, "identifier": self.version(), "replaces": "",
                    "catalogSourceRef": {"name": format!("{package}-source"), "namespace": CATALOGS},
                }],
            },
        });
        create(world, &plan, CATALOG).await?;
        Ok(())
    }

    async fn subscription(&self) -> Result<Value> {
        let package = self.package;
        let subscription = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {
                "name": package, "namespace": package,
                "labels": {format!("operators.coreos.com/{package}.{package}"): ""},
            },
            "spec": {
                "name": package, "channel": self.channel(), "source": format!("{package}-source"),
                "sourceNamespace": CATALOGS, "installPlanApproval": "Automatic", "startingCSV": self.version(),
            },
            "status": {
                "state": "AtLatestKnown", "currentCSV": self.version(), "installedCSV": self.version(),
                "lastUpdated": TIME, "installPlanGeneration": 1,
                "installPlanRef": {"kind": "InstallPlan", "name": "install-abcde", "namespace": package},
            },
        });
        create(self.world, &subscription, "kubectl-create").await
    }

    /// The ClusterServiceVersion and its objects; returns the steps of the InstallPlan.
    async fn objects(&self) -> Result<Vec<Value>> {
        let (world, package, operator) = (self.world, self.package, self.operator());
        let files = samples::renamed_bundle(package, self.number, "sample-operator:v1");
        let file = |part: &str| -> Result<Value> {
            let (_, text) = files
                .iter()
                .find(|(path, _)| path.contains(part))
                .context("the bundle has it")?;
            let mut documents = olm_yaml::documents(text.as_slice(), &olm_yaml::Limits::default());
            Ok(documents.next().context("a document")??.into_value()?)
        };
        let mut definition = file("_greetings")?;
        definition["metadata"]["labels"]["olm.managed"] = json!("true");
        definition["metadata"]["annotations"]["operatorframework.io/installed-alongside-0a1b2c"] =
            json!(format!("{package}/{}", self.version()));
        create(world, &definition, CATALOG).await?;
        let mut version = file("clusterserviceversion")?;
        version["metadata"]["namespace"] = json!(package);
        version["metadata"]["labels"] = json!({"olm.managed": "true"});
        version["metadata"]["finalizers"] = json!(["operators.coreos.com/csv-cleanup"]);
        for (key, value) in [
            ("olm.operatorGroup", "all"),
            ("olm.operatorNamespace", package),
            ("olm.targetNamespaces", ""),
        ] {
            version["metadata"]["annotations"][key] = json!(value);
        }
        version["status"] =
            json!({"phase": "Succeeded", "reason": "InstallSucceeded", "lastUpdateTime": TIME});
        let version = create(world, &version, CATALOG).await?;
        let owner = json!([{
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": self.version(),
            "uid": version["metadata"]["uid"], "controller": false, "blockOwnerDeletion": false,
        }]);
        let mut made = vec![definition, version.clone()];
        let mut parts = self.parts(&version, &owner, &operator);
        if version["spec"]["webhookdefinitions"].is_array() {
            let labels = self.owner_labels();
            let serving = Serving::new(&operator, package, &labels, &owner)?;
            let deployment = parts
                .iter_mut()
                .find(|(object, _)| object["kind"] == "Deployment");
            serving.mount(&mut deployment.context("there is one")?.0);
            parts.extend(serving.parts(&version)?);
            let name = made[0]["metadata"]["name"].as_str().unwrap_or_default();
            let params = PatchParams {
                field_manager: Some(OLM.to_owned()),
                ..PatchParams::default()
            };
            api(&world.client, &made[0])
                .patch(name, &params, &Patch::Merge(&serving.conversion()))
                .await?;
        }
        for (object, manager) in parts {
            create(world, &object, manager).await?;
            if manager == CATALOG {
                made.push(object);
            }
        }
        Ok(made.iter().map(|object| self.step(object)).collect())
    }

    /// Account, roles and Deployment, each with its writer.
    fn parts(&self, version: &Value, owner: &Value, operator: &str) -> Vec<(Value, &'static str)> {
        let package = self.package;
        let labels = self.owner_labels();
        let strategy = &version["spec"]["install"]["spec"];
        let subject = json!([{"kind": "ServiceAccount", "name": operator, "namespace": package}]);
        let rbac = "rbac.authorization.k8s.io";
        let mut parts = vec![(
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {
                    "name": operator, "namespace": package, "labels": {"olm.managed": "true"}, "ownerReferences": owner,
                },
            }),
            CATALOG,
        )];
        let role = format!("{}-{operator}-5d8f7c", self.version());
        let cluster_role = format!("{}-7b6c9d", self.version());
        for (kind, name, of) in [
            ("Role", &role, "permissions"),
            ("ClusterRole", &cluster_role, "clusterPermissions"),
        ] {
            let mut rules = json!({
                "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": {"name": name, "labels": labels},
                "rules": strategy[of][0]["rules"],
            });
            let mut binding = json!({
                "apiVersion": format!("{rbac}/v1"), "kind": format!("{kind}Binding"),
                "metadata": {"name": name, "labels": labels}, "subjects": subject,
                "roleRef": {"apiGroup": rbac, "kind": kind, "name": name},
            });
            if kind == "Role" {
                for object in [&mut rules, &mut binding] {
                    object["metadata"]["namespace"] = json!(package);
                    object["metadata"]["ownerReferences"] = owner.clone();
                }
            }
            parts.extend([(rules, CATALOG), (binding, CATALOG)]);
        }
        // The OperatorGroup is global: the rights of the Role are granted everywhere.
        let mut lifted = parts[1].0.clone();
        lifted["kind"] = json!("ClusterRole");
        let mut bound = parts[2].0.clone();
        bound["kind"] = json!("ClusterRoleBinding");
        bound["roleRef"]["kind"] = json!("ClusterRole");
        for object in [&mut lifted, &mut bound] {
            object["metadata"] = json!({"name": role, "labels": labels});
        }
        parts.extend([(lifted, OLM), (bound, OLM)]);
        let entry = &strategy["deployments"][0];
        let mut deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": entry["name"], "namespace": package, "labels": labels, "ownerReferences": owner,
            },
            "spec": entry["spec"],
        });
        deployment["metadata"]["labels"]["app.kubernetes.io/name"] = json!(package);
        deployment["metadata"]["labels"]["olm.deployment-spec-hash"] = json!("9dYb2");
        deployment["spec"]["revisionHistoryLimit"] = json!(1);
        deployment["spec"]["template"]["metadata"]["annotations"] =
            version["metadata"]["annotations"].clone();
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        if let Some(env) = container["env"].as_array_mut() {
            env.push(json!({"name": "OPERATOR_CONDITION_NAME", "value": self.version()}));
        }
        parts.push((deployment, OLM));
        parts
    }

    fn step(&self, object: &Value) -> Value {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        json!({
            "resolving": self.version(), "status": "Created",
            "resource": {
                "group": group, "version": version, "kind": object["kind"], "name": object["metadata"]["name"],
                "sourceName": format!("{}-source", self.package), "sourceNamespace": CATALOGS, "manifest": "{}",
            },
        })
    }
}
