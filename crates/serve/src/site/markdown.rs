//! Untrusted descriptions as HTML that is safe to show.

use maud::PreEscaped;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// The longest description that is shown, in bytes.
const LONGEST: usize = 64 << 10;
/// The level of the page's heading above a description.
const ABOVE: usize = 2;

/// Elements whose tags are left out, because they only lay out the text.
const LAYOUT: [&str; 31] = [
    "a", "b", "center", "code", "div", "details", "em", "font", "h1", "h2", "h3", "h4", "h5", "h6", "i",
    "li", "ol", "p", "pre", "small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th",
    "tr", "ul",
];

/// The text as HTML. Of HTML in it, layout is left out and the rest is shown as text. Pictures are shown as their
/// descriptions, and links to other targets than web pages and mailboxes as their labels.
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
    let events = Parser::new_ext(text, options).flat_map(without_html);
    let events = events.filter_map(|event| match event {
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
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => None,
        Event::Start(Tag::HtmlBlock) => Some(Event::Start(Tag::Paragraph)),
        Event::End(TagEnd::HtmlBlock) => Some(Event::End(TagEnd::Paragraph)),
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

/// An event without HTML: its tags for layout are gone, line breaks are those of Markdown, and all else is text.
fn without_html(event: Event<'_>) -> Vec<Event<'_>> {
    let (Event::Html(html) | Event::InlineHtml(html)) = &event else {
        return vec![event];
    };
    let mut events = Vec::new();
    let mut shown = String::new();
    let mut rest: &str = html;
    while let Some(start) = rest.find('<') {
        let (before, from) = rest.split_at(start);
        shown.push_str(before);
        let (tag, after) = match from.find('>') {
            Some(end) => from.split_at(end + 1),
            None => (from, ""),
        };
        let name: String = tag
            .trim_start_matches(['<', '/'])
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        let is_tag = tag.ends_with('>');
        match name.as_str() {
            "br" | "hr" if is_tag => {
                events.push(Event::Text(std::mem::take(&mut shown).into()));
                events.push(Event::HardBreak);
            }
            "img" if is_tag => shown.push_str(alternative(tag)),
            name if is_tag && LAYOUT.contains(&name) => {}
            _ => shown.push_str(tag),
        }
        rest = after;
    }
    shown.push_str(rest);
    events.push(Event::Text(shown.into()));
    events
}

/// The description of a picture in its tag.
fn alternative(tag: &str) -> &str {
    let text = tag
        .split_once("alt=\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    text.map_or("", |(text, _)| text)
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
            "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
        );
        check("a <b onclick=x>c</b>", "<p>a c</p>");
        check("a<br>b<BR/>c", "<p>a<br />\nb<br />\nc</p>");
        check(
            "<p align=\"center\"><img src=\"https://x.io/p.png\" alt=\"A <picture\" width=1></p>",
            "<p>A &lt;picture</p>",
        );
        check("a <scr<b>ipt>x", "<p>a &lt;script&gt;x</p>");
        check("a <video src=x> <-", "<p>a &lt;video src=x&gt; &lt;-</p>");
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
