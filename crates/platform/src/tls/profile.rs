//! The TLS profiles of the reference implementation, as far as rustls supports them.
//!
//! rustls speaks TLS 1.2 and 1.3 with forward-secret, authenticated suites only. Further settings of a profile (TLS 1.0
//! and 1.1, CBC, RSA key exchange, secp521r1, SecP384r1MLKEM1024) are left out, and a warning names them.

use clap::Args;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion, version};

/// The flags.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "TLS")]
pub struct ProfileArgs {
    /// Versions, cipher suites and groups to offer: `modern`, `intermediate`, `old` or `custom`.
    #[arg(long, env = "OLM_TLS_PROFILE", default_value = "intermediate")]
    pub tls_profile: String,
    /// With `custom`: the cipher suites, by their IANA names. TLS 1.3 suites are always offered.
    #[arg(long, env = "OLM_TLS_CUSTOM_CIPHERS", value_delimiter = ',')]
    pub tls_custom_ciphers: Vec<String>,
    /// With `custom`: the groups, for example `X25519MLKEM768,X25519,secp256r1`.
    #[arg(long, env = "OLM_TLS_CUSTOM_CURVES", value_delimiter = ',')]
    pub tls_custom_curves: Vec<String>,
    /// With `custom`: the lowest version, `TLSv1.0` to `TLSv1.3`.
    #[arg(long, env = "OLM_TLS_CUSTOM_VERSION", default_value = "TLSv1.2")]
    pub tls_custom_version: String,
}

/// An unknown name in a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The profile is unknown.
    #[error("unknown TLS profile: {0:?}")]
    Profile(String),
    /// The cipher suite is unknown.
    #[error("unknown cipher {0:?}")]
    Cipher(String),
    /// The group is unknown.
    #[error("unknown curve {0:?}")]
    Curve(String),
    /// The version is unknown.
    #[error("unknown TLS version: {0:?}")]
    Version(String),
    /// rustls supports none of the settings.
    #[error("none of the {0} asked for is available; see `--help`")]
    Nothing(&'static str),
}

/// The offered and accepted versions, suites and groups.
#[derive(Debug, Clone)]
pub struct Profile {
    versions: &'static [&'static SupportedProtocolVersion],
    suites: Vec<SupportedCipherSuite>,
    groups: Vec<NamedGroup>,
    /// The settings that are left out.
    pub left_out: Vec<String>,
}

const ONLY_1_3: &[&SupportedProtocolVersion] = &[&version::TLS13];
const FROM_1_2: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

const SUITES_1_3: &[SupportedCipherSuite] = &[
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];
const SUITES_1_2: &[(&str, SupportedCipherSuite)] = &[
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];
/// Suites that Go has and rustls lacks.
const MISSING_SUITES: &[&str] = &[
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];
const NAMES_1_3: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

const GROUPS: &[(&str, NamedGroup)] = &[
    ("X25519MLKEM768", NamedGroup::X25519MLKEM768),
    ("X25519", NamedGroup::X25519),
    ("prime256v1", NamedGroup::secp256r1),
    ("secp256r1", NamedGroup::secp256r1),
    ("secp384r1", NamedGroup::secp384r1),
    ("SecP256r1MLKEM768", NamedGroup::secp256r1MLKEM768),
];
const MISSING_GROUPS: &[&str] = &["secp521r1", "SecP384r1MLKEM1024"];
const DEFAULT_GROUPS: &[NamedGroup] = &[
    NamedGroup::X25519MLKEM768,
    NamedGroup::X25519,
    NamedGroup::secp256r1,
    NamedGroup::secp384r1,
];

impl Default for Profile {
    fn default() -> Self {
        Self {
            versions: FROM_1_2,
            suites: all_suites(),
            groups: DEFAULT_GROUPS.to_vec(),
            left_out: Vec::new(),
        }
    }
}

fn all_suites() -> Vec<SupportedCipherSuite> {
    SUITES_1_3
        .iter()
        .copied()
        .chain(SUITES_1_2.iter().map(|(_, suite)| *suite))
        .collect()
}

impl Profile {
    /// Reads the flags.
    ///
    /// # Errors
    /// When a name is unknown, or none of the settings is supported.
    pub fn parse(args: &ProfileArgs) -> Result<Self, ProfileError> {
        match args.tls_profile.to_ascii_lowercase().as_str() {
            "modern" => Ok(Self {
                versions: ONLY_1_3,
                suites: SUITES_1_3.to_vec(),
                ..Self::default()
            }),
            "intermediate" => Ok(Self::default()),
            "old" => Ok(Self {
                left_out: ["TLSv1.0", "TLSv1.1"]
                    .iter()
                    .chain(MISSING_SUITES)
                    .map(|name| (*name).to_owned())
                    .collect(),
                ..Self::default()
            }),
            "custom" => Self::custom(args),
            _ => Err(ProfileError::Profile(args.tls_profile.clone())),
        }
    }

