//! Newer bundles and their blockers are in the status, in a column of `kubectl get`, in one event for each version, and
//! in `olm updates`.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use olm_api::names::user;
use olm_api::updates::{UpdatesStatus, held_back};
use olm_test::extensions::{
    SOON, administrator, await_version, catalog, extensions, installed_version, merge, patch_source,
};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary};
use serde_json::{Value, json};

const NAMESPACE: &str = "updates";

/// Changes a file of version 1.0.1 of a bundle.
type Change = fn(text: String) -> String;

/// A package with the versions 1.0.0 and 1.0.1, and an extension that has the first.
struct Package {
    name: &'static str,
    /// The version that the extension requests.
    version: Option<&'static str>,
    /// Whether an edge leads to 1.0.1.
    has_edge: bool,
    /// Further properties of 1.0.1.
    properties: fn() -> Vec<Value>,
    change: Change,
    /// The blocker of 1.0.1, and a part of the message.
    expected: (&'static str, &'static str),
}

/// A package whose second version has no blocker.
const PLAIN: Package = Package {
    name: "",
    version: None,
    has_edge: true,
    properties: Vec::new,
    change: |text| text,
    expected: ("", ""),
};

const PACKAGES: &[Package] = &[
    Package {
        name: "by-range",
        version: Some("<1.0.1"),
        expected: (held_back::RANGE, "it is outside the version range \"<1.0.1\""),
        ..PLAIN
    },
    Package {
        name: "by-pin",
        version: Some("1.0.0"),
        expected: (held_back::PIN, "the version is pinned to 1.0.0"),
        ..PLAIN
    },
    // There is no edge after its pin is lifted.
    Package {
        name: "by-edge",
        version: Some("1.0.0"),
        has_edge: false,
        expected: (held_back::PIN, "no update edge leads to it from by-edge.v1.0.0"),
        ..PLAIN
    },
    Package {
        name: "by-requirement",
        properties: || {
            vec![json!({
                "type": "olm.package.required",
                "value": { "packageName": "nobody-has-this", "versionRange": ">=1.0.0" },
            })]
        },
        expected: (
            held_back::REQUIREMENT,
            "package nobody-has-this (>=1.0.0) is not installed",
        ),
        ..PLAIN
    },
    Package {
        name: "by-platform",
        properties: || vec![json!({ "type": "olm.csv.metadata", "value": { "minKubeVersion": "99.0.0" } })],
        expected: (held_back::PLATFORM, "it needs Kubernetes 99.0.0 or later"),
        ..PLAIN
    },
    // These request 1.0.1 later.
    Package {
        name: "by-rights",
        version: Some("1.0.0"),
        expected: (held_back::PIN, ""),
        ..PLAIN
    },
    Package {
        name: "by-crd",
        version: Some("1.0.0"),
        change: |text| text.replace("required: [name]", "required: [name, salutation]"),
        expected: (held_back::PIN, ""),
        ..PLAIN
    },
    Package {
        name: "by-pause",
        version: Some("1.0.0"),
        expected: (held_back::PIN, ""),
        ..PLAIN
    },
];

impl Package {
    /// Pushes the bundles; returns their blobs for a catalog.
    async fn publish(&self, world: &World) -> Result<String> {
        let package = self.name;
        let name = |version: &str| format!("{package}.v{version}");
        let replaces = self.has_edge.then(|| name("1.0.0"));
        let entries = [
            json!({ "name": name("1.0.0") }),
            json!({ "name": name("1.0.1"), "replaces": replaces }),
        ];
        let mut blobs = vec![
            json!({ "schema": "olm.package", "name": package, "defaultChannel": "stable" }),
            json!({ "schema": "olm.channel", "package": package, "name": "stable", "entries": entries }),
        ];
        for version in ["1.0.0", "1.0.1"] {
            let mut files = samples::renamed_bundle(package, version, samples::OPERATOR_IMAGE);
            let mut properties = vec![
                json!({ "type": "olm.package", "value": { "packageName": package, "version": version } }),
            ];
            if version == "1.0.1" {
                for content in files.values_mut() {
                    *content = (self.change)(String::from_utf8_lossy(content).into_owned()).into_bytes();
                }
                properties.extend((self.properties)());
            }
            let image = world
                .push_bundle(&format!("{package}-bundle:v{version}"), &files)
                .await?;
            blobs.push(json!({
                "schema": "olm.bundle", "package": package, "name": name(version), "image": image,
                "properties": properties,
            }));
        }
        Ok(blobs.iter().map(|blob| format!("{blob}\n")).collect())
    }

    fn extension(&self) -> Value {
        let mut catalog = json!({ "packageName": self.name });
        if let Some(version) = self.version {
            catalog["version"] = json!(version);
        }
        let account = if self.name == "by-rights" {
            "limited"
        } else {
            "installer"
        };
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": { "name": self.name },
            "spec": { "namespace": NAMESPACE, "serviceAccount": { "name": account },
                "source": { "sourceType": "Catalog", "catalog": catalog } },
        })
    }
}

