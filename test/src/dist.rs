//! `olm-test dist …`: the files of a release, made from programs that are built.

pub mod advisories;
mod archive;
pub mod build;
mod chart;
pub mod images;
mod krew;
pub mod licences;
pub mod manifests;
mod packages;
mod provenance;
pub mod reproducible;
mod sbom;
pub mod sign;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tracing::info;

use self::images::contents::Contents;
use self::packages::Graph;
use self::provenance::{Parameters, Record};
use self::sbom::{Bills, Program};

/// The licences of all parts of the programs.
const LICENCES: &str = "THIRD-PARTY-LICENCES.txt";
/// The folder `manifests`.
const MANIFESTS: &str = "manifests.tar.gz";
/// The checksums, as `sha256sum -c` reads them.
const SUMS: &str = "SHA256SUMS";

/// A system that `olm` is built for.
#[derive(Debug, Clone, Copy)]
pub struct System {
    /// The name in Go and Kubernetes.
    pub os: &'static str,
    /// The name in Go and Kubernetes.
    pub architecture: &'static str,
    /// The name of both in Rust.
    pub target: &'static str,
}

/// The systems of `olm`.
pub const SYSTEMS: [System; 4] = [
    System {
        os: "linux",
        architecture: "amd64",
        target: "x86_64-unknown-linux-musl",
    },
    System {
        os: "linux",
        architecture: "arm64",
        target: "aarch64-unknown-linux-gnu",
    },
    System {
        os: "darwin",
        architecture: "amd64",
        target: "x86_64-apple-darwin",
    },
    System {
        os: "darwin",
        architecture: "arm64",
        target: "aarch64-apple-darwin",
    },
];

/// The systems of the images.
const IMAGE_SYSTEMS: [System; 2] = [
    System {
        target: "x86_64-unknown-linux-gnu",
        ..SYSTEMS[0]
    },
    SYSTEMS[1],
];

/// The name of this machine's system in Rust.
fn host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The version of Rust that builds.
fn toolchain(root: &Path) -> Result<String> {
    #[derive(Deserialize)]
    struct File {
        toolchain: Toolchain,
    }
    #[derive(Deserialize)]
    struct Toolchain {
        channel: String,
    }
    let file: File = toml::from_str(&std::fs::read_to_string(root.join("rust-toolchain.toml"))?)?;
    Ok(file.toolchain.channel)
}

/// The sub-commands of `dist`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments are described where they are defined")]
pub enum DistCommand {
    /// Write all files of a release.
    Release(Release),
    /// Build the programs of a release, so that their bytes do not depend on the folder.
    Build(build::Arguments),
    /// Build programs twice, in different folders, and compare them.
    Reproducible(reproducible::Arguments),
    /// Sign the files of a release, and write where they come from.
    Sign(Box<sign::Arguments>),
    /// Write the Helm chart alone.
    Chart {
        #[command(flatten)]
        place: Place,
    },
    /// Write the licences of all parts of the programs.
    Licences {
        #[command(flatten)]
        place: Place,
        /// Of the programs for these targets; by default all with Linux.
        #[arg(long, value_delimiter = ',', default_values_t = build::linux())]
        targets: Vec<String>,
    },
}

/// The folders of sources and output.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The repository's root.
    #[arg(long, default_value = ".")]
    pub root: PathBuf,
    /// The folder to write to.
    #[arg(long, default_value = "dist")]
    pub out: PathBuf,
    /// The program that renders manifests.
    #[arg(long, default_value = "kubectl")]
    pub kubectl: PathBuf,
}

/// The input of a release.
#[derive(Debug, Clone, Args)]
pub struct Release {
    /// The folders of sources and output.
    #[command(flatten)]
    pub place: Place,
    /// The folder with `TARGET/release/PROGRAM` for each target that is built.
    #[arg(long, default_value = "target/dist")]
    pub builds: PathBuf,
    /// Only with the programs for these targets, which must be built; by default all with Linux.
    #[arg(long, value_delimiter = ',', default_values_t = build::linux())]
    pub targets: Vec<String>,
    /// The folder with the managers for this machine's images; by default that of this program.
    #[arg(long)]
    pub programs: Option<PathBuf>,
    /// The base URL of the release's files, for the manifest of krew.
    #[arg(long, default_value = "https://releases.olm.example")]
    pub url: String,
}

