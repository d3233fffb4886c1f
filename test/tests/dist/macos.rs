//! `olm` for macOS, in releases that have it. Nothing runs it here: its file says what Macs ask of it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use olm_test::dist::{SYSTEMS, System};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::files::{archives, sums, unpacked};
use crate::release;

/// Kinds of commands to the loader.
const LOAD_LIBRARY: usize = 0xc;
const CODE_SIGNATURE: usize = 0x1d;
const BUILD_VERSION: usize = 0x32;
/// What every Mac has.
const LIBRARIES: [&str; 4] = [
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
    "/System/Library/Frameworks/Security.framework/Versions/A/Security",
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libiconv.2.dylib",
];
/// The bytes that one checksum of the program in these tests is for.
const PAGE: u32 = 4096;

/// A program for macOS.
struct MachO<'a>(&'a [u8]);

impl<'a> MachO<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        ensure!(bytes.starts_with(&[0xcf, 0xfa, 0xed, 0xfe]), "it is no program");
        Ok(Self(bytes))
    }

    fn number(&self, at: usize) -> Result<usize> {
        Ok(u32::from_le_bytes(field(self.0, at)?) as usize)
    }

    /// The kinds of the commands to the loader, with their places.
    fn commands(&self) -> Result<Vec<(usize, usize)>> {
        let mut at = 32;
        let mut found = Vec::new();
        for _ in 0..self.number(16)? {
            // The highest bit only says that the loader must know the kind.
            found.push((self.number(at)? & 0x7fff_ffff, at));
            at += self.number(at + 4)?;
        }
        Ok(found)
    }

    /// The places of the commands of a kind.
    fn commands_of(&self, kind: usize) -> Result<Vec<usize>> {
        let all = self.commands()?.into_iter();
        Ok(all
            .filter(|(found, _)| *found == kind)
            .map(|(_, at)| at)
            .collect())
    }

    fn libraries(&self) -> Result<Vec<String>> {
        let name = |at: usize| -> Result<String> {
            let text = self.0.get(at + self.number(at + 8)?..at + self.number(at + 4)?);
            let text = String::from_utf8(text.context("it is cut off")?.to_vec())?;
            Ok(text.trim_end_matches('\0').to_owned())
        };
        self.commands_of(LOAD_LIBRARY)?.into_iter().map(name).collect()
    }

    /// Checks that each page has the checksum in the signature, which needs no identity.
    fn check_signature(&self) -> Result<()> {
        let command = self.commands_of(CODE_SIGNATURE)?;
        let start = self.number(*command.first().context("it is not signed")? + 8)?;
        let signature = self.0.get(start..).context("it is cut off")?;
        let number = |at: usize| -> Result<usize> { Ok(u32::from_be_bytes(field(signature, at)?) as usize) };
        ensure!(number(0)? == 0xfade_0cc0, "it has no signature");
        let directory = number(16)?;
        ensure!(number(directory)? == 0xfade_0c02, "it has no list of checksums");
        let [size, kind, _, page] = field(signature, directory + 36)?;
        ensure!((size, kind) == (32, 2), "the checksums are not SHA-256");
        let (hashes, count, end) = (
            directory + number(directory + 16)?,
            number(directory + 28)?,
            number(directory + 32)?,
        );
        ensure!(end == start, "it signs {end} of {start} bytes");
        let pages = self.0[..end].chunks(1 << page);
        ensure!(pages.len() == count && count > 0, "it signs {count} pages");
        for (index, page) in pages.enumerate() {
            let expected: [u8; 32] = field(signature, hashes + 32 * index)?;
            ensure!(Sha256::digest(page)[..] == expected, "page {index} was changed");
        }
        Ok(())
    }
}

fn field<const LENGTH: usize>(bytes: &[u8], at: usize) -> Result<[u8; LENGTH]> {
    let field = bytes.get(at..at + LENGTH).context("it is cut off")?;
    Ok(field.try_into()?)
}

fn check_program(bytes: &[u8], system: System) -> Result<()> {
    let program = MachO::read(bytes)?;
    let processor = if system.architecture == "arm64" { 12 } else { 7 };
    let found = program.number(4)?;
    ensure!(
        found == 0x0100_0000 | processor,
        "it is for another processor: {found:#x}"
    );
    let libraries = program.libraries()?;
    ensure!(
        libraries.iter().all(|name| LIBRARIES.contains(&name.as_str())) && !libraries.is_empty(),
        "it needs {libraries:?}"
    );
    let version = program.commands_of(BUILD_VERSION)?;
    let version = version.first().context("it names no version of macOS")?;
    let (platform, oldest) = (program.number(version + 8)?, program.number(version + 12)?);
    ensure!(
        (platform, oldest >> 16) == (1, 11),
        "it is for {platform} {oldest:#x}"
    );
    // Macs with amd64 also run unsigned programs.
    if system.architecture == "arm64" {
        program.check_signature()?;
    }
    Ok(())
}

