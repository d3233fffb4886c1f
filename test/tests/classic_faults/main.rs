//! A catalog-operator that dies at its writes: before or after each of them, and what it works on ends as it does
//! without.
//!
//! Each workload runs undisturbed first. That gives the number of mutating calls and the end. Then it runs once for
//! each point. `FAULTS=all` (`make faults`) tries every call of every workload; without it the tests try some.
//! `FAULTS_ONLY` names workloads.

mod end;
mod stage;
mod workloads;

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use olm_test::faults::{Fault, Plan};

use self::stage::Stage;
use self::workloads::{WORKLOADS, Workload};

/// Without `FAULTS=all` every so manieth call is tried.
const EVERY: usize = 7;

#[test]
fn a_crash_at_a_call_of_the_catalog_operator_changes_nothing_in_the_end() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let is_whole = std::env::var("FAULTS").is_ok_and(|value| value == "all");
    let only = std::env::var("FAULTS_ONLY").unwrap_or_default();
    let is_chosen =
        |workload: &&Workload| only.is_empty() || only.split(',').any(|name| name == workload.name);
    runtime.block_on(async {
        let mut stage = Stage::start().await?;
        let (mut failures, mut out) = (Vec::new(), std::io::stdout());
        for workload in WORKLOADS.iter().filter(is_chosen) {
            let (calls, wanted) = stage
                .undisturbed(workload)
                .await
                .with_context(|| format!("{} without faults", workload.name))?;
            writeln!(out, "{}: {calls} calls", workload.name)?;
            for call in (1..=calls).step_by(if is_whole { 1 } else { EVERY }) {
                for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                    let name = stage.name();
                    let outcome = stage
                        .disturbed(workload, &name, Plan::at(&name, call, fault), &wanted)
                        .await;
                    if let Err(error) = outcome {
                        failures.push(format!("{} {call}: {fault}: {error:#}", workload.name));
                    }
                }
            }
        }
        ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
        Ok(())
    })
}
