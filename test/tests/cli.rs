//! `olm` against a real registry: bundles and catalogs are pushed, rendered by reference and composed (requirements 2.60,
//! 2.61, 2.72).

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_test::registry::Server;
use olm_test::samples;
use olm_test::world::binary;

/// Runs `olm` and returns what it printed.
fn olm(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary("olm")?)
        .current_dir(directory)
        .args(arguments)
        .env_remove("REGISTRY_AUTH_FILE")
        .env("HOME", directory)
        .output()?;
    ensure!(
        output.status.success(),
        "olm {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn t_2g_01_bundles_become_catalogs_and_catalogs_one_catalog_in_a_registry() -> Result<()> {
    let server = Server::start().await?;
    let registry = server.registry().clone();
    let scratch = tempfile::tempdir()?;
    let here = scratch.path();
    let mut template = "schema: olm.semver\nstable:\n  bundles:\n".to_owned();
    for version in ["1.0.0", "1.1.0"] {
        let bundle = here.join(format!("bundle-{version}"));
        for (path, content) in samples::bundle(version, samples::OPERATOR_IMAGE) {
            let path = bundle.join(path);
            std::fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
            std::fs::write(path, content)?;
        }
        let reference = format!("{}/cli/greeter:v{version}", registry.address);
        let pushed = olm(
            here,
            &[
                "bundle",
                "push",
                &bundle.display().to_string(),
                &reference,
                "--plain-http",
            ],
        )?;
        writeln!(template, "  - image: {}", pushed.trim())?;
    }
    std::fs::write(here.join("template.yaml"), template)?;

    // The template is rendered from the images, and the catalog comes back from the registry as it was pushed.
    let catalog = here.join("catalog");
    std::fs::create_dir(&catalog)?;
    let rendered = olm(
        here,
        &[
            "catalog",
            "template",
            "semver",
            "template.yaml",
            "-o",
            "yaml",
            "--plain-http",
        ],
    )?;
    std::fs::write(catalog.join("index.yaml"), rendered)?;
    olm(here, &["catalog", "validate", "catalog"])?;
    let reference = format!("{}/cli/catalog:latest", registry.address);
    let pinned = olm(here, &["catalog", "push", "catalog", &reference, "--plain-http"])?;
    let pinned = pinned.trim();
    let local = olm(here, &["catalog", "render", "catalog", "-o", "jsonl"])?;
    let remote = olm(
        here,
        &["catalog", "render", pinned, "-o", "jsonl", "--plain-http"],
    )?;
    ensure!(
        local == remote,
        "the catalog in the registry is another one: {remote}"
    );

    // Composed by digest, pushed, and read with TLS and a password.
    let composition = format!(
        "name: composed\nrepo: {}/cli/composed\ntag: latest\nreferences:\n- {{name: greeter-operator, image: '{pinned}'}}\n",
        registry.address
    );
    std::fs::write(here.join("catalog.yaml"), composition)?;
    olm(
        here,
        &["catalog", "build", "-f", "catalog.yaml", "--push", "--plain-http"],
    )?;
    ensure!(here.join("composed/greeter-operator/index.yaml").is_file());
    let authorities = here.join("authorities");
    std::fs::create_dir(&authorities)?;
    std::fs::copy(&registry.ca, authorities.join("ca.crt"))?;
    let credentials = format!(
        "{{\"auths\":{{\"{}\":{{\"username\":\"{}\",\"password\":\"{}\"}}}}}}",
        registry.auth, registry.username, registry.password
    );
    std::fs::write(here.join("auth.json"), credentials)?;
    let composed = format!("{}/cli/composed:latest", registry.auth);
    let listed = olm(
        here,
        &[
            "catalog",
            "list",
            "channels",
            &composed,
            "--ca-dir",
            "authorities",
            "--authfile",
            "auth.json",
        ],
    )?;
    ensure!(
        listed.contains("greeter  stable-v1.1  greeter.v1.1.0"),
        "the composed catalog lists {listed}"
    );
    Ok(())
}