/// The systems with macOS among the targets that a release was built for.
fn systems(folder: &Path) -> Result<Vec<System>> {
    let record: Value = serde_json::from_slice(&std::fs::read(folder.join("build.json"))?)?;
    let targets = record["parameters"]["targets"].as_array();
    let targets = targets.context("build.json names no targets")?;
    let darwin = SYSTEMS.into_iter().filter(|system| system.os == "darwin");
    Ok(darwin
        .filter(|system| targets.iter().any(|target| target == system.target))
        .collect())
}

#[test]
fn olm_for_macos_is_for_its_processor_signed_and_needs_only_libraries_of_macos() -> Result<()> {
    let folder = release()?;
    let sums = sums(&folder)?;
    let mut found = archives(&folder)?;
    found.retain(|system, _| system.starts_with("darwin-"));
    let systems = systems(&folder)?;
    let expected: BTreeSet<String> = systems
        .iter()
        .map(|system| format!("darwin-{}", system.architecture))
        .collect();
    ensure!(
        found.keys().eq(&expected),
        "olm is there for {found:?}, build.json names {expected:?}"
    );
    for system in systems {
        let archive = &found[&format!("darwin-{}", system.architecture)];
        let olm = &unpacked(&folder.join(archive))?["olm"].1;
        check_program(olm, system).with_context(|| archive.clone())?;
        let bill = archive.replace(".tar.gz", ".cdx.json");
        ensure!(sums.contains_key(&bill), "{bill} is not in SHA256SUMS");
    }
    Ok(())
}

/// A signed program of two pages for arm64 that needs a library.
fn program(library: &str) -> Vec<u8> {
    let little = |numbers: &[u32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let big = |numbers: &[u32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_be_bytes()).collect() };
    let name = format!("{library:\0<104}");
    let commands = [
        // Where it starts. The highest bit says that the loader must know the kind.
        little(&[0x8000_0028, 24, 0, 0, 0, 0]),
        little(&[0xc, 24 + 104, 24, 0, 0, 0]),
        name.into_bytes(),
        little(&[0x32, 24, 1, 11 << 16, 11 << 16, 0]),
        little(&[0x1d, 16, 2 * PAGE, 0]),
    ]
    .concat();
    let size = u32::try_from(commands.len()).unwrap_or_default();
    let mut bytes = little(&[0xfeed_facf, 0x0100_000c, 0, 2, 4, size, 0, 0]);
    bytes.extend(commands);
    bytes.resize(2 * PAGE as usize, 0);
    let hashes: Vec<u8> = bytes.chunks(PAGE as usize).flat_map(Sha256::digest).collect();
    bytes.extend(big(&[0xfade_0cc0, 20 + 44 + 64, 1, 0, 20]));
    bytes.extend(big(&[0xfade_0c02, 44 + 64, 0x2_0400, 2, 44, 0, 0, 2, 2 * PAGE]));
    bytes.extend([32, 2, 0, 12, 0, 0, 0, 0]);
    bytes.extend(hashes);
    bytes
}

#[test]
fn a_changed_page_and_a_foreign_library_are_found() -> Result<()> {
    let [amd64, arm64] = ["amd64", "arm64"].map(|architecture| System {
        os: "darwin",
        architecture,
        target: "",
    });
    let refusal = |bytes: &[u8], system: System| {
        let result = check_program(bytes, system);
        result.err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let intact = program(LIBRARIES[2]);
    check_program(&intact, arm64)?;
    let mut changed = intact.clone();
    changed[PAGE as usize + 7] = 1;
    let short = &intact[..intact.len() - 1];
    let foreign = program("/opt/homebrew/lib/libssl.dylib");
    for (bytes, system, expected) in [
        (changed.as_slice(), arm64, "page 1 was changed"),
        (short, arm64, "it is cut off"),
        (&foreign, arm64, r#"it needs ["/opt/homebrew/lib/libssl.dylib"]"#),
        (&intact, amd64, "it is for another processor: 0x100000c"),
        (b"\x7fELF", arm64, "it is no program"),
    ] {
        let found = refusal(bytes, system);
        ensure!(found == expected, "{found:?}, not {expected:?}");
    }
    Ok(())
}
