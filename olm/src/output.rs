//! What the program says, where, and with which status it ends.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::ValueEnum;

use crate::hint::hint;

/// Whether what was looked at is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is.
    Good,
    /// It is not, and that has been said.
    Bad,
}

/// How a verb ends: with a verdict, or unable to reach one.
pub(crate) type Outcome = anyhow::Result<Verdict>;

/// The form of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Report {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes what people read to standard output.
pub(crate) fn tell(text: &str) -> anyhow::Result<()> {
    print(&harmless(text))
}

/// Writes a line to standard error; there is nowhere to report it when that fails.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", harmless(text));
}

/// The text without what a terminal takes for a command: catalogs, bundles and registries have their say in it.
fn harmless(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_control() && letter != '\n' {
                ' '
            } else {
                letter
            }
        })
        .collect()
}

/// Writes a value as indented JSON.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// The status of the process; an error is shown with everything behind it.
pub(crate) fn conclude(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::FAILURE,
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = hint(&error);
            note(&format!("error: {}", told(&error, hint.as_deref())));
            if let Some(hint) = hint {
                note(&format!("hint: {hint}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// All causes but the hint. What the API server says is told in its own words; behind them is only how the client keeps them.
fn told(error: &anyhow::Error, hint: Option<&str>) -> String {
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
    use super::told;

    #[test]
    fn the_api_server_is_told_in_its_own_words() {
        let status = kube::core::Status::failure("user x may not do this", "Forbidden").boxed();
        let error = anyhow::Error::new(kube::Error::Api(status)).context("cannot change it");
        assert_eq!(told(&error, None), "cannot change it: user x may not do this");
        let error = anyhow::anyhow!("why").context("hint").context("what");
        assert_eq!(told(&error, Some("hint")), "what: why");
    }
}
