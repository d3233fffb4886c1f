//! Checks the existing objects of a changed CRD. The account reads them, so a message names only objects that it may
//! see. Objects that could not be checked are noted and do not block.

use std::time::{Duration, Instant};

use olm_preflight::crd_upgrade::Finding;
use olm_preflight::crd_upgrade::existing::{Questions, questions};
use serde_json::Value;

use super::asking::Asking;
use olm_cluster::list::{Budget, Collection, Detail, End};
use olm_cluster::permissions::right;

/// The most objects of one CRD that are checked.
const MAX_OBJECTS: usize = 5000;
/// The most bytes of these objects.
const MAX_BYTES: u64 = 64 << 20;
/// The longest time for all CRDs of a bundle.
const MAX_TIME: Duration = Duration::from_secs(30);

/// The result for one CRD.
pub(crate) struct Looked {
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
pub(crate) async fn look(
    asking: &Asking<'_>,
    old: &Value,
    new: &Value,
    until: Instant,
) -> Result<Looked, kube::Error> {
    let text = |pointer: &str| old.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let mut asked = questions(old, new);
    let mut looked = Looked {
        findings: Vec::new(),
        notes: Vec::new(),
    };
    let versions = asked.versions();
    if versions.is_empty() {
        return Ok(looked);
    }
    let list = right("list", group, plural, "");
    if !asking.may(&list).await? {
        looked.notes.push(format!(
            "existing {plural}.{group} were not validated against the new definition: service account {} may not list them",
            asking.account
        ));
        return Ok(looked);
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
        let mut pages = collection.read(asking.client, Detail::Whole, budget);
        let end = loop {
            let page = match pages.page().await {
                Ok(page) => page,
                Err(end) => break end,
            };
            // Schemas and objects may take long to check.
            let shown = show(asked, version.clone(), page, until);
            let Ok((back, end)) = tokio::task::spawn_blocking(shown).await else {
                looked.notes.push(format!(
                    "existing {plural}.{group} cannot be validated against the new definition"
                ));
                return Ok(looked);
            };
            asked = back;
            if let Some(end) = end {
                break end;
            }
        };
        // Without a number of objects, which differs from run to run.
        let why = match end {
            End::Complete => continue,
            End::Spent(what) => format!("they exceed the limit of their {what}"),
            End::Failed(failure) => failure.message,
        };
        looked.notes.push(format!(
            "not all existing {plural}.{group} were validated against the new definition: {why}"
        ));
    }
    looked.findings = asked.findings();
    let unlooked = asked.unlooked().into_iter();
    looked
        .notes
        .extend(unlooked.map(|text| format!("CRD \"{plural}.{group}\": {text}")));
    Ok(looked)
}

/// Checks a page of objects, as far as the time allows.
fn show(
    mut asked: Questions,
    version: String,
    page: Vec<Value>,
    until: Instant,
) -> impl FnOnce() -> (Questions, Option<End>) {
    move || {
        for object in &page {
            if Instant::now() >= until {
                return (asked, Some(End::Spent("time")));
            }
            asked.look(&version, object);
        }
        (asked, None)
    }
}
