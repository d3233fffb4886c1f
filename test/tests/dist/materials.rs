//! The bills of materials: valid, complete, and with nothing that only builds or tests.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use olm_test::images::contents::Contents;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::files::{archives, sums, unpacked};
use crate::release;

/// The bills of the release, by file.
fn bills() -> Result<Vec<(String, Value)>> {
    let folder = release()?;
    let files = sums(&folder)?.into_keys();
    let bills = files.filter(|file| file.ends_with(".cdx.json"));
    bills
        .map(|file| {
            let text = std::fs::read_to_string(folder.join(&file))?;
            Ok((file, serde_json::from_str(&text)?))
        })
        .collect()
}

fn bill(file: &str) -> Result<Value> {
    let found = bills()?.into_iter().find(|(name, _)| name == file);
    Ok(found.with_context(|| format!("no {file}"))?.1)
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    let text = value[field].as_str().filter(|text| !text.is_empty());
    text.with_context(|| format!("no {field} in {value}"))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("no {field}"))
}

/// Whether a text has the form of a UUID as CycloneDX asks for.
fn is_serial(text: &str) -> bool {
    let groups: Vec<&str> = text
        .strip_prefix("urn:uuid:")
        .unwrap_or_default()
        .split('-')
        .collect();
    let is_lower_hex = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| is_lower_hex(group))
}

#[test]
fn every_program_and_image_has_a_bill_with_what_the_format_requires() -> Result<()> {
    let bills = bills()?;
    let folder = release()?;
    let shipped: Vec<String> = sums(&folder)?
        .into_keys()
        // Manifests hold no packages.
        .filter(|file| file != "manifests.tar.gz")
        .filter_map(|file| {
            let stem = file
                .strip_suffix(".tar")
                .or_else(|| file.strip_suffix(".tar.gz"))?;
            Some(format!("{stem}.cdx.json"))
        })
        .collect();
    let found: Vec<&String> = bills.iter().map(|(file, _)| file).collect();
    ensure!(
        found == shipped.iter().collect::<Vec<_>>(),
        "{found:?}, not {shipped:?}"
    );
    for (file, bill) in &bills {
        ensure!(
            bill["bomFormat"] == "CycloneDX" && bill["specVersion"] == "1.6",
            "{file}"
        );
        ensure!(
            bill["version"] == 1 && is_serial(text(bill, "serialNumber")?),
            "{file}"
        );
        let subject = &bill["metadata"]["component"];
        let mut references = BTreeSet::new();
        for component in list(bill, "components")?.iter().chain([subject]) {
            let kind = text(component, "type")?;
            text(component, "name")?;
            let reference = text(component, "bom-ref")?;
            ensure!(references.insert(reference), "{file}: {reference} twice");
            ensure!(
                ["application", "container", "file", "library"].contains(&kind),
                "{file}: {component}"
            );
            for hash in component["hashes"].as_array().into_iter().flatten() {
                ensure!(
                    hash["alg"] == "SHA-256" && text(hash, "content")?.len() == 64,
                    "{file}: {component}"
                );
            }
            if kind != "file" {
                ensure!(
                    text(component, "purl")?.starts_with("pkg:"),
                    "{file}: {component}"
                );
                text(&component["licenses"][0], "expression")?;
            }
        }
        for edge in list(bill, "dependencies")? {
            let ends = list(edge, "dependsOn")?.iter().filter_map(Value::as_str);
            for end in ends.chain([text(edge, "ref")?]) {
                ensure!(references.contains(end), "{file}: {end} is no component");
            }
        }
    }
    Ok(())
}

#[test]
fn a_bill_has_each_package_of_the_program_and_none_of_tests_and_builds() -> Result<()> {
    let licences = std::fs::read_to_string(release()?.join("THIRD-PARTY-LICENCES.txt"))?;
    let (system, _) = archives(&release()?)?.pop_first().context("no archive")?;
    let olm = format!("olm-v{}-{system}.cdx.json", env!("CARGO_PKG_VERSION"));
    for (file, present, absent) in [
        (
            olm.as_str(),
            ["aws-lc-rs", "tokio", "clap", "olm-author", "rust"],
            ["proptest", "insta", "serde_derive", "cc", "olm-test", "catalogd"],
        ),
        (
            "catalogd.cdx.json",
            ["aws-lc-rs", "tokio", "olm-serve", "catalogd", "glibc"],
            ["proptest", "insta", "serde_derive", "cc", "olm-test", "olm"],
        ),
        (
            "operator-controller.cdx.json",
            [
                "kube-client",
                "tokio",
                "olm-rollout",
                "operator-controller",
                "glibc",
            ],
            ["proptest", "insta", "serde_derive", "cc", "olm-test", "olm"],
        ),
        (
            "classic.cdx.json",
            ["tonic", "tokio", "olm-classic", "classic", "glibc"],
            ["proptest", "insta", "serde_derive", "cc", "olm-test", "olm"],
        ),
    ] {
        let bill = bill(file)?;
        let subject = &bill["metadata"]["component"]["name"];
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for component in list(&bill, "components")? {
            let name = text(component, "name")?;
            names.insert(name);
            let purl = component["purl"].as_str().unwrap_or_default();
            let is_foreign = purl.starts_with("pkg:cargo/")
                && component.get("hashes").is_some()
                && component["type"] == "library";
            let line = format!("\n{name} {}  ", component["version"].as_str().unwrap_or_default());
            ensure!(
                !is_foreign || licences.contains(&line),
                "{file}: {line:?} is not among the licences"
            );
        }
        for name in present {
            ensure!(names.contains(name), "{file} of {subject} lacks {name}");
        }
        for name in absent {
            ensure!(!names.contains(name), "{file} of {subject} has {name}");
        }
    }
    Ok(())
}

#[test]
fn a_bill_names_the_bytes_that_it_is_about() -> Result<()> {
    let folder = release()?;
    let sum = |bytes: &[u8]| hex::encode(Sha256::digest(bytes));
    for (system, archive) in archives(&folder)? {
        let program = &unpacked(&folder.join(archive))?["olm"].1;
        let bill = bill(&format!("olm-v{}-{system}.cdx.json", env!("CARGO_PKG_VERSION")))?;
        let subject = &bill["metadata"]["component"];
        ensure!(subject["hashes"][0]["content"] == sum(program), "{subject}");
    }
    for name in olm_test::images::PROGRAMS {
        let image = Contents::read(&folder.join(format!("{name}.tar")))?;
        let bill = bill(&format!("{name}.cdx.json"))?;
        let hash = text(&bill["metadata"]["component"]["hashes"][0], "content")?;
        ensure!(image.digest == format!("sha256:{hash}"), "{name}: {hash}");
        // Every file of the image is a component with its checksum.
        let known: BTreeSet<&str> = list(&bill, "components")?
            .iter()
            .filter_map(|component| component["hashes"][0]["content"].as_str())
            .collect();
        for file in image.files() {
            let bytes = file.bytes.as_deref().context("a file has bytes")?;
            ensure!(
                known.contains(sum(bytes).as_str()),
                "{name}: {} is in no bill",
                file.path
            );
        }
    }
    Ok(())
}
