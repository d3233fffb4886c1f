//! Parses tokens into an expression, and expands macros.

use super::PositionedError;
use super::ast::{Kind, Logic, Macro, Node};
use super::lex::{Token, tokens};
use super::value::Value;

/// The deepest nesting of brackets, calls and conditions.
const MAX_NESTING: u16 = 100;

/// Words that are not names.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Node, PositionedError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        nesting: 0,
    };
    let root = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected()),
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    nesting: u16,
}

/// The precedence of a binary operator, and its function name.
fn binary(token: &Token) -> Option<(u8, &'static str)> {
    Some(match token {
        Token::Sign("<") => (1, "_<_"),
        Token::Sign("<=") => (1, "_<=_"),
        Token::Sign(">") => (1, "_>_"),
        Token::Sign(">=") => (1, "_>=_"),
        Token::Sign("==") => (1, "_==_"),
        Token::Sign("!=") => (1, "_!=_"),
        Token::Name(word) if word == "in" => (1, "@in"),
        Token::Sign("+") => (2, "_+_"),
        Token::Sign("-") => (2, "_-_"),
        Token::Sign("*") => (3, "_*_"),
        Token::Sign("/") => (3, "_/_"),
        Token::Sign("%") => (3, "_%_"),
        _ => return None,
    })
}

fn call(name: &str, arguments: Vec<Node>, at: usize) -> Result<Node, PositionedError> {
    let kind = Kind::Call {
        name: name.to_owned(),
        is_member: false,
        arguments,
    };
    Node::new(kind, at)
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(token, _)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(0, |(_, at)| *at)
    }

    fn take(&mut self) -> Token {
        let token = self.tokens.get_mut(self.next);
        let token = token.map_or(Token::End, |(token, _)| std::mem::replace(token, Token::End));
        self.next += 1;
        token
    }

    fn unexpected(&self) -> PositionedError {
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            Token::Sign(sign) => format!("'{sign}'"),
            Token::Name(name) => format!("'{name}'"),
            _ => "a literal".to_owned(),
        };
        PositionedError::new(self.at(), format!("Syntax error: {found} is not expected here"))
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let is_there = *self.peek() == Token::Sign(sign);
        self.next += usize::from(is_there);
        is_there
    }

    fn require(&mut self, sign: &'static str) -> Result<(), PositionedError> {
        if self.takes(sign) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn expression(&mut self) -> Result<Node, PositionedError> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(PositionedError::new(
                self.at(),
                "the expression is nested too deep",
            ));
        }
        let at = self.at();
        let condition = self.either()?;
        let node = if self.takes("?") {
            let yes = Box::new(self.either()?);
            self.require(":")?;
            let no = Box::new(self.expression()?);
            let condition = Box::new(condition);
            Node::new(Kind::Choose { condition, yes, no }, at)?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(node)
    }

    fn either(&mut self) -> Result<Node, PositionedError> {
        let at = self.at();
        let mut terms = vec![self.both()?];
        while self.takes("||") {
            terms.push(self.both()?);
        }
        chain(Logic::Or, terms, at)
    }

    fn both(&mut self) -> Result<Node, PositionedError> {
        let at = self.at();
        let mut terms = vec![self.operators(1)?];
        while self.takes("&&") {
            terms.push(self.operators(1)?);
        }
        chain(Logic::And, terms, at)
    }

    /// Operators with at least this precedence; they are left-associative. The recursion is at most three levels deep.
    fn operators(&mut self, least: u8) -> Result<Node, PositionedError> {
        if least > 3 {
            return self.unary();
        }
        let mut left = self.operators(least + 1)?;
        while let Some((_, name)) = binary(self.peek()).filter(|(strength, _)| *strength == least) {
            let at = self.at();
            self.next += 1;
            let right = self.operators(least + 1)?;
            left = call(name, vec![left, right], at)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, PositionedError> {
        let at = self.at();
        let mut count = 0_usize;
        while self.takes("!") {
            count += 1;
        }
        if count > 0 {
            let operand = self.member()?;
            return negated(operand, "!_", count, at);
        }
        while self.takes("-") {
            count += 1;
        }
        if count == 0 {
            return self.member();
        }
        // A sign before a number is part of it.
        let literal = match self.peek() {
            Token::Int(magnitude) if *magnitude == i64::MIN.unsigned_abs() => Some(Value::Int(i64::MIN)),
            Token::Int(magnitude) => i64::try_from(*magnitude).ok().map(|number| Value::Int(-number)),
            Token::Double(number) => Some(Value::Double(-number)),
            _ => None,
        };
        let Some(literal) = literal else {
            let operand = self.member()?;
            return negated(operand, "-_", count, at);
        };
        self.next += 1;
        let operand = Node::new(Kind::Literal(literal), at)?;
        let operand = self.suffixes(operand)?;
        negated(operand, "-_", count - 1, at)
    }

    fn member(&mut self) -> Result<Node, PositionedError> {
        let operand = self.primary()?;
        self.suffixes(operand)
    }

    fn suffixes(&mut self, mut operand: Node) -> Result<Node, PositionedError> {
        loop {
            let at = self.at();
            if self.takes("[") {
                let index = self.expression()?;
                self.require("]")?;
                operand = call("_[_]", vec![operand, index], at)?;
            } else if self.takes(".") {
                let Token::Name(field) = self.peek().clone() else {
                    return Err(self.unexpected());
                };
                if is_word(&field) {
                    return Err(self.unexpected());
                }
                self.next += 1;
                operand = if self.takes("(") {
                    let arguments = self.list(")")?;
                    member_call(operand, field, arguments, at)?
                } else {
                    let (operand, field) = (Box::new(operand), field.into());
                    Node::new(Kind::Select { operand, field }, at)?
                };
            } else {
                return Ok(operand);
            }
        }
    }

    /// Expressions up to and including a closing bracket.
    fn list(&mut self, closing: &'static str) -> Result<Vec<Node>, PositionedError> {
        let mut elements = Vec::new();
        while !self.takes(closing) {
            elements.push(self.expression()?);
            if !self.takes(",") {
                self.require(closing)?;
                return Ok(elements);
            }
            if closing == ")" && *self.peek() == Token::Sign(")") {
                return Err(self.unexpected());
            }
        }
        Ok(elements)
    }

    fn primary(&mut self) -> Result<Node, PositionedError> {
        let at = self.at();
        if self.takes("(") {
            let inner = self.expression()?;
            self.require(")")?;
            return Ok(inner);
        }
        if self.takes("[") {
            return Node::new(Kind::List(self.list("]")?), at);
        }
        if self.takes("{") {
            return self.map(at);
        }
        // A leading dot selects the root scope, which is the only one.
        let is_root = self.takes(".");
        if is_root && !matches!(self.peek(), Token::Name(_)) {
            return Err(self.unexpected());
        }
        if *self.peek() == Token::End || matches!(self.peek(), Token::Sign(_)) {
            return Err(self.unexpected());
        }
        let literal = match self.take() {
            Token::Name(name) => return self.name(name, at),
            Token::Int(number) => Value::Int(
                i64::try_from(number).map_err(|_| PositionedError::new(at, "invalid int literal"))?,
            ),
            Token::Uint(number) => Value::Uint(number),
            Token::Double(number) => Value::Double(number),
            Token::Text(text) => Value::String(text.into()),
            Token::Bytes(bytes) => Value::Bytes(bytes.into()),
            Token::Sign(_) | Token::End => Value::Null,
        };
        Node::new(Kind::Literal(literal), at)
    }

    fn name(&mut self, name: String, at: usize) -> Result<Node, PositionedError> {
        let literal = match name.as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            "in" => {
                return Err(PositionedError::new(
                    at,
                    "Syntax error: 'in' is not expected here",
                ));
            }
            word if RESERVED.contains(&word) => {
                return Err(PositionedError::new(at, format!("reserved identifier: {word}")));
            }
            _ => None,
        };
        if let Some(literal) = literal {
            return Node::new(Kind::Literal(literal), at);
        }
        if *self.peek() == Token::Sign("{") {
            return Err(PositionedError::new(
                at,
                format!("undeclared reference to '{name}' (in container '')"),
            ));
        }
        if !self.takes("(") {
            return Node::new(Kind::Name(name), at);
        }
        let mut arguments = self.list(")")?;
        if name == "has" && arguments.len() == 1 {
            return match arguments.pop().map(|argument| argument.kind) {
                Some(Kind::Select { operand, field }) => Node::new(Kind::Has { operand, field }, at),
                _ => Err(PositionedError::new(at, "invalid argument to has() macro")),
            };
        }
        call(&name, arguments, at)
    }

    fn map(&mut self, at: usize) -> Result<Node, PositionedError> {
        let mut entries = Vec::new();
        while !self.takes("}") {
            let key = self.expression()?;
            self.require(":")?;
            entries.push((key, self.expression()?));
            if !self.takes(",") {
                self.require("}")?;
                break;
            }
        }
        Node::new(Kind::Map(entries), at)
    }
}