async fn updates(world: &World, name: &str) -> Result<Option<UpdatesStatus>> {
    let extension = extensions(world).get(name).await?;
    Ok(extension.status.and_then(|status| status.updates))
}

/// Waits until the status reports this blocker of 1.0.1; `is_next` if it is chosen.
async fn await_held(world: &World, name: &str, is_next: bool, by: &str, part: &str) -> Result<()> {
    world
        .eventually(&format!("{name} is held back by {by}"), SOON, async || {
            let found = updates(world, name).await?.context("nothing is known")?;
            ensure!(found.held_back_by.as_deref() == Some(by), "{found:?}");
            ensure!(found.message.contains(part), "{part:?} in {found:?}");
            let newest = found.newest.as_ref().context("no newest")?;
            ensure!(
                newest.version == "1.0.1"
                    && newest.name == format!("{name}.v1.0.1")
                    && newest.catalog == "updates",
                "{found:?}"
            );
            ensure!(found.next.is_some() == is_next, "{found:?}");
            Ok(Some(()))
        })
        .await
}

/// The cells of `kubectl get` for an extension in these columns, from the table of the API server.
fn shown(world: &World, name: &str, heads: [&str; 3]) -> Result<[String; 3]> {
    let text = world.kubectl(&["get", "cext", name])?;
    ensure!(text.lines().all(|line| line.len() <= 120), "too wide:\n{text}");
    Ok(cells(&text, heads))
}

