//! The shape of the metadata of a bundle's `ClusterServiceVersion` in catalogs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The parts of the value by their kind.
const PARTS: [(Shape, &[&str]); 3] = [
    (
        Shape::Object,
        &[
            "annotations",
            "apiServiceDefinitions",
            "crdDescriptions",
            "labels",
            "provider",
        ],
    ),
    (
        Shape::List,
        &["installModes", "keywords", "links", "maintainers", "nativeAPIs"],
    ),
    (
        Shape::Text,
        &["description", "displayName", "maturity", "minKubeVersion"],
    ),
];

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    List,
    Text,
    Null,
    Scalar,
}

impl Shape {
    fn of(json: &str) -> Self {
        match json.trim_start().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::List,
            Some(b'"') => Self::Text,
            Some(b'n') => Self::Null,
            _ => Self::Scalar,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::List => "a list",
            Self::Text => "a string",
            Self::Null => "null",
            Self::Scalar => "a number or a truth value",
        }
    }
}

/// The fault of the value of a property `olm.csv.metadata`, which is JSON. Keys match without regard to letter case, as
/// in Go.
pub(super) fn fault(value: &str) -> Option<String> {
    let whole = Shape::of(value);
    if whole == Shape::Null {
        // Reported of properties of every type.
        return None;
    }
    if whole != Shape::Object {
        return Some(format!("is {}, must be {}", whole.name(), Shape::Object.name()));
    }
    let parts: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(value).ok()?;
    parts.into_iter().find_map(|(name, part)| {
        let is_listed = |names: &&[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(&name));
        let (wanted, _) = PARTS.iter().find(|(_, names)| is_listed(names))?;
        let found = Shape::of(part.get());
        (found != *wanted)
            .then(|| format!("has {name}, which is {}, must be {}", found.name(), wanted.name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_wrong_type_are_named() {
        for (value, expected) in [
            ("null", None),
            ("3", Some("is a number or a truth value, must be an object")),
            ("[]", Some("is a list, must be an object")),
            (
                r#"{"unknown":null,"keywords":["a"],"provider":{},"maturity":""}"#,
                None,
            ),
            (
                r#"{"annotations":null}"#,
                Some("has annotations, which is null, must be an object"),
            ),
            (
                r#"{"Keywords": true}"#,
                Some("has Keywords, which is a number or a truth value, must be a list"),
            ),
            (
                r#"{"displayName":["a"]}"#,
                Some("has displayName, which is a list, must be a string"),
            ),
        ] {
            assert_eq!(fault(value).as_deref(), expected, "{value}");
        }
    }
}
