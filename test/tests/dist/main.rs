//! The files of a release: complete, consistent with the manifests, and sufficient to install all parts without a
//! compiler.

mod advisories;
mod bare_root;
mod chart;
mod contents;
mod files;
mod macos;
mod materials;
mod signed;
mod systems;

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};
use olm_test::dist::{self, Place, Release, SYSTEMS};
use olm_test::world::{Lab, binary, repository};
use tempfile::TempDir;

/// The variable with a folder from `make dist`. Without it the tests create one from the programs beside them.
const FOLDER: &str = "OLM_DIST";

/// Whether the release was built by `make dist`.
fn is_built() -> bool {
    std::env::var_os(FOLDER).is_some()
}

/// The folder of a release, for all tests of this file.
fn release() -> Result<PathBuf> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| make().map_err(|error| format!("{error:#}")));
    made.clone().map_err(|error| anyhow!("{error}"))
}

fn make() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return std::path::absolute(repository().join(folder)).context("a path");
    }
    // It exists as long as the build folder; the next run replaces it.
    let olm = binary("olm")?;
    let programs = olm.parent().context("it is in a folder")?;
    let builds = TempDir::new()?;
    // An earlier build may have left programs for other systems.
    for system in SYSTEMS {
        let folder = builds.path().join(system.target).join("release");
        std::fs::create_dir_all(&folder)?;
        for name in olm_test::images::PROGRAMS.into_iter().chain(["olm"]) {
            std::os::unix::fs::symlink(binary(name)?, folder.join(name))?;
        }
    }
    let mut wanted = SYSTEMS.map(|system| system.target.to_owned()).to_vec();
    wanted.retain(|target| target.starts_with(std::env::consts::ARCH) && target.contains("linux"));
    let out = programs.join("dist");
    dist::write(&Release {
        place: Place {
            root: repository(),
            out: out.clone(),
            kubectl: kubectl()?,
        },
        builds: builds.path().to_owned(),
        targets: wanted,
        programs: Some(programs.to_owned()),
        url: "https://releases.example/olm".to_owned(),
    })?;
    Ok(out)
}

/// The kubectl of the test clusters.
fn kubectl() -> Result<PathBuf> {
    use olm_test::cluster::{Binaries, Mode};
    Ok(Binaries::ensure(Mode::Simulated)?.path("kubectl"))
}

/// The objects in a text of manifests.
fn objects(text: &str) -> Result<Vec<serde_json::Value>> {
    olm_yaml::documents(text.as_bytes(), &olm_yaml::Limits::default())
        .map(|document| Ok(document?.into_value()?))
        .collect()
}

/// The output of kustomize for a folder of the repository.
fn kustomized(lab: &Lab, folder: &str) -> Result<String> {
    lab.kubectl(&["kustomize", &repository().join(folder).display().to_string()])
}
