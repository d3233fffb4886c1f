//! Signature policies for the images of catalogs and bundles: that of the file, OpenShift's, and those of the objects
//! themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_image::Digest;
use olm_test::registry::signatures::{image_policy, key, sign};
use olm_test::samples;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, OPERATOR, SOON, Stage, catalog_source, condition, csv, named, subscription};

const JUDGED: &str = "judged";
const KEY: &str = "olm.operatorframework.io/signature-policy";

#[test]
fn image_policies_hold_for_catalogs_and_for_the_bundles_of_subscriptions() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let lab = &stage.lab;
        lab.serve_image_policies()?;
        let (public, pair) = key()?;
        let scope = |what: &str| Ok::<_, anyhow::Error>(format!("{}/{JUDGED}-{what}", lab.registry()?));
        let (catalogs, bundles) = (scope("catalog")?, scope("bundle")?);
        let blobs = lab.push_bundles(JUDGED, &["1.0.0"], OPERATOR).await?;
        let image = lab
            .push_catalog(&format!("{JUDGED}-catalog:latest"), &blobs)
            .await?;
        stage.group(JUDGED, json!({}))?;
        let of_catalogs = image_policy(json!({ "name": JUDGED }), &catalogs, &public);
        let of_bundles = image_policy(
            json!({ "name": "bundles", "namespace": JUDGED }),
            &bundles,
            &public,
        );
        // One of another namespace applies to none of these.
        let elsewhere = image_policy(
            json!({ "name": JUDGED, "namespace": "default" }),
            &bundles,
            &key()?.0,
        );
        lab.apply(&[of_catalogs.clone(), of_bundles.clone(), elsewhere.clone()])?;
        let source = catalog_source(JUDGED, &image);
        lab.apply(std::slice::from_ref(&source))?;
        let refusal = format!("ClusterImagePolicy {JUDGED} (scope \"{catalogs}\") asks for a signature");
        let message = |found: &Value| found["status"]["message"].as_str().unwrap_or_default().to_owned();
        let is_refused = |found: &Value| message(found).contains(&refusal);
        stage
            .becomes("the catalog is refused", &source, is_refused)
            .await?;
        stage.delete(&of_catalogs).await?;

        stage.subscribe(JUDGED, &json!({}))?;
        let of_package = subscription(JUDGED, &json!({}));
        let unsigned = format!("ImagePolicy {JUDGED}/bundles (scope \"{bundles}\") asks for a signature");
        let is_unsigned = |found: &Value| {
            let unpacking = condition(found, "BundleUnpacking");
            let message = unpacking.and_then(|found| found["message"].as_str());
            message.is_some_and(|why| why.contains(&unsigned))
        };
        stage
            .becomes("the bundle is refused", &of_package, is_unsigned)
            .await?;
        let registry = lab.cluster.registry().context("a registry")?;
        let (_, rest) = blobs.split_once("-bundle@").context("the bundle's image")?;
        let digest = rest.split('"').next().context("the bundle's digest")?;
        sign(
            registry,
            &format!("{JUDGED}-bundle"),
            &digest.parse::<Digest>()?,
            &pair,
        )
        .await?;
        stage.installs(JUDGED, "1.0.0").await?;
        // Refusals of the catalog and the bundle, and the signature.
        for outcome in ["unsigned", "verified"] {
            let name = format!("catalog_operator_signature_checks_total{{outcome=\"{outcome}\"}} ");
            let counts = stage.metrics(&name).await?;
            ensure!(
                counts.iter().any(|line| !line.ends_with(" 0")),
                "nothing is counted as {outcome}: {counts:?}"
            );
        }

        // A catalog that is served stays, and its status says what a policy has against it.
        lab.apply(std::slice::from_ref(&of_catalogs))?;
        let stays = |found: &Value| {
            is_refused(found) && found["status"]["connectionState"]["lastObservedState"] == "READY"
        };
        stage
            .becomes("the catalog is refused and stays", &source, stays)
            .await?;
        for policy in [&of_catalogs, &of_bundles, &elsewhere] {
            stage.delete(policy).await?;
        }
        stage
            .becomes("the catalog is accepted again", &source, |found| {
                message(found).is_empty()
            })
            .await?;
        let definitions =
            ["clusterimagepolicies", "imagepolicies"].map(|name| format!("{name}.config.openshift.io"));
        let [cluster, namespaced] = &definitions;
        lab.kubectl(&["delete", "crd", cluster, namespaced]).map(drop)
    })
}

