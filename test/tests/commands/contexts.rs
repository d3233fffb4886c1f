//! `--context`: the commands reach the cluster of the named context, not that of the current one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::config::Kubeconfig;
use olm_api::names::SYSTEM_NAMESPACE;
use olm_test::extensions::{administrator, catalog};
use olm_test::world::{Lab, World};
use serde_json::{Value, json};

use super::{CLUSTER, Ran, VAT, olm_as, trusting};

/// The context of the second cluster, its ClusterCatalog and its ClusterExtension.
const SECOND: &str = "second";

#[test]
fn a_context_leads_to_its_cluster() -> Result<()> {
    CLUSTER.with(async |world| {
        let second = second(world).await?;
        let kubeconfig = both(world, &second)?.display().to_string();
        let ca = trusting(world);
        let current = |line: &str| olm_as(world, &kubeconfig, line);
        let named = |line: &str| olm_as(world, &kubeconfig, &format!("{line} --context {SECOND}"));

        ensure!(rows(current("get")?)?.iter().all(|name| name != SECOND));
        let found = rows(named("get")?)?;
        ensure!(found == [SECOND], "{found:?}");

        // A catalog of this name is on the second cluster only.
        let rehearse = format!("install {VAT} --catalog {SECOND} --dry-run {ca}");
        current(&rehearse)?.ended(1)?.says(&[
            "the cluster serves none of the catalogs second\n",
            "hint: its ClusterCatalogs are fans, lamps, vases\n",
        ])?;
        named(&rehearse)?.ended(0)?.prints(&[
            "\nkind: ClusterExtension\n",
            "olm.operatorframework.io/metadata.name: second\n",
        ])?;
        named(&format!("install {VAT} --catalog fans --dry-run {ca}"))?
            .ended(1)?
            .says(&["hint: its ClusterCatalogs are second"])?;

        let plan = format!("plan {SECOND} {ca}");
        current(&plan)?
            .ended(1)?
            .says(&["ClusterExtension \"second\" not found"])?;
        named(&plan)?
            .ended(0)?
            .prints(&["second: nothing -> 1.0.1 (vase.v1.0.1)\n", "\ncatalog  second\n"])?;

        olm_as(world, &kubeconfig, "plan second --context third")?
            .ended(1)?
            .says(&["hint: its contexts are ", ", second"])?;
        versions(world, &kubeconfig)
    })
}

/// The managers of the second cluster have Deployments, those of the first are processes.
fn versions(world: &World, kubeconfig: &str) -> Result<()> {
    let own = |ran: &Ran| ran.printed.starts_with("version: \"") && ran.said.is_empty();
    let run = |line: &str| olm_as(world, kubeconfig, line)?.ended(0);
    for line in ["version", "version --client", "version --client --context second"] {
        let ran = run(line)?;
        ensure!(own(&ran) && ran.printed.lines().count() == 1, "{ran}");
    }
    let second = run("version --context second")?;
    ensure!(own(&second), "{second}");
    second.prints(&[
        "\n\nMANAGER              VERSION  IMAGE\n",
        "\ncatalogd             v9.8.7   registry.example:5000/olmv1/catalogd:v9.8.7\n",
        "\noperator-controller  -        registry.example/olmv1/operator-controller@sha256:",
    ])?;
    let read = |line: &str| -> Result<Value> { Ok(serde_json::from_str(&run(line)?.printed)?) };
    let second = read("version --context second -o json")?;
    ensure!(second["managers"][0]["version"] == "v9.8.7", "{second}");
    ensure!(second["managers"][1]["version"].is_null(), "{second}");
    ensure!(read("version -o json")?["managers"] == json!([]));
    ensure!(read("version --client -o json")?.get("managers").is_none());

    // A context that is named must exist; a kubeconfig that is found must be one.
    olm_as(world, kubeconfig, "version --context third")?
        .ended(1)?
        .says(&["third", "hint: its contexts are "])?;
    let broken = world.folder().join("broken.yaml");
    std::fs::write(&broken, "{")?;
    olm_as(world, &broken.display().to_string(), "version")?
        .ended(0)?
        .says(&["note: cannot read the versions of the managers: cannot use the kubeconfig"])?;

    // A server that accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let server = format!("https://{}", silent.local_addr()?);
    let cluster = json!({"name": "silent", "cluster": {"server": server}});
    let context = json!({"name": "silent", "context": {"cluster": "silent", "user": ""}});
    let path = world.folder().join("silent");
    let config = json!({"clusters": [cluster], "contexts": [context], "current-context": "silent"});
    std::fs::write(&path, config.to_string())?;
    let began = Instant::now();
    let ran = olm_as(world, &path.display().to_string(), "version")?.ended(0)?;
    ensure!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    ensure!(ran.printed.lines().count() == 1, "{ran}");
    ran.says(&["note: cannot read the versions of the managers: "])?;
    Ok(())
}

/// The names in the table of `olm get`.
fn rows(ran: Ran) -> Result<Vec<String>> {
    let ran = ran.ended(0)?;
    let rows = ran.printed.lines().skip(1);
    Ok(rows
        .filter_map(|row| row.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

/// A second cluster, without managers: a ClusterCatalog whose image is in the first cluster's registry, and a
/// ClusterExtension of its package.
async fn second(world: &World) -> Result<Lab> {
    let lab = Lab::with_definitions().await?;
    let image = "jsonpath={.status.resolvedSource.image.ref}";
    let image = world.kubectl(&["get", "clustercatalog", "vases", "-o", image])?;
    lab.apply(&[catalog(SECOND, &image)])?;
    let status = json!({"status": {"resolvedSource": {"type": "Image", "image": {"ref": image}}}});
    lab.kubectl(&[
        "patch",
        "clustercatalog",
        SECOND,
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ])?;
    let deployment = |manager: &str, image: &str| {
        let labels = json!({"app": manager});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": format!("{manager}-controller-manager"), "namespace": SYSTEM_NAMESPACE},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": image}]},
            }},
        })
    };
    let digest = "0".repeat(64);
    lab.apply(&[
        deployment("catalogd", "registry.example:5000/olmv1/catalogd:v9.8.7"),
        deployment(
            "operator-controller",
            &format!("registry.example/olmv1/operator-controller@sha256:{digest}"),
        ),
    ])?;
    lab.apply(&administrator(SECOND, "installer"))?;
    lab.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": SECOND},
        "spec": {
            "namespace": SECOND, "serviceAccount": {"name": "installer"},
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "vase", "version": "1.0.x"}},
        },
    })])?;
    Ok(lab)
}

/// A kubeconfig with a context for each cluster; the first one is the current one.
fn both(world: &World, second: &Lab) -> Result<PathBuf> {
    let mut joined = Kubeconfig::read_from(world.cluster.kubeconfig())?;
    let mut other = Kubeconfig::read_from(second.cluster.kubeconfig())?;
    for cluster in &mut other.clusters {
        SECOND.clone_into(&mut cluster.name);
    }
    for user in &mut other.auth_infos {
        SECOND.clone_into(&mut user.name);
    }
    for named in &mut other.contexts {
        SECOND.clone_into(&mut named.name);
        let context = named.context.as_mut().context("a context has content")?;
        SECOND.clone_into(&mut context.cluster);
        context.user = Some(SECOND.to_owned());
    }
    joined.clusters.append(&mut other.clusters);
    joined.auth_infos.append(&mut other.auth_infos);
    joined.contexts.append(&mut other.contexts);
    let path = world.folder().join("two-contexts");
    std::fs::write(&path, serde_json::to_string(&joined)?)?;
    Ok(path)
}
