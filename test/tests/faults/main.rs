//! Faults at every call: a manager dies, or the API server fails, before or after each of its writes. The end state of
//! the cluster is that of a run without faults.
//!
//! Each workload runs without faults first, for the number of mutating calls and the end state. Then it runs once for
//! each point: one fault at one call, or several from a seed. `FAULTS=all` (`make faults`) tries every call of every
//! workload; without it the tests try a selection. `FAULTS_ONLY` names workloads, `FAULTS_FROM=WORKLOAD:CALL` continues
//! an ended run, and `FAULTS_EVERY=N` has faults only at every Nth call.

mod campaign;
mod identity;
mod retire;
mod run;
mod stage;
mod state;
mod truth;
mod workloads;

use std::io::Write as _;

use anyhow::{Result, ensure};

use self::campaign::{Campaign, Share};
use self::stage::Stage;

#[test]
fn a_fault_at_a_call_changes_nothing_in_the_end() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let share = Share::chosen()?;
    runtime.block_on(async {
        let mut campaign = Campaign::new(Stage::start().await?);
        for part in share {
            campaign.run(&part).await?;
        }
        campaign.finish().await?;
        writeln!(std::io::stdout(), "\n{}", campaign.table())?;
        let failures = campaign.failures();
        ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
        Ok(())
    })
}