/// Runs a sub-command.
///
/// # Errors
/// When a part is missing or a file cannot be written.
pub fn run(command: DistCommand) -> Result<()> {
    match command {
        DistCommand::Build(arguments) => build::run(&arguments),
        DistCommand::Reproducible(arguments) => reproducible::run(&arguments),
        DistCommand::Sign(arguments) => {
            olm_platform::crypto::install();
            tokio::runtime::Runtime::new()?.block_on(sign::run(*arguments))
        }
        DistCommand::Release(release) => write(&release),
        DistCommand::Chart { place } => {
            create(&place.out)?;
            let name = chart::write(&place.root, &place.out, &place.kubectl)?;
            info!("{}", place.out.join(name).display());
            Ok(())
        }
        DistCommand::Licences { place, targets } => {
            create(&place.out)?;
            std::fs::write(place.out.join(LICENCES), licences::text(&place.root, &targets)?)?;
            info!("{}", place.out.join(LICENCES).display());
            Ok(())
        }
    }
}

/// Writes all files of a release.
///
/// # Errors
/// When a program for a wanted target or a manager is missing, the sources are in no repository of git, or a file cannot
/// be written.
pub fn write(release: &Release) -> Result<()> {
    let Place { root, out, kubectl } = &release.place;
    check_builds(release)?;
    create(out)?;
    let text = licences::text(root, &release.targets)?;
    std::fs::write(out.join(LICENCES), &text)?;
    let mut files = vec![LICENCES.to_owned()];

    let bills = Bills::read(root, time()?)?;
    let archives = archives(release, &text, &bills, &mut files)?;
    images(release, &bills, &mut files)?;

    let folders = manifests::folders(root)?.into_iter().map(|(name, folder)| {
        let file = if name == "base" {
            "olm.yaml".to_owned()
        } else {
            format!("olm-{name}.yaml")
        };
        (file, folder)
    });
    let classic = manifests::CLASSIC.map(|(file, folder)| (file.to_owned(), folder.to_owned()));
    for (file, folder) in folders.chain(classic) {
        let text = manifests::render(kubectl, &root.join(folder))?;
        std::fs::write(out.join(&file), text)?;
        files.push(file);
    }
    files.push(chart::write(root, out, kubectl)?);
    archive::write(&out.join(MANIFESTS), &manifests::all(root)?)?;
    files.push(MANIFESTS.to_owned());
    files.push(record(release, &archives)?);

    let mut sums = BTreeMap::new();
    for file in files {
        sums.insert(file.clone(), sum(&out.join(&file))?);
    }
    let plugin = "krew.yaml".to_owned();
    std::fs::write(out.join(&plugin), krew::manifest(&release.url, &archives, &sums))?;
    sums.insert(plugin.clone(), sum(&out.join(&plugin))?);
    let lines: String = sums
        .iter()
        .map(|(file, sum)| format!("{sum}  {file}\n"))
        .collect();
    std::fs::write(out.join(SUMS), lines)?;
    for file in sums.keys() {
        info!(
            "{} ({} bytes)",
            out.join(file).display(),
            out.join(file).metadata()?.len()
        );
    }
    Ok(())
}

/// Writes how the release is built.
fn record(release: &Release, archives: &[(System, String)]) -> Result<String> {
    let Place { root, out, kubectl } = &release.place;
    let images = IMAGE_SYSTEMS
        .iter()
        .filter(|system| system.target == host() || is_wanted(release, **system));
    let targets: BTreeSet<&str> = archives
        .iter()
        .map(|(system, _)| system)
        .chain(images)
        .map(|system| system.target)
        .collect();
    let parameters = Parameters {
        targets: targets.into_iter().map(str::to_owned).collect(),
        url: release.url.clone(),
        source_date_epoch: time()?.map(Timestamp::as_second),
    };
    let record = Record::of(root, kubectl, parameters)?;
    put(
        out,
        provenance::RECORD,
        &(serde_json::to_string_pretty(&record)? + "\n"),
    )
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// The time of all files of a release, from `SOURCE_DATE_EPOCH`.
fn time() -> Result<Option<Timestamp>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds
        .with_context(|| format!("SOURCE_DATE_EPOCH is not a number of seconds: {}", text.display()))?;
    Ok(Some(Timestamp::from_second(seconds)?))
}

/// Checks that the programs of all wanted targets are built.
fn check_builds(release: &Release) -> Result<()> {
    for target in &release.targets {
        for program in build::programs_for(target)? {
            let path = built(release, target, program);
            ensure!(path.is_file(), "there is no {}: run `make dist`", path.display());
        }
    }
    Ok(())
}

