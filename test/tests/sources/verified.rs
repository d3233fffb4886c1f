//! Signatures as users see them: the signer of installed and served images, the rule, and the effect of a changed
//! policy.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Api;
use olm_api::conditions::{self, INSTALLED, SERVING, VERIFIED, reason};
use olm_api::names::{annotation, user};
use olm_api::{ClusterCatalog, Condition};
use olm_image::Digest;
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, installed_version, patch_source, revisions,
};
use olm_test::registry::signatures::{key, sign};
use olm_test::samples;
use olm_test::world::{Manager, World, binary};
use serde_json::{Value, json};

use super::{CLUSTER, Stage, apply, sign_bundles};

const NAME: &str = "verified";

/// Waits until the condition `Verified` has this reason, and returns its message; `None` waits until it is gone.
async fn becomes(
    world: &World,
    what: &str,
    expected: Option<&str>,
    read: impl AsyncFn() -> Result<Vec<Condition>>,
) -> Result<String> {
    let title = format!("{what} has Verified {expected:?}");
    world
        .eventually(&title, SOON, async || {
            let list = read().await?;
            let found = conditions::find(&list, VERIFIED);
            let is_as_expected = found.map(|found| found.reason.as_str()) == expected;
            ensure!(is_as_expected, "{}", serde_json::to_string(&list)?);
            Ok(Some(found.map(|found| found.message.clone()).unwrap_or_default()))
        })
        .await
}

pub(super) async fn extension_becomes(world: &World, name: &str, expected: Option<&str>) -> Result<String> {
    becomes(world, "the ClusterExtension", expected, async || {
        let extension = extensions(world).get(name).await?;
        ensure!(
            conditions::is_true(extension.conditions(), INSTALLED),
            "not installed"
        );
        Ok(extension.conditions().to_vec())
    })
    .await
}

pub(super) async fn catalog_becomes(world: &World, name: &str, expected: Option<&str>) -> Result<String> {
    let catalogs: Api<ClusterCatalog> = Api::all(world.client.clone());
    becomes(world, "the ClusterCatalog", expected, async || {
        let catalog = catalogs.get(name).await?;
        ensure!(conditions::is_true(catalog.conditions(), SERVING), "not served");
        Ok(catalog.conditions().to_vec())
    })
    .await
}

/// Runs `olm` against the cluster.
pub(super) fn run(world: &World, arguments: &[&str]) -> Result<Output> {
    let run = Command::new(binary("olm")?)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .env("SSL_CERT_DIR", world.authorities())
        .output()?;
    Ok(run)
}

/// Runs `olm` and returns its output.
fn olm(world: &World, arguments: &[&str]) -> Result<String> {
    let run = run(world, arguments)?;
    let said = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{arguments:?}: {said}");
    Ok(String::from_utf8(run.stdout)?)
}

