//! The changes in a watch, including those that happened while the watch was broken.

use std::collections::HashMap;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// The objects of a watch, each with a note about it.
#[derive(Debug)]
pub struct Followed<N> {
    known: HashMap<String, N>,
    /// The objects of an incomplete list.
    listed: HashMap<String, N>,
}

/// A change of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectChange<N> {
    /// The name, prefixed by the namespace and `/` if there is one.
    pub name: String,
    /// The previous note; `None` for a new object.
    pub before: Option<N>,
    /// The current note; `None` for an object that is gone.
    pub now: Option<N>,
}

impl<N> Default for Followed<N> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            listed: HashMap::new(),
        }
    }
}

impl<N: Clone> Followed<N> {
    /// Handles an event. The changes of a list are returned when it is complete, because only then a store contains
    /// them.
    pub fn take<K: ResourceExt>(&mut self, event: &Event<K>, note: impl Fn(&K) -> N) -> Vec<ObjectChange<N>> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(name(object), note(object));
                Vec::new()
            }
            Event::InitDone => {
                let mut before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listed));
                let there = self.known.iter().map(|(name, now)| ObjectChange {
                    name: name.clone(),
                    before: before.remove(name),
                    now: Some(now.clone()),
                });
                let mut changes: Vec<ObjectChange<N>> = there.collect();
                changes.extend(before.into_iter().map(|(name, before)| ObjectChange {
                    name,
                    before: Some(before),
                    now: None,
                }));
                changes
            }
            Event::Apply(object) => {
                let (name, now) = (name(object), note(object));
                let before = self.known.insert(name.clone(), now.clone());
                vec![ObjectChange {
                    name,
                    before,
                    now: Some(now),
                }]
            }
            Event::Delete(object) => {
                let name = name(object);
                let before = self.known.remove(&name);
                vec![ObjectChange {
                    name,
                    before,
                    now: None,
                }]
            }
        }
    }
}

fn name(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    fn changes(followed: &mut Followed<String>, event: &Event<ConfigMap>) -> Vec<(String, String, String)> {
        let note = |object: &ConfigMap| object.metadata.resource_version.clone().unwrap_or_default();
        let changes = followed.take(event, note).into_iter();
        let mut changes: Vec<_> = changes
            .map(|change| {
                (
                    change.name,
                    change.before.unwrap_or_default(),
                    change.now.unwrap_or_default(),
                )
            })
            .collect();
        changes.sort();
        changes
    }

    fn row(name: &str, before: &str, now: &str) -> (String, String, String) {
        (name.to_owned(), before.to_owned(), now.to_owned())
    }

    #[test]
    fn changes_and_deletions_missed_by_a_broken_watch_come_when_the_new_list_is_complete() {
        let mut followed = Followed::default();
        for (name, version) in [("kept", "1"), ("changed", "1"), ("gone", "1")] {
            assert_eq!(
                changes(&mut followed, &Event::Apply(object(name, version))),
                [row(name, "", version)]
            );
        }
        assert_eq!(changes(&mut followed, &Event::Init), []);
        for (name, version) in [("kept", "1"), ("changed", "2"), ("new", "1")] {
            assert_eq!(
                changes(&mut followed, &Event::InitApply(object(name, version))),
                []
            );
        }
        assert_eq!(
            changes(&mut followed, &Event::InitDone),
            [
                row("changed", "1", "2"),
                row("gone", "1", ""),
                row("kept", "1", "1"),
                row("new", "", "1")
            ]
        );
        assert_eq!(
            changes(&mut followed, &Event::Delete(object("kept", "3"))),
            [row("kept", "1", "")]
        );
    }

    #[test]
    fn a_restarted_list_forgets_the_first_one() {
        let mut followed = Followed::default();
        changes(&mut followed, &Event::Init);
        changes(&mut followed, &Event::InitApply(object("first", "1")));
        changes(&mut followed, &Event::Init);
        changes(&mut followed, &Event::InitApply(object("second", "1")));
        assert_eq!(changes(&mut followed, &Event::InitDone), [row("second", "", "1")]);
    }
}
