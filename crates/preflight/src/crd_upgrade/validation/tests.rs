use serde_json::json;

use super::*;

fn found(object: &Value, schema: &Value) -> Result<Vec<SchemaViolation>, Exhausted> {
    violations(
        object,
        schema,
        &mut Patterns::default(),
        &mut Budget::of_one_object(),
    )
}

fn check(schema: &Value, value: &Value, expected: &[&str]) {
    let schema = json!({"type": "object", "properties": {"f": schema}});
    let found = found(&json!({ "f": value }), &schema).unwrap();
    let texts: Vec<String> = found
        .iter()
        .map(|violation| format!("{} {}", violation.path, violation.message))
        .collect();
    assert_eq!(texts, expected);
}

#[test]
fn every_constraint_of_a_structural_schema_counts() {
    check(&json!({"type": "string"}), &json!("a"), &[]);
    check(
        &json!({"type": "integer"}),
        &json!("a"),
        &["^.f is of type string, not integer"],
    );
    check(&json!({"type": "integer"}), &json!(2.0), &[]);
    check(&json!({"type": "number"}), &json!(2), &[]);
    check(
        &json!({"type": "integer"}),
        &json!(2.5),
        &["^.f is of type number, not integer"],
    );
    check(&json!({"x-kubernetes-int-or-string": true}), &json!("5%"), &[]);
    check(
        &json!({"x-kubernetes-int-or-string": true}),
        &json!([]),
        &["^.f is of type array, not integer or string"],
    );
    check(
        &json!({"type": "string"}),
        &Value::Null,
        &["^.f is of type null, not string"],
    );
    check(&json!({"type": "string", "nullable": true}), &Value::Null, &[]);
    check(&json!({"enum": ["a", 1]}), &json!(1.0), &[]);
    check(
        &json!({"enum": ["a"]}),
        &json!("b"),
        &["^.f is none of the values that are allowed"],
    );
    check(
        &json!({"type": "string", "pattern": "^a", "maxLength": 1}),
        &json!("bä"),
        &["^.f does not match \"^a\"", "^.f has more than 1 character"],
    );
    check(&json!({"pattern": "(["}), &json!("x"), &[]);
    check(&json!({"minimum": 3}), &json!(3), &[]);
    check(
        &json!({"minimum": 3, "exclusiveMinimum": true}),
        &json!(3),
        &["^.f is less than 3 or equal to it"],
    );
    check(&json!({"maximum": 3}), &json!(4), &["^.f is more than 3"]);
    check(&json!({"multipleOf": 0.1}), &json!(0.3), &[]);
    check(
        &json!({"multipleOf": 2}),
        &json!(3),
        &["^.f is not a multiple of 2"],
    );
    check(
        &json!({"minItems": 3, "items": {"type": "string"}}),
        &json!(["a", 1]),
        &[
            "^.f has fewer than 3 items",
            "^.f.items is of type integer, not string",
        ],
    );
    check(
        &json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
        &json!([{"a": 1, "b": 1}, {"a": 1}]),
        &["^.f holds the same item twice"],
    );
    check(&json!({"x-kubernetes-list-type": "set"}), &json!(["a", "b"]), &[]);
    check(
        &json!({"required": ["a"], "properties": {"b": {"type": "string"}}}),
        &json!({"b": 1, "unknown": 1}),
        &[
            "^.f lacks the required field \"a\"",
            "^.f.b is of type integer, not string",
        ],
    );
    check(
        &json!({"additionalProperties": {"type": "string"}, "maxProperties": 1}),
        &json!({"a": 1, "b": "x"}),
        &[
            "^.f has more than 1 field",
            "^.f.additionalProperties is of type integer, not string",
        ],
    );
    check(
        &json!({"allOf": [{"maximum": 1}], "anyOf": [{"maximum": 2}, {"maximum": 1}]}),
        &json!(3),
        &["^.f.allOf[0] is more than 1", "^.f fits none of anyOf"],
    );
    check(
        &json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &json!({"a": 1, "b": 1}),
        &["^.f fits several of oneOf"],
    );
    check(
        &json!({"not": {"required": ["a"]}}),
        &json!({"a": 1}),
        &["^.f matches the schema that `not` excludes"],
    );
}

#[test]
fn defaults_are_filled_in_first_as_the_api_server_does() {
    let schema = json!({"required": ["a"], "properties": {"a": {"type": "string", "default": "x"}}});
    check(&schema, &json!({}), &[]);
    check(&schema, &json!({"a": null}), &[]);
    let deep = json!({"items": {"required": ["a"], "properties": {"a": {"default": 1, "maximum": 0}}}});
    check(&deep, &json!([{}]), &["^.f.items.a is more than 0"]);
}

#[test]
fn values_and_schemas_of_any_depth_are_looked_at_without_end_of_stack() {
    let (mut schema, mut value) = (json!({"type": "string"}), json!(1));
    for _ in 0..400 {
        schema = json!({"items": schema, "not": {"not": {}}});
        value = json!([value]);
    }
    assert!(found(&value, &schema).unwrap().len() <= MAX_VIOLATIONS);
}

#[test]
fn a_comparison_that_takes_too_much_is_given_up() {
    let many = |count: usize, value: Value| json!({"list": vec![value; count]});
    let schema = |items: Value| json!({"properties": {"list": {"items": items}}});
    let large = "x".repeat(100_000);
    let of_all = |keyword: &str, one: Value, last: Value| {
        let mut all = vec![one; 1000];
        all.push(last);
        schema(json!({ keyword: all }))
    };
    for (object, schema) in [
        // Defaults that are filled into every item.
        (
            many(100_000, json!({})),
            schema(json!({"properties": {"a": {"default": large}}})),
        ),
        (
            many(100_000, json!({})),
            schema(json!({"properties": {"a": {"default": vec![0; 100]}}})),
        ),
        // Every item against every schema of a list.
        (
            many(100_000, json!(1)),
            of_all("anyOf", json!({"type": "string"}), json!({})),
        ),
        (
            many(100_000, json!(1)),
            of_all("allOf", json!({"type": "integer"}), json!({})),
        ),
        (many(100_000, json!(1)), of_all("enum", json!("a"), json!(1))),
        (
            many(100, json!([1])),
            of_all("enum", json!(vec![2; 1000]), json!([1])),
        ),
        (
            many(100_000, json!({"a": 1})),
            of_all("required", json!("a"), json!("a")),
        ),
        // The same key again and again.
        (
            many(1000, json!({"a": large})),
            json!({"properties": {"list": {
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": vec!["a"; 1000],
            }}}),
        ),
        // A pattern with many states, and much text.
        (
            many(1000, json!("a".repeat(1000))),
            schema(json!({"pattern": "[a-c]{400}b"})),
        ),
    ] {
        assert_eq!(
            found(&object, &schema),
            Err(Exhausted),
            "{}",
            schema.to_string().len()
        );
    }
}

#[test]
fn long_names_are_shortened() {
    let name = "é".repeat(1000);
    let findings = found(
        &json!({&name: 1}),
        &json!({"properties": {&name: {"type": "string", "required": []}}, "required": [format!("{name}x")]}),
    )
    .unwrap();
    assert_eq!(findings.len(), 2);
    assert!(
        findings
            .iter()
            .all(|violation| violation.path.len() < 600 && violation.message.len() < 600),
        "{findings:?}"
    );
}
