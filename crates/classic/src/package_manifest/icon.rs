//! The icon of a package.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
        body: STANDARD.decode(data).unwrap_or_default(),
        tag: tag(manifest),
        is_default: false,
    }
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
