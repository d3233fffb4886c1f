//! Structured logs on standard error; the flags of klog are accepted.

use std::borrow::Cow;
use std::io;

use clap::Args;
use olm_text::{escape, escape_json};
use tracing_subscriber::EnvFilter;

/// How much is logged, and in which form.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Verbosity as klog counts it: 0 to 3 info, 4 and 5 debug, 6 and above trace.
    #[arg(
        short = 'v',
        long = "v",
        env = "OLM_LOG_VERBOSITY",
        default_value_t = 0,
        value_name = "N"
    )]
    pub verbosity: u8,
    /// Form of the lines: `json` for machines, `text` for people.
    #[arg(long, env = "OLM_LOG_FORMAT", default_value = "json", value_parser = ["json", "text"])]
    pub log_format: String,
    #[command(flatten)]
    klog: KlogArgs,
}

/// Flags of klog without a meaning here: logs go to standard error, and the platform stores them.
#[derive(Debug, Clone, Args)]
struct KlogArgs {
    #[arg(long = "add_dir_header", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _add_dir_header: Option<String>,
    #[arg(long = "alsologtostderr", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _alsologtostderr: Option<String>,
    #[arg(long = "alsologtostderrthreshold", hide = true)]
    _alsologtostderrthreshold: Option<String>,
    #[arg(long = "legacy_stderr_threshold_behavior", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _legacy_stderr_threshold_behavior: Option<String>,
    #[arg(long = "log_backtrace_at", hide = true)]
    _log_backtrace_at: Option<String>,
    #[arg(long = "log_dir", hide = true)]
    _log_dir: Option<String>,
    #[arg(long = "log_file", hide = true)]
    _log_file: Option<String>,
    #[arg(long = "log_file_max_size", hide = true)]
    _log_file_max_size: Option<String>,
    #[arg(long = "logtostderr", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _logtostderr: Option<String>,
    #[arg(long = "one_output", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _one_output: Option<String>,
    #[arg(long = "skip_headers", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _skip_headers: Option<String>,
    #[arg(long = "skip_log_headers", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    _skip_log_headers: Option<String>,
    #[arg(long = "stderrthreshold", hide = true)]
    _stderrthreshold: Option<String>,
    #[arg(long = "vmodule", hide = true)]
    _vmodule: Option<String>,
}

/// Starts logging; `RUST_LOG` overrides the verbosity. A second call changes nothing.
pub fn start(args: &LogArgs) {
    let level = match args.verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    // Libraries are chatty at info.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new(format!(
            "{level},hyper=warn,h2=warn,rustls=warn,tower=warn,kube=warn,kube_client=warn"
        ))
    });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let _ = if args.log_format == "text" {
        builder
            .with_writer(|| EscapingWriter::new(io::stderr(), escape))
            .try_init()
    } else {
        builder
            .with_writer(|| EscapingWriter::new(io::stderr(), escape_json))
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init()
    };
}

/// Writes a line without hidden characters: parts of it come from catalogs, bundles, registries and users.
struct EscapingWriter<W> {
    to: W,
    escape: fn(&str) -> Cow<'_, str>,
}

impl<W> EscapingWriter<W> {
    fn new(to: W, escape: fn(&str) -> Cow<'_, str>) -> Self {
        Self { to, escape }
    }
}

impl<W: io::Write> io::Write for EscapingWriter<W> {
    /// Writes `line`, which is a complete line, at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (&*text, ""),
        };
        self.to
            .write_all(format!("{}{end}", (self.escape)(text)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// An error with its causes on one line, outermost first, in the form for logs and conditions.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = message_of(error);
    let mut next = cause_of(error);
    while let Some(cause) = next {
        let said = message_of(cause);
        // Some libraries repeat their cause in their own text.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause_of(cause);
    }
    text
}

/// The cause of an error; `None` for an answer of the API server, whose message is complete.
fn cause_of<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e (dyn std::error::Error + 'static)> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if !status.message.is_empty() => None,
        _ => error.source(),
    }
}

/// The message of the error itself. For an answer of the API server it is the message of the server, because the client
/// adds its internal form.
fn message_of(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if !status.message.is_empty() => status.message.clone(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_line_has_no_hidden_characters() {
        let written = |escape: fn(&str) -> Cow<'_, str>, line: &str| {
            let mut out = Vec::new();
            EscapingWriter::new(&mut out, escape)
                .write_all(line.as_bytes())
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            written(escape, "a\nINFO forged\u{1b}[2J\u{202e}\n"),
            "a\\nINFO forged\\u001b[2J\\u202e\n"
        );
        assert_eq!(
            written(escape_json, "{\"message\":\"\u{9b}2J\u{e0041}\"}\n"),
            "{\"message\":\"\\u009b2J\\udb40\\udc41\"}\n"
        );
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write ConfigMap n/a")]
    struct Write(#[source] kube::Error);

    #[test]
    fn the_message_of_the_api_server_is_logged_once_and_without_the_debug_form() {
        let missing = kube::core::Status::failure("namespaces \"n\" not found", "NotFound").with_code(404);
        let error = Write(kube::Error::Api(Box::new(missing)));
        assert_eq!(
            chain(&error),
            "cannot write ConfigMap n/a: namespaces \"n\" not found"
        );
    }
}
