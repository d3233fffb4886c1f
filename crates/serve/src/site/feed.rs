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
    let times = times(&of.bundles);
    let rows: Vec<(&Row, Timestamp)> = of.bundles.iter().zip(times).take(ENTRIES).collect();
    let newest = rows.iter().map(|(_, time)| *time).max();
    // The content of the catalog tells of a new version that has no date.
    let has_dates = rows.iter().all(|(row, _)| created(row).is_some());
    let updated = newest.filter(|_| has_dates).unwrap_or(of.modified);
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

/// The times of these versions, the newest first. A version without a date has that of the one before it, or a fixed
/// time: it must not be new to readers whenever the catalog has other content.
fn times(rows: &[Row]) -> Vec<Timestamp> {
    let mut known = Timestamp::UNIX_EPOCH;
    let mut times: Vec<Timestamp> = rows
        .iter()
        .rev()
        .map(|row| {
            known = created(row).unwrap_or(known);
            known
        })
        .collect();
    times.reverse();
    times
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
    fn versions_without_a_date_keep_their_times_when_the_catalog_changes() {
        let row = |name: &str, created: &str| Row {
            name: name.to_owned(),
            created: created.to_owned(),
            ..Row::default()
        };
        let entries = |modified: i64| {
            let of = Package {
                bundles: vec![
                    row("v4", ""),
                    row("v3", "2024-03-03"),
                    row("v2", ""),
                    row("v1", ""),
                ],
                modified: Timestamp::from_second(modified).unwrap(),
                ..Package::default()
            };
            let text = feed(&of);
            let updated = text.split("<updated>").skip(1);
            let updated = updated.filter_map(|part| Some(part.split_once('<')?.0.to_owned()));
            updated.collect::<Vec<String>>()
        };
        let expected = |modified: &str| {
            let (dated, none) = ("2024-03-03T00:00:00Z", "1970-01-01T00:00:00Z");
            [modified, dated, dated, none, none].map(ToOwned::to_owned)
        };
        assert_eq!(entries(86_400), expected("1970-01-02T00:00:00Z"));
        assert_eq!(entries(172_800), expected("1970-01-03T00:00:00Z"));
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
