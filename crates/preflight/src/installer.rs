//! Objects of a bundle that run as the account that installs it.
//!
//! An operator has an account of its own, with the rights that its bundle requests. An operator that runs as the
//! installing account has all rights of that account, which the bundle does not show.

use std::collections::BTreeSet;
use std::fmt;

use olm_api::names::{token_secret, user};
use olm_api::object::text;
use olm_api::text::{escape, first_of};
use serde_json::Value;

/// Objects of a bundle that would act as the installing account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} would act as service account {account}, which installs the bundle, with all its rights: use another account to install \
     it, or allow it by the annotation {}: \"true\"",
    list(.users),
    user::ALLOW_INSTALLER_WORKLOADS
)]
pub struct InstallerInUse {
    /// `NAMESPACE/NAME` of the account.
    pub account: String,
    /// The objects that would run as it.
    pub users: BTreeSet<User>,
}

/// An object that would act as an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    kind: String,
    name: String,
}

impl fmt::Display for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?}", escape(&self.kind), self.name)
    }
}

/// The first few objects. A bundle may have many.
fn list(users: &BTreeSet<User>) -> String {
    const SHOWN: usize = 5;
    first_of(users.iter(), SHOWN)
}

/// Refuses objects that would act as the account `name` in `namespace`: workloads that run as it, and Secrets that
/// Kubernetes fills with its token. `objects` are those of the bundle, with their namespaces.
///
/// # Errors
/// Some objects would act as the account.
pub fn check<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
    namespace: &str,
    name: &str,
) -> Result<(), InstallerInUse> {
    let users: BTreeSet<User> = objects
        .into_iter()
        .filter(|object| text(object, "/metadata/namespace") == namespace && acts_as(object, name))
        .map(|object| User {
            kind: text(object, "/kind").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
        })
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    Err(InstallerInUse {
        account: format!("{namespace}/{name}"),
        users,
    })
}

fn acts_as(object: &Value, account: &str) -> bool {
    let group = text(object, "/apiVersion")
        .rsplit_once('/')
        .map_or("", |(group, _)| group);
    let pod = match (group, text(object, "/kind")) {
        ("", "Secret") => {
            let owner = object.pointer("/metadata/annotations");
            let owner = owner.and_then(|annotations| annotations.get(token_secret::ACCOUNT));
            return text(object, "/type") == token_secret::TYPE
                && owner.and_then(Value::as_str) == Some(account);
        }
        ("", "Pod") => "/spec",
        ("", "PodTemplate") => "/template/spec",
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => "/spec/template/spec",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return false,
    };
    // The older field applies if the newer one is not set.
    let field = |name: &str| Some(text(object, &format!("{pod}/{name}"))).filter(|value| !value.is_empty());
    field("serviceAccountName")
        .or_else(|| field("serviceAccount"))
        .unwrap_or("default")
        == account
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, rest: Value) -> Value {
        let mut object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "namespace": "ns"},
        });
        let rest: serde_json::Map<String, Value> = serde_json::from_value(rest).unwrap();
        for (key, value) in rest {
            object[key] = value;
        }
        object
    }

    #[test]
    fn a_workload_that_runs_as_the_installer_is_refused() {
        let check = |object: Value, expected: bool| {
            let found = check([&object], "ns", "installer").is_err();
            assert_eq!(found, expected, "{object}");
        };
        let pod = |account: &str| json!({"serviceAccountName": account});
        let template = |account: &str| json!({"spec": {"template": {"spec": pod(account)}}});
        for (api_version, kind) in [
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "ReplicaSet"),
            ("v1", "ReplicationController"),
            ("batch/v1", "Job"),
        ] {
            check(object(api_version, kind, template("installer")), true);
            check(object(api_version, kind, template("operator")), false);
        }
        check(object("v1", "Pod", json!({"spec": pod("installer")})), true);
        check(
            object(
                "v1",
                "PodTemplate",
                json!({"template": {"spec": pod("installer")}}),
            ),
            true,
        );
        check(
            object(
                "batch/v1",
                "CronJob",
                json!({"spec": {"jobTemplate": template("installer")}}),
            ),
            true,
        );
        let older = json!({"spec": {"template": {"spec": {"serviceAccount": "installer"}}}});
        check(object("apps/v1", "Deployment", older), true);
        let both = json!({"spec": {"template": {"spec": {"serviceAccountName": "a", "serviceAccount": "installer"}}}});
        check(object("apps/v1", "Deployment", both), false);
        check(
            object("example.com/v1", "Deployment", template("installer")),
            false,
        );
        let mut elsewhere = object("apps/v1", "Deployment", template("installer"));
        elsewhere["metadata"]["namespace"] = "other".into();
        check(elsewhere, false);
    }

    #[test]
    fn a_workload_without_an_account_runs_as_default() {
        let deployment = object(
            "apps/v1",
            "Deployment",
            json!({"spec": {"template": {"spec": {}}}}),
        );
        assert!(check([&deployment], "ns", "default").is_err());
        assert!(check([&deployment], "ns", "installer").is_ok());
    }

    #[test]
    fn a_secret_with_the_token_of_the_installer_is_refused() {
        let secret = |kind: &str, account: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": kind,
                "metadata": {
                    "name": "s", "namespace": "ns", "annotations": {token_secret::ACCOUNT: account},
                },
            })
        };
        assert!(check([&secret(token_secret::TYPE, "installer")], "ns", "installer").is_err());
        assert!(check([&secret(token_secret::TYPE, "operator")], "ns", "installer").is_ok());
        assert!(check([&secret("Opaque", "installer")], "ns", "installer").is_ok());
    }

    #[test]
    fn the_message_names_a_few_and_the_remedy() {
        let objects: Vec<Value> = (0..7)
            .map(|number| {
                let mut deployment = object(
                    "apps/v1",
                    "Deployment",
                    json!({"spec": {"template": {"spec": {"serviceAccountName": "installer"}}}}),
                );
                deployment["metadata"]["name"] = format!("d{number}\u{202e}").into();
                deployment
            })
            .collect();
        let message = check(&objects, "ns", "installer").unwrap_err().to_string();
        assert!(
            message.starts_with(r#"Deployment "d0\u{202e}", Deployment "d1\u{202e}""#)
                && message.contains(r#""d4\u{202e}" and 2 more would act as service account ns/installer"#)
                && message.ends_with(r#"olm.operatorframework.io/allow-installer-workloads: "true""#),
            "{message}"
        );
    }
}
