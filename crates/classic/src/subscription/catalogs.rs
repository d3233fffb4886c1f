//! Health of the catalogs that a Subscription could install from.

use serde_json::{Value, json};

use super::{find_condition, joined, reference, set};
use crate::cluster::{Cluster, items, object_at, put, text};
use crate::names;

const UNHEALTHY: &str = "CatalogSourcesUnhealthy";

/// The verdict about a CatalogSource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Its registry is as it is wanted.
    Good,
    /// It is not.
    Bad,
    /// The health is unknown.
    Unknown(String),
}

/// Sets the health of the catalogs and the condition about it; whether either changed.
///
/// # Errors
/// When the health of one is unknown.
pub(super) fn settle(
    subscription: &mut Value,
    cluster: &Cluster,
    global: &str,
    health: &dyn Fn(&Value) -> Health,
    now: &str,
) -> Result<bool, String> {
    let own = text(subscription, "/metadata/namespace").to_owned();
    let mut sources: Vec<&Value> = cluster.in_namespace(names::CATALOG_SOURCE_KIND, &own).collect();
    if own != global {
        sources.extend(cluster.in_namespace(names::CATALOG_SOURCE_KIND, global));
    }
    sources.sort_by_key(|source| {
        [
            text(source, "/metadata/namespace"),
            text(source, "/metadata/name"),
        ]
        .concat()
    });
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for source in sources {
        let verdict = if text(source, "/status/reason") == "SpecInvalidError" {
            Health::Bad
        } else {
            health(source)
        };
        let is_healthy = match verdict {
            Health::Good => true,
            Health::Bad => false,
            Health::Unknown(error) => {
                errors.push(error);
                continue;
            }
        };
        entries.push(json!({
            "catalogSourceRef": reference(names::CATALOG_SOURCE_KIND, source),
            "healthy": is_healthy,
            "lastUpdated": now,
        }));
    }
    if let Some(error) = joined(errors) {
        return Err(error);
    }
    let change = change(subscription, &entries);
    let mut wanted = verdict(subscription, &entries);
    if let Some(reason) = change {
        put(&mut wanted, &[], "reason", json!(reason));
        if let Some(status) = object_at(subscription, &["status"]) {
            status.insert("catalogHealth".to_owned(), json!(entries));
        }
    }
    Ok(set(subscription, wanted, now) || change.is_some())
}

/// The reason of the condition where the set of catalogs, or the health of one, is another than before.
fn change(subscription: &Value, entries: &[Value]) -> Option<&'static str> {
    let known: Vec<&Value> = items(subscription, "/status/catalogHealth").collect();
    let sight = |entry: &Value| {
        let part = |key: &str| text(entry, &format!("/catalogSourceRef/{key}")).to_owned();
        let is_healthy = entry.get("healthy").and_then(Value::as_bool);
        (part("namespace"), part("name"), part("uid"), is_healthy)
    };
    match entries.len().cmp(&known.len()) {
        std::cmp::Ordering::Greater => Some("CatalogSourcesAdded"),
        std::cmp::Ordering::Less => Some("CatalogSourcesDeleted"),
        std::cmp::Ordering::Equal => {
            let mut before: Vec<_> = known.into_iter().map(sight).collect();
            let mut after: Vec<_> = entries.iter().map(sight).collect();
            before.sort();
            after.sort();
            (before != after).then_some("CatalogSourcesUpdated")
        }
    }
}

/// The condition. Where only catalogs that the Subscription does not name are unhealthy, it keeps its message.
fn verdict(subscription: &Value, entries: &[Value]) -> Value {
    let (place, name) = (
        text(subscription, "/spec/sourceNamespace"),
        text(subscription, "/spec/source"),
    );
    let is_healthy = |entry: &&Value| entry.get("healthy") == Some(&Value::Bool(true));
    let target = entries.iter().find(|entry| {
        text(entry, "/catalogSourceRef/namespace") == place && text(entry, "/catalogSourceRef/name") == name
    });
    let is_bad = |message: String| ("True", "UnhealthyCatalogSourceFound", message);
    let knows_none = items(subscription, "/status/catalogHealth").next().is_none();
    let (status, reason, message) = match target {
        _ if entries.is_empty() && knows_none => (
            "True",
            "NoCatalogSourcesFound",
            "dependency resolution requires at least one catalogsource".to_owned(),
        ),
        None => is_bad(format!("targeted catalogsource {place}/{name} missing")),
        Some(target) if !is_healthy(&target) => {
            is_bad(format!("targeted catalogsource {place}/{name} unhealthy"))
        }
        Some(_) if entries.iter().all(|entry| is_healthy(&entry)) => (
            "False",
            "AllCatalogSourcesHealthy",
            "all available catalogsources are healthy".to_owned(),
        ),
        Some(_) => {
            let known = find_condition(subscription, UNHEALTHY);
            is_bad(
                known
                    .map(|known| text(known, "/message"))
                    .unwrap_or_default()
                    .to_owned(),
            )
        }
    };
    let mut wanted = super::condition(UNHEALTHY, reason, &message);
    put(&mut wanted, &[], "status", json!(status));
    wanted
}
