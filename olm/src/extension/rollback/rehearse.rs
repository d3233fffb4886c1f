//! A dry run of the objects of an older revision in place of the present ones, so that immutable fields are found
//! before the version is pinned.

use std::collections::BTreeMap;
use std::fmt;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Error};
use olm_api::names::field_manager;
use olm_api::object::{qualified_name, text};
use olm_api::text::counted;
use olm_preflight::dry_run::{self, BundleContent, Denial, DryRunOutcome, MAX_OBJECTS, in_both};
use serde_json::Value;

use super::account::RequestIdentity;

/// The answers of the API server to a dry run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rehearsal {
    /// The refusals, a line for each object.
    pub(crate) refused: Vec<String>,
    /// Unchecked objects, with the reasons.
    pub(crate) unchecked: Vec<String>,
    /// The reason why the dry run was not made as the account that writes the objects.
    pub(crate) not_as_account: Option<String>,
}

/// Makes a server-side dry run of objects that both revisions have. The kinds are discovered as the user.
pub(crate) async fn rehearse(
    user: &Client,
    who: RequestIdentity,
    present: &[Value],
    older: &[Value],
) -> Rehearsal {
    let mut rehearsal = Rehearsal {
        not_as_account: who.account.err(),
        ..Rehearsal::default()
    };
    let mut kinds: BTreeMap<ObjectKind, KindDiscovery> = BTreeMap::new();
    let asked = in_both(present, older);
    for object in asked.iter().take(MAX_OBJECTS) {
        let kind = ObjectKind::of(object);
        let known = match kinds.get(&kind) {
            Some(known) => known.clone(),
            None => kind.find(user).await,
        };
        kinds.insert(kind, known.clone());
        match known {
            KindDiscovery::No => {}
            KindDiscovery::Unknown(why) => rehearsal
                .unchecked
                .push(format!("{}: {why}", object_label(object))),
            KindDiscovery::Yes(resource, scope) => {
                if let Err(error) = apply(&who.client, &resource, &scope, object).await {
                    rehearsal.add(object, &error);
                }
            }
        }
    }
    for object in asked.iter().skip(MAX_OBJECTS) {
        let why = format!("only {MAX_OBJECTS} objects are checked");
        rehearsal
            .unchecked
            .push(format!("{}: {why}", object_label(object)));
    }
    rehearsal
}

impl fmt::Display for Rehearsal {
    /// A line for each object that is refused, one for those that could not be asked about, and one for who asked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.not_as_account {
            writeln!(
                f,
                "the dry run uses your account, not the service account that will write the objects ({why}): it does not \
                 detect rights that the service account lacks"
            )?;
        }
        for line in &self.refused {
            writeln!(f, "the API server refuses {line}")?;
        }
        let Some(first) = self.unchecked.first() else {
            return Ok(());
        };
        let count = counted(self.unchecked.len(), "object");
        writeln!(f, "cannot check whether the API server accepts {count}: {first}")
    }
}

impl Rehearsal {
    fn add(&mut self, object: &Value, error: &Error) {
        let (denial, message) = match error {
            // Its namespace or kind is missing.
            Error::Api(status) if status.code == 404 => return,
            Error::Api(status) if status.code == 400 && dry_run::cannot_be_made(&status.reason) => {
                (Denial::NoDryRun, status.message.clone())
            }
            Error::Api(status)
                if matches!(status.code, 400 | 422) || dry_run::does_not_fit(status.code, &status.reason) =>
            {
                (Denial::Invalid, status.message.clone())
            }
            Error::Api(status) if status.code == 403 && self.not_as_account.is_none() => {
                (Denial::Forbidden, status.message.clone())
            }
            // The requests are not made as the account that will apply the object.
            Error::Api(status) => (Denial::Other, status.message.clone()),
            other => (Denial::Other, other.to_string()),
        };
        let line = format!("{}: {message}", object_label(object));
        // All requirements of the older revision exist.
        match dry_run::assess(object, denial, &BundleContent::default()) {
            DryRunOutcome::Refused => self.refused.push(line),
            DryRunOutcome::Unchecked | DryRunOutcome::Deferred => self.unchecked.push(line),
        }
    }
}

/// The discovery of a kind.
#[derive(Debug, Clone)]
enum KindDiscovery {
    /// The cluster serves the kind.
    Yes(Box<ApiResource>, Scope),
    /// The cluster does not serve the kind, so no object of it can be an obstacle.
    No,
    /// The discovery failed, with the reason.
    Unknown(String),
}

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKind(String, String, String);

impl ObjectKind {
    fn of(object: &Value) -> Self {
        let version = text(object, "/apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Self(
            group.to_owned(),
            version.to_owned(),
            text(object, "/kind").to_owned(),
        )
    }

    /// Discovers the kind.
    async fn find(&self, client: &Client) -> KindDiscovery {
        let Self(group, version, kind) = self;
        match pinned_kind(client, &GroupVersionKind::gvk(group, version, kind)).await {
            Ok((resource, capabilities)) => KindDiscovery::Yes(Box::new(resource), capabilities.scope),
            Err(Error::Api(status)) if status.code == 404 => KindDiscovery::No,
            Err(Error::Discovery(_)) => KindDiscovery::No,
            Err(error) => KindDiscovery::Unknown(error.to_string()),
        }
    }
}

fn object_label(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), qualified_name(object))
}

async fn apply(client: &Client, resource: &ApiResource, scope: &Scope, object: &Value) -> Result<(), Error> {
    let namespace = text(object, "/metadata/namespace");
    let api: Api<DynamicObject> = match scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, resource),
        Scope::Cluster => Api::all_with(client.clone(), resource),
    };
    let params = PatchParams::apply(field_manager::OBJECTS).force().dry_run();
    let name = text(object, "/metadata/name");
    api.patch(name, &params, &Patch::Apply(dry_run::body(object)))
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "n"}})
    }

    fn error(code: u16, message: &str) -> Error {
        let mut status =
            kube::core::Status::failure(message, if code == 400 { "BadRequest" } else { "Other" });
        status.code = code;
        Error::Api(Box::new(status))
    }

    #[test]
    fn a_rollback_beyond_the_rights_of_the_account_is_refused() {
        let mut rehearsal = Rehearsal::default();
        rehearsal.add(&object("v1", "ConfigMap", "a"), &error(403, "no right"));
        assert_eq!(
            rehearsal.to_string(),
            "the API server refuses ConfigMap n/a: no right\n"
        );
    }

    #[test]
    fn only_definite_refusals_of_the_server_block() {
        let mut rehearsal = Rehearsal {
            not_as_account: Some("because".to_owned()),
            ..Rehearsal::default()
        };
        for (code, message) in [
            (422, "field is immutable"),
            (400, "admission webhook \"w\" does not support dry run"),
            (403, "no right"),
            (404, "no namespace"),
        ] {
            rehearsal.add(&object("v1", "ConfigMap", "a"), &error(code, message));
        }
        assert_eq!(rehearsal.refused, ["ConfigMap n/a: field is immutable"]);
        let report = rehearsal.to_string();
        assert!(
            report.starts_with("the dry run uses your account, ")
                && report.contains("(because): it does not"),
            "{report}"
        );
        assert!(
            report.ends_with(
                "accepts 2 objects: ConfigMap n/a: admission webhook \"w\" does not support dry run\n"
            ),
            "{report}"
        );
    }
}
