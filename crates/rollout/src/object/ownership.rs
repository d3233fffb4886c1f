//! The owner of a live object.

use olm_api::names;
use olm_api::object::{list, text};
use serde_json::Value;

use crate::failure::{FailureKind, RequestFailure};
use crate::inheritance;
use crate::outline::Owner;

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Whether only our own server-side apply owns the entry, so that the next apply can remove it.
    pub applied_by_us: bool,
}

impl OwnerReference {
    /// The entry in its object.
    fn parse(entry: &Value, our_fields: Option<&Value>) -> Self {
        let text = |pointer: &str| text(entry, pointer).to_owned();
        let uid = text("/uid");
        let key = format!("k:{}", serde_json::json!({ "uid": uid }));
        let path = ["f:metadata", "f:ownerReferences", &key];
        let applied_by_us = our_fields
            .and_then(|fields| path.iter().try_fold(fields, |at, part| at.get(part)))
            .is_some();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            name: text("/name"),
            uid,
            applied_by_us,
        }
    }
}

/// The owners and the identity of a live object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The UID.
    pub uid: String,
    /// The resourceVersion.
    pub resource_version: String,
    /// The finalizers, if it is being deleted.
    pub deleting: Option<Vec<String>>,
    /// The controlling owner.
    pub controller: Option<OwnerReference>,
    /// Whether the asking revision is one of the owners.
    pub owned: bool,
    /// The revision annotation.
    pub revision: RevisionMark,
    /// The value of its `owner-name` label.
    pub owner_name: Option<String>,
    /// Whether our server-side apply owns fields of it.
    pub applied_by_us: bool,
    /// Whether an earlier controller wrote fields by updates, see [`inheritance`].
    pub inheritable: bool,
    /// The first few field managers of an object without a controller.
    pub writers: Vec<String>,
}

/// The revision annotation of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RevisionMark {
    /// There is none.
    #[default]
    Absent,
    /// There is one that is not a number.
    Unreadable,
    /// The revision that applied the object last.
    Revision(i64),
}

/// The precondition of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The object does not exist.
    Absent,
    /// The object exists and has not changed since it was read.
    Seen {
        /// The UID seen.
        uid: String,
        /// The resourceVersion seen.
        resource_version: String,
    },
}

/// The fields that a manager's server-side apply owns, as `managedFields` lists them for `api_version`.
pub fn fields_of<'a>(live: &'a Value, api_version: &str, manager: &str) -> Option<&'a Value> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let ours = entries.iter().find(|entry| {
        text(entry, "/manager") == manager
            && text(entry, "/operation") == "Apply"
            && text(entry, "/subresource").is_empty()
            && text(entry, "/apiVersion") == api_version
    })?;
    ours.get("fieldsV1")
}

/// The most field managers that are named.
const NAMED: usize = 3;

/// The first field managers of an object, without those of its status.
fn writers(live: &Value) -> Vec<String> {
    let entries = list(live, "/metadata/managedFields");
    let mut writers: Vec<String> = Vec::new();
    let wrote = |entry: &&Value| entry.get("subresource").is_none();
    for entry in entries.iter().filter(wrote) {
        let name = text(entry, "/manager");
        if !name.is_empty() && writers.len() < NAMED && !writers.iter().any(|known| known == name) {
            writers.push(name.to_owned());
        }
    }
    writers
}

/// The finalizers of an object that is being deleted. A Namespace has a second list.
pub fn finalizers(live: &Value) -> Vec<String> {
    let list = |pointer: &str| {
        let entries = live.pointer(pointer).and_then(Value::as_array);
        entries
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
    };
    let is_namespace = live.get("kind").and_then(Value::as_str) == Some("Namespace");
    let second = is_namespace.then(|| list("/spec/finalizers"));
    list("/metadata/finalizers")
        .chain(second.into_iter().flatten())
        .collect()
}

impl Ownership {
    /// The ownership of a live object, for the owner with this UID.
    pub fn of(live: &Value, our_uid: &str) -> Self {
        let metadata = live.get("metadata").unwrap_or(&Value::Null);
        let api_version = text(live, "/apiVersion");
        let fields = [names::field_manager::OBJECTS, names::field_manager::CERTIFICATES]
            .into_iter()
            .find_map(|manager| fields_of(live, api_version, manager));
        let references = list(metadata, "/ownerReferences");
        let is_controller = |entry: &&Value| entry.get("controller").and_then(Value::as_bool) == Some(true);
        let has_our_uid = |entry: &Value| entry.get("uid").and_then(Value::as_str) == Some(our_uid);
        let mark = metadata
            .get("annotations")
            .and_then(|a| a.get(names::annotation::REVISION));
        let controller = references.iter().find(is_controller);
        let owned = references.iter().any(has_our_uid);
        let deleting = metadata
            .get("deletionTimestamp")
            .is_some_and(|time| !time.is_null())
            .then(|| finalizers(live));
        Self {
            uid: text(metadata, "/uid").to_owned(),
            resource_version: text(metadata, "/resourceVersion").to_owned(),
            deleting,
            controller: controller.map(|entry| OwnerReference::parse(entry, fields)),
            owned,
            revision: match mark.and_then(Value::as_str) {
                None => RevisionMark::Absent,
                Some(text) => text
                    .parse()
                    .map_or(RevisionMark::Unreadable, RevisionMark::Revision),
            },
            owner_name: metadata
                .get("labels")
                .and_then(|labels| labels.get(names::label::OWNER_NAME))
                .and_then(Value::as_str)
                .map(str::to_owned),
            applied_by_us: fields.is_some(),
            inheritable: inheritance::is_due(live),
            // This would be kept for every watched object and is seldom needed.
            writers: if controller.is_none() && !owned {
                writers(live)
            } else {
                Vec::new()
            },
        }
    }

    /// Whether the owner with that UID controls the object.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller
            .as_ref()
            .is_some_and(|controller| controller.uid == uid)
    }

    /// Whether annotations name this revision as the last one that applied the object, and it has no controller. Then
    /// it was released on purpose together with its revision, or a user removed the owner reference, or it was restored
    /// without it.
    pub fn is_stripped_of(&self, owner: &Owner) -> bool {
        self.controller.is_none()
            && !self.owned
            && self.revision == RevisionMark::Revision(owner.revision)
            && self.owner_name.as_deref() == Some(owner.owner_name.as_str())
    }

    /// Checks that the object matches a guard.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, guard: &Guard) -> Result<(), RequestFailure> {
        if self.guard() == *guard {
            return Ok(());
        }
        Err(RequestFailure::new(
            FailureKind::Conflict,
            "the object has changed",
        ))
    }

    /// The guard that allows a write only to the object that was read.
    pub fn guard(&self) -> Guard {
        Guard::Seen {
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }
}
