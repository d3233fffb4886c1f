//! Whether it is safe to make a revision: asked before anything is written, under the account that would write.

mod existing;
mod migrate;
mod progress;
mod rehearse;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_api::conditions::reason;
use olm_api::names::user;
use olm_preflight::crd_upgrade::migration::{Migration, Rewrite, migration};
use olm_preflight::crd_upgrade::{
    Change, Check, Policy, Unsafe, add, check_all, definition_name, settle, summary, weigh, within,
};
use olm_preflight::permissions::{Missing, Right};
use olm_preflight::rehearsal::Brought;
use serde_json::Value;

pub use progress::{Known, record};
use rehearse::Rehearsal;

use crate::cluster::apply::Target;
use crate::cluster::discover::Discovery;
use crate::cluster::identity::{AccountName, IdentityError};
use crate::cluster::permissions::{Reviews, Viewer};
use crate::extension::context::Context;
use crate::extension::failure::{Failure, Severity, StageError};
use crate::extension::observe::conflicts::{self, ConflictError};
use crate::extension::observe::options::Wishes;
use crate::extension::plan::changes::Changes;
use crate::object_set::engine::ownership::{Ownership, RevisionMark};
use crate::object_set::engine::{FailureKind, ObjectId};
use crate::object_set::rights::{NOTHING_IS_APPLIED, explain, lacking};

/// How many definitions are read at once.
const AT_ONCE: usize = 8;
/// Bytes of findings in a condition beyond which they are only counted.
const MAX_FINDINGS: usize = 8192;

/// Why a revision is not made.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Nobody can act as the account.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot be found out what the account may do.
    #[error("cannot find out what service account {account} may do")]
    Ask {
        /// The account.
        account: AccountName,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// The account lacks rights.
    #[error("{0}")]
    Rights(String),
    /// A definition on the cluster cannot be read.
    #[error("getting existing resource for CRD {name:?}: {message}")]
    Read {
        /// The definition.
        name: String,
        /// What follows from it.
        kind: FailureKind,
        /// What the server said.
        message: String,
    },
    /// Other extensions provide the kinds.
    #[error(transparent)]
    Conflict(#[from] ConflictError),
    /// A changed definition breaks what users have stored.
    #[error("{0}")]
    Definitions(String),
    /// Stored versions cannot leave their list.
    #[error(transparent)]
    Migration(#[from] migrate::MigrationError),
    /// Stored versions of a definition of somebody else would have to leave their list.
    #[error(
        "version(s) {gone} would have to leave status.storedVersions of CRD {name:?}, which belongs to somebody else; \
         nothing is changed: to have it taken over, set the annotation {key}", key = user::ADOPT
    )]
    Foreign {
        /// The definition.
        name: String,
        /// The versions.
        gone: String,
    },
    /// The API server would refuse changes.
    #[error("{0}")]
    Refused(String),
}

impl StageError for PreflightError {
    fn severity(&self) -> Severity {
        match self {
            Self::Identity(IdentityError::Unavailable { .. }) | Self::Ask { .. } => Severity::Transient,
            Self::Read { kind, .. } if *kind != FailureKind::Forbidden => Severity::Transient,
            Self::Conflict(error) => error.severity(),
            Self::Migration(migrate::MigrationError::Refused { failure, .. })
                if !matches!(failure.kind, FailureKind::Forbidden | FailureKind::Invalid) =>
            {
                Severity::Transient
            }
            Self::Migration(migrate::MigrationError::Unfinished { .. }) => Severity::Unfinished,
            Self::Identity(_)
            | Self::Foreign { .. }
            | Self::Rights(_)
            | Self::Read { .. }
            | Self::Definitions(_)
            | Self::Migration(_)
            | Self::Refused(_) => Severity::Waiting,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Conflict(error) => error.reason(),
            _ => reason::RETRYING,
        }
    }
}

