//! Whether it is safe to make a revision: asked before anything is written, under the account that would write.

mod existing;
mod migrate;
mod rehearse;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use olm_api::ClusterExtension;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_api::conditions::reason;
use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::crd_upgrade::{
    Change, Check, Policy, add, check_all, definition_name, settle, summary, weigh, within,
};
use olm_preflight::permissions::{Missing, Right};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::changes::Changes;
use super::conflicts::{self, ConflictError};
use super::context::Context;
use super::failure::{Failure, Severity, StageError};
use super::wishes::Wishes;
use crate::cluster::apply::Target;
use crate::cluster::discover::Discovery;
use crate::cluster::identity::{AccountName, IdentityError};
use crate::cluster::permissions::{Reviews, Viewer};
use crate::object_set::engine::FailureKind;
use crate::object_set::rights::{asking, lacking, nothing_is_applied};

/// How many definitions are read at once.
const AT_ONCE: usize = 8;
/// Bytes of findings in a condition beyond which they are only counted.
const MAX_FINDINGS: usize = 8192;
/// Bytes of roles in a condition; larger ones are left out.
const MAX_ROLES: usize = 12_288;

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
            Self::Identity(_)
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
    /// How the revision differs from what is installed, if anything is.
    pub changes: Option<&'a Changes>,
}

/// Asks everything that is to be known before a revision with these objects is made: rights, all that are missing at
/// once (requirement 1.09); whose the kinds are (requirement 7.51); whether changed definitions keep what is stored
/// (requirements 5.30 to 5.33); on an upgrade, whether the API server would take the changes. Stored versions that go are
/// migrated, the last thing before the revision is made. Gives what is to be told although nothing stands in the way.
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
    let ask = |source| PreflightError::Ask {
        account: account.clone(),
        source,
    };
    let all: Vec<&Value> = objects.iter().copied().chain(request.secrets).collect();
    let missing = lacking(&context.discovery, &context.reviews, account, &client, &all)
        .await
        .map_err(ask)?;
    if !missing.is_empty() {
        return Err(PreflightError::Rights(explain(
            &missing,
            extension.name(),
            account,
        )));
    }
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
    let mut notes = Vec::new();
    if enforcement(extension) == CrdUpgradeSafetyEnforcement::Strict {
        notes = safety(&asking, &wishes.definitions, &pairs).await?;
    }
    notes.extend(migrate(&asking, extension, &pairs).await?);
    if let Some(changes) = request.changes {
        let rehearsal = rehearse::rehearse(&asking, objects, changes).await;
        if let Some(refusal) = rehearsal.refusal() {
            return Err(PreflightError::Refused(refusal));
        }
        notes.extend(rehearsal.note());
    }
    Ok((!notes.is_empty()).then(|| within(&notes.join("\n"), MAX_FINDINGS)))
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
        text.push_str(&hints);
        for note in notes {
            let _ = write!(text, "\n{note}");
        }
        return Err(PreflightError::Definitions(text));
    }
    if !warnings.is_empty() {
        notes.insert(0, summary(&warnings, MAX_FINDINGS));
    }
    Ok(notes)
}

/// Lets stored versions that go leave their lists. Gives what was done.
async fn migrate(
    asking: &Asking<'_>,
    extension: &ClusterExtension,
    pairs: &[(&str, &Value, &Value)],
) -> Result<Vec<String>, PreflightError> {
    let mut done = Vec::new();
    for (name, old, new) in pairs {
        let Migration::Possible(rewrite) = migration(old, new) else {
            continue;
        };
        let missing = migrate::lacking(asking, &rewrite).await;
        let missing = missing.map_err(|source| PreflightError::Ask {
            account: asking.account.clone(),
            source,
        })?;
        if !missing.is_empty() {
            let needed = explain(&missing, extension.name(), asking.account);
            return Err(PreflightError::Rights(format!(
                "objects of CRD {name:?} may still be stored as {}, which the new definition lacks: they have to be written \
                 again; {needed}",
                rewrite.gone.join(", ")
            )));
        }
        let count = migrate::migrate(asking.client, &rewrite, old).await?;
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

/// What is missing, and the roles that give it, ready to be applied.
fn explain(missing: &Missing, extension: &str, account: &AccountName) -> String {
    let text = nothing_is_applied(missing, account);
    // Named after what is in it: applying it never takes away what an earlier one gave.
    let digest = hex::encode(Sha256::digest(missing.yaml("", asking(account))));
    let name = format!("{extension}-needs-{}", digest.get(..8).unwrap_or(&digest));
    let roles = missing.yaml(&name, asking(account));
    if roles.len() > MAX_ROLES {
        return text;
    }
    format!("{text}. To give these rights to the account, apply:\n{roles}")
}

#[cfg(test)]
mod tests {
    use olm_preflight::permissions::{Discovery, Facts, Held, Planned, Presence, Resource, Scope, needed};
    use serde_json::json;

    use super::*;

    fn missing(objects: &[Value]) -> Missing {
        let planned: Vec<Planned<'_>> = objects
            .iter()
            .map(|object| Planned {
                object,
                presence: Presence::Absent,
            })
            .collect();
        let resource = Resource {
            plural: "configmaps".to_owned(),
            scope: Scope::Namespaced,
        };
        let discovery = Discovery::from([((String::new(), "ConfigMap".to_owned()), resource)]);
        let facts = Facts {
            discovery: &discovery,
            watched: &std::collections::BTreeSet::new(),
            roles: &[],
            namespace: "",
        };
        needed(&planned, &facts).missing(&Held::new())
    }

    fn map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "apps"}})
    }

    #[test]
    fn missing_rights_come_with_a_role_that_never_replaces_an_earlier_one() {
        let account: AccountName = "n/a".parse().unwrap();
        let one = explain(&missing(&[map("x")]), "ext", &account);
        assert!(
            one.starts_with("service account n/a lacks permissions: ")
                && one.contains("; nothing is applied. "),
            "{one}"
        );
        assert!(
            one.contains("kind: RoleBinding") && one.contains("namespace: apps"),
            "{one}"
        );
        let name = |text: &str| {
            let at = text.find("ext-needs-").unwrap();
            text[at..at + 18].to_owned()
        };
        let two = explain(&missing(&[map("y")]), "ext", &account);
        assert_ne!(name(&one), name(&two));
    }

    #[test]
    fn a_role_that_is_too_large_is_left_out() {
        let account: AccountName = "n/a".parse().unwrap();
        let many: Vec<Value> = (0..2000).map(|number| map(&format!("map-{number}"))).collect();
        let text = explain(&missing(&many), "ext", &account);
        assert!(
            !text.contains("kind: Role") && text.len() < MAX_FINDINGS,
            "{text}"
        );
    }
}
