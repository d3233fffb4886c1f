//! The command line: flag = environment variable. Flags of the Go implementation are accepted.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use olm_cluster::identity::AccountName;
use olm_image::Bounds;
use olm_platform::args::{CommonArgs, ImageLimitArgs};

/// Runs one of the programs of OLM classic.
#[derive(Debug, Clone, Parser)]
#[command(name = "classic")]
pub struct Args {
    /// The program that runs.
    #[command(subcommand)]
    pub command: Command,
}

/// A program of OLM classic.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Installs ClusterServiceVersions, and reconciles OperatorGroups, OperatorConditions, Operators and OLMConfig.
    OlmOperator(Box<OperatorArgs>),
    /// Serves CatalogSources, resolves Subscriptions, carries out InstallPlans.
    CatalogOperator(Box<CatalogArgs>),
    /// Serves PackageManifests as an aggregated API.
    Packageserver(Box<PackageArgs>),
    /// Prints the version.
    Version,
}

/// Flags of all three programs.
#[derive(Debug, Clone, clap::Args)]
pub struct ClassicArgs {
    /// Namespace of OLM classic; the same as `--system-namespace`.
    #[arg(long, env = "OLM_CLASSIC_NAMESPACE", default_value = "")]
    pub namespace: String,
    /// Service account that content is written under where the OperatorGroup names none, `NAMESPACE/NAME`. Without it
    /// such operators are not installed.
    #[arg(long, env = "OLM_CLASSIC_ACCOUNT")]
    pub classic_account: Option<AccountName>,
    /// Number of objects that are reconciled at once.
    #[arg(long, env = "OLM_CONCURRENCY", default_value_t = 8)]
    pub concurrency: usize,
    /// Time until the packages of an unchanged catalog are read again, by default `12h`. The other
    /// programs accept it: they follow objects.
    #[arg(long, default_value = "", hide = true)]
    pub interval: String,
    /// Accepted for compatibility: all namespaces are watched.
    #[arg(long = "watchedNamespaces", default_value = "", hide = true)]
    pub watched_namespaces: String,
    /// Prints the version and ends.
    #[arg(long)]
    pub version: bool,
    /// Logs more, like `--log-level=debug`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub debug: bool,
    /// Accepted for compatibility; there is no profiling port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", hide = true)]
    pub profiling: bool,
    /// Accepted for compatibility; over HTTPS, reading metrics needs a bearer token.
    #[arg(long, default_value = "", hide = true)]
    pub client_ca: String,
    /// ClusterOperator that the state is reported to; empty: none.
    #[arg(long = "writeStatusName", env = "OLM_WRITE_STATUS_NAME", default_value = "")]
    pub write_status_name: String,
    /// Release of OpenShift that the program comes with, which ClusterOperators show; its next minor version is the one
    /// that operators must support.
    #[arg(long, env = "RELEASE_VERSION", default_value = "")]
    pub release_version: String,
    /// Flags that every manager has.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `olm-operator`.
#[derive(Debug, Clone, clap::Args)]
pub struct OperatorArgs {
    /// Namespaces that keep copies of ClusterServiceVersions where copies are switched off, comma-separated.
    #[arg(
        long = "protectedCopiedCSVNamespaces",
        env = "OLM_PROTECTED_COPIED_CSV_NAMESPACES",
        value_delimiter = ','
    )]
    pub protected_copied_csv_namespaces: Vec<String>,
    /// ClusterOperator that the state of the packageserver is reported to; empty: none.
    #[arg(long = "writePackageServerStatusName", default_value = "")]
    pub write_package_server_status_name: String,
    /// Flags of all three programs.
    #[command(flatten)]
    pub classic: ClassicArgs,
}

/// Flags of `catalog-operator`.
#[derive(Debug, Clone, clap::Args)]
pub struct CatalogArgs {
    /// Options for fetching and serving catalogs.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Options for unpacking bundles and executing InstallPlans.
    #[command(flatten)]
    pub install: InstallArgs,
    /// Namespace of catalogd and operator-controller, for Subscriptions that an annotation moves to OLM v1.
    #[arg(long, env = "OLM_MANAGERS_NAMESPACE", default_value = olm_api::names::SYSTEM_NAMESPACE)]
    pub managers_namespace: String,
    /// Flags of all three programs.
    #[command(flatten)]
    pub classic: ClassicArgs,
}

impl CatalogArgs {
    /// The namespace whose catalogs are visible everywhere; `own` is that of the program.
    pub fn global_namespace<'a>(&'a self, own: &'a str) -> &'a str {
        let named = [&self.install.global_catalog_namespace, &self.classic.namespace];
        let named = named.into_iter().find(|name| !name.is_empty());
        named.map_or(own, String::as_str)
    }
}

