//! The selectors of a list, as clients write them.

use std::collections::BTreeMap;

use olm_resolve::{Selector, SelectorRequirement};

/// A field selector that is not `metadata.name=NAME`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field label not supported: {0}")]
pub struct FieldSelectorError(String);

/// The name that a field selector asks for; nothing where it is empty.
///
/// # Errors
/// When it asks for something else.
pub fn name_of_field_selector(selector: &str) -> Result<Option<String>, FieldSelectorError> {
    let mut name = None;
    for term in selector.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let (field, is_equal, value) = if let Some((field, value)) = term.split_once("!=") {
            (field, false, value)
        } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (field, true, value)
        } else {
            (term, false, "")
        };
        if field != "metadata.name" || !is_equal {
            return Err(FieldSelectorError(field.to_owned()));
        }
        name = Some(value.to_owned());
    }
    Ok(name)
}

/// A label selector that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse requirement: {0:?}")]
pub struct LabelSelectorError(String);

/// Reads a label selector as clients write it: `a=b`, `a!=b`, `a`, `!a`, `a in (b, c)` and `a notin (b, c)`, separated by
/// commas.
///
/// # Errors
/// When a part has another form.
pub fn label_selector(text: &str) -> Result<Selector, LabelSelectorError> {
    let mut requirements = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    let mut parts = Vec::new();
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(text.get(start..index));
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        requirements.push(requirement(part).ok_or_else(|| LabelSelectorError(part.to_owned()))?);
    }
    Ok(Selector {
        match_labels: BTreeMap::new(),
        match_expressions: requirements,
    })
}

fn requirement(part: &str) -> Option<SelectorRequirement> {
    let one = |value: &str| vec![value.trim().to_owned()];
    let (key, operator, values) = if let Some(key) = part.strip_prefix('!') {
        (key, "DoesNotExist", Vec::new())
    } else if let Some((key, value)) = part.split_once("!=") {
        (key, "NotIn", one(value))
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, "In", one(value))
    } else if let Some((key, rest)) = part.split_once(char::is_whitespace) {
        let (operator, list) = rest.trim().split_once('(')?;
        let values = list.trim().strip_suffix(')')?.split(',');
        let values = values.map(|value| value.trim().to_owned()).collect();
        match operator.trim() {
            "in" => (key, "In", values),
            "notin" => (key, "NotIn", values),
            _ => return None,
        }
    } else {
        (part, "Exists", Vec::new())
    };
    let key = key.trim();
    let is_key = !key.is_empty()
        && key
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '/'));
    is_key.then(|| SelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_requirement_is_read() {
        let labels = [("a", "1"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        for (selector, expected) in [
            ("", true),
            ("a", true),
            ("!a", false),
            ("a=1,b==2", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1, 3),b notin (3)", true),
            ("a in (2)", false),
        ] {
            let read = label_selector(selector).unwrap();
            assert_eq!(read.matches(&labels), expected, "{selector}");
        }
        assert!(label_selector("a of (b)").is_err());
        assert!(label_selector("a in b").is_err());
    }

    #[test]
    fn only_the_name_is_a_field() {
        assert_eq!(
            name_of_field_selector("metadata.name=a"),
            Ok(Some("a".to_owned()))
        );
        assert_eq!(name_of_field_selector(""), Ok(None));
        for other in ["metadata.name!=a", "status.x=y"] {
            assert!(name_of_field_selector(other).is_err(), "{other}");
        }
    }
}
