//! `olm rollback`.

pub(crate) mod account;
pub(crate) mod plan;
mod rehearse;
mod settings;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Config};
use olm_api::ClusterExtension;
use olm_api::names;
use olm_cluster::list::Collection;
use olm_migrate::objects::content::objects;
use olm_preflight::crd_upgrade::rollback::{CrdRollback, RollbackEffect, rollback_effects};
use olm_preflight::crd_upgrade::{Check, definition_name, resource};
use serde_json::Value;

use self::account::RequestIdentity;
use self::plan::{bundle_version, plan_rollback};
use self::text::RolledBackKind;
use super::access::ClusterArguments;
use super::change::ask::agreed;
use super::change::wait::WaitArguments;
use super::change::{ChangeArguments, MANAGER, RESOURCE, report, wait_for};
use super::cluster::Cluster;
use super::lookup::revisions;
use crate::hint::Hint;
use crate::output::{CommandResult, ObjectFormat, Status, note, print_text};

/// The number of attempts to write the pin: the controller may write in between.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug, Args)]
#[command(
    after_help = "Pins the version of an earlier revision and admits its self-certified update edge. The command shows the fields \
                  that custom resources lose, the objects that the API server refuses and the settings that change, and asks \
                  first. With another --output than table, this goes to standard error.\n\nExit status: 0 on success, 1 when the \
                  rollback is refused, you decline or the command fails; with --wait 4 when a person must change something, 5 \
                  when the time is over."
)]
pub(crate) struct Arguments {
    /// ClusterExtension to roll back
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Revision to roll back to [default: the newest earlier one with another version]
    #[arg(long, value_name = "NUMBER")]
    to_revision: Option<i64>,
    /// Roll back even if custom resources lose fields, become invalid or are deleted
    #[arg(long)]
    accept_data_loss: bool,
    /// Pin the version even if the API server refuses some of its objects; OLM applies nothing until you recreate them
    #[arg(long)]
    accept_refusal: bool,
    /// Roll back without a question
    #[arg(short, long)]
    yes: bool,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let cluster = Cluster::reach(&arguments.cluster)?;
    let extension = cluster.extension(&arguments.extension)?;
    let name = extension.name();
    let checked = check(arguments, &cluster.config, &cluster.client, &extension);
    let Some(checked) = cluster.runtime.block_on(checked)? else {
        return Ok(Status::Failure);
    };
    match arguments.change.output {
        ObjectFormat::Table => print_text(&checked.text)?,
        ObjectFormat::Json | ObjectFormat::Yaml | ObjectFormat::Name => note(checked.text.trim_end()),
    }
    if let Some(why) = checked.refusal {
        refused(why);
        return Ok(Status::Failure);
    }
    let version = &checked.version;
    if !arguments.change.dry_run && !agreed(&format!("Roll back {name} to {version}?"), arguments.yes)? {
        return Ok(Status::Failure);
    }
    let params = PatchParams {
        dry_run: arguments.change.dry_run,
        ..PatchParams::apply(MANAGER)
    };
    let extensions: Api<ClusterExtension> = Api::all(cluster.client.clone());
    let changed = pin(&extensions, &extension, version, &checked.passing, &params);
    let changed = cluster.runtime.block_on(changed);
    let changed = changed.with_context(|| format!("cannot change ClusterExtension {name:?}"))?;
    let done = format!("pinned to {version}, SelfCertified");
    report(&arguments.change, RESOURCE, name, &changed, &done)?;
    if arguments.change.output == ObjectFormat::Table {
        note(&format!(
            "hint: operator-controller creates a new revision if a selected catalog still has the version, in any channel. \
             To remove the pin and restore the settings: olm unpin {name}"
        ));
    }
    wait_for(&cluster, &arguments.change, &arguments.wait, &changed)
}

/// A rollback that was checked.
struct CheckedRollback {
    version: String,
    /// The plan for people.
    text: String,
    /// The reason why the rollback is refused.
    refusal: Option<&'static str>,
    /// The checks of definitions that would stop it.
    passing: BTreeSet<Check>,
}