    fn custom(args: &ProfileArgs) -> Result<Self, ProfileError> {
        let mut left_out = Vec::new();
        let versions = match args.tls_custom_version.as_str() {
            "TLSv1.3" => ONLY_1_3,
            "TLSv1.2" => FROM_1_2,
            old @ ("TLSv1.0" | "TLSv1.1") => {
                left_out.push(old.to_owned());
                FROM_1_2
            }
            unknown => return Err(ProfileError::Version(unknown.to_owned())),
        };
        let mut suites = SUITES_1_3.to_vec();
        for name in named(&args.tls_custom_ciphers) {
            if let Some((_, suite)) = SUITES_1_2.iter().find(|(known, _)| *known == name) {
                suites.push(*suite);
            } else if MISSING_SUITES.contains(&name) {
                left_out.push(name.to_owned());
            } else if !NAMES_1_3.contains(&name) {
                return Err(ProfileError::Cipher(name.to_owned()));
            }
        }
        let mut groups = Vec::new();
        for name in named(&args.tls_custom_curves) {
            if let Some((_, group)) = GROUPS.iter().find(|(known, _)| *known == name) {
                groups.push(*group);
            } else if MISSING_GROUPS.contains(&name) {
                left_out.push(name.to_owned());
            } else {
                return Err(ProfileError::Curve(name.to_owned()));
            }
        }
        if named(&args.tls_custom_ciphers).next().is_none() {
            suites = all_suites();
        }
        if named(&args.tls_custom_curves).next().is_none() {
            groups = DEFAULT_GROUPS.to_vec();
        } else if groups.is_empty() {
            return Err(ProfileError::Nothing("curves"));
        }
        Ok(Self {
            versions,
            suites,
            groups,
            left_out,
        })
    }

    /// Logs the settings that are left out.
    pub fn warn(&self) {
        if !self.left_out.is_empty() {
            tracing::warn!(
                left_out = self.left_out.join(","),
                "ignoring unavailable entries of the TLS profile"
            );
        }
    }

    /// The provider with the profile's suites and groups, in the profile's order.
    pub fn provider(&self) -> CryptoProvider {
        let kx_groups = self
            .groups
            .iter()
            .filter_map(|wanted| {
                aws_lc_rs::ALL_KX_GROUPS
                    .iter()
                    .find(|group| group.name() == *wanted)
                    .copied()
            })
            .collect();
        CryptoProvider {
            cipher_suites: self.suites.clone(),
            kx_groups,
            ..aws_lc_rs::default_provider()
        }
    }

    /// The versions, highest first.
    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        self.versions
    }
}

fn named(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(profile: &str, version: &str, ciphers: &[&str], curves: &[&str]) -> ProfileArgs {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        ProfileArgs {
            tls_profile: profile.to_owned(),
            tls_custom_ciphers: owned(ciphers),
            tls_custom_curves: owned(curves),
            tls_custom_version: version.to_owned(),
        }
    }

    #[test]
    fn profiles_are_named_in_any_case_and_differ_in_versions() {
        assert_eq!(
            Profile::parse(&args("Modern", "", &[], &[]))
                .unwrap()
                .versions()
                .len(),
            1
        );
        assert_eq!(
            Profile::parse(&args("intermediate", "", &[], &[]))
                .unwrap()
                .versions()
                .len(),
            2
        );
        let old = Profile::parse(&args("old", "", &[], &[])).unwrap();
        assert!(old.left_out.contains(&"TLSv1.0".to_owned()));
    }

    #[test]
    fn unknown_names_are_errors_and_unavailable_ones_are_left_out() {
        let parse = |v, c: &[&str], k: &[&str]| Profile::parse(&args("custom", v, c, k));
        assert_eq!(
            parse("TLSv9", &[], &[]).unwrap_err().to_string(),
            "unknown TLS version: \"TLSv9\""
        );
        assert_eq!(
            parse("TLSv1.2", &["NOPE"], &[]).unwrap_err().to_string(),
            "unknown cipher \"NOPE\""
        );
        assert_eq!(
            parse("TLSv1.2", &[], &["nope"]).unwrap_err().to_string(),
            "unknown curve \"nope\""
        );
        assert!(parse("TLSv1.2", &[], &["secp521r1"]).is_err());
        let custom = parse(
            "TLSv1.1",
            &["TLS_RSA_WITH_AES_128_CBC_SHA"],
            &["secp256r1", "secp521r1"],
        )
        .unwrap();
        assert_eq!(
            custom.left_out,
            ["TLSv1.1", "TLS_RSA_WITH_AES_128_CBC_SHA", "secp521r1"]
        );
        assert_eq!(custom.provider().kx_groups.len(), 1);
        assert_eq!(custom.provider().cipher_suites.len(), 3);
        assert_eq!(
            Profile::parse(&args("x", "", &[], &[])).unwrap_err().to_string(),
            "unknown TLS profile: \"x\""
        );
    }

    #[test]
    fn the_hybrid_group_is_offered_first() {
        assert_eq!(
            Profile::default().provider().kx_groups[0].name(),
            NamedGroup::X25519MLKEM768
        );
    }
}
