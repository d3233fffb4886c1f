//! Changes of definitions, held against what is stored.

use anyhow::{Context as _, Result, ensure};
use olm_api::ClusterExtension;
use olm_api::conditions::{self, reason};
use olm_api::names::{annotation, user};
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, installed_version, merge, patch_source, revisions,
    rollback,
};
use olm_test::samples;
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{annotate, await_event, definition, file, greeting, install, renamed};

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
    let way_out = "annotation olm.operatorframework.io/crd-policy: \"required=Warn\"";
    await_progressing(world, "kettle", reason::RETRYING, way_out).await?;
    // A check by itself.
    annotate(world, "kettle", user::CRD_POLICY, Some("require=Warn")).await?;
    await_progressing(world, "kettle", reason::BLOCKED, "there is no check \"require\"").await?;
    let frozen = freeze(world, "kettle", &PODS).await?;
    annotate(world, "kettle", user::CRD_POLICY, Some("required=Warn")).await?;
    a_warning_is_told_while_the_revision_rolls_out(world).await?;
    thaw(world, &frozen)?;
    // The controller has its ReplicaSet tried again at once.
    world.kubectl(&["annotate", "replicasets", "--all", "-n", "kettle", "again=now"])?;
    let extension = await_version(world, "kettle", "1.1.0").await?;
    ensure!(active(&extension) == [("kettle-2", 0)], "{:?}", extension.status);
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

/// The revisions that the status says are active, and how many conditions it tells of each.
fn active(extension: &ClusterExtension) -> Vec<(&str, usize)> {
    let status = extension.status.iter();
    let active = status.flat_map(|status| &status.active_revisions);
    active
        .map(|revision| (revision.name.as_str(), revision.conditions.len()))
        .collect()
}

/// Revision 2 of `kettle` is made but cannot be completed.
async fn a_warning_is_told_while_the_revision_rolls_out(world: &World) -> Result<()> {
    let warning = "required: new required fields: [salutation]";
    world
        .eventually("the warning is told, and both revisions", SOON, async || {
            let extension = extensions(world).get("kettle").await?;
            let told = conditions::find(extension.conditions(), conditions::PROGRESSING);
            let is_told = told.is_some_and(|found| {
                found.reason == reason::ROLLING_OUT
                    && found.message.contains("Warnings: ")
                    && found.message.contains(warning)
            });
            let both = [("kettle-1", 0), ("kettle-2", 2)];
            ensure!(is_told && active(&extension) == both, "{:?}", extension.status);
            ensure!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
            Ok(Some(()))
        })
        .await?;
    let set = revisions(world).get("kettle-2").await?;
    let kept = set.annotation(annotation::WARNINGS).unwrap_or_default();
    ensure!(
        kept.contains(warning),
        "whoever leads next reads it from the revision: {kept:?}"
    );
    Ok(())
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
    await_event(world, "urn", "Installed", "Installed urn.v1.0.0 1.0.0").await?;
    a_way_back_that_is_refused_touches_nothing(world).await
}

/// From 1.1.0 of `urn` to 1.0.0, whose definition refuses what was made meanwhile.
async fn a_way_back_that_is_refused_touches_nothing(world: &World) -> Result<()> {
    world.apply(&[greeting("urn", "v1", "number", json!({ "name": 7 }))])?;
    let (done, text) = rollback(world, "urn", &[])?;
    ensure!(!done && text.contains("--accept-data-loss"), "{text}");
    let frozen = freeze(world, "urn", &DEPLOYMENTS).await?;
    let (done, text) = rollback(world, "urn", &["--accept-data-loss"])?;
    ensure!(
        !done && text.contains("the API server refuses Deployment urn/urn-operator: "),
        "{text}"
    );
    let (done, text) = rollback(world, "urn", &["--accept-data-loss", "--accept-refusal"])?;
    ensure!(
        done && text.contains("urn is at 1.1.0 (revision 2) and goes back to 1.0.0 (revision 1)"),
        "{text}"
    );
    let refused = "refuses objects of this revision (dry run)";
    let message = await_progressing(world, "urn", reason::RETRYING, refused).await?;
    ensure!(message.contains(NOT_TODAY), "{message}");
    ensure!(installed_version(&extensions(world).get("urn").await?) == Some("1.1.0"));
    ensure!(revisions(world).get_opt("urn-3").await?.is_none());
    thaw(world, &frozen)?;
    await_version(world, "urn", "1.0.0").await?;
    let set = revisions(world).get("urn-3").await?;
    let warnings = set.annotation(annotation::WARNINGS).unwrap_or_default();
    ensure!(
        warnings.contains("existingObjects: 1 existing object(s) would be invalid"),
        "{warnings}"
    );
    Ok(())
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
pub(crate) const NOT_TODAY: &str = "no changes today";

/// What a policy may refuse: group, resource and operation, unless the expression is true, and what kubectl does to find out
/// whether it is in force.
pub(crate) struct Frozen {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) operations: &'static [&'static str],
    pub(crate) expression: &'static str,
    /// `NAMESPACE` stands for the namespace.
    pub(crate) probe: &'static [&'static str],
}

