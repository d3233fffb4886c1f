//! The programs as the manifests start them.

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use classic::args::{Args, Command};
use olm_test::world::{kubectl, repository};
use serde_json::{Value, json};

use crate::{SERVER, Server};

/// The templates of the programs' Pods, by the name of the Deployment. That of `packageserver` stands in a
/// ClusterServiceVersion.
fn templates(server: &Server) -> Result<Vec<(String, Value)>> {
    let folder = repository().join("manifests/classic").display().to_string();
    let text = kubectl(&server.cluster, &["kustomize", &folder], None)?;
    let mut found = Vec::new();
    for document in olm_yaml::documents(text.as_bytes(), &olm_yaml::Limits::default()) {
        let object = document?.into_value()?;
        let deployments = match object["kind"].as_str() {
            Some("Deployment") => vec![json!({"name": object["metadata"]["name"], "spec": object["spec"]})],
            Some("ClusterServiceVersion") => {
                let deployments = object.pointer("/spec/install/spec/deployments");
                deployments.and_then(Value::as_array).cloned().unwrap_or_default()
            }
            _ => continue,
        };
        for deployment in deployments {
            let name = deployment["name"].as_str().context("no name")?.to_owned();
            found.push((name, deployment["spec"]["template"].clone()));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

#[test]
fn the_programs_take_the_arguments_of_their_manifests() -> Result<()> {
    SERVER.with(async |server| {
        let templates = templates(server)?;
        let names: Vec<&str> = templates.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(
            names == ["catalog-operator", "olm-operator", "packageserver"],
            "{names:?}"
        );
        for (name, template) in &templates {
            let container = &template["spec"]["containers"][0];
            ensure!(container["command"] == json!(["/classic"]), "{name}: {container}");
            let arguments = container["args"].as_array().context("no arguments")?;
            let arguments = arguments.iter().filter_map(Value::as_str);
            let arguments = arguments.map(|argument| argument.replace("$(POD_NAMESPACE)", "olm"));
            let parsed = Args::try_parse_from(["classic".to_owned()].into_iter().chain(arguments))?;
            let (found, common, account) = match parsed.command {
                Command::OlmOperator(args) => {
                    ("olm-operator", args.classic.common, args.classic.classic_account)
                }
                Command::CatalogOperator(args) => (
                    "catalog-operator",
                    args.classic.common,
                    args.classic.classic_account,
                ),
                Command::Packageserver(args) => ("packageserver", args.classic.common, None),
                Command::Version => anyhow::bail!("{name} prints its version"),
            };
            ensure!(found == name, "{name} runs {found}");
            let writes = found != "packageserver";
            ensure!(common.leader_elect == writes, "{name}");
            let account = account.map(|account| account.to_string());
            let expected = writes.then(|| "olm/classic-installer".to_owned());
            ensure!(account == expected, "{name}: {account:?}");
            // Ports that probes and scrapers use.
            let ports = container["ports"].as_array().context("no ports")?;
            for (port, address) in [
                ("health", &common.health_probe_bind_address),
                ("metrics", &common.metrics_bind_address),
            ] {
                let port = ports
                    .iter()
                    .find(|found| found["name"] == port)
                    .context("no such port")?;
                ensure!(
                    *address == format!(":{}", port["containerPort"]),
                    "{name}: {port} {address}"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn pods_of_the_programs_meet_the_restricted_standard_of_their_namespace() -> Result<()> {
    SERVER.with(async |server| {
        let pod = |name: &str, spec: &Value| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "olm"}, "spec": spec,
            })
        };
        for (name, template) in templates(server)? {
            let spec = &template["spec"];
            server.dry_run(&pod(&name, spec)).await.with_context(|| name.clone())?;
            let mut privileged = spec.clone();
            privileged["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
            let refused = server.dry_run(&pod(&name, &privileged)).await.err();
            let refused = refused.context("a Pod with privileges is taken")?.to_string();
            ensure!(refused.contains("violates PodSecurity"), "{refused}");
            for volume in spec["volumes"].as_array().context("no volumes")? {
                ensure!(volume["emptyDir"]["sizeLimit"].is_string(), "{name}: {volume}");
            }
            let container = &spec["containers"][0];
            ensure!(container["securityContext"]["readOnlyRootFilesystem"] == true, "{name}");
            ensure!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        }
        Ok(())
    })
}

#[test]
fn the_optional_manifests_are_taken_and_their_alerts_use_documented_metrics() -> Result<()> {
    SERVER.with(async |server| {
        let objects = |folder: &str| -> Result<Vec<Value>> {
            let folder = repository().join("manifests/classic").join(folder);
            let text = kubectl(
                &server.cluster,
                &["kustomize", &folder.display().to_string()],
                None,
            )?;
            let documents = olm_yaml::documents(text.as_bytes(), &olm_yaml::Limits::default());
            documents.map(|document| Ok(document?.into_value()?)).collect()
        };
        let community = objects("community")?;
        ensure!(community.len() == 1 && community[0]["metadata"]["name"] == "operatorhubio-catalog");
        server.dry_run(&community[0]).await?;
        let documented = std::fs::read_to_string(repository().join("docs/reference/metrics.md"))?;
        let monitoring = objects("monitoring")?;
        let rules = monitoring.iter().find(|found| found["kind"] == "PrometheusRule");
        let groups = rules.context("no rules")?["spec"]["groups"]
            .as_array()
            .context("no groups")?;
        let rules: Vec<&Value> = groups
            .iter()
            .filter_map(|group| group["rules"].as_array())
            .flatten()
            .collect();
        let names: Vec<&str> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
        ensure!(
            names
                == [
                    "CsvAbnormalFailedOver2Min",
                    "CsvAbnormalOver30Min",
                    "InstallPlanStepAppliedWithWarnings"
                ],
            "{names:?}"
        );
        for rule in rules {
            let query = rule["expr"].as_str().context("no query")?;
            let mut metrics = ["csv_abnormal", "installplan_warnings_total"].into_iter();
            let metric = metrics
                .find(|metric| query.contains(metric))
                .context("another metric")?;
            ensure!(
                documented.contains(&format!("`{metric}`")),
                "{metric} is not documented"
            );
        }
        Ok(())
    })
}
