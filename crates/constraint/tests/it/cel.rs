//! The expression language.

use olm_constraint::cel::{Budget, CompileError, Program, Value};
use serde_json::{Value as Json, json};

fn properties(list: &Json) -> Value {
    let list = list.as_array().unwrap();
    let texts: Vec<String> = list.iter().map(|entry| entry["value"].to_string()).collect();
    let kinds = list.iter().map(|entry| entry["type"].as_str().unwrap());
    Value::properties(kinds.zip(texts.iter().map(String::as_str)))
}

fn evaluate(rule: &str, list: &Json) -> String {
    match Program::compile(rule) {
        Err(CompileError::NotBool) => "not a boolean".to_owned(),
        Err(_) => "refused".to_owned(),
        Ok(program) => match program.evaluate(&properties(list), &mut Budget::default()) {
            Ok(value) => value.to_string(),
            Err(_) => "error".to_owned(),
        },
    }
}

fn check(cases: &[(&str, &str)]) {
    let list = json!([
        {"type": "certified", "value": null},
        {"type": "olm.package", "value": {"packageName": "blue", "version": "1.2.0"}},
        {"type": "sizes", "value": [1, 2.5, 3]},
        {"type": "count", "value": 3},
        {"type": "ok", "value": true},
    ]);
    for (rule, expected) in cases {
        assert_eq!(evaluate(rule, &list), *expected, "{rule}");
    }
}

#[test]
fn a_rule_asks_for_a_property() {
    let rule = r#"properties.exists(p, p.type == "certified")"#;
    assert_eq!(
        evaluate(rule, &json!([{"type": "certified", "value": true}])),
        "true"
    );
    assert_eq!(
        evaluate(rule, &json!([{"type": "stable", "value": true}])),
        "false"
    );
    assert_eq!(evaluate(rule, &json!([])), "false");
}

#[test]
fn a_rule_with_a_syntax_error_or_another_type_is_refused() {
    check(&[
        ("properties.exists(p, p.type ==", "refused"),
        ("", "refused"),
        ("true true", "refused"),
        ("(true", "refused"),
        ("'open", "refused"),
        ("\"\\q\" == ''", "refused"),
        ("1", "not a boolean"),
        ("'true'", "not a boolean"),
        ("properties", "not a boolean"),
        ("properties[0].value", "not a boolean"),
        ("dyn(true)", "not a boolean"),
        ("true ? properties[0].value : true", "not a boolean"),
        ("semver_compare('1', '2')", "not a boolean"),
    ]);
}

#[test]
fn unknown_names_and_wrong_types_are_refused_before_evaluation() {
    check(&[
        ("unknown == 1", "refused"),
        ("doesnt_exist(1) == 0", "refused"),
        ("p.type == 'x'", "refused"),
        ("1 == 'a'", "refused"),
        ("1 == 1.0", "refused"),
        ("1 < 2.0", "refused"),
        ("1 + 1u == 2", "refused"),
        ("!1", "refused"),
        ("true && 1", "refused"),
        ("true ? 1 : 'a'", "refused"),
        ("'a'.exists(c, true)", "refused"),
        ("properties.exists('p', true)", "refused"),
        ("properties.exists(p, p)", "refused"),
        ("properties.type == 'x'", "refused"),
        ("'abc'.foo()", "refused"),
        ("semver_compare('1') == 0", "refused"),
        ("'1'.semver_compare('1') == 0", "refused"),
        ("has(properties)", "refused"),
        ("9223372036854775808 == 1", "refused"),
        ("size(1) == 1", "refused"),
        ("package == 1", "refused"),
        ("1 in 'a'", "refused"),
        ("1 in ['a']", "refused"),
        ("[1][true] == 1", "refused"),
        ("Message{a: 1} == null", "refused"),
    ]);
}

