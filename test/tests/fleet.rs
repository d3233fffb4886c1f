//! `olm inventory` and `olm fleet plan` on a real API server: the plan for a cluster equals the changes that both
//! managers make after the catalog changes.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_api::names::user;
use olm_test::extensions::{
    SOON, administrator, await_version, catalog, extensions, installed_version, merge,
};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary};
use serde_json::{Value, json};

const NAMESPACE: &str = "fleet";
const NEXT: [&str; 3] = ["1.0.0", "1.0.1", "1.1.0"];

/// A package with version 1.0.0 installed, and the expected effect of the next catalog.
struct Package {
    name: &'static str,
    /// The version that the extension requests.
    version: Option<&'static str>,
    /// The versions that the next catalog has.
    next: &'static [&'static str],
    /// Further properties of the last version.
    properties: fn() -> Vec<Value>,
    /// Whether each version has an edge to the next.
    has_edges: bool,
    /// The change, the updates, and the blocker of the newest version.
    expected: (&'static str, &'static [&'static str], Option<&'static str>),
}

const PLAIN: Package = Package {
    name: "",
    version: None,
    next: &NEXT,
    properties: Vec::new,
    has_edges: true,
    expected: ("Stay", &[], None),
};

fn requires(package: &str, range: &str) -> Value {
    json!({ "type": "olm.package.required", "value": { "packageName": package, "versionRange": range } })
}

const PACKAGES: &[Package] = &[
    // Each version replaces the one before: two steps.
    Package {
        name: "by-steps",
        expected: ("Update", &["1.0.1", "1.1.0"], None),
        ..PLAIN
    },
    Package {
        name: "by-range",
        version: Some("<1.1.0"),
        expected: ("Update", &["1.0.1"], Some("Range")),
        ..PLAIN
    },
    Package {
        name: "by-pin",
        version: Some("1.0.0"),
        expected: ("Stay", &[], Some("Pin")),
        ..PLAIN
    },
    Package {
        name: "by-edge",
        next: &["1.0.0", "1.0.1"],
        has_edges: false,
        expected: ("Stay", &[], Some("Edge")),
        ..PLAIN
    },
    Package {
        name: "by-platform",
        next: &["1.0.0", "1.0.1"],
        properties: || vec![json!({ "type": "olm.csv.metadata", "value": { "minKubeVersion": "99.0.0" } })],
        expected: ("Stay", &[], Some("Platform")),
        ..PLAIN
    },
    Package {
        name: "by-requirement",
        next: &["1.0.0", "1.0.1"],
        properties: || vec![requires("nobody-has-this", ">=1.0.0")],
        expected: ("Stay", &[], Some("Requirement")),
        ..PLAIN
    },
    // Waits for the last step of another extension.
    Package {
        name: "after-steps",
        next: &["1.0.0", "1.0.1"],
        properties: || vec![requires("by-steps", ">=1.1.0")],
        expected: ("Update", &["1.0.1"], None),
        ..PLAIN
    },
    // Neither is updated alone.
    Package {
        name: "pair-left",
        next: &["1.0.0", "1.0.1"],
        properties: || vec![requires("pair-right", ">=1.0.1")],
        expected: ("Update", &["1.0.1"], None),
        ..PLAIN
    },
    Package {
        name: "pair-right",
        next: &["1.0.0", "1.0.1"],
        properties: || vec![requires("pair-left", ">=1.0.1")],
        expected: ("Update", &["1.0.1"], None),
        ..PLAIN
    },
    Package {
        name: "by-pause",
        next: &["1.0.0", "1.0.1"],
        expected: ("Stay", &[], Some("Paused")),
        ..PLAIN
    },
    Package {
        name: "gone",
        next: &[],
        expected: ("NoBundle", &[], None),
        ..PLAIN
    },
];

