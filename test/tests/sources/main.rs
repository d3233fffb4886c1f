//! Sources of bundles and whether they may be used, on real parts: private registries, signatures, deprecations, and
//! the feature gates that are switched off.

mod image_policies;
mod own_namespace;
mod verified;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::signature::EcdsaKeyPair;
use olm_api::conditions::{self, READY, reason};
use olm_api::updates::held_back;
use olm_api::{ClusterExtension, names};
use olm_image::Digest;
use olm_test::extensions::{
    SOON, await_progressing, await_version, catalog, extensions, installed_version, merge, patch_source,
};
use olm_test::registry::signatures::{key, sign};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

const SAMPLE: &str = "manifests/samples/greeter.yaml";
/// The Secret with the password of the registry.
const PULL_SECRET: &str = "pull";
/// The package whose bundles must be signed.
const SIGNED: &str = "signed";

/// Both managers with a signature policy; operator-controller has a pull secret, which no test finds there.
static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

struct Stage {
    world: World,
    /// The key that signs for the policy.
    pair: EcdsaKeyPair,
    /// The file with its public key.
    key: PathBuf,
    /// The file with the policy.
    policy: PathBuf,
    /// The requirements of the policy by scope. Tests run at the same time, each with its own scopes.
    scopes: Mutex<serde_json::Map<String, Value>>,
}

impl Stage {
    async fn start() -> Result<Self> {
        let pull_secret = format!("--global-pull-secret={}/{PULL_SECRET}", names::SYSTEM_NAMESPACE);
        let mut world = World::start(Options {
            operator_controller: vec![pull_secret],
            ..Options::default()
        })
        .await?;
        let (public, pair) = key()?;
        let (policy, path) = (
            world.folder().join("policy.json"),
            world.folder().join("signed.pub"),
        );
        std::fs::write(&path, public)?;
        let argument = format!("--signature-policy={}", policy.display());
        world.operator_controller.stop().await?;
        world.catalogd.stop().await?;
        // Before the managers start, so that they follow every policy from the first extension on.
        world.serve_image_policies()?;
        world.operator_controller.add_argument(argument.clone());
        world.catalogd.add_argument(argument);
        let mut stage = Self {
            world,
            pair,
            key: path,
            policy,
            scopes: Mutex::default(),
        };
        stage.write_policy(json!({}))?;
        stage.world.start_managers().await?;
        Ok(stage)
    }

    /// Writes the policy: bundles of [`SIGNED`] must be signed, further requirements are by the names of repositories and
    /// stay until others are set.
    fn write_policy(&self, further: Value) -> Result<()> {
        let registry = self.world.registry()?;
        let signed = json!([{ "type": "sigstoreSigned", "keyPath": self.key }]);
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.insert(format!("{registry}/{SIGNED}-bundle"), signed);
        for (repository, requirements) in further.as_object().into_iter().flatten() {
            scopes.insert(format!("{registry}/{repository}"), requirements.clone());
        }
        let text = json!({
            "default": [{ "type": "insecureAcceptAnything" }],
            "transports": { "docker": *scopes },
        });
        // Renamed into place, as a node does with a mounted ConfigMap.
        let next = self.policy.with_extension("next");
        std::fs::write(&next, text.to_string())?;
        Ok(std::fs::rename(next, &self.policy)?)
    }
}

/// Publishes the content of a catalog under the name of the package, and applies the extension, its account and rights.
async fn apply(
    world: &World,
    package: &str,
    blobs: &str,
    change: impl FnOnce(String) -> String,
) -> Result<()> {
    let reference = world
        .push_catalog(&format!("{package}-catalog:latest"), blobs)
        .await?;
    let path = world.sample_file(SAMPLE, package, change)?;
    world.apply(&[catalog(package, &reference)])?;
    world.kubectl(&["apply", "--server-side", "-f", &path]).map(drop)
}

#[test]
fn a_bundle_in_a_private_registry_is_pulled_with_the_global_pull_secret() -> Result<()> {
    CLUSTER.with(async |Stage { world, .. }| {
        let registry = world.cluster.registry().context("a registry")?;
        let blobs = world
            .push_bundles("private", &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        let blobs = blobs.replace(
            &format!("{}/private-bundle", registry.tls),
            &format!("{}/private-bundle", registry.auth),
        );
        ensure!(blobs.contains(&registry.auth), "{blobs}");
        apply(world, "private", &blobs, |text| text).await?;
        let message = await_progressing(world, "private", reason::RETRYING, &registry.auth).await?;
        ensure!(!message.contains(&registry.password), "{message}");
        ensure!(installed_version(&extensions(world).get("private").await?).is_none());

        let login = json!({ "username": registry.username, "password": registry.password });
        let login = json!({ "auths": { &registry.auth: login } }).to_string();
        world.apply(&[json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": { "name": PULL_SECRET, "namespace": names::SYSTEM_NAMESPACE },
            "stringData": { ".dockerconfigjson": login },
        })])?;
        await_version(world, "private", "1.0.0").await.map(drop)
    })
}

