//! Every setting once: a flag, a variable and a help text. The programs of OLM classic have the flags of the Go
//! implementation, of which some have no variable.

use std::collections::BTreeSet;

use clap::{ArgAction, Command, CommandFactory as _};

/// Checks the settings of a program, except those of others that it accepts and hides.
fn check(command: &Command) {
    let program = command.get_name();
    let mut variables = BTreeSet::new();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let name = argument.get_id();
        if matches!(argument.get_action(), ArgAction::Help | ArgAction::Version) {
            continue;
        }
        assert!(argument.get_long().is_some(), "{program}: {name} has no flag");
        assert!(argument.get_help().is_some(), "{program}: {name} has no help");
        let variable = argument.get_env().unwrap_or_default().to_string_lossy();
        assert!(!variable.is_empty(), "{program}: {name} has no variable");
        let is_new = variables.insert(variable.clone());
        assert!(is_new, "{program}: {variable} is read twice");
    }
    assert!(variables.len() > 10, "{program}: {variables:?}");
}

#[test]
fn every_setting_of_a_manager_is_a_flag_with_a_variable_and_a_help_text() {
    check(&catalogd::args::Args::command());
    check(&operator_controller::args::Args::command());
}
