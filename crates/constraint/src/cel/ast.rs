//! Expressions. Their depth is limited on construction, so that walking and dropping them is bounded, too.

use std::sync::Arc;

use super::PositionedError;
use super::value::Value;

/// The greatest depth of an expression.
const MAX_DEPTH: u16 = 250;

/// One expression.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// The byte it begins at.
    pub(super) at: usize,
    depth: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Logic {
    And,
    Or,
}

/// The macros over lists and maps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Clone)]
pub(super) enum Kind {
    Literal(Value),
    Name(String),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
    },
    /// `has(operand.field)`.
    Has {
        operand: Box<Node>,
        field: Arc<str>,
    },
    /// A function or an operator; the receiver of a member call is the first argument.
    Call {
        name: String,
        is_member: bool,
        arguments: Vec<Node>,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// A chain of `&&` or `||`; whatever its length, it adds one level of depth.
    Chain {
        logic: Logic,
        terms: Vec<Node>,
    },
    Choose {
        condition: Box<Node>,
        yes: Box<Node>,
        no: Box<Node>,
    },
    Fold {
        fold: Macro,
        range: Box<Node>,
        variable: String,
        /// Present only for `map` with three arguments.
        filter: Option<Box<Node>>,
        body: Box<Node>,
    },
}

impl Node {
    /// A node over nodes, unless it becomes too deep.
    pub(super) fn new(kind: Kind, at: usize) -> Result<Self, PositionedError> {
        let below = match &kind {
            Kind::Literal(_) | Kind::Name(_) => 0,
            Kind::Select { operand, .. } | Kind::Has { operand, .. } => operand.depth,
            Kind::Call { arguments: nodes, .. } | Kind::List(nodes) | Kind::Chain { terms: nodes, .. } => {
                deepest(nodes)
            }
            Kind::Map(entries) => entries
                .iter()
                .map(|(key, value)| key.depth.max(value.depth))
                .max()
                .unwrap_or(0),
            Kind::Choose { condition, yes, no } => condition.depth.max(yes.depth).max(no.depth),
            Kind::Fold {
                range, filter, body, ..
            } => {
                let filter = filter.as_ref().map_or(0, |filter| filter.depth);
                range.depth.max(body.depth).max(filter)
            }
        };
        if below >= MAX_DEPTH {
            return Err(PositionedError::new(at, "the expression is too deep"));
        }
        Ok(Self {
            kind,
            at,
            depth: below + 1,
        })
    }
}

fn deepest(nodes: &[Node]) -> u16 {
    nodes.iter().map(|node| node.depth).max().unwrap_or(0)
}

/// The type name in an expression, qualified or not.
pub(super) fn type_name(node: &Node) -> Option<&'static str> {
    match &node.kind {
        Kind::Name(name) => match name.as_str() {
            "bool" => Some("bool"),
            "int" => Some("int"),
            "uint" => Some("uint"),
            "double" => Some("double"),
            "string" => Some("string"),
            "bytes" => Some("bytes"),
            "list" => Some("list"),
            "map" => Some("map"),
            "null_type" => Some("null_type"),
            "type" => Some("type"),
            _ => None,
        },
        Kind::Select { operand, field } => {
            let is_well_known = matches!(&operand.kind, Kind::Select { operand, field }
                if &**field == "protobuf" && matches!(&operand.kind, Kind::Name(root) if root == "google"));
            match &**field {
                "Timestamp" if is_well_known => Some("google.protobuf.Timestamp"),
                "Duration" if is_well_known => Some("google.protobuf.Duration"),
                _ => None,
            }
        }
        _ => None,
    }
}
