//! Labels are no proof of an owner, and an extension that cannot install a package does not keep it from others.

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_api::names::{self, label, user};
use olm_test::extensions::{
    administrator, await_progressing, await_version, extensions, is_settled, merge, patch_source, revisions,
};
use serde_json::json;

use crate::SOON;
use crate::running::{WORLD, extension, publish};
use crate::takeover;

#[test]
fn an_extension_without_an_account_keeps_no_package() -> Result<()> {
    WORLD.with(async |world| {
        publish(world, "coveted").await?;
        world.apply(&[extension("squatter", "coveted", None)])?;
        await_progressing(world, "squatter", "Blocked", "no service account").await?;
        world.apply(&administrator("coveted", "installer"))?;
        world.apply(&[extension("coveted", "coveted", Some("installer"))])?;
        await_version(world, "coveted", "1.0.0").await?;
        // Once it names one, it is too late.
        let account = json!({ "spec": { "serviceAccount": { "name": "installer" } } });
        merge(world, "squatter", account).await?;
        await_progressing(world, "squatter", "Retrying", "belongs to ClusterExtension")
            .await
            .map(drop)
    })
}

/// The blockers differ: a version that no catalog has, rights that the account lacks, a pause.
#[test]
fn a_blocked_extension_that_has_installed_nothing_keeps_no_package() -> Result<()> {
    WORLD.with(async |world| {
        for (package, reason, part) in [
            ("pinned", "Retrying", "9.9.9"),
            ("powerless-first", "Retrying", "clusterroles"),
            ("paused-first", "Blocked", "paused"),
        ] {
            publish(world, package).await?;
            world.apply(&administrator(package, "installer"))?;
            let account =
                json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "weak", "namespace": package } });
            let squatter = format!("{package}-squatter");
            let mut wanted = extension(&squatter, package, Some("installer"));
            match package {
                "pinned" => wanted["spec"]["source"]["catalog"]["version"] = json!("9.9.9"),
                "paused-first" => wanted["metadata"]["annotations"] = json!({ user::PAUSED: "true" }),
                _ => wanted["spec"]["serviceAccount"]["name"] = json!("weak"),
            }
            world.apply(&[account, wanted])?;
            await_progressing(world, &squatter, reason, part).await?;
            world.apply(&[extension(package, package, Some("installer"))])?;
            await_version(world, package, "1.0.0").await?;
        }
        // The blockers are removed, but the packages are not free.
        patch_source(world, "pinned-squatter", json!({ "version": "1.0.0" })).await?;
        let mark = format!("{}-", user::PAUSED);
        world.kubectl(&["annotate", "clusterextension", "paused-first-squatter", &mark])?;
        let [_, _, mut binding] = administrator("powerless-first", "weak");
        binding["metadata"]["name"] = json!("powerless-first-weak");
        world.apply(&[binding])?;
        for package in ["pinned", "powerless-first", "paused-first"] {
            let squatter = format!("{package}-squatter");
            let part = format!("belongs to ClusterExtension {package:?}");
            await_progressing(world, &squatter, "Retrying", &part).await?;
        }
        Ok(())
    })
}

/// Neither extension keeps the package from the other, and both become idle; then both get the missing rights at the
/// same time.
#[test]
fn of_two_blocked_extensions_of_a_package_one_installs_it_when_both_can() -> Result<()> {
    WORLD.with(async |world| {
        publish(world, "contested").await?;
        let names = ["contested-a", "contested-b"];
        let [namespace, ..] = administrator("contested", "unused");
        world.apply(&[namespace])?;
        for name in names {
            let account =
                json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": "contested" } });
            world.apply(&[account, extension(name, "contested", Some(name))])?;
        }
        for name in names {
            await_progressing(world, name, "Retrying", "clusterroles").await?;
        }
        let versions = async || {
            let mut found = Vec::new();
            for name in names {
                found.push(extensions(world).get(name).await?.metadata.resource_version);
            }
            anyhow::Ok(found)
        };
        world
            .eventually("both are at rest", SOON, async || {
                let before = versions().await?;
                tokio::time::sleep(Duration::from_secs(5)).await;
                let after = versions().await?;
                ensure!(before == after, "{before:?} {after:?}");
                Ok(Some(()))
            })
            .await?;
        for name in names {
            await_progressing(world, name, "Retrying", "clusterroles").await?;
        }
        let subjects = names.map(|name| json!({ "kind": "ServiceAccount", "name": name, "namespace": "contested" }));
        world.apply(&[json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "contested" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": subjects,
        })])?;
        let (winner, loser) = world
            .eventually("one of them is installed", SOON, async || {
                let [first, second] = names;
                let is_installed = async |name| anyhow::Ok(is_settled(&extensions(world).get(name).await?));
                Ok(match (is_installed(first).await?, is_installed(second).await?) {
                    (true, false) => Some((first, second)),
                    (false, true) => Some((second, first)),
                    _ => None,
                })
            })
            .await?;
        let part = format!("belongs to ClusterExtension {winner:?}");
        await_progressing(world, loser, "Retrying", &part).await?;
        let sets = world.kubectl(&["get", "clusterobjectsets", "-o", "name"])?;
        ensure!(!sets.contains(&format!("{loser}-1")), "the loser has a revision: {sets}");
        world.kubectl(&["delete", "clusterextension", loser]).map(drop)
    })
}

/// One set has the name of the next revision, the other a high number. Both have the labels of the extension's own
/// revisions.
#[test]
fn forged_revisions_raise_no_number_and_are_not_taken_over() -> Result<()> {
    WORLD.with(async |world| {
        takeover::publish(world, "numbered", &["1.0.0"]).await?;
        world.apply(&administrator("numbered", "installer"))?;
        world.apply(&[extension("numbered", "numbered", Some("installer"))])?;
        await_version(world, "numbered", "1.0.0").await?;
        let forged = [("numbered-2", 2), ("numbered-99", 99)];
        for (name, number) in forged {
            world.apply(&[json!({
                "apiVersion": names::API_VERSION, "kind": names::CLUSTER_OBJECT_SET,
                "metadata": {
                    "name": name,
                    "labels": { label::OWNER_KIND: names::CLUSTER_EXTENSION, label::OWNER_NAME: "numbered" },
                },
                "spec": { "revision": number, "lifecycleState": "Active", "collisionProtection": "Prevent" },
            })])?;
        }
        takeover::publish(world, "numbered", &["1.0.0", "1.0.1"]).await?;
        await_version(world, "numbered", "1.0.1").await?;
        let made = revisions(world).get("numbered-3").await?;
        ensure!(made.spec.revision == 3, "{:?}", made.spec.revision);
        for (name, number) in forged {
            let set = revisions(world).get(name).await?;
            ensure!(
                set.spec.revision == number && set.metadata.owner_references.is_none(),
                "{:?}",
                set.metadata
            );
            world.kubectl(&["delete", "clusterobjectset", name, "--wait=false"])?;
        }
        Ok(())
    })
}
