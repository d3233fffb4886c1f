//! Flags that every manager has. Each is also an environment variable.

use clap::Args;

use crate::log::LogArgs;
use crate::tls::profile::ProfileArgs;

/// Flags that every manager has.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Address of the metrics port (HTTPS, with a bearer token); empty: the program's default; `0`: off.
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
    /// Pull secret for all registries, `NAMESPACE/NAME`.
    #[arg(long, env = "OLM_GLOBAL_PULL_SECRET", default_value = "")]
    pub global_pull_secret: String,
    /// Features to switch, `NAME=true|false`, comma-separated; unknown ones are warned about.
    #[arg(long, env = "OLM_FEATURE_GATES")]
    pub feature_gates: Vec<String>,
    /// File with the way to the API server; empty: `KUBECONFIG`, else the Pod's own credentials.
    #[arg(long, env = "OLM_KUBECONFIG", default_value = "")]
    pub kubeconfig: String,
    /// TLS versions, suites and groups.
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// One of two.
    #[error("unable to configure TLS certificates: tls-cert and tls-key flags must be used together")]
    HalfCertificate,
    /// Not `NAMESPACE/NAME`.
    #[error("value of {flag} should be of the format <namespace>/<name>, not {value:?}")]
    NotNamespacedName {
        /// The flag.
        flag: &'static str,
        /// What was given.
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

    /// The kubeconfig when given.
    pub fn kubeconfig(&self) -> Option<&str> {
        Some(self.kubeconfig.as_str()).filter(|path| !path.is_empty())
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

/// Reads `NAMESPACE/NAME`; an empty value is `None`.
///
/// # Errors
/// When the value is anything else.
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
