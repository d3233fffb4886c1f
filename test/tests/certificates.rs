//! What operators get besides the objects of their bundle, on real parts: certificates that the API server trusts where
//! nobody else provides them, and an OperatorCondition by which they hold their upgrade back.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::conditions;
use olm_api::names::{annotation, field_manager, user};
use olm_test::e2e::everything;
use olm_test::extensions::{
    SOON, await_progressing, await_version, catalog, extensions, merge, patch_source, revisions,
};
use olm_test::samples;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

const SECRET: &str = "greeter-operator-service-cert";
const CONFIGURATION: &str = "greetings.samples.olm.example";

fn text(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    String::from_utf8_lossy(&bytes.cloned().unwrap_or_default().0).into_owned()
}

/// Waits until the webhook configuration trusts what the Secret says, other than `before`.
async fn trusted(world: &World, before: Option<&Secret>) -> Result<Secret> {
    let secrets = Api::<Secret>::namespaced(world.client.clone(), "greeter");
    let configurations = Api::<ValidatingWebhookConfiguration>::all(world.client.clone());
    world
        .eventually("the authority is trusted", SOON, async || {
            let secret = secrets.get(SECRET).await?;
            let found = configurations.get(CONFIGURATION).await?;
            let webhook = found.webhooks.and_then(|list| list.into_iter().next());
            let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle);
            let trusted = bundle.map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
            let anew = before.is_none_or(|before| text(before, "tls.crt") != text(&secret, "tls.crt"));
            ensure!(anew, "the certificate is the old one");
            ensure!(
                trusted.as_deref() == Some(&text(&secret, "ca.crt")),
                "the bundle is {trusted:?}"
            );
            Ok(Some(secret))
        })
        .await
}

