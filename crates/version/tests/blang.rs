//! The grammar of `skipRange` and of dependency ranges.

use olm_version::blang::{Range, parse_tolerant, parse_version};
use proptest::prelude::*;

fn contains(range: &str, version: &str) -> Result<bool, String> {
    let range = Range::parse(range).map_err(|fault| fault.to_string())?;
    let version = parse_version(version).map_err(|fault| fault.to_string())?;
    Ok(range.contains(&version))
}

fn check(range: &str, inside: &[&str], outside: &[&str]) {
    for version in inside {
        assert_eq!(contains(range, version), Ok(true), "{range:?} contains {version}");
    }
    for version in outside {
        assert_eq!(
            contains(range, version),
            Ok(false),
            "{range:?} leaves {version} out"
        );
    }
}

fn refused(range: &str, expected: &str) {
    assert_eq!(contains(range, "1.0.0"), Err(expected.to_owned()), "{range:?}");
}

#[test]
fn blanks_join_and_an_exclamation_mark_excludes() {
    check(
        "> 1.0.0 !1.2.1",
        &["1.0.1", "1.2.0", "1.2.2"],
        &["1.2.1", "1.0.0"],
    );
    check(">=4.1.0 <4.1.2", &["4.1.0", "4.1.1"], &["4.1.2", "4.0.9"]);
    check(">1.0.0 <2.0.0", &["1.0.1", "1.9.9"], &["1.0.0", "2.0.0"]);
}

#[test]
fn every_operator_counts() {
    for range in ["0.5.2", "=0.5.2", "==0.5.2", "== 0.5.2", ">=0.5.2 <=0.5.2"] {
        check(
            range,
            &["0.5.2", "0.5.2+build"],
            &["0.5.1", "0.5.3", "0.5.2-rc.1"],
        );
    }
    check("!=1.0.0", &["1.0.1"], &["1.0.0"]);
    check(
        "<1.0.0 || >2.0.0 !2.5.0 || 1.5.0",
        &["0.9.0", "1.5.0", "2.0.1"],
        &["1.0.0", "2.0.0", "2.5.0"],
    );
}

#[test]
fn prereleases_are_versions_like_any_other() {
    check(">=1.0.0 <2.0.0", &["1.5.0-rc.1", "2.0.0-rc.1"], &["1.0.0-rc.1"]);
    check(
        ">1.0.0-rc.2",
        &["1.0.0-rc.10", "1.0.0"],
        &["1.0.0-rc.1", "1.0.0-2"],
    );
}

#[test]
fn wildcards_stand_for_minor_and_patch() {
    check("1.x", &["1.0.0", "1.9.9"], &["0.9.9", "2.0.0"]);
    check("1.2.x", &["1.2.0", "1.2.9"], &["1.1.9", "1.3.0"]);
    check(">1.x", &["2.0.0"], &["1.9.9"]);
    check("<=1.2.x", &["1.2.9"], &["1.3.0"]);
    check("<1.2.x", &["1.1.9"], &["1.2.0"]);
    check(">=1.x", &["1.0.0", "3.0.0"], &["0.9.9"]);
    check("!=1.2.x", &[], &["1.1.0", "1.2.0", "1.3.0"]);
    check("1.x.x", &["1.0.0", "1.0.9"], &["1.1.0"]);
}

#[test]
fn words_of_one_character_are_dropped() {
    check("1.0.0 - 1.0.0", &["1.0.0"], &["2.0.0"]);
    check(">=1.0.0 , <2.0.0", &["1.5.0"], &["2.0.0"]);
    check(">=1.0.0 || || 0.1.0", &["1.5.0", "0.1.0"], &["0.2.0"]);
}

#[test]
fn an_invalid_range_is_refused() {
    refused("", "Last element in range is '||'");
    refused("1", "Last element in range is '||'");
    refused(">=1.0.0 ||", "Last element in range is '||'");
    refused("|| >=1.0.0", "First element in range is '||'");
    refused("latest", "Could not get version from string: \"latest\"");
    refused(
        "~1.0.0",
        "Could not parse Range \"~1.0.0\": Could not parse comparator \"~\" in \"~1.0.0\"",
    );
    refused(
        ">=v1.0.0",
        "Could not parse Range \">=v1.0.0\": Could not parse comparator \">=v\" in \">=v1.0.0\"",
    );
    let version = |text: &str, fault: &str| {
        refused(
            &format!(">{text}"),
            &format!(
                "Could not parse Range {0:?}: Could not parse version {text:?} in {0:?}: {fault}",
                format!(">{text}")
            ),
        );
    };
    version("10", "No Major.Minor.Patch elements found");
    version("1.0.0,", "Invalid character(s) found in patch number \"0,\"");
    version("01.0.0", "Major number must not contain leading zeroes \"01\"");
    version("1..0", "strconv.ParseUint: parsing \"\": invalid syntax");
    version(
        "1.0.0-01",
        "Numeric PreRelease version must not contain leading zeroes \"01\"",
    );
    version("1.0.0-a..b", "Prerelease is empty");
    version("1.0.0-a_b", "Invalid character(s) found in prerelease \"a_b\"");
    version("1.0.0+", "Build meta data is empty");
    version(
        "99999999999999999999.0.0",
        "strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
    );
    refused(&"!1.0.0 ".repeat(3000), "the range is longer than 16384 bytes");
}

proptest! {
    #[test]
    fn groups_are_alternatives_of_conjunctions(
        groups in proptest::collection::vec(
            proptest::collection::vec(
                (prop::sample::select(vec!["", "=", "==", "!", "!=", "<", "<=", ">", ">=", ">= "]), 0..3_u64, 0..3_u64),
                1..4,
            ),
            1..4,
        ),
        (x, y) in (0..3_u64, 0..3_u64),
    ) {
        let text = groups
            .iter()
            .map(|group| {
                let words: Vec<_> = group.iter().map(|(sign, a, b)| format!("{sign}{a}.{b}.0")).collect();
                words.join(" ")
            })
            .collect::<Vec<_>>()
            .join(" || ");
        let expected = groups.iter().any(|group| {
            group.iter().all(|(sign, a, b)| match sign.trim() {
                "!" | "!=" => (x, y) != (*a, *b),
                "<" => (x, y) < (*a, *b),
                "<=" => (x, y) <= (*a, *b),
                ">" => (x, y) > (*a, *b),
                ">=" => (x, y) >= (*a, *b),
                _ => (x, y) == (*a, *b),
            })
        });
        prop_assert_eq!(contains(&text, &format!("{x}.{y}.0")), Ok(expected), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ 0-9x.v,|<>=!~aé-]{0,40}") {
        let _ = Range::parse(&text);
        let _ = parse_version(&text);
    }
}

#[test]
fn a_tolerant_reading_completes_short_versions() {
    for (text, expected) in [
        ("1", Some("1.0.0")),
        (" v1.2 ", Some("1.2.0")),
        ("01.002.3-rc.1+b", Some("1.2.3-rc.1+b")),
        ("00.0.0", Some("0.0.0")),
        ("1.2.3", Some("1.2.3")),
        ("", None),
        ("v", None),
        ("1-rc", None),
        ("1.x", None),
        ("vv1", None),
    ] {
        let found = parse_tolerant(text).ok().map(|version| version.to_string());
        assert_eq!(found.as_deref(), expected, "{text:?}");
    }
}
