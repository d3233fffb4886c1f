//! Additional objects for operators on real parts: certificates that the API server trusts if there is no other
//! provider, and an OperatorCondition with which they block their upgrade.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::conditions;
use olm_api::names::{annotation, cert_manager, field_manager, user};
use olm_test::e2e::{everything, everything_before};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, merge, patch_source, revisions,
};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// The setting that disables cert-manager as a provider.
const WITHOUT_CERT_MANAGER: &str = "--feature-gates=WebhookProviderCertManager=false";
const SECRET: &str = "greeter-operator-service-cert";
const CONFIGURATION: &str = "greetings.samples.olm.example";

fn text(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    String::from_utf8_lossy(&bytes.cloned().unwrap_or_default().0).into_owned()
}

/// Waits until the webhook configuration trusts the authority in the Secret, other than `before`.
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
            ensure!(!text(&secret, "ca.crt").is_empty(), "there is no authority");
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

/// Both managers and the sample operator. Every test installs it and removes it again.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let versions = ["1.1.0", samples::WITH_WEBHOOK];
    let reference = world.publish_greeter(&versions, samples::OPERATOR_IMAGE).await?;
    world.apply(&[catalog("samples", &reference)])?;
    world.apply_without_extension("manifests/samples/greeter.yaml")?;
    Ok(world)
}

/// Applies the extension with this version.
fn apply(world: &World, version: &str) -> Result<()> {
    let text = std::fs::read_to_string(olm_test::world::repository().join("manifests/samples/greeter.yaml"))?;
    let start = text.rfind("apiVersion: olm.operatorframework.io/v1");
    let extension = start
        .and_then(|start| text.get(start..))
        .context("the extension")?;
    let extension = extension
        .replace("[stable]", "[checked]")
        .replace("1.0.x", version);
    let path = world.folder().join("greeter.yaml");
    std::fs::write(&path, extension)?;
    world
        .kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])
        .map(drop)
}

async fn uninstall(world: &World) -> Result<()> {
    extensions(world)
        .delete("greeter", &DeleteParams::default())
        .await?;
    await_gone(world, "greeter").await
}

/// Applies or deletes definitions while operator-controller does not run; it looks for providers when it starts.
async fn restarted(world: &mut World, verb: &str, definitions: &str) -> Result<()> {
    world.operator_controller.kill();
    let path = format!("test/samples/definitions/{definitions}.yaml");
    let path = olm_test::world::repository().join(path).display().to_string();
    match verb {
        "apply" => drop(world.kubectl(&[verb, "--server-side", "-f", &path])?),
        _ => removed(world, &path).await?,
    }
    world.start_operator_controller()?;
    world.operator_controller.ready().await
}

/// Deletes the definitions in a file, and waits until they are gone.
async fn removed(world: &World, path: &str) -> Result<()> {
    world.kubectl(&["delete", "-f", path, "--ignore-not-found", "--wait=false"])?;
    world
        .eventually("the definitions are gone", SOON, async || {
            let left = world.kubectl(&["get", "-f", path, "--ignore-not-found", "-o", "yaml"])?;
            ensure!(left.is_empty(), "{left}");
            Ok(Some(()))
        })
        .await
}

#[test]
fn an_upgrade_waits_for_the_operator() -> Result<()> {
    CLUSTER.alone(async |world| {
        apply(world, "1.1.0")?;
        await_version(world, "greeter", "1.1.0").await?;
        the_operator_holds_its_upgrade_back(world).await?;
        uninstall(world).await
    })
}

#[test]
fn certificates_are_kept_and_so_is_their_provider() -> Result<()> {
    CLUSTER.alone(async |world| {
        let before = everything_before(world).await?;
        apply(world, samples::WITH_WEBHOOK)?;
        await_version(world, "greeter", samples::WITH_WEBHOOK).await?;
        certificates_are_kept(world).await?;
        the_provider_stays_with_the_extension(world).await?;
        uninstall(world).await?;
        restarted(world, "delete", "cert-manager").await?;
        world
            .eventually("nothing is left", SOON, async || {
                let after = everything(world)?;
                let left: Vec<_> = after.difference(&before).collect();
                let lost: Vec<_> = before.difference(&after).collect();
                ensure!(left.is_empty() && lost.is_empty(), "left {left:?}, lost {lost:?}");
                Ok(Some(()))
            })
            .await
    })
}

