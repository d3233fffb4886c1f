//! Admission accepts the same values of `spec.source.catalog.version` as the range grammar.

#![expect(clippy::unwrap_used, reason = "what a test cannot read fails it")]

use std::sync::LazyLock;

use olm_api::crd::{VersionPattern, version_pattern};
use olm_version::masterminds::Constraint;
use proptest::prelude::*;
use regex::Regex;

/// The schema's `maxLength` of the field.
const MAX_LENGTH: usize = 64;

/// The pattern as the API server evaluates it: RE2's classes are ASCII, and do not contain the vertical tab.
struct Admission {
    accepted: Regex,
    refused: Regex,
}

static ADMISSION: LazyLock<Admission> = LazyLock::new(Admission::new);

impl Admission {
    fn new() -> Self {
        let VersionPattern { accepted, refused } = version_pattern();
        let as_re2 = |pattern: &str| {
            // Inside a class the brackets already exist.
            let classes = pattern
                .replace(r"[\s,", r"[\t\n\f\r ,")
                .replace(r"\s", r"[\t\n\f\r ]");
            Regex::new(&classes).unwrap()
        };
        Self {
            accepted: as_re2(&accepted),
            refused: as_re2(&refused),
        }
    }

    fn admits(&self, text: &str) -> bool {
        text.chars().count() <= MAX_LENGTH && self.accepted.is_match(text) && !self.refused.is_match(text)
    }
}

/// Checks that both give the same result, and returns it.
fn agree(text: &str) -> Result<bool, String> {
    let (admitted, parsed) = (ADMISSION.admits(text), Constraint::parse(text));
    if text.chars().count() > MAX_LENGTH || admitted == parsed.is_ok() {
        return Ok(admitted);
    }
    Err(format!(
        "{text:?}: admission says {admitted}, the grammar says {parsed:?}"
    ))
}

#[test]
fn corners_of_the_grammar_are_the_same_for_both() {
    for (text, expected) in [
        ("*", true),
        ("v1.2.3", true),
        ("01.2", true),
        (">= 1.2, <2 || ~3", true),
        ("1||2 - 3", true),
        ("1 - 2 3 - 4 , 5 - 6 >=1", true),
        ("\t1\n-\r2\u{c}", true),
        ("x.1x.99999999999999999999", true),
        ("1.x.99999999999999999999", true),
        ("18446744073709551615", true),
        ("1.2-0.99999999999999999999", true),
        ("1.2--", true),
        ("1+001.-", true),
        ("", false),
        (" ", false),
        (",1", false),
        ("1,", false),
        ("1,,2", false),
        ("||1", false),
        ("1||", false),
        ("1|2", false),
        ("x.1|2", false),
        ("1 | 2", false),
        ("1 - 2>3", false),
        (">=1 2 - 3", false),
        (">=1 - 2", false),
        ("1 - 2 - 3", false),
        ("1.2.3.4", false),
        ("1.2.3-01", false),
        ("x-01", false),
        ("1x", false),
        ("vv1", false),
        ("V1", false),
        ("18446744073709551616", false),
        ("1.0018446744073709551616", false),
        ("1 - 18446744073709551616", false),
        ("1 - v1.2.99999999999999999999", false),
        ("\u{b}1", false),
        ("1\u{a0}2", false),
        ("１", false),
        ("1\n\u{2028}", false),
    ] {
        assert_eq!(agree(text), Ok(expected), "{text:?}");
    }
}

/// A text of the grammar, or nearly so.
fn range() -> impl Strategy<Value = String> {
    let number = "[0-9]{1,2}|0[0-9]|[xX*]|1844674407370955161[4-7]";
    let version = (
        "v?",
        prop::collection::vec(number, 1..4),
        "(-(0|rc\\.1|a-|[1-9][0-9]?|0[1-9a])(\\.[0-9a]{1,2})?)?",
        "(\\+[0-9a-]{1,3}(\\.01)?)?",
    )
        .prop_map(|(v, numbers, prerelease, build)| format!("{v}{}{prerelease}{build}", numbers.join(".")));
    let term =
        ("(=|!=|>|<|>=|=>|<=|=<|~|~>|\\^)?[ \t]{0,2}", version.clone()).prop_map(|(o, v)| format!("{o}{v}"));
    let range =
        (version.clone(), "[ \n]{1,2}-[ \r]{1,2}", version).prop_map(|(a, h, b)| format!("{a}{h}{b}"));
    let item = prop_oneof![3 => term, 1 => range];
    let separator = prop::sample::select(vec![" ", ",", " , ", ", ", "||", " || ", "  ", "\t"]);
    (
        "[ ]?",
        item.clone(),
        prop::collection::vec((separator, item), 0..4),
        "[ ]?",
    )
        .prop_map(|(before, first, others, after)| {
            let others: String = others.into_iter().flat_map(|(s, i)| [s.to_owned(), i]).collect();
            format!("{before}{first}{others}{after}")
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranges_are_admitted_as_they_are_read(text in range()) {
        prop_assert_eq!(agree(&text).err(), None);
    }

    #[test]
    fn ranges_with_faults_are_admitted_as_they_are_read(
        text in range(),
        faults in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, "[ 0-9xv.,|<>=!~^+a\u{b}é-]"), 1..4),
    ) {
        let mut characters: Vec<char> = text.chars().collect();
        for (index, kind, with) in faults {
            let at = index.index(characters.len() + 1);
            let with: Vec<char> = with.chars().collect();
            let end = if kind == 0 { at } else { (at + 1).min(characters.len()) };
            characters.splice(at..end, if kind == 1 { Vec::new() } else { with });
        }
        let text: String = characters.into_iter().collect();
        prop_assert_eq!(agree(&text).err(), None);
    }

    #[test]
    fn any_text_is_admitted_as_it_is_read(text in "[ 0-3xX*v.,|<>=!~^+a\t\u{b}é-]{0,12}") {
        prop_assert_eq!(agree(&text).err(), None);
    }
}
