//! Texts that are written to do harm.

use std::time::Duration;

use olm_constraint::cel::{Budget, EvalError, MAX_RULE, Program, Value};
use olm_constraint::{Constraint, Requirement};
use proptest::prelude::*;

fn evaluate(rule: &str) -> Result<bool, EvalError> {
    let properties = Value::properties(std::iter::empty());
    Program::compile(rule)
        .unwrap()
        .evaluate(&properties, &mut Budget::default())
}

#[test]
fn depth_is_refused_before_it_fills_the_stack() {
    for rule in [
        format!("{}1 == 1", "1 + ".repeat(16_000)),
        format!("properties{} == 1", ".a".repeat(30_000)),
        format!("properties{} == 1", "[0]".repeat(20_000)),
        format!("{}true{}", "(".repeat(30_000), ")".repeat(30_000)),
        format!("{}1{} == 1", "[".repeat(30_000), "]".repeat(30_000)),
        format!("{}true", "true ? ".repeat(9_000)),
        format!("properties{} == []", ".map(x, x)".repeat(6_000)),
        "a".repeat(MAX_RULE + 1),
    ] {
        assert!(Program::compile(&rule).is_err(), "{}…", &rule[..20]);
    }
}

#[test]
fn length_alone_is_no_reason_to_refuse() {
    assert_eq!(evaluate(&format!("{}true", "false || ".repeat(7_000))), Ok(true));
    assert_eq!(evaluate(&format!("{}true", "!".repeat(60_000))), Ok(true));
    assert_eq!(evaluate(&format!("1 in [{}1]", "2, ".repeat(20_000))), Ok(true));
}

#[test]
fn work_is_cut_off_by_the_budget() {
    let many = format!("[{}1]", "1, ".repeat(999));
    let different: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let different = format!("[{}]", different.join(", "));
    for rule in [
        format!("{many}.all(a, {many}.all(b, {many}.all(c, a + b + c > 0)))"),
        // Doubles a text with every step.
        format!(
            "['0123456789'].map(a, a){}.size() == 1",
            ".map(a, a + a)".repeat(40)
        ),
        format!("[[1]].map(a, a){}.size() == 1", ".map(a, a + a)".repeat(40)),
        format!("{different}.all(a, 'x'.matches(string(a) + 'y{{1000}}') || true)"),
        format!(
            "{many}.all(a, !'{}b'.contains('{}c'))",
            "a".repeat(10_000),
            "a".repeat(5_000)
        ),
    ] {
        let begin = std::time::Instant::now();
        assert_eq!(evaluate(&rule), Err(EvalError::Exhausted), "{}…", &rule[..40]);
        assert!(begin.elapsed() < Duration::from_secs(5), "{}…", &rule[..40]);
    }
}

#[test]
fn rules_share_one_budget() {
    let program = Program::compile("[1, 2, 3].all(x, x > 0)").unwrap();
    let properties = Value::properties(std::iter::empty());
    let mut budget = Budget::new(100);
    let outcomes: Vec<_> = (0..10)
        .map(|_| program.evaluate(&properties, &mut budget))
        .collect();
    assert_eq!(outcomes.first(), Some(&Ok(true)));
    assert_eq!(outcomes.last(), Some(&Err(EvalError::Exhausted)));
}

#[test]
fn a_constraint_is_bounded_in_depth() {
    let nested = |levels: usize| {
        format!(
            "{}{{\"gvk\":{{\"version\":\"v1\",\"kind\":\"K\"}}}}{}",
            "{\"all\":{\"constraints\":[".repeat(levels),
            "]}}".repeat(levels)
        )
    };
    assert!(Requirement::of_dependency("olm.constraint", &nested(60)).is_ok());
    assert!(Requirement::of_dependency("olm.constraint", &nested(70)).is_err());
    assert!(Constraint::parse(&"[".repeat(60_000)).is_err());
    assert!(Constraint::parse(&"{\"all\":".repeat(9_000)).is_err());
}

proptest! {
    #[test]
    fn no_text_panics(rule in "\\PC{0,60}") {
        let _ = Program::compile(&rule);
        let _ = Constraint::parse(&rule);
    }

    #[test]
    fn no_sequence_of_tokens_panics(tokens in proptest::collection::vec(prop_oneof![
        Just("properties"), Just("x"), Just("1"), Just("2u"), Just("1.5"), Just("'a'"), Just("b'a'"), Just("true"), Just("null"),
        Just("["), Just("]"), Just("("), Just(")"), Just("{"), Just("}"), Just(","), Just(":"), Just("?"), Just("."), Just("-"),
        Just("!"), Just("+"), Just("*"), Just("/"), Just("%"), Just("=="), Just("<"), Just("in"), Just("&&"), Just("||"),
        Just(".exists(x,"), Just(".map(x,"), Just("size("), Just("int("), Just("string("), Just("timestamp("), Just("duration("),
        Just("semver_compare("), Just("type("), Just("dyn("), Just(".matches("), Just("has("), Just("\\"), Just("'"),
    ], 0..16)) {
        let rule = tokens.concat();
        if let Ok(program) = Program::compile(&rule) {
            let _ = program.evaluate(&Value::properties(std::iter::empty()), &mut Budget::new(10_000));
        }
    }

    #[test]
    fn arithmetic_never_panics(a in any::<i64>(), b in any::<i64>(), c in any::<f64>()) {
        let double = if c.is_finite() { format!("{c:e}") } else { "1e308".to_owned() };
        let double = if double.contains('.') { double } else { double.replacen('e', ".0e", 1) };
        for rule in [
            format!("dyn({a}) + {b} == 0"), format!("{a} - {b} == 0"), format!("{a} * {b} == 0"), format!("{a} / {b} == 0"),
            format!("{a} % {b} == 0"), format!("-({a}) == 0"), format!("int({double}) == 0"), format!("uint({double}) == 0u"),
            format!("dyn({a}) < {double}"), format!("[1][dyn({double})] == 1"), format!("timestamp({a}) == timestamp({b})"),
            format!("duration({a}) + duration({b}) == duration(0)"), format!("timestamp(0) + duration({a}) == timestamp({b})"),
            format!("string({double}) == ''"), format!("timestamp({a}).getFullYear() == 1"),
        ] {
            let program = Program::compile(&rule);
            prop_assert!(program.is_ok(), "{}: {:?}", rule, program.err());
            let _ = program.unwrap().evaluate(&Value::properties(std::iter::empty()), &mut Budget::new(10_000));
        }
    }
}
