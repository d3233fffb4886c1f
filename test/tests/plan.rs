//! The output of `olm plan`, `olm history` and `olm uninstall --dry-run`, compared with the actions of
//! operator-controller.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::names::user;
use olm_plan::{BundleIdentity, Change, ChangePlan};
use olm_rollout::policy::Uninstall;
use olm_test::extensions::{
    SOON, administrator, await_version, catalog, content, merge, patch_source, revisions,
};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary};
use serde_json::{Value, json};

static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

const NAME: &str = "planned";
/// A value that no plan shows.
const PASSWORD: &str = "b25jZS11cG9uLWEtdGltZQ==";

/// Both managers, with a package in a catalog whose version 1.1.0 changes much of 1.0.0; 1.0.1 is in between.
async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let versions = ["1.0.0", "1.0.1", "1.1.0"];
    let mut images = BTreeMap::new();
    for version in versions {
        let image = format!("sample-operator:v{version}");
        let mut files = samples::renamed_bundle(NAME, version, &image);
        let object = |kind: &str, name: &str, data: Value| {
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data}).to_string()
        };
        let mut add = |path: &str, text: String| drop(files.insert(path.to_owned(), text.into_bytes()));
        let is_last = version == "1.1.0";
        let value = if is_last { PASSWORD } else { "b25jZQ==" };
        add(
            "manifests/secret.yaml",
            object("Secret", "planned-secret", json!({"password": value})),
        );
        let map = if is_last { "planned-new" } else { "planned-old" };
        add("manifests/map.yaml", object("ConfigMap", map, json!({"a": "b"})));
        if is_last {
            for content in files.values_mut() {
                let text = String::from_utf8_lossy(content);
                let wider = text.replace(
                    "verbs: [get, create, patch]",
                    "verbs: [get, create, patch, delete]",
                );
                *content = wider.into_bytes();
            }
        }
        let pushed = world
            .push_bundle(&format!("{NAME}-bundle:v{version}"), &files)
            .await?;
        images.insert(version, pushed);
    }
    let blobs = samples::catalog(&versions, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    let blobs = samples::renamed(NAME, &blobs);
    let reference = world.push_catalog("plan-catalog:latest", &blobs).await?;
    world.apply(&[catalog("samples", &reference)])?;
    let serving = [
        "wait",
        "--for=condition=Serving",
        "--timeout=120s",
        "clustercatalog/samples",
    ];
    world.kubectl(&serving)?;
    Ok(world)
}

/// Runs `olm` and returns its exit status and its output on each stream.
fn olm(world: &World, arguments: &[&str]) -> Result<(i32, String, String)> {
    let run = Command::new(binary("olm")?)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let status = run.status.code().context("it was killed")?;
    Ok((status, text(&run.stdout), text(&run.stderr)))
}

/// Runs `olm plan`.
fn plan(world: &World, arguments: &[&str]) -> Result<(i32, String, String)> {
    let authorities = world.authorities().display().to_string();
    olm(world, &[&["plan", "--ca-dir", &authorities], arguments].concat())
}

fn planned(world: &World, arguments: &[&str]) -> Result<Value> {
    let (status, printed, said) = plan(world, &[arguments, &["-o", "json"]].concat())?;
    ensure!(status == 0, "{said}");
    ensure!(!printed.contains(PASSWORD), "a value of a Secret is shown");
    Ok(serde_json::from_str(&printed)?)
}

/// Holds a plan against the revision that came of it.
async fn is_what_was_applied(world: &World, plan: &Value, from: Option<&str>, to: &str) -> Result<()> {
    let installed = match from {
        Some(name) => Some(revisions(world).get(name).await?),
        None => None,
    };
    let before = match &installed {
        Some(set) => content(&world.client, set).await?,
        None => Vec::new(),
    };
    let set = revisions(world).get(to).await?;
    let after = content(&world.client, &set).await?;
    let mut wanted = BundleIdentity::of(&set);
    plan["wanted"]["image"]
        .as_str()
        .unwrap_or_default()
        .clone_into(&mut wanted.image);
    ensure!(wanted.image.contains("@sha256:"), "{plan:#}");
    let (old, new): (Vec<&Value>, Vec<&Value>) = (before.iter().collect(), after.iter().collect());
    let applied = ChangePlan::new(&Change {
        extension: NAME,
        account: &format!("{NAME}/{NAME}-installer"),
        installed_account: None,
        installed: installed.as_ref().map(BundleIdentity::of).as_ref(),
        wanted: &wanted,
        catalog: "samples",
        passed: &[],
        uninstall: Uninstall::Delete,
        adopt: CollisionProtection::Prevent,
        before: &old,
        after: &new,
        needs: None,
    });
    let applied_objects = serde_json::to_value(&applied.objects)?;
    ensure!(
        plan["objects"] == applied_objects,
        "{:#}\n{applied_objects:#}",
        plan["objects"]
    );
    ensure!(plan["digest"] == applied.digest.as_str(), "{plan:#}");
    Ok(())
}

