//! The build script of the managers: options of the linker.

use std::io::Write as _;
use std::process::Command;

/// The first GNU C Library that reads packed relocations, as `(MAJOR, MINOR)`.
const READS_PACKED: (u32, u32) = (2, 36);

fn main() -> std::io::Result<()> {
    let mut cargo = std::io::stdout();
    writeln!(cargo, "cargo::rerun-if-changed=Cargo.toml")?;
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let target = variable("TARGET");
    // Relocations are read whole at the start, and packed they take 30 KB of memory instead of 1.5 MB. A program that
    // is built with an older C library must start with it.
    if target == "x86_64-unknown-linux-gnu"
        && variable("HOST") == target
        && version().is_some_and(|version| version >= READS_PACKED)
    {
        writeln!(cargo, "cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs")?;
    }
    Ok(())
}

/// The version of the C library of this machine, which `getconf` prints as `glibc 2.36`.
fn version() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = printed.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
