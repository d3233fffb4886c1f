//! Output, error messages and the exit status.

pub(crate) mod table;

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::ValueEnum;
use olm_api::names;
use olm_api::text::{escape_json, escape_lines};
use serde::Serialize;

use crate::hint::hint;

/// The result of a command that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Every check passed.
    Success,
    /// A check failed; the output says which.
    Failure,
    /// There would be changes, and the command reports them by its exit status.
    Changes,
    /// The wait ended because a user must act.
    Stalled,
    /// The wait timed out.
    TimedOut,
}

/// The exit status of [`Status::Changes`].
pub(crate) const CHANGES: u8 = 3;
/// The exit status of [`Status::Stalled`].
const STALLED: u8 = 4;
/// The exit status of [`Status::TimedOut`].
const TIMED_OUT: u8 = 5;

/// The colour of errors.
const RED: &str = "31";
/// The colour of hints.
const CYAN: &str = "36";

/// The result of a command.
pub(crate) type CommandResult = anyhow::Result<Status>;

/// The format of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// The format of the objects of a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectFormat {
    /// Human-readable table.
    #[default]
    #[value(aliases = ["text", "wide"])]
    Table,
    /// The result as JSON.
    Json,
    /// The result as YAML.
    Yaml,
    /// Names alone; those of objects as kubectl takes them.
    Name,
}

impl ObjectFormat {
    /// Writes a value in this format: its `names` one a line, for people as `text` makes it.
    pub(crate) fn print(
        self,
        value: &impl Serialize,
        names: impl IntoIterator<Item = String>,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self {
            Self::Table => print_text(&text()),
            Self::Json => print_json(&serde_json::to_value(value)?),
            Self::Yaml => print(&olm_yaml::to_yaml(&serde_json::to_value(value)?)),
            Self::Name => print_text(&names.into_iter().map(|name| name + "\n").collect::<String>()),
        }
    }
}

/// A resource of our API group and the name of an object, as kubectl takes them.
pub(crate) fn resource_name(resource: &str, name: &str) -> String {
    format!("{resource}.{}/{name}", names::GROUP)
}

/// Writes to standard output. A terminal gets no control characters.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let shown = if out.is_terminal() {
        escape_lines(text)
    } else {
        Cow::Borrowed(text)
    };
    out.write_all(shown.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes text for people to standard output, without hidden characters: parts of it come from catalogs, bundles and
/// registries.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    print(&escape_lines(text))
}

/// Writes a line to standard error; there is nowhere to report it when that fails.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape_lines(text));
}

/// Writes a line to standard error that begins with a label, on terminals in a colour.
fn labelled(label: &str, colour: &str, text: &str) {
    let mut out = io::stderr().lock();
    let is_coloured = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let label = coloured(label, colour, is_coloured);
    // As in `note`.
    let _ = writeln!(out, "{label}: {}", escape_lines(text));
}

/// A label in a colour, an SGR parameter.
fn coloured(label: &str, colour: &str, is_coloured: bool) -> String {
    if is_coloured {
        format!("\x1b[1;{colour}m{label}\x1b[0m")
    } else {
        label.to_owned()
    }
}

/// Writes a value as indented JSON.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print(&escape_json(&format!("{value:#}\n")))
}

/// The exit status of the process; prints an error with its causes and hint.
pub(crate) fn exit_code(result: CommandResult) -> ExitCode {
    match result {
        Ok(Status::Success) => ExitCode::SUCCESS,
        Ok(Status::Failure) => ExitCode::FAILURE,
        Ok(Status::Changes) => ExitCode::from(CHANGES),
        Ok(Status::Stalled) => ExitCode::from(STALLED),
        Ok(Status::TimedOut) => ExitCode::from(TIMED_OUT),
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = hint(&error);
            labelled("error", RED, &message(&error, hint.as_deref()));
            if let Some(hint) = hint {
                labelled("hint", CYAN, &hint);
            }
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes without the hint. The message of an answer of the API server is shown without the text of
/// the client.
pub(crate) fn message(error: &anyhow::Error, hint: Option<&str>) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            causes.push(status.message.clone());
            break;
        }
        let cause = cause.to_string();
        if Some(cause.as_str()) != hint && causes.last().is_none_or(|last| !last.contains(&cause)) {
            causes.push(cause);
        }
    }
    causes.join(": ")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::{RED, coloured, message};

    #[test]
    fn labels_are_coloured_on_terminals_only() {
        assert_eq!(coloured("error", RED, false), "error");
        assert_eq!(coloured("error", RED, true), "\u{1b}[1;31merror\u{1b}[0m");
    }

    #[test]
    fn an_answer_of_the_api_server_is_shown_as_it_is() {
        let status = kube::core::Status::failure("user x may not do this", "Forbidden").boxed();
        let error = anyhow::Error::new(kube::Error::Api(status)).context("cannot change it");
        assert_eq!(message(&error, None), "cannot change it: user x may not do this");
        let error = anyhow::anyhow!("why").context("hint").context("what");
        assert_eq!(message(&error, Some("hint")), "what: why");
    }
}