const DEPLOYMENTS: Frozen = Frozen {
    group: "apps",
    resource: "deployments",
    operations: &["CREATE", "UPDATE"],
    expression: "false",
    probe: &[
        "annotate",
        "deployment",
        "NAMESPACE-operator",
        "--overwrite",
        "a=b",
    ],
};
const PODS: Frozen = Frozen {
    group: "",
    resource: "pods",
    operations: &["CREATE"],
    expression: "false",
    probe: &["run", "probe", "--image=none", "--restart=Never"],
};

/// Lets nobody change what lies in a namespace. Gives the names of the policy and its binding.
pub(crate) async fn freeze(world: &World, namespace: &str, frozen: &Frozen) -> Result<[String; 2]> {
    let name = format!("{namespace}-frozen");
    let api = "admissionregistration.k8s.io";
    let rule = json!({
        "apiGroups": [frozen.group], "apiVersions": ["*"],
        "resources": [frozen.resource], "operations": frozen.operations,
    });
    world.apply(&[
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [rule],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                },
                "validations": [{"expression": frozen.expression, "message": NOT_TODAY}],
            },
        }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ])?;
    let probe = frozen
        .probe
        .iter()
        .map(|word| word.replace("NAMESPACE", namespace));
    let probe: Vec<String> = probe.collect();
    let mut change = vec!["-n", namespace, "--dry-run=server"];
    change.splice(0..0, probe.iter().map(String::as_str));
    world
        .eventually("the policy is in force", SOON, async || {
            let refused = world.kubectl(&change).err();
            Ok(refused
                .filter(|error| format!("{error:#}").contains(NOT_TODAY))
                .map(drop))
        })
        .await?;
    Ok(["validatingadmissionpolicy", "validatingadmissionpolicybinding"]
        .map(|kind| format!("{kind}.{api}/{name}")))
}

pub(crate) fn thaw(world: &World, frozen: &[String; 2]) -> Result<()> {
    let [policy, binding] = frozen;
    world.kubectl(&["delete", policy, binding]).map(drop)
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
    let frozen = freeze(world, "jug", &DEPLOYMENTS).await?;
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
    thaw(world, &frozen)?;
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

pub(crate) async fn stored_versions_of_a_definition_of_somebody_else_are_not_migrated_unasked(
    world: &World,
) -> Result<()> {
    // Somebody has the definition of 1.0.0 and then that of 1.0.1, by hand.
    let path = world.folder().join("vat-definition.yaml");
    for version in ["1.0.0", "1.0.1"] {
        let files = samples::bundle(version, samples::OPERATOR_IMAGE);
        let file = files.iter().find(|(path, _)| path.ends_with("greetings.yaml"));
        let (_, content) = file.context("the definition")?;
        let text = renamed(&String::from_utf8_lossy(content), "vat");
        std::fs::write(&path, jug(version, text))?;
        world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    }
    let stored = || -> Result<Value> {
        let definition = definition(world, "vat")?.context("the definition")?;
        definition
            .pointer("/status/storedVersions")
            .cloned()
            .context("stored versions")
    };
    ensure!(stored()? == json!(["v1", "v2"]), "{}", stored()?);
    let api = "rbac.authorization.k8s.io";
    world.apply(&[json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "vat-all"},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "vat-installer", "namespace": "vat"}],
    })])?;
    world.kubectl(&["apply", "--server-side", "-f", &file(world, "vat", "1.1.0")?])?;
    let told = "version(s) v1 would have to leave status.storedVersions of CRD \"greetings.vat.olm.example\", which \
                belongs to somebody else; nothing is changed";
    await_progressing(world, "vat", reason::RETRYING, told).await?;
    ensure!(stored()? == json!(["v1", "v2"]), "{}", stored()?);
    ensure!(revisions(world).get_opt("vat-1").await?.is_none());
    annotate(world, "vat", user::ADOPT, Some("unowned")).await?;
    await_version(world, "vat", "1.1.0").await?;
    ensure!(stored()? == json!(["v2"]), "{}", stored()?);
    Ok(())
}
