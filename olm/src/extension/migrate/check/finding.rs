//! Findings against a move, and the choices of the user about them. Pure.

use std::collections::BTreeSet;

use olm_api::names::migration;
use serde::Serialize;

use super::super::facts::{Case, annotation};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// The move is impossible.
    Blocks,
    /// The move continues once the user has acknowledged it.
    Acknowledge,
    /// The user has acknowledged it.
    Acknowledged,
}

/// One reason not to move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The check.
    pub(crate) check: &'static str,
    /// The severity.
    pub(crate) severity: Severity,
    /// The fault.
    pub(crate) message: String,
    /// The remedy.
    pub(crate) fix: String,
}

/// The user's choices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    /// The account of the ClusterExtension; by default that of the OperatorGroup.
    pub(crate) account: Option<String>,
    /// Checks whose findings are acknowledged.
    pub(crate) acknowledged: BTreeSet<String>,
    /// `NAMESPACE/NAME` of all Subscriptions that move in this call.
    pub(crate) together: BTreeSet<String>,
}

/// Collects findings.
pub(super) struct Findings<'a> {
    pub(super) case: Case<'a>,
    pub(super) choices: &'a Choices,
    pub(super) found: Vec<Finding>,
}

impl Findings<'_> {
    pub(super) fn block(&mut self, check: &'static str, message: String, fix: impl Into<String>) {
        self.found.push(Finding {
            check,
            severity: Severity::Blocks,
            message,
            fix: fix.into(),
        });
    }

    pub(super) fn ask(&mut self, check: &'static str, message: String, fix: impl Into<String>) {
        let key = format!("{}{check}", migration::ACKNOWLEDGED);
        let is_acknowledged = self.choices.acknowledged.contains(check)
            || annotation(self.case.subscription, &key) == Some("true");
        let severity = if is_acknowledged {
            Severity::Acknowledged
        } else {
            Severity::Acknowledge
        };
        self.found.push(Finding {
            check,
            severity,
            message,
            fix: format!("{}, or acknowledge it with --acknowledge {check}", fix.into()),
        });
    }
}
