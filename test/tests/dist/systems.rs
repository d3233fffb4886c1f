//! The systems that a release is for: each has all programs, and they run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use olm_test::dist::{SYSTEMS, System};
use olm_test::images;
use olm_test::images::contents::Contents;
use olm_test::samples;
use tempfile::TempDir;

use crate::files::{archives, sums, unpacked, write_program};
use crate::{is_built, release};

/// The kind of an ELF segment that names the loader.
const INTERPRETER: usize = 3;

/// The systems with Linux of this release: all, or this machine's where the tests write the release themselves.
fn systems() -> Vec<System> {
    let linux = SYSTEMS.into_iter().filter(|system| system.os == "linux");
    linux.filter(|system| is_built() || is_host(*system)).collect()
}

fn is_host(system: System) -> bool {
    system.target.starts_with(std::env::consts::ARCH)
}

/// The number of a processor in an ELF file.
fn machine(system: System) -> usize {
    if system.architecture == "arm64" { 183 } else { 62 }
}

fn name(system: System) -> String {
    format!("{}-{}", system.os, system.architecture)
}

/// The file of an image without its suffix.
fn stem(program: &str, system: System) -> String {
    if is_host(system) {
        program.to_owned()
    } else {
        format!("{program}-{}", system.architecture)
    }
}

/// Writes a program from the archive of a system, to be run.
fn put_olm(system: System, folder: &Path) -> Result<PathBuf> {
    let release = release()?;
    let archive = archives(&release)?.remove(&name(system)).context("no archive")?;
    let path = folder.join(name(system));
    write_program(&path, &unpacked(&release.join(archive))?["olm"].1)?;
    Ok(path)
}

/// Checks that an ELF file is for a system's processor and, in a release, that it names no loader, as static ones do.
fn check_program(bytes: &[u8], system: System) -> Result<()> {
    ensure!(bytes.starts_with(b"\x7fELF"), "it is no program");
    let found = number(bytes, 18, 2)?;
    ensure!(found == machine(system), "it is for another processor: {found}");
    let (start, size, count) = (
        number(bytes, 32, 8)?,
        number(bytes, 54, 2)?,
        number(bytes, 56, 2)?,
    );
    ensure!(count > 0, "it has no segments");
    for at in 0..count {
        let kind = number(bytes, start + at * size, 4)?;
        ensure!(kind != INTERPRETER || !is_built(), "it is not static");
    }
    Ok(())
}

/// A number in an ELF file.
fn number(bytes: &[u8], at: usize, length: usize) -> Result<usize> {
    let field = bytes.get(at..at + length).context("it is cut off")?;
    Ok(field
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

#[test]
fn every_system_has_olm_and_all_images() -> Result<()> {
    let folder = release()?;
    let sums = sums(&folder)?;
    let expected: BTreeSet<String> = systems().into_iter().map(name).collect();
    let archives = archives(&folder)?;
    // macOS is not in every release, see macos.rs.
    let linux = archives.keys().filter(|system| system.starts_with("linux-"));
    let found: BTreeSet<String> = linux.cloned().collect();
    ensure!(
        found == expected,
        "olm is there for {found:?}, not for {expected:?}"
    );
    for system in systems() {
        let archive = &archives[&name(system)];
        let olm = &unpacked(&folder.join(archive))?["olm"].1;
        check_program(olm, system).with_context(|| archive.clone())?;
        let mut files = vec![archive.replace(".tar.gz", ".cdx.json")];
        for program in images::PROGRAMS {
            let stem = stem(program, system);
            files.extend([format!("{stem}.tar"), format!("{stem}.cdx.json")]);
            let image = Contents::read(&folder.join(format!("{stem}.tar")))?;
            let architecture = image.config["architecture"].as_str();
            ensure!(
                architecture == Some(system.architecture),
                "{stem}: {architecture:?}"
            );
            check_program(image.file(program)?, system).with_context(|| stem.clone())?;
        }
        let missing: Vec<&String> = files.iter().filter(|file| !sums.contains_key(*file)).collect();
        ensure!(
            missing.is_empty(),
            "{}: {missing:?} are not in SHA256SUMS",
            system.target
        );
    }
    Ok(())
}

/// The program that runs those of a processor on this machine, and its arguments.
fn runner(system: System) -> Option<Vec<String>> {
    if is_host(system) {
        return Some(Vec::new());
    }
    let emulator = match system.architecture {
        "arm64" => "qemu-aarch64",
        _ => "qemu-x86_64",
    };
    let path = std::env::var_os("PATH")?;
    let names = [emulator.to_owned(), format!("{emulator}-static")];
    let mut places =
        std::env::split_paths(&path).flat_map(|folder| names.clone().map(|name| folder.join(name)));
    let found = places.find(|place| place.is_file())?;
    Some(vec![found.display().to_string()])
}

#[test]
fn olm_of_every_system_renders_the_same_bundle() -> Result<()> {
    let scratch = TempDir::new()?;
    let bundle = scratch.path().join("bundle");
    for (path, content) in samples::renamed_bundle("greeter", "1.0.0", samples::OPERATOR_IMAGE) {
        let path = bundle.join(path);
        std::fs::create_dir_all(path.parent().context("it is in a folder")?)?;
        std::fs::write(path, content)?;
    }
    let bundle = bundle.display().to_string();
    let mut results: Vec<(String, Vec<u8>)> = Vec::new();
    for system in systems() {
        let Some(mut line) = runner(system) else {
            eprintln!("{}: qemu-user is not installed, olm is not tried", system.target);
            continue;
        };
        line.push(put_olm(system, scratch.path())?.display().to_string());
        let run = |arguments: &[&str]| -> Result<Output> {
            let (first, rest) = line.split_first().context("a program")?;
            let output = Command::new(first).args(rest).args(arguments).output()?;
            ensure!(
                output.status.success(),
                "{} {arguments:?}: {output:?}",
                system.target
            );
            Ok(output)
        };
        let version = String::from_utf8(run(&["version", "--client"])?.stdout)?;
        ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
        let rendered = run(&["bundle", "render", &bundle, "-n", "samples"])?.stdout;
        ensure!(
            rendered.windows(16).any(|text| text == b"kind: Deployment"),
            "nothing is rendered"
        );
        eprintln!("{}: {} runs", system.target, version.trim());
        results.push((name(system), rendered));
    }
    let (_, first) = results.first().context("no program was run")?;
    for (system, rendered) in &results {
        ensure!(rendered == first, "{system} renders something else");
    }
    Ok(())
}
