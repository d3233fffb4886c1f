//! Checks the existing objects of a changed CRD. The account reads them, so a message names only objects that it may
//! see. Objects that could not be checked are noted and do not block.

use std::time::{Duration, Instant};

use olm_api::object::text;
use olm_preflight::crd_upgrade::Finding;
use olm_preflight::crd_upgrade::existing::{SchemaChecks, schema_checks};
use serde_json::Value;

use super::access::PreflightAccess;
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_cluster::permissions::right;

/// The most objects of one CRD that are checked.
const MAX_OBJECTS: usize = 5000;
/// The most bytes of these objects.
const MAX_BYTES: u64 = 64 << 20;
/// The longest time for all CRDs of a bundle.
const MAX_TIME: Duration = Duration::from_secs(30);

/// The report on the existing objects of one CRD.
pub(crate) struct ExistingObjectsReport {
    /// The faults of objects with the new schema.
    pub(crate) findings: Vec<Finding>,
    /// The unchecked parts, with the reasons.
    pub(crate) notes: Vec<String>,
}

/// The end of the time.
pub(crate) fn deadline() -> Instant {
    Instant::now() + MAX_TIME
}

/// Checks the objects of a CRD that will be replaced.
pub(crate) async fn check(
    access: &PreflightAccess<'_>,
    old: &Value,
    new: &Value,
    until: Instant,
) -> Result<ExistingObjectsReport, kube::Error> {
    let (group, plural) = (text(old, "/spec/group"), text(old, "/spec/names/plural"));
    let mut checks = schema_checks(old, new);
    let mut checked = ExistingObjectsReport {
        findings: Vec::new(),
        notes: Vec::new(),
    };
    let versions = checks.versions();
    if versions.is_empty() {
        return Ok(checked);
    }
    let list = right("list", group, plural, "");
    if !access.may(&list).await? {
        checked.notes.push(format!(
            "existing {plural}.{group} were not validated against the new definition: service account {} may not list them",
            access.account
        ));
        return Ok(checked);
    }
    for version in &versions {
        let collection = Collection {
            group,
            version,
            plural,
        };
        let budget = Budget {
            objects: MAX_OBJECTS,
            bytes: MAX_BYTES,
            until,
        };
        let mut pages = collection.read(access.client, Detail::Whole, budget);
        let end = loop {
            let page = match pages.page().await {
                Ok(page) => page,
                Err(end) => break end,
            };
            // Schemas and objects may take long to check.
            let checked_page = check_page(checks, version.clone(), page, until);
            let Ok((back, end)) = tokio::task::spawn_blocking(checked_page).await else {
                checked.notes.push(format!(
                    "existing {plural}.{group} cannot be validated against the new definition"
                ));
                return Ok(checked);
            };
            checks = back;
            if let Some(end) = end {
                break end;
            }
        };
        // Without a number of objects, which differs from run to run.
        let why = match end {
            End::Complete => continue,
            End::Spent(what) => format!("the limit on the {what} is exceeded"),
            End::Failed(failure) => failure.message,
        };
        checked.notes.push(format!(
            "not all existing {plural}.{group} were validated against the new definition: {why}"
        ));
    }
    checked.findings = checks.findings();
    let unchecked = checks.unchecked().into_iter();
    checked
        .notes
        .extend(unchecked.map(|text| format!("CRD \"{plural}.{group}\": {text}")));
    Ok(checked)
}

/// Checks a page of objects, as far as the time allows.
fn check_page(
    mut checks: SchemaChecks,
    version: String,
    page: Vec<Value>,
    until: Instant,
) -> impl FnOnce() -> (SchemaChecks, Option<End>) {
    move || {
        for object in &page {
            if Instant::now() >= until {
                return (checks, Some(End::Spent("time")));
            }
            checks.check(&version, object);
        }
        (checks, None)
    }
}
