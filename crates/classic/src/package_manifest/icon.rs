//! The icon of a package.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// The picture of packages that have none: an empty square.
pub const DEFAULT_ICON: &str = concat!(
    r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">"#,
    r##"<rect width="32" height="32" rx="4" fill="#8a8d90"/></svg>"##
);
/// The media type of [`DEFAULT_ICON`].
pub const SVG: &str = "image/svg+xml";

/// The picture of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Icon {
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Its entity tag, in quotes.
    pub tag: String,
}

impl Icon {
    pub(super) fn new(media_type: &str, base64: &str, tag: String) -> Self {
        Self {
            media_type: media_type.to_owned(),
            body: decoded(base64),
            tag,
        }
    }
}

/// Answer to a request for an icon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IconAnswer<'a, P> {
    /// There is no such package.
    NotFound,
    /// The client has it.
    NotModified,
    /// [`DEFAULT_ICON`], without an entity tag.
    Default,
    /// The picture of the package.
    Icon(&'a P),
}

/// The icon of a package, which may have none. A client that sends an entity tag along with a version has the icon,
/// whatever they are.
pub fn icon<P>(package: Option<Option<&P>>, has_tag: bool, has_version: bool) -> IconAnswer<'_, P> {
    match package {
        _ if has_tag && has_version => IconAnswer::NotModified,
        None => IconAnswer::NotFound,
        Some(None) => IconAnswer::Default,
        Some(Some(picture)) => IconAnswer::Icon(picture),
    }
}

/// The bytes of base 64 up to the first place that is none; line breaks do not count.
fn decoded(text: &str) -> Vec<u8> {
    let text: Vec<u8> = text
        .bytes()
        .filter(|byte| !matches!(byte, b'\r' | b'\n'))
        .collect();
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&STANDARD, lenient);
    let (mut bytes, mut is_over) = (Vec::new(), false);
    for group in text.chunks_exact(4) {
        match engine.decode(group) {
            Ok(found) if !is_over => bytes.extend(found),
            _ => break,
        }
        is_over = group.ends_with(b"=");
    }
    bytes
}