/// What is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Whose revision it would be.
    pub extension: &'a ClusterExtension,
    /// Under whom it would be applied.
    pub account: &'a AccountName,
    /// What the user wishes.
    pub wishes: &'a Wishes,
    /// The bundle's objects.
    pub objects: &'a [&'a Value],
    /// Secrets with certificates that come besides.
    pub secrets: &'a [Value],
    /// How the revision differs from what is installed; nothing when nothing is, and every object is asked about.
    pub changes: Option<&'a Changes>,
}

/// Asks everything that is to be known before a revision with these objects is made: rights, all that are missing at
/// once (requirement 1.09); whose the kinds are (requirement 7.51); whether changed definitions keep what is stored
/// (requirements 5.30 to 5.33); whether the API server would take what comes and changes. Only when nothing stands in the
/// way are stored versions migrated that go; their definitions, which the API server would refuse before, are asked about
/// after that. Gives what is to be told although nothing stands in the way.
pub async fn check(context: &Context, request: Request<'_>) -> Result<Option<String>, Failure> {
    Ok(examine(context, request).await?)
}

/// As whom and by what something is asked.
pub(super) struct Asking<'a> {
    account: &'a AccountName,
    client: &'a Client,
    discovery: &'a Discovery,
    reviews: &'a Reviews,
}

impl Asking<'_> {
    async fn may(&self, right: &Right) -> Result<bool, kube::Error> {
        let viewer = Viewer::Account(self.account.clone());
        self.reviews.may(self.client, &viewer, right).await
    }
}

