//! The two text formats of metrics.

use std::fmt::{self, Write as _};

/// A text format that scrapers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The older format of Prometheus.
    Prometheus,
}

impl TextFormat {
    /// The format for a client that accepts these media types, as in the header `Accept`.
    pub fn accepted(accept: &str) -> Self {
        let mut types = accept.split(',').filter_map(|one| one.split(';').next());
        if types.any(|one| one.trim().eq_ignore_ascii_case("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Text in OpenMetrics, in this format.
    pub(super) fn render(self, text: String) -> Result<String, fmt::Error> {
        match self {
            Self::OpenMetrics => Ok(text),
            Self::Prometheus => older(&text),
        }
    }
}

/// The older format: there, the name of a family of counters is that of its samples. It ends in `_total`, except where
/// the name is one of old that clients know.
fn older(text: &str) -> Result<String, fmt::Error> {
    let mut older = String::with_capacity(text.len());
    let mut help = None;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            continue;
        }
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            older.push_str(line);
            older.push('\n');
            continue;
        };
        let (suffix, kind) = match kind {
            "counter" => {
                let sample = lines.peek().and_then(|next| next.strip_prefix(name));
                let is_bare = sample.is_some_and(|rest| rest.starts_with([' ', '{']));
                (if is_bare { "" } else { "_total" }, kind)
            }
            "info" => ("_info", "gauge"),
            "unknown" => ("", "untyped"),
            _ => ("", kind),
        };
        if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
            writeln!(older, "# HELP {name}{suffix} {text}")?;
        }
        writeln!(older, "# TYPE {name}{suffix} {kind}")?;
    }
    Ok(older)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_open_metrics_only_where_it_accepts_it() {
        for (accept, expected) in [
            ("", TextFormat::Prometheus),
            ("*/*", TextFormat::Prometheus),
            ("text/plain;version=0.0.4", TextFormat::Prometheus),
            (
                "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5",
                TextFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(TextFormat::accepted(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn the_older_format_types_counters_by_the_name_of_their_samples() {
        let text = "# HELP a Some.\n# TYPE a counter\na_total{x=\"y\"} 1\n# HELP b More.\n# TYPE b gauge\nb 2\n\
                    # TYPE c unknown\nc 3\n# TYPE d counter\nd 4\n# EOF\n";
        let expected = "# HELP a_total Some.\n# TYPE a_total counter\na_total{x=\"y\"} 1\n# HELP b More.\n\
                        # TYPE b gauge\nb 2\n# TYPE c untyped\nc 3\n# TYPE d counter\nd 4\n";
        assert_eq!(TextFormat::Prometheus.render(text.to_owned()).unwrap(), expected);
        assert_eq!(TextFormat::OpenMetrics.render(text.to_owned()).unwrap(), text);
    }
}
