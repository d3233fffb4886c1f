//! Versions with their releases.

use std::cmp::Ordering;

use olm_version::{BuildMetadata, Release, VersionRelease};

#[expect(clippy::unwrap_used, reason = "the versions of these tests are valid")]
fn parse(text: &str) -> VersionRelease {
    VersionRelease::parse(text, BuildMetadata::Release).unwrap()
}

#[test]
fn releases_follow_the_order_of_their_identifiers() {
    let ascending = [
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.0+1",
        "1.0.0+2",
        "1.0.0+10",
        "1.0.0+10.1",
        "1.0.0+alpha",
        "1.0.0+alpha.1",
        "1.0.0+git.0a1b",
        "1.0.1",
    ];
    for (low, left) in ascending.iter().enumerate() {
        for (high, right) in ascending.iter().enumerate() {
            assert_eq!(
                parse(left).compare(&parse(right)),
                low.cmp(&high),
                "{left} {right}"
            );
        }
    }
}

#[test]
fn build_metadata_is_a_release_when_it_follows_the_rules_of_one() {
    let check = |text: &str, version: &str, release: Option<&str>| {
        let found = parse(text);
        assert_eq!(found.version.to_string(), version);
        assert_eq!(found.release.as_ref().map(Release::as_str), release);
        assert_eq!(found.to_string(), text);
    };
    check("1.0.0", "1.0.0", None);
    check("1.0.0+2", "1.0.0", Some("2"));
    check("1.0.0-rc.1+git.0a1b", "1.0.0-rc.1", Some("git.0a1b"));
    check("1.0.0+02", "1.0.0+02", None);
    check(
        "1.0.0+20240101120000abcdef12",
        "1.0.0+20240101120000abcdef12",
        None,
    );
    assert!(parse("1.0.0+20240101120000abcdef12").is_same(&parse("1.0.0")));
    assert!(!parse("1.0.0+2").is_same(&parse("1.0.0")));
    let ignored = VersionRelease::parse("1.0.0+2", BuildMetadata::Ignored).unwrap();
    assert_eq!(
        (ignored.version.to_string().as_str(), &ignored.release),
        ("1.0.0+2", &None)
    );
    assert!(ignored.is_same(&parse("1.0.0")));
}

#[test]
fn an_explicit_release_stands_apart_from_the_version() {
    let explicit = VersionRelease::explicit("1.0.0+build", "2").unwrap();
    assert!(explicit.is_same(&parse("1.0.0+2")));
    assert_eq!(explicit.to_string(), "1.0.0+2");
    let empty = VersionRelease::explicit("1.0.0", "").unwrap();
    assert!(empty.release.as_ref().is_some_and(Release::is_empty));
    assert!(empty.is_same(&parse("1.0.0")));
    assert_eq!(empty.compare(&parse("1.0.0+0")), Ordering::Less);
}

#[test]
fn an_invalid_release_is_refused() {
    for (text, expected) in [
        (
            "alpha_beta",
            "invalid release \"alpha_beta\": segment 0: Invalid character(s) found in prerelease \"alpha_beta\"",
        ),
        (
            "001",
            "invalid release \"001\": segment 0: Numeric PreRelease version must not contain leading zeroes \"001\"",
        ),
        ("1..2", "invalid release \"1..2\": segment 1: Prerelease is empty"),
        (
            ".a_",
            "invalid release \".a_\": segment 0: Prerelease is empty\nsegment 1: Invalid character(s) found in prerelease \"a_\"",
        ),
        (
            "123456789012345678901",
            "invalid release \"123456789012345678901\": exceeds maximum length of 20 characters",
        ),
    ] {
        assert_eq!(Release::parse(text).unwrap_err().to_string(), expected);
    }
    for text in ["1", "0", "0alpha", "alpha.1.beta.2", "-", "12345678901234567890"] {
        assert_eq!(
            Release::parse(text).map(|release| release.to_string()),
            Ok(text.to_owned())
        );
    }
    assert!(Release::parse("").unwrap().is_empty());
}

#[test]
fn faults_say_which_text_they_are_in() {
    for (version, release, expected) in [
        (
            "v1.0.0",
            "",
            "error parsing version \"v1.0.0\": Invalid character(s) found in major number \"v1\"",
        ),
        (
            "1.0",
            "",
            "error parsing version \"1.0\": No Major.Minor.Patch elements found",
        ),
        ("", "", "error parsing version \"\": Version string empty"),
        (
            "1.0.0",
            "a b",
            "error parsing release \"a b\": invalid release \"a b\": segment 0: Invalid character(s) found in prerelease \"a b\"",
        ),
    ] {
        assert_eq!(
            VersionRelease::explicit(version, release)
                .unwrap_err()
                .to_string(),
            expected
        );
    }
}
