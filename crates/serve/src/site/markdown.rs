//! Untrusted descriptions as HTML that is safe to show.

use maud::PreEscaped;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// The longest description that is shown, in bytes.
const LONGEST: usize = 64 << 10;
/// The level of the page's heading above a description.
const ABOVE: usize = 2;

/// The text as HTML. HTML in it is shown as text, pictures as their descriptions, and links to other targets than web
/// pages and mailboxes as their labels.
pub(super) fn render(text: &str) -> PreEscaped<String> {
    let end = text.floor_char_boundary(LONGEST.min(text.len()));
    let text = text.get(..end).unwrap_or_default();
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    // The page has headings above the text, so those of the text begin with the third level without gaps.
    let highest = Parser::new_ext(text, options)
        .filter_map(|event| match event {
            Event::Start(Tag::Heading { level, .. }) => Some(level as usize),
            _ => None,
        })
        .min()
        .unwrap_or(1);
    let mut heading = ABOVE;
    // Whether each open link is kept.
    let mut links = Vec::new();
    let events = Parser::new_ext(text, options).filter_map(|event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => {
            let keep = is_harmless(&dest_url);
            links.push(keep);
            keep.then_some(Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            }))
        }
        Event::End(TagEnd::Link) => links.pop().unwrap_or(false).then_some(Event::End(TagEnd::Link)),
        Event::Start(Tag::Image { .. } | Tag::HtmlBlock) | Event::End(TagEnd::Image | TagEnd::HtmlBlock) => {
            None
        }
        Event::Start(Tag::Heading { level, .. }) => {
            heading = (level as usize + 1 + ABOVE - highest).min(heading + 1);
            Some(Event::Start(Tag::Heading {
                level: HeadingLevel::try_from(heading).unwrap_or(HeadingLevel::H6),
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            }))
        }
        Event::End(TagEnd::Heading(_)) => Some(Event::End(TagEnd::Heading(
            HeadingLevel::try_from(heading).unwrap_or(HeadingLevel::H6),
        ))),
        Event::Start(Tag::CodeBlock(_)) => Some(Event::Start(Tag::CodeBlock(
            pulldown_cmark::CodeBlockKind::Fenced(CowStr::Borrowed("")),
        ))),
        other => Some(other),
    });
    let mut page = String::with_capacity(text.len() * 2);
    html::push_html(&mut page, events);
    PreEscaped(page)
}

/// Whether an address leads to the web or to a mailbox.
pub(super) fn is_harmless(address: &str) -> bool {
    let lower = address.trim_start().to_ascii_lowercase();
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_rendered_without_what_could_do_harm() {
        let check = |text: &str, expected: &str| assert_eq!(render(text).0.trim_end(), expected, "{text}");
        check(
            "# A\n\n**b** `c`",
            "<h3>A</h3>\n<p><strong>b</strong> <code>c</code></p>",
        );
        check("## A\n\n#### B\n\n## C", "<h3>A</h3>\n<h4>B</h4>\n<h3>C</h3>");
        check("[a](https://x.io)", "<p><a href=\"https://x.io\">a</a></p>");
        check(
            "<script>alert(1)</script>",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
        );
        check("a <b onclick=x>c</b>", "<p>a &lt;b onclick=x&gt;c&lt;/b&gt;</p>");
        check("[a](javascript:alert(1))", "<p>a</p>");
        check("[a](JaVaScRiPt:alert(1))", "<p>a</p>");
        check("[a](data:text/html,x)", "<p>a</p>");
        check("[a](/local)", "<p>a</p>");
        check("<javascript:alert(1)>", "<p>javascript:alert(1)</p>");
        check("![alt](https://x.io/p.png)", "<p>alt</p>");
        check(
            "[a](https://x.io/\"onx=\"1)",
            "<p><a href=\"https://x.io/%22onx=%221\">a</a></p>",
        );
        check("```\"><script>\nx\n```", "<pre><code>x\n</code></pre>");
    }

    #[test]
    fn a_long_description_is_cut_between_characters() {
        assert!(render(&"ä".repeat(LONGEST)).0.len() < LONGEST + 100);
    }

    proptest::proptest! {
        #[test]
        fn no_text_becomes_a_script_or_an_attribute(text in "[\\[\\]()<>!\"'`a-z:/ \n#*&;=]{0,80}") {
            let page = render(&text).0;
            proptest::prop_assert!(!page.contains("<script") && !page.contains("javascript:\""));
            for tag in page.split('<').skip(1) {
                let tag = tag.split('>').next().unwrap_or_default();
                let attributes = tag.split_once(' ').map_or("", |(_, attributes)| attributes);
                let known = ["href=", "title=", "start=", "/"].iter().any(|name| attributes.starts_with(name));
                proptest::prop_assert!(attributes.is_empty() || known, "{}", tag);
            }
        }
    }
}
