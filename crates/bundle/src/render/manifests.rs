//! Additional objects of a bundle, and their supported kinds.

use serde_json::{Map, Value};

use super::{Options, RenderError};
use crate::bundle::Bundle;
use crate::object::{Scope, object_name, scope, text};

/// The additional objects. Namespaced ones move to the install namespace, whatever namespace they have.
///
/// # Errors
/// When an object is of a kind that is not supported.
pub fn additional(bundle: &Bundle, options: &Options) -> Result<Vec<Value>, RenderError> {
    bundle
        .others
        .iter()
        .map(|object| {
            let kind = text(object, "/kind");
            let Some(scope) = scope(kind) else {
                return Err(RenderError::UnsupportedObject {
                    name: object_name(object).to_owned(),
                    kind: kind.to_owned(),
                });
            };
            let mut object = without_noise(object.clone());
            if scope == Scope::Namespaced
                && let Some(metadata) = child(&mut object, "metadata")
            {
                metadata.insert("namespace".to_owned(), options.install_namespace.clone().into());
            }
            Ok(object)
        })
        .collect()
}

/// Removes the null creation time of generated manifests.
pub(super) fn without_noise(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("creationTimestamp") == Some(&Value::Null)
    {
        metadata.shift_remove("creationTimestamp");
    }
    object
}

/// The object in a field, created if absent; `None` if `value` is not an object.
pub(super) fn child<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    let entry = value.as_object_mut()?.entry(field).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}

/// The containers in a list of a pod.
pub(super) fn containers_mut<'a>(
    pod: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    pod.get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}
