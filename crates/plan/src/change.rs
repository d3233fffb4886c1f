//! Everything that somebody decides on who lets an extension change, and a digest over it.

use std::collections::BTreeMap;

use olm_preflight::permissions::Missing;
use olm_rollout::object::ObjectId;
use olm_rollout::policy::Uninstall;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::BundleIdentity;
use crate::changes::changes;
use crate::content::{digest, digest_of, identified, shown, unmarked};
use crate::definitions::{Class, DefinedKinds, DefinitionChange, definitions};
use crate::fields::{FieldChange, apply, differences};
use crate::images::{Images, images};
use crate::rights::{Grant, RightsChange, given, needed};

/// What a plan is made of. The order of objects has no meaning.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The name of the ClusterExtension.
    pub extension: &'a str,
    /// The account that applies the objects, `NAMESPACE/NAME`.
    pub account: &'a str,
    /// The account of the newest revision; none before there is one.
    pub installed_account: Option<&'a str>,
    /// The bundle of the newest revision; none before there is one.
    pub installed: Option<&'a BundleIdentity>,
    /// The bundle to install, its image by digest.
    pub wanted: &'a BundleIdentity,
    /// The catalog that offers it; empty when that is not known.
    pub catalog: &'a str,
    /// Versions of the package between the two, oldest first.
    pub passed: &'a [String],
    /// What of its objects the extension leaves on the cluster.
    pub uninstall: Uninstall,
    /// The objects of the newest revision as they are stored.
    pub before: &'a [&'a Value],
    /// The objects as they would be stored.
    pub after: &'a [&'a Value],
    /// What an account without any right lacks for the objects of the newest revision, and for those to install.
    pub needs: Option<(&'a Missing, &'a Missing)>,
}

/// What a change does. All but [`ChangePlan::observed`] follows from the two revisions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// What an approval holds for, see [`ChangePlan::digest`].
    pub digest: String,
    /// The name of the ClusterExtension.
    pub extension: String,
    /// The account that applies the objects, `NAMESPACE/NAME`.
    pub account: String,
    /// The account of the newest revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed_account: Option<String>,
    /// The bundle of the newest revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<Bundle>,
    /// The bundle to install.
    pub wanted: Bundle,
    /// The catalog that offers it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub catalog: String,
    /// Versions that are passed over on the way, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// The digests of all objects of the newest revision, and of those to install.
    pub content: Content,
    /// How the objects differ.
    pub objects: Objects,
    /// Rights of operators and users.
    pub rights: RightsChange,
    /// Rights that the account needs. They depend on how the cluster serves the kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_rights: Option<RightsChange>,
    /// How grave the changes of definitions are.
    pub definitions_class: Class,
    /// Definitions that come, change or go.
    pub definitions: Vec<DefinitionChange>,
    /// Container images.
    pub images: Images,
    /// What the cluster says at the moment.
    pub observed: Observed,
}

/// What a cluster says at the moment. It is no part of the digest.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Rights that the account lacks; none when it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rights: Option<Vec<Grant>>,
    /// What the definitions that the cluster has say against the new ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// What could not be found out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A bundle as a plan names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bundle {
    /// The package.
    pub package: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The reference of its image.
    pub image: String,
}

impl Bundle {
    pub(crate) fn of(bundle: &BundleIdentity) -> Self {
        let metadata = bundle.metadata.clone();
        Self {
            package: bundle.package.clone(),
            name: metadata.name,
            version: metadata.version,
            release: metadata.release,
            image: bundle.image.clone(),
        }
    }
}

/// Digests of objects, `sha256:` and hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Content {
    /// Those of the newest revision.
    pub before: String,
    /// Those to install.
    pub after: String,
}

/// How the objects of two revisions differ; each list in the order of identities.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Objects {
    /// Objects that the new revision has besides.
    pub added: Vec<AddedObject>,
    /// Objects that are in both and not the same.
    pub changed: Vec<ChangedObject>,
    /// Objects that are deleted.
    pub removed: Vec<ObjectName>,
    /// Objects that the new revision lacks and that stay on the cluster.
    pub left: Vec<ObjectName>,
    /// How many objects stay as they are.
    pub unchanged: usize,
}