#[test]
fn other_providers_are_used_where_they_are_and_replaced_when_they_go() -> Result<()> {
    CLUSTER.alone(async |world| {
        let name = "greeter-installer-may-do-all";
        let account = "--serviceaccount=greeter:greeter-installer";
        world.kubectl(&[
            "create",
            "clusterrolebinding",
            name,
            "--clusterrole=cluster-admin",
            account,
        ])?;
        restarted(world, "apply", "cert-manager").await?;
        others_provide_certificates_where_they_are(world).await?;
        ours_take_the_place_of_others(world).await?;
        uninstall(world).await?;
        world.operator_controller.remove_argument(WITHOUT_CERT_MANAGER);
        restarted(world, "delete", "cert-manager").await?;
        world.kubectl(&["delete", "clusterrolebinding", name]).map(drop)
    })
}

/// The test acts as the operator.
async fn the_operator_holds_its_upgrade_back(world: &World) -> Result<()> {
    let deployment = Api::<Deployment>::namespaced(world.client.clone(), "greeter")
        .get("greeter-operator")
        .await?;
    let pod = serde_json::to_string(&deployment.spec)?;
    ensure!(
        pod.contains(r#"{"name":"OPERATOR_CONDITION_NAME","value":"greeter.v1.1.0"}"#),
        "the operator lacks the name of its condition: {pod}"
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
        "the operator blocks the upgrade from greeter.v1.1.0 to greeter.v1.2.0: OperatorCondition \
         greeter/greeter.v1.1.0 has Upgradeable=False (migration): The Operator is performing a migration. The upgrade continues",
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
        "the operator blocks the upgrade from greeter.v1.2.0 to greeter.v1.1.0",
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

    // A lost Secret is created again, and certificates of the lost authority stay trusted.
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    let second = trusted(world, Some(&first)).await?;
    ensure!(
        text(&second, "ca.crt").ends_with(&text(&first, "ca.crt")),
        "the old authority is trusted no longer"
    );

    // A restart creates no new certificates; a deleted object is created again.
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

/// The provider that the newest revision names.
async fn provider(world: &World) -> Result<String> {
    let sets = revisions(world).list(&ListParams::default()).await?.items;
    let newest = sets.iter().max_by_key(|set| set.spec.revision);
    let provider = newest.and_then(|set| set.annotation(annotation::CERTIFICATE_PROVIDER));
    Ok(provider.unwrap_or_default().to_owned())
}

/// With another provider available, the next revision keeps the provider of the last one.
async fn the_provider_stays_with_the_extension(world: &mut World) -> Result<()> {
    restarted(world, "apply", "cert-manager").await?;
    let before = revisions(world).list(&ListParams::default()).await?.items;
    let highest = before.iter().map(|set| set.spec.revision).max();
    let config = json!({"configType": "Inline", "inline": {"watchNamespace": "greeter"}});
    merge(world, "greeter", json!({"spec": {"config": config}})).await?;
    world
        .eventually("there is another revision", SOON, async || {
            let now = revisions(world).list(&ListParams::default()).await?.items;
            let now = now.iter().map(|set| set.spec.revision).max();
            Ok((now > highest).then_some(()))
        })
        .await?;
    await_version(world, "greeter", samples::WITH_WEBHOOK).await?;
    assert_eq!(provider(world).await?, "self-signed");
    trusted(world, None).await.map(drop)
}

/// Sets the status that cert-manager writes when an object is ready.
async fn is_ready(world: &World, object: &str) -> Result<()> {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
    world
        .eventually(&format!("there is {object}"), SOON, async || {
            world.kubectl(&["patch", object, "-n", "greeter", "--type=merge", "-p", &status])?;
            Ok(Some(()))
        })
        .await
}

/// The Secret that it would have made.
fn made_by_cert_manager() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": "greeter", "annotations": {cert_manager::CERTIFICATE_NAME: SECRET}},
    })
}

