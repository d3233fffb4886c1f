//! The pages of `olm ui`, with an update that waits for an approval.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use olm_test::extensions::{SOON, catalog, extensions};
use olm_test::samples;
use olm_test::world::{World, binary};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{CLUSTER, change, install_and_update};

/// The time of all journeys.
const LONGEST: Duration = Duration::from_mins(10);

/// The extension of a package whose publisher is hostile, which has no fitting version.
const HOSTILE: &str = "hostile";
/// Texts of that publisher: of a deprecation, the name of a bundle, and of an event.
const SCRIPT: &str = "<script>pwned=1</script> [x](javascript:pwned=1) `<b onclick=pwned=1>`";
const PICTURE: &str = "<img src=x onerror=pwned=1>";
const FRAME: &str = "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>";

/// `olm ui`, stopped when dropped.
struct Pages {
    child: Child,
    /// The address with the key.
    entrance: String,
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn start(world: &World) -> Result<Pages> {
    let mut child = Command::new(binary("olm")?)
        .args(["ui", "--kubeconfig"])
        .arg(world.cluster.kubeconfig())
        .arg("--ca-dir")
        .arg(world.authorities())
        .stdout(Stdio::piped())
        .spawn()?;
    let printed = child.stdout.take().context("no output")?;
    let mut pages = Pages {
        child,
        entrance: String::new(),
    };
    let mut line = String::new();
    BufReader::new(tokio::process::ChildStdout::from_std(printed)?)
        .read_line(&mut line)
        .await?;
    let entrance = line.trim().strip_prefix("to browse: ");
    entrance
        .with_context(|| format!("no address: {line}"))?
        .clone_into(&mut pages.entrance);
    Ok(pages)
}

/// Runs the journeys of `OLM_BROWSER_UI` in a browser, as `make browser` does. `origin` is the address of the pages.
#[expect(clippy::print_stdout, reason = "the list of journeys is the outcome")]
async fn journeys(pages: &Pages, origin: &str, name: &str) -> Result<()> {
    let Ok(script) = std::env::var("OLM_BROWSER_UI") else {
        return Ok(());
    };
    let run = tokio::process::Command::new("node")
        .args(["--test", "--test-reporter=spec"])
        .arg(&script)
        .env("ADDRESS", origin)
        .env("OLM_UI_ENTRANCE", &pages.entrance)
        .env("OLM_UI_EXTENSION", name)
        .env("OLM_UI_HOSTILE", HOSTILE)
        .kill_on_drop(true)
        .output();
    let run = tokio::time::timeout(LONGEST, run)
        .await
        .context("the journeys do not end")??;
    let printed = String::from_utf8_lossy(&run.stdout);
    ensure!(
        run.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    println!("{printed}");
    Ok(())
}

/// An extension with markup in all that a publisher, or another writer of events, may choose.
async fn hostile(world: &World) -> Result<()> {
    let bundle = world
        .push_bundle(
            "hostile-bundle:v1",
            &samples::renamed_bundle(HOSTILE, "1.0.0", samples::OPERATOR_IMAGE),
        )
        .await?;
    let blobs = [
        json!({"schema": "olm.package", "name": HOSTILE, "defaultChannel": PICTURE}),
        json!({"schema": "olm.channel", "package": HOSTILE, "name": PICTURE, "entries": [{"name": PICTURE}]}),
        json!({
            "schema": "olm.bundle", "package": HOSTILE, "name": PICTURE, "image": bundle,
            "properties": [{"type": "olm.package", "value": {"packageName": HOSTILE, "version": "1.0.0"}}],
        }),
        json!({
            "schema": "olm.deprecations", "package": HOSTILE,
            "entries": [{"reference": {"schema": "olm.package"}, "message": SCRIPT}],
        }),
    ];
    let blobs: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    let image = world.push_catalog("hostile-catalog:latest", &blobs).await?;
    world.apply(&[catalog(HOSTILE, &image)])?;
    super::apply(world, HOSTILE, "9.9.9")?;
    let involved = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": HOSTILE,
        "uid": extensions(world).get(HOSTILE).await?.metadata.uid,
    });
    world.apply(&[json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "hostile.1", "namespace": "default"},
        "involvedObject": involved, "reason": PICTURE, "message": format!("{FRAME} {}", "x".repeat(900)),
        "type": "Warning", "source": {"component": "test"}, "lastTimestamp": Timestamp::now().to_string(), "count": 1,
    })])?;
    world
        .eventually("the deprecation is in a condition", SOON, async || {
            let extension = extensions(world).get(HOSTILE).await?;
            let mut conditions = extension.conditions().iter();
            Ok(conditions
                .any(|condition| condition.message.contains(SCRIPT))
                .then_some(()))
        })
        .await
}

