//! OpenShift's ClusterImagePolicies and ImagePolicies: images that they refuse, and the effect of their changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use olm_api::ClusterCatalog;
use olm_api::conditions::{self, READY, SERVING, reason};
use olm_api::names::user;
use olm_image::Digest;
use olm_test::extensions::{SOON, await_progressing, await_version, catalog, extensions, installed_version};
use olm_test::registry::signatures::{image_policy, key, sign};
use olm_test::samples;
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::verified::{catalog_becomes, extension_becomes};
use super::{CLUSTER, Stage, apply, sign_bundles};

/// A policy for the images of a repository: they must be signed with this key.
fn policy(world: &World, metadata: Value, repository: &str, public: &str) -> Result<Value> {
    let scope = format!("{}/{repository}", world.registry()?);
    Ok(image_policy(metadata, &scope, public))
}

/// Runs `olm` with the authorities of the registry. Returns whether it succeeds, and its output.
fn olm(world: &World, kubeconfig: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    let run = Command::new(binary("olm")?)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--ca-dir")
        .arg(world.authorities())
        .output()?;
    let said = [run.stdout, run.stderr].concat();
    Ok((run.status.success(), String::from_utf8(said)?))
}

/// A kubeconfig of a user who may read all but the policies.
fn without_policies(world: &World) -> Result<PathBuf> {
    const NAME: &str = "reads-no-policies";
    let rbac = "rbac.authorization.k8s.io";
    let groups = [
        "",
        "apps",
        "apiextensions.k8s.io",
        "olm.operatorframework.io",
        "operators.coreos.com",
        rbac,
    ];
    world.apply(&[
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": NAME },
            "rules": [{ "apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"] }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": NAME },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": NAME },
            "subjects": [{ "apiGroup": rbac, "kind": "User", "name": NAME }],
        }),
    ])?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(world.cluster.kubeconfig())?)?;
    config["users"][0]["user"]["as"] = NAME.into();
    let path = world.folder().join(format!("{NAME}.kubeconfig"));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// Runs `olm` as an administrator, and checks whether it succeeds and for a text.
fn ends(world: &World, arguments: &[&str], succeeds: bool, text: &str) -> Result<()> {
    let (is_done, said) = olm(world, world.cluster.kubeconfig(), arguments)?;
    ensure!(
        is_done == succeeds && said.contains(text),
        "{arguments:?}: {said}"
    );
    Ok(())
}

const GUARDED: &str = "guarded";

