//! `olm get`.

use std::fmt::Write as _;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use olm_api::ClusterExtension;
use olm_api::conditions::{READY, VERIFIED, find};
use olm_api::updates::UpdatesStatus;

use super::{NONE, age, first_line, list, max_line};
use crate::extension::access::{ClusterArguments, unlisted};
use crate::extension::cluster::Cluster;
use crate::output::table::table;
use crate::output::{CommandResult, ObjectFormat, Status, note, resource_name};

#[derive(Debug, Args)]
#[command(
    after_help = "INSTALLED is the version that is installed, WANTED the version or range that spec asks for. NEXT is the version \
                  of the next upgrade, NEWEST the newest version of the catalogs. HELD BACK names one of them, and what holds it \
                  back in one word: `olm updates` and `olm explain` say more. Below the table stands why an extension is not \
                  ready, what its next upgrade waits for, and which of its images the signature policy refuses.\n\nExamples:\n  olm get\n  olm get greeter -o yaml"
)]
pub(crate) struct Arguments {
    /// ClusterExtension to show [default: all]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ObjectFormat,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let mut found = if let Some(name) = &arguments.extension {
        vec![cluster.extension(name)?]
    } else {
        let api: Api<ClusterExtension> = Api::all(cluster.client.clone());
        let listed = cluster.runtime.block_on(api.list(&ListParams::default()));
        listed
            .map_err(|error| unlisted(error, "the ClusterExtensions"))?
            .items
    };
    found.sort_by(|left, right| left.name().cmp(right.name()));
    if found.is_empty() && arguments.output == ObjectFormat::Table {
        note(
            "there is no ClusterExtension; `olm search WORD` finds packages, `olm install PACKAGE` installs one",
        );
        return Ok(Status::Success);
    }
    let names = found
        .iter()
        .map(|one| resource_name("clusterextension", one.name()));
    let value = list(&found, arguments.extension.is_some())?;
    arguments
        .output
        .print(&value, names, || text(&found, Timestamp::now(), max_line()))?;
    Ok(Status::Success)
}

fn text(extensions: &[ClusterExtension], now: Timestamp, max_line: usize) -> String {
    let mut notes = String::new();
    let mut rows = Vec::new();
    for extension in extensions {
        let status = extension.status.as_ref();
        let filter = extension.spec.source.catalog.as_ref();
        let installed = status.and_then(|status| status.install.as_ref());
        let updates = status.and_then(|status| status.updates.as_ref());
        let next = updates.and_then(|updates| updates.next.as_ref());
        let newest = updates.and_then(|updates| updates.newest.as_ref()).or(next);
        let ready = find(extension.conditions(), READY);
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        if let Some(ready) = ready.filter(|_| !is_ready) {
            let _ = writeln!(
                notes,
                "{}: {}",
                extension.name(),
                first_line(&ready.message, max_line)
            );
        } else if let Some(line) = updates.and_then(|updates| waits_for(updates, max_line)) {
            let _ = writeln!(notes, "{}: {line}", extension.name());
        }
        if let Some(refused) = find(extension.conditions(), VERIFIED).filter(|found| found.status == "False")
        {
            let _ = writeln!(
                notes,
                "{}: {}",
                extension.name(),
                first_line(&refused.message, max_line)
            );
        }
        let cell = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or(NONE).to_owned();
        rows.push(vec![
            extension.name().to_owned(),
            cell(filter.map(|filter| filter.package_name.as_str())),
            cell(installed.map(|install| install.bundle.version.as_str())),
            cell(filter.and_then(|filter| filter.version.as_deref())),
            cell(next.map(|next| next.version.as_str())),
            cell(newest.map(|newest| newest.version.as_str())),
            cell(updates.and_then(held).as_deref()),
            cell(ready.map(|ready| ready.status.as_str())),
            match (extension.is_deleting(), ready) {
                (true, _) => "Deleting".to_owned(),
                (false, ready) => cell(ready.map(|ready| ready.reason.as_str())),
            },
            age(extension.metadata.creation_timestamp.as_ref(), now),
        ]);
    }
    let heads = [
        "NAME",
        "PACKAGE",
        "INSTALLED",
        "WANTED",
        "NEXT",
        "NEWEST",
        "HELD BACK",
        "READY",
        "STATUS",
        "AGE",
    ];
    format!("{}{notes}", table(&heads, &rows))
}

