//! A stuck rollout reports the cause of its missing Pods.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{self, AVAILABLE, READY, reason};
use olm_test::cluster::webhook::RefusingWebhook;
use olm_test::extensions::{SOON, await_progressing, await_version, grant, revisions};
use olm_test::world::World;
use serde_json::{Value, json};

use super::definitions::{NOT_TODAY, PODS, freeze, thaw};
use super::{CLUSTER, file};

const NAME: &str = "pod-causes";

/// The longest time until the cause of an unready Pod is named.
const PROMPT: Duration = Duration::from_secs(30);
/// A Pod that has the labels of the operator's Pods, and another owner.
const STRANGER: &str = "stranger";

/// A node selector that no node matches; PodSecurity refuses the host network.
pub(crate) fn that_no_node_takes(_: &str, text: String) -> String {
    let place = "                serviceAccountName: ";
    text.replace(
        place,
        &format!(
            "                nodeSelector: {{pod-causes: ready}}\n                hostNetwork: true\n{place}"
        ),
    )
}

/// Checks the conditions of revision and extension.
async fn await_cause(world: &World, part: &str) -> Result<()> {
    await_progressing(world, NAME, reason::ROLLING_OUT, part).await?;
    let set = revisions(world).get("pod-causes-1").await?;
    let of = |condition| conditions::find(set.conditions(), condition).context("the condition");
    let (ready, available) = (of(READY)?, of(AVAILABLE)?);
    ensure!(
        ready.reason == reason::PROBE_FAILURE && ready.message.contains(part),
        "{ready:?}"
    );
    // That one has the text of the Go implementation alone.
    ensure!(
        available.reason == reason::PROBE_FAILURE && available.message.lines().count() == 1,
        "{available:?}"
    );
    Ok(())
}

/// Installs the extension under an account that has exactly the roles that `olm rbac` prints.
async fn install_with_least_rights(world: &World) -> Result<()> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": format!("{NAME}-installer"), "namespace": NAME },
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAME } });
    world.apply(&[namespace, account])?;
    let text = std::fs::read_to_string(file(world, NAME, "1.0.0")?)?;
    let path = world.folder().join("pod-causes-extension.yaml");
    std::fs::write(&path, text.rsplit("---").next().unwrap_or_default())?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    await_progressing(world, NAME, reason::RETRYING, "lacks permissions: ").await?;
    grant(world, NAME)
}

/// A field of the Deployment, as JSON.
fn of_deployment(world: &World, path: &str) -> Result<String> {
    let path = format!("jsonpath={{{path}}}");
    world.kubectl(&[
        "get",
        "deployment",
        "pod-causes-operator",
        "-n",
        NAME,
        "-o",
        &path,
    ])
}

/// A Pod that the selector of the Deployment matches, and that has no owner.
fn stranger(world: &World) -> Result<()> {
    let labels: Value = serde_json::from_str(&of_deployment(world, ".spec.template.metadata.labels")?)?;
    // A ReplicaSet adopts Pods with its hash.
    let container = json!({ "name": "c", "image": "reg.example/stranger:1" });
    world.apply(&[json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": STRANGER, "namespace": NAME, "labels": labels },
        "spec": { "containers": [container], "nodeSelector": { "pod-causes": "never" } },
    })])
}

/// The name of the operator's Pod.
fn pod(world: &World) -> Result<String> {
    let name = [
        "get",
        "pods",
        "-n",
        NAME,
        "-l",
        "pod-template-hash",
        "-o",
        "jsonpath={.items[0].metadata.name}",
    ];
    world.kubectl(&name)
}

/// Writes the status that a kubelet would write for the container.
fn report(world: &World, state: &Value, last: &Value) -> Result<()> {
    let container = [
        "get",
        "pods",
        "-n",
        NAME,
        "-l",
        "pod-template-hash",
        "-o",
        "jsonpath={.items[0].spec.containers[0].name}",
    ];
    let status = json!({ "status": {
        "conditions": [{ "type": "PodScheduled", "status": "True" }],
        "containerStatuses": [{
            "name": world.kubectl(&container)?, "image": "reg.example/operator:1", "imageID": "",
            "ready": false, "restartCount": 1, "state": state, "lastState": last,
        }],
    } });
    let patch = [
        "patch",
        "pod",
        &pod(world)?,
        "-n",
        NAME,
        "--subresource=status",
        "--type=strategic",
        "-p",
    ];
    world
        .kubectl(&[&patch[..], &[&status.to_string()]].concat())
        .map(drop)
}

