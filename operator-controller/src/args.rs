//! The command line: flag = environment variable.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use olm_api::names;
use olm_image::Bounds;
use olm_platform::args::{CommonArgs, ImageLimitArgs};
use olm_platform::features::FeatureGates;

use crate::catalogs::Token;
use crate::extension::context::Gates;
use olm_cluster::identity::AccountName;

/// Installs the bundles that ClusterExtensions ask for, under service accounts that their owners name.
///
/// A ClusterExtension is resolved against the ClusterCatalogs on the cluster; the chosen bundle becomes a
/// ClusterObjectSet, a revision that is applied phase by phase, watched and repaired. Nothing of a bundle is written
/// with the controller's own rights.
#[derive(Debug, Clone, Parser)]
#[command(name = "operator-controller", args_override_self = true)]
pub struct Args {
    /// Service account of extensions that name none, `NAMESPACE/NAME`; without it such extensions are blocked.
    #[arg(long, env = "OLM_DEFAULT_SERVICE_ACCOUNT")]
    pub default_service_account: Option<AccountName>,
    /// ClusterCatalogs of extensions that select none, comma-separated. Without it the first installation may come from
    /// any, and its upgrades from the same.
    #[arg(long, env = "OLM_DEFAULT_CATALOGS", value_delimiter = ',')]
    pub default_catalogs: Vec<String>,
    /// Directory with further certificate authorities for catalogd, PEM; the authority of catalogd is always
    /// trusted.
    #[arg(long, env = "OLM_CATALOGD_CAS_DIR", default_value = "")]
    pub catalogd_cas_dir: String,
    /// File with a bearer token for a catalogd that serves its content only to clients with a token; empty: no token.
    #[arg(long, env = "OLM_CATALOGD_TOKEN_FILE", default_value = "")]
    pub catalogd_token_file: String,
    /// The only address that gets the token, `HOST[:PORT]`; empty: the Service of catalogd in the system namespace.
    #[arg(long, env = "OLM_CATALOGD_ADDRESS", default_value = "")]
    pub catalogd_address: String,
    /// Directory in which bundles are kept. It may be emptied at any time.
    #[arg(
        long,
        env = "OLM_CACHE_PATH",
        default_value = "/var/cache/operator-controller"
    )]
    pub cache_path: PathBuf,
    /// Registries that are reached over plain HTTP, `HOST[:PORT]`, comma-separated.
    #[arg(long, env = "OLM_PLAIN_HTTP_REGISTRIES", value_delimiter = ',')]
    pub plain_http_registries: Vec<String>,
    /// Limits for the download of an image.
    #[command(flatten)]
    pub limits: ImageLimitArgs,
    /// Number of extensions that are reconciled at once.
    #[arg(long, env = "OLM_CONCURRENCY", default_value_t = 8)]
    pub concurrency: usize,
    /// Number of bundle images that are pulled at once.
    #[arg(long, env = "OLM_PULLS", default_value_t = 16)]
    pub pulls: usize,
    /// Number of these that may come from one registry.
    #[arg(long, env = "OLM_PULLS_PER_REGISTRY", default_value_t = 4)]
    pub pulls_per_registry: usize,
    /// Seconds that one run spends on the migration of stored versions of a CRD; the next run continues there. 0: one
    /// page of objects.
    #[arg(long, env = "OLM_STORAGE_MIGRATION_SECONDS", default_value_t = 60)]
    pub storage_migration_seconds: u32,
    /// A command instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags that both managers have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// A command instead of running.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum Command {
    /// Print the version.
    Version,
}

const SINGLE_NAMESPACE: &str = "SingleOwnNamespaceInstallSupport";
const CERT_MANAGER: &str = "WebhookProviderCertManager";
const SERVICE_CA: &str = "WebhookProviderOpenshiftServiceCA";
const DEPLOYMENT_CONFIG: &str = "DeploymentConfig";
const RELEASES: &str = "BundleReleaseSupport";
/// Accepted; there is no other way to apply here.
const BOXCUTTER: &str = "BoxcutterRuntime";

impl Args {
    /// Whether only the version is asked for.
    pub fn wants_version(&self) -> bool {
        matches!(self.command, Some(Command::Version))
    }

