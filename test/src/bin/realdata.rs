//! `realdata DIR`: runs real bundles, catalogs and templates; prints `KIND: N passed, N failed` for each kind with the
//! number of each outcome, and a closing `N passed, N failed`; fails when a case does.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Runs real bundles, catalogs and templates through this project's own code.
#[derive(Parser)]
struct Arguments {
    /// The folder with `bundles/PACKAGE/VERSION`, `fbc/CATALOG`, `templates/` and `operatorhub.json`.
    dir: PathBuf,
}

fn main() -> std::io::Result<ExitCode> {
    let passed = olm_test::realdata::run(&Arguments::parse().dir, &mut std::io::stdout())?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
