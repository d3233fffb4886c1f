//! `operator-controller`: installs extensions and keeps them as their specs ask.

use clap::Parser as _;
use operator_controller::args::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    olm_platform::crypto::install();
    let args = Args::parse();
    if args.wants_version() {
        operator_controller::print_version();
        return Ok(());
    }
    olm_platform::log::start(&args.common.log);
    operator_controller::run::run(args).await
}
