//! `classic`: OLM classic's three programs in one binary.

use clap::Parser as _;
use classic::args::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    olm_platform::crypto::install();
    classic::run::run(Args::parse()).await
}
