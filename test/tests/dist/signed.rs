//! A release that is signed with a key: what cosign, OpenSSL and `olm verify` make of it, as it is and changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_test::cluster::{Binaries, Tool};
use olm_test::docs::page;
use olm_test::images::contents::Contents;
use olm_test::registry::Server;
use olm_test::registry::sigstore::{Cosign, Sigstore};
use olm_test::world::binary;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::files::sums;
use crate::release;

/// A signed release, the registry with its images, and what signed it.
struct Stage {
    folder: TempDir,
    sigstore: Sigstore,
    server: Server,
    /// Where the images are.
    prefix: String,
    authorities: TempDir,
    key: PathBuf,
    public: PathBuf,
}

/// A copy of the release.
fn copy() -> Result<TempDir> {
    let folder = TempDir::new()?;
    let from = release()?;
    for file in sums(&from)?.into_keys().chain(["SHA256SUMS".to_owned()]) {
        std::fs::copy(from.join(&file), folder.path().join(&file))?;
    }
    Ok(folder)
}

/// `olm-test dist sign`, without the options that say how.
fn signing(folder: &Path, key: &Path) -> Result<Command> {
    let mut command = Command::new(binary("olm-test")?);
    command
        .args(["dist", "sign", "--builder=https://ci.example/builders/release"])
        .arg(format!("--out={}", folder.display()))
        .arg(format!("--key={}", key.display()));
    Ok(command)
}

impl Stage {
    async fn start() -> Result<Self> {
        let folder = copy()?;
        let sigstore = Sigstore::alone().await?;
        let (key, public) = sigstore.key("release")?;
        let server = Server::start().await?;
        let authorities = TempDir::new()?;
        std::fs::copy(&server.registry().ca, authorities.path().join("ca.crt"))?;
        let stage = Self {
            folder,
            sigstore,
            prefix: format!("{}/olmv1", server.registry().tls),
            server,
            authorities,
            key,
            public,
        };
        let (is_done, said) = stage.sign()?;
        ensure!(is_done, "{said}");
        Ok(stage)
    }