#[test]
fn operators_and_literals_follow_the_language_definition() {
    check(&[
        ("1 + 2 * 3 == 7", "true"),
        ("(1 + 2) * 3 == 9", "true"),
        ("7 / 2 == 3 && -7 / 2 == -3 && 7 % 4 == 3", "true"),
        ("10 - 2 - 3 == 5", "true"),
        ("1.5 + 1.5 == 3.0 && .5 == 0.5 && 1e3 == 1000.0", "true"),
        ("0x10 == 16 && 3u == 3u && 0xFu == 15u", "true"),
        ("-9223372036854775808 < 0", "true"),
        ("--1 == 1 && !!true", "true"),
        ("- -1 == 1", "true"),
        ("1 < 2 == true", "true"),
        ("true || 1 / 0 == 1", "true"),
        ("1 / 0 == 1 || true", "true"),
        ("false && 1 / 0 == 1", "false"),
        ("1 / 0 == 1 || false", "error"),
        ("1 % 0 == 1", "error"),
        ("1.0 / 0.0 > 1e308", "true"),
        ("9223372036854775807 + 1 == 0", "error"),
        ("0u - 1u == 0u", "error"),
        ("true ? 1 == 1 : 1 / 0 == 1", "true"),
        ("false ? true : true ? false : true", "false"),
        (
            "'a' + 'b' == \"ab\" && r'\\n' == '\\\\n' && '''a\nb''' == 'a\\nb'",
            "true",
        ),
        (
            "'\\x41\\u0042\\103' == 'ABC' && b'\\xff' != b'\\x00' && b'abc' < b'abd'",
            "true",
        ),
        ("[1, 2] + [3] == [1, 2, 3] && 2 in [1, 2]", "true"),
        (
            "{'a': 1}.a == 1 && {'a': 1}['a'] == 1 && 'a' in {'a': 1} && has({'a': 1}.a)",
            "true",
        ),
        ("{'a': 1}.b == 1", "error"),
        ("has({'a': 1}.b)", "false"),
        ("{'a': 1, 'a': 2}.a == 1", "error"),
        ("[1, 2,] == [1, 2]", "true"),
        ("[1, 'a', null].size() == 3", "true"),
        ("[][0] == 1", "error"),
        (
            "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1) != 'a' && dyn(1) < 1.5",
            "true",
        ),
        ("dyn('a') < 1", "error"),
        ("null == null && dyn(1) != null", "true"),
        (
            "type(1) == int && type('') == string && type(type(1)) == type",
            "true",
        ),
        ("type(timestamp(0)) == google.protobuf.Timestamp", "true"),
        ("true // a comment\n && true", "true"),
    ]);
}

#[test]
fn functions_follow_the_language_definition() {
    check(&[
        (
            "size('añb') == 3 && 'abc'.size() == 3 && size([1]) == 1 && size({}) == 0 && size(b'ab') == 2",
            "true",
        ),
        (
            "'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b')",
            "true",
        ),
        (
            "'abc'.matches('^a.c$') && matches('abc', 'b') && !'abc'.matches('^b')",
            "true",
        ),
        ("'abc'.matches('(')", "error"),
        (
            "int('12') == 12 && int(2.9) == 2 && int(3u) == 3 && int('x') == 1",
            "error",
        ),
        (
            "int('12') == 12 && int(-2.9) == -2 && uint(3) == 3u && double('1.5') == 1.5",
            "true",
        ),
        (
            "string(1) == '1' && string(1.5) == '1.5' && string(true) == 'true' && string(b'a') == 'a'",
            "true",
        ),
        ("string(1e21) == '1e+21' && string(100.0) == '100'", "true"),
        ("bool('true') && !bool('F')", "true"),
        ("uint(-1) == 0u", "error"),
        (
            "timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')",
            "true",
        ),
        ("timestamp('2024-02-29T12:00:00Z').getMonth() == 1", "true"),
        ("timestamp('2024-02-29T23:30:00Z').getDate('+01:00') == 1", "true"),
        (
            "timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')",
            "true",
        ),
        (
            "timestamp('2024-01-01T00:00:00Z') + duration('1h') == timestamp('2024-01-01T01:00:00Z')",
            "true",
        ),
        (
            "duration('90m').getHours() == 1 && duration('1.5s').getMilliseconds() == 1500",
            "true",
        ),
        ("timestamp('yesterday') == timestamp(0)", "error"),
    ]);
}

