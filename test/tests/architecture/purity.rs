//! Pure crates are pure: in their manifests, in all their dependencies, and in their sources.

use std::process::Command;

use crate::tokens::{paths, production};
use crate::{Kind, crates, root, sources};

/// Dependencies that no pure crate may have, direct or transitive.
const IMPURE: &[&str] = &[
    "aws-lc-rs",
    "axum",
    "h2",
    "hyper",
    "hyper-util",
    "kube-client",
    "kube-runtime",
    "mio",
    "oci-client",
    "oci-distribution",
    "openssl",
    "rand",
    "rand_core",
    "reqwest",
    "ring",
    "rustix",
    "rustls",
    "socket2",
    "tempfile",
    "tokio",
    "tokio-rustls",
    "tokio-util",
    "tower",
    "tracing-subscriber",
];

/// The paths that the sources of a pure crate must not use.
const IMPURE_PATHS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "getrandom",
    "rand",
    "tokio",
];
/// Parsers of text in an impure module.
const PURE_PATHS: &[&str] = &[
    "std::net::AddrParseError",
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
    "std::net::SocketAddr",
];
/// The ends of paths that read a clock.
const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now"];

#[test]
fn pure_crates_are_built_without_runtime_network_or_client() {
    for (name, _) in crates(&[Kind::Pure]) {
        // Cargo prints the dependencies of the crate alone, including indirect ones, with its features.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "tree",
                "--offline",
                "--locked",
                "--edges",
                "normal",
                "--prefix",
                "none",
            ])
            .args(["--format", "{p}", "--package", &name])
            .current_dir(root())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        let tree = String::from_utf8(output.stdout).unwrap();
        let built: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(built.contains(&name.as_str()), "{tree}");
        let impure: Vec<_> = built.iter().filter(|found| IMPURE.contains(found)).collect();
        assert!(impure.is_empty(), "{name} is pure and is built with {impure:?}");
    }
}

/// Optional dependencies and those for other systems count, too.
#[test]
fn pure_crates_list_no_runtime_network_or_client() {
    for (name, manifest) in crates(&[Kind::Pure]) {
        for (dependency, value) in &manifest.dependencies {
            assert!(
                !IMPURE.contains(&dependency.as_str()),
                "{name} is pure and may not depend on {dependency}"
            );
            let features = value.get("features").and_then(toml::Value::as_array);
            let features = features.into_iter().flatten().filter_map(toml::Value::as_str);
            let impure = ["client", "runtime", "config", "rustls-tls"];
            let impure: Vec<&str> = features.filter(|feature| impure.contains(feature)).collect();
            assert!(
                dependency != "kube" || impure.is_empty(),
                "{name} is pure and may not use kube's {impure:?}"
            );
        }
    }
}

#[test]
fn pure_crates_name_no_files_environment_network_clock_or_randomness() {
    let mut read = 0;
    for (name, manifest) in crates(&[Kind::Pure]) {
        for (file, source) in sources(&manifest.folder.join("src")) {
            read += 1;
            for path in paths(&production(&source)) {
                let is_in = |module: &&&str| path == **module || path.starts_with(&format!("{module}::"));
                let is_impure = IMPURE_PATHS.iter().any(|module| is_in(&module))
                    && !PURE_PATHS.iter().any(|module| is_in(&module));
                let reads_clock = CLOCKS.iter().any(|clock| path.ends_with(clock));
                assert!(
                    !is_impure && !reads_clock,
                    "{name} is pure, but {} has {path}",
                    file.display()
                );
            }
        }
    }
    assert!(read > 50, "only {read} sources were read");
}
