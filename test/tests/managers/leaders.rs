//! Leader election and readiness.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::names;
use olm_test::world::{Lab, Manager, free_address};
use serde_json::json;

use crate::{CLUSTER, NAMESPACE, SOON, Stage};

async fn holder(lab: &Lab, lease: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let spec = leases.get(lease).await?.spec.unwrap_or_default();
    Ok(spec.holder_identity.unwrap_or_default())
}

/// One replica leads at a time. If it ends, another one takes over at once; if it dies, after its lease expires.
#[test]
fn another_replica_takes_over_when_the_leader_ends_or_dies() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let own = stage.of_operator_controller().await?;
        let files = stage.of_catalogd()?;
        let Stage {
            world,
            reader,
            files: certificate,
            ..
        } = stage;
        let content = free_address()?;
        let mut catalogd =
            Manager::catalogd(world, "catalogd-2", &content, Stage::catalogd_flags(certificate)).await?;
        let mut more = Stage::operator_controller_flags(certificate);
        let address = world.catalogs.trim_start_matches("https://");
        more.push(format!("--catalogd-address={address}"));
        let mut other = Manager::operator_controller(world, "operator-controller-2", more).await?;
        for manager in [&mut catalogd, &mut other] {
            manager.start(&world.cluster)?;
            manager.ready().await?;
        }
        let shown =
            |lease: &str, leads: u8| format!("leader_election_master_status{{name=\"{lease}\"}} {leads}");
        let (first, second) = (names::lease::CATALOGD, names::lease::OPERATOR_CONTROLLER);
        let (from, theirs) = (holder(world, first).await?, holder(world, second).await?);
        ensure!(!from.is_empty() && !theirs.is_empty(), "both leases are held");
        files.shows(world, &catalogd, reader, &[&shown(first, 0)]).await?;
        own.shows(world, &other, reader, &[&shown(second, 0)]).await?;

        world.catalogd.stop().await?;
        files.shows(world, &catalogd, reader, &[&shown(first, 1)]).await?;
        ensure!(holder(world, first).await? != from, "the lease has a new holder");

        world.operator_controller.kill();
        ensure!(
            holder(world, second).await? == theirs,
            "the dead one's lease still runs"
        );
        // No step waits for the full duration of a lease.
        let patch = json!({ "spec": { "leaseDurationSeconds": 1 } });
        let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
        leases
            .patch(second, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        own.shows(world, &other, reader, &[&shown(second, 1)]).await?;
        ensure!(
            holder(world, second).await? != theirs,
            "the lease has a new holder"
        );

        // The new ones do the work.
        let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), "greeter");
        let before = deployments.get("greeter-operator").await?.metadata.uid;
        deployments
            .delete("greeter-operator", &kube::api::DeleteParams::default())
            .await?;
        world
            .eventually("what is deleted is back", SOON, async || {
                let found = deployments.get_opt("greeter-operator").await?;
                Ok(found.filter(|found| found.metadata.uid != before).map(drop))
            })
            .await?;
        other.stop().await?;
        catalogd.stop().await?;
        world.start_managers().await
    })
}

/// A manager that cannot reach the API server is alive, not ready, and reports the missing parts.
#[test]
fn readiness_names_the_failing_checks_of_a_manager() -> Result<()> {
    CLUSTER.with(async |stage| {
        let Stage { world, files, .. } = stage;
        let nowhere = world.folder().join("nowhere.kubeconfig");
        std::fs::write(
        &nowhere,
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("https://{}", free_address()?) } }],
            "users": [{ "name": "u", "user": { "token": "none" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        })
        .to_string(),
    )?;
        let mut more = files.flags();
        more.push(format!("--kubeconfig={}", nowhere.display()));
        let content = free_address()?;
        let mut catalogd = Manager::catalogd(world, "catalogd-lost", &content, more.clone()).await?;
        let mut other = Manager::operator_controller(world, "operator-controller-lost", more).await?;
        for (manager, missing) in [(&mut catalogd, "catalogs:"), (&mut other, "watches:")] {
            manager.start(&world.cluster)?;
            let get = async |path: &str| -> Result<(u16, String)> {
                let answer = reqwest::get(format!("http://{}{path}", manager.health)).await?;
                Ok((answer.status().as_u16(), answer.text().await?))
            };
            let lives = world
                .eventually("the health port answers", SOON, async || {
                    Ok(Some(get("/healthz").await?))
                })
                .await?;
            ensure!(lives.0 == 200, "{lives:?}");
            let (status, text) = get("/readyz").await?;
            ensure!(
                status == 503 && text.contains(missing),
                "{status}: {text}\n{}",
                manager.log_end()
            );
            manager.stop().await?;
        }
        Ok(())
    })
}
