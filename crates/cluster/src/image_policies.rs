//! OpenShift's signature policies for images, ClusterImagePolicy and ImagePolicy, where the cluster serves them.

use std::collections::BTreeMap;

use kube::Client;
use kube::core::DynamicObject;
use olm_api::names::{annotation_of, user};
use olm_image::{ImagePolicy, Rules};
use serde_json::Value;
use tokio::sync::watch;

use crate::optional_kind::{Found, Objects, OptionalKind};

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
    known: watch::Sender<PolicyRules>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct PolicyRules {
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
            known: watch::Sender::new(PolicyRules { cluster, namespaced }),
        }
    }

    /// Follows the policies, and calls `changed` after each change. Never returns.
    pub async fn follow(&self, client: &Client, changed: impl Fn()) {
        let change = |found: &Found<'_>, change: &dyn Fn(&mut PolicyRules)| {
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
        let is_known = |known: &PolicyRules| known.cluster.is_some() && known.namespaced.is_some();
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

/// The rules of an object itself for its images: the text of its annotation, if it has one.
///
/// # Errors
/// The fault of the text.
pub fn own_rules(kind: &str, name: &str, text: Option<&str>) -> Result<Rules, String> {
    let origin = || annotation_of(user::SIGNATURE_POLICY, kind, name);
    text.map_or_else(|| Ok(Rules::default()), |text| Rules::parse(&origin(), text))
}

/// The signature policies of the cluster at one time, as far as the user may read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadPolicies {
    /// The rules of those that were read.
    pub rules: Rules,
    /// Whether the cluster serves ClusterImagePolicy, as far as that is known.
    pub is_served: bool,
    /// A sentence for each kind that the cluster serves and the user cannot read.
    pub unread: Vec<String>,
}

impl ReadPolicies {
    /// Reads the ClusterImagePolicies, and the ImagePolicies of a namespace where one is given.
    pub async fn read(client: &Client, namespace: Option<&str>) -> Self {
        let cluster = CLUSTER.read(client, None);
        let namespaced = async {
            match namespace {
                Some(_) => NAMESPACED.read(client, namespace).await,
                None => Ok(None),
            }
        };
        let (cluster, namespaced) = futures::join!(cluster, namespaced);
        let is_served = !matches!(cluster, Ok(None));
        let mut unread = Vec::new();
        let mut of_kind = |kind: &OptionalKind, objects: Result<Option<Objects>, String>| match objects {
            Ok(objects) => rules(kind, &objects.unwrap_or_default()),
            Err(why) => {
                let kind = kind.kind;
                unread.push(format!(
                    "the signature policies of kind {kind} were not checked: {why}"
                ));
                Rules::default()
            }
        };
        let rules = of_kind(&CLUSTER, cluster).and(&of_kind(&NAMESPACED, namespaced));
        Self {
            rules,
            is_served,
            unread,
        }
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
        Found::Objects(objects) => rules(&CLUSTER, objects.iter()),
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
            let mut policies: BTreeMap<&str, Vec<_>> = BTreeMap::new();
            for (key, object) in *objects {
                policies.entry(&key.0).or_default().push((key, object));
            }
            let of_one =
                |(namespace, objects): (&str, Vec<_>)| (namespace.to_owned(), rules(&NAMESPACED, objects));
            Namespaced {
                by_namespace: policies.into_iter().map(of_one).collect(),
                other: Rules::default(),
            }
        }
    })
}

