//! Objects of a kind that the cluster may not serve. While it does not, one watch waits for its definition, and nothing
//! else is requested.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Client, ResourceExt as _};

use crate::apply::classify;
use crate::watch::code;

/// The pause after a watch that was forbidden.
const FORBIDDEN: Duration = Duration::from_secs(5);

/// A kind that a CustomResourceDefinition may define.
#[derive(Debug, Clone, Copy)]
pub struct OptionalKind {
    /// The group.
    pub group: &'static str,
    /// The versions that the caller reads, the preferred one first.
    pub versions: &'static [&'static str],
    /// The kind.
    pub kind: &'static str,
    /// The resource's name.
    pub plural: &'static str,
}

/// The objects of an optional kind, by namespace and name. The namespace of a cluster-wide object is empty.
pub type Objects = BTreeMap<(String, String), DynamicObject>;

/// The known objects of an optional kind.
#[derive(Debug)]
pub enum Found<'a> {
    /// The cluster does not serve the kind.
    NotServed,
    /// The cluster serves the kind, and its objects are not listed yet.
    NotListed,
    /// The cluster serves the kind, but its objects cannot be read, for this reason.
    Unreadable(String),
    /// All objects.
    Objects(&'a Objects),
}

/// What the cluster serves of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Serving {
    Nothing,
    Version(&'static str),
    /// The kind in none of the wanted versions.
    OtherVersions(String),
}

/// An objects' watch. Objects stay known while it is interrupted.
#[derive(Default)]
struct WatchedObjects {
    objects: Objects,
    /// The objects of an incomplete list.
    listed: Objects,
    is_complete: bool,
}

impl OptionalKind {
    /// Follows the objects, and calls `found` with all of them after each change. Never returns.
    pub async fn follow(&self, client: &Client, found: impl Fn(Found<'_>)) {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let name = format!("{}.{}", self.plural, self.group);
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let mut definitions = pin!(watcher(definitions, config).default_backoff());
        let mut serving = None;
        loop {
            let next = tokio::select! {
                next = self.next_serving(client, &mut definitions, serving.as_ref()) => next,
                () = self.follow_objects(client, serving.as_ref(), &found) => return,
            };
            serving = Some(next);
        }
    }

    /// Reads the objects of one namespace, or of all, once; `None` where the cluster does not serve the kind.
    ///
    /// # Errors
    /// The reason why they cannot be read.
    pub async fn read(&self, client: &Client, namespace: Option<&str>) -> Result<Option<Objects>, String> {
        let serving = self.discovered(client).await;
        let version = match serving.map_err(|error| classify(&error).message)? {
            Serving::Nothing => return Ok(None),
            Serving::OtherVersions(versions) => return Err(self.other_versions(&versions)),
            Serving::Version(version) => version,
        };
        let resource = self.resource(version);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let listed = api.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| self.unlisted(&error, namespace))?;
        let objects = listed.into_iter().map(|object| (key(&object), object));
        Ok(Some(objects.collect()))
    }

    /// The reason why objects cannot be listed.
    fn unlisted(&self, error: &kube::Error, namespace: Option<&str>) -> String {
        let failure = classify(error);
        if failure.code != 403 {
            return failure.message;
        }
        let place = namespace.map_or(String::new(), |namespace| format!(" in namespace {namespace:?}"));
        format!(
            "{}; you need the verb list on {} in group {}{place}",
            failure.message, self.plural, self.group
        )
    }

    /// Waits until the cluster serves something else than before.
    async fn next_serving(
        &self,
        client: &Client,
        definitions: &mut (impl Stream<Item = Result<Event<CustomResourceDefinition>, Error>> + Unpin),
        before: Option<&Serving>,
    ) -> Serving {
        let mut listed = Serving::Nothing;
        while let Some(event) = definitions.next().await {
            let now = match event {
                Ok(Event::Init) => {
                    listed = Serving::Nothing;
                    continue;
                }
                Ok(Event::InitApply(definition)) => {
                    listed = self.served_by(&definition);
                    continue;
                }
                Ok(Event::InitDone) => listed.clone(),
                Ok(Event::Apply(definition)) => self.served_by(&definition),
                Ok(Event::Delete(_)) => Serving::Nothing,
                // Without the right to read definitions, use discovery. The watch retries.
                Err(error) if code(&error) == Some(403) => match self.discovered(client).await {
                    Ok(serving) => serving,
                    Err(error) => {
                        tracing::debug!(%error, kind = self.kind, "cannot discover a kind");
                        continue;
                    }
                },
                Err(error) => {
                    tracing::debug!(%error, kind = self.kind, "the watch of a definition is interrupted");
                    continue;
                }
            };
            if before != Some(&now) {
                return now;
            }
        }
        // A watch never ends.
        std::future::pending().await
    }