#[test]
fn what_was_verified_shows_and_a_stricter_policy_removes_nothing() -> Result<()> {
    CLUSTER.with(async |stage: &Stage| {
        let Stage {
            world,
            pair,
            key: public,
            policy,
            ..
        } = stage;
        let registry = world.cluster.registry().context("a registry")?;
        let blobs = world
            .push_bundles(NAME, &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        sign_bundles(world, NAME, &blobs, pair).await?;
        let signed = |path: &std::path::Path| json!([{ "type": "sigstoreSigned", "keyPath": path }]);
        let (bundles, catalogs) = (format!("{NAME}-bundle"), format!("{NAME}-catalog"));
        let set = |of_bundles: Value, of_catalogs: Value| {
            stage.write_policy(json!({ bundles.as_str(): of_bundles, catalogs.as_str(): of_catalogs }))
        };
        let anything = json!([{ "type": "insecureAcceptAnything" }]);
        set(signed(public), anything.clone())?;
        apply(world, NAME, &blobs, |text| text).await?;
        await_version(world, NAME, "1.0.0").await?;

        // No rule asks for a signature of the catalog.
        let rule = |repository: &str| {
            format!(
                "the signature policy (scope \"{}/{repository}\", requirement 1)",
                registry.tls
            )
        };
        let message = extension_becomes(world, NAME, Some(reason::SIGNED)).await?;
        let said = format!(", as {} asks", rule(&bundles));
        ensure!(
            message.contains(" is signed by key ") && message.ends_with(&said),
            "{message}"
        );
        catalog_becomes(world, NAME, None).await?;
        let set_of = revisions(world).get(&format!("{NAME}-1")).await?;
        ensure!(set_of.annotation(annotation::BUNDLE_VERIFIED) == Some(message.as_str()));
        let described = world.kubectl(&["describe", "clusterextension", NAME])?;
        ensure!(described.contains("is signed by key"), "{described}");
        let explained = olm(world, &["explain", NAME])?;
        ensure!(
            explained.contains("Signatures: Verified=True since") && explained.contains(&message),
            "{explained}"
        );
        let policy = policy.display().to_string();
        let planned = olm(world, &["plan", NAME, "--signature-policy", &policy])?;
        ensure!(planned.contains(&format!("\nverified {message}\n")), "{planned}");
        let planned = olm(world, &["plan", NAME])?;
        ensure!(!planned.contains("verified "), "{planned}");

        // The catalog is named by its tag, so its signature must be about the tag.
        let resolved = world.kubectl(&[
            "get",
            "clustercatalog",
            NAME,
            "-o",
            "jsonpath={.status.resolvedSource.image.ref}",
        ])?;
        let (_, digest) = resolved.split_once('@').context("a digest")?;
        let digest: Digest = digest.parse()?;
        sign(registry, &format!("{catalogs}:latest"), &digest, pair).await?;
        set(signed(public), signed(public))?;
        let message = catalog_becomes(world, NAME, Some(reason::SIGNED)).await?;
        ensure!(message.contains(&digest.to_string()), "{message}");

        // Installed and served content stays under every policy.
        let stranger = world.folder().join("stranger.pub");
        std::fs::write(&stranger, key()?.0)?;
        set(json!([{ "type": "reject" }]), signed(&stranger))?;
        let message = extension_becomes(world, NAME, Some(reason::POLICY_REFUSES)).await?;
        let said = format!("stays in use, but {} rejects it", rule(&bundles));
        ensure!(message.contains(&said), "{message}");
        let message = catalog_becomes(world, NAME, Some(reason::POLICY_REFUSES)).await?;
        ensure!(
            message.contains("it was not made with a trusted key"),
            "{message}"
        );
        let selected = format!(
            "--field-selector=reason={},involvedObject.name={NAME},involvedObject.kind=ClusterExtension",
            reason::POLICY_REFUSES
        );
        world
            .eventually("an event about the refusal", SOON, async || {
                let events = world.kubectl(&["get", "events", "-A", "-o", "name", &selected])?;
                Ok((!events.trim().is_empty()).then_some(()))
            })
            .await?;
        world.kubectl(&["get", "deployment", &format!("{NAME}-operator"), "-n", NAME])?;
        let explained = olm(world, &["explain", NAME])?;
        ensure!(
            explained.contains("Signatures: Verified=False since"),
            "{explained}"
        );

        set(anything.clone(), anything)?;
        extension_becomes(world, NAME, None).await?;
        catalog_becomes(world, NAME, None).await.map(drop)
    })
}

/// A token of an account that may read the metrics of both managers.
fn reader(world: &World) -> Result<String> {
    const ACCOUNT: &str = "signature-counts";
    world.kubectl(&["create", "serviceaccount", ACCOUNT, "-n", "default"])?;
    for role in ["catalogd-metrics-reader", "operator-controller-metrics-reader"] {
        let binding = format!("{ACCOUNT}-{role}");
        let (role, account) = (
            format!("--clusterrole={role}"),
            format!("--serviceaccount=default:{ACCOUNT}"),
        );
        world.kubectl(&["create", "clusterrolebinding", &binding, &role, &account])?;
    }
    let token = world.kubectl(&["create", "token", ACCOUNT, "-n", "default"])?;
    Ok(token.trim().to_owned())
}

/// The number of checks with this outcome that a manager has counted.
async fn count(manager: &Manager, name: &str, outcome: &str, token: &str) -> Result<u64> {
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .build()?;
    let url = format!("https://{}/metrics", manager.metrics);
    let answer = client.get(url).bearer_auth(token).send().await?;
    let text = answer.error_for_status()?.text().await?;
    let series = format!("{name}_signature_checks_total{{outcome=\"{outcome}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(series.as_str()));
    value
        .with_context(|| format!("no {series}: {text}"))?
        .parse()
        .context("a number")
}

const RULED: &str = "ruled";

/// Sets or removes the rules of an object.
fn annotate(world: &World, kind: &str, rules: Option<&Value>) -> Result<()> {
    let key = user::SIGNATURE_POLICY;
    let change = rules.map_or_else(|| format!("{key}-"), |rules| format!("{key}={rules}"));
    world
        .kubectl(&["annotate", kind, RULED, "--overwrite", &change])
        .map(drop)
}

#[test]
fn an_annotation_asks_for_more_than_the_policy_and_the_refusal_says_so() -> Result<()> {
    CLUSTER.with(async |stage: &Stage| {
        let Stage {
            world,
            pair,
            key: public,
            ..
        } = stage;
        let blobs = world
            .push_bundles(RULED, &["1.0.0", "1.0.1"], samples::OPERATOR_IMAGE)
            .await?;
        sign_bundles(world, RULED, &blobs, pair).await?;
        apply(world, RULED, &blobs, |text| text.replace("1.0.x", "1.0.0")).await?;
        await_version(world, RULED, "1.0.0").await?;
        extension_becomes(world, RULED, None).await?;
        let by_key = |pem: &str| json!([{ "type": "sigstoreSigned", "keyData": STANDARD.encode(pem) }]);
        let ours = by_key(&std::fs::read_to_string(public)?);
        let stranger = by_key(&key()?.0);
        let rule = |kind: &str| {
            format!(
                "annotation {} of {kind} {RULED} (requirement 1)",
                user::SIGNATURE_POLICY
            )
        };

        annotate(world, "clusterextension", Some(&ours))?;
        let message = extension_becomes(world, RULED, Some(reason::SIGNED)).await?;
        ensure!(
            message.ends_with(&format!("as {} asks", rule("ClusterExtension"))),
            "{message}"
        );

        // Stricter: the installed bundle stays, and no other bundle comes.
        annotate(world, "clusterextension", Some(&stranger))?;
        let message = extension_becomes(world, RULED, Some(reason::POLICY_REFUSES)).await?;
        ensure!(message.contains(&rule("ClusterExtension")), "{message}");
        patch_source(world, RULED, json!({ "version": "1.0.1" })).await?;
        let message = await_progressing(world, RULED, reason::RETRYING, &rule("ClusterExtension")).await?;
        ensure!(
            message.contains("it was not made with a trusted key"),
            "{message}"
        );
        ensure!(installed_version(&extensions(world).get(RULED).await?) == Some("1.0.0"));
        annotate(world, "clusterextension", Some(&ours))?;
        await_version(world, RULED, "1.0.1").await?;
        extension_becomes(world, RULED, Some(reason::SIGNED)).await?;

        // The same for a catalog, whose image is not signed.
        annotate(world, "clustercatalog", Some(&ours))?;
        let message = catalog_becomes(world, RULED, Some(reason::POLICY_REFUSES)).await?;
        ensure!(
            message.contains(&format!("{} asks for a signature", rule("ClusterCatalog"))),
            "{message}"
        );
        annotate(world, "clustercatalog", None)?;
        catalog_becomes(world, RULED, None).await?;

        // Each outcome above is counted: other tests only add to it.
        let token = reader(world)?;
        for (manager, name, outcome) in [
            (&world.operator_controller, "operator_controller", "verified"),
            (&world.operator_controller, "operator_controller", "key"),
            (&world.catalogd, "catalogd", "unsigned"),
        ] {
            let counted = count(manager, name, outcome, &token).await?;
            ensure!(counted > 0, "{name} has counted nothing as {outcome}");
        }
        Ok(())
    })
}

const OPERANDS: &str = "operands";

#[test]
fn images_of_the_pods_are_verified_where_an_annotation_asks_for_it() -> Result<()> {
    CLUSTER.with(async |stage: &Stage| {
        let Stage {
            world,
            pair,
            key: public,
            policy,
            ..
        } = stage;
        let registry = world.cluster.registry().context("a registry")?;
        let files = samples::renamed_bundle(OPERANDS, "0.0.1", samples::OPERATOR_IMAGE);
        let operator = world.push_bundle("operands-operator:v1", &files).await?;
        let blobs = world.push_bundles(OPERANDS, &["1.0.0"], &operator).await?;
        sign_bundles(world, OPERANDS, &blobs, pair).await?;
        let rules = json!([{
            "type": "sigstoreSigned", "keyData": STANDARD.encode(std::fs::read_to_string(public)?),
        }]);
        apply(world, OPERANDS, &blobs, |text| {
            let annotations =
                json!({ user::SIGNATURE_POLICY: rules.to_string(), user::VERIFY_IMAGES: "all" });
            text.replacen(
                "kind: ClusterExtension\nmetadata:\n",
                &format!("kind: ClusterExtension\nmetadata:\n  annotations: {annotations}\n"),
                1,
            )
        })
        .await?;
        let message = await_progressing(world, OPERANDS, reason::RETRYING, user::VERIFY_IMAGES).await?;
        ensure!(
            message.contains(&operator) && message.contains("asks for a signature, and there is none"),
            "{message}"
        );
        ensure!(installed_version(&extensions(world).get(OPERANDS).await?).is_none());
        let planned = olm(world, &["plan", OPERANDS])?;
        let refused = planned.split("\nRefused images:\n").nth(1).unwrap_or_default();
        ensure!(
            refused.contains(&operator) && refused.contains("asks for a signature, and there is none"),
            "{planned}"
        );
        ensure!(planned.contains("\nverified "), "{planned}");
        let (_, digest) = operator.split_once('@').context("a digest")?;
        sign(registry, "operands-operator", &digest.parse::<Digest>()?, pair).await?;
        await_version(world, OPERANDS, "1.0.0").await?;

        // Both signers show: that of the bundle, and that of the operator's image.
        let message = extension_becomes(world, OPERANDS, Some(reason::SIGNED)).await?;
        let (bundle, images) = message
            .split_once("; images of its Pods: ")
            .with_context(|| format!("no images of Pods: {message}"))?;
        ensure!(
            bundle.contains(&format!("/{OPERANDS}-bundle")) && bundle.contains(" is signed by key "),
            "{message}"
        );
        ensure!(
            images.starts_with(&format!("{operator} is signed by key ")),
            "{message}"
        );
        let set_of = revisions(world).get(&format!("{OPERANDS}-1")).await?;
        ensure!(
            set_of.annotation(annotation::BUNDLE_VERIFIED) == Some(message.as_str()),
            "{:?}",
            set_of.metadata.annotations
        );
        let planned = olm(world, &["plan", OPERANDS])?;
        let verified = planned.lines().filter(|line| line.starts_with("verified "));
        ensure!(
            verified.collect::<Vec<_>>() == [format!("verified {bundle}"), format!("verified {images}")],
            "{planned}"
        );

        // A stricter policy for the image of the Pods alone: everything runs on, and the condition says so.
        let set =
            |requirement: &str| stage.write_policy(json!({ "operands-operator": [{ "type": requirement }] }));
        set("reject")?;
        let message = extension_becomes(world, OPERANDS, Some(reason::POLICY_REFUSES)).await?;
        ensure!(
            message.starts_with("the bundle stays in use, but images of its Pods are refused: ")
                && message.contains(&operator)
                && message.contains("rejects it"),
            "{message}"
        );
        let got = olm(world, &["get", OPERANDS])?;
        ensure!(
            got.contains("images of its Pods are refused") && got.contains("True"),
            "{got}"
        );
        let policy = policy.display().to_string();
        let planned = olm(world, &["plan", OPERANDS, "--signature-policy", &policy])?;
        ensure!(
            planned.contains("\nNothing changes.\n\nRefused images:\n") && planned.contains("rejects it"),
            "{planned}"
        );
        world.kubectl(&[
            "get",
            "deployment",
            &format!("{OPERANDS}-operator"),
            "-n",
            OPERANDS,
        ])?;
        set("insecureAcceptAnything")?;
        extension_becomes(world, OPERANDS, Some(reason::SIGNED))
            .await
            .map(drop)
    })
}
