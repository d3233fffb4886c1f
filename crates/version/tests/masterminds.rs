//! The grammar of `spec.source.catalog.version`.

use olm_version::masterminds::{Constraint, Prereleases, Spelling, increment, parse_version};
use olm_version::{Component, Version};
use proptest::prelude::*;

fn admits(constraint: &str, version: &str) -> Result<bool, String> {
    let constraint = Constraint::parse(constraint).map_err(|fault| fault.to_string())?;
    let version = parse_version(version, Spelling::Coerced).map_err(|fault| fault.to_string())?;
    Ok(constraint.check(&version))
}

fn check(constraint: &str, matching: &[&str], others: &[&str]) {
    for version in matching {
        assert_eq!(
            admits(constraint, version),
            Ok(true),
            "{constraint:?} admits {version}"
        );
    }
    for version in others {
        assert_eq!(
            admits(constraint, version),
            Ok(false),
            "{constraint:?} leaves {version} out"
        );
    }
}

fn refused(constraint: &str, expected: &str) {
    assert_eq!(
        admits(constraint, "1.0.0"),
        Err(expected.to_owned()),
        "{constraint:?}"
    );
}

#[test]
fn wildcards_stand_in_every_comparison() {
    check("1.11.x", &["1.11.0", "1.11.99"], &["1.10.99", "1.12.0"]);
    check(">=1.12.X", &["1.12.0", "7.0.0"], &["1.11.99"]);
    check("<=2.x", &["0.0.1", "2.99.99"], &["3.0.0"]);
    check("*", &["0.0.0", "99.1.2"], &[]);
}

#[test]
fn tilde_is_a_patch_comparison() {
    check("~1.11.0", &["1.11.0", "1.11.7"], &["1.10.9", "1.12.0"]);
    check("~1", &["1.0.0", "1.99.0"], &["0.9.9", "2.0.0"]);
    check("~1.12", &["1.12.0", "1.12.9"], &["1.11.9", "1.13.0"]);
    check("~1.12.x", &["1.12.0", "1.12.9"], &["1.11.9", "1.13.0"]);
    check("~1.x", &["1.0.0", "1.5.3"], &["0.9.9", "2.0.0"]);
}

#[test]
fn caret_is_a_major_comparison() {
    check("^0", &["0.0.0", "0.99.9"], &["1.0.0"]);
    check("^0.0", &["0.0.0", "0.0.9"], &["0.1.0"]);
    check("^0.0.3", &["0.0.3"], &["0.0.2", "0.0.4"]);
    check("^0.2", &["0.2.0", "0.2.9"], &["0.1.9", "0.3.0"]);
    check("^0.2.3", &["0.2.3", "0.2.99"], &["0.2.2", "0.3.0"]);
    check("^1.2.x", &["1.2.0", "1.99.0"], &["1.1.9", "2.0.0"]);
    check("^1.2.3", &["1.2.3", "1.3.0"], &["1.2.2", "2.0.0"]);
    check("^2.x", &["2.0.0", "2.9.9"], &["1.9.9", "3.0.0"]);
    check("^2.3", &["2.3.0", "2.99.0"], &["2.2.9", "3.0.0"]);
}

#[test]
fn comparisons_combine() {
    check(">=1.11, <1.13", &["1.11.0", "1.12.9"], &["1.10.9", "1.13.0"]);
    check(">=1.11 <1.13", &["1.11.0", "1.12.9"], &["1.10.9", "1.13.0"]);
    check("1.11.1", &["1.11.1"], &["1.11.0", "1.11.2"]);
    check(">1.11.1", &["1.11.2", "2.0.0"], &["1.11.1", "1.11.0"]);
    check("1.14.0", &["1.14.0"], &["1.14.1"]);
    check("1.14.x", &["1.14.7"], &["1.15.0"]);
    check(">=1.16", &["1.16.0", "2.0.0"], &["1.15.9"]);
    check("~1.11.0 || ^2.3", &["1.11.4", "2.5.0"], &["1.12.0", "3.0.0"]);
    for same in ["=1.11.x", "=1.11.X", "=1.11.*", "1.11.*"] {
        check(same, &["1.11.0"], &["1.12.0"]);
    }
    check("!=1.12.0", &["1.12.1"], &["1.12.0"]);
    check("=1.12.0", &["1.12.0"], &["1.12.1"]);
    check(">= 1.2.0, < 2.0.0", &["1.2.0", "1.99.0"], &["1.1.9", "2.0.0"]);
}

