//! Commands in messages, ready to paste.

use crate::ClusterObjectSet;
use crate::cluster_extension::controlling_extension;
use crate::names::label;

/// The object to annotate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Annotated<'a> {
    /// The ClusterExtension of that name.
    Extension(&'a str),
    /// The ClusterCatalog of that name.
    Catalog(&'a str),
    /// The ClusterObjectSet of that name.
    ObjectSet(&'a str),
}

impl<'a> Annotated<'a> {
    /// The object that users annotate: the extension that controls the set and passes its annotations on, otherwise the
    /// set.
    pub fn of(set: &'a ClusterObjectSet) -> Self {
        match (controlling_extension(&set.metadata), set.label(label::OWNER_NAME)) {
            (Some(_), Some(name)) if !name.is_empty() => Self::Extension(name),
            _ => Self::ObjectSet(set.name()),
        }
    }
}

/// The command that sets an annotation, or removes it if there is no value.
pub fn annotate(annotated: Annotated<'_>, key: &str, value: Option<&str>) -> String {
    let (resource, name) = match annotated {
        Annotated::Extension(name) => ("clusterextension", name),
        Annotated::Catalog(name) => ("clustercatalog", name),
        Annotated::ObjectSet(name) => ("clusterobjectset", name),
    };
    match value {
        Some(value) => format!("kubectl annotate {resource} {name} --overwrite {key}={value}"),
        None => format!("kubectl annotate {resource} {name} {key}-"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::cluster_object_set::ClusterObjectSetSpec;
    use crate::names::{self, user};

    #[test]
    fn a_set_is_annotated_where_its_annotations_come_from() {
        let mut set = ClusterObjectSet::new("greeter-1", ClusterObjectSetSpec::default());
        let labels = [(label::OWNER_NAME.to_owned(), "greeter".to_owned())];
        set.metadata.labels = Some(labels.into());
        assert_eq!(
            annotate(Annotated::of(&set), user::UNINSTALL, Some("orphan")),
            "kubectl annotate clusterobjectset greeter-1 --overwrite olm.operatorframework.io/uninstall=orphan"
        );
        set.metadata.owner_references = Some(vec![OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: names::CLUSTER_EXTENSION.to_owned(),
            uid: "u".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        assert_eq!(
            annotate(Annotated::of(&set), user::PAUSED, None),
            "kubectl annotate clusterextension greeter olm.operatorframework.io/paused-"
        );
    }
}