#[test]
fn a_catalog_source_and_a_subscription_ask_for_signatures_of_their_own() -> Result<()> {
    const STRICT: &str = "strict";
    CLUSTER.with(async |stage| {
        let lab = &stage.lab;
        let registry = lab.cluster.registry().context("a registry")?;
        let (public, pair) = key()?;
        let list = json!([{"type": "sigstoreSigned", "keyData": STANDARD.encode(&public)}]).to_string();
        let with_list = |mut object: Value, list: &str| {
            object["metadata"]["annotations"] = json!({KEY: list});
            object
        };
        let files = samples::renamed_bundle(STRICT, "1.0.0", OPERATOR);
        let bundle = lab
            .push_bundle(&format!("{STRICT}-bundle:v1.0.0"), &files)
            .await?;
        let (_, digest) = bundle.split_once('@').context("no digest")?;
        let digest: Digest = digest.parse()?;
        let blobs = samples::renamed(STRICT, &samples::catalog(&["1.0.0"], |_| bundle.clone()));
        let files = BTreeMap::from([("configs/catalog.json".to_owned(), blobs.into_bytes())]);
        let label = ("operators.operatorframework.io.index.configs.v1", "/configs");
        let name = format!("{STRICT}-catalog");
        let catalog = lab.push(&format!("{name}:latest"), &files, &[label]).await?;
        stage.group(STRICT, json!({}))?;

        let source = catalog_source(STRICT, &catalog.to_string());
        lab.apply(&[with_list(source.clone(), &list)])?;
        let message = |found: &Value| found["status"]["message"].as_str().unwrap_or_default().to_owned();
        let asks = |kind: &str, name: &str| format!("annotation {KEY} of {kind} {STRICT}/{name}");
        let by_source = format!(
            "{} (requirement 1) asks for a signature",
            asks("CatalogSource", "catalog")
        );
        stage
            .becomes("the catalog is refused", &source, |found| {
                message(found).contains(&by_source)
            })
            .await?;
        sign(registry, &name, catalog.digest(), &pair).await?;
        let is_ready = |found: &Value| {
            message(found).is_empty() && found["status"]["connectionState"]["lastObservedState"] == "READY"
        };
        stage
            .becomes("the catalog is accepted", &source, is_ready)
            .await?;

        let of_package = subscription(STRICT, &json!({}));
        lab.apply(&[with_list(of_package.clone(), &list)])?;
        let by_subscription = format!(
            "{} (requirement 1) asks for a signature",
            asks("Subscription", STRICT)
        );
        let is_refused = |found: &Value| {
            let unpacking = condition(found, "BundleUnpacking");
            let message = unpacking.and_then(|found| found["message"].as_str());
            message.is_some_and(|why| why.contains(&by_subscription))
        };
        stage
            .becomes("the bundle is refused", &of_package, is_refused)
            .await?;
        sign(registry, &format!("{STRICT}-bundle"), &digest, &pair).await?;
        stage.installs(STRICT, "1.0.0").await?;

        // A list that cannot be read refuses the image, and what is served stays.
        lab.apply(&[with_list(source.clone(), "nonsense")])?;
        let by_nonsense = format!("{} cannot be followed: ", asks("CatalogSource", "catalog"));
        stage
            .becomes("the list is refused", &source, |found| {
                message(found).contains(&by_nonsense)
                    && found["status"]["connectionState"]["lastObservedState"] == "READY"
            })
            .await?;
        lab.apply(&[with_list(source.clone(), &list)])?;
        stage
            .becomes("the catalog is accepted again", &source, is_ready)
            .await?;
        Ok(())
    })
}

/// A bundle image that nothing pulls.
fn unused_bundle() -> String {
    format!("registry.example/bundle@sha256:{}", "a".repeat(64))
}

/// A policy file for catalog-operator.
struct PolicyFile(PathBuf);

impl PolicyFile {
    /// Accepts every image but those of these repositories of the registry, which must satisfy the requirement.
    fn write(&self, stage: &Stage, repositories: &[&str], requirement: &Value) -> Result<()> {
        let registry = stage.lab.registry()?;
        let scopes = repositories
            .iter()
            .map(|name| (format!("{registry}/{name}"), json!([requirement])));
        let scopes: BTreeMap<String, Value> = scopes.collect();
        let accept = json!([{"type": "insecureAcceptAnything"}]);
        let policy = json!({"default": accept, "transports": {"docker": scopes}});
        Ok(std::fs::write(&self.0, policy.to_string())?)
    }
}

