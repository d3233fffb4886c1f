//! Changes of definitions, held against what is stored.

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{self, reason};
use olm_api::names::user;
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, installed_version, merge, patch_source, revisions,
};
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{annotate, await_event, definition, greeting, install};

/// 1.0.1 replaces the stored version, 1.1.0 makes a field required.
pub(crate) fn kettle(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text
            .replace("- name: v1\n      served", "- name: v2\n      served")
            .replace("version: v1\n        kind", "version: v2\n        kind"),
        "1.1.0" => text.replace("required: [name]", "required: [name, salutation]"),
        _ => text,
    }
}

pub(crate) async fn definitions_that_break_what_is_stored(world: &World) -> Result<()> {
    install(world, "kettle", "1.0.0").await?;
    for (version, part) in [
        (
            "1.0.1",
            "validating upgrade for CRD \"greetings.kettle.olm.example\": storedVersionRemoval: stored versions removed : [v1]",
        ),
        (
            "1.1.0",
            "validating upgrade for CRD \"greetings.kettle.olm.example\": v1: ^.spec: required: new required fields: [salutation]",
        ),
    ] {
        patch_source(world, "kettle", json!({ "version": version })).await?;
        await_progressing(world, "kettle", reason::RETRYING, part).await?;
        let extension = extensions(world).get("kettle").await?;
        ensure!(installed_version(&extension) == Some("1.0.0"));
        ensure!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
        ensure!(
            revisions(world).get_opt("kettle-2").await?.is_none(),
            "nothing is written"
        );
    }
    // A check by itself.
    annotate(world, "kettle", user::CRD_POLICY, Some("require=Warn")).await?;
    await_progressing(world, "kettle", reason::BLOCKED, "there is no check \"require\"").await?;
    annotate(world, "kettle", user::CRD_POLICY, Some("required=Warn")).await?;
    await_version(world, "kettle", "1.1.0").await?;
    // Back, which removes a field; all checks at once.
    let back = json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" });
    patch_source(world, "kettle", back).await?;
    await_progressing(
        world,
        "kettle",
        reason::RETRYING,
        "existingFieldRemoval: removed field : v1.^.spec.salutation",
    )
    .await?;
    let none = json!({ "crdUpgradeSafety": { "enforcement": "None" } });
    merge(
        world,
        "kettle",
        json!({ "spec": { "install": { "preflight": none } } }),
    )
    .await?;
    await_version(world, "kettle", "1.0.0").await.map(drop)
}

/// 1.0.1 changes a field that never changes; 1.1.0 makes a text a number.
pub(crate) fn urn(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text.replace("app.kubernetes.io/name: urn", "app.kubernetes.io/name: vase"),
        "1.1.0" => text.replace(
            "name:\n                  type: string\n                  description: Who is greeted.\n                  maxLength: 100",
            "name:\n                  type: integer",
        ),
        _ => text,
    }
}

pub(crate) async fn t_5c_04_an_object_that_the_new_schema_refuses_holds_the_upgrade(
    world: &World,
) -> Result<()> {
    install(world, "urn", "1.0.0").await?;
    world.apply(&[greeting("urn", "v1", "guest", json!({ "name": "a" }))])?;
    // What the API server would refuse is found out before the installed revision is touched.
    patch_source(world, "urn", json!({ "version": "1.0.1" })).await?;
    let refused = await_progressing(
        world,
        "urn",
        reason::RETRYING,
        "refuses objects of this revision (dry run)",
    )
    .await?;
    ensure!(
        refused.contains("Kind=Deployment urn/urn-operator") && refused.contains("immutable"),
        "{refused}"
    );
    ensure!(revisions(world).get_opt("urn-2").await?.is_none());

    annotate(world, "urn", user::CRD_POLICY, Some("type=Off")).await?;
    patch_source(world, "urn", json!({ "version": "1.1.0" })).await?;
    let told = "validating upgrade for CRD \"greetings.urn.olm.example\": v1: ^.spec.name: existingObjects: 1 existing \
                object(s) would be invalid, since the value is of type string, not integer: urn/guest";
    await_progressing(world, "urn", reason::RETRYING, told).await?;
    ensure!(installed_version(&extensions(world).get("urn").await?) == Some("1.0.0"));
    ensure!(revisions(world).get_opt("urn-2").await?.is_none());
    the_command_line_finds_the_same(world)?;
    world.kubectl(&["delete", "greetings.urn.olm.example/guest", "-n", "urn"])?;
    await_version(world, "urn", "1.1.0").await?;
    await_event(world, "urn", "Upgrading", "the revision of 1.1.0 adds ").await?;
    await_event(world, "urn", "Installed", "Installed urn.v1.0.0 1.0.0").await
}

