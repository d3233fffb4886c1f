//! `conformance DIR [FILE…]`: runs recorded cases; prints `FILE: N passed, N failed` for each file and a closing
//! `N passed, N failed`; fails when a case does.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Runs recorded cases of the reference implementation's behaviour against this project's own code.
#[derive(Parser)]
struct Arguments {
    /// The directory of cases, one JSON file a suite.
    dir: PathBuf,
    /// Only implemented suites; all of them if no file is given.
    #[arg(long = "done")]
    _done: bool,
    /// Files below the directory (`fbc-load.json`); all that are done when none is named.
    files: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "the report is the program's output")]
fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let tallies = olm_test::conformance::run(&arguments.dir, &arguments.files)?;
    for tally in &tallies {
        for (case, why) in &tally.failed {
            let why: String = why.chars().take(2000).collect();
            println!("{}: {case}: {why}", tally.file);
        }
    }
    for tally in &tallies {
        println!(
            "{}: {} passed, {} failed",
            tally.file,
            tally.passed,
            tally.failed.len()
        );
    }
    let passed: usize = tallies.iter().map(|t| t.passed).sum();
    let failed: usize = tallies.iter().map(|t| t.failed.len()).sum();
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