async fn examine(context: &Context, request: Request<'_>) -> Result<Option<String>, PreflightError> {
    let Request {
        extension,
        account,
        wishes,
        objects,
        ..
    } = request;
    let client = context.accounts.client(account).await?;
    entitled(context, &request, &client).await?;
    let live = definitions(context, account, &client, objects).await?;
    conflicts::kinds(&live, extension.name(), |owner| {
        context.extension(owner).is_some()
    })?;
    let asking = Asking {
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
    if enforcement(extension) == CrdUpgradeSafetyEnforcement::Strict {
        notes = safety(&asking, &wishes.definitions, &pairs, &ours).await?;
    }
    let rewrites = rewrites(&pairs);
    for (name, old, rewrite) in &rewrites {
        if migrate::is_foreign(old, &ours, wishes.adopt) {
            return Err(PreflightError::Foreign {
                name: (*name).to_owned(),
                gone: rewrite.gone.join(", "),
            });
        }
    }
    may_migrate(&asking, extension, &rewrites).await?;
    let brought = Brought::of(objects.iter().copied());
    // As long as stored versions are on their lists, the definitions without them are refused.
    let (late, early): (Vec<&Value>, Vec<&Value>) = objects
        .iter()
        .copied()
        .filter(|object| request.changes.is_none_or(|changes| changes.touches(object)))
        .partition(|object| {
            definition_name(object).is_some_and(|name| rewrites.iter().any(|(known, _, _)| *known == name))
        });
    let early = rehearse::rehearse(&asking, &brought, &early).await;
    let mut unchecked = passed(context, &request, &client, early).await?;
    notes.extend(migrate(context, &asking, extension, &rewrites).await?);
    let late = rehearse::rehearse(&asking, &brought, &late).await;
    unchecked.extend(passed(context, &request, &client, late).await?);
    notes.extend(rehearse::note(&unchecked));
    Ok((!notes.is_empty()).then(|| within(&notes.join("\n"), MAX_FINDINGS)))
}

/// Whether the account may apply and remove everything.
async fn entitled(context: &Context, request: &Request<'_>, client: &Client) -> Result<(), PreflightError> {
    let account = request.account;
    let objects = request.objects.iter().copied();
    let all: Vec<&Value> = objects.chain(request.secrets).collect();
    let missing = lacking(&context.discovery, &context.reviews, account, client, &all).await;
    let missing = missing.map_err(|source| PreflightError::Ask {
        account: account.clone(),
        source,
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(PreflightError::Rights(explain(
        &missing,
        request.extension.name(),
        account,
        NOTHING_IS_APPLIED,
    )))
}

/// What the server could not be asked about, if it refuses nothing. What it refuses to the account may be a right that was
/// lost since it was asked for.
async fn passed(
    context: &Context,
    request: &Request<'_>,
    client: &Client,
    rehearsal: Rehearsal,
) -> Result<Vec<ObjectId>, PreflightError> {
    if rehearsal.is_forbidden() {
        context.reviews.forget(request.account);
        entitled(context, request, client).await?;
    }
    rehearsal.passed()
}

fn enforcement(extension: &ClusterExtension) -> CrdUpgradeSafetyEnforcement {
    let preflight = extension
        .spec
        .install
        .as_ref()
        .and_then(|install| install.preflight.as_ref());
    preflight
        .and_then(|preflight| preflight.crd_upgrade_safety.as_ref())
        .map_or(CrdUpgradeSafetyEnforcement::Strict, |safety| safety.enforcement)
}

/// Whether definitions (name, as the cluster has it, as it would be) may be replaced. Gives what is to be told.
async fn safety(
    asking: &Asking<'_>,
    policy: &Policy,
    pairs: &[(&str, &Value, &Value)],
    ours: &[&str],
) -> Result<Vec<String>, PreflightError> {
    let ask = |source| PreflightError::Ask {
        account: asking.account.clone(),
        source,
    };
    let mut found = check_all(pairs.iter().map(|(_, _, new)| *new), policy, |name| {
        let old = pairs.iter().find(|(known, _, _)| *known == name);
        Ok(old.map(|(_, old, _)| *old))
    });
    let (mut notes, mut hints) = (Vec::new(), String::new());
    let until = existing::deadline();
    for (name, old, new) in pairs {
        match migration(old, new) {
            Migration::Needless => {}
            Migration::Possible(_) => settle(&mut found, name, Check::StoredVersionRemoval),
            Migration::Impossible { reason, .. } => {
                let _ = write!(hints, "\nCRD {name:?}: {reason}");
            }
        }
        if policy.reports(Check::ExistingObjects, Change::Other) {
            let looked = existing::look(asking, old, new, until).await.map_err(ask)?;
            add(&mut found, name, looked.findings, policy);
            notes.extend(looked.notes);
        }
    }
    let (errors, warnings) = weigh(found, policy);
    if !errors.is_empty() {
        let mut text = summary(&errors, MAX_FINDINGS);
        for line in compared(&errors, pairs, ours) {
            text.push('\n');
            text.push_str(&line);
        }
        text.push_str(&hints);
        for note in notes {
            let _ = write!(text, "\n{note}");
        }
        if let Some(policy) = lenient(&errors) {
            let _ = write!(
                text,
                "\nto go on all the same: annotation {}: {policy:?}",
                user::CRD_POLICY
            );
        }
        return Err(PreflightError::Definitions(text));
    }
    if !warnings.is_empty() {
        notes.insert(0, summary(&warnings, MAX_FINDINGS));
    }
    Ok(notes)
}

/// What was compared with what, of the definitions that stand in the way: on a first installation, too, there may be one.
fn compared(errors: &[Unsafe], pairs: &[(&str, &Value, &Value)], ours: &[&str]) -> Vec<String> {
    let mut by_holder: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for error in errors {
        let (Unsafe::Change { definition, .. } | Unsafe::Unknown { definition, .. }) = error;
        if let Some((name, live, _)) = pairs.iter().find(|(name, _, _)| *name == definition.as_str()) {
            by_holder.entry(holder(live, ours)).or_default().push(name);
        }
    }
    let lines = by_holder.into_iter();
    lines
        .map(|(holder, names)| {
            format!(
                "compared with what the bundle brings was the definition on the cluster, which {holder}: {}",
                names.join(", ")
            )
        })
        .collect()
}

/// Whose a definition on the cluster is, as the end of a sentence.
fn holder(live: &Value, ours: &[&str]) -> String {
    let seen = Ownership::of(live, "");
    let extension = seen.owner_name.filter(|name| !name.is_empty());
    let of = extension.map_or_else(String::new, |name| format!(" of ClusterExtension {name}"));
    match seen.controller {
        Some(owner) if ours.contains(&owner.uid.as_str()) => "is this extension's own".to_owned(),
        Some(owner) => format!(
            "belongs to {} {}{of} ({})",
            owner.kind, owner.name, owner.api_version
        ),
        None if seen.revision != RevisionMark::Absent => {
            format!("a revision{of} left behind and nobody controls")
        }
        None if seen.writers.is_empty() => "nobody controls".to_owned(),
        None => format!("nobody controls (written by {})", seen.writers.join(", ")),
    }
}

/// The policy under which what was found is only told; nothing when the API server itself would refuse it.
fn lenient(errors: &[Unsafe]) -> Option<String> {
    let mut checks = BTreeSet::new();
    for error in errors {
        let Unsafe::Change { findings, .. } = error else {
            return None;
        };
        checks.extend(findings.iter().map(|finding| finding.check));
    }
    let refused = [Check::StoredVersionRemoval, Check::Scope];
    let is_refused = refused.iter().any(|check| checks.contains(check));
    let entries: Vec<String> = checks
        .iter()
        .map(|check| format!("{}=Warn", check.as_str()))
        .collect();
    (!is_refused && !entries.is_empty()).then(|| entries.join(","))
}

/// The definitions (name, as the cluster has it) of which stored versions go, and how they can.
fn rewrites<'a>(pairs: &[(&'a str, &'a Value, &Value)]) -> Vec<(&'a str, &'a Value, Rewrite)> {
    let possible = |(name, old, new): &(&'a str, &'a Value, &Value)| match migration(old, new) {
        Migration::Possible(rewrite) => Some((*name, *old, rewrite)),
        Migration::Needless | Migration::Impossible { .. } => None,
    };
    pairs.iter().filter_map(possible).collect()
}

/// Whether the account may have stored versions leave their lists.
async fn may_migrate(
    asking: &Asking<'_>,
    extension: &ClusterExtension,
    rewrites: &[(&str, &Value, Rewrite)],
) -> Result<(), PreflightError> {
    let (mut missing, mut stored) = (BTreeSet::new(), Vec::new());
    for (name, _, rewrite) in rewrites {
        let lacking = migrate::lacking(asking, rewrite).await;
        let lacking = lacking.map_err(|source| PreflightError::Ask {
            account: asking.account.clone(),
            source,
        })?;
        if !lacking.is_empty() {
            let gone = rewrite.gone.join(", ");
            stored.push(format!("objects of CRD {name:?} may still be stored as {gone}"));
            missing.extend(lacking);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let needed = explain(
        &Missing::new(missing),
        extension.name(),
        asking.account,
        NOTHING_IS_APPLIED,
    );
    Err(PreflightError::Rights(format!(
        "{}, which the new definition lacks: they have to be written again; {needed}",
        stored.join(", ")
    )))
}

/// Lets stored versions that go leave their lists. Gives what was done.
async fn migrate(
    context: &Context,
    asking: &Asking<'_>,
    extension: &ClusterExtension,
    rewrites: &[(&str, &Value, Rewrite)],
) -> Result<Vec<String>, PreflightError> {
    let mut done = Vec::new();
    let memorise = |known| context.memorise(extension.name(), |memory| memory.migration = known);
    for (name, old, rewrite) in rewrites {
        let mut progress = context.remember(extension.name()).migration.of(extension);
        let limits = migrate::Limits::within(context.migration_time);
        let migrated = migrate::migrate(asking.client, rewrite, old, &mut progress, limits).await;
        memorise(progress.map_or(Known::Over, Known::Reached));
        let count = migrated?;
        tracing::info!(
            extension = extension.name(),
            definition = name,
            count,
            gone = rewrite.gone.join(", "),
            "wrote the objects of a definition again, so that versions could leave status.storedVersions"
        );
        done.push(format!(
            "{count} object(s) of CRD {name:?} were written again as {}; {} left status.storedVersions",
            rewrite.storage,
            rewrite.gone.join(", ")
        ));
    }
    memorise(Known::Over);
    Ok(done)
}

/// The definitions among the objects that the cluster has, read as the account, since a message tells of them.
async fn definitions(
    context: &Context,
    account: &AccountName,
    client: &Client,
    objects: &[&Value],
) -> Result<BTreeMap<String, Value>, PreflightError> {
    let names: Vec<&str> = objects
        .iter()
        .filter_map(|object| definition_name(object))
        .collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ask = |source| PreflightError::Ask {
        account: account.clone(),
        source,
    };
    let found = context
        .discovery
        .find("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let Some(resource) = found.await.map_err(ask)? else {
        return Ok(BTreeMap::new());
    };
    let reads: Vec<_> = names
        .into_iter()
        .map(|name| read(client, &resource, name))
        .collect();
    let live = stream::iter(reads)
        .buffer_unordered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await;
    if let Err(PreflightError::Read {
        kind: FailureKind::Forbidden,
        ..
    }) = &live
    {
        // What is remembered of its rights is not true any more.
        context.reviews.forget(account);
    }
    live
}

async fn read(
    client: &Client,
    resource: &crate::cluster::discover::Resource,
    name: &str,
) -> Result<Option<(String, Value)>, PreflightError> {
    let target = Target {
        client,
        resource,
        namespace: "",
        name,
    };
    match target.read().await {
        Ok(live) => Ok(live.map(|live| (name.to_owned(), live))),
        Err(failure) => Err(PreflightError::Read {
            name: name.to_owned(),
            kind: failure.kind,
            message: failure.message,
        }),
    }
}

#[cfg(test)]
mod tests {
    use olm_api::names::{annotation, label};
    use olm_preflight::crd_upgrade::{Finding, Place};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_way_out_names_what_was_found_unless_the_server_refuses_it() {
        let change = |checks: &[Check]| {
            let finding = |check: &Check| Finding {
                place: Place::Definition,
                check: *check,
                message: String::new(),
            };
            Unsafe::Change {
                definition: "pots.x.io".to_owned(),
                findings: checks.iter().map(finding).collect(),
            }
        };
        let unknown = Unsafe::Unknown {
            definition: "pans.x.io".to_owned(),
            reason: "no answer".to_owned(),
        };
        for (errors, expected) in [
            (vec![change(&[Check::Enum, Check::Enum])], Some("enum=Warn")),
            (vec![change(&[Check::Enum, Check::StoredVersionRemoval])], None),
            (vec![change(&[Check::Scope])], None),
            (vec![change(&[Check::Enum]), unknown], None),
            (Vec::new(), None),
        ] {
            assert_eq!(lenient(&errors).as_deref(), expected);
        }
    }

    #[test]
    fn what_was_compared_is_told_with_whose_it_is() {
        let set = |uid: &str| json!([{"apiVersion": "x/v1", "kind": "Set", "name": "a-1", "uid": uid, "controller": true}]);
        for (metadata, expected) in [
            (json!({"ownerReferences": set("us")}), "is this extension's own"),
            (
                json!({"ownerReferences": set("them"), "labels": {label::OWNER_NAME: "a"}}),
                "belongs to Set a-1 of ClusterExtension a (x/v1)",
            ),
            (
                json!({"annotations": {annotation::REVISION: "1"}, "labels": {label::OWNER_NAME: "a"}}),
                "a revision of ClusterExtension a left behind and nobody controls",
            ),
            (
                json!({"managedFields": [{"manager": "kubectl"}, {"manager": "apiserver", "subresource": "status"}]}),
                "nobody controls (written by kubectl)",
            ),
            (json!({}), "nobody controls"),
        ] {
            let live = json!({ "metadata": metadata });
            let error = Unsafe::Change {
                definition: "pots.x.io".to_owned(),
                findings: Vec::new(),
            };
            let lines = compared(&[error], &[("pots.x.io", &live, &Value::Null)], &["us"]);
            assert_eq!(
                lines,
                [format!(
                    "compared with what the bundle brings was the definition on the cluster, which {expected}: pots.x.io"
                )]
            );
        }
    }
}
