//! `olm-test dist sign`: signs the files of a release and its images with cosign, and says where they come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use olm_image::{Images, Limits, LocalImage, Options, Pinned, Platform, Reference};
use serde_json::Value;
use tracing::info;

use super::provenance::{self, Builder, Record};
use super::{SUMS, put, sum};
use crate::cluster::{Binaries, Tool};
use crate::images::contents::Contents;
use crate::images::{self, RegistryArguments};

/// The signature of the checksums, as OpenSSL and every cosign read it.
const SIGNATURE: &str = "SHA256SUMS.sig";
/// The same as a bundle of Sigstore.
const SIGNATURE_BUNDLE: &str = "SHA256SUMS.sigstore.json";
/// The provenance.
const PROVENANCE: &str = "provenance.json";
/// The provenance, signed, as a bundle of Sigstore.
const PROVENANCE_BUNDLE: &str = "provenance.sigstore.json";
/// The files for cosign.
const SERVICES: &str = "signing_config.json";
const ROOT: &str = "trusted_root.json";
/// No services: the key alone says who signed, and nothing leaves this machine.
const NO_SERVICES: &str = r#"{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json","rekorTlogConfig":{},"tsaConfig":{}}"#;

/// A trusted root without entries: without the file, cosign asks the internet.
const NO_ROOT: &str = r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#;

/// The arguments of `dist sign`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The folder with the files of the release.
    #[arg(long, default_value = "dist")]
    pub out: PathBuf,
    /// The private key, as `cosign generate-key-pair` writes it, or the URI of one in a key service. cosign asks for
    /// its password, or takes it from COSIGN_PASSWORD.
    #[arg(long)]
    pub key: String,
    /// The program cosign, version 3; by default it is built from its Go module.
    #[arg(long)]
    pub cosign: Option<PathBuf>,
    /// The URI of who builds, for the provenance.
    #[arg(long, default_value = "https://releases.olm.example/builders/manual")]
    pub builder: String,
    /// The URI of the kind of build, for the provenance.
    #[arg(long, default_value = "https://releases.olm.example/build-types/make-dist/v1")]
    pub build_type: String,
    /// The URL of the repository with the sources, for the provenance.
    #[arg(long)]
    pub repository: Option<String>,
    /// Sign although files differed from the commit at the time of the build. The provenance says so.
    #[arg(long)]
    pub allow_changes: bool,
    /// Registry and path to push the images to, for example `registry.example/olmv1`. They are signed there.
    #[arg(long)]
    pub push: Option<String>,
    /// The registry to push to.
    #[command(flatten)]
    pub registry: RegistryArguments,
}

/// The caller of cosign.
struct Signer<'a> {
    cosign: PathBuf,
    key: &'a str,
    /// The files that name services and whom to trust.
    settings: tempfile::TempDir,
}

impl Signer<'_> {
    fn run(&self, verb: &str, arguments: &[String]) -> Result<()> {
        self.finish(Command::new(&self.cosign), verb, arguments)
    }

    /// Runs a verb about an image in a registry.
    fn image(&self, verb: &str, registry: &RegistryArguments, image: &Pinned, more: &[String]) -> Result<()> {
        let mut command = Command::new(&self.cosign);
        let mut arguments = more.to_vec();
        if registry.plain_http {
            arguments.push("--allow-http-registry".to_owned());
        }
        if let Some(folder) = &registry.authorities {
            // Go looks for further authorities there.
            command.env("SSL_CERT_DIR", folder);
        }
        // cosign reads credentials from `config.json` in a folder.
        let docker = tempfile::tempdir()?;
        if let Some(file) = &registry.credentials {
            std::fs::copy(file, docker.path().join("config.json"))?;
            command.env("DOCKER_CONFIG", docker.path());
        }
        arguments.push(image.to_string());
        self.finish(command, verb, &arguments)
    }

    /// Runs cosign, which asks for a password on the terminal and says there what is wrong.
    fn finish(&self, mut command: Command, verb: &str, arguments: &[String]) -> Result<()> {
        let status = command
            .arg(verb)
            .arg("--yes")
            .arg(format!("--key={}", self.key))
            .arg(argument("signing-config", &self.settings.path().join(SERVICES)))
            .arg(argument("trusted-root", &self.settings.path().join(ROOT)))
            .args(arguments)
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {}", self.cosign.display()))?;
        ensure!(status.success(), "cosign {verb} fails: {status}");
        Ok(())
    }
}

