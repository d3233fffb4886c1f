//! Dependencies on real parts: an extension whose requirement is missing reports which package to install, and is
//! installed automatically when it exists. A package that others depend on is neither updated nor uninstalled, unless the
//! user overrides this.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use olm_api::{conditions, names};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, installed_version, merge,
    patch_source,
};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary};
use serde_json::{Value, json};

const NAMESPACE: &str = "dependencies";

/// The files of the sample operator for another package, whose kind has the package's name.
fn bundle(package: &str, kind: &str, version: &str) -> BTreeMap<String, Vec<u8>> {
    let rename = |text: &str| {
        text.replace("greetings", &format!("{package}s"))
            .replace("greeting", package)
            .replace("Greeting", kind)
            .replace("greeter", package)
            .replace("samples.olm.example", &format!("{package}.olm.example"))
    };
    let mut files: BTreeMap<String, Vec<u8>> = samples::bundle(version, samples::OPERATOR_IMAGE)
        .into_iter()
        .map(|(path, content)| (path, rename(&String::from_utf8_lossy(&content)).into_bytes()))
        .collect();
    if package == "bundle-dependent" {
        let needs = json!({ "dependencies": [
            { "type": "olm.package", "value": { "packageName": "provider", "version": ">=1.0.0" } },
        ] });
        files.insert(
            "metadata/dependencies.yaml".to_owned(),
            needs.to_string().into_bytes(),
        );
    }
    files
}

fn api(package: &str, kind: &str) -> Value {
    json!({ "group": format!("{package}.olm.example"), "kind": kind, "version": "v1" })
}

/// Package `provider` in two versions, and package `dependent`, which requires the first of them. The packages of a
/// pair need each other's version, and each package of the circle needs that of the next. Only the bundle of
/// `bundle-dependent` declares that it requires `provider`, and only the catalog declares the requirement of
/// `catalog-dependent`.
async fn publish(world: &World) -> Result<String> {
    let mut blobs = Vec::new();
    let needs = |package: &str, range: &str| json!({ "type": "olm.package.required", "value": { "packageName": package, "versionRange": range } });
    let for_dependent = [
        needs("provider", ">=1.0.0 <2.0.0"),
        json!({ "type": "olm.gvk.required", "value": api("provider", "Provider") }),
    ];
    let for_catalog_dependent = json!({ "type": "olm.constraint", "value": {
        "failureMessage": "a provider with the feature storage",
        "cel": { "rule": "properties.exists(p, p.type == 'feature' && p.value == 'storage')" },
    } });
    let none = || vec![vec![]; 2];
    let both = |other: &str| vec![vec![needs(other, "1.0.0")], vec![needs(other, "2.0.0")]];
    let packages = [
        (
            "provider",
            "Provider",
            &["1.0.0", "2.0.0"][..],
            vec![vec![json!({ "type": "feature", "value": "storage" })]; 2],
        ),
        (
            "catalog-dependent",
            "CatalogDependent",
            &["1.0.0"][..],
            vec![vec![for_catalog_dependent]],
        ),
        (
            "dependent",
            "Dependent",
            &["1.0.0"][..],
            vec![for_dependent.to_vec()],
        ),
        ("bundle-dependent", "BundleDependent", &["1.0.0"][..], none()),
        ("pair-a", "PairA", &["1.0.0", "2.0.0"][..], both("pair-b")),
        ("pair-b", "PairB", &["1.0.0", "2.0.0"][..], both("pair-a")),
        ("twin-a", "TwinA", &["1.0.0", "2.0.0"][..], both("twin-b")),
        ("twin-b", "TwinB", &["1.0.0", "2.0.0"][..], both("twin-a")),
        ("circle-a", "CircleA", &["1.0.0", "2.0.0"][..], both("circle-b")),
        ("circle-b", "CircleB", &["1.0.0", "2.0.0"][..], both("circle-c")),
        ("circle-c", "CircleC", &["1.0.0", "2.0.0"][..], both("circle-a")),
    ];
    for (package, kind, versions, required) in packages {
        blobs.push(json!({ "schema": "olm.package", "name": package, "defaultChannel": "stable" }));
        let name = |version: &str| format!("{package}.v{version}");
        let mut entries = Vec::new();
        for (index, version) in versions.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| name(versions[before]));
            entries.push(json!({ "name": name(version), "replaces": before }));
            let image = world
                .push_bundle(
                    &format!("{package}-bundle:v{version}"),
                    &bundle(package, kind, version),
                )
                .await?;
            let mut properties = vec![
                json!({ "type": "olm.package", "value": { "packageName": package, "version": version } }),
                json!({ "type": "olm.gvk", "value": api(package, kind) }),
            ];
            properties.extend(required.get(index).into_iter().flatten().cloned());
            blobs.push(
                json!({ "schema": "olm.bundle", "package": package, "name": name(version), "image": image,
                "properties": properties }),
            );
        }
        blobs.push(
            json!({ "schema": "olm.channel", "package": package, "name": "stable", "entries": entries }),
        );
    }
    let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    world.push_catalog("dependencies:latest", &text).await
}