#[test]
fn a_cluster_image_policy_holds_for_bundles_and_catalogs_until_it_is_deleted() -> Result<()> {
    CLUSTER.with(async |stage: &Stage| {
        let Stage {
            world,
            pair,
            key: public,
            ..
        } = stage;
        let public = std::fs::read_to_string(public)?;
        let (bundles, catalogs) = (format!("{GUARDED}-bundle"), format!("{GUARDED}-catalog"));
        let of =
            |name: &str, repository: &str, key: &str| policy(world, json!({ "name": name }), repository, key);
        let of_bundles = of(GUARDED, &bundles, &public)?;
        // One for other images applies to none of these.
        world.apply(&[of("elsewhere", "elsewhere", &key()?.0)?, of_bundles.clone()])?;
        let blobs = world
            .push_bundles(GUARDED, &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        apply(world, GUARDED, &blobs, |text| text).await?;
        let rule = |name: &str, repository: &str| -> Result<String> {
            Ok(format!(
                "ClusterImagePolicy {name} (scope \"{}/{repository}\")",
                world.registry()?
            ))
        };
        let of_guarded = rule(GUARDED, &bundles)?;
        let message = await_progressing(world, GUARDED, reason::RETRYING, &of_guarded).await?;
        ensure!(
            message.contains("asks for a signature, and there is none"),
            "{message}"
        );
        ensure!(installed_version(&extensions(world).get(GUARDED).await?).is_none());
        let admin = world.cluster.kubeconfig();
        let bundle = blobs.split('"').find(|word| word.contains("-bundle@"));
        let bundle = bundle.context("the bundle's image")?;
        let verify = ["verify", bundle, "--cluster", "--namespace", GUARDED];
        let refused = format!("{of_guarded} asks for a signature, and there is none");
        for arguments in [&["plan", GUARDED][..], &["rbac", GUARDED], &verify] {
            ends(world, arguments, false, &refused)?;
        }
        unread_policies_are_named(world, &verify)?;
        world.kubectl(&["delete", "clusterimagepolicy", GUARDED])?;
        await_version(world, GUARDED, "1.0.0").await?;
        extension_becomes(world, GUARDED, None).await?;
        ends(world, &verify, false, "no ClusterImagePolicy covers it")?;

        // A policy that comes later removes nothing.
        world.apply(std::slice::from_ref(&of_bundles))?;
        let message = extension_becomes(world, GUARDED, Some(reason::POLICY_REFUSES)).await?;
        ensure!(
            message.contains("stays in use") && message.contains(&of_guarded),
            "{message}"
        );
        world.kubectl(&["get", "deployment", &format!("{GUARDED}-operator"), "-n", GUARDED])?;
        sign_bundles(world, GUARDED, &blobs, pair).await?;
        let mut wider = of_bundles;
        wider["spec"]["policy"]["signedIdentity"] = json!({ "matchPolicy": "MatchRepository" });
        world.apply(&[wider])?;
        let message = extension_becomes(world, GUARDED, Some(reason::SIGNED)).await?;
        ensure!(message.ends_with(&format!("as {of_guarded} asks")), "{message}");
        let (is_done, said) = olm(world, admin, &["plan", GUARDED])?;
        ensure!(
            is_done && said.contains(&format!("\nverified {message}\n")),
            "{said}"
        );
        ensure!(!said.contains("were not checked"), "{said}");
        ends(world, &verify, true, &format!("  rule       {of_guarded}\n"))?;

        // The same for catalogs: one that is served stays, one that comes is refused.
        world.apply(&[of("guarded-catalogs", &catalogs, &public)?])?;
        let of_catalogs = rule("guarded-catalogs", &catalogs)?;
        let message = catalog_becomes(world, GUARDED, Some(reason::POLICY_REFUSES)).await?;
        ensure!(message.contains(&of_catalogs), "{message}");
        let late = "guarded-late";
        world.apply(&[catalog(late, &format!("{}/{catalogs}:latest", world.registry()?))])?;
        let found: Api<ClusterCatalog> = Api::all(world.client.clone());
        world
            .eventually("the late catalog is refused", SOON, async || {
                let catalog = found.get(late).await?;
                let ready = conditions::find(catalog.conditions(), READY).context("no condition")?;
                ensure!(
                    ready.status == "False" && ready.message.contains(&of_catalogs),
                    "{}",
                    ready.message
                );
                ensure!(
                    !conditions::is_true(catalog.conditions(), SERVING),
                    "it is served"
                );
                Ok(Some(()))
            })
            .await?;
        world.kubectl(&["delete", "clusterimagepolicy", "guarded-catalogs"])?;
        catalog_becomes(world, GUARDED, None).await?;
        catalog_becomes(world, late, None).await?;
        world.kubectl(&["delete", "clustercatalog", late])?;
        world
            .kubectl(&["delete", "clusterimagepolicy", "elsewhere", GUARDED])
            .map(drop)
    })
}

/// A user without the right to read the policies is told so: a plan continues, `olm verify` does not.
fn unread_policies_are_named(world: &World, verify: &[&str]) -> Result<()> {
    let reader = without_policies(world)?;
    let unread = |kind: &str, plural: &str, place: &str| {
        let group = "config.openshift.io";
        [
            format!("the signature policies of kind {kind} were not checked: {plural}.{group} is forbidden"),
            format!("; you need the verb list on {plural} in group {group}{place}"),
        ]
    };
    let cluster = unread("ClusterImagePolicy", "clusterimagepolicies", "");
    let place = format!(" in namespace \"{GUARDED}\"");
    let namespaced = unread("ImagePolicy", "imagepolicies", &place);
    for (arguments, goes_on) in [(&["plan", GUARDED][..], true), (verify, false)] {
        let (is_done, said) = olm(world, &reader, arguments)?;
        ensure!(is_done == goes_on, "{arguments:?}: {said}");
        for part in cluster.iter().chain(&namespaced) {
            ensure!(said.contains(part), "{arguments:?}: {part:?} is not in {said}");
        }
    }
    Ok(())
}

const OFFERED: &str = "offered";

#[test]
fn olm_install_follows_the_policies_of_the_namespace_that_the_bundle_proposes() -> Result<()> {
    CLUSTER.with(
        async |Stage {
                   world,
                   pair,
                   key: public,
                   ..
               }| {
            let public = std::fs::read_to_string(public)?;
            let blobs = world
                .push_bundles(OFFERED, &["1.0.0"], samples::OPERATOR_IMAGE)
                .await?;
            let reference = world
                .push_catalog(&format!("{OFFERED}-catalog:latest"), &blobs)
                .await?;
            let metadata = json!({ "name": "bundles", "namespace": OFFERED });
            world.apply(&[
                catalog(OFFERED, &reference),
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OFFERED } }),
                policy(world, metadata, &format!("{OFFERED}-bundle"), &public)?,
            ])?;
            catalog_becomes(world, OFFERED, None).await?;
            let admin = world.cluster.kubeconfig();
            let elsewhere = ["install", OFFERED, "--dry-run", "--namespace", "elsewhere"];
            let (is_done, said) = olm(world, admin, &elsewhere)?;
            ensure!(is_done, "{said}");
            let install = ["install", OFFERED, "--dry-run"];
            let (is_done, said) = olm(world, admin, &install)?;
            let refused = format!("ImagePolicy {OFFERED}/bundles (scope ");
            ensure!(!is_done && said.contains(&refused), "{said}");
            sign_bundles(world, OFFERED, &blobs, pair).await?;
            let (is_done, said) = olm(world, admin, &install)?;
            ensure!(is_done && said.contains("kind: ClusterExtension"), "{said}");
            world.kubectl(&["delete", "clustercatalog", OFFERED]).map(drop)
        },
    )
}

