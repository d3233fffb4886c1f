//! Changes of definitions, compared with stored objects.

use anyhow::{Context as _, Result, ensure};
use olm_api::ClusterExtension;
use olm_api::conditions::{self, reason};
use olm_api::names::{annotation, user};
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, installed_version, merge, patch_source, rbac,
    rbac_subject, revisions, rollback,
};
use olm_test::samples;
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{CLUSTER, annotate, await_event, definition, file, greeting, install};

/// 1.0.1 replaces the stored version, 1.1.0 makes a field required.
pub(crate) fn without_v1_or_with_a_required_field(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text
            .replace("- name: v1\n      served", "- name: v2\n      served")
            .replace("version: v1\n        kind", "version: v2\n        kind"),
        "1.1.0" => text.replace("required: [name]", "required: [name, salutation]"),
        _ => text,
    }
}

#[test]
fn a_crd_change_that_breaks_stored_objects_waits_for_the_policy() -> Result<()> {
    CLUSTER.with(async |world| {
    install(world, "breaking-crd", "1.0.0").await?;
    for (version, part) in [
        (
            "1.0.1",
            "validating upgrade for CRD \"greetings.breaking-crd.olm.example\": storedVersionRemoval: stored versions removed : [v1]",
        ),
        (
            "1.1.0",
            "validating upgrade for CRD \"greetings.breaking-crd.olm.example\": v1: ^.spec: required: new required fields: [salutation]",
        ),
    ] {
        patch_source(world, "breaking-crd", json!({ "version": version })).await?;
        await_progressing(world, "breaking-crd", reason::RETRYING, part).await?;
        let extension = extensions(world).get("breaking-crd").await?;
        ensure!(installed_version(&extension) == Some("1.0.0"));
        ensure!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
        ensure!(
            revisions(world).get_opt("breaking-crd-2").await?.is_none(),
            "nothing is written"
        );
    }
    let way_out = "annotation olm.operatorframework.io/crd-policy: \"required=Warn\"";
    await_progressing(world, "breaking-crd", reason::RETRYING, way_out).await?;
    // A check by itself.
    annotate(world, "breaking-crd", user::CRD_POLICY, Some("require=Warn")).await?;
    await_progressing(world, "breaking-crd", reason::BLOCKED, "there is no check \"require\"").await?;
    let frozen = freeze(world, "breaking-crd", &PODS).await?;
    annotate(world, "breaking-crd", user::CRD_POLICY, Some("required=Warn")).await?;
    a_warning_is_reported_while_the_revision_rolls_out(world).await?;
    thaw(world, &frozen)?;
    // The controller has its ReplicaSet tried again at once.
    world.kubectl(&["annotate", "replicasets", "--all", "-n", "breaking-crd", "again=now"])?;
    let extension = await_version(world, "breaking-crd", "1.1.0").await?;
    ensure!(active(&extension) == [("breaking-crd-2", 0)], "{:?}", extension.status);
    // Back, which removes a field; all checks at once.
    let back = json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" });
    patch_source(world, "breaking-crd", back).await?;
    await_progressing(
        world,
        "breaking-crd",
        reason::RETRYING,
        "existingFieldRemoval: removed field : v1.^.spec.salutation",
    )
    .await?;
    let none = json!({ "crdUpgradeSafety": { "enforcement": "None" } });
    merge(
        world,
        "breaking-crd",
        json!({ "spec": { "install": { "preflight": none } } }),
    )
    .await?;
    await_version(world, "breaking-crd", "1.0.0").await.map(drop)
    })
}

/// The active revisions in the status, and the number of their conditions.
fn active(extension: &ClusterExtension) -> Vec<(&str, usize)> {
    let status = extension.status.iter();
    let active = status.flat_map(|status| &status.active_revisions);
    active
        .map(|revision| (revision.name.as_str(), revision.conditions.len()))
        .collect()
}

/// Revision 2 of `breaking-crd` is made but cannot be completed.
async fn a_warning_is_reported_while_the_revision_rolls_out(world: &World) -> Result<()> {
    let warning = "required: new required fields: [salutation]";
    world
        .eventually(
            "the status has the warning and both revisions",
            SOON,
            async || {
                let extension = extensions(world).get("breaking-crd").await?;
                let of = |condition_type| conditions::find(extension.conditions(), condition_type);
                let is_rolling = of(conditions::PROGRESSING).is_some_and(|found| {
                    found.reason == reason::ROLLING_OUT && found.message == "Revision 1.1.0 is rolling out."
                });
                let is_reported = is_rolling
                    && of(conditions::READY).is_some_and(|ready| {
                        ready.message.contains("Warnings: ") && ready.message.contains(warning)
                    });
                let both = [("breaking-crd-1", 0), ("breaking-crd-2", 2)];
                ensure!(
                    is_reported && active(&extension) == both,
                    "{:?}",
                    extension.status
                );
                ensure!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
                Ok(Some(()))
            },
        )
        .await?;
    let set = revisions(world).get("breaking-crd-2").await?;
    let kept = set.annotation(annotation::WARNINGS).unwrap_or_default();
    ensure!(
        kept.contains(warning),
        "whoever leads next reads it from the revision: {kept:?}"
    );
    Ok(())
}