/// Names an object in a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName(pub ObjectId);

impl Serialize for ObjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ObjectId {
            group,
            kind,
            namespace,
            name,
            ..
        } = &self.0;
        let all = [
            ("group", group),
            ("kind", kind),
            ("namespace", namespace),
            ("name", name),
        ];
        serializer.collect_map(all.into_iter().filter(|(_, value)| !value.is_empty()))
    }
}

/// An object that comes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddedObject {
    /// Its name.
    pub id: ObjectName,
    /// The object; the values of Secrets are hidden.
    pub object: Value,
}

/// An object that changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedObject {
    /// Its name.
    pub id: ObjectName,
    /// The fields that differ; the values of Secrets are hidden.
    pub fields: Vec<FieldChange>,
}

impl ChangePlan {
    /// Plans a change.
    pub fn new(change: &Change<'_>) -> Self {
        let definitions_are_left = change.uninstall != Uninstall::Delete;
        let (definitions_class, definitions) = definitions(change.before, change.after, definitions_are_left);
        let account_rights = change
            .needs
            .map(|(before, after)| needed(change.account, before, after));
        let mut plan = Self {
            digest: String::new(),
            extension: change.extension.to_owned(),
            account: change.account.to_owned(),
            installed_account: change.installed_account.map(str::to_owned),
            installed: change.installed.map(Bundle::of),
            wanted: Bundle::of(change.wanted),
            catalog: change.catalog.to_owned(),
            passed: change.passed.to_vec(),
            content: Content {
                before: digest(change.before.iter().copied()),
                after: digest(change.after.iter().copied()),
            },
            objects: objects(change),
            rights: given(change.before, change.after),
            account_rights,
            definitions_class,
            definitions,
            images: images(change.before, change.after),
            observed: Observed::default(),
        };
        plan.digest = plan.digest();
        plan
    }

    /// The digest that an approval is bound to: over the bundle, the account, all objects of the old and of the new
    /// revision, the rights that they give, the images and the class of the changes of definitions. What the cluster says
    /// at the moment, counts of objects and rights that depend on discovery are no part of it.
    pub fn digest(&self) -> String {
        let fields = [
            ("bundle", json!(self.wanted)),
            ("account", json!(self.account)),
            ("content", json!(self.content)),
            ("rights", json!(self.rights)),
            ("images", json!(self.images)),
            ("definitions", json!(self.definitions_class)),
        ];
        let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value));
        digest_of(fields.collect::<Map<_, _>>())
    }

    /// Whether nothing is different from the newest revision: neither bundle nor objects nor account. The reference of the image does
    /// not count, which may be by tag there.
    pub fn is_empty(&self) -> bool {
        let named = |bundle: &Bundle| {
            let Bundle {
                package,
                name,
                version,
                release,
                ..
            } = bundle.clone();
            (package, name, version, release)
        };
        self.installed.as_ref().map(named) == Some(named(&self.wanted))
            && self.content.before == self.content.after
            && self.installed_account.as_ref() == Some(&self.account)
    }

    /// The objects once the change is made to `before`, each as [`comparable`] gives it: what a plan promises.
    pub fn apply(&self, before: &[&Value]) -> BTreeMap<ObjectId, Value> {
        let mut objects = all_comparable(before);
        for id in self.objects.removed.iter().chain(&self.objects.left) {
            objects.remove(&id.0);
        }
        for changed in &self.objects.changed {
            if let Some(object) = objects.remove(&changed.id.0) {
                objects.insert(changed.id.0.clone(), apply(object, &changed.fields));
            }
        }
        let added = self.objects.added.iter();
        objects.extend(added.map(|added| (added.id.0.clone(), added.object.clone())));
        objects
    }

    /// Puts in how many objects there are of the definitions' kinds, by the names of the definitions.
    pub fn count(&mut self, counts: &BTreeMap<String, u64>) {
        for definition in &mut self.definitions {
            definition.objects = counts.get(&definition.name).copied();
        }
    }
}

