//! The known rights of an account.

use std::collections::BTreeMap;

use super::Right;
use crate::rules::PolicyRule;

/// Whether an account has a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RightStatus {
    /// The account has it.
    Granted,
    /// The account lacks it.
    Missing,
    /// The rules do not decide. A SelfSubjectAccessReview would.
    Unknown,
}

/// The rules for one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RuleList {
    rules: Vec<PolicyRule>,
    complete: Completeness,
}

/// Whether a list of rules is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Completeness {
    /// All rules are listed.
    Complete,
    /// An authorizer of the cluster cannot list its rules.
    #[default]
    Incomplete,
}

/// The rights of an account.
///
/// A SelfSubjectRulesReview for a namespace returns the rules of the namespace and of the whole cluster, without a
/// difference. A review for a namespace that does not exist returns the rules of the whole cluster alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountRights {
    lists: BTreeMap<Option<String>, RuleList>,
    answers: BTreeMap<Right, bool>,
}

impl AccountRights {
    /// An account without known rights.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the rules for a namespace, or with `None` those of the whole cluster.
    pub fn add_rules(&mut self, namespace: Option<&str>, rules: Vec<PolicyRule>, complete: Completeness) {
        self.lists
            .insert(namespace.map(str::to_owned), RuleList { rules, complete });
    }

    /// Adds the answer of a SelfSubjectAccessReview, which overrides the rules.
    pub fn add_answer(&mut self, right: Right, allowed: bool) {
        self.answers.insert(right, allowed);
    }

    /// Whether the account has a right.
    #[must_use]
    pub fn status(&self, right: &Right) -> RightStatus {
        if let Some(allowed) = self.answers.get(right) {
            return if *allowed {
                RightStatus::Granted
            } else {
                RightStatus::Missing
            };
        }
        let allowed = |list: &RuleList| list.rules.iter().any(|rule| rule.allows(&right.access));
        let cluster = self.lists.get(&None);
        let namespace = right
            .namespace
            .as_ref()
            .and_then(|name| self.lists.get(&Some(name.clone())));
        if cluster.is_some_and(allowed) || namespace.is_some_and(allowed) {
            return RightStatus::Granted;
        }
        let refuted = |list: &RuleList| list.complete == Completeness::Complete && !allowed(list);
        let missing = match &right.namespace {
            Some(_) => namespace.is_some_and(refuted),
            // The rules for any namespace include those for the whole cluster.
            None => self.lists.values().any(refuted),
        };
        if missing {
            RightStatus::Missing
        } else {
            RightStatus::Unknown
        }
    }
}
