//! InstallPlans: approval, old plans and deleted plans.

use anyhow::{Context as _, Result, ensure};
use olm_test::world::eventually;
use serde_json::json;

use crate::stage::{CLUSTER, OPERATOR, SOON, V1ALPHA1, catalog_source, csv, named, subscription};

#[test]
fn a_manual_plan_waits_for_its_approval() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("manual", &["1.0.0"]).await?;
        stage.subscribe("manual", &json!({"installPlanApproval": "Manual"}))?;
        stage
            .says("manual", "InstallPlanPending", "True", "RequiresApproval")
            .await?;
        let plan = stage.phase("manual", "RequiresApproval").await?;
        ensure!(plan["spec"]["approval"] == "Manual" && plan["spec"]["approved"] == false);
        ensure!(
            stage.get(&csv("manual", "1.0.0")).await?.is_none(),
            "installed without approval"
        );
        stage.patch(&plan, &json!({"spec": {"approved": true}})).await?;
        stage.installs("manual", "1.0.0").await?;
        stage.phase("manual", "Complete").await?;
        let object = subscription("manual", &json!({}));
        let settled = |found: &serde_json::Value| {
            let conditions = found["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().all(|one| one["type"] != "InstallPlanPending"))
        };
        stage
            .becomes("the condition about the plan is gone", &object, settled)
            .await?;
        Ok(())
    })
}

#[test]
fn a_deleted_plan_is_planned_again_and_a_deleted_version_installed_again() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("again", &["1.0.0"]).await?;
        stage.subscribe("again", &json!({"installPlanApproval": "Manual"}))?;
        let first = stage.phase("again", "RequiresApproval").await?;
        stage.delete(&first).await?;
        let object = subscription("again", &json!({}));
        let is_other = |found: &serde_json::Value| {
            let reference = &found["status"]["installPlanRef"]["uid"];
            reference.is_string() && *reference != first["metadata"]["uid"]
        };
        stage.becomes("another plan is made", &object, is_other).await?;
        let second = stage.phase("again", "RequiresApproval").await?;
        stage.patch(&second, &json!({"spec": {"approved": true}})).await?;
        stage.installs("again", "1.0.0").await?;
        stage
            .patch(&object, &json!({"spec": {"installPlanApproval": "Automatic"}}))
            .await?;
        let installed = stage
            .get(&csv("again", "1.0.0"))
            .await?
            .context("not installed")?;
        stage.delete(&installed).await?;
        let is_new = |found: &serde_json::Value| {
            found["metadata"]["uid"].is_string() && found["metadata"]["uid"] != installed["metadata"]["uid"]
        };
        stage
            .becomes("the version is there again", &csv("again", "1.0.0"), is_new)
            .await?;
        Ok(())
    })
}

#[test]
fn a_deleted_subscription_leaves_its_version() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("left", &["1.0.0"]).await?;
        stage.subscribe("left", &json!({}))?;
        stage.installs("left", "1.0.0").await?;
        stage.delete(&subscription("left", &json!({}))).await?;
        let plans = named(V1ALPHA1, "InstallPlan", "left", "");
        eventually("the plans are collected", SOON, async || {
            Ok(stage.list(&plans).await?.is_empty().then_some(()))
        })
        .await?;
        ensure!(
            stage.get(&csv("left", "1.0.0")).await?.is_some(),
            "the version is gone"
        );
        Ok(())
    })
}

#[test]
fn only_five_plans_are_kept() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("many", &["1.0.0"]).await?;
        let old: Vec<_> = (0..7)
            .map(|number| {
                let mut plan = named(V1ALPHA1, "InstallPlan", "many", &format!("old-{number}"));
                plan["spec"] = json!({
                    "approval": "Automatic", "approved": true, "clusterServiceVersionNames": [], "generation": number,
                });
                plan
            })
            .collect();
        stage.lab.apply(&old)?;
        stage.subscribe("many", &json!({}))?;
        let subscription = stage.installs("many", "1.0.0").await?;
        ensure!(subscription["status"]["installPlanGeneration"] == 7, "{}", subscription["status"]);
        let plans = named(V1ALPHA1, "InstallPlan", "many", "");
        let kept = eventually("old plans are deleted", SOON, async || {
            let plans = stage.list(&plans).await?;
            Ok((plans.len() == 5).then_some(plans))
        })
        .await?;
        let mut generations: Vec<i64> = kept.iter().filter_map(|plan| plan["spec"]["generation"].as_i64()).collect();
        generations.sort_unstable();
        ensure!(generations == [3, 4, 5, 6, 7], "{generations:?}");
        Ok(())
    })
}