impl Package {
    /// Pushes the bundles; returns the blobs of a catalog with these versions.
    async fn publish(&self, world: &World, versions: &[&str]) -> Result<String> {
        let package = self.name;
        let name = |version: &str| format!("{package}.v{version}");
        let entries: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(number, version)| {
                let before = number.checked_sub(1).and_then(|before| versions.get(before));
                let replaces = before.filter(|_| self.has_edges).map(|before| name(before));
                json!({ "name": name(version), "replaces": replaces })
            })
            .collect();
        let mut blobs = Vec::new();
        if !versions.is_empty() {
            blobs.push(json!({ "schema": "olm.package", "name": package, "defaultChannel": "stable" }));
            blobs.push(
                json!({ "schema": "olm.channel", "package": package, "name": "stable", "entries": entries }),
            );
        }
        for version in versions {
            let files = samples::renamed_bundle(package, version, samples::OPERATOR_IMAGE);
            let image = world
                .push_bundle(&format!("{package}-bundle:v{version}"), &files)
                .await?;
            let mut properties = vec![
                json!({ "type": "olm.package", "value": { "packageName": package, "version": version } }),
            ];
            if versions.len() > 1 && versions.last() == Some(version) {
                properties.extend((self.properties)());
            }
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
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": { "name": self.name },
            "spec": { "namespace": NAMESPACE, "serviceAccount": { "name": "installer" },
                "source": { "sourceType": "Catalog", "catalog": catalog } },
        })
    }

    /// The version in the end.
    fn last(&self) -> &'static str {
        self.expected.1.last().copied().unwrap_or("1.0.0")
    }
}

/// The output of `olm`, and its exit status.
fn olm(world: &World, line: &str) -> Result<(String, Option<i32>)> {
    let run = Command::new(binary("olm")?)
        .args(line.split_whitespace())
        .current_dir(world.folder())
        .env("KUBECONFIG", world.cluster.kubeconfig())
        .output()?;
    ensure!(
        run.stderr.is_empty(),
        "`olm {line}`: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    Ok((String::from_utf8(run.stdout)?, run.status.code()))
}

/// The change, the updates and the blocker of the newest version of an extension in a plan.
fn planned<'p>(plan: &'p Value, name: &str) -> Result<(&'p Value, Vec<&'p str>, Option<&'p str>)> {
    let extensions = plan["clusters"][0]["extensions"].as_array();
    let mut extensions = extensions.into_iter().flatten();
    let found = extensions.find(|extension| extension["extension"] == name);
    let found = found.with_context(|| format!("{name} is not planned"))?;
    let updates = found["updates"].as_array().into_iter().flatten();
    let updates = updates.filter_map(|step| step["version"].as_str()).collect();
    Ok((found, updates, found["heldBackBy"].as_str()))
}

static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// A cluster with all packages, and its facts before the next catalog: the files `east.yaml`, its inventory,
/// and `next.json`, that catalog.
struct Stage {
    world: World,
    /// The blobs of the next catalog.
    next: String,
    /// The inventory as a table.
    table: String,
    /// The inventory as names.
    names: String,
}

impl Stage {
    async fn start() -> Result<Self> {
        let world = World::start(Options::default()).await?;
        installed(&world).await?;
        let (inventory, _) = olm(&world, "inventory --name east")?;
        std::fs::write(world.folder().join("east.yaml"), &inventory)?;
        let (table, _) = olm(&world, "inventory --name east -o table")?;
        let (names, _) = olm(&world, "inventory --name east -o name")?;
        let mut next = String::new();
        for package in PACKAGES {
            next.push_str(&package.publish(&world, package.next).await?);
        }
        std::fs::write(world.folder().join("next.json"), &next)?;
        Ok(Self {
            world,
            next,
            table,
            names,
        })
    }
}

async fn installed(world: &World) -> Result<()> {
    let mut now = String::new();
    for package in PACKAGES {
        now.push_str(&package.publish(world, &["1.0.0"]).await?);
    }
    let reference = world.push_catalog("fleet:v1", &now).await?;
    world.apply(&administrator(NAMESPACE, "installer"))?;
    world.apply(&[catalog("fleet", &reference)])?;
    for package in PACKAGES {
        world.apply(&[package.extension()])?;
    }
    for package in PACKAGES {
        await_version(world, package.name, "1.0.0").await?;
    }
    let paused = json!({ "metadata": { "annotations": { user::PAUSED: "true" } } });
    merge(world, "by-pause", paused).await
}

#[test]
fn an_inventory_contains_no_configuration() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        let secret =
            json!({ "spec": { "config": { "configType": "Inline", "inline": { "password": "hunter2" } } } });
        merge(world, "by-pin", secret).await?;
        let (inventory, _) = olm(world, "inventory --name east")?;
        ensure!(!inventory.contains("hunter2"), "{inventory}");
        ensure!(olm(world, "inventory --name east")?.0 == inventory, "{inventory}");
        let plain = json!({ "spec": { "config": null } });
        merge(world, "by-pin", plain).await
    })
}

