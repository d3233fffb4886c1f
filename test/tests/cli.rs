//! `olm` against a real registry: bundles and catalogs are pushed, rendered by reference and composed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_test::registry::Server;
use olm_test::samples;
use olm_test::world::binary;

/// Runs `olm` and returns its standard output.
fn olm(directory: &Path, arguments: &[&str]) -> Result<String> {
    Ok(outputs(directory, arguments)?.0)
}

/// Runs `olm` and returns its standard output and its standard error.
fn outputs(directory: &Path, arguments: &[&str]) -> Result<(String, String)> {
    let output = Command::new(binary("olm")?)
        .current_dir(directory)
        .args(arguments)
        .env_remove("REGISTRY_AUTH_FILE")
        .env_remove("CONTAINERS_REGISTRIES_CONF")
        .env_remove("OLM_SIGNATURE_POLICY")
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", directory)
        .output()?;
    ensure!(
        output.status.success(),
        "olm {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_become_catalogs_and_catalogs_one_catalog_in_a_registry() -> Result<()> {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_push_says_which_image_had_the_tag() -> Result<()> {
    let server = Server::start().await?;
    let scratch = tempfile::tempdir()?;
    let here = scratch.path();
    let address = &server.registry().address;
    let reference = format!("{address}/cli/greeter:latest");
    let push = |version: &str| {
        let bundle = here.join(version);
        for (path, content) in samples::bundle(version, samples::OPERATOR_IMAGE) {
            let path = bundle.join(path);
            std::fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
            std::fs::write(path, content)?;
        }
        outputs(here, &["bundle", "push", version, &reference, "--plain-http"])
    };
    let (first, nothing) = push("1.0.0")?;
    ensure!(nothing.is_empty(), "{nothing}");
    let (_, nothing) = push("1.0.0")?;
    ensure!(nothing.is_empty(), "the same image replaces none: {nothing}");
    let (_, digest) = first.trim().split_once('@').context("a digest is printed")?;
    let (second, replaced) = push("1.1.0")?;
    ensure!(replaced == format!("replaced {digest}\n"), "{replaced}");
    ensure!(first != second && second.lines().count() == 1, "{second}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_platforms_of_images_are_held_against_the_labels() -> Result<()> {
    let server = Server::start().await?;
    let address = server.registry().address.clone();
    let scratch = tempfile::tempdir()?;
    let here = scratch.path();
    // Pushed by `olm`, the image has the platform of this machine.
    std::fs::create_dir(here.join("catalog"))?;
    let operator = format!("{address}/cli/operator:v1");
    olm(here, &["catalog", "push", "catalog", &operator, "--plain-http"])?;
    for (path, content) in samples::bundle("1.0.0", &operator) {
        let path = here.join("bundle").join(path);
        std::fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        std::fs::write(path, content)?;
    }
    let validate = [
        "bundle",
        "validate",
        "bundle",
        "--select",
        "multiarch",
        "--plain-http",
    ];
    let machine = olm_image::Platform::host().architecture;
    if machine == "amd64" {
        let said = olm(here, &validate)?;
        ensure!(!said.contains("[multiarch]"), "{said}");
    }
    let csv = here.join("bundle/manifests/greeter.clusterserviceversion.yaml");
    let text = std::fs::read_to_string(&csv)?;
    let labels = "metadata:\n  labels: {operatorframework.io/arch.riscv64: supported}\n";
    std::fs::write(&csv, text.replacen("metadata:\n", labels, 1))?;
    let output = Command::new(binary("olm")?)
        .current_dir(here)
        .args(validate)
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(
        !output.status.success() && said.contains("linux/riscv64 is supported, for which image"),
        "{said}"
    );
    ensure!(said.contains(&format!("linux/{machine}, too")), "{said}");
    Ok(())
}

/// Runs `olm`, which must fail, and returns its error.
fn refused(directory: &Path, arguments: &[&str]) -> Result<String> {
    match olm(directory, arguments) {
        Ok(printed) => anyhow::bail!("olm {arguments:?} printed {printed}"),
        Err(error) => Ok(error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_container_tools_say_where_images_come_from_and_which_may_be_used() -> Result<()> {
    let server = Server::start().await?;
    let registry = server.registry().clone();
    let scratch = tempfile::tempdir()?;
    let here = scratch.path();
    let catalog = here.join("catalog");
    std::fs::create_dir(&catalog)?;
    std::fs::write(
        catalog.join("index.json"),
        r#"{"schema":"olm.package","name":"greeter","defaultChannel":"stable"}"#,
    )?;
    let write = |name: &str, text: String| std::fs::write(here.join(name), text);
    // A user's own file is found without a flag: only it allows access to these images without TLS. The name redirects
    // to a mirror, and a part of the registry is blocked.
    std::fs::create_dir_all(here.join(".config/containers"))?;
    let conf = format!(
        "[[registry]]\nlocation = \"{plain}\"\ninsecure = true\n\n[[registry]]\nprefix = \"{plain}/blocked\"\nblocked = true\n\n\
         [[registry]]\nprefix = \"origin.example/team\"\nlocation = \"origin.example/team\"\n\
         [[registry.mirror]]\nlocation = \"{plain}/copy\"\ninsecure = true\n",
        plain = registry.address
    );
    write(".config/containers/registries.conf", conf)?;
    let plain = format!("{}/copy/catalog:v1", registry.address);
    let pinned = olm(here, &["catalog", "push", "catalog", &plain])?;
    let listed = olm(
        here,
        &["catalog", "list", "packages", "origin.example/team/catalog:v1"],
    )?;
    ensure!(listed.contains("greeter"), "{listed}");
    let blocked = format!("{}/blocked/catalog:v1", registry.address);
    for verb in [
        ["catalog", "push", "catalog", &blocked].as_slice(),
        &["catalog", "render", &blocked],
    ] {
        let said = refused(here, verb)?;
        ensure!(
            said.contains("the configuration of registries blocks"),
            "{verb:?}: {said}"
        );
    }
    // A file given by a flag replaces the user's, and must exist.
    let said = refused(
        here,
        &["catalog", "render", &plain, "--registries-conf", "missing.conf"],
    )?;
    ensure!(said.contains("missing.conf"), "{said}");

    // The policy applies to all commands.
    write(
        ".config/containers/policy.json",
        r#"{"default":[{"type":"reject"}]}"#.into(),
    )?;
    let said = refused(here, &["catalog", "list", "packages", pinned.trim()])?;
    ensure!(said.contains("policy"), "{said}");
    let scope = format!("{}/copy", registry.address);
    let policy = |requirement: &str| {
        format!(
            "{{\"default\":[{{\"type\":\"reject\"}}],\"transports\":{{\"docker\":{{\"{scope}\":[{requirement}]}}}}}}"
        )
    };
    let with_policy = [
        "catalog",
        "list",
        "packages",
        &plain,
        "--signature-policy",
        "own.json",
    ];
    write("own.json", policy(r#"{"type":"insecureAcceptAnything"}"#))?;
    ensure!(olm(here, &with_policy)?.contains("greeter"));
    for (requirement, expected) in [
        (
            r#"{"type":"signedBy","keyType":"GPGKeys","keyPath":"/k"}"#,
            "signedBy",
        ),
        (
            r#"{"type":"sigstoreSigned","fulcio":{}}"#,
            "`fulcio` needs `rekorPublicKeyPath` or `rekorPublicKeyData`",
        ),
    ] {
        write("own.json", policy(requirement))?;
        let said = refused(here, &with_policy)?;
        ensure!(said.contains(expected), "{expected}: {said}");
    }
    Ok(())
}
