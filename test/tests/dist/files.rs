//! The content of the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};

use crate::{objects, release};

/// The checksums of a folder, by file.
pub(crate) fn sums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(folder.join("SHA256SUMS"))?;
    text.lines()
        .map(|line| {
            let (sum, file) = line.split_once("  ").context("two columns")?;
            Ok((file.to_owned(), sum.to_owned()))
        })
        .collect()
}

/// The files of an archive, by name, each with its mode.
pub(crate) fn unpacked(archive: &Path) -> Result<BTreeMap<String, (u32, Vec<u8>)>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(std::fs::File::open(archive)?)).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let mode = entry.header().mode()?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        found.insert(name, (mode, content));
    }
    Ok(found)
}

/// Writes a program. Another process holds the file open meanwhile: a test that starts a program at that moment would
/// pass an open file of this one on, and the kernel runs no file that is open for writing.
pub(crate) fn write_program(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut shell = Command::new("sh")
        .args(["-c", r#"cat > "$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    shell.stdin.take().context("it is piped")?.write_all(bytes)?;
    let status = shell.wait()?;
    ensure!(status.success(), "cannot write {}: {status}", path.display());
    Ok(())
}

/// The archives with `olm`, as `OS-ARCHITECTURE` and file.
pub(crate) fn archives(folder: &Path) -> Result<BTreeMap<String, String>> {
    let begin = format!("olm-v{}-", env!("CARGO_PKG_VERSION"));
    let files = sums(folder)?.into_keys();
    Ok(files
        .filter_map(|file| {
            let system = file.strip_prefix(&begin)?.strip_suffix(".tar.gz")?.to_owned();
            Some((system, file))
        })
        .collect())
}

#[test]
fn the_folder_is_complete_and_every_checksum_is_right() -> Result<()> {
    let folder = release()?;
    let sums = sums(&folder)?;
    for (file, sum) in &sums {
        let content = std::fs::read(folder.join(file)).with_context(|| file.clone())?;
        ensure!(hex::encode(Sha256::digest(content)) == *sum, "{file}");
    }
    let expected = [
        "THIRD-PARTY-LICENCES.txt",
        "build.json",
        "catalogd.tar",
        "krew.yaml",
        "olm-0.1.0.tgz",
        "olm-cert-manager.yaml",
        "olm-openshift.yaml",
        "olm-restricted.yaml",
        "manifests.tar.gz",
        "olm.yaml",
        "operator-controller.tar",
    ];
    let missing: Vec<&str> = expected
        .into_iter()
        .filter(|file| !sums.contains_key(*file))
        .collect();
    ensure!(missing.is_empty(), "missing: {missing:?}");
    for (system, file) in archives(&folder)? {
        let files = unpacked(&folder.join(file))?;
        let names: BTreeSet<&str> = files.keys().map(String::as_str).collect();
        ensure!(
            names == BTreeSet::from(["LICENSE", "THIRD-PARTY-LICENCES.txt", "olm"]),
            "{system}: {names:?}"
        );
        ensure!(files["olm"].0 & 0o111 == 0o111, "{system}: olm cannot be run");
    }
    Ok(())
}

#[test]
fn krew_finds_each_archive_by_its_checksum() -> Result<()> {
    let folder = release()?;
    let sums = sums(&folder)?;
    let archives = archives(&folder)?;
    let plugin = objects(&std::fs::read_to_string(folder.join("krew.yaml"))?)?;
    let plugin = plugin.first().context("it is empty")?;
    ensure!(
        plugin["kind"] == "Plugin" && plugin["metadata"]["name"] == "olm",
        "{plugin}"
    );
    let platforms = plugin["spec"]["platforms"].as_array().context("no platforms")?;
    ensure!(platforms.len() == archives.len(), "{plugin}");
    for platform in platforms {
        let labels = &platform["selector"]["matchLabels"];
        let text = |name: &str| labels[name].as_str().unwrap_or_default();
        let archive = &archives[&format!("{}-{}", text("os"), text("arch"))];
        ensure!(platform["sha256"] == sums[archive].as_str(), "{platform}");
        let address = platform["uri"].as_str().unwrap_or_default();
        ensure!(address.ends_with(&format!("/{archive}")), "{platform}");
    }
    Ok(())
}

#[test]
fn licences_of_all_parts_are_there() -> Result<()> {
    let text = std::fs::read_to_string(release()?.join("THIRD-PARTY-LICENCES.txt"))?;
    for part in [
        "\naws-lc-rs ",
        "\nkube-client ",
        "\ntokio ",
        "\nzstd-sys ",
        "musl",
        "GNU C Library",
    ] {
        ensure!(text.contains(part), "{part:?} is not named");
    }
    for begin in ["Apache License", "Permission is hereby granted", "BSD License"] {
        ensure!(text.contains(begin), "there is no text with {begin:?}");
    }
    // Dependencies of tests are in no program.
    for part in ["\nproptest ", "\ninsta ", "\nolm-"] {
        ensure!(!text.contains(part), "{part:?} is named");
    }
    Ok(())
}