/// Runs a scenario while catalog-operator follows a policy file, which accepts every image at first.
async fn with_policy_file(
    stage: &mut Stage,
    scenario: impl AsyncFnOnce(&mut Stage, &PolicyFile) -> Result<()>,
) -> Result<()> {
    let file = PolicyFile(stage.lab.folder().join("policy.json"));
    file.write(stage, &[], &Value::Null)?;
    let argument = format!("--signature-policy={}", file.0.display());
    stage.catalog.add_argument(argument.clone());
    restart(stage).await?;
    let outcome = scenario(stage, &file).await;
    stage.catalog.remove_argument(&argument);
    restart(stage).await?;
    outcome
}

async fn restart(stage: &mut Stage) -> Result<()> {
    stage.catalog.stop().await?;
    stage.catalog.start(&stage.lab.cluster)?;
    stage.catalog.ready().await
}

fn message(found: &Value) -> &str {
    found["status"]["message"].as_str().unwrap_or_default()
}

fn is_connected(found: &Value) -> bool {
    found["status"]["connectionState"]["lastObservedState"] == "READY"
}

#[test]
fn a_changed_policy_file_is_followed_for_a_served_catalog_also_over_a_restart() -> Result<()> {
    const FILED: &str = "filed";
    CLUSTER.alone(async |stage| {
        with_policy_file(stage, async |stage, file| {
            let name = format!("{FILED}-catalog");
            let reject = json!({"type": "reject"});
            let label = ("operators.operatorframework.io.index.configs.v1", "/configs");
            let blobs = samples::renamed(FILED, &samples::catalog(&["1.0.0"], |_| unused_bundle()));
            let files = BTreeMap::from([("configs/catalog.json".to_owned(), blobs.into_bytes())]);
            let catalog = stage
                .lab
                .push(&format!("{name}:latest"), &files, &[label])
                .await?;
            stage.group(FILED, json!({}))?;
            let source = catalog_source(FILED, &catalog.to_string());
            stage.lab.apply(std::slice::from_ref(&source))?;
            let is_accepted = |found: &Value| is_connected(found) && message(found).is_empty();
            let is_refused = |found: &Value| is_connected(found) && message(found).contains("policy");
            stage
                .becomes("the catalog is served", &source, is_accepted)
                .await?;
            file.write(stage, &[&name], &reject)?;
            stage
                .becomes("it is refused and stays", &source, is_refused)
                .await?;
            file.write(stage, &[], &reject)?;
            stage
                .becomes("it is accepted again", &source, is_accepted)
                .await?;

            stage.catalog.stop().await?;
            file.write(stage, &[&name], &reject)?;
            stage.catalog.start(&stage.lab.cluster)?;
            stage.catalog.ready().await?;
            stage
                .becomes("it is refused after the restart, and stays", &source, is_refused)
                .await?;
            Ok(())
        })
        .await
    })
}

