//! The command line: flag = environment variable.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use olm_platform::args::{CommonArgs, ImageLimitArgs};

/// Unpacks the catalog images that ClusterCatalogs name and serves their content over HTTPS.
#[derive(Debug, Clone, Parser)]
#[command(name = "catalogd", args_override_self = true)]
pub struct Args {
    /// Address of the port that serves catalogs.
    #[arg(long, env = "OLM_CATALOGS_SERVER_ADDR", default_value = ":8443")]
    pub catalogs_server_addr: String,
    /// Host name, and port unless it is 443, under which clients reach that port; it becomes part of `status.urls`.
    #[arg(
        long,
        env = "OLM_EXTERNAL_ADDRESS",
        default_value = "catalogd-service.olmv1-system.svc"
    )]
    pub external_address: String,
    /// Directory that holds the content of catalogs. What it holds is served at once after a restart.
    #[arg(long, env = "OLM_CACHE_DIR", default_value = "/var/cache/catalogd")]
    pub cache_dir: PathBuf,
    /// Time between two rounds of freeing space that belongs to no ClusterCatalog, such as `12h` or `30m`.
    #[arg(long, env = "OLM_GC_INTERVAL", default_value = "12h", value_parser = duration)]
    pub gc_interval: Duration,
    /// Registries that are reached over plain HTTP, `HOST[:PORT]`, comma-separated.
    #[arg(long, env = "OLM_PLAIN_HTTP_REGISTRIES", value_delimiter = ',')]
    pub plain_http_registries: Vec<String>,
    /// Require a bearer token for the audience `catalogd.olm.operatorframework.io` and the right to `get`
    /// `clustercatalogs/content` of the catalog.
    #[arg(long, env = "OLM_CONTENT_AUTHENTICATION", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub content_authentication: bool,
    /// Limits for the download of an image.
    #[command(flatten)]
    pub limits: ImageLimitArgs,
    /// Accepted for compatibility; there is no webhook.
    #[arg(long, env = "OLM_WEBHOOK_SERVER_PORT", default_value_t = 9443, hide = true)]
    pub webhook_server_port: u16,
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

impl Args {
    /// Whether only the version is asked for.
    pub fn wants_version(&self) -> bool {
        matches!(self.command, Some(Command::Version))
    }
}

/// Reads a positive duration in the format of Go: numbers with units, `1h30m`, `90s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = olm_text::duration::parse(text)
        .ok()
        .and_then(|length| u64::try_from(length).ok());
    nanoseconds
        .filter(|length| *length > 0)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{text}` is not a duration such as `12h`, `30m` or `90s`"))
}

#[cfg(test)]
mod tests {
    use olm_image::Limits;

    use super::*;

    #[test]
    fn every_limit_of_an_image_has_a_flag() {
        let check = |flag: &str, expected: fn(&mut Limits)| {
            let args = Args::parse_from(["catalogd", &format!("--image-max-{flag}=7")]);
            let mut limits = Limits::catalog();
            expected(&mut limits);
            assert_ne!(limits, Limits::catalog(), "{flag}");
            assert_eq!(Limits::catalog().with(args.limits.given()), limits, "{flag}");
            assert!(Args::try_parse_from(["catalogd", &format!("--image-max-{flag}=0")]).is_err());
        };
        check("manifest-bytes", |limits| limits.manifest_bytes = 7);
        check("config-bytes", |limits| limits.config_bytes = 7);
        check("layers", |limits| limits.layers = 7);
        check("entries", |limits| limits.entries = 7);
        check("transfer-bytes", |limits| limits.transfer_bytes = 7);
        check("unpacked-bytes", |limits| limits.unpacked_bytes = 7);
        check("kept-bytes", |limits| limits.kept_bytes = 7);
        check("file-bytes", |limits| limits.file_bytes = 7);
        check("ratio", |limits| limits.ratio = 7);
        check("depth", |limits| limits.depth = 7);
        check("name-bytes", |limits| limits.name_bytes = 7);
        check("path-bytes", |limits| limits.path_bytes = 7);
        check("paths-bytes", |limits| limits.paths_bytes = 7);
        check("seconds", |limits| limits.time = Duration::from_secs(7));
        let none = Args::parse_from(["catalogd"]);
        assert_eq!(Limits::catalog().with(none.limits.given()), Limits::catalog());
    }

    #[test]
    fn times_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("12h", 43_200),
            ("1h30m", 5_400),
            ("90s", 90),
            ("1.5h", 5_400),
            ("1m1s", 61),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "12", "h", "1d", "-1h", "0s", "1h ", "9999999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_of_the_reference_is_understood() {
        let args = Args::parse_from([
            "catalogd",
            "--leader-elect",
            "--metrics-bind-address=:7443",
            "--external-address=catalogd-service.olmv1-system.svc",
            "--tls-cert=/var/certs/tls.crt",
            "--tls-key=/var/certs/tls.key",
            "--pull-cas-dir=/var/ca-certs",
            "--global-pull-secret=openshift-config/pull-secret",
            "--feature-gates=APIV1MetasHandler=true",
            "--webhook-server-port=9443",
            "--gc-interval=1h",
            "--v=4",
        ]);
        assert_eq!(args.gc_interval, Duration::from_hours(1));
        assert_eq!(args.catalogs_server_addr, ":8443");
        assert!(!args.wants_version());
        assert!(Args::parse_from(["catalogd", "version"]).wants_version());
        // The last of repeated flags counts, so that one can be appended to those of a manifest.
        let twice = Args::parse_from([
            "catalogd",
            "--leader-elect",
            "--leader-elect=false",
            "--gc-interval=1h",
            "--gc-interval=2h",
        ]);
        assert!(!twice.common.leader_elect && twice.gc_interval == Duration::from_hours(2));
    }
}
