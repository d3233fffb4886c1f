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
    /// Which program runs.
    #[command(subcommand)]
    pub command: Command,
}

/// A program of OLM classic.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Installs ClusterServiceVersions, and reconciles OperatorGroups, OperatorConditions, Operators and OLMConfig.
    OlmOperator(OperatorArgs),
    /// Serves CatalogSources, resolves Subscriptions, carries out InstallPlans.
    CatalogOperator(Box<CatalogArgs>),
    /// Serves PackageManifests as an aggregated API.
    Packageserver(PackageArgs),
    /// Prints the version.
    Version,
}

/// Flags of all three programs.
#[derive(Debug, Clone, clap::Args)]
pub struct ClassicArgs {
    /// Namespace of OLM classic; the same as `--system-namespace`.
    #[arg(long, env = "OLM_CLASSIC_NAMESPACE", default_value = "")]
    pub namespace: String,
    /// Service account that content is written under where the OperatorGroup names none, `NAMESPACE/NAME`. Without it such
    /// operators are not installed.
    #[arg(long, env = "OLM_CLASSIC_ACCOUNT")]
    pub classic_account: Option<AccountName>,
    /// How many objects are worked on at once.
    #[arg(long, env = "OLM_CONCURRENCY", default_value_t = 8)]
    pub concurrency: usize,
    /// Accepted for compatibility: objects are followed, and looked at again when they change.
    #[arg(long, default_value = "", hide = true)]
    pub interval: String,
    /// Accepted for compatibility: all namespaces are watched.
    #[arg(long = "watchedNamespaces", default_value = "", hide = true)]
    pub watched_namespaces: String,
    /// Logs more, like `--log-level=debug`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub debug: bool,
    /// Accepted for compatibility; there is no profiling port.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", hide = true)]
    pub profiling: bool,
    /// Accepted for compatibility; metrics are for those whom the API server admits.
    #[arg(long, default_value = "", hide = true)]
    pub client_ca: String,
    /// ClusterOperator that the state is reported to; empty: none.
    #[arg(long = "writeStatusName", env = "OLM_WRITE_STATUS_NAME", default_value = "")]
    pub write_status_name: String,
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
    /// How catalogs are fetched and served.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// How bundles are unpacked and InstallPlans carried out.
    #[command(flatten)]
    pub install: InstallArgs,
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

/// How bundles are unpacked and InstallPlans carried out.
#[derive(Debug, Clone, clap::Args)]
pub struct InstallArgs {
    /// Namespace whose catalogs are visible everywhere; empty: `--namespace`.
    #[arg(long, env = "GLOBAL_CATALOG_NAMESPACE", default_value = "")]
    pub global_catalog_namespace: String,
    /// Time after which a bundle that is not unpacked is reported as failed; 0: never. An annotation of the OperatorGroup
    /// overrides it.
    #[arg(long, env = "OLM_BUNDLE_UNPACK_TIMEOUT", default_value = "10m")]
    pub bundle_unpack_timeout: String,
    /// Time for which a failing InstallPlan is tried again. What others can end, such as missing rights, is tried until then.
    #[arg(long, env = "OLM_INSTALL_PLAN_RETRY_TIMEOUT", default_value = "1m")]
    pub install_plan_retry_timeout: String,
    /// Writes CustomResourceDefinitions under `--classic-account` where the OperatorGroup names an account, too.
    #[arg(long, env = "OLM_CLASSIC_CRDS_AS_INSTALLER", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub classic_crds_as_installer: bool,
    /// How many images of bundles are pulled at once.
    #[arg(long, env = "OLM_PULLS", default_value_t = 16)]
    pub pulls: usize,
    /// How many of these may come from one registry.
    #[arg(long, env = "OLM_PULLS_PER_REGISTRY", default_value_t = 4)]
    pub pulls_per_registry: usize,
}

impl InstallArgs {
    /// How many images are pulled at once.
    pub fn pull_bounds(&self) -> Bounds {
        Bounds {
            total: self.pulls,
            each: self.pulls_per_registry,
        }
    }
}

/// How catalogs are fetched and served.
#[derive(Debug, Clone, clap::Args)]
pub struct RegistryArgs {
    /// Directory that holds the content of catalogs.
    #[arg(long, env = "OLM_CACHE_DIR", default_value = "/var/cache/classic")]
    pub cache_dir: PathBuf,
    /// Address of this Pod, at which clients reach the registries of CatalogSources; empty: the one that leads to the API
    /// server.
    #[arg(long, env = "POD_IP", default_value = "")]
    pub advertise_address: String,
    /// Registries that are reached over plain HTTP, `HOST[:PORT]`, comma-separated.
    #[arg(long, env = "OLM_PLAIN_HTTP_REGISTRIES", value_delimiter = ',')]
    pub plain_http_registries: Vec<String>,
    /// What an image may cost.
    #[command(flatten)]
    pub limits: ImageLimitArgs,
    /// Image of registry Pods that serve a ConfigMap; such Pods are made on request only.
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
    /// Flags of all three programs.
    #[command(flatten)]
    pub classic: ClassicArgs,
}