#[test]
fn pages_show_a_waiting_change_its_plan_and_the_command_to_approve_it() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "browsed";
        install_and_update(world, name, &json!({ "approval": { "patch": "Manual" } })).await?;
        let pending = change(world, name, "1.0.1", "AwaitingApproval").await?;
        hostile(world).await?;
        let pages = start(world).await?;
        let (origin, _) = pages.entrance.split_once("/enter").context("no entrance")?;
        let http = Client::builder().redirect(Policy::none()).build()?;
        let refused = http.get(format!("{origin}/")).send().await?;
        ensure!(refused.status() == StatusCode::FORBIDDEN);
        let entered = http.get(&pages.entrance).send().await?;
        ensure!(entered.status() == StatusCode::SEE_OTHER);
        let cookie = entered.headers().get("set-cookie").context("no cookie")?;
        let cookie = cookie
            .to_str()?
            .split(';')
            .next()
            .context("no cookie")?
            .to_owned();
        let page = async |path: &str, status: StatusCode| -> Result<String> {
            let request = http.get(format!("{origin}{path}")).header("cookie", &cookie);
            let answer = request.send().await?;
            ensure!(answer.status() == status, "{path}: {}", answer.status());
            Ok(answer.text().await?)
        };
        let has = |text: &str, parts: &[&str]| -> Result<()> {
            for part in parts {
                ensure!(text.contains(part), "{part} is missing in {text}");
            }
            Ok(())
        };
        let overview = page("/", StatusCode::OK).await?;
        has(
            &overview,
            &["browsed", "Change waits", "1.0.1", "held back by Approval"],
        )?;
        let filtered = page("/?state=waiting&q=brow", StatusCode::OK).await?;
        has(&filtered, &["/extensions/browsed", "Change waits"])?;
        ensure!(
            !page("/?q=nothing-of-the-kind", StatusCode::OK)
                .await?
                .contains("/extensions/browsed")
        );

        let digest = &pending.spec.digest;
        let approve = format!("olm approve {name} --digest {digest}");
        let details = page("/extensions/browsed", StatusCode::OK).await?;
        has(
            &details,
            &[
                &approve,
                "1.0.0 to 1.0.1",
                "Bundles of the catalogs",
                "chosen",
                "Conditions",
            ],
        )?;
        let plan = page("/extensions/browsed/plan", StatusCode::OK).await?;
        has(&plan, &[&approve, "browsed: 1.0.0 -&gt; 1.0.1", digest])?;
        has(
            &page("/catalogs", StatusCode::OK).await?,
            &["browsed-catalog", "Ready"],
        )?;
        page("/extensions/nobody", StatusCode::NOT_FOUND).await?;
        let shown = page("/extensions/hostile", StatusCode::OK).await?;
        has(
            &shown,
            &[
                "&lt;script&gt;pwned=1&lt;/script&gt;",
                "&lt;img src=x onerror=pwned=1&gt;",
                "&lt;iframe srcdoc=",
            ],
        )?;
        for markup in ["<script>pwned", "<img", "<iframe", "<b onclick"] {
            ensure!(!shown.contains(markup), "{markup} in {shown}");
        }
        journeys(&pages, origin, name).await
    })
}
