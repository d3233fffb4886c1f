//! Label selectors over catalogs.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::LabelSelector;
use olm_api::names::label;
use olm_version::quoted;
use serde::Deserialize;

/// A selector of catalogs. An empty one selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels that must have these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all must hold.
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    pub values: Vec<String>,
}

impl From<&LabelSelector> for Selector {
    fn from(selector: &LabelSelector) -> Self {
        let expressions = selector.match_expressions.iter().flatten();
        Self {
            match_labels: selector.match_labels.clone().unwrap_or_default(),
            match_expressions: expressions
                .map(|one| SelectorRequirement {
                    key: one.key.clone(),
                    operator: one.operator.clone(),
                    values: one.values.clone().unwrap_or_default(),
                })
                .collect(),
        }
    }
}

/// The reason why a selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that does not exist.
    #[error("{} is not a valid label selector operator", quoted(.0))]
    Operator(String),
    /// `In` or `NotIn` without values.
    #[error("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    /// `Exists` or `DoesNotExist` with values.
    #[error("values: Invalid value: [{}]: values set must be empty for exists and does not exist", .0.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(","))]
    Values(Vec<String>),
    /// A key that no label can have.
    #[error("key: Invalid value: {}: {fault}", quoted(.key))]
    Key {
        /// The key.
        key: String,
        /// The fault.
        fault: LabelFault,
    },
    /// A value that no label can have.
    #[error("values[{index}][{key}]: Invalid value: {}: {fault}", quoted(.value))]
    Value {
        /// The index, from 0.
        index: usize,
        /// The label.
        key: String,
        /// The value.
        value: String,
        /// The fault.
        fault: LabelFault,
    },
}

/// A fault of a label's key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelFault {
    /// A value has invalid characters.
    #[error(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )]
    Value,
    /// A value of more than 63 characters.
    #[error("must be no more than 63 characters")]
    LongValue,
    /// An empty name.
    #[error("name part must be non-empty")]
    EmptyName,
    /// A name of more than 63 characters.
    #[error("name part must be no more than 63 characters")]
    LongName,
    /// A name has invalid characters.
    #[error(
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )]
    Name,
    /// An empty prefix.
    #[error("prefix part must be non-empty")]
    EmptyPrefix,
    /// A prefix is not a DNS name.
    #[error(
        "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
         and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )]
    Prefix,
    /// More than one slash.
    #[error(
        "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
         'example.com/MyName')"
    )]
    Slashes,
}

fn is_word(text: &str, inner: &[u8]) -> bool {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    is_edge(text.bytes().next())
        && is_edge(text.bytes().next_back())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || inner.contains(&byte))
}

fn check_value(value: &str) -> Result<(), LabelFault> {
    if value.len() > 63 {
        Err(LabelFault::LongValue)
    } else if value.is_empty() || is_word(value, b"-_.") {
        Ok(())
    } else {
        Err(LabelFault::Value)
    }
}

fn check_key(key: &str) -> Result<(), LabelFault> {
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => return Err(LabelFault::Slashes),
        Some(("", _)) => return Err(LabelFault::EmptyPrefix),
        Some((prefix, name)) => {
            let is_part =
                |part: &str| is_word(part, b"-") && !part.bytes().any(|byte| byte.is_ascii_uppercase());
            if prefix.len() > 253 || !prefix.split('.').all(is_part) {
                return Err(LabelFault::Prefix);
            }
            name
        }
    };
    if name.is_empty() {
        Err(LabelFault::EmptyName)
    } else if name.len() > 63 {
        Err(LabelFault::LongName)
    } else if is_word(name, b"-_.") {
        Ok(())
    } else {
        Err(LabelFault::Name)
    }
}

fn check(key: &str, values: &[&String]) -> Result<(), SelectorError> {
    check_key(key).map_err(|fault| SelectorError::Key {
        key: key.to_owned(),
        fault,
    })?;
    for (index, value) in values.iter().enumerate() {
        check_value(value).map_err(|fault| SelectorError::Value {
            index,
            key: key.to_owned(),
            value: (*value).clone(),
            fault,
        })?;
    }
    Ok(())
}

impl Selector {
    /// A selector of catalogs by name.
    pub fn of_catalogs<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self {
            match_expressions: vec![SelectorRequirement {
                key: label::METADATA_NAME.to_owned(),
                operator: "In".to_owned(),
                values: names.into_iter().map(str::to_owned).collect(),
            }],
            ..Self::default()
        }
    }

    /// The catalogs that an extension admits: those that it selects, otherwise the catalog of the installed bundle and
    /// the default catalogs; `None` for all. `home` is `None` if nothing is installed, and empty if an earlier version
    /// of OLM did not record the catalog.
    pub fn admitted(
        given: Option<&LabelSelector>,
        home: Option<Option<&str>>,
        defaults: &[String],
    ) -> Option<Self> {
        let given = given.map(Self::from);
        if let Some(given) = given.filter(|given| *given != Self::default()) {
            return Some(given);
        }
        let mut names: BTreeSet<&str> = defaults.iter().map(String::as_str).collect();
        if let Some(home) = home {
            names.insert(home?);
        }
        (!names.is_empty()).then(|| Self::of_catalogs(names))
    }

    /// Checks the rules of label selectors.
    ///
    /// # Errors
    /// The first rule that the selector breaks.
    pub fn validate(&self) -> Result<(), SelectorError> {
        for (key, value) in &self.match_labels {
            check(key, &[value])?;
        }
        for requirement in &self.match_expressions {
            match requirement.operator.as_str() {
                "In" | "NotIn" if requirement.values.is_empty() => return Err(SelectorError::NoValues),
                "Exists" | "DoesNotExist" if !requirement.values.is_empty() => {
                    return Err(SelectorError::Values(requirement.values.clone()));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {
                    check(&requirement.key, &requirement.values.iter().collect::<Vec<_>>())?;
                }
                unknown => return Err(SelectorError::Operator(unknown.to_owned())),
            }
        }
        Ok(())
    }

    /// Whether a catalog with these labels is selected. A requirement with an unknown operator selects nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                match requirement.operator.as_str() {
                    "In" => value.is_some_and(|value| requirement.values.contains(value)),
                    "NotIn" => value.is_none_or(|value| !requirement.values.contains(value)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}
