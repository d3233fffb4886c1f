//! Whether a status is true: when it reports objects as applied, they are compared with the live objects before the
//! write continues.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::ListParams;
use kube::{Api, Client};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{annotation, label};
use olm_api::{ClusterExtension, ClusterObjectSet, conditions};
use olm_test::extensions::{content, installed_version};
use olm_test::faults::{Call, Observer};
use olm_test::objects;
use serde_json::Value;

/// Compares each status with the objects.
pub(crate) struct Truth {
    client: Client,
    checked: AtomicUsize,
    lies: Mutex<Vec<String>>,
}

impl Truth {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            checked: AtomicUsize::new(0),
            lies: Mutex::default(),
        }
    }

    pub(crate) fn observer(self: Arc<Self>) -> Observer {
        Arc::new(move |call| {
            let truth = Arc::clone(&self);
            Box::pin(async move { truth.examine(&call).await })
        })
    }

    /// The number of statuses that reported objects as applied.
    pub(crate) fn checked(&self) -> usize {
        self.checked.load(Ordering::SeqCst)
    }

    /// The false statuses since the last call.
    pub(crate) fn lies(&self) -> Vec<String> {
        std::mem::take(&mut *self.lies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn examine(&self, call: &Call) {
        let examined = match call.place.resource.as_str() {
            "clusterextensions" => self.extension(call).await,
            "clusterobjectsets" => self.revision(call).await,
            _ => Ok(()),
        };
        if let Err(error) = examined {
            let lie = format!("{}: {error:#}", call.line());
            self.lies.lock().unwrap_or_else(PoisonError::into_inner).push(lie);
        }
    }

    /// `Installed=True`: some revision of that version has all its objects there.
    async fn extension(&self, call: &Call) -> Result<()> {
        let extension: ClusterExtension = serde_json::from_slice(&call.body)?;
        let claims = conditions::is_true(extension.conditions(), conditions::INSTALLED);
        if !claims || extension.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.checked.fetch_add(1, Ordering::SeqCst);
        let version = installed_version(&extension).context("Installed=True without a version")?;
        let owned = format!("{}={}", label::OWNER_NAME, extension.name());
        let sets: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let mut why = Vec::new();
        let sets = sets.list(&ListParams::default().labels(&owned)).await?.items;
        let is_of_version =
            |set: &&ClusterObjectSet| set.annotation(annotation::BUNDLE_VERSION) == Some(version);
        let is_archived = |set: &ClusterObjectSet| set.spec.lifecycle_state == LifecycleState::Archived;
        // A status lags behind by a moment: a complete revision may just have replaced this one.
        let replaced = sets.iter().filter(is_of_version).filter(|set| is_archived(set));
        let replaced = replaced.map(|set| set.spec.revision).min();
        for set in &sets {
            let follows = conditions::is_true(set.conditions(), conditions::SUCCEEDED)
                && replaced.is_some_and(|replaced| replaced < set.spec.revision);
            if !is_archived(set) && (is_of_version(&set) || follows) {
                match self.applied(set).await {
                    Ok(()) => return Ok(()),
                    Err(error) => why.push(format!("{}: {error:#}", set.name())),
                }
            }
        }
        bail!("Installed=True for {version}, but no revision of it is applied: {why:?}")
    }

    /// `Succeeded=True` or `Available=True`: all objects of the revision are there.
    async fn revision(&self, call: &Call) -> Result<()> {
        let body = call.json();
        let list = body.pointer("/status/conditions").and_then(Value::as_array);
        let claims = list.into_iter().flatten().any(|condition| {
            let kind = condition["type"].as_str().unwrap_or_default();
            [conditions::SUCCEEDED, conditions::AVAILABLE].contains(&kind) && condition["status"] == "True"
        });
        let sets: Api<ClusterObjectSet> = Api::all(self.client.clone());
        let live = sets.get_opt(&call.place.name).await?;
        let Some(set) = live.filter(|set| {
            claims
                && set.metadata.deletion_timestamp.is_none()
                && set.spec.lifecycle_state != LifecycleState::Archived
        }) else {
            return Ok(());
        };
        self.checked.fetch_add(1, Ordering::SeqCst);
        self.applied(&set).await
    }

    /// Each object of a revision is there as the revision has it, or as a later revision of the same owner does.
    async fn applied(&self, set: &ClusterObjectSet) -> Result<()> {
        let owner = set.label(label::OWNER_NAME);
        for wanted in content(&self.client, set).await? {
            let name = wanted.pointer("/metadata/name").and_then(Value::as_str);
            let name = name.context("an object without a name")?;
            let what = format!("{} {name}", wanted["kind"].as_str().unwrap_or_default());
            let live = objects::api(&self.client, &wanted).get_opt(name).await?;
            let live = serde_json::to_value(live.with_context(|| format!("{what} is not there"))?)?;
            let mark = |section: &str, key: &str| {
                let value = live.pointer(&format!("/metadata/{section}"))?.get(key)?;
                value.as_str().map(str::to_owned)
            };
            let by = mark("annotations", annotation::REVISION).context("no revision applied it")?;
            let by: i64 = by.parse()?;
            ensure!(
                by >= set.spec.revision && mark("labels", label::OWNER_NAME).as_deref() == owner,
                "{what} was applied by revision {by} of {:?}",
                mark("labels", label::OWNER_NAME)
            );
            if by == set.spec.revision {
                let missing = missing(&wanted, &live);
                ensure!(
                    missing.is_none(),
                    "{what} differs at {}",
                    missing.unwrap_or_default()
                );
            }
        }
        Ok(())
    }
}

/// The place at which `live` lacks a wanted value; it may have more.
fn missing(wanted: &Value, live: &Value) -> Option<String> {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => wanted.iter().find_map(|(key, value)| {
            let found = live.get(key).unwrap_or(&Value::Null);
            missing(value, found).map(|rest| format!(".{key}{rest}"))
        }),
        (Value::Array(wanted), Value::Array(live)) if wanted.len() <= live.len() => {
            let mut pairs = wanted.iter().zip(live).enumerate();
            pairs.find_map(|(index, (wanted, live))| {
                missing(wanted, live).map(|rest| format!("[{index}]{rest}"))
            })
        }
        // Kubernetes omits empty values.
        (Value::Object(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::String(wanted), Value::Null) if wanted.is_empty() => None,
        (wanted, live) if wanted == live => None,
        (wanted, live) => Some(format!(": {live} instead of {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::missing;

    #[test]
    fn an_object_may_have_more_than_is_wanted_but_not_less() {
        let live = json!({"a": {"b": 1, "c": [{"d": 2, "e": 3}]}});
        for wanted in [
            json!({}),
            json!({"a": {"b": 1}}),
            json!({"a": {"c": [{"e": 3}]}}),
            json!({"z": {}, "y": [], "x": ""}),
        ] {
            assert_eq!(missing(&wanted, &live), None, "{wanted}");
        }
        for (wanted, expected) in [
            (json!({"a": {"b": 2}}), ".a.b: 1 instead of 2"),
            (json!({"a": {"c": [{"d": 3}]}}), ".a.c[0].d: 2 instead of 3"),
            (json!({"f": 1}), ".f: null instead of 1"),
        ] {
            assert_eq!(missing(&wanted, &live).as_deref(), Some(expected));
        }
    }
}