#[test]
fn a_bundle_without_the_signature_that_the_policy_asks_for_is_not_installed() -> Result<()> {
    CLUSTER.with(async |Stage { world, pair, .. }| {
        let blobs = world
            .push_bundles(SIGNED, &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        apply(world, SIGNED, &blobs, |text| text).await?;
        await_progressing(world, SIGNED, reason::RETRYING, "there is none at tag sha256-").await?;
        let extension = extensions(world).get(SIGNED).await?;
        ensure!(installed_version(&extension).is_none());
        let ready = conditions::find(extension.conditions(), READY).context("Ready")?;
        ensure!(
            ready.reason == reason::BLOCKED
                && ready.message.ends_with("\nsign the image, or change the policy"),
            "{ready:?}"
        );
        let updates = extension.status.and_then(|status| status.updates);
        let held = updates.and_then(|updates| updates.held_back_by);
        ensure!(held.as_deref() == Some(held_back::SIGNATURE), "{held:?}");
        let explained = verified::run(world, &["explain", SIGNED])?;
        let explained = String::from_utf8(explained.stdout)?;
        ensure!(
            explained.contains("(Signature)")
                && explained.contains("do what the message says about the signature"),
            "{explained}"
        );

        sign_bundles(world, SIGNED, &blobs, pair).await?;
        await_version(world, SIGNED, "1.0.0").await.map(drop)
    })
}

/// Signs the bundles that a catalog names.
async fn sign_bundles(world: &World, package: &str, blobs: &str, pair: &EcdsaKeyPair) -> Result<()> {
    let registry = world.cluster.registry().context("a registry")?;
    let repository = format!("{package}-bundle");
    for rest in blobs.split("-bundle@").skip(1) {
        let digest = rest.split('"').next().context("the bundle's digest")?;
        sign(registry, &repository, &digest.parse::<Digest>()?, pair).await?;
    }
    Ok(())
}

/// Status and message of each condition about deprecation.
fn deprecations(extension: &ClusterExtension) -> BTreeMap<&str, (String, &str)> {
    let about = extension
        .conditions()
        .iter()
        .filter(|condition| condition.type_.ends_with("Deprecated"));
    about
        .map(|found| {
            (
                found.type_.as_str(),
                (found.status.clone(), found.message.as_str()),
            )
        })
        .collect()
}

async fn await_deprecations(world: &World, name: &str, expected: [(&str, &str); 4]) -> Result<()> {
    let types = [
        "Deprecated",
        "PackageDeprecated",
        "ChannelDeprecated",
        "BundleDeprecated",
    ];
    let expected: BTreeMap<_, _> = types
        .into_iter()
        .zip(expected)
        .map(|(condition, (status, message))| (condition, (status.to_owned(), message)))
        .collect();
    world
        .eventually("the conditions say what is deprecated", SOON, async || {
            let extension = extensions(world).get(name).await?;
            let found = deprecations(&extension);
            ensure!(found == expected, "{found:#?}");
            Ok(Some(()))
        })
        .await
}

#[test]
fn deprecations_of_package_channel_and_bundle_show_in_conditions_and_are_unknown_without_a_catalog()
-> Result<()> {
    CLUSTER.with(async |Stage { world, .. }| {
        let name = "deprecated";
        let blobs = world
            .push_bundles(name, &["1.0.0", "1.0.1"], samples::OPERATOR_IMAGE)
            .await?;
        let entry = |schema: &str, name: Option<&str>, message: &str| {
            json!({ "reference": { "schema": schema, "name": name }, "message": message })
        };
        let of_package = json!({ "reference": { "schema": "olm.package" }, "message": "use another package" });
        let deprecations = json!({
            "schema": "olm.deprecations", "package": name,
            "entries": [
                of_package,
                entry("olm.channel", Some("stable"), "use another channel"),
                entry("olm.bundle", Some("deprecated.v1.0.0"), "use another version"),
            ],
        });
        let other = json!({
            "schema": "olm.channel", "package": name, "name": "other",
            "entries": [
                { "name": "deprecated.v1.0.0" },
                { "name": "deprecated.v1.0.1", "replaces": "deprecated.v1.0.0" },
            ],
        });
        apply(world, name, &format!("{blobs}\n{other}\n{deprecations}\n"), |text| {
            text.replace("1.0.x", "1.0.0")
        })
        .await?;
        await_version(world, name, "1.0.0").await?;
        let (package, channel) = (("True", "use another package"), ("True", "use another channel"));
        let all = "use another package\nuse another channel\nuse another version";
        let bundle = ("True", "use another version");
        await_deprecations(world, name, [("True", all), package, channel, bundle]).await?;

        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        await_version(world, name, "1.0.1").await?;
        let all = "use another package\nuse another channel";
        let bundle = ("False", "bundle not deprecated");
        await_deprecations(world, name, [("True", all), package, channel, bundle]).await?;

        // The bundle is in a channel that is not deprecated, and the spec does not name the other one.
        patch_source(world, name, json!({ "channels": null })).await?;
        let only_package = ("True", "use another package");
        let channel = ("False", "channel not deprecated");
        await_deprecations(world, name, [only_package, package, channel, bundle]).await?;

        world.kubectl(&["delete", "clustercatalog", name])?;
        let unknown = ("Unknown", "deprecation status unknown: catalog data unavailable");
        // An edit has the catalogs looked at again.
        let look = json!({ "metadata": { "annotations": { "example.com/look": "again" } } });
        merge(world, name, look).await?;
        await_deprecations(world, name, [unknown; 4]).await
    })
}

/// The bundle's CSV supports its own namespace alone.
fn narrow(files: &mut BTreeMap<String, Vec<u8>>) {
    for content in files.values_mut() {
        let text = String::from_utf8_lossy(content);
        let all = "- type: AllNamespaces\n      supported: true";
        *content = text
            .replace(all, "- type: AllNamespaces\n      supported: false")
            .into_bytes();
    }
}

/// Publishes version 1.0.0 of a package that runs in its own namespace alone, and applies the extension.
async fn apply_narrow(world: &World, package: &str, config: Value) -> Result<()> {
    let mut files = samples::renamed_bundle(package, "1.0.0", samples::OPERATOR_IMAGE);
    narrow(&mut files);
    let image = world
        .push_bundle(&format!("{package}-bundle:v1.0.0"), &files)
        .await?;
    let blobs = samples::renamed(package, &samples::catalog(&["1.0.0"], |_| image.clone()));
    apply(world, package, &blobs, |text| {
        let config = json!({ "configType": "Inline", "inline": config });
        format!("{text}  config: {config}\n")
    })
    .await
}

#[test]
fn a_feature_is_refused_while_its_gate_is_off() -> Result<()> {
    CLUSTER.alone(async |Stage { world, .. }| {
        let gates = "--feature-gates=SingleOwnNamespaceInstallSupport=false,DeploymentConfig=false";
        let endpoints = "--feature-gates=APIV1MetasHandler=false,GraphQLCatalogQueries=false";
        world.operator_controller.stop().await?;
        world.catalogd.stop().await?;
        world.operator_controller.add_argument(gates.to_owned());
        world.catalogd.add_argument(endpoints.to_owned());
        world.start_managers().await?;

        apply_narrow(world, "narrow", json!({ "watchNamespace": "narrow" })).await?;
        let refused = "bundle does not support AllNamespaces install mode";
        let message = await_blocked(world, "narrow", refused).await?;
        ensure!(
            installed_version(&extensions(world).get("narrow").await?).is_none(),
            "{message}"
        );
        let blobs = world
            .push_bundles("configured", &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        apply(world, "configured", &blobs, |text| {
            let environment = json!({ "env": [{ "name": "ADDED", "value": "yes" }] });
            let config = json!({ "configType": "Inline", "inline": { "deploymentConfig": environment } });
            format!("{text}  config: {config}\n")
        })
        .await?;
        await_blocked(world, "configured", "unknown field \"deploymentConfig\"").await?;
        // Without `metas` the whole catalog was read.
        ensure!(status(world, "metas").await? == 404);
        ensure!(status(world, "graphql").await? == 404);
        ensure!(status(world, "all").await? == 200);

        world.operator_controller.stop().await?;
        world.catalogd.stop().await?;
        world.operator_controller.remove_argument(gates);
        world.catalogd.remove_argument(endpoints);
        world.start_managers().await?;
        for package in ["narrow", "configured"] {
            await_version(world, package, "1.0.0").await?;
        }
        let added = "jsonpath={.spec.template.spec.containers[0].env[?(@.name==\"ADDED\")].value}";
        let operator = [
            "get",
            "deployment",
            "configured-operator",
            "-n",
            "configured",
            "-o",
            added,
        ];
        let added = world.kubectl(&operator)?;
        ensure!(added == "yes", "{added:?}");
        ensure!(status(world, "metas").await? == 200);
        Ok(())
    })
}

/// Waits until `Ready` says so, whatever its reason.
async fn await_blocked(world: &World, name: &str, part: &str) -> Result<String> {
    world
        .eventually(&format!("{name} says {part:?}"), SOON, async || {
            let extension = extensions(world).get(name).await?;
            let progressing = conditions::find(extension.conditions(), conditions::READY);
            let message = progressing.map(|found| found.message.clone()).unwrap_or_default();
            ensure!(
                message.contains(part),
                "{}",
                serde_json::to_string(&extension.status)?
            );
            Ok(Some(message))
        })
        .await
}

/// Status of catalogd's answer for an endpoint of a catalog.
async fn status(world: &World, endpoint: &str) -> Result<u16> {
    let client = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .build()?;
    let url = format!("{}/catalogs/narrow/api/v1/{endpoint}", world.catalogs);
    let url = match endpoint {
        "graphql" => format!("{url}?query=%7B__typename%7D"),
        "metas" => format!("{url}?schema=olm.package"),
        _ => url,
    };
    Ok(client.get(url).send().await?.status().as_u16())
}
