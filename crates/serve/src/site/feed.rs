//! The feed of a package's versions (Atom, RFC 4287).

use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use olm_api::serving::percent_encode;
use olm_fbc::SCHEMA_BUNDLE;

use super::package::{BundleMarks, Package, Row};
use super::{package_path, version_path};

/// Versions in a feed.
const ENTRIES: usize = 50;

/// The feed: the newest version first.
pub(crate) fn feed(of: &Package) -> String {
    let marks = BundleMarks::of(of);
    let rows: Vec<(&Row, Timestamp)> = of
        .bundles
        .iter()
        .take(ENTRIES)
        .map(|row| (row, created(row).unwrap_or(of.modified)))
        .collect();
    let updated = rows.iter().map(|(_, time)| *time).max().unwrap_or(of.modified);
    let page = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"))
        feed xmlns="http://www.w3.org/2005/Atom" {
            id { (identity(of, None)) }
            title { (of.title()) " in catalog " (of.catalog) }
            updated { (updated) }
            author { name { (author(of)) } }
            // Written with an end: in XML a link has no empty form without one.
            link rel="self" href={ (package_path(&of.catalog, &of.name)) "/feed.xml" } {}
            link rel="alternate" type="text/html" href=(package_path(&of.catalog, &of.name)) {}
            @for (row, time) in &rows {
                entry {
                    id { (identity(of, Some(&row.name))) }
                    title {
                        (of.title()) " "
                        @match &row.version { Some(version) => (version.to_string()), None => (row.name) }
                    }
                    updated { (time) }
                    link rel="alternate" type="text/html" href=(version_path(&of.catalog, &of.name, &row.name)) {}
                    summary {
                        "Bundle " (row.name)
                        @let channels = marks.channels(&row.name);
                        @if !channels.is_empty() { " in the channels " (channels) }
                        @if let Some(why) = of.deprecated(SCHEMA_BUNDLE, Some(&row.name)) { ". Deprecated: " (why) }
                    }
                }
            }
        }
    };
    page.into_string()
}

/// A name that stays the same wherever the catalog is served.
fn identity(of: &Package, bundle: Option<&str>) -> Markup {
    html! {
        "urn:olm:" (of.catalog) ":" (percent_encode(&of.name))
        @if let Some(bundle) = bundle { ":" (percent_encode(bundle)) }
    }
}

/// The publisher; a feed must have an author.
fn author(of: &Package) -> &str {
    let provider = of.release.metadata.text("/provider/name");
    if provider.is_empty() {
        &of.catalog
    } else {
        provider
    }
}

/// The creation time of a version, if its publisher states a date or a time.
fn created(row: &Row) -> Option<Timestamp> {
    let text = row.created.trim();
    let day = || {
        let date: jiff::civil::Date = text.get(..10)?.parse().ok()?;
        Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    text.parse().ok().or_else(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_publishers_write_them() {
        let check = |text: &str, expected: Option<&str>| {
            let row = Row {
                created: text.to_owned(),
                ..Row::default()
            };
            assert_eq!(
                created(&row).map(|time| time.to_string()).as_deref(),
                expected,
                "{text}"
            );
        };
        check("2024-02-01T10:20:30Z", Some("2024-02-01T10:20:30Z"));
        check("2024-02-01", Some("2024-02-01T00:00:00Z"));
        check("2024-02-01 10:20:30", Some("2024-02-01T00:00:00Z"));
        check("2024-02-01T10:20:30+02:00", Some("2024-02-01T08:20:30Z"));
        check("", None);
        check("yesterday, no ä", None);
    }

    #[test]
    fn a_feed_escapes_what_it_shows() {
        let of = Package {
            catalog: "cat".to_owned(),
            name: "<p>".to_owned(),
            bundles: vec![Row {
                name: "<b>&\"".to_owned(),
                ..Row::default()
            }],
            ..Package::default()
        };
        let text = feed(&of);
        assert!(!text.contains("<p>") && !text.contains("<b>"), "{text}");
        assert!(
            text.contains("<id>urn:olm:cat:%3Cp%3E:%3Cb%3E%26%22</id>"),
            "{text}"
        );
        assert!(
            text.contains("<title>&lt;p&gt; &lt;b&gt;&amp;&quot;</title>"),
            "{text}"
        );
    }
}
