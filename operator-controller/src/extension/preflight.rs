//! Checks a plan before anything is written, under the account that will write it. Uses reviews, reads and dry runs
//! only.

pub(crate) mod access;
pub(crate) mod checked;
pub(crate) mod definitions;
pub(crate) mod existing;
pub(crate) mod images;
pub(crate) mod ownership;
pub(crate) mod rehearse;
pub(crate) mod stored_versions;

use std::sync::Arc;

use kube::Client;
use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_api::command::rbac_of_extension;
use olm_api::conditions::bounded_message;
use olm_api::names::annotation;
use olm_bundle::CertificateProvider;
use olm_plan::phases::Group;
use olm_preflight::crd_upgrade::{definition_name, within};
use olm_preflight::dry_run::BundleContent;
use olm_preflight::installer;
use serde_json::Value;

pub(crate) use self::access::PreflightError;
use self::access::{MAX_FINDINGS, PreflightAccess};
pub(crate) use self::checked::{Announcement, Checked, Started};
use self::rehearse::Rehearsal;
use super::approval::Proposal;
use super::bundle::Rendered;
use super::context::Context;
use super::context::joint_updates::Ready;
use super::events;
use super::observe::options::InstallerWorkloads;
use super::plan::Plan;
use super::plan::action::{Action, StoredVersions};
use super::plan::revision::RevisionPlan;
use super::revisions::{BundleIdentity, Revisions, is_being_replaced, is_blocked};
use crate::object_set::gather;
use crate::object_set::rights::{NOTHING_IS_APPLIED, explain, remedy};
use olm_cluster::identity::AccountName;
use olm_cluster::rights::lacking;
use olm_plan::changes::{self, Changes};
use olm_rollout::certificates::layout;
use olm_rollout::object::ObjectId;

/// Checks a plan. A revision that is kept or whose metadata changes needs no check. `migrated` lists the migrations of
/// earlier runs for the new revision; `proposal` is the planned change, if policies select the extension.
///
/// # Errors
/// The plan must not be executed, or a check could not be completed.
pub(crate) async fn check(
    context: &Context,
    plan: Plan<'_>,
    migrated: &[String],
    proposal: Option<&Proposal>,
) -> Result<Checked, PreflightError> {
    let Plan { rendered, revision } = plan;
    let latest = latest(&rendered);
    let mut actions: Vec<Action> = Vec::new();
    actions.extend(
        rendered
            .operator_condition
            .clone()
            .map(Action::KeepOperatorCondition),
    );
    let (secrets, settled) = match revision {
        RevisionPlan::Create(mut creation) => {
            let examined = examine(context, &rendered, migrated).await?;
            if proposal.is_some_and(Proposal::is_held) {
                return Ok(Checked::preparation(Vec::new()));
            }
            let found = match examined {
                PreflightResult::Passed(found) => found,
                PreflightResult::Migrates(action) => return Ok(Checked::preparation(vec![action])),
            };
            companions(context, &rendered, proposal)?;
            if let Some(signers) = &found.signers {
                images::note(&mut creation.set, signers);
            }
            if let Some(warnings) = &found.warnings {
                let annotations = creation.set.metadata.annotations.get_or_insert_default();
                annotations.insert(annotation::WARNINGS.to_owned(), bounded_message(warnings));
            }
            let announcement = announce(&rendered, latest.as_deref(), creation.set.name(), found);
            return Ok(Checked::complete(actions, Some(creation), announcement));
        }
        RevisionPlan::Patch { name, patch, secrets } => {
            actions.push(Action::PatchRevision { name, patch: *patch });
            (secrets, None)
        }
        RevisionPlan::Keep { secrets } => (secrets, Some(rendered.inputs)),
    };
    if let Some(set) = latest.filter(|latest| is_blocked(latest)) {
        actions.push(Action::RestoreSecrets { set, secrets });
    }
    let announcement = Announcement {
        settled,
        ..Announcement::default()
    };
    Ok(Checked::complete(actions, None, announcement))
}

fn latest(rendered: &Rendered<'_>) -> Option<Arc<ClusterObjectSet>> {
    rendered.resolved.observed.revisions.all().last().cloned()
}

