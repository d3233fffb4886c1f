//! The suggestion for a mistyped command: one visible name; and that for an option of kubectl.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use olm_fbc::similar::nearest;

/// Replaces clap's suggestions, which name aliases and put the best guess last. `words` are those of the command
/// line after the name of the program.
pub(super) fn with_one_suggestion<'w>(
    mut error: Error,
    root: &Command,
    words: impl IntoIterator<Item = &'w str>,
) -> Error {
    if error.kind() == ErrorKind::UnknownArgument {
        return without_value_tip(error, words.into_iter().next().unwrap_or_default());
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(mistyped)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let mut group = root;
    for word in words.into_iter().take_while(|word| word != mistyped) {
        group = group.find_subcommand(word).unwrap_or(group);
    }
    let suggestion = meant(mistyped, group).map(str::to_owned);
    error.remove(ContextKind::SuggestedSubcommand);
    if let Some(name) = suggestion {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(name));
    }
    error
}

/// Replaces clap's advice to pass an unknown option as a value, which no command takes. There is advice for options that
/// other commands have, and, where the command is about extensions, for those of kubectl.
fn without_value_tip(mut error: Error, command: &str) -> Error {
    if error.get(ContextKind::SuggestedArg).is_some() {
        return error;
    }
    error.remove(ContextKind::Suggested);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_about_files = ["bundle", "catalog", "crd", "image"].contains(&command);
    let tip = match option.as_str() {
        "-y" | "--yes" if !command.starts_with('-') => "this command does not ask",
        "-V" | "--version" if command == "pin" => "write `olm pin NAME VERSION`",
        _ if is_about_files => return error,
        "-A" | "--all-namespaces" | "-n" | "--namespace" => {
            "ClusterExtensions and ClusterCatalogs have no namespace"
        }
        "-w" | "--watch" => "`kubectl get clusterextensions -w` prints each change",
        "-l" | "--selector" => "`kubectl get clusterextensions -l` selects by label",
        _ => return error,
    };
    let tip = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tip);
    error
}

/// The command of a group that a word probably means: the only one that begins with it, otherwise the most similar.
fn meant<'c>(mistyped: &str, group: &'c Command) -> Option<&'c str> {
    let commands = group.get_subcommands().filter(|one| !one.is_hide_set());
    let names: Vec<&str> = commands.map(Command::get_name).collect();
    let mut longer = names.iter().filter(|name| name.starts_with(mistyped));
    match (longer.next(), longer.next()) {
        (Some(name), None) => Some(*name),
        _ => nearest(mistyped, names),
    }
}

#[cfg(test)]
mod tests {
    use super::with_one_suggestion;

    /// What is printed for a mistyped command line.
    fn printed(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let command = crate::arguments::command();
        let error = command.clone().try_get_matches_from(&words).unwrap_err();
        let words = words.into_iter().skip(1);
        with_one_suggestion(error, &command, words).to_string()
    }

    #[test]
    fn an_unknown_option_is_not_proposed_as_a_value() {
        for (line, tip) in [
            (
                "olm get -A",
                "tip: ClusterExtensions and ClusterCatalogs have no namespace\n",
            ),
            (
                "olm pause greeter -n x",
                "tip: ClusterExtensions and ClusterCatalogs have no namespace\n",
            ),
            ("olm pause greeter --yes", "tip: this command does not ask\n"),
            ("olm catalog push -y a b", "tip: this command does not ask\n"),
            (
                "olm pin greeter --version 1.1.0",
                "tip: write `olm pin NAME VERSION`\n",
            ),
            (
                "olm get -w",
                "tip: `kubectl get clusterextensions -w` prints each change\n",
            ),
        ] {
            let text = printed(line);
            assert!(
                text.contains(tip) && !text.contains("as a value"),
                "{line}: {text}"
            );
        }
        let text = printed("olm get -x");
        assert!(
            text.contains("unexpected argument '-x'") && !text.contains("tip:"),
            "{text}"
        );
        let text = printed("olm upgrade greeter --vesion 1");
        assert!(
            text.contains("tip: a similar argument exists: '--version'"),
            "{text}"
        );
    }

    #[test]
    fn one_visible_command_is_suggested() {
        for (line, name) in [
            ("olm instal", "install"),
            ("olm upgarde", "upgrade"),
            ("olm uninst", "uninstall"),
            ("olm catalog validat", "validate"),
        ] {
            let text = printed(line);
            let tip = format!("tip: a similar subcommand exists: '{name}'\n");
            assert!(text.contains(&tip), "{line}: {text}");
        }
        let text = printed("olm something-else");
        assert!(
            text.contains("unrecognized subcommand") && !text.contains("tip:"),
            "{text}"
        );
    }
}
