//! The written form of values.

use olm_yaml::{to_json, to_yaml};
use proptest::prelude::*;
use serde_json::{Value, json};

fn check(value: &Value, expected: &str) {
    assert_eq!(to_yaml(value), expected);
}

#[test]
fn collections_stand_at_the_column_of_their_key() {
    check(&json!({}), "{}\n");
    check(&json!([]), "[]\n");
    check(&json!("x"), "x\n");
    check(
        &json!({"b": [1, [2, [], {}], {"d": null, "c": {"e": true}}], "a": {"z": [{"y": 1, "x": [2]}]}}),
        "a:\n  z:\n  - x:\n    - 2\n    \"y\": 1\nb:\n- 1\n- - 2\n  - []\n  - {}\n- c:\n    e: true\n  d: null\n",
    );
}

#[test]
fn keys_are_sorted_with_numbers_as_numbers() {
    let keys = [
        "v10", "v2", "v1", "_a", "A", "a", "10", "9", "a.b", "a-b", "a0", "a00",
    ];
    let value: Value = keys
        .iter()
        .map(|key| ((*key).to_owned(), json!(1)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let written: Vec<String> = to_yaml(&value)
        .lines()
        .map(|line| line.trim_end_matches(": 1").replace('"', ""))
        .collect();
    assert_eq!(
        written,
        [
            "_a", "9", "10", "A", "a", "a-b", "a.b", "a0", "a00", "v1", "v2", "v10"
        ]
    );
}

#[test]
fn keys_whose_order_goes_in_circles_are_written_all() {
    let value = json!({"a10": 1, "a1b": 1, "a2": 1, "a1c": 1, "a02": 1});
    assert_eq!(to_yaml(&value).lines().count(), 5);
}

#[test]
fn text_that_reads_as_something_else_is_quoted() {
    for (text, expected) in [
        ("", r#""""#),
        ("yes", r#""yes""#),
        ("y", r#""y""#),
        ("null", r#""null""#),
        ("1", r#""1""#),
        ("1.0", r#""1.0""#),
        ("017", r#""017""#),
        ("1_000", r#""1_000""#),
        (".5", r#"".5""#),
        ("2001-01-01", r#""2001-01-01""#),
        ("2001-02-30", "2001-02-30"),
        ("2001-1-1 2:3:4", r#""2001-1-1 2:3:4""#),
        ("2001-01-01T02:03:04.5Z", r#""2001-01-01T02:03:04.5Z""#),
        ("1:30", r#""1:30""#),
        ("1:70", "1:70"),
        ("1.2.3", "1.2.3"),
        ("<<", "<<"),
        ("a b", "a b"),
        (" a", "' a'"),
        ("a ", "'a '"),
        ("a: b", "'a: b'"),
        ("a:b", "a:b"),
        ("a #b", "'a #b'"),
        ("a#b", "a#b"),
        ("- a", "'- a'"),
        ("-a", "-a"),
        ("it's", "it's"),
        ("'a'", "'''a'''"),
        ("@a", "'@a'"),
        ("---a", "'---a'"),
        ("é", "é"),
        ("a\tb", r#""a\tb""#),
        ("\u{1f600}", r#""\U0001F600""#),
        ("\u{85}", r#""\N""#),
        ("\u{7f}", r#""\x7F""#),
    ] {
        check(&json!({ "k": text }), &format!("k: {expected}\n"));
    }
}

#[test]
fn text_of_several_lines_is_a_block() {
    check(&json!({"a": "x\ny\n", "b": 1}), "a: |\n  x\n  y\nb: 1\n");
    check(&json!({"a": "x\ny", "b": 1}), "a: |-\n  x\n  y\nb: 1\n");
    check(&json!({"a": "x\n\n\n", "b": 1}), "a: |+\n  x\n\n\nb: 1\n");
    check(&json!(["\n"]), "- |2+\n\n");
    check(&json!([["  x\n\ny\n"]]), "- - |2\n      x\n\n    y\n");
    check(&json!({"a": "x \ny"}), "a: \"x \\ny\"\n");
    check(&json!({"a": "x\ny "}), "a: \"x\\ny \"\n");
}

#[test]
fn long_lines_fold_after_eighty_columns() {
    let words = vec!["word"; 20].join(" ");
    let first = vec!["word"; 16].join(" ");
    let second = ["word"; 4].join(" ");
    check(&json!({"k": words}), &format!("k: {first}\n  {second}\n"));
    check(&json!({"k": [words]}), &format!("k:\n- {first}\n  {second}\n"));
    check(
        &json!({"k": format!("'{words}")}),
        &format!("k: '''{first}\n  {second}'\n"),
    );
    check(
        &json!({"k": format!("\t{words}")}),
        &format!("k: \"\\t{first}\n  {second}\"\n"),
    );
}

#[test]
fn long_keys_follow_a_question_mark() {
    let key = "k".repeat(129);
    check(
        &json!({ &key: {"a": [1]}, "b\nc": [2, 3] }),
        &format!("? |-\n  b\n  c\n: - 2\n  - 3\n? {key}\n: a:\n  - 1\n"),
    );
    check(
        &json!({ "k".repeat(128): 1 }),
        &format!("{}: 1\n", "k".repeat(128)),
    );
}

#[test]
fn numbers_have_the_spelling_of_yaml() {
    for (value, expected) in [
        (json!(1), "1"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(-5), "-5"),
        (json!(1.5), "1.5"),
        (json!(1.0), "1"),
        (json!(1e6), "1e+06"),
        (json!(1e21), "1e+21"),
        (json!(1e-5), "1e-05"),
        (json!(0.0001), "0.0001"),
        (json!(1_234_567.5), "1.2345675e+06"),
        (json!(-0.0), "-0"),
    ] {
        check(&value, &format!("{expected}\n"));
    }
}

fn values() -> impl Strategy<Value = Value> {
    // Two separators that are line breaks only in YAML 1.1 are written as such and read as text.
    let text = "[ -~\\n\\té\u{1f600}\u{85}\u{feff}]{0,12}|(word ){0,40}x";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Whole numbers come back as integers, which another test covers.
        (-1e9..1e9_f64)
            .prop_filter("whole", |number| number.fract() != 0.0)
            .prop_map(Value::from),
        text.prop_map(Value::from),
        "[0-9._+:xeobTZ-]{1,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-z0-9 :#'\\n-]{0,6}", inner, 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn written_documents_read_back_equal(value in values()) {
        let text = to_yaml(&value);
        let read = to_json(&text);
        prop_assert!(read.is_ok(), "{text}\n{read:?}");
        prop_assert_eq!(read.unwrap(), value, "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ -~\\n\\t]{0,60}") {
        let _ = to_json(&text);
    }

    #[test]
    fn no_row_of_indicators_makes_the_reader_panic(
        parts in proptest::collection::vec(
            prop::sample::select(vec![
                "a", "1", "- ", ": ", "\n", "\n  ", "\n    ", "'", "\"", "{", "}", "[", "]", ", ", "|\n", ">-\n  ",
                "&x ", "*x", "!!str ", "!!int ", "!", "# ", "? ", "<<: ", "---\n", "...", "\t", "\r\n", "\u{feff}", "%",
            ]),
            0..16,
        ),
    ) {
        let _ = to_json(parts.concat());
    }
}
