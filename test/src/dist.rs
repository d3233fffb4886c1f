//! `olm-test dist …`: the files of a release, made from programs that are built.

pub mod advisories;
mod archive;
mod chart;
pub mod images;
mod krew;
pub mod licences;
pub mod manifests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use sha2::{Digest as _, Sha256};
use tracing::info;

/// The licences of all parts of the programs.
const LICENCES: &str = "THIRD-PARTY-LICENCES.txt";
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

/// The systems of a release.
pub const SYSTEMS: [System; 2] = [
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
];

/// The sub-commands of `dist`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments are described where they are defined")]
pub enum DistCommand {
    /// Write all files of a release.
    Release(Release),
    /// Write the Helm chart alone.
    Chart {
        #[command(flatten)]
        place: Place,
    },
    /// Write the licences of all parts of the programs.
    Licences {
        #[command(flatten)]
        place: Place,
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
        DistCommand::Release(release) => write(&release),
        DistCommand::Chart { place } => {
            create(&place.out)?;
            let name = chart::write(&place.root, &place.out, &place.kubectl)?;
            info!("{}", place.out.join(name).display());
            Ok(())
        }
        DistCommand::Licences { place } => {
            create(&place.out)?;
            std::fs::write(place.out.join(LICENCES), licences::text(&place.root)?)?;
            info!("{}", place.out.join(LICENCES).display());
            Ok(())
        }
    }
}

/// Writes all files of a release.
///
/// # Errors
/// When no `olm` is built, a manager is missing, or a file cannot be written.
pub fn write(release: &Release) -> Result<()> {
    let Place { root, out, kubectl } = &release.place;
    create(out)?;
    let text = licences::text(root)?;
    std::fs::write(out.join(LICENCES), &text)?;
    let mut files = vec![LICENCES.to_owned()];

    let archives = archives(release, &text)?;
    files.extend(archives.iter().map(|(_, name)| name.clone()));
    files.extend(managers(release)?);

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

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Writes an archive with `olm` for each system that it is built for.
fn archives(release: &Release, licences: &str) -> Result<Vec<(System, String)>> {
    let mut written = Vec::new();
    for system in SYSTEMS {
        let program = built(release, system, "olm");
        if !program.is_file() {
            info!(
                "{}/{}: {} is not built",
                system.os,
                system.architecture,
                program.display()
            );
            continue;
        }
        let name = format!(
            "olm-v{}-{}-{}.tar.gz",
            env!("CARGO_PKG_VERSION"),
            system.os,
            system.architecture
        );
        let entries = [
            ("olm".to_owned(), 0o755, images::stripped(&program)?),
            (
                "LICENSE".to_owned(),
                0o644,
                std::fs::read(release.place.root.join("LICENSE"))?,
            ),
            (LICENCES.to_owned(), 0o644, licences.as_bytes().to_vec()),
        ];
        archive::write(&release.place.out.join(&name), &entries)?;
        written.push((system, name));
    }
    ensure!(
        !written.is_empty(),
        "olm is built for no system in {}: run `make dist`",
        release.builds.display()
    );
    Ok(written)
}

/// Writes the images of the managers: those of this machine, and those for other processors if they are built.
fn managers(release: &Release) -> Result<Vec<String>> {
    let source = |programs: Option<PathBuf>| images::Source {
        programs,
        tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let mut written = Vec::new();
    for name in images::PROGRAMS {
        images::write_archive(&release.place.out, name, &source(release.programs.clone()))?;
        written.push(format!("{name}.tar"));
        for system in SYSTEMS {
            let program = built(release, system, name);
            if !program.is_file() {
                continue;
            }
            let folder = program.parent().map(Path::to_owned);
            let apart = tempfile::tempdir_in(&release.place.out)?;
            let archive = images::write_archive(apart.path(), name, &source(folder))?;
            let file = format!("{name}-{}.tar", system.architecture);
            std::fs::rename(archive, release.place.out.join(&file))?;
            written.push(file);
        }
    }
    Ok(written)
}

/// The path of a program that was built for a system.
fn built(release: &Release, system: System, program: &str) -> PathBuf {
    release.builds.join(system.target).join("release").join(program)
}

fn sum(file: &Path) -> Result<String> {
    let content = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(hex::encode(Sha256::digest(content)))
}
