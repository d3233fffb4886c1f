//! `catalogd`: unpacks catalog images and serves them on the cluster.

use catalogd::args::Args;
use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    olm_platform::crypto::install();
    let args = Args::parse();
    if args.wants_version() {
        catalogd::print_version();
        return Ok(());
    }
    olm_platform::log::start(&args.common.log);
    catalogd::run::run(args).await
}
