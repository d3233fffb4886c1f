//! Read-only commands that show ClusterExtensions, the versions of the managers, and the runbooks of alerts.

pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod runbook;
pub(crate) mod version;

use std::io::IsTerminal as _;

use jiff::Timestamp;
use olm_api::Time;
use serde::Serialize;
use serde_json::{Value, json};

/// The text of an empty cell.
pub(crate) const NONE: &str = "-";

/// Objects as kubectl prints them: one that is named, else a List.
fn list<T: Serialize>(objects: &[T], is_one: bool) -> anyhow::Result<Value> {
    match objects {
        [one] if is_one => Ok(serde_json::to_value(one)?),
        all => Ok(json!({"apiVersion": "v1", "kind": "List", "items": serde_json::to_value(all)?})),
    }
}

/// The longest line of a message in an overview, in characters.
pub(crate) const MAX_LINE: usize = 160;

/// The longest line of a message on standard output, in characters. Only terminals have a limit.
fn max_line() -> usize {
    if std::io::stdout().is_terminal() {
        MAX_LINE
    } else {
        usize::MAX
    }
}

/// The first line of a message, with at most so many characters.
pub(crate) fn first_line(message: &str, characters: usize) -> String {
    truncated(message.lines().next().unwrap_or_default(), characters)
}

/// A line with at most so many characters.
pub(crate) fn truncated(line: &str, characters: usize) -> String {
    match line.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// The age of an event in the format of kubectl.
pub(crate) fn age(time: Option<&Time>, now: Timestamp) -> String {
    let Some(time) = time else {
        return NONE.to_owned();
    };
    let seconds = now.as_second().saturating_sub(time.0.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut() {
        assert_eq!(first_line("a\nb", MAX_LINE), "a");
        let cut = first_line(&"é".repeat(MAX_LINE + 1), MAX_LINE);
        assert_eq!(cut.chars().count(), MAX_LINE + 1);
        assert!(cut.ends_with("é…"), "{cut}");
        assert_eq!(first_line(&"é".repeat(999), usize::MAX).chars().count(), 999);
    }

    #[test]
    fn ages_have_one_unit() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let begin = Time(at(0));
        for (now, expected) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
            (-3, "0s"),
        ] {
            assert_eq!(age(Some(&begin), at(now)), expected);
        }
        assert_eq!(age(None, at(0)), "-");
    }
}
