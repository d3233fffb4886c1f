//! Completions for `kubectl olm <TAB>`: kubectl runs `kubectl_complete-olm` with the words so far. The last one is
//! incomplete.

use std::fmt::Write as _;

use clap::{Arg, Command, ValueHint};

/// The line that disables kubectl's own completion of file names.
const NO_FILES: &str = ":4\n";
/// The line after which it completes files.
const FILES: &str = ":0\n";

/// The names of values that are never files.
const NEVER_FILES: [&str; 29] = [
    "ALERT",
    "CEL",
    "CHANNEL",
    "CHECK",
    "DEFAULT_CHANNEL",
    "DIGEST",
    "EXTENSION",
    "HOST",
    "KEY=VALUE",
    "LEVEL",
    "MIB",
    "NAME",
    "NAME=NUMBER",
    "NAMESPACE",
    "NAMESPACE/NAME",
    "NUMBER",
    "PACKAGE",
    "PACKAGE[@RANGE]",
    "PATTERN",
    "POLICY",
    "RANGE",
    "SUBJECT",
    "SUBSCRIPTION",
    "TEXT",
    "TIME",
    "TYPE",
    "URL",
    "VERSION",
    "WORDS",
];

/// Tells the shells which arguments are no files, in all commands.
pub(super) fn without_files(command: Command) -> Command {
    let hinted = |argument: Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        // Without a name of its own, a value has that of its argument.
        let id = argument.get_id().as_str().to_uppercase();
        let name = names.first().map_or(id.as_str(), |name| name.as_str());
        if NEVER_FILES.contains(&name) {
            argument.value_hint(ValueHint::Other)
        } else {
            argument
        }
    };
    command.mut_args(hinted).mut_subcommands(without_files)
}

/// The possible values of the last word, each on a line with its description, and a directive for kubectl.
pub(super) fn for_kubectl(mut root: Command, words: &[String]) -> String {
    root.build();
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last, before));
    let (mut command, mut after) = (&root, before);
    for (at, word) in before.iter().enumerate() {
        if let Some(found) = command.find_subcommand(word) {
            command = found;
            after = before.get(at + 1..).unwrap_or_default();
        }
    }
    let mut found: Vec<(String, String)> = Vec::new();
    // The value is the last word, or follows the option in it: `--output=ya`.
    // The shells put the option before the values themselves.
    let (named, begun) = match last.split_once('=') {
        Some((named, begun)) if named.starts_with("--") => (Some(named), begun),
        _ => (before.last().map(String::as_str), last),
    };
    let wanted = named.and_then(|word| option(command, word));
    let wanted = wanted.filter(|wanted| wanted.get_action().takes_values());
    if let Some(wanted) = wanted {
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
    let argument = wanted.or_else(|| positional(command, after));
    let may_be_file = argument.is_some_and(|argument| argument.get_value_hint() != ValueHint::Other);
    let completes_files = found.is_empty() && may_be_file;
    let mut text = String::new();
    for (value, help) in found.iter().filter(|(value, _)| value.starts_with(begun)) {
        let line = help.lines().next().unwrap_or_default();
        let _ = writeln!(text, "{value}\t{line}");
    }
    text + if completes_files { FILES } else { NO_FILES }
}

/// The positional argument that follows these words of a command; the last one may have several values.
fn positional<'c>(command: &'c Command, words: &[String]) -> Option<&'c Arg> {
    let (mut at, mut is_value) = (0, false);
    for word in words {
        if is_value {
            is_value = false;
        } else if word.starts_with('-') && word != "-" {
            is_value = option(command, word).is_some_and(|option| option.get_action().takes_values());
        } else {
            at += 1;
        }
    }
    command.get_positionals().take(at + 1).last()
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
    use super::for_kubectl;
    use crate::arguments::command;

    fn completed(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for_kubectl(command(), &words)
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
        assert_eq!(completed("mirror ./cat green"), ":4\n");
        assert_eq!(completed("mirror --to ./mir"), ":0\n");
        assert_eq!(completed("catalog render a "), ":0\n");
        for line in [
            "explain ",
            "get gr",
            "show ",
            "rbac gr",
            "plan -o json gr",
            "get --namespace ",
            "inventory ",
        ] {
            assert_eq!(completed(line), ":4\n", "{line}");
        }
        assert!(completed("").lines().count() > 20);
    }
}
