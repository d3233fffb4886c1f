//! Flags that every manager has. Each is also an environment variable.

use std::path::PathBuf;

use clap::Args;

use crate::log::LogArgs;
use crate::tls::profile::ProfileArgs;

/// Flags that every manager has.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Address of the metrics port; empty: the program's default; `0`: off. Over HTTPS clients need a bearer token;
    /// programs of OLM classic without a certificate serve plain HTTP to every client.
    #[arg(long, env = "OLM_METRICS_BIND_ADDRESS", default_value = "")]
    pub metrics_bind_address: String,
    /// Address of the health port (plain HTTP, `/healthz` and `/readyz`); `0`: off.
    #[arg(long, env = "OLM_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,
    /// Accepted for compatibility; there is no profiling port.
    #[arg(long, env = "OLM_PPROF_BIND_ADDRESS", default_value = "0", hide = true)]
    pub pprof_bind_address: String,
    /// Take part in leader election; without it this process acts at once.
    #[arg(long, env = "OLM_LEADER_ELECT", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub leader_elect: bool,
    /// Namespace of the managers; empty: that of the Pod, else the program's default.
    #[arg(long, env = "OLM_SYSTEM_NAMESPACE", default_value = "")]
    pub system_namespace: String,
    /// Certificate chain for the HTTPS ports, PEM; without it the manager makes its own.
    #[arg(long, env = "OLM_TLS_CERT", default_value = "")]
    pub tls_cert: String,
    /// Private key of `--tls-cert`, PEM.
    #[arg(long, env = "OLM_TLS_KEY", default_value = "")]
    pub tls_key: String,
    /// Directory with further certificate authorities for registries, PEM.
    #[arg(long, env = "OLM_PULL_CAS_DIR", default_value = "")]
    pub pull_cas_dir: String,
    /// Hosts of token services that registries of another site may use, comma-separated.
    #[arg(long, env = "OLM_REGISTRY_TOKEN_SERVICES", value_delimiter = ',')]
    pub registry_token_services: Vec<String>,
    /// Configuration of registries (mirrors, blocked and insecure ones), `registries.conf` version 2, with the folder
    /// `.d` beside it; empty: `/etc/containers/registries.conf` when it is there. Read again for every pull.
    #[arg(long, env = "OLM_REGISTRIES_CONF", default_value = "")]
    pub registries_conf: String,
    /// Signature policy, `policy.json`; empty: `/etc/containers/policy.json` when it is there, else every image is
    /// accepted. Read again for every pull.
    #[arg(long, env = "OLM_SIGNATURE_POLICY", default_value = "")]
    pub signature_policy: String,
    /// Pull secret for all registries, `NAMESPACE/NAME`.
    #[arg(long, env = "OLM_GLOBAL_PULL_SECRET", default_value = "")]
    pub global_pull_secret: String,
    /// Features to switch, `NAME=true|false`, comma-separated; unknown ones are logged.
    #[arg(long, env = "OLM_FEATURE_GATES")]
    pub feature_gates: Vec<String>,
    /// Kubeconfig file; empty: `KUBECONFIG`, else the Pod's own credentials.
    #[arg(long, env = "OLM_KUBECONFIG", default_value = "")]
    pub kubeconfig: String,
    /// TLS versions, suites and groups.
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Limits for the download of an image; each has a default in the program.
#[derive(Debug, Clone, Default, Args)]
pub struct ImageLimitArgs {
    /// Bytes of a manifest or an index.
    #[arg(long, env = "OLM_IMAGE_MAX_MANIFEST_BYTES", value_parser = positive())]
    pub image_max_manifest_bytes: Option<u64>,
    /// Bytes of an image's configuration.
    #[arg(long, env = "OLM_IMAGE_MAX_CONFIG_BYTES", value_parser = positive())]
    pub image_max_config_bytes: Option<u64>,
    /// Layers of an image.
    #[arg(long, env = "OLM_IMAGE_MAX_LAYERS", value_parser = positive())]
    pub image_max_layers: Option<u64>,
    /// Files, directories and links in all layers together.
    #[arg(long, env = "OLM_IMAGE_MAX_ENTRIES", value_parser = positive())]
    pub image_max_entries: Option<u64>,
    /// Bytes of all layers together as they are transferred.
    #[arg(long, env = "OLM_IMAGE_MAX_TRANSFER_BYTES", value_parser = positive())]
    pub image_max_transfer_bytes: Option<u64>,
    /// Bytes of all layers together once they are decompressed.
    #[arg(long, env = "OLM_IMAGE_MAX_UNPACKED_BYTES", value_parser = positive())]
    pub image_max_unpacked_bytes: Option<u64>,
    /// Bytes of all files that are kept.
    #[arg(long, env = "OLM_IMAGE_MAX_KEPT_BYTES", value_parser = positive())]
    pub image_max_kept_bytes: Option<u64>,
    /// Bytes of one file that is kept.
    #[arg(long, env = "OLM_IMAGE_MAX_FILE_BYTES", value_parser = positive())]
    pub image_max_file_bytes: Option<u64>,
    /// The ratio of the size of a layer to its compressed size, at most, from 32 MiB on.
    #[arg(long, env = "OLM_IMAGE_MAX_RATIO", value_parser = positive())]
    pub image_max_ratio: Option<u64>,
    /// Directories above a file.
    #[arg(long, env = "OLM_IMAGE_MAX_DEPTH", value_parser = positive())]
    pub image_max_depth: Option<u64>,
    /// Bytes of a file's or directory's name.
    #[arg(long, env = "OLM_IMAGE_MAX_NAME_BYTES", value_parser = positive())]
    pub image_max_name_bytes: Option<u64>,
    /// Bytes of a whole path.
    #[arg(long, env = "OLM_IMAGE_MAX_PATH_BYTES", value_parser = positive())]
    pub image_max_path_bytes: Option<u64>,
    /// Bytes of all paths that are kept, including their directories.
    #[arg(long, env = "OLM_IMAGE_MAX_PATHS_BYTES", value_parser = positive())]
    pub image_max_paths_bytes: Option<u64>,
    /// Seconds that pulling an image may take.
    #[arg(long, env = "OLM_IMAGE_MAX_SECONDS", value_parser = positive())]
    pub image_max_seconds: Option<u64>,
}