/// Words that are tokens of their own and no fields.
fn is_word(name: &str) -> bool {
    matches!(name, "true" | "false" | "null" | "in")
}

fn chain(logic: Logic, mut terms: Vec<Node>, at: usize) -> Result<Node, PositionedError> {
    if terms.len() == 1
        && let Some(only) = terms.pop()
    {
        return Ok(only);
    }
    Node::new(Kind::Chain { logic, terms }, at)
}

/// Two signs of the same kind cancel out.
fn negated(operand: Node, sign: &str, count: usize, at: usize) -> Result<Node, PositionedError> {
    if count.is_multiple_of(2) {
        Ok(operand)
    } else {
        call(sign, vec![operand], at)
    }
}

/// A call on a receiver, or the macro with this name.
fn member_call(
    receiver: Node,
    name: String,
    mut arguments: Vec<Node>,
    at: usize,
) -> Result<Node, PositionedError> {
    let fold = match (name.as_str(), arguments.len()) {
        ("all", 2) => Some(Macro::All),
        ("exists", 2) => Some(Macro::Exists),
        ("exists_one" | "existsOne", 2) => Some(Macro::ExistsOne),
        ("filter", 2) => Some(Macro::Filter),
        ("map", 2 | 3) => Some(Macro::Map),
        _ => None,
    };
    let Some(fold) = fold else {
        arguments.insert(0, receiver);
        let kind = Kind::Call {
            name,
            is_member: true,
            arguments,
        };
        return Node::new(kind, at);
    };
    let mut arguments = arguments.into_iter();
    let Some(Kind::Name(variable)) = arguments.next().map(|argument| argument.kind) else {
        return Err(PositionedError::new(at, "argument must be a simple name"));
    };
    let (second, third) = (arguments.next().map(Box::new), arguments.next().map(Box::new));
    let (filter, body) = match (second, third) {
        (filter, Some(body)) => (filter, body),
        (Some(body), None) => (None, body),
        (None, None) => return Err(PositionedError::new(at, "the macro lacks an argument")),
    };
    let range = Box::new(receiver);
    let kind = Kind::Fold {
        fold,
        range,
        variable,
        filter,
        body,
    };
    Node::new(kind, at)
}
