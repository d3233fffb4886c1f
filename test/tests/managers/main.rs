//! Both managers in a real cluster: who may read their metrics and what those hold, who leads, certificates that change,
//! health, the shipped overlays, what admission lets through, and the verbs that deploy and remove everything.

mod admission;
mod deploy;
mod files;
mod leaders;
mod metrics;
mod tokens;

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_api::names;
use olm_test::world::{Options, World};

use self::admission::admission_accepts_what_the_grammar_accepts;
use self::deploy::overlays_are_applied_and_removed;
use self::files::{Files, Scraper, own_authority};
use self::leaders::{another_takes_over, readiness_says_what_is_missing};
use self::metrics::{metrics_are_for_those_who_may, metrics_tell_of_catalogs, metrics_tell_what_is_done};
use self::tokens::{catalogs_are_read_with_a_token, tokens_are_had_only_where_it_is_allowed};

const SOON: Duration = Duration::from_secs(90);
const NAMESPACE: &str = names::SYSTEM_NAMESPACE;

struct Flags {
    catalogd: Vec<String>,
    operator_controller: Vec<String>,
    /// Who signed catalogd's certificate.
    authority: String,
}

fn flags(files: &Files, authority: String) -> Flags {
    let authorities = files.authorities();
    let mut catalogd = files.flags();
    catalogd.push("--leader-elect".to_owned());
    catalogd.push("--content-authentication".to_owned());
    Flags {
        catalogd,
        operator_controller: vec![
            "--leader-elect".to_owned(),
            format!("--catalogd-cas-dir={}", authorities.display()),
            format!("--catalogd-token-file={}", files.token().display()),
        ],
        authority,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_managers_in_a_real_cluster() -> Result<()> {
    let files = Files::new()?;
    let mut flags = flags(&files, files.renew("first")?);
    let mut world = World::start(Options {
        catalogd: flags.catalogd.clone(),
        operator_controller: flags.operator_controller.clone(),
        manifests: "manifests/overlays/restricted",
    })
    .await?;
    let first = Scraper::new(&flags.authority)?;
    let own = own_authority(&world, names::certificate::OPERATOR_CONTROLLER_AUTHORITY).await?;
    let own = Scraper::new(&own)?;

    let reader = metrics_are_for_those_who_may(&world, &first, &own).await?;
    catalogs_are_read_with_a_token(&world, &files).await?;
    tokens_are_had_only_where_it_is_allowed(&world).await?;
    metrics_tell_what_is_done(&world, &first, &own, &reader).await?;
    metrics_tell_of_catalogs(&world, &first, &reader).await?;
    admission_accepts_what_the_grammar_accepts(&world).await?;
    readiness_says_what_is_missing(&world, &files).await?;

    let process = world.catalogd.pid();
    let before = std::mem::replace(&mut flags.authority, files.renew("second")?);
    let second = Scraper::new(&flags.authority)?;
    let wanted = ["certwatcher_read_certificate_total "];
    second.shows(&world, &world.catalogd, &reader, &wanted).await?;
    // A client that was here before resumes its session without looking at a certificate.
    let newcomer = Scraper::new(&before)?;
    ensure!(
        newcomer.get(&world.catalogd, None).await.is_err(),
        "the old certificate is served no more"
    );
    ensure!(
        world.catalogd.pid() == process && process.is_some(),
        "without a restart"
    );

    let (mut catalogd, mut other) = another_takes_over(&mut world, &flags, &reader).await?;
    overlays_are_applied_and_removed(&world).await?;
    other.stop().await?;
    catalogd.stop().await?;
    Ok(())
}
