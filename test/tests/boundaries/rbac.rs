//! The roles that users apply.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_image::{Access, ImageBuilder, Images, LayerBuilder, Platform, Reference};
use olm_test::extensions::{await_progressing, await_version, catalog, grant, rbac};
use olm_test::samples;
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use crate::running::{WORLD, extension, publish};

/// A namespace with an account that has no rights.
fn powerless(namespace: &str) -> [Value; 2] {
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "installer", "namespace": namespace },
        }),
    ]
}

/// Adds a rule to the cluster permissions of a bundle.
fn add_rule(files: &mut BTreeMap<String, Vec<u8>>, package: &str, rule: Value) -> Result<()> {
    let path = format!("manifests/{package}.clusterserviceversion.yaml");
    let mut csv = olm_yaml::to_json(&files[&path])?;
    csv.pointer_mut("/spec/install/spec/clusterPermissions/0/rules")
        .and_then(Value::as_array_mut)
        .context("the bundle has no cluster permissions")?
        .push(rule);
    files.insert(path, csv.to_string().into_bytes());
    Ok(())
}

/// The output of `olm rbac` without a cluster.
fn without_cluster(world: &World, package: &str, options: &[&str]) -> Result<String> {
    let catalog = format!("{}/{package}-catalog:latest", world.registry()?);
    let output = Command::new(binary("olm")?)
        .args(["rbac", package, "--catalog", &catalog, "--namespace", package])
        .args(options)
        .args(["--service-account", "installer", "--ca-dir"])
        .arg(world.authorities())
        .env("KUBECONFIG", "/dev/null")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_roles_that_olm_rbac_prints_are_all_that_an_installation_takes() -> Result<()> {
    WORLD.with(async |world| {
        publish(world, "ruled").await?;
        world.apply(&powerless("ruled"))?;
        world.apply(&[extension("ruled", "ruled", Some("installer"))])?;
        await_progressing(world, "ruled", "Retrying", "lacks permissions").await?;
        let proposed = rbac(world, &["ruled"])?;
        ensure!(proposed == without_cluster(world, "ruled", &[])?, "{proposed}");
        grant(world, "ruled")?;
        await_version(world, "ruled", "1.0.0").await?;
        for arguments in [&["ruled", "--all"][..], &["clusterobjectset/ruled-1", "--all"]] {
            let needed = rbac(world, arguments)?;
            ensure!(needed == proposed, "{arguments:?}: {needed}\n--- not\n{proposed}");
        }
        let nothing = rbac(world, &["ruled"]).err().map(|error| error.to_string());
        ensure!(
            nothing.is_some_and(|said| said.contains("lacks nothing that ruled needs")),
            "something is missing"
        );
        Ok(())
    })
}

/// The rule that only this version has.
fn own_rule(version: &str) -> Value {
    json!({ "apiGroups": [""], "resources": [format!("things-of-{}", version.replace('.', "-"))], "verbs": ["get"] })
}

#[test]
fn the_roles_for_every_version_carry_through_the_range() -> Result<()> {
    WORLD.with(async |world| {
        let (package, versions) = ("ranged", ["1.0.0", "1.0.1"]);
        let mut images = BTreeMap::new();
        for version in versions {
            let mut files = samples::renamed_bundle(package, version, samples::OPERATOR_IMAGE);
            add_rule(&mut files, package, own_rule(version))?;
            let tag = format!("{package}-bundle:v{version}");
            images.insert(version, world.push_bundle(&tag, &files).await?);
        }
        let blobs = samples::renamed(
            package,
            &samples::catalog(&versions, |version| images[version].clone()),
        );
        world.push_catalog("ranged-catalog:latest", &blobs).await?;
        let roles = |options: &[&str]| without_cluster(world, package, options);
        let held = |roles: &str| {
            versions.map(|version| roles.contains(&format!("things-of-{}", version.replace('.', "-"))))
        };
        assert_eq!(held(&roles(&["--version", "1.0.0"])?), [true, false]);
        assert_eq!(held(&roles(&["--version", "1.x"])?), [false, true]);
        let all = roles(&["--version", "1.x", "--every-version"])?;
        assert_eq!(held(&all), [true, true]);
        ensure!(
            !all.contains("ranged.v1.0.0"),
            "roles keep the name of the first version:\n{all}"
        );
        let list: Value = serde_json::from_str(&roles(&["--every-version", "-o", "json"])?)?;
        let kinds = list["items"].as_array().map_or(0, Vec::len);
        ensure!(
            list["kind"] == "List" && kinds == all.matches("\nkind: ").count(),
            "{list:#}"
        );
        Ok(())
    })
}

/// A verb that contains an object, which would be created if the verb were not escaped.
const INJECTION: &str = "get\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: \
                         injected\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: \
                         cluster-admin\nsubjects:\n- kind: User\n  name: mallory\n  apiGroup: rbac.authorization.k8s.io\n";

#[test]
fn a_verb_with_line_breaks_brings_no_object_along() -> Result<()> {
    WORLD.with(async |world| {
        let mut files = samples::renamed_bundle("injecting", "1.0.0", samples::OPERATOR_IMAGE);
        let rule = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": [INJECTION] });
        add_rule(&mut files, "injecting", rule)?;
        let image = world.push_bundle("injecting-bundle:v1.0.0", &files).await?;
        let blobs = samples::renamed("injecting", &samples::catalog(&["1.0.0"], |_| image.clone()));
        let reference = world.push_catalog("injecting-catalog:latest", &blobs).await?;
        world.apply(&[catalog("injecting", &reference)])?;
        world.apply(&powerless("injecting"))?;
        world.apply(&[extension("injecting", "injecting", Some("installer"))])?;
        let message = await_progressing(world, "injecting", "Retrying", "lacks permissions").await?;
        let (_, command) = message.split_once('\n').unwrap_or((&message, ""));
        ensure!(
            command == "`olm rbac injecting` prints the roles to apply.",
            "{command}"
        );
        ensure!(
            !message.lines().any(|line| line == "  name: injected"),
            "it stands in the message as an object: {message}"
        );
        grant(world, "injecting")?;
        await_version(world, "injecting", "1.0.0").await?;
        let bindings = world.kubectl(&["get", "clusterrolebindings", "-o", "name"])?;
        ensure!(!bindings.contains("injected"), "{bindings}");
        // It is data: the role contains that verb literally.
        let held = "jsonpath={.items[*].rules[*].verbs}";
        let verbs = world.kubectl(&["get", "clusterroles", "-o", held])?;
        ensure!(verbs.contains("get\\n---\\napiVersion"), "{verbs}");
        Ok(())
    })
}

#[test]
fn a_bundle_with_a_link_that_leads_nowhere_is_refused() -> Result<()> {
    WORLD.with(async |world| {
        let mut layer = LayerBuilder::new();
        for (path, content) in samples::renamed_bundle("linked", "1.0.0", samples::OPERATOR_IMAGE) {
            layer.bytes(&path, content, 0o644)?;
        }
        layer.link("manifests/policy.yaml", "../hidden/policy.yaml")?;
        let mut image = ImageBuilder::new(Platform::host()).layer(layer.build()?);
        for (key, value) in [("mediatype", "registry+v1"), ("manifests", "manifests/"), ("metadata", "metadata/")] {
            image = image.label(format!("operators.operatorframework.io.bundle.{key}.v1"), value);
        }
        let images = Images::new(olm_image::Options {
            authorities: Some(world.authorities()),
            ..olm_image::Options::new("olm-test")
        });
        let name = Reference::parse(&format!("{}/linked-bundle:v1.0.0", world.registry()?))?;
        let pushed = images.push(&name, &image.build(), &Access::default()).await?.pinned;
        let blobs = samples::renamed("linked", &samples::catalog(&["1.0.0"], |_| pushed.to_string()));
        let reference = world.push_catalog("linked-catalog:latest", &blobs).await?;
        world.apply(&[catalog("linked", &reference)])?;
        world.apply(&powerless("linked"))?;
        world.apply(&[extension("linked", "linked", Some("installer"))])?;
        let told = "\"manifests/policy.yaml\" is a link to \"../hidden/policy.yaml\", which leads out of the image, or nowhere";
        let extension = olm_test::extensions::extensions(world);
        world
            .eventually("the link is named", crate::SOON, async || {
                let found = serde_json::to_string(&extension.get("linked").await?.status)?;
                Ok(found.contains(&told.replace('"', "\\\"")).then_some(()))
            })
            .await
    })
}
