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
    /// Linux on this machine's processor. Images hold files for clusters, whatever system asks for them.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
        }
    }
}
