//! Programs of the machine that a mode needs, and the Debian packages that bring them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::Mode;

/// Program and package, for every mode.
const ALWAYS: &[(&str, &str)] = &[("setpriv", "util-linux"), ("setsid", "util-linux")];

/// Program and package, for a real node.
const NODE: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("runc", "runc"),
    ("busybox", "busybox-static"),
];

/// The folders of CNI plugins in distributions.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Fails with all missing programs of a mode, and the command that installs them.
pub(super) fn check(mode: Mode) -> Result<()> {
    let mut programs = ALWAYS.to_vec();
    let mut missing = Vec::new();
    if mode == Mode::Node {
        if !rustix::process::geteuid().is_root() {
            bail!("a real node needs root; without --node a simulated one does not");
        }
        programs.extend(NODE);
        if cni_plugins().is_none() {
            missing.push(("the CNI plugins", "containernetworking-plugins"));
        }
    }
    missing.extend(programs.iter().filter(|(program, _)| find(program).is_none()));
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    bail!(
        "missing: {}; on Debian: apt-get install {}",
        names.join(", "),
        packages.join(" ")
    )
}

/// A program on the search path, or in the folders of administrators' programs.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The folder of the CNI plugins.
pub(super) fn cni_plugins() -> Option<&'static Path> {
    CNI_FOLDERS
        .iter()
        .map(Path::new)
        .find(|folder| folder.join("bridge").is_file() && folder.join("portmap").is_file())
}
