//! Attestations: signed statements about an image beside its signature, such as provenance.

use olm_constraint::cel::{Budget, EvalError, Program, Value, Variable};
use serde_json::value::RawValue;

use crate::error::SignatureError;

/// The most bytes of an attestation. Bills of materials are large.
pub const ATTESTATION_BYTES: usize = 8 << 20;
/// The most bytes of a predicate with a condition: evaluated, it takes many times as much memory.
const CONDITION_BYTES: usize = 1 << 20;
/// The most characters of a condition in a message.
const SHOWN: usize = 100;

/// The statement that a requirement asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    predicate_type: String,
    condition: Option<Condition>,
}

/// A condition on the predicate, in CEL.
#[derive(Clone, Debug)]
struct Condition {
    text: String,
    program: Program,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

impl Attestation {
    /// A statement with a predicate of this type, whose `predicate` satisfies the condition if there is one.
    ///
    /// # Errors
    /// The type is empty, or the condition is no CEL expression over `predicate` that returns a boolean.
    pub fn new(predicate_type: &str, condition: Option<&str>) -> Result<Self, String> {
        if predicate_type.is_empty() {
            return Err("the type of the predicate is empty".to_owned());
        }
        let condition = condition.map(|text| {
            let program = Program::over(Variable::Predicate, text)
                .map_err(|error| format!("{:?} is not a condition: {error}", shown(text)))?;
            Ok::<_, String>(Condition {
                text: text.to_owned(),
                program,
            })
        });
        Ok(Self {
            predicate_type: predicate_type.to_owned(),
            condition: condition.transpose()?,
        })
    }

    /// The type of the predicate.
    pub fn predicate_type(&self) -> &str {
        &self.predicate_type
    }

    /// Checks a verified statement.
    pub(crate) fn check(
        &self,
        predicate_type: &str,
        predicate: Option<&RawValue>,
    ) -> Result<(), SignatureError> {
        if predicate_type != self.predicate_type {
            return Err(SignatureError::Predicate(format!(
                "its type is {predicate_type:?}, not {:?}",
                self.predicate_type
            )));
        }
        let Some(Condition { text, program }) = &self.condition else {
            return Ok(());
        };
        let predicate = predicate.map_or("null", RawValue::get);
        if predicate.len() > CONDITION_BYTES {
            return Err(SignatureError::Predicate(format!(
                "its predicate has more than {CONDITION_BYTES} bytes, too many for a condition"
            )));
        }
        let predicate = Value::from_json(predicate)
            .map_err(|error| SignatureError::Form(format!("the predicate cannot be read: {error}")))?;
        let shown = shown(text);
        match program.evaluate(&predicate, &mut Budget::default()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SignatureError::Predicate(format!(
                "it does not satisfy the condition {shown:?}"
            ))),
            Err(error @ (EvalError::Failed(_) | EvalError::Exhausted)) => Err(SignatureError::Predicate(
                format!("the condition {shown:?} cannot be evaluated: {error}"),
            )),
        }
    }
}

/// The beginning of a condition, for messages.
fn shown(condition: &str) -> String {
    let mut shown: String = condition.chars().take(SHOWN).collect();
    if shown.len() < condition.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROVENANCE: &str = "https://slsa.dev/provenance/v1";

    fn check(condition: Option<&str>, predicate_type: &str, predicate: &str) -> Result<(), String> {
        let attestation = Attestation::new(PROVENANCE, condition).unwrap();
        let predicate: Box<RawValue> = serde_json::from_str(predicate).unwrap();
        let found = attestation.check(predicate_type, Some(&predicate));
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn a_condition_decides_about_the_predicate() {
        let by_builder = Some("predicate.runDetails.builder.id == 'https://ci.example'");
        let ours = r#"{"runDetails": {"builder": {"id": "https://ci.example"}}}"#;
        let strange = r#"{"runDetails": {"builder": {"id": "https://other.example"}}}"#;
        check(by_builder, PROVENANCE, ours).unwrap();
        check(None, PROVENANCE, strange).unwrap();
        let error = check(by_builder, PROVENANCE, strange).unwrap_err();
        assert!(error.contains("does not satisfy the condition"), "{error}");
        let error = check(by_builder, PROVENANCE, "{}").unwrap_err();
        assert!(
            error.contains("cannot be evaluated: no such key: runDetails"),
            "{error}"
        );
        let error = check(None, "https://spdx.dev/Document", ours).unwrap_err();
        assert!(
            error.contains("its type is \"https://spdx.dev/Document\""),
            "{error}"
        );
    }

    #[test]
    fn findings_of_a_scan_are_counted() {
        let none_critical = Some("!predicate.scanner.result.exists(finding, finding.severity == 'CRITICAL')");
        let scan = |severity: &str| {
            format!(r#"{{"scanner": {{"result": [{{"severity": "LOW"}}, {{"severity": "{severity}"}}]}}}}"#)
        };
        check(none_critical, PROVENANCE, &scan("HIGH")).unwrap();
        check(none_critical, PROVENANCE, &scan("CRITICAL")).unwrap_err();
    }

    #[test]
    fn a_condition_that_is_no_boolean_or_takes_too_long_counts_as_not_satisfied() {
        let error = check(Some("predicate.a"), PROVENANCE, r#"{"a": 1}"#).unwrap_err();
        assert!(error.contains("cannot be evaluated"), "{error}");
        let long = format!("{:?}", "x".repeat(CONDITION_BYTES));
        let error = check(Some("predicate != ''"), PROVENANCE, &long).unwrap_err();
        assert!(error.contains("too many for a condition"), "{error}");
        let list = format!("[{}]", vec!["1"; 2_000].join(","));
        let slow = Some("predicate.all(a, predicate.all(b, predicate.all(c, c == 1.0)))");
        let error = check(slow, PROVENANCE, &list).unwrap_err();
        assert!(error.contains("takes too many steps"), "{error}");
    }

    #[test]
    fn a_condition_must_be_an_expression_over_the_predicate() {
        for (wrong, said) in [
            ("", "is not a condition"),
            ("predicate ==", "Syntax error"),
            ("'text'", "must have type Bool"),
            ("properties.size() == 0", "undeclared reference to 'properties'"),
            ("other == 1", "undeclared reference to 'other'"),
        ] {
            let error = Attestation::new(PROVENANCE, Some(wrong)).unwrap_err();
            assert!(error.contains(said), "{wrong:?}: {error}");
        }
        let error = Attestation::new("", None).unwrap_err();
        assert_eq!(error, "the type of the predicate is empty");
    }
}
