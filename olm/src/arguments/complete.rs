//! Completions for `kubectl olm <TAB>`: kubectl runs `kubectl_complete-olm` with the words so far. The last one is
//! incomplete.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// The line that disables kubectl's own completion of file names.
const NO_FILES: &str = ":4\n";
/// The line after which it completes files.
const FILES: &str = ":0\n";

/// The possible values of the last word, each on a line with its description, and a directive for kubectl.
pub(super) fn for_kubectl(mut root: Command, words: &[String]) -> String {
    root.build();
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last, before));
    let mut command = &root;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let mut found: Vec<(String, String)> = Vec::new();
    // The value is the last word, or follows the option in it: `--output=ya`.
    // The shells put the option before the values themselves.
    let (named, begun) = match last.split_once('=') {
        Some((named, begun)) if named.starts_with("--") => (Some(named), begun),
        _ => (before.last().map(String::as_str), last),
    };
    let wanted = named.and_then(|word| option(command, word));
    if let Some(wanted) = wanted.filter(|wanted| wanted.get_action().takes_values()) {
        let values = wanted.get_possible_values();
        found.extend(values.iter().filter(|value| !value.is_hide_set()).map(|value| {
            let help = value.get_help().map(ToString::to_string);
            (value.get_name().to_owned(), help.unwrap_or_default())
        }));
    } else if last.starts_with('-') {
        let options = command.get_arguments().filter(|option| !option.is_hide_set());
        found.extend(options.filter_map(|option| {
            let help = option.get_help().map(ToString::to_string);
            Some((format!("--{}", option.get_long()?), help.unwrap_or_default()))
        }));
    } else {
        let commands = command.get_subcommands().filter(|one| !one.is_hide_set());
        found.extend(commands.map(|one| {
            let about = one.get_about().map(ToString::to_string);
            (one.get_name().to_owned(), about.unwrap_or_default())
        }));
    }
    let has_own = !found.is_empty();
    let mut text = String::new();
    for (value, help) in found.iter().filter(|(value, _)| value.starts_with(begun)) {
        let line = help.lines().next().unwrap_or_default();
        let _ = writeln!(text, "{value}\t{line}");
    }
    text + if has_own { NO_FILES } else { FILES }
}

/// The option with the name in a word.
fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').filter(|short| short.chars().count() == 1);
    command.get_arguments().find(|option| match (long, short) {
        (Some(long), _) => option.get_long() == Some(long),
        (None, Some(short)) => option.get_short().is_some_and(|own| short.starts_with(own)),
        (None, None) => false,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::for_kubectl;
    use crate::arguments::Arguments;

    fn completed(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for_kubectl(Arguments::command(), &words)
    }

    #[test]
    fn commands_options_and_values_are_completed() {
        assert_eq!(
            completed("upg"),
            "upgrade\tUpgrade a ClusterExtension to a newer version\n:4\n"
        );
        assert_eq!(
            completed("catalog va"),
            "validate\tCheck a catalog and report every error and warning\n:4\n"
        );
        let options = completed("fleet plan --exit");
        assert!(options.starts_with("--exit-code\t"), "{options}");
        let forms = completed("get -o ");
        assert!(
            forms.starts_with("table\t") && forms.contains("\nyaml\t"),
            "{forms}"
        );
        let forms = completed("catalog diff --fail-on=b");
        assert!(forms.starts_with("breaking\t"), "{forms}");
        assert_eq!(completed("mirror ./cat"), ":0\n");
        assert!(completed("").lines().count() > 20);
    }
}