fn positive() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

impl ImageLimitArgs {
    /// The limits that are set, each with its name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("manifest-bytes", self.image_max_manifest_bytes),
            ("config-bytes", self.image_max_config_bytes),
            ("layers", self.image_max_layers),
            ("entries", self.image_max_entries),
            ("transfer-bytes", self.image_max_transfer_bytes),
            ("unpacked-bytes", self.image_max_unpacked_bytes),
            ("kept-bytes", self.image_max_kept_bytes),
            ("file-bytes", self.image_max_file_bytes),
            ("ratio", self.image_max_ratio),
            ("depth", self.image_max_depth),
            ("name-bytes", self.image_max_name_bytes),
            ("path-bytes", self.image_max_path_bytes),
            ("paths-bytes", self.image_max_paths_bytes),
            ("time", self.image_max_seconds),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }
}

/// Flags that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// Only one of certificate and key is set.
    #[error("unable to configure TLS certificates: tls-cert and tls-key flags must be used together")]
    HalfCertificate,
    /// The value is not `NAMESPACE/NAME`.
    #[error("value of {flag} should be of the format <namespace>/<name>, not {value:?}")]
    NotNamespacedName {
        /// The flag.
        flag: &'static str,
        /// The given value.
        value: String,
    },
}

impl CommonArgs {
    /// Certificate and key when given.
    ///
    /// # Errors
    /// When only one of them is given.
    pub fn certificate_files(&self) -> Result<Option<crate::tls::certificate::Files>, ArgsError> {
        match (self.tls_cert.is_empty(), self.tls_key.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Ok(Some(crate::tls::certificate::Files {
                certificate: self.tls_cert.clone().into(),
                key: self.tls_key.clone().into(),
            })),
            _ => Err(ArgsError::HalfCertificate),
        }
    }

