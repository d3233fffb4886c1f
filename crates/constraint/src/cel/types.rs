//! The types of expressions, as far as they are known before evaluation.

use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Known only when evaluated.
    Dyn,
    /// The value of a property: its type is known only at evaluation, and macros do not iterate over it.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Rc<Self>),
    /// Keys that are lists or maps count as [`Type::Dyn`], so that a type never branches.
    Map(Rc<Self>, Rc<Self>),
    /// A type as a value.
    Kind,
}

impl Type {
    pub(super) fn list(element: Self) -> Self {
        Self::List(Rc::new(element))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        let key = match key {
            Self::List(_) | Self::Map(..) => Self::Dyn,
            simple => simple,
        };
        Self::Map(Rc::new(key), Rc::new(value))
    }

    /// The type of `properties`.
    pub(super) fn properties() -> Self {
        Self::list(Self::map(Self::String, Self::Any))
    }

    /// The common type of both; none if no value can have both types.
    pub(super) fn join(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => Some(Self::Dyn),
            (Self::Any, _) | (_, Self::Any) => Some(Self::Any),
            (Self::Null, time @ (Self::Timestamp | Self::Duration))
            | (time @ (Self::Timestamp | Self::Duration), Self::Null) => Some(time.clone()),
            (Self::List(one), Self::List(two)) => Some(Self::list(one.join(two)?)),
            (Self::Map(key, value), Self::Map(key_two, value_two)) => {
                Some(Self::map(key.join(key_two)?, value.join(value_two)?))
            }
            (one, two) => (one == two).then(|| one.clone()),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Dyn => "dyn".to_owned(),
            Self::Any => "any".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Uint => "uint".to_owned(),
            Self::Double => "double".to_owned(),
            Self::String => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Timestamp => "timestamp".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::List(element) => format!("list({})", element.name()),
            Self::Map(key, value) => format!("map({}, {})", key.name(), value.name()),
            Self::Kind => "type".to_owned(),
        }
    }
}
