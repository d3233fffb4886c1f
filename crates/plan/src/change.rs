//! All facts on which an approver decides, with a digest.

use std::collections::BTreeMap;
use std::fmt;

use olm_api::cluster_object_set::CollisionProtection;
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
use crate::rights::{Grant, RightsChange, needed, rights_change};

/// The input of a plan. The order of objects has no meaning.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The name of the ClusterExtension.
    pub extension: &'a str,
    /// The account that applies the objects, `NAMESPACE/NAME`.
    pub account: &'a str,
    /// The account of the newest revision; `None` if there is no revision.
    pub installed_account: Option<&'a str>,
    /// The bundle of the newest revision; `None` if there is no revision.
    pub installed: Option<&'a BundleIdentity>,
    /// The bundle to install, its image by digest.
    pub wanted: &'a BundleIdentity,
    /// The catalog that offers it; empty when that is not known.
    pub catalog: &'a str,
    /// Versions of the package between the two, oldest first.
    pub passed: &'a [String],
    /// The objects that the extension leaves on the cluster.
    pub uninstall: Uninstall,
    /// The existing objects that the new revision may take over.
    pub adopt: CollisionProtection,
    /// The stored objects of the newest revision.
    pub before: &'a [&'a Value],
    /// The objects in the form in which they would be stored.
    pub after: &'a [&'a Value],
    /// The rights that an account needs for the objects of the newest revision, and for those to install.
    pub needs: Option<(&'a Missing, &'a Missing)>,
}

/// The effects of a change. Everything but [`ChangePlan::observed`] follows from the two revisions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// The digest to which an approval is bound, see [`ChangePlan::digest`].
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
    /// Versions that the change skips, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// The digests of all objects of the newest revision, and of those to install.
    pub content: ContentDigests,
    /// The existing objects that the new revision may take over.
    pub adopt: CollisionProtection,
    /// The differences between the objects.
    pub objects: Objects,
    /// Rights that the bundle grants to operators and users.
    pub rights: RightsChange,
    /// Rights that the account needs. They depend on how the cluster serves the kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_rights: Option<RightsChange>,
    /// The severity of the changes of definitions.
    pub definitions_class: Class,
    /// Definitions that are added, changed or removed.
    pub definitions: Vec<DefinitionChange>,
    /// Container images.
    pub images: Images,
    /// The state of the cluster.
    pub observed: Observed,
}

/// The state of a cluster when the plan was made. It is not part of the digest.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// By whom the image is signed and which rules ask for that, if any does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// Images of the bundle's Pods that the extension wants verified and that are signed, each with its signers and the
    /// rules that ask for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verified_images: Vec<String>,
    /// Images of the bundle's Pods that the extension wants verified and that are refused, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_images: Vec<String>,
    /// Rights that the account lacks; none if they were not reviewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rights: Option<Vec<Grant>>,
    /// Findings of the new definitions compared with those on the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Facts that could not be determined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A bundle as a plan names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bundle {
    /// The package.
    pub package: String,
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The release.
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

/// The digests of the content before and after, `sha256:` and hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentDigests {
    /// The digest of the newest revision.
    pub before: String,
    /// The digest of the objects to install.
    pub after: String,
}

/// The differences between the objects of two revisions; each list in the order of identities.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Objects {
    /// Objects that only the new revision has.
    pub added: Vec<AddedObject>,
    /// Objects that both have and that differ.
    pub changed: Vec<ChangedObject>,
    /// Objects that are deleted.
    pub removed: Vec<ObjectName>,
    /// Objects that only the old revision has and that stay on the cluster.
    pub left: Vec<ObjectName>,
    /// The number of unchanged objects.
    pub unchanged: usize,
}

/// Names an object in a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName(pub ObjectId);

/// The kind with its group, and the name: `Deployment.apps greeter/operator`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.0;
        f.write_str(&id.kind)?;
        if !id.group.is_empty() {
            write!(f, ".{}", id.group)?;
        }
        f.write_str(" ")?;
        if !id.namespace.is_empty() {
            write!(f, "{}/", id.namespace)?;
        }
        f.write_str(&id.name)
    }
}

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

/// An object that is added.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AddedObject {
    /// The name.
    pub id: ObjectName,
    /// The object; the values of Secrets are hidden.
    pub object: Value,
}

/// An object that changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedObject {
    /// The name.
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
            content: ContentDigests {
                before: digest(change.before.iter().copied()),
                after: digest(change.after.iter().copied()),
            },
            adopt: change.adopt,
            objects: objects(change),
            rights: rights_change(change.before, change.after),
            account_rights,
            definitions_class,
            definitions,
            images: images(change.before, change.after),
            observed: Observed::default(),
        };
        plan.digest = plan.digest();
        plan
    }

    /// The digest to which an approval is bound. It covers the bundle, the account, all objects of the old and the new
    /// revision, which of them are removed or left, which existing objects may be taken over, the rights that the
    /// objects grant, the images and the class of the changes of definitions. It does not cover the state of the
    /// cluster, counts of objects and rights that depend on discovery.
    pub fn digest(&self) -> String {
        let fields = [
            ("bundle", json!(self.wanted)),
            ("account", json!(self.account)),
            ("content", json!(self.content)),
            ("adopt", json!(self.adopt)),
            ("removed", json!(self.objects.removed)),
            ("left", json!(self.objects.left)),
            ("rights", json!(self.rights)),
            ("images", json!(self.images)),
            ("definitions", json!(self.definitions_class)),
        ];
        let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value));
        digest_of(&fields.collect::<Map<_, _>>())
    }

    /// Whether bundle, objects and account are those of the newest revision. The reference of the image does not count,
    /// because it may have been a tag.
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

    /// The objects after the change is made to `before`, each in the form of [`comparable`].
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

    /// Sets how many objects of the definitions' kinds exist, by the names of the definitions.
    pub fn count(&mut self, counts: &BTreeMap<String, u64>) {
        for definition in &mut self.definitions {
            definition.objects = counts.get(&definition.name).copied();
        }
    }
}

/// An object in the form that plans compare and show: without fields that a cluster adds, without the marks of its
/// revision, and with hidden values of Secrets. Its identity has no version.
pub fn comparable(object: &Value) -> (ObjectId, Value) {
    (identified(object).0, shown(unmarked(object)))
}

/// Objects in the form that plans compare and show.
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
mod tests;