/// Options for unpacking bundles and executing InstallPlans.
#[derive(Debug, Clone, clap::Args)]
pub struct InstallArgs {
    /// Namespace whose catalogs are visible everywhere; empty: `--namespace`.
    #[arg(long, env = "GLOBAL_CATALOG_NAMESPACE", default_value = "")]
    pub global_catalog_namespace: String,
    /// Time after which a bundle that is not unpacked is reported as failed; 0: never. An annotation of the
    /// OperatorGroup overrides it.
    #[arg(long, env = "OLM_BUNDLE_UNPACK_TIMEOUT", default_value = "10m")]
    pub bundle_unpack_timeout: String,
    /// Time for which a failing InstallPlan is retried. Failures that others can end, such as missing rights, are
    /// retried without end.
    #[arg(long, env = "OLM_INSTALL_PLAN_RETRY_TIMEOUT", default_value = "1m")]
    pub install_plan_retry_timeout: String,
    /// Writes CustomResourceDefinitions under `--classic-account` where the OperatorGroup names an account, too.
    #[arg(long, env = "OLM_CLASSIC_CRDS_AS_INSTALLER", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub classic_crds_as_installer: bool,
    /// Number of bundle images that are pulled at once.
    #[arg(long, env = "OLM_PULLS", default_value_t = 16)]
    pub pulls: usize,
    /// Number of these that may come from one registry.
    #[arg(long, env = "OLM_PULLS_PER_REGISTRY", default_value_t = 4)]
    pub pulls_per_registry: usize,
}

impl InstallArgs {
    /// Number of images that are pulled at once.
    pub fn pull_bounds(&self) -> Bounds {
        Bounds {
            total: self.pulls,
            each: self.pulls_per_registry,
        }
    }
}

/// Options for fetching and serving catalogs.
#[derive(Debug, Clone, clap::Args)]
pub struct RegistryArgs {
    /// Directory that holds the content of catalogs.
    #[arg(long, env = "OLM_CACHE_DIR", default_value = "/var/cache/classic")]
    pub cache_dir: PathBuf,
    /// Address of this Pod, at which clients reach the registries of CatalogSources; empty: the one that leads to the
    /// API server.
    #[arg(long, env = "POD_IP", default_value = "")]
    pub advertise_address: String,
    /// Registries that are reached over plain HTTP, `HOST[:PORT]`, comma-separated.
    #[arg(long, env = "OLM_PLAIN_HTTP_REGISTRIES", value_delimiter = ',')]
    pub plain_http_registries: Vec<String>,
    /// Limits for the download of an image.
    #[command(flatten)]
    pub limits: ImageLimitArgs,
    /// Accepted for compatibility: this program serves the ConfigMaps of CatalogSources itself.
    #[arg(
        long = "configmapServerImage",
        env = "OLM_CONFIGMAP_SERVER_IMAGE",
        default_value = "quay.io/operator-framework/configmap-operator-registry:latest"
    )]
    pub config_map_server_image: String,
    /// Image with `opm`, for registry Pods.
    #[arg(
        long = "opmImage",
        env = "OPERATOR_REGISTRY_IMAGE",
        default_value = "quay.io/operator-framework/opm:latest"
    )]
    pub opm_image: String,
    /// Image with `copy-content`, for registry Pods.
    #[arg(
        long = "util-image",
        env = "OLM_IMAGE",
        default_value = "quay.io/operator-framework/olm:latest"
    )]
    pub util_image: String,
    /// Runs registry Pods in restricted namespaces as user 1001.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub set_workload_user_id: bool,
}

/// Flags of `packageserver`.
#[derive(Debug, Clone, clap::Args)]
pub struct PackageArgs {
    /// Namespace whose catalogs every namespace sees; empty: that of OLM classic.
    #[arg(long, env = "OLM_GLOBAL_NAMESPACE", default_value = "")]
    pub global_namespace: String,
    /// Port of the API (HTTPS).
    #[arg(long, env = "OLM_SECURE_PORT", default_value_t = 5443)]
    pub secure_port: u16,
    /// Address of the API; empty: all addresses.
    #[arg(long, env = "OLM_BIND_ADDRESS", default_value = "")]
    pub bind_address: String,
    /// Directory with `apiserver.crt` and `apiserver.key`, which are served when they are there and no flag names
    /// others.
    #[arg(
        long,
        env = "OLM_CERT_DIR",
        default_value = "/apiserver.local.config/certificates"
    )]
    pub cert_dir: PathBuf,
    /// Certificate chain of the API, PEM; empty: `--tls-cert`, else that of `--cert-dir`, else one made for this
    /// process.
    #[arg(long, env = "OLM_TLS_CERT_FILE", default_value = "")]
    pub tls_cert_file: String,
    /// Private key of `--tls-cert-file`, PEM.
    #[arg(long, env = "OLM_TLS_PRIVATE_KEY_FILE", default_value = "")]
    pub tls_private_key_file: String,
    /// Authority of clients with certificates, PEM, instead of the one that the API server names.
    #[arg(long = "client-ca-file", env = "OLM_CLIENT_CA_FILE", default_value = "")]
    pub client_ca_file: String,
    /// Authority of the front proxy, PEM, instead of the one that the API server names.
    #[arg(long, env = "OLM_REQUESTHEADER_CLIENT_CA_FILE", default_value = "")]
    pub requestheader_client_ca_file: String,
    /// Names of the front proxy, comma-separated, instead of those that the API server names.
    #[arg(long, env = "OLM_REQUESTHEADER_ALLOWED_NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name, comma-separated, instead of those that the API server names.
    #[arg(long, env = "OLM_REQUESTHEADER_USERNAME_HEADERS", value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's UID, likewise.
    #[arg(long, env = "OLM_REQUESTHEADER_UID_HEADERS", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups, likewise.
    #[arg(long, env = "OLM_REQUESTHEADER_GROUP_HEADERS", value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with further facts about the user, likewise.
    #[arg(long, env = "OLM_REQUESTHEADER_EXTRA_HEADERS_PREFIX", value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,
    #[command(flatten)]
    served: ServedArgs,
    /// Flags of all three programs.
    #[command(flatten)]
    pub classic: ClassicArgs,
}

