//! CEL, the expression language of constraints: read, check, evaluate, all of it bounded.
//!
//! Rules come from untrusted catalogs. Published interpreters overflow the stack on a long chain of
//! operators, know no types and no budget; here the depth of an expression is bounded when it is read, every rule is
//! typed before it is kept, and every step of an evaluation is paid for from a [`Budget`].
//!
//! The language is that of cel-go with its standard library: one variable, `properties`, a list of maps with the keys
//! `type` and `value`, and one more function, `semver_compare(a, b)`. Left out are protocol buffer messages and named
//! time zones.

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

/// The longest rule that is read, in bytes; the whole of a constraint may not be longer.
pub const MAX_RULE: usize = 64 << 10;

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is too long.
    #[error("the expression is longer than {MAX_RULE} bytes")]
    TooLong,
    /// It is no expression, or its types do not fit.
    #[error("ERROR: <input>:{line}:{column}: {problem}")]
    At {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong there.
        problem: String,
    },
    /// It does not yield a boolean.
    #[error("cel expressions must have type Bool")]
    NotBool,
}

/// What is wrong with a rule, and at which byte.
#[derive(Clone, Debug)]
struct Problem {
    at: usize,
    text: String,
}

impl Problem {
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

/// A rule that can be evaluated: it yields a boolean. Copies share it.
#[derive(Clone)]
pub struct Program {
    root: Arc<ast::Node>,
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Program").finish_non_exhaustive()
    }
}

impl Program {
    /// Reads and checks a rule.
    ///
    /// # Errors
    /// When it is no expression, its types do not fit, or it does not yield a boolean.
    pub fn compile(rule: &str) -> Result<Self, CompileError> {
        if rule.len() > MAX_RULE {
            return Err(CompileError::TooLong);
        }
        let root = parse::parse(rule).map_err(|problem| problem.locate(rule))?;
        match check(&root).map_err(|problem| problem.locate(rule))? {
            Type::Bool => Ok(Self { root: Arc::new(root) }),
            _ => Err(CompileError::NotBool),
        }
    }

    /// Whether the rule holds for these properties (as [`Value::properties`] makes them).
    ///
    /// # Errors
    /// When the evaluation comes upon an error that does not cancel out, or uses the budget up.
    pub fn evaluate(&self, properties: &Value, budget: &mut Budget) -> Result<bool, EvalError> {
        eval::evaluate(&self.root, properties, budget)
    }
}
