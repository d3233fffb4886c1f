//! Definitions of kinds, and their columns in `kubectl get`.

use serde_json::{Map, Value, json};

use super::schema::Schema;

/// A column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The head.
    pub name: &'static str,
    /// The type of its values.
    pub kind: &'static str,
    /// The place of its value, as a JSONPath.
    pub path: &'static str,
}

/// The columns of a kind in `kubectl get`. Without any, kubectl shows the age.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// The default columns: those of the reference implementation, in its order, and the state of the object.
    pub always: &'a [Column],
    /// The columns with `-o wide`, after the others.
    pub wide: &'a [Column],
}

/// Whether objects have a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// No namespace.
    Cluster,
    /// A namespace.
    Namespaced,
}

impl Scope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
        }
    }
}

/// A kind.
#[derive(Debug, Clone, Copy)]
pub struct Kind<'a> {
    /// The API group.
    pub group: &'a str,
    /// The name, in CamelCase.
    pub kind: &'a str,
    /// The short names that users may write instead of the plural.
    pub short_names: &'a [&'a str],
    /// Whether objects have a namespace.
    pub scope: Scope,
    /// Annotations of the definition.
    pub annotations: &'a [(&'a str, &'a str)],
}

/// A version of a kind. All are served.
#[derive(Debug, Clone)]
pub struct Version<'a> {
    /// The name.
    pub name: &'a str,
    /// Whether objects are stored in this version.
    pub storage: bool,
    /// The columns in `kubectl get`.
    pub columns: &'a Columns<'a>,
    /// The schema.
    pub root: Schema,
}

impl Columns<'_> {
    /// The age alone.
    pub const NONE: Self = Self {
        always: &[],
        wide: &[],
    };
}

impl Kind<'_> {
    /// The lower-case name of several objects.
    pub fn plural(&self) -> String {
        let singular = self.kind.to_ascii_lowercase();
        match singular.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{singular}s"),
        }
    }

    /// The CustomResourceDefinition. Each version has a status subresource.
    pub fn definition<'a>(&self, versions: impl IntoIterator<Item = Version<'a>>) -> Value {
        let plural = self.plural();
        let annotations = self.annotations.iter();
        let annotations: Map<String, Value> = annotations
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let annotations = (!annotations.is_empty()).then_some(json!(annotations));
        let short_names = (!self.short_names.is_empty()).then_some(json!(self.short_names));
        let versions: Vec<Value> = versions.into_iter().map(Version::into_value).collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": present([
                ("name", Some(json!(format!("{plural}.{}", self.group)))),
                ("annotations", annotations),
            ]),
            "spec": {
                "group": self.group,
                "names": present([
                    ("kind", Some(json!(self.kind))),
                    ("listKind", Some(json!(format!("{}List", self.kind)))),
                    ("plural", Some(json!(plural))),
                    ("singular", Some(json!(self.kind.to_ascii_lowercase()))),
                    ("shortNames", short_names),
                    ("categories", Some(json!(["olm"]))),
                ]),
                "scope": self.scope.as_str(),
                "versions": versions,
            },
        })
    }
}

impl Version<'_> {
    fn into_value(self) -> Value {
        let always = self.columns.always.iter().map(|column| (column, None));
        let wide = self.columns.wide.iter().map(|column| (column, Some(json!(1))));
        let columns: Vec<Value> = always
            .chain(wide)
            .map(|(column, priority)| {
                present([
                    ("jsonPath", Some(json!(column.path))),
                    ("name", Some(json!(column.name))),
                    ("type", Some(json!(column.kind))),
                    ("priority", priority),
                ])
            })
            .collect();
        present([
            ("name", Some(json!(self.name))),
            ("served", Some(json!(true))),
            ("storage", Some(json!(self.storage))),
            (
                "additionalPrinterColumns",
                (!columns.is_empty()).then_some(json!(columns)),
            ),
            ("schema", Some(json!({"openAPIV3Schema": self.root.into_value()}))),
            ("subresources", Some(json!({"status": {}}))),
        ])
    }
}

/// An object of those members that are there.
fn present<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let there = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect())
}
