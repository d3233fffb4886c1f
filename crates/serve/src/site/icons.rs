//! The icons of the pages. A page contains each symbol once.

use maud::{Markup, PreEscaped, html};

/// The symbols: their names, and their shapes on 24 by 24 with lines of width 2.
const SYMBOLS: [(&str, &str); 16] = [
    (
        "search",
        r#"<circle cx="11" cy="11" r="7"/><path d="m20 20-4-4"/>"#,
    ),
    (
        "package",
        r#"<path d="m12 3 8 4.5v9L12 21l-8-4.5v-9z"/><path d="m4 7.5 8 4.5 8-4.5M12 12v9"/>"#,
    ),
    (
        "layers",
        r#"<path d="m12 3 9 5-9 5-9-5z"/><path d="m3 13 9 5 9-5"/>"#,
    ),
    (
        "tag",
        r#"<path d="M3 12V4a1 1 0 0 1 1-1h8l9 9-9 9z"/><circle cx="8" cy="8" r="1"/>"#,
    ),
    (
        "warning",
        r#"<path d="M12 4 2.5 20h19z"/><path d="M12 10v4m0 3v.1"/>"#,
    ),
    (
        "copy",
        r#"<rect x="9" y="9" width="11" height="11" rx="2"/><path d="M5 15H4V5a1 1 0 0 1 1-1h10v1"/>"#,
    ),
    (
        "link",
        r#"<path d="M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1"/><path d="M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1"/>"#,
    ),
    (
        "person",
        r#"<circle cx="12" cy="8" r="4"/><path d="M4 21c0-4 4-6 8-6s8 2 8 6"/>"#,
    ),
    (
        "feed",
        r#"<path d="M4 11a9 9 0 0 1 9 9M4 4a16 16 0 0 1 16 16"/><circle cx="5" cy="19" r="1"/>"#,
    ),
    ("filter", r#"<path d="M4 6h16M7 12h10M10 18h4"/>"#),
    ("close", r#"<path d="m6 6 12 12M18 6 6 18"/>"#),
    ("shield", r#"<path d="M12 3 5 6v6c0 4 3 7 7 9 4-2 7-5 7-9V6z"/>"#),
    (
        "clock",
        r#"<circle cx="12" cy="12" r="9"/><path d="M12 7v5l3 2"/>"#,
    ),
    ("up", r#"<path d="M12 20V5m-6 6 6-6 6 6"/>"#),
    (
        "cube",
        r#"<rect x="4" y="4" width="16" height="16" rx="2"/><path d="M9 9h6v6H9z"/>"#,
    ),
    (
        "terminal",
        r#"<rect x="3" y="4" width="18" height="16" rx="2"/><path d="m7 9 3 3-3 3m6 0h4"/>"#,
    ),
];

/// The symbols of a page.
pub(super) fn sprite() -> Markup {
    html! {
        svg class="sprite" aria-hidden="true" width="0" height="0" {
            @for (name, drawing) in SYMBOLS {
                symbol id={ "i-" (name) } viewBox="0 0 24 24" { (PreEscaped(drawing)) }
            }
        }
    }
}

/// A symbol in the line of text. Screen readers skip it.
pub fn symbol(name: &str) -> Markup {
    html! {
        svg class="i" aria-hidden="true" width="16" height="16" { use href={ "#i-" (name) } {} }
    }
}

/// The mark of the site.
pub(super) fn mark() -> Markup {
    html! {
        svg class="mark" aria-hidden="true" width="28" height="28" viewBox="0 0 28 28" {
            (PreEscaped(
                r#"<path class="m1" d="M14 2 25 8.2v11.6L14 26 3 19.8V8.2z"/><path class="m2" d="M14 2 25 8.2 14 14.4 3 8.2z"/><path class="m3" d="M14 14.4V26L3 19.8V8.2z"/>"#
            ))
        }
    }
}

/// The size of a package's picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IconSize {
    /// One of many on a page, which browsers load as they come into view.
    Card,
    /// The one at the head of a page, which is there at once.
    Head,
}

/// The picture of a package: that of its catalog, or its first letter.
pub(super) fn of_package(address: Option<&str>, name: &str, size: IconSize) -> Markup {
    let (class, loading, decoding) = match size {
        IconSize::Card => ("medium", Some("lazy"), Some("async")),
        IconSize::Head => ("large", None, None),
    };
    let letter = name.chars().find(|letter| letter.is_alphanumeric());
    let shade = name
        .bytes()
        .fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte))
        % 6;
    html! {
        @match address {
            Some(address) => span class={ "icon " (class) } { img src=(address) alt="" loading=[loading] decoding=[decoding]; },
            None => span class={ "icon letter shade-" (shade) " " (class) } aria-hidden="true" {
                (letter.map_or_else(|| "?".to_owned(), |letter| letter.to_uppercase().to_string()))
            },
        }
    }
}
