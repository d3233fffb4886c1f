//! OpenShift's signature policies for images, ClusterImagePolicy and ImagePolicy, where the cluster serves them.

use std::collections::BTreeMap;

use kube::Client;
use kube::core::DynamicObject;
use olm_image::{ImagePolicy, Rules};
use serde_json::Value;
use tokio::sync::watch;

use crate::optional_kind::{Found, OptionalKind};

const GROUP: &str = "config.openshift.io";
const VERSIONS: &[&str] = &["v1", "v1alpha1"];
const CLUSTER: OptionalKind = OptionalKind {
    group: GROUP,
    versions: VERSIONS,
    kind: "ClusterImagePolicy",
    plural: "clusterimagepolicies",
};
const NAMESPACED: OptionalKind = OptionalKind {
    group: GROUP,
    versions: VERSIONS,
    kind: "ImagePolicy",
    plural: "imagepolicies",
};

/// The kinds to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// ClusterImagePolicy.
    Cluster,
    /// ClusterImagePolicy and ImagePolicy.
    All,
}

/// The signature policies of the cluster as rules for images.
#[derive(Debug)]
pub struct ImagePolicies {
    kinds: Kinds,
    known: watch::Sender<Known>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Known {
    /// The rules of the ClusterImagePolicies; none until they are read.
    cluster: Option<Rules>,
    /// The rules of the ImagePolicies; none until they are read.
    namespaced: Option<Namespaced>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Namespaced {
    by_namespace: BTreeMap<String, Rules>,
    /// The rules of every other namespace.
    other: Rules,
}

impl ImagePolicies {
    /// The policies of these kinds. Nothing is read yet.
    pub fn new(kinds: Kinds) -> Self {
        let namespaced = (kinds == Kinds::Cluster).then(Namespaced::default);
        let cluster = None;
        Self {
            kinds,
            known: watch::Sender::new(Known { cluster, namespaced }),
        }
    }

    /// Follows the policies, and calls `changed` after each change. Never returns.
    pub async fn follow(&self, client: &Client, changed: impl Fn()) {
        let change = |found: &Found<'_>, change: &dyn Fn(&mut Known)| {
            let is_new = self.known.send_if_modified(|known| {
                let before = known.clone();
                change(known);
                *known != before
            });
            // While they are listed, images are refused; what is in use is checked again after that.
            if is_new && !matches!(found, Found::NotListed) {
                changed();
            }
        };
        let cluster = CLUSTER.follow(client, |found| {
            let rules = cluster_rules(&found);
            change(&found, &|known| known.cluster.clone_from(&rules));
        });
        let namespaced = async {
            if self.kinds == Kinds::Cluster {
                return;
            }
            let found = |found: Found<'_>| {
                let rules = namespaced_rules(&found);
                change(&found, &|known| known.namespaced.clone_from(&rules));
            };
            NAMESPACED.follow(client, found).await;
        };
        futures::join!(cluster, namespaced);
    }

    /// Waits until it is known which policies there are, or that they cannot be read.
    pub async fn ready(&self) {
        let is_known = |known: &Known| known.cluster.is_some() && known.namespaced.is_some();
        // The sender lives as long as this does.
        let _ = self.known.subscribe().wait_for(is_known).await;
    }

    /// The rules for images that belong to no namespace, such as those of catalogs.
    pub fn of_cluster(&self) -> Rules {
        let cluster = self.known.borrow().cluster.clone();
        cluster.unwrap_or_else(|| unreadable(&CLUSTER, "they are not read yet"))
    }

    /// The rules for images of a namespace. Those of the cluster hold, too.
    pub fn of_namespace(&self, namespace: &str) -> Rules {
        let namespaced = match &self.known.borrow().namespaced {
            Some(known) => known.by_namespace.get(namespace).unwrap_or(&known.other).clone(),
            None => unreadable(&NAMESPACED, "they are not read yet"),
        };
        self.of_cluster().and(&namespaced)
    }
}

fn unreadable(kind: &OptionalKind, why: &str) -> Rules {
    Rules::unreadable(&format!("the signature policy of kind {}", kind.kind), why)
}

