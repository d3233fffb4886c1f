//! Installs an operator on an empty cluster with only the folder of a release and kubectl, in a root without
//! compiler and shell.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::{await_version, catalog};
use olm_test::images::contents::Contents;
use olm_test::images::{self, libraries};
use olm_test::samples;
use olm_test::world::{Lab, Options, World};
use tempfile::TempDir;

use crate::files::{archives, unpacked, write_program};
use crate::{is_built, kubectl, release};

/// The duration that the README promises.
const LIMIT: Duration = Duration::from_mins(3);

/// A folder that commands see as the root.
struct Root(TempDir);

impl Root {
    fn path(&self, inside: &str) -> PathBuf {
        self.0.path().join(inside.trim_start_matches('/'))
    }

    fn put(&self, from: &Path, inside: &str) -> Result<()> {
        let to = self.path(inside);
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        write_program(
            &to,
            &std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?,
        )
    }

    /// Runs a command in the folder of the release and returns its output.
    fn run(&self, line: &[&str]) -> Result<String> {
        let output = Command::new("unshare")
            .args(["--map-root-user", "--wd=/release"])
            .arg(format!("--root={}", self.0.path().display()))
            .args(line)
            .env_clear()
            .envs([("PATH", "/bin"), ("HOME", "/tmp"), ("KUBECONFIG", "/kubeconfig")])
            .output()
            .context("cannot run unshare")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {said}", line.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A root with the release, `olm` of its archive for this machine, and kubectl.
fn bare_root(lab: &Lab) -> Result<Root> {
    let root = Root(TempDir::new()?);
    let folder = release()?;
    for entry in std::fs::read_dir(&folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            root.put(
                &entry.path(),
                &format!("release/{}", entry.file_name().to_string_lossy()),
            )?;
        }
    }
    let system = match std::env::consts::ARCH {
        "aarch64" => "linux-arm64",
        _ => "linux-amd64",
    };
    let archive = &archives(&folder)?[system];
    let olm = root.path("bin/olm");
    std::fs::create_dir_all(root.path("bin"))?;
    write_program(&olm, &unpacked(&folder.join(archive))?["olm"].1)?;
    let needed = libraries(&olm)?;
    // Without a release, the program is the one of the tests.
    ensure!(needed.is_empty() || !is_built(), "olm is not static: {needed:?}");
    for library in needed {
        root.put(&library, &library.display().to_string())?;
    }
    root.put(&kubectl()?, "bin/kubectl")?;
    root.put(lab.cluster.kubeconfig(), "kubeconfig")?;
    root.put(&lab.authorities().join("ca.crt"), "ca/ca.crt")?;
    std::fs::create_dir(root.path("tmp"))?;
    Ok(root)
}

/// Writes the managers out of the images for this machine into a folder.
fn unpack_managers(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in ["catalogd", "operator-controller"] {
        let image = Contents::read(&release()?.join(format!("{name}.tar")))?;
        write_program(&folder.join(name), image.file(name)?)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_enough_to_install_an_operator() -> Result<()> {
    let lab = Lab::empty().await?;
    // Parts from elsewhere: a catalog and its bundles.
    let image = lab
        .publish_greeter(samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    let root = bare_root(&lab)?;
    let file = root.path("catalog/catalog.yaml");
    std::fs::create_dir_all(file.parent().context("a folder")?)?;
    std::fs::write(
        &file,
        samples::catalog(samples::VERSIONS, |version| {
            format!("registry.example/greeter:v{version}")
        }),
    )?;

    let version = root.run(&["olm", "version"])?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    root.run(&["olm", "catalog", "validate", "/catalog"])?;

    let begin = Instant::now();
    let mut steps = Vec::new();
    let mut step = |name: &'static str| steps.push((name, begin.elapsed().as_secs_f64()));
    let prefix = format!("{}/olmv1", lab.registry()?);
    for name in images::PROGRAMS {
        let reference = format!("{prefix}/{name}:v{}", env!("CARGO_PKG_VERSION"));
        let printed = root.run(&[
            "olm",
            "image",
            "push",
            "--ca-dir",
            "/ca",
            &format!("{name}.tar"),
            &reference,
        ])?;
        ensure!(printed.contains("@sha256:"), "{printed}");
    }
    step("images pushed");
    // The command of the README does this with sed.
    let manifests = std::fs::read_to_string(root.path("release/olm.yaml"))?;
    let manifests = manifests.replace("image: olmv1/", &format!("image: {prefix}/"));
    std::fs::write(root.path("release/mine.yaml"), manifests)?;
    root.run(&["kubectl", "apply", "--server-side", "-f", "mine.yaml"])?;
    let available = ["--for=condition=Available", "deployment", "--all", "--timeout=2m"];
    root.run(&[&["kubectl", "wait", "-n", "olmv1-system"][..], &available].concat())?;
    step("manifests applied, Deployments available");

    // The node is simulated: the managers of the images run as processes instead of Pods.
    let programs = root.path("managers");
    unpack_managers(&programs)?;
    let options = Options {
        programs: Some(programs),
        ..Options::default()
    };
    let world = World::over(lab, options).await?;
    step("managers ready");
    std::fs::write(root.path("samples.yaml"), catalog("samples", &image).to_string())?;
    root.run(&["kubectl", "apply", "-f", "/samples.yaml"])?;
    root.run(&[
        "kubectl",
        "wait",
        "--for=condition=Serving",
        "--timeout=60s",
        "clustercatalog/samples",
    ])?;
    step("catalog served");
    root.run(&[
        "olm",
        "install",
        "greeter",
        "--version",
        "1.0.0",
        "--yes",
        "--wait",
        "--ca-dir",
        "/ca",
    ])?;
    step("operator installed");
    let took = begin.elapsed();
    for (name, seconds) in &steps {
        println!("{seconds:6.1} s  {name}");
    }
    await_version(&world, "greeter", "1.0.0").await?;
    let listed = root.run(&["olm", "get", "greeter"])?;
    ensure!(listed.contains("1.0.0"), "{listed}");
    ensure!(took < LIMIT, "it took {} s", took.as_secs());
    Ok(())
}