    /// The feature gates. All are on unless switched off. The second value contains the unknown gates, for a warning.
    pub fn gates(&self) -> (Gates, FeatureGates) {
        let known = [
            SINGLE_NAMESPACE,
            CERT_MANAGER,
            SERVICE_CA,
            DEPLOYMENT_CONFIG,
            RELEASES,
            BOXCUTTER,
        ]
        .map(|g| (g, true));
        let gates = FeatureGates::parse(&known, &self.common.feature_gates);
        let of = |name| gates.enabled(name);
        let switched = Gates {
            single_namespace: of(SINGLE_NAMESPACE),
            cert_manager: of(CERT_MANAGER),
            service_ca: of(SERVICE_CA),
            deployment_config: of(DEPLOYMENT_CONFIG),
            releases: of(RELEASES),
        };
        (switched, gates)
    }

    /// The directory of catalogd's authorities when given.
    pub fn catalogd_authorities(&self) -> Option<PathBuf> {
        directory(&self.catalogd_cas_dir)
    }

    /// The sources of images, and the policy that they must meet.
    pub fn places(&self) -> olm_image::Settings {
        olm_image::Settings {
            registries: self.common.registries_file(),
            policy: self.common.policy_file(),
            plain_http: self.plain_http_registries.clone(),
        }
    }

    /// The limits for concurrent pulls of images.
    pub fn pull_bounds(&self) -> Bounds {
        Bounds {
            total: self.pulls,
            each: self.pulls_per_registry,
        }
    }

    /// The token to show to catalogd, which is in this namespace unless a flag says otherwise.
    pub fn catalogd_token(&self, namespace: &str) -> Option<Token> {
        let file = directory(&self.catalogd_token_file)?;
        let service = format!("{}.{namespace}.svc", names::CATALOGD_SERVICE);
        let address = Some(self.catalogd_address.as_str()).filter(|address| !address.is_empty());
        Some(Token::new(file, address.unwrap_or(&service)))
    }

    /// The directory of registries' authorities when given.
    pub fn registry_authorities(&self) -> Option<PathBuf> {
        directory(&self.common.pull_cas_dir)
    }
}

fn directory(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_the_reference_is_understood() {
        let args = Args::parse_from([
            "operator-controller",
            "--health-probe-bind-address=:8081",
            "--metrics-bind-address=:8443",
            "--leader-elect",
            "--catalogd-cas-dir=/var/ca-certs",
            "--pull-cas-dir=/var/ca-certs",
            "--tls-cert=/var/certs/tls.crt",
            "--tls-key=/var/certs/tls.key",
            "--cache-path=/tmp/c",
            "--system-namespace=olmv1-system",
            "--global-pull-secret=openshift-config/pull-secret",
            "--feature-gates=WebhookProviderCertManager=false,Removed=true",
            "--feature-gates=BoxcutterRuntime=true",
            "-v=2",
        ]);
        let (gates, all) = args.gates();
        assert!(!gates.cert_manager && gates.service_ca && gates.single_namespace);
        assert_eq!(all.ignored, ["Removed=true"]);
        assert_eq!(args.catalogd_authorities(), Some("/var/ca-certs".into()));
        assert!(Args::parse_from(["operator-controller", "version"]).wants_version());
    }

    #[test]
    fn a_token_is_for_the_service_of_catalogd_unless_a_flag_says_otherwise() {
        let token =
            |arguments: &[&str]| Args::parse_from(["o"].iter().chain(arguments)).catalogd_token("system");
        assert_eq!(token(&[]), None);
        let file = "--catalogd-token-file=/token";
        let expected = Token::new("/token".into(), "catalogd-service.system.svc:443");
        assert_eq!(token(&[file]), Some(expected));
        let expected = Token::new("/token".into(), "catalogd.example");
        assert_eq!(
            token(&[file, "--catalogd-address=catalogd.example"]),
            Some(expected)
        );
    }

    #[test]
    fn a_default_account_has_a_namespace_and_a_name() {
        let parse = |value: &str| Args::try_parse_from(["o", &format!("--default-service-account={value}")]);
        assert_eq!(
            parse("a/b").unwrap().default_service_account.unwrap().to_string(),
            "a/b"
        );
        assert!(parse("a").is_err());
    }
}