/// Checks that each companion is ready or has changed already, so that none is left with unmet requirements.
fn companions(
    context: &Context,
    rendered: &Rendered<'_>,
    proposal: Option<&Proposal>,
) -> Result<(), PreflightError> {
    let (observed, target) = (rendered.resolved.observed, &rendered.resolved.target);
    if target.companions.is_empty() {
        return Ok(());
    }
    let newest = |extension: &str| context.newest_bundle(extension);
    let ready = Ready {
        bundle: target.bundle.metadata.name.clone(),
        plan: proposal.map(|proposal| Arc::clone(&proposal.plan)),
    };
    let extension = observed.extension.name();
    let missing = context
        .joint_updates
        .ready(extension, ready, &target.companions, newest);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing
        .iter()
        .map(|companion| format!("{} of ClusterExtension {}", companion.bundle, companion.extension));
    Err(PreflightError::NotReady(names.collect()))
}

/// The findings about a revision before it is created.
struct PreflightFindings {
    /// The findings that do not block.
    warnings: Option<String>,
    /// The differences from the installed revision.
    difference: Option<String>,
    /// The signers of the images of its Pods.
    signers: Option<String>,
}

enum PreflightResult {
    /// The revision may be created.
    Passed(PreflightFindings),
    /// Stored versions must be migrated first.
    Migrates(Action),
}

/// The report about a new revision.
fn announce(
    rendered: &Rendered<'_>,
    latest: Option<&ClusterObjectSet>,
    revision: &str,
    found: PreflightFindings,
) -> Announcement {
    let wanted = &rendered.resolved.target.bundle.metadata;
    let installed = rendered.resolved.observed.revisions.installed();
    let installed = installed.map(BundleIdentity::of).unwrap_or_default().metadata;
    let PreflightFindings {
        warnings, difference, ..
    } = found;
    let upcoming = difference
        .iter()
        .map(|text| events::upcoming(&installed, wanted, text));
    let warned = warnings.iter().map(|text| events::normal(events::WARNED, text));
    let replaced = latest.filter(|latest| is_being_replaced(latest));
    let replacing = replaced.map(|latest| events::replacing(latest.name(), revision));
    Announcement {
        events: upcoming.chain(warned).chain(replacing).collect(),
        started: Some(Started {
            revision: revision.to_owned(),
            version: wanted.version.clone(),
            warnings,
            difference,
        }),
        settled: None,
    }
}

/// Makes all checks of a revision with these objects. First come those that no right can fix: the owners of CRDs, and
/// whether changed CRDs keep stored objects valid. Then come rights, all missing ones at once, and a dry run of added
/// and changed objects. The API server refuses CRDs that lose stored versions; these are migrated first.
async fn examine(
    context: &Context,
    rendered: &Rendered<'_>,
    migrated: &[String],
) -> Result<PreflightResult, PreflightError> {
    let (observed, settings) = (rendered.resolved.observed, rendered.resolved.settings);
    let (extension, account) = (&*observed.extension, &settings.account);
    let objects: Vec<&Value> = rendered.groups.iter().flat_map(|group| &group.objects).collect();
    if settings.options.installer_workloads == InstallerWorkloads::Refused {
        installer::check(objects.iter().copied(), &account.namespace, &account.name)?;
    }
    let signers = images::verify(context, rendered, &objects).await?;
    let secrets = match rendered.certificates {
        Some(CertificateProvider::SelfSigned) => layout::secrets(objects.iter().copied()),
        _ => Vec::new(),
    };
    let changes = changes(context, &observed.revisions, &objects).await;
    let client = context.accounts.client(account).await?;
    let all: Vec<&Value> = objects.iter().copied().chain(&secrets).collect();
    let live = match definitions::read_all(context, account, &client, &objects).await {
        Err(error) if error.is_forbidden() => {
            entitled(context, rendered, &all, &client).await?;
            return Err(error);
        }
        read => read?,
    };
    ownership::kinds(
        &live,
        extension.name(),
        |owner| context.extension(owner).is_some(),
        |name| phase_of(&rendered.groups, name),
    )?;
    let access = PreflightAccess {
        account,
        client: &client,
        discovery: &context.discovery,
        reviews: &context.reviews,
    };
    let pairs: Vec<(&str, &Value, &Value)> = objects
        .iter()
        .filter_map(|new| {
            let name = definition_name(new)?;
            Some((name, live.get(name)?, *new))
        })
        .collect();
    let ours = context.predecessors(extension, account);
    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
    let mut notes = Vec::new();
    if definitions::enforcement(extension) == CrdUpgradeSafetyEnforcement::Strict {
        notes = definitions::safety(&access, &settings.options.definitions, &pairs, &ours).await?;
    }
    let rewrites = stored_versions::rewrites(&pairs);
    for (name, old, rewrite) in &rewrites {
        if stored_versions::is_foreign(old, &ours, settings.options.adopt) {
            return Err(PreflightError::Foreign {
                name: (*name).to_owned(),
                gone: rewrite.versions(),
            });
        }
    }
    entitled(context, rendered, &all, &client).await?;
    let roles = roles_command(context, extension.name(), &settings.account);
    stored_versions::may_migrate(&access, &roles, &rewrites).await?;
    let bundle_content = BundleContent::of(objects.iter().copied());
    let is_rewritten = |object: &Value| {
        definition_name(object).is_some_and(|name| rewrites.iter().any(|(known, _, _)| *known == name))
    };
    let touched: Vec<&Value> = objects
        .iter()
        .copied()
        .filter(|object| changes.as_ref().is_none_or(|changes| changes.touches(object)))
        .filter(|object| !is_rewritten(object))
        .collect();
    let rehearsal = rehearse::rehearse(&access, &bundle_content, &touched).await;
    let unchecked = passed(context, rendered, &all, &client, rehearsal).await?;
    if !rewrites.is_empty() {
        let definitions = rewrites.into_iter().map(|(_, live, rewrite)| StoredVersions {
            live: live.clone(),
            rewrite,
        });
        return Ok(PreflightResult::Migrates(Action::MigrateStoredVersions {
            account: account.clone(),
            definitions: definitions.collect(),
        }));
    }
    notes.extend_from_slice(migrated);
    notes.extend(rehearse::note(&unchecked));
    let found = (!notes.is_empty()).then(|| within(&notes.join("\n"), MAX_FINDINGS));
    let warnings: Vec<String> = ignored(&rendered.ignored).into_iter().chain(found).collect();
    let version = &rendered.resolved.target.bundle.metadata.version;
    Ok(PreflightResult::Passed(PreflightFindings {
        signers,
        warnings: (!warnings.is_empty()).then(|| warnings.join("\n")),
        difference: changes.map(|changes| format!("the revision of {version} {changes}")),
    }))
}