#[test]
fn an_installed_operator_that_a_policy_refuses_stays_and_its_subscription_says_so() -> Result<()> {
    const KEPT: &str = "kept";
    CLUSTER.alone(async |stage| {
        with_policy_file(stage, async |stage, file| {
            let name = format!("{KEPT}-bundle");
            let (public, pair) = key()?;
            let signed = json!({"type": "sigstoreSigned", "keyData": STANDARD.encode(&public)});
            let bundle = samples::renamed_bundle(KEPT, "1.0.0", OPERATOR);
            let bundle = stage.lab.push_bundle(&format!("{name}:v1.0.0"), &bundle).await?;
            let (_, digest) = bundle.split_once('@').context("no digest")?;
            let digest: Digest = digest.parse()?;
            let blobs = samples::renamed(KEPT, &samples::catalog(&["1.0.0"], |_| bundle.clone()));
            let catalog = stage
                .lab
                .push_catalog(&format!("{KEPT}-catalog:latest"), &blobs)
                .await?;
            stage.group(KEPT, json!({}))?;
            stage.lab.apply(&[catalog_source(KEPT, &catalog)])?;
            stage.subscribe(KEPT, &json!({}))?;
            let found = stage.installs(KEPT, "1.0.0").await?;
            ensure!(condition(&found, "Verified").is_none(), "no rule asks: {found}");

            file.write(stage, &[&name], &signed)?;
            let why = stage.says(KEPT, "Verified", "False", "PolicyRefuses").await?;
            ensure!(why.contains(&format!("{bundle} stays in use, but ")), "{why}");
            let events = named("v1", "Event", KEPT, "");
            eventually("an event says so", SOON, async || {
                let is_it = |event: &&Value| event["reason"] == "PolicyRefuses";
                let events = stage.list(&events).await?;
                Ok(events
                    .iter()
                    .find(is_it)
                    .map(|event| event["involvedObject"]["name"] == KEPT))
            })
            .await?;
            let installed = stage
                .get(&csv(KEPT, "1.0.0"))
                .await?
                .context("the version is gone")?;
            ensure!(installed["status"]["phase"] == "Succeeded", "{installed}");

            // The verdict counts until the policy changes.
            sign(
                stage.lab.cluster.registry().context("a registry")?,
                &name,
                &digest,
                &pair,
            )
            .await?;
            file.write(stage, &[&name, "elsewhere"], &signed)?;
            let signer = stage.says(KEPT, "Verified", "True", "Signed").await?;
            ensure!(signer.starts_with(&format!("{bundle} is signed")), "{signer}");
            file.write(stage, &[], &signed)?;
            let is_unasked = |found: &Value| condition(found, "Verified").is_none();
            let found = subscription(KEPT, &json!({}));
            stage.becomes("no rule asks any more", &found, is_unasked).await?;
            Ok(())
        })
        .await
    })
}

#[test]
fn a_registry_pod_runs_the_image_that_the_policies_accept_by_digest() -> Result<()> {
    const PODDED: &str = "verified-pod";
    CLUSTER.with(async |stage| {
        let lab = &stage.lab;
        let (public, pair) = key()?;
        let signed = json!([{"type": "sigstoreSigned", "keyData": STANDARD.encode(&public)}]).to_string();
        let about = format!("{PODDED}-catalog:latest");
        let label = ("operators.operatorframework.io.index.configs.v1", "/configs");
        let blobs = samples::renamed(PODDED, &samples::catalog(&["1.0.0"], |_| unused_bundle()));
        let files = BTreeMap::from([("configs/catalog.json".to_owned(), blobs.into_bytes())]);
        let catalog = lab.push(&about, &files, &[label]).await?;
        stage.group(PODDED, json!({}))?;
        let asking = |list: &str| {
            let mut source = catalog_source(PODDED, &format!("{}/{about}", lab.registry()?));
            source["metadata"]["annotations"] =
                json!({KEY: list, "olm.operatorframework.io/registry-pod": "true"});
            anyhow::Ok(source)
        };
        let source = asking(&signed)?;
        lab.apply(std::slice::from_ref(&source))?;
        let by_source = format!("annotation {KEY} of CatalogSource {PODDED}/catalog (requirement 1)");
        stage
            .becomes("the image is refused", &source, |found| {
                message(found).contains(&by_source)
            })
            .await?;
        let pods = named("v1", "Pod", PODDED, "");
        let images = async || {
            let found = stage.list(&pods).await?;
            let images = found
                .iter()
                .map(|pod| pod["spec"]["containers"][0]["image"].clone());
            anyhow::Ok(images.collect::<Vec<Value>>())
        };
        ensure!(images().await?.is_empty(), "a Pod of a refused image is made");

        sign(
            lab.cluster.registry().context("a registry")?,
            &about,
            catalog.digest(),
            &pair,
        )
        .await?;
        stage
            .becomes("the image is accepted", &source, |found| {
                !message(found).contains(&by_source)
            })
            .await?;
        let runs = eventually("there is a Pod", SOON, async || Ok(images().await?.pop())).await?;
        ensure!(runs == catalog.to_string(), "the Pod runs {runs}");

        // The Pod stays under a policy that refuses its image.
        lab.apply(&[asking(r#"[{"type": "reject"}]"#)?])?;
        stage
            .becomes("the image is refused again", &source, |found| {
                message(found).contains(&by_source)
            })
            .await?;
        ensure!(images().await? == [runs], "the Pod does not stay");
        Ok(())
    })
}
