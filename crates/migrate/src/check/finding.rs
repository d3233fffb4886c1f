//! Findings against a move, and the choices of the user about them. Pure.

use std::collections::BTreeSet;

use olm_api::names::migration;
use serde::Serialize;

use crate::facts::{Case, annotation};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
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
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub fix: String,
}

impl Finding {
    /// A finding that blocks the move.
    pub fn blocking(check: &'static str, message: String, fix: impl Into<String>) -> Self {
        Self {
            check,
            severity: Severity::Blocks,
            message,
            fix: fix.into(),
        }
    }
}

/// How the move is requested: it decides what a finding advises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Request {
    /// By the command line, with its flags and the rights of its user.
    #[default]
    Command,
    /// By an annotation. Whoever sets it must not gain rights: the account is the one that OLM classic used.
    Annotation,
}

/// The user's choices.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// How the move is requested.
    pub request: Request,
    /// The account of the ClusterExtension; by default that of the OperatorGroup.
    pub account: Option<String>,
    /// Checks whose findings are acknowledged.
    pub acknowledged: BTreeSet<String>,
    /// `NAMESPACE/NAME` of all Subscriptions that move in this call.
    pub together: BTreeSet<String>,
}

/// Collects findings.
pub(crate) struct Findings<'a> {
    pub(crate) case: Case<'a>,
    pub(crate) choices: &'a Choices,
    pub(crate) found: Vec<Finding>,
}

impl Findings<'_> {
    /// The advice for this kind of request.
    pub(crate) fn advice(&self, command: String, annotation: String) -> String {
        match self.choices.request {
            Request::Command => command,
            Request::Annotation => annotation,
        }
    }

    pub(crate) fn block(&mut self, check: &'static str, message: String, fix: impl Into<String>) {
        self.found.push(Finding::blocking(check, message, fix));
    }

    pub(crate) fn ask(&mut self, check: &'static str, message: String, fix: impl Into<String>) {
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
            fix: match self.choices.request {
                Request::Command => format!("{}, or acknowledge it with --acknowledge {check}", fix.into()),
                Request::Annotation => {
                    format!("{}, or acknowledge it with annotation {key}=true", fix.into())
                }
            },
        });
    }
}
