//! A user with some rights, and the answers of the API server to it.

use anyhow::{Context as _, Result, ensure};
use olm_test::world::{Lab, eventually};
use serde_json::{Value, json};

use crate::{RBAC, SOON};

/// A user of the cluster.
pub(crate) struct Actor<'lab> {
    lab: &'lab Lab,
    user: String,
}

/// The answer of the API server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    /// Refused by an admission policy or by RBAC, with its message.
    Refused(String),
}

impl<'lab> Actor<'lab> {
    /// A user who is there already.
    pub(crate) fn new(lab: &'lab Lab, user: &str) -> Self {
        Self {
            lab,
            user: user.to_owned(),
        }
    }

    /// A user with these rules, and no others.
    pub(crate) fn with(lab: &'lab Lab, user: &str, rules: Value) -> Result<Self> {
        lab.apply(&[
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": user }, "rules": rules,
            }),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": user },
                "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": user },
                "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": user }],
            }),
        ])?;
        Ok(Self::new(lab, user))
    }

    /// Makes a request as a dry run.
    pub(crate) fn ask(&self, arguments: &[&str], object: Option<&Value>) -> Result<Answer> {
        let user = format!("--as={}", self.user);
        let mut all = vec![user.as_str(), "--dry-run=server"];
        all.extend(arguments);
        let file = format!("{}.json", self.user.replace(':', "-"));
        let path = self.lab.folder().join(file).display().to_string();
        if let Some(object) = object {
            std::fs::write(&path, object.to_string())?;
            all.extend(["-f", &path]);
        }
        match self.lab.kubectl(&all) {
            Ok(_) => Ok(Answer::Allowed),
            Err(error) if format!("{error:#}").to_lowercase().contains("forbidden") => {
                Ok(Answer::Refused(format!("{error:#}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks to change an object by a merge patch.
    pub(crate) fn patch(&self, object: &[&str], patch: &Value) -> Result<Answer> {
        let patch = patch.to_string();
        let mut arguments = vec!["patch"];
        arguments.extend(object);
        arguments.extend(["--type=merge", "-p", &patch]);
        self.ask(&arguments, None)
    }

    pub(crate) fn allowed(&self, what: &str, answer: Result<Answer>) -> Result<()> {
        let answer = answer.with_context(|| what.to_owned())?;
        ensure!(answer == Answer::Allowed, "{}: {what}: {answer:?}", self.user);
        Ok(())
    }

    pub(crate) fn refused(&self, what: &str, words: &str, answer: Result<Answer>) -> Result<()> {
        let answer = answer.with_context(|| what.to_owned())?;
        ensure!(
            matches!(&answer, Answer::Refused(said) if said.contains(words)),
            "{}: {what}: {answer:?}",
            self.user
        );
        Ok(())
    }

    /// Waits until a policy or a role counts.
    pub(crate) async fn until(
        &self,
        what: &str,
        wanted: Wanted,
        ask: impl Fn(&Self) -> Result<Answer>,
    ) -> Result<()> {
        eventually(what, SOON, async || {
            let answer = ask(self)?;
            let found = match answer {
                Answer::Allowed => Wanted::Allowed,
                Answer::Refused(_) => Wanted::Refused,
            };
            ensure!(found == wanted, "{}: {answer:?}", self.user);
            Ok(Some(()))
        })
        .await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Allowed,
    Refused,
}