fn greeting(finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": format!("{NAME}.olm.example/v1"), "kind": "Greeting",
        "metadata": {"name": "stored", "namespace": NAME, "finalizers": finalizers}, "spec": {"name": "x"},
    })
}

#[test]
fn a_plan_equals_the_applied_change_and_shows_in_history_and_uninstall() -> Result<()> {
    CLUSTER.with(async |world| {
        let file = world.sample_file("manifests/samples/greeter.yaml", NAME, |text| {
            text.replace("1.0.x", "1.0.0")
        })?;
        before_anything_exists(world, &file)?;
        let first = planned(world, &["-f", &file])?;
        world.apply(&administrator(NAME, &format!("{NAME}-installer")))?;
        world.kubectl(&["apply", "--server-side", "-f", &file])?;
        await_version(world, NAME, "1.0.0").await?;
        is_what_was_applied(world, &first, None, "planned-1").await?;

        let (status, printed, said) = plan(world, &[NAME, "--exit-code"])?;
        ensure!(
            status == 0 && printed.contains("\nNothing changes.\n"),
            "{status} {printed}{said}"
        );
        world.apply(&[greeting(&[])])?;
        an_upgrade(world)?;
        let second = planned(world, &[NAME, "--version", "1.1.0"])?;
        ensure!(second["definitions"][0]["objects"] == 1, "{second:#}");
        patch_source(world, NAME, json!({"version": "1.1.0"})).await?;
        await_version(world, NAME, "1.1.0").await?;
        is_what_was_applied(world, &second, Some("planned-1"), "planned-2").await?;

        the_history(world).await?;
        an_uninstallation(world).await
    })
}

/// The plan for an extension that the cluster does not have.
fn before_anything_exists(world: &World, file: &str) -> Result<()> {
    let (status, printed, said) = plan(world, &["-f", file, "--exit-code"])?;
    ensure!(status == 3, "{status} {printed}{said}");
    for part in [
        "planned: nothing -> 1.0.0 (planned.v1.0.0)\n",
        "\ncatalog  samples\n",
        "+ Deployment.apps planned/planned-operator\n",
        "+ ServiceAccount planned/planned-operator: get, list, watch greetings.planned.olm.example",
        "Service account planned/planned-installer lacks:\n! ServiceAccount planned/planned-installer: ",
        "\nCustom resource definitions:\n+ greetings.planned.olm.example\n",
        "\nImages:\n+ sample-operator:v1.0.0\n",
        "\nDigest: sha256:",
    ] {
        ensure!(printed.contains(part), "{part:?} is not in {printed}");
    }
    let (status, _, said) = plan(world, &["-f", file, "other"])?;
    ensure!(
        status == 1 && said.contains("holds no ClusterExtension \"other\""),
        "{said}"
    );
    let (status, _, said) = plan(world, &[NAME])?;
    ensure!(
        status == 1 && said.contains("ClusterExtension \"planned\" not found"),
        "{said}"
    );
    let (status, _, said) = plan(world, &["-f", file, "--version", "9.9.9"])?;
    ensure!(status == 1 && said.contains("refused: "), "{status} {said}");
    Ok(())
}

