//! Commands in messages, ready to paste.

use std::fmt::Write as _;

use crate::ClusterObjectSet;
use crate::cluster_extension::controlling_extension;
use crate::names::{SYSTEM_NAMESPACE, label};

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

/// The prefix of a ClusterObjectSet in the arguments of commands.
pub const SET_PREFIX: &str = "clusterobjectset/";

/// The command that prints the roles which the account of an extension lacks. `system_namespace` is the namespace of
/// the managers. `default_account`: `NAMESPACE/NAME` of the account, if operator-controller is started with it.
pub fn rbac_of_extension(name: &str, system_namespace: &str, default_account: Option<&str>) -> String {
    let mut command = format!("olm rbac {name}");
    if system_namespace != SYSTEM_NAMESPACE {
        let _ = write!(command, " --system-namespace {system_namespace}");
    }
    if let Some(account) = default_account {
        let _ = write!(command, " --default-service-account {account}");
    }
    command
}

/// The same for the objects of a ClusterObjectSet.
pub fn rbac_of_set(name: &str, system_namespace: &str, default_account: Option<&str>) -> String {
    rbac_of_extension(&format!("{SET_PREFIX}{name}"), system_namespace, default_account)
}

/// A text as one word for a shell, whatever it contains; `None` if a command may take it for an option.
pub fn word(text: &str) -> Option<String> {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_' | '/' | ':');
    if text.is_empty() || text.starts_with('-') || text.contains(char::is_control) {
        None
    } else if text.chars().all(is_plain) {
        Some(text.to_owned())
    } else {
        Some(format!("'{}'", text.replace('\'', "'\\''")))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::cluster_object_set::ClusterObjectSetSpec;
    use crate::names::{self, user};

    #[test]
    fn a_command_names_the_options_of_the_managers_that_are_not_usual() {
        assert_eq!(
            rbac_of_extension("greeter", SYSTEM_NAMESPACE, None),
            "olm rbac greeter"
        );
        assert_eq!(
            rbac_of_set("greeter-1", "olm", Some("olm/installer")),
            "olm rbac clusterobjectset/greeter-1 --system-namespace olm --default-service-account olm/installer"
        );
    }

    #[test]
    fn a_text_is_one_word_of_a_shell_or_left_out() {
        for (text, expected) in [
            ("stable-4.18", Some("stable-4.18")),
            ("a b", Some("'a b'")),
            ("x'; reboot", Some(r"'x'\''; reboot'")),
            ("--yes", None),
            ("a\nb", None),
            ("", None),
        ] {
            assert_eq!(word(text).as_deref(), expected);
        }
    }

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
