//! The value of an `olm.constraint` as written.

use olm_fbc::decode::{Decode, ShapeError, decode, members};
use olm_fbc::property::Gvk;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest text of a constraint, in bytes.
pub const MAX_SIZE: usize = 64 << 10;
/// The deepest nesting of its lists and objects; each level of `all`, `any` or `not` needs three.
const MAX_NESTING: usize = 192;

/// The reason why a text is not a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text has more than [`MAX_SIZE`] bytes.
    #[error("olm.constraint value is greater than max constraint size {MAX_SIZE} bytes")]
    TooLong,
    /// The text is nested more deeply than allowed.
    #[error("olm.constraint value is nested deeper than {MAX_NESTING} lists and objects")]
    TooDeep,
    /// The text is not JSON.
    #[error("olm.constraint value is not JSON: {0}")]
    Json(String),
    /// A field has the wrong type, or is not one of a constraint.
    #[error("olm.constraint value: {0}")]
    Shape(#[from] ShapeError),
}

/// A constraint. [`crate::Requirement`] checks that it has exactly one of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Constraint {
    /// The message for users when it is not met.
    pub failure_message: String,
    /// A rule that one bundle must satisfy.
    pub cel: Option<CelRule>,
    /// A package that must be installed.
    pub package: Option<PackageConstraint>,
    /// An API that must exist.
    #[serde(deserialize_with = "plain_gvk")]
    pub gvk: Option<Gvk>,
    /// All of these must be met.
    pub all: Option<Compound>,
    /// At least one of these must be met.
    pub any: Option<Compound>,
    /// None of these may be met.
    pub not: Option<Compound>,
}

/// A CEL expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CelRule {
    /// The text.
    pub rule: String,
}

/// A package and a range of versions in the grammar of `skipRange`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PackageConstraint {
    /// The package; the key is `packageName` or `name`.
    #[serde(alias = "name")]
    pub package_name: String,
    /// The range; the key is `versionRange` or `version`.
    #[serde(alias = "version")]
    pub version_range: String,
}

/// A list of constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compound {
    /// The constraints; none when the list is not given.
    pub constraints: Option<Vec<Constraint>>,
}

impl Constraint {
    /// Parses a constraint. Keys match without regard to letter case. An unknown key is an error, because ignoring it
    /// would ignore a requirement. Text after the value is ignored.
    ///
    /// # Errors
    /// When the text is too long, too deep, not JSON or not a constraint.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.len() > MAX_SIZE {
            return Err(ParseError::TooLong);
        }
        let opening = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
        if opening > MAX_NESTING && nesting(text) > MAX_NESTING {
            return Err(ParseError::TooDeep);
        }
        if let Some(constraint) = plain(text) {
            return Ok(constraint);
        }
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        let value = values
            .next()
            .ok_or_else(|| ParseError::Json("there is nothing".to_owned()))?
            .map_err(|error| ParseError::Json(error.to_string()))?;
        Ok(decode(value.get())?)
    }
}

/// Parses constraints in the documented form, which almost all have, in one pass. This parser would accept a list for
/// an object, so lists are only allowed at their places.
fn plain(text: &str) -> Option<Constraint> {
    let belongs = |(at, _): (usize, &str)| {
        text.get(..at)
            .is_some_and(|before| before.ends_with(r#""constraints":"#))
    };
    if !text.starts_with('{') || !text.match_indices('[').all(belongs) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text);
    Constraint::deserialize(&mut values).ok()
}

fn plain_gvk<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Gvk>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Plain {
        group: String,
        version: String,
        kind: String,
    }
    let plain = Option::<Plain>::deserialize(deserializer)?;
    Ok(plain.map(|plain| Gvk {
        group: plain.group,
        version: plain.version,
        kind: plain.kind,
    }))
}

/// The nesting depth of lists and objects. Brackets in strings do not count.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes();
    let mut is_text = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if is_text => {
                bytes.next();
            }
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn unknown() -> ShapeError {
    ShapeError::new("is not a field of a constraint")
}

impl Decode for Constraint {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut constraint = Self::default();
        members(raw, |key, value| {
            match key {
                "failuremessage" => constraint.failure_message = decode(value)?,
                "cel" => constraint.cel = decode(value)?,
                "package" => constraint.package = decode(value)?,
                "gvk" => constraint.gvk = decode::<Option<StrictGvk>>(value)?.map(|strict| strict.0),
                "all" => constraint.all = decode(value)?,
                "any" => constraint.any = decode(value)?,
                "not" => constraint.not = decode(value)?,
                _ => return Err(unknown()),
            }
            Ok(())
        })?;
        Ok(constraint)
    }
}

impl Decode for CelRule {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut rule = Self::default();
        members(raw, |key, value| match key {
            "rule" => decode(value).map(|text| rule.rule = text),
            _ => Err(unknown()),
        })?;
        Ok(rule)
    }
}

impl Decode for PackageConstraint {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut package = Self::default();
        members(raw, |key, value| {
            match key {
                "packagename" | "name" => package.package_name = decode(value)?,
                "versionrange" | "version" => package.version_range = decode(value)?,
                _ => return Err(unknown()),
            }
            Ok(())
        })?;
        Ok(package)
    }
}

impl Decode for Compound {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut compound = Self::default();
        members(raw, |key, value| match key {
            "constraints" => decode(value).map(|list| compound.constraints = list),
            _ => Err(unknown()),
        })?;
        Ok(compound)
    }
}

#[derive(Default)]
struct StrictGvk(Gvk);

impl Decode for StrictGvk {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut gvk = Gvk::default();
        members(raw, |key, value| {
            match key {
                "group" => gvk.group = decode(value)?,
                "version" => gvk.version = decode(value)?,
                "kind" => gvk.kind = decode(value)?,
                _ => return Err(unknown()),
            }
            Ok(())
        })?;
        Ok(Self(gvk))
    }
}