/// Flags that servers of aggregated APIs in Go have and that mean nothing here: the API server is always asked, its
/// answers count for 10 s, and `--tls-profile` says what TLS offers.
#[derive(Debug, Clone, clap::Args)]
struct ServedArgs {
    #[arg(long = "authentication-kubeconfig", hide = true)]
    _authentication_kubeconfig: Option<String>,
    #[arg(long = "authentication-skip-lookup", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _authentication_skip_lookup: Option<String>,
    #[arg(long = "authentication-token-webhook-cache-ttl", hide = true)]
    _authentication_token_webhook_cache_ttl: Option<String>,
    #[arg(long = "authentication-tolerate-lookup-failure", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _authentication_tolerate_lookup_failure: Option<String>,
    #[arg(long = "authorization-always-allow-paths", hide = true)]
    _authorization_always_allow_paths: Option<String>,
    #[arg(long = "authorization-kubeconfig", hide = true)]
    _authorization_kubeconfig: Option<String>,
    #[arg(long = "authorization-webhook-cache-authorized-ttl", hide = true)]
    _authorization_webhook_cache_authorized_ttl: Option<String>,
    #[arg(long = "authorization-webhook-cache-unauthorized-ttl", hide = true)]
    _authorization_webhook_cache_unauthorized_ttl: Option<String>,
    #[arg(long = "disable-http2-serving", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _disable_http2_serving: Option<String>,
    #[arg(long = "http2-max-streams-per-connection", hide = true)]
    _http2_max_streams_per_connection: Option<String>,
    #[arg(long = "permit-address-sharing", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _permit_address_sharing: Option<String>,
    #[arg(long = "permit-port-sharing", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _permit_port_sharing: Option<String>,
    #[arg(long = "tls-cipher-suites", hide = true)]
    _tls_cipher_suites: Option<String>,
    #[arg(long = "tls-min-version", hide = true)]
    _tls_min_version: Option<String>,
    #[arg(long = "tls-sni-cert-key", hide = true)]
    _tls_sni_cert_key: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_takes_the_flag_for_its_version() {
        for program in ["olm-operator", "catalog-operator", "packageserver"] {
            for (flags, expected) in [(&["--version"][..], true), (&[][..], false)] {
                let words = ["classic", program];
                let line = words.iter().chain(flags);
                let found = match Args::try_parse_from(line).unwrap().command {
                    Command::OlmOperator(args) => args.classic.version,
                    Command::CatalogOperator(args) => args.classic.version,
                    Command::Packageserver(args) => args.classic.version,
                    Command::Version => false,
                };
                assert_eq!(found, expected, "{program} {flags:?}");
            }
        }
    }

    #[test]
    fn the_packageserver_takes_the_flags_of_the_go_implementation() {
        let args = Args::try_parse_from([
            "classic",
            "packageserver",
            "-v=4",
            "--secure-port",
            "5444",
            "--global-namespace",
            "openshift-marketplace",
            "--interval=5m",
            "--debug",
            "--tls-cipher-suites=TLS_AES_128_GCM_SHA256",
            "--tls-min-version",
            "VersionTLS12",
            "--authentication-skip-lookup",
            "--requestheader-allowed-names=a,b",
        ]);
        let Command::Packageserver(args) = args.unwrap().command else {
            panic!("another program");
        };
        assert_eq!(args.secure_port, 5444);
        assert_eq!(args.global_namespace, "openshift-marketplace");
        assert_eq!(args.requestheader_allowed_names, ["a", "b"]);
        assert_eq!((args.classic.interval.as_str(), args.classic.debug), ("5m", true));
    }
}