/// Has the ReplicaSet tried again at once.
fn again(world: &World) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let again = format!("again={}", now.as_millis());
    world
        .kubectl(&[
            "annotate",
            "replicasets",
            "--all",
            "-n",
            NAME,
            "--overwrite",
            &again,
        ])
        .map(drop)
}

/// Deletes Pods repeatedly until new ones are refused with this message: a new quota or webhook takes effect a moment
/// later.
async fn await_refusal(world: &World, part: &str) -> Result<()> {
    let delete = [
        "delete",
        "pods",
        "--all",
        "-n",
        NAME,
        "--force",
        "--grace-period=0",
    ];
    world
        .eventually("the Deployment reports who refuses its Pods", SOON, async || {
            world.kubectl(&delete)?;
            again(world)?;
            let conditions = of_deployment(world, ".status.conditions")?;
            ensure!(conditions.contains(part), "{conditions}");
            Ok(Some(()))
        })
        .await?;
    await_cause(world, part).await?;
    await_cause(world, "Pods cannot be created (FailedCreate): ").await
}

/// Has Pods made again.
async fn await_pod(world: &World) -> Result<()> {
    world
        .eventually("there is a Pod again", SOON, async || {
            again(world)?;
            Ok(pod(world).ok().filter(|name| !name.is_empty()).map(drop))
        })
        .await
}

#[test]
fn a_stuck_rollout_names_the_cause_of_missing_pods() -> Result<()> {
    CLUSTER.with(async |world| {
        install_with_least_rights(world).await?;
        let list = ["auth", "can-i", "list", "pods", "-n", NAME];
        let account = format!("--as=system:serviceaccount:{NAME}:{NAME}-installer");
        ensure!(
            world.kubectl(&[&list[..], &[&account]].concat()).is_err(),
            "the account needs no right to list Pods"
        );
        let count = "Deployment pod-causes/pod-causes-operator has 0 of 1 Pods available: ";
        await_cause(world, count).await?;
        await_cause(world, "cannot be scheduled (Unschedulable): 0/").await?;
        stranger(world)?;

        let waiting =
            |reason: &str, message: &str| json!({ "waiting": { "reason": reason, "message": message } });
        report(
            world,
            &waiting(
                "ImagePullBackOff",
                "Back-off pulling image: ErrImagePull: no such image",
            ),
            &json!({}),
        )?;
        let named = "cannot pull its image reg.example/operator:1 (ImagePullBackOff): no such image";
        tokio::time::timeout(PROMPT, await_cause(world, named))
            .await
            .context("the cause is named within 30 s")??;
        let set = revisions(world).get("pod-causes-1").await?;
        let ready = conditions::find(set.conditions(), READY).context("the condition")?;
        ensure!(!ready.message.contains(STRANGER), "{ready:?}");
        let end = json!({ "terminated": { "exitCode": 3, "reason": "Error" } });
        report(
            world,
            &waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
            &end,
        )?;
        await_cause(
            world,
            "keeps crashing (CrashLoopBackOff): it ended with exit code 3 (Error)",
        )
        .await?;
        await_cause(world, &format!("of Pod {}", pod(world)?)).await?;

        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "no-pods", "namespace": NAME },
            "spec": { "hard": { "pods": "0" } },
        });
        world.apply(&[quota])?;
        await_refusal(world, "exceeded quota: no-pods").await?;
        world.kubectl(&["delete", "resourcequota", "no-pods", "-n", NAME])?;
        await_pod(world).await?;

        let enforce = "pod-security.kubernetes.io/enforce";
        world.kubectl(&["label", "namespace", NAME, &format!("{enforce}=baseline")])?;
        await_refusal(world, "violates PodSecurity").await?;
        world.kubectl(&["label", "namespace", NAME, &format!("{enforce}-")])?;
        await_pod(world).await?;

        let frozen = freeze(world, NAME, &PODS).await?;
        await_refusal(world, NOT_TODAY).await?;
        thaw(world, &frozen)?;
        await_pod(world).await?;

        let folder = tempfile::tempdir()?;
        let webhook = RefusingWebhook::start(folder.path(), "no Pods on Mondays").await?;
        world.apply(&[webhook.configuration(NAME, NAME, "pods")])?;
        await_refusal(world, "denied the request: no Pods on Mondays").await?;
        world.kubectl(&["delete", "validatingwebhookconfiguration", NAME])?;
        await_pod(world).await?;

        world.kubectl(&["label", "nodes", "--all", "pod-causes=ready"])?;
        await_pod(world).await?;
        await_version(world, NAME, "1.0.0").await.map(drop)
    })
}
