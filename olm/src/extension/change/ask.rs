//! The confirmation before an object is created or deleted.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::anyhow;

use crate::hint::Hint;
use crate::output::note;

/// Whether to continue: `is_agreed` is the option `--yes`. Without a terminal the command cannot ask.
pub(crate) fn agreed(question: &str, is_agreed: bool) -> anyhow::Result<bool> {
    if is_agreed {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        let error = anyhow!("cannot ask for confirmation: standard input is not a terminal");
        return Err(error.context(Hint("set --yes to continue without a question".to_owned())));
    }
    let mut out = io::stderr().lock();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let is_yes = is_yes(&answer);
    if !is_yes {
        note("nothing was changed");
    }
    Ok(is_yes)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_a_plain_yes_is_one() {
        for (answer, expected) in [
            ("y\n", true),
            (" YES \n", true),
            ("\n", false),
            ("", false),
            ("n", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