/// 1.0.1 changes a field that never changes; 1.1.0 makes a text a number.
pub(crate) fn with_another_selector_or_type(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text.replace("app.kubernetes.io/name: refused-objects", "app.kubernetes.io/name: other"),
        "1.1.0" => text.replace(
            "name:\n                  type: string\n                  description: Who is greeted.\n                  maxLength: 100",
            "name:\n                  type: integer",
        ),
        _ => text,
    }
}

#[test]
fn an_object_that_the_new_schema_refuses_holds_the_upgrade() -> Result<()> {
    CLUSTER.with(async |world| {
    install(world, "refused-objects", "1.0.0").await?;
    world.apply(&[greeting("refused-objects", "v1", "guest", json!({ "name": "a" }))])?;
    // A refusal of the API server is found before the installed revision is changed.
    patch_source(world, "refused-objects", json!({ "version": "1.0.1" })).await?;
    let refused = await_progressing(
        world,
        "refused-objects",
        reason::RETRYING,
        "refuses objects of this revision (dry run)",
    )
    .await?;
    ensure!(
        refused.contains("Kind=Deployment refused-objects/refused-objects-operator") && refused.contains("immutable"),
        "{refused}"
    );
    ensure!(revisions(world).get_opt("refused-objects-2").await?.is_none());

    annotate(world, "refused-objects", user::CRD_POLICY, Some("type=Off")).await?;
    patch_source(world, "refused-objects", json!({ "version": "1.1.0" })).await?;
    let expected = "validating upgrade for CRD \"greetings.refused-objects.olm.example\": v1: ^.spec.name: existingObjects: 1 existing \
                object would be invalid, since the value is of type string, not integer: refused-objects/guest";
    await_progressing(world, "refused-objects", reason::RETRYING, expected).await?;
    ensure!(installed_version(&extensions(world).get("refused-objects").await?) == Some("1.0.0"));
    ensure!(revisions(world).get_opt("refused-objects-2").await?.is_none());
    the_command_line_finds_the_same(world)?;
    world.kubectl(&["delete", "greetings.refused-objects.olm.example/guest", "-n", "refused-objects"])?;
    await_version(world, "refused-objects", "1.1.0").await?;
    await_event(world, "refused-objects", "Upgrading", "the revision of 1.1.0 adds ").await?;
    await_event(world, "refused-objects", "Installed", "Installed refused-objects.v1.0.0 1.0.0").await?;
    a_way_back_that_is_refused_touches_nothing(world).await
    })
}

/// Goes back from 1.1.0 of `refused-objects` to 1.0.0, whose definition refuses objects created meanwhile.
async fn a_way_back_that_is_refused_touches_nothing(world: &World) -> Result<()> {
    world.apply(&[greeting("refused-objects", "v1", "number", json!({ "name": 7 }))])?;
    let (done, text) = rollback(world, "refused-objects", &[])?;
    ensure!(!done && text.contains("--accept-data-loss"), "{text}");
    let frozen = freeze(world, "refused-objects", &DEPLOYMENTS).await?;
    let (done, text) = rollback(world, "refused-objects", &["--accept-data-loss"])?;
    ensure!(
        !done
            && text.contains("the API server refuses Deployment refused-objects/refused-objects-operator: "),
        "{text}"
    );
    let (done, text) = rollback(
        world,
        "refused-objects",
        &["--accept-data-loss", "--accept-refusal"],
    )?;
    ensure!(
        done && text
            .contains("refused-objects is at 1.1.0 (revision 2) and rolls back to 1.0.0 (revision 1)"),
        "{text}"
    );
    let refused = "refuses objects of this revision (dry run)";
    let message = await_progressing(world, "refused-objects", reason::RETRYING, refused).await?;
    ensure!(message.contains(NOT_TODAY), "{message}");
    ensure!(installed_version(&extensions(world).get("refused-objects").await?) == Some("1.1.0"));
    ensure!(revisions(world).get_opt("refused-objects-3").await?.is_none());
    thaw(world, &frozen)?;
    await_version(world, "refused-objects", "1.0.0").await?;
    let set = revisions(world).get("refused-objects-3").await?;
    let warnings = set.annotation(annotation::WARNINGS).unwrap_or_default();
    ensure!(
        warnings.contains("existingObjects: 1 existing object would be invalid"),
        "{warnings}"
    );
    Ok(())
}

