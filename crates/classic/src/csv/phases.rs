//! One pass over a ClusterServiceVersion: the gates that its OperatorGroup sets, then one step of its phase.
//!
//! Callers see to the finalizer and to copies; they do not pass one that is being deleted.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ClusterServiceVersion;
use super::requirements::{ClusterFacts, Requirements, evaluate};
use super::status::set_phase;
use crate::cluster::{object_at, text};
use crate::install::Issuer;
use crate::names;
use crate::operator_group::OperatorGroup;

mod api_services;
mod certificates;
mod chain;
mod deployments;
mod gates;
mod health;
mod steps;
mod upgradeable;
mod webhooks;

pub use api_services::is_adoptable;
pub use deployments::UnreadyDeployments;

/// The message of a ClusterServiceVersion with an API that another OperatorGroup provides.
pub(super) const GROUP_CONFLICT: &str = "intersecting operatorgroups provide the same apis";

/// The reason that nothing but a change of accounts, roles or bindings ends.
const NO_RETRY: &str = "InstallComponentFailedNoRetry";

/// Result of a pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsvDecision {
    /// The ClusterServiceVersion after the pass. Status and metadata may both differ.
    pub csv: Value,
    /// The other objects to write, whole.
    pub written: Vec<Value>,
    /// Objects to delete, as kind, namespace and name.
    pub deleted: Vec<(String, String, String)>,
    /// ClusterServiceVersions of the namespace that must be looked at.
    pub csvs: BTreeSet<String>,
    /// Error that makes the pass be retried.
    pub error: Option<String>,
    /// What keeps the Deployments of the strategy from being healthy, where nothing but that is wrong: they are as the
    /// strategy wants them.
    pub unready: Option<UnreadyDeployments>,
    /// Whether the error is that a server behind the API server does not answer for the moment. The health of the
    /// operator is not known then, and its phase stays.
    pub is_unanswered: bool,
}

/// A pass under way.
struct CsvPass<'a> {
    facts: &'a ClusterFacts<'a>,
    issuer: &'a dyn Issuer,
    csv: ClusterServiceVersion,
    now: Timestamp,
    decision: CsvDecision,
}

/// Whether a pass continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Passed,
    Closed,
}

/// One pass over a ClusterServiceVersion as it is on the wire. `issuer` makes the certificates of an installation.
///
/// # Errors
/// When a field that the rules read has another type.
pub fn pass(
    object: &Value,
    facts: &ClusterFacts<'_>,
    issuer: &dyn Issuer,
    now: Timestamp,
) -> Result<CsvDecision, serde_json::Error> {
    let mut pass = CsvPass {
        facts,
        issuer,
        csv: ClusterServiceVersion::read(object)?,
        now,
        decision: CsvDecision {
            csv: object.clone(),
            ..CsvDecision::default()
        },
    };
    if pass.csv.status.reason != NO_RETRY
        && let Ok(group) = gates::check(&mut pass)
    {
        steps::step(&mut pass, &group);
    }
    Ok(pass.decision)
}

impl CsvPass<'_> {
    fn namespace(&self) -> &str {
        &self.csv.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.csv.metadata.name
    }

    /// Sets phase, reason and message, and the time also when they are the same.
    fn set(&mut self, phase: &str, reason: &str, message: &str) {
        let now = format!("{:.0}", self.now);
        set_phase(&mut self.decision.csv, phase, reason, message, &now);
    }

    /// Sets phase, reason and message where one of them differs.
    fn set_changed(&mut self, phase: &str, reason: &str, message: &str) {
        let field = |key: &str| text(&self.decision.csv, key).to_owned();
        let present = [
            field("/status/phase"),
            field("/status/reason"),
            field("/status/message"),
        ];
        if present != [phase, reason, message] {
            self.set(phase, reason, message);
        }
    }

    /// Notes when certificates are due, and that they were made.
    fn certified(&mut self, due: Option<Timestamp>, is_made: bool) {
        let made = is_made.then_some(self.now);
        if let Some(status) = object_at(&mut self.decision.csv, &["status"]) {
            for (key, time) in [("certsLastUpdated", made), ("certsRotateAt", due)] {
                let time = time.map(|time| format!("{time:.0}"));
                status.extend(time.map(|time| (key.to_owned(), time.into())));
            }
        }
    }

    fn retry(&mut self, error: impl Into<String>) {
        self.decision.error = Some(error.into());
    }

    /// Looks for the requirements.
    fn requirements(&self) -> Result<Requirements, String> {
        evaluate(&self.csv, self.facts).map_err(|error| error.to_string())
    }

    /// Writes the rows of the requirements.
    fn record(&mut self, found: &Requirements) {
        if let Some(status) = object_at(&mut self.decision.csv, &["status"]) {
            if found.rows.is_empty() {
                status.remove("requirementStatus");
            } else {
                status.insert("requirementStatus".to_owned(), json!(found.rows));
            }
        }
    }

    /// Another ClusterServiceVersion of the namespace.
    fn sibling(&self, name: &str) -> Option<&Value> {
        self.facts
            .cluster
            .get(names::CSV_KIND, self.namespace(), name)
            .filter(|_| name != self.name() && !name.is_empty())
    }

    /// The one that this one replaces.
    fn replaced(&self) -> Option<&Value> {
        self.sibling(&self.csv.spec.replaces)
    }
}

/// Whether an OperatorGroup lets a failed ClusterServiceVersion be replaced.
fn fails_forward(group: &OperatorGroup) -> bool {
    group.spec.upgrade_strategy == "TechPreviewUnsafeFailForward"
}

#[cfg(test)]
mod tests;
