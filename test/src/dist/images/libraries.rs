//! The shared libraries that a program needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The libraries a program of our own is linked with, its loader among them, as the loader itself finds them.
///
/// # Errors
/// When `ldd` cannot be run, or a library is missing.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("cannot run `ldd`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        if is_static(&text) || is_static(&why) {
            return Ok(Vec::new());
        }
        bail!("ldd {}: {}", program.display(), why.trim());
    }
    parse(&text)
}

fn is_static(text: &str) -> bool {
    text.contains("not a dynamic executable") || text.contains("statically linked")
}

/// Parses lines of the forms `name => path (address)`, `path (address)` for the loader, and `name (address)` for
/// libraries of the kernel.
fn parse(text: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if is_static(line) {
            continue;
        }
        let (name, path) = line.split_once("=>").unwrap_or((line, line));
        let path = path.trim();
        if path.starts_with("not found") {
            bail!("library {} is missing", name.trim());
        }
        let path = path.split_once(" (").map_or(path, |(path, _)| path);
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_lines_name_the_files() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f6f)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6d)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f6f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse(text).unwrap(), expected.map(PathBuf::from));
        assert!(parse("\tstatically linked\n").unwrap().is_empty());
        let error = parse("\tlibx.so.1 => not found\n").unwrap_err();
        assert_eq!(error.to_string(), "library libx.so.1 is missing");
    }
}