/// The cells of the only row of a table.
fn cells<const N: usize>(table: &str, heads: [&str; N]) -> [String; N] {
    let mut lines = table.lines();
    let (head, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    // Cells may be empty: they are aligned with their headings.
    heads.map(|wanted| {
        let rest = head
            .find(wanted)
            .and_then(|start| row.get(start..))
            .unwrap_or_default();
        let cell = rest.split("  ").next().unwrap_or_default();
        cell.trim().to_owned()
    })
}

/// The columns of `-o wide` name the chosen version, and why it or a newer one is not installed.
fn wide_columns_agree(world: &World) -> Result<()> {
    for (name, expected) in [
        ("by-edge", ["", held_back::EDGE]),
        ("by-crd", ["1.0.1", held_back::CRD_UPGRADE_SAFETY]),
    ] {
        let wide = world.kubectl(&["get", "cext", name, "-o", "wide"])?;
        assert_eq!(cells(&wide, ["NEXT", "HELD BACK BY"]), expected, "{name}");
    }
    Ok(())
}

/// The notes of the events about newer bundles.
fn announced(world: &World, name: &str) -> Result<Vec<String>> {
    let selector = format!("involvedObject.name={name},reason=UpdateAvailable");
    let lines = "jsonpath={range .items[*]}{.series.count}{.message}{\"\\x00\"}{end}";
    let arguments = [
        "get",
        "events",
        "-n",
        "default",
        "--field-selector",
        &selector,
        "-o",
        lines,
    ];
    let text = world.kubectl(&arguments)?;
    let events = text.split('\0').filter(|event| !event.is_empty());
    Ok(events.map(str::to_owned).collect())
}

fn olm_updates(world: &World, arguments: &[&str]) -> Result<String> {
    let run = std::process::Command::new(binary("olm")?)
        .args(["updates", "--kubeconfig"])
        .arg(world.cluster.kubeconfig())
        .args(arguments)
        .output()?;
    ensure!(run.status.success(), "{run:?}");
    Ok(String::from_utf8(run.stdout)?)
}

/// The resource versions of all extensions except the one that continues after the restart and the one whose missing
/// permissions are checked again.
async fn stands(world: &World) -> Result<Vec<(String, Option<String>)>> {
    let all = extensions(world).list(&ListParams::default()).await?;
    let rest = all
        .items
        .into_iter()
        .filter(|one| !["by-pause", "by-rights"].contains(&one.name()));
    Ok(rest
        .map(|one| (one.name().to_owned(), one.metadata.resource_version))
        .collect())
}

/// Both managers.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(World::start(Options::default())));

#[test]
fn newer_versions_and_their_obstacles_are_shown_and_announced_once() -> Result<()> {
    CLUSTER.alone(scenario)
}

/// The command line prints the same, from the status and from the catalog itself.
fn command_line_agrees(world: &World, file: &Path) -> Result<()> {
    let reported = olm_updates(world, &[])?;
    let named = format!("updates={}", file.display());
    let computed = olm_updates(world, &["--catalog", &named, "--default-catalogs", "updates"])?;
    for (name, by) in [
        ("by-range", held_back::RANGE),
        ("by-pin", held_back::PIN),
        ("by-edge", held_back::EDGE),
        ("by-requirement", held_back::REQUIREMENT),
        ("by-platform", held_back::PLATFORM),
    ] {
        let row = [name, "1.0.0", "-", "1.0.1", by];
        for text in [&reported, &computed] {
            let is_row = |line: &str| line.split_whitespace().eq(row);
            ensure!(text.lines().any(is_row), "{row:?} in\n{text}");
        }
    }
    let chosen = ["by-rights", "1.0.0", "1.0.1", "1.0.1", held_back::RIGHTS];
    ensure!(
        reported.lines().any(|line| line.split_whitespace().eq(chosen)),
        "{reported}"
    );
    Ok(())
}

async fn scenario(world: &mut World) -> Result<()> {
    let mut blobs = String::new();
    for package in PACKAGES {
        blobs.push_str(&package.publish(world).await?);
    }
    let file = world.folder().join("updates.json");
    std::fs::write(&file, &blobs)?;
    let reference = world.push_catalog("updates:latest", &blobs).await?;
    world.apply(&administrator(NAMESPACE, "installer"))?;
    world.apply(&administrator(NAMESPACE, "limited"))?;
    world.apply(&[catalog("updates", &reference)])?;
    for package in PACKAGES {
        world.apply(&[package.extension()])?;
    }
    for Package { name, expected, .. } in PACKAGES {
        await_version(world, name, "1.0.0").await?;
        await_held(world, name, false, expected.0, expected.1).await?;
        let heads = ["READY", "STATUS", "UPDATE"];
        assert_eq!(shown(world, name, heads)?, ["True", "Healthy", "1.0.1"], "{name}");
    }

    // The version is chosen and cannot be installed.
    world.kubectl(&["delete", "clusterrolebinding", "updates-limited"])?;
    world
        .eventually("the account may nothing any more", SOON, async || {
            let who = format!("--as=system:serviceaccount:{NAMESPACE}:limited");
            let may = world.kubectl(&["auth", "can-i", "create", "configmaps", "-n", NAMESPACE, &who]);
            // kubectl exits with 1 if the answer is no.
            Ok(may.is_err().then_some(()))
        })
        .await?;
    let paused = |value: Option<&str>| json!({ "metadata": { "annotations": { user::PAUSED: value } } });
    merge(world, "by-pause", paused(Some("true"))).await?;
    for name in ["by-edge", "by-rights", "by-crd", "by-pause"] {
        patch_source(world, name, json!({ "version": null })).await?;
    }
    await_held(
        world,
        "by-edge",
        false,
        held_back::EDGE,
        "no update edge leads to it",
    )
    .await?;
    await_held(world, "by-rights", true, held_back::RIGHTS, "").await?;
    await_held(world, "by-crd", true, held_back::CRD_UPGRADE_SAFETY, "").await?;
    await_held(
        world,
        "by-pause",
        true,
        held_back::PAUSED,
        "paused by the annotation",
    )
    .await?;
    for (name, expected) in [
        ("by-edge", ["True", "Healthy", "1.0.1"]),
        ("by-rights", ["False", "Blocked", "1.0.1"]),
        ("by-crd", ["False", "Blocked", "1.0.1"]),
        ("by-pause", ["False", "Paused", "1.0.1"]),
    ] {
        assert_eq!(
            shown(world, name, ["READY", "STATUS", "UPDATE"])?,
            expected,
            "{name}"
        );
    }

    wide_columns_agree(world)?;
    command_line_agrees(world, &file)?;

    // One event for each version: none for another reason, and none after a restart, which writes nothing.
    let before = stands(world).await?;
    world.operator_controller.stop().await?;
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    // Up to date: nothing newer, and an empty cell.
    merge(world, "by-pause", paused(None)).await?;
    await_version(world, "by-pause", "1.0.1").await?;
    assert_eq!(updates(world, "by-pause").await?, Some(UpdatesStatus::default()));
    let row = shown(world, "by-pause", ["VERSION", "STATUS", "UPDATE"])?;
    assert_eq!(row, ["1.0.1", "Healthy", ""]);
    assert_eq!(stands(world).await?, before, "a restart writes nothing");
    for Package { name, .. } in PACKAGES {
        let notes = announced(world, name)?;
        let note = format!(
            "{name}.v1.0.1 1.0.1 of catalog updates is available\n{name}.v1.0.1 of catalog updates is not"
        );
        ensure!(
            notes.len() == 1 && notes.iter().all(|found| found.starts_with(&note)),
            "{name}: {notes:?}"
        );
    }

    // While the catalog does not answer, the last known updates stay; without the catalog, there are none.
    world.kubectl(&["delete", "clustercatalog", "updates"])?;
    for name in ["by-range", "by-edge"] {
        await_held(world, name, false, held_back::CATALOG, "catalog \"updates\"").await?;
        assert_eq!(
            installed_version(&extensions(world).get(name).await?),
            Some("1.0.0")
        );
    }
    Ok(())
}
