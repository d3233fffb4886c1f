//! What the README says about an extension of one's own, as it stands there.

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::reason;
use olm_test::extensions::{await_gone, await_progressing, await_version};
use olm_test::world::binary;

use super::CLUSTER;
use super::content::roles_as_the_readme_takes_them;

/// The README's section about it.
fn section() -> Result<&'static str> {
    let readme = include_str!("../../../README.md");
    let (_, section) = readme
        .split_once("\n### Your own extension\n")
        .context("the section of the README")?;
    Ok(section)
}

/// What of the section stands between two texts.
fn between(start: &str, end: &str) -> Result<&'static str> {
    let (_, rest) = section()?.split_once(start).context("the commands")?;
    let (commands, _) = rest.split_once(end).context("their end")?;
    Ok(commands)
}

/// From nothing to installed: a bundle is begun and pushed, a catalog made of it, and the account gets the rights that the
/// message asks for.
#[test]
fn an_extension_of_your_own_is_made_as_the_readme_says() -> Result<()> {
    CLUSTER.with(async |world| {
        let folder = world.folder().join("own");
        std::fs::create_dir(&folder)?;
        let olm = binary("olm")?;
        let olm = olm.parent().context("it is in a directory")?;
        let follow = |commands: &str| -> Result<()> {
            let script = format!(
                "set -euo pipefail\nexport PATH={}:$PATH\n{commands}\n",
                olm.display()
            );
            let run = world
                .cluster
                .exec("bash")
                .args(["-c", &script])
                .current_dir(&folder)
                .env("HOME", &folder)
                .env("REGISTRY", world.registry()?)
                .env("CA_DIR", world.authorities())
                .output()?;
            let said = String::from_utf8_lossy(&run.stderr);
            ensure!(run.status.success(), "{script}\n{said}");
            ensure!(
                said.contains("no faults found"),
                "what is begun has no fault: {said}"
            );
            Ok(())
        };
        let give = |message: &str| -> Result<()> {
            let path = folder.join("roles.yaml");
            std::fs::write(&path, roles_as_the_readme_takes_them(world, message)?)?;
            world
                .kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])
                .map(drop)
        };
        follow(between("\n```sh run\n", "\n```\n")?)?;
        give(&await_progressing(world, "my-extension", reason::RETRYING, "lacks permissions").await?)?;
        await_version(world, "my-extension", "0.1.0").await?;
        follow(between("the one that it replaces:\n\n```sh run\n", "\n```\n")?)?;
        // Its roles may have other names.
        tokio::select! {
            installed = await_version(world, "my-extension", "0.2.0") => installed.map(drop)?,
            lacking = await_progressing(world, "my-extension", reason::RETRYING, "lacks permissions") => {
                give(&lacking?)?;
                await_version(world, "my-extension", "0.2.0").await?;
            }
        }
        world.kubectl(&["delete", "clusterextension", "my-extension", "--wait=false"])?;
        await_gone(world, "my-extension").await?;
        let roles = between("\nkubectl delete clusterroles,", "\n")?;
        let roles: Vec<&str> = roles.split(' ').collect();
        let (kinds, rest) = roles.split_first().context("the command for roles")?;
        let kinds = format!("clusterroles,{kinds}");
        let deleted = world.kubectl(&[&["delete", kinds.as_str()][..], rest].concat())?;
        ensure!(deleted.contains("deleted"), "{deleted}");
        world
            .kubectl(&["delete", "clustercatalog", "my-catalog"])
            .map(drop)
    })
}