const TENANT: &str = "tenant";

#[test]
fn an_image_policy_holds_for_the_images_of_extensions_in_its_namespace() -> Result<()> {
    CLUSTER.with(async |stage: &Stage| {
        let Stage {
            world,
            pair,
            key: public,
            ..
        } = stage;
        let registry = world.cluster.registry().context("a registry")?;
        let public = std::fs::read_to_string(public)?;
        let of = |namespace: &str, name: &str, repository: &str, key: &str| {
            policy(
                world,
                json!({ "name": name, "namespace": namespace }),
                repository,
                key,
            )
        };
        let (operators, bundles) = (format!("{TENANT}-operator"), format!("{TENANT}-bundle"));
        world.apply(&[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": TENANT } }),
            of(TENANT, "pods", &operators, &public)?,
            // One of another namespace applies to none of these.
            of("default", "pods", &bundles, &key()?.0)?,
        ])?;
        let files = samples::renamed_bundle(TENANT, "0.0.1", samples::OPERATOR_IMAGE);
        let operator = world.push_bundle(&format!("{operators}:v1"), &files).await?;
        let blobs = world.push_bundles(TENANT, &["1.0.0"], &operator).await?;
        apply(world, TENANT, &blobs, |text| {
            let annotations = json!({ user::VERIFY_IMAGES: "all" });
            text.replacen(
                "kind: ClusterExtension\nmetadata:\n",
                &format!("kind: ClusterExtension\nmetadata:\n  annotations: {annotations}\n"),
                1,
            )
        })
        .await?;
        let message = await_progressing(world, TENANT, reason::RETRYING, "ImagePolicy tenant/pods").await?;
        ensure!(message.contains(&operator), "{message}");
        ensure!(installed_version(&extensions(world).get(TENANT).await?).is_none());
        let (_, digest) = operator.split_once('@').context("a digest")?;
        sign(registry, &operators, &digest.parse::<Digest>()?, pair).await?;
        await_version(world, TENANT, "1.0.0").await?;
        let message = extension_becomes(world, TENANT, Some(reason::SIGNED)).await?;
        ensure!(
            message.contains("images of its Pods") && message.contains("ImagePolicy tenant/pods"),
            "{message}"
        );

        world.apply(&[of(TENANT, "bundles", &bundles, &public)?])?;
        let message = extension_becomes(world, TENANT, Some(reason::POLICY_REFUSES)).await?;
        ensure!(
            message.contains("but ImagePolicy tenant/bundles (scope"),
            "{message}"
        );
        world.kubectl(&["delete", "imagepolicy", "bundles", "-n", TENANT])?;
        extension_becomes(world, TENANT, Some(reason::SIGNED)).await?;
        world
            .kubectl(&["delete", "imagepolicy", "pods", "-n", "default"])
            .map(drop)
    })
}