    /// The versions that a definition serves.
    fn served_by(&self, definition: &CustomResourceDefinition) -> Serving {
        let conditions = definition
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let is_established = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Established" && condition.status == "True");
        let versions = definition.spec.versions.iter();
        let served = versions.filter(|version| is_established && version.served);
        let served: Vec<&str> = served.map(|version| version.name.as_str()).collect();
        self.chosen(&served)
    }

    fn chosen(&self, served: &[&str]) -> Serving {
        match self.versions.iter().find(|version| served.contains(version)) {
            Some(version) => Serving::Version(version),
            None if served.is_empty() => Serving::Nothing,
            None => Serving::OtherVersions(served.join(", ")),
        }
    }

    /// The versions in the discovery of the group.
    async fn discovered(&self, client: &Client) -> Result<Serving, kube::Error> {
        let groups = client.list_api_groups().await?;
        let versions = groups.groups.iter().find(|group| group.name == self.group);
        let mut served = Vec::new();
        for version in versions.into_iter().flat_map(|group| &group.versions) {
            let list = client.list_api_group_resources(&version.group_version).await?;
            if list.resources.iter().any(|resource| resource.name == self.plural) {
                served.push(version.version.as_str());
            }
        }
        Ok(self.chosen(&served))
    }

    /// Reports what is found while the cluster serves the same. Never returns.
    async fn follow_objects(&self, client: &Client, serving: Option<&Serving>, found: &impl Fn(Found<'_>)) {
        match serving {
            None => {}
            Some(Serving::Nothing) => found(Found::NotServed),
            Some(Serving::OtherVersions(versions)) => found(Found::Unreadable(self.other_versions(versions))),
            Some(Serving::Version(version)) => {
                found(Found::NotListed);
                return self.watch(client, version, found).await;
            }
        }
        std::future::pending::<()>().await;
    }

    fn other_versions(&self, versions: &str) -> String {
        let ours = self.versions.join(" or ");
        format!("the cluster serves version {versions}, OLM reads version {ours}; update OLM")
    }

    fn resource(&self, version: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }

    async fn watch(&self, client: &Client, version: &str, found: &impl Fn(Found<'_>)) {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.resource(version));
        loop {
            self.watch_until_forbidden(&api, found).await;
            // A watch that continues would not list anew, and what changed meanwhile is unknown.
            tokio::time::sleep(FORBIDDEN).await;
        }
    }

    /// Reports the objects. Ends when the right to watch them is lost.
    async fn watch_until_forbidden(&self, api: &Api<DynamicObject>, found: &impl Fn(Found<'_>)) {
        let mut events = pin!(watcher(api.clone(), Config::default()).default_backoff());
        let mut known = WatchedObjects::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if known.take(event) {
                        found(Found::Objects(&known.objects));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, kind = self.kind, "a watch is interrupted");
                    let is_forbidden = code(&error) == Some(403);
                    if !known.is_complete || is_forbidden {
                        found(Found::Unreadable(self.fault(&error)));
                    }
                    if known.is_complete && is_forbidden {
                        return;
                    }
                }
            }
        }
    }

    fn fault(&self, error: &Error) -> String {
        let said = match error {
            Error::InitialListFailed(kube::Error::Api(status))
            | Error::WatchStartFailed(kube::Error::Api(status))
            | Error::WatchFailed(kube::Error::Api(status))
            | Error::WatchError(status) => status.message.clone(),
            error => error.to_string(),
        };
        match code(error) {
            Some(403) => format!(
                "{said}; give this account the verbs get, list and watch on {} in group {}",
                self.plural, self.group
            ),
            _ => said,
        }
    }
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

impl WatchedObjects {
    /// Handles an event; returns whether all objects are known and may have changed.
    fn take(&mut self, event: Event<DynamicObject>) -> bool {
        let event = event.modify(|object| object.metadata.managed_fields = None);
        match event {
            Event::Init => {
                self.listed.clear();
                return false;
            }
            Event::InitApply(object) => {
                self.listed.insert(key(&object), object);
                return false;
            }
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                self.is_complete = true;
            }
            Event::Apply(object) => {
                self.objects.insert(key(&object), object);
            }
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{self, Reply};

    const GREETING: OptionalKind = OptionalKind {
        group: "x.io",
        versions: &["v1", "v1alpha1"],
        kind: "Greeting",
        plural: "greetings",
    };

    fn served(versions: &[(&str, bool)], established: &str) -> Serving {
        let versions: Vec<_> = versions
            .iter()
            .map(|(name, served)| json!({ "name": name, "served": served, "storage": false }))
            .collect();
        let definition = json!({
            "metadata": {},
            "spec": { "group": "x.io", "names": { "kind": "Greeting", "plural": "greetings" },
                "scope": "Cluster", "versions": versions },
            "status": { "conditions": [{ "type": "Established", "status": established }] },
        });
        GREETING.served_by(&serde_json::from_value(definition).unwrap())
    }

    #[test]
    fn the_preferred_version_of_an_established_definition_is_read() {
        let (v1, v1alpha1, v2) = (("v1", true), ("v1alpha1", true), ("v2", true));
        assert_eq!(served(&[v1alpha1, v1], "True"), Serving::Version("v1"));
        assert_eq!(
            served(&[v1alpha1, ("v1", false)], "True"),
            Serving::Version("v1alpha1")
        );
        assert_eq!(served(&[v2], "True"), Serving::OtherVersions("v2".to_owned()));
        assert_eq!(served(&[v1], "False"), Serving::Nothing);
        assert_eq!(served(&[], "True"), Serving::Nothing);
    }

    #[test]
    fn objects_are_known_when_a_list_is_complete_and_stay_known_during_the_next_one() {
        let object = |name: &str| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
        };
        let mut known = WatchedObjects::default();
        let mut check = |event, changed: bool, names: &[&str]| {
            assert_eq!(known.take(event), changed);
            let found: Vec<_> = known.objects.keys().map(|(_, name)| name.as_str()).collect();
            assert_eq!(found, names);
        };
        check(Event::Init, false, &[]);
        check(Event::InitApply(object("a")), false, &[]);
        check(Event::InitDone, true, &["a"]);
        check(Event::Apply(object("b")), true, &["a", "b"]);
        check(Event::Init, false, &["a", "b"]);
        check(Event::InitApply(object("c")), false, &["a", "b"]);
        check(Event::InitDone, true, &["c"]);
        check(Event::Delete(object("c")), true, &[]);
    }

