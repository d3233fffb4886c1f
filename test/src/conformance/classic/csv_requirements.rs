//! The requirements of ClusterServiceVersions: the requirement part of a pass.
//!
//! A pass stops early if its requirements are not met or cannot be checked. Then phase, reason and message depend only
//! on them, and are compared, too. The suite of phases covers the rest of a pass.

use std::collections::BTreeSet;

use olm_classic::cluster::Discovery;
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::csv::requirements::{ClusterFacts, Requirements, evaluate};
use serde_json::{Value, json};

use super::super::Outcome;
use super::{cluster, compare, list, text, texts};

/// The version of an API server that was built from source.
pub(super) const UNKNOWN_VERSION: &str = "v0.0.0-master+$Format:%H$";

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    let cluster = cluster(case);
    let found = cluster.get(
        "ClusterServiceVersion",
        text(case, "namespace"),
        text(case, "csv"),
    );
    let csv = match found.map(ClusterServiceVersion::read) {
        Some(Ok(csv)) => csv,
        Some(Err(error)) => return Outcome::Fail(error.to_string()),
        None => return Outcome::Fail("the case has no ClusterServiceVersion of this name".to_owned()),
    };
    let discovery = discovery(case);
    let server_version = case.get("serverVersion").and_then(Value::as_str);
    let facts = ClusterFacts {
        cluster: &cluster,
        discovery: &discovery,
        server_version: Some(server_version.unwrap_or(UNKNOWN_VERSION)),
    };
    let evaluated = evaluate(&csv, &facts);
    let rows = evaluated.as_ref().map_or(Value::Null, rows);
    compare(case, "requirementStatus", &rows).and(|| match evaluated {
        Ok(found) if found.met => Outcome::Pass,
        Ok(_) => unmet(case, &csv.status.phase),
        Err(error) => stopped(
            case,
            "Failed",
            "InvalidInstallStrategy",
            &format!("install strategy invalid: {error}"),
        ),
    })
}

pub(super) fn discovery(case: &Value) -> Discovery {
    let served = list(case, "discovery").into_iter().map(|group| {
        let kinds: BTreeSet<String> = texts(group, "kinds").into_iter().collect();
        (text(group, "groupVersion").to_owned(), kinds)
    });
    served.collect()
}

/// The rows as they are recorded. A requirement without rows is absent.
fn rows(found: &Requirements) -> Value {
    if found.rows.is_empty() {
        Value::Null
    } else {
        json!(found.rows)
    }
}

fn unmet(case: &Value, phase: &str) -> Outcome {
    match phase {
        "Pending" => stopped(
            case,
            "Pending",
            "RequirementsNotMet",
            "one or more requirements couldn't be found",
        )
        .and(|| compare(case, "sync_error", &json!("requirements were not met"))),
        "Succeeded" => stopped(case, "Failed", "RequirementsNotMet", "requirements no longer met"),
        "Failed" => stopped(case, "Pending", "RequirementsNotMet", "requirements not met"),
        other => Outcome::Fail(format!("requirements are not looked at in phase {other:?}")),
    }
}

fn stopped(case: &Value, phase: &str, reason: &str, message: &str) -> Outcome {
    compare(case, "phase", &json!(phase))
        .and(|| compare(case, "reason", &json!(reason)))
        .and(|| compare(case, "message", &json!(message)))
}
