//! Icons of packages that browsers may show.

use olm_fbc::Icon;

/// The largest icon that is shown, in letters of its base64 form.
const LARGEST: usize = 256 << 10;
/// The media types that are shown.
const MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/svg+xml"];

/// Whether a picture is small enough, has the stated media type, and is of a known type.
pub(crate) fn is_shown(icon: &Icon) -> bool {
    content(icon).is_some()
}

/// The bytes of a picture that [`is_shown`], and their media type.
pub(crate) fn content(icon: &Icon) -> Option<(&'static str, Vec<u8>)> {
    let media = media_type(icon)?;
    let bytes = icon.data().ok()?;
    icon.fault().is_none().then_some((media, bytes))
}

fn media_type(icon: &Icon) -> Option<&'static str> {
    let letters = icon.base64_data.as_deref().unwrap_or_default();
    let known = MEDIA_TYPES.into_iter().find(|known| *known == icon.media_type);
    known.filter(|_| letters.len() <= LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_that_are_what_they_say_are_shown() {
        let png = b"\x89PNG\r\n\x1a\n";
        let check = |bytes: &[u8], media: &str, expected: bool| {
            let icon = Icon::of(bytes, media);
            assert_eq!(is_shown(&icon), expected, "{media}");
            assert_eq!(content(&icon).is_some(), expected, "{media}");
        };
        check(png, "image/png", true);
        check(
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            "image/svg+xml",
            true,
        );
        check(png, "image/svg+xml", false);
        check(png, "text/html", false);
        check(b"<script>alert(1)</script>", "image/png", false);
        check(b"", "image/png", false);
        check(&[png.as_slice(), &vec![0; LARGEST]].concat(), "image/png", false);
        let broken = Icon {
            base64_data: Some("\"><script>".to_owned()),
            media_type: "image/png".to_owned(),
        };
        assert!(!is_shown(&broken) && content(&broken).is_none());
    }
}