/// Writes an archive with `olm` for each wanted system, and its bill of materials; adds them to `files`.
fn archives(
    release: &Release,
    licences: &str,
    bills: &Bills,
    files: &mut Vec<String>,
) -> Result<Vec<(System, String)>> {
    let Place { root, out, .. } = &release.place;
    let mut written = Vec::new();
    for system in SYSTEMS.into_iter().filter(|system| is_wanted(release, *system)) {
        let stem = format!(
            "olm-v{}-{}-{}",
            env!("CARGO_PKG_VERSION"),
            system.os,
            system.architecture
        );
        let bytes = images::stripped(&built(release, system.target, "olm"))?;
        let graph = Graph::of(root, system.target, build::programs_for(system.target)?)?;
        let bill = bills.of_program(
            Program {
                name: "olm",
                target: system.target,
                bytes: &bytes,
            },
            &graph,
        )?;
        files.push(put(out, &format!("{stem}{}", sbom::SUFFIX), &bill)?);
        let entries = [
            ("olm".to_owned(), 0o755, bytes),
            ("LICENSE".to_owned(), 0o644, std::fs::read(root.join("LICENSE"))?),
            (LICENCES.to_owned(), 0o644, licences.as_bytes().to_vec()),
        ];
        let name = format!("{stem}.tar.gz");
        archive::write(&out.join(&name), &entries)?;
        files.push(name.clone());
        written.push((system, name));
    }
    ensure!(
        !written.is_empty(),
        "a release has olm, which is not built for {}",
        release.targets.join(", ")
    );
    Ok(written)
}

/// Writes the images for each processor that their programs are built for, and their bills of materials; adds them to
/// `files`. Those for this machine have no processor in their name, and need no build of their own.
fn images(release: &Release, bills: &Bills, files: &mut Vec<String>) -> Result<()> {
    let Place { root, out, .. } = &release.place;
    for system in IMAGE_SYSTEMS {
        let is_host = system.target == host();
        let (programs, folder) = if is_wanted(release, system) {
            (
                build::programs_for(system.target)?,
                Some(folder(release, system.target)),
            )
        } else if is_host {
            (&packages::PROGRAMS[..], release.programs.clone())
        } else {
            continue;
        };
        let graph = Graph::of(root, system.target, programs)?;
        let source = images::Source {
            programs: folder,
            tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        for name in images::PROGRAMS {
            let stem = if is_host {
                name.to_owned()
            } else {
                format!("{name}-{}", system.architecture)
            };
            let apart = tempfile::tempdir_in(out)?;
            let archive = images::write_archive(apart.path(), name, &source)?;
            let image = Contents::read(&archive)?;
            let program = Program {
                name,
                target: system.target,
                bytes: image.file(name)?,
            };
            let bill = bills.of_image(program, &graph, &image)?;
            files.push(put(out, &format!("{stem}{}", sbom::SUFFIX), &bill)?);
            let file = format!("{stem}.tar");
            std::fs::rename(archive, out.join(&file))?;
            files.push(file);
        }
    }
    Ok(())
}

/// Writes a file and returns its name.
fn put(folder: &Path, name: &str, text: &str) -> Result<String> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(name.to_owned())
}

/// Whether a release has the programs for a system. Those of an earlier build may lie there for others.
fn is_wanted(release: &Release, system: System) -> bool {
    release.targets.iter().any(|target| target == system.target)
}

/// The folder with the programs that were built for a target.
fn folder(release: &Release, target: &str) -> PathBuf {
    release.builds.join(target).join("release")
}

/// The path of a program that was built for a target.
fn built(release: &Release, target: &str, program: &str) -> PathBuf {
    folder(release, target).join(program)
}

fn sum(file: &Path) -> Result<String> {
    let content = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(hex::encode(Sha256::digest(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_the_wanted_targets_alone_and_all_of_them() {
        let builds = tempfile::tempdir().unwrap();
        let release = |targets: &[&str]| Release {
            place: Place {
                root: PathBuf::new(),
                out: PathBuf::new(),
                kubectl: PathBuf::new(),
            },
            builds: builds.path().to_owned(),
            targets: targets.iter().map(|target| (*target).to_owned()).collect(),
            programs: None,
            url: String::new(),
        };
        let (wanted, left) = ("x86_64-unknown-linux-musl", "aarch64-apple-darwin");
        let of_musl = release(&[wanted]);
        let missing = check_builds(&of_musl).unwrap_err().to_string();
        assert!(missing.contains("musl/release/olm: run `make dist`"), "{missing}");
        for target in [wanted, left] {
            create(&folder(&of_musl, target)).unwrap();
            std::fs::write(built(&of_musl, target, "olm"), "").unwrap();
        }
        check_builds(&of_musl).unwrap();
        let mut targets = SYSTEMS.to_vec();
        targets.retain(|system| is_wanted(&of_musl, *system));
        let targets: Vec<&str> = targets.iter().map(|system| system.target).collect();
        assert_eq!(targets, [wanted], "what an earlier build left is not wanted");
        check_builds(&release(&[wanted, left])).unwrap();
        check_builds(&release(&["x86_64-pc-windows-msvc"])).unwrap_err();
    }
}