/// Checks the rollback. `None` when there is nothing to go back to, which is printed.
async fn check(
    arguments: &Arguments,
    config: &Config,
    client: &Client,
    extension: &ClusterExtension,
) -> anyhow::Result<Option<CheckedRollback>> {
    let sets = revisions(client, extension).await?;
    let plan = match plan_rollback(extension, &sets, arguments.to_revision) {
        Ok(plan) => plan,
        Err(error) => {
            refused(&error.to_string());
            return Ok(None);
        }
    };
    let now = objects(client, plan.present, &arguments.system_namespace).await?;
    let older = objects(client, plan.target, &arguments.system_namespace).await?;
    let mut kinds = Vec::new();
    for reversal in effects(client, &now, &older).await? {
        let objects = stored(client, &reversal.definition).await;
        kinds.push(RolledBackKind { reversal, objects });
    }
    let asker = RequestIdentity::of(config, client, extension, plan.present).await;
    let rehearsal = rehearse::rehearse(client, asker, &now, &older).await;
    let version = bundle_version(plan.target);
    let passing = checks(kinds.iter().map(|kind| &kind.reversal));
    let settings = settings::changed_settings(extension, &plan::pin(extension, version, &passing));
    let text = text::text(extension.name(), &plan, &kinds, &rehearsal, &settings);
    let refusal = if !kinds.iter().all(|kind| kind.reversal.is_possible()) {
        Some(
            "a custom resource definition cannot roll back; first migrate the objects stored in the newer version, or \
             keep the current version",
        )
    } else if kinds.iter().any(RolledBackKind::may_lose) && !arguments.accept_data_loss {
        Some("custom resources would lose data; set --accept-data-loss to roll back anyway")
    } else if !rehearsal.refused.is_empty() && !arguments.accept_refusal {
        Some(
            "the API server refuses objects of that version, so operator-controller would change nothing; set \
             --to-revision to another revision, or set --accept-refusal to pin the version: the condition Ready \
             then says what to do",
        )
    } else {
        None
    };
    Ok(Some(CheckedRollback {
        version: version.to_owned(),
        text,
        refusal,
        passing,
    }))
}

/// Pins the extension and returns the changed one. The controller may write the object meanwhile;
/// it fails if the facts behind the checks have changed.
async fn pin(
    extensions: &Api<ClusterExtension>,
    seen: &ClusterExtension,
    version: &str,
    passing: &BTreeSet<Check>,
    params: &PatchParams,
) -> anyhow::Result<ClusterExtension> {
    let mut current = seen.clone();
    let mut attempts = 1;
    loop {
        let patch = plan::pin(&current, version, passing);
        match extensions.patch(seen.name(), params, &Patch::Merge(&patch)).await {
            Ok(changed) => return Ok(changed),
            Err(kube::Error::Api(status)) if status.code == 409 && attempts < MAX_ATTEMPTS => {
                attempts += 1;
                current = extensions.get(seen.name()).await?;
                if !plan::is_same(seen, &current) {
                    let error = anyhow!("it has changed since it was checked");
                    return Err(error.context(Hint("run the command again".to_owned())));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn refused(why: &str) {
    note(&format!("refused: {why}"));
}

/// The effects of the rollback on custom resource definitions.
async fn effects(client: &Client, present: &[Value], older: &[Value]) -> anyhow::Result<Vec<CrdRollback>> {
    let names: BTreeSet<&str> = present.iter().chain(older).filter_map(definition_name).collect();
    let api = definitions(client);
    let mut live: BTreeMap<&str, Value> = BTreeMap::new();
    for name in names {
        let found = api.get_opt(name).await;
        let found = found.with_context(|| format!("cannot read CustomResourceDefinition {name:?}"))?;
        if let Some(found) = found {
            live.insert(name, serde_json::to_value(found)?);
        }
    }
    Ok(rollback_effects(present, older, |name| live.get(name)))
}

/// The number of objects of a definition's kind; `None` if it cannot be read.
async fn stored(client: &Client, definition: &str) -> Option<u64> {
    let definition = match definitions(client).get_opt(definition).await {
        Ok(Some(found)) => serde_json::to_value(found).unwrap_or_default(),
        Ok(None) => return Some(0),
        Err(_) => return None,
    };
    let (group, version, plural) = resource(&definition)?;
    let collection = Collection {
        group,
        version,
        plural,
    };
    collection.count(client).await.ok()
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    Api::all_with(
        client.clone(),
        &ApiResource::erase::<CustomResourceDefinition>(&()),
    )
}

/// The checks that would block the rollback. Existing objects may contain values that a schema refuses.
fn checks<'a>(found: impl IntoIterator<Item = &'a CrdRollback>) -> BTreeSet<Check> {
    let mut checks = BTreeSet::new();
    for reversal in found {
        if let RollbackEffect::Lossy(findings) | RollbackEffect::Impossible(findings) = &reversal.effect {
            checks.extend(findings.iter().map(|finding| finding.check));
            checks.insert(Check::ExistingObjects);
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use olm_preflight::crd_upgrade::{Finding, FindingLocation};

    use super::*;

    #[test]
    fn objects_that_become_invalid_are_accepted_with_their_faults() {
        let reversal = |effect: RollbackEffect| CrdRollback {
            definition: "greetings.x.io".to_owned(),
            effect,
            removed_fields: Vec::new(),
        };
        let finding = Finding {
            location: FindingLocation::Definition,
            check: Check::Enum,
            message: "allowed value removed".to_owned(),
        };
        for (effect, expected) in [
            (
                RollbackEffect::Lossy(vec![finding]),
                &[Check::Enum, Check::ExistingObjects][..],
            ),
            (RollbackEffect::Deleted, &[]),
        ] {
            let expected: BTreeSet<Check> = expected.iter().copied().collect();
            assert_eq!(checks(&[reversal(effect)]), expected);
        }
        assert_eq!(checks(&[]), BTreeSet::new());
    }
}