#[test]
fn an_inventory_is_printed_as_a_table_and_as_names() -> Result<()> {
    CLUSTER.with(async |stage| {
        let (table, names) = (&stage.table, &stage.names);
        ensure!(
            table.contains("by-steps        by-steps        1.0.0\n"),
            "{table}"
        );
        ensure!(
            names.contains("clusterextension.olm.operatorframework.io/by-steps\n"),
            "{names}"
        );
        Ok(())
    })
}

#[test]
fn a_plan_lists_the_updates_of_each_extension_and_what_holds_the_newest_back() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let (text, status) = olm(world, "fleet plan fleet=next.json east.yaml -o json --exit-code")?;
        ensure!(
            status == Some(1),
            "one extension finds no bundle: {status:?} {text}"
        );
        let plan: Value = serde_json::from_str(&text)?;
        for package in PACKAGES {
            let (extension, updates, held) = planned(&plan, package.name)?;
            ensure!(
                extension["change"] == package.expected.0
                    && updates == package.expected.1
                    && held == package.expected.2,
                "{extension:#}"
            );
        }
        let (pair, ..) = planned(&plan, "pair-left")?;
        ensure!(
            pair["updates"][0]["togetherWith"] == json!(["pair-right"]),
            "{pair:#}"
        );
        Ok(())
    })
}

#[test]
fn a_plan_is_printed_as_a_table_and_as_names() -> Result<()> {
    CLUSTER.with(async |stage| plan_is_printed(&stage.world))
}

fn plan_is_printed(world: &World) -> Result<()> {
    let (table, _) = olm(world, "fleet plan fleet=next.json east.yaml")?;
    for part in [
        "CLUSTER  EXTENSION       CHANGE    INSTALLED  NEXT          NEWEST  HELD BACK BY\n",
        "east     by-steps        Update    1.0.0      1.0.1, 1.1.0  1.1.0   -\n",
        "east     by-range        Update    1.0.0      1.0.1         1.1.0   Range\n",
        "by-range: by-range.v1.1.0 is not chosen: it is outside the version range \"<1.1.0\" (on east)\n",
        "1 of 1 cluster would change: 0 installs, 5 updates; 5 stay, 1 without a bundle, 0 from other catalogs\n",
    ] {
        ensure!(table.contains(part), "{part:?} in\n{table}");
    }
    let (names, _) = olm(world, "fleet plan fleet=next.json east.yaml -o name")?;
    ensure!(names.contains("east/by-steps\neast/"), "{names}");
    Ok(())
}

/// The other tests do not depend on the versions that this one leaves.
#[test]
fn a_cluster_does_with_the_next_catalog_what_is_planned_from_its_inventory() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        let reference = world.push_catalog("fleet:v2", &stage.next).await?;
        world.apply(&[catalog("fleet", &reference)])?;
        for package in PACKAGES {
            let held = package.expected.2;
            world
                .eventually(&format!("{} is as planned", package.name), SOON, async || {
                    let extension = extensions(world).get(package.name).await?;
                    ensure!(
                        installed_version(&extension) == Some(package.last()),
                        "{extension:?}"
                    );
                    let updates = extension.status.and_then(|status| status.updates);
                    let by = updates.and_then(|updates| updates.held_back_by);
                    // For a package that is gone, the status names the catalog.
                    ensure!(package.next.is_empty() || by.as_deref() == held, "{by:?}");
                    Ok(Some(()))
                })
                .await?;
        }

        // No changes remain.
        let (after, _) = olm(world, "inventory --name east -o json")?;
        std::fs::write(world.folder().join("after.json"), after)?;
        let (text, _) = olm(world, "fleet plan fleet=next.json after.json -o json")?;
        let plan: Value = serde_json::from_str(&text)?;
        ensure!(plan["summary"]["clustersThatChange"] == 0, "{plan:#}");
        for package in PACKAGES {
            let (extension, _, held) = planned(&plan, package.name)?;
            ensure!(
                extension["installed"] == package.last() && held == package.expected.2,
                "{extension:#}"
            );
        }
        Ok(())
    })
}
