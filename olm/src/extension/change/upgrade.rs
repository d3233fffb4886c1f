//! `olm upgrade`.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_api::ClusterExtension;
use olm_api::conditions::{READY, find};
use olm_api::names::user;
use olm_api::readiness::{Verdict, verdict};
use olm_api::updates::UpdatesStatus;
use olm_version::masterminds::Constraint;
use serde_json::{Map, Value, json};

use super::wait::WaitArguments;
use super::{ChangeArguments, change_and_wait, of_source};
use crate::extension::access::ClusterArguments;
use crate::extension::choose::{ChosenBundle, Origin, ResolutionInput};
use crate::extension::cluster::{Cluster, newest_active};
use crate::extension::look::{MAX_LINE, first_line};
use crate::extension::lookup::revisions;
use crate::extension::rollback::plan::restoration_of;
use crate::hint::Hint;
use crate::output::{CommandResult, Status, note};
use crate::registry::RegistryArguments;

#[derive(Debug, Args)]
#[command(
    after_help = "Without --version, a pinned extension is pinned to the newest version that its channels and the update \
                  graph allow. One with a range upgrades automatically; the command then says what holds back the \
                  newest version.\n\nThe catalogs are asked first: nothing changes when no bundle fits.\n\n`olm plan` \
                  shows every object that an upgrade changes.\n\nExamples:\n  olm upgrade greeter --wait\n  olm upgrade greeter --version \
                  1.x\n  olm upgrade greeter --channel candidate --version 2.0.0 --wait\n\nExit status: 0 on success, 1 when no \
                  bundle fits or the command fails; with --wait 4 when a person must change something, 5 when the time \
                  is over."
)]
pub(crate) struct Arguments {
    /// ClusterExtension to upgrade
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Version or range of versions to set
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    version: Option<String>,
    /// Channel to set instead of those of the ClusterExtension; may be repeated
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// Whether a text is a version, not a range.
pub(super) fn is_exact(version: &str) -> bool {
    Constraint::parse(version).is_ok_and(|range| range.exact().is_some())
}

/// Fails if a rollback pinned the extension: for another version, update edges and channels would not count.
pub(super) fn is_not_rolled_back(extension: &ClusterExtension) -> anyhow::Result<()> {
    if restoration_of(extension).is_none() {
        return Ok(());
    }
    let name = extension.name();
    let error =
        anyhow!("ClusterExtension {name:?} is pinned by a rollback, without channels and update edges");
    Err(error.context(Hint(format!(
        "run `olm unpin {name}` first: it restores the settings from before the rollback"
    ))))
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let present = cluster.extension(&arguments.extension)?;
    let name = present.name();
    if present.annotation(user::PAUSED) == Some("true") {
        let error = anyhow!("ClusterExtension {name:?} is paused");
        return Err(error.context(Hint(format!("run `olm resume {name}` first"))));
    }
    let mut wanted = present.clone();
    let before = present
        .spec
        .source
        .catalog
        .as_ref()
        .and_then(|filter| filter.version.clone())
        .filter(|version| !version.is_empty());
    let is_pinned = before.as_deref().is_some_and(is_exact);
    if is_pinned {
        is_not_rolled_back(&present)?;
    }
    if let Some(filter) = &mut wanted.spec.source.catalog {
        match &arguments.version {
            Some(version) => filter.version = Some(version.clone()),
            None if is_pinned => filter.version = None,
            None => {}
        }
        if !arguments.channels.is_empty() {
            filter.channels.clone_from(&arguments.channels);
        }
    }
    let sets = cluster.runtime.block_on(revisions(&cluster.client, &present))?;
    let origin = Origin {
        catalogs: &[],
        registry: &arguments.registry,
        access: &arguments.cluster,
    };
    let chosen = match ResolutionInput::gather(&cluster, origin, &wanted, newest_active(&sets))?.resolve() {
        Ok(chosen) => chosen,
        Err(refusal) => {
            note(&format!("refused: {refusal}"));
            return Ok(Status::Failure);
        }
    };
    let mut fields = Map::new();
    let version = match &arguments.version {
        Some(version) => Some(version.clone()),
        None if is_pinned => Some(chosen.bundle.metadata.version.clone()),
        None => before.clone(),
    };
    if version != before {
        fields.insert("version".to_owned(), json!(version));
    }
    if !arguments.channels.is_empty() {
        fields.insert("channels".to_owned(), json!(arguments.channels));
    }
    let status = present.status.as_ref();
    let installed = status
        .and_then(|status| status.install.as_ref())
        .map_or("nothing", |install| install.bundle.version.as_str());
    let done = words(installed, &chosen, &fields, before.as_deref());
    let patch = of_source(&Value::Object(fields));
    let updates = status.and_then(|status| status.updates.as_ref());
    let held = updates.and_then(|updates| held_back(updates, installed, &chosen.bundle.metadata.version));
    if let Some(line) = held.or_else(|| stalled(&present)) {
        note(&line);
    }
    if let Some(held) = &chosen.held {
        note(held);
    }
    change_and_wait(
        &cluster,
        &arguments.change,
        &arguments.wait,
        &present,
        patch,
        &done,
    )
}

/// The effect, as text after the name of the extension.
fn words(
    installed: &str,
    chosen: &ChosenBundle,
    fields: &Map<String, Value>,
    before: Option<&str>,
) -> String {
    let bundle = &chosen.bundle.metadata;
    let mut text = if installed == bundle.version {
        format!("stays at {installed}, the newest version that fits")
    } else {
        format!(
            "upgrades {installed} -> {} ({} of catalog {})",
            bundle.version, bundle.name, chosen.catalog
        )
    };
    if let Some(version) = fields.get("version") {
        let before = before.map_or("unset".to_owned(), |before| format!("{before:?}"));
        let _ = write!(text, "; version {before} -> {version}");
    }
    if let Some(channels) = fields.get("channels") {
        let _ = write!(text, "; channels {channels}");
    }
    text
}

/// What an extension waits for, if a user must act.
fn stalled(extension: &ClusterExtension) -> Option<String> {
    let ready = find(extension.conditions(), READY)?;
    let is_stalled = verdict(extension.conditions()) == Some(Verdict::Stalled);
    let why = first_line(&ready.message, MAX_LINE);
    is_stalled.then(|| format!("note: {} is not ready: {why}", extension.name()))
}

/// The reason in the status for holding back the chosen version or, if that is installed, the newest one.
fn held_back(updates: &UpdatesStatus, installed: &str, chosen: &str) -> Option<String> {
    let by = updates.held_back_by.as_ref()?;
    // The reason is about the next version or, without one, about the newest.
    let held = match &updates.next {
        Some(next) => Some(next).filter(|next| next.version == chosen),
        None => updates.newest.as_ref().filter(|_| installed == chosen),
    }?;
    Some(format!(
        "version {} is held back ({by}): {}",
        held.version, updates.message
    ))
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::BundleMetadata;
    use olm_api::updates::{AvailableBundle, held_back};
    use olm_plan::BundleIdentity;

    use super::*;

    fn chosen() -> ChosenBundle {
        ChosenBundle {
            bundle: BundleIdentity {
                metadata: BundleMetadata {
                    name: "greeter.v1.1.0".to_owned(),
                    version: "1.1.0".to_owned(),
                    release: None,
                },
                ..BundleIdentity::default()
            },
            catalog: "one".to_owned(),
            channels: Vec::new(),
            default_channel: None,
            edge: None,
            passed: Vec::new(),
            held: None,
        }
    }

    #[test]
    fn an_upgrade_names_the_versions_and_the_changed_fields() {
        let fields = |value: Value| value.as_object().cloned().unwrap_or_default();
        assert_eq!(
            words(
                "1.0.0",
                &chosen(),
                &fields(json!({"version": "1.1.0"})),
                Some("1.0.0")
            ),
            "upgrades 1.0.0 -> 1.1.0 (greeter.v1.1.0 of catalog one); version \"1.0.0\" -> \"1.1.0\""
        );
        assert_eq!(
            words("1.1.0", &chosen(), &fields(json!({"channels": ["a"]})), None),
            "stays at 1.1.0, the newest version that fits; channels [\"a\"]"
        );
    }

    #[test]
    fn what_holds_back_the_chosen_or_the_newest_version_is_named() {
        let bundle = |version: &str| AvailableBundle {
            version: version.to_owned(),
            ..AvailableBundle::default()
        };
        let updates = |next: Option<&str>| UpdatesStatus {
            next: next.map(bundle),
            newest: Some(bundle("2.0.0")),
            held_back_by: Some(held_back::SIGNATURE.to_owned()),
            message: "why".to_owned(),
        };
        for (next, chosen, expected) in [
            (
                Some("1.1.0"),
                "1.1.0",
                Some("version 1.1.0 is held back (Signature): why"),
            ),
            (None, "1.0.0", Some("version 2.0.0 is held back (Signature): why")),
            // The reason is about another version than the chosen one.
            (Some("1.1.0"), "1.2.0", None),
            (Some("1.1.0"), "1.0.0", None),
            (None, "1.1.0", None),
        ] {
            let found = super::held_back(&updates(next), "1.0.0", chosen);
            assert_eq!(found.as_deref(), expected, "{next:?} {chosen}");
        }
    }

    #[test]
    fn a_version_is_not_a_range() {
        for (text, expected) in [
            ("1.0.0", true),
            ("1.0.x", false),
            (">=1", false),
            ("no version", false),
        ] {
            assert_eq!(is_exact(text), expected, "{text}");
        }
    }
}
