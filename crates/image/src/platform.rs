//! Platforms of images.

/// An operating system and an architecture, as Go spells them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// For example `linux`.
    pub os: String,
    /// For example `amd64`.
    pub architecture: String,
}

impl Platform {
    /// The platform this program runs on.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        let os = match std::env::consts::OS {
            "macos" => "darwin",
            other => other,
        };
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
        }
    }
}
