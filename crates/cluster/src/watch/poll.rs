//! Periodic lists instead of watches, for accounts that may list and not watch.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::ListParams;
use kube::core::{DynamicObject, PartialObjectMeta};

use super::{Follow, ObjectName, WatchedObject, newest};

/// The interval between lists.
pub const EVERY: Duration = Duration::from_mins(1);
/// The objects of a page.
const PAGE: u32 = 500;

impl Follow {
    /// Lists periodically, for ever.
    pub(super) async fn poll(self, api: Api<PartialObjectMeta<DynamicObject>>) {
        let mut is_first = true;
        loop {
            let began = Instant::now();
            match self.list(&api).await {
                Ok(objects) if is_first => {
                    self.listed(objects, began);
                    is_first = false;
                }
                Ok(objects) => self.listed_again(objects, began),
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                    self.ended(status.code);
                    return;
                }
                Err(error) => tracing::debug!(%error, "a list in place of a watch failed"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn list(
        &self,
        api: &Api<PartialObjectMeta<DynamicObject>>,
    ) -> Result<HashMap<ObjectName, WatchedObject>, kube::Error> {
        let mut objects = HashMap::new();
        let mut params = ListParams::default().labels(self.managed.label).limit(PAGE);
        loop {
            let page = api.list(&params).await?;
            objects.extend(page.items.into_iter().map(|object| self.seen(object.metadata)));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(objects),
            }
        }
    }

    /// Wakes the owners whose objects changed since the last list.
    fn listed_again(&self, objects: HashMap<ObjectName, WatchedObject>, began: Instant) {
        let mut view = self.view.write();
        let changed = changed(&view.objects, &objects);
        view.newest = newest(&objects).max(view.newest);
        view.objects = objects;
        view.listed = Some(began);
        drop(view);
        for owner in &changed {
            (self.wake)(owner);
        }
    }
}

/// The owners of objects that were added, removed or changed.
fn changed(
    before: &HashMap<ObjectName, WatchedObject>,
    now: &HashMap<ObjectName, WatchedObject>,
) -> BTreeSet<String> {
    let is_same =
        |a: &WatchedObject, b: &WatchedObject| a.uid == b.uid && a.resource_version == b.resource_version;
    let differs = |own: &HashMap<ObjectName, WatchedObject>, other: &HashMap<ObjectName, WatchedObject>| {
        let objects = own.iter().filter(|(name, seen)| {
            let found = other.get(*name);
            !found.is_some_and(|found| is_same(seen, found))
        });
        let owners = objects.flat_map(|(_, seen)| seen.owners.iter().cloned());
        owners.collect::<BTreeSet<_>>()
    };
    let mut owners = differs(before, now);
    owners.extend(differs(now, before));
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(list: &[(&str, &str, &str)]) -> HashMap<ObjectName, WatchedObject> {
        let object = |(name, version, owner): &(&str, &str, &str)| {
            let seen = WatchedObject {
                uid: format!("uid of {name}"),
                resource_version: (*version).to_owned(),
                owners: vec![(*owner).to_owned()],
            };
            ((String::new(), (*name).to_owned()), seen)
        };
        list.iter().map(object).collect()
    }

    #[test]
    fn owners_of_objects_that_differ_between_two_lists_are_woken() {
        let before = objects(&[("same", "1", "a"), ("gone", "2", "b"), ("changed", "3", "c")]);
        let now = objects(&[("same", "1", "a"), ("changed", "4", "d"), ("new", "5", "e")]);
        let woken: Vec<String> = changed(&before, &now).into_iter().collect();
        assert_eq!(woken, ["b", "c", "d", "e"]);
        assert!(changed(&now, &now).is_empty());
    }
}
