//! CEL, the expression language of constraints: bounded parsing, type checks and evaluation.
//!
//! Rules come from untrusted catalogs. Published interpreters overflow the stack on a long chain of operators, and have
//! no types and no budget. Here the parser limits the depth of an expression, every rule is type-checked before it is
//! stored, and every step of an evaluation is charged to a [`Budget`].
//!
//! The language is that of cel-go with its standard library, one [`Variable`], and one more function,
//! `semver_compare(a, b)`. It has no protocol buffer messages and no named time zones.

mod ast;
mod calls;
mod check;
mod eval;
mod lex;
mod parse;
mod time;
mod types;
mod value;

use std::fmt;
use std::sync::Arc;

use check::check;
use types::Type;

pub use eval::{Budget, EvalError};
pub use value::Value;

/// The longest accepted rule, in bytes; a whole constraint may not be longer.
pub const MAX_RULE: usize = 64 << 10;

/// The reason why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The rule is too long.
    #[error("the expression is longer than {MAX_RULE} bytes")]
    TooLong,
    /// The rule is not an expression, or its types do not match.
    #[error("ERROR: <input>:{line}:{column}: {problem}")]
    At {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The fault at this place.
        problem: String,
    },
    /// The rule does not return a boolean.
    #[error("cel expressions must have type Bool")]
    NotBool,
}

/// An error in a rule, and its byte offset.
#[derive(Clone, Debug)]
struct PositionedError {
    at: usize,
    text: String,
}

impl PositionedError {
    fn new(at: usize, text: impl Into<String>) -> Self {
        Self {
            at,
            text: text.into(),
        }
    }

    fn locate(self, rule: &str) -> CompileError {
        let before = rule.get(..self.at).unwrap_or(rule);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        CompileError::At {
            line,
            column,
            problem: self.text,
        }
    }
}

/// The variable of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `properties`: a list of maps with the keys `type` and `value` ([`Value::properties`]).
    Properties,
    /// `predicate`: the predicate of an attestation, a JSON value ([`Value::from_json`]).
    Predicate,
}

impl Variable {
    const fn name(self) -> &'static str {
        match self {
            Self::Properties => "properties",
            Self::Predicate => "predicate",
        }
    }

    fn type_of(self) -> Type {
        match self {
            Self::Properties => Type::properties(),
            Self::Predicate => Type::Dyn,
        }
    }
}

/// A rule that can be evaluated and returns a boolean. Copies share it.
#[derive(Clone)]
pub struct Program {
    root: Arc<ast::Node>,
    variable: Variable,
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Program").finish_non_exhaustive()
    }
}

impl Program {
    /// Parses and checks a rule over `properties`.
    ///
    /// # Errors
    /// When it is not an expression, its types do not match, or it does not return a boolean.
    pub fn compile(rule: &str) -> Result<Self, CompileError> {
        Self::over(Variable::Properties, rule)
    }

    /// Parses and checks a rule over a variable.
    ///
    /// # Errors
    /// When it is not an expression, its types do not match, or it does not return a boolean.
    pub fn over(variable: Variable, rule: &str) -> Result<Self, CompileError> {
        if rule.len() > MAX_RULE {
            return Err(CompileError::TooLong);
        }
        let root = parse::parse(rule).map_err(|problem| problem.locate(rule))?;
        let found = check(&root, variable).map_err(|problem| problem.locate(rule))?;
        match (found, variable) {
            // The type of a value out of JSON is known only at evaluation.
            (Type::Bool, _) | (Type::Dyn, Variable::Predicate) => Ok(Self {
                root: Arc::new(root),
                variable,
            }),
            _ => Err(CompileError::NotBool),
        }
    }

    /// Whether the rule holds for a value of its variable.
    ///
    /// # Errors
    /// When the evaluation fails and no other term decides the result, or when the budget is exhausted.
    pub fn evaluate(&self, value: &Value, budget: &mut Budget) -> Result<bool, EvalError> {
        eval::evaluate(&self.root, self.variable, value, budget)
    }
}