/// Signs the files of a release, and the images where a registry is given.
///
/// # Errors
/// When a file is not the one of the checksums, the sources were not those of a commit, or cosign or the registry fails.
pub async fn run(arguments: Arguments) -> Result<()> {
    let Arguments { out, key, .. } = &arguments;
    let files = verified(out)?;
    let record = Record::read(out)?;
    ensure!(
        arguments.allow_changes || !record.uncommitted_changes,
        "cannot sign {}: files differed from commit {} when it was built; commit them and run `make dist`, or set \
         --allow-changes",
        out.display(),
        record.commit
    );
    let cosign = match &arguments.cosign {
        Some(cosign) => cosign.clone(),
        None => tokio::task::spawn_blocking(|| Binaries::ensure_signing(Tool::Cosign3))
            .await??
            .path("cosign3"),
    };
    let settings = tempfile::tempdir()?;
    std::fs::write(settings.path().join(SERVICES), NO_SERVICES)?;
    std::fs::write(settings.path().join(ROOT), NO_ROOT)?;
    let signer = Signer {
        cosign,
        key,
        settings,
    };

    let sums = out.join(SUMS);
    let bundle = out.join(SIGNATURE_BUNDLE);
    signer.run(
        "sign-blob",
        &[argument("bundle", &bundle), sums.display().to_string()],
    )?;
    let signed: Value = serde_json::from_slice(&std::fs::read(&bundle)?)?;
    let signature = signed["messageSignature"]["signature"].as_str();
    put(
        out,
        SIGNATURE,
        &format!("{}\n", signature.context("the bundle has no signature")?),
    )?;

    let mut subjects = files.clone();
    subjects.insert(SUMS.to_owned(), sum(&sums)?);
    let images = images_of(out, &files)?;
    for (name, image) in &images {
        let digest = image.digest.trim_start_matches("sha256:");
        subjects.insert(format!("olmv1/{name}"), digest.to_owned());
    }
    let builder = Builder {
        id: &arguments.builder,
        build: &arguments.build_type,
        repository: arguments.repository.as_deref(),
    };
    let statement = provenance::statement(&subjects, &record, &builder)?;
    put(
        out,
        PROVENANCE,
        &(serde_json::to_string_pretty(&statement)? + "\n"),
    )?;
    let bundle = argument("bundle", &out.join(PROVENANCE_BUNDLE));
    signer.run(
        "attest-blob",
        &[argument("statement", &out.join(PROVENANCE)), bundle],
    )?;
    for file in [SIGNATURE, SIGNATURE_BUNDLE, PROVENANCE, PROVENANCE_BUNDLE] {
        info!("{}", out.join(file).display());
    }

    if let Some(prefix) = &arguments.push {
        let predicate = tempfile::NamedTempFile::new()?;
        std::fs::write(predicate.path(), statement["predicate"].to_string())?;
        for (name, image) in &images {
            let pinned = push(&arguments, prefix, name, image).await?;
            signer.image("sign", &arguments.registry, &pinned, &[])?;
            let provenance = [
                argument("predicate", predicate.path()),
                "--type=slsaprovenance1".to_owned(),
            ];
            signer.image("attest", &arguments.registry, &pinned, &provenance)?;
            info!("pushed and signed {pinned}");
        }
    }
    Ok(())
}

fn argument(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// The files of a release with their checksums, which are right.
fn verified(out: &Path) -> Result<BTreeMap<String, String>> {
    let path = out.join(SUMS);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; run `make dist`", path.display()))?;
    let mut files = BTreeMap::new();
    for line in text.lines() {
        let (expected, file) = line
            .split_once("  ")
            .context("a line of checksums has two columns")?;
        ensure!(
            sum(&out.join(file))? == expected,
            "cannot sign {}: {file} is not what {SUMS} says; run `make dist`",
            out.display()
        );
        files.insert(file.to_owned(), expected.to_owned());
    }
    ensure!(!files.is_empty(), "{} is empty; run `make dist`", path.display());
    Ok(files)
}

/// The images among the files, by their names without the ending.
fn images_of(out: &Path, files: &BTreeMap<String, String>) -> Result<Vec<(String, Contents)>> {
    let names = files.keys().filter_map(|file| file.strip_suffix(".tar"));
    names
        .map(|name| Ok((name.to_owned(), Contents::read(&out.join(format!("{name}.tar")))?)))
        .collect()
}

/// Pushes an image, under the name of its program. That of another processor has it in the tag.
async fn push(arguments: &Arguments, prefix: &str, name: &str, image: &Contents) -> Result<Pinned> {
    let program = images::PROGRAMS
        .iter()
        .find(|program| name.starts_with(**program));
    let program = program.with_context(|| format!("{name} is not an image of a release"))?;
    let version = env!("CARGO_PKG_VERSION");
    let rest = name.strip_prefix(program).unwrap_or_default();
    let reference = Reference::parse_familiar(&format!("{prefix}/{program}:v{version}{rest}"))?;
    let platform = Platform {
        os: "linux".to_owned(),
        architecture: image.architecture()?.to_owned(),
    };
    let archive = arguments.out.join(format!("{name}.tar"));
    let built = LocalImage::open(&archive, &platform, &Limits::catalog())?.to_built()?;
    let images = Images::new(Options {
        authorities: arguments.registry.authorities.clone(),
        ..Options::new("olm-test")
    });
    let pushed = images
        .push(&reference, &built, &arguments.registry.access(prefix)?)
        .await?;
    Ok(pushed.pinned)
}