/// Asks the cluster by the command line, too.
fn the_command_line_finds_the_same(world: &World) -> Result<()> {
    let mut new = definition(world, "urn")?.context("the definition")?;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name";
    *new.pointer_mut(schema).context("the field")? = json!({ "type": "integer" });
    let path = world.folder().join("urn-definition.json");
    std::fs::write(&path, new.to_string())?;
    let run = std::process::Command::new(binary("olm")?)
        .args([
            "crd",
            "check",
            "--cluster",
            "--policy",
            "type=Warn",
            "--kubeconfig",
        ])
        .args([world.cluster.kubeconfig(), &path])
        .output()?;
    let said = String::from_utf8_lossy(&run.stdout);
    for part in [
        "greetings.urn.olm.example may not be replaced",
        "error: v1: ^.spec.name: existingObjects: 1 existing object(s) would be invalid",
        "warning: v1: ^.spec.name: type: type changed",
    ] {
        ensure!(
            said.contains(part),
            "{part:?} is not in {said}{}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
    ensure!(run.status.code() == Some(1), "{:?}", run.status);
    Ok(())
}

/// 1.0.1 stores objects as v2 and stops serving v1; 1.1.0 has v2 alone.
pub(crate) fn jug(version: &str, text: String) -> String {
    let text = match version {
        "1.0.0" => return text,
        _ => text.replace("version: v1\n        kind", "version: v2\n        kind"),
    };
    let Some(at) = text.find("    - name: v1\n") else {
        return text;
    };
    let (head, v1) = text.split_at(at);
    let v2 = v1.replace("name: v1", "name: v2");
    if version == "1.1.0" {
        return format!("{head}{v2}");
    }
    let retired = v1
        .replace("served: true", "served: false")
        .replace("storage: true", "storage: false");
    format!("{head}{}\n{v2}", retired.trim_end())
}

/// What the policy says.
const NOT_TODAY: &str = "no changes of Deployments today";

/// Lets nobody change Deployments of a namespace. Gives the names of the policy and its binding.
async fn no_changes_of_deployments(world: &World, namespace: &str) -> Result<(String, String)> {
    let name = format!("{namespace}-frozen");
    let api = "admissionregistration.k8s.io";
    let rule = json!({
        "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE", "UPDATE"],
    });
    world.apply(&[
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [rule],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                },
                "validations": [{"expression": "false", "message": NOT_TODAY}],
            },
        }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ])?;
    let deployment = format!("{namespace}-operator");
    let change = [
        "annotate",
        "deployment",
        &deployment,
        "-n",
        namespace,
        "--dry-run=server",
        "--overwrite",
        "a=b",
    ];
    world
        .eventually("the policy is in force", SOON, async || {
            let refused = world.kubectl(&change).err();
            Ok(refused
                .filter(|error| format!("{error:#}").contains(NOT_TODAY))
                .map(drop))
        })
        .await?;
    Ok((
        format!("validatingadmissionpolicy.{api}/{name}"),
        format!("validatingadmissionpolicybinding.{api}/{name}"),
    ))
}

pub(crate) async fn t_5c_06_stored_versions_are_migrated_when_their_definition_goes(
    world: &World,
) -> Result<()> {
    install(world, "jug", "1.0.0").await?;
    world.apply(&[greeting("jug", "v1", "guest", json!({ "name": "a" }))])?;
    let stored = || -> Result<Value> {
        let definition = definition(world, "jug")?.context("the definition")?;
        definition
            .pointer("/status/storedVersions")
            .cloned()
            .context("stored versions")
    };
    patch_source(world, "jug", json!({ "version": "1.0.1" })).await?;
    await_version(world, "jug", "1.0.1").await?;
    ensure!(stored()? == json!(["v1", "v2"]), "{}", stored()?);
    // The account may neither write objects nor clean the list: the roles that it needs are in the message.
    patch_source(world, "jug", json!({ "version": "1.1.0" })).await?;
    let message = await_progressing(world, "jug", reason::RETRYING, "may still be stored as v1").await?;
    let (_, roles) = message.split_once("apply:\n").context("roles in the message")?;
    ensure!(
        stored()? == json!(["v1", "v2"]),
        "nothing is done without the rights"
    );
    let path = world.folder().join("jug-roles.yaml");
    std::fs::write(&path, roles)?;
    let (policy, binding) = no_changes_of_deployments(world, "jug").await?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    // What cannot be taken back comes last: the upgrade would fail, and nothing is touched.
    let guest_version = || {
        let version = "jsonpath={.metadata.resourceVersion}";
        world.kubectl(&[
            "get",
            "greetings.jug.olm.example/guest",
            "-n",
            "jug",
            "-o",
            version,
        ])
    };
    let before = guest_version()?;
    let refused = "refuses objects of this revision (dry run)";
    let message = await_progressing(world, "jug", reason::RETRYING, refused).await?;
    ensure!(
        message.contains("Kind=Deployment jug/jug-operator") && message.contains(NOT_TODAY),
        "{message}"
    );
    ensure!(
        stored()? == json!(["v1", "v2"]) && guest_version()? == before,
        "stored versions were migrated for an upgrade that is refused"
    );
    world.kubectl(&["delete", &policy, &binding])?;
    await_version(world, "jug", "1.1.0").await?;
    ensure!(stored()? == json!(["v2"]), "{}", stored()?);
    let guest = world.kubectl(&[
        "get",
        "greetings.jug.olm.example/guest",
        "-n",
        "jug",
        "-o",
        "jsonpath={.apiVersion}{.spec.name}",
    ])?;
    ensure!(guest == "jug.olm.example/v2a", "{guest}");
    Ok(())
}