async fn allow(world: &World, name: &str, value: Option<&str>) -> Result<()> {
    let annotations = json!({ names::user::ALLOW_BREAK_DEPENDENTS: value });
    merge(world, name, json!({ "metadata": { "annotations": annotations } })).await
}

/// An account with all rights.
fn account(name: &str) -> [Value; 2] {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": NAMESPACE } });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }] });
    [account, binding]
}

fn extension(package: &str, version: Option<&str>) -> Value {
    let mut catalog = json!({ "packageName": package });
    if let Some(version) = version {
        catalog["version"] = json!(version);
    }
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": package },
        "spec": { "namespace": NAMESPACE, "serviceAccount": { "name": "installer" },
            "source": { "sourceType": "Catalog", "catalog": catalog } },
    })
}

/// Both managers, the catalog, and an account with all rights.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let reference = publish(&world).await?;
    let [account, binding] = account("installer");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    world.apply(&[namespace, account, binding, catalog("dependencies", &reference)])?;
    Ok(world)
}

#[test]
fn a_missing_dependency_is_named_and_awaited_and_a_needed_extension_stays() -> Result<()> {
    CLUSTER.with(async |world| {
        let [dependent, bundle_dependent] =
            ["dependent", "bundle-dependent"].map(|package| extension(package, None));
        world.apply(&[dependent, bundle_dependent])?;

        // The missing requirement, its provider, and the command that prints what to apply.
        let retrying = conditions::reason::RETRYING;
        let message = await_progressing(world, "dependent", retrying, "`olm install provider ").await?;
        for part in [
            "bundle \"dependent.v1.0.0\" cannot be installed",
            "package provider (>=1.0.0 <2.0.0) is not installed",
            "API provider.olm.example/v1 Provider is not provided",
            "install provider.v1.0.0 of package provider from channel stable of catalog dependencies",
        ] {
            assert!(message.contains(part), "{part:?} in {message}");
        }
        let bundle_message =
            await_progressing(world, "bundle-dependent", retrying, "`olm install provider ").await?;
        let help = "install provider.v2.0.0 of package provider from channel stable of catalog dependencies";
        assert!(bundle_message.contains(help), "{bundle_message}");
        assert!(
            extensions(world).get_opt("provider").await?.is_none(),
            "nothing is installed unasked"
        );

        // What the command prints installs the dependency; then the dependent is installed.
        let (_, command) = message
            .split_once("`olm ")
            .context("the message names a command")?;
        let (command, _) = command.split_once('`').context("the message names a command")?;
        let authorities = world.authorities().display().to_string();
        let printed = std::process::Command::new(binary("olm")?)
            .args(command.split(' '))
            .args(["--ca-dir", &authorities, "--kubeconfig"])
            .arg(world.cluster.kubeconfig())
            .output()?;
        ensure!(printed.status.success(), "{printed:?}");
        let path = world.folder().join("proposed.yaml");
        std::fs::write(&path, printed.stdout)?;
        world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
        await_version(world, "provider", "1.0.0").await?;
        for dependent in ["dependent", "bundle-dependent"] {
            await_version(world, dependent, "1.0.0").await?;
        }

        // A requirement that only the catalog declares is recorded, too.
        world.apply(&[extension("catalog-dependent", None)])?;
        await_version(world, "catalog-dependent", "1.0.0").await?;
        extensions(world)
            .delete("catalog-dependent", &DeleteParams::default())
            .await?;
        await_gone(world, "catalog-dependent").await?;

        // The next version is held, since it would break the dependent; the user can override this.
        patch_source(world, "provider", json!({ "version": "2.0.0" })).await?;
        let message = await_progressing(
            world,
            "provider",
            retrying,
            "ClusterExtension dependent would be broken",
        )
        .await?;
        assert!(message.contains(names::user::ALLOW_BREAK_DEPENDENTS), "{message}");
        assert_eq!(
            installed_version(&extensions(world).get("provider").await?),
            Some("1.0.0")
        );
        let authorities = world.authorities().display().to_string();
        let (done, text) = olm(world, &["plan", "provider", "--ca-dir", &authorities])?;
        assert!(
            !done && text.starts_with("refused: ") && text.contains("dependent would be broken"),
            "{text}"
        );
        // A range that the installed version satisfies, too: the extension is healthy, and the update is reported as
        // held back.
        patch_source(world, "provider", json!({ "version": ">=1.0.0" })).await?;
        let succeeded = conditions::reason::SUCCEEDED;
        await_progressing(
            world,
            "provider",
            succeeded,
            "provider.v2.0.0 is held back: ClusterExtension dependent",
        )
        .await?;
        allow(world, "provider", Some("true")).await?;
        await_version(world, "provider", "2.0.0").await?;
        allow(world, "provider", None).await?;

        // The dependent still needs the API, so its provider is not uninstalled.
        let (done, text) = olm(world, &["uninstall", "provider", "--dry-run"])?;
        assert!(!done && text.contains("\n! dependent: "), "{text}");
        extensions(world)
            .delete("provider", &DeleteParams::default())
            .await?;
        let blocked = conditions::reason::BLOCKED;
        let message = await_progressing(
            world,
            "provider",
            blocked,
            "not uninstalled, because others depend on it",
        )
        .await?;
        assert!(
            message.contains("ClusterExtension dependent would be broken"),
            "{message}"
        );
        allow(world, "provider", Some("true")).await?;
        await_gone(world, "provider").await
    })
}

