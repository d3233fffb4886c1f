//! The longest names that the API server admits work to the end; longer ones are refused.

use anyhow::{Result, ensure};
use olm_api::names::{self, MAX_CATALOG_NAME, MAX_EXTENSION_NAME, label};
use olm_test::extensions::{administrator, await_gone, await_version, catalog, patch_source, revisions};
use olm_test::samples;
use serde_json::json;

use crate::running::{WORLD, extension};

/// A name of this many bytes.
fn long(start: &str, length: usize) -> String {
    format!("{start}{}", "x".repeat(length.saturating_sub(start.len())))
}

#[test]
fn names_that_fit_no_label_are_refused_by_the_api_server() -> Result<()> {
    crate::LAB.with(async |lab| {
        for (length, is_allowed) in [(52, true), (53, false), (63, false), (64, false)] {
            let named = extension(&long("extension", length), "package", None);
            check(lab, &named, is_allowed)?;
        }
        for (length, is_allowed) in [(52, true), (63, true), (64, false), (253, false)] {
            let named = catalog(&long("catalog", length), "registry.invalid/catalog:v1");
            check(lab, &named, is_allowed)?;
        }
        Ok(())
    })
}

fn check(lab: &olm_test::world::Lab, object: &serde_json::Value, is_allowed: bool) -> Result<()> {
    let applied = lab.apply(std::slice::from_ref(object));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match applied {
        Ok(()) => {
            ensure!(is_allowed, "{name} is taken");
            let kind = object["kind"].as_str().unwrap_or_default();
            lab.kubectl(&["delete", kind, name]).map(drop)
        }
        Err(refused) => {
            let said = format!("{refused:#}");
            ensure!(!is_allowed && said.contains("metadata.name: Too long"), "{said}");
            Ok(())
        }
    }
}

/// An extension, a catalog, a namespace and an account, all with names of the most bytes.
#[test]
fn an_extension_with_the_longest_names_is_installed_upgraded_and_deleted() -> Result<()> {
    WORLD.with(async |world| {
        let name = long("lengthy", MAX_EXTENSION_NAME as usize);
        let catalog_name = long("lengthy-catalog", MAX_CATALOG_NAME as usize);
        let namespace = long("lengthy-namespace", 63);
        let account = long("installer", 253);
        let reference = world
            .publish("lengthy", &["1.0.0", "1.0.1"], samples::OPERATOR_IMAGE)
            .await?;
        world.apply(&[catalog(&catalog_name, &reference)])?;
        let [space, mut user_account, mut binding] = administrator(&namespace, "installer");
        user_account["metadata"]["name"] = json!(account);
        binding["subjects"][0]["name"] = json!(account);
        world.apply(&[space, user_account, binding])?;
        let mut wanted = extension(&name, "lengthy", Some(&account));
        wanted["spec"]["namespace"] = json!(namespace);
        wanted["spec"]["source"]["catalog"]["version"] = json!("1.0.0");
        wanted["spec"]["source"]["catalog"]["selector"] =
            json!({ "matchLabels": { label::METADATA_NAME: catalog_name } });
        world.apply(&[wanted])?;
        await_version(world, &name, "1.0.0").await?;
        patch_source(world, &name, json!({ "version": "1.0.1" })).await?;
        await_version(world, &name, "1.0.1").await?;
        world.kubectl(&["delete", "clusterextension", &name, "--wait=false"])?;
        await_gone(world, &name).await?;
        ensure!(
            revisions(world).get_opt(&format!("{name}-2")).await?.is_none(),
            "a revision is left"
        );
        let labelled = format!("{}={name}", label::OWNER_NAME);
        let left = world.kubectl(&[
            "get",
            "secrets",
            "-n",
            names::SYSTEM_NAMESPACE,
            "-l",
            &labelled,
            "-o",
            "name",
        ])?;
        ensure!(left.is_empty(), "left: {left}");
        world
            .kubectl(&["delete", "clustercatalog", &catalog_name])
            .map(drop)
    })
}
