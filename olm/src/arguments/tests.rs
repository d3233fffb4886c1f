use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::Arguments;

#[test]
fn the_command_line_is_consistent() {
    super::command().debug_assert();
}

#[test]
fn the_words_of_kubectl_and_helm_lead_to_our_commands() {
    let command = super::command();
    for (word, expected) in [
        ("delete", "uninstall"),
        ("remove", "uninstall"),
        ("list", "get"),
        ("status", "get"),
        ("describe", "explain"),
    ] {
        let found = command.find_subcommand(word).map(clap::Command::get_name);
        assert_eq!(found, Some(expected), "{word}");
    }
}

/// A command and all below it, by their words.
fn with_subcommands(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
    found.push((words.to_owned(), command.clone()));
    for inner in command.get_subcommands().filter(|one| one.get_name() != "help") {
        with_subcommands(inner, &format!("{words} {}", inner.get_name()), found);
    }
}

#[test]
fn commands_on_a_cluster_share_their_options() {
    let command = super::command();
    let options = |word: &str| {
        let mut words = word.split(' ');
        let found = words.try_fold(&command, |group, word| group.find_subcommand(word));
        let found = found.unwrap();
        ["output", "dry-run", "wait"].map(|long| {
            let option = found.get_arguments().find(|one| one.get_long() == Some(long));
            option.map(|option| {
                let values = option.get_possible_values().into_iter();
                values
                    .map(|value| value.get_name().to_owned())
                    .collect::<Vec<_>>()
            })
        })
    };
    let formats = Some(["table", "json", "yaml", "name"].map(str::to_owned).to_vec());
    for (words, is_change, waits) in [
        (
            &[
                "events",
                "explain",
                "fleet plan",
                "get",
                "history",
                "inventory",
                "plan",
                "resolve",
                "search",
                "show",
                "updates",
            ][..],
            false,
            false,
        ),
        (&["mirror", "pause", "reject"], true, false),
        (
            &[
                "approve",
                "install",
                "migrate",
                "pin",
                "resume",
                "rollback",
                "uninstall",
                "unpin",
                "upgrade",
            ],
            true,
            true,
        ),
    ] {
        for word in words {
            let [output, dry_run, wait] = options(word);
            assert_eq!(output, formats, "{word}");
            assert_eq!((dry_run.is_some(), wait.is_some()), (is_change, waits), "{word}");
        }
    }
}

#[test]
fn every_help_has_an_example_that_is_understood() {
    let mut found = Vec::new();
    with_subcommands(&super::command(), "olm", &mut found);
    for (words, command) in found {
        let text = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let examples = text.split_once("Examples:\n").map(|(_, examples)| examples);
        let examples = examples.unwrap_or_default().replace("\\\n", " ");
        let lines = examples.lines();
        let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
        assert!(
            lines.iter().any(|line| line.starts_with(&words)),
            "{words}: {text}"
        );
        for line in lines {
            let block = format!("```sh\n{line}\n```\n");
            for example in commands(&block)
                .iter()
                .filter(|one| one.first().is_some_and(|name| name == "olm"))
            {
                let parsed = Arguments::try_parse_from(example);
                assert!(parsed.is_ok(), "{line}\n{}", parsed.unwrap_err());
            }
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    super::man(&directory.path().join("man1")).unwrap();
    let mut found = Vec::new();
    with_subcommands(&super::command(), "olm", &mut found);
    for (words, command) in found {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let page = directory.path().join("man1").join(words.replace(' ', "-") + ".1");
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        for part in [
            ".SH SYNOPSIS\n",
            ".SH EXAMPLES\n.nf\nolm",
            concat!("\"olm ", env!("CARGO_PKG_VERSION"), "\""),
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(!text.contains("EXTRA") && !text.contains("Examples:"), "{text}");
        assert_eq!(
            text.contains(".SH \"EXIT STATUS\"\n"),
            help.contains("Exit status: "),
            "{text}"
        );
    }
}

/// Every Markdown file below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// The commands of the blocks that begin with `sh`: each a list of words, without redirections.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut inside = false;
    let text = text.replace("\\\n", " ");
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line.starts_with("```sh");
        } else if inside {
            let mut words = words(line);
            words.push(";".to_owned());
            let mut command = Vec::new();
            let mut elsewhere = false;
            for word in words {
                match word.as_str() {
                    "|" | ";" | "&" | "&&" | "||" | "do" | "done" => {
                        found.push(std::mem::take(&mut command));
                        elsewhere = false;
                    }
                    ">" | "<" => elsewhere = true,
                    _ if !elsewhere => command.push(word),
                    _ => {}
                }
            }
        }
    }
    found
}

/// The words of a line, split as in a shell.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            (None, '|' | ';' | '&' | '>' | '<') => {
                words.extend(word.take());
                words.push(c.to_string());
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_in_the_docs_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = pages(&root.join("docs"));
    files.push(root.join("README.md"));
    let mut understood = 0;
    for file in files {
        for command in commands(&std::fs::read_to_string(&file).unwrap()) {
            if command.first().is_some_and(|name| name == "olm") {
                let parsed = Arguments::try_parse_from(&command);
                assert!(
                    parsed.is_ok(),
                    "{}: {command:?}\n{}",
                    file.display(),
                    parsed.unwrap_err()
                );
                understood += 1;
            }
        }
    }
    assert!(understood > 30, "{understood}");
}

#[test]
fn a_line_is_read_as_a_shell_reads_it() {
    let line = "for tag in a b; do olm x 'a b' \"$c\" > out; done # why";
    let words = words(line);
    assert_eq!(words[5..12], [";", "do", "olm", "x", "a b", "$c", ">"]);
    let commands = commands(&format!("```sh\n{line}\n```\n"));
    assert_eq!(commands[2], ["olm", "x", "a b", "$c"]);
}