#[test]
fn macros_range_over_lists_and_the_keys_of_maps() {
    check(&[
        ("[1, 2, 3].all(x, x > 0) && ![1, 2].all(x, x > 1)", "true"),
        ("[].all(x, false) && ![].exists(x, true)", "true"),
        (
            "[1, 2].exists_one(x, x == 1) && ![1, 1].exists_one(x, x == 1)",
            "true",
        ),
        (
            "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x * 2) == [4]",
            "true",
        ),
        ("[1, 2, 3].filter(x, x != 2) == [1, 3]", "true"),
        ("{'a': 1, 'b': 2}.exists(k, k == 'b')", "true"),
        ("[1, 2].exists(x, 1 / (x - 1) == 1)", "true"),
        ("[1, 3].exists(x, 1 / (x - 1) == 1)", "error"),
        ("[1, 2].all(x, 1 / (x - 1) == 2)", "false"),
        ("[[1], [2]].exists(x, x.exists(y, y == 2))", "true"),
        ("[1].exists(properties, properties == 1)", "true"),
    ]);
}

#[test]
fn properties_are_maps_of_type_and_value_whose_numbers_are_doubles() {
    check(&[
        ("properties.exists(p, p.type == 'certified')", "true"),
        (
            "properties[0].type == 'certified' && properties[0].value == null",
            "true",
        ),
        ("properties.exists(p, p.type == 'count' && p.value == 3)", "true"),
        ("properties.exists(p, p.type == 'count' && p.value > 2.0)", "true"),
        (
            "properties.exists(p, p.type == 'sizes' && 2.5 in p.value && 3 in p.value)",
            "true",
        ),
        (
            "properties.exists(p, p.type == 'olm.package' && p.value.packageName == 'blue')",
            "true",
        ),
        (
            "properties.exists(p, p.type == 'olm.package' && p.value.missing == 'x')",
            "error",
        ),
        ("properties.exists(p, p.nokey == 'x')", "error"),
        ("properties.exists(p, p.type == 'ok' && p.value)", "true"),
        (
            "properties.exists(p, p.type == 'olm.package' && has(p.value.version))",
            "true",
        ),
        ("properties.filter(p, p.type == 'ok').size() == 1", "true"),
        (
            "properties.exists(p, p.type == 'count' && has(p.value.version))",
            "false",
        ),
    ]);
}

#[test]
fn macros_go_over_values_of_properties_only_when_these_are_called_dynamic() {
    check(&[
        ("properties.exists(p, p.value.exists(x, x == 3))", "refused"),
        ("properties.exists(p, p['value'].exists(x, x == 3))", "refused"),
        (
            "properties.map(p, p.value).exists(v, v.exists(x, x == 3))",
            "refused",
        ),
        (
            "properties.exists(p, p.type == 'sizes' && dyn(p.value).exists(x, x == 3))",
            "true",
        ),
        (
            "properties.exists(p, p.type == 'sizes' && p.value.size() > 1)",
            "true",
        ),
    ]);
}

#[test]
fn versions_are_compared_as_people_write_them() {
    check(&[
        ("semver_compare('1.0.0', '1.0.1') == -1", "true"),
        ("semver_compare('v1.2', '1.2.0') == 0", "true"),
        ("semver_compare('1.0.0+a', '1.0.0+b') == 0", "true"),
        ("semver_compare('1.0.0-rc.1', '1.0.0') < 0", "true"),
        (
            "semver_compare(1, '1.0.0') == 0 && semver_compare(1.5, '1.5.0') == 0",
            "true",
        ),
        (
            "properties.exists(p, p.type == 'olm.package' && semver_compare(p.value.version, '1.1.9') > 0)",
            "true",
        ),
        ("semver_compare('nope', '1.0.0') == 0", "error"),
        ("semver_compare(null, '1.0.0') == 0", "error"),
        ("semver_compare([1], '1.0.0') == 0", "error"),
    ]);
}

#[test]
fn an_error_names_its_place() {
    let error = Program::compile("true &&\n  unknown == 1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "ERROR: <input>:2:3: undeclared reference to 'unknown' (in container '')"
    );
}
