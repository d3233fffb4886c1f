//! What a watch tells about objects, lists included: what changed or went while the watch was broken is told too.

use std::collections::HashMap;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// The objects of a watch, each with a note of what matters about it.
#[derive(Debug)]
pub struct Followed<N> {
    known: HashMap<String, N>,
    /// Those of a list that is not complete.
    listed: HashMap<String, N>,
}

/// What is told about an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Told<N> {
    /// Its name, after its namespace and `/` where it has one.
    pub name: String,
    /// What was noted before; nothing when it was not known.
    pub before: Option<N>,
    /// What is noted now; nothing when it is gone.
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
    /// Takes an event. The objects of a list are told when it is complete, since only then a store holds them.
    pub fn take<K: ResourceExt>(&mut self, event: &Event<K>, note: impl Fn(&K) -> N) -> Vec<Told<N>> {
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
                let there = self.known.iter().map(|(name, now)| Told {
                    name: name.clone(),
                    before: before.remove(name),
                    now: Some(now.clone()),
                });
                let mut told: Vec<Told<N>> = there.collect();
                told.extend(before.into_iter().map(|(name, before)| Told {
                    name,
                    before: Some(before),
                    now: None,
                }));
                told
            }
            Event::Apply(object) => {
                let (name, now) = (name(object), note(object));
                let before = self.known.insert(name.clone(), now.clone());
                vec![Told {
                    name,
                    before,
                    now: Some(now),
                }]
            }
            Event::Delete(object) => {
                let name = name(object);
                let before = self.known.remove(&name);
                vec![Told {
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

    fn told(followed: &mut Followed<String>, event: &Event<ConfigMap>) -> Vec<(String, String, String)> {
        let note = |object: &ConfigMap| object.metadata.resource_version.clone().unwrap_or_default();
        let told = followed.take(event, note).into_iter();
        let mut told: Vec<_> = told
            .map(|told| {
                (
                    told.name,
                    told.before.unwrap_or_default(),
                    told.now.unwrap_or_default(),
                )
            })
            .collect();
        told.sort();
        told
    }

    fn row(name: &str, before: &str, now: &str) -> (String, String, String) {
        (name.to_owned(), before.to_owned(), now.to_owned())
    }

    #[test]
    fn what_changed_or_went_while_the_watch_was_broken_is_told_when_the_new_list_is_complete() {
        let mut followed = Followed::default();
        for (name, version) in [("kept", "1"), ("changed", "1"), ("gone", "1")] {
            assert_eq!(
                told(&mut followed, &Event::Apply(object(name, version))),
                [row(name, "", version)]
            );
        }
        assert_eq!(told(&mut followed, &Event::Init), []);
        for (name, version) in [("kept", "1"), ("changed", "2"), ("new", "1")] {
            assert_eq!(told(&mut followed, &Event::InitApply(object(name, version))), []);
        }
        assert_eq!(
            told(&mut followed, &Event::InitDone),
            [
                row("changed", "1", "2"),
                row("gone", "1", ""),
                row("kept", "1", "1"),
                row("new", "", "1")
            ]
        );
        assert_eq!(
            told(&mut followed, &Event::Delete(object("kept", "3"))),
            [row("kept", "1", "")]
        );
    }

    #[test]
    fn a_list_that_is_begun_again_forgets_what_the_first_one_held() {
        let mut followed = Followed::default();
        told(&mut followed, &Event::Init);
        told(&mut followed, &Event::InitApply(object("first", "1")));
        told(&mut followed, &Event::Init);
        told(&mut followed, &Event::InitApply(object("second", "1")));
        assert_eq!(told(&mut followed, &Event::InitDone), [row("second", "", "1")]);
    }
}