#[test]
fn nothing_is_written_once_all_is_installed() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.offer("quiet", &["1.0.0"]).await?;
        stage.subscribe("quiet", &json!({}))?;
        stage.installs("quiet", "1.0.0").await?;
        stage
            .becomes("the operator is installed", &csv("quiet", "1.0.0"), |found| {
                found["status"]["phase"] == "Succeeded"
            })
            .await?;
        let counted = stage.metrics("subscription_sync_total{name=\"quiet\"").await?;
        let labels = r#"installed="quiet.v1.0.0",channel="stable",package="quiet",approval="""#;
        ensure!(counted.iter().any(|line| line.contains(labels)), "{counted:?}");
        for name in [
            "subscription_count ",
            "install_plan_count ",
            "installplan_warnings_total ",
            "# TYPE subscription_sync_total counter",
            "# TYPE olm_resolution_duration_seconds summary",
            "olm_resolution_duration_seconds{outcome=\"succeeded\",quantile=\"0.99\"} ",
        ] {
            ensure!(!stage.metrics(name).await?.is_empty(), "there is no {name}");
        }
        // The writes that follow the installation are over when the numbers stand still.
        let mut before = stage.writes().await?;
        eventually("nothing is written any more", SOON, async || {
            tokio::time::sleep(std::time::Duration::from_secs(4)).await;
            let now = stage.writes().await?;
            Ok((std::mem::replace(&mut before, now) == now).then_some(()))
        })
        .await?;
        // A restart reads everything and writes nothing about settled objects.
        let object = subscription("quiet", &json!({}));
        let versions = async |stage: &crate::stage::Stage| -> Result<Vec<String>> {
            let plans = stage.list(&named(V1ALPHA1, "InstallPlan", "quiet", "")).await?;
            let subscription = stage.get(&object).await?.context("no Subscription")?;
            let objects = plans.iter().chain([&subscription]);
            Ok(objects
                .map(|found| found["metadata"]["resourceVersion"].to_string())
                .collect())
        };
        let settled = versions(stage).await?;
        stage.catalog.stop().await?;
        stage.catalog.start(&stage.lab.cluster)?;
        stage.catalog.ready().await?;
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        ensure!(versions(stage).await? == settled, "the restart wrote something");
        Ok(())
    })
}

#[test]
fn a_warning_of_the_api_server_names_the_step_that_it_is_about() -> Result<()> {
    CLUSTER.with(async |stage| {
        let policy = "admissionregistration.k8s.io/v1";
        let namespaces = json!({"matchLabels": {"kubernetes.io/metadata.name": "warned"}});
        stage.lab.apply(&[
            json!({
                "apiVersion": policy, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "warned"},
                "spec": {
                    "matchConstraints": {"namespaceSelector": namespaces, "resourceRules": [{
                        "apiGroups": ["operators.coreos.com"], "apiVersions": ["*"], "operations": ["CREATE"],
                        "resources": ["clusterserviceversions"],
                    }]},
                    "validations": [{"expression": "false", "message": "mind the gap"}],
                },
            }),
            json!({
                "apiVersion": policy, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "warned"},
                "spec": {"policyName": "warned", "validationActions": ["Warn"]},
            }),
        ])?;
        stage.offer("warned", &["1.0.0"]).await?;
        // The API server takes a while to see a new policy.
        let probe = || {
            let mut probe = csv("warned", "0.0.1");
            probe["spec"] = json!({"displayName": "probe", "install": {"strategy": "deployment"}});
            probe.to_string()
        };
        eventually("the policy warns", SOON, async || {
            let (url, client) = (
                "/apis/operators.coreos.com/v1alpha1/namespaces/warned/clusterserviceversions?dryRun=All",
                &stage.lab.client,
            );
            let request = http::Request::post(url).header(http::header::CONTENT_TYPE, "application/json");
            let answer = client.send(request.body(probe().into_bytes().into())?).await?;
            Ok(answer.headers().contains_key(http::header::WARNING).then_some(()))
        })
        .await?;
        stage.subscribe("warned", &json!({}))?;
        stage.installs("warned", "1.0.0").await?;
        let plan = stage.phase("warned", "Complete").await?;
        let position = plan["status"]["plan"]
            .as_array()
            .and_then(|steps| steps.iter().position(|step| step["resource"]["kind"] == "ClusterServiceVersion"))
            .context("no step")?;
        let events = named("v1", "Event", "warned", "");
        let event = eventually("the warning is recorded", SOON, async || {
            let events = stage.list(&events).await?;
            Ok(events.into_iter().find(|event| event["reason"] == "AppliedWithWarnings"))
        })
        .await?;
        let about = &event["involvedObject"];
        ensure!(about["name"] == plan["metadata"]["name"], "{event}");
        ensure!(about["fieldPath"] == format!("status.plan[{position}]"), "{event}");
        let note = event["message"].as_str().unwrap_or_default();
        let expected = "1 warning(s) generated during installation of operator \"warned.v1.0.0\" (ClusterServiceVersion \
                        \"warned.v1.0.0\"): ";
        ensure!(note.starts_with(expected) && note.ends_with("mind the gap"), "{note}");
        Ok(())
    })
}

#[test]
fn plans_that_run_at_once_keep_each_others_notes_on_a_definition() -> Result<()> {
    CLUSTER.with(async |stage| {
        let image = stage.lab.publish("together", &["1.0.0"], OPERATOR).await?;
        let places: Vec<String> = (0..8).map(|number| format!("together-{number}")).collect();
        let mut subscriptions = Vec::new();
        for place in &places {
            stage.group(place, json!({"targetNamespaces": [place]}))?;
            stage.lab.apply(&[catalog_source(place, &image)])?;
            subscriptions.push(subscription(place, &json!({"name": "together"})));
        }
        stage.lab.apply(&subscriptions)?;
        for place in &places {
            stage.phase(place, "Complete").await?;
        }
        let definition = named(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "",
            "greetings.together.olm.example",
        );
        let found = stage.get(&definition).await?.context("it is not there")?;
        let annotations = found["metadata"]["annotations"].as_object();
        let mut notes: Vec<&str> = annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with("operatorframework.io/installed-alongside-"))
            .filter_map(|(_, value)| value.as_str())
            .collect();
        notes.sort_unstable();
        let expected: Vec<String> = places
            .iter()
            .map(|place| format!("{place}/together.v1.0.0"))
            .collect();
        ensure!(notes == expected, "{notes:?}");
        Ok(())
    })
}