fn an_upgrade(world: &World) -> Result<()> {
    let upgrade = [NAME, "--version", "1.1.0", "--exit-code"];
    let (status, printed, said) = plan(world, &upgrade)?;
    ensure!(status == 3, "{status} {said}");
    for part in [
        "planned: 1.0.0 -> 1.1.0 (planned.v1.1.0)\n",
        "\npassed   1.0.1\n",
        "\nrights   wider\n",
        "\ncrds     safe\n",
        "+ ConfigMap planned/planned-new\n",
        "~ Secret planned/planned-secret\n    ~ data.password: \"(hidden)\" -> \"(hidden)\"\n",
        "~ spec.template.spec.containers[name=operator].image: \"sample-operator:v1.0.0\" -> \"sample-operator:v1.1.0\"\n",
        "- ConfigMap planned/planned-old\n",
        "\nRights that the bundle grants:\n+ ServiceAccount planned/planned-operator: delete configmaps\n",
        "\n~ greetings.planned.olm.example (1 object)\n",
        "+ sample-operator:v1.1.0\n- sample-operator:v1.0.0\n",
    ] {
        ensure!(printed.contains(part), "{part:?} is not in {printed}");
    }
    let (_, yaml, _) = plan(world, &[NAME, "--version", "1.1.0", "-o", "yaml"])?;
    ensure!(
        yaml.contains("\ndefinitionsClass: Safe\n") && !yaml.contains(PASSWORD),
        "{yaml}"
    );
    Ok(())
}

async fn the_history(world: &World) -> Result<()> {
    world
        .eventually("the first revision has ended", SOON, async || {
            let (status, printed, said) = olm(world, &["history", NAME, "-o", "json"])?;
            ensure!(status == 0, "{said}");
            let entries: Vec<Value> = serde_json::from_str(&printed)?;
            let shown: Vec<_> = entries
                .iter()
                .map(|entry| [&entry["revision"], &entry["state"], &entry["bundle"]["version"]])
                .collect();
            ensure!(
                json!(shown) == json!([[2, "Installed", "1.1.0"], [1, "Upgraded", "1.0.0"]]),
                "{printed}"
            );
            ensure!(
                entries[1]["successor"] == json!({"revision": 2, "version": "1.1.0"}),
                "{printed}"
            );
            for (entry, key) in [(0, "created"), (0, "available"), (1, "available"), (1, "ended")] {
                ensure!(entries[entry][key].is_string(), "{entry} {key}: {printed}");
            }
            Ok(Some(()))
        })
        .await?;
    let (_, printed, _) = olm(world, &["history", NAME])?;
    let lines: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    ensure!(
        lines[0]
            == [
                "REVISION",
                "VERSION",
                "BUNDLE",
                "CREATED",
                "AVAILABLE",
                "ENDED",
                "STATE"
            ]
            && lines[1].ends_with(&["-", "installed"])
            && printed.contains("upgraded, followed by revision 2 (1.1.0)\n"),
        "{printed}"
    );
    Ok(())
}

async fn an_uninstallation(world: &World) -> Result<()> {
    let (status, _, said) = olm(world, &["uninstall", NAME])?;
    ensure!(status == 1 && said.contains("set --yes"), "{status} {said}");
    world.apply(&[greeting(&["planned.olm.example/clean"])])?;
    let (status, printed, said) = olm(world, &["uninstall", NAME, "--dry-run"])?;
    ensure!(status == 0, "{said}");
    for part in [
        "- CustomResourceDefinition greetings.planned.olm.example\n",
        "- Deployment planned/planned-operator\n",
        "\nCustom resources:\n- greetings.planned.olm.example: 1 deleted\n    ! 1 of them wait for the finalizer \
         planned.olm.example/clean, which only the operator removes: planned/stored\n",
    ] {
        ensure!(printed.contains(part), "{part:?} is not in {printed}");
    }
    let keep = json!({"metadata": {"annotations": {user::UNINSTALL: "keep-crds"}}});
    merge(world, NAME, keep).await?;
    let (_, printed, _) = olm(world, &["uninstall", NAME, "--dry-run", "-o", "json"])?;
    let kept: Value = serde_json::from_str(&printed)?;
    ensure!(
        kept["left"][0]["name"] == "greetings.planned.olm.example",
        "{printed}"
    );
    ensure!(
        kept["customResources"][0]
            == json!({"definition": "greetings.planned.olm.example", "left": true, "objects": 1}),
        "{printed}"
    );
    // So that the cluster can be removed.
    world.apply(&[greeting(&[])])
}
