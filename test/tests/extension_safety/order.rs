//! A change that no right would make possible is reported before missing rights are.

use anyhow::{Result, ensure};
use olm_api::conditions::reason;
use olm_test::extensions::{
    await_progressing, await_version, extensions, installed_version, merge, patch_source,
};
use olm_test::world::World;
use serde_json::json;

use super::rights::until_powerless;
use super::{CLUSTER, account_file, file, install};

/// The bundle brings the kind of `ordered`.
pub(crate) fn with_the_kind_of_another(_: &str, text: String) -> String {
    text.replace("same-kind.olm.example", "ordered.olm.example")
}

/// Removes all rights of an account except reading definitions.
async fn only_reads_definitions(world: &World, name: &str) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let reader = format!("{name}-reader");
    world.kubectl(&["delete", "clusterrolebinding", &format!("{name}-installer")])?;
    world.apply(&[
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": reader},
            "rules": [{
                "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"],
            }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": reader},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": reader},
            "subjects": [{"kind": "ServiceAccount", "name": format!("{name}-installer"), "namespace": name}],
        }),
    ])?;
    until_powerless(world, name).await
}

#[test]
fn an_impossible_change_says_so_before_rights_are_asked_for() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "ordered", "1.0.0").await?;
        only_reads_definitions(world, "ordered").await?;
        patch_source(world, "ordered", json!({ "version": "1.1.0" })).await?;
        let refused = "validating upgrade for CRD \"greetings.ordered.olm.example\": v1: ^.spec: required";
        let message = await_progressing(world, "ordered", reason::RETRYING, refused).await?;
        ensure!(!message.contains("lacks permissions"), "{message}");
        ensure!(installed_version(&extensions(world).get("ordered").await?) == Some("1.0.0"));

        // Two extensions never provide the same kind.
        world.kubectl(&["apply", "--server-side", "-f", &account_file(world, "same-kind")?])?;
        only_reads_definitions(world, "same-kind").await?;
        let text = std::fs::read_to_string(file(world, "same-kind", "1.0.0")?)?;
        let extension = text.rsplit("---").next().unwrap_or_default();
        let path = world.folder().join("same-kind-extension.yaml");
        std::fs::write(&path, extension)?;
        world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
        let taken = "CustomResourceDefinition \"greetings.ordered.olm.example\" belongs to ClusterExtension \"ordered\"";
        let message = await_progressing(world, "same-kind", reason::RETRYING, taken).await?;
        ensure!(!message.contains("lacks permissions"), "{message}");

        // If the account cannot read the object, it needs that right first.
        world.kubectl(&["delete", "clusterrolebinding", "ordered-reader"])?;
        let change = json!({ "metadata": { "annotations": { "example.com/look": "again" } } });
        merge(world, "ordered", change).await?;
        await_progressing(world, "ordered", reason::RETRYING, "lacks permissions").await?;

        // The change is impossible even with all rights.
        world.kubectl(&["apply", "--server-side", "-f", &account_file(world, "ordered")?])?;
        await_progressing(world, "ordered", reason::RETRYING, refused).await?;
        patch_source(world, "ordered", json!({ "version": "1.0.0" })).await?;
        await_version(world, "ordered", "1.0.0").await.map(drop)
    })
}
