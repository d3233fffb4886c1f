//! ClusterOperators, by which OpenShift sees OLM.

use anyhow::{Context as _, Result, ensure};
use olm_test::classic;
use olm_test::world::Manager;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, Stage, csv, named};

const PROGRAM: &str = "operator-lifecycle-manager";
const CATALOG: &str = "operator-lifecycle-manager-catalog";
const PACKAGES: &str = "operator-lifecycle-manager-packageserver";

fn definition() -> Value {
    let mut definition = crate::stage::definition("config", "clusteroperators", "ClusterOperator");
    definition["metadata"]["name"] = json!("clusteroperators.config.openshift.io");
    definition["spec"]["group"] = json!("config.openshift.io");
    definition["spec"]["scope"] = json!("Cluster");
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    definition
}

fn operator(name: &str) -> Value {
    named("config.openshift.io/v1", "ClusterOperator", "", name)
}

fn condition<'a>(operator: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = operator["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Waits until a ClusterOperator has a condition with this status and reason, and returns it.
async fn says(stage: &Stage, name: &str, kind: &str, status: &str, reason: &str) -> Result<Value> {
    let what = format!("{name} says {kind}={status} {reason}");
    let is_it = |found: &Value| {
        condition(found, kind).is_some_and(|found| {
            found["status"] == status && found["reason"].as_str().unwrap_or_default() == reason
        })
    };
    stage.becomes(&what, &operator(name), is_it).await
}

#[test]
fn cluster_operators_say_how_the_programs_and_their_operators_are() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.operator.stop().await?;
        stage.lab.apply(&[definition()])?;
        let outcome = reports(stage).await;
        stage.operator.start(&stage.lab.cluster)?;
        stage.operator.ready().await?;
        stage.delete(&definition()).await?;
        stage.goes(&definition()).await?;
        outcome
    })
}

async fn reports(stage: &Stage) -> Result<()> {
    let account = format!("--classic-account={}", classic::ACCOUNT);
    let release = "--release-version=4.18.3".to_owned();
    let cache = format!(
        "--cache-dir={}",
        stage.lab.folder().join("reporting-catalogs").display()
    );
    let arguments = [
        (
            "olm-operator",
            vec![
                account.clone(),
                release.clone(),
                format!("--writeStatusName={PROGRAM}"),
                format!("--writePackageServerStatusName={PACKAGES}"),
            ],
        ),
        (
            "catalog-operator",
            vec![account, release, cache, format!("--writeStatusName={CATALOG}")],
        ),
    ];
    let mut programs = Vec::new();
    for (part, arguments) in arguments {
        let mut program = Manager::classic(&stage.lab, part, &format!("reporting-{part}"), arguments).await?;
        program.start(&stage.lab.cluster)?;
        program.ready().await?;
        programs.push(program);
    }
    for name in [PROGRAM, CATALOG] {
        let found = says(stage, name, "Available", "True", "").await?;
        let is_calm = |kind: &str| condition(&found, kind).is_some_and(|found| found["status"] == "False");
        ensure!(is_calm("Progressing") && is_calm("Degraded"), "{found}");
        ensure!(
            condition(&found, "Upgradeable").is_some_and(|found| found["status"] == "True")
                && found["status"]["versions"][0] == json!({"name": "operator", "version": "4.18.3"})
                && found["status"]["versions"][1]["name"] == name,
            "{found}"
        );
    }
    says(
        stage,
        PACKAGES,
        "Available",
        "False",
        "ClusterServiceVersionDeleted",
    )
    .await?;
    stage.group("reported", json!({}))?;
    let mut version = csv("reported", "packageserver", &json!({"version": "4.18.3"}));
    version["metadata"]["labels"] = json!({"olm.clusteroperator.name": PACKAGES});
    let properties = json!({"properties": [{"type": "olm.maxOpenShiftVersion", "value": "4.18"}]});
    version["metadata"]["annotations"] = json!({"operatorframework.io/properties": properties.to_string()});
    stage.lab.apply(std::slice::from_ref(&version))?;
    let found = says(
        stage,
        PACKAGES,
        "Available",
        "True",
        "ClusterServiceVersionSucceeded",
    )
    .await?;
    let progressing = condition(&found, "Progressing").context("no condition")?;
    ensure!(progressing["status"] == "False" && progressing["message"] == "Deployed version 4.18.3");
    let found = says(
        stage,
        PROGRAM,
        "Upgradeable",
        "False",
        "IncompatibleOperatorsInstalled",
    )
    .await?;
    let upgradeable = condition(&found, "Upgradeable").context("no condition")?;
    ensure!(
        upgradeable["message"]
            == "ClusterServiceVersions blocking minor version upgrades to 4.19:\n\
                - maximum supported OCP version for reported/packageserver is 4.18",
        "{upgradeable}"
    );
    stage.delete(&version).await?;
    says(stage, PROGRAM, "Upgradeable", "True", "").await?;
    says(
        stage,
        PACKAGES,
        "Available",
        "False",
        "ClusterServiceVersionDeleted",
    )
    .await?;
    stage.goes(&version).await?;
    for program in &mut programs {
        program.stop().await?;
    }
    Ok(())
}
