//! The common parts of all kinds: a cluster-scoped object of group `olm.operatorframework.io/v1` with a spec and a
//! status.
//!
//! The root types are written here instead of derived because the schema requires neither `spec` nor `status`: one
//! object without a spec must not make a whole list unreadable.

/// Defines a root type and teaches the Kubernetes client about it.
macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $plural:literal, $spec:ident, $status:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            /// Always `olm.operatorframework.io/v1`.
            pub api_version: String,
            /// The kind's name.
            pub kind: String,
            /// Name, labels, annotations, owners.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// The wanted state. Empty if the object has no spec, which the schema allows.
            pub spec: $spec,
            /// The observed state. Written by the managers only.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $name {
            /// An object of that name with that spec and without a status.
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut object = Self { spec, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }

            /// The object's name; empty before it has one.
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// The object's generation; 0 before the API server has seen it.
            pub fn generation(&self) -> i64 {
                self.metadata.generation.unwrap_or_default()
            }

            /// True once the object waits for its finalizers.
            pub fn is_deleting(&self) -> bool {
                self.metadata.deletion_timestamp.is_some()
            }

            /// The value of an annotation.
            pub fn annotation(&self, key: &str) -> Option<&str> {
                self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
            }

            /// The value of a label.
            pub fn label(&self, key: &str) -> Option<&str> {
                self.metadata.labels.as_ref()?.get(key).map(String::as_str)
            }

            /// The conditions in the status; none before there is a status.
            pub fn conditions(&self) -> &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    api_version: crate::names::API_VERSION.to_owned(),
                    kind: stringify!($name).to_owned(),
                    metadata: Default::default(),
                    spec: Default::default(),
                    status: None,
                }
            }
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = crate::names::API_VERSION;
            const GROUP: &'static str = crate::names::GROUP;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = crate::names::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::ClusterResourceScope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use kind;
