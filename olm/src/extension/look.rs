//! Read-only commands that show ClusterExtensions, and the runbooks of alerts about them.

pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod runbook;

use clap::ValueEnum;
use jiff::Timestamp;
use olm_api::Time;
use serde::Serialize;
use serde_json::json;

use crate::output::{print, print_json, print_text};

/// The text of an empty cell.
pub(crate) const NONE: &str = "-";

/// The output format of a list of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResourceListFormat {
    /// Columns, for people.
    #[default]
    Table,
    /// A List for programs; the object itself where one is named.
    Json,
    /// The same for both.
    Yaml,
    /// Kind and name alone.
    Name,
}

impl ResourceListFormat {
    /// Prints objects; `names` are those that kubectl takes, `table` is for people.
    fn print<T: Serialize>(
        self,
        objects: &[T],
        is_one: bool,
        names: impl Iterator<Item = String>,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let value = || match objects {
            [one] if is_one => serde_json::to_value(one),
            all => Ok(json!({"apiVersion": "v1", "kind": "List", "items": serde_json::to_value(all)?})),
        };
        match self {
            Self::Table => print_text(&table()),
            Self::Json => print_json(&value()?),
            Self::Yaml => print(&olm_yaml::to_yaml(&value()?)),
            Self::Name => print_text(&names.map(|name| name + "\n").collect::<String>()),
        }
    }
}

/// The longest line of a message in an overview, in characters.
const MAX_LINE: usize = 160;

/// The first line of a message, truncated if it is long.
pub(crate) fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_LINE) {
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
        assert_eq!(first_line("a\nb"), "a");
        let cut = first_line(&"é".repeat(MAX_LINE + 1));
        assert_eq!(cut.chars().count(), MAX_LINE + 1);
        assert!(cut.ends_with("é…"), "{cut}");
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