/// The version that is held back, and the reason in one word: that of the next upgrade, otherwise the newest.
fn held(updates: &UpdatesStatus) -> Option<String> {
    let by = updates.held_back_by.as_ref()?;
    Some(match updates.next.as_ref().or(updates.newest.as_ref()) {
        Some(bundle) => format!("{} ({by})", bundle.version),
        None => by.clone(),
    })
}

/// What the next upgrade waits for; `None` if there is none, or nothing holds it back.
fn waits_for(updates: &UpdatesStatus, max_line: usize) -> Option<String> {
    let next = updates.next.as_ref().filter(|_| updates.held_back_by.is_some())?;
    let why = first_line(&updates.message, max_line);
    Some(format!("the upgrade to {} waits: {why}", next.version))
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, InstallStatus, SourceConfig};
    use olm_api::readiness::{Readiness, Verdict, set_readiness};
    use olm_api::updates::{AvailableBundle, UpdatesStatus, held_back};
    use olm_api::verified::set_verified;

    use super::*;
    use crate::extension::look::MAX_LINE;

    #[test]
    fn a_row_shows_the_installed_version_the_newest_and_the_fault() {
        let filter = CatalogFilter {
            package_name: "greeter".to_owned(),
            version: Some("1.0.x".to_owned()),
            ..CatalogFilter::default()
        };
        let spec = ClusterExtensionSpec {
            source: SourceConfig {
                catalog: Some(filter),
                ..SourceConfig::default()
            },
            ..ClusterExtensionSpec::default()
        };
        let mut greeter = ClusterExtension::new("greeter", spec);
        greeter.metadata.creation_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        let status = greeter.status.get_or_insert_default();
        let bundle = |version: &str| AvailableBundle {
            version: version.to_owned(),
            ..AvailableBundle::default()
        };
        status.install = Some(InstallStatus {
            bundle: bundle("1.0.1").metadata(),
        });
        status.updates = Some(UpdatesStatus {
            newest: Some(bundle("2.0.0")),
            held_back_by: Some(held_back::RANGE.to_owned()),
            ..UpdatesStatus::default()
        });
        let readiness = Readiness {
            verdict: Verdict::Stalled,
            reason: "Blocked",
            message: "it lacks permissions:\na list",
            observed_generation: 1,
        };
        set_readiness(&mut status.conditions, readiness, Timestamp::UNIX_EPOCH);
        let bare = ClusterExtension::new("new", ClusterExtensionSpec::default());
        assert_eq!(
            text(&[bare, greeter], Timestamp::from_second(90).unwrap(), MAX_LINE),
            "NAME     PACKAGE  INSTALLED  WANTED  NEXT  NEWEST  HELD BACK      READY  STATUS   AGE\n\
             new      -        -          -       -     -       -              -      -        -\n\
             greeter  greeter  1.0.1      1.0.x   -     2.0.0   2.0.0 (Range)  False  Blocked  90s\n\
             greeter: it lacks permissions:\n"
        );
    }

    #[test]
    fn a_ready_extension_whose_image_is_refused_has_a_line() {
        let mut greeter = ClusterExtension::new("greeter", ClusterExtensionSpec::default());
        for (accepted, is_shown) in [(true, false), (false, true)] {
            let status = greeter.status.get_or_insert_default();
            let verdict = Some((Some(accepted), "the image"));
            set_verified(&mut status.conditions, verdict, 1, Timestamp::UNIX_EPOCH);
            let shown = text(std::slice::from_ref(&greeter), Timestamp::UNIX_EPOCH, MAX_LINE);
            assert_eq!(shown.contains("\ngreeter: the image\n"), is_shown, "{shown}");
        }
    }

    #[test]
    fn the_reason_is_that_of_the_next_upgrade_before_that_of_the_newest_version() {
        let bundle = |version: &str| AvailableBundle {
            version: version.to_owned(),
            ..AvailableBundle::default()
        };
        let mut updates = UpdatesStatus {
            next: Some(bundle("1.1.0")),
            newest: Some(bundle("2.0.0")),
            held_back_by: Some(held_back::APPROVAL.to_owned()),
            message: "it needs an approval\nanother reason".to_owned(),
        };
        assert_eq!(held(&updates).as_deref(), Some("1.1.0 (Approval)"));
        assert_eq!(
            waits_for(&updates, MAX_LINE).as_deref(),
            Some("the upgrade to 1.1.0 waits: it needs an approval")
        );
        updates.next = None;
        assert_eq!(held(&updates).as_deref(), Some("2.0.0 (Approval)"));
        assert_eq!(waits_for(&updates, MAX_LINE), None);
        updates.newest = None;
        assert_eq!(held(&updates).as_deref(), Some("Approval"));
    }
}