const UNREAD: &str = "unread";

#[test]
fn policies_that_are_served_and_may_not_be_read_refuse_every_image() -> Result<()> {
    CLUSTER.alone(async |Stage { world, .. }| {
        const ROLE: &str = "operator-controller-manager-role";
        let role = || world.kubectl(&["get", "clusterrole", ROLE, "-o", "json"]);
        let mut granted: Value = serde_json::from_str(&role()?)?;
        let metadata = granted["metadata"].as_object_mut().context("metadata")?;
        metadata.retain(|field, _| field == "name" || field == "labels");
        let mut narrow = granted.clone();
        let rules = narrow["rules"].as_array_mut().context("rules")?;
        let before = rules.len();
        rules.retain(|rule| !rule["resources"].to_string().contains("\"imagepolicies\""));
        ensure!(rules.len() + 1 == before, "{granted}");
        world.operator_controller.stop().await?;
        world.apply(&[narrow])?;
        world.start_managers().await?;
        let blobs = world
            .push_bundles(UNREAD, &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        apply(world, UNREAD, &blobs, |text| text).await?;
        let refused = "the signature policy of kind ClusterImagePolicy cannot be followed: ";
        let message = await_progressing(world, UNREAD, reason::RETRYING, refused).await?;
        let advice = "give this account the verbs get, list and watch on clusterimagepolicies in group";
        ensure!(
            message.contains("is forbidden") && message.contains(advice),
            "{message}"
        );
        ensure!(installed_version(&extensions(world).get(UNREAD).await?).is_none());
        world.apply(&[granted])?;
        await_version(world, UNREAD, "1.0.0").await?;

        // Policies hold as long as their kind is served.
        let bundles = format!("{UNREAD}-bundle");
        let refusing = [policy(world, json!({ "name": UNREAD }), &bundles, &key()?.0)?];
        world.apply(&refusing)?;
        extension_becomes(world, UNREAD, Some(reason::POLICY_REFUSES)).await?;
        world.kubectl(&["delete", "crd", "clusterimagepolicies.config.openshift.io"])?;
        extension_becomes(world, UNREAD, None).await?;
        world.serve_image_policies()?;
        world.apply(&refusing)?;
        extension_becomes(world, UNREAD, Some(reason::POLICY_REFUSES)).await?;
        world.kubectl(&["delete", "clusterimagepolicy", UNREAD])?;
        extension_becomes(world, UNREAD, None).await.map(drop)
    })
}