/// cert-manager provides certificates if it is installed; if it is disabled, the service CA of OpenShift does.
async fn others_provide_certificates_where_they_are(world: &mut World) -> Result<()> {
    apply(world, samples::WITH_WEBHOOK)?;
    let issuer = format!("{SECRET}-selfsigned-issuer");
    for object in [format!("issuer/{issuer}"), format!("certificate/{SECRET}")] {
        is_ready(world, &object).await?;
    }
    await_version(world, "greeter", samples::WITH_WEBHOOK).await?;
    assert_eq!(provider(world).await?, "cert-manager");
    let read =
        |path: &str| -> Result<Value> { Ok(serde_json::from_str(&world.kubectl(&["get", "--raw", path])?)?) };
    let here = "/apis/cert-manager.io/v1/namespaces/greeter";
    assert_eq!(
        read(&format!("{here}/issuers/{issuer}"))?["spec"],
        json!({"selfSigned": {}})
    );
    let certificate = read(&format!("{here}/certificates/{SECRET}"))?;
    let service = "greeter-operator-service.greeter";
    assert_eq!(
        certificate["spec"],
        json!({
            "secretName": SECRET,
            "commonName": service,
            "dnsNames": [service, format!("{service}.svc"), format!("{service}.svc.cluster.local")],
            "usages": ["server auth"],
            "issuerRef": {"name": issuer},
            "duration": "17520h0m0s",
            "renewBefore": "24h0m0s",
        })
    );
    let configuration =
        format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}");
    let asks = |object: &Value, key: &str| object["metadata"]["annotations"][key].clone();
    let hook = read(&configuration)?;
    assert_eq!(
        asks(&hook, "cert-manager.io/inject-ca-from"),
        format!("greeter/{SECRET}")
    );
    ensure!(
        hook["webhooks"][0]["clientConfig"]["caBundle"].is_null(),
        "we inject nothing"
    );
    let secrets = Api::<Secret>::namespaced(world.client.clone(), "greeter");
    ensure!(secrets.get_opt(SECRET).await?.is_none(), "we made a certificate");
    world.apply(&[made_by_cert_manager()])?;

    world
        .operator_controller
        .add_argument(WITHOUT_CERT_MANAGER.to_owned());
    restarted(world, "apply", "openshift").await?;
    let world = &*world;
    world
        .eventually("the service CA provides", SOON, async || {
            let named = provider(world).await?;
            ensure!(named == "openshift-service-ca", "it is {named}");
            Ok(Some(()))
        })
        .await?;
    await_version(world, "greeter", samples::WITH_WEBHOOK).await?;
    let read =
        |path: &str| -> Result<Value> { Ok(serde_json::from_str(&world.kubectl(&["get", "--raw", path])?)?) };
    // The status may still describe the previous revision for a moment.
    world
        .eventually("the service CA is asked for its bundle", SOON, async || {
            let asked = asks(
                &read(&configuration)?,
                "service.beta.openshift.io/inject-cabundle",
            );
            Ok((asked == "true").then_some(()))
        })
        .await?;
    let service = read("/api/v1/namespaces/greeter/services/greeter-operator-service")?;
    let key = "service.beta.openshift.io/serving-cert-secret-name";
    assert_eq!(asks(&service, key), SECRET);
    world
        .eventually("nothing asks cert-manager any longer", SOON, async || {
            let left = world.kubectl(&["get", "issuers,certificates", "-n", "greeter", "-o", "name"])?;
            let hook = read(&configuration)?;
            let annotation = asks(&hook, "cert-manager.io/inject-ca-from");
            ensure!(
                left.trim().is_empty() && annotation.is_null(),
                "left {left} {annotation}"
            );
            ensure!(
                secrets.get_opt(SECRET).await?.is_none(),
                "the Secret of the Certificate is left"
            );
            Ok(Some(()))
        })
        .await
}

/// The Secret of another provider has the same name as ours.
async fn ours_take_the_place_of_others(world: &World) -> Result<()> {
    let service = world.kubectl(&[
        "get",
        "service",
        "greeter-operator-service",
        "-n",
        "greeter",
        "-o",
        "json",
    ])?;
    let service: Value = serde_json::from_str(&service)?;
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": "greeter-operator-service",
        "uid": service["metadata"]["uid"]});
    world.apply(&[json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": "greeter", "ownerReferences": [owner]},
        "stringData": {"tls.crt": "theirs", "tls.key": "theirs"},
    })])?;
    let definitions = olm_test::world::repository().join("test/samples/definitions/openshift.yaml");
    let definitions = definitions.display().to_string();
    world.kubectl(&["delete", "--ignore-not-found", "-f", &definitions])?;
    let mut looks = 0;
    let look = async || {
        looks += 1;
        // The relevant parts of the extension are unchanged, but it is reconciled.
        let again = json!({"metadata": {"annotations": {"example.com/look": looks.to_string()}}});
        merge(world, "greeter", again).await?;
        let named = provider(world).await?;
        ensure!(named == "self-signed", "it is {named}");
        Ok(Some(()))
    };
    world.eventually("we provide", SOON, look).await?;
    trusted(world, None).await?;
    await_version(world, "greeter", samples::WITH_WEBHOOK)
        .await
        .map(drop)
}