fn cluster_rules(found: &Found<'_>) -> Option<Rules> {
    Some(match found {
        Found::NotServed => Rules::default(),
        Found::NotListed => return None,
        Found::Unreadable(why) => unreadable(&CLUSTER, why),
        Found::Objects(objects) => {
            let policies = objects.iter();
            Rules::of_image_policies(policies.map(|((_, name), object)| policy(&CLUSTER, name, object)))
        }
    })
}

fn namespaced_rules(found: &Found<'_>) -> Option<Namespaced> {
    Some(match found {
        Found::NotServed => Namespaced::default(),
        Found::NotListed => return None,
        Found::Unreadable(why) => Namespaced {
            other: unreadable(&NAMESPACED, why),
            ..Namespaced::default()
        },
        Found::Objects(objects) => {
            let mut policies: BTreeMap<&str, Vec<ImagePolicy<'_>>> = BTreeMap::new();
            for ((namespace, name), object) in *objects {
                let policy = policy(&NAMESPACED, &format!("{namespace}/{name}"), object);
                policies.entry(namespace).or_default().push(policy);
            }
            let rules = |(namespace, policies): (&str, Vec<_>)| {
                (namespace.to_owned(), Rules::of_image_policies(policies))
            };
            Namespaced {
                by_namespace: policies.into_iter().map(rules).collect(),
                other: Rules::default(),
            }
        }
    })
}

fn policy<'object>(kind: &OptionalKind, name: &str, object: &'object DynamicObject) -> ImagePolicy<'object> {
    /// A missing `spec`.
    static NOTHING: Value = Value::Null;
    ImagePolicy {
        kind: kind.kind,
        name: name.to_owned(),
        spec: object.data.get("spec").unwrap_or(&NOTHING),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::optional_kind::Objects;

    fn objects(names: &[(&str, &str)]) -> Objects {
        let object = |(namespace, name): &(&str, &str)| {
            let object = json!({ "metadata": { "name": name }, "spec": { "scopes": ["a.example"] } });
            let key = ((*namespace).to_owned(), (*name).to_owned());
            (key, serde_json::from_value(object).unwrap())
        };
        names.iter().map(object).collect()
    }

    #[test]
    fn an_image_policy_holds_in_its_namespace_and_one_that_is_not_read_everywhere() {
        let policies = ImagePolicies::new(Kinds::All);
        let set = |cluster: &Found<'_>, namespaced: &Found<'_>| {
            policies.known.send_replace(Known {
                cluster: cluster_rules(cluster),
                namespaced: namespaced_rules(namespaced),
            });
            let has_rules = |rules: Rules| rules != Rules::default();
            (
                has_rules(policies.of_cluster()),
                has_rules(policies.of_namespace("a")),
                has_rules(policies.of_namespace("b")),
            )
        };
        assert_ne!(policies.of_cluster(), Rules::default(), "nothing is read yet");
        let (cluster, namespaced) = (objects(&[("", "x")]), objects(&[("a", "y")]));
        let unreadable = || Found::Unreadable("forbidden".to_owned());
        assert_eq!(set(&Found::NotServed, &Found::NotServed), (false, false, false));
        assert_eq!(
            set(&Found::Objects(&cluster), &Found::NotServed),
            (true, true, true)
        );
        assert_eq!(
            set(&Found::NotServed, &Found::Objects(&namespaced)),
            (false, true, false)
        );
        assert_eq!(set(&Found::NotServed, &unreadable()), (false, true, true));
        assert_eq!(set(&Found::NotServed, &Found::NotListed), (false, true, true));
        assert_eq!(set(&Found::NotListed, &Found::NotServed), (true, true, true));
        assert_eq!(set(&unreadable(), &Found::NotServed), (true, true, true));
        assert_eq!(
            policies.of_namespace("a"),
            policies.of_namespace("b"),
            "a rule of the cluster is the same everywhere"
        );
    }

    #[tokio::test]
    async fn the_policies_are_ready_when_every_kind_to_read_is_known() {
        for (kinds, is_ready) in [(Kinds::Cluster, true), (Kinds::All, false)] {
            let policies = ImagePolicies::new(kinds);
            policies
                .known
                .send_modify(|known| known.cluster = Some(Rules::default()));
            let ready = futures::FutureExt::now_or_never(policies.ready());
            assert_eq!(ready.is_some(), is_ready, "{kinds:?}");
        }
    }
}