fn condition(status: &str) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorCondition",
        "metadata": {"name": "greeter.v1.1.0", "namespace": "greeter"},
        "spec": {"conditions": [{
            "type": "Upgradeable", "status": status, "reason": "migration",
            "message": "The Operator is performing a migration.", "lastTransitionTime": "2020-08-24T23:15:55Z",
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_get_certificates_and_hold_their_upgrade_back() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    let versions = ["1.1.0", samples::WITH_WEBHOOK];
    let reference = world.publish_greeter(&versions, samples::OPERATOR_IMAGE).await?;
    world.apply(&[catalog("samples", &reference)])?;
    let path = world.folder().join("greeter.yaml");
    let text = std::fs::read_to_string(olm_test::world::repository().join("manifests/samples/greeter.yaml"))?;
    let (rights, extension) = text.split_at(
        text.find("apiVersion: olm.operatorframework.io/v1")
            .context("extension")?,
    );
    std::fs::write(&path, rights)?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    let before = everything(&world)?;
    std::fs::write(
        &path,
        extension
            .replace("[stable]", "[checked]")
            .replace("1.0.x", "1.1.0"),
    )?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    await_version(&world, "greeter", "1.1.0").await?;

    upgrade_waits_for_the_operator(&world).await?;
    certificates_are_kept(&mut world).await?;

    extensions(&world)
        .delete("greeter", &DeleteParams::default())
        .await?;
    world
        .eventually("nothing is left", SOON, async || {
            let after = everything(&world)?;
            let left: Vec<_> = after.difference(&before).collect();
            let lost: Vec<_> = before.difference(&after).collect();
            ensure!(left.is_empty() && lost.is_empty(), "left {left:?}, lost {lost:?}");
            Ok(Some(()))
        })
        .await
}

/// T-8-01, with the operator's part played by hand.
async fn upgrade_waits_for_the_operator(world: &World) -> Result<()> {
    let deployment = Api::<Deployment>::namespaced(world.client.clone(), "greeter")
        .get("greeter-operator")
        .await?;
    let pod = serde_json::to_string(&deployment.spec)?;
    ensure!(
        pod.contains(r#"{"name":"OPERATOR_CONDITION_NAME","value":"greeter.v1.1.0"}"#),
        "the operator is not told: {pod}"
    );
    let may = world.kubectl(&[
        "auth",
        "can-i",
        "patch",
        "operatorconditions.operators.coreos.com/greeter.v1.1.0",
        "-n",
        "greeter",
        "--as=system:serviceaccount:greeter:greeter-operator",
    ])?;
    ensure!(
        may.trim() == "yes",
        "the operator may not write its OperatorCondition"
    );

    world.apply(&[condition("False")])?;
    patch_source(world, "greeter", json!({"version": samples::WITH_WEBHOOK})).await?;
    await_progressing(
        world,
        "greeter",
        conditions::reason::RETRYING,
        "upgrade from greeter.v1.1.0 to greeter.v1.2.0 is held back by the operator: OperatorCondition \
         greeter/greeter.v1.1.0 says Upgradeable=False (migration): The Operator is performing a migration.; it goes on",
    )
    .await?;
    let sets = revisions(world).list(&ListParams::default()).await?;
    ensure!(sets.items.len() == 1, "a revision was made nevertheless");

    world.apply(&[condition("True")])?;
    await_version(world, "greeter", samples::WITH_WEBHOOK).await?;
    world
        .eventually("only the new bundle has an OperatorCondition", SOON, async || {
            let names = world.kubectl(&[
                "get",
                "operatorconditions.operators.coreos.com",
                "-n",
                "greeter",
                "-o",
                "name",
            ])?;
            ensure!(
                names.trim() == "operatorcondition.operators.coreos.com/greeter.v1.2.0",
                "there are {names}"
            );
            Ok(Some(()))
        })
        .await?;

    // Back again, which the operator does not want and the user does.
    let mut word = condition("False");
    word["metadata"]["name"] = json!("greeter.v1.2.0");
    world.apply(&[word])?;
    let back = json!({"version": "1.1.0", "upgradeConstraintPolicy": "SelfCertified"});
    patch_source(world, "greeter", back).await?;
    await_progressing(
        world,
        "greeter",
        conditions::reason::RETRYING,
        "upgrade from greeter.v1.2.0 to greeter.v1.1.0 is held back",
    )
    .await?;
    merge(
        world,
        "greeter",
        json!({"metadata": {"annotations": {user::UPGRADEABLE_OVERRIDE: "true"}}}),
    )
    .await?;
    await_version(world, "greeter", "1.1.0").await?;
    patch_source(world, "greeter", json!({"version": samples::WITH_WEBHOOK})).await?;
    await_version(world, "greeter", samples::WITH_WEBHOOK)
        .await
        .map(drop)
}

async fn certificates_are_kept(world: &mut World) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(world.client.clone(), "greeter");
    let first = trusted(world, None).await?;
    let managers = first.metadata.managed_fields.clone().unwrap_or_default();
    ensure!(
        managers
            .iter()
            .all(|entry| entry.manager.as_deref() == Some(field_manager::CERTIFICATES)),
        "written by {managers:?}"
    );
    let sets = revisions(world).list(&ListParams::default()).await?.items;
    let newest = sets
        .iter()
        .max_by_key(|set| set.spec.revision)
        .context("a revision")?;
    assert_eq!(
        newest.annotation(annotation::CERTIFICATE_PROVIDER),
        Some("self-signed")
    );
    ensure!(
        !serde_json::to_string(&newest.status)?.contains("certificates"),
        "certificates are no content"
    );
    let audit = std::fs::read_to_string(world.cluster.audit_log())?;
    let by_controller = audit.lines().find(|line| {
        line.contains("operator-controller-controller-manager")
            && line.contains("/namespaces/greeter/secrets")
            && !line.contains("\"impersonatedUser\"")
    });
    ensure!(
        by_controller.is_none(),
        "the controller touched a Secret itself: {by_controller:?}"
    );

    // Lost: made anew, and what the lost authority signed stays trusted.
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    let second = trusted(world, Some(&first)).await?;
    ensure!(
        text(&second, "ca.crt").ends_with(&text(&first, "ca.crt")),
        "the old authority is trusted no longer"
    );

    // A restart makes nothing anew; what somebody took away is back.
    world.operator_controller.kill();
    world.kubectl(&[
        "patch",
        "validatingwebhookconfigurations",
        CONFIGURATION,
        "--type=json",
        "-p",
        r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#,
    ])?;
    world.start_operator_controller()?;
    let third = trusted(world, None).await?;
    assert_eq!(third.data, second.data);
    Ok(())
}