/// Asks the cluster by the command line, too.
fn the_command_line_finds_the_same(world: &World) -> Result<()> {
    let mut new = definition(world, "refused-objects")?.context("the definition")?;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name";
    *new.pointer_mut(schema).context("the field")? = json!({ "type": "integer" });
    let path = world.folder().join("refused-objects-definition.json");
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
        "greetings.refused-objects.olm.example may not be replaced",
        "error: v1: ^.spec.name: existingObjects: 1 existing object would be invalid",
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
pub(crate) fn with_v2(version: &str, text: String) -> String {
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

/// The message of the policy.
pub(crate) const NOT_TODAY: &str = "no changes today";

/// The scope of a policy's refusals: group, resource and operation, unless the expression is true, and the kubectl
/// command that tests whether the policy is in force.
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
pub(crate) const PODS: Frozen = Frozen {
    group: "",
    resource: "pods",
    operations: &["CREATE"],
    expression: "false",
    probe: &["run", "probe", "--image=none", "--restart=Never"],
};

/// Forbids all changes in a namespace. Gives the names of the policy and its binding.
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

#[test]
fn stored_versions_are_migrated_when_their_definition_goes() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "stored-versions", "1.0.0").await?;
        world.apply(&[greeting("stored-versions", "v1", "guest", json!({ "name": "a" }))])?;
        let stored = || -> Result<Value> {
            let definition = definition(world, "stored-versions")?.context("the definition")?;
            definition
                .pointer("/status/storedVersions")
                .cloned()
                .context("stored versions")
        };
        patch_source(world, "stored-versions", json!({ "version": "1.0.1" })).await?;
        await_version(world, "stored-versions", "1.0.1").await?;
        ensure!(stored()? == json!(["v1", "v2"]), "{}", stored()?);
        // The account may neither write objects nor clean the list: the message names the command that prints its
        // roles.
        patch_source(world, "stored-versions", json!({ "version": "1.1.0" })).await?;
        let message = await_progressing(
            world,
            "stored-versions",
            reason::RETRYING,
            "may still be stored as v1",
        )
        .await?;
        let roles = rbac(
            world,
            &[rbac_subject(&message).context("a command in the message")?],
        )?;
        ensure!(
            stored()? == json!(["v1", "v2"]),
            "nothing is done without the rights"
        );
        let path = world.folder().join("stored-versions-roles.yaml");
        std::fs::write(&path, roles)?;
        let frozen = freeze(world, "stored-versions", &DEPLOYMENTS).await?;
        world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
        // The irreversible step comes last: the upgrade would fail, and no object is changed.
        let guest_version = || {
            let version = "jsonpath={.metadata.resourceVersion}";
            world.kubectl(&[
                "get",
                "greetings.stored-versions.olm.example/guest",
                "-n",
                "stored-versions",
                "-o",
                version,
            ])
        };
        let before = guest_version()?;
        let refused = "refuses objects of this revision (dry run)";
        let message = await_progressing(world, "stored-versions", reason::RETRYING, refused).await?;
        ensure!(
            message.contains("Kind=Deployment stored-versions/stored-versions-operator")
                && message.contains(NOT_TODAY),
            "{message}"
        );
        ensure!(
            stored()? == json!(["v1", "v2"]) && guest_version()? == before,
            "stored versions were migrated for an upgrade that is refused"
        );
        thaw(world, &frozen)?;
        await_version(world, "stored-versions", "1.1.0").await?;
        ensure!(stored()? == json!(["v2"]), "{}", stored()?);
        let guest = world.kubectl(&[
            "get",
            "greetings.stored-versions.olm.example/guest",
            "-n",
            "stored-versions",
            "-o",
            "jsonpath={.apiVersion}{.spec.name}",
        ])?;
        ensure!(guest == "stored-versions.olm.example/v2a", "{guest}");
        Ok(())
    })
}

#[test]
fn stored_versions_of_an_unowned_crd_are_migrated_only_after_adoption() -> Result<()> {
    CLUSTER.with(async |world| {
    // A user applies the definition of 1.0.0 and then that of 1.0.1 by hand.
    let path = world.folder().join("unowned-crd-definition.yaml");
    for version in ["1.0.0", "1.0.1"] {
        let files = samples::bundle(version, samples::OPERATOR_IMAGE);
        let file = files.iter().find(|(path, _)| path.ends_with("greetings.yaml"));
        let (_, content) = file.context("the definition")?;
        let text = samples::renamed("unowned-crd", &String::from_utf8_lossy(content));
        std::fs::write(&path, with_v2(version, text))?;
        world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    }
    let stored = || -> Result<Value> {
        let definition = definition(world, "unowned-crd")?.context("the definition")?;
        definition
            .pointer("/status/storedVersions")
            .cloned()
            .context("stored versions")
    };
    ensure!(stored()? == json!(["v1", "v2"]), "{}", stored()?);
    let api = "rbac.authorization.k8s.io";
    world.apply(&[json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "unowned-crd-all"},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "unowned-crd-installer", "namespace": "unowned-crd"}],
    })])?;
    world.kubectl(&["apply", "--server-side", "-f", &file(world, "unowned-crd", "1.1.0")?])?;
    let expected = "cannot remove version v1 from status.storedVersions of CRD \"greetings.unowned-crd.olm.example\", which \
                belongs to another owner";
    await_progressing(world, "unowned-crd", reason::RETRYING, expected).await?;
    ensure!(stored()? == json!(["v1", "v2"]), "{}", stored()?);
    ensure!(revisions(world).get_opt("unowned-crd-1").await?.is_none());
    annotate(world, "unowned-crd", user::ADOPT, Some("unowned")).await?;
    await_version(world, "unowned-crd", "1.1.0").await?;
    ensure!(stored()? == json!(["v2"]), "{}", stored()?);
    Ok(())
    })
}