    /// Namespace and name of the global pull secret.
    ///
    /// # Errors
    /// When the value is not `NAMESPACE/NAME`.
    pub fn pull_secret(&self) -> Result<Option<(String, String)>, ArgsError> {
        namespaced_name("global-pull-secret", &self.global_pull_secret)
    }

    /// The file with the configuration of registries when given.
    pub fn registries_file(&self) -> Option<PathBuf> {
        path(&self.registries_conf)
    }

    /// The file with the signature policy when given.
    pub fn policy_file(&self) -> Option<PathBuf> {
        path(&self.signature_policy)
    }

    /// The kubeconfig when given.
    pub fn kubeconfig(&self) -> Option<&str> {
        Some(self.kubeconfig.as_str()).filter(|path| !path.is_empty())
    }

    /// The health port's address; `None` when off.
    pub fn health_address(&self) -> Option<&str> {
        Some(self.health_probe_bind_address.as_str()).filter(|address| *address != "0")
    }

    /// The metrics port's address: the flag, else `default`; `None` when off.
    pub fn metrics_address<'a>(&'a self, default: &'a str) -> Option<&'a str> {
        match self.metrics_bind_address.as_str() {
            "" => Some(default),
            "0" => None,
            address => Some(address),
        }
    }
}

fn path(text: &str) -> Option<PathBuf> {
    Some(text).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// Reads `NAMESPACE/NAME`; an empty value is `None`.
///
/// # Errors
/// When the value has another form.
pub fn namespaced_name(flag: &'static str, value: &str) -> Result<Option<(String, String)>, ArgsError> {
    if value.is_empty() {
        return Ok(None);
    }
    match value.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Some((namespace.to_owned(), name.to_owned())))
        }
        _ => Err(ArgsError::NotNamespacedName {
            flag,
            value: value.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        common: CommonArgs,
    }

    fn parse(args: &[&str]) -> CommonArgs {
        Program::try_parse_from(std::iter::once(&"program").chain(args))
            .unwrap()
            .common
    }

    #[test]
    fn flags_of_the_reference_and_of_klog_are_accepted_as_go_writes_them() {
        let args = parse(&[
            "--leader-elect",
            "-v=4",
            "--logtostderr=true",
            "--stderrthreshold=0",
            "--vmodule=a=1",
        ]);
        assert!(args.leader_elect);
        assert_eq!(args.log.verbosity, 4);
        assert!(!parse(&["--leader-elect=false", "--v=2", "--one_output"]).leader_elect);
    }

    #[test]
    fn half_a_certificate_and_half_a_name_are_errors() {
        assert_eq!(
            parse(&["--tls-cert=a"]).certificate_files().unwrap_err(),
            ArgsError::HalfCertificate
        );
        assert!(
            parse(&["--tls-cert=a", "--tls-key=b"])
                .certificate_files()
                .unwrap()
                .is_some()
        );
        assert!(parse(&[]).certificate_files().unwrap().is_none());
        assert!(parse(&["--global-pull-secret=a/b/c"]).pull_secret().is_err());
        assert_eq!(
            parse(&["--global-pull-secret=a/b"]).pull_secret().unwrap(),
            Some(("a".into(), "b".into()))
        );
    }

    #[test]
    fn the_metrics_port_has_a_default_and_can_be_off() {
        assert_eq!(parse(&[]).metrics_address(":7443"), Some(":7443"));
        assert_eq!(
            parse(&["--metrics-bind-address=0"]).metrics_address(":7443"),
            None
        );
    }
}
