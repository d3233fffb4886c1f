//! Runs the commands of the docs that need only files: the blocks marked `sh run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ANNOTATIONS, CATALOG, CSV, Files};

/// The lines of the blocks marked `sh run`.
fn commands(text: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```sh run" => inside = true,
            "```" => inside = false,
            line if inside => commands.push(line),
            _ => {}
        }
    }
    commands
}

/// Every page below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the entry can be read").path());
    paths
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

#[test]
fn the_documented_commands_do_what_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut followed = 0;
    for page in pages(&folder) {
        let text = std::fs::read_to_string(&page).expect("the page can be read");
        let commands = commands(&text);
        if !commands.is_empty() {
            follow(&page, &commands);
            followed += commands.len();
        }
    }
    assert!(followed > 20, "{followed}");
}

/// Runs the commands of a page.
fn follow(page: &Path, commands: &[&str]) {
    let template = "schema: olm.semver\nstable: {bundles: [{image: ./bundle}]}\n";
    let composition = "name: composed\nrepo: registry.example/catalogs/composed\nreferences: [{name: mine, image: ./catalog}]\n";
    let files = Files::new(&[
        ("catalog/catalog.json", CATALOG),
        ("old/catalog.json", CATALOG),
        ("bundle/manifests/csv.yaml", CSV),
        ("bundle/metadata/annotations.yaml", ANNOTATIONS),
        ("template.yaml", template),
        ("catalog.yaml", composition),
        ("README.md", "About foo\n"),
        (
            "legacy/greeter.package.yaml",
            "packageName: greeter\nchannels: [{name: stable, currentCSV: greeter.v1.0.0}]\n",
        ),
        ("legacy/1.0.0/csv.yaml", CSV),
    ]);
    let binary = Path::new(env!("CARGO_BIN_EXE_olm"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("it is in a directory").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let script = format!("set -euo pipefail\n{}\n", commands.join("\n"));
    let run = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(files.path(""))
        .env("PATH", path)
        .env("HOME", files.path(""))
        .env_remove("REGISTRY_AUTH_FILE")
        .output()
        .expect("bash runs");
    assert!(
        run.status.success(),
        "{}: {script}\n{}\n{}",
        page.display(),
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr)
    );
}
