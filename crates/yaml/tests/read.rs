//! The meaning of YAML texts.

use std::fmt::Write;

use olm_yaml::{DuplicateKeys, ErrorKind, Limits, to_json, to_json_with};

fn read(text: &str) -> Result<String, String> {
    to_json(text)
        .map(|value| value.to_string())
        .map_err(|fault| fault.to_string())
}

fn check(text: &str, expected: &str) {
    assert_eq!(read(text), Ok(expected.to_owned()), "{text:?}");
}

fn refused(text: &str, expected: &str) {
    assert_eq!(read(text), Err(expected.to_owned()), "{text:?}");
}

#[test]
fn words_are_booleans_and_null_as_in_yaml_1_1() {
    for word in [
        "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
    ] {
        check(&format!("a: {word}"), r#"{"a":true}"#);
        check(&format!("{word}: 1"), r#"{"true":1}"#);
    }
    for word in [
        "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
    ] {
        check(&format!("a: {word}"), r#"{"a":false}"#);
    }
    for word in ["", "~", "null", "Null", "NULL"] {
        check(&format!("a: {word}"), r#"{"a":null}"#);
    }
    for word in ["yEs", "tRue", "nULL", "oN", "<<", "="] {
        check(&format!("a: {word}"), &format!(r#"{{"a":"{word}"}}"#));
        check(&format!("a: '{word}'"), &format!(r#"{{"a":"{word}"}}"#));
    }
}

#[test]
fn integers_have_four_bases_and_underscores() {
    for (text, expected) in [
        ("017", "15"),
        ("0o17", "15"),
        ("0x1F", "31"),
        ("-0x10", "-16"),
        ("0b101", "5"),
        ("0b-1", "-1"),
        ("+5", "5"),
        ("1_000", "1000"),
        ("-0", "0"),
        ("9223372036854775808", "9223372036854775808"),
        ("18446744073709551615", "18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0x", r#""0x""#),
        ("0b2", r#""0b2""#),
        ("_1", r#""_1""#),
        ("++1", r#""++1""#),
        ("0o8", r#""0o8""#),
    ] {
        check(&format!("- {text}"), &format!("[{expected}]"));
    }
}

#[test]
fn whole_floats_are_integers() {
    for (text, expected) in [
        ("1.0", "1"),
        ("1e3", "1000"),
        ("1.5e3", "1500"),
        ("08", "8"),
        ("0888.5", "888.5"),
        (".5", "0.5"),
        (".1_0", "0.1"),
        ("5.", "5"),
        ("1__0.5", "10.5"),
        ("-1.5e-3", "-0.0015"),
        ("1e400", r#""1e400""#),
        (".", r#"".""#),
        (".e3", r#"".e3""#),
        ("1.2.3", r#""1.2.3""#),
        ("1p4", r#""1p4""#),
        ("-9223372036854775809", "-9.223372036854776e+18"),
    ] {
        check(&format!("- {text}"), &format!("[{expected}]"));
    }
}

#[test]
fn timestamps_and_sexagesimals_are_text() {
    for text in [
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "1:30",
        "190:20:30.15",
    ] {
        check(&format!("- {text}"), &format!(r#"["{text}"]"#));
    }
}

#[test]
fn keys_become_text() {
    for (text, expected) in [
        ("1: a", "1"),
        ("0x10: a", "16"),
        ("1.0: a", "1"),
        ("0.1: a", "0.1"),
        ("1234567.5: a", "1.2345675e+06"),
        ("1e30: a", "1e+30"),
        (".inf: a", ".inf"),
        ("2001-01-01: a", "2001-01-01"),
        ("&x foo: a", "foo"),
        ("!!binary aGk=: a", "hi"),
    ] {
        check(text, &format!(r#"{{"{expected}":"a"}}"#));
    }
    refused("~: a", "line 1, column 1: unsupported map key: null");
    refused("[a]: a", "line 1, column 3: unsupported map key: a sequence");
    refused("{a: b}: a", "line 1, column 6: unsupported map key: a mapping");
    refused(
        "18446744073709551615: a",
        "line 1, column 1: unsupported map key: 18446744073709551615",
    );
}

#[test]
fn tags_decide_or_are_forgotten() {
    check("a: !foo bar", r#"{"a":"bar"}"#);
    check("a: ! 5", r#"{"a":"5"}"#);
    check("a: !!str 5", r#"{"a":"5"}"#);
    check("a: !!str", r#"{"a":""}"#);
    check("a: !<tag:yaml.org,2002:str> yes", r#"{"a":"yes"}"#);
    check("a: !!int '5'", r#"{"a":5}"#);
    check("a: !!float 1", r#"{"a":1}"#);
    check("a: !!binary aGk=", r#"{"a":"hi"}"#);
    check("a: !!binary |\n  aGVs\n  bG8=\n", r#"{"a":"hello"}"#);
    check("a: !!binary //8=", "{\"a\":\"\u{fffd}\u{fffd}\"}");
    check("!foo {a: !bar [b]}", r#"{"a":["b"]}"#);
    refused(
        "a: !!int 1.5",
        "line 1, column 10: cannot decode !!float `1.5` as a !!int",
    );
    refused(
        "a: !!timestamp noon",
        "line 1, column 16: cannot decode !!str `noon` as a !!timestamp",
    );
    refused(
        "a: !!binary a",
        "line 1, column 13: !!binary value contains invalid base64 data",
    );
    refused("a: .inf", "line 1, column 4: unsupported value: +Inf");
}

#[test]
fn the_last_of_two_equal_keys_counts_unless_refused() {
    check("a: 1\nb: 2\na: 3", r#"{"a":3,"b":2}"#);
    check("yes: 1\ntrue: 2", r#"{"true":2}"#);
    let strict = Limits {
        duplicate_keys: DuplicateKeys::Refuse,
        ..Limits::default()
    };
    let fault = to_json_with("a: 1\nb: {a: 2}\na: 3", &strict).expect_err("duplicate");
    assert_eq!(
        fault.to_string(),
        r#"line 3, column 1: key "a" already set in map"#
    );
}

#[test]
fn merge_keys_count_where_they_stand() {
    check(
        "x: &x {a: 1, b: 2}\nz:\n  <<: *x\n  b: 3",
        r#"{"x":{"a":1,"b":2},"z":{"a":1,"b":3}}"#,
    );
    check("a: 1\n<<: {a: 2}", r#"{"a":2}"#);
    check("<<: [{a: 1}, {a: 2, b: 2}]", r#"{"a":1,"b":2}"#);
    check("'<<': {a: 1}", r#"{"<<":{"a":1}}"#);
    let wrong = "map merge requires map or sequence of maps as the value";
    refused("<<: 1", &format!("line 1, column 5: {wrong}"));
    refused("<<: [[{a: 1}]]", &format!("line 1, column 14: {wrong}"));
    refused("s: &s [{a: 1}]\n<<: *s", &format!("line 2, column 5: {wrong}"));
}

#[test]
fn anchors_are_copied_and_bombs_refused() {
    check("a: &x [1, {b: 2}]\nc: *x", r#"{"a":[1,{"b":2}],"c":[1,{"b":2}]}"#);
    check("- &a 1\n- &a 2\n- *a", "[1,2,2]");
    refused(
        "a: &a [*a]",
        "line 1, column 8: an anchor's value contains itself",
    );
    refused(
        "a: *b",
        "line 1, column 4: while parsing node, found unknown anchor",
    );
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let fault = to_json(&bomb).expect_err("bomb");
    assert!(matches!(fault.kind, ErrorKind::ExcessiveAliasing), "{fault}");
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(1000), vec!["*a"; 90].join(", "));
    let small = Limits {
        bytes: 2000,
        ..Limits::default()
    };
    assert!(matches!(
        to_json_with(long, &small).expect_err("bytes").kind,
        ErrorKind::ExcessiveAliasing
    ));
}

#[test]
fn block_scalars_end_as_the_file_does() {
    check("a: |\n  x\n  y", r#"{"a":"x\ny"}"#);
    check("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#);
    check("a: >\n  x\n  y", r#"{"a":"x y"}"#);
    check("a: |+\n  x", r#"{"a":"x"}"#);
    check("a: |+\n  x\n\n", r#"{"a":"x\n\n"}"#);
    check("a: |\n  x\n ", r#"{"a":"x\n"}"#);
    check("a: |\n  x\n   ", r#"{"a":"x\n "}"#);
    check("a: |+\n  ", r#"{"a":""}"#);
    check("a: |\n  x\n# c", r#"{"a":"x\n"}"#);
    check("a: |\r\n  x\r\n  y\r\n", r#"{"a":"x\ny\n"}"#);
    check("a: |-\n  x\n", r#"{"a":"x"}"#);
}

#[test]
fn only_the_first_document_is_read() {
    check("", "null");
    check("# nothing\n", "null");
    check("---\n", "null");
    check("\u{feff}a: 1", r#"{"a":1}"#);
    check("a: 1\n---\n}", r#"{"a":1}"#);
    check("%YAML 1.1\n---\na: 1\n...\nb: 2", r#"{"a":1}"#);
    check(
        r#"{"b": [1, null], "a": {"c": "\u00e9\n"}}"#,
        r#"{"a":{"c":"é\n"},"b":[1,null]}"#,
    );
}

#[test]
fn further_lines_of_quoted_scalars_begin_anywhere() {
    check("a: \"x\ny\"\nb: 1", r#"{"a":"x y","b":1}"#);
    check("a:\n  b: 'x\n\n y\nz'\nc: 1", r#"{"a":{"b":"x\ny z"},"c":1}"#);
    check("- \"x\n# y\"\n- 2", r#"["x # y",2]"#);
    assert!(to_json("a: x\ny\nb: 1").is_err());
}

#[test]
fn faults_name_their_place() {
    refused("a: 1\nb: [", "line 2, column 4: unclosed bracket '['");
    refused(
        "a:\n\tb: c",
        "line 2, column 2: tabs disallowed within this context (block indentation)",
    );
    refused("\ta: b", "line 1, column 1: found a tab where a line begins");
    refused(
        "---\n\ta: b\nc: d",
        "line 2, column 1: found a tab where a line begins",
    );
    let fault = to_json(b"a: 1\nb: \xff\n").expect_err("encoding");
    assert_eq!(fault.to_string(), "line 2, column 1: the text is not valid UTF-8");
}

#[test]
fn anchors_inside_one_another_are_not_kept_without_end() {
    let nested = |levels: usize, text: &str| {
        let open: Vec<String> = (0..levels).map(|level| format!("&a{level} [")).collect();
        format!("{}\"{text}\"{}", open.concat(), "]".repeat(levels))
    };
    let limits = Limits {
        bytes: 100_000,
        nodes: 10_000,
        ..Limits::default()
    };
    let text = "x".repeat(1000);
    assert!(to_json_with(nested(90, &text), &limits).is_ok());
    assert!(matches!(
        to_json_with(nested(110, &text), &limits).expect_err("bytes").kind,
        ErrorKind::ExcessiveAliasing
    ));
    let wide = nested(110, "").replace("\"\"", &"0,".repeat(100));
    assert!(matches!(
        to_json_with(wide, &limits).expect_err("nodes").kind,
        ErrorKind::TooManyNodes(10_000)
    ));
}

#[test]
fn limits_hold() {
    let deep = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(to_json(&deep).is_err());
    check(
        &format!("{}{}", "[".repeat(120), "]".repeat(120)),
        &format!("{}{}", "[".repeat(120), "]".repeat(120)),
    );
    let fault = to_json(format!("{}{}", "[".repeat(121), "]".repeat(121))).expect_err("depth");
    assert!(matches!(fault.kind, ErrorKind::TooDeep(120)), "{fault}");
    let block: Vec<String> = (0..121).map(|level| " ".repeat(level) + "a:").collect();
    assert!(matches!(
        to_json(block.join("\n")).expect_err("depth").kind,
        ErrorKind::TooDeep(120)
    ));
    let climbing: String = std::iter::once("a0: &a0 x\n".to_owned())
        .chain((1..150).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1)))
        .collect();
    assert!(matches!(
        to_json(&climbing).expect_err("depth").kind,
        ErrorKind::TooDeep(120)
    ));
    let few = Limits {
        nodes: 3,
        bytes: 20,
        ..Limits::default()
    };
    assert!(to_json_with("[a, b]", &few).is_ok());
    assert!(matches!(
        to_json_with("[a, b, c]", &few).expect_err("nodes").kind,
        ErrorKind::TooManyNodes(3)
    ));
    assert!(matches!(
        to_json_with("a".repeat(21), &few).expect_err("bytes").kind,
        ErrorKind::TooLarge(20)
    ));
}
