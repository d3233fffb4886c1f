//! What a build for macOS needs on another system: the compiler for C from Zig, the linker of Rust and, in place of
//! Apple's SDK, the names that libraries of macOS export. Those of its C library come with Zig; the others are here, as
//! far as packages use them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The variable with the folder of the Python package `ziglang`.
const ZIG: &str = "ZIG";
/// The first bytes of a program for macOS.
pub(in super::super) const MAGIC: [u8; 4] = [0xcf, 0xfa, 0xed, 0xfe];
/// The oldest version of macOS that programs run on.
const OLDEST: &str = "11.0";
/// The C library of macOS by the names that linkers know it by.
const C_LIBRARY: [&str; 3] = ["libSystem", "libc", "libm"];
/// The other libraries that packages of Cargo link, by their places below `SDKROOT`.
const LIBRARIES: [(&str, &str); 3] = [
    (
        "System/Library/Frameworks/CoreFoundation.framework/CoreFoundation.tbd",
        include_str!("macos/CoreFoundation.tbd"),
    ),
    (
        "System/Library/Frameworks/Security.framework/Security.tbd",
        include_str!("macos/Security.tbd"),
    ),
    ("usr/lib/libiconv.tbd", include_str!("macos/libiconv.tbd")),
];

/// The tools for a build.
#[derive(Debug)]
pub(super) struct Tools {
    zig: PathBuf,
    /// The libraries' names.
    sdk: PathBuf,
}

/// Whether programs for a target run on macOS.
pub(in super::super) fn is_meant(target: &str) -> bool {
    target.ends_with("-apple-darwin")
}

/// The program `zig`, if `ZIG` names its folder.
pub(in super::super) fn zig() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os(ZIG)?).join("zig"))
}

impl Tools {
    /// Finds the tools, and writes the libraries' names below `builds`.
    ///
    /// # Errors
    /// When there is no Zig, or a file cannot be written.
    pub(super) fn find(builds: &Path) -> Result<Self> {
        let zig = std::env::var_os(ZIG)
            .with_context(|| format!("{ZIG} does not name the folder of Zig; run `make dist-macos`"))?;
        let zig = std::path::absolute(zig).context("a path")?;
        ensure!(zig.join("zig").is_file(), "there is no Zig in {}", zig.display());
        let sdk = builds.join("macos-sdk");
        let c_library = zig.join("lib/libc/darwin/libSystem.tbd");
        let c_library = std::fs::read_to_string(&c_library)
            .with_context(|| format!("cannot read {}", c_library.display()))?;
        for name in C_LIBRARY {
            put(&sdk.join(format!("usr/lib/{name}.tbd")), &c_library)?;
        }
        for (place, text) in LIBRARIES {
            put(&sdk.join(place), text)?;
        }
        Ok(Self { zig, sdk })
    }

    /// The flags of rustc.
    pub(super) fn rust_flags() -> Vec<String> {
        let mut flags = vec![
            "-Clinker=rust-lld".to_owned(),
            "-Clinker-flavor=ld64.lld".to_owned(),
        ];
        // Macs with arm64 only run signed programs; the linker signs, so nothing can be stripped afterwards.
        flags.extend(["-S", "-x", "-dead_strip_dylibs"].map(|flag| format!("-Clink-arg={flag}")));
        flags
    }

    /// The variables of Cargo, of build scripts and of the linker.
    pub(super) fn variables(&self, target: &str) -> [(String, OsString); 4] {
        let zig = self.zig.display();
        let target = target.replace('-', "_");
        // The compiler in Zig is clang. Under that name it takes the targets that build scripts know.
        let compiler = format!(
            "{zig}/zig clang -nostdlibinc -isystem {zig}/lib/include -isystem {zig}/lib/libc/include/any-macos-any"
        );
        [
            (format!("CC_{target}"), compiler.into()),
            (format!("AR_{target}"), format!("{zig}/zig ar").into()),
            ("SDKROOT".to_owned(), self.sdk.clone().into()),
            ("MACOSX_DEPLOYMENT_TARGET".to_owned(), OLDEST.into()),
        ]
    }
}

fn put(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    std::fs::write(path, text).with_context(failed)
}