#[test]
fn every_spelling_of_an_operator_counts() {
    check("=>1.2", &["1.2.0"], &["1.1.9"]);
    check("=<1.2", &["1.2.9"], &["1.3.0"]);
    check("~>1.2", &["1.2.9"], &["1.3.0"]);
    check("v1.2.3", &["1.2.3", "v1.2.3"], &["1.2.4"]);
    check("01.2.3", &["1.2.3"], &[]);
    check("1.2 - 1.4.5", &["1.2.0", "1.4.5"], &["1.1.9", "1.4.6"]);
    check(
        "1 - 2 || 4 - 5",
        &["1.0.0", "2.9.9", "4.0.0"],
        &["3.0.0", "6.0.0"],
    );
    check("^1||^2", &["1.5.0", "2.5.0"], &["3.0.0"]);
    check("1||2 - 3", &["1.5.0", "2.0.0", "3.9.9"], &["0.9.9", "4.0.0"]);
    check("1 - 2 >=1.5", &["1.5.0", "2.9.9"], &["1.4.9", "3.0.0"]);
    check("1 - 2 1.5 - 3,1.6 - 4", &["1.6.0", "2.9.9"], &["1.5.9", "3.0.0"]);
    check("1-2", &["1.0.0-2"], &["1.0.0-1", "2.0.0"]);
    check("  >=1.0.0\t<2.0.0 , !=1.5.0 ", &["1.0.0"], &["1.5.0", "2.0.0"]);
}

#[test]
fn comparisons_with_missing_numbers_cover_all_they_leave_open() {
    check(">11", &["12.0.0"], &["11.0.0", "11.9.9"]);
    check(">11.1", &["11.2.0", "12.0.0"], &["11.1.9"]);
    check("<=2.1", &["2.1.9"], &["2.2.0"]);
    check("<1.x", &["0.9.9"], &["1.0.0"]);
    check("!=1", &["2.0.0", "0.9.0"], &["1.9.9"]);
    check("!=1.2.x", &["1.3.0"], &["1.2.0", "1.2.9"]);
    check("1.x.3", &["1.0.0", "1.9.9"], &["2.0.0"]);
    check("~0.0.0", &["0.0.0", "5.0.0"], &[]);
}

#[test]
fn prereleases_pass_where_one_is_named() {
    check(">=1.2.0", &[], &["2.0.0-rc.1"]);
    check("*", &[], &["1.0.0-rc.1"]);
    check(">=1.0.0-0 <2.0.0", &["1.5.0-rc.1", "2.0.0-rc.1"], &["2.0.0"]);
    check(">=1.2.3-0", &["1.2.4-alpha", "2.0.0-rc.1"], &["1.2.2"]);
    check("^1 || >=2.0.0-0", &["2.0.0-rc.1"], &["1.5.0-rc.1"]);
    check("1.0.0-rc.2", &["1.0.0-rc.2"], &["1.0.0-rc.1", "1.0.0"]);
    check(
        ">1.0.0-rc.2 <1.0.0",
        &["1.0.0-rc.10", "1.0.0-rc.a"],
        &["1.0.0-rc.1", "1.0.0"],
    );
    let everything = Constraint::parse("*").unwrap();
    assert!(everything.check_with(&Version::parse("1.0.0-rc.1").unwrap(), Prereleases::Everywhere));
}

#[test]
fn build_metadata_counts_for_nothing() {
    check("1.0.0+2", &["1.0.0", "1.0.0+1", "1.0.0+3"], &["1.0.1"]);
    check("!=1.0.0", &[], &["1.0.0+3"]);
    check("<=1.0.0", &["1.0.0+3"], &[]);
}

#[test]
fn an_invalid_constraint_is_refused() {
    for text in [
        "",
        " ",
        "latest",
        "1.2.3.4",
        "==1.2.3",
        "! 1.2.3",
        "1.2.3,",
        ",1",
        ">=1.0.0>2",
        "1 - 2>3",
        ">=1 2 - 3",
        ">1 - 2",
        "1 - 2 - 3",
        "1 -2",
        "1 | x |",
    ] {
        refused(
            text,
            &if text == "1 | x |" {
                "constraint parser error".to_owned()
            } else {
                format!("improper constraint: {text:?}")
            },
        );
    }
    refused("1.0 ||", "improper constraint: \"\"");
    refused("1.0 || foo || 2", "improper constraint: \" foo \"");
    for text in [
        ">=1.2.3-01",
        "99999999999999999999.0.0",
        "1x.0",
        "xx",
        "|",
        "x.1|2",
        "1|2",
    ] {
        refused(text, "constraint parser error");
    }
    refused(
        &format!(">={}", "1".repeat(511)),
        "constraint string is too long (max 512 bytes)",
    );
    refused(&["1"; 33].join("||"), "too many constraint groups (max 32)");
}

#[test]
fn a_constraint_is_shown_as_it_was_written() {
    for (text, expected) in [
        ("*", "*"),
        (">= 1.2.3", ">=1.2.3"),
        ("2.x,   >=1.2.3 || =>4.5.6, < 5.7", "2.x >=1.2.3 || =>4.5.6 <5.7"),
        ("1.2 - v1.4", ">=1.2 <=v1.4"),
    ] {
        assert_eq!(Constraint::parse(text).unwrap().to_string(), expected);
    }
}

