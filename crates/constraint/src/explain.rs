//! The explanation of an unmet requirement.

use crate::present::{Present, Undecided};
use crate::requirement::{Clause, Requirement, SimpleRequirement, Term, api_text};

/// The number of parts of a compound that are named; the others are only counted.
const SHOWN: usize = 4;

/// The reason why a requirement is not met.
#[derive(Clone, Debug, Default)]
pub struct Explanation<'r> {
    /// The missing or conflicting bundles and APIs, with the author's messages; one line.
    pub text: String,
    /// The missing bundles and APIs that would meet it.
    pub wanted: Vec<&'r SimpleRequirement>,
}

impl Requirement {
    /// The reason why it is not met; `None` if it is.
    pub fn explain(&self, present: &Present<'_>) -> Option<Explanation<'_>> {
        match explain(&self.rule, present) {
            Ok(explanation) => explanation,
            Err(undecided) => Some(Explanation {
                text: undecided.to_string(),
                wanted: Vec::new(),
            }),
        }
    }
}

/// Explains a clause. The recursion is as deep as the constraint, whose depth the parser limits.
fn explain<'r>(rule: &'r Clause, present: &Present<'_>) -> Result<Option<Explanation<'r>>, Undecided> {
    if present.holds(rule)? {
        return Ok(None);
    }
    let explanation = match &rule.term {
        Term::Simple(wanted) => Explanation {
            text: missing(wanted, present),
            wanted: vec![wanted],
        },
        Term::All(rules) => compound("all of", rules, present)?,
        Term::Any(rules) => compound("one of", rules, present)?,
        Term::Not(rules) => {
            let mut found = Vec::new();
            for rule in rules {
                if present.holds(rule)? {
                    found.push(in_the_way(rule, present)?);
                }
            }
            Explanation {
                text: listed(&found, "; "),
                wanted: Vec::new(),
            }
        }
    };
    Ok(Some(Explanation {
        text: with_message(&rule.message, &explanation.text),
        wanted: explanation.wanted,
    }))
}

fn with_message(message: &str, text: &str) -> String {
    if message.is_empty() {
        text.to_owned()
    } else {
        format!("{message}: {text}")
    }
}

fn listed(parts: &[String], separator: &str) -> String {
    let shown = parts
        .get(..SHOWN.min(parts.len()))
        .unwrap_or_default()
        .join(separator);
    match parts.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}{separator}{more} more"),
    }
}

fn compound<'r>(
    what: &str,
    rules: &'r [Clause],
    present: &Present<'_>,
) -> Result<Explanation<'r>, Undecided> {
    let (mut texts, mut wanted) = (Vec::new(), Vec::new());
    for rule in rules {
        if let Some(part) = explain(rule, present)? {
            texts.push(part.text);
            wanted.extend(part.wanted);
        }
    }
    let text = match texts.as_slice() {
        [only] => only.clone(),
        several => format!("{what} ({})", listed(several, "; ")),
    };
    Ok(Explanation { text, wanted })
}

fn missing(wanted: &SimpleRequirement, present: &Present<'_>) -> String {
    let found = match wanted {
        SimpleRequirement::Package { name, .. } => {
            let versions: Vec<String> = present
                .of_package(name)
                .map(|subject| match &subject.version {
                    Some(version) => format!("{version} by {}", subject.name),
                    None => format!("an unreadable version by {}", subject.name),
                })
                .collect();
            if versions.is_empty() {
                "is not installed".to_owned()
            } else {
                format!("is not installed, but {}", listed(&versions, ", "))
            }
        }
        SimpleRequirement::Api(_) => "is not provided".to_owned(),
        SimpleRequirement::Cel { .. } => "is not installed".to_owned(),
    };
    format!("{wanted} {found}")
}

/// The providers that make a negated rule hold. The recursion is as deep as the constraint.
fn in_the_way(rule: &Clause, present: &Present<'_>) -> Result<String, Undecided> {
    let text = match &rule.term {
        Term::Simple(wanted) => {
            let by = match (present.provider(wanted)?, wanted) {
                (Some(subject), _) => format!("{} {}", subject.package, subject.name),
                (None, SimpleRequirement::Api(api)) => format!("the cluster, which serves {}", api_text(api)),
                (None, _) => String::new(),
            };
            format!("{wanted} must not be there, and is provided by {}", by.trim())
        }
        Term::All(rules) | Term::Any(rules) => {
            let mut texts = Vec::new();
            for rule in rules {
                if present.holds(rule)? {
                    texts.push(in_the_way(rule, present)?);
                }
            }
            listed(&texts, "; ")
        }
        Term::Not(_) => "what must be missing is missing".to_owned(),
    };
    Ok(with_message(&rule.message, &text))
}