/// The rules of objects of one kind.
fn rules<'a>(
    kind: &OptionalKind,
    objects: impl IntoIterator<Item = (&'a (String, String), &'a DynamicObject)>,
) -> Rules {
    /// A missing `spec`.
    static NOTHING: Value = Value::Null;
    let policies = objects
        .into_iter()
        .map(|((namespace, name), object)| ImagePolicy {
            kind: kind.kind,
            name: match namespace.as_str() {
                "" => name.clone(),
                namespace => format!("{namespace}/{name}"),
            },
            spec: object.data.get("spec").unwrap_or(&NOTHING),
        });
    Rules::of_image_policies(policies)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{self, Reply};

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
            policies.known.send_replace(PolicyRules {
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

    /// A path and the objects that the server lists there, by namespace and name.
    type Listed = (&'static str, [(&'static str, &'static str); 1]);

    /// The policies that are read from a cluster that serves both kinds, and the requests for them; a list that is not
    /// given is forbidden.
    async fn read(namespace: Option<&str>, lists: &[Listed]) -> (ReadPolicies, Vec<String>) {
        let list = |(path, names): &Listed| {
            let items = objects(names).into_iter().map(|((namespace, _), mut object)| {
                object.metadata.namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
                object
            });
            let items: Vec<_> = items.collect();
            (
                *path,
                json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }),
            )
        };
        let lists: BTreeMap<&str, Value> = lists.iter().map(list).collect();
        let (client, asked) = fake::client(move |_, path| -> Reply {
            let version = json!({ "groupVersion": "config.openshift.io/v1", "version": "v1" });
            let resource = |kind: &OptionalKind| {
                json!({ "name": kind.plural, "singularName": "", "namespaced": false, "kind": kind.kind,
                    "verbs": ["list"] })
            };
            match path {
                "/apis" => {
                    let group = json!({ "name": GROUP, "versions": [version] });
                    (200, json!({ "kind": "APIGroupList", "groups": [group] }))
                }
                "/apis/config.openshift.io/v1" => {
                    let resources = [resource(&CLUSTER), resource(&NAMESPACED)];
                    (
                        200,
                        json!({ "kind": "APIResourceList", "groupVersion": "config.openshift.io/v1",
                            "resources": resources }),
                    )
                }
                path => match lists.get(path) {
                    Some(list) => (200, list.clone()),
                    None => (
                        403,
                        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                            "code": 403, "reason": "Forbidden", "message": "it is forbidden" }),
                    ),
                },
            }
        });
        let read = ReadPolicies::read(&client, namespace).await;
        let mut lists = asked.lock().unwrap().clone();
        lists.retain(|request| request.ends_with("policies"));
        lists.sort();
        (read, lists)
    }

    #[tokio::test]
    async fn policies_that_are_read_once_are_those_that_are_followed() {
        const OF_CLUSTER: &str = "/apis/config.openshift.io/v1/clusterimagepolicies";
        const OF_NAMESPACE: &str = "/apis/config.openshift.io/v1/namespaces/a/imagepolicies";
        let (cluster, namespaced) = (objects(&[("", "x")]), objects(&[("a", "y")]));
        let policies = ImagePolicies::new(Kinds::All);
        policies.known.send_replace(PolicyRules {
            cluster: cluster_rules(&Found::Objects(&cluster)),
            namespaced: namespaced_rules(&Found::Objects(&namespaced)),
        });
        let lists = [(OF_CLUSTER, [("", "x")]), (OF_NAMESPACE, [("a", "y")])];
        let all = |rules| ReadPolicies {
            rules,
            is_served: true,
            unread: Vec::new(),
        };
        let (found, asked) = read(Some("a"), &lists).await;
        assert_eq!(found, all(policies.of_namespace("a")));
        assert_eq!(
            asked,
            [format!("GET {OF_CLUSTER}"), format!("GET {OF_NAMESPACE}")]
        );
        let (found, asked) = read(None, &lists).await;
        assert_eq!(found, all(policies.of_cluster()));
        assert_eq!(asked, [format!("GET {OF_CLUSTER}")]);

        // What the user may not read is said, and the rest holds.
        let (found, _) = read(Some("a"), &lists[..1]).await;
        assert_eq!(found.rules, policies.of_cluster());
        assert_eq!(
            found.unread,
            [
                "the signature policies of kind ImagePolicy were not checked: it is forbidden; you need the verb list on \
                 imagepolicies in group config.openshift.io in namespace \"a\""
            ]
        );
    }

    #[tokio::test]
    async fn a_cluster_that_serves_no_policies_has_no_rules() {
        let (client, asked) = fake::client(|_, _| (200, json!({ "kind": "APIGroupList", "groups": [] })));
        let read = ReadPolicies::read(&client, Some("a")).await;
        assert_eq!(read, ReadPolicies::default());
        assert_eq!(*asked.lock().unwrap(), ["GET /apis", "GET /apis"]);
    }
}