/// Runs `olm`; returns whether it succeeded, and its output.
fn olm(world: &World, arguments: &[&str]) -> Result<(bool, String)> {
    let run = std::process::Command::new(binary("olm")?)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .output()?;
    let text = [run.stdout, run.stderr].concat();
    Ok((run.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn extensions_that_need_each_other_move_together() -> Result<()> {
    CLUSTER.with(async |world| {
        let succeeded = conditions::reason::SUCCEEDED;
        world.apply(&[extension("pair-a", Some("1.0.0"))])?;
        let missing = "package pair-b (1.0.0) is not installed";
        await_progressing(world, "pair-a", conditions::reason::RETRYING, missing).await?;
        world.apply(&[extension("pair-b", Some("1.0.0"))])?;
        for package in ["pair-a", "pair-b"] {
            await_version(world, package, "1.0.0").await?;
        }
        // An update of only one would break the other.
        patch_source(world, "pair-a", json!({ "version": ">=1.0.0" })).await?;
        let held = "pair-a.v2.0.0 is held back: ";
        await_progressing(world, "pair-a", succeeded, held).await?;
        patch_source(world, "pair-b", json!({ "version": ">=1.0.0" })).await?;
        for package in ["pair-a", "pair-b"] {
            await_version(world, package, "2.0.0").await?;
        }
        Ok(())
    })
}

#[test]
fn extensions_that_need_each_other_change_in_a_window_that_both_have() -> Result<()> {
    CLUSTER.with(async |world| {
        let twins = ["twin-a", "twin-b"];
        let window = |schedule: &str| json!([{ "schedule": schedule, "duration": "2m" }]);
        let policy = |name: &str, windows: Value| {
            let selector = json!({ "matchLabels": { "example.com/twin": name } });
            world.apply(&[
                json!({ "apiVersion": "olm.operatorframework.io/v1", "kind": "ChangePolicy",
                "metadata": { "name": name }, "spec": { "selector": selector, "windows": windows } }),
            ])
        };
        let (always, never) = (window("* * * * *"), window("0 0 30 2 *"));
        for twin in twins {
            policy(twin, always.clone())?;
            let mut twin = extension(twin, Some("1.0.0"));
            twin["metadata"]["labels"] = json!({ "example.com/twin": twin["metadata"]["name"] });
            world.apply(&[twin])?;
        }
        for twin in twins {
            await_version(world, twin, "1.0.0").await?;
        }
        policy("twin-a", never.clone())?;
        for twin in twins {
            patch_source(world, twin, json!({ "version": ">=1.0.0" })).await?;
        }
        let held = async |name: &str, by: &str| {
            world
                .eventually(&format!("{name} is held back by {by}"), SOON, async || {
                    let found = extensions(world).get(name).await?;
                    assert_eq!(
                        installed_version(&found),
                        Some("1.0.0"),
                        "{name} while {by} holds it: {:?}",
                        found.status
                    );
                    let updates = found.status.and_then(|status| status.updates);
                    let updates = updates.context("no updates")?;
                    ensure!(updates.held_back_by.as_deref() == Some(by), "{updates:?}");
                    Ok(Some(()))
                })
                .await
        };
        held("twin-a", "Window").await?;
        held("twin-b", "Requirement").await?;
        // The reverse: the extension that was ready has no window any more.
        policy("twin-b", never)?;
        policy("twin-a", always.clone())?;
        held("twin-b", "Window").await?;
        held("twin-a", "Requirement").await?;
        policy("twin-b", always)?;
        for twin in twins {
            await_version(world, twin, "2.0.0").await?;
        }
        Ok(())
    })
}

#[test]
fn no_extension_of_a_circle_moves_while_one_may_not() -> Result<()> {
    CLUSTER.with(async |world| {
        let circle = ["circle-a", "circle-b", "circle-c"];
        let [limited, binding] = account("limited");
        let mut third = extension("circle-c", Some("1.0.0"));
        third["spec"]["serviceAccount"]["name"] = json!("limited");
        let [first, second] = ["circle-a", "circle-b"].map(|package| extension(package, Some("1.0.0")));
        world.apply(&[limited, binding.clone(), first, second, third])?;
        for package in circle {
            await_version(world, package, "1.0.0").await?;
        }
        world.kubectl(&["delete", "clusterrolebinding", "limited"])?;
        world
            .eventually("the account may nothing any more", SOON, async || {
                let who = format!("--as=system:serviceaccount:{NAMESPACE}:limited");
                let may = world.kubectl(&["auth", "can-i", "create", "configmaps", "-n", NAMESPACE, &who]);
                // kubectl exits with 1 if the answer is no.
                Ok(may.is_err().then_some(()))
            })
            .await?;
        for package in circle {
            patch_source(world, package, json!({ "version": ">=1.0.0" })).await?;
        }
        await_progressing(
            world,
            "circle-c",
            conditions::reason::RETRYING,
            "resolved bundle \"circle-c.v2.0.0\"",
        )
        .await?;
        for package in ["circle-a", "circle-b"] {
            let who =
                "updates together with circle-c.v2.0.0 of ClusterExtension circle-c, which cannot update: ";
            await_progressing(world, package, conditions::reason::SUCCEEDED, who).await?;
        }
        for package in circle {
            let found = extensions(world).get(package).await?;
            assert_eq!(installed_version(&found), Some("1.0.0"), "{package}");
        }
        world.apply(&[binding])?;
        for package in circle {
            await_version(world, package, "2.0.0").await?;
        }
        Ok(())
    })
}

/// Publishes one version of a package under the name of a catalog; gives the catalog's file.
async fn publish_alone(world: &World, name: &str, version: &str, required: &[Value]) -> Result<String> {
    let package = "two-places";
    let image = world
        .push_bundle(
            &format!("{package}-bundle:v{version}"),
            &bundle(package, "TwoPlaces", version),
        )
        .await?;
    let bundle = format!("{package}.v{version}");
    let mut properties =
        vec![json!({ "type": "olm.package", "value": { "packageName": package, "version": version } })];
    properties.extend_from_slice(required);
    let before = format!("{package}.v1.0.0");
    let entry = json!({ "name": bundle, "replaces": (bundle != before).then_some(before) });
    let blobs = [
        json!({ "schema": "olm.package", "name": package, "defaultChannel": "stable" }),
        json!({ "schema": "olm.channel", "package": package, "name": "stable", "entries": [entry] }),
        json!({ "schema": "olm.bundle", "package": package, "name": bundle, "image": image, "properties": properties }),
    ];
    let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    let reference = world.push_catalog(&format!("{name}:latest"), &text).await?;
    world.apply(&[catalog(name, &reference)])?;
    let path = world.folder().join(format!("{name}.json"));
    std::fs::write(&path, text)?;
    Ok(format!("{name}={}", path.display()))
}

#[test]
fn a_newer_bundle_of_another_catalog_whose_requirement_is_unmet_is_named_as_olm_resolve_does() -> Result<()> {
    CLUSTER.with(async |world| {
        let requires = json!({
            "type": "olm.package.required",
            "value": { "packageName": "nobody-has-this", "versionRange": ">=1.0.0" },
        });
        let older = publish_alone(world, "place-of-the-older", "1.0.0", &[]).await?;
        let newer = publish_alone(world, "place-of-the-newer", "2.0.0", &[requires]).await?;
        for name in ["place-of-the-older", "place-of-the-newer"] {
            let serving = ["wait", "--for=condition=Serving", "--timeout=120s"];
            world.kubectl(&[&serving[..], &[&format!("clustercatalog/{name}")]].concat())?;
        }
        let mut two_places = extension("two-places", None);
        // The installed bundle stays with the catalog that it came from, unless others are selected.
        two_places["spec"]["source"]["catalog"]["selector"] = json!({ "matchExpressions": [{
            "key": names::label::METADATA_NAME, "operator": "In",
            "values": ["place-of-the-older", "place-of-the-newer"],
        }] });
        world.apply(&[two_places])?;
        await_version(world, "two-places", "1.0.0").await?;
        let held =
            "two-places.v2.0.0 of catalog place-of-the-newer is held back: a requirement does not hold: ";
        let succeeded = conditions::reason::SUCCEEDED;
        let message = await_progressing(world, "two-places", succeeded, held).await?;
        assert!(message.contains("nobody-has-this"), "{message}");
        let selector = "involvedObject.name=two-places,reason=HeldBack";
        let events = || {
            let arguments = [
                "get",
                "events",
                "-n",
                "default",
                "--field-selector",
                selector,
                "-o",
            ];
            world.kubectl(&[&arguments[..], &["jsonpath={.items[*].message}"]].concat())
        };
        world
            .eventually("an event reports it", SOON, async || {
                let found = events()?;
                anyhow::ensure!(found.contains(held), "{found}");
                Ok(Some(()))
            })
            .await?;

        let run = std::process::Command::new(binary("olm")?)
            .args(["resolve", "two-places", "--cluster", "--kubeconfig"])
            .arg(world.cluster.kubeconfig())
            .args(["--catalog", &older, "--catalog", &newer])
            .output()?;
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{run:?}");
        for part in [
            "bundle    two-places.v1.0.0\n",
            "catalog   place-of-the-older\n",
            held,
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let run = std::process::Command::new(binary("olm")?)
            .args(["updates", "two-places", "--kubeconfig"])
            .arg(world.cluster.kubeconfig())
            .args(["--catalog", &older, "--catalog", &newer])
            .output()?;
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{run:?}");
        let why = "two-places: two-places.v2.0.0 of catalog place-of-the-newer is not chosen: a requirement does not hold: ";
        for part in ["two-places  1.0.0      -     2.0.0   Requirement\n", why] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        Ok(())
    })
}
