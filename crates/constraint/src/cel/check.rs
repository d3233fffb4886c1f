//! The type of an expression, or the place of a type error.

use super::ast::{Kind, Macro, Node, type_name};
use super::calls;
use super::types::Type;
use super::value::Value;
use super::{PositionedError, Variable};

/// The type of a whole expression over one variable.
pub(super) fn check(root: &Node, variable: Variable) -> Result<Type, PositionedError> {
    Checker {
        variable,
        variables: Vec::new(),
    }
    .type_of(root)
}

struct Checker<'a> {
    /// The variable of the rule.
    variable: Variable,
    /// The variables of the macros around, innermost last.
    variables: Vec<(&'a str, Type)>,
}

impl<'a> Checker<'a> {
    /// Calls itself no deeper than expressions are.
    fn type_of(&mut self, node: &'a Node) -> Result<Type, PositionedError> {
        let wrong = |text: String| PositionedError::new(node.at, text);
        match &node.kind {
            Kind::Literal(value) => Ok(literal(value)),
            Kind::Name(name) => self.name(name, node),
            Kind::Select { operand, field } => {
                if type_name(node).is_some() {
                    return Ok(Type::Kind);
                }
                let operand = self.type_of(operand)?;
                field_of(&operand, field).map_err(wrong)
            }
            Kind::Has { operand, field } => {
                let operand = self.type_of(operand)?;
                field_of(&operand, field).map_err(wrong)?;
                Ok(Type::Bool)
            }
            Kind::Call {
                name,
                is_member,
                arguments,
            } => {
                let types = self.types_of(arguments)?;
                let dynamic = |type_| if type_ == Type::Any { Type::Dyn } else { type_ };
                let types: Vec<Type> = types.into_iter().map(dynamic).collect();
                calls::result(name, *is_member, &types).map_err(wrong)
            }
            Kind::List(elements) => {
                let types = self.types_of(elements)?;
                Ok(Type::list(common(types)))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for (key, value) in entries {
                    keys.push(self.type_of(key)?);
                    values.push(self.type_of(value)?);
                }
                Ok(Type::map(common(keys), common(values)))
            }
            Kind::Chain { terms, .. } => {
                for term in terms {
                    self.boolean(term)?;
                }
                Ok(Type::Bool)
            }
            Kind::Choose { condition, yes, no } => {
                self.boolean(condition)?;
                let (yes, no) = (self.type_of(yes)?, self.type_of(no)?);
                yes.join(&no).ok_or_else(|| {
                    wrong(format!(
                        "found no matching overload for '_?_:_' applied to '(bool, {}, {})'",
                        yes.name(),
                        no.name()
                    ))
                })
            }
            Kind::Fold {
                fold,
                range,
                variable,
                filter,
                body,
            } => self.fold(*fold, range, variable, filter.as_deref(), body),
        }
    }

    fn fold(
        &mut self,
        fold: Macro,
        range: &'a Node,
        variable: &'a str,
        filter: Option<&'a Node>,
        body: &'a Node,
    ) -> Result<Type, PositionedError> {
        let range_type = self.type_of(range)?;
        let element = match &range_type {
            Type::List(element) => (**element).clone(),
            Type::Map(key, _) => (**key).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let text = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.name()
                );
                return Err(PositionedError::new(range.at, text));
            }
        };
        self.variables.push((variable, element.clone()));
        if let Some(filter) = filter {
            self.boolean(filter)?;
        }
        let result = if fold == Macro::Map {
            Type::list(self.type_of(body)?)
        } else {
            self.boolean(body)?;
            if fold == Macro::Filter {
                Type::list(element)
            } else {
                Type::Bool
            }
        };
        self.variables.pop();
        Ok(result)
    }

    fn types_of(&mut self, nodes: &'a [Node]) -> Result<Vec<Type>, PositionedError> {
        nodes.iter().map(|node| self.type_of(node)).collect()
    }

    fn boolean(&mut self, node: &'a Node) -> Result<(), PositionedError> {
        match self.type_of(node)? {
            Type::Bool | Type::Dyn | Type::Any => Ok(()),
            other => Err(PositionedError::new(
                node.at,
                format!("expected type 'bool' but found '{}'", other.name()),
            )),
        }
    }

    fn name(&self, name: &str, node: &Node) -> Result<Type, PositionedError> {
        let known = self.variables.iter().rev().find(|(known, _)| *known == name);
        match known {
            Some((_, type_)) => Ok(type_.clone()),
            None if name == self.variable.name() => Ok(self.variable.type_of()),
            None if type_name(node).is_some() => Ok(Type::Kind),
            None => Err(PositionedError::new(
                node.at,
                format!("undeclared reference to '{name}' (in container '')"),
            )),
        }
    }
}

fn literal(value: &Value) -> Type {
    match value {
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(_) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        Value::Null => Type::Null,
        // No literal has another type.
        _ => Type::Dyn,
    }
}

fn field_of(operand: &Type, field: &str) -> Result<Type, String> {
    match operand {
        Type::Dyn | Type::Any => Ok(Type::Dyn),
        Type::Map(_, value) => Ok((**value).clone()),
        Type::Timestamp | Type::Duration => Err(format!("undefined field '{field}'")),
        other => Err(format!(
            "type '{}' does not support field selection",
            other.name()
        )),
    }
}

/// The type of all elements; without elements, or when they differ, it is known only when evaluated.
fn common(types: Vec<Type>) -> Type {
    let mut types = types.into_iter();
    let Some(first) = types.next() else {
        return Type::Dyn;
    };
    types
        .try_fold(first, |common, next| common.join(&next))
        .unwrap_or(Type::Dyn)
}