    fn forbidden() -> Reply {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 403, "reason": "Forbidden", "message": "greetings.x.io is forbidden" });
        (403, status)
    }

    /// The first two that are found, and the requests for objects of the kind.
    async fn found(version: Option<&'static str>) -> (Vec<String>, usize) {
        let (client, asked) = fake::client(move |_, path| match path {
            "/apis" => {
                let version = json!({ "groupVersion": "x.io/v1", "version": "v1" });
                let group = json!({ "name": "x.io", "versions": [version] });
                (200, json!({ "kind": "APIGroupList", "groups": [group] }))
            }
            "/apis/x.io/v1" => {
                let resource = |name: &str| {
                    json!({ "name": name, "singularName": "", "namespaced": false,
                        "kind": "Greeting", "verbs": ["get"] })
                };
                let resources: Vec<Value> = version.into_iter().map(resource).collect();
                (
                    200,
                    json!({ "kind": "APIResourceList", "groupVersion": "x.io/v1", "resources": resources }),
                )
            }
            _ => forbidden(),
        });
        let seen = Mutex::new(Vec::new());
        let first = GREETING.follow(&client, |found| {
            let mut seen = seen.lock().unwrap();
            seen.push(match found {
                Found::NotServed => "not served".to_owned(),
                Found::NotListed => "not listed".to_owned(),
                Found::Unreadable(why) => why,
                Found::Objects(objects) => format!("{} objects", objects.len()),
            });
        });
        let _ = tokio::time::timeout(Duration::from_secs(1), first).await;
        let asked = asked.lock().unwrap();
        let for_objects = asked
            .iter()
            .filter(|request| request.ends_with("/greetings"))
            .count();
        let mut seen = seen.into_inner().unwrap();
        seen.truncate(2);
        (seen, for_objects)
    }

    #[tokio::test]
    async fn without_the_right_to_read_definitions_discovery_says_whether_the_kind_is_served() {
        assert_eq!(found(None).await, (vec!["not served".to_owned()], 0));
        let (seen, requests) = found(Some("greetings")).await;
        assert!(requests > 0);
        let why = "greetings.x.io is forbidden; give this account the verbs get, list and watch on greetings in group x.io";
        assert_eq!(seen, ["not listed", why]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_comes_back_lists_the_objects_anew() {
        let calls = Mutex::new(0_usize);
        let (client, _) = fake::client(move |_, _| {
            let mut calls = calls.lock().unwrap();
            *calls += 1;
            // A list, then a watch, which is forbidden.
            if calls.is_multiple_of(2) {
                return forbidden();
            }
            let items = vec![json!({ "metadata": { "name": "a" } }); *calls / 2];
            let list = json!({ "kind": "GreetingList", "apiVersion": "x.io/v1",
                "metadata": { "resourceVersion": "1" }, "items": items });
            (200, list)
        });
        let seen = Mutex::new(Vec::new());
        let see = |found: Found<'_>| {
            seen.lock().unwrap().push(match found {
                Found::Objects(objects) => objects.len().to_string(),
                Found::NotServed => "not served".to_owned(),
                Found::NotListed => "not listed".to_owned(),
                Found::Unreadable(_) => "forbidden".to_owned(),
            });
        };
        let watch = GREETING.watch(&client, "v1", &see);
        let _ = tokio::time::timeout(FORBIDDEN + Duration::from_secs(1), watch).await;
        let seen = seen.into_inner().unwrap();
        assert_eq!(
            seen.get(..3),
            Some(&["0", "forbidden", "1"].map(str::to_owned)[..])
        );
    }
}
