//! The icon of a package.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::PackageManifest;
use crate::cluster::{items, text};

/// The picture of packages that have none: an empty square.
const DEFAULT_ICON: &str = concat!(
    r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">"#,
    r##"<rect width="32" height="32" rx="4" fill="#8a8d90"/></svg>"##
);
const SVG: &str = "image/svg+xml";

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IconAnswer {
    /// There is no such package.
    NotFound,
    /// The client has it.
    NotModified,
    /// The picture.
    Picture {
        /// Its media type.
        media_type: String,
        /// Its bytes; none where the icon is not base64.
        body: Vec<u8>,
        /// Its entity tag; empty for the picture of those that have none.
        tag: String,
        /// Whether it is the picture of those that have none.
        is_default: bool,
    },
}

/// The icon of a package. A client that sends an entity tag along with a version has the icon, whatever they are.
pub fn icon(found: Option<&PackageManifest>, has_tag: bool, has_version: bool) -> IconAnswer {
    if has_tag && has_version {
        return IconAnswer::NotModified;
    }
    let Some(manifest) = found else {
        return IconAnswer::NotFound;
    };
    let Some((media_type, data)) = &manifest.icon else {
        return IconAnswer::Picture {
            media_type: SVG.to_owned(),
            body: DEFAULT_ICON.as_bytes().to_vec(),
            tag: String::new(),
            is_default: true,
        };
    };
    IconAnswer::Picture {
        media_type: media_type.clone(),
        body: decoded(data),
        tag: tag(manifest),
        is_default: false,
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

fn tag(manifest: &PackageManifest) -> String {
    let channel = manifest.channel.as_str();
    let mut channels = items(&manifest.object, "/status/channels");
    let head = channels.find(|found| text(found, "/name") == channel);
    let head = head.map(|head| text(head, "/currentCSV")).unwrap_or_default();
    format!(
        "\"{}.{channel}.{head}\"",
        text(&manifest.object, "/metadata/name")
    )
}
