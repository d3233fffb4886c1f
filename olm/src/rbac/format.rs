//! The output of roles: manifests, names, or a table of rules.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::parsed;
use crate::output::table::table;
use crate::output::{print, print_json, print_text};

/// The format of roles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum RoleFormat {
    /// YAML, one document for each object.
    #[default]
    Yaml,
    /// JSON, a List.
    Json,
    /// The rules, for people.
    Table,
    /// Names alone, as kubectl takes them.
    Name,
}

impl RoleFormat {
    /// Writes roles and bindings, given as YAML.
    pub(super) fn print(self, manifests: &str) -> anyhow::Result<()> {
        match self {
            Self::Yaml => print(manifests),
            Self::Json => {
                print_json(&json!({"apiVersion": "v1", "kind": "List", "items": parsed(manifests)?}))
            }
            Self::Table => print_text(&rules(&parsed(manifests)?)),
            Self::Name => {
                let objects = parsed(manifests)?;
                let names = objects.iter().map(|object| {
                    let kind = text(object, "/kind").to_lowercase();
                    let group = text(object, "/apiVersion").split('/').next().unwrap_or_default();
                    format!("{kind}.{group}/{}\n", text(object, "/metadata/name"))
                });
                print_text(&names.collect::<String>())
            }
        }
    }
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A row for each rule; `*` stands for all namespaces and all names.
fn rules(objects: &[Value]) -> String {
    let mut rows = Vec::new();
    for object in objects {
        let namespace = match text(object, "/kind") {
            "Role" => text(object, "/metadata/namespace"),
            _ => "*",
        };
        let rules = object.get("rules").and_then(Value::as_array);
        for rule in rules.into_iter().flatten() {
            let names = match list(rule, "resourceNames") {
                names if names.is_empty() => "*".to_owned(),
                names => names.join(","),
            };
            rows.push(vec![
                namespace.to_owned(),
                list(rule, "verbs").join(","),
                resources(rule).join(","),
                names,
            ]);
        }
    }
    table(&["NAMESPACE", "VERBS", "RESOURCES", "NAMES"], &rows)
}

/// The resources of a rule as kubectl writes them, `deployments.apps`, and its URLs.
fn resources(rule: &Value) -> Vec<String> {
    let (groups, resources) = (list(rule, "apiGroups"), list(rule, "resources"));
    let named = groups.iter().flat_map(|group| {
        resources.iter().map(move |resource| {
            let (resource, part) = match resource.split_once('/') {
                Some((resource, part)) => (resource, format!("/{part}")),
                None => (*resource, String::new()),
            };
            match *group {
                "" => format!("{resource}{part}"),
                group => format!("{resource}.{group}{part}"),
            }
        })
    });
    let urls = list(rule, "nonResourceURLs").into_iter().map(str::to_owned);
    named.chain(urls).collect()
}

fn list<'r>(rule: &'r Value, field: &str) -> Vec<&'r str> {
    let values = rule.get(field).and_then(Value::as_array);
    values.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_rule_and_none_for_a_binding() {
        let objects = [
            json!({"kind": "ClusterRole", "rules": [
                {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": ["get", "list"]},
                {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            ]}),
            json!({"kind": "ClusterRoleBinding"}),
            json!({"kind": "Role", "metadata": {"namespace": "a"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x", "y"], "verbs": ["get"]},
            ]}),
        ];
        assert_eq!(
            rules(&objects),
            "NAMESPACE  VERBS     RESOURCES                                NAMES\n\
             *          get,list  deployments.apps,deployments.apps/scale  *\n\
             *          get       /metrics                                 *\n\
             a          get       secrets                                  x,y\n"
        );
    }
}