#[test]
fn versions_have_three_degrees_of_strictness() {
    let check = |text: &str, accepted: [bool; 3]| {
        let found = [Spelling::Coerced, Spelling::Partial, Spelling::Strict]
            .map(|spelling| parse_version(text, spelling).is_ok());
        assert_eq!(found, accepted, "{text:?}");
    };
    check("1.2.3-alpha.1+test.01", [true, true, true]);
    check("v1.2.3", [true, true, false]);
    check("1", [true, true, false]);
    check("1.2-5", [true, true, false]);
    check("01.1.1", [true, false, false]);
    for text in [
        "",
        "1.2.3.4",
        "1.2.3-01",
        "1.2.beta",
        "1.1.2+.123",
        "1.0.0-a..b",
        " 1",
        "1 ",
        "x",
        "1.x",
    ] {
        check(text, [false; 3]);
    }
    check(&format!("1.0.0-{}", "a".repeat(251)), [false; 3]);
}

#[test]
fn raising_a_number_resets_the_following_ones() {
    for (text, part, expected) in [
        ("1.2.3", Component::Patch, "1.2.4"),
        ("1.2.3-beta+meta", Component::Patch, "1.2.3"),
        ("1.2.3-beta+meta", Component::Minor, "1.3.0"),
        ("1.2.3", Component::Major, "2.0.0"),
    ] {
        assert_eq!(
            increment(&Version::parse(text).unwrap(), part).to_string(),
            expected
        );
    }
}

fn numbers() -> impl Strategy<Value = (u64, u64, u64)> {
    (0..4_u64, 0..4_u64, 0..4_u64)
}

#[test]
fn one_version_alone_is_exact() {
    let check = |text: &str, expected: Option<&str>| {
        let constraint = Constraint::parse(text).unwrap();
        let found = constraint.exact().map(ToString::to_string);
        assert_eq!(found.as_deref(), expected, "{text}");
    };
    for text in ["1.2.3", "=1.2.3", "= v1.2.3", " 1.2.3 "] {
        check(text, Some("1.2.3"));
    }
    check("1.2.3-rc.1", Some("1.2.3-rc.1"));
    for text in [
        "1.2",
        "1.x",
        "*",
        "~1.2.3",
        ">=1.2.3",
        "1.2.3 || 1.2.4",
        ">=1.2.3 <=1.2.3",
    ] {
        check(text, None);
    }
}

proptest! {
    #[test]
    fn widening_operators_are_pairs_of_bounds((a, b, c) in numbers(), (x, y, z) in numbers()) {
        let version = format!("{x}.{y}.{z}");
        let upper = match (a, b) {
            (0, 0) => format!("0.0.{}", c + 1),
            (0, _) => format!("0.{}.0", b + 1),
            _ => format!("{}.0.0", a + 1),
        };
        for (short, long) in [
            (format!("^{a}.{b}.{c}"), format!(">={a}.{b}.{c}, <{upper}")),
            (format!("{a}.{b}"), format!(">={a}.{b}.0 <{a}.{}.0", b + 1)),
            (format!("~{a}"), format!(">={a}.0.0 <{}.0.0", a + 1)),
            (format!(">{a}.{b}"), format!(">={a}.{}.0", b + 1)),
            (format!("<={a}"), format!("<{}.0.0", a + 1)),
            (format!("!={a}.{b}.x"), format!("<{a}.{b}.0 || >={a}.{}.0", b + 1)),
        ] {
            prop_assert_eq!(admits(&short, &version), admits(&long, &version), "{} {} {}", short, long, version);
        }
        if (a, b, c) != (0, 0, 0) {
            let (short, long) = (format!("~{a}.{b}.{c}"), format!(">={a}.{b}.{c}, <{a}.{}.0", b + 1));
            prop_assert_eq!(admits(&short, &version), admits(&long, &version));
        }
    }

    #[test]
    fn a_printed_constraint_means_the_same(
        terms in proptest::collection::vec("(=|!=|>|<|>=|=>|<=|=<|~|~>|\\^)? ?v?[0-3xX*](\\.[0-3x]){0,2}(-(0|rc\\.1))?", 1..4),
        separator in prop::sample::select(vec![" ", ",", " , ", "||", " || "]),
        (x, y, z) in numbers(),
        prerelease in prop::sample::select(vec!["", "-0", "-rc.1", "-rc.2"]),
    ) {
        let text = terms.join(separator);
        let constraint = Constraint::parse(&text);
        prop_assert!(constraint.is_ok(), "{}", text);
        let constraint = constraint.unwrap();
        let again = Constraint::parse(&constraint.to_string()).unwrap();
        let version = Version::parse(&format!("{x}.{y}.{z}{prerelease}")).unwrap();
        prop_assert_eq!(constraint.check(&version), again.check(&version), "{} {}", constraint, version);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ 0-9xX*v.,|<>=!~^+aé-]{0,40}") {
        let _ = Constraint::parse(&text);
        let _ = parse_version(&text, Spelling::Coerced);
    }
}
