//! Objects that cannot be read, such as those of a later version of the API.

use std::borrow::Cow;
use std::collections::HashSet;

use kube::Resource;
use kube::core::ObjectMeta;
use parking_lot::Mutex;

/// The objects in the stores that cannot be read at the moment, by kind and name. The stores have them as they were last
/// read.
#[derive(Debug, Default)]
pub(crate) struct UnreadableObjects(Mutex<HashSet<(Cow<'static, str>, String)>>);

impl UnreadableObjects {
    /// Whether an object cannot be read.
    pub(crate) fn contains<K: Resource<DynamicType = ()>>(&self, name: &str) -> bool {
        let objects = self.0.lock();
        // Usually there is none.
        !objects.is_empty() && objects.contains(&(K::kind(&()), name.to_owned()))
    }

    /// Notes whether an object can be read. Returns whether that is new.
    pub(crate) fn set<K: Resource<DynamicType = ()>>(
        &self,
        metadata: &ObjectMeta,
        is_unreadable: bool,
    ) -> bool {
        let mut objects = self.0.lock();
        if !is_unreadable && objects.is_empty() {
            return false;
        }
        let object = (K::kind(&()), metadata.name.clone().unwrap_or_default());
        if is_unreadable {
            objects.insert(object)
        } else {
            objects.remove(&object)
        }
    }
}
