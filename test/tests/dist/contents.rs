//! The content of images and programs: nothing of the machine on which they are built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_test::dist::build;
use olm_test::images::contents::Contents;
use olm_test::images::libraries;
use olm_test::world::{binary, repository};
use tempfile::TempDir;

use crate::files::{archives, sums, unpacked};
use crate::{is_built, release};

/// The folders and files of every image, besides its program.
const SYSTEM: [&str; 8] = [
    "etc",
    "etc/group",
    "etc/nsswitch.conf",
    "etc/passwd",
    "etc/ssl",
    "etc/ssl/certs",
    "etc/ssl/certs/ca-certificates.crt",
    "tmp",
];

/// The images of the release, by the name of the program.
fn images() -> Result<Vec<(String, Contents)>> {
    let folder = release()?;
    let files = sums(&folder)?.into_keys();
    let archives = files.filter_map(|file| Some(file.strip_suffix(".tar")?.to_owned()));
    archives
        .map(|stem| {
            let image = Contents::read(&folder.join(format!("{stem}.tar")))?;
            Ok((stem.trim_end_matches("-arm64").to_owned(), image))
        })
        .collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// What no program may name: folders of this machine, and its name.
fn traces() -> Result<Vec<String>> {
    let home = std::env::var("HOME").context("HOME")?;
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    let programs = binary("olm")?;
    let target = programs.ancestors().nth(2).context("it is in a folder")?;
    let mut traces = vec![
        repository().display().to_string(),
        target.display().to_string(),
        cargo,
        format!("{home}/.rustup"),
    ];
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    // A short name is also an ordinary word.
    traces.extend(Some(host.trim().to_owned()).filter(|host| host.len() > 7));
    Ok(traces)
}

#[test]
fn an_image_holds_its_program_and_what_is_the_same_on_every_machine() -> Result<()> {
    for (name, image) in images()? {
        let mut expected: BTreeSet<String> = SYSTEM.map(str::to_owned).into();
        expected.insert(name.clone());
        // Without a release, the programs are those of the tests, which are linked with libraries of this machine.
        if !is_built() {
            for library in libraries(&binary(&name)?)? {
                let path = library.strip_prefix("/")?;
                let folders = path.ancestors().filter(|path| !path.as_os_str().is_empty());
                expected.extend(folders.map(|path| path.display().to_string()));
            }
        }
        let found: BTreeSet<String> = image.entries.iter().map(|entry| entry.path.clone()).collect();
        ensure!(found == expected, "{name}: {found:?}, not {expected:?}");
        for entry in &image.entries {
            let root = (0, 0, String::new(), String::new());
            ensure!(
                entry.owner == root && entry.time == 0,
                "{name}: {}: {:?}",
                entry.path,
                entry.owner
            );
            let mode = if entry.path == "tmp" {
                0o1777
            } else {
                entry.mode & 0o755
            };
            ensure!(entry.mode == mode, "{name}: {}: {:o}", entry.path, entry.mode);
        }
        let authorities = image.file("etc/ssl/certs/ca-certificates.crt")?;
        ensure!(
            holds(authorities, "BEGIN CERTIFICATE"),
            "{name} has no authorities"
        );
        let fields: Vec<&String> = image
            .config
            .as_object()
            .context("no configuration")?
            .keys()
            .collect();
        let known = ["architecture", "config", "os", "rootfs"];
        ensure!(
            fields.iter().all(|field| known.contains(&field.as_str())),
            "{name}: {fields:?}"
        );
    }
    Ok(())
}

#[test]
fn nothing_that_is_shipped_names_the_building_machine_or_a_folder_of_it() -> Result<()> {
    let folder = release()?;
    let mut shipped: Vec<(String, Vec<u8>)> = Vec::new();
    for (system, archive) in archives(&folder)? {
        let files = unpacked(&folder.join(archive))?.into_iter();
        shipped.extend(files.map(|(name, (_, bytes))| (format!("{system}: {name}"), bytes)));
    }
    for (name, image) in images()? {
        let files = image.entries.into_iter();
        shipped.extend(files.filter_map(|entry| Some((format!("{name}: {}", entry.path), entry.bytes?))));
    }
    let plain = sums(&folder)?.into_keys().filter(|file| !file.contains(".t"));
    for file in plain {
        let bytes = std::fs::read(folder.join(&file))?;
        shipped.push((file, bytes));
    }
    let traces = traces()?;
    for (name, bytes) in &shipped {
        // Programs of the tests are built as always; those of `make dist` are not.
        if bytes.starts_with(b"\x7fELF") && !is_built() {
            continue;
        }
        for trace in &traces {
            ensure!(!holds(bytes, trace), "{name} names {trace}");
        }
    }
    ensure!(shipped.len() > 20, "{}", shipped.len());
    Ok(())
}

/// A workspace with a program of two packages, which names the files of its sources.
fn write_sources(folder: &Path) -> Result<()> {
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = 'tiny'\nversion = '0.1.0'\nedition = '2024'\n[dependencies]\npart = { path = 'part' }\n[workspace]\n",
        ),
        (
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"part\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"tiny\"\nversion = \"0.1.0\"\ndependencies = [\n \"part\",\n]\n",
        ),
        (
            "src/main.rs",
            "fn main() { println!(\"{} {}\", file!(), part::place()); }\n",
        ),
        (
            "part/Cargo.toml",
            "[package]\nname = 'part'\nversion = '0.1.0'\nedition = '2024'\n",
        ),
        (
            "part/src/lib.rs",
            "pub fn place() -> &'static str { std::panic::Location::caller().file() }\n",
        ),
    ];
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().context("it is in a folder")?)?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

#[test]
fn builds_in_different_folders_give_the_same_bytes() -> Result<()> {
    let place = TempDir::new()?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let build = |folder: &str| -> Result<(PathBuf, Vec<u8>)> {
        let folder = place.path().join(folder);
        let (source, builds, home) = (folder.join("source"), folder.join("target"), folder.join("cargo"));
        write_sources(&source)?;
        std::fs::create_dir_all(&home)?;
        build::programs(&source, &builds, &target, &["tiny"], Some(&home))?;
        let program = builds.join(&target).join("release/tiny");
        let bytes = std::fs::read(&program)?;
        Ok((program, bytes))
    };
    let (program, first) = build("a")?;
    let (_, second) = build("another/folder/with/a/longer/name")?;
    ensure!(first == second, "they differ");
    ensure!(
        !holds(&first, &place.path().display().to_string()),
        "it names its folder"
    );
    ensure!(libraries(&program)?.is_empty(), "it is not static");
    let output = Command::new(program).output()?;
    ensure!(
        output.status.success() && output.stdout.starts_with(b"src/main.rs "),
        "{output:?}"
    );
    Ok(())
}
