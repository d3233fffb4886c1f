//! Advisories about our dependencies, from the table in the repository.

use anyhow::{Result, ensure};
use olm_test::dist::advisories::Table;
use olm_test::world::repository;

/// Versions with known vulnerabilities.
const VULNERABLE: &str = include_str!("vulnerable.lock");

fn read(name: &str) -> Result<String> {
    Ok(std::fs::read_to_string(repository().join(name))?)
}

#[test]
fn no_advisory_is_about_a_package_that_we_depend_on() -> Result<()> {
    let table = Table::read(&repository())?;
    if let Some(warning) = table.warning(jiff::Zoned::now().date())? {
        eprintln!("warning: {warning}");
    }
    let found = table.findings(&read("Cargo.lock")?, &read("deny.toml")?)?;
    let lines: String = found.iter().map(|finding| format!("{finding}\n")).collect();
    ensure!(
        found.is_empty(),
        "{lines}Run `cargo update` for these packages, or give the reason in deny.toml why they are no danger."
    );
    Ok(())
}

#[test]
fn each_vulnerable_version_of_a_lock_file_is_found() -> Result<()> {
    let found = Table::read(&repository())?.findings(VULNERABLE, &read("deny.toml")?)?;
    let said: Vec<String> = found.iter().map(ToString::to_string).collect();
    for expected in [
        "rustls 0.23.4: RUSTSEC-2024-0336, patched in >= 0.23.5 or >= 0.22.4, < 0.23.0 or >= 0.21.11, < 0.22.0",
        "tar 0.4.44: RUSTSEC-2026-0067, patched in >= 0.4.45",
        "tokio 1.8.0: RUSTSEC-2021-0072, patched in >= 1.5.1, < 1.6.0 or >= 1.6.3, < 1.7.0 or >= 1.7.2, < 1.8.0 or >= 1.8.1",
    ] {
        ensure!(
            said.iter().any(|line| line == expected),
            "{expected:?} is not in {said:#?}"
        );
    }
    // A patched version beside them, and a package of our own with the name of one that has advisories.
    ensure!(
        !said
            .iter()
            .any(|line| line.starts_with("h2 ") || line.starts_with("time ")),
        "{said:#?}"
    );
    Ok(())
}