/// A warning about ignored fields of the configuration.
fn ignored(fields: &[String]) -> Option<String> {
    let fields: Vec<String> = fields
        .iter()
        .take(5)
        .map(|field| format!("deploymentConfig.{field}"))
        .collect();
    (!fields.is_empty()).then(|| {
        format!(
            "unknown fields of spec.config.inline are ignored: {}; check their spelling",
            fields.join(", ")
        )
    })
}

/// The differences from the installed revision; `None` if none is installed or it cannot be read.
async fn changes(context: &Context, revisions: &Revisions, objects: &[&Value]) -> Option<Changes> {
    let installed = revisions.installed()?;
    match gather::objects(installed, &context.system_namespace, &context.client).await {
        Ok(before) => Some(changes::changes(&before, objects.iter().copied())),
        Err(error) => {
            tracing::warn!(
                revision = installed.name(),
                error = &error as &dyn std::error::Error,
                "cannot compare the new revision with the installed one"
            );
            None
        }
    }
}

/// Checks that the account may apply and delete all objects.
async fn entitled(
    context: &Context,
    rendered: &Rendered<'_>,
    all: &[&Value],
    client: &Client,
) -> Result<(), PreflightError> {
    let account = &rendered.resolved.settings.account;
    let missing = lacking(&context.discovery, &context.reviews, account, client, all).await;
    let missing = missing.map_err(|source| PreflightError::Ask {
        account: account.clone(),
        source,
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    let extension = rendered.resolved.observed.extension.name();
    Err(PreflightError::Rights {
        missing: explain(&missing, account, NOTHING_IS_APPLIED),
        help: remedy(&roles_command(context, extension, account)),
    })
}

/// The command that prints the roles which the account lacks.
fn roles_command(context: &Context, extension: &str, account: &AccountName) -> String {
    let default = context
        .default_account
        .as_ref()
        .filter(|default| *default == account);
    let default = default.map(ToString::to_string);
    rbac_of_extension(extension, &context.system_namespace, default.as_deref())
}

/// The objects that could not be tested, unless others are refused. A forbidden object may mean that a right was lost
/// since the review.
async fn passed(
    context: &Context,
    rendered: &Rendered<'_>,
    all: &[&Value],
    client: &Client,
    rehearsal: Rehearsal,
) -> Result<Vec<ObjectId>, PreflightError> {
    if rehearsal.is_forbidden() {
        context.reviews.forget(&rendered.resolved.settings.account);
        entitled(context, rendered, all, client).await?;
    }
    rehearsal.passed()
}

/// The index of the phase with a CRD.
fn phase_of(groups: &[Group], definition: &str) -> usize {
    let has = |group: &Group| {
        let mut names = group.objects.iter().filter_map(definition_name);
        names.any(|name| name == definition)
    };
    groups.iter().position(has).unwrap_or_default()
}