/// An object as plans compare and show it: without what a cluster adds to it and without the marks of its revision, the
/// values of Secrets hidden. Its identity has no version.
pub fn comparable(object: &Value) -> (ObjectId, Value) {
    (identified(object).0, shown(unmarked(object)))
}

/// Objects as plans compare and show them.
pub fn all_comparable(objects: &[&Value]) -> BTreeMap<ObjectId, Value> {
    objects.iter().map(|object| comparable(object)).collect()
}

fn objects(change: &Change<'_>) -> Objects {
    let by_id = |objects: &[&Value]| -> BTreeMap<ObjectId, Value> {
        let pairs = objects
            .iter()
            .map(|object| (identified(object).0, unmarked(object)));
        pairs.collect()
    };
    let (before, mut after) = (by_id(change.before), by_id(change.after));
    let found = changes(change.before.iter().copied(), change.after.iter().copied());
    let total = after.len();
    let mut objects = Objects::default();
    for id in found.changed {
        if let (Some(old), Some(new)) = (before.get(&id), after.remove(&id)) {
            let fields = differences(old, &new);
            let id = ObjectName(id);
            objects.changed.push(ChangedObject { id, fields });
        }
    }
    for id in found.added {
        if let Some(object) = after.remove(&id) {
            let (id, object) = (ObjectName(id), shown(object));
            objects.added.push(AddedObject { id, object });
        }
    }
    let kinds = DefinedKinds::of(before.values());
    for id in found.removed {
        let is_left = match change.uninstall {
            Uninstall::Delete => false,
            Uninstall::Orphan => true,
            Uninstall::KeepCrds => kinds.concern(&id),
        };
        let list = if is_left {
            &mut objects.left
        } else {
            &mut objects.removed
        };
        list.push(ObjectName(id));
    }
    objects.unchanged = total - objects.changed.len() - objects.added.len();
    objects
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::BundleMetadata;
    use olm_api::names::annotation;

    use super::*;

    fn bundle(version: &str) -> BundleIdentity {
        BundleIdentity {
            package: "pots".to_owned(),
            metadata: BundleMetadata {
                name: format!("pots.v{version}"),
                version: version.to_owned(),
                release: None,
            },
            image: format!("registry.example/pots@sha256:{version}"),
        }
    }

    fn map(name: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"},
            "data": {"key": value},
        })
    }

    fn definition(required: &[&str]) -> Value {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": required});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pots.x.io"},
            "spec": {"group": "x.io", "names": {"plural": "pots", "kind": "Pot"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        })
    }

    fn grant(verb: &str) -> [Value; 2] {
        let metadata = json!({"name": "r"});
        [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "op", "namespace": "n"}],
            }),
        ]
    }

    fn deployment(image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "op", "namespace": "n"},
            "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}},
        })
    }

    fn old() -> Vec<Value> {
        let [role, binding] = grant("get");
        Vec::from([
            map("kept", "a"),
            map("changed", "a"),
            map("old", "a"),
            definition(&[]),
            role,
            binding,
            deployment("op:1"),
        ])
    }

    fn new() -> Vec<Value> {
        let [role, binding] = grant("list");
        Vec::from([
            map("kept", "a"),
            map("changed", "b"),
            map("new", "a"),
            definition(&["a"]),
            role,
            binding,
            deployment("op:2"),
        ])
    }

    struct Case {
        account: &'static str,
        wanted: BundleIdentity,
        before: Vec<Value>,
        after: Vec<Value>,
        uninstall: Uninstall,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                account: "n/installer",
                wanted: bundle("2.0.0"),
                before: old(),
                after: new(),
                uninstall: Uninstall::Delete,
            }
        }
    }

    fn plan(case: &Case) -> ChangePlan {
        let (before, after): (Vec<_>, Vec<_>) = (case.before.iter().collect(), case.after.iter().collect());
        ChangePlan::new(&Change {
            extension: "ext",
            account: case.account,
            installed_account: Some("n/installer"),
            installed: Some(&bundle("1.0.0")),
            wanted: &case.wanted,
            catalog: "catalog",
            passed: &["1.1.0".to_owned()],
            uninstall: case.uninstall,
            before: &before,
            after: &after,
            needs: None,
        })
    }

    #[test]
    fn a_plan_holds_everything_that_changes() {
        let plan = plan(&Case::default());
        let shown = serde_json::to_value(&plan).unwrap();
        let at = |pointer: &str| shown.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(at("/installed/version"), "1.0.0");
        assert_eq!(at("/wanted/image"), "registry.example/pots@sha256:2.0.0");
        assert_eq!(at("/passed"), json!(["1.1.0"]));
        let name = |name: &str| json!({"kind": "ConfigMap", "namespace": "n", "name": name});
        assert_eq!(at("/objects/added/0/id"), name("new"));
        assert_eq!(at("/objects/added/0/object/data"), json!({"key": "a"}));
        assert_eq!(at("/objects/removed"), json!([name("old")]));
        assert_eq!(
            (at("/objects/unchanged"), at("/objects/left")),
            (json!(2), json!([]))
        );
        let changed: Vec<(String, String)> = plan
            .objects
            .changed
            .iter()
            .flat_map(|object| {
                object
                    .fields
                    .iter()
                    .map(|field| (object.id.0.name.clone(), field.path.to_string()))
            })
            .collect();
        let expected = [
            ("changed", "data.key"),
            (
                "pots.x.io",
                "spec.versions[name=v1].schema.openAPIV3Schema.required",
            ),
            ("op", "spec.template.spec.containers[name=manager].image"),
            ("r", "rules[0].verbs[0]"),
        ];
        let mut expected = expected.map(|(name, path)| (name.to_owned(), path.to_owned()));
        let mut changed = changed;
        changed.sort();
        expected.sort();
        assert_eq!(changed, expected);
        assert_eq!(at("/rights/gained/0/rules/0/verbs"), json!(["list"]));
        assert_eq!(at("/rights/lost/0/rules/0/verbs"), json!(["get"]));
        assert_eq!(plan.definitions_class, Class::Breaking);
        assert_eq!(
            at("/images"),
            json!({"added": ["op:2"], "removed": ["op:1"], "kept": []})
        );
        assert!(!plan.is_empty());
    }

    #[test]
    fn the_changes_lead_from_the_old_objects_to_the_new_ones() {
        let case = Case::default();
        let (before, after): (Vec<_>, Vec<_>) = (case.before.iter().collect(), case.after.iter().collect());
        assert_eq!(plan(&case).apply(&before), all_comparable(&after));
    }

    #[test]
    fn what_the_extension_leaves_on_the_cluster_is_not_removed() {
        let pot =
            json!({"apiVersion": "x.io/v1", "kind": "Pot", "metadata": {"name": "p", "namespace": "n"}});
        let names =
            |list: &[ObjectName]| -> Vec<String> { list.iter().map(|id| id.0.name.clone()).collect() };
        for (uninstall, removed, left, class) in [
            (
                Uninstall::Delete,
                &["old", "pots.x.io", "p"][..],
                &[][..],
                Class::Breaking,
            ),
            (Uninstall::KeepCrds, &["old"], &["pots.x.io", "p"], Class::Safe),
            (Uninstall::Orphan, &[], &["old", "pots.x.io", "p"], Class::Safe),
        ] {
            let plan = plan(&Case {
                before: Vec::from([map("old", "a"), definition(&[]), pot.clone()]),
                after: Vec::new(),
                uninstall,
                ..Case::default()
            });
            let found = (names(&plan.objects.removed), names(&plan.objects.left));
            assert_eq!(
                found,
                (
                    removed.iter().map(ToString::to_string).collect(),
                    left.iter().map(ToString::to_string).collect()
                )
            );
            assert_eq!(plan.definitions_class, class);
        }
    }

    #[test]
    fn a_secret_is_planned_without_its_values() {
        let secret = |name: &str, value: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "n"},
                "stringData": {"password": value},
            })
        };
        let plan = plan(&Case {
            before: Vec::from([secret("a", "hunter1")]),
            after: Vec::from([secret("a", "hunter2"), secret("b", "hunter3")]),
            ..Case::default()
        });
        let text = serde_json::to_string(&plan).unwrap();
        assert!(
            !text.contains("hunter") && text.contains("stringData.password"),
            "{text}"
        );
    }

    #[test]
    fn the_digest_stays_whatever_the_order_is_and_whatever_a_cluster_adds() {
        let expected = plan(&Case::default()).digest;
        let mut before = old();
        before.reverse();
        let mut after = new();
        after.rotate_left(3);
        for object in before.iter_mut().chain(&mut after) {
            object["status"] = json!({"phase": "Active"});
            object["metadata"]["uid"] = json!("uid");
            object["metadata"]["resourceVersion"] = json!("7");
            object["metadata"]["managedFields"] = json!([{}]);
            object["metadata"]["annotations"] = json!({annotation::LAST_APPLIED: "x"});
        }
        // Where there are no annotations, there are none.
        let empty = |mut objects: Vec<Value>| {
            for object in &mut objects {
                object["metadata"]["annotations"] = json!({});
            }
            objects
        };
        let with_annotations = plan(&Case {
            before: empty(old()),
            after: empty(new()),
            ..Case::default()
        });
        let mut found = plan(&Case {
            before,
            after,
            ..Case::default()
        });
        assert_eq!(found.digest, with_annotations.digest);
        found.count(&BTreeMap::from([("pots.x.io".to_owned(), 7)]));
        found.observed.findings.push("something".to_owned());
        found.observed.missing_rights = Some(Vec::new());
        found.passed.clear();
        assert_eq!(found.definitions.first().and_then(|one| one.objects), Some(7));
        assert_eq!(found.digest(), with_annotations.digest);
        assert_eq!(plan(&Case::default()).digest, expected);
        assert!(
            expected.starts_with("sha256:") && expected.len() == 71,
            "{expected}"
        );
    }

    #[test]
    fn each_input_changes_the_digest() {
        type Edit<T> = (&'static str, fn(&mut T));
        let known = plan(&Case::default());
        let with = |change: fn(&mut Case)| {
            let mut case = Case::default();
            change(&mut case);
            plan(&case).digest
        };
        let cases: [Edit<Case>; 8] = [
            ("account", |case| case.account = "n/other"),
            ("image", |case| case.wanted.image.push('0')),
            ("version", |case| case.wanted.metadata.version.push('0')),
            ("release", |case| {
                case.wanted.metadata.release = Some("1".to_owned());
            }),
            ("old object", |case| case.before[1]["data"]["key"] = json!("c")),
            ("old object gone", |case| drop(case.before.remove(0))),
            ("new object", |case| case.after[0]["data"]["key"] = json!("c")),
            ("new label", |case| {
                case.after[0]["metadata"]["labels"] = json!({"a": "b"});
            }),
        ];
        for (what, change) in cases {
            assert_ne!(with(change), known.digest, "{what}");
        }
        let edited: [Edit<ChangePlan>; 5] = [
            ("gained", |plan| plan.rights.gained.clear()),
            ("lost", |plan| plan.rights.lost.clear()),
            ("images", |plan| plan.images.added.clear()),
            ("class", |plan| plan.definitions_class = Class::Safe),
            ("content", |plan| plan.content.before.clear()),
        ];
        for (what, edit) in edited {
            let mut plan = known.clone();
            edit(&mut plan);
            assert_ne!(plan.digest(), known.digest, "{what}");
        }
    }

    #[test]
    fn the_same_bundle_with_the_same_objects_changes_nothing() {
        let same = Case {
            wanted: bundle("1.0.0"),
            before: new(),
            ..Case::default()
        };
        assert!(plan(&same).is_empty());
        for other in [
            Case {
                wanted: bundle("2.0.0"),
                before: new(),
                ..Case::default()
            },
            Case {
                account: "n/other",
                wanted: bundle("1.0.0"),
                before: new(),
                ..Case::default()
            },
        ] {
            assert!(!plan(&other).is_empty());
        }
    }
}