    /// Signs the release, and returns whether that succeeded, with the output.
    fn sign(&self) -> Result<(bool, String)> {
        let output = signing(self.folder.path(), &self.key)?
            // The sources of the tests may be in work.
            .args(["--allow-changes", "--repository=https://git.example/olm"])
            .arg(format!("--push={}", self.prefix))
            .arg(format!("--authorities={}", self.authorities.path().display()))
            .env("COSIGN_PASSWORD", "")
            .output()?;
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The errors of cosign about the checksums and about the provenance of the checksums, for this key.
    fn refusals(&self, key: &Path) -> Vec<String> {
        let sums = self.path("SHA256SUMS");
        let verdicts = [
            ("verify-blob", "SHA256SUMS.sigstore.json", &[][..]),
            (
                "verify-blob-attestation",
                "provenance.sigstore.json",
                &["--type=slsaprovenance1"],
            ),
        ]
        .map(|(verb, bundle, more)| {
            let mut arguments = vec![
                verb.to_owned(),
                format!("--key={}", key.display()),
                "--insecure-ignore-tlog".to_owned(),
                format!("--bundle={}", self.path(bundle).display()),
            ];
            arguments.extend(more.iter().map(|one| (*one).to_owned()));
            arguments.push(sums.display().to_string());
            self.sigstore.run(Cosign::Three, &arguments)
        });
        verdicts
            .into_iter()
            .filter_map(Result::err)
            .map(|error| error.to_string())
            .collect()
    }
}

#[test]
fn a_release_of_changed_sources_is_not_signed() -> Result<()> {
    let folder = copy()?;
    let record = folder.path().join("build.json");
    let mut built: Value = serde_json::from_slice(&std::fs::read(&record)?)?;
    built["uncommittedChanges"] = true.into();
    let built = built.to_string();
    std::fs::write(&record, &built)?;
    let list = folder.path().join("SHA256SUMS");
    let earlier = sums(folder.path())?;
    let now = hex::encode(Sha256::digest(&built));
    let text = std::fs::read_to_string(&list)?.replace(&earlier["build.json"], &now);
    std::fs::write(&list, text)?;
    let output = signing(folder.path(), Path::new("no.key"))?.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("files differed from commit"),
        "{said}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_release_is_verified_as_the_docs_say_and_a_changed_one_is_not() -> Result<()> {
    let stage = Stage::start().await?;
    // The commands of the docs.
    let place = TempDir::new()?;
    let tools = place.path().join("bin");
    std::fs::create_dir(&tools)?;
    let programs = [
        ("cosign", Binaries::ensure_signing(Tool::Cosign3)?.path("cosign3")),
        ("olm", binary("olm")?),
    ];
    for (name, program) in programs {
        std::os::unix::fs::symlink(program, tools.join(name))?;
    }
    std::fs::copy(&stage.public, stage.path("cosign.pub"))?;
    let blocks = page("how-to/verify-a-release.md")?.marked("sh release");
    ensure!(blocks.len() > 3, "{blocks:?}");
    for block in &blocks {
        let output = Command::new("bash")
            .args([
                "-c",
                &format!("set -euo pipefail\nPATH={}:$PATH\n{block}", tools.display()),
            ])
            .current_dir(&stage.folder)
            .env("HOME", place.path())
            .env("PREFIX", &stage.prefix)
            .env("SSL_CERT_FILE", &stage.server.registry().ca)
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{block}{printed}");
    }

    // Each file is a subject, and the images are by their digests.
    let statement: Value = serde_json::from_slice(&std::fs::read(stage.path("provenance.json"))?)?;
    let signed: Value = serde_json::from_slice(&std::fs::read(stage.path("provenance.sigstore.json"))?)?;
    let payload = signed["dsseEnvelope"]["payload"].as_str().context("no payload")?;
    let payload: Value = serde_json::from_slice(&STANDARD.decode(payload)?)?;
    ensure!(payload == statement, "{payload}");
    let subjects: BTreeMap<&str, &str> = statement["subject"]
        .as_array()
        .context("no subjects")?
        .iter()
        .filter_map(|one| Some((one["name"].as_str()?, one["digest"]["sha256"].as_str()?)))
        .collect();
    for (file, sum) in sums(stage.folder.path())? {
        ensure!(
            subjects.get(file.as_str()) == Some(&sum.as_str()),
            "{file} is no subject"
        );
    }
    for name in olm_test::images::PROGRAMS {
        let image = Contents::read(&stage.path(&format!("{name}.tar")))?;
        let digest = subjects.get(format!("olmv1/{name}").as_str()).copied();
        ensure!(
            image.digest.strip_prefix("sha256:") == digest,
            "{name}: {digest:?}"
        );
    }
    let definition = &statement["predicate"]["buildDefinition"];
    let commit = definition["resolvedDependencies"][0]["digest"]["gitCommit"].as_str();
    ensure!(commit.is_some_and(|commit| commit.len() == 40), "{definition}");
    // All that whoever builds it again has to set, and what they need.
    let parameters = &definition["externalParameters"];
    let url = parameters["URL"].as_str().unwrap_or_default();
    let targets = parameters["DIST_TARGETS"].as_array().context("no targets")?;
    ensure!(
        url.starts_with("https://releases.") && !targets.is_empty(),
        "{definition}"
    );
    ensure!(parameters.get("SOURCE_DATE_EPOCH").is_some(), "{definition}");
    let dependencies = definition["resolvedDependencies"].to_string();
    for tool in [
        "pkg:generic/rust@1.",
        "pkg:generic/cc@",
        "pkg:generic/libc@2.",
        "pkg:generic/binutils@2.",
        "pkg:generic/kubectl@v",
    ] {
        ensure!(dependencies.contains(tool), "{tool} is not in {dependencies}");
    }
    let builder = &statement["predicate"]["runDetails"]["builder"]["id"];
    ensure!(builder == "https://ci.example/builders/release", "{builder}");

    // Changed files, and the signature of a stranger.
    let (_, stranger) = stage.sigstore.key("stranger")?;
    let with = |key: &Path| stage.refusals(key);
    ensure!(with(&stage.public).is_empty(), "all is well");
    ensure!(with(&stranger).len() == 2, "a stranger signed nothing");
    let text = std::fs::read_to_string(stage.path("SHA256SUMS"))?;
    std::fs::write(stage.path("SHA256SUMS"), text.replacen('0', "1", 1))?;
    ensure!(with(&stage.public).len() == 2, "changed checksums are not signed");
    let (is_done, said) = stage.sign()?;
    ensure!(!is_done && said.contains("run `make dist`"), "{said}");
    Ok(())
}
